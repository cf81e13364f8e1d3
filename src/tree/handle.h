/* SPDX-License-Identifier: MIT */
/*
 * An open file of the tree, and the kinds of them: a kind is a table of what calls do, chosen when
 * the file is opened, so that no call asks which kind it is. Private to this layer.
 *
 *   handle_text      what is shown was rendered when the file was opened
 *   handle_row       answered piecewise (files.h)
 *   handle_computed  the same, of results that a read may have to wait for
 *   handle_key       a file of metadata/ whose draft is read and written: keys.c
 *   handle_key_text  the same, opened to be read: its text was rendered
 *
 * A view of a tensor that is written has a kind of its own in tensors.c.
 */
#ifndef TREE_HANDLE_H
#define TREE_HANDLE_H

#include "tree/internal.h"

/* Calls of tree.h. All but `read` may be NULL: the kind has nothing to do there, or cannot. */
struct handle_ops {
    int (*read)(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r);
    int (*write)(struct tree *t, struct tree_file *f, uint64_t off, const void *bytes, size_t n,
                 struct live_wait *w);
    int (*truncate)(struct tree *t, struct tree_file *f, uint64_t size, struct live_wait *w);
    int (*allocate)(struct tree *t, struct tree_file *f, uint64_t off, uint64_t n, bool keep_size);
    int (*flush)(struct tree *t, struct tree_file *f, struct live_wait *w);
    int (*fsync)(struct tree *t, struct tree_file *f, struct live_wait *w);
    void (*release)(struct tree *t, struct tree_file *f);
};

extern const struct handle_ops handle_text, handle_row, handle_computed, handle_key,
    handle_key_text;

struct tree_file {
    const struct handle_ops *ops; /* handle_text until it is open */
    struct node node;
    const struct row *row; /* NULL for metadata files */
    bool cacheable;
    /*
     * What is rendered as a whole is rendered when it is opened and does not change from then on.
     * A view of the whole keeps its snapshot; tensor data comes from the newest store at each
     * read.
     */
    struct rendered *shared; /* a reference: the text, or NULL and it is in: */
    struct buf text;         /* its own: small ones, and what has no number of a snapshot */
    struct held *held;       /* tree_hold_view() */
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

/* `read` of a rendered text. */
int handle_read_text(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r);

/* One that nothing is known of but its node; tree_release() it. NULL: no memory. */
struct tree_file *handle_new(struct tree *t, struct node node);

#endif
