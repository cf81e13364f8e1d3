/* SPDX-License-Identifier: MIT */
/* Texts of metadata/ that are being written, and how they become values of keys. live.h explains
 * results, waits and threads. */
#ifndef LIVE_VALUE_H
#define LIVE_VALUE_H

#include "base/err.h"
#include "edit/change.h"
#include "text/name.h"

struct file;
struct live;
struct live_file;
struct live_wait;
struct name;
struct request;
struct typed;

/* Write to a file. Returns -EBADF if it is not open for writing. */
int live_write(struct live *l, struct live_file *f, uint64_t off, const void *bytes, size_t n);
/* Truncate a file. f may be NULL, for truncate(2). */
int live_truncate(struct live *l, uint32_t number, struct live_file *f, uint64_t size,
                  struct live_wait *w);
/* Judge what was written to a file. sync: also write everything that was accepted. */
int live_flush(struct live *l, struct live_file *f, bool sync, struct live_wait *w);
/* Write everything that was accepted, after new tensors were judged. */
int live_fsync(struct live *l, struct live_wait *w);
void live_release(struct live *l, struct live_file *f);
/* Set a file's type, given by name. Returns -EINVAL if there is no such type or if the value does
 * not fit it. */
int live_retype(struct live *l, uint32_t number, const void *type, size_t n, struct live_wait *w);

/* ---- for this layer: with the lock of `struct live` held ---- */

/* True if the accepted state has the key, even if its name is hidden, but not if it is gone. */
bool value_is_stored(const struct live *l, const struct name *x);
/* Return the key's value in the accepted state, which the caller frees with shown_free(). */
struct shown value_stored(const struct live *l, const struct name *x);
/* Append the stored text of a key, if it has a value. Drops the lock meanwhile. Returns 0 or -ENOMEM. */
int value_text(struct live *l, const struct name *x, struct buf *out);
/* Make q->text the value of a key in l->pending. Drops the lock meanwhile. Returns as
 * request.apply(). */
int value_accept(struct live *l, struct request *q, const struct name *x, struct err *e);

/* True if the file shows its draft rather than a stored value. */
bool draft_is_shown(const struct file *f);
/* End a draft that was judged and that all its writers have flushed, for somebody else. */
void draft_pass_on(struct live *l, struct file *f);
/* Open a file for writing. unready: why edits are refused, or 0. */
int draft_open(struct live *l, struct file *f, const struct err *unready);
/* What was written is dropped, and the stored text counts. Also the end of a draft that nobody needs. */
void draft_restart(struct live *l, struct file *f);
/* Have the draft of a key begin with the stored text if it has none, before it is used at `off`.
 * DRAFT_ANEW: also if its text was refused. Returns 0, 1 if that dropped the lock, or -ENOMEM. */
#define DRAFT_ANEW UINT64_MAX
int draft_load(struct live *l, struct file *f, uint64_t off);
void draft_empty(struct live *l, struct live_file *h);
/* A version of the text was accepted, as this type if that was set; UINT64_MAX: another value. */
void draft_accepted(struct file *f, uint64_t version, const struct typed *as);
/* A file has no writers. What no flush has judged, because its program was killed or its wait was
 * interrupted, is judged now; the draft stays until then. w: who waits, or NULL. */
int draft_judge_rest(struct live *l, struct file *f, struct live_wait *w);

#endif
