/* SPDX-License-Identifier: MIT */
/* Tensor edits (edit/change.h) that are refused. tests/fuzz/fuzz_edit.c plans random ones. */
#include <errno.h>
#include <string.h>

#include "changes.h"
#include "cu_test.h"
#include "model_dir.h"
#include "quant/types.h"

enum { Q8_0 = 8, UNKNOWN = QUANT_N_TYPES };

TEST("a refused edit changes nothing")
{
    struct fixture x;
    struct edit_change c;
    struct err e;
    char name[70];
    memset(name, 'n', sizeof(name));
    struct log *d = memory_draft(name, 64);
    x = setup();
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
    CLEANUP(gguf_drop) struct gguf *g;
    struct edit_change c;
    struct err e = {0};
    size_t n;
    struct build b = build_of(3, false);
    build_num(&b, key, GGUF_U16, 2);
    build_tensor(&b, "a", F32, SHAPE(1), "abcd", 4);
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    g = gguf_in(image, n);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "a", 1, &e), -EOPNOTSUPP);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "merge"));
    struct tensor_shape one = {F32, 1, {1}};
    CU_ASSERT_EQUAL(edit_tensor_add(&c, "b", 1, &one, NULL, 0, 0, &e), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(edit_tensor_rename(&c, "a", 1, "b", 1, &e), 0);
    edit_change_free(&c);
}

TEST("files of a split model keep their numbers of tensors")
{
    split_by("split.count");
    split_by("split.tensors.count");
}
