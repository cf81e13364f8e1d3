/* SPDX-License-Identifier: MIT */
/* What is shown of tensors that are changed and not on the disk. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "faultsys.h"
#include "model_dir.h"
#include "place.h"
#include "tree/internal.h"
#include "tree_image.h"
#include "viewfile.h"

enum { BYTES = 160000 };

/* A tree with the tensor "b" (I8), whose system calls go through fs. */
struct room {
    struct place p;
    struct faultsys fs;
    struct tree *t;
};

static void begin(struct room *x, enum live_commit commit)
{
    const struct tree_options o = {
        .tensors = true, .strategy = EDIT_COPY, .reserve = EDIT_RESERVE_AUTO, .commit = commit};
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_tensor(&b, "b", I8, SHAPE(BYTES), NULL, BYTES);
    c.bytes = build_finish(&b, &c.n);
    make_place(&x->p, &c);
    free(c.bytes);
    x->t = image_tree(x->p.model, &o);
    faultsys_init(&x->fs, FAULT_NONE, 0, 0);
    x->t->model.file.sys = &x->fs.sys;
}

static void end(struct room *x)
{
    CU_ASSERT_EQUAL(tree_finish(x->t), 0);
    tree_close(x->t);
    CU_ASSERT_EQUAL(files_in(&x->p), 1);
    drop_place(&x->p);
}

/* The byte of b/raw at `off` that a program reads which opens it now. */
static uint8_t byte_at(struct room *x, size_t off)
{
    const struct tree_image m = {.t = x->t};
    uint8_t ret = 0;
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/b/raw", off, 1, &ret), 1);
    return ret;
}

/* ---- bytes that are copied to be shown ---- */

enum { PART = 512, PARTS = 300 };

/* So many edits of one part each that the tensor is copied to be shown. */
static void write_parts(struct room *x)
{
    struct viewfile v;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_WRONLY, &v), 0);
    for (uint64_t i = 0; i < PARTS; i++) {
        CU_ASSERT_EQUAL(viewfile_pwrite(&v, i * PART, "XX", 2), 0);
        CU_ASSERT_EQUAL(viewfile_flush(&v), 0);
    }
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
}

static void write_one(void *arg)
{
    struct room *x = arg;
    struct viewfile v;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, BYTES - 1, "Y", 1), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
}

/* The model is edited in the middle of the copying, which needs the lock of what is edited; and what is
 * shown then has that edit too. */
static void test_edited_while_copied(void)
{
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    uint8_t between = byte_at(&x, 150);
    write_parts(&x);
    faultsys_init(&x.fs, FAULT_NONE, 0, 0);
    x.fs.before = "pwrite";
    x.fs.hook = write_one;
    x.fs.arg = &x;
    CU_ASSERT_EQUAL(byte_at(&x, PART), 'X');
    CU_ASSERT_PTR_NULL(x.fs.before);
    CU_ASSERT_EQUAL(byte_at(&x, 150), between);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    end(&x);
}

/* The disk is full: the request that looks fails, and the next one does not. */
static void test_copy_fails(void)
{
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    write_parts(&x);
    faultsys_init(&x.fs, FAULT_BROKEN, 1, -ENOSPC);
    CU_ASSERT_EQUAL(tree_freshen(x.t), -ENOSPC);
    faultsys_init(&x.fs, FAULT_NONE, 0, 0);
    CU_ASSERT_EQUAL(tree_freshen(x.t), 0);
    CU_ASSERT_EQUAL(byte_at(&x, (PARTS - 1) * PART), 'X');
    end(&x);
}

static CU_TestInfo tests[] = {
    {"edited while bytes are copied to be shown", test_edited_while_copied},
    {"bytes cannot be copied to be shown", test_copy_fails},
    CU_TEST_INFO_NULL,
};

CU_MAIN("preview", tests)
