/* SPDX-License-Identifier: MIT */
/* What a history learns of each edit: see recorder.h. */
#include "edit/recorder.h"

#include <errno.h>

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
              history_read(r->h, l.number[l.n - 1], &r->rec, NULL, NULL) == 0;
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
        r->unsynced = true;
    }
    return done;
}

static int keep(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    struct history_record rec = {.restored = edit->restored, .closed = edit->undo};
    rec.begin = rec.end = edit->now;
    rec.before = rec.landed = edit->before;
    rec.planned = edit->after;
    int done = history_save(r->h, &rec, edit->keys, e);
    r->open = r->fresh = done == 0;
    r->rec = rec;
    r->unsynced = false;
    return done;
}

int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e)
{
    if (!r->open)
        look_up(r);
    if (joins(r, edit) && join(r, edit, NULL) == 0)
        return 0;
    return keep(r, edit, e);
}

int recorder_end(struct recorder *r, bool landed, int64_t now, struct err *e)
{
    if (!r->open)
        return 0;
    if (landed) {
        r->rec.landed = r->rec.planned;
        r->rec.end = now;
    } else {
        r->rec.planned = r->rec.landed;
    }
    int done = history_update(r->h, &r->rec, e);
    r->open = done == 0;
    if (r->fresh && done == 0)
        done = history_prune(r->h, &r->rec, e);
    r->fresh = false;
    return done;
}

int recorder_sync(struct recorder *r, struct err *e)
{
    bool due = r->open && r->unsynced;
    r->unsynced = false;
    return due ? history_sync(r->h, &r->rec, e) : 0;
}
