/* SPDX-License-Identifier: MIT */
/* tree/tree: how the tree notices that other programs have changed the model's files. */
#include <stdio.h>
#include <stdlib.h>

#include "build_gguf.h"
#include "model_dir.h"
#include "tree/attr.h"
#include "tree_edit.h"
#include "tree_image.h"

enum { FILES = 5 };

/* ---- counting checks (linked with --wrap) ---- */

static unsigned looks;
static void (*meanwhile)(struct tree *t); /* called once, at the next check of a file */
static struct tree *meanwhile_tree;

int __real_edit_file_fresh(const struct edit_file *f, struct err *e);
int __wrap_edit_file_fresh(const struct edit_file *f, struct err *e);

int __wrap_edit_file_fresh(const struct edit_file *f, struct err *e)
{
    looks++;
    if (meanwhile) {
        void (*call)(struct tree * t) = meanwhile;
        meanwhile = NULL;
        call(meanwhile_tree);
    }
    return __real_edit_file_fresh(f, e);
}

/* Only one call at a time checks the rights; other calls do not wait for the result. */
bool __real_rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file),
                         const void *arg, struct lock *lock);
bool __wrap_rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file),
                         const void *arg, struct lock *lock);
static unsigned checks;

bool __wrap_rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file),
                         const void *arg, struct lock *lock)
{
    checks++;
    CU_ASSERT_EQUAL(tree_look(meanwhile_tree), r->hash);
    return __real_rights_again(r, fd, arg, lock);
}

/* ---- tests ---- */

/* Write file i of the model and store its path in `path`. A changed file has one more integer. */
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

/* Ask once whether the model has changed. Check the answer and the number of files examined. */
static void asks(struct tree *t, bool changed, unsigned files)
{
    looks = 0;
    CU_ASSERT_EQUAL(tree_changed(t), changed);
    CU_ASSERT_EQUAL(looks, files);
}

/* Files are checked until a changed one is found. */
static void test_all(void)
{
    struct fixture x;
    char path[128];
    setup(&x);
    for (unsigned i = FILES; i-- > 0;)
        put_shard(&x, i, false, path);
    struct tree *t = image_tree(path, &(struct tree_options){.late = true});
    asks(t, false, FILES);
    put_shard(&x, FILES - 1, true, path);
    asks(t, true, FILES);
    put_shard(&x, 0, true, path);
    asks(t, true, 1);
    tree_close(t);
    teardown(&x);
}

/* Make a first edit, which is refused because a file has changed. */
static void begin(struct tree *t)
{
    looks = 0;
    CU_ASSERT_EQUAL(do_write(t, "changed", "2", 1), -ESTALE);
    CU_ASSERT_TRUE(looks > 0);
}

/* Another program's change is noticed even while an attempt to edit is failing. */
static void test_begins_meanwhile(void)
{
    struct fixture x;
    char path[128];
    setup(&x);
    for (unsigned i = FILES; i-- > 0;)
        put_shard(&x, i, true, path);
    struct tree *t = meanwhile_tree = image_tree(path, &(struct tree_options){.late = true});
    put_shard(&x, 0, false, path);
    meanwhile = begin;
    CU_ASSERT_TRUE(tree_changed(t));
    CU_ASSERT_PTR_NULL(meanwhile);
    const uint64_t hash = tree_look(t);
    CU_ASSERT_EQUAL(tree_look(t), hash);
    CU_ASSERT_EQUAL(checks, 1);
    tree_close(t);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"all files are checked until one has changed", test_all},
    {"editing begins during a check", test_begins_meanwhile},
    CU_TEST_INFO_NULL,
};

CU_MAIN("looks", tests)
