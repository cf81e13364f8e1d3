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

#include "base/count.h"
#include "live/edits.h"
#include "live/makings.h"
#include "live/preview.h"
#include "live/tensor_batch.h"

/* ---- writing ---- */

/* A batch that is in flight, for the thread alone. */
struct job {
    struct edit_result result;
    struct err err;
    struct timespec begin;
    struct buf notes;  /* what it does, for the log */
    uint64_t reported; /* seconds after which progress was logged last */
};

static uint64_t elapsed_ms(const struct job *b)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((now.tv_sec - b->begin.tv_sec) * 1000 +
                      (now.tv_nsec - b->begin.tv_nsec) / 1000000);
}

struct progress {
    const struct live *l;
    struct job *b;
};

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

static void log_batch(const struct live *l, const struct job *b, int r)
{
    unsigned long long ms = elapsed_ms(b);
    const char *at = buf_text(&b->notes), *end = buf_text_end(&b->notes);
    for (; at && at < end && !buf_error(&b->notes); at += strlen(at) + 1) {
        if (r == 0)
            live_log(l, LOG_INFO, "%s; %s, %llu ms", at, edit_strategy_name(b->result.strategy),
                     ms);
        else
            live_log(l, LOG_ERR, "%s: not written: %s", at, b->err.msg);
    }
}

/* The keys of a batch that failed show why. */
static void mark_failed(struct live *l, const struct edit_change *c, const struct err *e)
{
    for (size_t i = 0; i < c->n; i++) {
        struct name *x = names_find_key(&l->names, c->slot[i].name, c->slot[i].name_len);
        if (x)
            name_set_error(&l->names, x, e->msg);
    }
    tensors_failed(l, c, e);
}

/* What is not needed any more once a batch is on the disk: references. */
struct retired {
    struct snapshot *snap;
    struct store *store[3];
};

static void retire(struct retired *r)
{
    snapshot_unref(r->snap);
    for (size_t i = 0; i < COUNT(r->store); i++)
        store_unref(r->store[i]);
    *r = (struct retired){0};
}

/*
 * The batch is on disk: so is the snapshot that was in flight. s: the store of the new file; NULL:
 * the one before serves on. What is not needed any more is let go of without the lock, and of a
 * large model after the waiting requests are answered: freeing a file takes a good part of the time
 * that its copy took.
 */
static struct retired landed(struct live *l, struct store *s, bool replaced)
{
    struct store *now = NULL;
    preview_landed(l, &l->flight, replaced);
    struct retired ret = {.store = {l->store, s ? l->flying_store : NULL}};
    snapshot_unref(l->disk);
    l->disk = l->flying;
    l->flying = NULL;
    l->store = s ? s : l->flying_store;
    l->flying_store = NULL;
    if (preview_store(l, &now) < 0) /* it goes on with what it has */
        now = store_ref(l->newest->view.store);
    struct view before = newest_put_view(l->newest, snapshot_ref(l->newest->view.snap), now);
    ret.snap = before.snap;
    ret.store[2] = before.store;
    if (s)
        newest_drop_file(l->newest);
    return ret;
}

static void failed(struct live *l, const struct job *job, int r)
{
    struct snapshot *flying = l->flying; /* what was accepted since is based on it */
    struct store *store = l->flying_store;
    l->flying = NULL;
    l->flying_store = NULL;
    batch_rebase(l, &l->flight);
    snapshot_unref(flying);
    store_unref(store);
    mark_failed(l, &l->flight.change, &job->err);
    if (!l->flight.waits)
        l->failed = r;
}

/* Carry a batch out, without the lock. *ret is the new store, or NULL if the old one serves on. */
static int carry_out(struct live *l, struct job *job, struct snapshot *g, struct store **ret)
{
    struct progress p = {l, job};
    struct edit_hooks hooks = {
        .cancel = &l->cancel, .progress = on_progress, .ready = on_ready, .arg = &p};
    job->result = (struct edit_result){.old_fd = -1};
    if (l->opt.history)
        keeper_plan(l->opt.history, l->disk, g, l->flight.restored);
    int r = preview_keep_old(l, &l->flight.plan, &job->err);
    if (r == 0)
        r = edit_commit(l->file, &l->flight.plan, &l->opt.edit, &hooks, &job->result, &job->err);
    if (l->opt.history)
        keeper_end(l->opt.history, r == 0);
    bool replaced = job->result.old_fd >= 0 || (l->flight.plan.tensor && !l->flight.plan.same);
    if (job->result.old_fd >= 0)
        (void)close(job->result.old_fd);
    /* Readers get the new file. If it cannot be opened, the old one has the same data. */
    if (r == 0 && replaced &&
        newest_make_store(g, l->store->file, 0, l->file->fd, ret, &job->err) < 0)
        live_log(l, LOG_WARNING, "the old file is kept open for readers: %s", job->err.msg);
    else if (r == 0 && replaced)
        (*ret)->written = g->number;
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
    waits_join(slow ? answered : &b->waits, b->asking);
    b->asking = NULL;
    batch_keep(l, edit_mark(&b->change), b->n_step);
    b->slow = b->asked && b->how == EDIT_COPY && !writer_is_small(l);
    l->flight_edits = edit_change_count(&b->change, SIZE_MAX);
    *job = (struct job){0};
    notes_of(&b->change, &job->notes);
    edit_change_drop_values(&b->change);
    (void)clock_gettime(CLOCK_MONOTONIC, &job->begin);
    l->due_set = false;
    l->flight = *b;
    l->flying = snapshot_ref(l->newest->view.snap);
    l->flying_store = store_ref(l->newest->view.store);
    batch_begin(l);
    atomic_store(&l->cancel, false);
}

/* Nothing is to be written: it was taken back, or cancelled itself, or cannot be planned (r). */
static void answer_without(struct live *l, int r)
{
    struct live_wait *waits = l->next.waits;
    l->next.waits = NULL;
    l->due_set = false;
    if (waits && r == 0)
        r = writer_take_failure(l);
    else if (!waits && r < 0)
        l->failed = r;
    batch_end_steps(l, &l->next);
    lock_drop(&l->lock);
    waits_answer(waits, r);
    lock_take(&l->lock);
}

/* Plan what is pending. The keys before it are kept meanwhile, by another thread. */
static int plan_pending(struct live *l, struct err *e)
{
    struct keeper *k = l->next.change.n ? l->opt.history : NULL;
    if (k)
        keeper_begin(k, l->disk, l->next.restored);
    int r = batch_freshen(l, e);
    if (k && r < 0)
        keeper_drop(k);
    return r;
}

/* What is accepted cannot even be planned. */
static void give_up(struct live *l, const struct err *e)
{
    struct job job = {.err = *e};
    (void)clock_gettime(CLOCK_MONOTONIC, &job.begin);
    notes_of(&l->next.change, &job.notes);
    log_batch(l, &job, e->code);
    buf_free(&job.notes);
    mark_failed(l, &l->next.change, e);
    waits_join(&l->next.waits, l->next.asking);
    l->next.asking = NULL;
    batch_drop(l);
    answer_without(l, e->code);
}

/* The batch is done, and those that wait are answered. */
static void finish(struct live *l, struct job *job, struct store *s, int r)
{
    struct retired old = {0};
    if (r == 0)
        old = landed(l, s, job->result.old_fd >= 0);
    else
        failed(l, job, r);
    struct live_wait *waits = l->flight.waits; /* more may have joined */
    bool freeing = l->freeing = s && !writer_is_small(l);
    batch_end_steps(l, &l->flight);
    struct batch done = l->flight;
    l->flight = (struct batch){0};
    l->flight_edits = 0;
    if (r == 0 && waits) /* a removal that was to be part of it */
        r = writer_take_failure(l);
    lock_drop(&l->lock);
    if (!freeing)
        retire(&old);
    waits_answer(waits, r);
    retire(&old);
    buf_free(&job->notes);
    batch_free(&done);
    lock_take(&l->lock);
    l->freeing = false;
}

/* Write all that is pending. The lock is given up meanwhile. */
static void write_pending(struct live *l)
{
    struct job job;
    struct err e = {0};
    struct store *s = NULL;
    int r = edits_remove_due(l);
    if (r < 0)
        l->failed = r;
    r = makings_judge(l);
    if (r < 0)
        l->failed = r;
    r = tensors_remove_due(l);
    if (r < 0)
        l->failed = r;
    l->folders.now = false;
    if (edit_change_is_empty(&l->next.change)) {
        answer_without(l, 0);
        return;
    }
    if (plan_pending(l, &e) < 0) {
        give_up(l, &e);
        return;
    }
    struct live_wait *answered = NULL;
    take(l, &job, &answered);
    struct snapshot *flying = l->flying;
    lock_drop(&l->lock);
    waits_answer(answered, 0);
    r = carry_out(l, &job, flying, &s);
    log_batch(l, &job, r);
    lock_take(&l->lock);
    finish(l, &job, s, r);
}

static bool is_due(const struct live *l)
{
    struct timespec now;
    if (!l->due_set)
        return false;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > l->due.tv_sec ||
           (now.tv_sec == l->due.tv_sec && now.tv_nsec >= l->due.tv_nsec);
}

static const struct timespec *sooner(const struct timespec *a, const struct timespec *b)
{
    if (!a || !b)
        return a ? a : b;
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec) ? a : b;
}

/* When something is due; NULL: nothing is. */
static const struct timespec *next_due(const struct live *l)
{
    const struct timespec *removed = l->folders.doomed ? &l->folders.due : NULL;
    return sooner(sooner(l->due_set ? &l->due : NULL, removed), makings_due_at(l));
}

static bool wants_write(const struct live *l)
{
    return l->next.waits || is_due(l) || folders_due(&l->folders) || makings_due(l) ||
           (l->stop && writer_has_work(l));
}

#define LIVE_OF(j) ((struct live *)((char *)(j)-offsetof(struct live, job)))

/* One question, or one write. What is to be written has its turn, however many ask. */
static bool turn(struct crew_job *j, struct timespec *again)
{
    struct live *l = LIVE_OF(j);
    lock_take(&l->lock);
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
    l->stop = true;
    crew_call(l->crew, &l->job);
    lock_drop(&l->lock);
}

int live_finish(struct live *l)
{
    if (!l->started)
        return 0;
    live_hurry(l);
    crew_leave(l->crew, &l->job);
    crew_free(l->own_crew);
    l->own_crew = NULL;
    l->started = false;
    lock_take(&l->lock);
    int r = writer_take_failure(l);
    lock_drop(&l->lock);
    return r;
}
