/* SPDX-License-Identifier: MIT */
/* Tensors that are changed and not on the disk: see tensor_table.h. */
#include "live/tensor_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "live/tensor.h"

void tensor_table_free(struct tensor_table *p)
{
    for (uint32_t i = 0; i < p->all && p->of; i++)
        tensor_content_unref(p->of[i].content);
    free(p->of);
    index_free(&p->find);
    ids_unref(p->ids);
    *p = (struct tensor_table){0};
}

/* ---- the table ---- */

static uint64_t hash_content(const struct tensor_content *k)
{
    return hash_name((const void *)&k, sizeof(k));
}

/* What the snapshot before had of the tensor with this content. */
static struct table_tensor *known(const struct tensor_table *p, const struct tensor_content *k)
{
    uint32_t i;
    if (!p->of)
        return NULL;
    for (struct probe at = index_probe(&p->find, hash_content(k)); index_next(&p->find, &at, &i);)
        if (p->of[i].content == k)
            return &p->of[i];
    return NULL;
}

/* For known(), from the snapshot after on. */
static int make_index(struct tensor_table *p, uint32_t more)
{
    size_t n = more;
    for (uint32_t i = 0; i < p->n; i++)
        n += p->of[i].content != NULL;
    int r = index_init(&p->find, n);
    for (uint32_t i = 0; i < p->n && r == 0; i++)
        if (p->of[i].content)
            index_insert(&p->find, hash_content(p->of[i].content), i);
    return r;
}

/* What the table before has of tensors that this one is without. */
static void keep_hidden(struct tensor_table *p, const struct tensor_table *before)
{
    for (uint32_t i = 0; i < before->all; i++) {
        struct tensor_content *k = before->of[i].content;
        if (!k || known(p, k))
            continue;
        index_insert(&p->find, hash_content(k), p->all);
        p->of[p->all] = before->of[i];
        p->of[p->all++].content = tensor_content_ref(k);
    }
}

static int give(struct live *l, struct tensor_id *id, bool new)
{
    uint32_t number = atomic_fetch_add(&l->newest->numbers, 1);
    if (number == IDS_NONE) {
        atomic_fetch_sub(&l->newest->numbers, 1);
        return -EOVERFLOW;
    }
    *id = (struct tensor_id){new ? number : id->number, number};
    l->given[number % LIVE_KNOWN] = (struct tensor_id){id->number + 1, number};
    return 0;
}

/* A tensor with a content of the change, which may have been known. */
static int make_changed(struct live *l, struct table_tensor *t, struct tensor_content *k,
                        struct err *e)
{
    const struct table_tensor *was = known(&l->next.table, k);
    const bool new = t->old == EDIT_NONE;
    const uint32_t made = new && !was ? tensor_made(l, k) : IDS_NONE;
    int r = 0;
    t->content = tensor_content_ref(k);
    if (was)
        t->id = was->id;
    else if (made != IDS_NONE)
        t->id = (struct tensor_id){made, made};
    else
        r = give(l, &t->id, new);
    return r < 0 ? err_set(e, r, "too many edits; mount it again") : 0;
}

/* The tensors of a plan that changes some. */
static int fill(struct live *l, const struct edit_plan *p, struct tensor_table *ret, struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    size_t content = 0;
    int r = 0;
    for (uint32_t i = 0; i < ret->n && r == 0; i++) {
        struct table_tensor *t = &ret->of[i];
        t->old = p->tensor[i].old;
        if (t->old != EDIT_NONE)
            t->id = ids_of(base->ids, t->old);
        if (p->tensor[i].changed)
            r = make_changed(l, t, p->content[content++], e);
    }
    return r;
}

static bool is_table(const struct ids *s, const struct tensor_table *p)
{
    uint32_t i = 0;
    if (s && s->n != p->n)
        return false;
    while (i < p->n && ids_of(s, i).number == p->of[i].id.number &&
           ids_of(s, i).version == p->of[i].id.version)
        i++;
    return i == p->n;
}

/* The table that there is, if it is the same one; else a new one. */
static int make_ids(struct live *l, struct tensor_table *p)
{
    const struct snapshot *base = base_snapshot(l);
    struct ids *last = l->next.table.ids;
    if (p->n == base->gguf->n_tensors && is_table(base->ids, p)) {
        p->ids = ids_ref(base->ids);
        return 0;
    }
    if (last && is_table(last, p)) {
        p->ids = ids_ref(last);
        return 0;
    }
    struct tensor_id *of = malloc(((size_t)p->n + 1) * sizeof(*of));
    if (!of)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->n; i++)
        of[i] = p->of[i].id;
    int r = ids_make(of, p->n, &p->ids);
    free(of);
    return r;
}

/* ---- the store ---- */

/* Where a tensor's bytes are: those of its content, over what the base has. *ret: a reference. 0, -ENOMEM. */
static int place_of(const struct store *base, const struct table_tensor *t,
                    struct place_in_store *ret)
{
    struct tensor_content *k = t->content, *below;
    *ret = t->old == EDIT_NONE ? (struct place_in_store){0} : base->place[t->old];
    below = ret->over;
    if (k && below && !tensor_content_covers(k))
        return tensor_content_make(&k->shape, k->nbytes, below, k->piece, k->n, &ret->over);
    ret->over = tensor_content_ref(k ? k : below);
    return 0;
}

static int make_store(const struct store *base, const struct tensor_table *p, struct store **ret)
{
    struct place_in_store *place = malloc(((size_t)p->n + 1) * sizeof(*place));
    int r = place ? 0 : -ENOMEM;
    uint32_t n = 0;
    while (r == 0 && n < p->n && (r = place_of(base, &p->of[n], &place[n])) == 0)
        n++;
    if (r == 0)
        r = store_of(base->file, base->files, place, n, ret);
    while (place && n > 0)
        tensor_content_unref(place[--n].over);
    free(place);
    return r;
}

static int make_all(struct live *l, const struct edit_plan *p, bool hides, struct tensor_table *v,
                    struct store **ret, struct err *e)
{
    const uint32_t hidden = hides ? l->next.table.all : 0;
    v->of = calloc((size_t)v->n + hidden + 1, sizeof(*v->of));
    if (!v->of)
        return err_set(e, -ENOMEM, "no memory");
    int r = fill(l, p, v, e);
    if (r < 0)
        return r;
    r = make_ids(l, v);
    if (r == 0)
        r = make_index(v, hidden);
    if (r == 0 && hides)
        keep_hidden(v, &l->next.table);
    if (r == 0)
        r = make_store(base_store(l), v, ret);
    return r < 0 ? err_set(e, r, "no memory") : 0;
}

/* All tensors are those of the base. */
static int make_same(const struct live *l, struct snapshot *snap, struct store **ret, struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    uint32_t n = base->gguf->n_tensors;
    snap->ids = ids_ref(base->ids);
    if (base->tensor_rank) {
        snap->tensor_rank = malloc(((size_t)n + 1) * sizeof(*snap->tensor_rank));
        if (!snap->tensor_rank)
            return err_set(e, -ENOMEM, "no memory");
        memcpy(snap->tensor_rank, base->tensor_rank, n * sizeof(*snap->tensor_rank));
    }
    *ret = store_ref(base_store(l));
    return 0;
}

int tensor_table_make(struct live *l, struct edit_plan *p, struct snapshot *snap, bool hides,
                      struct store **ret, struct err *e)
{
    assert(lock_held(&l->lock));
    struct tensor_table v = {.n = snap->gguf->n_tensors, .all = snap->gguf->n_tensors};
    ids_unref(snap->ids);
    snap->ids = NULL;
    if (!p->tensor)
        return make_same(l, snap, ret, e);
    int r = make_all(l, p, hides, &v, ret, e);
    if (r < 0) {
        tensor_table_free(&v);
        return r;
    }
    snap->ids = ids_ref(v.ids);
    snap->tensor_rank = p->tensor_rank;
    p->tensor_rank = NULL;
    tensor_table_free(&l->next.table);
    l->next.table = v;
    return 0;
}

int tensor_table_store(struct live *l, struct store **ret)
{
    const struct tensor_table *p = &l->next.table;
    assert(lock_held(&l->lock));
    if (p->of && l->newest->view.snap->ids == p->ids && p->ids != base_snapshot(l)->ids)
        return make_store(base_store(l), p, ret);
    *ret = store_ref(base_store(l));
    return 0;
}

/* ---- after a failure ---- */

static uint64_t *copy_ranks(const uint64_t *rank, size_t n)
{
    uint64_t *ret = malloc((n + 1) * sizeof(*ret));
    if (ret)
        memcpy(ret, rank, n * sizeof(*ret));
    return ret;
}

/* The same state once more, without a table of its tensors. */
static int copy_snapshot(struct live *l, const struct snapshot *from, struct snapshot **ret)
{
    const size_t n = snapshot_files(from);
    struct gguf **file = malloc(n * sizeof(struct gguf *));
    for (size_t i = 0; i < n && file; i++)
        file[i] = gguf_ref(snapshot_file(from, i));
    int r =
        file ? newest_make(l->newest, file, l->snapshots + 1, &from->mtime, ret, NULL) : -ENOMEM;
    free((void *)file);
    if (r < 0)
        return r;
    l->snapshots++;
    ids_unref((*ret)->ids);
    (*ret)->ids = NULL;
    if (from->rank)
        (*ret)->rank = copy_ranks(from->rank, snapshot_own(from)->n_kv);
    if (from->tensor_rank)
        (*ret)->tensor_rank = copy_ranks(from->tensor_rank, from->gguf->n_tensors);
    bool whole = (!from->rank || (*ret)->rank) && (!from->tensor_rank || (*ret)->tensor_rank);
    return whole ? 0 : -ENOMEM;
}

/* Tensors of the model that a change was to alter. */
static int renew(struct live *l, const struct edit_change *c, struct tensor_id *of)
{
    const uint32_t n = l->disk->gguf->n_tensors;
    int r = 0;
    for (size_t i = 0; c->tensors && i < c->tensors->n && r == 0; i++) {
        const uint32_t old = c->tensors->slot[i].old;
        const uint32_t at =
            old == EDIT_NONE ? IDS_NONE : ids_find(l->disk->ids, n, ids_of(c->ids, old).number);
        if (at != IDS_NONE)
            r = give(l, &of[at], false);
    }
    return r;
}

static bool has_tensors(const struct batch *b)
{
    return b && b->change.tensors && b->change.tensors->n;
}

int tensor_table_renew(struct live *l, const struct batch *next, const struct batch *flight)
{
    const uint32_t n = l->disk->gguf->n_tensors;
    struct snapshot *now = NULL;
    assert(lock_held(&l->lock));
    if (!has_tensors(next) && !has_tensors(flight))
        return 0;
    struct tensor_id *of = malloc(((size_t)n + 1) * sizeof(*of));
    int r = of ? copy_snapshot(l, l->disk, &now) : -ENOMEM;
    for (uint32_t i = 0; i < n && r == 0; i++)
        of[i] = ids_of(l->disk->ids, i);
    if (r == 0)
        r = renew(l, &next->change, of);
    if (r == 0 && flight)
        r = renew(l, &flight->change, of);
    if (r == 0)
        r = ids_make(of, n, &now->ids);
    free(of);
    if (r < 0) {
        snapshot_unref(now);
        return r;
    }
    snapshot_unref(l->disk); /* the newest one has its own reference */
    l->disk = now;
    return 0;
}
