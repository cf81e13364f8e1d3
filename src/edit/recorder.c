/* SPDX-License-Identifier: MIT */
/* What a history learns of each edit: see recorder.h. */
#include "edit/recorder.h"

#include <errno.h>

#define UNPRUNED_MAX 4 /* new states before the bounds are looked at, however fast they come */

/* Its edit is not in the file, and the keys are still those that it has. */
static bool is_unused(const struct history_record *r, const struct recorded_edit *edit)
{
    return history_is_void(r) && r->before == edit->before;
}

static bool continues(const struct history_record *r, const struct recorded_edit *edit)
{
    bool fits = edit->before == r->landed || edit->before == r->planned;
    return fits && !edit->undo && !r->closed && edit->now >= r->end &&
           edit->now - r->end < HISTORY_JOIN;
}

static bool joins(const struct recorder *r, const struct recorded_edit *edit)
{
    return r->open && (is_unused(&r->rec, edit) || continues(&r->rec, edit));
}

/* The newest state, as another process may have left it. One that cannot be read is not joined. */
static void look_up(struct recorder *r)
{
    CLEANUP(history_list_free) struct history_list l = HISTORY_LIST_INIT;
    r->open = history_list(r->h, &l, NULL) == 0 && l.n > 0 &&
              history_read_listed(r->h, &l.name[l.n - 1], &r->rec, NULL, NULL) == 0;
}

static int join(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    struct history_record rec = r->rec;
    if (is_unused(&rec, edit)) {
        rec.closed = edit->undo;
        rec.restored = edit->restored;
    }
    rec.landed = edit->before;
    rec.planned = edit->after;
    int done = history_update(r->h, &rec, e);
    r->open = done == 0;
    if (done == 0) {
        r->rec = rec;
        r->unsynced = r->running = true;
        r->dirty = false;
    }
    return done;
}

/* What became of the last edit. */
static int write_down(struct recorder *r, struct err *e)
{
    if (!r->open || !r->dirty)
        return 0;
    r->dirty = false;
    int done = history_update(r->h, &r->rec, e);
    r->open = done == 0;
    return done;
}

static int prune(struct recorder *r, struct err *e)
{
    r->unpruned = 0;
    return history_prune(r->h, &r->rec, e);
}

static int begin_state(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    (void)write_down(r, NULL); /* it is the newest for the last time */
    if (r->unpruned >= UNPRUNED_MAX)
        (void)prune(r, NULL);
    r->next = (struct history_record){.begin = edit->now};
    int done = history_begin(r->h, &r->next, edit->keys, e);
    r->prepared = done == 0;
    return done;
}

int recorder_prepare(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    if (!r->open)
        look_up(r);
    return joins(r, edit) ? 0 : begin_state(r, edit, e);
}

void recorder_drop(struct recorder *r)
{
    if (r->prepared)
        history_drop(r->h);
    r->prepared = false;
}

static int keep(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    int done = r->prepared ? 0 : begin_state(r, edit, e);
    struct history_record rec = r->next;
    rec.restored = edit->restored;
    rec.closed = edit->undo;
    rec.end = rec.begin;
    rec.before = rec.landed = edit->before;
    rec.planned = edit->after;
    if (done == 0)
        done = history_finish(r->h, &rec, e);
    r->prepared = false;
    r->open = r->running = done == 0;
    r->unpruned += done == 0;
    r->rec = rec;
    r->unsynced = r->dirty = false;
    return done;
}

int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    if (!r->open && !r->prepared)
        look_up(r);
    if (!r->prepared && joins(r, edit) && join(r, edit, NULL) == 0)
        return 0;
    return keep(r, edit, e);
}

void recorder_end(struct recorder *r, bool landed, int64_t now)
{
    if (!r->open || !r->running)
        return;
    if (landed) {
        r->rec.landed = r->rec.planned;
        r->rec.end = now;
    } else {
        r->rec.planned = r->rec.landed;
    }
    r->dirty = true;
    r->running = false;
}

bool recorder_is_settled(const struct recorder *r)
{
    return r->prepared || (!(r->open && r->unsynced) && (r->running || !(r->dirty || r->unpruned)));
}

int recorder_settle(struct recorder *r, struct err *e)
{
    if (r->prepared)
        return 0;
    int done = write_down(r, e);
    bool due = r->open && r->unsynced, too_many = r->unpruned && !r->running;
    r->unsynced = false;
    if (due && done == 0)
        done = history_sync(r->h, &r->rec, e);
    int pruned = too_many ? prune(r, done == 0 ? e : NULL) : 0;
    return done < 0 ? done : pruned;
}
