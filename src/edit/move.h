/* SPDX-License-Identifier: MIT */
/*
 * The segments of a plan carried out: tensor data from the old file into the new one. Private to
 * the edit layer.
 */
#ifndef EDIT_MOVE_H
#define EDIT_MOVE_H

#include "edit/commit.h"

struct move {
    const struct sys *sys;
    const struct edit_plan *plan;
    const struct edit_hooks *hooks; /* may be NULL */
    int from, to;
    bool clones;   /* whole blocks of drafts are cloned, too */
    uint64_t done; /* bytes of data, holes included */
    uint64_t total;
};

/*
 * Give `to` (empty) its size, the new header and all data; clone: with whole blocks of old data cloned. Holes of the
 * old file stay holes. 0, -errno; -EOPNOTSUPP: cannot be cloned.
 */
int move_plan(struct move *m, bool clone, struct err *e);

/* Give `to` (empty) all `size` bytes of `from`, without a plan. As move_plan(). */
int move_file(struct move *m, uint64_t size, struct err *e);

/* 0 if all padding of the plan is zero in the old file `from` at the same place, else -EOPNOTSUPP. */
int move_check_padding(const struct sys *s, const struct edit_plan *p, int from, struct err *e);

#endif
