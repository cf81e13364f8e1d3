/* SPDX-License-Identifier: MIT */
/*
 * The table of virtual files at the root and in each tensor's directory.
 *
 * A row is either rendered (`text` writes the whole file; it is written at open) or answered
 * piecewise (`size` and `read`, for contents that may be large). Node number, lookup, listing and
 * attributes follow from the row, so adding a file means adding a row here; nothing above this
 * layer changes. Rows are numbered by their place in their table, which must not change, because
 * node numbers contain it.
 *
 * Rows are constant, and their functions may run in any thread.
 */
#ifndef TREE_FILES_H
#define TREE_FILES_H

#include "base/buf.h"
#include "derive/safetensors.h"
#include "derive/work.h"
#include "live/live.h"
#include "model/snapshot.h"
#include "model/store.h"

/* The answer to a read: its bytes, or where they are. It belongs to one thread. */
struct reply {
    const uint8_t *bytes; /* in `scratch`, the text of the open file, or `mapped` */
    size_t len;
    uint8_t *scratch;       /* from the caller: room for all requested bytes */
    struct mapped *mapped;  /* owned reference; NULL if the bytes are elsewhere */
    uint64_t end;           /* end of the bytes in `mapped` */
    struct work *work;      /* from the tree: results computed for the model */
    struct live_wait *wait; /* from the caller: a read may wait until its results are computed */
};

/* Append a copy of n bytes. */
void reply_copy(struct reply *r, const void *p, size_t n);

enum files_where { FILES_ROOT, FILES_TENSOR };

enum {
    ROW_DIR = 1 << 0,    /* a directory */
    ROW_WHOLE = 1 << 1,  /* a view of the whole model, which changes with each snapshot */
    ROW_VALUES = 1 << 2, /* only if the tensor's values can be decoded */
    ROW_HIDDEN = 1 << 3, /* can be opened by name; listed only with views=all */
    ROW_SPLIT = 1 << 6,  /* only in split models */
    ROW_EXTRA = 1 << 7,  /* repeats bytes that other files show; not listed with views=raw */
    ROW_MOVES = 1 << 4,  /* in a tensor's directory, but its content may differ between snapshots */
    ROW_KEPT = 1 << 5,   /* rendered once per snapshot, because that takes long or reads the disk */
    ROW_STATE = 1 << 8,  /* ends with the state of the mount and has a node for each state */
    ROW_SAFETENSORS = 1 << 9,
};

/* The files that directories list. Every file can be opened by name, listed or not. */
enum files_views {
    FILES_STD, /* everything except ROW_HIDDEN */
    FILES_RAW, /* each byte of the model once: everything except ROW_HIDDEN and ROW_EXTRA */
    FILES_ALL,
};

struct row;

/* The subject of a call to a row's functions. */
struct about {
    const struct view *v;
    const struct row *row;
    const struct gguf_tensor *t; /* NULL for a row at the root */
};

struct row {
    const char *name;
    unsigned flags;
    /* the library without which the file does not exist; NULL if it needs none */
    const char *(*library)(void);
    const struct form *form; /* for value views; NULL: bytes as stored */
    enum derived what;       /* for computed files */
    enum safetensors_as as;  /* for ROW_SAFETENSORS */
    /* Writes the whole file. For a piecewise file, writes its beginning, which `size` includes and
     * after which `read` begins. May be NULL. */
    void (*text)(const struct about *a, struct buf *out);
    /* For a piecewise file: `size` returns the size in bytes (UINT64_MAX: no memory to measure it),
     * and `read` reads bytes [off, off + n), within the size, into the reply. */
    uint64_t (*size)(const struct about *a);
    int (*read)(const struct about *a, uint64_t off, size_t n, struct reply *r);
    /* For a piecewise file read from an image: makes the image at open; it becomes the `file` of
     * the view being read. */
    int (*image)(const struct about *a, struct image **ret);
    /* For a piecewise file that is computed: gets the tensors [first, last) whose results bytes
     * [off, off + n) need. Until these results are kept, `read` returns -EAGAIN. */
    void (*need)(const struct about *a, uint64_t off, size_t n, uint32_t *first, uint32_t *last);
};

extern const struct row files_root[];
extern const struct row files_tensor[];
size_t files_count(enum files_where where);

static inline const struct row *files_row(enum files_where where, size_t i)
{
    return where == FILES_ROOT ? &files_root[i] : &files_tensor[i];
}

/* Write the text of a row, except for the state of the mount, which follows it in some rows. */
void files_text(const struct about *a, struct buf *out);
/* Returns true if the row is read piecewise and decoded from tensor values. */
bool files_decodes(const struct about *a);
/* Return the number of the row with this name, or -1. The second function also returns -1 if the
 * file does not exist for t. */
int files_named(enum files_where where, const char *name);
int files_find(struct snapshot *g, enum files_where where, const struct gguf_tensor *t,
               const char *name);
/* Returns true if the row exists for this tensor. A row at the root must also be possible for the
 * model. */
bool files_exists(const struct snapshot *g, const struct row *row, const struct gguf_tensor *t);
/* Returns true if the directory lists the row. */
bool files_listed(struct snapshot *g, const struct row *row, const struct gguf_tensor *t,
                  enum files_views views);

#endif
