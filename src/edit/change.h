/* SPDX-License-Identifier: MIT */
/*
 * What an edit changes: an overlay over the keys and tensors of a parsed model, its base. Pure: no file is touched.
 *
 *     CLEANUP(edit_change_free) struct edit_change c;
 *     edit_change_init(&c, &(struct edit_base){.g = g});
 *     r = edit_set(&c, "general.name", 12, value, EDIT_LAST, &e);      ... edit_remove, edit_rename
 *     r = edit_tensor_write(&c, "b", 1, &piece, 1, &e);                ... by its current name
 *     r = edit_change_keys(&c, &header, &key, &n);                     ... edit_change_tensors
 *
 * Operations take effect one after another, as if each were a separate edit, so a batch of edits is one change. Each
 * costs what its own value or list of pieces costs, whatever was changed before. The change has at most one value for
 * each key: a replaced one is freed. The bytes of tensors stay in their drafts until the commit. What no operation
 * names keeps its exact bytes.
 *
 * Order: each key and tensor has a rank, and the header lists them by rank. They keep it when they are changed or
 * renamed. One that comes back after its removal gets the rank that the caller gives or, within one change, its old
 * rank.
 *
 * Undo: until edit_keep(), every operation can be taken back. It replaced one slot by another, and the old one is put
 * back.
 *
 * Refused, with nothing changed: what does not exist (-ENOENT); a new name that is taken (-EEXIST); a header over
 * GGUF_MAX_HEADER (-EFBIG); -ENOMEM. Values are not inspected: the plan parses the resulting header. And
 *  - of keys: ggufs' own, `split.*` and `ggufs.reserve` (-EPERM); general.architecture removed or renamed (-EPERM);
 *    general.alignment other than a u32 that is a power of two from 8 to 2^20, or renamed, or made by renaming
 *    (-EINVAL); a name that is empty or over 65535 bytes (-EINVAL);
 *  - of tensors: a new name that is empty or has a NUL (-EINVAL) or is over 63 bytes (-ENAMETOOLONG); shapes that
 *    tensor_shape_bytes() refuses; more versions than there are numbers (-EOVERFLOW); in a file of a split model,
 *    adding and removing (-EOPNOTSUPP), because each file states their number.
 *
 * Threads: one at a time. Values are immutable and counted: any.
 */
#ifndef EDIT_CHANGE_H
#define EDIT_CHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "gguf/gguf.h"
#include "model/snapshot.h"

#define EDIT_MAX_ALIGNMENT ((uint64_t)1 << 20)
#define EDIT_MAX_KEY 65535      /* bytes; the specification's limit */
#define EDIT_MAX_TENSOR_NAME 63 /* bytes; ggml's limit, with its NUL */

#define EDIT_NONE UINT32_MAX
/* The rank of key or tensor i of a base without a table: ranks leave room for keys that come back between two. */
#define EDIT_RANK_STEP ((uint64_t)1 << 32)
static inline uint64_t edit_first_rank(uint32_t i)
{
    return ((uint64_t)i + 1) * EDIT_RANK_STEP;
}
/* A rank after every other: a new key goes to the end. */
#define EDIT_LAST UINT64_MAX

/* The new value of a key. Reference-counted, immutable. */
struct edit_value {
    atomic_uint refs;
    uint64_t id;              /* different for each value of the process */
    uint32_t type;            /* enum gguf_value_type */
    struct buf bytes;         /* as in the file, after the type word */
    _Atomic(uint64_t) cached; /* the caller's: 0 at first */
};

/* Make a value of these bytes, which are moved into it. NULL: no memory (the bytes stay the
 * caller's). */
struct edit_value *edit_value_make(uint32_t type, struct buf *bytes);
struct edit_value *edit_value_ref(struct edit_value *v);
void edit_value_unref(struct edit_value *v); /* may be NULL */

enum edit_what { EDIT_KEY, EDIT_TENSOR };

/*
 * A key or tensor touched by some operation, in the state after the last one: an operation replaces
 * the slot by another one.
 */
struct edit_slot {
    struct link by_name;   /* first */
    struct link by_number; /* for a tensor */
    enum edit_what kind;
    bool gone;       /* removed */
    uint32_t old;    /* number in the base; EDIT_NONE: a new one, even under an old name */
    uint32_t at;     /* its index in the change */
    uint64_t serial; /* grows with each operation */
    uint64_t rank;
    struct edit_value *value;       /* of a key: a reference; NULL: the base's value */
    struct tensor_content *content; /* of a tensor: likewise */
    struct tensor_id id;            /* of a tensor: its id */
    size_t name_len;
    char name[]; /* followed by a NUL */
};

/* The effect of an operation: slot `at` was this one. */
struct edit_undo {
    uint32_t at;
    struct edit_slot *was; /* owned; NULL: there was no slot */
};

/* A model that is edited. It must outlive the change. */
struct edit_base {
    const struct gguf *g;
    const uint64_t *rank;        /* of its keys, ascending; NULL: edit_first_rank() */
    const uint64_t *tensor_rank; /* likewise for its tensors */
    const struct ids *ids;       /* the ids of its tensors; NULL as in snapshot.h */
    /* the next number for a tensor, or for a version of one; NULL: none are assigned */
    atomic_uint *numbers;
};

struct edit_change {
    struct edit_base on;
    struct edit_slot **slot; /* owned; in the order in which they were first touched */
    size_t n, cap;
    size_t tensors;                  /* how many of them belong to tensors */
    struct table by_name, by_number; /* all slots; those of tensors */
    struct edit_slot **slot_of; /* owned: by number in the base, keys before tensors; or NULL */
    struct edit_undo *undo;     /* owned: everything since edit_keep() */
    size_t n_undo, cap_undo;
    uint64_t bytes;  /* of the new header, without reserve and padding */
    uint64_t data;   /* of tensors, with the base's padding, ... */
    uint64_t fresh;  /* ... and of those in drafts */
    size_t moves;    /* tensors that are removed or resized, or added before others */
    uint64_t serial; /* of the last operation */
};

void edit_change_init(struct edit_change *c, const struct edit_base *base);
void edit_change_free(struct edit_change *c);

/* ---- operations on keys ---- */

/* Set a key; a new one gets this rank. Takes its own reference. */
int edit_set(struct edit_change *c, const void *key, size_t key_len, struct edit_value *value,
             uint64_t rank, struct err *e);
int edit_remove(struct edit_change *c, const void *key, size_t key_len, struct err *e);
int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len, struct err *e);

/* False: no such key. *ret: its slot; NULL if no operation touched the key. */
bool edit_find(const struct edit_change *c, const void *key, size_t n,
               const struct edit_slot **ret);

/* Return the alignment that applies after the change. */
uint64_t edit_alignment(const struct edit_change *c);

/* Check a value that edit_set() would refuse in any model: the alignment. 0, -EINVAL. */
int edit_check_value(const struct gguf *g, const void *key, size_t key_len, uint32_t type,
                     const void *value, size_t value_len, struct err *e);

/*
 * Restore all keys of an earlier state, as one operation of a change without any other. They get their order, their
 * exact bytes and types, even where a manual edit would be refused (architecture, alignment, names); ggufs' own keys
 * stay as they are in the base. Undone as usual. 0; -EINVAL (`keys` has another byte order or layout), -EFBIG, -ENOMEM.
 */
int edit_restore(struct edit_change *c, const struct gguf *keys, struct err *e);

/* ---- operations on tensors ---- */

/* A tensor after the change. */
struct edit_tensor {
    struct tensor_id id;
    uint32_t old; /* its index in the base; EDIT_NONE: a new one, even under an old name */
    uint64_t nbytes;
    uint64_t rank;
    const char *name; /* stored in the base or the change */
    size_t name_len;
    struct tensor_content *content; /* from the change; NULL: the base's */
};

/* Find the tensor with this name, or number. Returns false if there is no such tensor. */
bool edit_tensor_find(const struct edit_change *c, const void *name, size_t n,
                      struct edit_tensor *ret);
bool edit_tensor_numbered(const struct edit_change *c, uint32_t number, struct edit_tensor *ret);

int edit_tensor_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                       size_t to_len, struct err *e);
int edit_tensor_remove(struct edit_change *c, const void *name, size_t n, struct err *e);
/*
 * Add a tensor with this number, at the end with EDIT_LAST; one under the name of a tensor that the change removed gets
 * its rank. The pieces must make up all of its bytes (else -EINVAL).
 */
int edit_tensor_add(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, uint64_t rank, uint32_t number, struct err *e);
/*
 * Set another type or shape with all bytes new; or, without pieces, a shape with the same number of
 * bytes in its type (else -EINVAL).
 */
int edit_tensor_set(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, struct err *e);
/* Replace ranges of its bytes: pieces in order, disjoint, inside the tensor (else -EINVAL). */
int edit_tensor_write(struct edit_change *c, const void *name, size_t n,
                      const struct tensor_piece *piece, size_t pieces, struct err *e);

/* ---- the change as a whole ---- */

/* True if nothing was changed, or everything was taken back. */
static inline bool edit_change_is_empty(const struct edit_change *c)
{
    return c->n == 0;
}

/* Return a mark: later operations can be taken back to it, unless they were kept. */
static inline size_t edit_mark(const struct edit_change *c)
{
    return c->n_undo;
}
void edit_undo(struct edit_change *c, size_t mark);
/* Make the operations before `mark` permanent. Marks are counted from here. */
void edit_keep(struct edit_change *c, size_t mark);

/* Release the values and contents once a plan has them: only the names in the change remain. */
void edit_change_drop_values(struct edit_change *c);

/*
 * Return how many keys and tensors differ from the base or have been removed, as far as names and
 * slots show, at most `most`.
 */
size_t edit_change_count(const struct edit_change *c, size_t most);

/* A key of the new header. */
struct edit_entry {
    uint64_t end; /* where its entry ends in the buffer */
    uint64_t rank;
};

/* Append the entries of the keys after the change, in order, without the reserve. free(*ret). 0, -ENOMEM. */
int edit_change_keys(const struct edit_change *c, struct buf *b, struct edit_entry **ret,
                     size_t *n);
/* Get all tensors after the change, in the order of the new file. Names stay in the base and the
 * change. Returns 0 or -ENOMEM. */
int edit_change_tensors(const struct edit_change *c, struct edit_tensor **ret, size_t *n);

/* ---- keys compared ---- */

/*
 * Return a hash of the format and of all entries in order, except for ggufs' own keys. It is the
 * same for the same keys in every process, and not protected against forgery.
 */
uint64_t edit_keys_id(const struct gguf *g);
/* Return how entries are written: byte order and widths. A model can take back only keys of its own
 * format. */
uint32_t edit_keys_format(const struct gguf *g);
/* True if the entries of these keys have the same bytes. */
bool edit_same_entry(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k);
/* True for a key that ggufs keeps for itself. */
bool edit_key_is_own(const struct gguf *g, uint32_t kv);

/* ---- values as they are shown ---- */

/*
 * A key's value: from a snapshot, or from an edit that is in no snapshot yet. References are taken under a lock; work
 * on the value, above all rendering, needs none.
 */
struct shown {
    struct snapshot *snap;    /* a reference; NULL: the key has no value */
    struct edit_value *value; /* a reference; NULL: the value in the snapshot */
    uint32_t kv;              /* number of the key in the snapshot, if value is NULL */
};

#define SHOWN_NONE ((struct shown){0})

/* For CLEANUP(). */
void shown_free(struct shown *s);
/* Get the value, which is valid until shown_free(). Returns false if the key has none. */
bool shown_value(const struct shown *s, struct gguf_value *ret);
/* Return the value's bytes as in the file, after the type word. */
const uint8_t *shown_bytes(const struct shown *s, size_t *n);
/* True if it has this type and these bytes. */
bool shown_is(const struct shown *s, uint32_t type, const struct buf *bytes);
/* Return the size of the value's text, which is measured once per value. */
uint64_t shown_size(const struct shown *s);
void shown_text(const struct shown *s, struct buf *out);
/* Return a number that is unique among all values of this key in this mount. */
uint64_t shown_id(const struct shown *s);

#endif
