/* SPDX-License-Identifier: MIT */
/*
 * The plan of the new file: the bytes of its header and where each other byte comes from. Pure: no
 * file is touched, and the same model, change and options always give the same plan.
 *
 *     CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
 *     r = edit_plan_make(&change, &options, &p, &e);      then edit_commit(), see commit.h
 *
 * The plan contains the new model, parsed (by gguf_parse(), like any file), so that it can be shown before it is on
 * disk. Its image (model/image.h) is the new file: the header from memory, data from the old file, zeros.
 *
 * Invariants of every plan (checked when it is made):
 *  P1. The image is valid (I1 to I3); the header is its first segment, file 0 is the old model.
 *  P2. The data begins at the first multiple of the alignment after the tensor infos; tensors lie in the order of the
 *      infos, each at the sum of the padded sizes before it.
 *  P3. Every byte of a tensor comes from its place in the old file, or, where the change says so, from a draft; every
 *      other byte outside the header is zero; bytes after the data are dropped. Without tensors the file ends with the
 *      header.
 *  P4. Version and byte order stay; unchanged keys and infos keep their exact bytes, except for offsets.
 *  P5. The new header parses, and every key and tensor is found where it was put.
 *
 * A tensor of unknown type has as many bytes as its extent in the old file; the last one is not padded, since what
 * follows it would become part of it.
 *
 * The reserve is the key ggufs.reserve, a string of spaces, last in the header. If used (`reserve` not 0, and the file
 * has one or is large enough), its length is chosen in this order:
 *  R1. so that the data offset is unchanged: then only the header differs (inplace);
 *  R2. otherwise with at least the requested number of spaces, and so that as much data as possible moves by a multiple
 *      of the file system's block: that part can be cloned (reflink). It is all of the data if no tensor is added,
 *      removed or resized. R1 is not used where it would reduce this.
 * In both, the header ends a few bytes before the data and not exactly on it: readers differ in whether they skip a
 * whole alignment there. R1 is used for a small file (which is copied anyway) only if at least half of the requested
 * number is left.
 */
#ifndef EDIT_PLAN_H
#define EDIT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "edit/change.h"
#include "model/snapshot.h"
#include "model/image.h"

enum edit_strategy { EDIT_AUTO, EDIT_REFLINK, EDIT_INPLACE, EDIT_COPY };

#define EDIT_RESERVE_AUTO UINT64_MAX
/* Size of an automatic reserve: a chat template of 5 KB can be added a dozen times. */
#define EDIT_RESERVE_DEFAULT ((uint64_t)64 << 10)
/* Larger files get one. */
#define EDIT_RESERVE_FROM ((uint64_t)256 << 20)
#define EDIT_RESERVE_MAX ((uint64_t)64 << 20)
/* In EDIT_AUTO, larger files are edited in place. */
#define EDIT_INPLACE_FROM ((uint64_t)64 << 20)
/* In EDIT_AUTO, bytes of tensors, each written twice, are changed in place up to this size and part of the file. */
#define EDIT_INPLACE_MAX ((uint64_t)1 << 30)
#define EDIT_INPLACE_PART 4

struct edit_options {
    enum edit_strategy strategy;
    uint64_t reserve;     /* spaces; 0: no reserve; or EDIT_RESERVE_AUTO */
    uint32_t block;       /* bytes of the file system's block (statvfs f_bsize) */
    bool break_hardlinks; /* see commit.h */
    const char *backup;   /* the suffix of the backup's name; not owned; NULL: no backup */
};

#define EDIT_OPTIONS_INIT ((struct edit_options){.reserve = EDIT_RESERVE_AUTO})

/* Return the multiple in bytes by which data should move so that it can be cloned. */
uint32_t edit_block(const struct edit_options *o);

#define EDIT_OLD_FILE 0 /* its number in a plan's image */

struct edit_plan {
    /* bytes [0, data offset) of the new file, including padding; once the new model is made, its head */
    struct buf head;
    uint64_t old_size;   /* of the file that the plan is for */
    struct image *image; /* owned: the new file; its EDIT_OLD_FILE reads as zeros */
    bool same;           /* the new file equals the old one byte for byte, except for old padding */
    bool
        inplace; /* only the header, bytes of tensors and what is added at the end of a regular file differ */
    bool clonable;    /* most old data moves by multiples of the block ... */
    uint64_t copied;  /* ... except these bytes, some of them in incomplete blocks */
    uint64_t changed; /* bytes that come from drafts */
    /* the multiple by which data moves if it is clonable; a power of two, at least 4096 */
    uint32_t block;
    struct gguf *next; /* owned: the new model */
    uint64_t *rank;    /* owned: of its keys (change.h); may be taken over */
    /* owned: its tensors, without names, with references to their contents; NULL: they are those of the base */
    struct edit_tensor *tensor;
    size_t n_tensors;
    struct log
        *lender;    /* that of the longest piece, if it is worth becoming the journal; or NULL */
    uint64_t lends; /* the size of that piece */
};

#define EDIT_PLAN_INIT ((struct edit_plan){0})

/*
 * Plan the new file that results from applying the change to its base. Returns 0, -EROFS (version
 * 1, strings with counted NULs, missing data), -EINVAL (a value's bytes are not a value), -EFBIG
 * (the header exceeds the limit, or the alignment is over EDIT_MAX_ALIGNMENT and stays so) or
 * -ENOMEM.
 */
int edit_plan_make(const struct edit_change *c, const struct edit_options *o, struct edit_plan *ret,
                   struct err *e);
void edit_plan_free(struct edit_plan *p);

/* Check that the plan itself satisfies a strategy, whatever the disk. Returns 0, or -EOPNOTSUPP
 * with the reason. */
int edit_plan_applies(const struct edit_plan *p, enum edit_strategy how, struct err *e);
/* The same without a plan, in time independent of the number of keys. 1: a plan is required. */
int edit_change_applies(const struct edit_change *c, const struct edit_options *o,
                        enum edit_strategy how, struct err *e);

/* True if files of this format can be edited at all; otherwise the line says why not (-EROFS). */
int edit_allowed(const struct gguf *g, struct err *e);

#endif
