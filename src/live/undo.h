/* SPDX-License-Identifier: MIT */
/* Restores and shows the states of the history. live.h explains results, waits and threads. */
#ifndef LIVE_UNDO_H
#define LIVE_UNDO_H

#include "base/buf.h"
#include "base/err.h"

struct live;
struct live_wait;

/*
 * Restore all keys to a state from the history; number 0 means the state before the last edits.
 * This is one edit, written immediately in any commit mode, with all pending edits before it.
 * live_undo_said() reports the result.
 */
int live_undo(struct live *l, uint64_t number, struct live_wait *w);
/* Write a line about the last live_undo(), if any. Returns 0 or -ENOMEM. */
int live_undo_said(struct live *l, struct buf *out);

#endif
