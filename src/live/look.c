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

/* ---- by number ---- */

int look_check(const struct live *l, uint32_t number)
{
    assert(lock_held(&l->lock));
    bool known = names_file(&l->names, number) ||
                 names_kv(&l->names, l->newest->view.snap, number) != UINT32_MAX;
    return known ? 0 : -ENOENT;
}

struct file *look_materialise(struct live *l, uint32_t number)
{
    assert(lock_held(&l->lock));
    struct file *f = names_file(&l->names, number);
    return f ? f : names_materialise(&l->names, l->newest->view.snap, number);
}

struct shown look_shown(const struct live *l, uint32_t number)
{
    assert(lock_held(&l->lock));
    const struct file *f = names_file(&l->names, number);
    struct snapshot *g = l->newest->view.snap;
    const struct name *x = f && f->kind == FILE_KEY ? f->name ? f->name : f->last : NULL;
    if (f)
        return x ? stored_value(l, x) : SHOWN_NONE;
    uint32_t kv = names_kv(&l->names, g, number);
    return kv == UINT32_MAX ? SHOWN_NONE : (struct shown){snapshot_ref(g), NULL, kv};
}

struct shown look_attr(const struct live *l, uint32_t number, struct live_attr *ret)
{
    struct file *f = names_file(&l->names, number);
    assert(lock_held(&l->lock));
    *ret = (struct live_attr){
        .number = number, .ino = number, .generation = l->names.at[number].generation};
    const struct name *x = f ? f->name ? f->name : f->last : NULL;
    if (x) {
        ret->ino = x->ino;
        ret->mtime = x->mtime;
        ret->link = f->kind == FILE_LINK;
    }
    const struct buf *bytes = f ? file_bytes(f) : NULL;
    if (bytes)
        ret->size = bytes->len;
    return bytes ? SHOWN_NONE : look_shown(l, number);
}

void look_measure(struct shown *s, struct live_attr *ret)
{
    if (s->snap)
        ret->size = shown_size(s);
    shown_free(s);
}

/* The kernel gets a reference. Those to untouched keys are not counted: their numbers stay. */
static void refer(struct live *l, uint32_t number)
{
    struct file *f = names_file(&l->names, number);
    if (f)
        f->lookups++;
}

void live_forget(struct live *l, uint32_t number, uint64_t n)
{
    lock_take(&l->lock);
    struct file *f = names_file(&l->names, number);
    if (f) {
        struct name *last = f->last;
        f->lookups -= min_u64(f->lookups, n);
        file_reap(&l->names, f);
        if (last)
            name_reap(&l->names, last);
    }
    lock_drop(&l->lock);
}

/* ---- by name ---- */

uint32_t look_find(const struct live *l, const char *text)
{
    const struct name *x = names_find(&l->names, text);
    const struct snapshot *g = l->newest->view.snap;
    assert(lock_held(&l->lock));
    if (x)
        return x->file ? x->file->number : NUMBER_NONE;
    uint32_t kv = snapshot_find_key(g, text);
    return kv == UINT32_MAX ? NUMBER_NONE : names_number(&l->names, g, kv);
}

static bool is_key(void *ctx, const char *text, size_t n)
{
    const struct live *l = ctx;
    char name[TREE_NAME_MAX + 1];
    memcpy(name, text, n);
    name[n] = '\0';
    const struct name *x = names_find(&l->names, name);
    return x ? x->key != NULL : snapshot_find_key(l->newest->view.snap, name) != UINT32_MAX;
}

enum name_class look_classify(const struct live *l, const char *text)
{
    assert(lock_held(&l->lock));
    return name_classify(text, is_key, (void *)l);
}

static bool has_type(const struct live *l, uint32_t number, uint32_t type, uint32_t elem)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = look_shown(l, number);
    if (shown_value(&s, &v))
        return v.type == type && (type != GGUF_ARRAY || v.elem == elem);
    const struct file *f = names_file(&l->names, number);
    struct typed known = f->kind == FILE_KEY ? stored_wanted_type(f->name) : f->typed;
    return known.set && known.type == type;
}

/* KEY:TYPE, by which a key was created, is its name too. */
static uint32_t find_typed(const struct live *l, const char *text)
{
    char key[TREE_NAME_MAX + 1];
    struct typed type = {0};
    uint32_t found = look_find(l, text);
    size_t n = found == NUMBER_NONE ? name_typed(text, &type) : 0;
    if (n == 0)
        return found;
    memcpy(key, text, n);
    key[n] = '\0';
    found = look_find(l, key);
    return found != NUMBER_NONE && has_type(l, found, type.type, type.elem) ? found : NUMBER_NONE;
}

int live_lookup(struct live *l, const char *name, struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    lock_take(&l->lock);
    uint32_t found = find_typed(l, name);
    if (found != NUMBER_NONE) {
        shown = look_attr(l, found, ret);
        refer(l, found);
    }
    lock_drop(&l->lock);
    if (found == NUMBER_NONE)
        return -ENOENT;
    look_measure(&shown, ret);
    return 0;
}

/* ---- listing ---- */

/* The number of key kv's file; NUMBER_NONE: it is not visible. */
static uint32_t number_of(const struct live *l, const struct snapshot *g, uint32_t kv)
{
    const struct gguf_kv *at = &g->gguf->kv[kv];
    uint32_t number = names_number(&l->names, g, kv);
    if (number != NUMBER_NONE)
        return number;
    const struct name *x = names_find_key(&l->names, gguf_key(g->gguf, at), at->key_len);
    return x && x->file ? x->file->number : NUMBER_NONE;
}

static int list_locked(struct live *l, struct live_list *list)
{
    struct err e = {0};
    int r = batch_freshen(l, &e);
    if (r < 0)
        return r;
    const struct snapshot *g = l->newest->view.snap;
    uint32_t *number = malloc(((size_t)g->gguf->n_kv + l->names.named + 1) * sizeof(*number));
    size_t n = 0;
    if (!number)
        return -ENOMEM;
    for (uint32_t kv = 0; kv < g->gguf->n_kv; kv++) {
        uint32_t found = snapshot_shows_key(g, kv) ? number_of(l, g, kv) : NUMBER_NONE;
        if (found != NUMBER_NONE)
            number[n++] = found;
    }
    for (const struct name *x = l->names.oldest; x; x = x->newer)
        if (x->file && x->slot != SLOT_STORED)
            number[n++] = x->file->number;
    live_list_free(list);
    *list = (struct live_list){number, n};
    return 0;
}

int live_list(struct live *l, struct live_list *list)
{
    lock_take(&l->lock);
    int r = list_locked(l, list);
    lock_drop(&l->lock);
    return r;
}

void live_list_free(struct live_list *list)
{
    free(list->number);
    *list = (struct live_list){0};
}

/* False: it has no name any more. */
static bool name_of(const struct live *l, uint32_t number, char name[TREE_NAME_MAX + 1])
{
    const struct snapshot *g = l->newest->view.snap;
    const struct file *f = names_file(&l->names, number);
    uint32_t kv = f ? UINT32_MAX : names_kv(&l->names, g, number);
    if (f && f->name)
        (void)strcpy(name, f->name->text);
    if (kv != UINT32_MAX)
        (void)name_encode(gguf_key(g->gguf, &g->gguf->kv[kv]), g->gguf->kv[kv].key_len, name);
    return (f && f->name) || kv != UINT32_MAX;
}

int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    lock_take(&l->lock);
    while (*i < list->n && !name_of(l, list->number[*i], name))
        ++*i;
    bool found = *i < list->n;
    if (found)
        shown = look_attr(l, list->number[*i], ret);
    if (found && attrs)
        refer(l, list->number[*i]);
    lock_drop(&l->lock);
    if (attrs)
        look_measure(&shown, ret);
    shown_free(&shown);
    return found;
}
