/* SPDX-License-Identifier: MIT */
/*
 * One parsed GGUF image: version 1 (as shipped or as first drafted), 2 or 3, in either byte order.
 *
 * gguf_parse() turns a source (file or memory) into a struct gguf, which never changes, is
 * reference-counted and may be shared by any number of threads; gguf_free() drops a reference. The
 * header's bytes stay in memory; keys, values and names are ranges of them. Array elements and
 * strings have no structs: gguf_walk() and gguf_next() walk values.
 *
 * The parser trusts nothing in the file. It checks each size against the bytes that exist before it
 * allocates or reads anything, and each error names the field, the byte offset and the reason.
 * docs/format.md describes the layouts and the faults that are refused.
 */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "gguf/source.h"
#include "gguf/value.h"
#include "quant/quant.h"

/* Limits on a file's contents, each with its reason. */
enum {
    GGUF_MAX_DEPTH = 8, /* nesting of arrays (walked recursively); real files need 1, tests 3 */
    GGUF_MAX_DIMS = 32, /* NumPy 1's limit; ggml's is 4 */
};
#define GGUF_MAX_STRING ((uint64_t)1 << 30)   /* bytes of a string; ggml's limit */
#define GGUF_MAX_COUNT ((uint64_t)1 << 30)    /* elements of an array; ggml's limit */
#define GGUF_MAX_ELEMENTS ((uint64_t)1 << 60) /* per tensor; keeps float32 views below 2^63 bytes */
#define GGUF_MAX_HEADER ((uint64_t)1 << 32)   /* held in memory; real headers are under 100 MB */
#define GGUF_MAX_ITEMS ((uint64_t)1 << 24)    /* keys or tensors; under 100,000 in real models */

#define GGUF_DEFAULT_ALIGNMENT 32
#define GGUF_DRAFT_ALIGNMENT 64 /* fixed in the first draft of version 1 */

struct gguf_kv {
    /* Offset of the entry (its key's length field) in the file; entries are contiguous. */
    uint64_t off;
    uint64_t end;     /* end of the entry, where the next begins */
    uint64_t key_off; /* offset of the key's first byte */
    uint64_t val_off; /* offset of the value's first byte; its type word is the four bytes before */
    /* In bytes, not including a NUL that the stored length counts (see gguf_format.nul). */
    uint32_t key_len;
    uint32_t type; /* enum gguf_value_type */
};

struct gguf_tensor {
    /* Offset of its info (its name's length field) in the file; infos are contiguous. */
    uint64_t info_off;
    uint64_t name_off; /* offset of the name's first byte */
    uint64_t dims_off; /* offset of dims[0] in the file, see gguf_dim() */
    uint64_t off;      /* absolute offset of its data in the file */
    uint64_t n_elem;   /* product of the dimensions; 1 if there are none */
    uint64_t nbytes;   /* size of its data; for an unknown type, up to the next tensor */
    uint32_t name_len; /* in bytes */
    uint32_t n_dims;
    uint32_t type_id;   /* ggml's id, even if version 1 stored a different one */
    uint32_t stored_id; /* as stored in the file */
};

/* Irregularities of the data section. A rewrite removes all of them. */
enum gguf_anomaly {
    GGUF_ANOMALY_ORDER = 1 << 0,    /* data is not in the order of the tensor infos */
    GGUF_ANOMALY_GAPS = 1 << 1,     /* unused bytes beyond the padding, before or between tensors */
    GGUF_ANOMALY_NO_TAIL = 1 << 2,  /* the padding after the last tensor is missing or short */
    GGUF_ANOMALY_TRAILING = 1 << 3, /* bytes after the data */
    GGUF_ANOMALY_UNKNOWN = 1 << 4,  /* a tensor of a removed or unknown type */
    GGUF_ANOMALY_PARTIAL = 1 << 5,  /* data is missing (only with GGUF_PARTIAL) */
    GGUF_ANOMALY_CUT = 1 << 6,      /* the file ends in its header (only with GGUF_CUT) */
};

/* The items whose names have the same hash form a chain. Items count from 1; 0 ends a chain. */
struct gguf_chains {
    uint32_t
        *of; /* owned: the first item of each of mask + 1 chains, then what follows each item */
    uint32_t mask;
};

struct gguf {
    atomic_uint refs;
    struct gguf_format fmt;
    uint8_t *head;      /* owned: bytes [0, head_len) of the file */
    uint64_t head_len;  /* end of the last tensor info, or of the keys if there are no tensors */
    uint64_t info_off;  /* where the tensor infos begin */
    uint64_t file_size; /* size of the file when it was parsed */
    uint64_t data_off;  /* where the data section begins */
    uint64_t data_end;  /* end of the tensors' data; data_off if there is none */
    uint64_t alignment; /* general.alignment, or the default */
    unsigned anomalies; /* set of enum gguf_anomaly */
    uint32_t n_kv;
    uint32_t n_tensors;
    struct gguf_kv *kv;         /* owned, in file order */
    struct gguf_tensor *tensor; /* owned, in file order */
    struct gguf_chains keys, names;
};

/* Accept a file whose header is complete but whose data is not. */
#define GGUF_PARTIAL 1u
/* Accept also a file that ends in its header, if it is of version 2 or 3 and has a complete key. The
 * result has the keys that are complete, and no tensors. */
#define GGUF_CUT 2u

/*
 * Parse a source. *ret is set only on success, and the caller owns it. Returns 0, -EBADMSG, -EFBIG,
 * -ENODATA (data is missing and flags lack GGUF_PARTIAL), -ENOMEM or -EIO.
 */
int gguf_parse(const struct source *s, unsigned flags, struct gguf **ret, struct err *e);
/*
 * Parse a file whose first `len` bytes, at least its header, are in memory. On success the model
 * owns these bytes as its head; on failure the caller keeps them. The source is not read. from:
 * NULL, or a model that has some of the header's strings. If the strings of that model do not count
 * a NUL, neither do the header's, even if each of them ends in a NUL.
 */
int gguf_parse_head(const struct source *s, uint8_t *head, uint64_t len, const struct gguf *from,
                    struct gguf **ret, struct err *e);
/* Drop a reference; the last one frees the model. g may be NULL. */
void gguf_free(struct gguf *g);

/*
 * For checking: parse a file that gguf_parse() refuses, report each fault in order, and continue
 * as long as the rest can be read. If it returns 0, *ret is what could be parsed:
 *  - a search for a name that occurs twice finds the first occurrence,
 *  - an invalid alignment is replaced by the default,
 *  - a tensor with invalid dimensions or offset has no elements and no bytes,
 *  - tensors may overlap, be misaligned, and lie where the file has no bytes.
 * If it cannot continue, it returns -errno like gguf_parse(), with an error in *e that was not
 * reported as a fault. Parsing of version 1 stops at the first fault, because the faults decide
 * which of its two layouts a file has.
 */
typedef void gguf_fault_fn(void *arg, const struct err *e);
int gguf_parse_faults(const struct source *s, gguf_fault_fn *fault, void *arg, struct gguf **ret,
                      struct err *e);

/* Return the number of a key or tensor, or UINT32_MAX if it does not exist. */
uint32_t gguf_find_key(const struct gguf *g, const void *key, size_t n);
uint32_t gguf_find_tensor(const struct gguf *g, const void *name, size_t n);

static inline const char *gguf_key(const struct gguf *g, const struct gguf_kv *kv)
{
    return (const char *)g->head + kv->key_off;
}

static inline const char *gguf_name(const struct gguf *g, const struct gguf_tensor *t)
{
    return (const char *)g->head + t->name_off;
}

/* Return the name of key i or, if `keys` is false, of tensor i. */
static inline struct text gguf_name_of(const struct gguf *g, bool keys, uint32_t i)
{
    return keys ? (struct text){gguf_key(g, &g->kv[i]), g->kv[i].key_len}
                : (struct text){gguf_name(g, &g->tensor[i]), g->tensor[i].name_len};
}

struct gguf_value gguf_value(const struct gguf *g, const struct gguf_kv *kv);
/* True if key i of one file and key k of another have the same type and bytes. */
bool gguf_same_value(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k);

/* Return dimension i as stored: dims[0] varies fastest. NumPy's shape is the reverse. */
uint64_t gguf_dim(const struct gguf *g, const struct gguf_tensor *t, uint32_t i);

/* Return the number of keys or tensors that the header states, of which a file that is cut has
 * fewer. */
uint64_t gguf_stated(const struct gguf *g, bool keys);

/* Return a tensor's type, or NULL if its id is unknown. */
static inline const struct quant_type *gguf_type(const struct gguf_tensor *t)
{
    return quant_find(t->type_id);
}

#endif
