/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait for the writer's thread: for the disk's answer whether an edit can be written,
 * and for its being durable. Questions to the disk are asked by that thread, without a lock, so that
 * a disk that hangs holds up only the requests that need it. See writer.h.
 */
#include "base/lock.h"
#include "live/makings.h"
#include "live/parts.h"
#include "live/preview_copy.h"
#include "live/tensor.h"
#include "live/writer.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/when.h"

/* Seconds without another edit after which what no request waits for is written. */
#define LATER 2
/* Milliseconds between two looks for signals to programs that wait. */
#define WATCH_MS 200
/* A model of at most this many bytes is written at once, whatever the strategy. */
#define SMALL_MODEL ((uint64_t)64 << 20)

/* ---- lists of requests ---- */

static void waits_push(struct live_wait **list, struct live_wait *w)
{
    w->next = *list;
    *list = w;
}

void waits_join(struct live_wait **list, struct live_wait *more)
{
    while (more) {
        struct live_wait *w = more;
        more = w->next;
        waits_push(list, w);
    }
}

void waits_tell(struct live_wait *list)
{
    while (list) {
        struct live_wait *w = list;
        list = w->next;
        w->done(w, w->result);
    }
}

void waits_answer(struct live_wait *list, int result)
{
    for (struct live_wait *w = list; w; w = w->next)
        w->result = result;
    waits_tell(list);
}

/* The number of a request that waits for all edits. */
#define ALL_EDITS UINT64_MAX

void waits_learn(struct live *l, struct live_wait *list, const struct batch *failed, uint64_t after,
                 int r)
{
    bool all = false;
    assert(lock_held(&l->lock));
    for (struct live_wait *w = list; w; w = w->next) {
        all |= w->edit == ALL_EDITS;
        w->result = batch_loses(failed, after, w->edit, w->file) ? r : 0;
    }
    if (r < 0 && batch_break(l, failed, after, list, r))
        l->failed = r;
    int earlier = all ? writer_take_failure(l) : 0;
    for (struct live_wait *w = list; w; w = w->next)
        if (w->edit == ALL_EDITS)
            w->result = r < 0 ? r : earlier;
}

void waits_begin(struct batch *b, bool slow, struct live_wait **answered)
{
    waits_join(slow ? answered : &b->waits, b->asking);
    b->asking = NULL;
}

/* Take the first wait that `pick` takes from a list; NULL: none. */
static struct live_wait *waits_take(struct live_wait **list,
                                    bool (*pick)(struct live_wait *, const void *), const void *arg)
{
    while (*list && !pick(*list, arg))
        list = &(*list)->next;
    struct live_wait *w = *list;
    if (w)
        *list = w->next;
    return w;
}

/* Any wait of a list that `pick` takes; NULL: none. */
static struct live_wait *take_any(struct live *l, bool (*pick)(struct live_wait *, const void *),
                                  const void *arg)
{
    struct live_wait **const list[] = {&l->flight.waits, &l->asked, &l->next.asking,
                                       &l->next.waits,   &l->syncs, &l->asks};
    struct live_wait *w = NULL;
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && !w; i++)
        w = waits_take(list[i], pick, arg);
    return w;
}

/* A signal has ended waits of a list. */
static void end_waits(struct live *l, struct live_wait *list)
{
    while (list) {
        struct live_wait *w = list;
        list = w->next;
        int (*ask)(struct live *, struct live_wait *, bool) = w->ask;
        w->ask = NULL;
        w->done(w, ask ? ask(l, w, true) : -EINTR);
    }
}

static bool is_of(struct live_wait *w, const void *request)
{
    return w->request == request;
}

void live_interrupt(struct live *l, const void *request)
{
    lock_take(&l->lock);
    views_interrupt(l, request);
    struct live_wait *w = take_any(l, is_of, request);
    lock_drop(&l->lock);
    if (w)
        w->next = NULL;
    end_waits(l, w);
}

static bool is_stopped(struct live_wait *w, const void *arg)
{
    (void)arg;
    return w->stopped && w->stopped(w);
}

static bool is_any(const struct live *l)
{
    return l->flight.waits || l->asked || l->next.asking || l->next.waits || l->syncs || l->asks ||
           l->judged;
}

#define LIVE_OF(j) ((struct live *)((char *)(j)-offsetof(struct live, watch)))

/* The kernel reports the first signal to a program that waits, and no later one: they are looked for. */
bool waits_watch(struct crew_job *j, struct timespec *again)
{
    struct live *l = LIVE_OF(j);
    struct live_wait *stopped = NULL, *w;
    lock_take(&l->lock);
    views_interrupt(l, NULL);
    while ((w = take_any(l, is_stopped, NULL)))
        waits_push(&stopped, w);
    l->watched = is_any(l);
    const bool more = l->watched;
    lock_drop(&l->lock);
    end_waits(l, stopped);
    *again = when_after(WATCH_MS);
    return more;
}

void waits_look(struct live *l, const struct live_wait *w)
{
    assert(lock_held(&l->lock));
    if (l->watched || !w->stopped)
        return;
    const struct timespec first = when_after(WATCH_MS);
    l->watched = true;
    crew_call_at(l->crew, &l->watch, &first);
}

static int park(struct live *l, struct live_wait **list, struct live_wait *w)
{
    waits_push(list, w);
    waits_look(l, w);
    return LIVE_PARKED;
}

void writer_later(struct live *l, unsigned seconds)
{
    assert(lock_held(&l->lock));
    if (l->opt.commit == LIVE_COMMIT_SYNC)
        return;
    l->due = when_now();
    if (!l->due_set)
        l->first = l->due;
    struct timespec latest = l->first;
    latest.tv_sec += WRITER_LATEST;
    l->due.tv_sec += (time_t)seconds;
    if (when_before(&latest, &l->due))
        l->due = latest;
    l->due_set = true;
    crew_call_at(l->crew, &l->job, &l->due);
}

/* Of a split model whose keys alone are edited it is the first file that counts. */
bool writer_is_small(const struct batch *b)
{
    const struct edit_change *c = &b->change;
    uint64_t size = c->tensors ? c->whole->file_size : c->base->file_size;
    return size <= SMALL_MODEL && c->bytes <= SMALL_MODEL - size;
}

/* The thread that writes is to look at the wait. */
static int call(struct live *l, struct live_wait **list, struct live_wait *w)
{
    crew_call(l->crew, &l->job);
    return park(l, list, w);
}

/* A failure that was not reported yet. */
int writer_take_failure(struct live *l)
{
    assert(lock_held(&l->lock));
    int r = l->failed;
    l->failed = 0;
    return r;
}

bool writer_has_work(const struct live *l)
{
    assert(lock_held(&l->lock));
    return !edit_change_is_empty(&l->next.change) || l->names.doomed || l->folders.doomed ||
           l->judging || makings_due(l);
}

static bool is_in_flight(const struct live *l, uint64_t edit)
{
    return l->flying && edit <= l->flight.last;
}

/* Wait for the batch that has the edit of w. */
static int wait_for_batch(struct live *l, struct live_wait *w)
{
    return is_in_flight(l, w->edit) ? park(l, &l->flight.waits, w) : call(l, &l->next.waits, w);
}

int writer_sync(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    const int lost = promise_kept(p, edit); /* maybe taken back, and later than `settled` */
    w->edit = edit;
    return lost < 0 ? lost : edit > l->settled ? wait_for_batch(l, w) : 0;
}

int writer_sync_all(struct live *l, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    w->edit = ALL_EDITS;
    if (writer_has_work(l))
        return call(l, &l->next.waits, w);
    if (l->flying)
        return park(l, &l->flight.waits, w);
    return writer_take_failure(l);
}

int writer_sync_released(struct live *l, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    w->edit = ALL_EDITS;
    if (!l->syncs)
        l->syncs_until = when_after(MAKING_RELEASE);
    crew_call_at(l->crew, &l->job, &l->syncs_until);
    return park(l, &l->syncs, w);
}

/* What the writer's thread may change while nothing is written (edit_file.clone) is left out. */
bool writer_file(const struct live *l, size_t no, struct edit_file *ret)
{
    const struct edit_file *f = l->files[no].file;
    assert(lock_held(&l->lock));
    if (l->flying)
        return false;
    *ret = (struct edit_file){.sys = f->sys, .dir = f->dir, .fd = -1, .id = f->id};
    (void)strcpy(ret->name, f->name);
    return true;
}

/* True if the file was written since, or is being written: then it is not another program's change that
 * was seen. */
static bool is_written(const struct live *l, uint32_t no, const struct edit_file *before)
{
    return l->flying || !edit_id_equal(&l->files[no].file->id, &before->id);
}

/* The file may be replaced while it is asked about: its descriptor is kept open. A write that is
 * under way finds out by itself. With the lock, which is given up meanwhile. True: ask once more. */
static bool ask_ready(struct live *l, uint32_t no, struct err *e)
{
    struct edit_file f;
    *e = (struct err){0};
    bool idle = writer_file(l, no, &f);
    struct store *s = store_ref(l->newest->view.store);
    lock_drop(&l->lock);
    f.fd = s->file[no]->fd;
    if (idle)
        (void)edit_possible(&f, &l->opt.edit, e);
    store_unref(s);
    lock_take(&l->lock);
    return idle && e->code == -ESTALE && is_written(l, no, &f);
}

void writer_ready(struct live *l, struct err *e)
{
    lock_take(&l->lock);
    while (ask_ready(l, 0, e))
        ;
    lock_drop(&l->lock);
}

void writer_ready_tensor(struct live *l, uint32_t tensor, struct err *e)
{
    struct tensor_now t;
    lock_take(&l->lock);
    uint32_t no = tensor_of_number(l, tensor, &t) < 0 ? 0 : tensor_file(l, t.old);
    while (ask_ready(l, no, e))
        ;
    lock_drop(&l->lock);
}

/* What the disk was asked for is written at once. */
static bool is_at_once(const struct live *l)
{
    return l->opt.commit == LIVE_COMMIT_AUTO && l->next.asked && edit_is_quick(l->next.how);
}

/*
 * In mode auto an edit is waited for if that does not take long. What is not waited for must be
 * possible, so the disk is asked before the request is answered; but not while the thread writes an
 * edit that is not waited for either, or frees the file that was replaced: that takes as long as it
 * takes, and the disk was asked just before.
 */
static int wait_by_mode(struct live *l, struct live_wait *w)
{
    struct batch *p = &l->next;
    const enum live_commit mode = l->opt.commit;
    const bool flies = is_in_flight(l, w->edit), kept = w->edit <= p->kept_edit;
    if (mode == LIVE_COMMIT_CLOSE ||
        (mode == LIVE_COMMIT_AUTO && writer_is_small(flies ? &l->flight : p)))
        return wait_for_batch(l, w);
    bool busy = l->flying && (l->flight.slow || mode == LIVE_COMMIT_SYNC);
    if (flies)
        return busy ? 0 : wait_for_batch(l, w);
    if (kept)
        return is_at_once(l) ? wait_for_batch(l, w) : 0;
    if (busy || l->freeing) {
        batch_keep(l, edit_mark(&p->change), p->n_step, l->edits);
        writer_later(l, LATER);
        return 0;
    }
    return call(l, &p->asking, w);
}

int writer_flush(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    const int lost = promise_kept(p, edit);
    w->edit = edit;
    return lost < 0 ? lost : edit > l->settled ? wait_by_mode(l, w) : 0;
}

int writer_accepted(struct live *l, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    if (!w) {
        writer_later(l, WRITER_SOON);
        return 0;
    }
    w->edit = l->edits;
    return wait_by_mode(l, w);
}

/* ---- the question ---- */

/* Whether what was answered for this batch before still holds, but for the room. Of a tensor of a
 * split model it may have been of another file. */
static bool is_known(const struct live *l)
{
    const struct batch *p = &l->next;
    const struct gguf *g = p->change.base;
    uint64_t infos = g->head_len - g->info_off;
    if (!p->asked || p->how == EDIT_AUTO || (p->change.tensors && l->n_files > 1))
        return false;
    return p->how != EDIT_INPLACE || p->change.bytes + infos + EDIT_HEAD_FIXED <= g->data_off;
}

/* The slowest of the strategies. */
static int ask_parts(struct live *l, const struct parts *p, enum edit_strategy *ret, struct err *e)
{
    enum edit_strategy how = EDIT_AUTO, one;
    int r = 0;
    for (size_t i = 0; i < p->n && r == 0; i++) {
        r = edit_prepare(l->files[p->part[i].file].file, &p->part[i].plan, &l->opt.edit, &one, e);
        how = r == 0 && one > how ? one : how;
    }
    if (r == 0)
        *ret = how;
    return r;
}

/* Ask without the lock. The plans are out of reach of others meanwhile. */
static int ask_all(struct live *l, enum edit_strategy *how, struct err *e)
{
    struct batch *p = &l->next;
    int r;
    do
        r = batch_freshen(l, e);
    while (preview_again(l, &r, e));
    if (r < 0)
        return r;
    struct snapshot *snap = snapshot_ref(l->newest->view.snap); /* whose heads are the plans' */
    struct parts parts = p->parts;
    uint64_t batch = p->number;
    p->parts = (struct parts){0};
    lock_drop(&l->lock);
    r = ask_parts(l, &parts, how, e);
    lock_take(&l->lock);
    if (p->number == batch && !p->parts.part)
        p->parts = parts;
    else
        parts_free(&parts);
    snapshot_unref(snap);
    return r;
}

static int ask_room(struct live *l, struct err *e)
{
    const struct batch *p = &l->next;
    uint64_t head = p->change.bytes + p->change.base->head_len + EDIT_HEAD_SLACK;
    enum edit_strategy how = p->how;
    lock_drop(&l->lock);
    int r = edit_room(l->file, &l->opt.edit, how == EDIT_COPY ? head : 0, e);
    lock_take(&l->lock);
    return r;
}

/* Those of the requests that wait for edits which the disk was not asked for yet. */
static struct live_wait *take_unasked(struct live *l)
{
    struct live_wait *taken = NULL, **at = &l->next.waits, *w;
    while ((w = *at)) {
        if (w->edit <= l->next.kept_edit) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        waits_push(&taken, w);
    }
    return taken;
}

/*
 * The answer is no. It is also the answer to edits that were not asked for yet: they are taken back
 * too.
 */
static void refuse(struct live *l, int r, const struct err *e)
{
    struct live_wait *told = take_unasked(l);
    waits_join(&told, l->asked);
    waits_join(&told, l->next.asking);
    l->asked = l->next.asking = NULL;
    const uint64_t kept = l->next.kept_edit;
    batch_take_back(l, e);
    waits_learn(l, told, NULL, kept, r);
    lock_drop(&l->lock);
    waits_tell(told);
    lock_take(&l->lock);
}

/* The answer is yes: what does not take long is written at once, and waited for. */
static void allow(struct live *l)
{
    struct live_wait *asked = l->asked;
    l->asked = NULL;
    if (is_at_once(l)) {
        waits_join(&l->next.waits, asked);
        return;
    }
    writer_later(l, LATER);
    lock_drop(&l->lock);
    waits_answer(asked, 0);
    lock_take(&l->lock);
}

void writer_ask(struct live *l)
{
    assert(lock_held(&l->lock));
    struct batch *p = &l->next;
    struct err e = {0};
    enum edit_strategy how = p->how;
    uint64_t batch = p->number;
    size_t ops = edit_mark(&p->change), steps = p->n_step;
    const uint64_t edit = l->edits;
    l->asked = p->asking;
    p->asking = NULL;
    if (edit_change_is_empty(&p->change)) { /* it was taken back */
        allow(l);
        return;
    }
    int r = is_known(l) ? ask_room(l, &e) : ask_all(l, &how, &e);
    assert(p->number == batch);
    if (r < 0) {
        refuse(l, r, &e);
        return;
    }
    batch_keep(l, ops, steps, edit);
    p->asked = true;
    p->how = how;
    allow(l);
}
