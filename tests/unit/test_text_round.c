/* SPDX-License-Identifier: MIT */
/* text/text with random values and texts. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "text/text.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};
static const struct gguf_format v2_big = {.version = 2, .len_width = 8, .big = true};
static const struct gguf_format *const formats[] = {&v3, &v2_big};
enum { FORMATS = 2 };

static void same(const struct buf *got, const struct buf *want, const char *what)
{
    bool ok =
        got->len == want->len && (want->len == 0 || memcmp(got->data, want->data, want->len) == 0);
    CU_ASSERT_TRUE(ok);
    if (!ok)
        (void)fprintf(stderr, "%s differs\n", what);
}

/* State of xorshift64, which returns the same numbers in every run. */
static uint64_t state;

static uint64_t rnd(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static void random_number(struct buf *b, const struct gguf_format *fmt, uint32_t type)
{
    uint64_t bits = rnd(1ull << 32) << 32 | rnd(1ull << 32);
    buf_uint(b, type == GGUF_BOOL ? bits % 3 : bits, gguf_types[type].width, fmt->big);
}

static void random_string(struct buf *b, const struct gguf_format *fmt)
{
    static const char *const piece[] = {
        "a",    "\"",           "\\", "\n",       "\xc3\xa9",         "\xff",
        "\x01", "\xed\xa0\x80", " ",  "ordinary", "\xf0\x9f\x98\x80", "\xe4\xb8"};
    CLEANUP(buf_free) struct buf s = BUF_INIT;
    for (uint64_t i = rnd(6); i > 0; i--)
        buf_str(&s, piece[rnd(12)]);
    buf_uint(b, s.len, 8, fmt->big);
    buf_add(b, s.data, s.len);
}

static uint32_t random_elem(void)
{
    uint32_t elem = (uint32_t)rnd(GGUF_VALUE_TYPES);
    return elem == GGUF_ARRAY ? (uint32_t)GGUF_I16 : elem;
}

static void random_value(struct buf *b, const struct gguf_format *fmt, uint32_t type)
{
    if (type == GGUF_STRING) {
        random_string(b, fmt);
    } else if (type == GGUF_ARRAY) {
        const uint32_t elem = random_elem();
        uint64_t count = rnd(5);
        buf_uint(b, elem, 4, fmt->big);
        buf_uint(b, count, 8, fmt->big);
        for (; count > 0; count--)
            random_value(b, fmt, elem);
    } else {
        random_number(b, fmt, type);
    }
}

/* Check that a value's text written over the value gives the same bytes, and that the text alone
 * gives a value with the same text. */
static void round_trip(const struct gguf_value *v, const struct buf *payload)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT, got = BUF_INIT, again = BUF_INIT, anew = BUF_INIT;
    text_value(&text, v);
    CU_ASSERT_EQUAL(text_parse(v->fmt, v->type, v->elem, text.data, text.len, v, &got, NULL), 0);
    same(&got, payload, "round trip");
    int r = text_parse(v->fmt, v->type, v->elem, text.data, text.len, NULL, &anew, NULL);
    CU_ASSERT_TRUE(r == 0 || (r == -EILSEQ && v->type == GGUF_STRING));
    if (r < 0)
        return;
    struct gguf_value w = gguf_value_at(v->fmt, v->type, anew.data);
    CU_ASSERT_PTR_EQUAL(gguf_value_end(&w), anew.data + anew.len);
    text_value(&again, &w);
    same(&again, &text, "text anew");
}

static void test_random_round_trip(void)
{
    state = 0x243f6a8885a308d3;
    for (int i = 0; i < 6000; i++) {
        CLEANUP(buf_free) struct buf payload = BUF_INIT;
        const struct gguf_format *fmt = formats[i % FORMATS];
        uint32_t type = i % 3 ? (uint32_t)i / 2 % GGUF_VALUE_TYPES : (uint32_t)GGUF_ARRAY;
        random_value(&payload, fmt, type);
        struct gguf_value v = gguf_value_at(fmt, type, payload.data);
        round_trip(&v, &payload);
    }
}

static CU_TestInfo tests[] = {
    {"random values survive a round trip", test_random_round_trip},
    CU_TEST_INFO_NULL,
};

CU_MAIN("text_round", tests)
