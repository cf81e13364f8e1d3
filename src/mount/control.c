/* SPDX-License-Identifier: MIT */
/* A daemon's control socket: see control.h. */
#include "mount/control.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "base/hash.h"
#include "base/lock.h"
#include "mount/log.h"
#include "mount/daemon.h"
#include "mount/unmount.h"
#include "shelf/mountinfo.h"
#include "tree/history.h"

/* Maximum number of clients at once. A new client displaces one that has not sent its whole request
 * or received its whole answer. */
#define PEERS_MOST 64
/* Milliseconds before trying again to accept a client or to release a model. */
#define LOOK_AGAIN 100
/* Milliseconds between two attempts to interrupt the session's loop after a signal. */
#define KICK_AGAIN 5
/* Seconds after which a session that does not end is late. */
#define LATE 2
/* Maximum number of seconds between checks for an idle mount. No check is more than a second
 * late. */
#define IDLE_MOST 3600

/* The reason why a mount that has left this namespace can no longer be edited. */
#define LEFT_ALONE "it has been unmounted in its daemon's namespace"

enum peer_state { READS, WORKS, ANSWERS, WATCHES };

struct peer {
    struct control *control;
    int fd;
    enum peer_state state;
    struct buf in, out;
    size_t sent; /* bytes of `out` already sent */
};

struct control {
    int socket; /* -1: none */
    int wake;   /* an eventfd */
    int mounts; /* /proc/self/mountinfo, for which poll(2) reports changes; -1: unavailable */
    struct thread thread;
    struct handles *handles; /* borrowed */
    /* The remaining members are protected by mount_lock, which is released while /proc is read. */
    struct shelf *shelf; /* borrowed */
    bool serves;
    struct cond rested; /* signalled when a task has ended */
    unsigned works;
    struct peer *peer[PEERS_MOST]; /* only the control thread adds and drops peers */
    size_t n;
    struct control_facts facts;
    struct timespec looked; /* time of the last check for an idle mount */
    unsigned long changes;  /* handles->changes at the time of that check */
    enum { MOUNTED, GONE, HELD, FREE } mounted;
    bool leaves;          /* a thread is running run_leave() */
    int lost;             /* -errno if run_leave() or run_late() lost an edit; otherwise 0 */
    struct timespec ends; /* when the session began to end; tv_sec 0: it has not */
    bool left;            /* the status contains "leaving" */
    bool watched;         /* run_late() can still become due */
    bool rests;           /* accepting a client failed: do not retry immediately */
    bool stop;
    struct buf status;
};

static void wake(int fd)
{
    (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
}

/* ---- signals ---- */

static const int ending[] = {SIGTERM, SIGINT, SIGHUP};

/* The process's only session. It is global because a signal handler cannot be passed a pointer. */
static struct {
    struct fuse_session *_Atomic se;
    atomic_int came; /* the first signal received; 0: none so far */
    atomic_int loop; /* id of the thread that runs the session's loop */
    /* eventfd that wakes the thread that calls signals_kick(); -1: not serving */
    atomic_int wake;
} signals;

static void on_signal(int number)
{
    int none = 0, saved = errno;
    struct fuse_session *se = atomic_load(&signals.se);
    (void)atomic_compare_exchange_strong(&signals.came, &none, number);
    if (se)
        fuse_session_exit(se);
    const int fd = atomic_load(&signals.wake);
    if (none == 0 && fd >= 0)
        wake(fd);
    errno = saved;
}

bool signals_kick(void)
{
    const int came = atomic_load(&signals.came);
    if (!came || atomic_load(&signals.wake) < 0)
        return false;
    (void)tgkill(getpid(), atomic_load(&signals.loop), came);
    return true;
}

/* Set the handler for each of these signals, except those that are ignored, as under nohup(1).
 * `flags` determines what happens to a system call that a signal interrupts. */
static void handle(int flags)
{
    struct sigaction was, act = {.sa_handler = on_signal, .sa_flags = flags};
    (void)sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < COUNT(ending); i++)
        if (sigaction(ending[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            (void)sigaction(ending[i], &act, NULL);
}

void signals_begin(struct fuse_session *se)
{
    atomic_store(&signals.wake, -1);
    atomic_store(&signals.came, 0);
    atomic_store(&signals.se, se);
    /* if a signal interrupted libfuse's wait for its helper, libfuse would report a failed mount */
    handle(SA_RESTART);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit then fails with EFBIG */
}

void signals_serve(int fd)
{
    atomic_store(&signals.loop, gettid());
    handle(0);
    atomic_store(&signals.wake, fd);
    if (atomic_load(&signals.came))
        wake(fd);
}

bool signals_served(void)
{
    atomic_store(&signals.wake, -1);
    return atomic_load(&signals.came) != 0;
}

void signals_end(void)
{
    atomic_store(&signals.wake, -1);
    for (size_t i = 0; i < COUNT(ending); i++)
        (void)signal(ending[i], SIG_IGN);
    atomic_store(&signals.se, NULL);
}

/* ---- the status ---- */

uint64_t control_place(const char *mountpoint)
{
    return xxh64(0, mountpoint, strlen(mountpoint));
}

/* Add lines to the status and to the output for each watcher. Call with the lock held. */
static void add(struct control *c, const void *lines, size_t n)
{
    buf_add(&c->status, lines, n);
    for (size_t i = 0; i < c->n; i++)
        if (c->peer[i]->state == WATCHES)
            buf_add(&c->peer[i]->out, lines, n);
}

/* Take the lock, add lines to the status, and free the lines. */
static void append(struct control *c, struct buf *lines)
{
    lock_take(&mount_lock);
    if (!buf_error(lines))
        add(c, lines->data, lines->len);
    lock_drop(&mount_lock);
    buf_free(lines);
    wake(c->wake);
}

static void path_line(struct buf *b, const char *word, const char *path)
{
    buf_printf(b, "%s ", word);
    path_escape(b, path);
    buf_char(b, '\n');
}

/* Add as many lines as fit, each prefixed with `word`, and then the number of omitted lines. */
static void add_lines(struct buf *b, const char *word, const struct buf *text)
{
    size_t left = CONTROL_LOST_MAX, more = 0;
    for (const char *p = buf_text(text), *end = buf_text_end(text), *stop; p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        size_t line = strlen(word) + (size_t)(stop - p) + 2;
        if (line <= left && !more) {
            buf_printf(b, "%s %.*s\n", word, (int)(stop - p), p);
            left -= line;
        } else {
            more++;
        }
    }
    if (more)
        buf_printf(b, "%s ... and %zu more\n", word, more);
}

/* ---- requests ---- */

/* These requests have the form "VERB PLACE", except for "undo NUMBER PLACE". */
enum verb { HAS, HISTORY, CLEAR, UNDO, VERBS };
static const char *const verbs[] = {"has ", "history ", "clear ", "undo "};

struct wish {
    enum verb verb;
    uint64_t number;
    struct buf *out;
    struct err *e;
};

static int carry_out(struct tree *t, void *arg)
{
    const struct wish *w = arg;
    return w->verb == UNDO      ? tree_undo(t, w->number, w->out, w->e)
           : w->verb == HISTORY ? tree_states(t, w->out, w->e)
           : w->verb == CLEAR   ? tree_forget_states(t)
                                : 0;
}

/* Carry out a request, which may take a long time. Returns 0, or -errno, possibly with a message in
 * `e`. */
static int work(const struct control *c, char *request, struct buf *out, struct err *e)
{
    struct wish w = {.out = out, .e = e};
    if (strcmp(request, "sync") == 0)
        return shelf_sync(c->shelf);
    while (w.verb < VERBS && strncmp(request, verbs[w.verb], strlen(verbs[w.verb])) != 0)
        w.verb++;
    if (w.verb == VERBS)
        return err_set(e, -EINVAL, "unknown request");
    char *place = request + strlen(verbs[w.verb]);
    if (w.verb == UNDO)
        w.number = strtoull(place, &place, 10);
    place += strspn(place, " ");
    path_unescape(place);
    if (w.verb == UNDO && !handles_edit(c->handles))
        return err_set(e, -EROFS, LEFT_ALONE);
    int r = shelf_ask(c->shelf, place, carry_out, &w, e);
    if (w.verb == UNDO)
        handles_edited(c->handles);
    return r;
}

static void add_end(struct buf *out, int r, const struct err *e)
{
    if (out->len && out->data[out->len - 1] != '\n')
        buf_char(out, '\n');
    buf_printf(out, "end %d ", -r);
    path_escape(out, r == 0 ? "" : e->msg[0] ? e->msg : strerror(-r));
    buf_char(out, '\n');
}

static void run_request(void *arg)
{
    struct err e = {0};
    struct peer *p = arg;
    int r = work(p->control, (char *)p->in.data, &p->out, &e);
    add_end(&p->out, r, &e);
    LOCKED(&mount_lock);
    p->state = ANSWERS;
    wake(p->control->wake);
}

struct task {
    struct pool_job job; /* must come first */
    struct control *control;
    void (*fn)(void *arg);
    void *arg;
};

static bool turn(struct pool_job *j, struct timespec *again)
{
    struct task t = *(struct task *)j;
    (void)again;
    free(j);
    t.fn(t.arg);
    LOCKED(&mount_lock);
    t.control->works--;
    cond_broadcast(&t.control->rested);
    return false;
}

/* Call fn in another thread. Returns false if no thread is available. Call with the lock held. */
static bool start(struct control *c, void (*fn)(void *arg), void *arg)
{
    struct task *t = malloc(sizeof(*t));
    if (!t)
        return false;
    *t = (struct task){.control = c, .fn = fn, .arg = arg};
    c->works++;
    if (pool_do(&t->job, turn) == 0)
        return true;
    c->works--;
    free(t);
    return false;
}

/* Like start(), but only while the mount is being served. */
static bool begin(struct control *c, void (*fn)(void *arg), void *arg)
{
    return c->serves && start(c, fn, arg);
}

/* ---- a mount that has left this namespace ---- */

static void add_outcome(struct buf *b, const struct buf *lost, const struct buf *backups)
{
    add_lines(b, "lost", lost);
    add_lines(b, "backup", backups);
}

static void run_leave(void *arg)
{
    CLEANUP(buf_free) struct buf unsaved = BUF_INIT, backups = BUF_INIT;
    struct control *c = arg;
    struct buf b = BUF_INIT;
    int lost = shelf_sync(c->shelf); /* edits that cannot be written are logged */
    bool free_now = handles_no_edits(c->handles);
    int last = free_now ? shelf_retire(c->shelf) : 0;
    if (free_now) {
        shelf_unsaved(c->shelf, &unsaved);
        shelf_backups(c->shelf, &backups);
        add_outcome(&b, &unsaved, &backups);
        buf_str(&b, "read-only " LEFT_ALONE "\nfree\n");
    } else if (c->mounted == GONE)
        buf_str(&b, "held\n");
    append(c, &b);
    LOCKED(&mount_lock);
    c->mounted = free_now ? FREE : HELD;
    c->lost = lost < 0 ? lost : last < 0 ? last : c->lost;
    c->leaves = false;
}

/* Check whether the mount has left this namespace. If it has, start run_leave(). Call with the lock
 * held. */
static void look_at_mounts(struct control *c, bool changed)
{
    if (!c->serves || !c->facts.dev || c->leaves || c->mounted == FREE)
        return;
    if (c->mounted == MOUNTED) {
        const dev_t dev = c->facts.dev;
        if (!changed)
            return;
        lock_drop(&mount_lock);
        const bool there = mount_is_there(dev);
        lock_take(&mount_lock);
        if (there || !c->serves)
            return;
        c->mounted = GONE;
        add(c, "gone\n", 5);
    }
    c->leaves = begin(c, run_leave, c); /* if no thread is available, a later check tries again */
}

/* ---- a session that does not end ---- */

/* Record that the session has begun to end. Call with the lock held. */
static void set_ends(struct control *c)
{
    if (c->ends.tv_sec == 0)
        c->ends = when_now();
}

/* Add "leaving" to the status, and prevent new tasks. Call with the lock held. */
static void set_left(struct control *c)
{
    if (!c->left)
        add(c, "leaving\n", 8);
    c->left = true;
    c->serves = false;
}

/* Take down the mount and write accepted edits although a request or a task hangs. */
static void run_late(void *arg)
{
    struct control *c = arg;
    char at[SHOW_MAX];
    c->facts.leave(c->facts.leave_arg);
    log_line(LOG_WARNING, "%s: the process ends only after a call that has not returned yet",
             show(at, c->facts.at, strlen(c->facts.at)));
    int lost = shelf_sync(c->shelf); /* edits that cannot be written are logged */
    LOCKED(&mount_lock);
    c->lost = lost < 0 ? lost : c->lost;
}

/* Start run_late() if it is due. Returns true if this must be called again soon. Call with the lock
 * held. */
static bool look_if_late(struct control *c)
{
    if (!c->watched || c->ends.tv_sec == 0)
        return false;
    if (when_past(&c->ends, LATE) && start(c, run_late, c)) {
        c->watched = false;
        set_left(c);
    }
    return c->watched;
}

/* ---- an idle mount ---- */

/* Unmount an idle mount unless another file system has been mounted over it. */
static void run_idle(void *arg)
{
    const struct control *c = arg;
    CLEANUP(mounts_free) struct mounts ms;
    const struct mount *m =
        mounts_load(&ms, 0) == 0 ? mounts_of(&ms, c->facts.dev, c->facts.at, NULL) : NULL;
    /* unmounting ends the session, or fails if the mount is in use again */
    if (m && mount_is_top(&ms, m))
        (void)mount_take_down(c->facts.at, false, NULL);
}

/* Check whether the mount is idle if such a check is due. Returns the milliseconds until the next
 * check, or -1 if no check is needed. Call with the lock held. */
static int look_if_idle(struct control *c)
{
    if (!c->facts.idle || !c->serves)
        return -1;
    struct timespec now = when_now();
    if (when_past(&c->looked, (time_t)c->facts.idle)) {
        c->looked = now;
        if (handles_idle(c->handles, &c->changes))
            (void)begin(c, run_idle, c);
    }
    time_t left = c->looked.tv_sec + (time_t)c->facts.idle - now.tv_sec;
    return (left < IDLE_MOST ? (int)left + 1 : IDLE_MOST) * 1000;
}

static void watch(struct control *c, struct peer *p, const char *file)
{
    struct file_id id;
    char end;
    lock_drop(&mount_lock);
    bool holds = sscanf(file, "%x:%x:%" SCNu64 "%c", &id.major, &id.minor, &id.ino, &end) == 3 &&
                 file_is_locked_here(&id);
    lock_take(&mount_lock);
    look_at_mounts(c, true); /* notices an unmount that happened before the request */
    buf_add(&p->out, c->status.data, c->status.len);
    buf_str(&p->out, holds ? "holds\nnow\n" : "now\n");
    p->state = WATCHES;
}

/* Answer the request in the first line of p->in, which is complete and NUL-terminated. Call with
 * the lock held. */
static void answer(struct control *c, struct peer *p)
{
    const char *line = buf_text(&p->in);
    if (strncmp(line, "watch", 5) == 0 && (line[5] == '\0' || line[5] == ' ')) {
        watch(c, p, line + 5);
        return;
    }
    p->state = WORKS;
    if (begin(c, run_request, p))
        return;
    p->state = ANSWERS;
    add_end(&p->out, c->serves ? -ENOMEM : -ESHUTDOWN,
            &(struct err){.msg = "the mount is not being served at the moment"});
}

/* ---- clients ---- */

static void drop(struct control *c, size_t i)
{
    struct peer *p = c->peer[i];
    (void)close(p->fd);
    buf_free(&p->in);
    buf_free(&p->out);
    free(p);
    memmove(&c->peer[i], &c->peer[i + 1], (c->n - i - 1) * sizeof(struct peer *));
    c->n--;
}

static void take_client(struct control *c)
{
    struct ucred who;
    socklen_t n = sizeof(who);
    int fd = accept4(c->socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    c->rests = fd < 0;
    /* Only clients run by root or by this user get an answer. */
    const bool allowed = fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 &&
                         (who.uid == 0 || who.uid == geteuid());
    struct peer *p = allowed ? calloc(1, sizeof(*p)) : NULL;
    for (size_t i = 0; i < c->n && c->n == PEERS_MOST; i++)
        if (c->peer[i]->state == READS || c->peer[i]->state == ANSWERS)
            drop(c, i);
    if (!p || c->n == PEERS_MOST) {
        if (fd >= 0)
            (void)close(fd);
        free(p);
        return;
    }
    p->control = c;
    p->fd = fd;
    c->peer[c->n++] = p;
}

/* Read from a client. Returns false if the client is gone, its request is too long, or memory runs
 * out. */
static bool hear(struct control *c, struct peer *p)
{
    char part[4096];
    ssize_t n = recv(p->fd, part, sizeof(part), 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    size_t before = p->in.len;
    buf_add(&p->in, part, (size_t)n);
    if (n == 0 || p->in.len > CONTROL_LINE_MAX || buf_error(&p->in))
        return false;
    uint8_t *stop = memchr(p->in.data + before, '\n', (size_t)n);
    if (stop) {
        *stop = '\0';
        answer(c, p);
    }
    return true;
}

/* Send as much as the socket accepts. Returns false if the client should be dropped: it is gone, or
 * its whole answer has been sent. A watcher stays connected to receive more of the status. */
static bool speak(struct peer *p)
{
    while (p->sent < p->out.len) {
        ssize_t n = send(p->fd, p->out.data + p->sent, p->out.len - p->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
        p->sent += n > 0 ? (size_t)n : 0;
    }
    return p->state == WATCHES && !buf_error(&p->out);
}

/* Handle a client's poll events. Returns false if the client should be dropped. */
static bool serve(struct control *c, struct peer *p, short seen)
{
    if (p->state == READS && seen & (POLLIN | POLLHUP | POLLERR) && !hear(c, p))
        return false;
    if (p->state == WATCHES && seen & (POLLHUP | POLLERR))
        return false;
    return p->state == READS || p->state == WORKS || speak(p);
}

/* ---- the control thread ---- */

enum { AT_WAKE, AT_SOCKET, AT_MOUNTS, AT_PEERS };

/* Fill `of` with the descriptors to poll, or -1 for those that need no polling. Call with the lock
 * held. */
static nfds_t gather(const struct control *c, struct pollfd *of)
{
    of[AT_WAKE] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    of[AT_SOCKET] = (struct pollfd){.fd = c->rests ? -1 : c->socket, .events = POLLIN};
    of[AT_MOUNTS] = (struct pollfd){.fd = c->serves && c->mounted == MOUNTED ? c->mounts : -1,
                                    .events = POLLPRI};
    for (size_t i = 0; i < c->n; i++) {
        const struct peer *p = c->peer[i];
        short events = p->state == READS ? POLLIN : p->sent < p->out.len ? POLLOUT : 0;
        of[AT_PEERS + i] = (struct pollfd){.fd = p->state == WORKS ? -1 : p->fd, .events = events};
    }
    return AT_PEERS + (nfds_t)c->n;
}

static void *run(void *arg)
{
    struct control *c = arg;
    struct pollfd of[AT_PEERS + PEERS_MOST];
    uint64_t woken;
    thread_name("control");
    lock_take(&mount_lock);
    for (bool last = false; !last;) {
        last = c->stop;
        nfds_t n = gather(c, of);
        bool waits = c->rests || (c->serves && (c->mounted == GONE || c->mounted == HELD));
        int idle = look_if_idle(c), limit = last ? 0 : waits ? LOOK_AGAIN : idle;
        const bool kicks = !last && signals_kick();
        if (kicks)
            set_ends(c);
        if (!last && (look_if_late(c) || kicks))
            limit = kicks && c->watched ? KICK_AGAIN : LOOK_AGAIN;
        lock_drop(&mount_lock);
        int ready = poll(of, n, limit);
        lock_take(&mount_lock);
        c->rests = false;
        if (ready >= 0)
            look_at_mounts(c, of[AT_MOUNTS].revents != 0);
        for (nfds_t i = n; ready >= 0 && i-- > AT_PEERS;) /* only this thread adds or drops peers */
            if (!serve(c, c->peer[i - AT_PEERS], of[i].revents))
                drop(c, i - AT_PEERS);
        if (ready >= 0 && of[AT_WAKE].revents && read(c->wake, &woken, sizeof(woken)) < 0)
            woken = 0;
        if (ready >= 0 && of[AT_SOCKET].revents)
            take_client(c);
    }
    lock_drop(&mount_lock);
    return NULL;
}

/* Return a new listening socket, or -errno. */
static int make_socket(const char *mountpoint)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    uint64_t number = 0;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return -EIO;
    int n = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, CONTROL_PREFIX "%016llx-%016llx",
                     (unsigned long long)control_place(mountpoint), (unsigned long long)number);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    if (bind(fd, (struct sockaddr *)&name, size) == 0 && listen(fd, PEERS_MOST) == 0)
        return fd;
    int r = -errno;
    (void)close(fd);
    return r;
}

static void control_free(struct control *c)
{
    while (c->n)
        drop(c, c->n - 1);
    if (c->socket >= 0)
        (void)close(c->socket);
    if (c->wake >= 0)
        (void)close(c->wake);
    if (c->mounts >= 0)
        (void)close(c->mounts);
    buf_free(&c->status);
    cond_destroy(&c->rested);
    free(c);
}

int control_begin(const char *mountpoint, struct handles *h, struct control **ret, struct err *e)
{
    struct control *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(e, -ENOMEM, "no memory");
    c->handles = h;
    cond_init(&c->rested);
    path_line(&c->status, "at", mountpoint);
    c->socket = make_socket(mountpoint);
    if (c->socket < 0)
        log_line(LOG_WARNING,
                 "commands will not find this mount, because it has no control socket: %s",
                 strerror(-c->socket));
    c->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = c->wake < 0 ? -errno : 0;
    if (r == 0)
        r = thread_start(&c->thread, run, c);
    if (r < 0) {
        control_free(c);
        return err_set(e, r, "cannot start a thread: %s", strerror(-r));
    }
    *ret = c;
    return 0;
}

void control_serve(struct control *c, const struct control_facts *facts, struct shelf *s)
{
    struct buf b = BUF_INIT;
    path_line(&b, "at", facts->at);
    path_line(&b, "model", facts->model);
    if (facts->read_only)
        path_line(&b, "read-only", facts->read_only);
    buf_printf(&b, "device %u:%u\nserving\n", major(facts->dev), minor(facts->dev));
    lock_take(&mount_lock);
    c->shelf = s;
    c->serves = s != NULL;
    c->watched = s && facts->leave;
    c->facts = *facts;
    c->looked = when_now();
    lock_drop(&mount_lock);
    append(c, &b);
}

int control_wake_fd(const struct control *c)
{
    return c->wake;
}

bool control_do(struct control *c, void (*fn)(void *arg), void *arg)
{
    LOCKED(&mount_lock);
    return begin(c, fn, arg);
}

void control_ends(struct control *c)
{
    LOCKED(&mount_lock);
    set_ends(c);
    wake(c->wake);
}

void control_leave(struct control *c)
{
    LOCKED(&mount_lock);
    set_ends(c);
    set_left(c);
    wake(c->wake);
}

int control_rest(struct control *c)
{
    LOCKED(&mount_lock);
    while (c->works)
        (void)lock_wait(&mount_lock, &c->rested, NULL);
    c->watched = false;
    return c->lost;
}

void control_end(struct control *c, const struct err *e, const struct buf *lost,
                 const struct buf *backups)
{
    struct buf b = BUF_INIT;
    if (c->mounted != FREE) /* otherwise the outcome has already been reported */
        add_outcome(&b, lost, backups);
    if (e)
        path_line(&b, "failed", e->msg);
    buf_str(&b, "ended\n");
    append(c, &b);
}

void control_close(struct control *c)
{
    if (!c)
        return;
    lock_take(&mount_lock);
    add(c, "closed\n", 7);
    c->stop = true;
    lock_drop(&mount_lock);
    wake(c->wake);
    thread_join(&c->thread);
    control_free(c);
}
