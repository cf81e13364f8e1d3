/* SPDX-License-Identifier: MIT */
/* What the model has of a key, and what its name shows: see stored.h. */
#include "live/stored.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/batch.h"

/* The slot of a key that an edit has touched, else NULL. *stored: the model has the key. */
static const struct edit_slot *slot_of(const struct live *l, const struct name *x, bool *stored)
{
    uint32_t i = EDIT_NONE;
    const struct edit_change *c = &l->next.change;
    *stored = x->key && edit_find(c, x->key, x->key_len, &i);
    return i == EDIT_NONE ? NULL : &c->slot[i];
}

bool stored_has(const struct live *l, const struct name *x)
{
    bool stored;
    assert(lock_held(&l->lock));
    (void)slot_of(l, x, &stored);
    return stored;
}

/* The value that a key has below all that is pending. */
static struct shown base_value(const struct live *l, const char *key, size_t n)
{
    struct snapshot *g = base_snapshot(l);
    uint32_t kv = gguf_find_key(g->gguf, key, n);
    return kv == UINT32_MAX ? SHOWN_NONE : (struct shown){snapshot_ref(g), NULL, kv};
}

struct shown stored_value(const struct live *l, const struct name *x)
{
    bool stored;
    const struct edit_slot *s = slot_of(l, x, &stored);
    assert(lock_held(&l->lock));
    if (!stored)
        return SHOWN_NONE;
    if (!s)
        return base_value(l, x->key, x->key_len);
    if (s->value)
        return (struct shown){snapshot_ref(base_snapshot(l)), edit_value_ref(s->value), 0};
    const struct gguf *own = l->next.change.base;
    return base_value(l, gguf_key(own, &own->kv[s->old]), own->kv[s->old].key_len);
}

struct typed stored_wanted_type(const struct name *x)
{
    const struct draft *d = x->file ? x->file->draft : NULL;
    return d && d->typed.set ? d->typed : x->typed;
}

/* The type of what is stored. All of the value is walked: for a draft once, until it is another. */
static struct typed stored_type(const struct live *l, const struct name *x)
{
    struct gguf_value v;
    struct typed_value none = {0},
                       *known = x->file && x->file->draft ? &x->file->draft->known : &none;
    CLEANUP(shown_free) struct shown s = stored_value(l, x);
    if (!shown_value(&s, &v))
        return (struct typed){0};
    if (known->type.set && known->id == shown_id(&s) && known->kv == s.kv)
        return known->type;
    *known = (struct typed_value){shown_id(&s), s.kv, type_of_value(&v)};
    if (known->type.inner && strchr(known->type.inner, ','))
        known->type.inner = NULL; /* of several: each has that of the one before it */
    return known->type;
}

struct typed stored_known_type(const struct live *l, const struct name *x)
{
    assert(lock_held(&l->lock));
    struct typed wanted = stored_wanted_type(x);
    return wanted.set ? wanted : stored_type(l, x);
}

uint64_t stored_rank(const struct live *l, const struct name *x)
{
    assert(lock_held(&l->lock));
    bool stored;
    const struct edit_slot *s = slot_of(l, x, &stored);
    const struct snapshot *base = base_snapshot(l);
    if (s)
        return s->rank;
    uint32_t kv = gguf_find_key(snapshot_own(base), x->key, x->key_len);
    if (kv == UINT32_MAX)
        return x->rank;
    return base->rank ? base->rank[kv] : edit_first_rank(kv);
}

/* ---- what a name shows ---- */

void name_hide(struct live *l, struct name *x)
{
    assert(lock_held(&l->lock));
    struct file *f = x->file;
    if (x->slot != SLOT_ABSENT || !f || f->draft)
        return;
    (void)name_leave(x);
    if (x->rank)
        name_spare(&l->names, x, f);
    file_reap(&l->names, f);
}

void name_follow(struct live *l, struct name *x)
{
    assert(lock_held(&l->lock));
    if (!x->key)
        return;
    slot_event(&l->names, x, stored_has(l, x) ? SLOT_BACK : SLOT_GONE);
    if (x->slot == SLOT_STORED) {
        x->typed.set = false;
        name_show(&l->names, x);
    }
    name_hide(l, x);
}

int name_refused(struct live *l, struct name *x, const struct err *e)
{
    assert(lock_held(&l->lock));
    char name[SHOW_MAX];
    live_log(l, LOG_WARNING, "%s: refused: %s", show(name, x->text, strlen(x->text)), e->msg);
    name_set_error(&l->names, x, e->msg);
    return e->code;
}

/* ---- files ---- */

static const struct name *shown_name(const struct file *f)
{
    return f->name ? f->name : f->last;
}

struct shown look_shown(const struct live *l, const struct file *f)
{
    assert(lock_held(&l->lock));
    const struct name *x = f->kind == FILE_KEY ? shown_name(f) : NULL;
    return x ? stored_value(l, x) : SHOWN_NONE;
}

struct shown look_attr(const struct live *l, struct file *f, struct live_attr *ret)
{
    assert(lock_held(&l->lock));
    const struct name *x = shown_name(f);
    const struct buf *bytes = file_bytes(f);
    *ret = (struct live_attr){.number = f->number,
                              .ino = x ? x->ino : f->number,
                              .generation = l->names.at[f->number].generation,
                              .size = bytes ? bytes->len : 0,
                              .link = f->kind == FILE_LINK};
    if (x)
        ret->mtime = x->mtime;
    return bytes ? SHOWN_NONE : look_shown(l, f);
}

void look_measure(struct shown *s, struct live_attr *ret)
{
    if (s->snap)
        ret->size = shown_size(s);
    shown_free(s);
}

/* ---- by name ---- */

struct file *look_find(const struct live *l, const char *text)
{
    assert(lock_held(&l->lock));
    const struct name *x = names_find(&l->names, text);
    return x ? x->file : NULL;
}

static bool is_key(void *ctx, const char *text, size_t n)
{
    const struct live *l = ctx;
    char name[TREE_NAME_MAX + 1];
    memcpy(name, text, n);
    name[n] = '\0';
    const struct name *x = names_find(&l->names, name);
    return x && x->key;
}

enum name_class look_classify(const struct live *l, const char *text)
{
    assert(lock_held(&l->lock));
    return name_classify(text, is_key, (void *)l);
}

static bool has_type(const struct live *l, const struct file *f, const struct typed *type)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = look_shown(l, f);
    if (shown_value(&s, &v))
        return v.type == type->type && (v.type != GGUF_ARRAY || v.elem == type->elem);
    struct typed known = f->kind == FILE_KEY ? stored_wanted_type(f->name) : f->typed;
    return known.set && known.type == type->type;
}

struct file *look_find_typed(const struct live *l, const char *text)
{
    char key[TREE_NAME_MAX + 1];
    struct typed type;
    struct file *f = look_find(l, text);
    if (f || !name_typed(text, key, &type))
        return f;
    f = look_find(l, key);
    return f && has_type(l, f, &type) ? f : NULL;
}
