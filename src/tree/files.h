/* SPDX-License-Identifier: MIT */
/*
 * The table of virtual files at the root and in each tensor's directory.
 *
 * A row is either rendered (`text` writes the whole file, at open) or read piecewise (`size` and
 * `read`, for contents that may be large). Node number, lookup, listing and attributes follow from
 * the row, so adding a file means adding a row. A row's number is its position in its table.
 * Positions must not change, because node numbers contain row numbers. A row's functions may run in
 * any thread.
 */
#ifndef TREE_FILES_H
#define TREE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "derive/safetensors.h"
#include "derive/work.h"
#include "live/live.h"
#include "model/snapshot.h"
#include "model/store.h"

/* The answer to a read: its bytes or where they are stored. Only one thread may use an answer. */
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
    ROW_STATE = 1 << 8,  /* ends with the state of the mount at the moment of the open */
    ROW_SAFETENSORS = 1 << 9,
    ROW_ERRORS = 1 << 10, /* with ROW_STATE: shows the errors instead */
};

/* Which files directories list. Every file can be opened by name, listed or not. */
enum files_views {
    FILES_STD, /* everything except ROW_HIDDEN */
    FILES_RAW, /* each byte of the model once: everything except ROW_HIDDEN and ROW_EXTRA */
    FILES_ALL,
};

struct row;

/* The argument of a row's functions: the view and, in a tensor's directory, the tensor. */
struct about {
    const struct view *v;
    const struct row *row;
    const struct gguf_tensor *t; /* NULL for a row at the root */
    bool decodes;                /* for `read`: the result of files_decodes() */
};

struct row {
    const char *name;
    unsigned flags;
    const struct quant_form *form; /* for value views; NULL: bytes as stored */
    enum derived what;             /* for computed files */
    enum safetensors_as as;        /* for ROW_SAFETENSORS */
    /* Writes the whole file, except for the state of the mount, which follows it in some rows. NULL
     * for a piecewise file. */
    void (*text)(const struct about *a, struct buf *out);
    /* For a piecewise file: `size` returns the size in bytes (UINT64_MAX: out of memory), and
     * `read` reads bytes [off, off + n), within the size, into the reply. */
    uint64_t (*size)(const struct about *a);
    int (*read)(const struct about *a, uint64_t off, size_t n, struct reply *r);
    /* For a piecewise file read from an image: makes the image when the file is opened; the image
     * becomes the `file` of the view being read. */
    int (*image)(const struct about *a, struct image **ret);
    /* A piecewise file is computed from tensors: until the results that it needs (files_need()) are
     * kept, `read` returns -EAGAIN. */
    bool computed;
};

extern const struct row files_root[];
extern const struct row files_tensor[];
size_t files_count(enum files_where where);

static inline const struct row *files_row(enum files_where where, size_t i)
{
    return where == FILES_ROOT ? &files_root[i] : &files_tensor[i];
}

/* Set [*first, *last) to the tensors whose results bytes [off, off + n) of a computed file need. */
void files_need(const struct about *a, uint64_t off, size_t n, uint32_t *first, uint32_t *last);
/* Return true if the row is read piecewise and decoded from tensor values. */
bool files_decodes(const struct about *a);
/* Return the number of the row with this name, or -1. The second function also returns -1 if the
 * file does not exist for t. */
int files_named(enum files_where where, const char *name);
int files_find(struct snapshot *g, enum files_where where, const struct gguf_tensor *t,
               const char *name);
/* Return true if the row exists for this tensor. A row at the root must also be possible for the
 * model. */
bool files_exists(const struct snapshot *g, const struct row *row, const struct gguf_tensor *t);
/* Return true if the directory lists the row. */
bool files_listed(struct snapshot *g, const struct row *row, const struct gguf_tensor *t,
                  enum files_views views);

/*
 * ---- node numbers ----
 *
 * The kernel names files by node numbers. They are computed, not stored in a table:
 *
 *     slot << 39 | object << 7 | row << 2 | kind
 *
 * The slot is that of the model in a mount of many models, else 0; trees do not look at it. Row 0
 * is the object itself; row 1 + i is row i of the object's table of files. The kind determines the
 * object:
 *
 *     0   a state of the model: each whole-model view has one node per state, numbered like the
 *         snapshot
 *     1   always 0: the root or, with a row, a directory at the root
 *     2   a tensor: its directory
 *     3   a metadata key: its file
 *
 * Object numbers are never reused during the life of a mount. Slot numbers are reused once all have
 * been used and the kernel has forgotten the oldest.
 *
 * st_ino is the node number, except for whole-model views, whose st_ino is computed as for a
 * directory in the same row at the root. To the kernel each state is a new file, so that the pages
 * of one node never change; to users it is the same file. st_ino stays below 2^32 in a mount of one model with fewer than 2^25 tensors and
 * keys, for programs whose ino_t has 32 bits.
 */

/* Each kind is an even number, plus 1 if its nodes have a row. */
enum node_kind {
    NODE_NONE = 0,
    NODE_WHOLE = 1,
    NODE_ROOT = 2,
    NODE_DIR = 3,
    NODE_TENSOR = 4,
    NODE_TENSOR_FILE = 5,
    NODE_KEY = 6
};

struct node {
    enum node_kind kind;
    uint32_t row; /* row in its table; meaningless for an even kind */
    /* number of the tensor or key; for NODE_WHOLE, that of the snapshot */
    uint32_t number;
};

enum {
    INO_KIND_BITS = 2,
    INO_ROW_BITS = 5,
    INO_OBJECT_BITS = 32,
    INO_LOCAL_BITS = INO_OBJECT_BITS + INO_ROW_BITS + INO_KIND_BITS,
    INO_SLOT_BITS = 63 - INO_LOCAL_BITS, /* positive even if a program treats it as signed */
    INO_MAX_ROWS = (1 << INO_ROW_BITS) - 1,
    INO_ROOT = 1
};
#define INO_MAX_SLOTS ((uint32_t)1 << INO_SLOT_BITS)

/* `row` is meaningless for a kind whose nodes have none. */
static inline uint64_t ino_make(enum node_kind kind, uint32_t number, uint32_t row)
{
    const uint32_t rows = kind % 2 ? 1 + row : 0;
    return ((uint64_t)number << INO_ROW_BITS | rows) << INO_KIND_BITS | kind / 2;
}

static inline uint64_t ino_row(uint32_t row)
{
    return ino_make(NODE_DIR, 0, row);
}

static inline uint64_t ino_key(uint32_t key)
{
    return ino_make(NODE_KEY, key, 0);
}

/* Put a slot into a number. */
static inline uint64_t ino_in_slot(uint32_t slot, uint64_t local)
{
    return (uint64_t)slot << INO_LOCAL_BITS | local;
}

static inline uint32_t ino_slot(uint64_t ino)
{
    return (uint32_t)(ino >> INO_LOCAL_BITS);
}

static inline struct node ino_node(uint64_t ino)
{
    const uint32_t row = (uint32_t)(ino >> INO_KIND_BITS) & INO_MAX_ROWS;
    const uint32_t object = (uint32_t)(ino >> (INO_KIND_BITS + INO_ROW_BITS));
    const unsigned kind = 2 * (unsigned)(ino & 3) + (row > 0);
    if (kind > NODE_KEY || (kind / 2 == NODE_ROOT / 2 && object))
        return (struct node){NODE_NONE, 0, 0};
    return (struct node){(enum node_kind)kind, row - 1, object};
}

static inline uint64_t ino_of(const struct node *n)
{
    return ino_make(n->kind, n->number, n->row);
}

#endif
