/* SPDX-License-Identifier: MIT */
/* What a change does to each key, for the log. See writer.h. */
#include "live/writer.h"

#include <string.h>

/* The value's bytes without a string's length word: that is what people count. */
static size_t text_bytes(const struct gguf_format *fmt, uint32_t type, size_t n)
{
    return type == GGUF_STRING ? n - fmt->len_width : n;
}

/* What an edit does to a key, for the log; nothing if that is nothing. */
static void note_slot(const struct edit_change *c, const struct edit_slot *s, struct buf *out)
{
    char name[SHOW_MAX], old[SHOW_MAX], type[GGUF_TYPE_NAME_MAX];
    const struct gguf_format *fmt = &c->base->fmt;
    const struct gguf_kv *kv = s->old == EDIT_NONE ? NULL : &c->base->kv[s->old];
    (void)show(name, s->name, s->name_len);
    if (kv)
        (void)show(old, gguf_key(c->base, kv), kv->key_len);
    if (s->gone) {
        if (kv)
            buf_printf(out, "%s: removed", old);
        return;
    }
    bool renamed = kv && strcmp(name, old) != 0;
    if (renamed)
        buf_printf(out, "%s: renamed to %s", old, name);
    if (!s->value)
        return;
    struct gguf_value v = gguf_value_at(fmt, s->value->type, s->value->bytes.data);
    size_t now = text_bytes(fmt, s->value->type, s->value->bytes.len);
    buf_printf(out, "%s%s: ", renamed ? "; " : "", name);
    if (kv)
        buf_printf(out, "%s, %zu -> %zu bytes", gguf_type_name(&v, type),
                   text_bytes(fmt, kv->type, (size_t)(kv->end - kv->val_off)), now);
    else
        buf_printf(out, "new, %s, %zu bytes", gguf_type_name(&v, type), now);
}

/* The same for a tensor. */
static void note_tensor(const struct edit_change *c, const struct edit_slot *s, struct buf *out)
{
    char name[SHOW_MAX], old[SHOW_MAX];
    const struct gguf *g = c->base;
    const struct gguf_tensor *t = s->old == EDIT_NONE ? NULL : &g->tensor[s->old];
    (void)show(name, s->name, s->name_len);
    if (t)
        (void)show(old, gguf_name(g, t), t->name_len);
    if (s->gone) {
        if (t)
            buf_printf(out, "tensors/%s: removed", old);
        return;
    }
    bool renamed = t && strcmp(name, old) != 0;
    if (renamed)
        buf_printf(out, "tensors/%s: renamed to %s", old, name);
    if (!s->content)
        return;
    uint64_t n = 0;
    for (size_t i = 0; i < s->content->n; i++)
        n += s->content->piece[i].len;
    buf_printf(out, "%stensors/%s: %s%llu bytes", renamed ? "; " : "", name,
               t && !s->again ? "" : "new, ", (unsigned long long)n);
}

static void end_note(struct buf *out, size_t before)
{
    if (out->len > before)
        buf_char(out, '\0');
}

void notes_all(const struct edit_change *c, struct buf *out)
{
    for (size_t i = 0; c->tensors && i < c->tensors->n; i++) {
        size_t before = out->len;
        note_tensor(c->tensors, &c->tensors->slot[i], out);
        end_note(out, before);
    }
    for (size_t i = 0; i < c->n; i++) {
        size_t before = out->len;
        note_slot(c, &c->slot[i], out);
        end_note(out, before);
    }
}
