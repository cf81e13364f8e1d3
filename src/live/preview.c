/* SPDX-License-Identifier: MIT */
/* Tensors that are changed and not on the disk: see preview.h. */
#include "live/preview.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/count.h"
#include "edit/temp.h"
#include "live/preview_copy.h"
#include "live/tensor.h"

static void forget_bytes(struct preview *p)
{
    for (uint32_t i = 0; i < p->n && p->of; i++) {
        mapped_unref(p->of[i].bytes.m);
        p->of[i].bytes.m = NULL;
    }
}

void preview_free(struct preview *p)
{
    forget_bytes(p);
    for (uint32_t i = 0; i < p->n && p->of; i++)
        edit_content_unref(p->of[i].content);
    free(p->of);
    index_free(&p->find);
    ids_unref(p->ids);
    *p = (struct preview){0};
}

/* ---- the table ---- */

static uint64_t hash_content(const struct edit_content *k)
{
    return hash_name((const void *)&k, sizeof(k));
}

/* What the snapshot before had of the tensor with this content. */
static struct preview_tensor *known(const struct preview *p, const struct edit_content *k)
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
static int make_index(struct preview *p)
{
    size_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        n += p->of[i].content != NULL;
    int r = index_init(&p->find, n);
    for (uint32_t i = 0; i < p->n && r == 0; i++)
        if (p->of[i].content)
            index_insert(&p->find, hash_content(p->of[i].content), i);
    return r;
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
static int make_changed(struct live *l, struct preview_tensor *t, struct edit_content *k,
                        struct err *e)
{
    const struct store *store = base_store(l);
    struct preview_tensor *was = known(&l->next.preview, k);
    struct below b = {.f = l->files[tensor_file(l, t->old)].file};
    bool new = t->old == EDIT_NONE;
    if (!new) {
        b.m = store->file[store->place[t->old].file];
        b.off = store->place[t->old].off;
        b.in = b.off & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
    }
    t->content = edit_content_ref(k);
    int r = 0;
    uint32_t made = new && !was ? tensor_made(l, k) : IDS_NONE;
    if (was)
        t->id = was->id;
    else if (made != IDS_NONE)
        t->id = (struct tensor_id){made, made};
    else
        r = give(l, &t->id, new);
    if (r < 0)
        return err_set(e, r, "too many edits; mount it again");
    if (was && was->bytes.m) {
        t->bytes = was->bytes;
        (void)mapped_ref(t->bytes.m);
        return 0;
    }
    return preview_map(l, k, &b, &t->bytes, e);
}

/* The tensors of a file whose plan changes some, from `first` on. */
static int fill_part(struct live *l, const struct edit_plan *p, uint32_t first, uint32_t n,
                     struct preview *ret, struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    size_t content = 0;
    bool again = false;
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        struct preview_tensor *t = &ret->of[first + i];
        t->old = p->tensor[i].old == EDIT_NONE ? EDIT_NONE : first + p->tensor[i].old;
        if (t->old != EDIT_NONE)
            t->id = ids_of(base->ids, t->old);
        if (p->tensor[i].changed)
            r = make_changed(l, t, p->content[content++], e);
        again |= r == -EAGAIN;
        r = r == -EAGAIN ? 0 : r;
    }
    return r == 0 && again ? -EAGAIN : r;
}

/* Of a split model the number of tensors stays, so that those of the other files stay in place. */
static int fill(struct live *l, const struct parts *p, const struct snapshot *snap,
                struct preview *ret, struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    int r = 0;
    for (uint32_t i = 0; i < ret->n && snapshot_files(base) > 1; i++) {
        ret->of[i].old = i;
        ret->of[i].id = ids_of(base->ids, i);
    }
    bool again = false; /* all copies that are missing are to be known */
    for (size_t i = 0; i < p->n && r == 0; i++) {
        const uint32_t file = p->part[i].file;
        if (p->part[i].plan.tensor)
            r = fill_part(l, &p->part[i].plan, snapshot_first(base, file),
                          snapshot_file(snap, file)->n_tensors, ret, e);
        again |= r == -EAGAIN;
        r = r == -EAGAIN ? 0 : r;
    }
    return r == 0 && again ? -EAGAIN : r;
}

static bool is_table(const struct ids *s, const struct preview *p)
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
static int make_ids(struct live *l, struct preview *p)
{
    const struct snapshot *base = base_snapshot(l);
    struct ids *last = l->next.preview.ids;
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

static int make_store(const struct store *base, const struct preview *p, struct store **ret)
{
    size_t files = base->files;
    struct mapped **file = malloc((files + p->n + 1) * sizeof(struct mapped *));
    struct place_in_store *place = malloc(((size_t)p->n + 1) * sizeof(*place));
    int r = file && place ? 0 : -ENOMEM;
    if (r == 0)
        memcpy((void *)file, (const void *)base->file, files * sizeof(struct mapped *));
    for (uint32_t i = 0; i < p->n && r == 0; i++) {
        const struct preview_tensor *t = &p->of[i];
        if (!t->bytes.m) {
            place[i] = base->place[t->old];
            continue;
        }
        uint32_t shard = t->old == EDIT_NONE ? 0 : base->place[t->old].shard;
        place[i] = (struct place_in_store){t->bytes.off, (uint32_t)files, shard};
        file[files++] = t->bytes.m;
    }
    if (r == 0)
        r = store_of(file, files, place, p->n, ret);
    free((void *)file);
    free(place);
    return r;
}

static int make_all(struct live *l, const struct parts *p, const struct snapshot *snap,
                    struct preview *v, struct store **ret, struct err *e)
{
    v->of = calloc((size_t)v->n + 1, sizeof(*v->of));
    if (!v->of)
        return err_set(e, -ENOMEM, "no memory");
    int r = fill(l, p, snap, v, e);
    if (r < 0)
        return r;
    r = make_ids(l, v);
    if (r == 0)
        r = make_index(v);
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

/* The ranks of tensors, of a model that is one file: in a split one they stay in their places. */
static uint64_t *take_ranks(struct parts *p, const struct snapshot *snap)
{
    uint64_t *rank = snapshot_files(snap) > 1 ? NULL : p->part[0].plan.tensor_rank;
    if (rank)
        p->part[0].plan.tensor_rank = NULL;
    return rank;
}

int preview_make(struct live *l, struct parts *p, struct snapshot *snap, struct store **ret,
                 struct err *e)
{
    assert(lock_held(&l->lock));
    struct preview v = {.n = snap->gguf->n_tensors};
    bool changed = false;
    preview_copies_begin(l);
    ids_unref(snap->ids);
    snap->ids = NULL;
    for (size_t i = 0; i < p->n; i++)
        changed |= p->part[i].plan.tensor != NULL;
    if (!changed)
        return make_same(l, snap, ret, e);
    int r = make_all(l, p, snap, &v, ret, e);
    if (r < 0) {
        preview_free(&v);
        return r;
    }
    snap->ids = ids_ref(v.ids);
    snap->tensor_rank = take_ranks(p, snap);
    preview_free(&l->next.preview);
    l->next.preview = v;
    return 0;
}

int preview_store(struct live *l, struct store **ret)
{
    const struct preview *p = &l->next.preview;
    assert(lock_held(&l->lock));
    if (p->of && l->newest->view.snap->ids == p->ids && p->ids != base_snapshot(l)->ids)
        return make_store(base_store(l), p, ret);
    *ret = store_ref(base_store(l));
    return 0;
}

/* ---- what is overwritten ---- */

static bool has_file(const struct store *s, uint32_t no, const struct mapped *m)
{
    return s && s->file[no] == m;
}

/* Others than `live`, and requests for what is newest, read from the store of what is on the disk.
 * then: the store for when the file cannot be had. */
static bool is_read(const struct live *l, uint32_t no, const struct store *then)
{
    const struct store *of[] = {l->store, l->flying_store, l->newest->view.store, then};
    const struct image *file = no == 0 ? l->newest->file : NULL;
    struct mapped *m = l->store->file[no];
    unsigned stores = 0, maps = file ? 1 : 0;
    for (size_t i = 0; i < COUNT(of); i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again |= of[k] == of[i];
        stores += of[i] == l->store;
        maps += !again && has_file(of[i], no, m);
    }
    return atomic_load(&l->store->refs) > stores || atomic_load(&m->refs) > maps ||
           (file && atomic_load(&file->refs) > 1);
}

/* Of the mappings of files that were kept those that are still in use. */
static void reap_old(struct live *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_old; i++) {
        if (atomic_load(&l->old[i].m->refs) > 1)
            l->old[n++] = l->old[i];
        else
            mapped_unref(l->old[i].m);
    }
    l->n_old = n;
}

/* A copy of its own, where it has others than the file already. *fd: where to, from *at on; made here. */
static int freeze(const struct edit_file *f, struct mapped *m, const struct edit_kept *k, int *fd,
                  uint64_t *at)
{
    uint64_t n;
    int r = 0;
    if (*fd < 0)
        r = *fd = temp_unnamed(f, NULL);
    for (size_t i = 0; i < k->n && r >= 0; i++) {
        r = mapped_freeze(m, k->range[i].lo, k->range[i].n, *fd, *at, &n);
        *at += n;
    }
    return r < 0 ? r : 0;
}

static int lay(struct mapped *m, const struct edit_kept *k)
{
    int r = 0;
    for (size_t i = 0; i < k->n && r == 0; i++)
        r = mapped_lay(m, k->range[i].lo, k->range[i].n, k->fd, k->range[i].at);
    return r;
}

/* A mapping of a file that was replaced, and goes on because the new one could not be mapped, stays as it
 * is: no byte of it is overwritten. */
static int keep(const struct live *l, uint32_t file, struct mapped *m, const struct edit_kept *k,
                int *fd, uint64_t *at)
{
    const struct edit_file *f = l->files[file].file;
    struct stat st;
    int r = f->sys->fstat(f->sys, m->fd, &st);
    if (r < 0)
        return r;
    const struct edit_id id = edit_id_of(&st);
    if (id.dev != f->id.dev || id.ino != f->id.ino)
        return 0;
    return atomic_load(&m->frozen) ? freeze(f, m, k, fd, at) : lay(m, k);
}

/* Room for what preview_landed() keeps in sight: it must not fail. */
static int make_room(struct live *l)
{
    const struct preview *p = &l->flight.preview;
    size_t n = l->n_old + 1;
    for (uint32_t i = 0; i < p->n && p->of; i++)
        n += p->of[i].content != NULL;
    return array_grow(&l->old, &l->cap_old, n, sizeof(*l->old));
}

int preview_keep_old(struct live *l, uint32_t file, const struct store *then,
                     const struct edit_kept *kept, struct err *e)
{
    uint64_t at = 0;
    int fd = -1;
    lock_take(&l->lock);
    reap_old(l);
    bool read = is_read(l, file, then);
    int r = make_room(l);
    lock_drop(&l->lock);
    if (r == 0 && read)
        r = keep(l, file, l->store->file[file], kept, &fd, &at);
    for (size_t i = 0; i < l->n_old && r == 0; i++)
        if (l->old[i].file == file)
            r = keep(l, file, l->old[i].m, kept, &fd, &at);
    if (fd >= 0)
        (void)close(fd);
    return r < 0 ? err_set(e, r, "cannot keep the bytes of open files: %s", strerror(-r)) : 0;
}

static void keep_map(struct live *l, uint32_t file, struct mapped *m)
{
    assert(l->n_old < l->cap_old); /* make_room() */
    l->old[l->n_old++] = (struct old_map){mapped_ref(m), file};
}

/* The file was replaced: no mapping of it is needed any more. */
static void drop_old(struct live *l, uint32_t file)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_old; i++) {
        if (l->old[i].file == file)
            mapped_unref(l->old[i].m);
        else
            l->old[n++] = l->old[i];
    }
    l->n_old = n;
}

void preview_landed(struct live *l, const struct batch *b, const struct batch_part *part,
                    bool replaced)
{
    assert(lock_held(&l->lock));
    if (replaced)
        drop_old(l, part->file);
    if (replaced || !part->plan.patch)
        return;
    keep_map(l, part->file, l->store->file[part->file]);
    for (uint32_t i = 0; i < b->preview.n && b->preview.of; i++) {
        const struct preview_tensor *t = &b->preview.of[i];
        if (t->bytes.m && t->bytes.of_model && tensor_file(l, t->old) == part->file)
            keep_map(l, part->file, t->bytes.m);
    }
}

void preview_free_old(struct live *l)
{
    for (size_t i = 0; i < l->n_old; i++)
        mapped_unref(l->old[i].m);
    free(l->old);
    l->old = NULL;
    l->n_old = l->cap_old = 0;
}
