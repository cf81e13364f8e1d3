/* SPDX-License-Identifier: MIT */
/* The text of a metadata value: see text.h. */
#include "text/text.h"

#include "text/json.h"
#include "text/number.h"

static void add_lines(struct buf *out, const struct gguf_value *v)
{
    struct gguf_walk w = gguf_walk(v);
    struct gguf_value item;
    while (gguf_next(&w, &item)) {
        json_line_value(out, &item);
        buf_char(out, '\n');
    }
}

void text_value(struct buf *out, const struct gguf_value *v)
{
    if (v->type == GGUF_ARRAY) {
        add_lines(out, v);
        return;
    }
    if (v->type == GGUF_STRING)
        buf_add(out, v->data, (size_t)v->len);
    else
        text_scalar(out, v, &float_names_text);
    buf_char(out, '\n');
}
