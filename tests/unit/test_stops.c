/* SPDX-License-Identifier: MIT */
/* mount/daemon: pending signals that should stop a program. */
#include "cu_test.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bytes.h"
#include "mount/proc.h"

#define BIT(signal) ((uint64_t)1 << ((signal)-1))

struct sets {
    uint64_t own, shared, blocked, ignored, caught;
};

static bool stops(struct sets s)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "Name:\tx\nThreads:\t1\nSigQ:\t0/7\nSigPnd:\t%016llx\nShdPnd:\t%016llx\n"
                   "SigBlk:\t%016llx\nSigIgn:\t%016llx\nSigCgt:\t%016llx\nCapInh:\t0\n",
                   (unsigned long long)s.own, (unsigned long long)s.shared,
                   (unsigned long long)s.blocked, (unsigned long long)s.ignored,
                   (unsigned long long)s.caught);
    return stops_by_status(text);
}

static const int asking[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
static const int fatal[] = {SIGKILL, SIGABRT, SIGUSR1, SIGALRM, SIGPIPE, SIGXCPU};
static const int harmless[] = {SIGCHLD, SIGCONT, SIGURG,  SIGWINCH,
                               SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};

TEST("pending signals end a wait unless they are ignored")
{
    CU_ASSERT_FALSE(stops((struct sets){0}));
    for (size_t i = 0; i < COUNT(asking); i++) {
        const uint64_t bit = BIT(asking[i]);
        CU_ASSERT_TRUE(stops((struct sets){.own = bit}));
        CU_ASSERT_TRUE(stops((struct sets){.shared = bit}));
        CU_ASSERT_TRUE(stops((struct sets){.shared = bit, .caught = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.shared = bit, .blocked = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.own = bit, .ignored = bit}));
    }
    for (size_t i = 0; i < COUNT(fatal); i++) {
        const uint64_t bit = BIT(fatal[i]);
        CU_ASSERT_TRUE(stops((struct sets){.own = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.own = bit, .caught = bit}));
    }
    for (size_t i = 0; i < COUNT(harmless); i++) {
        const uint64_t bit = BIT(harmless[i]);
        CU_ASSERT_FALSE(stops((struct sets){.shared = bit}));
        CU_ASSERT_FALSE(stops((struct sets){.shared = bit, .caught = bit}));
        CU_ASSERT_TRUE(stops((struct sets){.shared = bit, .own = BIT(SIGKILL)}));
    }
}

/* If it is unknown whether a signal is pending, the wait ends, and no edit is lost. */
TEST("an unknown process ends a wait")
{
    CU_ASSERT_TRUE(stops_thread(0));
    CU_ASSERT_TRUE(stops_by_status("Name:\tx\n"));
    CU_ASSERT_FALSE(stops_thread(getpid()));
}
