/* SPDX-License-Identifier: MIT */
/*
 * The changes that an edit makes, as an overlay over the keys and tensors of a parsed model, its
 * base. The module is pure: it touches no file.
 *
 *     CLEANUP(edit_change_free) struct edit_change c;
 *     edit_change_init(&c, &(struct edit_base){.g = g});
 *     r = edit_set(&c, "general.name", 12, GGUF_STRING, &bytes, &e);     ... edit_remove, edit_rename
 *     r = edit_tensor_set(&c, "b", 1, NULL, &piece, 1, &e);     ... under its current name
 *     r = edit_change_keys(&c, &header, &end, &n);              ... edit_change_tensors
 *
 * Operations take effect one after another, as if each were a separate edit, so a batch of edits
 * can be one change. The cost of an operation depends only on its own value or list of pieces, not
 * on earlier operations. The change holds at most one value per key, and frees a value when it is
 * replaced. The bytes of tensors stay in their drafts until the commit. Keys and tensors that no
 * operation names keep their exact bytes.
 *
 * Order: what is changed or renamed keeps its place, and a tensor its number. What is new comes
 * last; what is removed and added again gets its old place.
 *
 * Undo: until edit_keep(), every operation can be taken back. Each operation replaces one slot with
 * another, and undoing it puts the old slot back.
 *
 * An operation that fails changes nothing. It fails if the key or tensor does not exist (-ENOENT),
 * a new name is taken (-EEXIST), the header would exceed GGUF_MAX_HEADER (-EFBIG), or memory runs
 * out (-ENOMEM). Values are not inspected, because the plan parses the resulting header. Also
 * refused are
 *  - for keys: changing ggufs' own keys, `split.*` and `ggufs.reserve` (-EPERM); removing or
 *    renaming general.architecture (-EPERM); setting general.alignment to anything but a u32 that
 *    is a power of two from 8 to 2^20, renaming it, or renaming another key to it (-EINVAL); a name
 *    that is empty or over 65535 bytes (-EINVAL);
 *  - for tensors: a new name that is empty or contains a NUL (-EINVAL) or is over 63 bytes
 *    (-ENAMETOOLONG); shapes that tensor_shape_bytes() refuses; a new version once the numbers are
 *    used up (-EOVERFLOW); adding or removing tensors in a file of a split model (-EOPNOTSUPP),
 *    because each file states the total number of tensors.
 *
 * Threads: one thread at a time may use a change. Values are immutable and reference-counted, so
 * any thread may use them.
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

/* The new value of a key. Reference-counted, immutable. */
struct edit_value {
    atomic_uint refs;
    uint32_t type;    /* enum gguf_value_type */
    struct buf bytes; /* as in the file, after the type word */
};

enum edit_what { EDIT_KEY, EDIT_TENSOR };

/*
 * The state of a key or tensor after the last operation on it. An operation replaces the slot with
 * a new one.
 */
struct edit_slot {
    struct link by_name; /* must be the first member */
    enum edit_what kind;
    bool gone;                /* removed */
    uint32_t old;             /* number in the base; EDIT_NONE: new, even if under an old name */
    uint32_t at;              /* index of the slot in the change */
    uint64_t serial;          /* increases with each operation */
    uint64_t rank;            /* the header lists keys, and tensors, by rank */
    struct edit_value *value; /* for a key: a reference; NULL: the base's value. If the key
                                     * is gone, the value that it had. */
    struct tensor_content *content; /* for a tensor: a reference; NULL: the base's */
    struct tensor_id id;            /* for a tensor */
    size_t name_len;
    char name[]; /* followed by a NUL */
};

/* What undoes an operation: the slot that it replaced, and the index of that slot. */
struct edit_undo {
    uint32_t at;
    struct edit_slot *was; /* owned; NULL: there was no slot */
};

/* The model being edited. It must outlive the change. */
struct edit_base {
    const struct gguf *g;
    const struct ids *ids; /* the ids of its tensors; see snapshot.h for NULL */
    /* the next number for a tensor's version; NULL: numbers are not assigned */
    atomic_uint *numbers;
};

struct edit_change {
    struct edit_base on;
    struct edit_slot **slot; /* owned; in the order in which they were first touched */
    size_t n, cap;
    size_t tensors; /* number of slots that belong to tensors */
    struct table by_name;
    struct edit_slot **slot_of; /* owned: by number in the base, keys before tensors; or NULL */
    struct edit_undo *undo;     /* owned: all operations since edit_keep() */
    size_t n_undo, cap_undo;
    uint64_t bytes;  /* size of the new header, without reserve or padding */
    uint64_t serial; /* serial of the last operation */
};

void edit_change_init(struct edit_change *c, const struct edit_base *base);
void edit_change_free(struct edit_change *c);

/* ---- operations on keys ---- */

/* Set a key to a value, which is moved: its bytes as in the file, after the type word. */
int edit_set(struct edit_change *c, const void *key, size_t key_len, uint32_t type,
             struct buf *bytes, struct err *e);
int edit_remove(struct edit_change *c, const void *key, size_t key_len, struct err *e);
int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len, struct err *e);

/* Return false if the key does not exist. *ret: its slot, or NULL if no operation touched it. */
bool edit_find(const struct edit_change *c, const void *key, size_t n,
               const struct edit_slot **ret);

/* Return the alignment that applies after the change. */
uint64_t edit_alignment(const struct edit_change *c);

/* Check a new value: edit_set() refuses only bad alignments. Returns 0 or -EINVAL. */
int edit_check_value(const struct gguf *g, const void *key, size_t key_len, uint32_t type,
                     const void *value, size_t value_len, struct err *e);

/*
 * Restore all keys of an earlier state, as the only operation of a change. They regain their order,
 * exact bytes and types, even where a manual edit would be refused (architecture, alignment,
 * names); ggufs' own keys stay as they are in the base. This can be undone like other operations.
 * Returns 0, -EINVAL (`keys` has a different byte order or layout), -EFBIG or -ENOMEM.
 */
int edit_restore(struct edit_change *c, const struct gguf *keys, struct err *e);

/* ---- operations on tensors ---- */

/* A tensor after the change. */
struct edit_tensor {
    struct tensor_id id;
    uint32_t old; /* index in the base; EDIT_NONE: new, even if under an old name */
    uint64_t nbytes;
    const char *name; /* stored in the base or the change */
    size_t name_len;
    struct tensor_content *content; /* the content in the change; NULL: the base's */
};

/* Find the tensor with this name or number. Returns false if it does not exist. */
bool edit_tensor_find(const struct edit_change *c, const void *name, size_t n,
                      struct edit_tensor *ret);
bool edit_tensor_numbered(const struct edit_change *c, uint32_t number, struct edit_tensor *ret);

int edit_tensor_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                       size_t to_len, struct err *e);
int edit_tensor_remove(struct edit_change *c, const void *name, size_t n, struct err *e);
/* Add a tensor with this number. The pieces must supply all bytes of its shape (else -EINVAL). */
int edit_tensor_add(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, uint32_t number, struct err *e);
/*
 * Change a tensor's type and shape (NULL: both stay), and replace bytes. Pieces must be in order,
 * disjoint and within the tensor; if type or size changes, they must supply all bytes (else
 * -EINVAL).
 */
int edit_tensor_set(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, struct err *e);

/* ---- the change as a whole ---- */

/* Say what an operation does, such as "general.url: removed". The slot is not that of a new key or tensor
 * that is gone again. */
void edit_describe(const struct edit_change *c, const struct edit_slot *s, struct buf *out);

/* Return true if nothing has been changed or every change has been undone. */
static inline bool edit_change_is_empty(const struct edit_change *c)
{
    return c->n == 0;
}

/* Return a mark for edit_undo(), which takes back all operations after it. */
static inline size_t edit_mark(const struct edit_change *c)
{
    return c->n_undo;
}
void edit_undo(struct edit_change *c, size_t mark);
/* Make the operations before `mark` permanent. Later marks count from there. */
void edit_keep(struct edit_change *c, size_t mark);

/* Return how many keys and tensors differ from the base or have been removed. Looks only at names and
 * slots, and does not compare values. */
size_t edit_change_count(const struct edit_change *c);

/*
 * Append the entries of the keys after the change, in order, without the reserve. (*ret)[i]: where
 * the entry of key i ends in the buffer. The caller frees *ret. Returns 0 or -ENOMEM.
 */
int edit_change_keys(const struct edit_change *c, struct buf *b, uint64_t **ret, size_t *n);
/*
 * Get all tensors after the change, in the order of the new file. Names point into the base and the
 * change. Returns 0 or -ENOMEM.
 */
int edit_change_tensors(const struct edit_change *c, struct edit_tensor **ret, size_t *n);

/* ---- keys compared ---- */

/*
 * Return a hash of the format and of all entries in order, except for ggufs' own keys. Equal keys
 * have the same hash in every process; the hash does not resist forgery.
 */
uint64_t edit_keys_id(const struct gguf *g);
/* Return true if the entries of these keys are the same byte for byte. */
bool edit_same_entry(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k);
/* Return true for one of ggufs' own keys. */
bool edit_key_is_own(const struct gguf *g, uint32_t kv);

/* ---- values as they are shown ---- */

/* A key's value. Taking the reference requires a lock; using the value, for example to render it,
 * does not. */
struct shown {
    struct snapshot *snap; /* a reference; NULL: the key has no value */
    uint32_t kv;           /* the key's index in the snapshot */
};

#define SHOWN_NONE ((struct shown){0})

/* For CLEANUP(). */
void shown_free(struct shown *s);
/* Get the value, which stays valid until shown_free(). Returns false if the key has no value. */
bool shown_value(const struct shown *s, struct gguf_value *ret);
/* Return true if the value has this type and these bytes. */
bool shown_is(const struct shown *s, uint32_t type, const struct buf *bytes);
/* Return the size of a value's text, which is measured only once. The value must exist. */
uint64_t shown_size(const struct shown *s);
void shown_text(const struct shown *s, struct buf *out);

#endif
