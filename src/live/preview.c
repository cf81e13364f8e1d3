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
#include "live/preview_bytes.h"
#include "live/tensor.h"

void preview_forget_bytes(struct preview *p)
{
    for (uint32_t i = 0; i < p->n && p->of; i++) {
        mapped_unref(p->of[i].m);
        p->of[i].m = NULL;
    }
}

void preview_free(struct preview *p)
{
    preview_forget_bytes(p);
    for (uint32_t i = 0; i < p->n && p->of; i++)
        edit_content_unref(p->of[i].content);
    free(p->of);
    ids_unref(p->ids);
    *p = (struct preview){0};
}

/* ---- the table ---- */

/* What the snapshot before had of the tensor with this content. *at: where to look first, and then
 * behind it, since both have the same order. */
static struct preview_tensor *known(const struct preview *p, const struct edit_content *k,
                                    uint32_t *at)
{
    for (uint32_t n = 0; n < p->n && p->of; n++) {
        *at = *at + 1 < p->n ? *at + 1 : 0;
        if (p->of[*at].content == k)
            return &p->of[*at];
    }
    return NULL;
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
                        uint32_t *at, struct err *e)
{
    const struct store *store = base_store(l);
    struct preview_tensor *was = known(&l->next.preview, k, at);
    struct below b = {0};
    bool new = t->old == EDIT_NONE;
    if (!new)
        b = (struct below){store->file[store->place[t->old].file], store->place[t->old].off};
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
    if (was && was->m) {
        t->m = mapped_ref(was->m);
        t->off = was->off;
        t->of_model = was->of_model;
        return 0;
    }
    return preview_map(l, k, &b, t, e);
}

static int fill(struct live *l, const struct edit_plan *p, struct preview *ret, struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    uint32_t own = snapshot_own(base)->n_tensors, others = base->gguf->n_tensors - own;
    uint32_t last = UINT32_MAX - 1;
    size_t content = 0;
    int r = 0;
    for (uint32_t i = 0; i < ret->n && r == 0; i++) {
        struct preview_tensor *t = &ret->of[i];
        bool ours = i < ret->n - others;
        t->old = ours ? p->tensor[i].old : own + (i - (ret->n - others));
        if (t->old != EDIT_NONE)
            t->id = ids_of(base->ids, t->old);
        if (ours && p->tensor[i].changed)
            r = make_changed(l, t, p->content[content++], &last, e);
    }
    return r;
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
        if (!t->m) {
            place[i] = base->place[t->old];
            continue;
        }
        place[i] = (struct place_in_store){t->off, (uint32_t)files, 0};
        file[files++] = t->m;
    }
    if (r == 0)
        r = store_of(file, files, place, p->n, ret);
    free((void *)file);
    free(place);
    return r;
}

static int make_all(struct live *l, struct edit_plan *p, struct preview *v, struct store **ret,
                    struct err *e)
{
    v->of = calloc((size_t)v->n + 1, sizeof(*v->of));
    if (!v->of)
        return err_set(e, -ENOMEM, "no memory");
    int r = fill(l, p, v, e);
    if (r < 0)
        return r;
    r = make_ids(l, v);
    if (r == 0)
        r = make_store(base_store(l), v, ret);
    return r < 0 ? err_set(e, r, "no memory") : 0;
}

int preview_make(struct live *l, struct edit_plan *p, struct snapshot *snap, struct store **ret,
                 struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    assert(lock_held(&l->lock));
    struct preview v = {.n = snap->gguf->n_tensors};
    uint32_t n = snapshot_own(base)->n_tensors;
    ids_unref(snap->ids);
    snap->ids = NULL;
    if (!p->tensor) {
        snap->ids = ids_ref(base->ids);
        *ret = store_ref(base_store(l));
        if (!base->tensor_rank)
            return 0;
        snap->tensor_rank = malloc(((size_t)n + 1) * sizeof(*snap->tensor_rank));
        if (!snap->tensor_rank) {
            store_unref(*ret);
            return err_set(e, -ENOMEM, "no memory");
        }
        memcpy(snap->tensor_rank, base->tensor_rank, n * sizeof(*snap->tensor_rank));
        return 0;
    }
    int r = make_all(l, p, &v, ret, e);
    if (r < 0) {
        preview_free(&v);
        return r;
    }
    snap->ids = ids_ref(v.ids);
    snap->tensor_rank = p->tensor_rank;
    p->tensor_rank = NULL;
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

static bool has_file(const struct store *s, const struct mapped *m)
{
    return s && s->file[0] == m;
}

/* Others than `live`, and requests for what is newest, read from the store of what is on the disk. */
static bool is_read(const struct live *l)
{
    const struct store *of[] = {l->store, l->flying_store, l->newest->view.store};
    const struct image *file = l->newest->file;
    struct mapped *m = l->store->file[0];
    unsigned stores = 0, maps = file ? 1 : 0;
    for (size_t i = 0; i < COUNT(of); i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again |= of[k] == of[i];
        stores += of[i] == l->store;
        maps += !again && has_file(of[i], m);
    }
    return atomic_load(&l->store->refs) > stores || atomic_load(&m->refs) > maps ||
           (file && atomic_load(&file->refs) > 1);
}

/* Of the mappings of the file that were kept those that are still in use. */
static void reap_old(struct live *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_old; i++) {
        if (atomic_load(&l->old[i]->refs) > 1)
            l->old[n++] = l->old[i];
        else
            mapped_unref(l->old[i]);
    }
    l->n_old = n;
}

static int freeze(struct mapped *m, const struct edit_plan *p, int fd, uint64_t *at)
{
    uint64_t n;
    int r = 0;
    for (size_t i = 0; i < p->image->n && r == 0; i++) {
        const struct segment *s = &p->image->seg[i];
        bool stays = s->from == IMAGE_FILE && s->no == EDIT_OLD_FILE && s->src == s->at;
        if (stays || s->at >= p->old_size)
            continue;
        r = mapped_freeze(m, s->at, min_u64(s->len, p->old_size - s->at), fd, *at, &n);
        *at += n;
    }
    return r;
}

int preview_keep_old(struct live *l, struct edit_plan *p, struct err *e)
{
    enum edit_strategy how = EDIT_AUTO;
    uint64_t at = 0;
    lock_take(&l->lock);
    reap_old(l);
    bool read = is_read(l);
    lock_drop(&l->lock);
    if (!p->patch || !p->changed || !(read || l->n_old) ||
        edit_prepare(l->file, p, &l->opt.edit, &how, e) < 0 || how != EDIT_INPLACE)
        return 0;
    int fd = temp_unnamed(l->file, e);
    if (fd < 0)
        return fd;
    int r = read ? freeze(l->store->file[0], p, fd, &at) : 0;
    for (size_t i = 0; i < l->n_old && r == 0; i++)
        r = freeze(l->old[i], p, fd, &at);
    (void)close(fd);
    return r < 0 ? err_set(e, r, "cannot keep the bytes of open files: %s", strerror(-r)) : 0;
}

static void keep_map(struct live *l, struct mapped *m)
{
    if (array_grow(&l->old, &l->cap_old, l->n_old + 1, sizeof(struct mapped *)) == 0)
        l->old[l->n_old++] = mapped_ref(m);
}

void preview_landed(struct live *l, const struct batch *b, bool replaced)
{
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < l->n_old && replaced; i++)
        mapped_unref(l->old[i]);
    if (replaced)
        l->n_old = 0;
    if (replaced || !b->plan.patch)
        return;
    keep_map(l, l->store->file[0]);
    for (uint32_t i = 0; i < b->preview.n && b->preview.of; i++)
        if (b->preview.of[i].m && b->preview.of[i].of_model)
            keep_map(l, b->preview.of[i].m);
}

void preview_free_old(struct live *l)
{
    for (size_t i = 0; i < l->n_old; i++)
        mapped_unref(l->old[i]);
    free((void *)l->old);
    l->old = NULL;
    l->n_old = l->cap_old = 0;
}
