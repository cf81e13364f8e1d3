/* SPDX-License-Identifier: MIT */
/* Probes of the file system's features when a model is opened: a missing feature is named, no file
 * is left, and no file is created if the answer is already known. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faultsys.h"
#include "model_dir.h"

/* A store and the results of its probes, in order. Probing ends at the first failure. */
struct weak_store {
    const char *name;
    int no_tmpfile, no_create, no_list, no_read, no_rename, no_replace;
    bool sticky;
    int result;       /* 0 for any error that may be temporary */
    const char *says; /* part of the reason */
    unsigned created; /* files created */
};

static const struct weak_store stores[] = {
    {"a disk", 0, 0, 0, 0, 0, 0, false, 0, NULL, 0},
    {"no attributes", 0, 0, -EOPNOTSUPP, 0, 0, 0, false, 0, NULL, 0},
    {"no files without a name", -EOPNOTSUPP, 0, 0, 0, 0, 0, false, 0, NULL, 2},
    {"an old kernel", -EISDIR, 0, 0, 0, 0, 0, false, 0, NULL, 2},
    {"names that stay", -EOPNOTSUPP, 0, 0, 0, 0, 0, true, 0, NULL, 2},
    {"reading fails", -EOPNOTSUPP, 0, 0, -EPERM, 0, 0, true, -EPERM, "cannot read", 0},
    {"reading fails, EIO", 0, 0, 0, -EIO, 0, 0, false, -EIO, "cannot read", 0},
    {"listing fails", -EOPNOTSUPP, 0, -EIO, 0, 0, 0, true, -EIO, "attributes", 0},
    {"both fail", -EOPNOTSUPP, 0, -EIO, -EPERM, 0, 0, true, -EIO, "attributes", 0},
    {"no new files", -EOPNOTSUPP, -EROFS, 0, 0, 0, 0, false, -EROFS, "cannot create", 0},
    {"no new files, EIO", -EIO, -EIO, 0, 0, 0, 0, false, -EIO, "cannot create", 0},
    {"no room", -ENOSPC, -ENOSPC, 0, 0, 0, 0, false, 0, "cannot create", 0},
    {"no renaming", -EOPNOTSUPP, 0, 0, 0, -ENOSYS, 0, true, -ENOSYS, "cannot rename", 2},
    {"SMB", -EOPNOTSUPP, 0, 0, 0, 0, -EACCES, false, -EACCES, "over an open one", 2},
};

static int tries(const struct edit_file *f, const struct edit_file *reader, struct err *e)
{
    int r = edit_try_attributes(reader, e);
    if (r == 0)
        r = edit_try_handle(f, e);
    return r == 0 ? edit_try_new(f, e) : r;
}

static void arm(struct faultsys *fs, const struct weak_store *s)
{
    faultsys_init(fs, FAULT_NONE, 0, 0);
    fs->no_tmpfile = s->no_tmpfile;
    fs->no_create = s->no_create;
    fs->no_list = s->no_list;
    fs->no_read = s->no_read;
    fs->no_rename = s->no_rename;
    fs->no_replace = s->no_replace;
    fs->sticky = s->sticky;
}

static void test_stores(void)
{
    for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
        const struct weak_store *s = &stores[i];
        struct fixture x;
        struct faultsys fs;
        struct edit_file reader;
        struct err e = {0};
        setup(&x);
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL_FATAL(edit_file_open(&reader, &sys_libc, x.dir, NAME, false, NULL), 0);
        reader.sys = &fs.sys;
        arm(&fs, s);
        int r = tries(&f, &reader, &e);
        if (r != s->result || (s->says && !strstr(e.msg, s->says)))
            (void)printf("\n%s: %d, %s\n", s->name, r, e.msg);
        CU_ASSERT_EQUAL(r, s->result);
        CU_ASSERT_TRUE(!s->says || strstr(e.msg, s->says));
        CU_ASSERT_EQUAL(fs.created, s->created);
        CU_ASSERT_EQUAL(files(&x), 1);
        CU_ASSERT_FALSE(fs.loose);
        CU_ASSERT_TRUE(is_old(&x));
        CU_ASSERT_TRUE(is_locked(&x));
        edit_file_close(&reader);
        edit_file_close(&f);
        teardown(&x);
    }
}

/* Make call n fail: no file is left, unless files cannot be removed. */
static bool fail_at(unsigned n, int error, int no_tmpfile)
{
    struct fixture x;
    struct faultsys fs;
    setup(&x);
    struct edit_file f = open_model(&x, &fs.sys);
    faultsys_init(&fs, FAULT_FAIL, n, error);
    fs.no_tmpfile = no_tmpfile;
    (void)tries(&f, &f, NULL);
    CU_ASSERT_EQUAL(files(&x), 1);
    CU_ASSERT_TRUE(is_old(&x));
    edit_file_close(&f);
    teardown(&x);
    return fs.hit;
}

static void test_faults(void)
{
    static const int errors[] = {-EIO, -ENOSPC, -EINTR, -EOPNOTSUPP, -EPERM};
    for (size_t i = 0; i < 2 * sizeof(errors) / sizeof(errors[0]); i++) {
        unsigned n = 1;
        while (fail_at(n, errors[i / 2], i & 1 ? -EOPNOTSUPP : 0))
            n++;
        CU_ASSERT_TRUE(n > 5);
    }
}

/* On a store where names cannot be removed, an abandoned edit leaves no file. */
static void test_sticky_edit(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    setup(&x);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.sticky = true;
    fs.no_rename = -EIO;
    make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 100);
    struct edit_file f = open_model(&x, &fs.sys);
    CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), -EIO);
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(files(&x), 1);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

/* If a rename over the model fails and the model is gone, the file with the new content stays. */
static void test_gone(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    struct err e = {0};
    setup(&x);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.no_replace = -EACCES;
    make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 100);
    struct edit_file f = open_model(&x, &fs.sys);
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EACCES);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "the model is gone, and the new file is ."));
    CU_ASSERT_EQUAL(files(&x), 1);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"missing features of a store are found, and no file is left", test_stores},
    {"every call fails in turn, and no file is left", test_faults},
    {"an abandoned edit leaves no file", test_sticky_edit},
    {"a failed rename that removed the model leaves the new file", test_gone},
    CU_TEST_INFO_NULL,
};

CU_MAIN("try", tests)
