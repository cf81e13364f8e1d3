/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as the text of a value: the first three choose the type, the element type
 * and the byte order; the rest is the text. An accepted text gives a value that the parser reads
 * back, and the value's own text is accepted again and changes no byte.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "gguf/gguf.h"
#include "text/text.h"

struct input {
    struct gguf_format fmt;
    uint32_t type, elem;
    const uint8_t *text;
    size_t n;
};

static bool same(const struct buf *a, const struct buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* Check that the parser reads a model with this one value. */
static void check_readable(const struct input *in, const struct buf *payload)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    struct gguf *g = NULL;
    buf_str(&b, "GGUF");
    buf_uint(&b, in->fmt.version, 4, in->fmt.big);
    buf_uint(&b, 0, 8, in->fmt.big);
    buf_uint(&b, 1, 8, in->fmt.big);
    buf_uint(&b, 1, 8, in->fmt.big);
    buf_char(&b, 'k');
    buf_uint(&b, in->type, 4, in->fmt.big);
    buf_add(&b, payload->data, payload->len);
    FUZZ_CHECK(buf_error(&b) == 0);
    struct source s = source_mem(b.data, b.len);
    FUZZ_CHECK(gguf_parse(&s, 0, &g, NULL) == 0);
    FUZZ_CHECK(g->head_len == b.len);
    gguf_free(g);
}

/*
 * Check that the file's text is accepted: written over the value, it changes no byte; written
 * without an old value, it gives a value with the same text (but inner arrays may get a different
 * type, which is inferred).
 */
static void check_again(const struct input *in, const struct buf *payload)
{
    CLEANUP(buf_free)
    struct buf text = BUF_INIT, over = BUF_INIT, alone = BUF_INIT, text2 = BUF_INIT;
    struct gguf_value v = gguf_value_at(&in->fmt, in->type, payload->data), v2;
    text_value(&text, &v);
    FUZZ_CHECK(text_parse(&in->fmt, in->type, in->elem, text.data, text.len, &v, &over, NULL) == 0);
    FUZZ_CHECK(same(&over, payload));
    FUZZ_CHECK(text_parse(&in->fmt, in->type, in->elem, text.data, text.len, NULL, &alone, NULL) ==
               0);
    v2 = gguf_value_at(&in->fmt, in->type, alone.data);
    text_value(&text2, &v2);
    FUZZ_CHECK(same(&text, &text2));
}

static int parse(const struct input *in)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    struct err e = {0};
    int r = text_parse(&in->fmt, in->type, in->elem, in->text, in->n, NULL, &payload, &e);
    if (r < 0) {
        FUZZ_CHECK(r == -EINVAL || r == -ERANGE || r == -EILSEQ || r == -EFBIG || r == -EOPNOTSUPP);
        FUZZ_CHECK(payload.len == 0 && !strchr(e.msg, '\n'));
        return r;
    }
    check_readable(in, &payload);
    check_again(in, &payload);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    struct input in = {
        .fmt = {.version = 3, .len_width = 8, .big = data[2] & 1},
        .type = data[0] % GGUF_VALUE_TYPES,
        .elem = data[1] % GGUF_VALUE_TYPES,
        .text = data + 3,
        .n = size - 3,
    };
    (void)parse(&in);
    /*
     * A new key gets a type inferred from its text. The text fits this type, unless it is a string
     * that is not UTF-8 or a float too large for any type.
     */
    text_new_type(NULL, in.text, in.n, &in.type, &in.elem);
    int r = parse(&in);
    FUZZ_CHECK(r == 0 || r == -EILSEQ || r == -ERANGE);
    return 0;
}
