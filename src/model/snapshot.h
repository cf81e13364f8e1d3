/* SPDX-License-Identifier: MIT */
/*
 * The states of a model, which is one file or several.
 *
 * A snapshot is one state of a model, parsed, immutable and reference-counted. An edit makes a new
 * snapshot and never changes an old one. A view is a snapshot together with the store from which
 * its tensor data is read. `struct newest` holds the newest view, to which all readers take
 * references:
 *
 *     newest_init(&n); n.view.snap = ...; n.view.store = ...;
 *     struct view v = newest_view(&n);     any reader; view_free(&v)
 *     newest_put_view(&n, snap, store);    the writer
 *
 * The first snapshot has an image of the edited file as it was opened, because the bytes that other
 * programs wrote between and after its tensors exist nowhere else. Once the file is replaced, only
 * handles on views of that snapshot hold the image, so no file is kept open for a node that the
 * kernel merely remembers. Later snapshots need no file of their own: their header is in memory,
 * their tensor data is in the newest store, and all other bytes are zero.
 *
 * Tensors are identified across states by ids. A tensor keeps its number for as long as it is in
 * the model, even if its name or its place in the list changes. It also has a version, a second
 * number, which is new each time its bytes, type or shape change. Numbers and versions come from
 * one counter and are never reused. When a model is opened, tensor i has number i and version i. As
 * long as no tensor has been edited, no table of ids is needed, and the pointer to the table is
 * NULL. States whose tensors do not differ share a table, so two states with the same table have
 * the same tensors in the same order.
 *
 * Threads: any. Only one thread at a time may replace the newest view, and that thread may read
 * `view` without the lock. The lock is held only to change a few reference counts, never while
 * anything is rendered, measured, planned or read from disk. A read of tensor data takes no other
 * lock.
 */
#ifndef MODEL_SNAPSHOT_H
#define MODEL_SNAPSHOT_H

#include <time.h>

#include "base/hash.h"
#include "base/lock.h"
#include "model/shards.h"
#include "model/store.h"

/* ---- which tensor is which ---- */

#define IDS_NONE UINT32_MAX

struct tensor_id {
    uint32_t number;
    uint32_t version; /* the first version of a tensor equals its number */
};

struct ids {
    atomic_uint refs;
    uint32_t n; /* number of tensors */
    struct tensor_id of[];
};

void ids_unref(struct ids *s); /* s may be NULL, here and below */

static inline struct tensor_id ids_of(const struct ids *s, uint32_t i)
{
    return s ? s->of[i] : (struct tensor_id){i, i};
}

/*
 * Return the index of the tensor with this number or, if `version` is true, with this version.
 * Returns IDS_NONE if no tensor has it.
 */
uint32_t ids_look(const struct ids *s, uint32_t wanted, bool version);

static inline uint32_t ids_find(const struct ids *s, uint32_t n, uint32_t number)
{
    return s ? ids_look(s, number, false) : number < n ? number : IDS_NONE;
}

static inline uint32_t ids_find_version(const struct ids *s, uint32_t n, uint32_t version)
{
    return s ? ids_look(s, version, true) : version < n ? version : IDS_NONE;
}

/* Make a table of n tensors, whose ids the caller fills in. Returns NULL if out of memory. */
struct ids *ids_new(uint32_t n);

/* ---- snapshots ---- */

#define SNAPSHOT_ROWS 31 /* number of rows in the table of root files */

enum { SNAPSHOT_FORMS = 4 };

struct snapshot {
    atomic_uint refs;
    uint32_t number;             /* 0 for the first snapshot of a mount */
    struct timespec mtime;       /* when it was made; for the first snapshot, the model's mtime */
    struct gguf *gguf;           /* owned: the model as shown */
    struct gguf **shard;         /* owned references to the files' contents; NULL if not split */
    struct ids *ids;             /* a reference: the tensors' ids; NULL: see the top of this file */
    const char *file;            /* owned by the tree: name of the model's file */
    const struct shards *shards; /* owned by the tree; NULL if the model is not split */
    _Atomic(struct image *) whole;                /* owned: snapshot_whole() */
    _Atomic(struct image *) form[SNAPSHOT_FORMS]; /* owned: derive/safetensors.h */
    _Atomic(uint64_t) *key_size;               /* owned: size of each key's text + 1; 0: unknown */
    _Atomic(uint64_t) row_size[SNAPSHOT_ROWS]; /* the same for the rendered files at the root */
};

void snapshot_unref(struct snapshot *g);

struct view {
    struct snapshot *snap; /* a reference */
    struct store *store;   /* a reference */
    struct image *file;    /* a reference: the image of the first snapshot's file; or NULL */
};

#define VIEW_INIT ((struct view){0})
struct view view_ref(const struct view *v);
/* True for the first snapshot if its file is gone, so that the model cannot be shown as a whole. */
bool view_is_lost(const struct view *v);
void view_free(struct view *v); /* *v may be empty */

/*
 * For the first snapshot: make an image of the file that edits will change. The snapshot must
 * outlive the image. The image holds the bytes between header and data in memory, because an edit
 * in place may overwrite them. Returns 0 or -errno.
 */
int snapshot_keep_file(const struct snapshot *g, const struct source *src, struct mapped *m,
                       struct image **ret);
/* Return the image of the model as one file, made on first use, or NULL if out of memory. */
struct image *snapshot_whole(struct snapshot *g);

/* Keep an image in its slot of the snapshot, which takes the reference. Returns the kept image, which is
 * another thread's if that was first. */
struct image *snapshot_keep(_Atomic(struct image *) *slot, struct image *im);

/* Keep the measured sizes of keys whose values are unchanged. */
void snapshot_keep_sizes(const struct snapshot *old, struct snapshot *now);

/* Return the number of the key or, if `key` is false, of the tensor with this file name. Returns
 * UINT32_MAX if there is none. */
uint32_t snapshot_find(const struct snapshot *g, bool key, const char *file);

static inline uint32_t snapshot_tensor_no(const struct snapshot *g, const struct gguf_tensor *t)
{
    return (uint32_t)(t - g->gguf->tensor);
}

static inline size_t snapshot_files(const struct snapshot *g)
{
    return g->shard ? g->shards->n : 1;
}

/* Return the parsed content of file `no`. */
static inline struct gguf *snapshot_file(const struct snapshot *g, size_t no)
{
    return g->shard ? g->shard[no] : g->gguf;
}

/* Return the parsed content of the file that has the keys. */
static inline struct gguf *snapshot_own(const struct snapshot *g)
{
    return snapshot_file(g, 0);
}

/* Return the offset of tensor i's data in its file, and set *shard to the number of that file. */
uint64_t snapshot_offset(const struct snapshot *g, uint32_t i, size_t *shard);

/* Return false for the program's own key, which users do not see. */
bool snapshot_shows_key(const struct snapshot *g, uint32_t kv);

/* ---- the newest ---- */

struct newest {
    struct lock lock;
    /* References to the newest snapshot and store, and to the first snapshot's file as it was opened
     * (NULL after newest_drop_file()). */
    struct view view;
    struct timespec changed;     /* time of the last edit */
    const char *name;            /* the name of the model's file, not owned */
    const struct shards *shards; /* not owned; NULL if the model is not split */
    atomic_uint numbers;         /* number of ids handed out so far, for tensors and versions */
    /*
     * Called with the lock held, before the newest snapshot is replaced by one with a different
     * table of tensors, so that views that are still needed can be kept.
     */
    void (*leaving)(void *arg, const struct snapshot *next);
    void *leaving_arg;
};

void newest_init(struct newest *n);
void newest_free(struct newest *n);

struct view newest_view(struct newest *n);
/* Return a view of snapshot g with the newest store. Call with the lock held. */
struct view newest_view_as(const struct newest *n, struct snapshot *g);
struct timespec newest_changed(struct newest *n);

/*
 * Make a snapshot of a model from its first file and, if the model is split, from the other files
 * in `all` (all[0] is not used). Takes ownership of the reference to `first` even on failure.
 * The caller sets the ids.
 */
int newest_make(const struct newest *n, struct gguf *first, struct gguf *const *all,
                uint32_t number, const struct timespec *mtime, struct snapshot **ret,
                struct err *e);
/*
 * Make the store of a snapshot from all files in order. The first file is open as fd, which is
 * duplicated; if fd is -1, its existing mapping file[0] is kept.
 */
int newest_make_store(const struct snapshot *g, struct mapped *const *file, int fd,
                      struct store **ret, struct err *e);

/* Replace the newest view, taking ownership of both references. Returns the old view. */
struct view newest_put_view(struct newest *n, struct snapshot *g, struct store *s);
/* Drop the first snapshot's file, after it has been replaced or its tensors have changed. */
void newest_drop_file(struct newest *n);
/* Record the current time as the time of the last edit. */
void newest_touch(struct newest *n);

#endif
