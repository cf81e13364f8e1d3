/* SPDX-License-Identifier: MIT */
/* The files of metadata/: see keys.h. */
#include "live/keys.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define BUCKETS_LEAST 64

int keys_init(struct keys *k, const struct gguf *g)
{
    size_t n = (size_t)g->n_kv + 1;
    *k = (struct keys){.n = g->n_kv, .cap = n, .cap_id = n, .buckets = BUCKETS_LEAST};
    k->file = calloc(n, sizeof(*k->file));
    k->kv = malloc(n * sizeof(*k->kv));
    k->id = malloc(n * sizeof(*k->id));
    k->spare = malloc(n * sizeof(*k->spare));
    k->generation = calloc(n, sizeof(*k->generation));
    k->bucket = calloc(k->buckets, sizeof(*k->bucket));
    if (!k->file || !k->kv || !k->id || !k->spare || !k->generation || !k->bucket) {
        keys_free(k);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < g->n_kv; i++)
        k->kv[i] = k->id[i] = i;
    return 0;
}

void draft_free(struct draft *d)
{
    if (!d)
        return;
    buf_free(&d->text);
    shown_free(&d->before);
    free(d);
}

struct typed kfile_type(const struct kfile *f)
{
    return f->draft && f->draft->typed.set ? f->draft->typed : f->typed;
}

void kfile_set_error(struct kfile *f, const char *why)
{
    free(f->error);
    f->error = why ? strdup(why) : NULL;
}

static void kfile_free(struct kfile *f)
{
    if (!f)
        return;
    draft_free(f->draft);
    buf_free(&f->content);
    free(f->file);
    free(f->key);
    free(f->error);
    free(f);
}

void keys_free(struct keys *k)
{
    for (uint32_t i = 0; k->file && i < k->n; i++)
        kfile_free(k->file[i]);
    free(k->file);
    free(k->kv);
    free(k->id);
    free(k->spare);
    free(k->generation);
    free(k->unused);
    free(k->moved);
    free(k->bucket);
    *k = (struct keys){0};
}

/* ---- states ---- */

static void enter_removed(struct keys *k, struct kfile *f)
{
    f->next_removed = k->removed;
    f->prev_removed = &k->removed;
    if (k->removed)
        k->removed->prev_removed = &f->next_removed;
    k->removed = f;
}

static void leave_removed(struct kfile *f)
{
    *f->prev_removed = f->next_removed;
    if (f->next_removed)
        f->next_removed->prev_removed = f->prev_removed;
    f->next_removed = NULL;
    f->prev_removed = NULL;
}

/* A helper is the backup of a key that is away for as long as both are that. */
static void part(struct kfile *f)
{
    if (f->backup)
        f->backup->away = NULL;
    f->backup = NULL;
}

void kfile_pair(struct kfile *key, struct kfile *helper)
{
    assert(key->state == KFILE_AWAY && !key->backup && !helper->away);
    key->backup = helper;
    helper->away = key;
}

void kfile_set_state(struct keys *k, struct kfile *f, enum kfile_state state)
{
    assert(f->state != KFILE_DEAD || state == KFILE_DEAD);
    if (f->state == state)
        return;
    if (f->state == KFILE_REMOVED)
        leave_removed(f);
    if (f->state == KFILE_AWAY)
        part(f);
    f->state = state;
    if (state == KFILE_REMOVED)
        enter_removed(k, f);
}

/* ---- names ---- */

static struct kfile **bucket_of(const struct keys *k, uint64_t hash)
{
    return &k->bucket[hash & (k->buckets - 1)];
}

static int grow_buckets(struct keys *k)
{
    size_t n = k->buckets * 2;
    struct kfile **now = calloc(n, sizeof(*now));
    if (!now)
        return -ENOMEM;
    for (size_t i = 0; i < k->buckets; i++)
        for (struct kfile *f = k->bucket[i], *next; f; f = next) {
            next = f->next;
            f->next = now[f->hash & (n - 1)];
            now[f->hash & (n - 1)] = f;
        }
    free(k->bucket);
    k->bucket = now;
    k->buckets = n;
    return 0;
}

static void enter_name(struct keys *k, struct kfile *f)
{
    struct kfile **b = bucket_of(k, f->hash);
    f->next = *b;
    *b = f;
    k->named++;
}

static void leave_name(struct keys *k, struct kfile *f)
{
    struct kfile **p = bucket_of(k, f->hash);
    while (*p != f)
        p = &(*p)->next;
    *p = f->next;
    k->named--;
}

struct kfile *keys_named(const struct keys *k, const char *file)
{
    uint64_t hash = hash_name(file, strlen(file));
    struct kfile *f = *bucket_of(k, hash);
    while (f && (f->hash != hash || strcmp(f->file, file) != 0))
        f = f->next;
    return f;
}

bool keys_visible(const struct keys *k, uint32_t i)
{
    const struct kfile *f = k->file[i];
    if (!f)
        return k->kv[i] != KV_NONE;
    return f->state == KFILE_KEY || f->state == KFILE_NEW || f->state == KFILE_HELPER ||
           f->state == KFILE_LINK;
}

uint32_t keys_find(const struct keys *k, const struct gen *g, const char *file)
{
    const struct kfile *f = keys_named(k, file);
    if (f)
        return keys_visible(k, f->id) ? f->id : KV_NONE;
    uint32_t kv = gen_find_key(g, file);
    return kv == UINT32_MAX ? KV_NONE : k->id[kv];
}

/* ---- making and ending ---- */

/* Give kfile f, which has a name, its place at its number. */
static int place(struct keys *k, struct kfile *f)
{
    if (k->named >= k->buckets && grow_buckets(k) < 0)
        return -ENOMEM;
    k->file[f->id] = f;
    enter_name(k, f);
    return 0;
}

static struct kfile *kfile_make(const char *file, enum kfile_state state)
{
    struct kfile *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->state = state;
    f->file = strdup(file);
    f->hash = hash_name(file, strlen(file));
    (void)clock_gettime(CLOCK_REALTIME, &f->mtime);
    if (!f->file) {
        kfile_free(f);
        return NULL;
    }
    return f;
}

static int set_key(struct kfile *f, const char *key, size_t n)
{
    f->key = malloc(n + 1);
    if (!f->key)
        return -ENOMEM;
    memcpy(f->key, key, n);
    f->key[n] = '\0';
    f->key_len = n;
    return 0;
}

struct kfile *keys_touch(struct keys *k, const struct gen *g, uint32_t i)
{
    char file[TREE_NAME_MAX + 1];
    if (k->file[i])
        return k->file[i];
    const struct gguf_kv *kv = &g->gguf->kv[k->kv[i]];
    (void)name_encode(gguf_key(g->gguf, kv), kv->key_len, file);
    struct kfile *f = kfile_make(file, KFILE_KEY);
    if (!f)
        return NULL;
    f->id = i;
    f->mtime = (struct timespec){0}; /* not written in this mount: the model's */
    if (set_key(f, gguf_key(g->gguf, kv), kv->key_len) < 0 || place(k, f) < 0) {
        kfile_free(f);
        return NULL;
    }
    return f;
}

/* Room for one more number. */
static int grow_numbers(struct keys *k)
{
    size_t cap = k->cap * 2;
    if (k->n < k->cap)
        return 0;
    struct kfile **file = realloc(k->file, cap * sizeof(*file));
    if (!file)
        return -ENOMEM;
    k->file = file;
    uint32_t *kv = realloc(k->kv, cap * sizeof(*kv));
    if (!kv)
        return -ENOMEM;
    k->kv = kv;
    uint32_t *generation = realloc(k->generation, cap * sizeof(*generation));
    if (!generation)
        return -ENOMEM;
    k->generation = generation;
    k->cap = cap;
    return 0;
}

/* A number for a new file: one that was used before if there is one. The caller counts it. */
static int new_number(struct keys *k, uint32_t *ret)
{
    if (k->n_unused) {
        *ret = k->unused[k->n_unused - 1];
        return 0;
    }
    int r = grow_numbers(k);
    if (r < 0)
        return r;
    *ret = k->n;
    k->generation[k->n] = 0;
    return 0;
}

static void take_number(struct keys *k, uint32_t number)
{
    if (number == k->n)
        k->n++;
    else
        k->n_unused--;
    k->kv[number] = KV_NONE;
}

/* Without memory the number is not used again. */
static void give_number(struct keys *k, uint32_t number)
{
    k->file[number] = NULL;
    k->generation[number]++;
    if (array_grow(&k->unused, &k->cap_unused, k->n_unused, sizeof(*k->unused)) == 0)
        k->unused[k->n_unused++] = number;
}

/* key NULL: it is a helper. */
static struct kfile *add(struct keys *k, const char *file, enum kfile_state state, const char *key,
                         size_t n)
{
    uint32_t number;
    if (new_number(k, &number) < 0)
        return NULL;
    struct kfile *f = kfile_make(file, state);
    if (!f)
        return NULL;
    f->id = number;
    if ((key && set_key(f, key, n) < 0) || place(k, f) < 0) {
        kfile_free(f);
        return NULL;
    }
    take_number(k, number);
    return f;
}

struct kfile *keys_add(struct keys *k, const char *file, enum kfile_state state)
{
    char key[TREE_NAME_MAX + 1];
    size_t n = 0;
    bool is_key = state == KFILE_NEW;
    if (is_key && name_decode(file, key, &n) < 0)
        return NULL;
    return add(k, file, state, is_key ? key : NULL, n);
}

struct kfile *keys_add_key(struct keys *k, const char *key, size_t n)
{
    char file[TREE_NAME_MAX + 1];
    (void)name_encode(key, n, file);
    return add(k, file, KFILE_NEW, key, n);
}

int keys_rename(struct keys *k, struct kfile *f, const char *file)
{
    char *name = strdup(file);
    if (!name)
        return -ENOMEM;
    leave_name(k, f);
    free(f->file);
    f->file = name;
    f->hash = hash_name(name, strlen(name));
    enter_name(k, f);
    return 0;
}

void keys_kill(struct keys *k, struct kfile *f)
{
    leave_name(k, f);
    if (f->away)
        part(f->away);
    kfile_set_state(k, f, KFILE_DEAD);
    keys_reap(k, f);
}

void keys_clear(struct keys *k, const char *file)
{
    struct kfile *f = keys_named(k, file);
    if (f && f->state == KFILE_ASIDE)
        keys_kill(k, f);
}

bool keys_have_room(const struct keys *k, uint64_t was, uint64_t len)
{
    uint64_t others = k->helper_bytes - was;
    return len <= TEXT_MAX && others <= TEXT_MAX - len;
}

/* A key that was never stored is as if it had never been. */
static bool is_over(const struct kfile *f)
{
    return f->state == KFILE_DEAD || (f->state == KFILE_GONE && f->rank == 0 && !f->error);
}

void keys_reap(struct keys *k, struct kfile *f)
{
    if (!is_over(f) || f->opens || f->lookups || f->pins || f->draft)
        return;
    if (f->state != KFILE_DEAD)
        leave_name(k, f);
    k->helper_bytes -= f->content.len;
    give_number(k, f->id);
    kfile_free(f);
}

/* ---- from one generation to the next ---- */

/* A key that appeared keeps the number that it has by its name. */
static uint32_t number_of(const struct keys *k, const struct gguf *old, const struct gguf *now,
                          uint32_t kv)
{
    char file[TREE_NAME_MAX + 1];
    const char *key = gguf_key(now, &now->kv[kv]);
    size_t n = now->kv[kv].key_len;
    (void)name_encode(key, n, file);
    const struct kfile *f = keys_named(k, file);
    if (f)
        return f->id;
    uint32_t before = gguf_find_key(old, key, n);
    return before == UINT32_MAX ? KV_NONE : k->id[before];
}

void keys_settle(struct keys *k, struct kfile *f, bool stored)
{
    if (stored && (f->state == KFILE_GONE || f->state == KFILE_NEW))
        kfile_set_state(k, f, KFILE_KEY);
    if (!stored && f->state == KFILE_KEY)
        kfile_set_state(k, f, f->draft ? KFILE_NEW : KFILE_GONE);
    if (!stored && (f->state == KFILE_REMOVED || f->state == KFILE_AWAY))
        kfile_set_state(k, f, KFILE_GONE);
}

/* Room for n numbers in id and spare. What was there once is there again without memory. */
static int grow_ids(struct keys *k, size_t n)
{
    if (n <= k->cap_id)
        return 0;
    uint32_t *id = realloc(k->id, n * sizeof(*id));
    if (id)
        k->id = id;
    uint32_t *spare = realloc(k->spare, n * sizeof(*spare));
    if (spare)
        k->spare = spare;
    if (!id || !spare)
        return -ENOMEM;
    k->cap_id = n;
    return 0;
}

/* A key that no edit has touched has the size that was measured before. */
static void keep_size(const struct keys *k, uint32_t number, const struct gen *old, struct gen *now,
                      uint32_t kv)
{
    if (number == KV_NONE || k->file[number])
        return;
    uint64_t size = atomic_load_explicit(&old->key_size[k->kv[number]], memory_order_relaxed);
    if (size)
        atomic_store_explicit(&now->key_size[kv], size, memory_order_relaxed);
}

int keys_follow(struct keys *k, const struct gen *before, struct gen *gen)
{
    const struct gguf *old = before->gguf, *now = gen->gguf;
    if (grow_ids(k, (size_t)now->n_kv + 1) < 0)
        return -ENOMEM;
    uint32_t *id = k->spare;
    for (uint32_t kv = 0; kv < now->n_kv; kv++) {
        id[kv] = number_of(k, old, now, kv);
        keep_size(k, id[kv], before, gen, kv);
    }
    for (uint32_t i = 0; i < k->n; i++)
        k->kv[i] = KV_NONE;
    for (uint32_t kv = 0; kv < now->n_kv; kv++)
        if (id[kv] != KV_NONE)
            k->kv[id[kv]] = kv;
    k->spare = k->id;
    k->id = id;
    return 0;
}
