/* SPDX-License-Identifier: MIT */
/* The text of a metadata value, and back: see text.h. */
#include "text/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "gguf/gguf.h"
#include "text/json.h"
#include "text/number.h"

void text_value(struct buf *out, const struct gguf_value *v)
{
    struct gguf_value item;
    if (v->type == GGUF_ARRAY) {
        for (struct gguf_walk w = gguf_walk(v); gguf_next(&w, &item);) {
            json_line_value(out, &item);
            buf_char(out, '\n');
        }
        return;
    }
    if (v->type == GGUF_STRING)
        buf_add(out, v->data, (size_t)v->len);
    else
        text_scalar(out, v, &float_names_text);
    buf_char(out, '\n');
}

/* ---- a type as text ---- */

/* Append the one type that all inner arrays have. Returns false, and appends nothing, if they
 * differ, or if there are none. */
static bool put_inner(const struct gguf_value *array, struct buf *out)
{
    const size_t begin = out->len;
    size_t n = 0; /* the length of that type's name */
    struct gguf_value item;
    for (struct gguf_walk w = gguf_walk(array); gguf_next(&w, &item);) {
        const size_t at = out->len;
        type_name_put(&item, out);
        if (buf_error(out))
            return false;
        if (n == 0) {
            n = out->len - at;
            continue;
        }
        const bool same = out->len - at == n && memcmp(out->data + at, out->data + begin, n) == 0;
        out->len = same ? at : begin;
        if (!same)
            return false;
    }
    return n > 0;
}

void type_name_put(const struct gguf_value *v, struct buf *out)
{
    if (v->type != GGUF_ARRAY) {
        buf_str(out, gguf_types[v->type].name);
        return;
    }
    buf_str(out, "array[");
    if (v->elem != GGUF_ARRAY || !put_inner(v, out))
        buf_str(out, gguf_types[v->elem].name);
    buf_char(out, ']');
}

static bool plain_type(struct text name, uint32_t *type)
{
    for (*type = 0; *type < GGUF_VALUE_TYPES; ++*type)
        if (*type != GGUF_ARRAY && text_is(name, gguf_types[*type].name))
            return true;
    return false;
}

bool type_name_get(const char *name, size_t n, uint32_t *type, uint32_t *elem)
{
    static const char head[] = "array[";
    enum { HEAD = sizeof(head) - 1 };
    const struct text t = {name, n};
    *elem = 0;
    if (!text_begins(t, head))
        return plain_type(t, type);
    *type = GGUF_ARRAY;
    if (name[n - 1] != ']')
        return false;
    const struct text of = {name + HEAD, n - HEAD - 1};
    if (!text_is(of, "array") &&
        !(text_begins(of, head) && type_name_get(of.at, of.len, elem, &(uint32_t){0})))
        return plain_type(of, elem);
    *elem = GGUF_ARRAY;
    return true;
}

/*
 * ---- JSON values ----
 *
 * The text of an array is one JSON value per line (JSON Lines), or one JSON array over any number of
 * lines. Numbers are words here (number.h), so they stay exact. Strings are bytes, so bytes that are
 * not UTF-8 survive. Errors are -EINVAL or -EILSEQ with "line N: ...".
 */

struct reader {
    const uint8_t *start; /* start of the text, for line numbers */
    const uint8_t *at;    /* the next byte */
    const uint8_t *end;
    struct err *err; /* may be NULL */
};

/* Fail at r->at: "line N: ...". Returns code. */
static int reader_fail(const struct reader *r, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int reader_fail(const struct reader *r, int code, const char *fmt, ...)
{
    char what[sizeof(r->err->msg)];
    size_t line = 1;
    if (!r->err)
        return code;
    for (const uint8_t *p = r->start; p < r->at; p++)
        line += *p == '\n';
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_set(r->err, code, "line %zu: %.480s", line, what);
}

static bool reader_at(const struct reader *r, uint8_t c)
{
    return r->at < r->end && *r->at == c;
}

static void reader_skip_space(struct reader *r)
{
    while (r->at < r->end && is_space(*r->at))
        r->at++;
}

static void reader_skip_blanks(struct reader *r)
{
    while (r->at < r->end && is_space(*r->at) && *r->at != '\n')
        r->at++;
}

/* Return the value of the four hex digits of \uXXXX at p, or -1 if there are fewer digits. */
static int hex4(const uint8_t *p, const uint8_t *end)
{
    char digits[5] = "";
    memcpy(digits, p, (size_t)(end - p < 4 ? end - p : 4));
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (int)strtoul(digits, NULL, 16) : -1;
}

static void add_utf8(struct buf *out, uint32_t c)
{
    uint8_t s[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        s[i] = (uint8_t)(0x80 | (c & 0x3f));
    s[0] = (uint8_t)(lead[n] | c);
    buf_add(out, s, n);
}

/* Read the second half of a surrogate pair, "\uDC00" to "\uDFFF", at r->at. Returns -1 if there
 * is none. */
static int low_half(struct reader *r)
{
    if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
        return -1;
    int low = hex4(r->at + 2, r->end);
    if (low < 0xdc00 || low > 0xdfff)
        return -1;
    r->at += 6;
    return low;
}

/* Read "\uXXXX", with r->at after the u. A low half completes a pair if it follows a high half;
 * alone, it may be an escaped byte. */
static int unicode_escape(struct reader *r, struct buf *out)
{
    int c = hex4(r->at, r->end);
    if (c < 0)
        return reader_fail(r, -EINVAL, "\\u needs four hex digits");
    r->at += 4;
    if (c < 0xd800 || c > 0xdfff) {
        add_utf8(out, (uint32_t)c);
        return 0;
    }
    if (c >= 0xdc80 && c <= 0xdcff) {
        buf_char(out, (char)(c & 0xff));
        return 0;
    }
    int low = c < 0xdc00 ? low_half(r) : -1;
    if (low < 0)
        return reader_fail(r, -EINVAL, "\\u%04x is half of a surrogate pair", (unsigned)c);
    add_utf8(out, 0x10000 + (((uint32_t)c - 0xd800) << 10) + ((uint32_t)low - 0xdc00));
    return 0;
}

/* Read an escape, with r->at at the backslash. */
static int read_escape(struct reader *r, struct buf *out)
{
    static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (r->end - r->at < 2)
        return reader_fail(r, -EINVAL, "the string is not terminated");
    uint8_t c = r->at[1];
    if (c == 'u') {
        r->at += 2;
        return unicode_escape(r, out);
    }
    const char *known = c ? strchr(plain, c) : NULL;
    if (!known) {
        char s[SHOW_MAX];
        return reader_fail(r, -EINVAL, "'%s' is not an escape", show(s, r->at, 2));
    }
    buf_char(out, meant[known - plain]);
    r->at += 2;
    return 0;
}

/* Report a byte that a string must not contain. */
static int bad_byte(const struct reader *r)
{
    uint8_t c = *r->at;
    if (c == '\n')
        return reader_fail(r, -EINVAL, "the string is not terminated");
    if (c < 0x20)
        return reader_fail(r, -EINVAL, "byte 0x%02x in a string needs an escape", c);
    return reader_fail(r, -EILSEQ, "byte 0x%02x in a string is not valid UTF-8", c);
}

/* Decode the string at r->at, and append it to out. */
static int reader_string(struct reader *r, struct buf *out)
{
    if (!reader_at(r, '"'))
        return reader_fail(r, -EINVAL, "a string in double quotes is expected");
    r->at++;
    while (r->at < r->end) {
        size_t run = json_run(r->at, (size_t)(r->end - r->at));
        buf_add(out, r->at, run);
        r->at += run;
        if (reader_at(r, '"')) {
            r->at++;
            return 0;
        }
        if (r->at == r->end)
            break;
        size_t hidden = utf8_hidden(r->at, (size_t)(r->end - r->at));
        buf_add(out, r->at, hidden);
        r->at += hidden;
        int e = hidden ? 0 : *r->at == '\\' ? read_escape(r, out) : bad_byte(r);
        if (e < 0)
            return e;
    }
    return reader_fail(r, -EINVAL, "the string is not terminated");
}

static int unexpected(const struct reader *r, const char *wanted)
{
    char s[SHOW_MAX];
    size_t left = (size_t)(r->end - r->at);
    if (left == 0)
        return reader_fail(r, -EINVAL, "%s is expected", wanted);
    return reader_fail(r, -EINVAL, "%s is expected at '%s'", wanted,
                       show(s, r->at, left < 20 ? left : 20));
}

struct items {
    struct reader *r;
    bool bracket; /* [a, b]; else one value per line */
    bool first;
};

/* Begin the values of a text. Blank lines before a "[" are skipped. */
static struct items items_begin(struct reader *r)
{
    struct reader peek = *r;
    reader_skip_space(&peek);
    const bool bracket = reader_at(&peek, '[');
    if (bracket) {
        *r = peek;
        r->at++;
    }
    return (struct items){r, bracket, true};
}

static int next_in_array(struct items *it)
{
    struct reader *r = it->r;
    reader_skip_space(r);
    if (reader_at(r, ']')) {
        r->at++;
        return 0;
    }
    if (it->first) {
        it->first = false;
        return 1;
    }
    if (!reader_at(r, ','))
        return unexpected(r, "',' or ']'");
    r->at++;
    reader_skip_space(r);
    return reader_at(r, ']') ? unexpected(r, "a value") : 1;
}

static int next_line(struct items *it)
{
    struct reader *r = it->r;
    if (!it->first) { /* move from the end of a value's line to the next line */
        reader_skip_blanks(r);
        if (r->at < r->end && *r->at != '\n')
            return unexpected(r, "the end of the line");
        r->at += r->at < r->end;
    }
    it->first = false;
    reader_skip_blanks(r);
    if (r->at < r->end && *r->at != '\n')
        return 1;
    struct reader rest = *r;
    reader_skip_space(&rest);
    return rest.at == rest.end ? 0 : reader_fail(r, -EINVAL, "the line is empty");
}

/* Move to the next value. Returns 1 with r->at at that value, 0 with r->at after the array if no
 * values are left, or -errno. */
static int items_next(struct items *it)
{
    return it->bracket ? next_in_array(it) : next_line(it);
}

bool type_of_name(const char *file, char key[TREE_NAME_MAX + 1], uint32_t *type, uint32_t *elem)
{
    const char *colon = strrchr(file, ':');
    if (!colon || colon == file || !type_name_get(colon + 1, strlen(colon + 1), type, elem))
        return false;
    *(char *)mempcpy(key, file, (size_t)(colon - file)) = '\0';
    return true;
}

/* ---- a value from its text ---- */

/* The state of a call of text_parse(). */
struct parse {
    const struct gguf_format *fmt;
    struct reader r;
    struct buf *out;
    size_t start; /* where the payload begins in out */
};

/* Append the bytes that follow the type word of an existing value. */
static void keep_payload(struct buf *out, const struct gguf_value *v)
{
    const uint8_t *p = v->data;
    if (v->type == GGUF_STRING || v->type == GGUF_ARRAY)
        p -= v->fmt->len_width + (v->type == GGUF_ARRAY ? 4 : 0);
    buf_add(out, p, (size_t)(gguf_value_end(v) - p));
}

/* Return the length of a string, given its text, which may end in an additional newline. */
static size_t string_len(const uint8_t *text, size_t n)
{
    return n && text[n - 1] == '\n' ? n - 1 : n;
}

static bool unchanged(const struct gguf_value *old, const uint8_t *text, size_t n)
{
    struct buf size = BUF_MEASURE;
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    if (old->type == GGUF_STRING) {
        const size_t len = string_len(text, n);
        return len == old->len && memcmp(old->data, text, len) == 0;
    }
    text_value(&size, old);
    if (size.len != n)
        return false;
    text_value(&b, old);
    return !buf_error(&b) && (n == 0 || memcmp(b.data, text, n) == 0);
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

/* Report an error that scan_scalar() returned for a word. */
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

/* Keep the bits of an unchanged NaN, and the byte of an unchanged true (any nonzero byte reads as
 * true). */
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
    size_t valid = utf8_run(s, n);
    if (valid < n)
        return err_set(p->r.err, -EILSEQ, "byte %zu (0x%02x) is not valid UTF-8", valid, s[valid]);
    buf_uint(p->out, n, p->fmt->len_width, p->fmt->big);
    buf_add(p->out, s, n);
    return 0;
}

/* Write a number into the space reserved at `at` in the output. */
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
    const uint8_t *word = p->r.at, *end = word;
    uint64_t bits;
    while (end < p->r.end && !is_space(*end) && !memchr(",[]\"", *end, 4))
        end++;
    if (end == word)
        return unexpected(&p->r, "a number or bool");
    int r = scan_scalar(type, word, (size_t)(end - word), &bits);
    if (r < 0) {
        struct err what = {0};
        (void)scalar_error(&what, r, type, word, (size_t)(end - word));
        return reader_fail(&p->r, r, "%s", what.msg);
    }
    p->r.at = end;
    buf_uint(p->out, keep_bits(old, bits), gguf_types[type].width, p->fmt->big);
    return 0;
}

static int parse_item(struct parse *p, uint32_t type, const struct gguf_value *old)
{
    return type == GGUF_STRING ? item_string(p) : item_scalar(p, type, old);
}

/* Write the element type, the count and the elements. */
static int parse_array(struct parse *p, uint32_t elem, const struct gguf_value *old)
{
    struct items it = items_begin(&p->r);
    struct gguf_walk walk = old ? gguf_walk(old) : (struct gguf_walk){0};
    struct gguf_value item; /* the old element in this place */
    uint64_t count = 0;
    int r;
    buf_uint(p->out, elem, 4, p->fmt->big);
    const size_t count_at = p->out->len;
    buf_zero(p->out, p->fmt->len_width);
    for (; (r = items_next(&it)) > 0; count++) {
        if ((r = parse_item(p, elem, gguf_next(&walk, &item) ? &item : NULL)) < 0)
            return r;
        if (p->out->len - p->start > GGUF_MAX_STRING)
            return too_big(p);
    }
    if (r < 0)
        return r;
    patch(p, count_at, count);
    reader_skip_space(&p->r);
    return p->r.at == p->r.end ? 0 : reader_fail(&p->r, -EINVAL, "text follows the array");
}

static int parse_value(struct parse *p, uint32_t type, uint32_t elem, const struct gguf_value *old)
{
    size_t n = (size_t)(p->r.end - p->r.at);
    if (old && unchanged(old, p->r.at, n)) {
        keep_payload(p->out, old);
        return 0;
    }
    if (n > GGUF_MAX_STRING + 1) /* a string's text may end with a newline */
        return too_big(p);
    if (type == GGUF_ARRAY && elem == GGUF_ARRAY)
        return err_set(p->r.err, -EOPNOTSUPP, "arrays of arrays cannot be edited");
    if (type == GGUF_ARRAY)
        return parse_array(p, elem, old);
    return type == GGUF_STRING ? parse_string(p) : parse_scalar(p, type, old);
}

int text_parse(const struct gguf_format *fmt, uint32_t type, uint32_t elem, const uint8_t *text,
               size_t n, const struct gguf_value *old, struct buf *payload, struct err *e)
{
    if (!text)
        text = (const uint8_t *)"";
    struct parse p = {
        .fmt = fmt, .r = {text, text, text + n, e}, .out = payload, .start = payload->len};
    if (old && (old->type != type || (type == GGUF_ARRAY && old->elem != elem)))
        old = NULL;
    int r = parse_value(&p, type, elem, old);
    if (r == 0 && buf_error(payload))
        r = err_set(e, buf_error(payload), "no memory");
    if (r < 0)
        payload->len = p.start;
    return r;
}

bool text_is_whole(const uint8_t *text, size_t n)
{
    if (n == 0 || text[n - 1] != '\n')
        return false;
    scan_trim(&text, &n); /* a text that begins with a bracket ends with one */
    return n > 0 && (*text != '[' || text[n - 1] == ']'); /* a JSON string has no newline */
}

/* ---- the type of a new value ---- */

/* True if the text is a value of this type; `elem`: of an array. */
static bool text_is_value(const uint8_t *text, size_t n, uint32_t type, uint32_t elem)
{
    static const struct gguf_format fmt = {.version = 3, .len_width = 8};
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    return text_parse(&fmt, type, elem, text, n, NULL, &payload, NULL) == 0;
}

/* True if the text may have a number that is no integer. No integer is -0, either. */
static bool may_have_float(const uint8_t *text, size_t n)
{
    bool ret = false;
    for (size_t i = 0; i < n && !ret; i++)
        ret = memchr(".eEnN", text[i], 5) || (text[i] == '-' && i + 1 < n && text[i + 1] == '0');
    return ret;
}

/* Find the first type that the text is a value of. */
static uint32_t fitting_type(const uint8_t *text, size_t n, bool array)
{
    static const uint8_t order[] = {GGUF_STRING, GGUF_U32, GGUF_I32, GGUF_U64,
                                    GGUF_I64,    GGUF_F32, GGUF_F64, GGUF_BOOL};
    const bool floats = may_have_float(text, n);
    for (size_t i = array ? 0 : 1; i < sizeof(order); i++) {
        const unsigned kind = gguf_types[order[i]].kind;
        const bool integer = kind == GGUF_KIND_UINT || kind == GGUF_KIND_INT;
        if ((integer && floats) || (kind == GGUF_KIND_FLOAT && !floats))
            continue;
        if (text_is_value(text, n, array ? (uint32_t)GGUF_ARRAY : order[i], order[i]))
            return order[i];
    }
    return GGUF_VALUE_TYPES;
}

void text_new_type(const struct key_row *row, const uint8_t *text, size_t n, uint32_t *type,
                   uint32_t *elem)
{
    if (!text)
        text = (const uint8_t *)"";
    scan_trim(&text, &n);
    const bool array = n && *text == '[';
    if (!row) {
        *elem = fitting_type(text, n, array);
        *type = array ? (uint32_t)GGUF_ARRAY : *elem;
        if (*elem == GGUF_VALUE_TYPES)
            *type = *elem = GGUF_STRING;
        return;
    }
    *type = row->type;
    *elem = row->elem;
    if ((row->flags & KEY_PER_LAYER) && (array || (n && memchr(text, '\n', n))))
        *type = GGUF_ARRAY;
    else if ((row->flags & KEY_COUNT) && !text_is_value(text, n, row->type, 0) &&
             text_is_value(text, n, GGUF_U64, 0))
        *type = GGUF_U64;
}
