/* SPDX-License-Identifier: MIT */
/* Daemons as other processes see them: see daemon.h. */
#include "mount/daemon.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/when.h"
#include "mount/control.h"

/* A status has at most so many bytes, with paths of which each byte is escaped. */
#define STATUS_MAX (2 * CONTROL_LOST_MAX + ((size_t)64 << 10))
/* An answer: the states of a model are many. */
#define ANSWER_MAX ((size_t)64 << 20)
/* At most so many sockets are tried: anybody can make some. */
#define DAEMONS_MOST 4096
/* Seconds in which a daemon answers that is not stopped, on a machine that is busy. */
#define PATIENCE 5
/* Milliseconds between two looks whether it is stopped. */
#define LOOK_AGAIN 100

/* ---- the status ---- */

static void take_text(char **place, const char *value)
{
    free(*place);
    *place = strdup(value);
    if (*place)
        path_unescape(*place);
}

static void take_line(struct daemon *d, char *line)
{
    static const char *const states[] = {[DAEMON_SERVING] = "serving",
                                         [DAEMON_GONE] = "gone",
                                         [DAEMON_LEAVING] = "leaving",
                                         [DAEMON_ENDED] = "ended",
                                         [DAEMON_CLOSED] = "closed"};
    struct daemon_status *s = &d->status;
    unsigned major_no, minor_no;
    size_t n = strcspn(line, " ");
    const char *value = line[n] ? line + n + 1 : "";
    line[n] = '\0';
    for (int i = DAEMON_SERVING; i <= DAEMON_CLOSED; i++)
        if (strcmp(line, states[i]) == 0)
            s->state = (enum daemon_state)i;
    if (strcmp(line, "at") == 0)
        take_text(&s->at, value);
    else if (strcmp(line, "model") == 0)
        take_text(&s->model, value);
    else if (strcmp(line, "read-only") == 0)
        take_text(&s->read_only, value);
    else if (strcmp(line, "failed") == 0)
        take_text(&s->failed, value);
    else if (strcmp(line, "device") == 0 && sscanf(value, "%u:%u", &major_no, &minor_no) == 2)
        s->dev = makedev(major_no, minor_no);
    else if (strcmp(line, "lost") == 0)
        buf_printf(&s->lost, "%s\n", value);
    else if (strcmp(line, "backup") == 0)
        buf_printf(&s->backups, "%s\n", value);
    else if (strcmp(line, "holds") == 0)
        s->holds = true;
    else if (strcmp(line, "held") == 0)
        s->held = true;
    else if (strcmp(line, "free") == 0)
        s->free = true;
    else if (strcmp(line, "now") == 0)
        d->now = true;
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

/* Only what this user's processes claim is heard; root hears all, and believes what they say of their own mounts. */
static bool is_trusted(int fd, struct ucred *who)
{
    socklen_t n = sizeof(*who);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &n) == 0 &&
           (geteuid() == 0 || who->uid == geteuid());
}

/* Connect to a socket, and send it a line. The descriptor, or -errno. */
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
    if (connect(fd, (struct sockaddr *)&name, size) == 0 && is_trusted(fd, who) &&
        send(fd, line, n, MSG_NOSIGNAL) == (ssize_t)n)
        return fd;
    (void)close(fd);
    return -ECONNREFUSED;
}

/* "NUMBER: REFS PROTOCOL FLAGS TYPE STATE INODE @NAME", of a socket that listens. False: not of a daemon. */
static bool name_in(const char *line, char name[64])
{
    unsigned flags;
    return sscanf(line, "%*s %*s %*s %x %*s %*s %*s @%63s", &flags, name) == 2 && flags & 0x10000 &&
           strncmp(name, CONTROL_PREFIX, strlen(CONTROL_PREFIX)) == 0;
}

static int add_daemon(struct daemons *ds, const char *name, const char *line)
{
    struct ucred who;
    int fd = ask(name, line, &who);
    if (fd == -EMFILE || fd == -ENFILE)
        return fd;
    if (fd < 0 || who.pid == getpid() || who.pid == 0) { /* 0: of another namespace of processes */
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

/* Hear what it says at once. False: it has ended, or refuses to say anything. */
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
    int r = 0;
    size_t kept = 0;
    *ds = (struct daemons){0};
    if (locked)
        (void)snprintf(request, sizeof(request), "watch %x:%x:%llu\n", locked->major, locked->minor,
                       (unsigned long long)locked->ino);
    FILE *f = fopen("/proc/net/unix", "re");
    if (!f)
        return -errno;
    for (int i = 0; r == 0 && i < DAEMONS_MOST && fgets(line, sizeof(line), f);)
        if (name_in(line, name)) {
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

/* ---- their mounts ---- */

static bool may_serve(const struct daemon *d, const struct mount *m)
{
    return d->uid == 0 || (long)d->uid == mount_number(m->super, "user_id");
}

/* One that has mounted, and is about to say so. */
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

/* One that serves comes first: the number of a mount that is gone is given to the next one. */
struct daemon *daemons_of(struct daemons *ds, const struct mount *m)
{
    struct daemon *found = NULL;
    for (size_t i = 0; i < ds->n; i++) {
        struct daemon *d = &ds->daemon[i];
        const struct daemon_status *s = &d->status;
        if (may_serve(d, m) && mount_is_of(m, s->dev, s->at, s->model) &&
            (!found || s->state < found->status.state))
            found = d;
    }
    return found ? found : wait_for_start(ds, m);
}

struct daemon *daemons_silent(const struct daemons *ds, const struct mount *m)
{
    for (size_t i = 0; i < ds->n; i++) {
        struct daemon *d = &ds->daemon[i];
        if (d->status.state == DAEMON_SILENT && may_serve(d, m) &&
            strtoull(d->name + strlen(CONTROL_PREFIX), NULL, 16) == control_place(m->at))
            return d;
    }
    return NULL;
}

int daemon_no_answer(const struct daemon *d, struct err *e)
{
    return err_set(e, -ETIMEDOUT, "its daemon (process %ld) does not answer%s", d->pid,
                   process_stopped(d->pid) ? ": it is stopped" : "");
}

const struct mount *daemon_mount(const struct mounts *ms, const struct daemon *d)
{
    return mounts_of(ms, d->status.dev, d->status.at, d->status.model);
}

/* ---- requests ---- */

/* Take the last line, "end ERRNO MESSAGE", off an answer. */
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
        return err_set(e, -EPROTO, "its daemon gave an answer that makes no sense");
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
