/* SPDX-License-Identifier: MIT */
/* A recorder with a thread of its own: see keeper.h. */
#include "edit/keeper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "edit/recorder.h"
#include "edit/restore.h"

struct keeper {
    char *home, *model; /* owned; home NULL: nothing can be kept, see `why` */
    unsigned keep;
    struct err why;
    struct logger log;
    pthread_mutex_t lock;
    pthread_cond_t wake;  /* the thread has something to do */
    pthread_cond_t ready; /* it has done something */
    /* Of the thread that commits: */
    const struct gguf *last; /* what the file holds, if it is known ... */
    uint64_t last_id;        /* ... and its identity */
    const struct gguf *next; /* what is being written; NULL: nothing that is recorded */
    uint64_t next_id;
    bool waits; /* the thread was asked to keep the state before it */
    bool late;  /* it takes long to do so */
    bool said;  /* what goes wrong was logged */
    /* Protected by the lock: */
    unsigned refs; /* of the caller and of the thread */
    bool started, stop;
    bool busy;     /* the thread is at work, and owns h and r */
    bool asked;    /* to keep a state: not begun yet */
    bool answered; /* every state that was asked for is kept, or could not be */
    struct recorded_edit edit;
    struct recorded_body body;
    bool has_body;
    int result;
    struct err err;
    bool ended, landed;
    int64_t ended_at;
    struct history h;
    struct recorder r;
    struct recorder seen; /* r, when the thread was not at work */
};

static int64_t seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

/* ---- open, close ---- */

static void keeper_free(struct keeper *k)
{
    history_close(&k->h);
    recorded_body_free(&k->body);
    (void)pthread_cond_destroy(&k->wake);
    (void)pthread_cond_destroy(&k->ready);
    (void)pthread_mutex_destroy(&k->lock);
    free(k->home);
    free(k->model);
    free(k);
}

int keeper_open(const char *model, unsigned keep, const struct logger *log, struct keeper **ret)
{
    struct keeper *k = calloc(1, sizeof(*k));
    if (!k)
        return -ENOMEM;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&k->lock, NULL);
    (void)pthread_cond_init(&k->wake, NULL);
    (void)pthread_cond_init(&k->ready, &attr);
    (void)pthread_condattr_destroy(&attr);
    k->keep = keep;
    k->log = *log;
    k->refs = 1;
    k->answered = true;
    k->r.h = &k->h;
    k->h.place = HISTORY_PLACE_INIT;
    k->body = RECORDED_BODY_INIT;
    k->model = strdup(model);
    int r = k->model ? 0 : -ENOMEM;
    if (r == 0 && history_home(&k->home, &k->why) == 0)
        (void)history_open(&k->h, &sys_libc, k->home, model, keep, &k->why);
    if (r < 0) {
        keeper_free(k);
        return r;
    }
    *ret = k;
    return 0;
}

/* ---- the thread ---- */

/* With the lock, which is given up while the disk is asked. */
static void record_end(struct keeper *k)
{
    bool landed = k->landed;
    int64_t at = k->ended_at;
    k->ended = false;
    (void)pthread_mutex_unlock(&k->lock);
    (void)recorder_end(&k->r, landed, at, NULL);
    (void)pthread_mutex_lock(&k->lock);
}

static void record_begin(struct keeper *k)
{
    struct recorded_edit edit = k->edit;
    struct recorded_body body = k->body;
    bool has_body = k->has_body;
    struct err e = {0};
    k->asked = false;
    k->body = RECORDED_BODY_INIT;
    (void)pthread_mutex_unlock(&k->lock);
    int r = recorder_begin(&k->r, &edit, has_body ? &body : NULL, &e);
    recorded_body_free(&body);
    (void)pthread_mutex_lock(&k->lock);
    k->result = r;
    k->err = e;
    k->answered = true;
}

static void sync_record(struct keeper *k)
{
    (void)pthread_mutex_unlock(&k->lock);
    (void)recorder_sync(&k->r, NULL);
    (void)pthread_mutex_lock(&k->lock);
}

static void drop_ref(struct keeper *k)
{
    bool last = --k->refs == 0;
    (void)pthread_mutex_unlock(&k->lock);
    if (last)
        keeper_free(k);
}

static void *run(void *arg)
{
    struct keeper *k = arg;
    (void)pthread_setname_np(pthread_self(), "history"); /* not that of the thread that began it */
    (void)pthread_mutex_lock(&k->lock);
    for (;;) {
        k->busy = true;
        if (k->ended)
            record_end(k);
        else if (k->asked)
            record_begin(k);
        else if (k->r.unsynced)
            sync_record(k);
        else
            k->busy = false;
        k->seen = k->r;
        (void)pthread_cond_broadcast(&k->ready);
        if (k->busy)
            continue;
        if (k->stop)
            break;
        (void)pthread_cond_wait(&k->wake, &k->lock);
    }
    drop_ref(k);
    return NULL;
}

/* Under the lock. */
static int start(struct keeper *k)
{
    pthread_t thread;
    sigset_t all, old;
    if (k->started)
        return 0;
    (void)sigfillset(&all); /* signals are for the main thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = -pthread_create(&thread, NULL, run, k);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r < 0)
        return err_set(&k->err, r, "cannot start a thread: %s", strerror(-r));
    (void)pthread_detach(thread);
    k->started = true;
    k->refs++;
    return 0;
}

/* ---- the thread that commits ---- */

static struct timespec deadline(unsigned seconds_from_now)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)seconds_from_now;
    return t;
}

/* Under the lock. False: the time is over first. */
static bool wait_idle(struct keeper *k, const struct timespec *until)
{
    int r = 0;
    while ((k->busy || k->ended || k->asked) && r == 0)
        r = pthread_cond_timedwait(&k->ready, &k->lock, until);
    return r == 0;
}

static bool wait_answer(struct keeper *k, const struct timespec *until)
{
    int r = 0;
    while (!k->answered && r == 0)
        r = pthread_cond_timedwait(&k->ready, &k->lock, until);
    return k->answered;
}

/* Ask the thread to keep a state. Under the lock. */
static int ask(struct keeper *k, bool joins)
{
    k->has_body = !joins;
    if (!joins && recorded_body_make(&k->body, &k->h, k->last) < 0)
        return err_set(&k->err, -ENOMEM, "no memory for the keys");
    k->asked = true;
    k->answered = false;
    (void)pthread_cond_signal(&k->wake);
    return 0;
}

/* Under the lock, which is given up while an edit before it that failed is still answered. */
static int begin(struct keeper *k, const struct recorded_edit *edit)
{
    const struct timespec until = deadline(KEEPER_WAIT);
    int r = start(k);
    if (r == 0 && (k->late ? !k->answered : !wait_answer(k, &until)))
        r = err_set(&k->err, -ETIMEDOUT, "the state before is still being written");
    if (r < 0)
        return r;
    k->late = false;
    k->edit = *edit;
    return ask(k, recorder_joins(&k->seen, edit));
}

/* Under the lock, which is given up. 0, -ETIMEDOUT, -errno. */
static int wait_kept(struct keeper *k)
{
    const struct timespec until = deadline(KEEPER_WAIT);
    int r = 0;
    bool answered = wait_answer(k, &until);
    if (answered && k->result == -EAGAIN) { /* the state to join is gone */
        r = ask(k, false);
        answered = r == 0 && wait_answer(k, &until);
    }
    if (r < 0)
        return r;
    k->late = !answered;
    if (!answered)
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

void keeper_begin(struct keeper *k, const struct gguf *before, const struct gguf *after,
                  uint64_t restored)
{
    struct recorded_edit edit = {.undo = restored > 0, .restored = restored, .now = seconds()};
    edit.before = before == k->last ? k->last_id : edit_keys_id(before);
    edit.after = edit_keys_id(after);
    k->last = before;
    k->last_id = edit.before;
    k->next = NULL;
    if (edit.before == edit.after)
        return;
    k->next = after;
    k->next_id = edit.after;
    struct err e = k->why;
    (void)pthread_mutex_lock(&k->lock);
    int r = e.code ? e.code : begin(k, &edit);
    if (r < 0 && !e.code)
        e = k->err;
    (void)pthread_mutex_unlock(&k->lock);
    k->waits = r == 0;
    if (r < 0)
        say(k, &e);
}

void keeper_wait(struct keeper *k)
{
    if (!k->next || !k->waits)
        return;
    (void)pthread_mutex_lock(&k->lock);
    int r = wait_kept(k);
    struct err e = k->err;
    (void)pthread_mutex_unlock(&k->lock);
    if (r < 0)
        say(k, &e);
    else
        k->said = false;
}

void keeper_end(struct keeper *k, bool landed)
{
    if (!k->next)
        return;
    if (landed) {
        k->last = k->next;
        k->last_id = k->next_id;
    }
    k->next = NULL;
    (void)pthread_mutex_lock(&k->lock);
    if (k->waits && k->answered) {
        k->ended = true;
        k->landed = landed;
        k->ended_at = seconds();
        (void)pthread_cond_signal(&k->wake);
    }
    (void)pthread_mutex_unlock(&k->lock);
}

int keeper_history(struct keeper *k, struct history *ret, struct err *e)
{
    const struct timespec until = deadline(KEEPER_SETTLE);
    (void)pthread_mutex_lock(&k->lock);
    (void)wait_idle(k, &until);
    (void)pthread_mutex_unlock(&k->lock);
    if (k->home)
        return history_open(ret, &sys_libc, k->home, k->model, k->keep, e);
    *ret = (struct history){.place = HISTORY_PLACE_INIT};
    return err_set(e, -ENOENT, "%s", k->why.msg);
}

void keeper_close(struct keeper *k)
{
    if (!k)
        return;
    const struct timespec until = deadline(KEEPER_WAIT);
    (void)pthread_mutex_lock(&k->lock);
    k->stop = true;
    (void)pthread_cond_signal(&k->wake);
    if (k->started)
        (void)wait_idle(k, &until);
    drop_ref(k);
}
