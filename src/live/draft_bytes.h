/* SPDX-License-Identifier: MIT */
/*
 * The bytes of drafts of tensors and of spools: few are in memory, others in a file without a name beside
 * the model. To make such a file takes the file system longer than to write to it.
 *
 * Threads: any; one at a time makes room.
 */
#ifndef LIVE_DRAFT_BYTES_H
#define LIVE_DRAFT_BYTES_H

#include "edit/content.h"
#include "edit/file.h"

/* A draft of as many bytes is in memory, as long as EDIT_DRAFT_MEMORY suffices: one-dimensional tensors
 * of large models have no more. */
#define DRAFT_BYTES_FEW ((uint64_t)64 << 10)

static inline bool draft_bytes_in_memory(const struct edit_draft *d)
{
    return d->src.fd < 0;
}

/*
 * Room for n bytes. *ret: a draft with those of `old` (NULL: none), which may be the same one. In a file
 * that takes the place of memory they are `shift` bytes behind its begin. The caller has a reference to
 * *ret if it is another one, and gives up `old` itself. 0, -errno with a line.
 */
int draft_bytes_room(const struct edit_file *f, struct edit_draft *old, uint64_t n, uint64_t shift,
                     struct edit_draft **ret, struct err *e);
/* Write within the room. Bytes of memory are not protected here. 0, -errno. */
int draft_bytes_write(const struct edit_file *f, struct edit_draft *d, const void *bytes, size_t n,
                      uint64_t off);
/* Bytes from `off` on are zeros again. 0, -errno. */
int draft_bytes_cut(const struct edit_file *f, struct edit_draft *d, uint64_t off);

/* Bytes of a file that were written in order and are not sent to the disk yet. */
struct draft_run {
    uint64_t begin, end;
};

/* Bytes [off, end) of a draft were written. Many in order are on their way to the disk before a commit
 * waits for them. */
void draft_bytes_sent(const struct edit_file *f, struct edit_draft *d, struct draft_run *run,
                      uint64_t off, uint64_t end);

#endif
