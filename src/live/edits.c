/* SPDX-License-Identifier: MIT */
/*
 * From a text to an accepted edit: values are parsed, and the change of what is not on disk yet takes
 * them (edit/change.h). Nothing is planned here: see pending.c. See internal.h.
 */
#include "live/internal.h"

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "gguf/keys.h"
#include "text/text_infer.h"
#include "text/text_parse.h"

/* ---- what is stored ---- */

static struct gen *base_gen(const struct live *l)
{
    return l->writer.flight ? l->writer.flight : l->writer.disk;
}

/* The slot of a key that an edit has touched, else NULL. *stored: the model has the key. */
static const struct edit_slot *slot_of(const struct live *l, const struct kfile *f, bool *stored)
{
    uint32_t i = EDIT_NONE;
    const struct edit_change *c = &l->writer.next.change;
    *stored = f->key && edit_find(c, f->key, f->key_len, &i);
    return i == EDIT_NONE ? NULL : &c->slot[i];
}

bool edits_stored(const struct live *l, const struct kfile *f)
{
    bool stored;
    (void)slot_of(l, f, &stored);
    return stored;
}

/* The value that a key has below all that is pending. */
static struct shown base_value(const struct live *l, const char *key, size_t n)
{
    struct gen *g = base_gen(l);
    uint32_t kv = gguf_find_key(g->gguf, key, n);
    return kv == UINT32_MAX ? SHOWN_NONE : (struct shown){gen_ref(g), NULL, kv};
}

struct shown edits_shown(const struct live *l, uint32_t number)
{
    const struct kfile *f = l->keys.file[number];
    uint32_t kv = l->keys.kv[number];
    bool stored;
    if (!f) /* no edit has touched it: each generation has it */
        return kv == KV_NONE ? SHOWN_NONE : (struct shown){gen_ref(l->newest->view.gen), NULL, kv};
    const struct edit_slot *s = slot_of(l, f, &stored);
    if (!stored)
        return SHOWN_NONE;
    if (!s)
        return base_value(l, f->key, f->key_len);
    if (s->value)
        return (struct shown){gen_ref(base_gen(l)), edit_value_ref(s->value), 0};
    const struct gguf *own = l->writer.next.change.base;
    return base_value(l, gguf_key(own, &own->kv[s->old]), own->kv[s->old].key_len);
}

struct typed edits_known_type(const struct live *l, const struct kfile *f)
{
    struct gguf_value v;
    struct typed type = kfile_type(f);
    if (type.set)
        return type;
    CLEANUP(shown_free) struct shown s = edits_shown(l, f->id);
    return shown_value(&s, &v) ? (struct typed){true, v.type, v.elem} : (struct typed){0};
}

/* ---- values ---- */

/* An empty text has no memory, but an address: there is arithmetic on it. */
static const uint8_t *bytes_of(const struct buf *text)
{
    return text->len ? text->data : (const uint8_t *)"";
}

struct typed edits_type(const struct live *l, const struct kfile *f, const struct buf *text)
{
    struct typed type = edits_known_type(l, f);
    if (!type.set)
        text_new_type(key_find(f->key, f->key_len), bytes_of(text), text->len, &type.type,
                      &type.elem);
    type.set = true;
    return type;
}

/* An operation is part of the change. What moves the tensors must be planned to be accepted, and so
 * must what may be equal up to a NUL to another key: the parser finds both. */
static int accepted(struct live *l, struct kfile *f, struct kfile *other, size_t mark,
                    struct err *e)
{
    bool aligns = strcmp(f->key, "general.alignment") == 0;
    pending_note(l, f, other);
    int r = aligns || l->odd_names ? freshen_locked(l, e) : 0;
    if (r == 0)
        return 1;
    edit_undo(&l->writer.next.change, mark);
    return r;
}

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for the edit");
}

static int set_value(struct live *l, struct kfile *f, struct edit_value *v, struct err *e)
{
    struct edit_change *c = &l->writer.next.change;
    size_t mark = edit_mark(c);
    uint64_t rank = f->rank ? f->rank : l->ranks + 1;
    if (pending_room(l) < 0)
        return no_memory(e);
    int r = edit_set(c, f->key, f->key_len, v, rank, e);
    if (r == 0)
        r = accepted(l, f, NULL, mark, e);
    if (r > 0 && !f->rank)
        f->rank = ++l->ranks;
    return r;
}

static int set_payload(struct live *l, struct kfile *f, uint32_t type, struct buf *payload,
                       struct err *e)
{
    struct edit_value *v = edit_value_make(type, payload);
    int r = v ? set_value(l, f, v, e) : no_memory(e);
    edit_value_unref(v);
    return r;
}

static int not_for_editing(struct err *e)
{
    return err_set(e, -EPERM, "is not for editing");
}

static int parse_and_set(struct live *l, struct kfile *f, const struct buf *text, struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    CLEANUP(shown_free) struct shown old = edits_shown(l, f->id);
    struct gguf_value v;
    bool own = key_is_own(f->key, f->key_len), known = shown_value(&old, &v);
    struct typed type = edits_type(l, f, text);
    int r = text_parse(&l->newest->view.gen->gguf->fmt, type.type, type.elem, bytes_of(text),
                       text->len, known ? &v : NULL, &payload, e);
    if (r < 0) /* of what cannot be edited nothing else is worth saying */
        return own ? not_for_editing(e) : r;
    if (shown_is(&old, type.type, &payload))
        return 0;
    return own ? not_for_editing(e) : set_payload(l, f, type.type, &payload, e);
}

int edits_accept(struct live *l, struct kfile *f, const struct buf *text, struct err *e)
{
    int r = parse_and_set(l, f, text, e);
    if (r < 0)
        return r;
    kfile_set_state(&l->keys, f, KFILE_KEY);
    f->typed.set = false;
    if (r == 0) /* no edit: what an editor restores after a refused write does not hide why */
        return 0;
    (void)clock_gettime(CLOCK_REALTIME, &f->mtime);
    kfile_set_error(f, NULL);
    return r;
}

int edits_refused(struct live *l, struct kfile *f, const struct err *e)
{
    char name[SHOW_MAX];
    live_log(l, LOG_WARNING, "%s: refused: %s", show(name, f->file, strlen(f->file)), e->msg);
    kfile_set_error(f, e->msg);
    return e->code;
}

int edits_retype(struct live *l, struct kfile *f, struct typed type, struct err *e)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(shown_free) struct shown s = edits_shown(l, f->id);
    if (!s.gen)
        return err_set(e, -EINVAL, "has no value yet");
    if (strcmp(f->key, "general.alignment") == 0)
        return err_set(e, -EINVAL, "its type cannot be changed");
    shown_text(&s, &text);
    if (buf_error(&text))
        return no_memory(e);
    if (f->draft) /* opened as KEY:TYPE: this is later */
        f->draft->typed.set = false;
    f->typed = type;
    int r = edits_accept(l, f, &text, e);
    f->typed.set = false;
    return r;
}

int edits_restore(struct live *l, struct kfile *f, const struct shown *value, struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    CLEANUP(shown_free) struct shown now = edits_shown(l, f->id);
    struct gguf_value v;
    size_t n;
    if (!value->gen) {
        int r = now.gen ? edits_remove(l, f, e) : 0;
        f->typed.set = false; /* it never had a type that counts */
        return r;
    }
    (void)shown_value(value, &v);
    const uint8_t *bytes = shown_bytes(value, &n);
    buf_add(&payload, bytes, n);
    if (buf_error(&payload))
        return no_memory(e);
    return shown_is(&now, v.type, &payload) ? 0 : set_payload(l, f, v.type, &payload, e);
}

/* ---- names ---- */

/* The rank of a key that is stored. */
static uint64_t rank_of(const struct live *l, const struct kfile *f)
{
    bool stored;
    const struct edit_slot *s = slot_of(l, f, &stored);
    const struct gen *base = base_gen(l);
    if (s)
        return s->rank;
    uint32_t kv = gguf_find_key(gen_own(base), f->key, f->key_len);
    if (kv == UINT32_MAX)
        return f->rank;
    return base->rank ? base->rank[kv] : (uint64_t)kv + 1;
}

/* Type and place of a key that is about to leave its name, in case that it comes back. */
static void remember(const struct live *l, struct kfile *f)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = edits_shown(l, f->id);
    f->rank = rank_of(l, f);
    if (shown_value(&s, &v))
        f->typed = (struct typed){true, v.type, v.elem};
}

int edits_remove(struct live *l, struct kfile *f, struct err *e)
{
    struct edit_change *c = &l->writer.next.change;
    size_t mark = edit_mark(c);
    if (pending_room(l) < 0)
        return no_memory(e);
    remember(l, f);
    int r = edit_remove(c, f->key, f->key_len, e);
    if (r == 0)
        r = accepted(l, f, NULL, mark, e);
    if (r > 0) {
        kfile_set_state(&l->keys, f, f->draft ? KFILE_NEW : KFILE_GONE);
        kfile_set_error(f, NULL); /* of a value that nobody misses now */
    }
    return r;
}

/* A removal that cannot be: the key is back. */
static int keep_key(struct live *l, struct kfile *f, const struct err *e)
{
    kfile_set_state(&l->keys, f, KFILE_KEY);
    f->typed.set = false;
    return edits_refused(l, f, e);
}

int edits_remove_due(struct live *l)
{
    int result = 0;
    while (l->keys.removed) {
        struct kfile *f = l->keys.removed;
        struct err e = {0};
        if (edits_remove(l, f, &e) < 0)
            result = keep_key(l, f, &e);
    }
    return result;
}

int edits_rename(struct live *l, struct kfile *from, struct kfile *to, struct err *e)
{
    struct edit_change *c = &l->writer.next.change;
    size_t mark = edit_mark(c);
    if (pending_room(l) < 0)
        return no_memory(e);
    remember(l, from);
    int r = edit_rename(c, from->key, from->key_len, to->key, to->key_len, e);
    if (r == 0)
        r = accepted(l, from, to, mark, e);
    if (r > 0) {
        to->mtime = from->mtime;
        to->rank = from->rank;
        to->typed.set = false;
        kfile_set_error(to, NULL);
    }
    return r;
}
