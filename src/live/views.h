/* SPDX-License-Identifier: MIT */
/*
 * Opens, writes and closes views of tensors, and helpers, which are files beside them. The comments
 * in tensors.h also apply here. All writing handles of a view share its draft (draft.h), which is
 * in the lists of the live state; its judge is in tensor_judge.h, or for texts in views.c.
 */
#ifndef LIVE_VIEWS_H
#define LIVE_VIEWS_H

#include "base/hash.h"
#include "live/tensors.h"

struct draft;
struct live_view; /* open for writing; or for reading what is being written */

/*
 * A view is written through the node that shows it, which all programs that have it open share. As long as it has a
 * draft, its node shows that in every read, and in its size. An accepted edit gives the tensor a new version, and
 * later lookups give its views new nodes; open files continue with their draft.
 *
 * node: that of the view; IDS_NONE: the tensor is being made, and it is set. flags as for open(2): it may be
 * written, or is truncated. *cold: no page that the kernel has kept of it is right. -EBUSY: another view of the tensor
 * was written, and is not accepted. -ESTALE: what it was begun from is gone.
 */
int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view, int flags,
                   uint32_t *node, struct live_view **ret, bool *cold);
/* Open a handle for reading the draft of a node. Returns -ESTALE if it has none. */
int live_view_join(struct live *l, uint32_t node, uint32_t row, struct live_view **ret);
/* True if a node of a tensor has a draft. *cold: as above, for a node opened for reading. */
bool live_view_written(struct live *l, uint32_t tensor, uint32_t node, uint32_t row, bool *cold);
/* Read like live_view_read(), but from a node. Returns -ESTALE if it has no draft. */
int live_view_read_node(struct live *l, uint32_t node, uint32_t row, uint64_t off, void *dst,
                        size_t n, size_t *got);
/*
 * Replace the node of a view, which shows the tensor without drafts, by that of the view's draft,
 * if that differs and the view is being written: it was opened or written and not closed or synced
 * since, or is not accepted.
 */
void live_view_look(struct live *l, uint32_t tensor, uint32_t row, uint32_t *node);

struct live_view_attr {
    uint32_t tensor;
    uint32_t row; /* not used for a helper */
    uint64_t size;
    bool helper;
};
/* Get the attributes of the draft of a node. Returns -ESTALE if it has none. */
int live_view_attr(struct live *l, uint32_t node, uint32_t row, struct live_view_attr *ret);

int live_view_read(struct live *l, struct live_view *h, uint64_t off, void *dst, size_t n,
                   size_t *got);
/* Write to a view. A complete line is judged at once, if a request waits (w not NULL). */
int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w);
int live_view_truncate(struct live *l, struct live_view *h, uint64_t size);
int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                       bool keep_size);
int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w);
int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w);
/* Release a handle. The judgement may happen later, in another thread. */
void live_view_release(struct live *l, struct live_view *h);

/*
 * Helpers: files in a tensor's directory that are not views (rsync's .raw.XXXXXX). They are in the
 * model's log, and disappear with the mount.
 */
int live_helper_create(struct live *l, uint32_t tensor, const char *name, int flags,
                       struct live_view **ret, uint32_t *node);
/* Find the number of a helper's node. Returns -ENOENT if there is none. */
int live_helper_find(struct live *l, uint32_t tensor, const char *name, uint32_t *node);
/* Get helper number i of a directory. Returns false if there are no more. */
bool live_helper_at(struct live *l, uint32_t tensor, uint64_t i, char name[TREE_NAME_MAX + 1],
                    uint32_t *node);
int live_helper_unlink(struct live *l, uint32_t tensor, const char *name);
/* Rename a helper to `to` if view is TENSOR_HELPER; otherwise rename it over a view, whose content
 * it becomes. */
int live_helper_rename(struct live *l, uint32_t tensor, const char *name, const char *to,
                       uint32_t row, enum tensor_view view, struct live_wait *w);

/* ---- for this layer: with the lock of `struct live` ---- */

struct live_view {
    struct draft *d;  /* NULL: writes are ignored */
    struct link link; /* in objects.shared, if ... */
    uint32_t node;    /* ... it was opened through another node than the draft's */
    bool writes, append;
    atomic_bool closed; /* closed since the last write; several threads may call at the same time */
    /* For a helper that this handle renames: the view that it will become, ... */
    enum tensor_view to;
    uint32_t to_row;      /* ... and its row */
    bool late;            /* released after live_abandon() */
    struct live_wait end; /* the wait of its release */
};

/*
 * Judge the draft, for a request (NULL: none waits). end: no more writes will come. Returns 1 if an
 * edit was made, 0, or -errno, which was reported. Without the lock.
 */
int view_judge(struct live *l, struct draft *d, bool end, struct live_wait *w);
/*
 * Remove a draft that is not needed any more. Returns the removed drafts, followed by `more`, for
 * view_drafts_end(): without the lock if possible, because closing files may take a while.
 */
struct draft *view_reap(struct live *l, struct draft *d, struct draft *more);
/* Remove the names of helpers in a directory that is finally gone. Returns drafts like
 * view_reap(). */
struct draft *view_helpers_drop(struct live *l, const struct object *o, struct draft *more);
void view_drafts_end(struct draft *dead);
/* Remove all drafts that were begun when the tensor was new, and that are not needed any more. */
void view_drafts_reap(struct live *l, const struct object *o);
/* At the end of the mount, close views that wait for their programs, and helpers. */
void views_close(struct live *l);

#endif
