/* SPDX-License-Identifier: MIT */
/*
 * From a text to an accepted edit: values are parsed, and the change of what is not on disk yet takes
 * them (edit/change.h). Nothing is planned here: see pending.c. See internal.h.
 */
#include "live/edits.h"

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "gguf/keys.h"
#include "text/text_infer.h"
#include "text/text_parse.h"

/* ---- what is stored ---- */

/* The slot of a key that an edit has touched, else NULL. *stored: the model has the key. */
static const struct edit_slot *slot_of(const struct live *l, const struct name *x, bool *stored)
{
    uint32_t i = EDIT_NONE;
    const struct edit_change *c = &l->next.change;
    *stored = x->key && edit_find(c, x->key, x->key_len, &i);
    return i == EDIT_NONE ? NULL : &c->slot[i];
}

bool edits_stored(const struct live *l, const struct name *x)
{
    bool stored;
    assert(lock_held(&l->lock));
    (void)slot_of(l, x, &stored);
    return stored;
}

/* The value that a key has below all that is pending. */
static struct shown base_value(const struct live *l, const char *key, size_t n)
{
    struct gen *g = base_gen(l);
    uint32_t kv = gguf_find_key(g->gguf, key, n);
    return kv == UINT32_MAX ? SHOWN_NONE : (struct shown){gen_ref(g), NULL, kv};
}

struct shown edits_shown(const struct live *l, const struct name *x)
{
    bool stored;
    const struct edit_slot *s = slot_of(l, x, &stored);
    assert(lock_held(&l->lock));
    if (!stored)
        return SHOWN_NONE;
    if (!s)
        return base_value(l, x->key, x->key_len);
    if (s->value)
        return (struct shown){gen_ref(base_gen(l)), edit_value_ref(s->value), 0};
    const struct gguf *own = l->next.change.base;
    return base_value(l, gguf_key(own, &own->kv[s->old]), own->kv[s->old].key_len);
}

struct typed edits_wanted_type(const struct name *x)
{
    const struct draft *d = x->file ? x->file->draft : NULL;
    return d && d->typed.set ? d->typed : x->typed;
}

struct typed edits_known_type(const struct live *l, const struct name *x)
{
    struct gguf_value v;
    struct typed type = edits_wanted_type(x);
    if (type.set)
        return type;
    CLEANUP(shown_free) struct shown s = edits_shown(l, x);
    return shown_value(&s, &v) ? (struct typed){true, v.type, v.elem} : (struct typed){0};
}

/* ---- values ---- */

/* An empty text has no memory, but an address: there is arithmetic on it. */
static const uint8_t *bytes_of(const struct buf *text)
{
    return text->len ? text->data : (const uint8_t *)"";
}

struct typed edits_type(const struct live *l, const struct name *x, const struct buf *text)
{
    struct typed type = edits_known_type(l, x);
    if (!type.set)
        text_new_type(key_find(x->key, x->key_len), bytes_of(text), text->len, &type.type,
                      &type.elem);
    type.set = true;
    return type;
}

/* An operation is part of the change. What moves the tensors must be planned to be accepted, and so
 * must what may be equal up to a NUL to another key: the parser finds both. */
static int accepted(struct live *l, struct name *x, struct name *other, size_t mark, struct err *e)
{
    bool aligns = strcmp(x->key, "general.alignment") == 0;
    batch_note(l, x, other);
    int r = aligns || l->odd_names ? batch_freshen(l, e) : 0;
    if (r == 0)
        return 1;
    edit_undo(&l->next.change, mark);
    return r;
}

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for the edit");
}

static int set_value(struct live *l, struct name *x, struct edit_value *v, struct err *e)
{
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    uint64_t rank = x->rank ? x->rank : l->ranks + 1;
    if (batch_room(l) < 0)
        return no_memory(e);
    int r = edit_set(c, x->key, x->key_len, v, rank, e);
    if (r == 0)
        r = accepted(l, x, NULL, mark, e);
    if (r > 0 && !x->rank)
        x->rank = ++l->ranks;
    return r;
}

static int set_payload(struct live *l, struct name *x, uint32_t type, struct buf *payload,
                       struct err *e)
{
    struct edit_value *v = edit_value_make(type, payload);
    int r = v ? set_value(l, x, v, e) : no_memory(e);
    edit_value_unref(v);
    return r;
}

static int not_for_editing(struct err *e)
{
    return err_set(e, -EPERM, "is not for editing");
}

static int parse_and_set(struct live *l, struct name *x, const struct buf *text, struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    CLEANUP(shown_free) struct shown old = edits_shown(l, x);
    struct gguf_value v;
    bool own = key_is_own(x->key, x->key_len), known = shown_value(&old, &v);
    struct typed type = edits_type(l, x, text);
    int r = text_parse(&l->newest->view.gen->gguf->fmt, type.type, type.elem, bytes_of(text),
                       text->len, known ? &v : NULL, &payload, e);
    if (r < 0) /* of what cannot be edited nothing else is worth saying */
        return own ? not_for_editing(e) : r;
    if (shown_is(&old, type.type, &payload))
        return 0;
    return own ? not_for_editing(e) : set_payload(l, x, type.type, &payload, e);
}

int edits_accept(struct live *l, struct name *x, const struct buf *text, struct err *e)
{
    int r = parse_and_set(l, x, text, e);
    if (r < 0)
        return r;
    slot_event(&l->names, x, SLOT_ACCEPT);
    x->typed.set = false;
    if (r == 0) /* no edit: what an editor restores after a refused write does not hide why */
        return 0;
    (void)clock_gettime(CLOCK_REALTIME, &x->mtime);
    name_set_error(&l->names, x, NULL);
    return r;
}

int edits_refused(struct live *l, struct name *x, const struct err *e)
{
    char name[SHOW_MAX];
    live_log(l, LOG_WARNING, "%s: refused: %s", show(name, x->text, strlen(x->text)), e->msg);
    name_set_error(&l->names, x, e->msg);
    return e->code;
}

int edits_retype(struct live *l, struct name *x, struct typed type, struct err *e)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(shown_free) struct shown s = edits_shown(l, x);
    if (!s.gen)
        return err_set(e, -EINVAL, "has no value yet");
    if (strcmp(x->key, "general.alignment") == 0)
        return err_set(e, -EINVAL, "its type cannot be changed");
    shown_text(&s, &text);
    if (buf_error(&text))
        return no_memory(e);
    if (x->file && x->file->draft) /* opened as KEY:TYPE: this is later */
        x->file->draft->typed.set = false;
    x->typed = type;
    int r = edits_accept(l, x, &text, e);
    x->typed.set = false;
    return r;
}

int edits_restore(struct live *l, struct name *x, const struct shown *value, struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    CLEANUP(shown_free) struct shown now = edits_shown(l, x);
    struct gguf_value v;
    size_t n;
    if (!value->gen) {
        int r = now.gen ? edits_remove(l, x, e) : 0;
        x->typed.set = false; /* it never had a type that counts */
        return r;
    }
    (void)shown_value(value, &v);
    const uint8_t *bytes = shown_bytes(value, &n);
    buf_add(&payload, bytes, n);
    if (buf_error(&payload))
        return no_memory(e);
    int r = shown_is(&now, v.type, &payload) ? 0 : set_payload(l, x, v.type, &payload, e);
    if (r > 0)
        slot_event(&l->names, x, SLOT_ACCEPT);
    return r;
}

/* ---- names ---- */

/* The rank of a key that is stored. */
static uint64_t rank_of(const struct live *l, const struct name *x)
{
    bool stored;
    const struct edit_slot *s = slot_of(l, x, &stored);
    const struct gen *base = base_gen(l);
    if (s)
        return s->rank;
    uint32_t kv = gguf_find_key(gen_own(base), x->key, x->key_len);
    if (kv == UINT32_MAX)
        return x->rank;
    return base->rank ? base->rank[kv] : (uint64_t)kv + 1;
}

/* Type and place of a key that is about to leave its name, in case that it comes back. */
static void remember(const struct live *l, struct name *x)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = edits_shown(l, x);
    x->rank = rank_of(l, x);
    if (shown_value(&s, &v))
        x->typed = (struct typed){true, v.type, v.elem};
}

int edits_remove(struct live *l, struct name *x, struct err *e)
{
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    if (batch_room(l) < 0)
        return no_memory(e);
    remember(l, x);
    int r = edit_remove(c, x->key, x->key_len, e);
    if (r == 0)
        r = accepted(l, x, NULL, mark, e);
    if (r > 0) {
        slot_event(&l->names, x, SLOT_REMOVED);
        edits_hide(l, x);
        name_set_error(&l->names, x, NULL); /* of a value that nobody misses now */
    }
    return r;
}

/* A removal that cannot be: the key is back. */
static int keep_key(struct live *l, struct name *x, const struct err *e)
{
    slot_event(&l->names, x, SLOT_REFUSED);
    name_show(&l->names, x);
    x->typed.set = false;
    return edits_refused(l, x, e);
}

int edits_remove_due(struct live *l)
{
    int result = 0;
    while (l->names.doomed) {
        struct name *x = l->names.doomed;
        struct err e = {0};
        if (edits_remove(l, x, &e) < 0)
            result = keep_key(l, x, &e);
    }
    return result;
}

int edits_rename(struct live *l, struct name *from, struct name *to, struct err *e)
{
    struct edit_change *c = &l->next.change;
    size_t mark = edit_mark(c);
    if (batch_room(l) < 0)
        return no_memory(e);
    remember(l, from);
    int r = edit_rename(c, from->key, from->key_len, to->key, to->key_len, e);
    if (r == 0)
        r = accepted(l, from, to, mark, e);
    if (r > 0) {
        slot_event(&l->names, from, SLOT_REMOVED);
        slot_event(&l->names, to, SLOT_ACCEPT);
        to->rank = from->rank;
        to->mtime = from->mtime;
        to->typed.set = false;
        name_set_error(&l->names, to, NULL);
    }
    return r;
}

/* ---- what a name shows ---- */

void edits_hide(struct live *l, struct name *x)
{
    struct file *f = x->file;
    if (x->slot != SLOT_ABSENT || !f || f->draft)
        return;
    (void)name_leave(x);
    if (x->rank)
        name_spare(x, f);
    file_reap(&l->names, f);
}

void edits_follow(struct live *l, struct name *x)
{
    if (!x->key)
        return;
    slot_event(&l->names, x, edits_stored(l, x) ? SLOT_BACK : SLOT_GONE);
    if (x->slot == SLOT_STORED)
        name_show(&l->names, x);
    edits_hide(l, x);
}
