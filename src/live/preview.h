/* SPDX-License-Identifier: MIT */
/*
 * What a snapshot shows of tensors that are changed and not on the disk: which tensor is which
 * (model/ids.h), and a store that has their bytes.
 *
 * A batch is planned again and again; a tensor whose content is the same one as in the snapshot
 * before keeps number, version and bytes. New bytes are mapped from their draft, by whole pages; pages
 * that have others too are copies in memory. Where that would be too many, the whole tensor is copied
 * to a file without a name beside the model. Where that asks the disk it is done without the lock
 * (preview_copy.h).
 *
 * Threads: all functions are called with the lock of `struct live`, but where it says so.
 */
#ifndef LIVE_PREVIEW_H
#define LIVE_PREVIEW_H

#include "live/core.h"

/*
 * For a snapshot that was made of the plans of l->next: set its table of tensors and their ranks (the
 * plan's, which pass), and make its store. 0; -EAGAIN (copies are missing: preview_copy.h); -ENOMEM,
 * -EOVERFLOW, -errno with a line.
 */
int preview_make(struct live *l, struct parts *p, struct snapshot *snap, struct store **ret,
                 struct err *e);
/* The store of the newest snapshot again, which may be one of l->next, over base_store(). 0,
 * -ENOMEM. */
int preview_store(struct live *l, struct store **ret);
void preview_free(struct preview *p);

/*
 * Before bytes of tensors of a file are overwritten: what others still read of the store of what is on
 * the disk keeps those that it has. then: the store for when the file cannot be had (parts.h). Without
 * the lock; only the writer's thread calls it. 0, -ENOMEM, -ENOSPC, -errno.
 */
int preview_keep_old(struct live *l, uint32_t file, const struct store *then,
                     const struct edit_kept *kept, struct err *e);
/* Part of a batch is on the disk, before its store takes the place of l->store: mappings of a file that
 * goes on are kept in sight. */
void preview_landed(struct live *l, const struct batch *b, const struct batch_part *part,
                    bool replaced);
void preview_free_old(struct live *l);

#endif
