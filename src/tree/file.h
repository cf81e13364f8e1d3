/* SPDX-License-Identifier: MIT */
/*
 * An open file of the tree, and the kinds of them: a kind is a table of what calls do, chosen when
 * the file is opened, so that no call asks which kind it is.
 *
 *   file.c      what was rendered when the file was opened; what is answered piecewise (files.h), perhaps of results
 *               that a read may have to wait for
 *   keys.c      a file of metadata/, opened to be read, or whose draft is read and written
 *   tensors.c   a view of a tensor that is written
 *
 * What is in no tree has kinds of its own, too (shelf/shelf.c).
 *
 * Threads: any; a file belongs to the caller that opened it.
 */
#ifndef TREE_FILE_H
#define TREE_FILE_H

#include "tree/files.h"
#include "tree/ino.h"

struct tree_file;

/* Calls of tree.h. All but `read` may be NULL: the kind has nothing to do there, or cannot. */
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
    struct tree *tree; /* NULL: it is in none */
    void *owner;       /* of the shelf: the slot that it uses */
    int fd;            /* owned, of what is in no tree; else -1 */
    struct node node;
    const struct row *row; /* NULL for metadata files */
    bool cacheable;
    /*
     * What is rendered as a whole is rendered when it is opened and does not change from then on.
     * A view of the whole keeps its snapshot; tensor data comes from the newest store at each
     * read.
     */
    struct buf text;
    struct held *held;      /* tree_hold_view() */
    struct image *image;    /* NODE_WHOLE: a reference: what it is read from, if that is an image */
    struct live_file *live; /* of a key or helper of a writable tree */
    struct live_view *view; /* of a tensor's view that is written; tensors.h */
    bool converts;          /* a write to it may take long */
    bool cold;              /* the kernel has no page of it that is right */
    bool cut;               /* when it was opened, the model's file was known to have been cut */
    uint64_t size; /* of what is answered piecewise (files.h), its head in `text` included */
    bool decodes;  /* piecewise, from tensor values */
    bool computed; /* piecewise, of results that may have to be waited for */
};

/*
 * Open a file; flags as of open(2). It keeps the snapshot that it saw, if that is what it shows.
 */
int tree_open_file(struct tree *t, uint64_t node, int flags, struct tree_file **ret);
/* One that nothing is known of but its node; tree_release() it. It may be truncated, and has no content. t may be NULL.
 * NULL: no memory. */
struct tree_file *tree_file_new(struct tree *t, uint64_t node);
int tree_release(struct tree_file *f);
/* True if the kernel may keep what it read of this file. */
static inline bool tree_cacheable(const struct tree_file *f)
{
    return f->cacheable;
}
/* True if what it kept of it before is right. It is not once the model's file was cut: the page in
 * which it ends now may have been read in the moment of the cut, with zeros behind the end. */
static inline bool tree_cached_right(const struct tree_file *f)
{
    return f->tree && f->cacheable && !f->cut && !f->cold;
}
/* True if reads of this file decode: to do so ahead of a program pays, until what it shows is written. */
bool tree_ahead(const struct tree_file *f);
/* True if a read may have to wait for a result. */
static inline bool tree_waits(const struct tree_file *f)
{
    return f->computed;
}
/*
 * Bytes at `off`, fewer than n at the end of the file only. `r->scratch` is the caller's, all else of *r zero;
 * the answer is good until scratch is used again, tree_reply_done() or the release.
 * 0, -EIO, -ENOMEM. Of a file that tree_waits() r->wait is the caller's too: LIVE_PARKED: its done()
 * is called when what the bytes show is computed; then read again.
 */
int tree_read(struct tree_file *f, uint64_t off, size_t n, struct reply *r);
/* After each tree_read(), when the answer was given. */
void tree_reply_done(struct reply *r);
/* A file that is written; and a key that is opened to be read, with its text. */
extern const struct file_ops file_draft, file_key_text;
/* `read` of a rendered text. */
int file_read_text(struct tree_file *f, uint64_t off, size_t n, struct reply *r);

/* w: as tree_converts() says, else it may be NULL. */
int tree_write(struct tree_file *f, uint64_t off, const void *bytes, size_t n, struct live_wait *w);
/* True if a write may take long: it waits then, and a signal may end it. */
static inline bool tree_converts(const struct tree_file *f)
{
    return f->converts;
}
/* fallocate(2), without effect but for the size. -EOPNOTSUPP. */
int tree_allocate(struct tree_file *f, int mode, uint64_t off, uint64_t n);
int tree_truncate(struct tree_file *f, uint64_t size, struct live_wait *w);
int tree_flush(struct tree_file *f, struct live_wait *w);
int tree_fsync(struct tree_file *f, struct live_wait *w);

#endif
