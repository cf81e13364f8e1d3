/* SPDX-License-Identifier: MIT */
/* Unmounting, and waiting for the daemon: see unmount.h. */
#include "mount/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "mount/daemon.h"

/* Bytes of a line about a lost edit: a name, and a reason. */
#define LINE_MAX_SHOWN 1024

/* The daemon of a mount, as the one who unmounts sees it. */
struct daemon {
    int process; /* becomes readable when the process ends */
    int status;  /* see daemon_read() */
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static int find_daemon(const char *mountpoint, struct daemon *d, struct err *e)
{
    char text[DAEMON_TEXT_MAX + 1] = "";
    long pid;
    int fd;
    if (getxattr(mountpoint, DAEMON_XATTR, text, DAEMON_TEXT_MAX) < 0)
        return errno == ENOTCONN
                   ? err_set(e, -ENOTCONN, "its daemon was killed (fusermount3 -u unmounts it)")
                   : err_set(e, -EINVAL, "is not a mount of ggufs (%s)", strerror(errno));
    if (sscanf(text, "%ld %d", &pid, &fd) != 2)
        return err_set(e, -EINVAL, "is not a mount of ggufs");
    d->status = daemon_open(pid, fd);
    if (d->status < 0)
        return err_set(e, d->status, "cannot watch its daemon %ld: %s", pid, strerror(-d->status));
    d->process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (d->process < 0)
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

/* Lines of the daemon, made safe to print. */
static void add_lost(const char *mountpoint, const struct daemon_status *s, struct buf *lost)
{
    const char *text = (const char *)s->lost.data, *end = text + s->lost.len;
    char shown[SHOW_MAX], line[LINE_MAX_SHOWN];
    for (const char *p = text; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((stop ? stop : end) - p);
        buf_printf(lost, "%s: not saved: %s\n", show(shown, mountpoint, strlen(mountpoint)),
                   show_in(line, sizeof(line), p, n));
        p += n + 1;
    }
}

/* Wait until the daemon has ended; how it went. */
static int last_words(const char *mountpoint, const struct daemon *d, struct buf *lost,
                      struct err *e)
{
    struct daemon_status s;
    char shown[sizeof(e->msg)];
    struct pollfd p = {.fd = d->process, .events = POLLIN};
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    int r = daemon_read(d->status, &s);
    if (r < 0 || s.state != DAEMON_ENDED) {
        r = err_set(e, -EIO, "the daemon was killed");
    } else {
        add_lost(mountpoint, &s, lost);
        if (s.failed)
            r = err_set(e, -EIO, "%s", show_in(shown, sizeof(shown), s.failed, strlen(s.failed)));
    }
    daemon_status_free(&s);
    return r;
}

int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e)
{
    struct daemon d = {-1, -1};
    struct err unwritten = {0};
    char shown[SHOW_MAX];
    int r = find_daemon(mountpoint, &d, e);
    if (r == 0) {
        (void)write_pending(mountpoint, &unwritten);
        r = take_down(mountpoint, e);
    }
    if (r == 0)
        r = last_words(mountpoint, &d, lost, e);
    if (r == 0 && unwritten.code) {
        *e = unwritten;
        r = unwritten.code;
    }
    close_fd(&d.process);
    close_fd(&d.status);
    return r < 0 ? err_prefix(e, "%s", show(shown, mountpoint, strlen(mountpoint))) : 0;
}
