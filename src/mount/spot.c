/* SPDX-License-Identifier: MIT */
/* Prepares a mount point: see spot.h. */
#include "mount/spot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include "mount/log.h"
#include "shelf/mounts.h"
#include "mount/daemon.h"
#include "mount/takedown.h"

/* How often a mount point is checked: dead mounts may lie on each other, and one that is being taken
 * down disappears by itself. Between two checks of such a mount there are some milliseconds. */
#define LOOKS_MAX 100
#define LOOK_AGAIN 50

#define ANSWER_MS 2000

/* Of a device number within the kernel. */
#define KERNEL_MINOR_BITS 20

/* True for a mount of ggufs. */
static bool is_ours(const struct mount *m, const struct daemon *d)
{
    return mount_is_ggufs(m) || (mount_is_fuse(m) && d);
}

/* A mount of ggufs is on the mount point: refuse, or take it down. */
static int occupied(const struct mount *m, const struct daemon *d, const char *shown, struct err *e)
{
    char model[SHOW_MAX], pid[64] = "";
    if (d && d->status.state >= DAEMON_LEAVING) { /* it is taking its mount down */
        (void)poll(NULL, 0, LOOK_AGAIN);
        return 0;
    }
    if (mount_life(m->at, ANSWER_MS) == MOUNT_DEAD) {
        int r = mount_take_down(m->at, true, e);
        if (r < 0 && r != -EINVAL) /* EINVAL: another process did it */
            return err_prefix(e, r, "%s: has a dead mount", shown);
        *e = (struct err){0};
        log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", shown);
        return 0;
    }
    if (d)
        (void)snprintf(pid, sizeof(pid), ", process %ld", d->pid);
    return err_set(
        e, -EBUSY,
        "%s: a ggufs is already mounted there (%s%s); unmount it first: ggufs --unmount %s", shown,
        show(model, m->source, strlen(m->source)), pid, shown);
}

static int inside(const struct mount *m, const char *shown, struct err *e)
{
    char at[SHOW_MAX];
    return err_set(e, -EBUSY, "%s: is inside the ggufs mount on %s", shown,
                   show(at, m->at, strlen(m->at)));
}

/* Check the list of mounts once. 1: a dead mount was removed, check again; 0, -errno. */
static int look(const char *path, const char *shown, struct err *e)
{
    struct mounts ms;
    struct daemons ds = {0};
    int r = mounts_load(&ms, 0);
    const struct mount *m = r == 0 ? mounts_around(&ms, path) : NULL;
    if (m && mount_is_fuse(m))
        (void)daemons_find(&ds, NULL);
    const struct daemon *d = m ? daemons_of(&ds, m) : NULL;
    if (!m || !is_ours(m, d)) {
        r = 0;
    } else if (strcmp(m->at, path) == 0) {
        r = occupied(m, d ? d : daemons_silent(&ds, m), shown, e);
        r = r < 0 ? r : 1;
    } else {
        r = inside(m, shown, e);
    }
    daemons_free(&ds);
    mounts_free(&ms);
    return r;
}

/* The path cannot be reached. */
static int no_path(const char *path, int why, const char *shown, struct err *e)
{
    struct mounts ms;
    char at[SHOW_MAX];
    const struct mount *m = NULL;
    if (why == ENOTCONN && mounts_load(&ms, 0) == 0) {
        m = mounts_typed(&ms, path);
        if (m)
            (void)show(at, m->at, strlen(m->at));
        mounts_free(&ms);
    }
    if (m)
        return err_set(e, -why, "%s: is inside the dead mount on %s", shown, at);
    return err_set(e, -why, "%s: %s", shown, strerror(why));
}

/* A path into a mount of ggufs is refused before it is followed. */
static int check_typed(const char *path, const char *shown, struct err *e)
{
    struct mounts ms;
    int r = 0;
    if (mounts_load(&ms, 0) < 0)
        return 0;
    const struct mount *m = strstr(path, "..") ? NULL : mounts_typed(&ms, path);
    if (m && mount_is_ggufs(m) && mount_life(m->at, ANSWER_MS) != MOUNT_DEAD)
        r = inside(m, shown, e);
    mounts_free(&ms);
    return r;
}

static bool is_opened_already(const char *mountpoint)
{
    return strncmp(mountpoint, "/dev/fd/", 8) == 0;
}

/* As a new kernel describes a connection; 0: this one does not. */
static dev_t device_of_connection(int fd)
{
    static const char label[] = "\nfuse_connection:";
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = info < 0 ? -1 : read(info, text, sizeof(text) - 1);
    if (info >= 0)
        (void)close(info);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, label);
    unsigned number = at ? (unsigned)strtoul(at + sizeof(label) - 1, NULL, 10) : 0;
    return makedev(number >> KERNEL_MINOR_BITS, number & ((1U << KERNEL_MINOR_BITS) - 1));
}

/* The place where the file system is mounted; NULL: not in this list, or no memory. free() it. */
static char *place_of(dev_t dev)
{
    struct mounts ms;
    char *at = NULL;
    if (mounts_load(&ms, 0) == 0)
        for (size_t i = ms.n; dev && !at && i-- > 0;)
            if (ms.mount[i].dev == dev)
                at = strdup(ms.mount[i].at);
    mounts_free(&ms);
    return at;
}

static dev_t device_at(const char *mountpoint)
{
    struct statx st;
    if (statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, 0, &st) < 0)
        return 0;
    return makedev(st.stx_dev_major, st.stx_dev_minor);
}

dev_t spot_device(char **mountpoint, int fd)
{
    if (!is_opened_already(*mountpoint))
        return device_at(*mountpoint);
    dev_t dev = device_of_connection(fd);
    char *at = place_of(dev);
    if (at) {
        free(*mountpoint);
        *mountpoint = at;
    }
    return dev;
}

int spot_claim(const char *mountpoint, int *claim, struct err *e)
{
    char shown[SHOW_MAX];
    *claim = -1;
    if (is_opened_already(mountpoint))
        return 0;
    int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOOKS_MAX && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
        (void)poll(NULL, 0, LOOK_AGAIN);
    int r = look(mountpoint, show(shown, mountpoint, strlen(mountpoint)), e);
    if (r >= 0)
        *claim = fd;
    else if (fd >= 0)
        (void)close(fd);
    return r < 0 ? r : 0;
}

int spot_prepare(char **mountpoint, struct err *e)
{
    char shown[SHOW_MAX];
    struct stat st;
    if (is_opened_already(*mountpoint))
        return 0;
    (void)show(shown, *mountpoint, strlen(*mountpoint));
    int r = check_typed(*mountpoint, shown, e);
    if (r < 0)
        return r;
    char *path = mounts_path(*mountpoint);
    if (!path)
        return no_path(*mountpoint, errno, shown, e);
    r = 1;
    for (int i = 0; i < LOOKS_MAX && r > 0; i++)
        r = look(path, shown, e);
    free(*mountpoint);
    *mountpoint = path;
    if (r > 0)
        r = err_set(e, -EBUSY, "%s: is still mounted", shown);
    if (r < 0)
        return r;
    if (stat(path, &st) < 0)
        return no_path(path, errno, shown, e);
    return S_ISDIR(st.st_mode) ? 0 : err_set(e, -ENOTDIR, "%s: is not a directory", shown);
}
