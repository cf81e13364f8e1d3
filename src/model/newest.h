/* SPDX-License-Identifier: MIT */
/*
 * The newest state of a model, to which all readers take references.
 *
 *     newest_init(&n); n.view.snap = ...; n.view.store = ...;
 *     struct view v = newest_view(&n);     any reader; view_free(&v)
 *     newest_put_view(&n, snap, store);     the writer
 *
 * Its lock is held for a few reference counts, never while anything is rendered, measured, planned or read from disk:
 * a read of tensor data takes no other lock.
 *
 * Threads: any; but only one thread at a time changes what is newest (newest_put_view), and that one may read `view`
 * without the lock.
 */
#ifndef MODEL_NEWEST_H
#define MODEL_NEWEST_H

#include "base/lock.h"
#include "model/snapshot.h"

struct newest {
    struct lock lock;
    struct view view;            /* references: the newest snapshot and store */
    struct timespec changed;     /* the last edit */
    const char *name;            /* the name of the model's file, not owned; or NULL */
    const struct shards *shards; /* for a split model, not owned; else NULL */
    /* a reference to the first snapshot's file as it was opened; NULL: replaced */
    struct image *file;
    atomic_uint numbers; /* given out so far to tensors and versions (ids.h) */
    /*
     * Called under the lock before a snapshot with another table of tensors replaces the newest, so that views still
     * needed can be kept. May be NULL.
     */
    void (*leaving)(void *arg, const struct snapshot *next);
    void *leaving_arg;
};

void newest_init(struct newest *n);
void newest_free(struct newest *n);

/* A reference to the newest view. Free it with view_free(). */
struct view newest_view(struct newest *n);
/* A view of another snapshot, with the newest store. Under the lock. */
struct view newest_view_as(const struct newest *n, struct snapshot *g);
struct timespec newest_changed(struct newest *n);

/*
 * A snapshot of what the model's file, or each file of a split model in order, holds. Takes over the references in
 * `file` even if it fails.
 */
int newest_make(const struct newest *n, struct gguf *const *file, uint32_t number,
                const struct timespec *mtime, struct snapshot **ret, struct err *e);
/*
 * The store of a snapshot whose first file is open as fd (which is duplicated); -1: keep the present mapping. file:
 * all files in order; the first is used for nothing else.
 */
int newest_make_store(const struct snapshot *g, struct mapped *const *file, int fd,
                      struct store **ret, struct err *e);

/*
 * Replace the newest by a snapshot and a store of its tensors. Takes over both references, and returns those to what
 * it replaced.
 */
struct view newest_put_view(struct newest *n, struct snapshot *g, struct store *s);
/* Drop the first snapshot's file, which is replaced or whose tensors are changed. */
void newest_drop_file(struct newest *n);
/* Record that something was edited now. */
void newest_touch(struct newest *n);

#endif
