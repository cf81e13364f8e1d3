/* SPDX-License-Identifier: MIT */
/* Refusing a text at the write that spoils it: see internal.h. */
#include <errno.h>
#include <string.h>

#include "live/internal.h"
#include "text/scan.h"
#include "text/text_parse.h"

/*
 * Whether a text that ends in a newline is one to which only blanks, or further lines of an array,
 * can be added: then what is wrong with it stays wrong. In brackets it is if it ends with one (a
 * string of JSON holds no newline). Of arrays of arrays nothing is said.
 */
static bool looks_whole(uint32_t type, uint32_t elem, const struct buf *text)
{
    const uint8_t *p = text->data;
    size_t n = text->len;
    if (n == 0 || p[n - 1] != '\n' || type == GGUF_STRING ||
        (type == GGUF_ARRAY && elem == GGUF_ARRAY))
        return false;
    scan_trim(&p, &n);
    return n > 0 && (*p != '[' || p[n - 1] == ']');
}

static int parse(const struct live *l, const struct kfile *f, const struct typed *type,
                 struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    CLEANUP(shown_free) struct shown s = edits_shown(l, f->id);
    const struct buf *text = &f->draft->text;
    const struct gguf *g = l->newest->view.gen->gguf;
    struct gguf_value old;
    bool known = shown_value(&s, &old);
    int r = text_parse(&g->fmt, type->type, type->elem, text->data, text->len, known ? &old : NULL,
                       &payload, e);
    if (r < 0 ||
        shown_is(&s, type->type, &payload)) /* what is stored is accepted, whatever it is */
        return r;
    return edit_check_value(g, f->key, f->key_len, type->type, payload.data, payload.len, e);
}

/* Bytes that are not UTF-8 may be a part of the text that the file shows: that is always accepted. */
static bool begins_stored(const struct live *l, const struct kfile *f)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(shown_free) struct shown s = edits_shown(l, f->id);
    const struct buf *draft = &f->draft->text;
    shown_text(&s, &text);
    return buf_error(&text) ||
           (text.len >= draft->len && memcmp(text.data, draft->data, draft->len) == 0);
}

bool draft_may_go_on(const struct live *l, const struct kfile *f)
{
    const struct buf *text = &f->draft->text;
    struct typed type = edits_known_type(l, f);
    bool open = type.set && text->len && !looks_whole(type.type, type.elem, text);
    return open && text_prefix_check(type.type, type.elem, text->data, text->len) == 0;
}

int draft_judge(const struct live *l, const struct kfile *f, bool at_once, struct err *e)
{
    const struct buf *text = &f->draft->text;
    struct typed type = edits_known_type(l, f);
    bool told = type.set;
    if (!told && !at_once) /* the type may become another */
        return 0;
    if (!told)
        type = edits_type(l, f, text);
    bool line = text->len && text->data[text->len - 1] == '\n';
    bool whole =
        at_once && (looks_whole(type.type, type.elem, text) || (line && type.type == GGUF_STRING));
    if (!told && !whole)
        return 0;
    int r = text_prefix_check(type.type, type.elem, text->data, text->len);
    if (r == 0 && !whole)
        return 0;
    int why = parse(l, f, &type, e);
    if (r == 0 && why == -EILSEQ)
        return begins_stored(l, f) ? 0 : why;
    if (r == 0) /* only these stay, whatever follows */
        return why == -EINVAL || why == -ERANGE ? why : 0;
    return why < 0 ? r : err_set(e, r, "cannot become a value of its type: %s", strerror(-r));
}
