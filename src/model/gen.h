/* SPDX-License-Identifier: MIT */
/*
 * A generation: one state of the model, parsed, immutable and counted. An edit makes a new one and
 * never changes an old one. A view is a generation together with the store that its tensor data is
 * read from.
 *
 * The first generation pins its file: what stands between and behind the tensors of a file that
 * others wrote is nowhere else. Once the file is replaced only those who have the generation's
 * model.gguf open hold the pin on, so that no file is kept for a node that the kernel merely
 * remembers. All later generations are whole without any file of their own: the header
 * is in memory, tensor data in the newest store, all else is zero.
 *
 * Threads: any; what is cached (sizes of texts) is atomic.
 */
#ifndef MODEL_GEN_H
#define MODEL_GEN_H

#include <time.h>

#include "model/shards.h"

/* Rows of views of the whole whose size is kept, by their place in the table of root files. */
#define GEN_ROWS 31

struct gen {
    atomic_uint refs;
    uint32_t number;             /* 0 for the first generation of a mount */
    struct timespec mtime;       /* when it was made; of the first: the model's */
    struct gguf *gguf;           /* owned: what is shown */
    struct gguf *own;            /* owned: of a split model, what its first file holds; else NULL */
    const struct shards *shards; /* the tree's; NULL if the model is not split */
    struct mapped *pinned;       /* a reference, or NULL; protected by the tree's lock */
    bool unpinned;               /* the same: it was, and cannot be opened as a whole any more */
    uint8_t *pad;                /* owned: of the first, what its file had behind the header */
    size_t pad_len;
    uint64_t *rank; /* owned: of own's keys (edit/change.h); NULL: their numbers + 1 */
    bool journal;   /* an interrupted edit was applied in memory */
    /* Names too long for a file name, by the hash of their file names. */
    struct index long_keys;
    struct index long_tensors;
    _Atomic(uint64_t) *key_size; /* owned: size of each key's text + 1, 0 while unknown */
    _Atomic(uint64_t) *row_size; /* owned: the same for the rendered files at the root, GEN_ROWS */
};

/* A generation of a parsed model, which passes to it on success. 0, -ENOMEM. */
int gen_make(struct gguf *g, uint32_t number, const struct timespec *mtime, struct gen **ret);
struct gen *gen_ref(struct gen *g);
void gen_unref(struct gen *g);

struct view {
    struct gen *gen;     /* a reference */
    struct store *store; /* a reference */
    struct mapped *pin;  /* a reference, for model.gguf: what gen pinned at open, or NULL */
};

#define VIEW_INIT ((struct view){0})
struct view view_ref(const struct view *v);
/* For CLEANUP(); nothing is done to an empty one. */
void view_free(struct view *v);

/* Let go of the pinned store. Under the tree's lock. */
void gen_unpin(struct gen *g);

/* The number of the key or tensor with this file name, UINT32_MAX if there is none. */
uint32_t gen_find_key(const struct gen *g, const char *file);
uint32_t gen_find_tensor(const struct gen *g, const char *file);

/* The number of a tensor of the generation. */
static inline uint32_t gen_tensor_no(const struct gen *g, const struct gguf_tensor *t)
{
    return (uint32_t)(t - g->gguf->tensor);
}

/* What the file that is edited holds. */
static inline const struct gguf *gen_own(const struct gen *g)
{
    return g->own ? g->own : g->gguf;
}

/* Where tensor i's data lies in its file, and which of the shards that is. */
uint64_t gen_offset(const struct gen *g, uint32_t i, size_t *shard);

/* False for the program's own key, which is not for people. */
bool gen_shows_key(const struct gen *g, uint32_t kv);

#endif
