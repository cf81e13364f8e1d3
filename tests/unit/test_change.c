/* SPDX-License-Identifier: MIT */
/* edit/change, edit/plan: operations on keys, and the entries they produce; edits of tensors that are
 * refused; the reserve, and models that cannot be edited. tests/fuzz/fuzz_edit.c plans random edits of
 * every kind in every layout. */
#include "cu_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "edit/plan.h"
#include "gguf/value.h"
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
    struct err e;
    char name[70];
    memset(name, 'n', sizeof(name));
    CLEANUP(log_drop) struct log *d = memory_draft(name, 64);
    CLEANUP(teardown) struct fixture x = setup();
    CLEANUP(edit_change_free) struct edit_change c;
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
}

static void split_by(const char *key)
{
    struct err e = {0};
    struct build b = build_of(3, false);
    build_num(&b, key, GGUF_U16, 2);
    build_tensor(&b, "a", F32, SHAPE(1), "abcd", 4);
    CLEANUP(gguf_drop) struct gguf *g = gguf_of(&b);
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "a", 1, &e), -EOPNOTSUPP);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "merge"));
    struct tensor_shape one = {F32, 1, {1}};
    CU_ASSERT_EQUAL(edit_tensor_add(&c, "b", 1, &one, NULL, 0, 0, &e), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(edit_tensor_rename(&c, "a", 1, "b", 1, &e), 0);
}

TEST("files of a split model keep their numbers of tensors")
{
    split_by("split.count");
    split_by("split.tensors.count");
}

/* ==== plans ==== */

static void put_tensors(struct build *b)
{
    build_text(b, ">one F32 5|>two I8 3x7");
}

static struct parsed make_model(bool tensors, bool no_tail, uint32_t alignment)
{
    struct build b = build_of(3, alignment == 64);
    b.alignment = alignment;
    b.pad_byte = 0xee;
    build_str(&b, "general.architecture", "test");
    build_u32(&b, "general.alignment", alignment);
    build_str(&b, "text", "some text that is not short");
    if (tensors)
        put_tensors(&b);
    b.no_tail = no_tail;
    return parse_build(&b, 0);
}

/* ---- the reserve ---- */

static uint64_t moved_by; /* how far the last step moved the data */

/* Set the text to n bytes, and replace the old image with the new one, which has the same data. */
static void step(struct parsed *im, uint32_t n, const struct edit_options *o,
                 struct edit_plan *flags)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    CLEANUP(buf_free) struct buf v = BUF_INIT;
    struct parsed new;
    edit_change_init(&c, &(struct edit_base){.g = im->g});
    buf_uint(&v, n, 8, im->g->fmt.big);
    memset(buf_extend(&v, n), 'v', n);
    CU_ASSERT_EQUAL_FATAL(set_bytes(&c, "text", 4, GGUF_STRING, v.data, v.len, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, o, &p, NULL), 0);
    p.image->file[EDIT_OLD_FILE] = source_mem(im->image, im->size);
    struct source s = image_source(p.image);
    new.size = (size_t)s.size;
    new.image = malloc(new.size);
    CU_ASSERT_EQUAL(s.read(&s, 0, new.image, new.size), 0);
    new.g = gguf_in(new.image, new.size);
    *flags = (struct edit_plan){.same = p.same, .inplace = p.inplace};
    moved_by = new.g->data_off - im->g->data_off;
    for (uint32_t i = 0; i < new.g->n_tensors; i++) {
        const struct gguf_tensor *t = &im->g->tensor[i], *u = &new.g->tensor[i];
        CU_ASSERT_EQUAL(memcmp(new.image + u->off, im->image + t->off, t->nbytes), 0);
    }
    parsed_free(im);
    *im = new;
}

/* Return the number of spaces in the reserve, which must be the last key and contain only spaces;
 * -1: no reserve. */
static int64_t spaces(const struct parsed *im)
{
    uint32_t i = gguf_find_key(im->g, KEY_RESERVE, 13);
    if (i == UINT32_MAX)
        return -1;
    CU_ASSERT_EQUAL(i, im->g->n_kv - 1);
    struct gguf_value v = gguf_value(im->g, &im->g->kv[i]);
    CU_ASSERT_EQUAL(v.type, GGUF_STRING);
    for (uint64_t k = 0; k < v.len; k++)
        if (v.data[k] != ' ')
            CU_FAIL("not a space");
    CU_ASSERT_TRUE(im->g->head_len < im->g->data_off);
    return (int64_t)v.len;
}

TEST("a reserve keeps the data in place or moves it by whole blocks")
{
    struct edit_plan f;
    struct edit_options o = {.reserve = 5000, .strategy = EDIT_INPLACE};
    for (uint32_t align = 8; align <= 65536; align *= 8) {
        CLEANUP(parsed_free) struct parsed im = make_model(true, false, align);
        /* The first rewrite adds a reserve and, if possible, moves the data by whole blocks. */
        step(&im, 20000, &o, &f);
        CU_ASSERT_TRUE(spaces(&im) >= 5000 || align > 20000);
        CU_ASSERT_EQUAL(moved_by % 4096, 0);
        CU_ASSERT_EQUAL(im.g->data_off - im.g->head_len, 4);
        /* After that, edits that fit change only the header, whether it grows or shrinks. */
        uint64_t off = im.g->data_off;
        for (uint32_t n = 20000; n <= 24900; n += 700) {
            step(&im, n, &o, &f);
            CU_ASSERT_TRUE(f.inplace);
            CU_ASSERT_EQUAL(im.g->data_off, off);
        }
        step(&im, 10, &o, &f);
        CU_ASSERT_TRUE(f.inplace);
        CU_ASSERT_TRUE(spaces(&im) > 20000);
        /* An edit that does not fit moves the data and makes room again. */
        step(&im, 200000, &o, &f);
        CU_ASSERT_TRUE(!f.inplace && moved_by % 4096 == 0);
        CU_ASSERT_TRUE(spaces(&im) >= 5000);
        /* If the options request no reserve, it is removed. */
        struct edit_options none = {.reserve = 0};
        step(&im, 5, &none, &f);
        CU_ASSERT_EQUAL(spaces(&im), -1);
    }
}

/* A text can grow until only one byte separates the header from the data. */
TEST("a reserve is used up to its last byte")
{
    struct edit_plan f;
    struct edit_options o = {.reserve = 100, .strategy = EDIT_INPLACE};
    CLEANUP(parsed_free) struct parsed im = make_model(true, false, 32);
    step(&im, 1000, &o, &f);
    uint32_t n = 1000 + (uint32_t)spaces(&im);
    uint64_t off = im.g->data_off;
    for (uint32_t k = 0; k <= 3; k++) {
        step(&im, n + k, &o, &f);
        CU_ASSERT_TRUE(f.inplace);
        CU_ASSERT_EQUAL(im.g->data_off, off);
        CU_ASSERT_EQUAL(spaces(&im), 0);
        CU_ASSERT_EQUAL(off - im.g->head_len, 4 - k);
    }
    step(&im, n + 4, &o, &f);
    /* The reserve's own entry is dropped before data is moved. */
    CU_ASSERT_TRUE(!f.inplace || spaces(&im) == -1);
    CU_ASSERT_EQUAL(moved_by % 4096, 0);
}

TEST("an automatic reserve is only made in a large file")
{
    struct edit_plan f;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct parsed im = make_model(true, false, 32);
    step(&im, 1000, &o, &f);
    CU_ASSERT_EQUAL(spaces(&im), -1); /* too small for a reserve */
    im.g->file_size = EDIT_RESERVE_FROM + 1;
    step(&im, 1200, &o, &f);
    CU_ASSERT_TRUE(spaces(&im) >= (int64_t)EDIT_RESERVE_DEFAULT);
    CU_ASSERT_EQUAL(moved_by % 4096, 0);
    /* A small file keeps its existing reserve. */
    int64_t had = spaces(&im);
    step(&im, 1300, &o, &f);
    CU_ASSERT_EQUAL(spaces(&im), had - 100);
    CU_ASSERT_TRUE(f.inplace);
    /* Without tensors there is no data to keep in place. */
    parsed_free(&im);
    im = make_model(false, false, 32);
    o.reserve = 5000;
    step(&im, 1300, &o, &f);
    CU_ASSERT_EQUAL(spaces(&im), -1);
    parsed_free(&im);
}

TEST("an edit that changes nothing is recognised")
{
    struct edit_plan f;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct parsed im = make_model(true, false, 32);
    step(&im, 6, &o, &f);
    CU_ASSERT_FALSE(f.same);
    step(&im, 6, &o, &f);
    CU_ASSERT_TRUE(f.same);
    parsed_free(&im);
    /* Without tensors, only an edit that changes nothing applies in place. */
    im = make_model(false, false, 32);
    step(&im, 6, &o, &f);
    CU_ASSERT_FALSE(f.same || f.inplace);
    step(&im, 6, &o, &f);
    CU_ASSERT_TRUE(f.same && !f.inplace);
    parsed_free(&im);
}

/* Bytes are not written in place if the padding after the last tensor is missing. */
TEST("a model without padding at its end can be edited")
{
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(edit_change_free) struct edit_change c;
        CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
        struct edit_options o = EDIT_OPTIONS_INIT;
        CLEANUP(parsed_free) struct parsed im = make_model(true, i, 32);
        CLEANUP(log_drop) struct log *d = memory_draft("abcd", 4);
        const struct tensor_piece piece = {0, 4, 0, d};
        edit_change_init(&c, &(struct edit_base){.g = im.g});
        CU_ASSERT_EQUAL(edit_tensor_set(&c, "one", 3, NULL, &piece, 1, NULL), 0);
        CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
        CU_ASSERT_EQUAL(p.changed, 4);
        CU_ASSERT_EQUAL(p.inplace, i == 0);
    }
}

static int refuse(struct build *b, const char *op, const void *value, size_t n, unsigned flags)
{
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct edit_plan p = EDIT_PLAN_INIT;
    struct err e = {0};
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(parsed_free) struct parsed m = parse_build(b, flags);
    uint32_t type = *op == 's' ? GGUF_STRING : *op == 'a' ? GGUF_ARRAY : GGUF_U32;
    edit_change_init(&c, &(struct edit_base){.g = m.g});
    CU_ASSERT_EQUAL(set_bytes(&c, "key", 3, type, value, n, NULL), 0);
    int r = edit_plan_make(&c, &o, &p, &e);
    CU_ASSERT_EQUAL(e.code, r);
    CU_ASSERT_EQUAL(e.msg[0] != '\0', r < 0);
    CU_ASSERT_PTR_NULL(r < 0 ? p.head.data : NULL);
    edit_plan_free(&p);
    return r;
}

TEST("files that cannot be edited are refused")
{
    struct build b = build_of(1, false);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0), -EROFS);
    b = build_of(2, false);
    b.fmt.nul = true;
    build_str(&b, "x", "y");
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0), -EROFS);
    b = build_of(3, false);
    build_raw(&b, "key\0x", 5, GGUF_U32, "abcd", 4); /* the new key equals this one up to a NUL */
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0), -EINVAL);
    b = build_of(3, false);
    build_text(&b, ">one F32 5|>two I8 3x7 0"); /* data is missing */
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, GGUF_PARTIAL), -EROFS);
    b = build_of(3, false); /* a tensor of unknown type that begins where the file ends */
    build_tensor_at(&b, "empty", UNKNOWN, (uint64_t[]){8}, 1, 32, NULL, 0);
    build_tensor_at(&b, "full", F32, (uint64_t[]){8}, 1, 0, NULL, 32);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0), -EROFS);
    b = build_of(3, false); /* a tensor of unknown type without elements */
    build_tensor(&b, "none", UNKNOWN, (uint64_t[]){0}, 1, NULL, 0);
    put_tensors(&b);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0), 0);
    b = build_of(3, false);
    put_tensors(&b);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0), 0);
}

/* Bytes other than exactly one value of the type are refused, even if they could be read as
 * something else. */
TEST("bytes that are not a value are refused")
{
    static const uint8_t text[] = {3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0};
    static const uint8_t list[] = {4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9};
    static const uint8_t wrong[] = {99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9};
    /* A u32, then a key "q" with a value. */
    static const uint8_t two[] = {1, 2, 3, 4, 1, 0, 0, 0, 0, 0, 0, 0, 'q', 4, 0, 0, 0, 5, 6, 7, 8};
    static const struct {
        const char *op;
        const void *value;
        size_t n;
        int code;
    } cases[] = {
        {"u", "abcd", 4, 0},      {"u", "abc", 3, -EINVAL}, {"u", "abcde", 5, -EINVAL},
        {"u", "", 0, -EINVAL},    {"s", text, 11, 0},       {"s", text, 10, -EINVAL},
        {"s", text, 12, -EINVAL}, {"s", text, 7, -EINVAL},  {"a", list, 16, 0},
        {"a", list, 12, -EINVAL}, {"a", list, 15, -EINVAL}, {"a", wrong, 16, -EINVAL},
        {"u", two, 4, 0},         {"u", two, 21, -EINVAL},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int more = 0; more < 4; more++) {
            struct build b = build_of(3, false);
            build_u32(&b, "key", 1);
            if (more % 2) /* a value that is too short would swallow the bytes of this key */
                build_str(&b, "z", "zzzzzzzzzzzzzzzzzzzz");
            if (more < 2)
                put_tensors(&b);
            CU_ASSERT_EQUAL(refuse(&b, cases[i].op, cases[i].value, cases[i].n, 0), cases[i].code);
        }
}

TEST("a header that becomes too large with its reserve is refused")
{
    struct err e = {0};
    const struct edit_options o = {.reserve = 65536};
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct build b = build_of(3, false);
    put_tensors(&b);
    CLEANUP(gguf_drop) struct gguf *g = gguf_of(&b);
    struct buf value = {.data = malloc(1), .len = GGUF_MAX_HEADER - 65536};
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_set(&c, "large", 5, GGUF_STRING, &value, NULL), 0);
    CU_ASSERT_EQUAL(edit_plan_make(&c, &o, &p, &e), -EFBIG);
    CU_ASSERT_STRING_EQUAL(e.msg, "the header would be over 4294967296 bytes");
}
