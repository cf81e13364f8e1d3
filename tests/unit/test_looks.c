/* SPDX-License-Identifier: MIT */
/* tree/begin: how many files of a split model are checked to notice that one was changed. */
#include <stdio.h>
#include <stdlib.h>

#include "build_gguf.h"
#include "model_dir.h"
#include "tree_image.h"

enum { FILES = 201, LOOKS = 65 }; /* the first file, and 64 others */

/* ---- checks are counted: linked with --wrap ---- */

static unsigned looks;

int __real_edit_file_fresh(const struct edit_file *f, struct err *e);
int __wrap_edit_file_fresh(const struct edit_file *f, struct err *e);

int __wrap_edit_file_fresh(const struct edit_file *f, struct err *e)
{
    looks++;
    return __real_edit_file_fresh(f, e);
}

/* ---- tests ---- */

/* Write file i of the model, and its path to `path`; a changed file has an additional integer. */
static void put_shard(const struct fixture *x, unsigned i, bool changed, char path[128])
{
    char name[64];
    struct build b;
    size_t n;
    build_init(&b, 3, false);
    build_num(&b, "split.no", GGUF_U16, i);
    build_num(&b, "split.count", GGUF_U16, FILES);
    build_num(&b, "split.tensors.count", GGUF_I32, 1);
    if (changed)
        build_u32(&b, "changed", 1);
    if (i == 0)
        build_tensor(&b, "t", F32, SHAPE(5), NULL, 20);
    uint8_t *bytes = build_finish(&b, &n);
    (void)snprintf(name, sizeof(name), "m-%05u-of-%05u.gguf", i + 1, FILES);
    (void)snprintf(path, 128, "%s/%s", x->path, name);
    put_file(x->dir, name, bytes, n);
    free(bytes);
}

/* Query once, and compare the answer and the number of files checked. */
static void asks(struct tree *t, bool changed, unsigned files)
{
    looks = 0;
    CU_ASSERT_EQUAL(tree_changed(t), changed);
    CU_ASSERT_EQUAL(looks, files);
}

/* Some files are checked each time, in turn; a file that was found changed is checked each time. */
static void test_in_turn(void)
{
    struct fixture x;
    char path[128];
    setup(&x);
    for (unsigned i = FILES; i-- > 0;)
        put_shard(&x, i, false, path);
    struct tree *t = image_tree(path, &(struct tree_options){.late = true});
    put_shard(&x, FILES - 1, true, path);
    for (int i = 0; i < 3; i++)
        asks(t, false, LOOKS); /* finally the remaining files, 129 to 192 */
    asks(t, true, 1 + 8);
    asks(t, true, 1 + 1);
    put_shard(&x, 0, true, path);
    asks(t, true, 1);
    tree_close(t);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"files are checked in turn", test_in_turn},
    CU_TEST_INFO_NULL,
};

CU_MAIN("looks", tests)
