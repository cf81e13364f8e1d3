/* SPDX-License-Identifier: MIT */
/* mount/session: a session's descriptor number after its connection has ended. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "mount/session.h"

/* True if a signal interrupts the next call to poll(2). */
static bool interrupted;
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    if (!interrupted)
        return __real_poll(fds, n, timeout);
    interrupted = false;
    errno = EINTR;
    return -1;
}

/* Make a session whose connection is a socket. */
static struct fuse_session *session(int fd)
{
    static const struct fuse_lowlevel_ops none = {.lookup = NULL};
    char name[] = "test", at[32], *argv[] = {name, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    (void)snprintf(at, sizeof(at), "/dev/fd/%d", fd);
    struct fuse_session *se = fuse_session_new(&args, &none, sizeof(none), NULL);
    fuse_opt_free_args(&args);
    CU_ASSERT_PTR_NOT_NULL_FATAL(se);
    CU_ASSERT_EQUAL_FATAL(fuse_session_mount(se, at), 0);
    CU_ASSERT_EQUAL(fuse_session_fd(se), fd);
    return se;
}

/* The other end notices the cut, and the descriptor number is not reused for files opened later. */
static void test_cut(void)
{
    struct err e = {0};
    int end[2], dead;
    char byte = 0;
    (void)signal(SIGPIPE, SIG_IGN);
    CU_ASSERT_EQUAL_FATAL(connection_reserve(&dead, &e), 0);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end), 0);
    struct fuse_session *se = session(end[0]);
    CU_ASSERT_TRUE(connection_cut(se, &dead));
    CU_ASSERT_EQUAL(dead, -1);
    CU_ASSERT_EQUAL(fuse_session_fd(se), end[0]);
    CU_ASSERT_EQUAL(read(end[1], &byte, 1), 0);
    CU_ASSERT_EQUAL(write(end[0], &byte, 1), -1);
    CU_ASSERT_EQUAL(errno, EPIPE);
    CU_ASSERT_EQUAL(fcntl(end[0], F_GETFD), FD_CLOEXEC);
    /* libfuse uses poll() to check whether there is a mount to unmount. */
    struct pollfd p = {.fd = end[0]};
    CU_ASSERT_EQUAL(poll(&p, 1, 0), 1);
    CU_ASSERT_TRUE(p.revents & POLLERR);
    connection_end(se);
    CU_ASSERT_EQUAL(fcntl(end[0], F_GETFD), -1);
    (void)close(end[1]);
}

/* A signal during the cut does not make the connection look as if it had already ended. */
static void test_cut_at_a_signal(void)
{
    struct err e = {0};
    int end[2], dead;
    CU_ASSERT_EQUAL_FATAL(connection_reserve(&dead, &e), 0);
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end), 0);
    struct fuse_session *se = session(end[0]);
    interrupted = true;
    CU_ASSERT_TRUE(connection_cut(se, &dead));
    CU_ASSERT_FALSE(interrupted);
    connection_end(se);
    (void)close(end[1]);
}

/* If the kernel has ended the connection, the descriptor reports an error. */
static void test_ended_before(void)
{
    struct err e = {0};
    int dead, end[2];
    CU_ASSERT_EQUAL_FATAL(connection_reserve(&dead, &e), 0);
    CU_ASSERT_EQUAL_FATAL(pipe2(end, O_CLOEXEC), 0);
    (void)close(end[0]);
    struct fuse_session *se = session(end[1]);
    CU_ASSERT_FALSE(connection_cut(se, &dead));
    connection_end(se);
}

/* Without a spare descriptor, the mount fails. */
static void test_none_left(void)
{
    struct err e = {0};
    int dead, low = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(low >= 0);
    struct rlimit was, little = {.rlim_cur = (rlim_t)low + 1};
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &was), 0);
    little.rlim_max = was.rlim_max;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &little), 0);
    CU_ASSERT_EQUAL(connection_reserve(&dead, &e), -EMFILE);
    CU_ASSERT_EQUAL(dead, -1);
    CU_ASSERT_STRING_EQUAL(e.msg, "cannot make a pipe: Too many open files");
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &was), 0);
    (void)close(low);
}

static CU_TestInfo tests[] = {
    {"the other end notices that the connection is cut", test_cut},
    {"a signal during the cut does not make it look like an earlier end", test_cut_at_a_signal},
    {"a connection that the kernel has ended cannot be cut", test_ended_before},
    {"without a spare descriptor the mount fails", test_none_left},
    CU_TEST_INFO_NULL,
};

CU_MAIN("connection", tests)
