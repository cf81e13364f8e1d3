/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait for the writer's thread until their edits are durable. See writer.h.
 */
#include "base/lock.h"
#include "live/makings.h"
#include "live/tensor.h"
#include "live/writer.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/when.h"

/* Seconds without another edit after which what no request waits for is written. */
#define LATER 2
/* Milliseconds for which the disk's room is taken to be what it was seen to be. */
#define ROOM_MS 1000
/* Milliseconds between two looks for signals to programs that wait. */
#define WATCH_MS 200
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

/* The number of a request that waits for all edits. */
#define ALL_EDITS UINT64_MAX

void waits_learn(struct live *l, struct live_wait *list, uint64_t after, int r)
{
    bool all = false;
    assert(lock_held(&l->lock));
    for (struct live_wait *w = list; w; w = w->next) {
        all |= w->edit == ALL_EDITS;
        w->result = w->edit > after ? r : 0;
    }
    if (r < 0 && batch_break(l, after, list, r))
        l->failed = r;
    int earlier = all ? writer_take_failure(l) : 0;
    for (struct live_wait *w = list; w; w = w->next)
        if (w->edit == ALL_EDITS)
            w->result = r < 0 ? r : earlier;
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
    struct live_wait **const list[] = {&l->flight.waits, &l->next.waits, &l->syncs, &l->asks};
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
    return l->flight.waits || l->next.waits || l->syncs || l->asks || l->judged;
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

bool writer_file(const struct live *l, struct edit_file *ret)
{
    const struct edit_file *f = l->file;
    assert(lock_held(&l->lock));
    if (l->flying)
        return false;
    *ret = (struct edit_file){.sys = f->sys,
                              .dir = f->dir,
                              .fd = -1,
                              .id = f->id,
                              .clone = f->clone,
                              .backed = f->backed};
    (void)strcpy(ret->name, f->name);
    return true;
}

/* True if the file was written since, or is being written: then it is not another program's change that
 * was seen. */
static bool is_written(const struct live *l, const struct edit_file *before)
{
    return l->flying || !edit_id_equal(&l->file->id, &before->id);
}

/* What the disk said is remembered, unless something was written since. */
static void note_room(struct live *l, const struct edit_file *f, const struct edit_disk *room)
{
    if (l->flying || l->freeing || !room->known)
        return;
    l->file->clone = f->clone;
    l->room = *room;
    l->room_until = when_after(ROOM_MS);
}

/* The file may be replaced while it is asked about: its descriptor is kept open. A write that is
 * under way finds out by itself. With the lock, which is given up meanwhile. True: ask once more. */
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
    note_room(l, &f, &room);
    return idle && e->code == -ESTALE && is_written(l, &f);
}

void writer_ready(struct live *l, struct err *e)
{
    lock_take(&l->lock);
    while (ask_ready(l, e))
        ;
    lock_drop(&l->lock);
}

/* In mode auto an edit is waited for if that does not take long, and not for an old file to be freed. */
static int wait_by_mode(struct live *l, struct live_wait *w)
{
    const enum live_commit mode = l->opt.commit;
    const bool flies = is_in_flight(l, w->edit);
    edit_keep(&l->next.change, edit_mark(&l->next.change));
    if (mode == LIVE_COMMIT_SYNC)
        return 0;
    if (mode == LIVE_COMMIT_AUTO && (flies ? l->flight.slow : l->freeing || batch_is_slow(l))) {
        if (!flies)
            writer_later(l, LATER);
        return 0;
    }
    return wait_for_batch(l, w);
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
