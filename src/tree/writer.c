/* SPDX-License-Identifier: MIT */
/*
 * The one thread that changes the model file. See internal.h, tree.h.
 *
 * What is accepted collects in `next`. The thread takes it as a whole (it is then in flight), writes
 * it without holding the tree's lock, and answers those who wait. What is accepted meanwhile
 * collects in `next` again, planned on what is in flight; if that fails, on what is on disk.
 */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "base/bytes.h"

/* Seconds without another edit after which what nobody waits for is written. */
#define LATER 2
/* A model of at most this many bytes is written at once, whatever the strategy. */
#define SMALL_MODEL ((uint64_t)64 << 20)

/* ---- waiting ---- */

static void push(struct tree_wait **list, struct tree_wait *w)
{
    w->next = *list;
    *list = w;
}

/* Answer a list. Without the lock: done() replies to the kernel. */
static void answer(struct tree_wait *list, int result)
{
    while (list) {
        struct tree_wait *w = list;
        list = w->next;
        w->done(w, result);
    }
}

/* Take the one who waits as `who` from a list; NULL: it is not there. */
static struct tree_wait *take_wait(struct tree_wait **list, const void *who)
{
    while (*list && (*list)->who != who)
        list = &(*list)->next;
    struct tree_wait *w = *list;
    if (w)
        *list = w->next;
    return w;
}

void tree_interrupt(struct tree *t, const void *who)
{
    struct tree_wait *w = NULL;
    struct writer *wr = &t->writer;
    (void)pthread_mutex_lock(&t->lock);
    if (wr->flight_owner && wr->flight_owner->who == who)
        atomic_store(&wr->cancel, true); /* answered when the copy has stopped */
    else if (!(w = take_wait(&wr->flight_waits, who)))
        w = take_wait(&wr->next.waits, who);
    if (w && w == wr->next.owner)
        edits_drop(t);
    (void)pthread_mutex_unlock(&t->lock);
    if (w)
        w->done(w, -EINTR);
}

void writer_later(struct tree *t, unsigned seconds)
{
    if (t->opt.commit == TREE_COMMIT_SYNC)
        return;
    (void)clock_gettime(CLOCK_MONOTONIC, &t->writer.due);
    t->writer.due.tv_sec += (time_t)seconds;
    t->writer.due_set = true;
    (void)pthread_cond_signal(&t->writer.wake);
}

static int park(struct tree *t, struct tree_wait *w, bool own)
{
    if (own && t->writer.next.edits == 1)
        t->writer.next.owner = w;
    push(&t->writer.next.waits, w);
    (void)pthread_cond_signal(&t->writer.wake);
    return TREE_PARKED;
}

/* A failure that nobody was told of yet. */
static int take_failure(struct tree *t)
{
    int r = t->writer.failed;
    t->writer.failed = 0;
    return r;
}

static bool removals(const struct tree *t)
{
    for (uint32_t i = 0; i < t->keys.n; i++)
        if (t->keys.file[i] && t->keys.file[i]->state == KFILE_REMOVED)
            return true;
    return false;
}

int writer_sync(struct tree *t, struct tree_wait *w, bool own)
{
    if (t->writer.next.change.n > 0 || removals(t))
        return park(t, w, own);
    if (t->writer.flight) {
        push(&t->writer.flight_waits, w);
        return TREE_PARKED;
    }
    return take_failure(t);
}

int writer_ready(const struct tree *t, struct err *e)
{
    return t->writer.flight ? 0 : edit_possible(&t->file, &t->edit, e);
}

/*
 * In mode auto an edit is waited for if that does not take long. What is not waited for must be
 * possible: the strategy is found and free space looked at now (unless a write is going on, which
 * has done so just before, or has taken the room that it is about to free).
 */
int writer_accepted(struct tree *t, struct tree_wait *w, struct err *e)
{
    enum edit_strategy how = EDIT_COPY;
    if (t->opt.commit == TREE_COMMIT_CLOSE)
        return park(t, w, true);
    if (!t->writer.flight) {
        int r = edit_prepare(&t->file, &t->writer.next.plan, &t->edit, &how, e);
        if (r < 0 && !(r == -ENOSPC && t->writer.freeing)) {
            edits_take_back(t);
            return r;
        }
    }
    if (t->opt.commit == TREE_COMMIT_SYNC)
        return 0;
    if (edit_is_quick(how) || t->writer.next.plan.size <= SMALL_MODEL)
        return park(t, w, true);
    writer_later(t, LATER);
    return 0;
}

/* ---- writing ---- */

struct batch {
    struct pending pending;
    struct edit_result result;
    struct err err;
    struct timespec begin;
    uint64_t told; /* seconds after which progress was logged last */
};

static uint64_t elapsed_ms(const struct batch *b)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((now.tv_sec - b->begin.tv_sec) * 1000 +
                      (now.tv_nsec - b->begin.tv_nsec) / 1000000);
}

struct progress {
    const struct tree *t;
    struct batch *b;
};

static void on_progress(uint64_t done, uint64_t total, void *arg)
{
    struct progress *p = arg;
    uint64_t s = elapsed_ms(p->b) / 1000;
    if (s <= p->b->told)
        return;
    p->b->told = s;
    tree_log(p->t, LOG_INFO, "copying: %llu of %llu MiB", (unsigned long long)(done >> 20),
             (unsigned long long)(total >> 20));
}

static void log_notes(const struct tree *t, const struct batch *b)
{
    const char *p = (const char *)b->pending.notes.data;
    const char *end = p ? p + b->pending.notes.len : NULL;
    for (; p && p < end; p += strlen(p) + 1)
        tree_log(t, LOG_INFO, "%s; %s, %llu ms", p, edit_strategy_name(b->result.strategy),
                 (unsigned long long)elapsed_ms(b));
}

static void log_failure(const struct tree *t, const struct batch *b)
{
    const char *p = (const char *)b->pending.notes.data;
    const char *end = p ? p + b->pending.notes.len : NULL;
    for (; p && p < end; p += strlen(p) + 1)
        tree_log(t, LOG_ERR, "%s: not written: %s", p, b->err.msg);
}

/* The keys of a batch that failed show why. */
static void mark_failed(struct tree *t, const struct batch *b)
{
    char file[TREE_NAME_MAX + 1];
    const struct edit_change *c = &b->pending.change;
    for (size_t i = 0; i < c->n; i++) {
        (void)name_encode(c->bytes.data + c->op[i].key, c->op[i].key_len, file);
        struct kfile *f = keys_named(&t->keys, file);
        if (f)
            kfile_set_error(f, b->err.msg);
    }
}

/* The file that the first generation was read from is replaced. */
static void unpin(struct tree *t)
{
    gen_unpin(t->writer.disk);
    for (size_t i = 0; i < t->n_held; i++)
        gen_unpin(t->held[i].gen);
}

/*
 * The batch is on disk: so is the generation that was in flight. Returns the store that nobody
 * needs any more, or NULL. It is let go of without the lock, and of a large model after those who
 * wait are answered: freeing a file takes a good part of the time that its copy took.
 */
static struct store *landed(struct tree *t, struct store *s)
{
    struct store *old = s ? t->now.store : NULL;
    if (s) {
        unpin(t);
        t->now.store = s;
    }
    gen_unref(t->writer.disk);
    t->writer.disk = t->writer.flight;
    t->writer.flight = NULL;
    return old;
}

static void drop_store(struct store **s)
{
    store_unref(*s);
    *s = NULL;
}

static void failed(struct tree *t, const struct batch *b, int r)
{
    gen_unref(t->writer.flight);
    t->writer.flight = NULL;
    edits_rebase(t);
    mark_failed(t, b);
    if (!b->pending.waits)
        t->writer.failed = r;
}

static void batch_free(struct batch *b)
{
    edit_change_free(&b->pending.change);
    edit_plan_free(&b->pending.plan);
    buf_free(&b->pending.notes);
}

/* Carry a batch out, without the lock. *ret is the new store, or NULL if the old one serves on. */
static int carry_out(struct tree *t, struct batch *b, const struct gen *g, struct store **ret)
{
    struct progress p = {t, b};
    struct edit_hooks hooks = {.cancel = &t->writer.cancel, .progress = on_progress, .arg = &p};
    b->result = (struct edit_result){.old_fd = -1};
    int r = edit_commit(&t->file, &b->pending.plan, &t->edit, &hooks, &b->result, &b->err);
    bool replaced = b->result.old_fd >= 0;
    if (replaced)
        (void)close(b->result.old_fd);
    /* Readers get the new file. If it cannot be had, the old one has the same data. */
    if (r == 0 && replaced && tree_store(t, gen_own(g), ret, &b->err) < 0)
        tree_log(t, LOG_WARNING, "the old file is kept open for readers: %s", b->err.msg);
    return r;
}

/* Take what is pending; it is in flight from now on. */
static void take(struct tree *t, struct batch *b)
{
    struct pending *p = &t->writer.next;
    memset(b, 0, sizeof(*b));
    b->pending = *p;
    (void)clock_gettime(CLOCK_MONOTONIC, &b->begin);
    memset(p, 0, sizeof(*p));
    p->change = EDIT_CHANGE_INIT;
    p->plan = EDIT_PLAN_INIT;
    t->writer.due_set = false;
    t->writer.flight = gen_ref(t->now.gen);
    t->writer.flight_waits = b->pending.waits;
    t->writer.flight_owner = b->pending.owner;
    t->writer.flight_edits = b->pending.edits;
    keys_take_off(&t->keys);
    atomic_store(&t->writer.cancel, false);
}

/* Write all that is pending. Called with the lock, which is given up meanwhile. */
static void write_pending(struct tree *t)
{
    struct batch b;
    struct store *s = NULL, *old = NULL;
    int removed = edits_remove_due(t);
    if (removed < 0)
        t->writer.failed = removed;
    if (t->writer.next.change.n == 0) { /* it was taken back, or cancelled itself */
        struct tree_wait *waits = t->writer.next.waits;
        t->writer.next.waits = NULL;
        t->writer.due_set = false;
        int r = waits ? take_failure(t) : 0;
        keys_take_off(&t->keys);
        keys_land(&t->keys, true, r == 0);
        (void)pthread_mutex_unlock(&t->lock);
        answer(waits, r);
        (void)pthread_mutex_lock(&t->lock);
        return;
    }
    take(t, &b);
    const struct gen *flight = t->writer.flight;
    (void)pthread_mutex_unlock(&t->lock);
    int r = carry_out(t, &b, flight, &s);
    if (r == 0)
        log_notes(t, &b);
    else
        log_failure(t, &b);
    (void)pthread_mutex_lock(&t->lock);
    b.pending.waits = t->writer.flight_waits; /* more may have joined */
    t->writer.flight_waits = NULL;
    t->writer.flight_owner = NULL;
    if (r == 0)
        old = landed(t, s);
    else
        failed(t, &b, r);
    bool freeing = t->writer.freeing = old && b.pending.plan.size > SMALL_MODEL;
    keys_land(&t->keys, true, r == 0);
    if (r == 0 && b.pending.waits) /* a removal that was to be part of it */
        r = take_failure(t);
    (void)pthread_mutex_unlock(&t->lock);
    if (!freeing)
        drop_store(&old);
    answer(b.pending.waits, r);
    drop_store(&old);
    batch_free(&b);
    (void)pthread_mutex_lock(&t->lock);
    t->writer.freeing = false;
}

static bool is_due(const struct writer *w)
{
    struct timespec now;
    if (!w->due_set)
        return false;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > w->due.tv_sec ||
           (now.tv_sec == w->due.tv_sec && now.tv_nsec >= w->due.tv_nsec);
}

static void *run(void *arg)
{
    struct tree *t = arg;
    struct writer *w = &t->writer;
    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        bool work = w->next.change.n > 0 || removals(t);
        if (w->next.waits || is_due(w) || (w->stop && work))
            write_pending(t);
        else if (w->stop)
            break;
        else if (w->due_set)
            (void)pthread_cond_timedwait(&w->wake, &t->lock, &w->due);
        else
            (void)pthread_cond_wait(&w->wake, &t->lock);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

int writer_start(struct tree *t, struct err *e)
{
    sigset_t all, old;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&t->writer.wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    /* Signals are for the main thread. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = -pthread_create(&t->writer.thread, NULL, run, t);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    t->writer.started = r == 0;
    return r < 0 ? err_set(e, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

int writer_stop(struct tree *t)
{
    if (!t->writer.started)
        return 0;
    (void)pthread_mutex_lock(&t->lock);
    draft_finish(t);
    t->writer.stop = true;
    (void)pthread_cond_signal(&t->writer.wake);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->writer.thread, NULL);
    t->writer.started = false;
    (void)pthread_cond_destroy(&t->writer.wake);
    return take_failure(t);
}
