/* SPDX-License-Identifier: MIT */
/* A metadata value from its text: see text_parse.h. */
#include "text/text_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "gguf/gguf.h"
#include "text/json.h"
#include "text/scan.h"
#include "text/shape.h"
#include "text/text.h"
#include "text/type_name.h"

/* The state of one text_parse(). */
struct parse {
    const struct gguf_format *fmt;
    struct reader r;
    struct buf *out;
    size_t start; /* of the payload in out */
};

/* The bytes of an existing value behind its type word. */
static const uint8_t *payload_of(const struct gguf_value *v, size_t *n)
{
    size_t head = 0;
    if (v->type == GGUF_STRING)
        head = v->fmt->len_width;
    else if (v->type == GGUF_ARRAY)
        head = (size_t)4 + v->fmt->len_width;
    const uint8_t *p = v->data - head;
    *n = (size_t)(gguf_value_end(v) - p);
    return p;
}

static void keep_payload(struct buf *out, const struct gguf_value *v)
{
    size_t n;
    const uint8_t *p = payload_of(v, &n);
    buf_add(out, p, n);
}

/* True if `write` writes exactly the text, or (prefix) the beginning of the text. */
static bool writes(void (*write)(struct buf *, const struct gguf_value *),
                   const struct gguf_value *v, const uint8_t *text, size_t n, size_t *len)
{
    struct buf size = BUF_MEASURE;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    write(&size, v);
    if (size.len > n)
        return false;
    write(&b, v);
    *len = b.len;
    return !buf_error(&b) && (b.len == 0 || memcmp(b.data, text, b.len) == 0);
}

/* A string's text is the string, except for one newline at the end, if it has one. */
static size_t string_len(const uint8_t *text, size_t n)
{
    return n && text[n - 1] == '\n' ? n - 1 : n;
}

static bool unchanged(const struct gguf_value *old, const uint8_t *text, size_t n)
{
    size_t len = string_len(text, n);
    if (old->type == GGUF_STRING)
        return len == old->len && memcmp(old->data, text, len) == 0;
    return writes(text_value, old, text, n, &len) && len == n;
}

static const char *noun(uint32_t type)
{
    switch (gguf_types[type].kind) {
    case GGUF_KIND_UINT:
    case GGUF_KIND_INT:
        return "an integer";
    case GGUF_KIND_FLOAT:
        return "a number";
    default:
        return "true or false";
    }
}

/* The line for an error of scan_scalar(); %s is the word. */
static int scalar_error(struct err *e, int code, uint32_t type, const uint8_t *word, size_t n)
{
    char s[SHOW_MAX];
    if (code == -ERANGE)
        return err_set(e, code, "%s is outside the range of %s", show(s, word, n),
                       gguf_types[type].name);
    if (code == -EINVAL)
        return err_set(e, code, "'%s' is not %s", show(s, word, n), noun(type));
    return err_set(e, code, "no memory");
}

static bool is_nan(uint32_t type, uint64_t bits)
{
    if (type == GGUF_F32)
        return (bits & 0x7fffffff) > 0x7f800000;
    return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
}

/*
 * A NaN keeps its bits, and true its byte (1 by the specification, but any byte is read as true).
 */
static uint64_t keep_bits(const struct gguf_value *old, uint64_t bits)
{
    if (!old || (old->type != GGUF_F32 && old->type != GGUF_F64 && old->type != GGUF_BOOL))
        return bits;
    uint64_t was = gguf_uint(old);
    if (old->type == GGUF_BOOL)
        return bits && was ? was : bits;
    return is_nan(old->type, bits) && is_nan(old->type, was) ? was : bits;
}

static int parse_scalar(struct parse *p, uint32_t type, const struct gguf_value *old)
{
    const uint8_t *word = p->r.at;
    size_t n = (size_t)(p->r.end - word);
    uint64_t bits;
    scan_trim(&word, &n);
    int r = scan_scalar(type, word, n, &bits);
    if (r < 0)
        return scalar_error(p->r.err, r, type, word, n);
    buf_uint(p->out, keep_bits(old, bits), gguf_types[type].width, p->fmt->big);
    return 0;
}

/* Bytes at p that are valid UTF-8. */
static size_t valid_run(const uint8_t *p, size_t n)
{
    size_t i = 0, len;
    while (i < n && (len = utf8_len(p + i, n - i)) > 0)
        i += len;
    return i;
}

static int too_big(const struct parse *p)
{
    return err_set(p->r.err, -EFBIG, "the value is over 1 GiB");
}

static int parse_string(struct parse *p)
{
    const uint8_t *s = p->r.at;
    size_t n = string_len(s, (size_t)(p->r.end - s));
    if (n > GGUF_MAX_STRING)
        return too_big(p);
    size_t valid = valid_run(s, n);
    if (valid < n)
        return err_set(p->r.err, -EILSEQ, "byte %zu (0x%02x) is not valid UTF-8", valid, s[valid]);
    buf_uint(p->out, n, p->fmt->len_width, p->fmt->big);
    buf_add(p->out, s, n);
    return 0;
}

/* Write a number into the output at `at`, where room was left for it. */
static void patch(struct parse *p, size_t at, uint64_t v)
{
    if (!buf_error(p->out))
        put_uint(p->out->data + at, v, p->fmt->len_width, p->fmt->big);
}

static int item_string(struct parse *p)
{
    size_t at = p->out->len;
    buf_zero(p->out, p->fmt->len_width);
    int r = reader_string(&p->r, p->out);
    if (r == 0)
        patch(p, at, p->out->len - at - p->fmt->len_width);
    return r;
}

static int item_scalar(struct parse *p, uint32_t type, const struct gguf_value *old)
{
    const uint8_t *word;
    size_t n;
    uint64_t bits;
    struct reader here = p->r;
    int r = reader_word(&p->r, &word, &n);
    if (r < 0)
        return r;
    r = scan_scalar(type, word, n, &bits);
    if (r < 0) {
        struct err what = {0};
        (void)scalar_error(&what, r, type, word, n);
        return reader_fail(&here, r, "%s", what.msg);
    }
    buf_uint(p->out, keep_bits(old, bits), gguf_types[type].width, p->fmt->big);
    return 0;
}

/* Walks the elements of the old array beside those of the text, as long as there are any. */
struct beside {
    struct gguf_walk walk;
    struct gguf_value item; /* the current element, or else the last one (any: false if none) */
    bool any, current;
};

static void beside_next(struct beside *b)
{
    struct gguf_value next;
    b->current = gguf_next(&b->walk, &next);
    if (!b->current)
        return;
    b->item = next;
    b->any = true;
}

static int parse_items(struct parse *p, struct items *it, uint32_t elem,
                       const struct type_node *inner, const struct gguf_value *old, unsigned depth);

/* The element type of the inner array at p->r.at. */
static int inner_type(struct parse *p, const struct beside *b, uint32_t *elem)
{
    struct reader ahead = p->r;
    struct shape s;
    int r = shape_array(&ahead, &s);
    if (r < 0)
        return r;
    *elem = b->any ? b->item.elem : (uint32_t)GGUF_U32;
    if (((b->any || s.kinds == 0) && shape_fits(&s, *elem)) || shape_type(&s, elem))
        return 0;
    if (s.kinds == SHAPE_INTEGER)
        return reader_fail(&p->r, -ERANGE, "an integer is outside the range of u64 and i64");
    return reader_fail(&p->r, -EINVAL, "the values of an array must be of one kind");
}

/* types: of the array's elements and of its siblings', as far as they were given. */
static int item_array(struct parse *p, struct type_walk *types, const struct beside *b,
                      unsigned depth)
{
    size_t len;
    const struct type_node *given = type_walk_next(types);
    uint32_t elem = given ? given->elem : 0;
    if (!reader_at(&p->r, '['))
        return reader_fail(&p->r, -EINVAL, "a JSON array [...] is expected");
    if (b->current &&
        writes(json_line_value, &b->item, p->r.at, (size_t)(p->r.end - p->r.at), &len)) {
        keep_payload(p->out, &b->item);
        p->r.at += len;
        return 0;
    }
    if (depth >= GGUF_MAX_DEPTH)
        return reader_fail(&p->r, -EINVAL, "arrays are nested more than %d deep", GGUF_MAX_DEPTH);
    int r = given ? 0 : inner_type(p, b, &elem);
    if (r < 0)
        return r;
    struct items it = items_begin_array(&p->r);
    const struct gguf_value *old = b->current && b->item.elem == elem ? &b->item : NULL;
    return parse_items(p, &it, elem, given ? given->inner : NULL, old, depth);
}

static int parse_item(struct parse *p, uint32_t type, struct type_walk *types,
                      const struct beside *b, unsigned depth)
{
    if (type == GGUF_STRING)
        return item_string(p);
    if (type == GGUF_ARRAY)
        return item_array(p, types, b, depth + 1);
    return item_scalar(p, type, b->current ? &b->item : NULL);
}

/* Element type, count and elements. old: of the same element type, or NULL. */
static int parse_items(struct parse *p, struct items *it, uint32_t elem,
                       const struct type_node *inner, const struct gguf_value *old, unsigned depth)
{
    struct beside b = {.walk = {0}};
    struct type_walk types = type_walk(inner);
    uint64_t count = 0;
    int r;
    if (old)
        b.walk = gguf_walk(old);
    buf_uint(p->out, elem, 4, p->fmt->big);
    size_t count_at = p->out->len;
    buf_zero(p->out, p->fmt->len_width);
    for (; (r = items_next(it)) > 0; count++) {
        beside_next(&b);
        if ((r = parse_item(p, elem, &types, &b, depth)) < 0)
            return r;
        if (p->out->len - p->start > GGUF_MAX_STRING)
            return too_big(p);
    }
    if (r == 0)
        patch(p, count_at, count);
    return r;
}

static int parse_array(struct parse *p, const struct type_name *t, const struct gguf_value *old)
{
    struct items it = items_begin_text(&p->r, t->elem != GGUF_ARRAY);
    struct type_node *inner;
    int r = type_nodes(t->inner, &inner);
    if (r < 0)
        return err_set(p->r.err, r, "no memory");
    r = parse_items(p, &it, t->elem, inner, old, 0);
    free(inner);
    if (r < 0)
        return r;
    reader_skip_space(&p->r);
    return p->r.at == p->r.end ? 0 : reader_fail(&p->r, -EINVAL, "text follows the array");
}

static int parse_value(struct parse *p, const struct type_name *t, const struct gguf_value *old)
{
    size_t n = (size_t)(p->r.end - p->r.at);
    if (old && unchanged(old, p->r.at, n)) {
        keep_payload(p->out, old);
        return 0;
    }
    if (n > GGUF_MAX_STRING + 1) /* a string's text may end with a newline */
        return too_big(p);
    if (t->type == GGUF_ARRAY)
        return parse_array(p, t, old);
    return t->type == GGUF_STRING ? parse_string(p) : parse_scalar(p, t->type, old);
}

int text_parse(const struct gguf_format *fmt, uint32_t type, uint32_t elem, const uint8_t *text,
               size_t n, const struct gguf_value *old, struct buf *payload, struct err *e)
{
    const struct type_name t = {.type = type, .elem = elem};
    return text_parse_as(fmt, &t, text, n, old, payload, e);
}

int text_parse_as(const struct gguf_format *fmt, const struct type_name *t, const uint8_t *text,
                  size_t n, const struct gguf_value *old, struct buf *payload, struct err *e)
{
    if (!text)
        text = (const uint8_t *)"";
    struct parse p = {
        .fmt = fmt, .r = {text, text, text + n, e}, .out = payload, .start = payload->len};
    if (old && (old->type != t->type || (t->type == GGUF_ARRAY && old->elem != t->elem)))
        old = NULL;
    if (old && t->inner.p && !type_name_is(old, t->inner))
        old = NULL;
    int r = parse_value(&p, t, old);
    if (r == 0 && buf_error(payload))
        r = err_set(e, buf_error(payload), "no memory");
    if (r < 0)
        payload->len = p.start;
    return r;
}
