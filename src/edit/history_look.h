/* SPDX-License-Identifier: MIT */
/*
 * A history for people: its states as text, and the one that an undo means.
 *
 * Threads: one at a time.
 */
#ifndef EDIT_HISTORY_LOOK_H
#define EDIT_HISTORY_LOOK_H

#include "edit/history.h"

/*
 * A line for each state, oldest first: its number, when its first edit was made, and what the edits
 * after it changed, up to the next state or, for the last, up to `now`, the model's present keys.
 * A state whose edits changed nothing has no line; a damaged one says so. 0, -errno.
 */
int history_text(struct history *h, const struct gguf *now, struct buf *out, struct err *e);

/* The differences of two models' keys in a few words: "general.name changed, a.b added". */
void history_describe(const struct gguf *from, const struct gguf *to, struct buf *out);

struct history_pick {
    struct history_record rec;
    struct gguf *keys; /* owned; history_pick_free() */
    bool fits;         /* the present keys are those that the last recorded edit left */
};

#define HISTORY_PICK_INIT ((struct history_pick){0})

/*
 * The state that an undo restores: `number`, or for 0 the last one whose edits changed something.
 * now: the present keys. 0; -ENOENT (no such state), -ESTALE (number 0, and the present keys are
 * not those that the last recorded edit left), -EBADMSG (damaged), -errno.
 */
int history_pick(struct history *h, uint64_t number, const struct gguf *now,
                 struct history_pick *ret, struct err *e);
void history_pick_free(struct history_pick *p);

/* Of a state that was restored although it does not fit. */
#define HISTORY_FOREIGN \
    "the keys were not those that the last recorded edit left: another program changed the file"

#endif
