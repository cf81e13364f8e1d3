/* SPDX-License-Identifier: MIT */
/* edit/plan: every kind of edit to every kind of layout. The new image is read through the plan,
 * parsed like any file, and compared byte for byte with the old one. */
#include "cu_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "edit/plan.h"
#include "gguf/value.h"

enum { F32 = 0, RETIRED = 4, I8 = 24, UNKNOWN = 200 };

struct content {
    uint8_t *bytes;
    size_t n;
    struct gguf *g;
};

static void image_free(struct content *im)
{
    gguf_free(im->g);
    free(im->bytes);
}

static void image_parse(struct content *im)
{
    struct err e = {0};
    struct source s = source_mem(im->bytes, im->n);
    im->g = NULL;
    if (gguf_parse(&s, 0, &im->g, &e) < 0)
        (void)printf("\n%s\n", e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(im->g);
}

/* ---- old models ---- */

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* The next place in order. */
#define NEXT UINT64_MAX
#define REGULAR                                                 \
    {"one", F32, {5}, 20, NEXT}, {"two", I8, {3, 7}, 21, NEXT}, \
        {"whole", F32, {64, 2}, 512, NEXT},                     \
    {                                                           \
        "last", I8, {1}, 1, NEXT                                \
    }

static const struct layout {
    const char *name;
    struct tensor {
        const char *name;
        uint32_t type;
        uint64_t dims[3], bytes; /* bytes 0 and one dimension 0: no elements */
        uint64_t at;             /* in units of the alignment */
    } tensor[4];
    size_t trailing; /* bytes appended after the data */
    bool no_tail, regular;
} layouts[] = {
    {"regular", {REGULAR}, 0, false, true},
    {"empty tensor",
     {{"one", F32, {5}, 20, NEXT}, {"none", F32, {0, 4}, 0, NEXT}, {"scalar", F32, {0}, 4, NEXT}},
     0,
     false,
     true},
    {"gaps", {{"one", F32, {5}, 20, 1}, {"two", I8, {3}, 3, 4}}, 0, false, false},
    {"reversed",
     {{"late", F32, {5}, 20, 3}, {"mid", I8, {3}, 3, 2}, {"early", I8, {4}, 4, 0}},
     0,
     false,
     false},
    {"no tail", {REGULAR}, 0, true, false},
    {"trailing", {REGULAR}, 77, false, false},
    {"unknown", /* its data lasts until the next tensor */
     {{"one", F32, {5}, 20, NEXT}, {"odd", UNKNOWN, {9}, 0, NEXT}, {"two", I8, {3}, 3, NEXT}},
     0,
     false,
     true},
    {"unknown last", {{"one", F32, {5}, 20, NEXT}, {"odd", UNKNOWN, {9}, 11, NEXT}}, 0, true, true},
    {"no tensors", {{0}}, 0, false, false},
    {"no tensors, trailing", {{0}}, 9, false, false},
    {"retired last", {{"one", F32, {5}, 20, NEXT}, {"odd", RETIRED, {9}, 11, NEXT}}, 0, true, true},
};

static void put_tensors(struct build *b, const struct layout *l)
{
    for (const struct tensor *t = l->tensor; t < l->tensor + 4 && t->name; t++) {
        const uint32_t n = t->dims[1] ? 2 : t->dims[0] > 0;
        const size_t bytes = t->type == UNKNOWN && !t->bytes ? (size_t)b->alignment : t->bytes;
        if (t->at == NEXT)
            build_tensor(b, t->name, t->type, t->dims, n, NULL, bytes);
        else
            build_tensor_at(b, t->name, t->type, t->dims, n, t->at * b->alignment, NULL, bytes);
    }
    b->no_tail = l->no_tail;
}

static void make_model(struct content *im, const struct layout *l, uint8_t version, bool big,
                       uint32_t alignment)
{
    struct build b;
    build_init(&b, version, big);
    b.alignment = alignment;
    b.pad_byte = 0xee;
    build_str(&b, "general.architecture", "test");
    build_u32(&b, "general.alignment", alignment);
    build_str(&b, "text", "some text that is not short");
    build_array(&b, "list", GGUF_STRING, 2);
    build_item_str(&b, "x");
    build_item_str(&b, "");
    build_num(&b, "odd.bool", GGUF_BOOL, 7);
    put_tensors(&b, l);
    im->bytes = build_finish(&b, &im->n);
    if (l->trailing) {
        im->bytes = realloc(im->bytes, im->n + l->trailing);
        memset(im->bytes + im->n, 0xdd, l->trailing);
        im->n += l->trailing;
    }
    image_parse(im);
}

/* ---- edits ---- */

struct edit {
    char kind; /* '=' a string of n bytes, 'u' the u32 n, '-' a removal, '>' a rename to new.name */
    const char *key;
    uint32_t n;
};

static const struct edit edits[] = {
    {'=', "text", 27},
    {'=', "text", 26},
    {'=', "text", 0},
    {'=', "text", 28},
    {'=', "text", 100},
    {'=', "text", 70000},
    {'=', "new.key", 5},
    {'u', "new.key", 5},
    {'-', "text", 0},
    {'-', "list", 0},
    {'>', "list", 0},
    {'>', "odd.bool", 0},
    {'u', "text", 1},
    {'-', "general.alignment", 0},
    {'u', "general.alignment", 8},
    {'u', "general.alignment", 32},
    {'u', "general.alignment", 64},
    {'u', "general.alignment", 4096},
    {'u', "general.alignment", 65536},
};

static void add_edit(struct edit_change *c, const struct edit *d, const struct gguf *g)
{
    bool big = g->fmt.big;
    size_t key_len = strlen(d->key);
    CLEANUP(buf_free) struct buf v = BUF_INIT;
    int r = -1;
    edit_change_init(c, &(struct edit_base){.g = g});
    if (d->kind == '=') {
        buf_uint(&v, d->n, 8, big);
        for (uint32_t i = 0; i < d->n; i++)
            buf_char(&v, 'v');
        r = set_bytes(c, d->key, key_len, GGUF_STRING, v.data, v.len, NULL);
    } else if (d->kind == 'u') {
        buf_uint(&v, d->n, 4, big);
        r = set_bytes(c, d->key, key_len, GGUF_U32, v.data, v.len, NULL);
    } else if (d->kind == '-') {
        r = edit_remove(c, d->key, key_len, NULL);
    } else if (d->kind == '>') {
        r = edit_rename(c, d->key, key_len, "new.name", 8, NULL);
    }
    CU_ASSERT_EQUAL_FATAL(r, 0);
}

/* ---- checks of every plan ---- */

/* Check P1, and read the whole new image. */
static void read_back(const struct content *old, const struct edit_plan *p, struct content *ret)
{
    uint64_t at = 0;
    for (size_t i = 0; i < p->image->n; i++) {
        CU_ASSERT_EQUAL(p->image->seg[i].at, at);
        CU_ASSERT_TRUE(p->image->seg[i].len > 0);
        at += p->image->seg[i].len;
    }
    CU_ASSERT_EQUAL_FATAL(at, p->image->size);
    p->image->file[EDIT_OLD_FILE] = source_mem(old->bytes, old->n);
    struct source s = image_source(p->image);
    ret->n = (size_t)p->image->size;
    ret->bytes = malloc(ret->n);
    CU_ASSERT_EQUAL(s.read(&s, 0, ret->bytes, ret->n), 0);
    /* Read the image again, in unaligned pieces. */
    uint8_t piece[1000];
    for (size_t off = 0; off < ret->n; off += 997) {
        size_t n = min_u64(sizeof(piece), ret->n - off);
        CU_ASSERT_EQUAL(s.read(&s, off, piece, n), 0);
        CU_ASSERT_EQUAL(memcmp(piece, ret->bytes + off, n), 0);
    }
    image_parse(ret);
}

/* Check P2 and P3. */
static void check_data(const struct content *old, const struct content *new, const char *what)
{
    CU_ASSERT_EQUAL_FATAL(new->g->n_tensors, old->g->n_tensors);
    unsigned failures = CU_get_number_of_failures();
    uint64_t at = new->g->head_len, a = new->g->alignment;
    bool zero = true;
    for (uint32_t i = 0; i < new->g->n_tensors; i++) {
        const struct gguf_tensor *t = &old->g->tensor[i], *u = &new->g->tensor[i];
        for (; at % a; at++)
            zero &= new->bytes[at] == 0;
        CU_ASSERT_EQUAL(u->off, at);
        /* An extent ends where the next tensor begins, so it includes larger padding. */
        bool extent = t->type_id == UNKNOWN && i + 1 < new->g->n_tensors;
        CU_ASSERT_EQUAL(u->nbytes, extent ? (t->nbytes + a - 1) / a * a : t->nbytes);
        CU_ASSERT_EQUAL(u->type_id, t->type_id);
        CU_ASSERT_EQUAL(u->name_len, t->name_len);
        CU_ASSERT_EQUAL(memcmp(gguf_name(new->g, u), gguf_name(old->g, t), t->name_len), 0);
        CU_ASSERT_EQUAL(memcmp(new->bytes + u->off, old->bytes + t->off, t->nbytes), 0);
        at += t->nbytes;
    }
    for (; at < new->n; at++)
        zero &= new->bytes[at] == 0;
    CU_ASSERT_TRUE(zero);
    /* Bytes after a last tensor of unknown type would become part of it, so it is not padded. */
    uint32_t n = new->g->n_tensors;
    const uint32_t type = n ? new->g->tensor[n - 1].type_id : F32;
    bool bare = (type == UNKNOWN || type == RETIRED) && new->n % a;
    unsigned fine = GGUF_ANOMALY_UNKNOWN | (bare ? (unsigned)GGUF_ANOMALY_NO_TAIL : 0);
    CU_ASSERT_EQUAL(new->g->anomalies & ~fine, 0);
    CU_ASSERT_TRUE(new->g->n_tensors > 0 || new->n == new->g->head_len);
    if (CU_get_number_of_failures() > failures)
        (void)printf("\n%s\n", what);
}

/* Check P4: all keys except `changed` have the same bytes in the same order. */
static void check_keys(const struct content *old, const struct content *new, const char *changed)
{
    CU_ASSERT_EQUAL(memcmp(old->bytes, new->bytes, 8), 0);
    uint32_t j = 0;
    for (uint32_t i = 0; i < old->g->n_kv; i++) {
        const struct gguf_kv *kv = &old->g->kv[i];
        bool is = kv->key_len == strlen(changed) &&
                  memcmp(gguf_key(old->g, kv), changed, kv->key_len) == 0;
        bool kept = j < new->g->n_kv &&new->g->kv[j].end - new->g->kv[j].off ==
                    kv->end - kv->off &&memcmp(new->bytes + new->g->kv[j].off, old->bytes + kv->off,
                                               kv->end - kv->off) ==
                    0;
        CU_ASSERT_TRUE(kept || is);
        /* The changed key was removed, or keeps its position under its old or new name. */
        uint32_t k = gguf_find_key(new->g, changed, strlen(changed));
        uint32_t renamed = gguf_find_key(new->g, "new.name", 8);
        j += !is || k == j || renamed == j;
    }
}

static void check_edit(const struct layout *l, const struct content *old, const struct edit *d)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct err e = {0};
    char what[200];
    (void)snprintf(what, sizeof(what), "%s, v%u%s, alignment %llu: %c %s %u", l->name,
                   old->g->fmt.version, old->g->fmt.big ? " big" : "",
                   (unsigned long long)old->g->alignment, d->kind, d->key, d->n);
    add_edit(&c, d, old->g);
    int r = edit_plan_make(&c, &o, &p, &e);
    if (r < 0)
        (void)printf("\n%s: %s\n", what, e.msg);
    CU_ASSERT_EQUAL_FATAL(r, 0);
    struct content new;
    read_back(old, &p, &new);
    check_data(old, &new, what);
    check_keys(old, &new, d->key);
    bool same_place = new.g->data_off == old->g->data_off;
    bool aligned = new.g->alignment == old->g->alignment;
    if (aligned)
        CU_ASSERT_EQUAL(p.inplace, l->regular && same_place);
    CU_ASSERT_TRUE(!p.inplace || new.n == old->n);
    CU_ASSERT_EQUAL(gguf_find_key(new.g, KEY_RESERVE, 13), UINT32_MAX);
    CU_ASSERT_EQUAL(p.next->head_len, new.g->head_len);
    image_free(&new);
}

static void test_matrix(void)
{
    static const uint32_t alignments[] = {8, 32, 64, 4096, 65536};
    for (size_t l = 0; l < COUNT(layouts); l++)
        for (size_t a = 0; a < COUNT(alignments); a++)
            for (uint8_t kind = 0; kind < 4; kind++) {
                struct content old;
                make_model(&old, &layouts[l], 2 + kind / 2, kind & 1, alignments[a]);
                for (size_t i = 0; i < COUNT(edits); i++)
                    check_edit(&layouts[l], &old, &edits[i]);
                image_free(&old);
            }
}

/* ---- the reserve ---- */

static uint64_t moved_by; /* how far the last step moved the data */

/* Plan one edit, and replace the old image with the new one. */
static void step(struct content *im, const struct edit *d, const struct edit_options *o,
                 struct edit_plan *flags)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct content new;
    add_edit(&c, d, im->g);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, o, &p, NULL), 0);
    read_back(im, &p, &new);
    check_data(im, &new, "reserve");
    *flags = (struct edit_plan){.same = p.same, .inplace = p.inplace};
    moved_by = p.next->data_off - im->g->data_off;
    image_free(im);
    *im = new;
}

/* Return the number of spaces in the reserve, which must be the last key and contain only spaces;
 * -1: no reserve. */
static int64_t spaces(const struct content *im)
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

static void test_reserve_asked(void)
{
    struct edit_plan f;
    struct edit_options o = {.reserve = 5000, .strategy = EDIT_INPLACE};
    for (uint32_t align = 8; align <= 65536; align *= 8) {
        struct content im;
        make_model(&im, &layouts[0], 3, align & 64, align);
        /* The first rewrite adds a reserve and, if possible, moves the data by whole blocks. */
        step(&im, &(struct edit){'=', "text", 20000}, &o, &f);
        CU_ASSERT_TRUE(spaces(&im) >= 5000 || align > 20000);
        CU_ASSERT_EQUAL(moved_by % 4096, 0);
        CU_ASSERT_EQUAL(im.g->data_off - im.g->head_len, 4);
        /* After that, edits that fit change only the header, whether it grows or shrinks. */
        uint64_t off = im.g->data_off;
        for (uint32_t n = 20000; n <= 24900; n += 700) {
            step(&im, &(struct edit){'=', "text", n}, &o, &f);
            CU_ASSERT_TRUE(f.inplace);
            CU_ASSERT_EQUAL(im.g->data_off, off);
        }
        step(&im, &(struct edit){'=', "text", 10}, &o, &f);
        CU_ASSERT_TRUE(f.inplace);
        CU_ASSERT_TRUE(spaces(&im) > 20000);
        /* An edit that does not fit moves the data and makes room again. */
        step(&im, &(struct edit){'=', "text", 200000}, &o, &f);
        CU_ASSERT_TRUE(!f.inplace && moved_by % 4096 == 0);
        CU_ASSERT_TRUE(spaces(&im) >= 5000);
        /* If the options request no reserve, it is removed. */
        struct edit_options none = {.reserve = 0};
        step(&im, &(struct edit){'=', "text", 5}, &none, &f);
        CU_ASSERT_EQUAL(spaces(&im), -1);
        image_free(&im);
    }
}

/* A text can grow until only one byte separates the header from the data. */
static void test_reserve_edge(void)
{
    struct edit_plan f;
    struct edit_options o = {.reserve = 100, .strategy = EDIT_INPLACE};
    struct content im;
    make_model(&im, &layouts[0], 3, false, 32);
    step(&im, &(struct edit){'=', "text", 1000}, &o, &f);
    uint32_t n = 1000 + (uint32_t)spaces(&im);
    uint64_t off = im.g->data_off;
    for (uint32_t k = 0; k <= 3; k++) {
        step(&im, &(struct edit){'=', "text", n + k}, &o, &f);
        CU_ASSERT_TRUE(f.inplace);
        CU_ASSERT_EQUAL(im.g->data_off, off);
        CU_ASSERT_EQUAL(spaces(&im), 0);
        CU_ASSERT_EQUAL(off - im.g->head_len, 4 - k);
    }
    step(&im, &(struct edit){'=', "text", n + 4}, &o, &f);
    /* The reserve's own entry is dropped before data is moved. */
    CU_ASSERT_TRUE(!f.inplace || spaces(&im) == -1);
    CU_ASSERT_EQUAL(moved_by % 4096, 0);
    image_free(&im);
}

static void test_reserve_auto(void)
{
    struct edit_plan f;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct content im;
    make_model(&im, &layouts[0], 3, false, 32);
    step(&im, &(struct edit){'=', "text", 1000}, &o, &f);
    CU_ASSERT_EQUAL(spaces(&im), -1); /* too small for a reserve */
    im.g->file_size = EDIT_RESERVE_FROM + 1;
    step(&im, &(struct edit){'=', "text", 1200}, &o, &f);
    CU_ASSERT_TRUE(spaces(&im) >= (int64_t)EDIT_RESERVE_DEFAULT);
    CU_ASSERT_EQUAL(moved_by % 4096, 0);
    /* A small file keeps its existing reserve. */
    int64_t had = spaces(&im);
    step(&im, &(struct edit){'=', "text", 1300}, &o, &f);
    CU_ASSERT_EQUAL(spaces(&im), had - 100);
    CU_ASSERT_TRUE(f.inplace);
    /* Without tensors there is no data to keep in place. */
    image_free(&im);
    make_model(&im, &layouts[8], 3, false, 32);
    o.reserve = 5000;
    step(&im, &(struct edit){'=', "text", 1300}, &o, &f);
    CU_ASSERT_EQUAL(spaces(&im), -1);
    image_free(&im);
}

static void test_same(void)
{
    struct edit_plan f;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct content im;
    make_model(&im, &layouts[0], 3, false, 32);
    step(&im, &(struct edit){'=', "text", 6}, &o, &f);
    CU_ASSERT_FALSE(f.same);
    step(&im, &(struct edit){'=', "text", 6}, &o, &f);
    CU_ASSERT_TRUE(f.same);
    image_free(&im);
    /* Without tensors, only an edit that changes nothing applies in place. */
    make_model(&im, &layouts[8], 3, false, 32);
    step(&im, &(struct edit){'=', "text", 6}, &o, &f);
    CU_ASSERT_FALSE(f.same || f.inplace);
    step(&im, &(struct edit){'=', "text", 6}, &o, &f);
    CU_ASSERT_TRUE(f.same && !f.inplace);
    image_free(&im);
}

/* Bytes are not written in place if the padding after the last tensor is missing. */
static void test_no_tail(void)
{
    static const unsigned of[] = {0, 7};
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(edit_change_free) struct edit_change c;
        CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
        struct edit_options o = EDIT_OPTIONS_INIT;
        struct content im;
        make_model(&im, &layouts[of[i]], 3, false, 32);
        struct log *d = memory_draft("abcd", 4);
        const struct tensor_piece piece = {0, 4, 0, d};
        edit_change_init(&c, &(struct edit_base){.g = im.g});
        CU_ASSERT_EQUAL(edit_tensor_set(&c, "one", 3, NULL, &piece, 1, NULL), 0);
        CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
        CU_ASSERT_EQUAL(p.changed, 4);
        CU_ASSERT_EQUAL(p.inplace, i == 0);
        log_unref(d);
        image_free(&im);
    }
}

static int refuse(struct build *b, const char *op, const void *value, size_t n, unsigned flags,
                  size_t cut)
{
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct edit_plan p = EDIT_PLAN_INIT;
    struct err e = {0};
    CLEANUP(edit_change_free) struct edit_change c;
    size_t size;
    uint8_t *bytes = build_finish(b, &size);
    struct source s = source_mem(bytes, size - cut);
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, flags, &g, NULL), 0);
    uint32_t type = *op == 's' ? GGUF_STRING : *op == 'a' ? GGUF_ARRAY : GGUF_U32;
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(set_bytes(&c, "key", 3, type, value, n, NULL), 0);
    int r = edit_plan_make(&c, &o, &p, &e);
    CU_ASSERT_EQUAL(e.code, r);
    CU_ASSERT_EQUAL(e.msg[0] != '\0', r < 0);
    CU_ASSERT_PTR_NULL(r < 0 ? p.head.data : NULL);
    edit_plan_free(&p);
    gguf_free(g);
    free(bytes);
    return r;
}

static void test_refused_files(void)
{
    struct build b;
    build_init(&b, 1, false);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EROFS);
    build_init(&b, 2, false);
    b.fmt.nul = true;
    build_str(&b, "x", "y");
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EROFS);
    build_init(&b, 3, false);
    build_raw(&b, "key\0x", 5, GGUF_U32, "abcd", 4); /* the new key equals this one up to a NUL */
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EINVAL);
    build_init(&b, 3, false);
    put_tensors(&b, &layouts[0]);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, GGUF_PARTIAL, 32), -EROFS);
    build_init(&b, 3, false); /* a tensor of unknown type that begins where the file ends */
    build_tensor_at(&b, "empty", UNKNOWN, (uint64_t[]){8}, 1, 32, NULL, 0);
    build_tensor_at(&b, "full", F32, (uint64_t[]){8}, 1, 0, NULL, 32);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), -EROFS);
    build_init(&b, 3, false); /* a tensor of unknown type without elements */
    build_tensor(&b, "none", UNKNOWN, (uint64_t[]){0}, 1, NULL, 0);
    put_tensors(&b, &layouts[0]);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), 0);
    build_init(&b, 3, false);
    put_tensors(&b, &layouts[0]);
    CU_ASSERT_EQUAL(refuse(&b, "u", "abcd", 4, 0, 0), 0);
}

/* Bytes other than exactly one value of the type are refused, even if they could be read as
 * something else. */
static void test_refused_values(void)
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
            struct build b;
            build_init(&b, 3, false);
            build_u32(&b, "key", 1);
            if (more % 2) /* a value that is too short would swallow the bytes of this key */
                build_str(&b, "z", "zzzzzzzzzzzzzzzzzzzz");
            if (more < 2)
                put_tensors(&b, &layouts[0]);
            CU_ASSERT_EQUAL(refuse(&b, cases[i].op, cases[i].value, cases[i].n, 0, 0),
                            cases[i].code);
        }
}

static void test_large_header(void)
{
    struct build b;
    size_t n;
    struct gguf *g = NULL;
    struct err e = {0};
    const struct edit_options o = {.reserve = 65536};
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    build_init(&b, 3, false);
    put_tensors(&b, &layouts[0]);
    uint8_t *bytes = build_finish(&b, &n);
    struct source s = source_mem(bytes, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    struct buf value = {.data = malloc(1), .len = GGUF_MAX_HEADER - 65536};
    struct edit_value *v = edit_value_make(GGUF_STRING, &value);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_set(&c, "large", 5, v, NULL), 0);
    CU_ASSERT_EQUAL(edit_plan_make(&c, &o, &p, &e), -EFBIG);
    CU_ASSERT_STRING_EQUAL(e.msg, "the header would be over 4294967296 bytes");
    edit_value_unref(v);
    gguf_free(g);
    free(bytes);
}

static CU_TestInfo tests[] = {
    {"every edit of every layout keeps data and other keys", test_matrix},
    {"a reserve keeps the data in place or moves it by whole blocks", test_reserve_asked},
    {"a reserve is used up to its last byte", test_reserve_edge},
    {"an automatic reserve is only made in a large file", test_reserve_auto},
    {"an edit that changes nothing is recognised", test_same},
    {"a model without padding at its end can be edited", test_no_tail},
    {"a header that becomes too large with its reserve is refused", test_large_header},
    {"files that cannot be edited are refused", test_refused_files},
    {"bytes that are not a value are refused", test_refused_values},
    CU_TEST_INFO_NULL,
};

CU_MAIN("plan", tests)
