/* SPDX-License-Identifier: MIT */
/*
 * What a batch makes of each file of the model: planned, shown as a whole, and one after another on
 * the disk. A model that is not split has one file and one part.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_PARTS_H
#define LIVE_PARTS_H

#include "live/core.h"

/* Plan each file that the next batch changes. 0, -errno with a line. */
int parts_plan(struct live *l, struct parts *ret, struct err *e);
void parts_free(struct parts *p);

/* A snapshot of the base with the new content of each file that was planned, which passes from the
 * plans to it; without what a snapshot has of tensors (preview.h). 0, -errno with a line. */
int parts_snapshot(struct live *l, struct parts *p, struct snapshot **ret, struct err *e);

/*
 * The model once part i of what is in flight is on the disk too: all is made before that, so that
 * nothing can fail behind it. The store is for when the new file cannot be had: it has the old one, and
 * what was changed of it in drafts.
 */
struct part_state {
    struct snapshot *snap; /* a reference */
    struct store *store;   /* the same */
};
int part_state_make(struct live *l, size_t i, struct part_state *ret, struct err *e);

/* Part i is on the disk. s: its store; its reference passes to the part. NULL: the store could not be
 * made, or is the same. `old` returns what is retired; any member may be NULL. */
struct parts_retired {
    struct snapshot *snap;
    struct store *store[3];
};
void part_landed(struct live *l, size_t i, struct part_state *state, struct store *s,
                 struct parts_retired *old);
void parts_retire(struct parts_retired *r);

#endif
