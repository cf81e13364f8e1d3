/* SPDX-License-Identifier: MIT */
/* edit/plan: the reserve, and what is refused. tests/fuzz/fuzz_edit.c makes edits of every kind in
 * every layout. */
#include "cu_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "edit/plan.h"
#include "quant/types.h"
#include "gguf/value.h"

enum { F32 = 0, UNKNOWN = QUANT_N_TYPES };

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
