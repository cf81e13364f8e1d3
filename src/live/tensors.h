/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited: their folders, by the names that these have, and their views. Beside
 * live.h, whose words on results, waits and threads hold here too. Only where live_options.tensors
 * is set.
 *
 * The newest snapshot (live_freshen()) has every tensor that a function here returns.
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/live.h"

/* What a file in a tensor's folder is to programs that write it. */
enum live_view_kind {
    LIVE_RAW, /* to LIVE_F16_NPY: enum tensor_view */
    LIVE_F32,
    LIVE_F16,
    LIVE_BF16,
    LIVE_F32_NPY,
    LIVE_F16_NPY,
    LIVE_TYPE,
    LIVE_SHAPE,
    LIVE_HELPER, /* a file beside them, by which a program makes one: renamed over a view it is that */
    LIVE_ASIDE, /* what is computed of the others: taken, and left aside */
};

/* What is known of a tensor's folder beside what snapshots have of the tensor. */
struct live_folder {
    uint64_t generation;   /* differs each time that it comes back after it was removed */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago */
    bool removed;          /* it is shown no more */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The number of the tensor whose folder has this name. -ENOENT. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* The same of a version that was replaced, maybe a moment ago; not of all older ones. */
int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number);
/* What is known of it; all zero if that is nothing. fresh: the newest snapshot is to show the
 * tensor as it is now. */
int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret);

/*
 * Tensors in the making: made by mkdir(2), and tensors of the model when they are whole; with the
 * same number, which is that of the nodes of views that are left aside, too. live_tensor_find(),
 * _rename() and _remove() are for them, as well.
 */
int live_tensor_make(struct live *l, const char *file, uint32_t *number);
/* True if it is one still. *views: the rows that were written. */
bool live_making(struct live *l, uint32_t number, uint32_t *views);
/* From place *i on the next of them, in the order in which they were made; *i is its place then. False:
 * there are no more. */
bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number);
/* The number of the node of a view that was written; it is left aside if it is the tensor's own.
 * -ENOENT. */
int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
/* True if a view is to be left aside, and is one of those that were written now. */
bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum live_view_kind kind);
int live_making_unlink(struct live *l, uint32_t number, uint32_t row);

/* flags as of renameat2(2). -ENOTEMPTY: there is a tensor of the new name. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* rmdir(2): with all that is in it. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view, a row of the folder, for a second. */
int live_view_unlink(struct live *l, uint32_t number, uint32_t row);
/* It is back. */
void live_view_show(struct live *l, uint32_t number, uint32_t row);

/* ---- views that are written ---- */

struct live_view; /* an open one, for writing; or for reading what is written */

/*
 * A view is written by the node that shows it, which all programs share that have it open. As long as it has a draft its
 * node shows that: each read, and its size. An accepted edit gives the tensor a new version, and lookups from then on
 * give its views new nodes; what is open goes on with its draft.
 *
 * node: that of the view; IDS_NONE: the tensor is in the making, and it is set. flags as of open(2): it may be written, or is
 * truncated. *cold: no page that the kernel has kept of it is right. -EBUSY: another view of the tensor was written,
 * and is not accepted. -ESTALE: what it was begun from is gone.
 */
int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                   int flags, uint32_t *node, struct live_view **ret, bool *cold);
/* A handle to read the draft of a node; -ESTALE: it has none. */
int live_view_join(struct live *l, uint32_t node, uint32_t row, struct live_view **ret);
/* True if a node of a tensor has a draft. *cold: as above, for one that is opened to be read. */
bool live_view_written(struct live *l, uint32_t tensor, uint32_t node, uint32_t row, bool *cold);
/* As live_view_read(), of a node; -ESTALE: it has no draft. */
int live_view_read_node(struct live *l, uint32_t node, uint32_t row, uint64_t off, void *dst,
                        size_t n, size_t *got);
/* The node of a view, which shows the tensor as it is, becomes that of the view's draft, if that has another one, and
 * is being written: it was opened or written and not closed or synced since, or is not accepted. */
void live_view_look(struct live *l, uint32_t tensor, uint32_t row, uint32_t *node);

struct live_view_attr {
    uint32_t tensor;
    uint32_t row; /* a helper has none */
    uint64_t size;
    bool helper; /* one that was renamed over a view is not, while it is open */
};
/* Of the draft of a node; -ESTALE: it has none. */
int live_view_attr(struct live *l, uint32_t node, uint32_t row, struct live_view_attr *ret);

int live_view_read(struct live *l, struct live_view *h, uint64_t off, void *dst, size_t n,
                   size_t *got);
/* A line that is whole is judged at once, if a request waits (w not NULL). */
int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w);
int live_view_truncate(struct live *l, struct live_view *h, uint64_t size);
int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                       bool keep_size);
int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w);
int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w);
/* The same of a view that shows what is stored: what the tensor has, whichever program wrote that (sync FILE). */
int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w);
/* What is to be judged may be judged later, by another thread. */
void live_view_release(struct live *l, struct live_view *h);

/*
 * Helpers: files in a tensor's folder that are not views (rsync's .raw.XXXXXX). They are in a file
 * without a name beside the model, and end with the mount.
 */
int live_helper_create(struct live *l, uint32_t tensor, const char *name, int flags,
                       struct live_view **ret, uint32_t *node);
/* The number of its node. -ENOENT. */
int live_helper_find(struct live *l, uint32_t tensor, const char *name, uint32_t *node);
/* Number i of a folder's. False: there are no more. */
bool live_helper_at(struct live *l, uint32_t tensor, uint64_t i, char name[TREE_NAME_MAX + 1],
                    uint32_t *node);
int live_helper_unlink(struct live *l, uint32_t tensor, const char *name);
/* kind LIVE_HELPER: to another name, `to`; else over a view, whose content it is then. */
int live_helper_rename(struct live *l, uint32_t tensor, const char *name, const char *to,
                       uint32_t row, enum live_view_kind kind, struct live_wait *w);

/* ---- errors ---- */

/* Why the last edit was refused, into `out`: nothing if it was not. And forget that. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);
void live_tensor_forgive(struct live *l, uint32_t number);

#endif
