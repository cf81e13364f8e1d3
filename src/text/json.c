/* SPDX-License-Identifier: MIT */
/* JSON: see json.h. */
#include "text/json.h"

#include <assert.h>
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

size_t json_run(const uint8_t *p, size_t n)
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
        size_t run = json_run(p, (size_t)(end - p));
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
