/* SPDX-License-Identifier: MIT */
/*
 * A store: the open, mapped files of a model and where in them each tensor's data lies. One file,
 * or of a split model one for each shard.
 *
 * Tensor bytes are the same in all snapshots with the same table of tensors (ids.h), so every
 * reader takes them from the newest store, and no file that was replaced is kept alive.
 *
 * Threads: immutable and counted; any.
 */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include <stdatomic.h>

#include "base/far.h"
#include "base/map.h"
#include "gguf/gguf.h"

/* Bytes that are fetched ahead of reads in order, from a disk of this machine; and how many are read
 * before that begins. */
#define MAPPED_AHEAD ((uint64_t)8 << 20)
#define MAPPED_AHEAD_LEAST ((uint64_t)1 << 20)

/* Where its bytes come from: memory; a disk of this machine; another machine. */
enum mapped_from { MAPPED_PAGES, MAPPED_DISK, MAPPED_FAR };

/* An open file, mapped whole. Counted. */
struct mapped {
    atomic_uint refs;
    int fd;          /* owned */
    atomic_bool cut; /* a check has failed: the file is shorter than it was */
    enum mapped_from from;
    struct runs runs; /* of reads in order, unless its pages are not a file's */
    struct map map;
    atomic_bool frozen; /* some pages are not the file's: mapped_freeze(), mapped_of_pages() */
};

/* Map the first `size` bytes of fd, which passes to it on success. */
int mapped_open(int fd, uint64_t size, struct mapped **ret, struct err *e);
struct mapped *mapped_ref(struct mapped *m);
void mapped_unref(struct mapped *m);
/*
 * Announce that bytes [off, off + n) are about to be read through the mapping, of a part that ends at
 * `end`: what follows in it is fetched ahead of reads in order (base/runs.h). Without it they are read as
 * well, but from another machine page by page.
 */
void mapped_want(struct mapped *m, uint64_t off, uint64_t n, uint64_t end);
/*
 * A mapping that was made, of pages that are not a file's, or of its own pages and those of fd from
 * `base` on; the file must have the first `own` bytes of it. The mapping and fd pass to the result. NULL:
 * no memory, and they stay the caller's.
 */
struct mapped *mapped_of_pages(int fd, uint64_t base, const void *pages, uint64_t size,
                               uint64_t own);
/*
 * What is mapped of bytes [off, off + n) of the file, rounded to pages, stays as it is, whatever is
 * written to the file: its bytes are copied to `fd`, a file without a name, at `at`, a multiple of a
 * page, and mapped from there. *copied: how many those are. Before the file is changed. 0, -errno.
 */
int mapped_freeze(struct mapped *m, uint64_t off, uint64_t n, int fd, uint64_t at,
                  uint64_t *copied);
/* The same of a mapping of the whole file that is not frozen: `fd` has its bytes. off, like `at`,
 * is a multiple of a page, and the file is longer by so much that it ends with a page. */
int mapped_lay(struct mapped *m, uint64_t off, uint64_t n, int fd, uint64_t at);
/* As map_check(), and `cut` is set if it fails. */
int mapped_check(struct mapped *m, uint64_t end);
/* Copy bytes [off, off + n), under map_guard(). 0, -EIO (the file has been cut, or ends before). */
int mapped_copy(struct mapped *m, uint64_t off, void *dst, size_t n);
/* The same of a part that ends at `end`, as for mapped_want(). */
int mapped_copy_of(struct mapped *m, uint64_t off, void *dst, size_t n, uint64_t end);
/*
 * The file as a source, which must not outlive it; and the file of such a source, NULL of others.
 */
struct source mapped_source(struct mapped *m);
struct mapped *mapped_of(const struct source *s);

struct store {
    atomic_uint refs;
    struct mapped **file; /* owned references, in the order of shards */
    size_t files;
    struct place_in_store *place; /* owned: of each tensor, in the order of the model */
    size_t n;                     /* tensors */
    uint32_t written; /* its first file was written as the snapshot of this number; 0: not known */
};

struct place_in_store {
    uint64_t off; /* of its data in the file */
    uint32_t file;
    uint32_t shard; /* the file of the model that it belongs to: `file`, but of a tensor whose bytes
                       are not there yet */
};

/*
 * A store of n files, each laid out as in g[i]; the tensors of the model are theirs, one file
 * after another. Takes references of its own. 0, -ENOMEM.
 */
int store_make(struct mapped *const *file, const struct gguf *const *g, size_t n,
               struct store **ret);
/* One of these files and places (copied), with references of its own. 0, -ENOMEM. */
int store_of(struct mapped *const *file, size_t files, const struct place_in_store *place, size_t n,
             struct store **ret);
/*
 * `base`, in which file `no` and the places of the tensors that belong to it are those of `to`: both
 * have the same tensors, and the model's n files first. 0, -ENOMEM.
 */
int store_with(const struct store *base, const struct store *to, uint32_t no, size_t n,
               struct store **ret);
struct store *store_ref(struct store *s);
void store_unref(struct store *s);

/* Bytes [first, last) of tensor i's data in the mapping; NULL if they are not all in the file. No bytes
 * are in any file, wherever the tensor lies; so for store_check(). */
const uint8_t *store_data(const struct store *s, uint32_t i, uint64_t first, uint64_t last);
/* mapped_want() of these bytes of the n that it has. */
void store_want(const struct store *s, uint32_t i, uint64_t first, uint64_t last, uint64_t n);
/* How many of tensor i's n bytes are in the file, from the first on. */
uint64_t store_there(const struct store *s, uint32_t i, uint64_t n);
/* -EIO if the file has been cut since, so that these bytes are not all there any more. */
int store_check(const struct store *s, uint32_t i, uint64_t last);
/* True if a file was seen to have been cut. */
bool store_cut(const struct store *s);

#endif
