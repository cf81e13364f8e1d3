/* SPDX-License-Identifier: MIT */
/* shelf/reach: what lies on another disk, with openat2(2) and where there is none. */
#include "cu_main.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shelf/reach.h"

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

static CU_TestInfo tests[] = {
    {"another disk", test_near},
    {"another disk, without openat2()", test_old_kernel},
    CU_TEST_INFO_NULL,
};

CU_MAIN("reach", tests)
