/* SPDX-License-Identifier: MIT */
/* A recorder with a thread of its own: see keeper.h. */
#include "edit/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "base/thread.h"
#include "base/lock.h"
#include "base/when.h"
#include "edit/recorder.h"
#include "edit/restore.h"

/* What the file holds before an edit, and after it. */
struct change {
    struct snapshot *before, *after; /* references */
};

struct keeper {
    const struct sys *sys;
    char *home, *model; /* owned; home NULL: nothing can be kept, see `why` */
    unsigned keep;
    struct err why;
    struct logger log;
    struct lock lock;
    struct cond wake;  /* the thread has something to do */
    struct cond ready; /* it has done something */
    /* Of the thread that commits: */
    bool begun; /* the present edit is planned while its state is written */
    bool waits; /* the thread was asked to keep the state before the present edit */
    bool late;  /* it takes long to do so */
    bool said;  /* what goes wrong was logged */
    /* Protected by the lock: */
    unsigned refs; /* of the caller and of the thread */
    bool started, stop;
    bool busy;            /* the thread is at work */
    bool asked;           /* to write a state: not begun yet */
    bool planned;         /* the edit is: the state is to be finished */
    bool dropped;         /* the edit is */
    bool answered;        /* every state that was asked for is kept, or could not be */
    struct change change; /* what was asked for and not begun yet */
    uint64_t restored;
    int64_t now;
    int result;
    struct err err;
    bool ended, landed;
    int64_t ended_at;
    bool due_set; /* the recorder is to be settled: */
    struct timespec due;
    bool hurry;   /* at once */
    bool looked;  /* a request is to see the states */
    bool answers; /* the folder did so since a request asked */
    /* Of the thread, once there is one: */
    struct history h;
    struct recorder r;
    struct change known;          /* of the last edit; empty: unknown ... */
    uint64_t before_id, after_id; /* ... and the identities of its keys */
    bool recorded;                /* it is in the history */
};

static int64_t seconds(void)
{
    struct timespec now = when_date();
    return now.tv_sec;
}

static struct timespec deadline(unsigned seconds_from_now)
{
    struct timespec t = when_now();
    t.tv_sec += (time_t)seconds_from_now;
    return t;
}

static void change_drop(struct change *c)
{
    snapshot_unref(c->before);
    snapshot_unref(c->after);
    *c = (struct change){0};
}

/* ---- open, close ---- */

static void keeper_free(struct keeper *k)
{
    recorder_drop(&k->r);
    history_close(&k->h);
    change_drop(&k->change);
    change_drop(&k->known);
    cond_destroy(&k->wake);
    cond_destroy(&k->ready);
    lock_destroy(&k->lock);
    free(k->home);
    free(k->model);
    free(k);
}

int keeper_open(const char *model, unsigned keep, const struct sys *sys, const struct logger *log,
                struct keeper **ret)
{
    struct keeper *k = calloc(1, sizeof(*k));
    if (!k)
        return -ENOMEM;
    lock_init(&k->lock);
    cond_init(&k->wake);
    cond_init(&k->ready);
    k->sys = sys;
    k->keep = keep;
    k->log = *log;
    k->refs = 1;
    k->answered = true;
    k->r.h = &k->h;
    k->h.place = HISTORY_PLACE_INIT;
    k->model = strdup(model);
    int r = k->model ? 0 : -ENOMEM;
    if (r == 0)
        (void)history_home(&k->home, &k->why);
    if (r < 0) {
        keeper_free(k);
        return r;
    }
    *ret = k;
    return 0;
}

/* ---- the thread ---- */

static void set_due(struct keeper *k)
{
    if (!k->due_set)
        k->due = deadline(KEEPER_LATER);
    k->due_set = true;
}

/* Find the folder, which may take as long as it takes. */
static int open_place(struct keeper *k, struct err *e)
{
    if (k->h.model)
        return 0;
    int r = history_open(&k->h, k->sys, k->home, k->model, k->keep, e);
    if (r < 0)
        history_close(&k->h);
    return r;
}

/* Which keys these are: mostly what the edit before has left. Takes the reference. */
static void know_before(struct keeper *k, struct snapshot *before)
{
    uint64_t id = before == k->known.after    ? k->after_id
                  : before == k->known.before ? k->before_id
                                              : edit_keys_id(snapshot_own(before));
    change_drop(&k->known);
    k->known.before = before;
    k->before_id = id;
}

static struct recorded_edit edit_of(const struct keeper *k)
{
    return (struct recorded_edit){.keys = snapshot_own(k->known.before),
                                  .before = k->before_id,
                                  .after = k->after_id,
                                  .undo = k->restored > 0,
                                  .restored = k->restored,
                                  .now = k->now};
}

/* While the edit is planned. With the lock, which is given up while the disk is asked. */
static void record_prepare(struct keeper *k)
{
    struct snapshot *before = k->change.before;
    k->asked = false;
    k->change.before = NULL;
    lock_drop(&k->lock);
    know_before(k, before);
    struct recorded_edit edit = edit_of(k);
    if (open_place(k, NULL) == 0)
        (void)recorder_prepare(&k->r, &edit, NULL); /* what fails does so again, with a reason */
    lock_take(&k->lock);
}

static int record_planned(struct keeper *k, struct snapshot *after, struct err *e)
{
    k->known.after = after;
    k->after_id = edit_keys_id(snapshot_own(after));
    struct recorded_edit edit = edit_of(k);
    bool same = edit.before == edit.after;
    if (same)
        recorder_drop(&k->r);
    int r = same ? 0 : open_place(k, e);
    if (!same && r == 0)
        r = recorder_begin(&k->r, &edit, e);
    k->recorded = !same && r == 0;
    return r;
}

static void record_begin(struct keeper *k)
{
    struct snapshot *after = k->change.after;
    struct err e = {0};
    k->planned = false;
    k->change.after = NULL;
    lock_drop(&k->lock);
    int r = record_planned(k, after, &e);
    lock_take(&k->lock);
    k->result = r;
    k->err = e;
    k->answered = true;
    if (k->recorded) /* so that the end of the edit wakes no thread */
        set_due(k);
}

static void record_drop(struct keeper *k)
{
    k->dropped = false;
    lock_drop(&k->lock);
    recorder_drop(&k->r);
    lock_take(&k->lock);
    k->answered = true;
}

static void record_end(struct keeper *k)
{
    bool landed = k->landed;
    int64_t at = k->ended_at;
    k->ended = false;
    lock_drop(&k->lock);
    if (k->recorded)
        recorder_end(&k->r, landed, at);
    k->recorded = false;
    /* Only what the file holds is needed further on. */
    struct snapshot **gone = landed ? &k->known.before : &k->known.after;
    snapshot_unref(*gone);
    *gone = NULL;
    lock_take(&k->lock);
}

static void settle(struct keeper *k)
{
    k->due_set = k->hurry = false;
    lock_drop(&k->lock);
    (void)recorder_settle(&k->r, NULL);
    lock_take(&k->lock);
}

static void look(struct keeper *k)
{
    k->looked = false;
    lock_drop(&k->lock);
    (void)open_place(k, NULL); /* the request finds the reason, too */
    lock_take(&k->lock);
    k->answers = true;
}

static void drop_ref(struct keeper *k)
{
    bool last = --k->refs == 0;
    lock_drop(&k->lock);
    if (last)
        keeper_free(k);
}

/* True if there was something to do. With the lock, which is given up. */
static bool work(struct keeper *k)
{
    if (k->ended)
        record_end(k);
    else if (k->asked)
        record_prepare(k);
    else if (k->planned)
        record_begin(k);
    else if (k->dropped)
        record_drop(k);
    else if (k->looked)
        look(k);
    else if (k->due_set && (k->stop || k->hurry || when_past(&k->due, 0)))
        settle(k);
    else
        return k->hurry = false;
    if (!recorder_is_settled(&k->r))
        set_due(k);
    return true;
}

/* True if nothing is to follow what was done: not before the next edit begins, or is asked for. */
static bool is_at_rest(const struct keeper *k)
{
    return k->stop || (k->answered && !k->recorded && !k->due_set);
}

static void close_place(struct keeper *k)
{
    lock_drop(&k->lock);
    history_close(&k->h);
    lock_take(&k->lock);
}

/* It ends where it has nothing to do: of many models that are edited, few threads and folders are open. */
static void *run(void *arg)
{
    struct keeper *k = arg;
    thread_name("history");
    lock_take(&k->lock);
    for (;;) {
        k->busy = true;
        k->busy = work(k);
        cond_broadcast(&k->ready);
        if (k->busy)
            continue;
        if (!is_at_rest(k))
            (void)lock_wait(&k->lock, &k->wake, k->due_set ? &k->due : NULL);
        else if (k->h.model)
            close_place(k);
        else
            break;
    }
    k->started = false;
    drop_ref(k);
    return NULL;
}

/* Under the lock. */
static int start(struct keeper *k)
{
    if (k->started)
        return 0;
    int r = thread_start(NULL, run, k);
    if (r < 0)
        return err_set(&k->err, r, "cannot start a thread: %s", strerror(-r));
    k->started = true;
    k->refs++;
    return 0;
}

/* ---- the thread that commits ---- */

/* Under the lock. False: the time is over first. */
static bool wait_idle(struct keeper *k, const struct timespec *until)
{
    bool early = true;
    while ((k->busy || k->ended || k->looked || k->due_set || !k->answered) && early)
        early = lock_wait(&k->lock, &k->ready, until);
    return early;
}

static bool wait_answer(struct keeper *k)
{
    const struct timespec until = deadline(KEEPER_WAIT);
    while (!k->answered && lock_wait(&k->lock, &k->ready, &until))
        ;
    return k->answered;
}

/* Under the lock. */
static void ask(struct keeper *k, struct snapshot *before, uint64_t restored)
{
    k->late = false;
    k->change.before = snapshot_ref(before);
    k->restored = restored;
    k->now = seconds();
    k->asked = true;
    k->answered = false;
    cond_signal(&k->wake);
}

/* Under the lock, which is given up while an edit before it that failed is still answered. */
static int plan(struct keeper *k, const struct change *c, uint64_t restored)
{
    int r = k->begun ? 0 : start(k);
    if (r == 0 && !k->begun && (k->late ? !k->answered : !wait_answer(k)))
        r = err_set(&k->err, -ETIMEDOUT, "the state before is still being written");
    if (r < 0)
        return r;
    if (!k->begun)
        ask(k, c->before, restored);
    k->change.after = snapshot_ref(c->after);
    k->planned = true;
    cond_signal(&k->wake);
    return 0;
}

/* Under the lock, which is given up. 0, -ETIMEDOUT, -errno. */
static int wait_kept(struct keeper *k)
{
    k->late = !wait_answer(k);
    if (k->late)
        return err_set(&k->err, -ETIMEDOUT, "this takes over %d s; the edit does not wait",
                       KEEPER_WAIT);
    return k->result;
}

static void say(struct keeper *k, const struct err *e)
{
    if (k->said)
        return;
    k->said = true;
    logger_log(&k->log, LOG_WARNING, "history: the keys before this edit are not kept: %s", e->msg);
}

static bool same_keys(const struct snapshot *a, const struct snapshot *b)
{
    return edit_keys_id(snapshot_own(a)) == edit_keys_id(snapshot_own(b));
}

void keeper_begin(struct keeper *k, struct snapshot *before, uint64_t restored)
{
    lock_take(&k->lock);
    k->begun = k->why.code == 0 && k->answered && start(k) == 0;
    if (k->begun)
        ask(k, before, restored);
    lock_drop(&k->lock);
}

void keeper_drop(struct keeper *k)
{
    lock_take(&k->lock);
    k->dropped |= k->begun; /* an edit before it may be dropped, and not by the thread yet */
    cond_signal(&k->wake);
    lock_drop(&k->lock);
    k->begun = false;
}

void keeper_plan(struct keeper *k, struct snapshot *before, struct snapshot *after,
                 uint64_t restored)
{
    struct err e = k->why;
    if (e.code && same_keys(before, after))
        return;
    lock_take(&k->lock);
    int r = e.code ? e.code : plan(k, &(struct change){before, after}, restored);
    if (!e.code)
        e = k->err;
    lock_drop(&k->lock);
    k->begun = false;
    k->waits = r == 0;
    if (r < 0)
        say(k, &e);
}

void keeper_wait(struct keeper *k)
{
    if (!k->waits)
        return;
    lock_take(&k->lock);
    int r = wait_kept(k);
    struct err e = k->err;
    lock_drop(&k->lock);
    if (r < 0)
        say(k, &e);
    else
        k->said = false;
}

void keeper_end(struct keeper *k, bool landed)
{
    lock_take(&k->lock);
    if (k->waits && k->answered) {
        k->ended = true;
        k->landed = landed;
        k->ended_at = seconds();
        if (!k->due_set && start(k) == 0)
            cond_signal(&k->wake);
    }
    lock_drop(&k->lock);
    k->waits = false;
}

int keeper_history(struct keeper *k, struct history *ret, struct err *e)
{
    const struct timespec until = deadline(KEEPER_SETTLE);
    *ret = (struct history){.place = HISTORY_PLACE_INIT};
    if (!k->home)
        return err_set(e, -ENOENT, "%s", k->why.msg);
    lock_take(&k->lock);
    k->hurry = k->looked = true;
    k->answers = false;
    int r = start(k);
    cond_signal(&k->wake);
    if (r == 0)
        (void)wait_idle(k, &until);
    bool hangs = r == 0 && !k->answers;
    lock_drop(&k->lock);
    if (hangs)
        return err_set(e, -EIO, "the folder of the history does not answer");
    return history_open(ret, k->sys, k->home, k->model, k->keep, e);
}

void keeper_close(struct keeper *k)
{
    if (!k)
        return;
    const struct timespec until = deadline(KEEPER_WAIT);
    lock_take(&k->lock);
    k->stop = true;
    cond_signal(&k->wake);
    /* The thread goes when it has done all; then the last reference is this one. */
    while (k->refs > 1 && lock_wait(&k->lock, &k->ready, &until))
        ;
    drop_ref(k);
}
