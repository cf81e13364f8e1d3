/* SPDX-License-Identifier: MIT */
/* Names looked up and listed, and what is known of files: see live.h. */
#include "live/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"

int number_check(const struct live *l, uint32_t number)
{
    bool known = number < l->keys.n && (l->keys.file[number] || l->keys.kv[number] != KV_NONE);
    return known ? 0 : -ENOENT;
}

struct shown attr_of(const struct live *l, uint32_t number, struct live_attr *ret)
{
    struct kfile *f = l->keys.file[number];
    *ret = (struct live_attr){.number = number, .generation = l->keys.generation[number]};
    if (f) {
        ret->link = f->state == KFILE_LINK;
        ret->mtime = f->mtime;
    }
    while (f && f->state == KFILE_GONE && f->moved)
        f = f->moved;
    const struct buf *bytes = f ? kfile_bytes(f) : NULL;
    if (bytes)
        ret->size = bytes->len;
    return bytes ? SHOWN_NONE : edits_shown(l, f ? f->id : number);
}

void attr_measure(struct shown *s, struct live_attr *ret)
{
    if (s->gen)
        ret->size = shown_size(s);
    shown_free(s);
}

/* The kernel gets a reference. */
static void refer(struct live *l, uint32_t number)
{
    if (l->keys.file[number])
        l->keys.file[number]->lookups++;
}

/* ---- lookup ---- */

static bool has_type(const struct live *l, uint32_t number, uint32_t type, uint32_t elem)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = edits_shown(l, number);
    if (shown_value(&s, &v))
        return v.type == type && (type != GGUF_ARRAY || v.elem == elem);
    struct typed known = kfile_type(l->keys.file[number]);
    return known.set && known.type == type;
}

/* KEY:TYPE, by which a key was created, is its name too. */
static uint32_t find(const struct live *l, const char *name)
{
    char key[TREE_NAME_MAX + 1];
    uint32_t type, elem, found = keys_find(&l->keys, l->newest->view.gen, name);
    size_t n = found == KV_NONE ? name_typed(name, &type, &elem) : 0;
    if (n == 0)
        return found;
    memcpy(key, name, n);
    key[n] = '\0';
    found = keys_find(&l->keys, l->newest->view.gen, key);
    return found != KV_NONE && has_type(l, found, type, elem) ? found : KV_NONE;
}

int live_lookup(struct live *l, const char *name, struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    (void)pthread_mutex_lock(&l->lock);
    uint32_t found = find(l, name);
    if (found != KV_NONE) {
        shown = attr_of(l, found, ret);
        refer(l, found);
    }
    (void)pthread_mutex_unlock(&l->lock);
    if (found == KV_NONE)
        return -ENOENT;
    attr_measure(&shown, ret);
    return 0;
}

void live_forget(struct live *l, uint32_t number, uint64_t n)
{
    (void)pthread_mutex_lock(&l->lock);
    struct kfile *f = number < l->keys.n ? l->keys.file[number] : NULL;
    if (f) {
        f->lookups -= min_u64(f->lookups, n);
        keys_reap(&l->keys, f);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

int live_attr(struct live *l, uint32_t number, const struct live_file *f, struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    (void)pthread_mutex_lock(&l->lock);
    int r = number_check(l, number);
    if (r == 0)
        shown = attr_of(l, number, ret);
    if (r == 0 && f && f->draft) {
        shown_free(&shown);
        ret->size = f->draft->text.len;
    }
    (void)pthread_mutex_unlock(&l->lock);
    if (r == 0)
        attr_measure(&shown, ret);
    return r;
}

/* ---- listing ---- */

static int list_locked(struct live *l, struct live_list *list)
{
    const struct keys *k = &l->keys;
    struct err e = {0};
    int r = freshen_locked(l, &e);
    if (r < 0)
        return r;
    const struct gen *g = l->newest->view.gen;
    uint32_t *number = malloc(((size_t)k->n + 1) * sizeof(*number));
    size_t n = 0;
    if (!number)
        return -ENOMEM;
    for (uint32_t kv = 0; kv < g->gguf->n_kv; kv++)
        if (k->id[kv] != KV_NONE && gen_shows_key(g, kv))
            number[n++] = k->id[kv];
    for (uint32_t i = 0; i < k->n; i++)
        if (k->kv[i] == KV_NONE && k->file[i])
            number[n++] = i;
    live_list_free(list);
    *list = (struct live_list){number, n};
    return 0;
}

int live_list(struct live *l, struct live_list *list)
{
    (void)pthread_mutex_lock(&l->lock);
    int r = list_locked(l, list);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

void live_list_free(struct live_list *list)
{
    free(list->number);
    *list = (struct live_list){0};
}

static void name_of(const struct live *l, uint32_t number, char name[TREE_NAME_MAX + 1])
{
    const struct gguf *g = l->newest->view.gen->gguf;
    const struct kfile *f = l->keys.file[number];
    const struct gguf_kv *kv = f ? NULL : &g->kv[l->keys.kv[number]];
    if (f)
        (void)strcpy(name, f->file);
    else
        (void)name_encode(gguf_key(g, kv), kv->key_len, name);
}

int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret)
{
    struct shown shown = SHOWN_NONE;
    (void)pthread_mutex_lock(&l->lock);
    while (*i < list->n && !keys_visible(&l->keys, list->number[*i]))
        ++*i;
    bool found = *i < list->n;
    if (found) {
        name_of(l, list->number[*i], name);
        shown = attr_of(l, list->number[*i], ret);
    }
    if (found && attrs)
        refer(l, list->number[*i]);
    (void)pthread_mutex_unlock(&l->lock);
    if (attrs)
        attr_measure(&shown, ret);
    shown_free(&shown);
    return found;
}

/* ---- facts ---- */

static void type_of(const struct kfile *f, const struct shown *shown, struct buf *out)
{
    char name[GGUF_TYPE_NAME_MAX];
    struct gguf_value v = {.type = GGUF_STRING};
    struct typed type = f ? kfile_type(f) : (struct typed){0};
    bool known = shown_value(shown, &v);
    if (!known && (!type.set || (f && f->inherited)))
        return;
    if (!known) {
        v.type = (uint8_t)type.type;
        v.elem = (uint8_t)type.elem;
    }
    buf_str(out, gguf_type_name(&v, name));
}

static int facts_locked(const struct live *l, uint32_t number, struct live_facts *ret)
{
    int r = number_check(l, number);
    if (r < 0)
        return r;
    const struct gguf *g = l->newest->view.gen->gguf;
    const struct kfile *f = l->keys.file[number];
    const struct gguf_kv *kv = f ? NULL : &g->kv[l->keys.kv[number]];
    CLEANUP(shown_free) struct shown shown = edits_shown(l, number);
    *ret = (struct live_facts){.helper = f && f->state == KFILE_HELPER};
    if (kv)
        buf_add(&ret->key, gguf_key(g, kv), kv->key_len);
    else if (f->key)
        buf_add(&ret->key, f->key, f->key_len);
    type_of(f, &shown, &ret->type);
    if (f && f->error)
        buf_str(&ret->error, f->error);
    return 0;
}

int live_facts(struct live *l, uint32_t number, struct live_facts *ret)
{
    (void)pthread_mutex_lock(&l->lock);
    int r = facts_locked(l, number, ret);
    (void)pthread_mutex_unlock(&l->lock);
    if (r == 0 && (buf_error(&ret->key) || buf_error(&ret->type) || buf_error(&ret->error))) {
        live_facts_free(ret);
        r = -ENOMEM;
    }
    return r;
}

void live_facts_free(struct live_facts *f)
{
    buf_free(&f->key);
    buf_free(&f->type);
    buf_free(&f->error);
}

/*
 * What is being written has its type from then on, when it is accepted (cp -a); a helper keeps it
 * for the key that it is renamed to (rsync -X). False: it is neither.
 */
static bool type_to_come(struct kfile *f, struct typed type)
{
    if (f->state == KFILE_HELPER) {
        f->typed = type;
        f->inherited = false;
        return true;
    }
    if (!f->draft || !(f->draft->dirty || f->state == KFILE_NEW))
        return false;
    f->draft->typed = type;
    return true;
}

static int retype(struct live *l, uint32_t number, struct typed type, struct live_wait *w)
{
    struct err e = {0};
    int r = number_check(l, number);
    struct kfile *f = r == 0 ? keys_touch(&l->keys, l->newest->view.gen, number) : NULL;
    if (!f)
        return r < 0 ? r : -ENOMEM;
    if (type_to_come(f, type))
        return 0;
    r = edits_retype(l, f, type, &e);
    if (r < 0)
        return edits_refused(l, f, &e);
    return r > 0 ? writer_accepted(l, w) : 0;
}

int live_retype(struct live *l, uint32_t number, const void *name, size_t n, struct live_wait *w)
{
    struct typed type = {.set = true};
    if (!type_by_name(name, n, &type.type, &type.elem))
        return -EINVAL;
    (void)pthread_mutex_lock(&l->lock);
    int r = retype(l, number, type, w);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

int live_forgive(struct live *l, uint32_t number)
{
    (void)pthread_mutex_lock(&l->lock);
    int r = number_check(l, number);
    if (r == 0 && l->keys.file[number])
        kfile_set_error(l->keys.file[number], NULL);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}
