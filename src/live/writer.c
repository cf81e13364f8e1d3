/* SPDX-License-Identifier: MIT */
/*
 * The one thread that changes the model file. See writer.h.
 *
 * What is accepted collects in `next`. The thread takes it as a whole (it is then in flight),
 * writes it without holding the tree's lock, and answers the waiting requests. What is accepted
 * meanwhile collects in `next` again, planned on what is in flight; if that fails, on what is on
 * disk.
 */
#include "live/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/count.h"
#include "base/when.h"
#include "live/asks.h"
#include "live/edits.h"
#include "live/makings.h"
#include "live/parts.h"
#include "live/preview.h"
#include "live/preview_copy.h"
#include "live/tensor_batch.h"

/* ---- writing ---- */

/* A batch that is in flight, for the thread alone. */
struct job {
    struct snapshot *base;     /* a reference: what the batch is based on */
    struct edit_result result; /* of the part that was written last */
    struct timespec begin;     /* of a part */
    uint64_t reported;         /* seconds after which progress was logged last */
    struct store *made;        /* not owned: of the last part; NULL: none */
};

static uint64_t elapsed_ms(const struct job *b)
{
    struct timespec now = when_now();
    return (uint64_t)((now.tv_sec - b->begin.tv_sec) * 1000 +
                      (now.tv_nsec - b->begin.tv_nsec) / 1000000);
}

struct progress {
    struct live *l;
    struct job *b;
    uint32_t file;
    const struct store *then; /* for when the file cannot be had */
};

/* Open files go on with the bytes that are overwritten. */
static int on_keep(const struct edit_kept *kept, void *arg, struct err *e)
{
    const struct progress *p = arg;
    return preview_keep_old(p->l, p->file, p->then, kept, e);
}

/* The keys before the edit are kept before it is done. */
static void on_ready(void *arg)
{
    const struct progress *p = arg;
    if (p->l->opt.history)
        keeper_wait(p->l->opt.history);
}

static void on_progress(uint64_t done, uint64_t total, void *arg)
{
    struct progress *p = arg;
    uint64_t s = elapsed_ms(p->b) / 1000;
    if (s <= p->b->reported)
        return;
    p->b->reported = s;
    live_log(p->l, LOG_INFO, "copying: %llu of %llu MiB", (unsigned long long)(done >> 20),
             (unsigned long long)(total >> 20));
}

static void log_part(const struct live *l, const struct job *b, const struct batch_part *p, int r)
{
    unsigned long long ms = elapsed_ms(b);
    const char *at = buf_text(&p->notes), *end = buf_text_end(&p->notes);
    for (; at && at < end && !buf_error(&p->notes); at += strlen(at) + 1) {
        if (r == 0)
            live_log(l, LOG_INFO, "%s; %s, %llu ms", at, edit_strategy_name(b->result.strategy),
                     ms);
        else
            live_log(l, LOG_ERR, "%s: not written: %s", at, p->why.msg);
    }
}

/* The keys of a batch that failed show why. */
static void mark_keys(struct live *l, const struct edit_change *c, const struct err *e)
{
    for (size_t i = 0; i < c->n; i++) {
        struct name *x = names_find_key(&l->names, c->slot[i].name, c->slot[i].name_len);
        if (x)
            name_set_error(&l->names, x, e->msg);
    }
}

/* Of what is in flight, what was not written shows why. */
static void mark_failed(struct live *l, const struct batch *b)
{
    const struct batch_part *keys = batch_part(b, 0);
    if (keys && !keys->landed)
        mark_keys(l, &b->change, &keys->why);
    tensors_failed(l, b, NULL);
}

/* What is pending is lost: each edit is named. */
static void report_lost(struct live *l, const struct err *e)
{
    struct buf notes = BUF_INIT;
    notes_all(&l->next.change, &notes);
    const char *at = buf_text(&notes), *end = buf_text_end(&notes);
    for (; at && at < end && !buf_error(&notes); at += strlen(at) + 1)
        live_log(l, LOG_ERR, "%s: not written: %s", at, e->msg);
    buf_free(&notes);
    mark_keys(l, &l->next.change, e);
    tensors_failed(l, &l->next, e);
}

/* What is in flight failed, and with it what was accepted since, which is based on it. */
static void failed(struct live *l)
{
    struct snapshot *flying = l->flying;
    struct store *store = l->flying_store;
    struct err e = {0};
    (void)err_set(&e, -EIO, "the edit before it failed");
    report_lost(l, &e);
    l->flying = NULL;
    l->flying_store = NULL;
    waits_join(&l->flight.waits, l->next.waits);
    waits_join(&l->flight.waits, l->next.asking);
    l->next.waits = l->next.asking = NULL;
    l->due_set = false;
    batch_drop(l, &l->flight);
    snapshot_unref(flying);
    store_unref(store);
    mark_failed(l, &l->flight);
}

/*
 * The store of what was written, for readers. Handles of before share the mapping if no byte of tensors
 * changed: they are kept in sight by it (preview_keep_old()). If the file cannot be mapped, readers go
 * on with what they have, which shows the same bytes; it is mapped with the next edit then.
 */
static void store_written(struct live *l, const struct batch_part *part,
                          const struct snapshot *snap, bool replaced, struct store **ret)
{
    struct live_target *target = &l->files[part->file];
    struct err e = {0};
    target->unmapped |= replaced || part->plan.patch;
    int fd = target->unmapped ? target->file->fd : -1;
    if (newest_make_store(snap, l->store->file, part->file, fd, ret, &e) < 0) {
        live_log(l, LOG_WARNING, "the old file is kept open for readers: %s", e.msg);
        return;
    }
    (*ret)->written = snap->number;
    target->unmapped = false;
}

/* Carry a part out, without the lock. *ret is the new store, or NULL if it could not be had. *replaced: the
 * file is another one now. */
static int carry_out(struct live *l, struct job *job, struct batch_part *part,
                     const struct part_state *state, struct store **ret, bool *replaced)
{
    struct edit_file *f = l->files[part->file].file;
    struct keeper *keeper = part->file == 0 ? l->opt.history : NULL; /* it has the keys */
    struct progress p = {l, job, part->file, state->store};
    struct edit_hooks hooks = {
        .progress = on_progress, .ready = keeper ? on_ready : NULL, .keep = on_keep, .arg = &p};
    job->result = (struct edit_result){.old_fd = -1};
    if (keeper)
        keeper_plan(keeper, l->disk, state->snap, l->flight.restored);
    int r = edit_commit(f, &part->plan, &l->opt.edit, &hooks, &job->result, &part->why);
    if (keeper)
        keeper_end(keeper, r == 0);
    *replaced = job->result.old_fd >= 0;
    bool other = *replaced || (part->plan.tensor && !part->plan.same);
    if (*replaced)
        (void)close(job->result.old_fd);
    if (r == 0 && other)
        store_written(l, part, state->snap, *replaced, ret);
    return r;
}

/* Write one part of what is in flight. The lock is given up meanwhile. What is not needed any more is
 * let go of here, but for the last part (*old). */
static int write_part(struct live *l, struct job *job, size_t i, struct parts_retired *old)
{
    struct batch_part *p = &l->flight.parts.part[i];
    struct part_state state = {0};
    struct store *s = NULL;
    bool replaced = false;
    job->reported = 0;
    job->begin = when_now();
    int r = part_state_make(l, i, &state, &p->why);
    lock_drop(&l->lock);
    parts_retire(old);
    if (r == 0)
        r = carry_out(l, job, p, &state, &s, &replaced);
    else if (l->opt.history)
        keeper_drop(l->opt.history);
    log_part(l, job, p, r);
    lock_take(&l->lock);
    if (r == 0) {
        preview_landed(l, &l->flight, p, replaced);
        part_landed(l, i, &state, s, old);
    }
    job->made = r == 0 ? s : NULL;
    snapshot_unref(state.snap);
    store_unref(state.store);
    return r;
}

/*
 * Take what is pending, which is planned; it is in flight from now on. The disk is not asked any
 * more whether it can be written: requests that wait for that wait for the edit, or, if it is a
 * copy that no request waits for, are answered at once: *answered.
 */
static void take(struct live *l, struct job *job, struct live_wait **answered)
{
    struct batch *b = &l->next;
    bool slow = l->opt.commit == LIVE_COMMIT_SYNC || (b->asked && b->how == EDIT_COPY);
    waits_begin(b, slow, answered);
    b->last = l->edits;
    batch_keep(l, edit_mark(&b->change), b->n_step, b->last);
    b->slow = b->asked && b->how == EDIT_COPY && !writer_is_small(b);
    l->flight_edits = edit_change_count(&b->change, SIZE_MAX);
    *job = (struct job){.base = snapshot_ref(base_snapshot(l))};
    notes_of(l, b);
    edit_change_drop_values(&b->change);
    l->due_set = false;
    l->flight = *b;
    l->flying = snapshot_ref(l->newest->view.snap);
    l->flying_store = store_ref(l->newest->view.store);
    batch_begin(l);
}

/* Nothing is to be written: it was taken back, or undid itself; or it is lost: why. */
static void answer_without(struct live *l, int r)
{
    struct live_wait *waits = l->next.waits;
    const uint64_t after = r < 0 ? l->settled : l->edits;
    l->next.waits = NULL;
    l->due_set = false;
    waits_learn(l, waits, NULL, after, r);
    l->settled = l->edits;
    batch_end_steps(l, &l->next);
    lock_drop(&l->lock);
    waits_tell(waits);
    lock_take(&l->lock);
}

/* Plan what is pending. The keys before it are kept meanwhile, by another thread. */
static int plan_pending(struct live *l, struct err *e)
{
    struct keeper *k = l->next.change.n ? l->opt.history : NULL;
    if (k)
        keeper_begin(k, l->disk, l->next.restored);
    int r = batch_freshen(l, e);
    /* Another file may be first, which takes as long as it takes. */
    if (k && (r < 0 || l->next.parts.part[0].file != 0))
        keeper_drop(k);
    return r;
}

/* What is accepted cannot even be planned. */
static void give_up(struct live *l, const struct err *e)
{
    report_lost(l, e);
    makings_settle(l, e);
    undo_end(l, &l->next, e);
    waits_join(&l->next.waits, l->next.asking);
    l->next.asking = NULL;
    batch_drop(l, NULL);
    answer_without(l, e->code);
}

/* The batch is done, and those that wait are answered. */
static void finish(struct live *l, struct job *job, struct parts_retired *old, int r)
{
    const struct batch_part *first = batch_part(&l->flight, 0); /* new tensors are part of it */
    const uint64_t after = r < 0 ? l->settled : l->flight.last;
    if (r < 0)
        failed(l);
    makings_settle(l, first && !first->landed ? &first->why : NULL);
    struct view_draft *dead = r == 0 ? tensors_landed(l, &l->flight) : NULL;
    undo_end(l, &l->flight, NULL);
    struct live_wait *waits = l->flight.waits; /* more may have joined */
    waits_learn(l, waits, &l->flight, after, r);
    l->settled = r < 0 ? l->edits : l->flight.last;
    bool freeing = l->freeing = job->made && !writer_is_small(&l->flight);
    batch_end_steps(l, &l->flight);
    struct batch done = l->flight;
    l->flight = (struct batch){0};
    l->flight_edits = 0;
    lock_drop(&l->lock);
    if (!freeing)
        parts_retire(old);
    waits_tell(waits);
    view_drafts_end(dead);
    parts_retire(old);
    batch_free(&done);
    snapshot_unref(job->base);
    lock_take(&l->lock);
    l->freeing = false;
}

static void note_failure(struct live *l, int r)
{
    if (r < 0)
        l->failed = r;
}

/* What is due becomes pending. The lock is given up meanwhile: a request that syncs the folder then waits
 * for all that was due when it came. */
static void collect(struct live *l)
{
    unsigned syncs;
    do {
        syncs = l->folders.syncs;
        note_failure(l, edits_remove_due(l));
        note_failure(l, makings_judge(l));
        note_failure(l, tensors_remove_due(l));
    } while (l->folders.syncs != syncs);
    l->folders.now = false;
}

/* Write all that is pending. The lock is given up meanwhile. */
static void write_pending(struct live *l)
{
    struct job job;
    struct err e = {0};
    struct parts_retired old = {0};
    int r;
    do { /* what is pending may be taken back while its bytes are copied, or more is due */
        collect(l);
        if (edit_change_is_empty(&l->next.change)) {
            makings_settle(l, NULL);
            answer_without(l, 0);
            return;
        }
        r = plan_pending(l, &e);
    } while (preview_again(l, &r, &e));
    if (r < 0) {
        give_up(l, &e);
        return;
    }
    struct live_wait *answered = NULL;
    take(l, &job, &answered);
    lock_drop(&l->lock);
    waits_answer(answered, 0);
    lock_take(&l->lock);
    r = 0;
    for (size_t i = 0; i < l->flight.parts.n; i++) {
        int part = write_part(l, &job, i, &old);
        r = r < 0 ? r : part;
    }
    finish(l, &job, &old, r);
}

static bool is_due(const struct live *l)
{
    return l->due_set && when_past(&l->due, 0);
}

static const struct timespec *sooner(const struct timespec *a, const struct timespec *b)
{
    return !b || (a && when_before(a, b)) ? a : b;
}

/* When something is due; NULL: nothing is. */
static const struct timespec *next_due(const struct live *l)
{
    const struct timespec *removed = l->folders.doomed ? &l->folders.due : NULL;
    const struct timespec *syncs = l->syncs ? &l->syncs_until : NULL;
    const struct timespec *made = l->made_file ? &l->made_due : NULL;
    const struct timespec *first = sooner(l->due_set ? &l->due : NULL, removed);
    return sooner(sooner(first, made), sooner(syncs, makings_due_at(l)));
}

static bool wants_write(const struct live *l)
{
    return l->next.waits || is_due(l) || folders_due(&l->folders) || makings_due(l) ||
           (l->stop && writer_has_work(l));
}

#define LIVE_OF(j) ((struct live *)((char *)(j)-offsetof(struct live, job)))

/* Syncs of folders go on once all writers are released, or have had their time. */
static void begin_syncs(struct live *l)
{
    if (!l->syncs || (l->closing && !l->stop && !when_past(&l->syncs_until, 0)))
        return;
    folders_sync(&l->folders);
    waits_join(&l->next.waits, l->syncs);
    l->syncs = NULL;
}

/* One question, or one write. What is to be written has its turn, however many ask. */
static bool turn(struct crew_job *j, struct timespec *again)
{
    struct live *l = LIVE_OF(j);
    lock_take(&l->lock);
    begin_syncs(l);
    if (l->made_file && when_past(&l->made_due, 0))
        files_end_made(l);
    bool write = wants_write(l), ask = l->next.asking && !(write && l->has_asked);
    l->has_asked = ask;
    if (ask)
        writer_ask(l);
    else if (write)
        write_pending(l);
    bool more = l->next.asking || wants_write(l);
    const struct timespec *due = next_due(l);
    if (!more && due) {
        *again = *due;
        more = true;
    }
    lock_drop(&l->lock);
    return more;
}

int live_start(struct live *l, struct err *e)
{
    int r = l->opt.crew ? 0 : crew_make(LIVE_THREAD, LIVE_PATIENCE, &l->own_crew);
    l->crew = l->opt.crew ? l->opt.crew : l->own_crew;
    if (r == 0)
        r = crew_join(l->crew, &l->job, turn);
    if (r == 0 && (r = crew_join(l->crew, &l->watch, waits_watch)) < 0)
        crew_leave(l->crew, &l->job);
    l->started = r == 0;
    if (r == 0)
        return 0;
    crew_free(l->own_crew);
    l->own_crew = NULL;
    return err_set(e, r, "cannot start a thread: %s", strerror(-r));
}

void live_hurry(struct live *l)
{
    if (!l->started)
        return;
    lock_take(&l->lock);
    files_end_made(l);
    l->stop = true;
    makings_hurry(l);
    crew_call(l->crew, &l->job);
    lock_drop(&l->lock);
}

int live_finish(struct live *l)
{
    if (!l->started)
        return 0;
    live_hurry(l);
    asks_finish(l);
    crew_call(l->crew, &l->job); /* what they came to */
    crew_leave(l->crew, &l->job);
    crew_leave(l->crew, &l->watch);
    crew_free(l->own_crew);
    l->own_crew = NULL;
    lock_take(&l->lock);
    l->started = false;
    int r = writer_take_failure(l);
    lock_drop(&l->lock);
    return r;
}
