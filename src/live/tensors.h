/* SPDX-License-Identifier: MIT */
/*
 * Handles the directories of editable tensors, by name; views.h handles their views. live.h
 * explains results, waits and threads. Used only if live_options.tensors is set.
 *
 * Existing tensors that a function here returns are in the newest snapshot (live_freshen()).
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/live.h"
#include "live/tensor_judge.h"

/* Facts about a tensor's directory that are not in snapshots. */
struct live_folder {
    uint64_t generation;   /* differs each time the tensor returns after a removal */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago */
    bool removed;          /* the directory is no longer visible */
    struct timespec mtime; /* tv_sec is 0 if not written in this mount */
};

/* Get the number of the tensor whose directory has this name. Returns -ENOENT if there is no such
 * tensor. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* Get the number of the tensor that had this version before a newer one; very old versions are
 * forgotten. */
int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number);
/* Get the facts about a directory, which are all zero if nothing is known. fresh: bring the newest
 * snapshot up to date for this tensor. */
int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret);

/*
 * New tensors are created by mkdir(2) and become tensors of the model once they are complete. They
 * keep their number, which is also the node number of ignored views. live_tensor_find(), _rename()
 * and _remove() also work on them.
 */
int live_tensor_make(struct live *l, const char *file, uint32_t *number);
/* True if the tensor is new and incomplete. *views: the rows of the views that were written. */
bool live_making(struct live *l, uint32_t number, uint32_t *views);
/* Get the first new tensor at or after index *i, in order of creation; *i becomes its index.
 * Returns false at the end. */
bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number);
/* Get the node number of a view that was written, which is the tensor's own number if the view is
 * ignored. Returns -ENOENT if the view was not written. */
int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
/* True if a view is ignored, in which case it counts as written from now on. */
bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum tensor_view view);
int live_making_unlink(struct live *l, uint32_t number, uint32_t row);

/* Rename a directory, with the flags of renameat2(2). Returns -ENOTEMPTY if a tensor with the new
 * name exists. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* Handle rmdir(2): remove a directory with everything in it. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view, given by its row in the directory, for a second. */
int live_view_unlink(struct live *l, uint32_t number, uint32_t row);
/* Show the view again. */
void live_view_show(struct live *l, uint32_t number, uint32_t row);

/* Handle fsync of a view that shows the stored tensor: sync the edits to the tensor, whichever
 * program made them (sync FILE). */
int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w);

/* ---- errors ---- */

/* Append to `out` the reason for the last refused edit, or nothing. The second function forgets
 * it. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);
void live_tensor_forgive(struct live *l, uint32_t number);

/* ---- for this layer: with the lock of `struct live` ---- */

struct batch;
struct draft;
struct object;

/* Find the tensor whose directory has this name, even if it is doomed. Returns -ENOENT if there is
 * no such tensor. */
int tensor_find(const struct live *l, const char *file, struct edit_tensor *ret);
/* Add the removal of the doomed tensors to the change; edit_undo() takes that back. Adds nothing if
 * no tensor would be left. Returns true if any tensors were removed. */
bool tensors_remove_doomed(struct live *l);
/* Return the tensor's object, or NULL if out of memory. */
struct object *tensor_object(struct live *l, uint32_t number);
/* Report a refused edit in the log and in user.gguf.error, unless the tensor is gone. Returns
 * e->code. */
int tensor_refused(struct live *l, struct object *o, const struct err *e);
/* Record that an operation on a tensor is part of the change; wait like writer_accepted(). */
int tensor_accepted(struct live *l, struct object *o, struct live_wait *w);
/* Accept the removals that are due. Returns 0, or the error that kept tensors from being
 * removed. */
int tensors_remove_due(struct live *l);

/* After edits were dropped, find out from the stored state which tensors exist. */
void tensors_follow(struct live *l);
/* Record that a batch was not written: its tensors show the reason, drafts based on their content
 * in this batch can no longer be accepted, and the tensors that the batch added are lost. */
void tensors_failed(struct live *l, const struct batch *b, const struct err *e);
/* Record that a batch was written: the tensors it removed are permanently gone. */
void tensors_landed(struct live *l, const struct batch *b);

/*
 * ---- new tensors ----
 *
 * Directories created in tensors/ that are not tensors yet (objects.h). Their files are drafts
 * without a base (views.h), which stay when they are closed. The writer's thread judges a directory
 * as a whole (tensor_judge.h) once no program has had a file in it open for writing for NEW_QUIET
 * seconds, or at fsync of a directory, or at the end of the mount. If it passes, it becomes a
 * tensor of the model with the same number. If a program opens or changes it in the meantime, it is
 * judged again once it is quiet.
 */

#define NEW_QUIET 2
/*
 * Milliseconds that a sync of a directory waits for closed handles to be released: the kernel sends
 * the release separately, perhaps to another thread, and a mapping may delay it further.
 */
#define NEW_RELEASE 5000

/* Free the object of a removed new tensor if it has no drafts left. */
void new_tensor_reap(struct live *l, struct object *o);
/* Note a write or the end of a writable handle. */
void new_tensor_touch(struct live *l, struct object *o);
/* Record that a handle was closed or, if `closed` is false, was written after its close. The second
 * function records its release, which follows a close if `closed` is true. */
void new_tensor_closed(struct live *l, struct object *o, bool closed);
void new_tensor_released(struct live *l, struct object *o, bool closed);
/* Parse and store a text written to `type` or `shape`. Returns 0, or -errno with a message. */
int new_tensor_text(struct live *l, const struct draft *d, const char *text, size_t n,
                    struct err *e);
/* True if all writers of a new tensor have been closed, but some have not been released yet. */
bool new_tensors_closing(const struct live *l);
/* Return the time at which the next tensor is due to be judged, or NULL. */
const struct timespec *new_tensors_due_at(const struct live *l);
/* Return the new tensor to judge next, or NULL. Skips the one being judged, even if it has been
 * written since. */
struct object *new_tensors_due(const struct live *l);
/* Judge the tensors that are due. Drops and retakes the lock. Returns 0, or the error that kept a
 * tensor from being added. */
int new_tensors_judge(struct live *l);

#endif
