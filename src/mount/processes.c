/* SPDX-License-Identifier: MIT */
/* Finds other processes through /proc: see processes.h. */
#include "mount/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "shelf/mounts.h"

int processes_each(const char *folder, bool (*fn)(void *arg, long number), void *arg)
{
    DIR *d = opendir(folder);
    bool more = true;
    const struct dirent *e;
    if (!d)
        return -errno;
    while (more && (e = readdir(d)))
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            more = fn(arg, strtol(e->d_name, NULL, 10));
    (void)closedir(d);
    return more ? 0 : 1;
}

/* Read the start of a short file of /proc, as a text. Its length; 0: it cannot be read. */
static size_t read_short(const char *path, char *dst, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, dst, size - 1);
    if (fd >= 0)
        (void)close(fd);
    dst[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

const char *process_name(char dst[PROCESS_NAME_MAX], long pid)
{
    char path[64], name[32];
    (void)snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    size_t n = read_short(path, name, sizeof(name));
    if (n > 0 && name[n - 1] == '\n')
        n--;
    return show_in(dst, PROCESS_NAME_MAX, name, n);
}

/* "PID (NAME) STATE ...": the name may contain anything. */
bool process_stopped(long pid)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    (void)read_short(path, text, sizeof(text));
    const char *name_end = strrchr(text, ')');
    return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

const char *user_name(char dst[PROCESS_NAME_MAX], long uid)
{
    struct passwd entry, *found = NULL;
    char room[4096];
    if (uid >= 0 && getpwuid_r((uid_t)uid, &entry, room, sizeof(room), &found) == 0 && found)
        return show_in(dst, PROCESS_NAME_MAX, found->pw_name, strlen(found->pw_name));
    (void)snprintf(dst, PROCESS_NAME_MAX, "%ld", uid);
    return dst;
}

/* ---- locks ---- */

/* Long enough for a dozen locks. */
#define INFO_MAX 2048

bool file_id_of(int fd, struct file_id *ret)
{
    char path[64], info[INFO_MAX];
    struct stat st;
    struct mounts ms;
    if (fstat(fd, &st) < 0)
        return false;
    *ret = (struct file_id){major(st.st_dev), minor(st.st_dev), st.st_ino};
    /* On btrfs and overlayfs stat(2) gives other numbers. */
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    (void)read_short(path, info, sizeof(info));
    const char *ino = strstr(info, "\nino:"), *mnt = strstr(info, "\nmnt_id:");
    if (ino)
        ret->ino = strtoull(ino + 5, NULL, 10);
    long id = mnt ? strtol(mnt + 8, NULL, 10) : -1;
    if (mounts_load(&ms, 0) == 0)
        for (size_t i = 0; i < ms.n; i++)
            if (ms.mount[i].id == id) {
                ret->major = major(ms.mount[i].dev);
                ret->minor = minor(ms.mount[i].dev);
            }
    mounts_free(&ms);
    return true;
}

/* "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF": the process, if that is a lock of the file; else 0. */
static long lock_in(const char *text, const struct file_id *id)
{
    unsigned major_no, minor_no;
    uint64_t ino;
    long pid;
    bool is = sscanf(text, "%*d: FLOCK %*s WRITE %ld %x:%x:%" SCNu64, &pid, &major_no, &minor_no,
                     &ino) == 4 &&
              major_no == id->major && minor_no == id->minor && ino == id->ino;
    return is ? pid : 0;
}

/* The descriptions of open files have their locks, whichever process took them. */
static bool is_unlocked(void *arg, long number)
{
    static const char label[] = "\nlock:";
    char path[64], info[INFO_MAX];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%ld", number);
    (void)read_short(path, info, sizeof(info));
    for (const char *p = info; (p = strstr(p, label)); p++)
        if (lock_in(p + sizeof(label) - 1, arg))
            return false;
    return true;
}

bool file_is_locked_here(const struct file_id *id)
{
    struct file_id of = *id;
    return processes_each("/proc/self/fdinfo", is_unlocked, &of) > 0;
}

long file_locked_by(const struct file_id *id)
{
    char line[256];
    long pid = 0;
    FILE *f = fopen("/proc/locks", "re");
    while (f && pid <= 0 && fgets(line, sizeof(line), f))
        pid = lock_in(line, id);
    if (f)
        (void)fclose(f);
    return pid > 0 ? pid : 0;
}
