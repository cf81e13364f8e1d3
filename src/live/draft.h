/* SPDX-License-Identifier: MIT */
/* The text of a file in metadata/ that is open for writing (struct draft). */
#ifndef LIVE_DRAFT_H
#define LIVE_DRAFT_H

#include "live/state.h"

/* Make an empty draft. Returns NULL if out of memory. */
struct draft *draft_new(void);
void draft_free(struct draft *d); /* may be NULL */

/* True if the file shows this text rather than a stored value. d may be NULL. */
static inline bool draft_is_shown(const struct draft *d)
{
    return d && (d->state == DRAFT_EMPTIED || d->state == DRAFT_WRITTEN);
}

/* True if its writers have flushed and it was judged: its last release may come late, and who opens
 * the file anew begins with the stored value. */
static inline bool draft_is_over(const struct draft *d)
{
    return !d->dirty && (d->state == DRAFT_CLEAN || d->state == DRAFT_REFUSED);
}

/* The text was replaced by that of the file. */
void draft_restart(struct draft *d);
void draft_empty(struct draft *d);
/* Write n bytes at `off`; bytes before it that were never written become zeros. Returns 0 or
 * -ENOMEM. */
int draft_write(struct draft *d, uint64_t off, const void *bytes, size_t n);
int draft_resize(struct draft *d, uint64_t size);
/* This version of the text was accepted, as this type if that was set. */
void draft_accepted(struct draft *d, uint64_t version, const struct typed *as);
void draft_refused(struct draft *d, const struct err *e);
/* Return the error with which the last write of a handle was refused, or 0. */
static inline int draft_refusal(const struct draft *d, uint64_t version)
{
    return version >= d->refused.from && version <= d->refused.upto ? d->refused.why : 0;
}

#endif
