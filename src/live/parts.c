/* SPDX-License-Identifier: MIT */
/* What a batch makes of each file: see parts.h. */
#include "live/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "edit/parts.h"
#include "live/preview.h"

void parts_free(struct parts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        edit_plan_free(&p->part[i].plan);
        buf_free(&p->part[i].notes);
    }
    free(p->part);
    free(p->of);
    *p = (struct parts){0};
}

/* ---- planned ---- */

static int plan_part(struct live *l, const struct edit_part *from, struct batch_part *ret,
                     struct err *e)
{
    struct edit_options o = l->opt.edit;
    o.block = l->files[from->file].block;
    *ret = (struct batch_part){.file = from->file, .plan = EDIT_PLAN_INIT, .notes = BUF_INIT};
    return edit_plan_make(&from->change, &o, &ret->plan, e);
}

static int plan_all(struct live *l, const struct edit_parts *from, struct parts *ret, struct err *e)
{
    const size_t files = snapshot_files(base_snapshot(l));
    ret->part = calloc(from->n + 1, sizeof(*ret->part));
    ret->of = malloc(files * sizeof(*ret->of));
    if (!ret->part || !ret->of)
        return err_set(e, -ENOMEM, "no memory");
    memset(ret->of, 0xff, files * sizeof(*ret->of));
    int r = 0;
    for (size_t i = 0; i < from->n && r == 0; i++) {
        ret->of[from->part[i].file] = (uint32_t)i;
        r = plan_part(l, &from->part[i], &ret->part[ret->n++], e);
    }
    return r;
}

int parts_plan(struct live *l, struct parts *ret, struct err *e)
{
    CLEANUP(edit_parts_free) struct edit_parts from = EDIT_PARTS_INIT;
    const struct snapshot *base = base_snapshot(l);
    assert(lock_held(&l->lock));
    int r = edit_parts_make(&l->next.change, snapshot_all(base), snapshot_files(base), &from);
    if (r < 0)
        return err_set(e, r, "cannot plan the edits: %s", strerror(-r));
    r = plan_all(l, &from, ret, e);
    if (r < 0)
        parts_free(ret);
    return r;
}

/* ---- shown ---- */

/* The list of what each file holds: the base's, for the caller to replace some; references. */
static struct gguf **copy_files(const struct snapshot *base)
{
    const size_t n = snapshot_files(base);
    struct gguf **file = malloc(n * sizeof(struct gguf *));
    for (size_t i = 0; i < n && file; i++)
        file[i] = gguf_ref(snapshot_file(base, i));
    return file;
}

static int copy_ranks(const uint64_t *rank, size_t n, uint64_t **ret)
{
    if (!rank)
        return 0;
    *ret = malloc((n + 1) * sizeof(**ret));
    if (!*ret)
        return -ENOMEM;
    memcpy(*ret, rank, n * sizeof(**ret));
    return 0;
}

static int make(struct live *l, struct gguf **file, struct snapshot **ret, struct err *e)
{
    struct timespec changed = newest_changed(l->newest);
    int r = newest_make(l->newest, file, l->snapshots + 1, &changed, ret, e);
    free((void *)file);
    if (r == 0)
        l->snapshots++;
    return r;
}

int parts_snapshot(struct live *l, struct parts *p, struct snapshot **ret, struct err *e)
{
    const struct snapshot *base = base_snapshot(l);
    struct gguf **file = copy_files(base);
    uint64_t *rank = NULL;
    assert(lock_held(&l->lock));
    if (!file)
        return err_set(e, -ENOMEM, "no memory");
    for (size_t i = 0; i < p->n; i++) {
        gguf_free(file[p->part[i].file]);
        file[p->part[i].file] = edit_plan_steal(&p->part[i].plan);
    }
    int r = make(l, file, ret, e);
    if (r < 0)
        return r;
    if (p->of[0] != EDIT_NONE)
        rank = edit_plan_steal_ranks(&p->part[p->of[0]].plan);
    else
        r = copy_ranks(base->rank, snapshot_own(base)->n_kv, &rank);
    (*ret)->rank = rank;
    if (r < 0) {
        snapshot_unref(*ret);
        *ret = NULL;
        return err_set(e, r, "no memory");
    }
    return 0;
}

/* ---- on the disk, one after another ---- */

/* True if nothing but part i is still to be written, and all others were. */
static bool is_last(const struct batch *b, size_t i)
{
    bool last = true;
    for (size_t k = 0; k < b->parts.n; k++)
        last &= k == i || b->parts.part[k].landed;
    return last;
}

/* Which tensor is which: those of the file as they are in flight, the others as on the disk. */
static int mix_ids(const struct live *l, uint32_t first, uint32_t end, struct ids **ret)
{
    const uint32_t n = l->disk->gguf->n_tensors;
    struct tensor_id *of = malloc(((size_t)n + 1) * sizeof(*of));
    if (!of)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        of[i] = ids_of(i >= first && i < end ? l->flying->ids : l->disk->ids, i);
    int r = ids_make(of, n, ret);
    free(of);
    return r;
}

static int make_between(struct live *l, uint32_t no, struct part_state *ret, struct err *e)
{
    const struct snapshot *from = no == 0 ? l->flying : l->disk;
    const uint32_t first = snapshot_first(l->disk, no);
    struct gguf **file = copy_files(l->disk);
    if (!file)
        return err_set(e, -ENOMEM, "no memory");
    gguf_free(file[no]);
    file[no] = gguf_ref(snapshot_file(l->flying, no));
    int r = make(l, file, &ret->snap, e);
    if (r < 0)
        return r;
    ids_unref(ret->snap->ids);
    ret->snap->ids = NULL;
    r = mix_ids(l, first, first + snapshot_file(l->disk, no)->n_tensors, &ret->snap->ids);
    if (r == 0)
        r = copy_ranks(from->rank, snapshot_own(from)->n_kv, &ret->snap->rank);
    if (r == 0)
        r = store_with(l->store, l->flying_store, no, snapshot_files(l->disk), &ret->store);
    if (r == 0)
        return 0;
    snapshot_unref(ret->snap);
    *ret = (struct part_state){0};
    return err_set(e, r, "no memory");
}

int part_state_make(struct live *l, size_t i, struct part_state *ret, struct err *e)
{
    assert(lock_held(&l->lock));
    if (!is_last(&l->flight, i))
        return make_between(l, l->flight.parts.part[i].file, ret, e);
    *ret = (struct part_state){snapshot_ref(l->flying), store_ref(l->flying_store)};
    return 0;
}

/* What is in flight still reads from the new file too. */
static void move_flying(struct live *l, uint32_t no, const struct store *s,
                        struct parts_retired *old)
{
    struct store *now;
    if (!s || store_with(l->flying_store, s, no, snapshot_files(l->disk), &now) < 0)
        return; /* it goes on with what it has */
    old->store[1] = l->flying_store;
    l->flying_store = now;
}

void part_landed(struct live *l, size_t i, struct part_state *state, struct store *s,
                 struct parts_retired *old)
{
    struct batch_part *p = &l->flight.parts.part[i];
    struct store *now = NULL;
    bool whole = is_last(&l->flight, i);
    assert(lock_held(&l->lock));
    *old = (struct parts_retired){.snap = l->disk, .store = {l->store}};
    p->landed = true;
    l->disk = state->snap;
    l->store = s ? s : store_ref(state->store);
    store_unref(state->store);
    *state = (struct part_state){0};
    if (whole) {
        snapshot_unref(l->flying);
        old->store[1] = l->flying_store;
        l->flying = NULL;
        l->flying_store = NULL;
    } else {
        move_flying(l, p->file, s, old);
    }
    if (preview_store(l, &now) < 0) /* it goes on with what it has */
        now = store_ref(l->newest->view.store);
    struct view before = newest_put_view(l->newest, snapshot_ref(l->newest->view.snap), now);
    snapshot_unref(before.snap); /* the same is there */
    old->store[2] = before.store;
    if (s && p->file == 0)
        newest_drop_file(l->newest);
}

void parts_retire(struct parts_retired *r)
{
    snapshot_unref(r->snap);
    for (size_t i = 0; i < COUNT(r->store); i++)
        store_unref(r->store[i]);
    *r = (struct parts_retired){0};
}
