/* SPDX-License-Identifier: MIT */
/* The type of a new metadata value: see text_infer.h. */
#include "text/text_infer.h"

#include <string.h>

#include "gguf/gguf.h"
#include "text/scan.h"
#include "text/shape.h"

static bool infer_array(const uint8_t *text, size_t n, uint32_t *elem)
{
    struct reader r = {text, text, text + n, NULL};
    struct shape s;
    if (shape_array(&r, &s) < 0 || r.at != r.end)
        return false;
    if (shape_type(&s, elem)) /* the text's lines are one more level of arrays */
        return *elem != GGUF_ARRAY || (!s.mixed && s.depth < GGUF_MAX_DEPTH);
    *elem = GGUF_STRING;
    return s.kinds == 0;
}

void text_infer(const uint8_t *text, size_t n, uint32_t *type, uint32_t *elem)
{
    struct shape s = {0};
    *elem = GGUF_STRING;
    *type = GGUF_STRING;
    scan_trim(&text, &n);
    if (n && *text == '[')
        *type = infer_array(text, n, elem) ? GGUF_ARRAY : GGUF_STRING;
    else if (shape_add_word(&s, text, n) && !s.huge)
        (void)shape_type(&s, type);
}

static bool several(const uint8_t *text, size_t n)
{
    return n && (*text == '[' || memchr(text, '\n', n));
}

void text_new_type(const struct key_row *row, const uint8_t *text, size_t n, uint32_t *type,
                   uint32_t *elem)
{
    struct integer v;
    if (!row) {
        text_infer(text, n, type, elem);
        return;
    }
    *type = row->type;
    *elem = row->elem;
    scan_trim(&text, &n);
    if ((row->flags & KEY_PER_LAYER) && several(text, n))
        *type = GGUF_ARRAY;
    else if ((row->flags & KEY_COUNT) && scan_integer(text, n, &v) == 0 &&
             !integer_fits(row->type, &v) && integer_fits(GGUF_U64, &v))
        *type = GGUF_U64;
}
