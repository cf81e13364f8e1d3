/* SPDX-License-Identifier: MIT */
/*
 * The newest state of a model, which all readers take references of.
 *
 *     newest_init(&n); n.view.snap = ...; n.view.store = ...;
 *     struct view v = newest_view(&n);     any reader; view_free(&v)
 *     newest_put_view(&n, snap, store);     the writer
 *
 * Its lock is held for a few reference counts, never while anything is rendered, measured, planned
 * or asked of the disk: it is all that a read of tensor data needs.
 *
 * Threads: any; but one at a time makes what is newest (newest_put_view), and may read
 * `view` without the lock.
 */
#ifndef MODEL_NEWEST_H
#define MODEL_NEWEST_H

#include "base/lock.h"
#include "model/snapshot.h"

struct newest {
    struct lock lock;
    struct view view;            /* references: the newest snapshot and store */
    struct timespec changed;     /* the last edit */
    const char *name;            /* what the model's file is called, not owned; or NULL */
    const struct shards *shards; /* of a split model, not owned; else NULL */
    struct image *file;          /* a reference: of the first snapshot, its own file as it was
                                    opened; NULL: replaced */
    atomic_uint numbers;         /* given out so far to tensors and their versions (ids.h) */
    /* Called under the lock before a snapshot with another table of tensors takes the place of
     * the newest: for views that are needed further on. May be NULL. */
    void (*leaving)(void *arg, const struct snapshot *next);
    void *leaving_arg;
};

void newest_init(struct newest *n);
void newest_free(struct newest *n);

/* A reference to what is newest. Free with view_free(). */
struct view newest_view(struct newest *n);
/* A view of another snapshot, with the newest store. Under the lock. */
struct view newest_view_as(const struct newest *n, struct snapshot *g);
struct timespec newest_changed(struct newest *n);

/*
 * A snapshot of what the model's file holds, or of what the files of a split model hold, in their
 * order: references, which pass in any case.
 */
int newest_make(const struct newest *n, struct gguf *const *file, uint32_t number,
                const struct timespec *mtime, struct snapshot **ret, struct err *e);
/*
 * The store of a snapshot whose first file is open as fd (which is duplicated); -1: its mapping
 * goes on. file: all files in order; the first is used for that only.
 */
int newest_make_store(const struct snapshot *g, struct mapped *const *file, int fd,
                      struct store **ret, struct err *e);

/* Put a snapshot and a store of its tensors in the place of the newest, whose references are
 * returned; these pass. */
struct view newest_put_view(struct newest *n, struct snapshot *g, struct store *s);
/* The first snapshot's file is replaced, or its tensors are changed. */
void newest_drop_file(struct newest *n);
/* Something is edited just now. */
void newest_touch(struct newest *n);

#endif
