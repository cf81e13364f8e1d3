/* SPDX-License-Identifier: MIT */
/* Finds and queries daemons: see daemon.h. */
#include "mount/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "model/snapshot.h"
#include "mount/control.h"
#include "mount/log.h"
#include "shelf/mountinfo.h"

/* Maximum size of a status in bytes. */
#define STATUS_MAX (2 * CONTROL_LOST_MAX + ((size_t)64 << 10))
/* Maximum size of an answer in bytes. A model may have many states. */
#define ANSWER_MAX ((size_t)64 << 20)
/* Maximum number of sockets to try: any user can create sockets with matching names. */
#define DAEMONS_MOST 4096
/* Seconds within which a running daemon answers, even on a busy machine. */
#define PATIENCE 5
/* Milliseconds between checks while waiting for a daemon. */
#define LOOK_AGAIN 100
/* Milliseconds to wait for a lock before printing a message about the wait, and before giving up on
 * a daemon that may never end. */
#define LINE_AFTER 1000
#define END_PATIENCE 10000

/* ---- processes ---- */

bool proc_each(const char *folder, bool (*fn)(void *arg, long number), void *arg)
{
    DIR *d = opendir(folder);
    bool more = true;
    for (const struct dirent *e; d && more && (e = readdir(d));)
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            more = fn(arg, strtol(e->d_name, NULL, 10));
    if (d)
        (void)closedir(d);
    return !more;
}

size_t proc_read(const char *path, char *dst, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    for (ssize_t got = 1; fd >= 0 && got > 0 && n<size - 1; n += got> 0 ? (size_t)got : 0)
        got = read(fd, dst + n, size - 1 - n);
    if (fd >= 0)
        (void)close(fd);
    dst[n] = '\0';
    return n;
}

const char *process_name(char dst[PROCESS_NAME_MAX], long pid)
{
    char path[64], name[32];
    (void)snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    size_t n = proc_read(path, name, sizeof(name));
    if (n > 0 && name[n - 1] == '\n')
        n--;
    return show_in(dst, PROCESS_NAME_MAX, name, n);
}

/* The line is "PID (NAME) STATE ...", where NAME may contain anything, even ")". */
bool process_stopped(long pid)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    (void)proc_read(path, text, sizeof(text));
    const char *name_end = strrchr(text, ')');
    return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

bool process_wait(long pid, int ms)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0), .events = POLLIN};
    int r = 0;
    if (p.fd < 0 && errno == ESRCH)
        return true;
    while ((p.fd >= 0 || ms >= 0) && (r = poll(&p, 1, ms)) < 0 && errno == EINTR)
        ;
    if (p.fd >= 0)
        (void)close(p.fd);
    return r > 0;
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

/* Identify an open file of this process. Returns false on failure. */
static bool file_id_of(int fd, struct file_id *ret)
{
    char path[64], info[PROC_INFO_MAX];
    struct stat st;
    struct mounts ms;
    if (fstat(fd, &st) < 0)
        return false;
    *ret = (struct file_id){major(st.st_dev), minor(st.st_dev), st.st_ino};
    /* On btrfs and overlayfs, stat(2) returns numbers that differ from those in /proc/locks. */
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    (void)proc_read(path, info, sizeof(info));
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

/* Parse a line such as "1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF". Returns the id of the
 * process if the line is about an exclusive lock on the file, otherwise 0. */
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

/* A lock belongs to an open file description, no matter which process took it. */
static bool is_unlocked(void *arg, long number)
{
    static const char label[] = "\nlock:";
    char path[64], info[PROC_INFO_MAX];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%ld", number);
    (void)proc_read(path, info, sizeof(info));
    for (const char *p = info; (p = strstr(p, label)); p++)
        if (lock_in(p + sizeof(label) - 1, arg))
            return false;
    return true;
}

bool file_is_locked_here(const struct file_id *id)
{
    struct file_id of = *id;
    return proc_each("/proc/self/fdinfo", is_unlocked, &of);
}

/* Return the id of the process that holds an exclusive flock(2) on the file, or 0 if no such
 * process is visible. */
static long file_locked_by(const struct file_id *id)
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

/* ---- pending signals ---- */

#define BIT(signal) ((uint64_t)1 << ((signal)-1))

/* Signals that should stop a program even if it has a handler for them. */
#define ASKS (BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGTERM))
/* Signals that do not end a program. Any other signal ends a program that has no handler for it. */
#define HARMLESS                                                                               \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGSTOP) | BIT(SIGTSTP) | \
     BIT(SIGTTIN) | BIT(SIGTTOU))

/* Read the set of signals in the line that begins with `name`. Returns false if there is no such
 * line. */
static bool find(const char *status, const char *name, uint64_t *ret)
{
    const char *at = strstr(status, name);
    if (at)
        *ret = strtoull(at + strlen(name), NULL, 16);
    return at;
}

bool stops_by_status(const char *status)
{
    uint64_t own, shared, blocked, ignored, caught;
    if (!find(status, "\nSigPnd:", &own) || !find(status, "\nShdPnd:", &shared) ||
        !find(status, "\nSigBlk:", &blocked) || !find(status, "\nSigIgn:", &ignored) ||
        !find(status, "\nSigCgt:", &caught))
        return true;
    uint64_t pending = (own | shared) & ~blocked & ~ignored;
    return pending & (ASKS | ~(caught | HARMLESS));
}

bool stops_thread(pid_t thread)
{
    char path[64], status[8192];
    if (thread <= 0) /* the thread is in another container */
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)thread);
    (void)proc_read(path, status, sizeof(status));
    return stops_by_status(status);
}

/* ---- the status ---- */

/* The first words of status lines, and what each introduces: a flag, a string, a line to append, or
 * a new state. */
static const struct status_word {
    const char *word;
    enum { IS_SO, TEXT, LINE, STATE } kind;
    size_t at; /* offset in struct daemon; for STATE, the state */
} words[] = {
    {"serving", STATE, DAEMON_SERVING},
    {"gone", STATE, DAEMON_GONE},
    {"leaving", STATE, DAEMON_LEAVING},
    {"ended", STATE, DAEMON_ENDED},
    {"closed", STATE, DAEMON_CLOSED},
    {"at", TEXT, offsetof(struct daemon, status.at)},
    {"model", TEXT, offsetof(struct daemon, status.model)},
    {"read-only", TEXT, offsetof(struct daemon, status.read_only)},
    {"failed", TEXT, offsetof(struct daemon, status.failed)},
    {"lost", LINE, offsetof(struct daemon, status.lost)},
    {"backup", LINE, offsetof(struct daemon, status.backups)},
    {"holds", IS_SO, offsetof(struct daemon, status.holds)},
    {"held", IS_SO, offsetof(struct daemon, status.held)},
    {"free", IS_SO, offsetof(struct daemon, status.free)},
    {"now", IS_SO, offsetof(struct daemon, now)},
};

static void take_word(struct daemon *d, const struct status_word *w, const char *value)
{
    void *at = (char *)d + w->at;
    if (w->kind == STATE) {
        d->status.state = (enum daemon_state)w->at;
    } else if (w->kind == IS_SO) {
        *(bool *)at = true;
    } else if (w->kind == LINE) {
        buf_printf(at, "%s\n", value);
    } else {
        char **text = (char **)at;
        free(*text);
        *text = strdup(value);
        if (*text)
            path_unescape(*text);
    }
}

static void take_line(struct daemon *d, char *line)
{
    unsigned major_no, minor_no;
    size_t n = strcspn(line, " ");
    const char *value = line[n] ? line + n + 1 : "";
    line[n] = '\0';
    for (size_t i = 0; i < COUNT(words); i++)
        if (strcmp(line, words[i].word) == 0)
            take_word(d, &words[i], value);
    if (strcmp(line, "device") == 0 && sscanf(value, "%u:%u", &major_no, &minor_no) == 2)
        d->status.dev = makedev(major_no, minor_no);
}

void daemon_take(struct daemon *d)
{
    char *line = (char *)d->part.data, *end = line + d->part.len, *stop;
    while (line && (stop = memchr(line, '\n', (size_t)(end - line)))) {
        *stop = '\0';
        take_line(d, line);
        line = stop + 1;
    }
    d->part.len = (size_t)(end - line);
    memmove(d->part.data, line, d->part.len);
}

bool daemon_hear(struct daemon *d, int ms)
{
    char piece[4096];
    struct pollfd p = {.fd = d->fd, .events = POLLIN};
    if (poll(&p, 1, ms) <= 0)
        return true;
    ssize_t n = recv(d->fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    d->heard += n > 0 ? (size_t)n : 0;
    if (n <= 0 || d->heard > STATUS_MAX)
        return false;
    buf_add(&d->part, piece, (size_t)n);
    if (d->part.len)
        daemon_take(d);
    return !buf_error(&d->part);
}

static void daemon_free(struct daemon *d)
{
    struct daemon_status *s = &d->status;
    free(s->at);
    free(s->model);
    free(s->read_only);
    free(s->failed);
    buf_free(&s->lost);
    buf_free(&s->backups);
    buf_free(&d->part);
    if (d->fd >= 0)
        (void)close(d->fd);
}

/* ---- sockets ---- */

/* Connect to a socket and send a line to it. Unless this process is run by root, the other end must
 * be a process of the same user. Returns the descriptor, or -errno. */
static int ask(const char *socket_name, const char *line, struct ucred *who)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t n = strlen(socket_name);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    memcpy(name.sun_path + 1, socket_name, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    n = strlen(line);
    socklen_t room = sizeof(*who);
    if (connect(fd, (struct sockaddr *)&name, size) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &room) == 0 &&
        (geteuid() == 0 || who->uid == geteuid()) && send(fd, line, n, MSG_NOSIGNAL) == (ssize_t)n)
        return fd;
    (void)close(fd);
    return -ECONNREFUSED;
}

static int add_daemon(struct daemons *ds, const char *name, const char *line)
{
    struct ucred who;
    int fd = ask(name, line, &who);
    if (fd == -EMFILE || fd == -ENFILE)
        return fd;
    /* pid 0: the daemon is in another pid namespace */
    if (fd < 0 || who.pid == getpid() || who.pid == 0) {
        if (fd >= 0)
            (void)close(fd);
        return 0;
    }
    int r = array_grow(&ds->daemon, &ds->cap, ds->n, sizeof(*ds->daemon));
    if (r < 0) {
        (void)close(fd);
        return r;
    }
    struct daemon *d = &ds->daemon[ds->n++];
    *d = (struct daemon){.pid = who.pid, .uid = who.uid, .fd = fd};
    memcpy(d->name, name, sizeof(d->name));
    return 0;
}

/* Read the daemon's status up to "now". If it is stopped or does not answer in time, its state
 * becomes DAEMON_SILENT. Returns false if the daemon has ended or refuses to answer. */
static bool hear_all(struct daemon *d, const struct timespec *begin)
{
    for (int ms = 0; !d->now; ms = LOOK_AGAIN) {
        if (!daemon_hear(d, ms))
            return false;
        if (!d->now && ms && (process_stopped(d->pid) || when_past(begin, PATIENCE))) {
            d->status.state = DAEMON_SILENT;
            return true;
        }
    }
    return d->status.at != NULL;
}

int daemons_find(struct daemons *ds, const struct file_id *locked)
{
    char line[512], name[64], request[128] = "watch\n";
    unsigned flags;
    int r = 0;
    size_t kept = 0;
    *ds = (struct daemons){0};
    if (locked)
        (void)snprintf(request, sizeof(request), "watch %x:%x:%llu\n", locked->major, locked->minor,
                       (unsigned long long)locked->ino);
    FILE *f = fopen("/proc/net/unix", "re");
    if (!f)
        return -errno;
    for (int i = 0; r == 0 && i < DAEMONS_MOST && fgets(line, sizeof(line), f);) {
        /* "NUMBER: REFS PROTOCOL FLAGS TYPE STATE INODE @NAME"; the flag 0x10000 means listening */
        if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s @%63s", &flags, name) != 2 ||
            !(flags & 0x10000) || strncmp(name, CONTROL_PREFIX, strlen(CONTROL_PREFIX)) != 0)
            continue;
        r = add_daemon(ds, name, request);
        i++;
    }
    (void)fclose(f);
    struct timespec begin = when_now();
    for (size_t i = 0; i < ds->n; i++)
        if (hear_all(&ds->daemon[i], &begin))
            ds->daemon[kept++] = ds->daemon[i];
        else
            daemon_free(&ds->daemon[i]);
    ds->n = kept;
    return r;
}

void daemons_free(struct daemons *ds)
{
    for (size_t i = 0; i < ds->n; i++)
        daemon_free(&ds->daemon[i]);
    free(ds->daemon);
}

/* ---- the daemons' mounts ---- */

static bool may_serve(const struct daemon *d, const struct mount *m)
{
    return d->uid == 0 || (long)d->uid == mount_number(m->super, "user_id");
}

/* Find the daemon that made this mount and is still starting, and wait until it reports the mount.
 * Returns NULL if there is no such daemon. */
static struct daemon *wait_for_start(struct daemons *ds, const struct mount *m)
{
    struct timespec begin = when_now();
    for (size_t i = 0; i < ds->n; i++) {
        struct daemon *d = &ds->daemon[i];
        const struct daemon_status *s = &d->status;
        if (s->state != DAEMON_STARTING || !may_serve(d, m) || strcmp(s->at, m->at) != 0)
            continue;
        while (s->state == DAEMON_STARTING && !process_stopped(d->pid) &&
               !when_past(&begin, PATIENCE) && daemon_hear(d, LOOK_AGAIN))
            ;
        if (mount_is_of(m, s->dev, s->at, s->model))
            return d;
    }
    return NULL;
}

struct daemon *daemons_of(struct daemons *ds, const struct mount *m)
{
    struct daemon *found = NULL;
    for (size_t i = 0; i < ds->n; i++) {
        struct daemon *d = &ds->daemon[i];
        const struct daemon_status *s = &d->status;
        /* prefer a daemon that is serving, because the device numbers of ended mounts are reused */
        if (may_serve(d, m) && mount_is_of(m, s->dev, s->at, s->model) &&
            (!found || s->state < found->status.state))
            found = d;
    }
    if (!found)
        found = wait_for_start(ds, m);
    for (size_t i = 0; i < ds->n && !found; i++) {
        struct daemon *d = &ds->daemon[i];
        if (d->status.state == DAEMON_SILENT && may_serve(d, m) &&
            strtoull(d->name + strlen(CONTROL_PREFIX), NULL, 16) == control_place(m->at))
            found = d;
    }
    return found;
}

int daemon_no_answer(const struct daemon *d, struct err *e)
{
    return err_set(e, -ETIMEDOUT, "its daemon (process %ld) does not answer%s", d->pid,
                   process_stopped(d->pid) ? ": it is stopped" : "");
}

int daemon_unseen(const struct mount *m, const char *advice, struct err *e)
{
    char name[PROCESS_NAME_MAX];
    long user = mount_number(m->super, "user_id");
    if (geteuid() != 0 && user >= 0 && (uid_t)user != geteuid())
        return err_set(
            e, -EPERM,
            "it is in a mount of user %s, whose daemon only that user and root can query",
            user_name(name, user));
    return err_set(
        e, -ESRCH,
        "its daemon cannot be reached: it has no control socket, or is in another container%s",
        advice);
}

const struct mount *daemon_mount(const struct mounts *ms, const struct daemon *d)
{
    return mounts_of(ms, d->status.dev, d->status.at, d->status.model);
}

/* ---- requests ---- */

/* Remove the last line, "end ERRNO MESSAGE", from an answer. Returns 0, or -ERRNO with the
 * message. */
static int take_end(struct buf *said, size_t begin, struct err *e)
{
    char shown[sizeof(e->msg)];
    int number, at = 0;
    if (said->len == begin || said->data[said->len - 1] != '\n')
        return err_set(e, -EPIPE, "its daemon has ended");
    char *last = (char *)said->data + said->len;
    *--last = '\0';
    while (last > (char *)said->data + begin && last[-1] != '\n')
        last--;
    if (sscanf(last, "end %d %n", &number, &at) != 1 || at == 0 || number < 0 || number > 4095)
        return err_set(e, -EPROTO, "its daemon sent a malformed answer");
    said->len = (size_t)(last - (char *)said->data);
    path_unescape(last + at);
    if (number)
        return err_set(e, -number, "%s",
                       show_in(shown, sizeof(shown), last + at, strlen(last + at)));
    return 0;
}

int daemon_ask(const struct daemon *d, const char *request, struct buf *said,
               void (*wait)(void *arg), void *arg, struct err *e)
{
    char line[CONTROL_LINE_MAX], piece[4096];
    struct ucred who;
    size_t begin = said->len;
    (void)snprintf(line, sizeof(line), "%s\n", request);
    struct pollfd p = {.fd = ask(d->name, line, &who), .events = POLLIN};
    int r = p.fd < 0 || who.uid != d->uid ? err_set(e, -EPIPE, "its daemon has ended") : 1;
    while (r == 1) {
        int ready = poll(&p, 1, LOOK_AGAIN);
        ssize_t n = ready > 0 ? recv(p.fd, piece, sizeof(piece), MSG_DONTWAIT) : -1;
        buf_add(said, piece, n > 0 ? (size_t)n : 0);
        if (n == 0 || buf_error(said) || said->len - begin > ANSWER_MAX)
            r = take_end(said, begin, e);
        else if (ready == 0 && process_stopped(d->pid))
            r = daemon_no_answer(d, e);
        else if (ready == 0 && wait)
            wait(arg);
    }
    if (p.fd >= 0)
        (void)close(p.fd);
    return r;
}

/* ---- the daemon of a model ---- */

/* Return the real path of a model or, if it is split, of its first shard. A link to one shard need
 * not have links to the other shards beside it. */
static char *real_model(const char *operand)
{
    struct shards s;
    char *first = shards_find(&s, operand) < 0 ? NULL : shards_path(&s, 0);
    char *real = first ? realpath(first, NULL) : NULL;
    shards_free(&s);
    free(first);
    return real;
}

/* Find the daemon of the mount at or above the operand, if any. */
static int find_by_mount(const struct mounts *ms, const char *operand, struct channel *c,
                         struct err *e)
{
    const struct mount *m = mounts_typed(ms, operand);
    const struct daemon *d = m ? daemons_of(&c->daemons, m) : NULL;
    if (d && d->status.state == DAEMON_SILENT) /* accessing anything in the mount would hang */
        return daemon_no_answer(d, e);
    char *path = mounts_path(operand);
    int r = 0;
    m = path ? mounts_around(ms, path) : NULL;
    c->daemon = m && mount_is_fuse(m) ? daemons_of(&c->daemons, m) : NULL;
    if (c->daemon && c->daemon->status.state == DAEMON_SILENT)
        r = daemon_no_answer(c->daemon, e);
    else if (m && mount_is_ggufs(m) && !c->daemon)
        r = daemon_unseen(m, "", e);
    if (c->daemon && asprintf(&c->place, "%s/%s", m->root, path + strlen(m->at)) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    free(path);
    return r;
}

/* Find the daemon that has locked this model file and knows the model by this path. */
static int find_by_file(char *real, struct channel *c, struct err *e)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    struct file_id id;
    int fd = open(real, O_PATH | O_CLOEXEC);
    bool known = fd >= 0 && file_id_of(fd, &id);
    if (fd >= 0)
        (void)close(fd);
    daemons_free(&c->daemons);
    int r = daemons_find(&c->daemons, known ? &id : NULL);
    if (r < 0 || asprintf(&c->place, ":%s", real) < 0)
        return err_set(e, r < 0 ? r : -ENOMEM, "cannot query the daemons: %s",
                       strerror(r < 0 ? -r : ENOMEM));
    for (size_t i = 0; i < c->daemons.n && !c->daemon; i++) {
        c->daemon = &c->daemons.daemon[i];
        if (!c->daemon->status.holds || channel_ask(c, "has", &said, &(struct err){0}) < 0)
            c->daemon = NULL;
    }
    return 0;
}

int channel_open(const char *operand, struct channel *c, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    struct stat st;
    *c = (struct channel){0};
    int r = mounts_load(&ms, 0);
    if (r == 0)
        r = daemons_find(&c->daemons, NULL);
    r = r < 0 ? err_set(e, r, "cannot list mounts: %s", strerror(-r))
              : find_by_mount(&ms, operand, c, e);
    if (r < 0 || c->daemon)
        return r;
    if (stat(operand, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(e, -EINVAL, "it is a directory, not a mount of a model");
    char *real = real_model(operand);
    r = real ? find_by_file(real, c, e) : 0;
    free(real);
    return r;
}

int channel_ask(const struct channel *c, const char *verb, struct buf *said, struct err *e)
{
    CLEANUP(buf_free) struct buf request = BUF_INIT;
    buf_printf(&request, "%s ", verb);
    path_escape(&request, c->place);
    buf_char(&request, '\0');
    if (buf_error(&request))
        return err_set(e, buf_error(&request), "no memory");
    return daemon_ask(c->daemon, buf_text(&request), said, NULL, NULL, e);
}

void channel_close(struct channel *c)
{
    daemons_free(&c->daemons);
    free(c->place);
}

/* ---- the holder of a lock ---- */

/* Return the daemon that holds the lock, or NULL if it is not visible. A claim by another user's
 * daemon may be false, so it must agree with the kernel's list of locks. */
static const struct daemon *holder_of(const struct daemons *ds, const struct file_id *id)
{
    long pid = file_locked_by(id);
    for (size_t i = 0; i < ds->n; i++) {
        const struct daemon *d = &ds->daemon[i];
        const bool believed = d->uid == 0 || d->uid == geteuid() || d->pid == pid;
        if (d->status.holds ? believed : d->status.state == DAEMON_SILENT && d->pid == pid)
            return d;
    }
    return NULL;
}

enum verdict { FREE, STARTS, GONE, ENDS, KEEPS };

/* Predict what the lock's holder will do. */
static enum verdict judge(const struct daemon *d, struct err *why)
{
    const struct daemon_status *s = &d->status;
    char at[SHOW_MAX];
    if (s->state == DAEMON_SILENT) {
        (void)err_set(why, -EBUSY,
                      "another ggufs has it open for writing (process %ld, which does not answer)",
                      d->pid);
        return KEEPS;
    }
    (void)show(at, s->at, strlen(s->at));
    if (s->state == DAEMON_STARTING) {
        (void)err_set(why, -EBUSY, "another ggufs is about to mount it on %s (process %ld)", at,
                      d->pid);
        return STARTS;
    }
    if (s->state > DAEMON_GONE) {
        (void)err_set(why, -EBUSY, "process %ld is still writing edits of %s", d->pid, at);
        /* another user's daemon may falsely claim that it is writing */
        return d->uid == 0 || d->uid == geteuid() ? ENDS : GONE;
    }
    if (s->state == DAEMON_SERVING) {
        (void)err_set(why, -EBUSY,
                      "another ggufs has it open for writing (mounted on %s, process %ld)", at,
                      d->pid);
        return KEEPS;
    }
    (void)err_set(why, -EBUSY,
                  "another ggufs has it open for writing (process %ld; its mount on %s is gone, "
                  "but files are still open)",
                  d->pid, at);
    return GONE;
}

/* ---- holders whose status cannot be read ---- */

/* Name the lock's holder in *why. The holder is found through a mount of this model whose daemon is
 * not visible, or through the kernel's list of locks. */
static void name_other(int fd, const struct file_id *id, struct err *why)
{
    CLEANUP(mounts_free) struct mounts ms;
    char path[PATH_MAX], at[SHOW_MAX], name[PROCESS_NAME_MAX];
    const bool listed = mounts_load(&ms, 0) == 0 && path_of_fd(fd, path);
    for (size_t i = 0; listed && i < ms.n; i++) {
        const struct mount *m = &ms.mount[i];
        if (!mount_is_ggufs(m) || strcmp(m->source, path) != 0 || !mount_has(m->super, "rw"))
            continue;
        (void)err_set(why, -EBUSY, "another ggufs has it open for writing (mounted on %s by %s)",
                      show(at, m->at, strlen(m->at)),
                      user_name(name, mount_number(m->super, "user_id")));
        return;
    }
    long pid = file_locked_by(id);
    if (pid && *process_name(name, pid))
        (void)err_set(why, -EBUSY, "another program has it locked (process %ld, %s)", pid, name);
    else
        (void)err_set(
            why, -EBUSY,
            "a process that cannot be seen has it locked (another user, container or machine)");
}

/* Check the lock's holder once. *pid is set to the process to wait for. */
static enum verdict look(const struct file_id *id, long *pid, struct err *why)
{
    CLEANUP(daemons_free) struct daemons ds = {0};
    const struct daemon *d = daemons_find(&ds, id) < 0 ? NULL : holder_of(&ds, id);
    if (!d)
        return FREE;
    *pid = d->pid;
    return judge(d, why);
}

/* Check the lock's holder. If the lock was refused although no ggufs seems to hold it, check again:
 * a process that is being killed stops answering before its locks are released, so the lock may be
 * free by now. */
static enum verdict look_at(int dir, const char *name, bool busy, long *pid, struct err *why)
{
    struct file_id id;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || !file_id_of(fd, &id)) {
        if (fd >= 0)
            (void)close(fd);
        return FREE; /* opening the model will fail */
    }
    enum verdict v = look(&id, pid, why);
    for (int i = 0; busy && v == FREE && i < 2; i++) {
        busy = flock(fd, LOCK_EX | LOCK_NB) < 0;
        if (busy) {
            (void)process_wait(0, LOOK_AGAIN);
            v = look(&id, pid, why);
        }
    }
    if (busy && v == FREE) {
        name_other(fd, &id, why);
        v = KEEPS;
    }
    (void)close(fd);
    return v;
}

bool holder_wait(void *arg, int dir, const char *name, bool busy, struct err *why)
{
    const char *model = arg;
    const long long begin = when_ms();
    long pid = 0;
    bool said = false;
    for (;;) {
        char shown[SHOW_MAX];
        enum verdict v = look_at(dir, name, busy, &pid, why);
        const long long waited = when_ms() - begin;
        if (v == FREE || v == KEEPS)
            return v == FREE;
        if (v == STARTS && !busy) /* the holder has not edited anything yet */
            return false;
        if (v != ENDS && waited >= END_PATIENCE)
            return false;
        if (!said && waited >= LINE_AFTER) {
            log_line(LOG_NOTICE, "%s: waiting: %s", show(shown, model, strlen(model)), why->msg);
            said = true;
        }
        (void)process_wait(pid, LOOK_AGAIN);
    }
}
