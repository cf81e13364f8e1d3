/* SPDX-License-Identifier: MIT */
/* mount/daemon: what a daemon says of itself is what another process reads. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "mount/daemon.h"

/* What another process would read now. */
static struct daemon_status read_again(int fd)
{
    struct daemon_status s;
    int other = daemon_open(getpid(), fd);
    CU_ASSERT_FATAL(other >= 0);
    CU_ASSERT_EQUAL_FATAL(daemon_read(other, &s), 0);
    (void)close(other);
    return s;
}

static void test_states(void)
{
    const struct daemon_facts facts = {.at = "/mnt/later",
                                       .model = "/models/a b.gguf",
                                       .read_only = "its name\nis odd",
                                       .dev = makedev(0, 77)};
    char text[DAEMON_TEXT_MAX], want[DAEMON_TEXT_MAX];
    int fd = daemon_begin("/mnt/new\nline");
    CU_ASSERT_FATAL(fd >= 0);
    struct daemon_status s = read_again(fd);
    CU_ASSERT_EQUAL(s.state, DAEMON_STARTING);
    CU_ASSERT_STRING_EQUAL(s.at, "/mnt/new\nline");
    CU_ASSERT_EQUAL(s.pid, 0);
    daemon_status_free(&s);

    daemon_serve(fd, &facts, text);
    (void)snprintf(want, sizeof(want), "%ld %d", (long)getpid(), fd);
    CU_ASSERT_STRING_EQUAL(text, want);
    s = read_again(fd);
    CU_ASSERT_EQUAL(s.state, DAEMON_SERVING);
    CU_ASSERT_EQUAL(s.pid, getpid());
    CU_ASSERT_EQUAL(s.dev, facts.dev);
    CU_ASSERT_STRING_EQUAL(s.at, facts.at);
    CU_ASSERT_STRING_EQUAL(s.model, facts.model);
    CU_ASSERT_STRING_EQUAL(s.read_only, facts.read_only);
    daemon_status_free(&s);

    daemon_leave(fd);
    s = read_again(fd);
    CU_ASSERT_EQUAL(s.state, DAEMON_LEAVING);
    daemon_status_free(&s);

    daemon_end(fd, NULL, NULL, NULL);
    s = read_again(fd);
    CU_ASSERT_EQUAL(s.state, DAEMON_ENDED);
    CU_ASSERT_PTR_NULL(s.failed);
    CU_ASSERT_EQUAL(s.lost.len, 0);
    daemon_status_free(&s);
    (void)close(fd);
}

static void test_lost(void)
{
    int fd = daemon_begin("/mnt");
    struct err e = {0};
    (void)err_set(&e, -EIO, "two\nlines");
    daemon_end(fd, &e, "one: refused\ntwo: \x1b[31mno key", "model.gguf~: 4 GiB\n");
    struct daemon_status s = read_again(fd);
    static const char want[] = "one: refused\ntwo: \x1b[31mno key\n";
    CU_ASSERT_STRING_EQUAL(s.failed, "two\nlines");
    CU_ASSERT_EQUAL_FATAL(s.lost.len, strlen(want));
    CU_ASSERT_EQUAL(memcmp(s.lost.data, want, strlen(want)), 0);
    buf_char(&s.backups, '\0');
    CU_ASSERT_STRING_EQUAL((const char *)s.backups.data, "model.gguf~: 4 GiB\n");
    daemon_status_free(&s);
    (void)close(fd);
}

/* A line that does not fit ends the list: its bytes are bounded, and the number of the rest stands
 * at its end. */
static void test_many_lost(void)
{
    struct buf lines = BUF_INIT;
    unsigned n = 1u << 16;
    for (unsigned i = 0; i < n; i++)
        buf_str(&lines, "x\n");
    buf_char(&lines, '\0');
    int fd = daemon_begin("/mnt");
    daemon_end(fd, NULL, (const char *)lines.data, NULL);
    struct daemon_status s = read_again(fd);
    buf_char(&s.lost, '\0');
    const char *more = strstr((const char *)s.lost.data, "... and ");
    CU_ASSERT_EQUAL(s.state, DAEMON_ENDED);
    CU_ASSERT(s.lost.len < DAEMON_LOST_MAX);
    CU_ASSERT_PTR_NOT_NULL_FATAL(more);
    unsigned kept = (unsigned)(more - (const char *)s.lost.data) / 2;
    CU_ASSERT_EQUAL((unsigned)strtoul(more + strlen("... and "), NULL, 10), n - kept);
    daemon_status_free(&s);
    buf_free(&lines);
    (void)close(fd);
}

/* What another program left is no status, or an incomplete one. */
static void test_foreign(void)
{
    struct daemon_status s;
    int other = memfd_create("other", MFD_CLOEXEC);
    CU_ASSERT_EQUAL(daemon_open(getpid(), other), -ESRCH);
    CU_ASSERT(daemon_open(getpid(), 9999) < 0);
    (void)close(other);
    other = memfd_create("ggufs-status", MFD_CLOEXEC);
    static const char text[] = "at /mnt\npid x\ndevice 1\nnonsense\n\nlost\nserving\nended";
    CU_ASSERT_EQUAL(write(other, text, strlen(text)), (ssize_t)strlen(text));
    s = read_again(other);
    CU_ASSERT_EQUAL(s.state, DAEMON_SERVING); /* the last line is not whole yet */
    CU_ASSERT_EQUAL(s.pid, 0);
    CU_ASSERT_EQUAL(s.dev, 0);
    daemon_status_free(&s);
    CU_ASSERT_EQUAL(ftruncate(other, 0), 0);
    CU_ASSERT_EQUAL(daemon_read(other, &s), -EBADMSG);
    daemon_status_free(&s);
    (void)close(other);
}

static CU_TestInfo tests[] = {
    {"states", test_states},
    {"lost edits", test_lost},
    {"lost edits beyond the bound", test_many_lost},
    {"what another program left", test_foreign},
    CU_TEST_INFO_NULL,
};

CU_MAIN("daemon", tests)
