/* SPDX-License-Identifier: MIT */
/*
 * What an edit changes: an overlay over the keys of a parsed model, its base, and over its tensors
 * (tensors.h). Pure: no file is touched.
 *
 *     CLEANUP(edit_change_free) struct edit_change c;
 *     edit_change_init(&c, g, NULL);
 *     r = edit_set(&c, "general.name", 12, value, EDIT_LAST, &e);      ... edit_remove, edit_rename
 *     r = edit_change_keys(&c, &header, &key, &n);
 *
 * Operations take effect one after another, as if each were a separate edit; so a batch of edits is
 * one change. Each costs what its own value costs, whatever was changed before, and a replaced
 * value is freed: the change has at most one value for each key. What no operation names keeps its
 * exact bytes.
 *
 * Order: each key has a rank, and the header lists keys by rank. A key keeps its rank when its value changes and when
 * it is renamed. A key that comes back after its removal gets the rank that the caller gives or, within one change,
 * its old rank.
 *
 * Undo: every operation can be taken back until edit_keep(): it replaced one slot by another, and
 * restores the old one.
 *
 * Refused, with nothing changed: ggufs' own keys, `split.*` and `ggufs.reserve` (-EPERM);
 * general.architecture removed or renamed (-EPERM); general.alignment other than a u32 that is a
 * power of two from 8 to 2^20, or renamed, or made by renaming (-EINVAL); a key that does not exist
 * (-ENOENT); a new name that is taken (-EEXIST); an empty name or one over 65535 bytes (-EINVAL); a
 * header over GGUF_MAX_HEADER (-EFBIG); -ENOMEM. Values are not inspected: the plan parses the
 * resulting header.
 *
 * Threads: one at a time. Values are immutable and reference-counted: any thread.
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
#include "model/content.h"
#include "gguf/gguf.h"
#include "model/ids.h"

#define EDIT_MIN_ALIGNMENT ((uint64_t)8)
#define EDIT_MAX_ALIGNMENT ((uint64_t)1 << 20)
#define EDIT_MAX_KEY 65535 /* bytes; the specification's limit */

#define EDIT_NONE UINT32_MAX
/*
 * The rank of key number i of a base without a table: between two there is room for keys that come
 * back. Ranks of new keys have the same distance, so that no two are equal.
 */
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

/* A value of these bytes, which are moved into it. NULL: no memory (the bytes stay the caller's). */
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
    const struct ids *ids;       /* the ids of its tensors; NULL as in ids.h */
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

/* The initial state, for a model whose tensors are not edited. */
void edit_change_init(struct edit_change *c, const struct gguf *base, const uint64_t *rank);
void edit_change_on(struct edit_change *c, const struct edit_base *base);
void edit_change_free(struct edit_change *c);

/* Set a key; a new one gets this rank. Takes its own reference. */
int edit_set(struct edit_change *c, const void *key, size_t key_len, struct edit_value *value,
             uint64_t rank, struct err *e);
int edit_remove(struct edit_change *c, const void *key, size_t key_len, struct err *e);
int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len, struct err *e);

/* True if nothing was changed, or everything was taken back. */
static inline bool edit_change_is_empty(const struct edit_change *c)
{
    return c->n == 0;
}

/* Operations can be taken back to an earlier edit_mark(), unless they were kept. */
static inline size_t edit_mark(const struct edit_change *c)
{
    return c->n_undo;
}
void edit_undo(struct edit_change *c, size_t mark);
/* What was done before `mark` becomes permanent; marks are counted from here. */
void edit_keep(struct edit_change *c, size_t mark);

/* Release the values and contents once a plan has them: only the names in the change remain. */
void edit_change_drop_values(struct edit_change *c);

/*
 * How many keys and tensors differ from the base or have been removed, as far as names and slots
 * show; at most `most`.
 */
size_t edit_change_count(const struct edit_change *c, size_t most);

/* Find a key. False: it does not exist. *ret: its slot; NULL if no operation touched the key. */
bool edit_find(const struct edit_change *c, const void *key, size_t n,
               const struct edit_slot **ret);

/* The alignment that applies after the change. */
uint64_t edit_alignment(const struct edit_change *c);

/* Check a value that edit_set() would refuse in any model: the alignment. 0, -EINVAL. */
int edit_check_value(const struct gguf *g, const void *key, size_t key_len, uint32_t type,
                     const void *value, size_t value_len, struct err *e);

/* A key of the new header. */
struct edit_entry {
    uint64_t end; /* where its entry ends in the buffer */
    uint64_t rank;
};

/*
 * Append the entries of the keys after the change, in order, without the reserve. *ret: of *n keys,
 * for free(). 0, -ENOMEM.
 */
int edit_change_keys(const struct edit_change *c, struct buf *b, struct edit_entry **ret,
                     size_t *n);

#endif
