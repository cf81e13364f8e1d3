/* SPDX-License-Identifier: MIT */
/*
 * Drafts hold the bytes written to a file until they are accepted, shared by all handles that write
 * to it.
 *
 * A draft consists of content, a record of the writes, and a judge, which decides whether the
 * content is valid and makes it the value of the file's key (a helper may contain anything). It
 * belongs to its file, and follows it through renames, like an open file.
 *
 * It becomes the file's value at each flush or fsync after a write. If it was only truncated, it is
 * not an edit until its last writer has closed it: shells close the truncated file once before they
 * write. It is shown from the write or truncation until it is accepted or refused; then the file
 * shows the stored value, and its writers continue with the draft.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_KEY_DRAFT_H
#define LIVE_KEY_DRAFT_H

#include "live/core.h"
#include "live/draft.h"

/*
 * Add a writer, and create the draft if needed. unready: why the model cannot be edited at the
 * moment, code 0 if it can. made: the file is new, and empty whatever value its key has.
 */
int draft_join(struct live *l, struct file *f, bool truncate, bool made, const struct err *unready);
/* Remove a writer; the last one ends the draft. */
void draft_leave(struct live *l, struct file *f);
int draft_write(struct live *l, struct file *f, bool append, uint64_t off, const void *bytes,
                size_t n);
int draft_truncate(struct live *l, struct file *f, uint64_t size);
/* Accept the draft; file->promise has the edit's number. Returns 1 if an edit was made, 0 if there
 * was nothing to do, or -errno. */
int draft_settle(struct live *l, struct file *f);
/* True if other handles wrote content that is not accepted, and the closing handle wrote
 * nothing. */
bool draft_is_unjudged(const struct draft *d);

/* True if the file shows the draft, which differs from its key's value, and may become it. */
bool draft_is_shown(const struct draft *d);
/* Turn the draft of a helper into that of key x, with the value that it has now. emptied: start over. */
void draft_to_key(const struct live *l, struct draft *d, const struct name *x, bool emptied);
/* Turn a key's draft into a helper's, with this content (moved). */
void draft_to_helper(struct draft *d, struct buf *text);

/*
 * Turn a helper into a key's file, or the reverse. Helpers' bytes are counted; a draft belongs to a
 * helper only as long as its file does.
 */
void file_set_kind(struct live *l, struct file *f, enum file_kind kind);
/* Return the bytes that a file shows until they are accepted or refused, or as a helper, or NULL if
 * it shows its key's value. */
struct buf *file_bytes(struct file *f);

#endif
