/* SPDX-License-Identifier: MIT */
/* edit/commit.h: which files can be opened, detection of changes, names beside a model. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edit/commit.h"
#include "faultsys.h"
#include "model_dir.h"

static void refused(const struct fixture *x, const char *name, bool write, int want,
                    const char *line)
{
    struct edit_file f = {.fd = -7};
    struct err e = {0};
    CU_ASSERT_EQUAL(edit_file_open(&f, calm(), x->dir, name, write, &e), want);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, line));
    CU_ASSERT_EQUAL(f.fd, -7);
}

static void test_open(void)
{
    struct fixture x;
    struct edit_file f, other;
    struct err e = {0};
    char name[NAME_MAX + 2];
    setup(&x);
    CU_ASSERT_EQUAL(mkfifoat(x.dir, "fifo", 0600), 0);
    CU_ASSERT_EQUAL(symlinkat(NAME, x.dir, "link"), 0);
    refused(&x, "fifo", false, -EINVAL, "is not a regular file");
    refused(&x, "fifo", true, -EINVAL, "is not a regular file");
    refused(&x, ".", false, -EINVAL, "is not a regular file");
    refused(&x, "link", true, -ELOOP, "cannot open the model for writing: ");
    refused(&x, "none", false, -ENOENT, "cannot open the model: ");
    memset(name, 'n', sizeof(name));
    name[NAME_MAX + 1] = '\0';
    refused(&x, name, false, -ENAMETOOLONG, "the model's name is over 255 bytes");
    put_file(x.dir, name + 1, "x", 1);
    CU_ASSERT_EQUAL(edit_file_open(&f, calm(), x.dir, name + 1, false, &e), 0);
    CU_ASSERT_STRING_EQUAL(f.name, name + 1);
    edit_file_close(&f);
    CU_ASSERT_EQUAL(f.fd, -1);
    CU_ASSERT_EQUAL(unlinkat(x.dir, name + 1, 0), 0);
    /* A file can have one writer and any number of readers. */
    CU_ASSERT_EQUAL(edit_file_open(&f, calm(), x.dir, NAME, true, &e), 0);
    CU_ASSERT_EQUAL(fcntl(f.fd, F_GETFL) & O_ACCMODE, O_RDWR);
    refused(&x, NAME, true, -EWOULDBLOCK, "another process has the model open for writing");
    CU_ASSERT_EQUAL(edit_file_open(&other, calm(), x.dir, NAME, false, &e), 0);
    CU_ASSERT_EQUAL(fcntl(other.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    CU_ASSERT_TRUE(edit_id_equal(&f.id, &other.id));
    edit_file_close(&other);
    edit_file_close(&f);
    CU_ASSERT_EQUAL(unlinkat(x.dir, "fifo", 0), 0);
    CU_ASSERT_EQUAL(unlinkat(x.dir, "link", 0), 0);
    teardown(&x);
}

/* Replace the model after it was opened. */
static void replace(void *arg)
{
    const struct fixture *x = arg;
    put_file(x->dir, "new", x->old, x->old_n);
    CU_ASSERT_EQUAL(renameat(x->dir, "new", x->dir, NAME), 0);
}

static void gone(void *arg)
{
    const struct fixture *x = arg;
    CU_ASSERT_EQUAL(unlinkat(x->dir, NAME, 0), 0);
}

/* Put a pipe in the model's place. */
static void pipe_model(void *arg)
{
    const struct fixture *x = arg;
    gone(arg);
    CU_ASSERT_EQUAL(mkfifoat(x->dir, NAME, 0600), 0);
}

static void test_replaced(void)
{
    struct fixture x;
    struct faultsys fs;
    struct edit_file f;
    struct err e = {0};
    struct stat st;
    setup(&x);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.before = "flock";
    fs.hook = replace;
    fs.arg = &x;
    CU_ASSERT_EQUAL(edit_file_open(&f, &fs.sys, x.dir, NAME, true, &e), 0);
    CU_ASSERT_EQUAL(fstatat(x.dir, NAME, &st, 0), 0);
    CU_ASSERT_EQUAL(f.id.ino, st.st_ino); /* the current file */
    edit_file_close(&f);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.before = "flock";
    fs.hook = gone;
    fs.arg = &x;
    CU_ASSERT_EQUAL(edit_file_open(&f, &fs.sys, x.dir, NAME, true, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "cannot open the model"));
    put_file(x.dir, NAME, x.old, x.old_n);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.before = "openat";
    fs.hook = pipe_model;
    fs.arg = &x;
    CU_ASSERT_EQUAL(edit_file_open(&f, &fs.sys, x.dir, NAME, true, &e), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "is not a regular file"));
    teardown(&x);
}

static void stale(const struct edit_file *f, const char *line)
{
    struct err e = {0};
    CU_ASSERT_EQUAL(edit_file_fresh(f, &e), -ESTALE);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, line));
}

static void test_fresh(void)
{
    struct fixture x;
    struct err e = {0};
    struct faultsys fs;
    setup(&x);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(edit_file_fresh(&f, &e), 0);
    CU_ASSERT_EQUAL(futimens(f.fd, (struct timespec[2]){{5, 6}, {7, 8}}), 0);
    stale(&f, "was written by another program");
    CU_ASSERT_EQUAL(edit_file_note(&f, &e), 0);
    CU_ASSERT_EQUAL(edit_file_fresh(&f, &e), 0);
    CU_ASSERT_EQUAL(futimens(f.fd, (struct timespec[2]){{5, 6}, {7, 9}}), 0);
    stale(&f, "was written by another program");
    CU_ASSERT_EQUAL(ftruncate(f.fd, (off_t)x.old_n + 1), 0);
    stale(&f, "now has another size");
    CU_ASSERT_EQUAL(edit_file_note(&f, &e), 0);
    CU_ASSERT_EQUAL(f.id.size, x.old_n + 1);
    replace(&x);
    stale(&f, "is now another file");
    gone(&x);
    stale(&f, "is gone");
    put_file(x.dir, NAME, x.old, x.old_n);
    faultsys_init(&fs, FAULT_BROKEN, 1, -EIO);
    f.sys = &fs.sys;
    CU_ASSERT_EQUAL(edit_file_fresh(&f, &e), -EIO);
    CU_ASSERT_EQUAL(edit_file_note(&f, &e), -EIO);
    CU_ASSERT_EQUAL(f.id.size, x.old_n + 1);
    edit_file_close(&f);
    teardown(&x);
}

static void test_side_name(void)
{
    char got[NAME_MAX + 1], name[NAME_MAX + 1], want[2 * NAME_MAX];
    edit_side_name(got, "m.gguf", "journal");
    CU_ASSERT_STRING_EQUAL(got, ".m.gguf.ggufs-journal");
    edit_side_name(got, "m.gguf", "new");
    CU_ASSERT_STRING_EQUAL(got, ".m.gguf.ggufs-new");
    /* The longest name that is kept whole; its journal's name has 255 bytes. */
    memset(name, 'n', sizeof(name));
    size_t whole = NAME_MAX - strlen("..ggufs-journal");
    name[whole] = '\0';
    edit_side_name(got, name, "journal");
    (void)snprintf(want, sizeof(want), ".%s.ggufs-journal", name);
    CU_ASSERT_STRING_EQUAL(got, want);
    CU_ASSERT_EQUAL(strlen(got), NAME_MAX);
    name[whole] = 'n';
    name[whole + 1] = '\0';
    edit_side_name(got, name, "journal");
    CU_ASSERT_EQUAL(strlen(got), NAME_MAX);
    CU_ASSERT_EQUAL(strspn(got + 1, "n"), whole - 17);
    CU_ASSERT_EQUAL(got[1 + whole - 17], '~');
    CU_ASSERT_STRING_EQUAL(got + NAME_MAX - strlen(".ggufs-journal"), ".ggufs-journal");
    char before[NAME_MAX + 1];
    memcpy(before, got, sizeof(before));
    name[whole] = 'm'; /* a different name has a different hash */
    edit_side_name(got, name, "journal");
    CU_ASSERT_STRING_NOT_EQUAL(got, before);
}

static void test_ours(void)
{
    const bool root = geteuid() == 0; /* root's own files would count as ours */
    CU_ASSERT_TRUE_FATAL(!root || seteuid(65534) == 0);
    const uid_t me = geteuid(), other = me + 1, third = me + 2;
    struct stat model = {.st_uid = other}, st = {.st_mode = S_IFREG | 0600, .st_nlink = 1};
    st.st_uid = me;
    CU_ASSERT_TRUE(edit_is_ours(&st, &model));
    st.st_uid = other;
    CU_ASSERT_TRUE(edit_is_ours(&st, &model));
    st.st_uid = 0;
    CU_ASSERT_TRUE(edit_is_ours(&st, &model));
    st.st_uid = third;
    CU_ASSERT_FALSE(edit_is_ours(&st, &model));
    st.st_uid = other;
    st.st_nlink = 2;
    CU_ASSERT_FALSE(edit_is_ours(&st, &model));
    CU_ASSERT_TRUE(edit_is_owned(&st, &model));
    st.st_nlink = 1;
    st.st_mode = S_IFIFO | 0600;
    CU_ASSERT_FALSE(edit_is_ours(&st, &model));
    CU_ASSERT_FALSE(edit_is_owned(&st, &model));
    CU_ASSERT_TRUE_FATAL(!root || seteuid(0) == 0);
}

static CU_TestInfo tests[] = {
    {"regular files are opened, and others are refused", test_open},
    {"a model is replaced while it is opened", test_replaced},
    {"a model changed by another program is noticed", test_fresh},
    {"names beside the model are built from its name", test_side_name},
    {"only files that ggufs made count as its own", test_ours},
    CU_TEST_INFO_NULL,
};

CU_MAIN("edit/commit: the file", tests)
