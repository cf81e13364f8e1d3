/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited: their directories, by name. For their views see views.h. What live.h says about
 * results, waits and threads applies here too. Only if live_options.tensors is set.
 *
 * The newest snapshot (live_freshen()) has every tensor that a function here returns.
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/live.h"
#include "live/tensor_base.h"

/* What is known about a tensor's directory in addition to what snapshots have for the tensor. */
struct live_folder {
    uint64_t generation;   /* differs each time it comes back after a removal */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago */
    bool removed;          /* it is no longer shown */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The number of the tensor whose directory has this name. -ENOENT. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* The same for a replaced version; very old versions are forgotten. */
int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number);
/* What is known about it; all zero if nothing is. fresh: bring the newest snapshot up to date for this tensor. */
int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret);

/*
 * Tensors being made: created by mkdir(2), they become tensors of the model when they are complete, with the same
 * number, which the nodes of ignored views have, too. live_tensor_find(), _rename() and _remove() work on them as
 * well.
 */
int live_tensor_make(struct live *l, const char *file, uint32_t *number);
/* True if it is still being made. *views: the rows that were written. */
bool live_making(struct live *l, uint32_t number, uint32_t *views);
/*
 * From index *i on, the next of them, in the order in which they were made; *i becomes its index. False: there are no
 * more.
 */
bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number);
/* The node number of a written view; if it is the tensor's own number, the view is ignored. -ENOENT. */
int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
/* True if a view is ignored; it then counts as written. */
bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum tensor_view view);
int live_making_unlink(struct live *l, uint32_t number, uint32_t row);

/* flags as for renameat2(2). -ENOTEMPTY: a tensor with the new name exists. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* rmdir(2): removes it with everything in it. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view, a row of the directory, for a second. */
int live_view_unlink(struct live *l, uint32_t number, uint32_t row);
/* It is visible again. */
void live_view_show(struct live *l, uint32_t number, uint32_t row);

/* fsync of a view that shows what is stored: syncs whatever the tensor has, whichever program wrote it (sync FILE). */
int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w);

/* ---- errors ---- */

/* Append to `out` why the last edit was refused: nothing if it was not. And forget it. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);
void live_tensor_forgive(struct live *l, uint32_t number);

/* ---- of this layer: with the lock of `struct live` ---- */

struct batch;
struct draft;
struct object;

/* The tensor with this directory name, even if it is doomed. -ENOENT. */
int tensor_find(const struct live *l, const char *file, struct edit_tensor *ret);
/*
 * Remove the doomed tensors from the change, up to an edit_undo(); but not if no tensor would be left, because then
 * all of them come back. True if it removed any.
 */
bool tensors_remove_doomed(struct live *l);
/* Its object. NULL: no memory. */
struct object *tensor_object(struct live *l, uint32_t number);
/* Record a refused edit in the log and in user.gguf.error, unless the tensor is gone. Returns e->code. */
int tensor_refused(struct live *l, struct object *o, const struct err *e);
/* An operation on a tensor is part of the change now. Like writer_accepted(). */
int tensor_accepted(struct live *l, struct object *o, struct live_wait *w);
/* Accept the removals that are due. 0, or why tensors came back. */
int tensors_remove_due(struct live *l);

/* Edits were given up: which tensors exist is derived from what is stored now. */
void tensors_follow(struct live *l);
/* Drafts begun from what a batch gave its tensors can no longer be accepted. */
void tensors_lost(struct live *l, const struct batch *b);
/* A batch was not written: the tensors that it names show why, and those that it added are lost. */
void tensors_failed(struct live *l, const struct batch *b, const struct err *e);
/* It was written: what it removed is gone for good. Returns a list for view_drafts_end(), without the lock. */
struct draft *tensors_landed(struct live *l, const struct batch *b);

/*
 * ---- new tensors: directories made in tensors/ that are not tensors yet (objects.h). Their files are drafts without
 * a base (views.h), which stay when they are closed. When no program has one open for writing and NEW_QUIET seconds
 * have passed, at fsync of a directory and at the end, the writer's thread judges it as a whole (tensor_judge.h); then
 * it is a tensor of the model, with the same number. If a program opens or changes it meanwhile, it is judged again
 * once it is quiet ----
 */

#define NEW_QUIET 2
/*
 * Milliseconds that a sync of a directory waits for closed handles to be released: the kernel sends the release
 * separately, and another thread may receive it. A mapping may delay it further.
 */
#define NEW_RELEASE 5000

/* What is known about a removed one goes with its last draft. */
void new_tensor_reap(struct live *l, struct object *o);
/* Something was written, or a writable handle is gone. */
void new_tensor_touch(struct live *l, struct object *o);
/* One of its handles was closed, or written after it was; and is released, closed or not. */
void new_tensor_closed(struct live *l, struct object *o, bool closed);
void new_tensor_released(struct live *l, struct object *o, bool closed);
/* A text was written to `type` or `shape`. 0, -errno with a line. */
int new_tensor_text(struct live *l, const struct draft *d, const char *text, size_t n,
                    struct err *e);
/*
 * Its handles, or the end of the mount, may change whether it is due: a list, ordered by `last`, has those that were
 * written and have no writable handle, or at the end all of them.
 */
void new_tensor_queue(struct live *l, struct object *o);
/* The end of the mount has come. */
void new_tensors_hurry(struct live *l);
/* When one is due to be judged; NULL: none. */
const struct timespec *new_tensors_due_at(const struct live *l);
bool new_tensors_due(const struct live *l);
/* Judge what is due. The lock is released meanwhile. 0, or why one could not be added. */
int new_tensors_judge(struct live *l);

#endif
