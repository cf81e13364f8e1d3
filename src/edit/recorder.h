/* SPDX-License-Identifier: MIT */
/*
 * What a history learns of each edit: before it is written, and what became of it.
 *
 *     r = recorder_prepare(&rec, &edit, &e);           edit.after is not known yet
 *     r = recorder_begin(&rec, &edit, &e);
 *     ... edit_commit() ...
 *     recorder_end(&rec, true, now);
 *     recorder_settle(&rec, &e);                       later
 *
 * An edit that begins less than HISTORY_JOIN seconds after the end of the one before joins its state,
 * unless one of the two is an undo. A state whose edit never reached the file is used for the next.
 * After a kill at any moment the keys in the file are those of `before`, `landed` or `planned` of
 * the newest state (history_state.h).
 *
 * Threads: one at a time.
 */
#ifndef EDIT_RECORDER_H
#define EDIT_RECORDER_H

#include "edit/history.h"

#define HISTORY_JOIN 10 /* seconds */

struct recorder {
    struct history *h;         /* not owned */
    struct history_record rec; /* of the newest state, if `open` */
    bool open;
    bool running;      /* its last edit is being written */
    unsigned unpruned; /* states since the bounds were looked at */
    bool dirty;        /* its file does not have what became of its last edit */
    bool unsynced;     /* it was written anew, and not synced since */
    bool prepared;     /* a new state is begun: `next` */
    struct history_record next;
};

/* An edit that is about to be written. */
struct recorded_edit {
    const struct gguf *keys; /* before it */
    uint64_t before, after;  /* edit_keys_id() */
    bool undo;
    uint64_t restored; /* of an undo: the state that it goes back to */
    int64_t now;       /* seconds since 1970 */
};

/*
 * While the edit is planned: if it is to have a state of its own, that is written but for its record.
 * It is followed at once by recorder_begin() or recorder_drop(): the folder is locked. 0; -errno, which
 * is not the last word: recorder_begin() does it all.
 */
int recorder_prepare(struct recorder *r, const struct recorded_edit *edit, struct err *e);
/* Give up what is prepared, if anything is. */
void recorder_drop(struct recorder *r);
/* 0: the state is kept, durable unless `unsynced`; -errno as of history_save(). */
int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e);
/* landed: the edit is in the file. Asks nothing of the disk. */
void recorder_end(struct recorder *r, bool landed, int64_t now);
/*
 * Write what became of the last edit, sync its state, and look at the bounds, unless an edit is being
 * written: then only sync. So a state may be too much until here, or until the next is begun. Does nothing
 * while a state is prepared: the folder's lock is that state's. 0, -errno.
 */
int recorder_settle(struct recorder *r, struct err *e);
/* True if recorder_settle() has nothing to do. */
bool recorder_is_settled(const struct recorder *r);

#endif
