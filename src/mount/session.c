/* SPDX-License-Identifier: MIT */
/* Runs a mount from beginning to end: see session.h. */
#include "mount/session.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "base/sys.h"
#include "mount/log.h"
#include "mount/ops.h"
#include "mount/proc.h"
#include "mount/unmount.h"
#include "shelf/mountinfo.h"

/* ---- the mount point ---- */

/* Number of attempts to lock the directory below the mount point, which another ggufs that is
 * mounting there locks for a moment, and the milliseconds between them. */
#define TRIES 50
#define TRY_AGAIN 20

/* Check that no ggufs is mounted at or above this real path. A dead mount there is removed. */
static int check_spot(const char *path, const char *shown, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    char of[SHOW_MAX];
    int r = mounts_load(&ms);
    if (r < 0)
        return err_set(e, r, "cannot list mounts: %s", strerror(-r));
    const struct mount *m = mounts_around(&ms, path);
    if (!m)
        return 0;
    if (strcmp(m->at, path) != 0)
        return err_set(e, -EBUSY, "%s: is inside the ggufs mount on %s", shown,
                       show(of, m->at, strlen(m->at)));
    r = mount_remove_dead(m, shown, e);
    if (r <= 0)
        return r;
    return err_set(e, -EBUSY,
                   "%s: ggufs is already mounted there (%s); unmount it first: ggufs --unmount %s",
                   shown, show(of, m->source, strlen(m->source)), shown);
}

/* Replace *mountpoint (owned) with its real path, check it, and lock its directory in *lock. If two
 * mounts begin there at the same time, the second one waits for the first one's. */
static int take_spot(char **mountpoint, int *lock, struct err *e)
{
    char shown[SHOW_MAX], *path;
    if (strncmp(*mountpoint, "/dev/fd/", 8) == 0) /* mount(8) has mounted the file system already */
        return 0;
    (void)show(shown, *mountpoint, strlen(*mountpoint));
    path = mounts_path(*mountpoint);
    if (!path && errno == ENOENT)
        return err_set(e, -ENOENT, "%s: there is no such directory; make it first: mkdir -p %s",
                       shown, shown);
    if (!path)
        return err_set(e, -errno, "%s: %s", shown, strerror(errno));
    free(*mountpoint);
    *mountpoint = path;
    int r = check_spot(path, shown, e);
    if (r < 0)
        return r;
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0 && errno != EACCES)
        return err_set(e, -errno, "%s: %s", shown,
                       errno == ENOTDIR ? "is not a directory" : strerror(errno));
    for (int i = 0; *lock >= 0 && i < TRIES && flock(*lock, LOCK_EX | LOCK_NB) < 0; i++)
        when_sleep(TRY_AGAIN);
    return check_spot(path, shown, e);
}

/* ---- requests and replies ---- */

/* Replies and later requests are in order: the thread sanitizer does not see that the kernel sends a
 * release only after the replies to all other requests of the file. */
static ssize_t read_request(int fd, void *bytes, size_t n, void *mnt)
{
    const ssize_t got = read(fd, bytes, n);
    (void)atomic_load(&((struct mnt *)mnt)->begun);
    return got;
}

/* Set the kernel's readahead, the size of its requests for files that are read sequentially.
 * Only root may do this. With 1 MiB instead of 128 KiB, sequential reads cost about half as
 * much. */
static void set_readahead(const struct mnt *m)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(m->dev),
                   minor(m->dev));
    FILE *f = m->dev ? fopen(path, "we") : NULL;
    if (f) {
        (void)fprintf(f, "%u", m->readahead);
        (void)fclose(f);
    }
}

/* Older libfuse (3.14) offers FUSE_CAP_PARALLEL_DIROPS but does not pass it on to the kernel.
 * Without this flag, one name on a slow disk blocks its whole directory, so the flag is added here
 * to the first reply, which negotiates the protocol, and with which the kernel sets its readahead. */
static ssize_t write_reply(int fd, struct iovec *part, int n, void *mnt)
{
    struct mnt *m = mnt;
    const bool first = !atomic_exchange(&m->begun, true);
    struct fuse_init_out *init = first && n == 2 ? part[1].iov_base : NULL;
    if (init && part[1].iov_len >= offsetof(struct fuse_init_out, flags) + sizeof(init->flags))
        init->flags |= FUSE_PARALLEL_DIROPS;
    const ssize_t sent = writev(fd, part, n);
    if (first)
        set_readahead(m);
    return sent;
}

static const struct fuse_custom_io io = {.read = read_request, .writev = write_reply};

/* ---- a mounted session ---- */

struct session {
    const struct mnt_options *o;
    struct mnt m;
    struct fuse_session *se;
    sigset_t ends; /* the signals that end the mount */
    struct thread watch;
    pid_t loop;         /* the thread that runs the loop */
    atomic_bool looped; /* the loop has ended */
};

/* Return the device that the list of mounts shows at the mount point, or 0. */
static dev_t device_there(const struct session *s)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    const struct mount *m = mounts_load(&ms) == 0 ? mounts_at(&ms, s->o->mountpoint) : NULL;
    return m ? m->dev : 0;
}

/* Return false if another file system is mounted over the mount, or in its place. */
static bool is_there(const struct session *s)
{
    const dev_t there = device_there(s);
    return !there || there == s->m.dev;
}

static int write_all(struct session *s)
{
    struct tree_call c = TREE_CALL;
    return tree_call_end(&c, shelf_sync(s->m.shelf, &c.wait));
}

/* Unmount an idle mount, unless an edit cannot be written. Unmounting ends the loop, or fails if the
 * mount is in use again. */
static void leave_idle(struct session *s)
{
    if (write_all(s) == 0 && is_there(s))
        (void)mount_take_down(s->o->mountpoint, false, NULL);
}

static void on_wake(int number)
{
    (void)number;
}

/* End the loop, which looks at its state when a signal interrupts its wait. */
static void end_loop(struct session *s)
{
    fuse_session_exit(s->se);
    while (!atomic_load(&s->looped)) {
        (void)tgkill(getpid(), s->loop, SIGUSR1);
        when_sleep(1);
    }
}

/* Wait for a signal, and end the mount then; meanwhile unmount it if it is idle. */
static void *watch_signals(void *arg)
{
    struct session *s = arg;
    const struct timespec idle = {.tv_sec = s->o->idle};
    unsigned long changes = 0;
    thread_name("signals");
    while (sigtimedwait(&s->ends, NULL, s->o->idle ? &idle : NULL) < 0)
        if (errno == EAGAIN && handles_idle(&s->m.handles, &changes))
            leave_idle(s);
    if (atomic_load(&s->looped))
        return NULL;
    shelf_abandon(s->m.shelf); /* first: of what is refused from now on, no part is an edit */
    atomic_store(&s->m.ending, true);
    (void)write_all(s); /* what cannot be written is logged at the end */
    shelf_stop(s->m.shelf);
    end_loop(s);
    return NULL;
}

/* Block the signals that end the mount, except those that are ignored, as SIGHUP under nohup(1).
 * Until the end of the process only watch_signals() takes them, and a second one changes nothing. */
static void hold_signals(struct session *s)
{
    static const int ends[] = {SIGINT, SIGHUP};
    struct sigaction is, wakes = {.sa_handler = on_wake};
    (void)sigemptyset(&s->ends);
    (void)sigaddset(&s->ends, SIGTERM); /* also tells watch_signals() that the loop has ended */
    for (size_t i = 0; i < COUNT(ends); i++)
        if (sigaction(ends[i], NULL, &is) == 0 && is.sa_handler != SIG_IGN)
            (void)sigaddset(&s->ends, ends[i]);
    (void)sigprocmask(SIG_BLOCK, &s->ends, NULL);
    (void)sigaction(SIGUSR1, &wakes, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit then fails with EFBIG */
}

/* Number of idle threads that are kept for later requests. */
#define IDLE_THREADS 10

/* Serve until the session ends. An unmount is not a failure, although reads of the device then
 * fail: with one error if the read is in progress at that moment, with another if it begins
 * later. */
static int loop(struct fuse_session *se, const struct mnt_options *o)
{
    const struct fuse_cmdline_opts *cmd = &o->cmd;
    struct fuse_loop_config *cfg = cmd->singlethread ? NULL : fuse_loop_cfg_create();
    int r = cmd->singlethread ? fuse_session_loop(se) : -ENOMEM;
    if (cfg) {
        const bool idle = cmd->max_idle_threads != UINT_MAX; /* libfuse's value for "not given" */
        fuse_loop_cfg_set_clone_fd(cfg, (unsigned)cmd->clone_fd);
        fuse_loop_cfg_set_max_threads(cfg, o->given[MOUNT_MAX_THREADS] ? cmd->max_threads
                                                                       : MNT_REQUESTS);
        fuse_loop_cfg_set_idle_threads(cfg, idle ? cmd->max_idle_threads : IDLE_THREADS);
        r = fuse_session_loop_mt(se, cfg);
        fuse_loop_cfg_destroy(cfg);
    }
    return r == -ECONNABORTED || r == -ENODEV || r == -ENOTCONN ? 0 : r;
}

/* Serve a mounted session until it ends. All requests are answered when this returns. */
static int serve_mount(struct session *s, struct err *e)
{
    s->loop = gettid();
    int r = thread_start(&s->watch, watch_signals, s);
    if (r < 0)
        return err_set(e, r, "cannot start a thread: %s", strerror(-r));
    r = err_sys(e, loop(s->se, s->o), "serving failed");
    atomic_store(&s->looped, true);
    (void)kill(getpid(), SIGTERM);
    thread_join(&s->watch);
    /* the connection has ended although it is mounted: umount -f while programs have files open */
    const bool cut_off = s->m.dev && device_there(s) == s->m.dev;
    if (atomic_load(&s->m.ending) || r < 0 || cut_off)
        shelf_abandon(s->m.shelf);
    shelf_stop(s->m.shelf);
    handles_end(&s->m.handles);
    const int lost = shelf_finish(s->m.shelf);
    return r < 0 ? r : err_sys(e, lost, "an edit was lost");
}

/* Create the session and mount it. If that fails, libfuse or fusermount3 has printed why. */
static int mount_session(struct session *s, struct mnt_options *o, struct err *e)
{
    char shown[SHOW_MAX];
    const bool confined = geteuid() != 0 && access("/sys/kernel/security/apparmor", F_OK) == 0;
    s->se = fuse_session_new(&o->args, &mnt_ops, sizeof(mnt_ops), &s->m);
    if (s->se && fuse_session_mount(s->se, o->mountpoint) == 0)
        return fuse_session_custom_io(s->se, &io, fuse_session_fd(s->se));
    if (s->se)
        fuse_session_destroy(s->se);
    s->se = NULL;
    return err_set(e, -EIO, "%s: cannot mount%s", show(shown, o->mountpoint, strlen(o->mountpoint)),
                   confined ? " (AppArmor may forbid this place: see FILES in man ggufs)" : "");
}

static int run_mounted(struct session *s, struct err *e)
{
    char model[SHOW_MAX], path[SHOW_MAX], at[SHOW_MAX];
    const struct mnt_options *o = s->o;
    const bool writable = shelf_writable(s->m.shelf);
    const char *why = writable ? "" : shelf_why_not(s->m.shelf), *real = shelf_path(s->m.shelf);
    s->m.dev = device_there(s);
    (void)show(model, o->model, strlen(o->model));
    if (!writable && !o->tree.read_only)
        log_line(LOG_WARNING, "%s: mounted read-only: %s", model, why);
    int r = fuse_daemonize(o->cmd.foreground);
    if (r < 0)
        r = err_set(e, -EIO, "cannot become a daemon");
    if (r == 0) {
        if (!o->cmd.foreground)
            log_to_syslog();
        log_line(LOG_INFO, "%s: mounted on %s%s%s", show(path, real, strlen(real)),
                 show(at, o->mountpoint, strlen(o->mountpoint)),
                 writable ? "" : ", read-only: ", why);
        r = serve_mount(s, e);
    }
    if (is_there(s)) /* libfuse unmounts whatever is on the mount point */
        fuse_session_unmount(s->se);
    fuse_session_destroy(s->se);
    if (r < 0 && !o->cmd.foreground) /* standard error is now /dev/null */
        log_line(LOG_ERR, "%s: %s", model, e->msg);
    return r;
}

/* Open the model or directory of models. */
static int open_shelf(struct session *s, struct mnt_options *o, struct err *e)
{
    char shown[SHOW_MAX];
    struct holder holder = {.model = o->model};
    o->tree.log.line = log_plain;
    o->tree.wait = holder_wait;
    o->tree.wait_arg = &holder;
    const struct shelf_options options = {.tree = o->tree,
                                          .strict = o->given[MOUNT_ALLOW_OTHER] != NULL,
                                          .mountpoint = o->mountpoint};
    int r = shelf_open(o->model, &options, &s->m.shelf, e);
    if (r == 0 && holder.late)
        r = err_set(e, -EBUSY, "%s", shelf_why_not(s->m.shelf));
    if (r < 0)
        return err_prefix(e, r, "%s", show(shown, o->model, strlen(o->model)));
    r = mnt_options_finish(o, s->m.shelf);
    return r < 0 ? err_set(e, r, "no memory") : 0;
}

int mnt_run(struct mnt_options *o, struct err *e)
{
    struct session s = {.o = o, .m.readahead = o->readahead};
    int lock = -1;
    lock_init(&s.m.handles.lock);
    log_take_libfuse();
    int r = take_spot(&o->mountpoint, &lock, e);
    if (r == 0)
        r = open_shelf(&s, o, e);
    /* libfuse will call pthread_cancel(), which aborts the process if it cannot load this library. */
    (void)dlopen("libgcc_s.so.1", RTLD_NOW);
    hold_signals(&s);
    if (r == 0)
        r = mount_session(&s, o, e);
    if (lock >= 0) /* never refused: this process holds it, or another mount on its way out does */
        (void)flock(lock, LOCK_SH | LOCK_NB);
    if (r == 0)
        r = run_mounted(&s, e);
    shelf_close(s.m.shelf);
    if (lock >= 0)
        (void)close(lock);
    return r;
}
