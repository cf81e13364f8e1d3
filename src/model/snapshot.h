/* SPDX-License-Identifier: MIT */
/*
 * The states of a model.
 *
 * A snapshot is one state, parsed, immutable and counted. An edit makes a new one and never changes an old one. A view
 * is a snapshot together with the store that its tensor data is read from. `struct newest` holds the newest view, to
 * which all readers take references:
 *
 *     newest_init(&n); n.view.snap = ...; n.view.store = ...;
 *     struct view v = newest_view(&n);     any reader; view_free(&v)
 *     newest_put_view(&n, snap, store);    the writer
 *
 * The first snapshot has an image of the edited file as it was opened: whatever other programs wrote between and
 * after its tensors exists nowhere else. Once the file is replaced, only handles on views of that snapshot hold the
 * image, so no file is kept open for a node that the kernel merely remembers. All later snapshots need no file of
 * their own: the header is in memory, tensor data in the newest store, all else is zero.
 *
 * Which tensor is which, from one state to the next: a tensor has a number for as long as it is in the model, whatever
 * its name and its place in the list, and a version: another number, new each time its bytes, type or shape change.
 * Both come from one counter and are never reused. When a model is opened, tensor i has number and version i. As long
 * as no tensor is edited this needs no table, and NULL stands for it. States whose tensors do not differ share a
 * table, so two states with the same table have the same tensors in the same order.
 *
 * Threads: any; what is cached (sizes of texts) is atomic. Only one thread at a time changes what is newest
 * (newest_put_view), and that one may read `view` without the lock. The lock is held for a few reference counts, never
 * while anything is rendered, measured, planned or read from disk: a read of tensor data takes no other lock.
 */
#ifndef MODEL_SNAPSHOT_H
#define MODEL_SNAPSHOT_H

#include <time.h>

#include "base/hash.h"
#include "base/lock.h"
#include "model/image.h"
#include "model/split.h"

/* ---- which tensor is which ---- */

#define IDS_NONE UINT32_MAX

struct tensor_id {
    uint32_t number;
    uint32_t version; /* the first version equals the number */
};

struct ids {
    atomic_uint refs;
    uint32_t n;           /* tensors */
    struct tensor_id *of; /* owned: by place in the list */
    struct index find;    /* by number and by version */
};

struct ids *ids_ref(struct ids *s); /* s may be NULL, here and below */
void ids_unref(struct ids *s);

static inline struct tensor_id ids_of(const struct ids *s, uint32_t i)
{
    return s ? s->of[i] : (struct tensor_id){i, i};
}

/* Return the index of the tensor with this number, or version, or IDS_NONE if none of the n tensors
 * has it. */
uint32_t ids_look(const struct ids *s, uint32_t wanted, bool version);

static inline uint32_t ids_find(const struct ids *s, uint32_t n, uint32_t number)
{
    return s ? ids_look(s, number, false) : number < n ? number : IDS_NONE;
}

static inline uint32_t ids_find_version(const struct ids *s, uint32_t n, uint32_t version)
{
    return s ? ids_look(s, version, true) : version < n ? version : IDS_NONE;
}

/* Make a table of the n tensors in `of`. Returns 0 or -ENOMEM. */
int ids_make(const struct tensor_id *of, uint32_t n, struct ids **ret);

/* ---- snapshots ---- */

/* Rows of whole-model views whose size is cached, by their place in the table of root files. */
#define SNAPSHOT_ROWS 31

/* Something that a higher layer computes from a snapshot and keeps with it, by slot. */
struct snapshot_part {
    void (*free)(struct snapshot_part *part);
};
enum { SNAPSHOT_PARTS = 8 };

struct snapshot {
    atomic_uint refs;
    uint32_t number;       /* 0 for the first snapshot of a mount */
    struct timespec mtime; /* when it was made; for the first, the model's mtime */
    struct gguf *gguf;     /* owned: what is shown */
    struct gguf **shard; /* owned references: for a split model, what each file holds; else NULL */
    struct gguf *own;    /* the first of them; or NULL */
    struct ids *ids;     /* a reference: which tensor is which; NULL: see snapshot.h */
    const char *file;    /* owned by the tree: the name of its file; "" if unknown */
    const struct shards *shards;   /* owned by the tree; NULL if the model is not split */
    _Atomic(struct image *) whole; /* owned: snapshot_whole() */
    _Atomic(struct snapshot_part *) part[SNAPSHOT_PARTS]; /* owned: snapshot_part() */
    uint64_t *rank;        /* owned: ranks of own's keys (edit/change.h); NULL: their numbers + 1 */
    uint64_t *tensor_rank; /* owned: the same for its tensors */
    bool journal;          /* an interrupted edit was applied in memory */
    /* Names too long for a file name, by the hash in their file names. */
    struct index long_keys;
    struct index long_tensors;
    _Atomic(uint64_t) *key_size; /* owned: size of each key's text + 1; 0: not known yet */
    /* owned: the same for the rendered files at the root, SNAPSHOT_ROWS */
    _Atomic(uint64_t) *row_size;
};

/* Make a snapshot of a parsed model, which it takes over on success. Returns 0 or -ENOMEM. */
int snapshot_make(struct gguf *g, uint32_t number, const struct timespec *mtime,
                  struct snapshot **ret);
struct snapshot *snapshot_ref(struct snapshot *g);
void snapshot_unref(struct snapshot *g);

struct view {
    struct snapshot *snap; /* a reference */
    struct store *store;   /* a reference */
    struct image *file;    /* a reference: for the first snapshot, its file (snapshot.h); or NULL */
};

#define VIEW_INIT ((struct view){0})
struct view view_ref(const struct view *v);
/* True if the first snapshot's file is gone, so that it can no longer be shown as a whole. */
bool view_is_lost(const struct view *v);
/* Free a view. Does nothing to an empty one. */
void view_free(struct view *v);

/*
 * Make an image of the edited file for the first snapshot, which must outlive it: the file, read
 * from src and mapped, with the bytes between header and data in memory, because an edit in place
 * may overwrite them. Returns 0 or -errno.
 */
int snapshot_keep_file(const struct snapshot *g, const struct source *src, struct mapped *m,
                       struct image **ret);
/* Return the model as one file, made on first use, or NULL without memory. It lives as long as
 * g. */
struct image *snapshot_whole(struct snapshot *g);

/* Return the part in this slot, or NULL if it is not made yet. It lives as long as g. */
struct snapshot_part *snapshot_part(const struct snapshot *g, unsigned slot);
/* Keep a part, whose ownership passes to g. Returns it, or the part that another thread kept first. */
struct snapshot_part *snapshot_add_part(struct snapshot *g, unsigned slot,
                                        struct snapshot_part *part);

/* Return the number of the key, or else the tensor, with this file name, or UINT32_MAX if it does
 * not exist. */
uint32_t snapshot_find(const struct snapshot *g, bool key, const char *file);

/* Return the number of a tensor of the snapshot. */
static inline uint32_t snapshot_tensor_no(const struct snapshot *g, const struct gguf_tensor *t)
{
    return (uint32_t)(t - g->gguf->tensor);
}

/* Return the content of the file with the keys: the first file of a split model. */
static inline struct gguf *snapshot_own(const struct snapshot *g)
{
    return g->own ? g->own : g->gguf;
}

/* Return how many files the model has, and the content of each. */
static inline size_t snapshot_files(const struct snapshot *g)
{
    return g->shard ? g->shards->n : 1;
}

static inline struct gguf *snapshot_file(const struct snapshot *g, size_t no)
{
    return g->shard ? g->shard[no] : g->gguf;
}

/* Return where tensor i's data lies in its file, and in which shard. */
uint64_t snapshot_offset(const struct snapshot *g, uint32_t i, size_t *shard);

/* False for the program's own key, which users do not see. */
bool snapshot_shows_key(const struct snapshot *g, uint32_t kv);

/* ---- the newest ---- */

struct newest {
    struct lock lock;
    struct view view;            /* references: the newest snapshot and store */
    struct timespec changed;     /* the last edit */
    const char *name;            /* the name of the model's file, not owned; or NULL */
    const struct shards *shards; /* for a split model, not owned; else NULL */
    /* a reference to the first snapshot's file as it was opened; NULL: replaced */
    struct image *file;
    atomic_uint numbers; /* given out so far to tensors and versions (snapshot.h) */
    /*
     * Called under the lock before a snapshot with another table of tensors replaces the newest, so that views still
     * needed can be kept. May be NULL.
     */
    void (*leaving)(void *arg, const struct snapshot *next);
    void *leaving_arg;
};

void newest_init(struct newest *n);
void newest_free(struct newest *n);

/* Return a reference to the newest view. Free it with view_free(). */
struct view newest_view(struct newest *n);
/* Return a view of another snapshot, with the newest store. Under the lock. */
struct view newest_view_as(const struct newest *n, struct snapshot *g);
struct timespec newest_changed(struct newest *n);

/*
 * Make a snapshot of the model's file, or of each file of a split model in order. Takes over the
 * references in `file` even if it fails.
 */
int newest_make(const struct newest *n, struct gguf *const *file, uint32_t number,
                const struct timespec *mtime, struct snapshot **ret, struct err *e);
/*
 * Make the store of a snapshot whose first file is open as fd (which is duplicated); -1: keep the
 * present mapping. file: all files in order; the first is used for nothing else.
 */
int newest_make_store(const struct snapshot *g, struct mapped *const *file, int fd,
                      struct store **ret, struct err *e);

/*
 * Replace the newest by a snapshot and a store of its tensors. Takes over both references, and returns those to what
 * it replaced.
 */
struct view newest_put_view(struct newest *n, struct snapshot *g, struct store *s);
/* Drop the first snapshot's file, which is replaced or whose tensors are changed. */
void newest_drop_file(struct newest *n);
/* Record that something was edited now. */
void newest_touch(struct newest *n);

#endif
