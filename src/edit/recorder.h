/* SPDX-License-Identifier: MIT */
/*
 * What a history learns of each edit: before it is written, and what became of it.
 *
 *     r = recorder_begin(&rec, &edit, &body, &e);      -EAGAIN: again, with a body
 *     ... edit_commit() ...
 *     recorder_end(&rec, true, now, &e);
 *     recorder_sync(&rec, &e);                         beside other work
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
    bool unsynced; /* it was written anew, and not synced since */
};

/* An edit that is about to be written. */
struct recorded_edit {
    uint64_t before, after; /* edit_keys_id() */
    bool undo;
    uint64_t restored; /* of an undo: the state that it goes back to */
    int64_t now;       /* seconds since 1970 */
};

/* The keys before it, ready to be kept: history_body() of them. */
struct recorded_body {
    struct history_record rec; /* path_len, image_len, sum */
    struct buf bytes;          /* owned */
};

#define RECORDED_BODY_INIT ((struct recorded_body){.bytes = BUF_INIT})

/* 0, -ENOMEM. */
int recorded_body_make(struct recorded_body *ret, const struct history *h, const struct gguf *g);
void recorded_body_free(struct recorded_body *b);

/* True if the edit joins the state that is known to be the newest, so that no body is needed. */
bool recorder_joins(const struct recorder *r, const struct recorded_edit *edit);

/*
 * body NULL: the caller thinks that the edit joins (recorder_joins()). 0: the state is kept, durable
 * unless `unsynced`; -EAGAIN (a body is needed), -errno as of history_save().
 */
int recorder_begin(struct recorder *r, const struct recorded_edit *edit,
                   const struct recorded_body *body, struct err *e);
/* landed: the edit is in the file. 0, -errno. */
int recorder_end(struct recorder *r, bool landed, int64_t now, struct err *e);
int recorder_sync(struct recorder *r, struct err *e);

#endif
