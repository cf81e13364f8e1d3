/* SPDX-License-Identifier: MIT */
/* mount/control and mount/daemon: what a daemon reports about itself to another process. */
#include "cu_main.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mount/control.h"
#include "mount/daemon.h"

#define MANY 20000 /* number of lost edits */

/* A process that acts as a daemon. For each byte received, it takes one step and reports that the
 * step is done. */
struct other {
    pid_t pid;
    int to, from;
};

static void until_done(const struct other *x)
{
    char byte;
    CU_ASSERT_EQUAL_FATAL(read(x->from, &byte, 1), 1);
}

static void step(const struct other *x)
{
    CU_ASSERT_EQUAL_FATAL(write(x->to, "", 1), 1);
    until_done(x);
}

static void stop_here(int from, int to)
{
    char byte;
    if (write(to, "", 1) != 1 || read(from, &byte, 1) != 1)
        _exit(1);
}

static void live(const char *at, int from, int to)
{
    const struct control_facts facts = {.at = at,
                                        .model = "/models/a b.gguf",
                                        .read_only = "its name\nis odd",
                                        .dev = makedev(0, 77)};
    struct buf lost = BUF_INIT, backups = BUF_INIT;
    struct handles handles = {0};
    struct control *c = NULL;
    struct err e = {0};
    if (control_begin(at, &handles, &c, &e) < 0)
        _exit(1);
    stop_here(from, to);
    control_serve(c, &facts, NULL);
    stop_here(from, to);
    (void)control_leave(c);
    stop_here(from, to);
    buf_str(&lost, "one: refused\ntwo: \x1b[31mno key\n");
    buf_str(&backups, "model.gguf~: 4 GiB\n");
    for (unsigned i = 0; i < MANY; i++)
        buf_str(&lost, "key\n");
    (void)err_set(&e, -EIO, "two\nlines");
    control_end(c, &e, &lost, &backups);
    stop_here(from, to);
    control_close(c);
    buf_free(&lost);
    buf_free(&backups);
    stop_here(from, to);
    _exit(0);
}

static struct other begin(const char *at)
{
    int to[2], from[2];
    CU_ASSERT_EQUAL_FATAL(pipe(to), 0);
    CU_ASSERT_EQUAL_FATAL(pipe(from), 0);
    struct other x = {.pid = fork(), .to = to[1], .from = from[0]};
    CU_ASSERT_FATAL(x.pid >= 0);
    if (x.pid == 0) {
        (void)close(to[1]);
        live(at, to[0], from[1]);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    until_done(&x);
    return x;
}

static void end(struct other *x)
{
    int status;
    (void)close(x->to);
    (void)close(x->from);
    CU_ASSERT_EQUAL(waitpid(x->pid, &status, 0), x->pid);
}

/* Find the process among all daemons; NULL if it is not one of them. */
static struct daemon *find(struct daemons *ds, const struct other *x)
{
    CU_ASSERT_EQUAL_FATAL(daemons_find(ds, NULL), 0);
    for (size_t i = 0; i < ds->n; i++)
        if (ds->daemon[i].pid == x->pid)
            return &ds->daemon[i];
    return NULL;
}

static void test_states(void)
{
    struct other x = begin("/mnt/new\nline");
    struct daemons ds, again;
    struct daemon *d = find(&ds, &x);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    CU_ASSERT_EQUAL(d->uid, geteuid());
    CU_ASSERT_EQUAL(d->status.state, DAEMON_STARTING);
    CU_ASSERT_STRING_EQUAL(d->status.at, "/mnt/new\nline");
    step(&x);
    while (d->status.state != DAEMON_SERVING)
        CU_ASSERT_FATAL(daemon_hear(d, 1000));
    CU_ASSERT_EQUAL(d->status.dev, makedev(0, 77));
    CU_ASSERT_STRING_EQUAL(d->status.model, "/models/a b.gguf");
    CU_ASSERT_STRING_EQUAL(d->status.read_only, "its name\nis odd");
    step(&x);
    struct daemon *late = find(&again, &x);
    CU_ASSERT_PTR_NOT_NULL_FATAL(late);
    CU_ASSERT_EQUAL(late->status.state, DAEMON_LEAVING);
    CU_ASSERT_EQUAL(late->status.dev, makedev(0, 77));
    daemons_free(&again);
    step(&x);
    step(&x);
    while (daemon_hear(d, 1000))
        ;
    CU_ASSERT_EQUAL(d->status.state, DAEMON_CLOSED);
    CU_ASSERT_STRING_EQUAL(d->status.failed, "two\nlines");
    CU_ASSERT_EQUAL(d->status.backups.len, strlen("model.gguf~: 4 GiB\n"));
    daemons_free(&ds);
    CU_ASSERT_PTR_NULL(find(&ds, &x));
    daemons_free(&ds);
    end(&x);
}

/* The list of lost edits has a maximum size. It ends before the first line that would not fit, with
 * a count of the omitted lines. */
static void test_many_lost(void)
{
    static const char first[] = "one: refused\ntwo: \x1b[31mno key\nkey\n";
    struct other x = begin("/mnt");
    struct daemons ds;
    step(&x);
    step(&x);
    step(&x);
    struct daemon *d = find(&ds, &x);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    struct buf *lost = &d->status.lost;
    buf_char(lost, '\0');
    const char *more = strstr(buf_text(lost), "... and ");
    CU_ASSERT_EQUAL(d->status.state, DAEMON_ENDED);
    CU_ASSERT(lost->len < CONTROL_LOST_MAX);
    CU_ASSERT_EQUAL(memcmp(lost->data, first, strlen(first)), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(more);
    size_t kept = ((size_t)(more - buf_text(lost)) - strlen(first)) / strlen("key\n") + 1;
    CU_ASSERT_EQUAL(strtoul(more + strlen("... and "), NULL, 10), MANY - kept);
    daemons_free(&ds);
    end(&x);
}

static int knock(const struct daemon *d)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path + 1, d->name, strlen(d->name));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(d->name));
    CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&name, n), 0);
    return fd;
}

/* Whatever one client sends or fails to send, other clients get answers. */
static void test_hostile_client(void)
{
    static const char *const lines[] = {"\n",
                                        "watch \n",
                                        "watch x:y:z\n",
                                        "watch 1:2\n",
                                        "watcher\n",
                                        "undo\n",
                                        "history\n",
                                        "sync more\n",
                                        "watch 99999999999:1:1\n",
                                        "watch %n%n%n\n",
                                        "\xff\xfe\n"};
    struct other x = begin("/mnt");
    struct daemons ds;
    struct daemon *d = find(&ds, &x);
    char rest[4096];
    int idle[200];
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
        idle[i] = knock(d);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        int fd = knock(d);
        CU_ASSERT_EQUAL(send(fd, lines[i], strlen(lines[i]), MSG_NOSIGNAL),
                        (ssize_t)strlen(lines[i]));
        CU_ASSERT(recv(fd, rest, sizeof(rest), 0) > 0);
        (void)close(fd);
    }
    char *large = calloc(1, CONTROL_LINE_MAX + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(large);
    int fd = knock(d);
    for (ssize_t n = 1; n > 0;) /* until the daemon closes the connection */
        n = send(fd, large, CONTROL_LINE_MAX, MSG_NOSIGNAL);
    free(large);
    (void)close(fd);
    struct daemons again;
    CU_ASSERT_PTR_NOT_NULL(find(&again, &x));
    daemons_free(&again);
    for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
        (void)close(idle[i]);
    daemons_free(&ds);
    end(&x);
}

static void test_requests(void)
{
    struct other x = begin("/mnt");
    struct daemons ds;
    struct daemon *d = find(&ds, &x);
    struct buf said = BUF_INIT;
    struct err e = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    CU_ASSERT_EQUAL(daemon_ask(d, "sync", &said, NULL, NULL, &e), -ESHUTDOWN);
    CU_ASSERT_STRING_EQUAL(e.msg, "the mount is not being served at the moment");
    CU_ASSERT_EQUAL(said.len, 0);
    end(&x);
    CU_ASSERT_EQUAL(daemon_ask(d, "sync", &said, NULL, NULL, &e), -EPIPE);
    daemons_free(&ds);
    buf_free(&said);
}

/* Answers that a foreign program might give. */
static void test_foreign(void)
{
    static const char text[] = "at /mnt\npid x\ndevice 1\nnonsense\n\nlost\nserving\nended";
    struct daemon d = {.fd = -1};
    buf_str(&d.part, text);
    daemon_take(&d);
    CU_ASSERT_EQUAL(d.status.state, DAEMON_SERVING); /* the last line is still incomplete */
    CU_ASSERT_EQUAL(d.status.dev, 0);
    CU_ASSERT_EQUAL(d.part.len, strlen("ended"));
    CU_ASSERT_FALSE(d.now);
    buf_free(&d.part);
    buf_free(&d.status.lost);
    free(d.status.at);
}

static CU_TestInfo tests[] = {
    {"the states of a daemon are read in turn", test_states},
    {"a long list of lost edits ends with a count", test_many_lost},
    {"a client that sends nonsense does not disturb others", test_hostile_client},
    {"requests are refused when no mount is served", test_requests},
    {"malformed answers of another program are ignored", test_foreign},
    CU_TEST_INFO_NULL,
};

CU_MAIN("daemon", tests)
