/* SPDX-License-Identifier: MIT */
/*
 * Drafts: what is written to a file until it is accepted, shared by all handles that write it.
 *
 * A draft is content, which of it was written, and a judge: it decides what the content may be, and
 * makes it the value of the file's key (a key's text; in a helper anything). It
 * belongs to its file, and follows it through renames, as an open file does.
 *
 * It becomes the file's value at each flush or fsync after something was written. One that was only
 * truncated is not an edit until its last writer has closed it: shells close the truncated file
 * once before they write. It is shown from when it is written or truncated until it is accepted or
 * refused; from then on the file shows what is stored, and the draft is what its writers go on
 * with.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_KEY_DRAFT_H
#define LIVE_KEY_DRAFT_H

#include "live/core.h"
#include "live/draft.h"

/* One more writer; makes the draft if needed. unready: why the model cannot be edited just
 * now, code 0 if it can. made: the file is new, and empty whatever its key has. */
int draft_join(struct live *l, struct file *f, bool truncate, bool made, const struct err *unready);
/* A writer goes; with the last one the draft ends. */
void draft_leave(struct live *l, struct file *f);
int draft_write(struct live *l, struct file *f, bool append, uint64_t off, const void *bytes,
                size_t n);
int draft_truncate(struct live *l, struct file *f, uint64_t size);
/* Accept what was written; file->promise has its number. 1: there was an edit; 0: there was none; -errno. */
int draft_settle(struct live *l, struct file *f);
/* What was written and not accepted is of other handles than one that did not write. */
bool draft_is_unjudged(const struct draft *d);

/* It is shown: it holds what the file's key does not, and may become its value. */
bool draft_is_shown(const struct draft *d);
/* A helper's draft is a key's from now on, which had `before` (moved). empty: it begins anew. */
void draft_to_key(struct draft *d, struct shown *before, bool empty);
/* A key's draft is a helper's from now on, with this content (moved). */
void draft_to_helper(struct draft *d, struct buf *text);

/* A helper becomes a key's, or the other way round. Helpers' bytes are counted; a draft is a helper's
 * only as long as its file is. */
void file_set_kind(struct live *l, struct file *f, enum file_kind kind);
/* The bytes that a file shows until they are accepted or refused, or as a helper; NULL: those of its
 * key. */
struct buf *file_bytes(struct file *f);

#endif
