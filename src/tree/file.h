/* SPDX-License-Identifier: MIT */
/*
 * An open file of the tree, and its kinds. A kind is a table of functions, chosen when the file is
 * opened, so that no call has to check the kind.
 *
 *   file.c      what was rendered when the file was opened; what is answered piecewise (files.h),
 *               perhaps from results that a read may have to wait for
 *   keys.c      a file of metadata/, opened for reading, or whose draft is read and written
 *   tensors.c   a view of a tensor that is being written
 *
 * Files outside any tree have kinds of their own (shelf/shelf.c).
 *
 * Threads: any; a file belongs to the caller that opened it.
 */
#ifndef TREE_FILE_H
#define TREE_FILE_H

#include "tree/files.h"
#include "tree/ino.h"

struct tree_file;

/*
 * The calls of tree.h. All except `read` may be NULL if the kind has nothing to do there, or does
 * not support the call.
 */
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
    void *owner;       /* set by the shelf: the slot that the file uses */
    int fd;            /* owned, for a file outside any tree; else -1 */
    struct node node;
    const struct row *row; /* NULL for files in metadata/ */
    bool cacheable;
    /*
     * Rendered files are rendered at open and do not change afterwards. A whole-model view keeps its snapshot; tensor
     * data comes from the newest store at each read.
     */
    struct buf text;
    struct held *held;      /* tree_hold_view() */
    struct image *image;    /* NODE_WHOLE: reference to the image that it is read from, if any */
    struct live_file *live; /* for a key or helper of a writable tree */
    struct live_view *view; /* for a tensor's view that is being written; tensors.h */
    bool converts;          /* a write to it may take long */
    bool cold;              /* the kernel's pages of the file, if any, are wrong */
    bool cut;               /* the model's file was known to be truncated at the open */
    uint64_t size;          /* size of a piecewise file (files.h), including its head in `text` */
    bool decodes;           /* piecewise, decoded from tensor values */
    bool computed;          /* piecewise, from results that a read may wait for */
};

/* Open a file with the flags of open(2). The file keeps the snapshot that it saw, if its content is
 * that of a snapshot. */
int tree_open_file(struct tree *t, uint64_t node, int flags, struct tree_file **ret);
/*
 * Make a file of which only the node is known, to be released by tree_release(). It can be
 * truncated, and has no content. t may be NULL. Returns NULL without memory.
 */
struct tree_file *tree_file_new(struct tree *t, uint64_t node);
int tree_release(struct tree_file *f);
/* True if the kernel may cache this file. */
static inline bool tree_cacheable(const struct tree_file *f)
{
    return f->cacheable;
}
/*
 * True if the kernel's cached pages of the file are right. They are not after the model's file was
 * truncated: the page in which it now ends may have been read at that very moment, with zeros past
 * the end.
 */
bool tree_cached_right(const struct tree_file *f);
/* True if reads of this file decode, so that reading ahead of the program pays, until the file is
 * being written. */
bool tree_ahead(const struct tree_file *f);
/* True if a read may have to wait for a result. */
static inline bool tree_waits(const struct tree_file *f)
{
    return f->computed;
}
/*
 * Read bytes at `off`; fewer than n only at the end of the file. `r->scratch` is the caller's, the
 * rest of *r is zero; the answer is valid until scratch is reused, tree_reply_done() or the
 * release. Returns 0, -EIO or -ENOMEM. If tree_waits(), r->wait is also the caller's, and the
 * result may be LIVE_PARKED: its done() is called when the results are computed; then read again.
 */
int tree_read(struct tree_file *f, uint64_t off, size_t n, struct reply *r);
/* Call after each tree_read(), once the answer was given. */
void tree_reply_done(struct reply *r);
/* The kinds of a file that is written, and of a key that is opened for reading, with its text. */
extern const struct file_ops file_draft, file_key_text;
/* Read from a rendered text. */
int file_read_text(struct tree_file *f, uint64_t off, size_t n, struct reply *r);

/* Write to a file. w: see tree_converts(); otherwise it may be NULL. */
int tree_write(struct tree_file *f, uint64_t off, const void *bytes, size_t n, struct live_wait *w);
/* True if a write may take long: it then waits, and a signal may end it. */
static inline bool tree_converts(const struct tree_file *f)
{
    return f->converts;
}
/* Handle fallocate(2), which affects only the size. May return -EOPNOTSUPP. */
int tree_allocate(struct tree_file *f, int mode, uint64_t off, uint64_t n);
int tree_truncate(struct tree_file *f, uint64_t size, struct live_wait *w);
int tree_flush(struct tree_file *f, struct live_wait *w);
int tree_fsync(struct tree_file *f, struct live_wait *w);

#endif
