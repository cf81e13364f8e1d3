/* SPDX-License-Identifier: MIT */
/*
 * What a history learns of each edit: before it is written, and what became of it.
 *
 *     r = recorder_begin(&rec, &edit, &e);
 *     ... edit_commit() ...
 *     recorder_end(&rec, true, now, &e);
 *     recorder_sync(&rec, &e);                         later
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
    bool fresh;    /* it was made for the present edit: the bounds are not looked at yet */
    bool unsynced; /* it was written anew, and not synced since */
};

/* An edit that is about to be written. */
struct recorded_edit {
    const struct gguf *keys; /* before it */
    uint64_t before, after;  /* edit_keys_id() */
    bool undo;
    uint64_t restored; /* of an undo: the state that it goes back to */
    int64_t now;       /* seconds since 1970 */
};

/* 0: the state is kept, durable unless `unsynced`; -errno as of history_save(). */
int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e);
/* landed: the edit is in the file. 0, -errno. */
int recorder_end(struct recorder *r, bool landed, int64_t now, struct err *e);
int recorder_sync(struct recorder *r, struct err *e);

#endif
