/* SPDX-License-Identifier: MIT */
/*
 * Handles the directories of editable tensors, by name; views.h handles their views. live.h
 * explains results, waits and threads. Used only if live_options.tensors is set.
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/judge.h"
#include "live/live.h"

/* Facts about a tensor's directory that are not in snapshots. */
struct live_folder {
    uint64_t generation;   /* differs each time the tensor returns after a removal */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago, or are not made yet */
    bool removed;          /* the directory is no longer visible */
    bool making;           /* the tensor is new and incomplete */
    struct timespec mtime; /* tv_sec is 0 if not written in this mount */
};

/* Get the number of the tensor whose directory has this name. Returns -ENOENT if there is no such
 * tensor. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* Get the facts about a directory, which are all zero if nothing is known. */
void live_tensor_folder(struct live *l, uint32_t number, struct live_folder *ret);

/*
 * New tensors are created by mkdir(2) and become tensors of the model once they are complete
 * (judge.h): when for NEW_QUIET seconds no file in a directory of one was flushed, but for those that
 * owe a flush; at fsync of a directory; or at the end; but not while a type or shape is being written.
 * They keep their number. live_tensor_find(), _rename() and _remove() also work on them.
 */
#define NEW_QUIET 2
#define TENSOR_INCOMPLETE "a new tensor: it is not complete yet"
int live_tensor_make(struct live *l, const char *file, uint32_t *number);
/* Get the first new tensor at or after index *i, in order of creation; *i becomes its index.
 * Returns false at the end. */
bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number);

/* Rename a directory, with the flags of renameat2(2). Returns -ENOTEMPTY if a tensor with the new
 * name exists. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* Handle rmdir(2): remove a directory with everything in it. The removal is written two seconds
 * later. The last tensor stays (-EPERM), and all are back whose removal is not written yet. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view for a second, or until it is opened for writing; of a new tensor, drop it. */
int live_view_unlink(struct live *l, uint32_t number, enum tensor_view view);

/* Append to `out` the reason for the last refused edit, or nothing. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);

/* ---- for this layer: with the lock of `struct live` ---- */

struct edit_change;
struct request;

/* Add the removal of tensors that are gone to `c`. Returns as edit_tensor_remove(). */
int tensors_remove(const struct live *l, struct edit_change *c, struct err *e);
/* Bring all tensors back whose removal can be taken back. */
void tensors_spare_all(struct live *l);
/* Forget tensors that are gone and whose removal is written. */
void tensors_removed(struct live *l);
/* For request.apply: judge the fresh tensors that were written, and add those that are whole, in one
 * edit; if q->when is WHEN_NOW, also those that programs still write. Sets q->failed to the error of
 * one that could not be added. Returns 0. */
int tensors_add(struct live *l, struct request *q, struct err *e);

#endif
