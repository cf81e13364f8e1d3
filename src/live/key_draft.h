/* SPDX-License-Identifier: MIT */
/*
 * Drafts hold the bytes written to a file until they are accepted, shared by all handles that write
 * to it.
 *
 * A draft consists of content, a record of the writes, and a judge, which decides whether the
 * content is valid and, if so, makes it the value of the file's key (a helper may contain
 * anything). It belongs to its file and, like an open file, follows it through renames.
 *
 * A draft becomes the file's value at each flush or fsync after a write. If it was only truncated,
 * it is not an edit until its last writer has closed it: shells close the truncated file once
 * before they write. The file shows its draft from the write or truncation until that is accepted
 * or refused; from then on it shows the stored value, and its writers continue with the draft.
 *
 * Threads: call all functions with the lock of `struct live` held.
 */
#ifndef LIVE_KEY_DRAFT_H
#define LIVE_KEY_DRAFT_H

#include "live/core.h"
#include "live/draft.h"

/* Add a writer, creating the draft if needed. unready: the reason why the model cannot be edited at
 * the moment; code 0 if it can. made: the file is new, and is empty whatever value its key has. */
int draft_join(struct live *l, struct file *f, bool truncate, bool made, const struct err *unready);
/* Remove a writer; the last one ends the draft. */
void draft_leave(struct live *l, struct file *f);
int draft_write(struct live *l, struct file *f, bool append, uint64_t off, const void *bytes,
                size_t n);
int draft_truncate(struct live *l, struct file *f, uint64_t size);
/* Accept the draft; file->promise has the edit's number. Returns 1 if an edit was made, 0 if there
 * was nothing to do, or -errno. */
int draft_settle(struct live *l, struct file *f);
/* True if there is unaccepted content that was written only by handles other than the one being
 * closed. */
bool draft_is_unjudged(const struct draft *d);

/* True if the file shows the draft, which differs from its key's value but may become it. */
bool draft_is_shown(const struct draft *d);
/* Turn a helper's draft into that of key x, with the key's present value. emptied: start over. */
void draft_to_key(const struct live *l, struct draft *d, const struct name *x, bool emptied);
/* Turn a key's draft into a helper's with this content, which is moved. */
void draft_to_helper(struct draft *d, struct buf *text);

/* Turn a helper into a key's file, or vice versa. The bytes of helpers are counted, including those
 * of a draft as long as its file is a helper. */
void file_set_kind(struct live *l, struct file *f, enum file_kind kind);
/* Return the bytes that a file shows, either until they are accepted or refused or because it is a
 * helper. Returns NULL if the file shows its key's value. */
struct buf *file_bytes(struct file *f);

#endif
