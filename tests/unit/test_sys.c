/* SPDX-License-Identifier: MIT */
/* base/sys: the loops around system calls either transfer all bytes or fail, and directories are
 * listed. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/sys.h"
#include "faultsys.h"

static const struct sys *const real = &sys_libc;

static int make_dir(char path[32])
{
    (void)snprintf(path, 32, "/tmp/ggufs-sys-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
    int dir = real->openat(real, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    CU_ASSERT_TRUE_FATAL(dir >= 0);
    return dir;
}

static int make_file(int dir, const char *name, const char *text)
{
    int fd = real->openat(real, dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(sys_write_all(real, fd, text, strlen(text), 0), 0);
    return fd;
}

static int remove_one(void *arg, const char *name)
{
    return real->unlinkat(real, *(int *)arg, name);
}

static void drop_dir(int dir, const char *path)
{
    CU_ASSERT_EQUAL(real->list(real, dir, remove_one, &dir), 0);
    sys_close(real, &dir);
    CU_ASSERT_EQUAL(dir, -1);
    CU_ASSERT_EQUAL(rmdir(path), 0);
}

static void test_whole(void)
{
    char path[32], got[16] = "";
    int dir = make_dir(path), fd = make_file(dir, "a", "0123456789");
    CU_ASSERT_EQUAL(sys_read_all(real, fd, got, 4, 6), 0);
    CU_ASSERT_STRING_EQUAL(got, "6789");
    CU_ASSERT_EQUAL(sys_read_all(real, fd, got, 5, 6), -EIO);
    CU_ASSERT_EQUAL(sys_read_all(real, fd, got, 0, 100), 0);
    CU_ASSERT_EQUAL(sys_write_all(real, fd, "x", 1, 3), 0);
    CU_ASSERT_EQUAL(sys_read_all(real, fd, got, 10, 0), 0);
    CU_ASSERT_EQUAL(memcmp(got, "012x456789", 10), 0);
    sys_close(real, &fd);
    drop_dir(dir, path);
}

/* A call interrupted by a signal is repeated; after a short call, the loop continues. */
static void test_again(void)
{
    static char from[5000], to[5000];
    char path[32];
    struct faultsys fs;
    int dir = make_dir(path), fd = make_file(dir, "a", "");
    memset(from, 'f', sizeof(from));
    faultsys_init(&fs, FAULT_SHORT, 0, 0);
    CU_ASSERT_EQUAL(sys_write_all(&fs.sys, fd, from, sizeof(from), 0), 0);
    CU_ASSERT_EQUAL(sys_read_all(&fs.sys, fd, to, sizeof(to), 0), 0);
    CU_ASSERT_EQUAL(fs.calls, 10);
    CU_ASSERT_EQUAL(memcmp(from, to, sizeof(to)), 0);
    faultsys_init(&fs, FAULT_FAIL, 1, -EINTR);
    CU_ASSERT_EQUAL(sys_write_all(&fs.sys, fd, from, 10, 0), 0);
    faultsys_init(&fs, FAULT_FAIL, 1, -EINTR);
    CU_ASSERT_EQUAL(sys_read_all(&fs.sys, fd, to, 10, 0), 0);
    faultsys_init(&fs, FAULT_FAIL, 1, -EINTR);
    CU_ASSERT_EQUAL(sys_sync(&fs.sys, fd), 0);
    CU_ASSERT_EQUAL(fs.calls, 2);
    faultsys_init(&fs, FAULT_FAIL, 1, -ENOSPC);
    CU_ASSERT_EQUAL(sys_write_all(&fs.sys, fd, from, 10, 0), -ENOSPC);
    /* If a directory does not support fsync, there is nothing to sync. Any other failure is an
     * error. */
    faultsys_init(&fs, FAULT_FAIL, 1, -EINVAL);
    CU_ASSERT_EQUAL(sys_sync_dir(&fs.sys, dir), 0);
    faultsys_init(&fs, FAULT_FAIL, 1, -EIO);
    CU_ASSERT_EQUAL(sys_sync_dir(&fs.sys, dir), -EIO);
    sys_close(real, &fd);
    drop_dir(dir, path);
}

static int count_until(void *arg, const char *name)
{
    unsigned *left = arg;
    CU_ASSERT_TRUE(name[0] != '.');
    return --*left ? 0 : -ECANCELED;
}

static void test_list(void)
{
    char path[32], name[8];
    int dir = make_dir(path);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof(name), "f%d", i);
        int fd = make_file(dir, name, "");
        sys_close(real, &fd);
    }
    for (int again = 0; again < 2; again++) { /* regardless of the directory's own offset */
        unsigned left = 100;
        CU_ASSERT_EQUAL(real->list(real, dir, count_until, &left), 0);
        CU_ASSERT_EQUAL(left, 95);
    }
    unsigned left = 3;
    CU_ASSERT_EQUAL(real->list(real, dir, count_until, &left), -ECANCELED);
    CU_ASSERT_EQUAL(left, 0);
    drop_dir(dir, path);
}

static CU_TestInfo tests[] = {
    {"all bytes are read or written, or the call fails", test_whole},
    {"short and interrupted calls are continued", test_again},
    {"a directory is listed completely, or until the callback stops", test_list},
    CU_TEST_INFO_NULL,
};

CU_MAIN("sys", tests)
