/* SPDX-License-Identifier: MIT */
/* edit/open.h: recovery after a crash, for single and split models. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edit/open.h"
#include "model_dir.h"
#include "put_journal.h"

enum { FILES = 3, SIZE = 2000, CHANGED = 512 };

static const char *const names[FILES] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                         "m-00003-of-00003.gguf"};
static const char *const journals[FILES] = {".m-00001-of-00003.gguf.ggufs-journal",
                                            ".m-00002-of-00003.gguf.ggufs-journal",
                                            ".m-00003-of-00003.gguf.ggufs-journal"};

/* Interrupt an edit that replaces the first bytes of a file. The file is never parsed. */
static void interrupt(const struct fixture *x, const char *name)
{
    uint8_t old[SIZE], new[CHANGED];
    struct edit_file f;
    memset(old, 'o', SIZE);
    memset(new, 'n', CHANGED);
    put_file(x->dir, name, old, SIZE);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, calm(), x->dir, name, true, NULL), 0);
    CU_ASSERT_EQUAL(put_journal(&f, new, CHANGED), 0);
    edit_file_close(&f);
}

/* Return whether the file begins with the edit's bytes instead of the old ones. */
static bool is_finished(const struct fixture *x, const char *name)
{
    size_t n;
    uint8_t *bytes = get_file(x->dir, name, &n);
    CU_ASSERT_EQUAL(n, SIZE);
    CU_ASSERT_TRUE(bytes[CHANGED] == 'o' && bytes[CHANGED - 1] == bytes[0]);
    bool ret = bytes[0] == 'n';
    free(bytes);
    return ret;
}

static bool exists(const struct fixture *x, const char *name)
{
    return faccessat(x->dir, name, F_OK, 0) == 0;
}

static int recover(const struct fixture *x, const char *name, struct edit_recovered *ret,
                   struct err *e)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", x->path, name);
    *e = (struct err){0};
    return model_recover(path, ret, e);
}

static void test_one(void)
{
    struct fixture x;
    struct edit_recovered got;
    struct err e;
    setup(&x);
    interrupt(&x, "m.gguf");
    put_file(x.dir, ".m.gguf.ggufs-abcdef", "x", 1);
    CU_ASSERT_EQUAL(recover(&x, "m.gguf", &got, &e), 0);
    CU_ASSERT_TRUE(got.finished && !got.dropped && got.removed == 1);
    CU_ASSERT_TRUE(is_finished(&x, "m.gguf"));
    CU_ASSERT_EQUAL(files(&x), 2);
    CU_ASSERT_EQUAL(recover(&x, "m.gguf", &got, &e), 0);
    CU_ASSERT_TRUE(!got.finished && !got.dropped && got.removed == 0);
    put_file(x.dir, ".m.gguf.ggufs-journal", "half", 4);
    CU_ASSERT_EQUAL(recover(&x, "m.gguf", &got, &e), 0);
    CU_ASSERT_TRUE(!got.finished && got.dropped && got.removed == 0);
    CU_ASSERT_EQUAL(files(&x), 2);
    CU_ASSERT_EQUAL(recover(&x, "none.gguf", &got, &e), -ENOENT);
    CU_ASSERT_EQUAL(unlinkat(x.dir, "m.gguf", 0), 0);
    teardown(&x);
}

static void drop_shards(const struct fixture *x)
{
    for (unsigned i = 0; i < FILES; i++) {
        (void)unlinkat(x->dir, names[i], 0);
        (void)unlinkat(x->dir, journals[i], 0);
    }
}

/* One report covers all files. */
static void test_shards(void)
{
    struct fixture x;
    struct edit_recovered got;
    struct err e;
    setup(&x);
    for (unsigned i = 0; i < FILES; i++) {
        interrupt(&x, names[i]);
        CU_ASSERT_FALSE(is_finished(&x, names[i]));
    }
    put_file(x.dir, ".m-00001-of-00003.gguf.ggufs-abcdef", "x", 1);
    put_file(x.dir, ".m-00003-of-00003.gguf.ggufs-abcdef", "x", 1);
    put_file(x.dir, ".m-00003-of-00003.gguf.ggufs-ghijkl", "x", 1);
    put_file(x.dir, journals[1], "half", 4);
    CU_ASSERT_EQUAL(recover(&x, names[1], &got, &e), 0); /* any shard identifies the model */
    CU_ASSERT_TRUE(got.finished && got.dropped && got.removed == 3);
    CU_ASSERT_TRUE(is_finished(&x, names[0]) && !is_finished(&x, names[1]) &&
                   is_finished(&x, names[2]));
    CU_ASSERT_EQUAL(files(&x), 1 + FILES);
    drop_shards(&x);
    teardown(&x);
}

/* The first failure is reported; later files are recovered nevertheless. */
static void test_shard_fails(void)
{
    struct fixture x;
    struct edit_recovered got;
    struct err e;
    setup(&x);
    for (unsigned i = 0; i < FILES; i++)
        interrupt(&x, names[i]);
    /* The first journal is another shard's; the second is a hard link to an unrelated file. */
    CU_ASSERT_EQUAL(renameat(x.dir, journals[1], x.dir, journals[0]), 0);
    CU_ASSERT_EQUAL(linkat(x.dir, NAME, x.dir, journals[1], 0), 0);
    CU_ASSERT_EQUAL(recover(&x, names[0], &got, &e), -ESTALE);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "shard m-00001-of-00003.gguf: the journal beside"));
    CU_ASSERT_TRUE(got.finished && !got.dropped && got.removed == 0);
    CU_ASSERT_FALSE(is_finished(&x, names[0]) || is_finished(&x, names[1]));
    CU_ASSERT_TRUE(is_finished(&x, names[2]));
    CU_ASSERT_TRUE(exists(&x, journals[0]) && exists(&x, journals[1]) && !exists(&x, journals[2]));
    drop_shards(&x);
    teardown(&x);
}

/* If a name claims too many files, all files after the first missing one stay unchanged. */
static void test_shard_missing(void)
{
    struct fixture x;
    struct edit_recovered got;
    struct err e;
    setup(&x);
    interrupt(&x, names[0]);
    interrupt(&x, names[2]);
    CU_ASSERT_EQUAL(recover(&x, names[0], &got, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "shard m-00002-of-00003.gguf: "));
    CU_ASSERT_TRUE(got.finished && is_finished(&x, names[0]) && !is_finished(&x, names[2]));
    drop_shards(&x);
    teardown(&x);
}

/* The directory can be searched but not listed. */
static void test_folder(void)
{
    struct fixture x;
    struct model_file m;
    struct err e = {0};
    char path[128];
    setup(&x);
    (void)snprintf(path, sizeof(path), "%s/%s", x.path, NAME);
    CU_ASSERT_EQUAL(fchmodat(x.dir, NAME, 0644, 0), 0);
    CU_ASSERT_EQUAL(fchmod(x.dir, 0311), 0);
    bool root = geteuid() == 0;
    CU_ASSERT_TRUE_FATAL(!root || seteuid(65534) == 0);
    CU_ASSERT_EQUAL(model_find(path, &m, &e), 0);
    CU_ASSERT_STRING_EQUAL(m.name, NAME);
    CU_ASSERT_STRING_EQUAL(m.path, path);
    CU_ASSERT_STRING_EQUAL(m.real, path);
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL(model_parse(&m, 0, &g, &e), 0);
    CU_ASSERT_EQUAL(m.src.size, x.old_n);
    gguf_free(g);
    model_free(&m);
    CU_ASSERT_TRUE_FATAL(!root || seteuid(0) == 0);
    CU_ASSERT_EQUAL(fchmod(x.dir, 0700), 0);
    CU_ASSERT_EQUAL(model_find(x.path, &m, &e), -EISDIR);
    model_free(&m);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"a model of one file is recovered", test_one},
    {"all files of a split model are recovered", test_shards},
    {"files after one that cannot be recovered are recovered", test_shard_fails},
    {"no file after a missing one is recovered", test_shard_missing},
    {"a model in a directory that cannot be listed is opened", test_folder},
    CU_TEST_INFO_NULL,
};

CU_MAIN("open", tests)
