/* SPDX-License-Identifier: MIT */
/*
 * What an edit changes: a list of operations on the keys of a model, and the list of entries that
 * they make of its header. Pure: no file is touched.
 *
 *     CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
 *     edit_set(&c, "general.name", 12, GGUF_STRING, payload, n);     ... edit_remove, edit_rename
 *     CLEANUP(edit_keys_free) struct edit_keys k = EDIT_KEYS_INIT;
 *     r = edit_apply(g, &c, &k, &e);
 *
 * Operations take effect one after another, as if each were an edit of its own. Gathered edits are
 * thus one change, made by appending.
 *
 * A key keeps its place: when its value changes, when it is renamed, and also when it is removed
 * and comes back within one change. A new key goes to the end, or behind the key that it names.
 * What is not named by any operation keeps its exact bytes.
 *
 * Refused: the program's own keys, `split.*` and `ggufs.reserve` (-EPERM); general.architecture
 * removed or renamed (-EPERM); general.alignment other than a u32 that is a power of two from 8 to
 * 2^20, or renamed, or made by renaming (-EINVAL); a key that is not there (-ENOENT); a new name
 * that is taken (-EEXIST); an empty name or one over 65535 bytes (-EINVAL). The payload is not
 * looked into: the plan parses the header that comes out.
 */
#ifndef EDIT_CHANGE_H
#define EDIT_CHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gguf/gguf.h"

/* The one key that the program adds: spaces that let the header grow (see plan.h). */
#define EDIT_RESERVE_KEY "ggufs.reserve"

/* What the keys of a split model's files begin with. */
#define EDIT_SPLIT_PREFIX "split."

#define EDIT_MIN_ALIGNMENT ((uint64_t)8)
#define EDIT_MAX_ALIGNMENT ((uint64_t)1 << 20)
#define EDIT_MAX_KEY 65535 /* bytes; the specification's limit */

enum edit_op_kind { EDIT_SET, EDIT_REMOVE, EDIT_RENAME };

/* Names and values are ranges of edit_change.bytes, so that a change is freed at once. */
struct edit_op {
    enum edit_op_kind kind;
    uint32_t type;           /* set: enum gguf_value_type */
    size_t key, key_len;     /* what it is done to */
    size_t arg, arg_len;     /* set: the value's bytes as in the file; rename: the new name */
    size_t after, after_len; /* set: where a new key goes; length 0: to the end */
};

struct edit_change {
    struct edit_op *op; /* owned */
    size_t n, cap;
    struct buf bytes;
};

#define EDIT_CHANGE_INIT ((struct edit_change){0})

/* Append an operation; everything is copied. 0, -ENOMEM (nothing appended). */
int edit_set(struct edit_change *c, const void *key, size_t key_len, uint32_t type,
             const void *value, size_t value_len);
/* As edit_set, but if the key is new it goes behind the key `after` (if that is there). */
int edit_set_after(struct edit_change *c, const void *key, size_t key_len, uint32_t type,
                   const void *value, size_t value_len, const void *after, size_t after_len);
int edit_remove(struct edit_change *c, const void *key, size_t key_len);
int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len);
void edit_change_free(struct edit_change *c);

/* What edit_apply() refuses of a value: an alignment out of range that the model does not already
 * have. 0, -EINVAL. */
int edit_check_value(const struct gguf *g, const void *key, size_t key_len, uint32_t type,
                     const void *value, size_t value_len, struct err *e);
/* True for keys that only the program writes: `split.*`, `ggufs.reserve`. */
bool edit_is_own_key(const void *key, size_t n);

/* An entry of the new header: a range of the old header, or of edit_keys.bytes. */
struct edit_entry {
    bool made;         /* its bytes are [off, end) of edit_keys.bytes, else of the old header */
    uint64_t off, end; /* of the whole entry: key, type and value */
};

struct edit_keys {
    struct edit_entry *entry; /* owned; in the order of the new header, without the reserve */
    size_t n;
    struct buf bytes;
    uint64_t alignment; /* in force in the new file */
};

#define EDIT_KEYS_INIT ((struct edit_keys){0})

/* The entries of g after the change. 0, or as above; -ENOMEM. The line names the key. */
int edit_apply(const struct gguf *g, const struct edit_change *c, struct edit_keys *ret,
               struct err *e);
void edit_keys_free(struct edit_keys *k);

#endif
