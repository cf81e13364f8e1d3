/* SPDX-License-Identifier: MIT */
/* Queues waiting requests, and runs the only thread that changes the model file (writer.h). */
#include "live/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "live/edits.h"
#include "live/tensor_judge.h"
#include "live/tensors.h"
#include "live/views.h"

/* Interval between two checks for signals to waiting programs, in milliseconds. */
#define WATCH_MS 200
/* A judgement of at most this many values of a tensor is a single unit of work. */
#define FEW TENSOR_STRETCH

/* ---- the list ---- */

static struct live_wait *take_out(struct waits *s, struct live_wait **at)
{
    struct live_wait *w = *at;
    *at = w->next;
    if (!w->next)
        s->end = at;
    w->next = NULL;
    return w;
}

static void leave(struct waits *s, const struct live_wait *w)
{
    struct live_wait **at = &s->first;
    while (*at != w)
        at = &(*at)->next;
    take_out(s, at)->begun = false;
}

/* Add an entry, and watch its program for signals. */
static void add(struct live *l, struct live_wait *w, enum live_needs needs)
{
    struct waits *s = &l->waits;
    assert(lock_held(&l->lock));
    w->needs = needs;
    w->next = NULL;
    *s->end = w;
    s->end = &w->next;
    if (!w->stopped || !l->writer.started)
        return;
    const struct timespec first = when_after(WATCH_MS);
    pool_call_at(&s->watch, &first);
}

/* Let an entry begin to wait or, after a judgement, continue to wait. */
static int park(struct live *l, struct live_wait *w, enum live_needs needs)
{
    if (!w->begun)
        add(l, w, needs);
    else if (atomic_load(&w->cancel))
        return -EINTR;
    w->begun = false;
    w->needs = needs;
    return LIVE_PARKED;
}

static void waits_tell(struct live_wait *list)
{
    for (struct live_wait *w = list; w; w = list) {
        list = w->next;
        w->done(w, w->result);
    }
}

/* ---- signals ---- */

static bool is_of(struct live_wait *w, const void *request)
{
    return w->request == request;
}

static bool is_stopped(struct live_wait *w, const void *arg)
{
    (void)arg;
    return w->stopped && w->stopped(w);
}

/* Stop the entries that `pick` selects. If an entry is being judged, its judgement ends, and the
 * judging thread answers the entry; the other selected entries are removed and returned. */
static struct live_wait *stop(struct waits *s, bool (*pick)(struct live_wait *, const void *),
                              const void *arg)
{
    struct live_wait *out = NULL, **end = &out, **at = &s->first;
    while (*at) {
        bool picked = pick(*at, arg);
        if (picked && (*at)->begun)
            atomic_store(&(*at)->cancel, true);
        if (picked && !(*at)->begun)
            end = &(*end = take_out(s, at))->next;
        else
            at = &(*at)->next;
    }
    return out;
}

static void answer_stopped(struct live *l, struct live_wait *list)
{
    for (struct live_wait *w = list; w; w = list) {
        list = w->next;
        w->done(w, w->needs == LIVE_JUDGED ? w->ask(l, w, true) : -EINTR);
    }
}

void live_interrupt(struct live *l, const void *request)
{
    lock_take(&l->lock);
    struct live_wait *stopped = stop(&l->waits, is_of, request);
    lock_drop(&l->lock);
    answer_stopped(l, stopped);
}

/* Check for further signals, because the kernel reports only the first one to a waiting program. */
static bool watch(struct pool_job *j, struct timespec *again)
{
    struct live *l = (struct live *)((char *)j - offsetof(struct live, waits.watch));
    lock_take(&l->lock);
    struct live_wait *stopped = stop(&l->waits, is_stopped, NULL);
    const bool more = l->waits.first;
    lock_drop(&l->lock);
    answer_stopped(l, stopped);
    *again = when_after(WATCH_MS);
    return more;
}

/* ---- until a batch is durable ---- */

const struct timespec *waits_released_at(const struct live *l)
{
    const struct live_wait *w = l->waits.first;
    assert(lock_held(&l->lock));
    while (w && w->needs != LIVE_RELEASED)
        w = w->next;
    return w ? &w->until : NULL;
}

static bool waits_for(const struct live *l, uint64_t batch)
{
    const struct live_wait *w = l->waits.first;
    assert(lock_held(&l->lock));
    while (w && (w->needs != LIVE_DURABLE || w->batch != batch))
        w = w->next;
    return w;
}

static struct live_wait *waits_end(struct live *l, uint64_t batch, int r, bool lost)
{
    struct waits *s = &l->waits;
    struct live_wait *out = NULL, **end = &out, **at = &s->first;
    bool all = false;
    assert(lock_held(&l->lock));
    if (r < 0 && lost && batch_break(l, r))
        l->writer.failed = r;
    while (*at)
        if ((*at)->needs == LIVE_DURABLE && (*at)->batch <= batch) {
            all |= (*at)->edit == WAITS_ALL;
            (*at)->result = r;
            end = &(*end = take_out(s, at))->next;
        } else {
            at = &(*at)->next;
        }
    if (r < 0 && !lost && !out)
        l->writer.failed = r;
    const int earlier = all ? writer_take_failure(l) : 0;
    for (struct live_wait *w = out; w && r == 0; w = w->next)
        if (w->edit == WAITS_ALL)
            w->result = earlier;
    return out;
}

/* ---- requests to be judged ---- */

static bool is_to_judge(const struct live_wait *w, const struct draft *d)
{
    return w->needs == LIVE_JUDGED && !w->begun && w->view->d == d;
}

/* Return the first entry that waits for a draft. ask: only this kind of request, or NULL. */
static struct live_wait **first_of(struct live *l, const struct draft *d,
                                   int (*ask)(struct live *l, struct live_wait *w, bool stopped))
{
    struct live_wait **at = &l->waits.first;
    assert(lock_held(&l->lock));
    while (*at && (!is_to_judge(*at, d) || (ask && (*at)->ask != ask)))
        at = &(*at)->next;
    return at;
}

bool waits_judged_by(struct live *l, const struct draft *d,
                     int (*ask)(struct live *l, struct live_wait *w, bool stopped))
{
    return *first_of(l, d, ask);
}

/* True if the entry has something to judge. Call with the lock held. */
static bool has_to_judge(const struct draft *d, const struct live_wait *w)
{
    const enum draft_state state = d->state;
    if (d->made || (draft_is_helper(d) && !w->done)) /* at most a short text to judge */
        return false;
    if (d->why.code || (state == DRAFT_REFUSED && !w->done)) /* a release does not judge again */
        return false;
    return draft_is_due(state);
}

/* True if there is little or nothing to judge. Call with the lock held. */
static bool is_quick(const struct live_view *h, const struct live_wait *w)
{
    const struct draft *d = h->d;
    return !has_to_judge(d, w) ||
           (!draft_is_helper(d) && d->n_elem <= FEW && d->size <= FEW * sizeof(double));
}

/* Record that no entry is waiting for a draft. Call with the lock held. */
static void rest(struct live *l, struct draft *d)
{
    struct object *o = d->object;
    d->asked = false;
    view_reap(l, d);
    new_tensor_reap(l, o);
}

static bool serve_turn(struct pool_job *j, struct timespec *again);

/* Begin the judgement of an entry. If no thread waits for the entry, it is removed, because `ask`
 * may free it. Call with the lock held. */
static void begin(struct waits *s, struct live_wait **at)
{
    struct live_wait *w = *at;
    w->begun = w->done != NULL;
    if (!w->done)
        (void)take_out(s, at);
}

/* Record that a draft is idle again and all requests that waited for it have been answered. The end
 * of the mount waits for this. */
static void end_serving(struct live *l)
{
    lock_take(&l->lock);
    if (--l->waits.judged == 0)
        cond_broadcast(&l->waits.rest);
    lock_drop(&l->lock);
}

/* Hand a draft to the pool, which keeps a thread as long as the live state has jobs in the pool.
 * Returns false on failure. Call with the lock held. */
static bool send(const struct live *l, struct draft *d)
{
    return l->writer.started && pool_do(&d->job, serve_turn) == 0;
}

/*
 * Take the next entry that waits for a draft. If there is no entry to judge in this thread, returns
 * NULL, and sets *rests if end_serving() must still be called. over: the entry that was just judged
 * and must be answered, or NULL. here: serve only quick entries, and hand slow ones to the pool.
 */
static struct live_wait *take_next(struct live *l, struct draft *d, struct live_wait *over,
                                   bool here, bool *rests)
{
    lock_take(&l->lock);
    if (over)
        leave(&l->waits, over);
    struct live_wait **at = first_of(l, d, NULL), *w = *at;
    const bool sent = w && here && !is_quick(w->view, w) && send(l, d);
    if (!w)
        rest(l, d);
    if (w && !sent)
        begin(&l->waits, at);
    lock_drop(&l->lock);
    if (!w)
        views_bury(l);
    *rests = !w;
    return sent ? NULL : w;
}

/* Serve an entry whose judgement has started and all entries waiting behind it. The last entry is
 * answered once the draft is idle again, so that the program's next call is served immediately. */
static void serve(struct live *l, struct draft *d, struct live_wait *w, bool here, bool rests)
{
    while (w) {
        void (*done)(struct live_wait *, int) = w->done;
        const int r = w->ask(l, w, false);
        const bool over = done && r != LIVE_PARKED;
        struct live_wait *next = take_next(l, d, over ? w : NULL, here, &rests);
        if (over)
            done(w, r);
        w = next;
    }
    if (rests)
        end_serving(l);
}

static bool serve_turn(struct pool_job *j, struct timespec *again)
{
    struct draft *d = (struct draft *)((char *)j - offsetof(struct draft, job));
    struct live *l = d->live;
    struct err unready; /* reported by a later write */
    (void)again;
    writer_ready(l, &unready);
    bool rests;
    struct live_wait *w = take_next(l, d, NULL, false, &rests);
    serve(l, d, w, false, rests);
    return false;
}

int waits_judge(struct live *l, struct live_view *h,
                int (*ask)(struct live *l, struct live_wait *w, bool stopped), struct live_wait *w)
{
    struct draft *d = h->d;
    lock_take(&l->lock);
    const bool begins = !d->asked, here = begins && (is_quick(h, w) || !send(l, d));
    w->view = h;
    w->ask = ask;
    w->begun = here && w->done != NULL;
    atomic_store(&w->cancel, false);
    if (begins) {
        d->asked = true;
        l->waits.judged++;
    }
    if (!here || w->done)
        add(l, w, LIVE_JUDGED);
    lock_drop(&l->lock);
    if (!here)
        return LIVE_PARKED;
    const bool waits = w->done != NULL;
    int r = ask(l, w, false);
    const bool over = waits && r != LIVE_PARKED;
    bool rests;
    struct live_wait *next = take_next(l, d, over ? w : NULL, true, &rests);
    if (next && over) { /* do not make w wait for the entries behind it */
        w->done(w, r);
        r = LIVE_PARKED;
    }
    serve(l, d, next, true, rests);
    return r;
}

void waits_rest(struct live *l)
{
    LOCKED(&l->lock);
    while (l->waits.judged)
        (void)lock_wait(&l->lock, &l->waits.rest, NULL);
}

/* Edits that no request waits for are written after this many seconds without another edit. */
#define LATER 2
/* Milliseconds for which the last known free space is trusted. */
#define ROOM_MS 1000

/* ---- writing ---- */

/* The write of a batch in flight, used only by the writing thread. */
struct job {
    struct live *l;
    struct edit_result result;
    struct timespec begin;
    uint64_t reported;  /* when progress was last logged, in seconds */
    bool made;          /* a new store was made */
    bool astray;        /* the write failed, and the path no longer names the file */
    struct view old[3]; /* the views that were replaced: on disk, in flight, for readers */
};

static uint64_t elapsed_ms(const struct job *b)
{
    struct timespec now = when_now();
    return (uint64_t)((now.tv_sec - b->begin.tv_sec) * 1000 +
                      (now.tv_nsec - b->begin.tv_nsec) / 1000000);
}

static void on_progress(uint64_t done, uint64_t total, void *arg)
{
    struct job *b = arg;
    uint64_t s = elapsed_ms(b) / 1000;
    if (s <= b->reported)
        return;
    b->reported = s;
    live_log(b->l, LOG_INFO, "copying: %llu of %llu MiB", (unsigned long long)(done >> 20),
             (unsigned long long)(total >> 20));
}

/* Log the outcome of each edit. b: the write, or NULL if there was no write. why: why the edits
 * were not written, or NULL if they were. */
static void log_notes(const struct live *l, const struct buf *notes, const struct job *b,
                      const struct err *why)
{
    const char *at = buf_text(notes), *end = buf_text_end(notes);
    for (; at && at < end && !buf_error(notes); at += strlen(at) + 1) {
        if (!why)
            live_log(l, LOG_INFO, "%s; %s, %llu ms", at, edit_strategy_name(b->result.strategy),
                     (unsigned long long)elapsed_ms(b));
        else
            live_log(l, LOG_ERR, b && b->result.unfinished ? "%s: %s" : "%s: not written: %s", at,
                     why->msg);
    }
}

/* Make the keys and tensors of a lost batch show the reason. */
static void mark(struct live *l, const struct batch *b, const struct err *e)
{
    for (size_t i = 0; i < b->change.n; i++) {
        const struct edit_slot *s = b->change.slot[i];
        struct name *x =
            s->kind == EDIT_KEY ? names_find_key(&l->names, s->name, s->name_len) : NULL;
        if (x)
            name_set_error(&l->names, x, e->msg);
    }
    tensors_failed(l, b, e);
}

/* Log each pending edit as lost. */
static void report_lost(struct live *l, const struct err *e)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    notes_all(&l->next.change, &notes);
    log_notes(l, &notes, NULL, e);
    mark(l, &l->next, e);
}

/* Drop the failed batch in flight, and all edits accepted since, which are based on it. */
static void failed(struct live *l)
{
    struct view flying = l->flight.view;
    struct err e = {0};
    (void)err_set(&e, -EIO, "the edit before it failed");
    report_lost(l, &e);
    l->flight.view = VIEW_INIT;
    batch_drop(l, &l->flight);
    view_free(&flying);
    mark(l, &l->flight, &l->flight.why);
}

/* Make a store of the new file for readers. If the file cannot be mapped, readers continue with
 * their store, which shows the same bytes; the next edit tries to map it again. */
static void store_written(struct live *l, bool replaced, struct store **ret)
{
    struct err e = {0};
    l->writer.unmapped |= replaced || l->flight.plan.changed > 0;
    int fd = l->writer.unmapped ? l->file->fd : -1;
    if (newest_make_store(l->flight.view.snap, l->disk.store->file, fd, ret, &e) < 0) {
        live_log(l, LOG_WARNING, "the old file is kept open for readers: %s", e.msg);
        return;
    }
    l->writer.unmapped = false;
}

/* Record what takes the batch back. If that is not possible, log it, but not again until the next
 * success. */
static void put_on_record(struct live *l)
{
    const struct batch *b = &l->flight;
    const struct history_edit edit = {&b->change, snapshot_own(b->view.snap), b->restored,
                                      when_date().tv_sec};
    struct err e = {0};
    (void)history_append(l->history, &edit, &e);
    if (e.code && !l->writer.unrecorded)
        live_log(l, LOG_WARNING, "history: the keys before this edit are not kept: %s", e.msg);
    l->writer.unrecorded = e.code;
}

/* Carry out the batch. The lock is not needed, because only this thread changes the batch in
 * flight. *ret is the new store, or NULL if there is none. */
static int carry_out(struct live *l, struct job *job, struct store **ret)
{
    struct batch *b = &l->flight;
    struct edit_hooks hooks = {.progress = on_progress, .arg = job};
    job->result = (struct edit_result){.old_fd = -1};
    if (l->history)
        put_on_record(l);
    int r = edit_commit(l->file, &b->plan, &l->opt.edit, &hooks, &job->result, &b->why);
    if (l->history)
        history_end(l->history, r == 0 || job->result.unfinished, when_date().tv_sec);
    const bool replaced = job->result.old_fd >= 0;
    l->writer.unmapped |= job->result.unfinished;
    job->astray = r < 0 && edit_file_fresh(l->file, NULL) == -ESTALE;
    bool other = replaced || (b->plan.tensor && !b->plan.same);
    if (replaced)
        (void)close(job->result.old_fd);
    if (r == 0 && other)
        store_written(l, replaced, ret);
    return r;
}

/* Record that the batch is on disk. s: a reference to its store, which this function takes; NULL if
 * the store could not be made or is unchanged. */
static void landed(struct live *l, struct job *job, struct store *s)
{
    struct store *now = NULL;
    job->made = s != NULL;
    job->old[0] = l->disk;
    l->disk = l->flight.view;
    l->flight.view = VIEW_INIT;
    if (s) {
        job->old[1].store = l->disk.store;
        l->disk.store = s;
    }
    if (batch_store(l, &now) < 0) /* readers continue with their store */
        now = store_ref(l->newest->view.store);
    job->old[2] = newest_put_view(l->newest, snapshot_ref(l->newest->view.snap), now);
    if (s)
        newest_drop_file(l->newest);
}

/* Release the views that are no longer needed. */
static void retire(struct job *job)
{
    for (size_t i = 0; i < COUNT(job->old); i++)
        view_free(&job->old[i]);
}

/* Put the planned batch in flight. */
static void take(struct live *l, struct job *job)
{
    struct batch *b = &l->next;
    enum edit_strategy how;
    uint64_t copies = 0;
    (void)edit_plan_way(&b->plan, &l->opt.edit, &l->room.disk, &how, &copies, NULL);
    b->slow = copies > EDIT_CHEAP;
    b->last = l->edits;
    b->n_edits = edit_change_count(&b->change, SIZE_MAX);
    l->room.disk.known = false;
    *job = (struct job){.l = l};
    notes_all(&b->change, &b->notes);
    edit_change_drop_values(&b->change);
    l->flight = *b;
    l->flight.view.snap = snapshot_ref(l->newest->view.snap);
    /* view.file stays NULL: readers do not see this state. */
    l->flight.view.store = store_ref(l->newest->view.store);
    batch_begin(l);
}

/* Answer requests without a write, because the edits were taken back, cancel each other out, or are
 * lost for the reason r. */
static void answer_without(struct live *l, int r)
{
    struct live_wait *waits = waits_end(l, l->next.number, r, true);
    l->settled = l->edits;
    batch_end_steps(l, &l->next);
    lock_drop(&l->lock);
    waits_tell(waits);
    lock_take(&l->lock);
}

/* If the batch that ends is an undo, set the message for live_undo_said(). why: why it could not be
 * planned or written, or NULL. */
static void undo_end(struct live *l, const struct batch *b, const struct err *why)
{
    assert(lock_held(&l->lock));
    if (!b->restored)
        return;
    (void)snprintf(l->undo, sizeof(l->undo), "%s", why ? why->msg : b->undone);
    if (!why)
        live_log(l, LOG_NOTICE, "undo, %s", l->undo);
}

/* End the batch, and answer waiting requests. An unfinished batch is on disk in the journal, so no
 * edit is lost, but waiting requests get the error. */
static void finish(struct live *l, struct job *job, int r)
{
    const bool lost = r < 0 && !job->result.unfinished;
    l->writer.astray = job->astray;
    if (lost)
        failed(l);
    if (!lost)
        tensors_landed(l, &l->flight);
    undo_end(l, &l->flight, r < 0 ? &l->flight.why : NULL);
    struct live_wait *waits = waits_end(l, lost ? l->next.number : l->flight.number, r, lost);
    l->settled = lost ? l->edits : l->flight.last;
    bool freeing = l->room.freeing = job->made && !batch_is_small(&l->flight);
    batch_end_steps(l, &l->flight);
    struct batch done = l->flight;
    l->flight = (struct batch){0};
    lock_drop(&l->lock);
    batch_free(&done);
    if (!freeing)
        retire(job);
    waits_tell(waits);
    retire(job);
    lock_take(&l->lock);
    l->room.freeing = false;
}

static void note_failure(struct live *l, int r)
{
    if (r < 0)
        l->writer.failed = r;
}

/* Turn everything that is due into pending edits. Drops and retakes the lock. A directory sync that
 * arrives while the lock is dropped waits for everything that is due at that moment. */
static void collect(struct live *l)
{
    unsigned syncs;
    do {
        syncs = l->objects.syncs;
        note_failure(l, edits_remove_due(l));
        note_failure(l, new_tensors_judge(l));
        note_failure(l, tensors_remove_due(l));
    } while (l->objects.syncs != syncs);
    l->objects.now = false;
}

/* Write all pending edits. Drops and retakes the lock. */
static void write_pending(struct live *l)
{
    struct job job;
    struct store *s = NULL;
    struct err e = {0};
    l->writer.due.tv_sec = 0; /* later removals set it again */
    collect(l);
    if (edit_change_is_empty(&l->next.change)) {
        answer_without(l, 0);
        return;
    }
    int r = batch_freshen(l, &e);
    if (r < 0) { /* the accepted edits cannot be planned */
        report_lost(l, &e);
        undo_end(l, &l->next, &e);
        batch_drop(l, NULL);
        answer_without(l, e.code);
        return;
    }
    take(l, &job);
    job.begin = when_now();
    lock_drop(&l->lock);
    r = carry_out(l, &job, &s);
    log_notes(l, &l->flight.notes, &job, r < 0 ? &l->flight.why : NULL);
    lock_take(&l->lock);
    if (r == 0 || job.result.unfinished)
        landed(l, &job, s);
    finish(l, &job, r);
}

/* ---- requests ---- */

void writer_later(struct live *l, unsigned seconds)
{
    assert(lock_held(&l->lock));
    if (l->opt.commit == LIVE_COMMIT_SYNC)
        return;
    const bool first = l->writer.due.tv_sec == 0;
    l->writer.due = when_now();
    if (first)
        l->writer.first = l->writer.due;
    struct timespec latest = l->writer.first;
    latest.tv_sec += WRITER_LATEST;
    l->writer.due.tv_sec += (time_t)seconds;
    if (when_before(&latest, &l->writer.due))
        l->writer.due = latest;
    pool_call_at(&l->writer.job, &l->writer.due);
}

void writer_cannot_show(struct live *l, int r)
{
    assert(lock_held(&l->lock));
    if (r == -ENOMEM || !l->writer.started)
        return;
    l->writer.due = when_now();
    pool_call(&l->writer.job);
}

void writer_converts(struct live *l, bool begin)
{
    assert(lock_held(&l->lock));
    l->writer.converting += begin ? 1 : -1u;
    if (l->writer.converting || !l->writer.due.tv_sec)
        return;
    l->writer.due.tv_sec = 0;
    writer_later(l, LATER);
}

int writer_take_failure(struct live *l)
{
    assert(lock_held(&l->lock));
    int r = l->writer.failed;
    l->writer.failed = 0;
    return r;
}

bool writer_has_work(const struct live *l)
{
    assert(lock_held(&l->lock));
    return !edit_change_is_empty(&l->next.change) || l->names.n_doomed || l->objects.doomed.n ||
           l->objects.judging || new_tensors_due(l);
}

static bool is_in_flight(const struct live *l, uint64_t edit)
{
    return is_flying(l) && edit <= l->flight.last;
}

/* Wait for the batch in flight or for the next one. Returns LIVE_PARKED, or -EINTR if a signal came
 * too late to end the judgement. */
static int wait_for_batch(struct live *l, struct live_wait *w, bool flies)
{
    if (!flies)
        pool_call(&l->writer.job);
    w->batch = flies ? l->flight.number : l->next.number;
    return park(l, w, LIVE_DURABLE);
}

/* Return the result for a program whose last accepted edit is settled. edit: 0 if it has no edit,
 * for example because it wrote a helper. */
static int settled(const struct live *l, uint64_t edit)
{
    return edit && l->writer.astray ? -ESTALE : 0;
}

int writer_sync(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    const int lost = promise_kept(p, edit); /* a lost edit may be later than `settled` */
    w->edit = edit;
    if (lost < 0)
        return lost;
    return edit > l->settled ? wait_for_batch(l, w, is_in_flight(l, edit)) : settled(l, edit);
}

int writer_sync_all(struct live *l, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    w->edit = WAITS_ALL;
    if (writer_has_work(l) || is_flying(l))
        return wait_for_batch(l, w, !writer_has_work(l));
    return writer_take_failure(l);
}

int writer_sync_released(struct live *l, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    const struct timespec *first = waits_released_at(l);
    w->until = first ? *first : when_after(NEW_RELEASE);
    w->edit = WAITS_ALL;
    pool_call_at(&l->writer.job, &w->until);
    return park(l, w, LIVE_RELEASED);
}

bool writer_file(const struct live *l, struct edit_file *ret)
{
    assert(lock_held(&l->lock));
    if (is_flying(l))
        return false;
    *ret = *l->file;
    ret->fd = -1;
    return true;
}

/*
 * Query the disk. The file may be replaced during the query, so a reference to the store keeps the
 * descriptor open. A write in progress detects problems itself. Returns true if the query must be
 * repeated. Call with the lock held; it is dropped and retaken.
 */
static bool ask_ready(struct live *l, struct err *e)
{
    struct edit_file f;
    struct edit_disk room = {0};
    *e = (struct err){0};
    bool idle = writer_file(l, &f);
    struct store *s = store_ref(l->newest->view.store);
    lock_drop(&l->lock);
    f.fd = s->file[0]->fd;
    if (idle)
        (void)edit_look(&f, &l->opt.edit, &room, e);
    store_unref(s);
    lock_take(&l->lock);
    if (!is_flying(l) && !l->room.freeing && room.known) {
        l->file->clone = f.clone;
        l->room.disk = room;
        l->room.until = when_after(ROOM_MS);
    }
    /* A write by this process in the meantime also causes -ESTALE. */
    return idle && e->code == -ESTALE && (is_flying(l) || !edit_id_equal(&l->file->id, &f.id));
}

void writer_ready(struct live *l, struct err *e)
{
    lock_take(&l->lock);
    while (ask_ready(l, e))
        ;
    lock_drop(&l->lock);
}

/* Wait as the commit mode requires. In auto mode, do not wait if the write will take a while or an
 * old file is still being freed. */
static int wait_by_mode(struct live *l, struct live_wait *w)
{
    const enum live_commit mode = l->opt.commit;
    const bool flies = is_in_flight(l, w->edit);
    edit_keep(&l->next.change, edit_mark(&l->next.change));
    if (mode == LIVE_COMMIT_SYNC)
        return 0;
    if (mode == LIVE_COMMIT_AUTO && (flies ? l->flight.slow : l->room.freeing || l->next.slow)) {
        if (!flies)
            writer_later(l, LATER);
        return 0;
    }
    return wait_for_batch(l, w, flies);
}

int writer_flush(struct live *l, const struct promise *p, uint64_t edit, struct live_wait *w)
{
    assert(lock_held(&l->lock));
    const int lost = promise_kept(p, edit);
    w->edit = edit;
    return lost < 0 ? lost : edit > l->settled ? wait_by_mode(l, w) : settled(l, edit);
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

/* ---- turns ---- */

static bool is_due(const struct live *l)
{
    return l->writer.due.tv_sec && !l->writer.converting && when_past(&l->writer.due, 0);
}

static const struct timespec *sooner(const struct timespec *a, const struct timespec *b)
{
    return !b || (a && when_before(a, b)) ? a : b;
}

/* Return the time at which the next turn is due, or NULL. */
static const struct timespec *next_due(const struct live *l)
{
    const struct timespec *removed = l->objects.doomed.n ? &l->objects.doomed.last->due : NULL;
    const struct timespec *made = l->names.made.file ? &l->names.made.due : NULL;
    const struct timespec *first =
        sooner(l->writer.due.tv_sec && !l->writer.converting ? &l->writer.due : NULL, removed);
    return sooner(sooner(first, made), sooner(waits_released_at(l), new_tensors_due_at(l)));
}

static bool wants_write(const struct live *l)
{
    return waits_for(l, l->next.number) || is_due(l) || objects_due(&l->objects) ||
           new_tensors_due(l) || (l->writer.stop && writer_has_work(l));
}

/* Let syncs of directories continue once all writers have been released or the time limit has
 * passed. */
static void begin_syncs(struct live *l)
{
    const struct timespec *until = waits_released_at(l);
    if (!until || (new_tensors_closing(l) && !l->writer.stop && !when_past(until, 0)))
        return;
    objects_sync(&l->objects);
    for (struct live_wait *w = l->waits.first; w; w = w->next)
        if (w->needs == LIVE_RELEASED) {
            w->needs = LIVE_DURABLE;
            w->batch = l->next.number;
        }
}

/* Write one batch. */
static bool turn(struct pool_job *j, struct timespec *again)
{
    struct live *l = (struct live *)((char *)j - offsetof(struct live, writer.job));
    lock_take(&l->lock);
    begin_syncs(l);
    if (l->names.made.file && when_past(&l->names.made.due, 0))
        files_end_made(l);
    if (wants_write(l))
        write_pending(l);
    bool more = wants_write(l);
    const struct timespec *due = next_due(l);
    if (!more && due) {
        *again = *due;
        more = true;
    }
    lock_drop(&l->lock);
    views_bury(l);
    return more;
}

int writer_start(struct live *l)
{
    int r = pool_join(&l->writer.job, turn);
    if (r == 0 && (r = pool_join(&l->waits.watch, watch)) < 0)
        pool_leave(&l->writer.job);
    return r;
}
