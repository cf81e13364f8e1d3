/* SPDX-License-Identifier: MIT */
/*
 * Opens, writes and closes views of tensors and helpers, which are files beside the views. The
 * comments in tensors.h also apply here. All writing handles of a view share its draft (draft.h).
 * The draft's judge is in tensor_judge.h or, for texts, in views.c.
 */
#ifndef LIVE_VIEWS_H
#define LIVE_VIEWS_H

#include "base/hash.h"
#include "live/tensors.h"

struct draft;
struct live_view; /* open for writing, or for reading a view that is being written */

/*
 * Open a view for writing. A view is written through the node that shows it, which is shared by all
 * programs that have it open. As long as the view has a draft, its node shows the bytes and the
 * size of that draft. An accepted edit gives the tensor a new version, and later lookups give its
 * views new nodes; open files continue with their draft.
 *
 * *node: the view's node; if it is IDS_NONE, the tensor is being made, and *node is set. flags: as
 * for open(2). *cold: all pages of the view that the kernel has cached are stale. Returns -EBUSY if
 * another view of the tensor has unaccepted writes, or -ESTALE if the state on which the draft is
 * based is gone.
 */
int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view, int flags,
                   uint32_t *node, struct live_view **ret, bool *cold);
/* Open a handle for reading the draft of a node. Returns -ESTALE if there is no draft. */
int live_view_join(struct live *l, uint32_t node, uint32_t row, struct live_view **ret);
/* True if a node has a draft. *cold is set as for live_view_open(), but for a reader. */
bool live_view_written(struct live *l, uint32_t tensor, uint32_t node, uint32_t row, bool *cold);
/*
 * On entry, *node shows the view without drafts. If the view is being written, *node becomes the
 * node of its draft. A view is being written if it has not been closed or synced since it was
 * opened or last written, or has content that is not accepted yet.
 */
void live_view_look(struct live *l, uint32_t tensor, uint32_t row, uint32_t *node);

struct live_view_attr {
    uint32_t tensor;
    uint32_t row; /* unused for a helper */
    uint64_t size;
    bool helper;
};
/* Get the attributes of a node's draft. Returns -ESTALE if there is no draft. */
int live_view_attr(struct live *l, uint32_t node, uint32_t row, struct live_view_attr *ret);

int live_view_read(struct live *l, struct live_view *h, uint64_t off, void *dst, size_t n,
                   size_t *got);
/* Write to a view. If w is not NULL, a complete line is judged immediately, and w waits for it. */
int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w);
int live_view_truncate(struct live *l, struct live_view *h, uint64_t size);
int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                       bool keep_size);
int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w);
int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w);
/* Release a handle. The draft may be judged later, in another thread. */
void live_view_release(struct live *l, struct live_view *h);

/* Helpers are files in a tensor's directory that are not views (rsync's .raw.XXXXXX). Their bytes
 * are in the model's log, and they disappear with the mount. */
int live_helper_create(struct live *l, uint32_t tensor, const char *name, int flags,
                       struct live_view **ret, uint32_t *node);
/* Get the node number of the helper with this name. Returns -ENOENT if there is no such helper. */
int live_helper_find(struct live *l, uint32_t tensor, const char *name, uint32_t *node);
/* Get helper number i of a directory. Returns false if there are no more. */
bool live_helper_at(struct live *l, uint32_t tensor, uint64_t i, char name[TREE_NAME_MAX + 1],
                    uint32_t *node);
int live_helper_unlink(struct live *l, uint32_t tensor, const char *name);
/* Rename a helper to `to` if `view` is TENSOR_HELPER; otherwise rename it over that view, so that
 * it becomes the view's content. */
int live_helper_rename(struct live *l, uint32_t tensor, const char *name, const char *to,
                       uint32_t row, enum tensor_view view, struct live_wait *w);

/* ---- for this layer: with the lock of `struct live` ---- */

struct live_view {
    struct draft *d;  /* NULL if writes are ignored */
    struct link link; /* in objects.shared, if `node` is not the draft's */
    uint32_t node;    /* the node through which the handle was opened */
    bool writes, append;
    atomic_bool closed; /* closed since the last write; several threads may access it at once */
    /* For a helper being renamed through this handle: the view that it will become. */
    enum tensor_view to;
    uint32_t to_row;      /* the row of that view */
    bool late;            /* it was released after live_abandon() */
    struct live_wait end; /* queues the release of the handle */
};

/* Judge the draft. w: the waiting request, or NULL. end: no more writes will come. Returns 1 if an
 * edit was made, 0 if not, or -errno, which has been reported. Call without the lock. */
int view_judge(struct live *l, struct draft *d, bool end, struct live_wait *w);
/* Remove a draft if it is no longer needed. The second function frees the removed drafts; call it
 * without the lock, because closing a file may take a while. */
void view_reap(struct live *l, struct draft *d);
void views_bury(struct live *l);
/* Remove the names of the helpers in a directory that is gone permanently. */
void view_helpers_drop(struct live *l, const struct object *o);
/* Remove all drafts that were started when the tensor was new and are no longer needed. */
void view_drafts_reap(struct live *l, const struct object *o);
/* Return the draft after d, or the first one if d is NULL; NULL at the end. */
struct draft *views_each(const struct live *l, const struct draft *d);
/* Free all drafts, when the mount ends. Call without holding the lock. */
void views_close(struct live *l);

#endif
