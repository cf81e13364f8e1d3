/* SPDX-License-Identifier: MIT */
/* From accepted edits to snapshots and files (overlay.h). */
#include "live/overlay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/objects.h"
#include "live/tensors.h"
#include "live/value.h"

/* ---- what is pending ---- */

void overlay_begin(struct live *l)
{
    const struct snapshot *g = l->disk.snap;
    const struct edit_base on = {
        .g = snapshot_own(g), .ids = g->ids, .numbers = &l->newest->numbers};
    edit_change_init(&l->pending, &on);
}

bool overlay_is_pending(const struct live *l)
{
    return l->n_gone || l->tensors.n_gone || l->unfinished || !edit_change_is_empty(&l->pending);
}

/* Add the removal of the keys and tensors that are gone. A key that may not be removed is there
 * again. Returns 0 or -ENOMEM. */
static int remove_gone(struct live *l, struct err *why)
{
    tensors_remove(l, &l->pending);
    for (struct name *x = l->first; x && l->n_gone; x = x->next) {
        struct err e = {0};
        if (!x->gone ||
            !edit_find(&l->pending, x->key, x->key_len, &(const struct edit_slot *){0}) ||
            edit_remove(&l->pending, x->key, x->key_len, &e) >= 0)
            continue;
        if (e.code == -ENOMEM)
            return err_set(why, e.code, "%s", e.msg);
        name_spare(l, x);
        (void)name_refused(l, x, &e);
    }
    return 0;
}

/* Plan what is pending, which only this thread changes. Drops the lock. */
static int plan(struct live *l, struct edit_plan *ret, struct err *e)
{
    edit_plan_free(ret);
    lock_drop(&l->lock);
    const int r = edit_plan_make(&l->pending, &l->opt.edit, ret, e);
    lock_take(&l->lock);
    return r;
}

/* ---- snapshots ---- */

/* Return the key of `old` that has the name of key kv of `now`, or UINT32_MAX. *at: where it is
 * expected; initially 0. */
static uint32_t same_key(const struct gguf *old, const struct gguf *now, uint32_t kv, uint32_t *at)
{
    const struct gguf_kv *k = &now->kv[kv];
    const char *key = gguf_key(now, k);
    const struct gguf_kv *o = *at < old->n_kv ? &old->kv[*at] : NULL;
    const bool found =
        o && o->key_len == k->key_len && memcmp(gguf_key(old, o), key, k->key_len) == 0;
    const uint32_t was = found ? *at : gguf_find_key(old, key, k->key_len);
    *at = was == UINT32_MAX ? *at : was + 1;
    return was;
}

/* Return the id of a key that the accepted state lacks: that of the key that it was, or its name's. */
static uint32_t id_after(struct live *l, const struct edit_change *c, const struct snapshot *base,
                         const char *key, size_t n)
{
    char text[TREE_NAME_MAX + 1];
    const struct edit_slot *s = NULL;
    (void)edit_find(c, key, n, &s);
    const uint32_t old = s ? s->old : gguf_find_key(c->on.g, key, n);
    if (old != EDIT_NONE)
        return ids_of(base->key_ids, old).number;
    (void)name_encode(key, n, text);
    const struct name *x = name_find(l, text);
    return x ? x->ino : l->given++;
}

static int key_ids(struct live *l, const struct edit_change *c, const struct snapshot *base,
                   const struct gguf *g, struct ids **ret)
{
    const struct gguf *old = snapshot_own(l->state);
    struct tensor_id *of = malloc((g->n_kv + 1ull) * sizeof(*of));
    bool same = g->n_kv == old->n_kv;
    for (uint32_t kv = 0, at = 0; of && kv < g->n_kv; kv++) {
        const uint32_t was = same_key(old, g, kv, &at);
        const struct gguf_kv *k = &g->kv[kv];
        const uint32_t id = was == UINT32_MAX ? id_after(l, c, base, gguf_key(g, k), k->key_len)
                                              : ids_of(l->state->key_ids, was).number;
        of[kv] = (struct tensor_id){id, id};
        same &= was == kv;
    }
    int r = of ? 0 : -ENOMEM;
    if (r == 0 && same)
        *ret = ids_ref(l->state->key_ids);
    else if (r == 0)
        r = ids_make(of, g->n_kv, ret);
    free(of);
    return r;
}

/* Keep the measured sizes of keys whose values are unchanged. */
static void keep_sizes(const struct snapshot *old, struct snapshot *now)
{
    for (uint32_t kv = 0, at = 0; kv < now->gguf->n_kv; kv++) {
        const uint32_t was = same_key(old->gguf, now->gguf, kv, &at);
        const uint64_t size = was == UINT32_MAX ? 0 : atomic_load(&old->key_size[was]);
        if (size && gguf_same_value(now->gguf, kv, old->gguf, was))
            atomic_store(&now->key_size[kv], size);
    }
}

/* ---- tensors ---- */

/* True if `s` (NULL: of n tensors) is already the plan's table. */
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

/* Use the table of ids that is shown, if it is still valid; otherwise make a new one. */
static int tensor_ids(const struct live *l, const struct edit_plan *p, struct ids **ret)
{
    const struct snapshot *known[] = {l->newest->view.snap, l->state, l->disk.snap};
    for (size_t i = 0; i < COUNT(known); i++)
        if (is_table(known[i]->ids, known[i]->gguf->n_tensors, p)) {
            *ret = ids_ref(known[i]->ids);
            return 0;
        }
    struct tensor_id *of = malloc((p->n_tensors + 1) * sizeof(*of));
    for (size_t i = 0; of && i < p->n_tensors; i++)
        of[i] = p->tensor[i].id;
    const int r = of ? ids_make(of, (uint32_t)p->n_tensors, ret) : -ENOMEM;
    free(of);
    return r;
}

/* Get the place of a tensor's bytes: its content over the base. *ret holds a reference. */
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

/* Make the store of a plan for a state whose store is `base`. */
static int make_store(struct store *base, const struct edit_plan *p, struct store **ret)
{
    if (!p->tensor) {
        *ret = store_ref(base);
        return 0;
    }
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

/* ---- states ---- */

/* Make the state that a change of `base` leads to; p: its plan. */
static int make_state(struct live *l, const struct edit_change *c, const struct view *base,
                      const struct edit_plan *p, struct view *ret, struct err *e)
{
    const struct timespec changed = newest_changed(l->newest);
    struct snapshot *g;
    struct store *s = NULL;
    int r =
        newest_make(l->newest, gguf_ref(p->next), base->snap->shard, l->shown + 1, &changed, &g, e);
    if (r < 0)
        return r;
    l->shown++;
    ids_unref(g->ids);
    g->ids = p->tensor ? NULL : ids_ref(base->snap->ids);
    r = p->tensor ? tensor_ids(l, p, &g->ids) : 0;
    if (r == 0)
        r = make_store(base->store, p, &s);
    if (r == 0)
        r = key_ids(l, c, base->snap, snapshot_own(g), &g->key_ids);
    if (r < 0) {
        snapshot_unref(g);
        store_unref(s);
        return err_set(e, r, "no memory");
    }
    keep_sizes(l->state, g);
    *ret = (struct view){.snap = g, .store = s};
    return 0;
}

/* Make the accepted state without the keys and tensors that are gone. `pending` stays out of this:
 * the worker may be writing it. */
static int make_without_gone(struct live *l, struct view *ret, struct err *e)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    const struct view state = {l->state, l->over, NULL};
    edit_change_init(&c, &(struct edit_base){.g = snapshot_own(l->state),
                                             .ids = l->state->ids,
                                             .numbers = &l->newest->numbers});
    for (const struct name *x = l->first; x; x = x->next)
        if (x->gone)
            (void)edit_remove(&c, x->key, x->key_len, NULL); /* refused when it is written */
    tensors_remove(l, &c);
    int r = edit_plan_make(&c, &l->opt.edit, &p, e);
    return r < 0 ? r : make_state(l, &c, &state, &p, ret, e);
}

/* Show the accepted state without the keys and tensors that are gone. A view never shows them
 * again, because a reader may take it at any moment. *old: the view that is replaced. */
static int show_accepted(struct live *l, struct view *old, struct err *e)
{
    struct view v = {l->state, l->over, NULL}, made = VIEW_INIT;
    int r = l->n_gone || l->tensors.n_gone ? make_without_gone(l, &made, e) : 0;
    v = view_ref(made.snap ? &made : &v);
    *old = newest_put_view(l->newest, v.snap, v.store);
    atomic_store(&l->stale, r < 0);
    view_free(&made);
    return r;
}

int overlay_freshen(struct live *l, struct err *e)
{
    assert(lock_held(&l->lock));
    struct view old;
    if (!atomic_load(&l->stale))
        return 0;
    int r = show_accepted(l, &old, e);
    view_free(&old);
    return r;
}

/* ---- what the log says ---- */

/* Return the number of bytes in a value, without the length word of a string. */
static size_t text_bytes(const struct gguf_format *fmt, uint32_t type, size_t n)
{
    return type == GGUF_STRING ? n - fmt->len_width : n;
}

/* Describe what an edit does to a key. Writes nothing if it does nothing. */
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
    const bool renamed = kv && strcmp(name, old) != 0;
    if (renamed)
        buf_printf(out, "%s: renamed to %s", old, name);
    if (!s->value)
        return;
    const struct gguf_value v = gguf_value_at(fmt, s->value->type, s->value->bytes.data);
    const size_t now = text_bytes(fmt, s->value->type, s->value->bytes.len);
    buf_printf(out, "%s%s: ", renamed ? "; " : "", name);
    if (kv)
        buf_printf(out, "%s, %zu -> %zu bytes", gguf_type_name(&v, type),
                   text_bytes(fmt, kv->type, (size_t)(kv->end - kv->val_off)), now);
    else
        buf_printf(out, "new, %s, %zu bytes", gguf_type_name(&v, type), now);
}

/* The same for a tensor. */
static void note_tensor(const struct edit_change *c, const struct edit_slot *s, struct buf *out)
{
    char name[SHOW_MAX], old[SHOW_MAX];
    const struct gguf_tensor *t = s->old == EDIT_NONE ? NULL : &c->on.g->tensor[s->old];
    (void)show(name, s->name, s->name_len);
    if (t)
        (void)show(old, gguf_name(c->on.g, t), t->name_len);
    if (s->gone) {
        if (t)
            buf_printf(out, UNSAVED_TENSOR "%s: removed", old);
        return;
    }
    const bool renamed = t && strcmp(name, old) != 0;
    uint64_t n = 0;
    for (size_t i = 0; s->content && i < s->content->n; i++)
        n += s->content->piece[i].len;
    if (renamed)
        buf_printf(out, UNSAVED_TENSOR "%s: renamed to %s", old, name);
    if (s->content)
        buf_printf(out, "%s" UNSAVED_TENSOR "%s: %s%llu bytes", renamed ? "; " : "", name,
                   t ? "" : "new, ", (unsigned long long)n);
}

static void note_gone(const struct live *l, struct buf *out)
{
    struct edit_tensor t;
    char shown[SHOW_MAX];
    for (struct link *k = NULL; (k = table_each(&l->tensors.by_number, k));) {
        const struct object *o = (const struct object *)k;
        if (!o->gone || !edit_tensor_numbered(&l->pending, o->number, &t))
            continue;
        buf_printf(out, UNSAVED_TENSOR "%s: removed", show(shown, t.name, t.name_len));
        buf_char(out, '\0');
    }
}

void overlay_notes(const struct live *l, struct buf *out)
{
    for (size_t i = 0; i < l->pending.n; i++) {
        const size_t before = out->len;
        if (l->pending.slot[i]->kind == EDIT_TENSOR)
            note_tensor(&l->pending, l->pending.slot[i], out);
        else
            note_key(&l->pending, l->pending.slot[i], out);
        if (out->len > before)
            buf_char(out, '\0');
        if (buf_error(out)) /* whole notes only */
            out->len = before;
    }
    char shown[SHOW_MAX];
    for (const struct name *x = l->first; x && l->n_gone; x = x->next)
        if (x->gone && edit_find(&l->pending, x->key, x->key_len, &(const struct edit_slot *){0})) {
            buf_printf(out, "%s: removed", show(shown, x->key, x->key_len));
            buf_char(out, '\0');
        }
    if (l->tensors.n_gone)
        note_gone(l, out);
}

/* ---- writing ---- */

struct job {
    struct live *l;
    struct edit_result result;
    long long begun, reported; /* ms */
    struct buf notes;          /* what it does, for the log */
};

static void on_progress(uint64_t done, uint64_t total, void *arg)
{
    struct job *b = arg;
    const long long s = (when_ms() - b->begun) / 1000;
    if (s <= b->reported)
        return;
    b->reported = s;
    live_log(b->l, LOG_INFO, "copying: %llu of %llu MiB", (unsigned long long)(done >> 20),
             (unsigned long long)(total >> 20));
}

/* Log the outcome for each key. why: why it was not written, or NULL. */
static void log_notes(const struct job *b, const struct err *why)
{
    const char *at = buf_text(&b->notes), *end = buf_text_end(&b->notes);
    for (; at && at < end && !buf_error(&b->notes); at += strlen(at) + 1)
        if (why)
            live_log(b->l, LOG_ERR, b->result.unfinished ? "%s: %s" : "%s: not written: %s", at,
                     why->msg);
        else
            live_log(b->l, LOG_INFO, "%s; %s, %lld ms", at, edit_strategy_name(b->result.strategy),
                     when_ms() - b->begun);
}

/* Make a store of the new file for readers. If the file cannot be mapped, readers continue with
 * their store, which shows the same bytes; the next edit tries to map it again. */
static struct store *store_written(struct live *l, struct snapshot *g, const struct edit_plan *p,
                                   bool replaced)
{
    struct store *s = NULL;
    struct err e = {0};
    const bool tensors = p->tensor && !p->same;
    l->unmapped |= replaced || p->changed > 0;
    if ((l->unmapped || tensors) &&
        newest_make_store(g, l->disk.store->file, l->unmapped ? l->file->fd : -1, &s, &e) < 0)
        live_log(l, LOG_WARNING, "the old file is kept open for readers: %s", e.msg);
    l->unmapped &= !s;
    return s;
}

/* Record what takes the edit back. If that is not possible, log it, but not again until the next
 * success. */
static void put_on_record(struct live *l, const struct snapshot *g)
{
    const struct history_edit edit = {&l->pending, snapshot_own(g), l->restores,
                                      when_date().tv_sec};
    struct err e = {0};
    (void)history_append(l->history, &edit, &e);
    if (e.code && !l->unrecorded)
        live_log(l, LOG_WARNING, "history: the keys before this edit are not kept: %s", e.msg);
    l->unrecorded = e.code;
}

/* Write the plan, whose state is g. Call without the lock. *ret: the new store, or NULL if readers
 * keep theirs. */
static int write_plan(struct job *b, const struct edit_plan *p, struct snapshot *g,
                      struct store **ret, struct err *e)
{
    struct live *l = b->l;
    const struct edit_hooks hooks = {.progress = on_progress, .arg = b};
    b->begun = when_ms();
    b->result = (struct edit_result){.old_fd = -1};
    if (l->history)
        put_on_record(l, g);
    int r = edit_commit(l->file, p, &l->opt.edit, &hooks, &b->result, e);
    if (l->history)
        history_end(l->history, r == 0 || b->result.unfinished, when_date().tv_sec);
    const bool replaced = b->result.old_fd >= 0;
    if (replaced)
        (void)close(b->result.old_fd);
    if (r == 0 || b->result.unfinished)
        *ret = store_written(l, g, p, replaced);
    log_notes(b, r < 0 ? e : NULL);
    return r;
}

/* The state g is on disk, and nothing is pending any more. */
static void landed(struct live *l, const struct view *g)
{
    l->old[0] = l->disk;
    l->old[1] = (struct view){.snap = l->state, .store = l->over};
    l->disk = view_ref(g);
    l->state = snapshot_ref(g->snap);
    l->over = store_ref(g->store);
    edit_change_free(&l->pending);
    overlay_begin(l);
    names_removed(l);
    tensors_removed(l);
    (void)show_accepted(l, &l->old[2], NULL);
    if (l->disk.store != l->old[0].store)
        newest_drop_file(l->newest);
    l->queue.due.tv_sec = l->queue.first_at.tv_sec = 0;
    l->trouble = (struct err){0};
    if (l->n_gone || l->tensors.n_gone) /* removed while it was written */
        queue_later(l, l->tensors.n_gone ? QUEUE_TENSORS : QUEUE_REMOVALS, true);
}

/* The state g is accepted, and written later. */
static void kept(struct live *l, const struct view *g)
{
    l->old[0] = (struct view){.snap = l->state, .store = l->over};
    l->state = snapshot_ref(g->snap);
    l->over = store_ref(g->store);
    edit_keep(&l->pending, edit_mark(&l->pending));
    names_removed(l);
    tensors_removed(l);
    (void)show_accepted(l, &l->old[1], NULL);
    queue_later(l, QUEUE_EDITS, false);
}

void overlay_retire(struct live *l)
{
    for (size_t i = 0; i < COUNT(l->old); i++)
        view_free(&l->old[i]);
}

/* ---- accepting ---- */

/* An edit that is being accepted. */
struct accept {
    struct edit_plan p;
    size_t edit; /* the mark after the edit, before the removals of gone keys */
    bool write;  /* write it now */
    bool sure;   /* however long that takes */
    bool all;    /* with everything that was accepted before */
    bool mixed;  /* edits that were accepted before are written with it */
    bool tried;  /* the write began */
};

static void decide(const struct live *l, enum when when, struct accept *a)
{
    const enum live_commit mode = l->opt.commit;
    a->sure = when == WHEN_NOW || (when == WHEN_MODE && mode == LIVE_COMMIT_CLOSE) ||
              (when == WHEN_DUE && !(l->queue.removes && mode == LIVE_COMMIT_AUTO));
    a->all = when == WHEN_NOW;
    a->write = a->sure || mode != LIVE_COMMIT_SYNC;
}

/* Ask the disk whether the plan can be written, and whether that copies little. Drops the lock. */
static int ask_disk(struct live *l, const struct edit_plan *p, bool *cheap, struct err *e)
{
    struct edit_disk disk = {0};
    enum edit_strategy how;
    uint64_t copies = 0;
    lock_drop(&l->lock);
    int r = edit_look(l->file, &l->opt.edit, &disk, e);
    lock_take(&l->lock);
    if (r == 0)
        r = edit_plan_way(p, &l->opt.edit, &disk, &how, &copies, e);
    *cheap = copies <= EDIT_CHEAP;
    return r;
}

static int plan_and_ask(struct live *l, struct accept *a, bool *cheap, struct err *e)
{
    int r = plan(l, &a->p, e);
    return r < 0 ? r : ask_disk(l, &a->p, cheap, e);
}

static void in_trouble(struct live *l, const struct err *e, bool logged);

/* Plan what is pending, with the removals if it is written now. edit: an edit is pending that was
 * not accepted before, and that the removals must not prevent, unless they must be written too. */
static int prepare(struct live *l, struct accept *a, bool edit, struct err *e)
{
    bool cheap = true;
    a->edit = edit_mark(&l->pending);
    int r = a->write ? remove_gone(l, e) : 0;
    a->mixed |= edit_mark(&l->pending) > a->edit;
    if (r == 0)
        r = plan_and_ask(l, a, &cheap, e);
    if (r < 0 && edit && a->mixed && !a->all) {
        const struct err why = *e;
        edit_undo(&l->pending, a->edit);
        a->mixed = false;
        r = plan_and_ask(l, a, &cheap, e);
        if (r == 0)
            in_trouble(l, &why, false);
    }
    if (r < 0 || !a->write || a->sure || cheap)
        return r;
    a->write = false;
    if (edit_mark(&l->pending) == a->edit)
        return 0;
    edit_undo(&l->pending, a->edit);
    return plan(l, &a->p, e);
}

static int carry_out(struct live *l, struct accept *a, bool *done, struct err *e)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    struct job job = {.l = l};
    struct view g = VIEW_INIT;
    struct store *s = NULL;
    newest_touch(l->newest);
    int r = make_state(l, &l->pending, &l->disk, &a->p, &g, e);
    if (r < 0)
        return r;
    *done = !a->write;
    if (a->write) {
        overlay_notes(l, &notes);
        job.notes = notes;
        a->tried = true;
        lock_drop(&l->lock);
        r = write_plan(&job, &a->p, g.snap, &s, e);
        /* -ESTALE itself: another program's file is there */
        const bool astray = r < 0 && r != -ESTALE && edit_file_fresh(l->file, NULL) == -ESTALE;
        lock_take(&l->lock);
        l->astray = astray;
        l->unfinished = l->file->unfinished;
        *done = r == 0 || job.result.unfinished;
    }
    if (s) {
        store_unref(g.store);
        g.store = s;
    }
    if (*done && a->write)
        landed(l, &g);
    else if (*done)
        kept(l, &g);
    if (r < 0 && l->unfinished)
        l->trouble = *e;
    view_free(&g);
    return r;
}

/* Edits that were accepted before could not be written: time does not try again. logged: the log
 * names each of them already. */
static void in_trouble(struct live *l, const struct err *e, bool logged)
{
    if (!logged)
        live_log(l, LOG_ERR, "edits wait, since they cannot be written: %s", e->msg);
    l->trouble = *e;
    l->queue.due.tv_sec = l->queue.first_at.tv_sec = 0;
}

int overlay_accept(struct live *l, size_t mark, enum when when, bool *done, struct err *e)
{
    const bool edit = edit_mark(&l->pending) > mark;
    struct accept a = {0};
    assert(lock_held(&l->lock) && !l->busy);
    *done = false;
    if (!overlay_is_pending(l))
        return l->astray ? err_set(e, -ESTALE, "the file was replaced by a failed edit") : 0;
    decide(l, when, &a);
    l->busy = true;
    int r = prepare(l, &a, edit, e);
    if (r == 0)
        r = carry_out(l, &a, done, e);
    edit_plan_free(&a.p);
    l->busy = false;
    if (*done)
        return r;
    edit_undo(&l->pending, mark);
    if (edit && !a.tried) /* the fault may be this edit's */
        return r;
    if (a.mixed || l->unfinished || !edit_change_is_empty(&l->pending))
        in_trouble(l, e, a.tried);
    return r;
}

/* ---- before an edit ---- */

void overlay_ready(struct live *l, struct err *e)
{
    struct edit_disk disk;
    *e = (struct err){0};
    lock_take(&l->lock);
    if (l->busy) { /* the file is the worker's */
        lock_drop(&l->lock);
        return;
    }
    struct edit_file f = *l->file;
    struct store *s = store_ref(l->disk.store);
    lock_drop(&l->lock);
    f.fd = s->file[0]->fd;
    if (edit_look(&f, &l->opt.edit, &disk, e) == -ESTALE) {
        LOCKED(&l->lock);
        if (l->busy || !edit_id_equal(&l->file->id, &f.id)) /* by an edit of this mount */
            *e = (struct err){0};
    }
    store_unref(s);
}
