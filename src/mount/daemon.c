/* SPDX-License-Identifier: MIT */
/* A daemon's status, for other processes: see daemon.h. */
#include "mount/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "shelf/mounts.h"

#define FILE_NAME "ggufs-status"

/* At most so much is read: the lost edits, and paths of which each byte is escaped. */
#define FILE_MAX (DAEMON_LOST_MAX + (64u << 10))

/* ---- in the daemon ---- */

/* One write: lines are never torn. */
static void append(int fd, struct buf *b)
{
    ssize_t ignored = fd >= 0 && !buf_error(b) ? write(fd, b->data, b->len) : 0;
    (void)ignored;
    buf_free(b);
}

static void path_line(struct buf *b, const char *word, const char *path)
{
    buf_printf(b, "%s ", word);
    path_escape(b, path);
    buf_char(b, '\n');
}

int daemon_begin(const char *mountpoint)
{
    struct buf b = BUF_INIT;
    path_line(&b, "at", mountpoint);
    (void)prctl(PR_SET_NAME, DAEMON_COMM);
    int fd = memfd_create(FILE_NAME, MFD_CLOEXEC);
    append(fd, &b);
    return fd;
}

void daemon_serve(int fd, const struct daemon_facts *facts, char text[DAEMON_TEXT_MAX])
{
    struct buf b = BUF_INIT;
    if (fd < 0)
        return;
    (void)snprintf(text, DAEMON_TEXT_MAX, "%ld %d", (long)getpid(), fd);
    path_line(&b, "at", facts->at);
    path_line(&b, "model", facts->model);
    if (facts->read_only)
        path_line(&b, "read-only", facts->read_only);
    buf_printf(&b, "device %u:%u\npid %ld\nserving\n", major(facts->dev), minor(facts->dev),
               (long)getpid());
    append(fd, &b);
}

void daemon_leave(int fd)
{
    struct buf b = BUF_INIT;
    buf_str(&b, "leaving\n");
    append(fd, &b);
}

/* Append the lines that fit, each behind the word, and how many do not. */
static void add_lines(struct buf *b, const char *word, const char *text)
{
    size_t left = DAEMON_LOST_MAX, more = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n"), line = strlen(word) + n + 2;
        if (line <= left && !more) {
            buf_printf(b, "%s ", word);
            buf_add(b, p, n);
            buf_char(b, '\n');
            left -= line;
        } else {
            more++;
        }
        p += n + (p[n] == '\n');
    }
    if (more)
        buf_printf(b, "%s ... and %zu more\n", word, more);
}

void daemon_end(int fd, const struct err *e, const char *lost, const char *backups)
{
    struct buf b = BUF_INIT;
    if (fd < 0)
        return;
    if (lost)
        add_lines(&b, "lost", lost);
    if (backups)
        add_lines(&b, "backup", backups);
    if (e)
        path_line(&b, "failed", e->msg);
    buf_str(&b, "ended\n");
    append(fd, &b);
}

void daemon_close(int fd)
{
    struct buf b = BUF_INIT;
    buf_str(&b, "closed\n");
    append(fd, &b);
}

/* ---- in other processes ---- */

/* True if the path leads to the status of a daemon: an attribute from another file server, or from
 * another namespace of processes, may name any process and any descriptor. */
static bool is_status(const char *path)
{
    static const char want[] = "/memfd:" FILE_NAME " (deleted)";
    char link[sizeof(want)];
    ssize_t n = readlink(path, link, sizeof(link));
    return n == (ssize_t)sizeof(want) - 1 && memcmp(link, want, sizeof(want) - 1) == 0;
}

int daemon_open(long pid, int fd)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%ld/fd/%d", pid, fd);
    errno = ESRCH;
    int r = is_status(path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    return r < 0 ? -errno : r;
}

static void take_text(char **place, const char *value)
{
    free(*place);
    *place = strdup(value);
    if (*place)
        path_unescape(*place);
}

static void take_line(struct daemon_status *s, char *line)
{
    unsigned major_no, minor_no;
    size_t n = strcspn(line, " ");
    const char *value = line[n] ? line + n + 1 : "";
    line[n] = '\0';
    if (strcmp(line, "at") == 0)
        take_text(&s->at, value);
    else if (strcmp(line, "model") == 0)
        take_text(&s->model, value);
    else if (strcmp(line, "read-only") == 0)
        take_text(&s->read_only, value);
    else if (strcmp(line, "failed") == 0)
        take_text(&s->failed, value);
    else if (strcmp(line, "pid") == 0)
        s->pid = strtol(value, NULL, 10);
    else if (strcmp(line, "device") == 0 && sscanf(value, "%u:%u", &major_no, &minor_no) == 2)
        s->dev = makedev(major_no, minor_no);
    else if (strcmp(line, "lost") == 0)
        buf_printf(&s->lost, "%s\n", value);
    else if (strcmp(line, "backup") == 0)
        buf_printf(&s->backups, "%s\n", value);
    else if (strcmp(line, "serving") == 0)
        s->state = DAEMON_SERVING;
    else if (strcmp(line, "leaving") == 0)
        s->state = DAEMON_LEAVING;
    else if (strcmp(line, "ended") == 0)
        s->state = DAEMON_ENDED;
    else if (strcmp(line, "closed") == 0)
        s->state = DAEMON_CLOSED;
}

int daemon_read(int fd, struct daemon_status *ret)
{
    *ret = (struct daemon_status){0};
    char *text = malloc(FILE_MAX + 1), *line = text, *end;
    if (!text)
        return -ENOMEM;
    ssize_t n = pread(fd, text, FILE_MAX, 0);
    int r = n < 0 ? -errno : 0;
    text[n > 0 ? n : 0] = '\0';
    for (; r == 0 && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        take_line(ret, line);
    }
    free(text);
    return r < 0 ? r : !ret->at ? -EBADMSG : buf_error(&ret->lost);
}

void daemon_status_free(struct daemon_status *s)
{
    free(s->at);
    free(s->model);
    free(s->read_only);
    free(s->failed);
    buf_free(&s->lost);
    buf_free(&s->backups);
}
