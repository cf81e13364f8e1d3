/* SPDX-License-Identifier: MIT */
/*
 * A file without a name beside the model, to which new bytes of tensors are appended: what was
 * appended never changes, and stays for as long as a draft of it lives.
 *
 *     r = spool_begin(&s, f, &e);
 *     at = spool_take(&s, n);                      any thread, until spool_end()
 *     r = spool_put(&s, at, bytes, n, &e);         the same
 *     r = spool_end(&s, &draft, &e);               or spool_back(&s)
 *     spool_free(&s);
 *
 * A new file is begun when the last one has grown large, so that a file whose bytes nothing needs
 * any more gives its room back.
 *
 * Threads: one at a time, but where it says so.
 */
#ifndef LIVE_SPOOL_H
#define LIVE_SPOOL_H

#include "edit/content.h"
#include "edit/file.h"

struct spool {
    const struct edit_file *f;
    struct edit_draft *file; /* a reference; NULL: none yet */
    _Atomic(uint64_t) end;   /* bytes that are taken, or set aside */
    _Atomic(uint64_t) used;  /* those that are taken or filled */
    uint64_t begun;          /* end at spool_begin() */
};

#define SPOOL_INIT ((struct spool){0})

/* f must outlive it. 0, -errno. */
int spool_begin(struct spool *s, const struct edit_file *f, struct err *e);
/* Room for n bytes. What has a page's length or more begins at a page. */
uint64_t spool_take(struct spool *s, uint64_t n);
/* 0, -ENOSPC, -errno. */
int spool_put(const struct spool *s, uint64_t at, const void *bytes, size_t n);
/*
 * Set n bytes aside, to be filled in part: what continues in them continues in the file. They begin
 * `phase` bytes behind the start of a page, so that they can be mapped, and cloned, where the same is
 * true of what they are to replace. What is not filled is a hole.
 */
uint64_t spool_reserve(struct spool *s, uint64_t n, uint64_t phase);
/* Put bytes there. As spool_put(). */
int spool_fill(struct spool *s, uint64_t at, const void *bytes, size_t n);
/* A draft of all bytes of the file. 0, -ENOMEM. */
int spool_end(struct spool *s, struct edit_draft **ret);
/* What was put since spool_begin() is dropped. */
void spool_back(struct spool *s);
void spool_free(struct spool *s);

#endif
