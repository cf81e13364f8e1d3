/* SPDX-License-Identifier: MIT */
/* edit/history_place.h: where the folder of histories is, and which folders are used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cu_main.h"
#include "edit/history_place.h"
#include "faultsys.h"

static char root[64];

static void begin(void)
{
    (void)strcpy(root, "/tmp/ggufs-place-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
}

/* In the test's folder; three can be in use. */
static const char *in(const char *name)
{
    static char path[3][128];
    static unsigned next;
    char *p = path[next++ % 3];
    (void)snprintf(p, 128, "%s/%s", root, name);
    return p;
}

static void home_is(const char *state, const char *home, const char *want)
{
    struct err e = {0};
    char *got = NULL;
    if (!state || setenv("XDG_STATE_HOME", state, 1) < 0)
        (void)unsetenv("XDG_STATE_HOME");
    if (!home || setenv("HOME", home, 1) < 0)
        (void)unsetenv("HOME");
    int r = history_home(&got, &e);
    if (!want && geteuid() == 0)
        want = "/var/lib";
    CU_ASSERT_EQUAL(r, want ? 0 : -ENOENT);
    if (r == 0 && want)
        CU_ASSERT_STRING_EQUAL(got, want);
    free(got);
}

static void test_home(void)
{
    home_is("/state", "/home/me", "/state");
    home_is("state", "/home/me", "/home/me/.local/state");
    home_is(NULL, "/home/me", "/home/me/.local/state");
    home_is("", "/home/me", "/home/me/.local/state");
    home_is("", "me", NULL);
    home_is(NULL, "", NULL);
    home_is(NULL, NULL, NULL);
}

static void found(const char *home, const char *path, const char *rest)
{
    struct history_place p;
    struct err e = {0};
    char *copy = strdup(home); /* the sanitizer sees a read before its first byte */
    CU_ASSERT_EQUAL(history_place_find(&p, copy, &e), 0);
    CU_ASSERT_STRING_EQUAL(p.path, path);
    CU_ASSERT_STRING_EQUAL(p.rest, rest);
    CU_ASSERT_EQUAL(p.dir, -1);
    CU_ASSERT_EQUAL(fcntl(p.base, F_GETFD), FD_CLOEXEC);
    history_place_free(&p);
    CU_ASSERT_EQUAL(p.base, -1);
    free(copy);
}

static void test_find(void)
{
    char path[128], rest[128];
    begin();
    (void)snprintf(path, sizeof(path), "%s/ggufs/history", root);
    found(root, path, "/ggufs/history");
    found(in(""), path, "/ggufs/history");
    found(in("//"), path, "/ggufs/history");
    (void)snprintf(path, sizeof(path), "%s/a//b/ggufs/history", root);
    found(in("a//b/"), path, "/a//b/ggufs/history");
    CU_ASSERT_EQUAL(mkdir(in("a"), 0700), 0);
    found(in("a//b/"), path, "//b/ggufs/history");
    CU_ASSERT_EQUAL(mkdir(in("a/ggufs"), 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/a/ggufs/history", root);
    found(in("a"), path, "/ggufs/history"); /* not below the state folder */
    found("/", "/ggufs/history", "/ggufs/history");
    found("//", "/ggufs/history", "/ggufs/history");
    (void)snprintf(rest, sizeof(rest), "/no/such/ggufs/history");
    found("/no/such", rest, rest);
    /* A file in the way. */
    struct history_place p;
    struct err e = {0};
    int fd = open(in("file"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    (void)close(fd);
    CU_ASSERT_EQUAL(history_place_find(&p, in("file"), &e), -ENOTDIR);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "file/ggufs/history: "));
    history_place_free(&p);
    CU_ASSERT_EQUAL(unlink(in("file")), 0);
    CU_ASSERT_EQUAL(rmdir(in("a/ggufs")), 0);
    CU_ASSERT_EQUAL(rmdir(in("a")), 0);
    CU_ASSERT_EQUAL(rmdir(root), 0);
}

static int opened(const char *home, bool make, const struct sys *sys, struct err *e)
{
    struct history_place p;
    *e = (struct err){0};
    CU_ASSERT_EQUAL_FATAL(history_place_find(&p, home, e), 0);
    int r = history_place_open(&p, sys, make, e);
    CU_ASSERT_EQUAL(r == 0, p.dir >= 0);
    if (r == 0) {
        int dir = p.dir;
        CU_ASSERT_EQUAL(history_place_open(&p, sys, false, e), 0); /* nothing to do */
        CU_ASSERT_EQUAL(p.dir, dir);
    }
    history_place_free(&p);
    return r;
}

static mode_t mode_of(const char *name)
{
    struct stat st = {0};
    (void)stat(in(name), &st);
    return st.st_mode & 07777;
}

static void test_open(void)
{
    struct err e;
    begin();
    CU_ASSERT_EQUAL(opened(root, false, &sys_libc, &e), -ENOENT);
    CU_ASSERT_EQUAL(opened(in("x/y"), true, &sys_libc, &e), 0);
    CU_ASSERT_EQUAL(mode_of("x/y/ggufs/history"), 0700);
    CU_ASSERT_EQUAL(mode_of("x/y"), 0700);
    CU_ASSERT_EQUAL(opened(in("x/y"), false, &sys_libc, &e), 0);
    /* Both are written by nobody else; the last is not entered either. */
    static const struct {
        const char *name;
        mode_t mode;
        int want;
    } rows[] = {{"x/y/ggufs", 0755, 0},
                {"x/y/ggufs", 0720, -EPERM},
                {"x/y/ggufs", 0702, -EPERM},
                {"x/y/ggufs/history", 0710, -EPERM},
                {"x/y/ggufs/history", 0704, -EPERM},
                {"x/y/ggufs/history", 0500, 0},
                {"x/y", 0777, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CU_ASSERT_EQUAL(chmod(in(rows[i].name), rows[i].mode), 0);
        CU_ASSERT_EQUAL(opened(in("x/y"), false, &sys_libc, &e), rows[i].want);
        if (rows[i].want)
            CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "ggufs/history: other users may enter or write"));
        CU_ASSERT_EQUAL(chmod(in(rows[i].name), 0700), 0);
    }
    /* A file or a link in the way. */
    CU_ASSERT_EQUAL(rmdir(in("x/y/ggufs/history")), 0);
    CU_ASSERT_EQUAL(symlink("/tmp", in("x/y/ggufs/history")), 0);
    int r = opened(in("x/y"), true, &sys_libc, &e);
    CU_ASSERT_TRUE(r == -ELOOP || r == -ENOTDIR);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "it, or a folder above it, is not a folder"));
    CU_ASSERT_EQUAL(unlink(in("x/y/ggufs/history")), 0);
    CU_ASSERT_EQUAL(rmdir(in("x/y/ggufs")), 0);
    CU_ASSERT_EQUAL(rmdir(in("x/y")), 0);
    CU_ASSERT_EQUAL(rmdir(in("x")), 0);
    CU_ASSERT_EQUAL(rmdir(root), 0);
}

static void clear(void)
{
    (void)rmdir(in("s/ggufs/history"));
    (void)rmdir(in("s/ggufs"));
    (void)rmdir(in("s"));
}

/* Each call fails once: so does the whole, and the next time it goes well. */
static void test_faults(void)
{
    struct err e;
    unsigned failed = 0;
    begin();
    for (unsigned n = 1;; n++) {
        struct faultsys fs;
        faultsys_init(&fs, FAULT_FAIL, n, -EIO);
        int r = opened(in("s"), true, &fs.sys, &e);
        if (!fs.hit)
            break;
        failed += r == -EIO;
        CU_ASSERT_TRUE(r == -EIO || (r == 0 && strcmp(fs.what, "fsync") == 0));
        CU_ASSERT_TRUE(r == 0 || strstr(e.msg, "s/ggufs/history: ") != NULL);
        CU_ASSERT_EQUAL(opened(in("s"), true, &sys_libc, &e), 0);
        clear();
    }
    CU_ASSERT_TRUE(failed > 9);
    clear();
    CU_ASSERT_EQUAL(rmdir(root), 0);
}

static CU_TestInfo tests[] = {
    {"the folder of a user's state", test_home},
    {"the part that exists", test_find},
    {"folders that are used, or not", test_open},
    {"calls that fail", test_faults},
    CU_TEST_INFO_NULL,
};

CU_MAIN("edit/history_place", tests)
