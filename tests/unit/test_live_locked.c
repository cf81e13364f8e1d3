/* SPDX-License-Identifier: MIT */
/* What must not be done with the lock of what is edited: a close of a large file takes its time. */
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cu_main.h"
#include "live/core.h"
#include "script_run.h"
#include "tree/internal.h"

static struct live *live; /* NULL: closes are not looked at */
static unsigned closed, closed_locked;

/* In place of the C library's. */
int close(int fd)
{
    if (live) {
        closed++;
        closed_locked += lock_held(&live->lock);
    }
    return (int)syscall(SYS_close, fd);
}

static void test_helpers(void)
{
    static const struct script s = {"helpers of a tensor", NULL, "", ""};
    struct run r = {.s = &s, .mode = "sync"};
    r.opt = (struct tree_options){.commit = LIVE_COMMIT_SYNC, .tensors = true};
    script_model_make(&r.m, SCRIPT_TENSORS);
    script_start(&r);
    script_one(&r, "tput a/.h 12345678");
    script_one(&r, "tput a/.i 23456789");
    script_one(&r, "tput a/.j 34567890");
    live = atomic_load(&r.t->live);
    CU_ASSERT_PTR_NOT_NULL_FATAL(live);
    script_one(&r, "tmv a/.h a/.i"); /* the file of .i ends */
    script_one(&r, "trm a/.j");
    CU_ASSERT_EQUAL(closed, 2);
    script_one(&r, "tmv a/.i a/raw");
    live = NULL;
    CU_ASSERT_TRUE(closed > 2);
    CU_ASSERT_EQUAL(closed_locked, 0);
    CU_ASSERT_EQUAL(script_finish(&r), 0);
    script_model_drop(&r.m);
}

static CU_TestInfo tests[] = {
    {"helpers of a tensor are not closed with the lock", test_helpers},
    CU_TEST_INFO_NULL,
};

CU_MAIN("live locked", tests)
