/* SPDX-License-Identifier: MIT */
/* Unmounting, and waiting for the daemon: see unmount.h. */
#include "mount/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"

#define WORDS_NAME "ggufs-status"

int daemon_begin(char text[DAEMON_TEXT_MAX])
{
    int fd = memfd_create(WORDS_NAME, MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)snprintf(text, DAEMON_TEXT_MAX, "%ld %d", (long)getpid(), fd);
    return fd;
}

void daemon_end(int fd, const struct err *e)
{
    const char *words = e->code ? e->msg : "ok";
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, words, strlen(words));
    (void)ignored;
    (void)close(fd);
}

/* The daemon of a mount, as the one who unmounts sees it. */
struct daemon {
    int process; /* becomes readable when the process ends */
    int words;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

/* Whether that is the file of a daemon's last words: another file server, or another namespace of
 * processes, may tell of anything. */
static bool is_words(const char *path)
{
    static const char want[] = "/memfd:" WORDS_NAME " (deleted)";
    char link[sizeof(want)];
    ssize_t n = readlink(path, link, sizeof(link));
    return n == (ssize_t)sizeof(want) - 1 && memcmp(link, want, sizeof(want) - 1) == 0;
}

static int find_daemon(const char *mountpoint, struct daemon *d, struct err *e)
{
    char text[DAEMON_TEXT_MAX + 1] = "", path[64];
    long pid;
    int fd;
    if (getxattr(mountpoint, DAEMON_XATTR, text, DAEMON_TEXT_MAX) < 0)
        return errno == ENOTCONN
                   ? err_set(e, -ENOTCONN, "its daemon was killed (fusermount3 -u unmounts it)")
                   : err_set(e, -EINVAL, "is not a mount of ggufs (%s)", strerror(errno));
    if (sscanf(text, "%ld %d", &pid, &fd) != 2)
        return err_set(e, -EINVAL, "is not a mount of ggufs");
    (void)snprintf(path, sizeof(path), "/proc/%ld/fd/%d", pid, fd);
    errno = ESRCH;
    d->words = is_words(path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    d->process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (d->words < 0 || d->process < 0)
        return err_set(e, -errno, "cannot watch its daemon %ld: %s", pid, strerror(errno));
    return 0;
}

/* fsync of the folder writes what is pending and tells of failures before. */
static int write_pending(const char *mountpoint, struct err *e)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    buf_printf(&path, "%s/metadata", mountpoint);
    buf_char(&path, '\0');
    if (buf_error(&path))
        return err_set(e, buf_error(&path), "no memory");
    int fd = open((const char *)path.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || fsync(fd) < 0 ? -errno : 0;
    close_fd(&fd);
    return r < 0 ? err_set(e, r, "an edit could not be written: %s", strerror(-r)) : 0;
}

/* fusermount3 tells why it fails by itself. */
static int run_fusermount(const char *mountpoint, struct err *e)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("fusermount3", "fusermount3", "-u", "--", mountpoint, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return err_set(e, -errno, "cannot run fusermount3: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(e, -EBUSY, "fusermount3 -u failed");
    return 0;
}

static int take_down_path(const char *path, struct err *e)
{
    if (umount2(path, UMOUNT_NOFOLLOW) == 0)
        return 0;
    if (errno == EPERM)
        return run_fusermount(path, e);
    return err_set(e, -errno, "cannot unmount: %s", strerror(errno));
}

/* umount(2) and fusermount3 take a symbolic link to a mount for no mount. */
static int take_down(const char *mountpoint, struct err *e)
{
    char *path = realpath(mountpoint, NULL);
    int r = take_down_path(path ? path : mountpoint, e);
    free(path);
    return r;
}

static int last_words(const struct daemon *d, struct err *e)
{
    char words[sizeof(e->msg)] = "";
    struct pollfd p = {.fd = d->process, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    ssize_t n = pread(d->words, words, sizeof(words) - 1, 0);
    if (n <= 0)
        return err_set(e, -EIO, "the daemon was killed");
    return strcmp(words, "ok") == 0 ? 0 : err_set(e, -EIO, "%s", words);
}

int mnt_unmount(const char *mountpoint, struct err *e)
{
    struct daemon d = {-1, -1};
    struct err lost = {0};
    char shown[SHOW_MAX];
    int r = find_daemon(mountpoint, &d, e);
    if (r == 0) {
        (void)write_pending(mountpoint, &lost);
        r = take_down(mountpoint, e);
    }
    if (r == 0)
        r = last_words(&d, e);
    if (r == 0 && lost.code) {
        *e = lost;
        r = lost.code;
    }
    close_fd(&d.process);
    close_fd(&d.words);
    return r < 0 ? err_prefix(e, "%s", show(shown, mountpoint, strlen(mountpoint))) : 0;
}
