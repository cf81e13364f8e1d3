/* SPDX-License-Identifier: MIT */
/* Manages accepted edits that are not on disk yet (batch.h). */
#include "live/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "live/edits.h"
#include "live/tensors.h"
#include "live/views.h"

/* ---- beginning and end ---- */

/* Return the base for edits. In a split model, only the keys in the first file are edited. */
static struct edit_base base_of(const struct snapshot *g)
{
    return (struct edit_base){.g = snapshot_own(g),
                              .rank = g->rank,
                              .tensor_rank = g->shard ? NULL : g->tensor_rank,
                              .ids = g->ids};
}

void batch_begin(struct live *l)
{
    struct edit_base on = base_of(base_snapshot(l));
    on.numbers = &l->newest->numbers;
    l->next = (struct batch){.number = l->next.number + 1};
    edit_change_init(&l->next.change, &on);
}

static void unpin_file(struct names *n, struct file *f)
{
    f->steps--;
    file_is_key(n, f);
    file_reap(n, f);
}

static void unpin(struct names *n, struct name *x)
{
    x->refs--;
    name_reap(n, x);
}

void batch_end_steps(struct live *l, struct batch *b)
{
    struct names *n = &l->names;
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < b->n_step; i++) {
        const struct step *s = &b->step[i];
        unpin_file(n, s->file);
        if (s->before)
            unpin_file(n, s->before);
        unpin(n, s->from);
        unpin(n, s->to);
    }
    b->n_step = 0;
}

void batch_free(struct batch *b)
{
    assert(!b->n_step);
    free(b->step);
    b->step = NULL;
    b->cap_step = 0;
    edit_change_free(&b->change);
    if (b->planned)
        edit_plan_free(&b->plan);
    buf_free(&b->notes);
}

/* ---- steps ---- */

int batch_room(struct live *l)
{
    assert(lock_held(&l->lock));
    struct batch *b = &l->next;
    return array_grow(&b->step, &b->cap_step, b->n_step + 1, sizeof(*b->step));
}

void batch_touch(struct live *l)
{
    assert(lock_held(&l->lock));
    newest_touch(l->newest);
    atomic_store(&l->shown.stale, true);
}

void batch_note(struct live *l)
{
    l->edits++;
    batch_touch(l);
}

void batch_undo(struct live *l, size_t mark)
{
    assert(lock_held(&l->lock));
    edit_undo(&l->next.change, mark);
    batch_touch(l);
}

static void add_step(struct live *l, struct name *from, struct name *to)
{
    struct batch *b = &l->next;
    struct file *f = from->file, *before = to->file;
    assert(b->n_step < b->cap_step);
    from->refs++;
    to->refs++;
    f->steps++;
    f->replaced = false;
    if (before && before->steps++ > 0 &&
        !before->opens) { /* after several saves, only the last save's file moves back */
        before->replaced = before->content.len > 0;
        file_free_content(&l->names, before);
    }
    b->step[b->n_step++] = (struct step){from, to, f, before, f->drafts, to->edit};
    if (before)
        promise_share(&before->promise, to->edit);
}

static bool has_step(const struct batch *b, const struct file *f, uint64_t edit)
{
    size_t i = 0;
    while (i < b->n_step && (b->step[i].file != f || b->step[i].edit != edit))
        i++;
    return i < b->n_step;
}

/* Move a file from one name to another. If this edit has already moved the file there, no second
 * step is added. */
void batch_move(struct live *l, struct name *from, struct name *to)
{
    struct file *f = from->file;
    assert(lock_held(&l->lock) && to->key);
    if (to->edit > l->settled && !has_step(&l->next, f, to->edit) &&
        !has_step(&l->flight, f, to->edit))
        add_step(l, from, to);
    promise_make(&f->promise, to->edit);
    name_take(&l->names, to, f);
    file_set_kind(l, f, FILE_KEY);
    file_is_key(&l->names, f);
    name_reap(&l->names, from);
}

/* Make a new file for a helper's name, with a copy of the bytes of f. */
static void helper_anew(struct names *n, struct name *x, const struct file *f)
{
    struct file *anew = file_new(n, x, FILE_HELPER);
    if (!anew)
        return;
    buf_add(&anew->content, f->content.data, f->content.len);
    n->helper_bytes += anew->content.len;
}

/* True if a program still waits for the rename of a file. */
static bool is_awaited(const struct live *l, const struct file *f)
{
    const struct live_wait *w = l->waits.first;
    while (w && w->moves != f)
        w = w->next;
    return w;
}

/*
 * Undo a rename, unless one of its names now has another file. Handles move with their file. If a
 * draft was opened under the new name since the rename, the file keeps the new name, and the old
 * name, if it is a helper's, gets a copy. Until the rename is answered, programs open the file by
 * its old name.
 */
static void play_back(struct live *l, const struct step *s)
{
    struct name *from = s->from;
    struct file *f = s->file;
    const bool later = f->draft && f->drafts != s->drafts && !is_awaited(l, f);
    if (s->edit <= l->settled || file_name(f) != s->to || from->file || from->doomed ||
        from->backup || f->replaced)
        return;
    if (later && !from->key)
        helper_anew(&l->names, from, f);
    if (later)
        return;
    name_take(&l->names, from, f);
    file_set_kind(l, f, from->key ? FILE_KEY : FILE_HELPER);
    if (s->before) {
        assert(!file_name(s->before)); /* the replaced file has had no name since */
        name_take(&l->names, s->to, s->before);
    }
}

/* ---- snapshots ---- */

/* Keep the measured sizes of keys whose values are unchanged. */
static void keep_sizes(const struct snapshot *old, struct snapshot *now)
{
    for (uint32_t kv = 0; kv < now->gguf->n_kv; kv++) {
        const struct gguf_kv *k = &now->gguf->kv[kv];
        uint32_t was = gguf_find_key(old->gguf, gguf_key(now->gguf, k), k->key_len);
        uint64_t size = was == UINT32_MAX ? 0 : atomic_load(&old->key_size[was]);
        if (size && gguf_same_value(now->gguf, kv, old->gguf, was))
            atomic_store(&now->key_size[kv], size);
    }
}

/* Replace the newest snapshot and store, taking ownership of both references. */
static void adopt(struct live *l, struct snapshot *g, struct store *s)
{
    keep_sizes(l->newest->view.snap, g);
    struct view old = newest_put_view(l->newest, g, s);
    view_free(&old);
    atomic_store(&l->names.other_doomed, l->names.n_doomed > 0 || l->objects.doomed.n > 0);
    atomic_store(&l->shown.hides, false); /* must follow the line above: see live_freshen() */
    atomic_store(&l->shown.stale, false);
}

static void adopt_base(struct live *l)
{
    adopt(l, snapshot_ref(base_snapshot(l)), store_ref(base_store(l)));
}

static int plan(struct live *l, struct edit_plan *ret, struct err *e)
{
    *ret = EDIT_PLAN_INIT;
    return edit_plan_make(&l->next.change, &l->opt.edit, ret, e);
}

/* Make a copy of `like`, with this content for the first file, but without ids and ranks of
 * tensors. Takes ownership of `rank`, the ranks of the keys in the first file. */
static int make_snapshot(struct live *l, const struct snapshot *like, struct gguf *first,
                         uint64_t **rank, const struct timespec *changed, struct snapshot **ret,
                         struct err *e)
{
    int r =
        newest_make(l->newest, gguf_ref(first), like->shard, l->shown.number + 1, changed, ret, e);
    if (r < 0)
        return r;
    l->shown.number++;
    (*ret)->rank = *rank;
    *rank = NULL;
    ids_unref((*ret)->ids);
    (*ret)->ids = NULL;
    return 0;
}

/* ---- identities of tensors and places of their bytes ---- */

void batch_note_version(struct live *l, struct tensor_id id)
{
    struct tensor_id *at = &l->objects.given[id.version % OBJECTS_KNOWN];
    if (at->version < id.version)
        *at = (struct tensor_id){id.number + 1, id.version};
}

/* True if `s` is already the plan's table. n: the number of tensors if `s` is NULL. */
static bool is_table(const struct ids *s, uint32_t n, const struct edit_plan *p)
{
    uint32_t i = 0;
    if ((s ? s->n : n) != p->n_tensors)
        return false;
    while (i < p->n_tensors && ids_of(s, i).number == p->tensor[i].id.number &&
           ids_of(s, i).version == p->tensor[i].id.version)
        i++;
    return i == p->n_tensors;
}

/* Reuse an existing table of tensors if it is still valid; otherwise make a new one. */
static int make_ids(const struct live *l, const struct edit_plan *p, struct ids **ret)
{
    const struct snapshot *known[] = {base_snapshot(l), l->newest->view.snap};
    for (size_t i = 0; i < COUNT(known); i++)
        if (is_table(known[i]->ids, known[i]->gguf->n_tensors, p)) {
            *ret = ids_ref(known[i]->ids);
            return 0;
        }
    struct tensor_id *of = malloc((p->n_tensors + 1) * sizeof(*of));
    if (!of)
        return -ENOMEM;
    for (size_t i = 0; i < p->n_tensors; i++)
        of[i] = p->tensor[i].id;
    int r = ids_make(of, (uint32_t)p->n_tensors, ret);
    free(of);
    return r;
}

/* Get the place of a tensor's bytes: its content overlaid on the base. *ret holds a reference.
 * Returns 0 or -ENOMEM. */
static int place_of(const struct store *base, const struct edit_tensor *t,
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

static int make_store(const struct store *base, const struct edit_plan *p, struct store **ret)
{
    struct place_in_store *place = malloc((p->n_tensors + 1) * sizeof(*place));
    int r = place ? 0 : -ENOMEM;
    size_t n = 0;
    while (r == 0 && n < p->n_tensors && (r = place_of(base, &p->tensor[n], &place[n])) == 0)
        n++;
    if (r == 0)
        r = store_of(base->file, base->files, place, n, ret);
    while (place && n > 0)
        tensor_content_unref(place[--n].over);
    free(place);
    return r;
}

static int copy_ranks(const uint64_t *rank, size_t n, uint64_t **ret)
{
    *ret = rank ? malloc((n + 1) * sizeof(**ret)) : NULL;
    if (*ret)
        memcpy(*ret, rank, n * sizeof(**ret));
    return rank && !*ret ? -ENOMEM : 0;
}

/* Set the tensors and the store of a planned snapshot. */
static int set_tensors(struct live *l, const struct edit_plan *p, struct snapshot *snap,
                       struct store **ret)
{
    const struct snapshot *base = base_snapshot(l);
    if (!p->tensor) {
        snap->ids = ids_ref(base->ids);
        *ret = store_ref(base_store(l));
        return copy_ranks(base->tensor_rank, base->gguf->n_tensors, &snap->tensor_rank);
    }
    snap->tensor_rank = malloc((p->n_tensors + 1) * sizeof(*snap->tensor_rank));
    if (!snap->tensor_rank)
        return -ENOMEM;
    for (size_t i = 0; i < p->n_tensors; i++) {
        snap->tensor_rank[i] = p->tensor[i].rank;
        if (p->tensor[i].content)
            batch_note_version(l, p->tensor[i].id);
    }
    int r = make_ids(l, p, &snap->ids);
    return r < 0 ? r : make_store(base_store(l), p, ret);
}

int batch_store(struct live *l, struct store **ret)
{
    const struct batch *b = &l->next;
    assert(lock_held(&l->lock));
    if (b->planned && b->plan.tensor && l->newest->view.snap->ids != base_snapshot(l)->ids)
        return make_store(base_store(l), &b->plan, ret);
    *ret = store_ref(base_store(l));
    return 0;
}

/* ---- the newest snapshot ---- */

/* Make the newest snapshot from the current change. */
static int make_newest(struct live *l, struct err *e)
{
    struct batch *b = &l->next;
    struct edit_plan p;
    struct snapshot *snap = NULL;
    struct store *s = NULL;
    const struct timespec changed = newest_changed(l->newest);
    int r = plan(l, &p, e);
    if (r == 0)
        r = make_snapshot(l, base_snapshot(l), p.next, &p.rank, &changed, &snap, e);
    if (r == 0 && (r = set_tensors(l, &p, snap, &s)) < 0)
        (void)err_set(e, r, "no memory");
    if (r < 0) {
        snapshot_unref(snap);
        store_unref(s);
        edit_plan_free(&p);
        return r;
    }
    adopt(l, snap, s);
    if (b->planned)
        edit_plan_free(&b->plan);
    b->plan = p;
    b->planned = true;
    return 0;
}

int batch_freshen(struct live *l, struct err *e)
{
    assert(lock_held(&l->lock));
    if (!atomic_load(&l->shown.stale) && !atomic_load(&l->shown.hides))
        return 0;
    if (!edit_change_is_empty(&l->next.change))
        return make_newest(l, e);
    adopt_base(l); /* no edit is pending, so show the base */
    return 0;
}

/* Make a snapshot without the doomed keys and tensors, except those that cannot be removed. */
static int show_without_doomed(struct live *l, struct err *e)
{
    struct edit_change *c = &l->next.change;
    const size_t mark = edit_mark(c);
    for (const struct name *x = l->names.oldest; x && l->names.n_doomed; x = x->newer)
        if (x->doomed)
            (void)edit_remove(c, x->key, x->key_len, NULL);
    (void)tensors_remove_doomed(l);
    int r = make_newest(l, e);
    edit_undo(c, mark);
    if (r < 0)
        return r;
    atomic_store(&l->shown.hides, true);
    atomic_store(&l->names.other_doomed, false);
    return 0;
}

int batch_look(struct live *l, struct err *e)
{
    assert(lock_held(&l->lock));
    if (!atomic_load(&l->shown.stale) && !atomic_load(&l->names.other_doomed))
        return 0;
    if (l->names.n_doomed || l->objects.doomed.n)
        return show_without_doomed(l, e);
    int r = batch_freshen(l, e);
    if (r == 0)
        atomic_store(&l->names.other_doomed, false);
    return r;
}

/* Plan the current change, and find out how it would be written. */
static int check_way(struct live *l, bool *slow, struct err *e)
{
    struct edit_plan p;
    enum edit_strategy how;
    uint64_t copies = 0;
    int r = plan(l, &p, e);
    if (r == 0)
        r = edit_plan_way(&p, &l->opt.edit, &l->room.disk, &how, &copies, e);
    edit_plan_free(&p);
    *slow = copies > EDIT_CHEAP;
    return r;
}

/* Check the change both with and without the doomed tensors, because the edits may be written
 * before those tensors are due for removal, and must not prevent that removal. */
int batch_check(struct live *l, struct err *e)
{
    assert(lock_held(&l->lock));
    l->room.disk.known = l->room.disk.known && !when_past(&l->room.until, 0);
    int r = check_way(l, &l->next.slow, e);
    const size_t mark = edit_mark(&l->next.change);
    if (r == 0 && tensors_remove_doomed(l)) {
        r = check_way(l, &l->next.slow, e);
        edit_undo(&l->next.change, mark);
    }
    return r;
}

bool batch_is_small(const struct batch *b)
{
    const struct edit_change *c = &b->change;
    uint64_t size = c->on.g->file_size;
    return size <= EDIT_CHEAP && c->bytes <= EDIT_CHEAP - size;
}

/* ---- after a failure ---- */

void batch_follow(struct live *l, const struct edit_change *c)
{
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        if (s->kind != EDIT_KEY)
            continue;
        name_follow(l, names_find_key(&l->names, s->name, s->name_len));
        if (s->old == EDIT_NONE)
            continue;
        const struct gguf_kv *kv = &c->on.g->kv[s->old];
        name_follow(l, names_find_key(&l->names, gguf_key(c->on.g, kv), kv->key_len));
    }
}

/* Copy a snapshot without the table of its tensors. */
static int copy_snapshot(struct live *l, struct snapshot *from, struct snapshot **ret)
{
    uint64_t *rank = NULL;
    int r = copy_ranks(from->rank, snapshot_own(from)->n_kv, &rank);
    if (r == 0)
        r = make_snapshot(l, from, snapshot_file(from, 0), &rank, &from->mtime, ret, NULL);
    free(rank);
    return r < 0 ? r : copy_ranks(from->tensor_rank, from->gguf->n_tensors, &(*ret)->tensor_rank);
}

/* Assign new versions to those of the model's tensors that a change would have altered. */
static void renew_ids(struct live *l, const struct edit_change *c, struct tensor_id *of)
{
    const struct snapshot *disk = l->disk.snap;
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        const uint32_t at = s->kind != EDIT_TENSOR
                                ? IDS_NONE
                                : ids_find(disk->ids, disk->gguf->n_tensors, s->id.number);
        if (at == IDS_NONE)
            continue;
        of[at].version = atomic_fetch_add(&l->newest->numbers, 1);
        batch_note_version(l, of[at]);
    }
}

/*
 * Give a new version to each tensor of l->disk.snap that the lost batches would have changed: the
 * kernel may have cached bytes that were written to its views, or that were read while the views
 * were overwritten. Returns 0 or -ENOMEM.
 */
static int renew(struct live *l, const struct batch *const lost[], size_t n_lost)
{
    const uint32_t n = l->disk.snap->gguf->n_tensors;
    struct snapshot *now = NULL;
    struct tensor_id *of = malloc(((size_t)n + 1) * sizeof(*of));
    int r = of ? copy_snapshot(l, l->disk.snap, &now) : -ENOMEM;
    for (uint32_t i = 0; i < n && r == 0; i++)
        of[i] = ids_of(l->disk.snap->ids, i);
    for (size_t i = 0; i < n_lost && r == 0; i++)
        renew_ids(l, &lost[i]->change, of);
    if (r == 0)
        r = ids_make(of, n, &now->ids);
    free(of);
    if (r < 0) {
        snapshot_unref(now);
        return r;
    }
    snapshot_unref(l->disk.snap); /* the newest state has its own reference */
    l->disk.snap = now;
    return 0;
}

void batch_drop(struct live *l, struct batch *failed)
{
    assert(lock_held(&l->lock));
    struct batch old = l->next;
    const struct batch *const lost[] = {&old, failed}; /* the later batch first */
    const size_t n = failed ? 2 : 1;
    struct snapshot *was = snapshot_ref(l->disk.snap); /* the base of the lost changes */
    const bool tensors = old.change.tensors || (failed && failed->change.tensors);
    if (tensors && renew(l, lost, n) < 0)
        live_log(l, LOG_WARNING, "no memory: programs may see bytes that were not written");
    batch_begin(l);
    l->next.number = old.number;
    for (size_t i = 0; i < n; i++)
        for (size_t k = lost[i]->n_step; k-- > 0;)
            play_back(l, &lost[i]->step[k]);
    adopt_base(l);
    tensors_follow(l);
    for (size_t i = 0; i < n; i++) {
        batch_follow(l, &lost[i]->change);
        for (size_t k = 0; k < lost[i]->n_step; k++) {
            name_follow(l, lost[i]->step[k].from);
            name_follow(l, lost[i]->step[k].to);
        }
    }
    batch_end_steps(l, &old);
    batch_free(&old);
    snapshot_unref(was);
}

/* ---- promises ---- */

/* True if an edit is lost and no waiting request receives the error. */
static bool is_silent(const struct live *l, uint64_t edit)
{
    const struct live_wait *w = l->waits.first;
    while (edit > l->settled && w && (w->needs != LIVE_DURABLE || w->edit != edit))
        w = w->next;
    return edit > l->settled && !w;
}

static bool break_keys(struct live *l, int r)
{
    bool silent = false;
    for (const struct name *x = l->names.oldest; x; x = x->newer)
        silent = silent || is_silent(l, x->edit);
    for (struct link *i = table_each(&l->names.by_number, NULL); i;
         i = table_each(&l->names.by_number, i)) {
        struct file *f = (struct file *)i;
        if (f->promise.edit <= l->settled)
            continue;
        promise_break(&f->promise, l->settled, r);
        if (f->draft) /* its edit is lost and need not be taken back */
            f->draft->edit = 0;
    }
    return silent;
}

static bool break_tensors(struct live *l, int r)
{
    bool silent = false;
    for (struct object *o = object_from(&l->objects, 0); o;
         o = object_from(&l->objects, o->number + 1ull)) {
        silent = silent || is_silent(l, o->promise.edit);
        promise_break(&o->promise, l->settled, r);
        for (struct draft *d = o->drafts; d; d = d->inside)
            promise_break(&d->promise, l->settled, r);
    }
    return silent;
}

bool batch_break(struct live *l, int r)
{
    assert(lock_held(&l->lock));
    const bool keys = break_keys(l, r), tensors = break_tensors(l, r);
    return keys || tensors;
}

/* ---- for the log ---- */

/* Return the number of bytes in a value, without the length word of a string. */
static size_t text_bytes(const struct gguf_format *fmt, uint32_t type, size_t n)
{
    return type == GGUF_STRING ? n - fmt->len_width : n;
}

/* Describe the effect of an edit on a key for the log. Writes nothing if there was no effect. */
static void note_key(const struct edit_change *c, const struct edit_slot *s, struct buf *out)
{
    char name[SHOW_MAX], old[SHOW_MAX], type[GGUF_TYPE_NAME_MAX];
    const struct gguf_format *fmt = &c->on.g->fmt;
    const struct gguf_kv *kv = s->old == EDIT_NONE ? NULL : &c->on.g->kv[s->old];
    (void)show(name, s->name, s->name_len);
    if (kv)
        (void)show(old, gguf_key(c->on.g, kv), kv->key_len);
    if (s->gone) {
        if (kv)
            buf_printf(out, "%s: removed", old);
        return;
    }
    bool renamed = kv && strcmp(name, old) != 0;
    if (renamed)
        buf_printf(out, "%s: renamed to %s", old, name);
    if (!s->value)
        return;
    struct gguf_value v = gguf_value_at(fmt, s->value->type, s->value->bytes.data);
    size_t now = text_bytes(fmt, s->value->type, s->value->bytes.len);
    buf_printf(out, "%s%s: ", renamed ? "; " : "", name);
    if (kv)
        buf_printf(out, "%s, %zu -> %zu bytes", gguf_type_name(&v, type),
                   text_bytes(fmt, kv->type, (size_t)(kv->end - kv->val_off)), now);
    else
        buf_printf(out, "new, %s, %zu bytes", gguf_type_name(&v, type), now);
}

/* Describe the effect of an edit on a tensor. */
static void note_tensor(const struct edit_change *c, const struct edit_slot *s, struct buf *out)
{
    char name[SHOW_MAX], old[SHOW_MAX];
    const struct gguf *g = c->on.g;
    const struct gguf_tensor *t = s->old == EDIT_NONE ? NULL : &g->tensor[s->old];
    (void)show(name, s->name, s->name_len);
    if (t)
        (void)show(old, gguf_name(g, t), t->name_len);
    if (s->gone) {
        if (t)
            buf_printf(out, "tensors/%s: removed", old);
        return;
    }
    bool renamed = t && strcmp(name, old) != 0;
    if (renamed)
        buf_printf(out, "tensors/%s: renamed to %s", old, name);
    if (!s->content)
        return;
    uint64_t n = 0;
    for (size_t i = 0; i < s->content->n; i++)
        n += s->content->piece[i].len;
    buf_printf(out, "%stensors/%s: %s%llu bytes", renamed ? "; " : "", name, t ? "" : "new, ",
               (unsigned long long)n);
}

void notes_all(const struct edit_change *c, struct buf *out)
{
    for (size_t i = 0; i < c->n; i++) {
        const size_t before = out->len;
        if (c->slot[i]->kind == EDIT_TENSOR)
            note_tensor(c, c->slot[i], out);
        else
            note_key(c, c->slot[i], out);
        if (out->len > before)
            buf_char(out, '\0');
    }
}
