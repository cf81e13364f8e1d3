/* SPDX-License-Identifier: MIT */
/* Tensor edits (edit/change.h): each operation, refusals, and random operations, some of which are
 * undone before the rest is committed with each strategy. The reference is a plain list of
 * tensors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "faultsys.h"
#include "model_dir.h"
#include "soak.h"
#include "world.h"

static void commit_world(struct fixture *x, const struct edit_change *c, const struct world *w,
                         enum edit_strategy s)
{
    struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = {.strategy = s, .reserve = world_draw(2) ? 2000 : EDIT_RESERVE_AUTO};
    struct edit_result res;
    struct faultsys fs;
    struct err e = {0};
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = s == EDIT_COPY && world_draw(2);
    if (edit_plan_make(c, &o, &p, &e) < 0)
        (void)printf("\n%s\n", e.msg);
    CU_ASSERT_EQUAL_FATAL(e.code, 0);
    p.image->file[EDIT_OLD_FILE] = source_mem(x->old, x->old_n);
    uint8_t *bytes = malloc(p.image->size);
    CU_ASSERT_EQUAL(image_read(p.image, NULL, 0, bytes, p.image->size), 0);
    CU_ASSERT_TRUE(world_shown(bytes, p.image->size, w));
    struct edit_file f = open_model(x, &fs.sys);
    int r = edit_commit(&f, &p, &o, NULL, &res, &e);
    if (r == -EOPNOTSUPP && s == EDIT_INPLACE) {
        CU_ASSERT_FALSE(p.inplace);
        CU_ASSERT_TRUE(is_old(x));
    } else {
        CU_ASSERT_EQUAL(r, 0);
        CU_ASSERT_TRUE(model_is(x, bytes, p.image->size));
    }
    if (r < 0 && r != -EOPNOTSUPP)
        (void)printf("\n%s\n", e.msg);
    CU_ASSERT_EQUAL(files(x), 1);
    if (res.old_fd >= 0)
        (void)close(res.old_fd);
    edit_file_close(&f);
    free(bytes);
    edit_plan_free(&p);
}

static bool is_renamed(const struct gguf *g, const struct edit_tensor *t)
{
    const struct gguf_tensor *old = &g->tensor[t->old];
    return old->name_len != t->name_len || memcmp(gguf_name(g, old), t->name, t->name_len) != 0;
}

/* Check that the sizes counted by the change agree with its keys and tensors. */
static void check_sums(const struct edit_change *c)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT;
    const struct gguf *g = c->on.g;
    uint64_t *end = NULL;
    struct edit_tensor *all = NULL;
    size_t n = 0, differ = g->n_tensors, touched = 0;
    CU_ASSERT_EQUAL_FATAL(edit_change_keys(c, &keys, &end, &n), 0);
    CU_ASSERT_EQUAL_FATAL(edit_change_tensors(c, &all, &n), 0);
    uint64_t bytes = 24 + keys.len;
    for (size_t i = 0; i < n; i++) {
        const struct edit_tensor *t = &all[i];
        const struct tensor_content *k = t->content;
        const struct gguf_tensor *old = t->old == EDIT_NONE ? NULL : &g->tensor[t->old];
        bytes += 24 + t->name_len + 8ull * (k && k->shape.n_dims ? k->shape.n_dims : old->n_dims);
        if (old) /* an existing tensor */
            differ -= !k && !is_renamed(g, t);
        else
            differ++;
    }
    for (size_t i = 0; i < c->n; i++) {
        touched += c->slot[i]->kind == EDIT_TENSOR;
        differ += c->slot[i]->kind == EDIT_KEY;
    }
    CU_ASSERT_EQUAL(c->bytes, bytes);
    CU_ASSERT_EQUAL(c->tensors, touched);
    CU_ASSERT_EQUAL(edit_change_count(c, SIZE_MAX), differ);
    CU_ASSERT_EQUAL(edit_change_count(c, 2), differ < 2 ? differ : 2);
    free(end);
    free(all);
}

static void run(const struct kind *k, enum edit_strategy s, size_t ops)
{
    struct fixture x;
    struct world w;
    struct edit_change c;
    world_setup(&x, k, &w);
    edit_change_init(&c, &(struct edit_base){.g = x.g});
    for (size_t i = 0; i < ops; i++) {
        struct world before = world_copy(&w);
        size_t mark = edit_mark(&c);
        for (uint32_t n = 1 + world_draw(3); n > 0; n--)
            world_edit(&c, &w);
        check_sums(&c);
        if (world_draw(3) == 0) {
            edit_undo(&c, mark);
            check_sums(&c);
            world_free(&w);
            w = before;
        } else {
            world_free(&before);
        }
        if (world_draw(4) == 0)
            edit_keep(&c, world_draw((uint32_t)edit_mark(&c) + 1) == 0 ? 0 : edit_mark(&c));
    }
    if (w.n == 0)
        world_add(&c, &w);
    commit_world(&x, &c, &w, s);
    edit_change_free(&c);
    world_free(&w);
    teardown(&x);
}

static void test_random(void)
{
    static const enum edit_strategy how[] = {EDIT_COPY, EDIT_INPLACE, EDIT_AUTO};
    const char *seed = getenv("GGUFS_SEED");
    world_state = seed ? strtoull(seed, NULL, 10) : 1;
    for (size_t i = 0; i < soak_size(600); i++)
        run(&world_kinds[i % WORLD_KINDS], how[i / WORLD_KINDS % COUNT(how)], 1 + world_draw(8));
    soak_count("random edits of tensors", soak_size(600));
}

/* ---- one by one ---- */

static void test_refused(void)
{
    struct fixture x;
    struct edit_change c;
    struct err e;
    char name[70];
    memset(name, 'n', sizeof(name));
    struct log *d = memory_draft(name, 64);
    setup(&x);
    edit_change_init(&c, &(struct edit_base){.g = x.g});
    const char *a = gguf_name(x.g, &x.g->tensor[0]);
    size_t n = x.g->tensor[0].name_len;
    struct tensor_piece p = {0, 4, 0, d};
    const struct tensor_shape one = {F32, 1, {1}}, zero = {F32, 1, {0}}, five = {F32, 5, {1}};
    const struct tensor_shape rows = {Q8_0, 1, {33}}, unknown = {UNKNOWN, 1, {1}},
                              none = {F32, 0, {0}};
    const struct tensor_shape huge = {F32, 2, {INT64_MAX, INT64_MAX}};
#define REFUSED(call, want)               \
    do {                                  \
        e = (struct err){0};              \
        CU_ASSERT_EQUAL((call), (want));  \
        CU_ASSERT_EQUAL(e.code, (want));  \
        CU_ASSERT_TRUE(e.msg[0] != '\0'); \
    } while (0)
    REFUSED(edit_tensor_rename(&c, "no", 2, "b", 1, &e), -ENOENT);
    REFUSED(edit_tensor_rename(&c, a, n, "", 0, &e), -EINVAL);
    REFUSED(edit_tensor_rename(&c, a, n, "a\0b", 3, &e), -EINVAL);
    REFUSED(edit_tensor_rename(&c, a, n, name, 64, &e), -ENAMETOOLONG);
    REFUSED(
        edit_tensor_rename(&c, a, n, gguf_name(x.g, &x.g->tensor[1]), x.g->tensor[1].name_len, &e),
        -EEXIST);
    REFUSED(edit_tensor_remove(&c, "no", 2, &e), -ENOENT);
    REFUSED(edit_tensor_add(&c, a, n, &one, &p, 1, 0, &e), -EEXIST);
    REFUSED(edit_tensor_add(&c, "", 0, &one, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &zero, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &five, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &none, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &rows, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &huge, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &unknown, &p, 1, 0, &e), -EOPNOTSUPP);
    REFUSED(edit_tensor_add(&c, "new", 3, &one, NULL, 0, 0, &e), -EINVAL);
    p.len = 3;
    REFUSED(edit_tensor_add(&c, "new", 3, &one, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, a, n, &one, &p, 1, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, a, n, &one, NULL, 0, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, "no", 2, &one, NULL, 0, &e), -ENOENT);
    p.at = x.g->tensor[0].nbytes - 2;
    REFUSED(edit_tensor_set(&c, a, n, NULL, &p, 1, &e), -EINVAL);
    p = (struct tensor_piece){0, 4, 61, d};
    REFUSED(edit_tensor_set(&c, a, n, NULL, &p, 1, &e), -EINVAL);
    struct tensor_piece twice[] = {{0, 2, 0, d}, {1, 2, 0, d}};
    REFUSED(edit_tensor_set(&c, a, n, NULL, twice, 2, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, "no", 2, NULL, &p, 1, &e), -ENOENT);
    REFUSED(edit_tensor_set(&c, a, n, &zero, NULL, 0, &e), -EINVAL);
    const struct tensor_shape other = {I8, 1, {x.g->tensor[0].nbytes}};
    REFUSED(edit_tensor_set(&c, a, n, &other, NULL, 0, &e), -EINVAL);
    atomic_uint numbers = IDS_NONE - 1;
    c.on.numbers = &numbers;
    REFUSED(edit_tensor_rename(&c, a, n, "other", 5, &e), -EOVERFLOW);
    REFUSED(edit_tensor_remove(&c, a, n, &e), -EOVERFLOW);
#undef REFUSED
    CU_ASSERT_TRUE(edit_change_is_empty(&c));
    CU_ASSERT_TRUE(edit_mark(&c) == 0 && c.tensors == 0);
    edit_change_free(&c);
    log_unref(d);
    teardown(&x);
}

static void split_by(const char *key)
{
    struct build b;
    struct gguf *g;
    struct edit_change c;
    struct err e = {0};
    size_t n;
    build_init(&b, 3, false);
    build_num(&b, key, GGUF_U16, 2);
    build_tensor(&b, "a", F32, SHAPE(1), "abcd", 4);
    uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "a", 1, &e), -EOPNOTSUPP);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "merge"));
    struct tensor_shape one = {F32, 1, {1}};
    CU_ASSERT_EQUAL(edit_tensor_add(&c, "b", 1, &one, NULL, 0, 0, &e), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(edit_tensor_rename(&c, "a", 1, "b", 1, &e), 0);
    edit_change_free(&c);
    gguf_free(g);
    free(image);
}

static void test_split(void)
{
    split_by("split.count");
    split_by("split.tensors.count");
}

/* A tensor added again under its old name gets its old position, but is a different tensor. */
static void test_again(void)
{
    struct fixture x;
    struct world w;
    struct edit_change c;
    struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = EDIT_OPTIONS_INIT;
    world_state = 5;
    do {
        world_setup(&x, &world_kinds[0], &w);
        if (w.n >= 3)
            break;
        world_free(&w);
        teardown(&x);
    } while (true);
    edit_change_init(&c, &(struct edit_base){.g = x.g});
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "t1", 2, NULL), 0);
    world_drop(&w.t[1]);
    w.t[1] = (struct world_tensor){.name = "t1", .shape = world_shape()};
    CU_ASSERT_EQUAL(world_put(&c, &w.t[1], false), 0);
    CU_ASSERT_EQUAL(edit_tensor_rename(&c, "t2", 2, "two", 3, NULL), 0);
    memcpy(w.t[2].name, "two", 4);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
    CU_ASSERT_EQUAL(p.tensor[0].old, 0);
    CU_ASSERT_PTR_NULL(p.tensor[0].content);
    CU_ASSERT_EQUAL(p.tensor[1].old, EDIT_NONE);
    CU_ASSERT_PTR_NOT_NULL(p.tensor[1].content);
    CU_ASSERT_EQUAL(p.tensor[2].old, 2);
    CU_ASSERT_PTR_NULL(p.tensor[2].content);
    edit_plan_free(&p);
    commit_world(&x, &c, &w, EDIT_COPY);
    edit_change_free(&c);
    world_free(&w);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"a refused edit changes nothing", test_refused},
    {"files of a split model keep their numbers of tensors", test_split},
    {"a tensor added again gets its place back", test_again},
    {"random operations are undone and committed", test_random},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensors", tests)
