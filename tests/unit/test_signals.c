/* SPDX-License-Identifier: MIT */
/* mount/control: calls that a signal interrupts, before and while a session is served. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mount/control.h"

/* Send a signal once the parent is waiting. This is the child of a multithreaded process, so it
 * makes only system calls. */
static _Noreturn void send_to_parent(const char *stat, int number)
{
    char line[512];
    for (bool waits = false; !waits;) {
        int fd = open(stat, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line));
        const char *end = n < 0 ? NULL : memrchr(line, ')', (size_t)n);
        waits = end && line + n - end > 2 && end[2] == 'S';
        if (fd >= 0)
            (void)close(fd);
    }
    _exit(kill(getppid(), number) == 0 ? 7 : 1);
}

static pid_t sender(int number)
{
    char stat[64];
    (void)snprintf(stat, sizeof(stat), "/proc/%ld/stat", (long)getpid());
    pid_t pid = fork();
    if (pid == 0)
        send_to_parent(stat, number);
    CU_ASSERT_FATAL(pid > 0);
    return pid;
}

static const int ending[] = {SIGTERM, SIGINT, SIGHUP};

/* Restore the default actions: a shell starts background jobs with SIGINT ignored, and
 * signals_end() leaves all signals ignored. */
static void by_default(void)
{
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
        (void)signal(ending[i], SIG_DFL);
}

/* While mounting, libfuse waits for a helper process. A signal must not end this wait. */
static void test_before(void)
{
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
        int status = 0;
        by_default();
        signals_begin(NULL);
        pid_t pid = sender(ending[i]);
        CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
        CU_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CU_ASSERT_TRUE(signals_served()); /* the signal is not lost */
        signals_end();
    }
}

/* A signal interrupts the loop's read. */
static void test_serving(void)
{
    int ends[2], status = 0;
    char byte;
    uint64_t woken = 0;
    const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    by_default();
    signals_begin(NULL);
    signals_serve(wake);
    CU_ASSERT_FALSE(signals_kick());
    pid_t pid = sender(SIGTERM);
    CU_ASSERT_EQUAL(read(ends[0], &byte, 1), -1);
    CU_ASSERT_EQUAL(errno, EINTR);
    /* The signal wakes another thread, which interrupts waiting requests until the loop ends. */
    CU_ASSERT_EQUAL(read(wake, &woken, sizeof(woken)), (ssize_t)sizeof(woken));
    CU_ASSERT_TRUE(signals_kick());
    CU_ASSERT_EQUAL(read(wake, &woken, sizeof(woken)), -1); /* no more wakeups are needed */
    CU_ASSERT_TRUE(signals_served());
    CU_ASSERT_FALSE(signals_kick());
    signals_end();
    (void)close(wake);
    CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
    CU_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* An earlier signal is passed on to the thread that interrupts requests. */
static void test_came_before(void)
{
    uint64_t woken = 0;
    const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    by_default();
    signals_begin(NULL);
    CU_ASSERT_EQUAL(raise(SIGINT), 0);
    CU_ASSERT_FALSE(signals_kick());
    signals_serve(wake);
    CU_ASSERT_EQUAL(read(wake, &woken, sizeof(woken)), (ssize_t)sizeof(woken));
    CU_ASSERT_TRUE(signals_kick());
    CU_ASSERT_TRUE(signals_served());
    signals_end();
    (void)close(wake);
}

/* nohup(1) makes programs ignore SIGHUP. */
static void test_ignored(void)
{
    struct sigaction now;
    by_default();
    (void)signal(SIGHUP, SIG_IGN);
    signals_begin(NULL);
    signals_serve(-1);
    CU_ASSERT_EQUAL(sigaction(SIGHUP, NULL, &now), 0);
    CU_ASSERT_TRUE(now.sa_handler == SIG_IGN);
    CU_ASSERT_FALSE(signals_served());
    signals_end();
    by_default();
}

static CU_TestInfo tests[] = {
    {"a signal arrives while the session is mounted", test_before},
    {"a signal arrives while the session is served", test_serving},
    {"a signal arrives before the session is served", test_came_before},
    {"a signal that was ignored stays ignored", test_ignored},
    CU_TEST_INFO_NULL,
};

CU_MAIN("signals", tests)
