/* SPDX-License-Identifier: MIT */
/* edit/change: operations on keys, and the entries they produce; edits of tensors that are refused.
 * tests/fuzz/fuzz_edit.c plans random ones. */
#include "cu_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "edit/plan.h"
#include "model_dir.h"
#include "quant/types.h"

/* The model used by all tests: keys a, b and c, then two special keys and two of ggufs' own. */
static struct gguf *model(void)
{
    struct build b = build_of(3, false);
    build_text(&b, "a:u32=1|b=two|c:u32=3|general.architecture=test|general.alignment:u32=64|"
                   "split.no:u16=0|ggufs.reserve=   ");
    return gguf_of(&b);
}

/*
 * Apply one operation: "= key" sets the key to the u32 9, "- key" removes it, "> key new" renames
 * it.
 */
static int add_op(struct edit_change *c, const char *op, struct err *e)
{
    char kind, key[64] = "", arg[64] = "";
    uint8_t nine[4];
    put_u32(nine, 9, false);
    CU_ASSERT_TRUE_FATAL(sscanf(op, "%c %63s %63s", &kind, key, arg) >= 2);
    if (kind == '-')
        return edit_remove(c, key, strlen(key), e);
    if (kind == '>')
        return edit_rename(c, key, strlen(key), arg, strlen(arg), e);
    return set_bytes(c, key, strlen(key), GGUF_U32, nine, 4, e);
}

/* Write the keys in order, for example "a=9 b c". An entry that differs from the model's is marked
 * =9 if its value is the u32 9, and * otherwise. */
static void spell(const struct gguf *g, const struct buf *b, const uint64_t *end, size_t n,
                  struct buf *out)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; at = end[i++]) {
        const uint8_t *p = b->data + at;
        const uint64_t len = get_u64(p, false);
        const uint32_t old = gguf_find_key(g, p + 8, (size_t)len);
        bool made = old == EDIT_NONE || g->kv[old].end - g->kv[old].off != end[i] - at ||
                    memcmp(g->head + g->kv[old].off, p, (size_t)(end[i] - at)) != 0;
        bool nine = get_u32(p + 8 + len, false) == GGUF_U32 && get_u32(p + 12 + len, false) == 9;
        buf_printf(out, "%s%.*s%s", i ? " " : "", (int)len, (const char *)p + 8,
                   !made  ? ""
                   : nine ? "=9"
                          : "*");
    }
}

struct row {
    const char *ops; /* separated by ';' */
    int code;
    const char *keys; /* REST: the two special keys and split.no */
};

static const struct row rows[] = {
    {"", 0, "a b c REST"},
    {"= a", 0, "a=9 b c REST"},
    {"= b", 0, "a b=9 c REST"}, /* the type and length change; the position does not */
    {"= d", 0, "a b c REST d=9"},
    {"= d;= e;= d", 0, "a b c REST d=9 e=9"},
    {"- b", 0, "a c REST"},
    {"- b;= b", 0, "a b=9 c REST"},
    {"- a;- b;- c", 0, "REST"},
    {"= d;- d", 0, "a b c REST"},
    {"= d;- d;= d", 0, "a b c REST d=9"},
    {"> b x", 0, "a x* c REST"},
    {"> b x;> x y", 0, "a y* c REST"},
    {"> b x;> x b", 0, "a b c REST"},
    {"> b x;= b", 0, "a x* c REST b=9"},
    {"> b x;= x", 0, "a x=9 c REST"},
    {"> b x;- x", 0, "a c REST"},
    {"> b x;- x;= b", 0, "a c REST b=9"},
    {"- b;> a b", 0, "b* c REST"},
    {"> b b", 0, "a b c REST"},
    {"= d;> d e", 0, "a b c REST e=9"},
    {"> a t;> b a;> t b", 0, "b* a* c REST"},
    /* The key that last had the name comes back. */
    {"- a;> b a;- a;= a", 0, "a=9 c REST"},
    {"- a;> b a;- a;> c a;- a;= a", 0, "a=9 REST"},
    {"- x", -ENOENT, NULL},
    {"- b;- b", -ENOENT, NULL},
    {"> x y", -ENOENT, NULL},
    {"> b x;> b y", -ENOENT, NULL},
    {"> b c", -EEXIST, NULL},
    {"= d;> b d", -EEXIST, NULL},
    {"- general.architecture", -EPERM, NULL},
    {"> general.architecture x", -EPERM, NULL},
    {"= ggufs.reserve", -EPERM, NULL},
    {"- ggufs.reserve", -EPERM, NULL},
    {"> b ggufs.reserve", -EPERM, NULL},
    {"> split.no x", -EPERM, NULL},
    {"= split.count", -EPERM, NULL},
    {"- split.no", -EPERM, NULL},
    {"= general.alignment", -EINVAL, NULL}, /* 9 is not a power of two */
    {"> general.alignment x", -EINVAL, NULL},
    {"- general.alignment;> a general.alignment", -EINVAL, NULL},
};

#define REST "general.architecture general.alignment split.no"

static int add_ops(struct edit_change *c, const char *ops, struct err *e)
{
    char all[256];
    int r = 0;
    (void)snprintf(all, sizeof(all), "%s", ops);
    for (char *save, *op = strtok_r(all, ";", &save); op && r == 0; op = strtok_r(NULL, ";", &save))
        r = add_op(c, op, e);
    return r;
}

/* Write the keys that a change produces, terminated by a NUL. */
static void spell_change(const struct edit_change *c, struct buf *out)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    CLEANUP(free_it) uint64_t *end;
    size_t n;
    CU_ASSERT_EQUAL_FATAL(edit_change_keys(c, &b, &end, &n), 0);
    CU_ASSERT_EQUAL(c->bytes, 24 + b.len + c->on.g->head_len - c->on.g->info_off);
    out->len = 0;
    spell(c->on.g, &b, end, n, out);
    buf_char(out, '\0');
}

static void check_row(const struct gguf *g, const struct row *row)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(buf_free) struct buf got = BUF_INIT;
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    struct err e = {0};
    edit_change_init(&c, &(struct edit_base){.g = g});
    int r = add_ops(&c, row->ops, &e);
    CU_ASSERT_EQUAL(r, row->code);
    CU_ASSERT_EQUAL(e.code, row->code);
    CU_ASSERT_EQUAL(e.msg[0] != '\0', row->code != 0);
    if (r < 0 || !row->keys)
        return;
    spell_change(&c, &got);
    const char *rest = strstr(row->keys, "REST");
    buf_printf(&want, "%.*s" REST "%s%c", (int)(rest - row->keys), row->keys, rest + 4, 0);
    CU_SAYS(strcmp(buf_text(&got), buf_text(&want)) == 0, "%s: got '%s'", row->ops, buf_text(&got));
}

TEST("operations keep places; invalid ones are refused")
{
    CLEANUP(gguf_drop) struct gguf *g = model();
    for (size_t i = 0; i < COUNT(rows); i++)
        check_row(g, &rows[i]);
}

static int set_alignment(const struct gguf *g, uint32_t type, uint64_t v, size_t width,
                         uint64_t *ret)
{
    CLEANUP(edit_change_free) struct edit_change c;
    uint8_t bytes[8];
    put_u64(bytes, v, false);
    edit_change_init(&c, &(struct edit_base){.g = g});
    int r = set_bytes(&c, "general.alignment", 17, type, bytes, width, NULL);
    *ret = edit_alignment(&c);
    return r;
}

TEST("general.alignment is a u32 power of two from 8 to 2^20")
{
    CLEANUP(gguf_drop) struct gguf *g = model();
    uint64_t got;
    for (uint64_t v = 1; v <= (uint64_t)1 << 21; v *= 2) {
        bool good = v >= 8 && v <= (uint64_t)1 << 20;
        CU_ASSERT_EQUAL(set_alignment(g, GGUF_U32, v, 4, &got), good ? 0 : -EINVAL);
        CU_ASSERT_EQUAL(got, good ? v : 64);
    }
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_U32, 0, 4, &got), -EINVAL);
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_U32, 48, 4, &got), -EINVAL);
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_I32, 64, 4, &got), -EINVAL);
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_U64, 64, 8, &got), -EINVAL);
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_U32, 64, 3, &got), -EINVAL);
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_remove(&c, "general.alignment", 17, NULL), 0);
    CU_ASSERT_EQUAL(edit_alignment(&c), 32);
}

TEST("names are neither empty nor too long")
{
    CLEANUP(gguf_drop) struct gguf *g = model();
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    memset(buf_extend(&name, EDIT_MAX_KEY + 1), 'k', EDIT_MAX_KEY + 1);
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_rename(&c, "a", 1, name.data, EDIT_MAX_KEY + 1, NULL), -EINVAL);
    CU_ASSERT_EQUAL(edit_rename(&c, "a", 1, name.data, EDIT_MAX_KEY, NULL), 0);
    CU_ASSERT_EQUAL(set_bytes(&c, "", 0, GGUF_U8, "x", 1, NULL), -EINVAL);
}

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
    const struct tensor_shape uneven = {Q8_0, 1, {33}}, unknown = {UNKNOWN, 1, {1}},
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
    REFUSED(edit_tensor_add(&c, "new", 3, &uneven, &p, 1, 0, &e), -EINVAL);
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
    struct edit_change c;
    struct err e = {0};
    struct build b = build_of(3, false);
    build_num(&b, key, GGUF_U16, 2);
    build_tensor(&b, "a", F32, SHAPE(1), "abcd", 4);
    CLEANUP(gguf_drop) struct gguf *g = gguf_of(&b);
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
