/* SPDX-License-Identifier: MIT */
/* Runs a mount from beginning to end: see session.h. */
#include "mount/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/sys.h"
#include "mount/control.h"
#include "mount/daemon.h"
#include "mount/log.h"
#include "shelf/mountinfo.h"
#include "mount/unmount.h"

/* Maximum number of checks of a mount point, on which dead mounts may be stacked, and the
 * milliseconds between checks. */
#define LOOKS_MAX 100
#define LOOK_AGAIN 50

/* Number of bits of the minor number in the kernel's internal device numbers. */
#define KERNEL_MINOR_BITS 20

/* The name of the unmounting process in process lists, and its only descriptor besides the standard
 * ones. */
#define GUARD_NAME "auto_unmount"
#define GUARD_FD 3

/* ---- a new mount ---- */

/* Handle a ggufs mount that is already on the mount point: remove it if it is dead, otherwise
 * refuse. */
static int occupied(const struct mount *m, const struct daemon *d, const char *shown, struct err *e)
{
    char model[SHOW_MAX], pid[64] = "";
    if (d && d->status.state >= DAEMON_LEAVING) { /* the daemon is removing its mount */
        (void)poll(NULL, 0, LOOK_AGAIN);
        return 0;
    }
    if (mount_life(m->at, MOUNT_ANSWER_MS) == MOUNT_DEAD) {
        int r = mount_take_down(m->at, true, e);
        if (r < 0 && r != -EINVAL) /* EINVAL: another process has removed the mount */
            return err_prefix(e, r, "%s: has a dead mount", shown);
        *e = (struct err){0};
        log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", shown);
        return 0;
    }
    if (d)
        (void)snprintf(pid, sizeof(pid), ", process %ld", d->pid);
    return err_set(
        e, -EBUSY,
        "%s: ggufs is already mounted there (%s%s); unmount it first: ggufs --unmount %s", shown,
        show(model, m->source, strlen(m->source)), pid, shown);
}

static int inside(const struct mount *m, const char *shown, const char *kind, struct err *e)
{
    char at[SHOW_MAX];
    return err_set(e, -EBUSY, "%s: is inside the %s mount on %s", shown, kind,
                   show(at, m->at, strlen(m->at)));
}

/* Check the list of mounts once. Returns 0, -errno, or 1 if a mount was or is being removed and the
 * check must be repeated. */
static int look(const char *path, const char *shown, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    CLEANUP(daemons_free) struct daemons ds = {0};
    int r = mounts_load(&ms, 0);
    const struct mount *m = r == 0 ? mounts_around(&ms, path) : NULL;
    if (m && mount_is_fuse(m))
        (void)daemons_find(&ds, NULL);
    const struct daemon *d = m ? daemons_of(&ds, m) : NULL;
    if (!m || !(mount_is_ggufs(m) || (mount_is_fuse(m) && d)))
        return 0;
    if (strcmp(m->at, path) != 0)
        return inside(m, shown, "ggufs", e);
    r = occupied(m, d, shown, e);
    return r < 0 ? r : 1;
}

/* Refuse an unresolved path that leads into a ggufs mount. */
static int check_typed(const char *path, const char *shown, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    const struct mount *m =
        mounts_load(&ms, 0) == 0 && !strstr(path, "..") ? mounts_typed(&ms, path) : NULL;
    if (!m || !mount_is_ggufs(m))
        return 0;
    bool dead = mount_life(m->at, MOUNT_ANSWER_MS) == MOUNT_DEAD;
    return inside(m, shown, dead ? "dead" : "ggufs", e);
}

static bool is_opened_already(const char *mountpoint)
{
    return strncmp(mountpoint, "/dev/fd/", 8) == 0;
}

/* Return the device of a connection, or 0 if the kernel is too old to report it. */
static dev_t device_of_connection(int fd)
{
    static const char label[] = "\nfuse_connection:";
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    (void)proc_read(path, text, sizeof(text));
    const char *at = strstr(text, label);
    unsigned number = at ? (unsigned)strtoul(at + sizeof(label) - 1, NULL, 10) : 0;
    return makedev(number >> KERNEL_MINOR_BITS, number & ((1U << KERNEL_MINOR_BITS) - 1));
}

/* Return the device of the mounted file system, or 0 if it is unknown. Does not access the file
 * system, because this process would have to reply. `fd` is the session's descriptor. If mount(8)
 * has mounted the file system, *mountpoint is replaced with the real path. */
static dev_t spot_device(char **mountpoint, int fd)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    struct statx st;
    if (!is_opened_already(*mountpoint))
        return statx(AT_FDCWD, *mountpoint, AT_STATX_DONT_SYNC, 0, &st) < 0
                   ? 0
                   : makedev(st.stx_dev_major, st.stx_dev_minor);
    dev_t dev = device_of_connection(fd);
    size_t i = dev && mounts_load(&ms, 0) == 0 ? ms.n : 0;
    while (i > 0 && ms.mount[i - 1].dev != dev)
        i--;
    char *at = i ? strdup(ms.mount[i - 1].at) : NULL;
    if (at) {
        free(*mountpoint);
        *mountpoint = at;
    }
    return dev;
}

/* Claim the mount point while the file system is being mounted. Other ggufs processes that want to
 * mount there wait, and then see the mount. The caller closes *claim, which may be -1. Returns 0,
 * or -errno with a message if another ggufs has been mounted there first. */
static int spot_claim(const char *mountpoint, int *claim, struct err *e)
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

/* Replace *mountpoint (owned) with its real path, and check that the path leads to a directory that
 * is neither a ggufs mount nor inside one. A dead ggufs mount there is removed. The path /dev/fd/N,
 * which means that mount(8) has mounted the file system, is accepted. Call before threads are
 * started. */
static int spot_prepare(char **mountpoint, struct err *e)
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
    if (!path && errno == ENOENT)
        return err_set(e, -ENOENT, "%s: there is no such directory; make it first: mkdir -p %s",
                       shown, shown);
    if (!path)
        return err_set(e, -errno, "%s: %s", shown, strerror(errno));
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
        return err_set(e, -errno, "%s: %s", shown, strerror(errno));
    return S_ISDIR(st.st_mode) ? 0 : err_set(e, -ENOTDIR, "%s: is not a directory", shown);
}

/* ---- a process that unmounts after the daemon has ended ---- */

/* Change this process's name and clear its arguments, so that programs that kill the daemon by name
 * or arguments (pidof, pkill -f) do not find the guard. */
static void take_name(void)
{
    char args[4 * PATH_MAX];
    (void)prctl(PR_SET_NAME, GUARD_NAME);
    const size_t n = proc_read("/proc/self/cmdline", args, sizeof(args));
    if (n > 0)
        (void)strncpy(program_invocation_name, GUARD_NAME, n - 1);
}

/* Drop everything shared with the daemon: its terminal, its working directory and, above all, its
 * open files. An open /dev/fuse would keep the connection alive, and an open model would keep its
 * lock. */
static void guard_detach(int from)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid();
    take_name();
    if (chdir("/") < 0 || dup2(from, GUARD_FD) < 0)
        _exit(1);
    (void)close_range(GUARD_FD + 1, ~0U, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < GUARD_FD && null >= 0; fd++)
        (void)dup2(null, fd);
    if (null > GUARD_FD)
        (void)close(null);
}

static void guard(int from, const char *mountpoint)
{
    char byte = 0;
    guard_detach(from);
    if (write(GUARD_FD, &byte, 1) < 0) /* lets the daemon continue */
        _exit(1);
    while (read(GUARD_FD, &byte, 1) < 0 && errno == EINTR) /* until all other ends are closed */
        ;
    if (mount_ask(mountpoint) == MOUNT_DEAD)
        (void)mount_take_down(mountpoint, true, NULL);
    _exit(0);
}

/*
 * Start the process for -o auto_unmount, which removes the dead mount if the daemon is killed.
 * (libfuse's own helper checks the dead mount as root. Root may not access an ordinary user's
 * mount, so that helper leaves it mounted.) The new process holds one end of a socket. When the
 * daemon's end *ret is closed, no matter how the daemon ends, the new process checks the mount
 * point, which must be an absolute path. Call this before any thread is started or much memory is
 * allocated.
 */
static int guard_begin(const char *mountpoint, int *ret, struct err *e)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_set(e, -errno, "cannot make a socket: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        guard(ends[0], mountpoint);
    int r = pid < 0 ? err_set(e, -errno, "cannot start a process: %s", strerror(errno)) : 0;
    (void)close(ends[0]);
    /* wait for guard_detach(): the guard then survives whatever ends this process */
    if (r == 0) {
        char byte;
        ssize_t n;
        do
            n = read(ends[1], &byte, 1);
        while (n < 0 && errno == EINTR);
        r = n == 1 ? 0 : err_set(e, -ECHILD, "the helper process that unmounts has ended");
    }
    if (r < 0)
        (void)close(ends[1]);
    else
        *ret = ends[1];
    return r;
}

/* ---- the connection to the kernel ---- */

int connection_reserve(int *dead, struct err *e)
{
    int end[2];
    *dead = -1;
    if (pipe2(end, O_CLOEXEC) < 0)
        return err_set(e, -errno, "cannot make a pipe: %s", strerror(errno));
    (void)close(end[0]);
    *dead = end[1];
    return 0;
}

bool connection_cut(struct fuse_session *se, int *dead)
{
    struct pollfd p = {.fd = fuse_session_fd(se)};
    /* if a signal interrupts poll(2), poll(2) had nothing to report */
    bool lived = poll(&p, 1, 0) <= 0;
    /* keeps libfuse from logging failed replies (its loop has reset this flag) */
    fuse_session_exit(se);
    while (dup3(*dead, fuse_session_fd(se), O_CLOEXEC) < 0 && (errno == EINTR || errno == EBUSY))
        ;
    (void)close(*dead);
    *dead = -1;
    return lived;
}

/* libfuse polls its descriptor. It treats an error condition, such as that of a pipe without a
 * reader, as the end of the connection. */
void connection_end(struct fuse_session *se)
{
    fuse_session_unmount(se);
    fuse_session_destroy(se);
}

/* ---- requests and replies ---- */

static ssize_t read_request(int fd, void *bytes, size_t n, void *mnt)
{
    const struct mnt *m = mnt;
    ssize_t got = read(fd, bytes, n);
    if (got < 0 && (errno == ENODEV || errno == ECONNABORTED)) {
        const int why = errno;
        const bool may = thread_may_cancel(false); /* libfuse cancels its other threads */
        control_ends(m->control);
        (void)thread_may_cancel(may);
        errno = why;
    }
    return got;
}

/* Older libfuse (3.14) offers FUSE_CAP_PARALLEL_DIROPS but does not pass it on to the kernel.
 * Without this flag, one name on a hung disk blocks its whole directory, so the flag is added here
 * to the first reply, which negotiates the protocol. */
static ssize_t write_reply(int fd, struct iovec *part, int n, void *mnt)
{
    struct mnt *m = mnt;
    struct fuse_init_out *init = !m->begun && n == 2 ? part[1].iov_base : NULL;
    if (init && part[1].iov_len >= offsetof(struct fuse_init_out, flags) + sizeof(init->flags))
        init->flags |= FUSE_PARALLEL_DIROPS;
    m->begun = true;
    return writev(fd, part, n);
}

static const struct fuse_custom_io io = {.read = read_request, .writev = write_reply};

/* Answer the kernel's first request in this thread, before the loop starts others. */
static void first_exchange(struct fuse_session *se)
{
    struct fuse_buf buf = {.mem = NULL};
    if (fuse_session_receive_buf(se, &buf) > 0)
        fuse_session_process_buf(se, &buf);
    free(buf.mem);
}

/* Set the kernel's readahead, the size of its requests for files that are read sequentially.
 * Only root may do this. With 1 MiB instead of 128 KiB, sequential reads cost about half as
 * much. Call this after the first exchange with the kernel, because that exchange lowers an
 * earlier setting. */
static void set_readahead(dev_t dev, unsigned kib)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev),
                   minor(dev));
    FILE *f = dev ? fopen(path, "we") : NULL;
    if (f) {
        (void)fprintf(f, "%u", kib);
        (void)fclose(f);
    }
}

/* ---- the mount ---- */

/* Return what to do about a refused mount, or "". Ubuntu has an AppArmor profile of fusermount3. */
static const char *advice(const char *why)
{
    return strstr(why, "mount failed: Permission denied") &&
                   access("/sys/kernel/security/apparmor", F_OK) == 0
               ? " (AppArmor may allow fusermount3 to mount only below your home directory, /mnt, "
                 "/media, /tmp and /run/user/UID: mount there, or allow this place in "
                 "/etc/apparmor.d/local/fusermount3)"
               : "";
}

/* Create the session and mount it. After that, any signal ends the session cleanly. */
static struct fuse_session *mount_session(struct mnt_options *o, struct mnt *m, struct err *e)
{
    char why[512], shown[SHOW_MAX];
    int claim;
    if (spot_claim(o->mountpoint, &claim, e) < 0)
        return NULL;
    struct caught c = catch_begin();
    struct fuse_session *se = fuse_session_new(&o->args, &mnt_ops, sizeof(mnt_ops), m);
    if (se)
        signals_begin(se);
    if (se && fuse_session_mount(se, o->mountpoint) != 0) {
        signals_end();
        fuse_session_destroy(se);
        se = NULL;
    }
    if (se)
        (void)fuse_session_custom_io(se, &io, fuse_session_fd(se));
    catch_end(&c, why, sizeof(why));
    if (claim >= 0)
        (void)close(claim);
    if (!se)
        (void)err_set(e, -EIO, "%s: cannot mount%s%s%s",
                      show(shown, o->mountpoint, strlen(o->mountpoint)), why[0] ? ": " : "", why,
                      advice(why));
    return se;
}

/* If the mount is read-only although the user did not request that mode, report the reason. A
 * daemon in the background calls this twice: for standard error and for the log. */
static void say_read_only(const struct mnt_options *o, const struct shelf *t)
{
    char model[SHOW_MAX];
    if (!shelf_writable(t) && !o->tree.read_only)
        log_line(LOG_WARNING, "%s: mounted read-only: %s", show(model, o->model, strlen(o->model)),
                 shelf_why_not(t));
}

/* The mounted session that leave() ends. */
struct leaving {
    struct fuse_session *se;
    const struct mnt_options *o;
    struct mnt *m;
    dev_t dev;
    atomic_bool begun;
};

/* End the connection and unmount, but only once. If the connection had already ended, the mount is
 * gone as well, and its device number may already belong to a different mount. */
static void leave(void *arg)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    struct leaving *l = arg;
    const struct mnt_options *o = l->o;
    const dev_t dev = l->dev;
    struct mnt *m = l->m;
    if (atomic_exchange(&l->begun, true))
        return;
    bool gone = mounts_load(&ms, 0) < 0 || !dev;
    gone |= !connection_cut(l->se, &m->dead);
    for (size_t i = gone ? 0 : ms.n; i-- > 0;) {
        char at[SHOW_MAX];
        struct err e = {0};
        const struct mount *one = &ms.mount[i];
        if (!mount_is_of(one, dev, o->mountpoint, shelf_path(m->shelf)))
            continue;
        if (!mount_is_top(&ms, one))
            (void)err_set(&e, -EBUSY,
                          "another file system is mounted over it, so it is left mounted");
        /* another process has unmounted it */
        else if (mount_take_down(one->at, true, &e) == -EINVAL)
            e = (struct err){0};
        if (e.code)
            log_line(LOG_WARNING, "%s: %s", show(at, one->at, strlen(one->at)), e.msg);
    }
}

/* Report the mount to the log and to other ggufs processes. */
static void announce(struct leaving *l)
{
    const struct mnt_options *o = l->o;
    const struct mnt *m = l->m;
    const struct control_facts facts = {
        .at = o->mountpoint,
        .model = shelf_path(m->shelf),
        .read_only = shelf_writable(m->shelf) ? NULL : shelf_why_not(m->shelf),
        .dev = l->dev,
        .idle = o->idle,
        .leave = leave,
        .leave_arg = l};
    char path[SHOW_MAX], at[SHOW_MAX];
    const char *line;
    control_serve(m->control, &facts, m->shelf);
    if (!o->cmd.foreground) {
        log_to_syslog();
        say_read_only(o, m->shelf); /* also in the log */
    }
    (void)show(path, facts.model, strlen(facts.model));
    for (unsigned i = 0; (line = shelf_warning(m->shelf, i)); i++)
        log_line(LOG_WARNING, "%s: %s", path, line);
    log_line(LOG_INFO, "%s: mounted on %s%s", path, show(at, facts.at, strlen(facts.at)),
             facts.read_only ? ", read-only" : "");
}

/* Number of idle threads that a mount of a directory keeps for later requests. */
#define IDLE_THREADS 10

/* Serve until the session ends. An unmount is not a failure, although reads of the device then
 * fail: with one error if the read is in progress at that moment, with another if it begins
 * later. */
static int loop(struct fuse_session *se, const struct mnt_options *o, bool folder)
{
    const struct fuse_cmdline_opts *cmd = &o->cmd;
    struct fuse_loop_config *cfg = cmd->singlethread ? NULL : fuse_loop_cfg_create();
    int r = cmd->singlethread ? fuse_session_loop(se) : -ENOMEM;
    if (cfg) {
        const bool idle = cmd->max_idle_threads != UINT_MAX; /* libfuse's value for "not given" */
        fuse_loop_cfg_set_clone_fd(cfg, (unsigned)cmd->clone_fd);
        fuse_loop_cfg_set_max_threads(
            cfg, o->given[MOUNT_MAX_THREADS] || !folder ? cmd->max_threads : MNT_FOLDER_REQUESTS);
        if (idle || folder)
            fuse_loop_cfg_set_idle_threads(cfg, idle ? cmd->max_idle_threads : IDLE_THREADS);
        r = fuse_session_loop_mt(se, cfg);
        fuse_loop_cfg_destroy(cfg);
    }
    return r == -ECONNABORTED || r == -ENODEV || r == -ENOTCONN ? 0 : r;
}

/* In the parent, wait until the child reports that the mount is live, or ends after writing the
 * reason to standard error. Does not return. */
static void wait_for_child(int fd, pid_t pid)
{
    int status = 0;
    char live = 0;
    ssize_t n;
    do
        n = read(fd, &live, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        _exit(0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        (void)fprintf(stderr, "ggufs: killed before it was mounted (signal %d)\n",
                      WTERMSIG(status));
    _exit(WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1);
}

/* Start the daemon as a child of this process. The parent waits until it reads a byte from the
 * other end of *ready; if the parent ends earlier, the child ends too. In the foreground, *ready is
 * -1. */
static int begin_daemon(const struct mnt_options *o, int *ready, struct err *e)
{
    int ends[2];
    *ready = -1;
    if (o->cmd.foreground)
        return 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(e, -errno, "cannot make a pipe: %s", strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return err_set(e, -errno, "cannot become a daemon: %s", strerror(errno));
    (void)close(ends[pid > 0]);
    if (pid > 0)
        wait_for_child(ends[0], pid);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    *ready = ends[1];
    return 0;
}

/* Detach from the terminal and let the parent exit, because other processes can now see the mount
 * and its daemon. */
static void leave_terminal(int *ready)
{
    if (*ready < 0)
        return;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null >= 0; fd++)
        (void)dup2(null, fd);
    if (null > STDERR_FILENO)
        (void)close(null);
    (void)!write(*ready, "", 1);
    (void)close(*ready);
    *ready = -1;
}

/* Return true if the file system, which is no longer served, still exists: it is mounted, or it was
 * lazily unmounted while files were open (if the kernel reports that). */
static bool is_there(dev_t dev, const struct mnt_options *o, const struct shelf *t)
{
    CLEANUP(mounts_free) struct mounts ms;
    const bool listed = mounts_load(&ms, 0) == 0;
#ifdef SYS_ustat
    char stats[256]; /* holds the kernel's struct ustat, which is smaller */
    if (dev && (syscall(SYS_ustat, (unsigned)dev, stats) == 0 || errno == ENOTCONN ||
                errno == ECONNABORTED))
        return true;
#endif
    return listed && dev && mounts_of(&ms, dev, o->mountpoint, shelf_path(t));
}

/* Finish a session that has ended: write accepted edits, and report those that are not in the file.
 * Programs may still have files open if a signal or a forced unmount ended the session (cut_off);
 * any other unmount comes after the last close. Until everything is written, signals do not end the
 * process: a system that is shutting down unmounts first and then sends signals. */
static int finish(struct leaving *l, bool cut_off, int r, struct err *e)
{
    CLEANUP(buf_free) struct buf lost = BUF_INIT, backups = BUF_INIT;
    struct mnt *m = l->m;
    control_leave(m->control);
    shelf_stop(m->shelf, cut_off);
    leave(l);
    /* again, because the loop may have ended after leave() */
    fuse_session_exit(l->se);
    handles_end(&m->handles);
    int failed = control_rest(m->control), late = shelf_finish(m->shelf);
    failed = failed ? failed : late;
    if (failed < 0 && r == 0)
        r = err_set(e, failed, "an edit was lost: %s", strerror(-failed));
    shelf_unsaved(m->shelf, &lost);
    shelf_backups(m->shelf, &backups);
    control_end(m->control, r < 0 ? e : NULL, &lost, &backups);
    signals_end();
    return r;
}

/* Serve a mounted session until it ends. A signal ends the session cleanly. */
static int serve(struct fuse_session *se, const struct mnt_options *o, struct mnt *m, dev_t dev,
                 int ready, struct err *e)
{
    char model[SHOW_MAX];
    int ended = 0, r = 0;
    bool away = false;
    struct leaving l = {.se = se, .o = o, .m = m, .dev = dev};
    (void)prctl(PR_SET_PDEATHSIG, 0);
    if (chdir("/") < 0 || (ready >= 0 && setsid() < 0))
        r = err_set(e, -errno, "cannot become a daemon: %s", strerror(errno));
    if (r == 0) {
        signals_serve(control_wake_fd(m->control));
        shelf_mounted(m->shelf, dev);
        announce(&l);
        first_exchange(se);
        set_readahead(dev, o->readahead);
        away = ready >= 0;
        leave_terminal(&ready);
        ended = loop(se, o, shelf_is_folder(m->shelf));
        /* if the end was late, the loop may have seen a connection that leave() had cut */
        if (ended < 0 && !atomic_load(&l.begun))
            r = err_set(e, ended, "serving failed: %s", strerror(-ended));
    }
    bool signalled = signals_served() || atomic_load(&l.begun);
    /* is_there() accesses the file system, so do not call it if this thread may still have to
     * answer. */
    bool cut_off = signalled || ended != 0 || r < 0 || is_there(dev, o, m->shelf);
    r = finish(&l, cut_off, r, e);
    if (r < 0 && away) /* standard error is now /dev/null */
        log_line(LOG_ERR, "%s: %s", show(model, o->model, strlen(o->model)), e->msg);
    return r;
}

static int run_shelf(struct mnt_options *o, struct mnt *m, int ready, struct err *e)
{
    int r = mnt_options_finish(o, m->shelf);
    if (r < 0)
        return err_set(e, r, "no memory");
    r = connection_reserve(&m->dead, e);
    thread_load_cancel(); /* libfuse will call pthread_cancel() when its loop ends */
    struct fuse_session *se = r == 0 ? mount_session(o, m, e) : NULL;
    if (!se)
        return e->code;
    m->session = se;
    dev_t dev = spot_device(&o->mountpoint, fuse_session_fd(se));
    say_read_only(o, m->shelf);
    r = serve(se, o, m, dev, ready, e);
    connection_end(se);
    return r;
}

int mnt_run(struct mnt_options *o, struct err *e)
{
    struct mnt m = {0};
    int guard = -1, ready = -1;
    char path[SHOW_MAX];
    log_take_libfuse();
    o->tree.log.line = log_plain;
    o->tree.wait = holder_wait;
    o->tree.wait_arg = o->model;
    int r = spot_prepare(&o->mountpoint, e);
    if (r == 0)
        r = begin_daemon(o, &ready, e);
    if (r == 0 && o->given[MOUNT_AUTO_UNMOUNT])
        r = guard_begin(o->mountpoint, &guard, e);
    if (r == 0)
        r = control_begin(o->mountpoint, &m.handles, &m.control, e);
    if (r < 0)
        return r;
    const struct shelf_options options = {.tree = o->tree,
                                          .strict = o->given[MOUNT_ALLOW_OTHER] != NULL,
                                          .mountpoint = o->mountpoint};
    r = shelf_open(o->model, &options, &m.shelf, e);
    if (r < 0)
        (void)err_prefix(e, r, "%s", show(path, o->model, strlen(o->model)));
    else
        r = run_shelf(o, &m, ready, e);
    if (guard >= 0)
        (void)close(guard);
    shelf_close(m.shelf);
    control_close(m.control);
    return r;
}
