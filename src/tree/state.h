/* SPDX-License-Identifier: MIT */
/*
 * What `info` says of the mount: pending edits, refused writes, whether the model's file changed
 * behind the mount. All of it may change while the generation stays. So the state is taken when the
 * name `info` is looked up, and kept with the node (held.h): each state is a file of its own, whose
 * text and size never change.
 *
 * Threads: any.
 */
#ifndef TREE_STATE_H
#define TREE_STATE_H

#include <stdint.h>

#include "base/buf.h"

struct tree;

/* The state of the mount as a number. Takes the tree's lock; asks the disk without it. */
uint32_t state_now(struct tree *t);

/* What people ask about the mount: how to save a copy, and the state, as the last line:
 * "mount:          read-write; 2 edits are not written yet\n". */
void state_text(const struct tree *t, uint32_t state, struct buf *out);

#endif
