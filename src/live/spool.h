/* SPDX-License-Identifier: MIT */
/*
 * New bytes of tensors, appended to a file without a name beside the model: what was appended never
 * changes, and stays for as long as a draft of it lives. Few bytes are in memory (draft_bytes.h), each
 * time in another.
 *
 *     spool_begin(&s, f);
 *     r = spool_take(&s, n, &at, &e);
 *     r = spool_put(&s, at, bytes, n);             any thread, until spool_end()
 *     r = spool_end(&s, &draft);                   or spool_back(&s)
 *     spool_free(&s);
 *
 * A new file is begun when the last one has grown large, so that a file whose bytes nothing needs
 * any more gives its room back.
 *
 * Threads: one at a time, but where it says so.
 */
#ifndef LIVE_SPOOL_H
#define LIVE_SPOOL_H

#include "live/draft_bytes.h"

struct spool {
    const struct edit_file *f;
    struct edit_draft *to;  /* a reference; NULL: none yet */
    uint64_t end;           /* bytes that are taken, or set aside */
    _Atomic(uint64_t) used; /* those that are taken or filled */
    uint64_t begun;         /* end at spool_begin() */
};

#define SPOOL_INIT ((struct spool){0})

/* f must outlive it. */
void spool_begin(struct spool *s, const struct edit_file *f);
/* Room for n bytes at *at. What has a page's length or more begins at a page of the file. 0, -errno with
 * a line. */
int spool_take(struct spool *s, uint64_t n, uint64_t *at, struct err *e);
/* Any thread. 0, -ENOSPC, -errno. */
int spool_put(const struct spool *s, uint64_t at, const void *bytes, size_t n);
/*
 * Set n bytes aside, to be filled in part: what continues in them continues in the file. They begin
 * `phase` bytes behind the start of a page of it, so that they can be mapped, and cloned, where the same is
 * true of what they are to replace. What is not filled is a hole. As spool_take().
 */
int spool_reserve(struct spool *s, uint64_t n, uint64_t phase, uint64_t *at, struct err *e);
/* Put bytes there. As spool_put(). */
int spool_fill(struct spool *s, uint64_t at, const void *bytes, size_t n);
/* A draft of all bytes that were taken: at least one. 0, -ENOMEM. */
int spool_end(struct spool *s, struct edit_draft **ret);
/* What was put since spool_begin() is dropped. */
void spool_back(struct spool *s);
void spool_free(struct spool *s);

#endif
