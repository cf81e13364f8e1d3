/* SPDX-License-Identifier: MIT */
/*
 * Handles the directories of editable tensors, by name. For their views see views.h. live.h
 * explains results, waits and threads. Used only if live_options.tensors is set.
 *
 * The newest snapshot (live_freshen()) has every tensor that a function here returns.
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/live.h"
#include "live/tensor_base.h"

/* Facts about a tensor's directory that snapshots do not have. */
struct live_folder {
    uint64_t generation;   /* differs each time that it returns after a removal */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago */
    bool removed;          /* it is no longer visible */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* Get the number of the tensor whose directory has this name. Returns -ENOENT if there is none. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* Get the number of the tensor of a replaced version; very old versions are forgotten. */
int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number);
/* Get the facts about a directory, all zero if there are none. fresh: bring the newest snapshot up
 * to date for this tensor. */
int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret);

/*
 * New tensors: created by mkdir(2), they become tensors of the model when they are complete, with
 * the same number, which the nodes of ignored views have, too. live_tensor_find(), _rename() and
 * _remove() also work on them.
 */
int live_tensor_make(struct live *l, const char *file, uint32_t *number);
/* True if the tensor is new and incomplete. *views: the rows that were written. */
bool live_making(struct live *l, uint32_t number, uint32_t *views);
/*
 * Get the next new tensor from index *i on, in order of creation; *i becomes its index. Returns
 * false at the end.
 */
bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number);
/* Get the node number of a written view; if it is the tensor's own number, the view is ignored.
 * Returns -ENOENT if there is none. */
int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
/* True if a view is ignored; it then counts as written. */
bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum tensor_view view);
int live_making_unlink(struct live *l, uint32_t number, uint32_t row);

/* Rename a directory, with the flags of renameat2(2). Returns -ENOTEMPTY if a tensor with the new
 * name exists. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* Handle rmdir(2): remove a directory with everything in it. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view, a row of the directory, for a second. */
int live_view_unlink(struct live *l, uint32_t number, uint32_t row);
/* Show the view again. */
void live_view_show(struct live *l, uint32_t number, uint32_t row);

/* Handle fsync of a view that shows the stored tensor: sync the tensor's edits, whichever program
 * wrote them (sync FILE). */
int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w);

/* ---- errors ---- */

/* Append to `out` the reason why the last edit was refused, or nothing. The second function forgets
 * it. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);
void live_tensor_forgive(struct live *l, uint32_t number);

/* ---- for this layer: with the lock of `struct live` ---- */

struct batch;
struct draft;
struct object;

/* Find the tensor with this directory name, even if it is doomed. Returns -ENOENT if there is
 * none. */
int tensor_find(const struct live *l, const char *file, struct edit_tensor *ret);
/*
 * Remove the doomed tensors from the change, up to an edit_undo(); but if no tensor would be left,
 * all of them return. Returns true if it removed any.
 */
bool tensors_remove_doomed(struct live *l);
/* Return the tensor's object, or NULL without memory. */
struct object *tensor_object(struct live *l, uint32_t number);
/* Record a refused edit in the log and in user.gguf.error, unless the tensor is gone. Returns
 * e->code. */
int tensor_refused(struct live *l, struct object *o, const struct err *e);
/* Note that an operation on a tensor is part of the change now, like writer_accepted(). */
int tensor_accepted(struct live *l, struct object *o, struct live_wait *w);
/* Accept the due removals. Returns 0, or the reason why tensors returned. */
int tensors_remove_due(struct live *l);

/* Update which tensors exist from the stored state, after edits were dropped. */
void tensors_follow(struct live *l);
/* Note that drafts begun from a batch's content of its tensors can no longer be accepted. */
void tensors_lost(struct live *l, const struct batch *b);
/* Note that a batch was not written: its tensors show the reason, and those that it added are
 * lost. */
void tensors_failed(struct live *l, const struct batch *b, const struct err *e);
/* Note that a batch was written: the tensors that it removed are finally gone. Returns a list for
 * view_drafts_end(), without the lock. */
struct draft *tensors_landed(struct live *l, const struct batch *b);

/*
 * ---- new tensors: directories created in tensors/ that are not tensors yet (objects.h). Their
 * files are drafts without a base (views.h), which stay when they are closed. When no program has
 * one open for writing and NEW_QUIET seconds have passed, at fsync of a directory and at the end,
 * the writer's thread judges the directory as a whole (tensor_judge.h); then it is a tensor of the
 * model, with the same number. If a program opens or changes it meanwhile, it is judged again when
 * it is quiet ----
 */

#define NEW_QUIET 2
/*
 * Milliseconds that a sync of a directory waits for closed handles to be released: the kernel sends the release
 * separately, and another thread may receive it. A mapping may delay it further.
 */
#define NEW_RELEASE 5000

/* Free the object of a removed new tensor with its last draft. */
void new_tensor_reap(struct live *l, struct object *o);
/* Note a write, or the end of a writable handle. */
void new_tensor_touch(struct live *l, struct object *o);
/* Note that a handle was closed, or written after its close. The second function notes its release,
 * closed or not. */
void new_tensor_closed(struct live *l, struct object *o, bool closed);
void new_tensor_released(struct live *l, struct object *o, bool closed);
/* Take a text that was written to `type` or `shape`. Returns 0, or -errno with a message. */
int new_tensor_text(struct live *l, const struct draft *d, const char *text, size_t n,
                    struct err *e);
/*
 * Add a new tensor to the list of those that are due, ordered by `last`, or remove it. It is due if
 * it was written and has no writable handle; at the end of the mount, always.
 */
void new_tensor_queue(struct live *l, struct object *o);
/* Note the end of the mount. */
void new_tensors_hurry(struct live *l);
/* Return the time at which a tensor is due to be judged, or NULL. */
const struct timespec *new_tensors_due_at(const struct live *l);
bool new_tensors_due(const struct live *l);
/* Judge the due tensors. The lock is released meanwhile. Returns 0, or the reason why a tensor
 * could not be added. */
int new_tensors_judge(struct live *l);

#endif
