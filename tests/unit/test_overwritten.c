/* SPDX-License-Identifier: MIT */
/*
 * Bytes of tensors that are overwritten in place, and are still read by files that were opened before:
 * they stay, also where memory or descriptors are short.
 */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "alloc.h"
#include "faultsys.h"
#include "live/core.h"
#include "model_dir.h"
#include "place.h"
#include "tree/internal.h"
#include "tree_image.h"
#include "viewfile.h"

enum { BYTES = 160000, UNIT_1 = 70000, UNIT_2 = 140000 };

/* A tree with the tensor "b" (I8), whose system calls go through fs. Its edits are waited for. */
struct room {
    struct place p;
    struct faultsys fs;
    struct tree *t;
    uint8_t was[BYTES], now[BYTES]; /* what b had at first, and has now */
    struct viewfile old;            /* opened before all edits */
};

static void begin(struct room *x)
{
    const struct tree_options o = {.tensors = true,
                                   .strategy = EDIT_INPLACE,
                                   .reserve = EDIT_RESERVE_AUTO,
                                   .commit = LIVE_COMMIT_CLOSE};
    struct content c;
    struct build b;
    for (uint32_t i = 0; i < BYTES; i++)
        x->was[i] = (uint8_t)(i * 2654435761U >> 13);
    memcpy(x->now, x->was, BYTES);
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_tensor(&b, "b", I8, SHAPE(BYTES), x->was, BYTES);
    c.bytes = build_finish(&b, &c.n);
    make_place(&x->p, &c);
    free(c.bytes);
    x->t = image_tree(x->p.model, &o);
    faultsys_init(&x->fs, FAULT_NONE, 0, 0);
    x->t->model.file.sys = &x->fs.sys;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_RDONLY, &x->old), 0);
}

static void end(struct room *x)
{
    viewfile_release(&x->old);
    CU_ASSERT_EQUAL(tree_finish(x->t), 0);
    tree_close(x->t);
    CU_ASSERT_EQUAL(files_in(&x->p), 1);
    drop_place(&x->p);
}

/* One byte becomes another, in the file when this returns 0. */
static int overwrite(struct room *x, size_t at)
{
    struct viewfile v;
    const uint8_t byte = (uint8_t)~x->now[at];
    int r = viewfile_open(x->t, "b", "raw", O_WRONLY, &v);
    if (r < 0)
        return r;
    int written = viewfile_pwrite(&v, at, &byte, 1);
    int closed = viewfile_close(&v);
    r = written < 0 ? written : closed;
    if (r == 0)
        x->now[at] = byte;
    return r;
}

static bool reads(const struct viewfile *v, const uint8_t *want)
{
    static uint8_t got[BYTES];
    CU_ASSERT_EQUAL(viewfile_pread(v, 0, got, BYTES), 0);
    return memcmp(got, want, BYTES) == 0;
}

/* What was opened before reads what it read, and what is opened now what was written. */
static void check(struct room *x)
{
    struct viewfile v;
    CU_ASSERT_TRUE(reads(&x->old, x->was));
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_RDONLY, &v), 0);
    CU_ASSERT_TRUE(reads(&v, x->now));
    viewfile_release(&v);
}

/* ---- a new file that cannot be opened for readers ---- */

static struct rlimit files_allowed;

static void allow_no_files(void *arg)
{
    (void)arg;
    CU_ASSERT_EQUAL(getrlimit(RLIMIT_NOFILE, &files_allowed), 0);
    const struct rlimit none = {1, files_allowed.rlim_max};
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
}

/* The model is replaced by a file with another layout, while no descriptor is left. Readers go on with the
 * old one. */
static void replace_unmapped(struct room *x)
{
    struct live *l = atomic_load(&x->t->live);
    char text[5000];
    memset(text, 't', sizeof(text));
    l->opt.edit.strategy = EDIT_COPY;
    x->fs.before = "unlinkat";
    x->fs.hook = allow_no_files;
    int r = do_write(x->t, "general.name", text, sizeof(text));
    CU_ASSERT_PTR_NULL_FATAL(x->fs.before);
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &files_allowed), 0);
    CU_ASSERT_EQUAL(r, 0);
    CU_ASSERT_NOT_EQUAL(l->store->file[0]->map.size, l->disk->gguf->file_size);
    l->opt.edit.strategy = EDIT_INPLACE;
}

/* Then only the header is written. It has the layout of the new file, and what is read too. */
static void test_header_after(void)
{
    static struct room x;
    begin(&x);
    CU_ASSERT_EQUAL(overwrite(&x, 3), 0);
    replace_unmapped(&x);
    CU_ASSERT_EQUAL(do_rename_tensor(x.t, "b", "c"), 0);
    CU_ASSERT_EQUAL(do_rename_tensor(x.t, "c", "b"), 0);
    check(&x);
    CU_ASSERT_EQUAL(overwrite(&x, UNIT_1), 0);
    check(&x);
    end(&x);
}

/* Then bytes of the new file are overwritten: not in mappings of the old one. */
static void test_no_descriptor(void)
{
    static struct room x;
    static uint8_t between[BYTES];
    struct viewfile v; /* of the file that is replaced */
    begin(&x);
    CU_ASSERT_EQUAL(overwrite(&x, 3), 0);
    memcpy(between, x.now, BYTES);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDONLY, &v), 0);
    replace_unmapped(&x);
    check(&x);
    for (size_t at = 0; at < BYTES; at += UNIT_1) {
        CU_ASSERT_EQUAL(overwrite(&x, at), 0);
        check(&x);
        CU_ASSERT_TRUE(reads(&v, between));
    }
    viewfile_release(&v);
    end(&x);
}

/* ---- memory ---- */

/* False: fewer allocations were made. */
static bool fails_at(unsigned n)
{
    static struct room x;
    begin(&x);
    alloc_arm(n, false);
    int r = overwrite(&x, 0);
    bool hit = alloc_disarm();
    CU_ASSERT_TRUE(r == 0 || r == -ENOMEM);
    CU_ASSERT_EQUAL(overwrite(&x, UNIT_2), 0);
    check(&x);
    end(&x);
    return hit;
}

/* An allocation fails, each in turn, while bytes are overwritten; then others are. */
static void test_no_memory(void)
{
    unsigned n = 1;
    while (fails_at(n))
        n++;
    CU_ASSERT_TRUE(n > 50);
}

static CU_TestInfo tests[] = {
    {"a new file that cannot be opened for readers", test_no_descriptor},
    {"the same, and then the header alone is written", test_header_after},
    {"an allocation that fails", test_no_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("overwritten", tests)
