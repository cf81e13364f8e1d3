/* SPDX-License-Identifier: MIT */
/* shelf/reach: what lies on another disk, with openat2(2) and where there is none. */
#include "cu_main.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc.h"
#include "shelf/look.h"

/* From here on openat2() fails in this thread. False: no filters, as under qemu. */
static bool without_openat2(unsigned error)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(lines) / sizeof(lines[0]), lines};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void check_near(const char *from, const char *name, bool want)
{
    struct found f = FOUND_NONE;
    struct reach r;
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, from, false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(reach_open(&r, NULL, ".", REACH_NO_LINKS, &f), 0);
    CU_ASSERT_EQUAL(reach_is_near(&r, &f, name), want);
    reach_close(&f);
    reach_end(&r);
}

/* /proc is a mount everywhere, and /etc is none. */
static void check_all(void)
{
    check_near("/etc", "passwd", true);
    check_near("/etc", "none/at/all", true);
    check_near("/etc", "../etc/passwd", true);
    check_near("/", "etc/passwd", true);
    check_near("/", "proc", false);
    check_near("/", "proc/self/status", false);
    check_near("/", "etc/../proc/version", false);
    check_near("/proc", "version", true);
    check_near("/proc", "../etc/passwd", false);
    /* A link to an absolute path begins at "/". */
    check_near("/proc/self", "root/etc/passwd", true);
}

static void *check_without(void *error)
{
    if (without_openat2(*(const unsigned *)error))
        check_all();
    return NULL;
}

static void test_near(void)
{
    check_all();
}

static void test_old_kernel(void)
{
    const unsigned errors[] = {ENOSYS, EPERM};
    for (size_t i = 0; i < 2; i++) {
        pthread_t thread;
        unsigned error = errors[i];
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, check_without, &error), 0);
        (void)pthread_join(thread, NULL);
    }
}

/* ---- the list of mounts ---- */

static unsigned events; /* changes of the list that poll() reports once each */

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    (void)fds;
    (void)n;
    (void)timeout;
    return events && events--;
}

/* A list that cannot be read counts as if everything could be a mount, until it can be read. */
static void test_unreadable_list(void)
{
    struct reach r;
    unsigned looks, before;
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, "/etc", false, NULL), 0);
    for (unsigned at = 1, hit = 1; hit; at++) {
        CU_ASSERT_EQUAL(reach_see_mounts(&r, &before), 0);
        events = 1;
        alloc_arm(at, false);
        int e = reach_see_mounts(&r, &looks);
        hit = alloc_disarm();
        CU_ASSERT_EQUAL(e, hit ? -ENOMEM : 0);
        CU_ASSERT_EQUAL(events, 0);
        CU_ASSERT_TRUE(reach_is_mount_point(&r, "/proc"));
        CU_ASSERT_FALSE(reach_is_mount_point(&r, "/etc/none"));
        CU_ASSERT_EQUAL(reach_see_mounts(&r, &looks), 0);
        CU_ASSERT_EQUAL(looks, before + 1);
    }
    events = 1;
    alloc_arm(1, true);
    CU_ASSERT_TRUE(reach_is_mount_point(&r, "/etc/none"));
    CU_ASSERT_TRUE(reach_is_mount_point(&r, "/etc/none"));
    CU_ASSERT_TRUE(reach_barred(&r, 0));
    CU_ASSERT_TRUE(alloc_disarm());
    CU_ASSERT_FALSE(reach_barred(&r, 0));
    reach_end(&r);
}

/* ---- looks ---- */

static int write_text(struct reach *r, const struct found *dir, const char *name, struct buf *out)
{
    (void)r;
    (void)dir;
    (void)name;
    buf_add(out, "text", 4);
    return buf_error(out) ? buf_error(out) : 1;
}

/* The n-th allocation of a look at another disk fails: then so does the look, or what it found is there. */
static void test_look_without_memory(void)
{
    struct reach r;
    struct found f = FOUND_NONE;
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, "/etc", false, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(look_begin(&r), 0);
    CU_ASSERT_EQUAL_FATAL(reach_open(&r, NULL, ".", REACH_NO_LINKS, &f), 0);
    for (unsigned at = 1, hit = 1; hit; at++) {
        CLEANUP(buf_free) struct buf out = BUF_INIT;
        alloc_arm(at, false);
        int e = look(&r, write_text, &f, "../proc/version", &out);
        hit = alloc_disarm();
        CU_ASSERT_TRUE(e == 1 || (hit && (e == -ENOMEM || e == -ETIMEDOUT)));
        CU_ASSERT_TRUE(e < 0 || (out.len == 4 && memcmp(out.data, "text", 4) == 0));
    }
    reach_close(&f);
    CU_ASSERT_TRUE(look_end(&r));
    reach_end(&r);
}

static CU_TestInfo tests[] = {
    {"another disk", test_near},
    {"another disk, without openat2()", test_old_kernel},
    {"a list of mounts that cannot be read", test_unreadable_list},
    {"a look without memory", test_look_without_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("reach", tests)
