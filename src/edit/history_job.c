/* SPDX-License-Identifier: MIT */
/* The history of a model while it is edited: see history_job.h. */
#include "edit/history_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/lock.h"
#include "base/when.h"
#include "edit/restore.h"

struct history_job {
    struct crew_job job; /* first: see turn() */
    struct err why;      /* nothing can be kept */
    struct logger log;
    struct lock lock;
    struct cond wake;  /* there is something to do */
    struct cond ready; /* something is done */
    /* Of the thread that commits: */
    bool waits; /* what the present edit changes is to be kept */
    bool late;  /* that takes long */
    bool said;  /* what goes wrong was logged */
    /* Protected by the lock: */
    struct crew *crew;
    unsigned refs;   /* of the caller and of the job */
    bool runs, stop; /* the job has its turn, and is to end */
    bool answered;   /* what was asked for is kept, or could not be */
    bool over;       /* the edit did not wait for that: what became of it stays unknown */
    struct snapshot *before, *after; /* what is asked for and not begun yet: references */
    uint64_t restored;
    int64_t now;
    int result;
    struct err err;
    bool recorded;      /* an edit is kept, and being written ... */
    bool ended, landed; /* ... or was */
    int64_t ended_at;
    bool due_set; /* the recorder is to be settled: */
    struct timespec due;
    bool looked;  /* at once: a request is to see the states */
    bool answers; /* the folder did so since a request asked */
    /* Of the job: */
    struct history h;
    struct recorder r;
};

static struct timespec deadline(unsigned seconds_from_now)
{
    struct timespec t = when_now();
    t.tv_sec += (time_t)seconds_from_now;
    return t;
}

/* With the lock, which is dropped. */
static void drop_ref(struct history_job *j)
{
    bool last = --j->refs == 0;
    lock_drop(&j->lock);
    if (!last)
        return;
    recorder_close(&j->r);
    history_close(&j->h);
    snapshot_unref(j->before);
    snapshot_unref(j->after);
    cond_destroy(&j->wake);
    cond_destroy(&j->ready);
    lock_destroy(&j->lock);
    free(j);
}

int history_job_make(const char *model, unsigned keep, const struct sys *sys,
                     const struct logger *log, struct history_job **ret)
{
    struct history_job *j = calloc(1, sizeof(*j));
    char *home = NULL;
    if (!j)
        return -ENOMEM;
    lock_init(&j->lock);
    cond_init(&j->wake);
    cond_init(&j->ready);
    j->log = *log;
    j->refs = 1;
    j->answered = true;
    j->r.h = &j->h;
    (void)history_home(&home, &j->why);
    int r = history_open(&j->h, sys, home ? home : "", model, keep, NULL);
    free(home);
    if (r < 0)
        history_job_close(j);
    else
        *ret = j;
    return r;
}

void history_job_crew(struct history_job *j, struct crew *crew)
{
    lock_take(&j->lock);
    j->crew = crew;
    lock_drop(&j->lock);
}

/* ---- the job ---- */

/* With the lock, which is given up while the disk is asked, as by all below. */
static void keep(struct history_job *j)
{
    struct snapshot *before = j->before, *after = j->after;
    struct recorded_edit edit = {.before = snapshot_own(before),
                                 .after = snapshot_own(after),
                                 .undo = j->restored > 0,
                                 .restored = j->restored,
                                 .now = j->now};
    struct err e = {0};
    j->before = j->after = NULL;
    lock_drop(&j->lock);
    int r = recorder_begin(&j->r, &edit, &e);
    snapshot_unref(before);
    snapshot_unref(after);
    lock_take(&j->lock);
    j->recorded = r > 0 && !j->over;
    j->result = r < 0 ? r : 0;
    j->err = e;
    j->answered = true;
}

/* For a request, too: it learns whether the folder answers, and finds the reason. */
static void settle(struct history_job *j)
{
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    bool look = j->looked;
    j->due_set = false;
    lock_drop(&j->lock);
    (void)recorder_settle(&j->r, NULL);
    if (look)
        (void)history_load(&j->h, &f, NULL);
    lock_take(&j->lock);
    j->answers |= look;
    j->looked &= !look;
}

/* True if there was something to do. */
static bool work(struct history_job *j)
{
    if (j->ended) {
        recorder_end(&j->r, j->landed, j->ended_at);
        j->recorded = j->ended = false;
    } else if (j->before) {
        keep(j);
    } else if (j->looked || (j->due_set && (j->stop || when_past(&j->due, 0)))) {
        settle(j);
    } else {
        return false;
    }
    if (!j->due_set && ((j->recorded && !j->stop) || !recorder_is_settled(&j->r))) {
        j->due = deadline(HISTORY_LATER);
        j->due_set = true;
    }
    return true;
}

/* It ends where it has nothing to do: of many models that are edited, few threads and folders are open. */
static bool turn(struct crew_job *job, struct timespec *again)
{
    struct history_job *j = (struct history_job *)job;
    (void)again;
    lock_take(&j->lock);
    for (bool more = true; more; cond_broadcast(&j->ready)) {
        more = work(j);
        if (!more && j->due_set && !j->stop) {
            (void)lock_wait(&j->lock, &j->wake, &j->due);
            more = true;
        }
    }
    recorder_close(&j->r);
    sys_close(j->h.sys, &j->h.dir);
    j->runs = false;
    cond_broadcast(&j->ready);
    drop_ref(j);
    return false;
}

/* Under the lock. */
static int start(struct history_job *j)
{
    int r = j->runs ? 0 : j->crew ? crew_do_beside(j->crew, &j->job, turn) : -ESHUTDOWN;
    if (r < 0)
        return err_set(&j->err, r, "cannot start a thread: %s", strerror(-r));
    j->refs += !j->runs;
    j->runs = true;
    cond_signal(&j->wake);
    return 0;
}

/* ---- the thread that commits ---- */

/* Under the lock. */
static bool wait_answer(struct history_job *j)
{
    const struct timespec until = deadline(HISTORY_WAIT);
    while (!j->answered && lock_wait(&j->lock, &j->ready, &until))
        ;
    return j->answered;
}

static int ask(struct history_job *j, struct snapshot *before, struct snapshot *after,
               uint64_t restored)
{
    if (j->late ? !j->answered : !wait_answer(j))
        return err_set(&j->err, -ETIMEDOUT, "the state before is still being written");
    int r = start(j);
    if (r < 0)
        return r;
    j->late = j->answered = j->over = false;
    j->before = snapshot_ref(before);
    j->after = snapshot_ref(after);
    j->restored = restored;
    j->now = when_date().tv_sec;
    return 0;
}

/* Without the lock. */
static void say(struct history_job *j, int r, const struct err *e)
{
    if (r < 0 && !j->said)
        logger_log(&j->log, LOG_WARNING, "history: the keys before this edit are not kept: %s",
                   e->msg);
    j->said = r < 0;
}

void history_job_begin(struct history_job *j, struct snapshot *before, struct snapshot *after,
                       uint64_t restored)
{
    struct err e = j->why;
    int r = e.code;
    if (r < 0 && edit_keys_id(snapshot_own(before)) == edit_keys_id(snapshot_own(after)))
        return;
    if (r == 0) {
        lock_take(&j->lock);
        r = ask(j, before, after, restored);
        e = j->err;
        lock_drop(&j->lock);
    }
    j->waits = r == 0;
    if (r < 0)
        say(j, r, &e);
}

void history_job_wait(struct history_job *j)
{
    if (!j->waits)
        return;
    lock_take(&j->lock);
    j->late = !wait_answer(j);
    int r = j->late ? err_set(&j->err, -ETIMEDOUT, "this takes over %d s; the edit does not wait",
                              HISTORY_WAIT)
                    : j->result;
    struct err e = j->err;
    lock_drop(&j->lock);
    say(j, r, &e);
}

void history_job_end(struct history_job *j, bool landed)
{
    lock_take(&j->lock);
    if (j->waits && !j->answered) {
        j->over = true;
    } else if (j->waits && j->recorded) {
        j->ended = true;
        j->landed = landed;
        j->ended_at = when_date().tv_sec;
    }
    j->waits = false;
    lock_drop(&j->lock);
}

int history_job_look(struct history_job *j, struct history *ret, struct err *e)
{
    const struct timespec until = deadline(HISTORY_SETTLE);
    *ret = HISTORY_INIT;
    if (j->why.code)
        return err_set(e, -ENOENT, "%s", j->why.msg);
    lock_take(&j->lock);
    j->answers = false;
    int r = start(j);
    j->looked = r == 0;
    while (r == 0 && j->looked && lock_wait(&j->lock, &j->ready, &until))
        ;
    if (r == 0 && !j->answers)
        r = -EIO;
    lock_drop(&j->lock);
    if (r < 0)
        return err_set(e, r, "the folder of the history does not answer");
    return history_open(ret, j->h.sys, j->h.home, j->h.model, j->h.keep, e);
}

void history_job_close(struct history_job *j)
{
    if (!j)
        return;
    const struct timespec until = deadline(HISTORY_WAIT);
    lock_take(&j->lock);
    j->stop = true;
    cond_signal(&j->wake);
    while (j->runs && lock_wait(&j->lock, &j->ready, &until))
        ;
    drop_ref(j);
}
