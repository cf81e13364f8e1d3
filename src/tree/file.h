/* SPDX-License-Identifier: MIT */
/*
 * An open file of the tree. Its kind is a table of functions, chosen when the file is opened, so
 * that no call has to check the kind. The kinds are
 *
 *     text rendered when the file is opened
 *     content read piecewise (files.h), some of it from results that a read may have to wait for
 *     a draft, read and written: of a file in metadata/ or of a view of a tensor
 *
 * Files outside any tree have kinds of their own (shelf/shelf.c).
 *
 * Any thread may call these functions; a file belongs to the caller that opened it.
 */
#ifndef TREE_FILE_H
#define TREE_FILE_H

#include "tree/files.h"

struct tree_file;

/* The calls on an open file. All except `read` may be NULL if the kind has nothing to do for the
 * call or does not support it. */
struct file_ops {
    int (*read)(struct tree_file *f, uint64_t off, size_t n, struct reply *r);
    int (*write)(struct tree_file *f, uint64_t off, const void *bytes, size_t n,
                 struct live_wait *w);
    int (*truncate)(struct tree_file *f, uint64_t size, struct live_wait *w);
    int (*flush)(struct tree_file *f, struct live_wait *w);
    int (*fsync)(struct tree_file *f, struct live_wait *w);
    void (*release)(struct tree_file *f);
};

struct tree_file {
    const struct file_ops *ops;
    struct tree *tree; /* NULL: the file is in no tree */
    void *owner;       /* set by the shelf: the slot in which the file is open */
    struct node node;
    const struct row *row; /* NULL for files in metadata/ */
    bool cacheable;        /* the kernel may cache the content */
    /* The text of a rendered file. */
    struct buf text;
    struct held *held; /* from tree_hold_view() */
    /* for NODE_WHOLE: reference to the image that the file is read from, if any */
    struct image *image;
    struct live_file *live; /* for a key or helper in a writable tree */
    struct live_view *view; /* for a tensor's view that is being written (tensors.h) */
    bool converts;          /* a write may be slow; a signal may interrupt the wait */
    bool cold;              /* the kernel's cached pages of the file, if any, are wrong */
    bool cut;               /* at open, the model's file was known to be truncated */
    uint64_t size;          /* size of a piecewise file (files.h), including its head in `text` */
    bool decodes;           /* the file is decoded from tensor values, piece by piece */
    /* the file is piecewise and computed: a read may have to wait for results */
    bool computed;
};

/* Open a file with the flags of open(2). */
int tree_open_file(struct tree *t, uint64_t node, int flags, struct tree_file **ret);
/* Make a file that has no content. t may be NULL. Returns NULL if out of memory. */
struct tree_file *tree_file_new(struct tree *t, uint64_t node);
int tree_release(struct tree_file *f);
/* Return true if the kernel's cached pages of the file are right. If the model's file was
 * truncated, the page in which it now ends may have been read at that very moment, with zeros at
 * the end. */
bool tree_cached_right(const struct tree_file *f);
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
/* The kind of a file that has a draft. */
extern const struct file_ops file_draft;
/* Read from rendered text. */
int file_read_text(struct tree_file *f, uint64_t off, size_t n, struct reply *r);

/* Write to a file. w may be NULL unless the file `converts`. */
int tree_write(struct tree_file *f, uint64_t off, const void *bytes, size_t n, struct live_wait *w);
/* Handle fallocate(2), which affects only the size. May return -EOPNOTSUPP. */
int tree_allocate(struct tree_file *f, int mode, uint64_t off, uint64_t n);
int tree_truncate(struct tree_file *f, uint64_t size, struct live_wait *w);
/* Handle truncate(2) of a file that the caller has not opened. */
int tree_truncate_unopened(struct tree *t, uint64_t node, uint64_t size, struct live_wait *w);
int tree_flush(struct tree_file *f, struct live_wait *w);
int tree_fsync(struct tree_file *f, struct live_wait *w);

#endif
