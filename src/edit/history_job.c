/* SPDX-License-Identifier: MIT */
/* Keeps the history of a model during edits: see history_job.h. */
#include "edit/history_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/pool.h"
#include "base/when.h"
#include "edit/change.h"

/* The job's tasks, in the order in which they are done. */
enum { END = 1, KEEP = 2, LOOK = 4, ALL = 7 };

struct history_job {
    struct pool_job job; /* first member: see turn() */
    struct err why;      /* the reason why nothing can be kept */
    struct logger log;
    struct lock lock;
    struct cond done; /* some task was completed */
    /* Used only by the committing thread: */
    bool waits; /* the current edit's changes must be kept before it is done */
    bool late;  /* keeping them takes too long */
    bool said;  /* the failure was logged */
    /* Protected by the lock: */
    unsigned refs;             /* references held by the caller and the job */
    bool runs;                 /* the job has a turn */
    unsigned todo, doing;      /* END, KEEP, LOOK */
    struct recorded_edit edit; /* for KEEP; holds references */
    bool over;                 /* the edit did not wait for KEEP, so its outcome stays unknown */
    int result;
    struct err err;
    bool recorded; /* an edit was recorded and is being written */
    bool landed;   /* for END: the edit's outcome */
    int64_t ended_at;
    /* Used only by the job: */
    struct history h;
    struct recorder r;
};

/* Drops a reference. Call with the lock held; it is released. */
static void drop_ref(struct history_job *j)
{
    bool last = --j->refs == 0;
    lock_drop(&j->lock);
    if (!last)
        return;
    history_close(&j->h);
    gguf_free(j->edit.before);
    gguf_free(j->edit.after);
    cond_destroy(&j->done);
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
    cond_init(&j->done);
    j->log = *log;
    j->refs = 1;
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

/* ---- the job ---- */

/* Does KEEP. Call with the lock held; it is released during disk access. */
static void keep(struct history_job *j)
{
    struct recorded_edit edit = j->edit;
    struct err e = {0};
    j->edit = (struct recorded_edit){0};
    lock_drop(&j->lock);
    int r = recorder_begin(&j->r, &edit, &e);
    gguf_free(edit.before);
    gguf_free(edit.after);
    lock_take(&j->lock);
    j->recorded = r > 0 && !j->over;
    j->result = r < 0 ? r : 0;
    j->err = e;
}

/*
 * Does the next task. Handles the lock like keep(). LOOK only finds out whether the directory
 * responds.
 */
static void work(struct history_job *j)
{
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    const bool landed = j->landed;
    const int64_t ended_at = j->ended_at;
    j->doing = j->todo & -j->todo;
    j->todo &= ~j->doing;
    if (j->doing == KEEP) {
        keep(j);
    } else {
        lock_drop(&j->lock);
        if (j->doing == END)
            (void)recorder_end(&j->r, landed, ended_at, NULL);
        else
            (void)history_load(&j->h, &f, NULL);
        lock_take(&j->lock);
    }
    j->doing = 0;
    cond_broadcast(&j->done);
}

/*
 * Ends the job's turns when it has nothing to do, so that many edited models need few threads and
 * open directories.
 */
static bool turn(struct pool_job *job, struct timespec *again)
{
    struct history_job *j = (struct history_job *)job;
    (void)again;
    lock_take(&j->lock);
    while (j->todo)
        work(j);
    sys_close(j->h.sys, &j->h.dir);
    j->runs = false;
    drop_ref(j);
    return false;
}

/* Requests a task. Call with the lock held. */
static int ask(struct history_job *j, unsigned what)
{
    int r = j->runs ? 0 : pool_do_beside(&j->job, turn);
    if (r < 0)
        return err_sys(&j->err, r, "cannot start a thread");
    j->refs += !j->runs;
    j->runs = true;
    j->todo |= what;
    return 0;
}

/* Waits for tasks. Call with the lock held. Returns false if they take longer than `seconds`. */
static bool wait_for(struct history_job *j, unsigned what, unsigned seconds)
{
    struct timespec until = when_now();
    until.tv_sec += (time_t)seconds;
    while (((j->todo | j->doing) & what) && lock_wait(&j->lock, &j->done, &until))
        ;
    return !((j->todo | j->doing) & what);
}

/* ---- the committing thread ---- */

static int ask_to_keep(struct history_job *j, struct snapshot *before, struct snapshot *after,
                       uint64_t restored)
{
    if (!wait_for(j, KEEP, j->late ? 0 : HISTORY_WAIT))
        return err_set(&j->err, -ETIMEDOUT, "the state before is still being written");
    int r = ask(j, KEEP);
    if (r < 0)
        return r;
    j->late = j->over = j->recorded = false;
    j->edit = (struct recorded_edit){.before = gguf_ref(snapshot_own(before)),
                                     .after = gguf_ref(snapshot_own(after)),
                                     .restored = restored,
                                     .now = when_date().tv_sec};
    return 0;
}

/* Logs a failure. Call without the lock. */
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
        r = ask_to_keep(j, before, after, restored);
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
    j->late = !wait_for(j, KEEP, HISTORY_WAIT);
    int r = j->late ? err_set(&j->err, -ETIMEDOUT, "this takes over %d s; the edit does not wait",
                              HISTORY_WAIT)
                    : j->result;
    struct err e = j->err;
    lock_drop(&j->lock);
    say(j, r, &e);
}

void history_job_end(struct history_job *j, bool landed)
{
    LOCKED(&j->lock);
    if (j->waits && ((j->todo | j->doing) & KEEP)) {
        j->over = true;
    } else if (j->waits && j->recorded && ask(j, END) == 0) {
        j->landed = landed;
        j->ended_at = when_date().tv_sec;
    }
    j->waits = false;
}

int history_job_look(struct history_job *j, struct history *ret, struct err *e)
{
    *ret = HISTORY_INIT;
    if (j->why.code)
        return err_set(e, -ENOENT, "%s", j->why.msg);
    lock_take(&j->lock);
    int r = ask(j, LOOK);
    if (r == 0 && !wait_for(j, LOOK, HISTORY_SETTLE))
        r = -EIO;
    lock_drop(&j->lock);
    if (r < 0)
        return err_set(e, r, "the directory of the history does not answer");
    return history_open(ret, j->h.sys, j->h.home, j->h.model, j->h.keep, e);
}

void history_job_close(struct history_job *j)
{
    if (!j)
        return;
    lock_take(&j->lock);
    (void)wait_for(j, ALL, HISTORY_WAIT);
    drop_ref(j);
}
