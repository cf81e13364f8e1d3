/* SPDX-License-Identifier: MIT */
/* Types, stored values, and texts as values (value.h). */
#include "live/value.h"

#include <errno.h>
#include <string.h>

#include "gguf/value.h"
#include "text/number.h"
#include "text/text.h"

/* ---- types ---- */

bool type_by_name(const char *name, size_t n, struct typed *ret)
{
    *ret = (struct typed){.set = true};
    return type_name_get(name, n, &ret->type, &ret->elem);
}

void type_put(const struct typed *t, struct buf *out)
{
    char name[GGUF_TYPE_NAME_MAX];
    const struct gguf_value v = {.type = (uint8_t)t->type, .elem = (uint8_t)t->elem};
    buf_str(out, gguf_type_name(&v, name));
}

bool type_of_name(const char *file, char key[TREE_NAME_MAX + 1], struct typed *ret)
{
    const char *colon = strrchr(file, ':');
    if (!colon || colon == file || !type_by_name(colon + 1, strlen(colon + 1), ret))
        return false;
    *(char *)mempcpy(key, file, (size_t)(colon - file)) = '\0';
    return true;
}

/* ---- stored values ---- */

static uint32_t find(const struct live *l, const struct name *x)
{
    return x->key ? gguf_find_key(l->state->gguf, x->key, x->key_len) : UINT32_MAX;
}

bool value_is_stored(const struct live *l, const struct name *x)
{
    return find(l, x) != UINT32_MAX;
}

struct shown value_stored(const struct live *l, const struct name *x)
{
    assert(lock_held(&l->lock));
    const uint32_t kv = find(l, x);
    return kv == UINT32_MAX ? SHOWN_NONE : (struct shown){snapshot_ref(l->state), kv};
}

/* ---- from text to value ---- */

/* Return the bytes. An empty text has no memory, but pointer arithmetic needs a valid address. */
static const uint8_t *bytes_of(const struct buf *text)
{
    return text->len ? text->data : (const uint8_t *)"";
}

static struct typed type_for(const struct name *x, const struct gguf_value *old,
                             const struct typed *typed, const struct buf *text)
{
    struct typed t = {.set = true};
    if (typed->set)
        return *typed;
    if (old)
        return (struct typed){true, old->type, old->elem};
    text_new_type(key_find(x->key, x->key_len), bytes_of(text), text->len, &t.type, &t.elem);
    return t;
}

int value_parse(const struct name *x, const struct gguf_format *fmt, const struct shown *old,
                const struct typed *typed, const struct buf *text, uint32_t *type,
                struct buf *payload, struct err *e)
{
    struct gguf_value v;
    const bool known = shown_value(old, &v);
    const struct typed t = type_for(x, known ? &v : NULL, typed, text);
    int r =
        text_parse(fmt, t.type, t.elem, bytes_of(text), text->len, known ? &v : NULL, payload, e);
    if (r < 0)
        return r;
    *type = t.type;
    return shown_is(old, t.type, payload);
}

int value_accept(struct live *l, struct request *q, const struct name *x, struct err *e)
{
    CLEANUP(shown_free) struct shown old = value_stored(l, x);
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    const struct gguf_format fmt = l->state->gguf->fmt;
    uint32_t type = 0;
    lock_drop(&l->lock); /* only this thread changes values */
    int r = value_parse(x, &fmt, &old, &q->typed, &q->text, &type, &payload, e);
    lock_take(&l->lock);
    if (r > 0)
        return 0;
    if (r == 0 && key_is_own(x->key, x->key_len))
        r = err_set(e, -EPERM, "cannot be edited");
    struct edit_value *v = r < 0 ? NULL : edit_value_make(type, &payload);
    if (!v)
        return r < 0 ? r : err_set(e, -ENOMEM, "no memory for the edit");
    r = edit_set(&l->pending, x->key, x->key_len, v, e);
    edit_value_unref(v);
    return r < 0 ? r : 1;
}

/* ---- while it is written ---- */

/* True if the text shown for the stored value begins with these bytes: that text is always
 * accepted, even if it is not UTF-8. */
static bool begins(const struct shown *old, const struct buf *text)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    shown_text(old, &is);
    return buf_error(&is) ||
           (is.len >= text->len && memcmp(bytes_of(&is), bytes_of(text), text->len) == 0);
}

/* True if a text that ends in a newline can only be followed by blanks or by more lines of an
 * array, so that an error in it is final. A text that begins with a bracket must end with one (a
 * JSON string contains no newline). */
static bool is_whole(const struct buf *text)
{
    const uint8_t *p = text->data;
    size_t n = text->len;
    if (n == 0 || p[n - 1] != '\n')
        return false;
    scan_trim(&p, &n);
    return n > 0 && (*p != '[' || p[n - 1] == ']');
}

int value_check_write(struct live *l, const struct name *x, const struct typed *typed,
                      const struct buf *text, bool at_once, struct err *e)
{
    CLEANUP(shown_free) struct shown old = value_stored(l, x);
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    uint32_t type = 0;
    if (text->len > TEXT_MAX)
        return err_set(e, -EFBIG, "the text is over 1 GiB");
    if (!at_once || !is_whole(text))
        return 0;
    const int why = value_parse(x, &l->state->gguf->fmt, &old, typed, text, &type, &payload, e);
    if (why == 0) {
        const int bad = edit_check_value(l->state->gguf, x->key, x->key_len, type, payload.data,
                                         payload.len, e);
        return bad == -EINVAL ? bad : 0;
    }
    if (why > 0 || why == -ENOMEM || why == -EOPNOTSUPP)
        return 0;
    return why == -EILSEQ && begins(&old, text) ? 0 : why;
}
