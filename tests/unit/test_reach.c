/* SPDX-License-Identifier: MIT */
/* shelf/reach: the list of mounts. */
#include "cu_main.h"

#include <errno.h>
#include <poll.h>

#include "alloc.h"
#include "shelf/reach.h"

static unsigned events; /* changes to the list; poll() reports each once */

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    (void)fds;
    (void)n;
    (void)timeout;
    return events && events--;
}

/* While the list cannot be read, any directory must be assumed to be a mount. */
static void test_unreadable_list(void)
{
    struct reach r;
    CU_ASSERT_EQUAL_FATAL(reach_begin(&r, "/etc", false, NULL), 0);
    for (unsigned at = 1, hit = 1; hit; at++) {
        CLEANUP(buf_free) struct buf names = BUF_INIT;
        CU_ASSERT_FALSE(reach_barred(&r, 0));
        events = 1;
        alloc_arm(at, false);
        int e = reach_mounts_in(&r, "/", &names);
        hit = alloc_disarm();
        CU_ASSERT_EQUAL(e, hit ? -ENOMEM : 0);
        CU_ASSERT_EQUAL(events, 0);
    }
    events = 1;
    alloc_arm(1, true);
    CU_ASSERT_TRUE(reach_barred(&r, 0));
    CU_ASSERT_TRUE(alloc_disarm());
    CU_ASSERT_FALSE(reach_barred(&r, 0));
    reach_end(&r);
}

static CU_TestInfo tests[] = {
    {"while the mounts cannot be listed, any directory counts as one", test_unreadable_list},
    CU_TEST_INFO_NULL,
};

CU_MAIN("reach", tests)
