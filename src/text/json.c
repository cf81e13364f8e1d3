/* SPDX-License-Identifier: MIT */
/* JSON: see json.h. */
#include "text/json.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "text/number.h"

static const struct float_names names_line = {"NaN", "Infinity", "-Infinity"};
static const struct float_names names_strict = {"\"NaN\"", "\"Infinity\"", "\"-Infinity\""};

static inline bool json_plain(uint8_t c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* Return the length of the run at p that needs no escaping in a JSON string: ordinary ASCII, and
 * valid UTF-8 that is safe to show on a terminal. */
static size_t plain_run(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        while (i < n && json_plain(p[i]))
            i++;
        if (i == n || p[i] < 0x80 || utf8_hidden(p + i, n - i))
            break;
        size_t len = utf8_len(p + i, n - i);
        if (len == 0)
            break;
        i += len;
    }
    return i;
}

/* Escape a sequence that utf8_hidden() has found, such as \u202e. */
static void escape_hidden(struct buf *out, const uint8_t *p, size_t n)
{
    unsigned code = p[0] & (n == 1 ? 0x7fu : n == 2 ? 0x1fu : 0x0fu);
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (p[i] & 0x3fu);
    buf_printf(out, "\\u%04x", code);
}

/* Append a byte as an escape: \", \\, \n ..., \u00XX, or \udcXX for a byte over 127, which is not
 * valid UTF-8 here. */
static void escape(struct buf *out, uint8_t c)
{
    static const char letter[0x80] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                      ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    if (c < 0x80 && letter[c])
        buf_printf(out, "\\%c", letter[c]);
    else
        buf_printf(out, "\\u%s%02x", c < 0x80 ? "00" : "dc", c);
}

void json_string(struct buf *out, const void *bytes, size_t n)
{
    const uint8_t *p = bytes, *end = p + n;
    buf_char(out, '"');
    while (p < end) {
        size_t run = plain_run(p, (size_t)(end - p));
        buf_add(out, p, run);
        p += run;
        size_t hidden = utf8_hidden(p, (size_t)(end - p));
        if (hidden)
            escape_hidden(out, p, hidden);
        else if (p < end)
            escape(out, *p);
        p += hidden ? hidden : p < end;
    }
    buf_char(out, '"');
}

static void put_json(struct buf *out, const struct gguf_value *v, const struct float_names *names);

static void add_array(struct buf *out, const struct gguf_value *v, const struct float_names *names)
{
    struct gguf_walk w = gguf_walk(v);
    struct gguf_value item;
    const char *between = "[";
    if (v->count == 0)
        buf_char(out, '[');
    while (gguf_next(&w, &item)) {
        buf_str(out, between);
        put_json(out, &item, names);
        between = ", ";
    }
    buf_char(out, ']');
}

/* Recurses once per level of nesting, which the parser limits to GGUF_MAX_DEPTH. */
static void put_json(struct buf *out, const struct gguf_value *v, const struct float_names *names)
{
    if (v->type == GGUF_ARRAY)
        add_array(out, v, names);
    else if (v->type == GGUF_STRING)
        json_string(out, v->data, (size_t)v->len);
    else
        text_scalar(out, v, names);
}

void json_value(struct buf *out, const struct gguf_value *v)
{
    put_json(out, v, &names_strict);
}

void json_line_value(struct buf *out, const struct gguf_value *v)
{
    put_json(out, v, &names_line);
}

/* ---- objects and lists ---- */

struct buf *json_item(struct json *j, const char *name)
{
    const bool lines = j->depth && j->level[j->depth - 1].lines;
    buf_str(j->out, j->more && lines ? ",\n" : j->more ? ", " : lines ? "\n" : "");
    j->more = true;
    if (name) {
        json_string(j->out, name, strlen(name));
        buf_str(j->out, ": ");
    }
    return j->out;
}

void json_begin(struct json *j, const char *name, const char *open)
{
    assert(j->depth < JSON_DEPTH);
    buf_char(json_item(j, name), open[0]);
    j->level[j->depth].close = open[0] == '{' ? '}' : ']';
    j->level[j->depth++].lines = open[1] == '\n';
    j->more = false;
}

void json_end(struct json *j)
{
    assert(j->depth > 0);
    j->depth--;
    if (j->level[j->depth].lines)
        buf_char(j->out, '\n');
    buf_char(j->out, j->level[j->depth].close);
    j->more = true;
}

void json_text(struct json *j, const char *name, const char *text)
{
    struct buf *out = json_item(j, name);
    if (text)
        json_string(out, text, strlen(text));
    else
        buf_str(out, "null");
}

void json_shown(struct json *j, const char *name, const char *text)
{
    CLEANUP(buf_free) struct buf shown = BUF_INIT;
    struct buf *out = json_item(j, name);
    show_all(&shown, text, strlen(text));
    if (buf_error(&shown))
        out->err = buf_error(&shown);
    else
        json_string(out, shown.data, shown.len);
}

/* ---- reading ---- */

int reader_fail(const struct reader *r, int code, const char *fmt, ...)
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

void reader_skip_space(struct reader *r)
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

int reader_string(struct reader *r, struct buf *out)
{
    if (!reader_at(r, '"'))
        return reader_fail(r, -EINVAL, "a string in double quotes is expected");
    r->at++;
    while (r->at < r->end) {
        size_t run = plain_run(r->at, (size_t)(r->end - r->at));
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

int reader_word(struct reader *r, const uint8_t **word, size_t *n)
{
    const uint8_t *p = r->at;
    while (p < r->end && !is_space(*p) && *p != ',' && *p != '[' && *p != ']' && *p != '"')
        p++;
    if (p == r->at)
        return unexpected(r, "a number or bool");
    *word = r->at;
    *n = (size_t)(p - r->at);
    r->at = p;
    return 0;
}

struct items items_begin_array(struct reader *r)
{
    r->at++;
    return (struct items){.r = r, .bracket = true, .first = true};
}

struct items items_begin_text(struct reader *r, bool may_be_array)
{
    struct reader peek = *r;
    reader_skip_space(&peek);
    if (!reader_at(&peek, '['))
        return (struct items){.r = r, .first = true};
    *r = peek;
    return may_be_array ? items_begin_array(r) : (struct items){.r = r, .first = true};
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

int items_next(struct items *it)
{
    return it->bracket ? next_in_array(it) : next_line(it);
}
