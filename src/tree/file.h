/* SPDX-License-Identifier: MIT */
/*
 * An open file of the tree. Its content is one of
 *
 *     text rendered when the file is opened
 *     content read piecewise (files.h), some of it from results that a read may have to wait for
 *     a draft, read and written: of a file in metadata/ or of a view of a tensor
 *
 * Any thread may call these functions; a file belongs to the caller that opened it.
 */
#ifndef TREE_FILE_H
#define TREE_FILE_H

#include "tree/files.h"

struct tree_file {
    struct tree *tree; /* NULL: the file is in no tree, and is text */
    void *owner;       /* set by the shelf: the slot in which the file is open */
    struct node node;
    const struct row *row; /* NULL for files in metadata/ */
    bool cacheable;        /* the kernel may cache the content */
    struct buf text;       /* of a rendered file */
    struct held *held;     /* from tree_hold_view() */
    /* for NODE_WHOLE: reference to the image that the file is read from, if any */
    struct image *image;
    struct live_file *live; /* for a key or helper in a writable tree */
    bool fixed;             /* of these: `text` is read, not the draft */
    struct live_view *view; /* for a tensor's view that is being written (tensors.h) */
    bool converts;          /* a write converts a tensor, which the end of the mount breaks off */
    uint64_t cold; /* not 0: the kernel's pages of the file may be wrong; as live_view_cold() */
    /* Of a piecewise file (files.h) as it was opened; a tensor that can be edited may differ now: */
    uint64_t size;
    bool decodes; /* it is decoded from tensor values, piece by piece */
    /* the file is piecewise and computed: a read may have to wait for results */
    bool computed;
};

/* Open a file with the flags of open(2). */
int tree_open_file(struct tree *t, uint64_t node, int flags, struct tree_file **ret);
/* Make a file that has no content. t may be NULL. Returns NULL if out of memory. */
struct tree_file *tree_file_new(struct tree *t, uint64_t node);
void tree_release(struct tree_file *f);
/* Return true if reading this file involves decoding, so that reading ahead pays off; false if it
 * might be written. */
bool tree_ahead(const struct tree_file *f);
/*
 * Read n bytes at `off`, or fewer at the end of the file. The caller provides `r->scratch` and
 * zeroes the rest of *r; the answer is valid until scratch is reused, tree_reply_done() is called
 * or the file is released. Returns 0, -EIO or -ENOMEM. If the file is `computed`, the caller also
 * provides r->wait, and the result may be LIVE_PARKED: done() is called when the results are
 * computed; then read again.
 */
int tree_read(struct tree_file *f, uint64_t off, size_t n, struct reply *r);
/* Release an answer. Call after each tree_read(), once the answer has been passed on. */
void tree_reply_done(struct reply *r);

/* Write to a file. w: waits for the line of a text of a tensor to be judged. */
int tree_write(struct tree_file *f, uint64_t off, const void *bytes, size_t n, struct live_wait *w);
/* Handle fallocate(2), which affects only the size. May return -EOPNOTSUPP. */
int tree_allocate(struct tree_file *f, int mode, uint64_t off, uint64_t n);
int tree_truncate(struct tree_file *f, uint64_t size, struct live_wait *w);
/* Handle truncate(2) of a file that the caller has not opened. */
int tree_truncate_unopened(struct tree *t, uint64_t node, uint64_t size, struct live_wait *w);
int tree_flush(struct tree_file *f, struct live_wait *w);
int tree_fsync(struct tree_file *f, struct live_wait *w);

#endif
