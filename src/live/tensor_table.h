/* SPDX-License-Identifier: MIT */
/*
 * What a snapshot of accepted edits has of tensors: which tensor is which (model/ids.h), and a store in which
 * bytes that are not on the disk lie over those that are (model/store.h).
 *
 * A batch is planned again and again; a tensor whose content is the same one as in the snapshot before
 * keeps number and version. Nothing is copied, and no disk is asked.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_TENSOR_TABLE_H
#define LIVE_TENSOR_TABLE_H

#include "live/core.h"

/*
 * For a snapshot that was made of the plans of l->next: set its table of tensors and their ranks (the
 * plan's, which pass), and make its store. hides: it is without tensors that are DOOMED and may come back, which
 * then have the same numbers and versions. 0; -ENOMEM, -EOVERFLOW, -EINVAL with a line.
 */
int tensor_table_make(struct live *l, struct edit_plan *p, struct snapshot *snap, bool hides,
                      struct store **ret, struct err *e);
/* The store of the newest snapshot again, which may be one of l->next, over base_store(). 0,
 * -ENOMEM. */
int tensor_table_store(struct live *l, struct store **ret);
/*
 * The batch `next` is lost, and with it `flight` (or NULL), which was being written: each tensor of l->disk that they
 * were to change gets a new version. The kernel may have kept what was written to its views, or read while it was overwritten. 0,
 * -ENOMEM, -EOVERFLOW.
 */
int tensor_table_renew(struct live *l, const struct batch *next, const struct batch *flight);
void tensor_table_free(struct tensor_table *p);

#endif
