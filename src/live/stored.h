/* SPDX-License-Identifier: MIT */
/*
 * What the model, with all edits accepted, has of a key, and what the key's name shows of it.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_STORED_H
#define LIVE_STORED_H

#include "live/draft.h"

bool stored_has(const struct live *l, const struct name *x);
/* The value: references for shown_free(). */
struct shown stored_value(const struct live *l, const struct name *x);
/* The rank of a key that is stored. */
uint64_t stored_rank(const struct live *l, const struct name *x);
/* The type that a value is to have: as far as the name has it; and as far as it is known before
 * there is a text. */
struct typed stored_wanted_type(const struct name *x);
struct typed stored_known_type(const struct live *l, const struct name *x);

/* A value was refused: for the log and for user.gguf.error. Returns e->code. */
int name_refused(struct live *l, struct name *x, const struct err *e);
/* A key that the model does not have is visible only while it is written. */
void name_hide(struct live *l, struct name *x);
/* Edits were given up: what a name shows follows from whether the model has the key. */
void name_follow(struct live *l, struct name *x);

#endif
