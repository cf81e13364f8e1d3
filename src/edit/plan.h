/* SPDX-License-Identifier: MIT */
/*
 * The plan for the new file gives the bytes of its header and says where every other byte comes
 * from. The module is pure: it touches no file, and the same model, change and options always give
 * the same plan.
 *
 *     CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
 *     r = edit_plan_make(&change, &options, &p, &e);      then edit_commit(), see commit.h
 *
 * The plan contains the new model, parsed by gguf_parse() like any file, so that it can be shown
 * before it is on disk. The plan's image (model/store.h) is the new file, made of the header from
 * memory, data from the old file and from drafts, and zeros.
 *
 * Invariants of every plan (checked when it is made):
 *  P1. The image is valid (I1 to I3); its first segment is the header, and its file 0 is the old
 *      model.
 *  P2. The data begins at the first multiple of the alignment after the tensor infos. Tensors lie
 *      in the order of the infos, each at the sum of the padded sizes before it.
 *  P3. Every byte of a tensor comes from its place in the old file or, where the change says so,
 *      from a draft. Every other byte outside the header is zero. Bytes after the data are dropped.
 *      Without tensors the file ends with the header.
 *  P4. Version and byte order stay the same; unchanged keys and infos keep their exact bytes,
 *      except for offsets.
 *  P5. The new header parses, and every key and tensor is found where it was put.
 *
 * A tensor of unknown type is as long as its extent in the old file, also in the new model, although
 * whoever parses the new file counts the padding behind it. If it is the last tensor, it is not
 * padded.
 *
 * The reserve is the key ggufs.reserve, a string of spaces, last in the header. The new header has
 * one if `reserve` is not 0 and the old header has one or the file is large enough. Its length is
 * chosen by the first rule that can be met:
 *  R1. The data offset stays unchanged, so that only the header differs. If not even an empty
 *      reserve fits before the data, there is none. With EDIT_COPY, R1 is used only if at least
 *      half of the requested spaces are left.
 *  R2. There are at least the requested number of spaces, and the longest run of data moves by a
 *      multiple of the file system's block, so that it can be cloned. If no tensor is added,
 *      removed or resized, all of the data moves this way. R1 is not used if that run could then
 *      not be cloned.
 * With either rule the header ends a few bytes before the data rather than exactly where it begins,
 * because readers differ in whether they skip a whole alignment there.
 */
#ifndef EDIT_PLAN_H
#define EDIT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "edit/change.h"
#include "model/snapshot.h"
#include "model/store.h"

/* How an edit is written: see commit.h. */
enum edit_strategy { EDIT_AUTO, EDIT_INPLACE, EDIT_COPY };

#define EDIT_RESERVE_AUTO UINT64_MAX
/* Size of an automatic reserve, enough to add a chat template of 5 KB a dozen times. */
#define EDIT_RESERVE_DEFAULT ((uint64_t)64 << 10)
/* Files larger than this get an automatic reserve. */
#define EDIT_RESERVE_FROM ((uint64_t)256 << 20)
#define EDIT_RESERVE_MAX ((uint64_t)64 << 20)
/* With EDIT_AUTO, files larger than this are edited in place if the file system does not clone. */
#define EDIT_INPLACE_FROM ((uint64_t)64 << 20)
/*
 * With EDIT_AUTO, an edit in place changes at most this many bytes of tensors, and at most
 * 1/EDIT_INPLACE_PART of the file, because each byte is written twice. There are no such bounds if
 * there is no room for a copy.
 */
#define EDIT_INPLACE_MAX ((uint64_t)1 << 30)
#define EDIT_INPLACE_PART 4

struct edit_options {
    enum edit_strategy strategy;
    uint64_t reserve;   /* number of spaces, 0 for no reserve, or EDIT_RESERVE_AUTO */
    uint32_t block;     /* block size of the file system in bytes (statvfs f_bsize) */
    const char *backup; /* the suffix of the backup's name; not owned; NULL: no backup */
};

#define EDIT_OPTIONS_INIT ((struct edit_options){.reserve = EDIT_RESERVE_AUTO})

/* Return the block size in bytes. Data can be cloned if it moves by a multiple of it. */
uint32_t edit_block(const struct edit_options *o);

#define EDIT_OLD_FILE 0 /* the old file's number in a plan's image */

struct edit_plan {
    /* bytes [0, data offset) of the new file, with padding; later the head of the new model */
    struct buf head;
    uint64_t old_size;   /* size of the file that the plan is for */
    struct image *image; /* owned: the new file; its EDIT_OLD_FILE reads as zeros */
    bool same;           /* the new file equals the old one byte for byte, except for old padding */
    /* a regular file in which only the header, bytes of tensors and additions at the end differ */
    bool inplace;
    uint64_t copied;  /* old bytes in a new file that cannot be cloned there, with whole blocks */
    uint64_t changed; /* number of bytes that come from drafts */
    uint64_t journal; /* at most so many bytes of tensor data are in the journal of the edit */
    /* clonable data moves by a multiple of this; a power of two, at least 4096 */
    uint32_t block;
    struct gguf *next; /* owned: the new model */
    /* owned: its tensors, nameless, with references to their contents; NULL: the base's */
    struct edit_tensor *tensor;
    size_t n_tensors;
};

#define EDIT_PLAN_INIT ((struct edit_plan){0})

/*
 * Plan the new file that results from applying the change to its base. Returns 0, -EROFS (version
 * 1, strings with counted NULs, missing data), -EINVAL (the bytes of a value are invalid), -EFBIG
 * (the new header exceeds the limit, or the new alignment exceeds EDIT_MAX_ALIGNMENT) or -ENOMEM.
 */
int edit_plan_make(const struct edit_change *c, const struct edit_options *o, struct edit_plan *ret,
                   struct err *e);
void edit_plan_free(struct edit_plan *p);

/*
 * Get the ids and places of the plan's tensors, for a snapshot of the plan. base: the state that the
 * plan is for; shown: the newest one, whose ids are kept if they are the same. *ids and *ret, with
 * references, may be set even on failure. Returns 0 or -ENOMEM.
 */
int edit_plan_tensors(const struct edit_plan *p, const struct view *base,
                      const struct snapshot *shown, struct ids **ids, struct store **ret);

enum edit_clone { EDIT_CLONE_UNKNOWN, EDIT_CLONE_YES, EDIT_CLONE_NO };

/* What is known about the disk before an edit: see edit_look() in commit.h. */
struct edit_disk {
    bool known;  /* everything except `clone` was determined */
    bool backup; /* a backup must still be made */
    enum edit_clone clone;
    uint64_t free, used; /* bytes free for new files; bytes that the model occupies */
};

/* An edit that copies at most so many bytes is cheap enough to be waited for. */
#define EDIT_CHEAP ((uint64_t)64 << 20)

/*
 * Choose how the plan is written: in the way that the options name, or else in the one that costs
 * less and for which there is room. *ret: EDIT_AUTO if the plan changes nothing. *copies: number of
 * bytes that are copied rather than cloned or left in place, a backup included. Reads nothing from
 * disk; if `d` is not known, there is room for anything. Returns 0, -ENOSPC, or -EOPNOTSUPP (the
 * named way is impossible).
 */
int edit_plan_way(const struct edit_plan *p, const struct edit_options *o,
                  const struct edit_disk *d, enum edit_strategy *ret, uint64_t *copies,
                  struct err *e);
/* Check that `needed` bytes fit into those found free. what: starts the message. */
int edit_check_room(uint64_t found, uint64_t needed, const char *what, struct err *e);
/* Return "auto", "inplace" or "copy". */
const char *edit_strategy_name(enum edit_strategy s);

/* Check that files of this format can be edited at all. Returns 0, or -EROFS with the reason. */
int edit_allowed(const struct gguf *g, struct err *e);

#endif
