/* SPDX-License-Identifier: MIT */
/* JSON: see json.h. */
#include "text/json.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/utf8.h"
#include "text/number.h"

static const struct float_names names_line = {"NaN", "Infinity", "-Infinity"};
static const struct float_names names_strict = {"\"NaN\"", "\"Infinity\"", "\"-Infinity\""};

#define EACH_BYTE(b) ((uint64_t)(b)*0x0101010101010101)

/*
 * Sets the high bit of each byte of w below n (n <= 128) or over 127; others' only above such one.
 */
static inline uint64_t any_below_or_high(uint64_t w, uint8_t n)
{
    return ((w - EACH_BYTE(n)) | w) & EACH_BYTE(0x80);
}

/* True if all eight bytes are ASCII and need no escape. */
static inline bool plain8(const uint8_t *p)
{
    uint64_t w = get_u64(p, HOST_BIG);
    return !(any_below_or_high(w, 0x20) | any_below_or_high(w ^ EACH_BYTE('"'), 1) |
             any_below_or_high(w ^ EACH_BYTE('\\'), 1) | any_below_or_high(w ^ EACH_BYTE(0x7f), 1));
}

static inline bool plain(uint8_t c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

size_t json_plain_run(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        while (i + 8 <= n && plain8(p + i))
            i += 8;
        while (i < n && plain(p[i]))
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

/* A sequence of utf8_hidden(): \u202e */
static void escape_hidden(struct buf *out, const uint8_t *p, size_t n)
{
    unsigned code = n == 1   ? p[0]
                    : n == 2 ? (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu)
                             : (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    buf_printf(out, "\\u%04x", code);
}

/* \", \\, \n ..., \u00XX; a byte over 127, which is not valid UTF-8 here: \udcXX */
static void escape(struct buf *out, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letter[0x80] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                      ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    char s[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    if (c < 0x80 && letter[c]) {
        s[1] = letter[c];
        buf_add(out, s, 2);
        return;
    }
    if (c >= 0x80)
        memcpy(s + 2, "dc", 2);
    buf_add(out, s, sizeof(s));
}

void json_string(struct buf *out, const void *bytes, size_t n)
{
    const uint8_t *p = bytes, *end = p + n;
    buf_char(out, '"');
    while (p < end) {
        size_t run = json_plain_run(p, (size_t)(end - p));
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

static void add_value(struct buf *out, const struct gguf_value *v, const struct float_names *names);

static void add_array(struct buf *out, const struct gguf_value *v, const struct float_names *names)
{
    struct gguf_walk w = gguf_walk(v);
    struct gguf_value item;
    const char *between = "[";
    if (v->count == 0)
        buf_char(out, '[');
    while (gguf_next(&w, &item)) {
        buf_str(out, between);
        add_value(out, &item, names);
        between = ", ";
    }
    buf_char(out, ']');
}

/* Recursive: as deep as arrays are nested, which the parser bounds (GGUF_MAX_DEPTH). */
static void add_value(struct buf *out, const struct gguf_value *v, const struct float_names *names)
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
    add_value(out, v, &names_strict);
}

void json_line_value(struct buf *out, const struct gguf_value *v)
{
    add_value(out, v, &names_line);
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
