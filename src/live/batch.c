/* SPDX-License-Identifier: MIT */
/* What is accepted and not on the disk: see batch.h. */
#include "live/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "live/parts.h"
#include "live/preview.h"
#include "live/stored.h"
#include "live/tensor.h"
#include "live/view.h"

/* ---- begin, end ---- */

/* Keys are those of the first file of a split model, tensors those of all. */
static struct edit_base base_of(const struct snapshot *g)
{
    return (struct edit_base){.g = snapshot_own(g),
                              .whole = g->gguf,
                              .rank = g->rank,
                              .tensor_rank = g->tensor_rank,
                              .ids = g->ids};
}

void batch_begin(struct live *l)
{
    const struct snapshot *base = base_snapshot(l);
    const struct edit_base on = base_of(base);
    l->next = (struct batch){.number = l->next.number + 1, .kept_edit = l->edits};
    edit_change_on(&l->next.change, &on);
}

static void pin(struct name *x)
{
    if (x)
        x->pins++;
}

static void unpin(struct live *l, struct name *x)
{
    if (!x)
        return;
    x->pins--;
    name_reap(&l->names, x);
}

/* It can no longer be played back. */
static void step_end(struct live *l, struct step *s)
{
    struct file *f = s->file;
    if (f) {
        f->steps--;
        file_is_key(&l->names, f);
        file_reap(&l->names, f);
    }
    unpin(l, s->from);
    unpin(l, s->to);
}

void batch_end_steps(struct live *l, struct batch *b)
{
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < b->n_step; i++)
        step_end(l, &b->step[i]);
    b->n_step = b->kept = 0;
}

void batch_free(struct batch *b)
{
    assert(!b->n_step);
    free(b->step);
    b->step = NULL;
    b->cap_step = 0;
    edit_change_free(&b->change);
    parts_free(&b->parts);
    preview_free(&b->preview);
}

/* ---- steps ---- */

int batch_room(struct live *l)
{
    assert(lock_held(&l->lock));
    struct batch *b = &l->next;
    int r = array_grow(&l->heard, &l->cap_heard, (size_t)(l->edits - l->settled) / 8 + 1, 1);
    return r < 0 ? r : array_grow(&b->step, &b->cap_step, b->n_step + 2, sizeof(*b->step));
}

void batch_touch(struct live *l)
{
    assert(lock_held(&l->lock));
    newest_touch(l->newest);
    atomic_store(&l->stale, true);
}

static void add_step(struct live *l, struct step s)
{
    assert(l->next.n_step < l->next.cap_step);
    pin(s.from);
    pin(s.to);
    if (s.file)
        s.file->steps++;
    l->next.step[l->next.n_step++] = s;
}

void batch_count(struct live *l, struct name *x, struct name *other)
{
    assert(lock_held(&l->lock));
    l->edits++;
    if (x)
        x->edit = l->edits;
    if (other)
        other->edit = l->edits;
    add_step(l, (struct step){.from = x, .to = other});
}

void batch_note(struct live *l, struct name *x, struct name *other)
{
    batch_count(l, x, other);
    batch_touch(l);
}

void batch_undo(struct live *l, size_t mark, size_t steps)
{
    struct batch *b = &l->next;
    assert(lock_held(&l->lock));
    edit_undo(&b->change, mark);
    batch_touch(l);
    while (b->n_step > steps)
        step_end(l, &b->step[--b->n_step]);
}

static void carry(struct live *l, struct name *from, struct name *to)
{
    file_set_kind(l, name_move(&l->names, from, to), FILE_KEY);
}

void batch_move(struct live *l, struct name *from, struct name *to)
{
    assert(lock_held(&l->lock) && to->key && from->spare);
    add_step(l, (struct step){from, to, from->file, from->file->drafts});
    promise_make(&from->file->promise, l->edits);
    carry(l, from, to);
}

/* It was removed since, or has gone to a backup. */
static bool is_taken_away(const struct name *x)
{
    return x->slot == SLOT_DOOMED || x->slot == SLOT_PARKED;
}

/* The name of a helper gets a file anew: f, which has its bytes, stays what it is. */
static void helper_anew(struct live *l, struct name *x, struct file *f)
{
    name_show(&l->names, x);
    if (!x->file)
        return;
    struct buf *bytes = &x->file->content;
    file_free_content(&l->names, x->file);
    buf_add(bytes, f->content.data, f->content.len);
    l->names.helper_bytes += f->content.len;
    if (!buf_error(bytes))
        return;
    l->names.helper_bytes -= f->content.len; /* what programs read of it matters less */
    buf_free(bytes);
    *bytes = f->content;
    f->content = BUF_INIT;
}

/*
 * The file goes back to the name that it came from, unless that has another one now. So do its
 * handles, but not those of a draft that was begun since: then the name gets a file anew.
 */
static void play_back(struct live *l, const struct step *s)
{
    struct file *f = s->file;
    if (!f || s->from->file || is_taken_away(s->from))
        return;
    bool helper = !s->from->key;
    if ((!f->name || f->name == s->to) && (!f->draft || f->drafts == s->drafts)) {
        if (f->name)
            (void)name_leave(s->to);
        name_take(&l->names, s->from, f);
        file_set_kind(l, f, helper ? FILE_HELPER : FILE_KEY);
    } else if (helper && f->kind == FILE_KEY) {
        helper_anew(l, s->from, f);
    }
}

static void play_all_back(struct live *l, const struct batch *b, size_t first)
{
    for (size_t i = b->n_step; i-- > first;)
        play_back(l, &b->step[i]);
}

/* ---- snapshots ---- */

/* A key whose value is the same has the size that was measured before. */
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

/* Put a snapshot and a store in the place of the newest: references, which pass. */
static void adopt(struct live *l, struct snapshot *g, struct store *s)
{
    keep_sizes(l->newest->view.snap, g);
    struct view old = newest_put_view(l->newest, g, s);
    view_free(&old);
    atomic_store(&l->stale, false);
    l->hides = false;
    atomic_store(&l->names.other_doomed, l->names.n_doomed > 0);
}

static void adopt_base(struct live *l)
{
    adopt(l, snapshot_ref(base_snapshot(l)), store_ref(base_store(l)));
}

/* A snapshot of the change as it is; *ret: its plans. */
static int make_newest(struct live *l, struct parts *ret, struct err *e)
{
    struct parts parts = {0};
    struct snapshot *snap = NULL;
    struct store *s = NULL;
    int r = parts_plan(l, &parts, e);
    if (r == 0)
        r = parts_snapshot(l, &parts, &snap, e);
    if (r == 0)
        r = preview_make(l, &parts, snap, &s, e);
    if (r < 0) {
        snapshot_unref(snap);
        parts_free(&parts);
        return r;
    }
    adopt(l, snap, s);
    *ret = parts;
    return 0;
}

int batch_freshen(struct live *l, struct err *e)
{
    struct batch *b = &l->next;
    struct parts parts;
    assert(lock_held(&l->lock));
    if (!atomic_load(&l->stale) && !l->hides)
        return 0;
    if (edit_change_is_empty(&b->change)) { /* what is pending is nothing: the one below */
        adopt_base(l);
        return 0;
    }
    int r = make_newest(l, &parts, e);
    if (r < 0)
        return r;
    parts_free(&b->parts);
    b->parts = parts;
    return 0;
}

/* They are part of the change while the snapshot is made: one that cannot be removed is shown. */
static int show_without_doomed(struct live *l, struct err *e)
{
    struct edit_change *c = &l->next.change;
    const size_t mark = edit_mark(c);
    struct parts parts;
    for (const struct name *x = l->names.doomed; x; x = x->next_doomed)
        (void)edit_remove(c, x->key, x->key_len, NULL);
    int r = make_newest(l, &parts, e);
    edit_undo(c, mark);
    if (r < 0)
        return r;
    parts_free(&parts);
    l->hides = true;
    atomic_store(&l->names.other_doomed, false);
    return 0;
}

int batch_look(struct live *l, struct err *e)
{
    assert(lock_held(&l->lock));
    if (!atomic_load(&l->stale) && !atomic_load(&l->names.other_doomed))
        return 0;
    if (l->names.doomed)
        return show_without_doomed(l, e);
    int r = batch_freshen(l, e);
    if (r == 0)
        atomic_store(&l->names.other_doomed, false);
    return r;
}

int batch_check(struct live *l, struct err *e)
{
    const enum edit_strategy how = l->opt.edit.strategy;
    struct parts parts = {0};
    assert(lock_held(&l->lock));
    if ((how != EDIT_INPLACE && how != EDIT_REFLINK) || edit_change_is_empty(&l->next.change))
        return 0;
    struct edit_options o = l->opt.edit;
    o.block = l->files[0].block;
    int r = edit_change_applies(&l->next.change, &o, how, e);
    if (r <= 0)
        return r;
    r = parts_plan(l, &parts, e);
    for (size_t i = 0; i < parts.n && r == 0; i++)
        r = edit_plan_applies(&parts.part[i].plan, how, e);
    parts_free(&parts);
    return r;
}

/* ---- after the disk's answer ---- */

void batch_keep(struct live *l, size_t ops, size_t steps, uint64_t edit)
{
    assert(lock_held(&l->lock));
    struct batch *b = &l->next;
    size_t left = b->kept, later = b->n_step - steps;
    edit_keep(&b->change, ops);
    for (size_t i = b->kept; i < b->n_step; i++) {
        if (i >= steps || b->step[i].file)
            b->step[left++] = b->step[i];
        else
            step_end(l, &b->step[i]);
    }
    b->n_step = left;
    b->kept = left - later;
    b->kept_edit = edit;
}

static void follow(struct live *l, struct name *x)
{
    if (x)
        name_follow(l, x);
}

/* What the names of steps show follows from what is stored. */
static void follow_steps(struct live *l, const struct batch *b, size_t first)
{
    for (size_t i = first; i < b->n_step; i++) {
        follow(l, b->step[i].from);
        follow(l, b->step[i].to);
    }
}

static void report_refused(struct live *l, const struct step *s, const struct err *e)
{
    if (!s->file && s->from && s->from->file)
        (void)name_refused(l, s->from, e);
    if (!s->file && s->to && s->to->file)
        (void)name_refused(l, s->to, e);
}

void batch_take_back(struct live *l, const struct err *e)
{
    assert(lock_held(&l->lock));
    struct batch *b = &l->next;
    size_t first = b->kept;
    size_t marks;
    struct tensor_mark *mark = tensors_mark(&b->change, &marks);
    play_all_back(l, b, first);
    edit_undo(&b->change, 0);
    if (edit_change_is_empty(&b->change))
        adopt_base(l);
    else
        batch_touch(l);
    tensors_taken_back(l, mark, marks, e);
    free(mark);
    follow_steps(l, b, first);
    for (size_t i = first; i < b->n_step; i++)
        report_refused(l, &b->step[i], e);
    for (size_t i = first; i < b->n_step; i++)
        step_end(l, &b->step[i]);
    b->n_step = first;
}

/* ---- after a failure ---- */

void batch_follow(struct live *l, const struct edit_change *c)
{
    assert(lock_held(&l->lock));
    for (size_t i = 0; i < c->n; i++) {
        const struct edit_slot *s = &c->slot[i];
        follow(l, names_find_key(&l->names, s->name, s->name_len));
        if (s->old == EDIT_NONE)
            continue;
        const struct gguf_kv *kv = &c->base->kv[s->old];
        follow(l, names_find_key(&l->names, gguf_key(c->base, kv), kv->key_len));
    }
}

void batch_drop(struct live *l, struct batch *failed)
{
    assert(lock_held(&l->lock));
    struct batch old = l->next;
    batch_begin(l);
    l->next.asking = old.asking;
    l->next.waits = old.waits;
    play_all_back(l, &old, 0);
    if (failed && !batch_landed(failed, 0)) /* the file with the keys */
        play_all_back(l, failed, 0);
    adopt_base(l);
    tensors_lost(l, &old);
    if (failed)
        tensors_lost(l, failed);
    tensors_follow(l);
    batch_follow(l, &old.change);
    follow_steps(l, &old, 0);
    if (failed) {
        batch_follow(l, &failed->change);
        follow_steps(l, failed, 0);
    }
    batch_end_steps(l, &old);
    batch_free(&old);
}

/* ---- promises ---- */

bool batch_loses(const struct batch *failed, uint64_t after, uint64_t edit, uint32_t file)
{
    bool landed = failed && edit <= failed->last && batch_landed(failed, file);
    return edit > after && !landed;
}

/* Of the edits that are lost those for which some request waits, and gets the error. */
struct heard {
    const struct batch *failed;
    uint64_t after;
    uint8_t *bit;
};

static void hear(struct heard *h, const struct live_wait *waits, uint64_t last)
{
    if (last > h->after)
        memset(h->bit, 0, (size_t)(last - h->after) / 8 + 1);
    for (; waits; waits = waits->next) {
        const uint64_t i = waits->edit - h->after;
        if (waits->edit > h->after && waits->edit <= last)
            h->bit[i / 8] |= (uint8_t)(1u << i % 8);
    }
}

/* An edit is lost, and nobody waits for it. */
static bool is_silent(const struct heard *h, uint64_t edit, uint32_t file)
{
    const uint64_t i = edit - h->after;
    return batch_loses(h->failed, h->after, edit, file) && !(h->bit && h->bit[i / 8] >> i % 8 & 1);
}

/* Where it is lost for this file. */
static void break_one(const struct heard *h, struct promise *p, uint32_t file, int r)
{
    if (batch_loses(h->failed, h->after, p->edit, file))
        promise_break(p, h->after, r);
}

static bool break_keys(struct live *l, const struct heard *h, int r)
{
    bool silent = false;
    for (const struct name *x = l->names.oldest; x; x = x->newer)
        silent |= is_silent(h, x->edit, 0);
    for (uint32_t i = 0; i < l->names.numbers.given; i++) {
        struct file *f = names_file(&l->names, i);
        if (!f || !batch_loses(h->failed, h->after, f->promise.edit, 0))
            continue;
        promise_break(&f->promise, h->after, r);
        if (f->draft) /* there is nothing to be put back */
            f->draft->accepted = false;
    }
    return silent;
}

static bool break_tensors(struct live *l, const struct heard *h, int r)
{
    bool silent = false;
    struct tensor_now t;
    for (struct folder *f = l->folders.first; f; f = f->next) {
        const uint32_t file = tensor_of_number(l, f->number, &t) < 0 ? 0 : tensor_file(l, t.old);
        silent |= is_silent(h, f->promise.edit, file);
        break_one(h, &f->promise, file, r);
        for (struct view_draft *d = f->drafts; d; d = d->inside)
            break_one(h, &d->promise, file, r);
    }
    return silent;
}

bool batch_break(struct live *l, const struct batch *failed, uint64_t after,
                 const struct live_wait *waits, int r)
{
    struct heard h = {.failed = failed, .after = after, .bit = l->heard};
    assert(lock_held(&l->lock));
    hear(&h, waits, l->edits);
    bool keys = break_keys(l, &h, r), tensors = break_tensors(l, &h, r);
    return keys || tensors;
}
