/* SPDX-License-Identifier: MIT */
/* Snapshots and views: see snapshot.h. */
#include "model/snapshot.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/sys.h"
#include "base/lock.h"
#include "gguf/value.h"
#include "model/facts.h"
#include "model/store.h"
#include "text/name.h"

/* ---- which tensor is which ---- */

void ids_unref(struct ids *s)
{
    if (REF_DROP(s))
        free(s);
}

uint32_t ids_look(const struct ids *s, uint32_t wanted, bool version)
{
    for (uint32_t i = 0; i < s->n; i++)
        if ((version ? s->of[i].version : s->of[i].number) == wanted)
            return i;
    return IDS_NONE;
}

struct ids *ids_new(uint32_t n)
{
    struct ids *s = calloc(1, sizeof(*s) + n * sizeof(s->of[0]));
    if (s) {
        atomic_init(&s->refs, 1);
        s->n = n;
    }
    return s;
}

/* ---- snapshots ---- */

static void snapshot_free(struct snapshot *g)
{
    for (size_t i = 0; i < SNAPSHOT_FORMS; i++)
        image_unref(g->form[i]);
    free((void *)g->key_size);
    gguf_free(g->gguf);
    for (size_t i = 0; g->shard && i < g->shards->n; i++)
        gguf_free(g->shard[i]);
    free((void *)g->shard);
    ids_unref(g->ids);
    image_unref(g->whole);
    free(g);
}

void snapshot_unref(struct snapshot *g)
{
    if (REF_DROP(g))
        snapshot_free(g);
}

/* Longer padding is not kept, because a sparse file that occupies one block may have gigabytes of
 * it. */
#define LONGEST_PADDING ((uint64_t)1 << 20)

int snapshot_keep_file(const struct snapshot *g, const struct source *src, struct mapped *m,
                       struct image **ret)
{
    const struct gguf *own = snapshot_own(g);
    uint64_t end = min_u64(own->data_off, src->size), size = max_u64(src->size, own->data_end);
    bool none = own->alignment > LONGEST_PADDING || end <= own->head_len;
    size_t n = none ? 0 : (size_t)(end - own->head_len);
    uint64_t at = own->head_len + n;
    uint8_t *pad = malloc(n + 1);
    struct image *im = image_new(NULL);
    int r = pad && im ? src->read(src, own->head_len, pad, n) : -ENOMEM;
    if (r < 0) {
        free(pad);
        image_unref(im);
        return r;
    }
    image_own(im, pad);
    image_add_memory(im, own->head, own->head_len);
    image_add_memory(im, pad, n);
    image_add_file(im, image_file(im, mapped_source(m)), at, size - at);
    r = image_end(im);
    if (r < 0)
        image_unref(im);
    else
        *ret = im;
    return r;
}

bool view_is_lost(const struct view *v)
{
    return v->snap->number == 0 && !v->snap->shards && !v->file;
}

struct image *snapshot_keep(_Atomic(struct image *) *slot, struct image *im)
{
    struct image *first = NULL;
    if (atomic_compare_exchange_strong(slot, &first, im))
        return im;
    image_unref(im);
    return first;
}

struct image *snapshot_whole(struct snapshot *g)
{
    struct image *im = atomic_load(&g->whole);
    return im || image_of_model(g->gguf, &im) < 0 ? im : snapshot_keep(&g->whole, im);
}

struct view view_ref(const struct view *v)
{
    return (struct view){REF(v->snap), REF(v->store), REF(v->file)};
}

void view_free(struct view *v)
{
    snapshot_unref(v->snap);
    store_unref(v->store);
    image_unref(v->file);
    *v = VIEW_INIT;
}

/* A name of up to this length always fits: in a file name, a byte takes at most three. */
#define FITS (TREE_NAME_MAX / 3)

/* Finds a name that was cut. Few models have one. */
static uint32_t find_long(const struct gguf *m, bool keys, const char *file)
{
    char again[TREE_NAME_MAX + 1];
    const uint32_t n = keys ? m->n_kv : m->n_tensors;
    for (uint32_t i = 0; i < n; i++) {
        const struct text name = gguf_name_of(m, keys, i);
        if (name.len > FITS && name_encode(name.at, name.len, again) && strcmp(again, file) == 0)
            return i;
    }
    return UINT32_MAX;
}

void snapshot_keep_sizes(const struct snapshot *old, struct snapshot *now)
{
    const struct gguf *g = now->gguf;
    for (uint32_t kv = 0; kv < g->n_kv; kv++) {
        const uint32_t was = gguf_find_key(old->gguf, gguf_key(g, &g->kv[kv]), g->kv[kv].key_len);
        const uint64_t size = was == UINT32_MAX ? 0 : atomic_load(&old->key_size[was]);
        if (size && gguf_same_value(g, kv, old->gguf, was))
            atomic_store(&now->key_size[kv], size);
    }
}

uint32_t snapshot_find(const struct snapshot *g, bool key, const char *file)
{
    char name[TREE_NAME_MAX + 1];
    size_t n;
    int r = name_decode(file, name, &n);
    if (r == -ENAMETOOLONG)
        return find_long(g->gguf, key, file);
    if (r < 0)
        return UINT32_MAX;
    return key ? gguf_find_key(g->gguf, name, n) : gguf_find_tensor(g->gguf, name, n);
}

uint64_t snapshot_offset(const struct snapshot *g, uint32_t i, size_t *shard)
{
    const struct gguf *m = snapshot_own(g);
    *shard = 0;
    while (g->shard && i >= m->n_tensors) {
        i -= m->n_tensors;
        m = g->shard[++*shard];
    }
    return m->tensor[i].off;
}

bool snapshot_shows_key(const struct snapshot *g, uint32_t kv)
{
    return !text_is(gguf_name_of(g->gguf, true, kv), KEY_RESERVE);
}

/* ---- the newest ---- */

void newest_init(struct newest *n)
{
    *n = (struct newest){0};
    lock_init(&n->lock);
}

void newest_free(struct newest *n)
{
    view_free(&n->view);
    lock_destroy(&n->lock);
}

struct view newest_view_as(const struct newest *n, struct snapshot *g)
{
    return (struct view){REF(g), REF(n->view.store), REF(g->number == 0 ? n->view.file : NULL)};
}

struct view newest_view(struct newest *n)
{
    LOCKED(&n->lock);
    return newest_view_as(n, n->view.snap);
}

struct timespec newest_changed(struct newest *n)
{
    LOCKED(&n->lock);
    return n->changed;
}

void newest_touch(struct newest *n)
{
    LOCKED(&n->lock);
    n->changed = when_date();
}

int newest_make(const struct newest *n, struct gguf *first, struct gguf *const *all,
                uint32_t number, const struct timespec *mtime, struct snapshot **ret, struct err *e)
{
    const size_t files = n->shards ? n->shards->n : 0;
    struct snapshot *g = calloc(1, sizeof(*g));
    int r = number == UINT32_MAX
                ? err_set(e, -EOVERFLOW, "too many edits; unmount the model and mount it again")
                : 0;
    if (!g || r < 0) {
        gguf_free(first);
        free(g);
        return r < 0 ? r : err_set(e, -ENOMEM, "no memory");
    }
    atomic_init(&g->refs, 1);
    g->number = number;
    g->mtime = *mtime;
    g->file = n->name;
    g->shards = n->shards;
    g->gguf = first;
    g->shard = files ? calloc(files, sizeof(struct gguf *)) : NULL;
    for (size_t i = 0; g->shard && i < files; i++)
        g->shard[i] = i ? REF(all[i]) : first;
    if (g->shard) {
        g->gguf = NULL;
        r = merge_shards((const struct gguf *const *)g->shard, files, &g->gguf, e);
    }
    if (r == 0)
        g->key_size = calloc((size_t)g->gguf->n_kv + 1, sizeof(*g->key_size));
    if (r == 0 && (!g->key_size || (files && !g->shard)))
        r = err_set(e, -ENOMEM, "no memory");
    if (r < 0)
        snapshot_free(g);
    else
        *ret = g;
    return r;
}

int newest_make_store(const struct snapshot *g, struct mapped *const *file, int fd,
                      struct store **ret, struct err *e)
{
    struct mapped *m = NULL;
    int r = fd < 0 ? 0 : mapped_open(fd, snapshot_own(g)->file_size, &m, e);
    if (r == 0 && store_make(m, file, (const struct gguf *const *)(g->shard ? g->shard : &g->gguf),
                             snapshot_files(g), ret) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    mapped_unref(m);
    return r;
}

struct view newest_put_view(struct newest *n, struct snapshot *g, struct store *s)
{
    LOCKED(&n->lock);
    if (g->ids != n->view.snap->ids)
        n->leaving(n->leaving_arg, g);
    struct view old = {n->view.snap, n->view.store, NULL};
    n->view.snap = g;
    n->view.store = s;
    return old;
}

void newest_drop_file(struct newest *n)
{
    lock_take(&n->lock);
    struct image *file = n->view.file;
    n->view.file = NULL;
    lock_drop(&n->lock);
    image_unref(file);
}
