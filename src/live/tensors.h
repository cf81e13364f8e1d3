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

/* The origin of the calls that follow: the thread of the program (0: not known). Of this thread, until it is set
 * again. */
void live_caller(uint64_t program);

/*
 * Views that are written have nodes of their own, which only programs that write see. An open of the
 * node that shows what is stored is -ESTALE: the kernel looks the name up again, which gives the
 * caller the draft's node (live_view_node()). If it then asks for the same node once more it did
 * not look (/proc/self/fd), and *direct says that no page may be kept of what it does.
 *
 * -EBUSY: another view of the tensor was written, and is not accepted.
 */
int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                   int flags, struct live_view **ret, bool *direct);
/* The number of the draft's node, if the caller is about to open it; else 0. */
uint32_t live_view_node(struct live *l, uint32_t tensor, uint32_t row);
/* The same as live_view_open(), for a caller that is given the node: a view that is made anew is one
 * that was truncated. */
int live_view_create(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                     struct live_view **ret, uint32_t *node);
/* Open a draft by its node; one that has ended meanwhile is begun anew. *first: nobody else has it, so
 * that no page of its node is valid. -ESTALE, -EBUSY. */
int live_view_open_node(struct live *l, uint32_t node, int flags, struct live_view **ret,
                        bool *first);

struct live_view_attr {
    uint32_t tensor;
    uint32_t row; /* a helper has none */
    uint64_t size;
    bool helper; /* one that was renamed over a view is not, while it is open */
};
/* -ESTALE. */
int live_view_attr(struct live *l, uint32_t node, struct live_view_attr *ret);

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
