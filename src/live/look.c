/* SPDX-License-Identifier: MIT */
/* Files found by name and number, and listed: see live.h, look.h. */
#include "live/look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/batch.h"
#include "live/stored.h"

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

void live_forget(struct live *l, uint32_t number, uint64_t n)
{
    LOCKED(&l->lock);
    struct file *f = names_file(&l->names, number);
    struct name *last = f ? f->last : NULL;
    if (!f)
        return;
    f->lookups -= min_u64(f->lookups, n);
    file_reap(&l->names, f);
    if (last)
        name_reap(&l->names, last);
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

int live_lookup(struct live *l, const char *name, struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    lock_take(&l->lock);
    struct file *f = look_find_typed(l, name);
    if (f) {
        shown = look_attr(l, f, ret);
        f->lookups++;
    }
    lock_drop(&l->lock);
    if (!f)
        return -ENOENT;
    look_measure(&shown, ret);
    return 0;
}

/* ---- listing ---- */

/* The name of a key. Most often it is the one that was made after that of the key before. */
static const struct name *name_of(const struct live *l, const struct gguf *g, uint32_t kv,
                                  const struct name *before)
{
    size_t n = g->kv[kv].key_len;
    const char *key = gguf_key(g, &g->kv[kv]);
    const struct name *x = before ? before->newer : l->names.oldest;
    bool next = x && x->key && x->key_len == n && memcmp(x->key, key, n) == 0;
    return next ? x : names_find_key(&l->names, key, n);
}

int live_list(struct live *l, struct live_list *list)
{
    struct err e = {0};
    LOCKED(&l->lock);
    int r;
    r = batch_freshen(l, &e);
    const struct snapshot *g = l->newest->view.snap;
    size_t n = 0, most = (size_t)g->gguf->n_kv + l->names.named;
    uint32_t *number = r < 0 ? NULL : malloc((most + 1) * sizeof(*number));
    if (!number)
        return r < 0 ? r : -ENOMEM;
    const struct name *x = NULL;
    for (uint32_t kv = 0; kv < g->gguf->n_kv; kv++) {
        x = name_of(l, g->gguf, kv, x);
        if (x && x->file && snapshot_shows_key(g, kv))
            number[n++] = x->file->number;
    }
    for (x = l->names.oldest; x; x = x->newer)
        if (x->file && x->slot != SLOT_STORED)
            number[n++] = x->file->number;
    live_list_free(list);
    *list = (struct live_list){number, n};
    return 0;
}

void live_list_free(struct live_list *list)
{
    free(list->number);
    *list = (struct live_list){0};
}

/* The file of entry *i, or of the next that still has a name; NULL: there are no more. */
static struct file *next_entry(const struct live *l, const struct live_list *list, uint64_t *i)
{
    for (; *i < list->n; ++*i) {
        struct file *f = names_file(&l->names, list->number[*i]);
        if (f && f->name)
            return f;
    }
    return NULL;
}

int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    lock_take(&l->lock);
    struct file *f = next_entry(l, list, i);
    if (f) {
        (void)strcpy(name, f->name->text);
        *ret = (struct live_attr){
            .number = f->number, .ino = f->name->ino, .link = f->kind == FILE_LINK};
    }
    if (f && attrs) {
        shown = look_attr(l, f, ret);
        f->lookups++;
    }
    lock_drop(&l->lock);
    look_measure(&shown, ret);
    return f != NULL;
}
