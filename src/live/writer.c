/* SPDX-License-Identifier: MIT */
/*
 * The one thread that changes the model file. See internal.h, tree.h.
 *
 * What is accepted collects in `next`. The thread takes it as a whole (it is then in flight), writes
 * it without holding the tree's lock, and answers those who wait. What is accepted meanwhile
 * collects in `next` again, planned on what is in flight; if that fails, on what is on disk.
 */
#include "live/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "live/waits.h"

/* ---- writing ---- */

struct batch {
    struct pending pending;
    struct edit_result result;
    struct err err;
    struct timespec begin;
    struct buf notes; /* what it does, for the log */
    uint64_t told;    /* seconds after which progress was logged last */
};

static uint64_t elapsed_ms(const struct batch *b)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((now.tv_sec - b->begin.tv_sec) * 1000 +
                      (now.tv_nsec - b->begin.tv_nsec) / 1000000);
}

struct progress {
    const struct live *l;
    struct batch *b;
};

static void on_progress(uint64_t done, uint64_t total, void *arg)
{
    struct progress *p = arg;
    uint64_t s = elapsed_ms(p->b) / 1000;
    if (s <= p->b->told)
        return;
    p->b->told = s;
    live_log(p->l, LOG_INFO, "copying: %llu of %llu MiB", (unsigned long long)(done >> 20),
             (unsigned long long)(total >> 20));
}

/* The value's bytes without a string's length word: that is what people count. */
static size_t text_bytes(const struct gguf_format *fmt, uint32_t type, size_t n)
{
    return type == GGUF_STRING ? n - fmt->len_width : n;
}

/* What an edit does to a key, for the log; nothing if that is nothing. */
static void note_slot(const struct edit_change *c, const struct edit_slot *s, struct buf *out)
{
    char name[SHOW_MAX], old[SHOW_MAX], type[GGUF_TYPE_NAME_MAX];
    const struct gguf_format *fmt = &c->base->fmt;
    const struct gguf_kv *kv = s->old == EDIT_NONE ? NULL : &c->base->kv[s->old];
    (void)show(name, s->name, s->name_len);
    if (kv)
        (void)show(old, gguf_key(c->base, kv), kv->key_len);
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

/* A line for each key, NUL-terminated: the log's, when it is known how it went. */
static void note_batch(struct batch *b)
{
    const struct edit_change *c = &b->pending.change;
    for (size_t i = 0; i < c->n; i++) {
        size_t before = b->notes.len;
        note_slot(c, &c->slot[i], &b->notes);
        if (b->notes.len > before)
            buf_char(&b->notes, '\0');
    }
}

static void log_batch(const struct live *l, const struct batch *b, int r)
{
    unsigned long long ms = elapsed_ms(b);
    const char *at = (const char *)b->notes.data, *end = at ? at + b->notes.len : NULL;
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
    char file[TREE_NAME_MAX + 1];
    for (size_t i = 0; i < c->n; i++) {
        (void)name_encode(c->slot[i].name, c->slot[i].name_len, file);
        struct kfile *f = keys_named(&l->keys, file);
        if (f)
            kfile_set_error(f, e->msg);
    }
}

/*
 * The batch is on disk: so is the generation that was in flight. Returns the store that nobody
 * needs any more, or NULL. It is let go of without the lock, and of a large model after those who
 * wait are answered: freeing a file takes a good part of the time that its copy took.
 */
static struct store *landed(struct live *l, struct store *s)
{
    struct store *old = s ? newest_put_store(l->newest, s) : NULL;
    gen_unref(l->writer.disk);
    l->writer.disk = l->writer.flight;
    l->writer.flight = NULL;
    return old;
}

static void drop_store(struct store **s)
{
    store_unref(*s);
    *s = NULL;
}

static void failed(struct live *l, const struct batch *b, int r)
{
    struct gen *flight = l->writer.flight; /* what was accepted since is based on it */
    l->writer.flight = NULL;
    pending_rebase(l, &b->pending.change);
    gen_unref(flight);
    mark_failed(l, &b->pending.change, &b->err);
    if (!b->pending.waits)
        l->writer.failed = r;
}

/* Carry a batch out, without the lock. *ret is the new store, or NULL if the old one serves on. */
static int carry_out(struct live *l, struct batch *b, const struct gen *g, struct store **ret)
{
    struct progress p = {l, b};
    struct edit_hooks hooks = {.cancel = &l->writer.cancel, .progress = on_progress, .arg = &p};
    b->result = (struct edit_result){.old_fd = -1};
    if (l->opt.history)
        keeper_begin(l->opt.history, gen_own(l->writer.disk), gen_own(g), b->pending.restored);
    int r = edit_commit(l->file, &b->pending.plan, &l->opt.edit, &hooks, &b->result, &b->err);
    if (l->opt.history)
        keeper_end(l->opt.history, r == 0);
    bool replaced = b->result.old_fd >= 0;
    if (replaced)
        (void)close(b->result.old_fd);
    /* Readers get the new file. If it cannot be had, the old one has the same data. */
    if (r == 0 && replaced &&
        newest_make_store(l->newest, l->file->fd, gen_own(g), ret, &b->err) < 0)
        live_log(l, LOG_WARNING, "the old file is kept open for readers: %s", b->err.msg);
    return r;
}

/*
 * Take what is pending, which is planned; it is in flight from now on. The disk is not asked any more
 * whether it can be written: requests that wait for that wait for the edit, or, if it is a copy that
 * no request waits for, are answered at once: *answered.
 */
static void take(struct live *l, struct batch *b, struct live_wait **answered)
{
    struct pending *p = &l->writer.next;
    bool slow = l->opt.commit == LIVE_COMMIT_SYNC || (p->asked && p->how == EDIT_COPY);
    waits_join(slow ? answered : &p->waits, p->asking);
    p->asking = NULL;
    pending_keep(l, edit_mark(&p->change), p->n_fresh, 0);
    memset(b, 0, sizeof(*b));
    b->pending = *p;
    note_batch(b);
    edit_change_drop_values(&b->pending.change);
    (void)clock_gettime(CLOCK_MONOTONIC, &b->begin);
    l->writer.due_set = false;
    l->writer.flight = gen_ref(l->newest->view.gen);
    l->writer.flight_waits = b->pending.waits;
    l->writer.flight_owner = b->pending.owner;
    l->writer.flight_edits = edit_change_count(&b->pending.change);
    l->writer.flight_slow = p->asked && p->how == EDIT_COPY && !writer_is_small(l);
    pending_init(l);
    moves_stage(&l->keys, STAGE_NEW, STAGE_FLIGHT);
    moves_stage(&l->keys, STAGE_KEPT, STAGE_FLIGHT);
    atomic_store(&l->writer.cancel, false);
}

/* Nothing is to be written: it was taken back, or cancelled itself, or cannot be planned (r). */
static void answer_without(struct live *l, int r)
{
    struct live_wait *waits = l->writer.next.waits;
    l->writer.next.waits = NULL;
    l->writer.due_set = false;
    if (waits && r == 0)
        r = writer_take_failure(l);
    else if (!waits && r < 0)
        l->writer.failed = r;
    moves_land(l, STAGE_NEW, r == 0);
    moves_land(l, STAGE_KEPT, r == 0);
    (void)pthread_mutex_unlock(&l->lock);
    waits_answer(waits, r);
    (void)pthread_mutex_lock(&l->lock);
}

/* What is accepted cannot even be planned. */
static void give_up(struct live *l, const struct err *e)
{
    struct batch b = {.pending = l->writer.next, .err = *e};
    (void)clock_gettime(CLOCK_MONOTONIC, &b.begin);
    note_batch(&b);
    log_batch(l, &b, e->code);
    buf_free(&b.notes);
    mark_failed(l, &l->writer.next.change, e);
    waits_join(&l->writer.next.waits, l->writer.next.asking);
    l->writer.next.asking = NULL;
    pending_drop(l);
    answer_without(l, e->code);
}

/* The batch is done, and those that wait are answered. Called with the lock. */
static void finish(struct live *l, struct batch *b, struct store *s, int r)
{
    struct store *old = NULL;
    b->pending.waits = l->writer.flight_waits; /* more may have joined */
    l->writer.flight_waits = NULL;
    l->writer.flight_owner = NULL;
    if (r == 0)
        old = landed(l, s);
    else
        failed(l, b, r);
    bool freeing = l->writer.freeing = old && !writer_is_small(l);
    moves_land(l, STAGE_FLIGHT, r == 0);
    if (r == 0 && b->pending.waits) /* a removal that was to be part of it */
        r = writer_take_failure(l);
    (void)pthread_mutex_unlock(&l->lock);
    if (!freeing)
        drop_store(&old);
    waits_answer(b->pending.waits, r);
    drop_store(&old);
    buf_free(&b->notes);
    pending_free(&b->pending);
    (void)pthread_mutex_lock(&l->lock);
    l->writer.freeing = false;
}

/* Write all that is pending. Called with the lock, which is given up meanwhile. */
static void write_pending(struct live *l)
{
    struct batch b;
    struct err e = {0};
    struct store *s = NULL;
    int r = edits_remove_due(l);
    if (r < 0)
        l->writer.failed = r;
    if (l->writer.next.change.n == 0) {
        answer_without(l, 0);
        return;
    }
    if (freshen_locked(l, &e) < 0) {
        give_up(l, &e);
        return;
    }
    struct live_wait *answered = NULL;
    take(l, &b, &answered);
    const struct gen *flight = l->writer.flight;
    (void)pthread_mutex_unlock(&l->lock);
    waits_answer(answered, 0);
    r = carry_out(l, &b, flight, &s);
    log_batch(l, &b, r);
    (void)pthread_mutex_lock(&l->lock);
    finish(l, &b, s, r);
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
    struct live *l = arg;
    struct writer *w = &l->writer;
    bool asked = false; /* what is to be written has its turn, however many ask */
    (void)pthread_mutex_lock(&l->lock);
    for (;;) {
        bool write = w->next.waits || is_due(w) || (w->stop && writer_has_work(l));
        bool ask = w->next.asking && !(write && asked);
        asked = ask;
        if (ask)
            writer_ask(l);
        else if (write)
            write_pending(l);
        else if (w->stop)
            break;
        else if (w->due_set)
            (void)pthread_cond_timedwait(&w->wake, &l->lock, &w->due);
        else
            (void)pthread_cond_wait(&w->wake, &l->lock);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return NULL;
}

int writer_start(struct live *l, struct err *e)
{
    sigset_t all, old;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&l->writer.wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    /* Signals are for the main thread. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = -pthread_create(&l->writer.thread, NULL, run, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    l->writer.started = r == 0;
    return r < 0 ? err_set(e, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

int writer_stop(struct live *l)
{
    if (!l->writer.started)
        return 0;
    (void)pthread_mutex_lock(&l->lock);
    l->writer.stop = true;
    (void)pthread_cond_signal(&l->writer.wake);
    (void)pthread_mutex_unlock(&l->lock);
    (void)pthread_join(l->writer.thread, NULL);
    l->writer.started = false;
    (void)pthread_cond_destroy(&l->writer.wake);
    return writer_take_failure(l);
}
