/* SPDX-License-Identifier: MIT */
/*
 * Data in the draft of one view of one tensor: what was written to it over what the view showed when the
 * draft was begun, and the judge that makes an edit of it.
 *
 *     r = tensor_draft_make(f, base, TENSOR_F32, &d, &e);
 *     r = tensor_draft_write(d, false, off, bytes, n, &e);       ... truncate, allocate, read
 *     r = tensor_draft_judge(d, &watch, &edit, &e);              at a flush, fsync or release
 *     TENSOR_CHANGED:  r = tensor_edit_apply(&edit, change, name, n, &e);
 *                      r == 0: tensor_draft_passed(d, base with the new content)
 *                      r < 0:  tensor_draft_failed(d)
 *     tensor_edit_free(&edit);
 *     draft_free(d);
 *
 * Bytes lie in the log of the model (logs.h): a draft is a list of stretches of it, over what the view shows of the
 * base. What is not judged yet is written again in its place; what is being judged, or was, never: other bytes are
 * written then. Where the draft was truncated, and grew again, are zeros.
 *
 * The judge looks at what was written since it passed last. Values are compared with what the view
 * shows of the base, block by block: equal ones keep their bytes, others are encoded, by all
 * processors. A draft that passed shows what was written to it, not what that was encoded to, and
 * goes on from the new base; it holds all values of each block that it changed, so that
 * judging them again gives the same bytes. A NumPy header that moves the values or changes their type
 * has all of them judged again.
 *
 * Bytes of `raw` that differ are pieces of the log as they were written; values are encoded into it.
 *
 * Threads: any. One judges at a time, up to passed() or failed(). Others may read and write
 * meanwhile: what they write is part of this judgement or of the next. Of two locks `io` is held for one
 * write, and while the disk is asked, but not while values are compared and encoded; `lock` is only held
 * for a look at what it protects, and comes after all others.
 */
#ifndef LIVE_TENSOR_DRAFT_H
#define LIVE_TENSOR_DRAFT_H

#include "base/pool.h"
#include "live/draft.h"
#include "quant/encode.h"

/* Bytes of a draft whose length is not bounded by a tensor: more than any tensor has. */
#define TENSOR_DRAFT_MAX ((uint64_t)1 << 43)
/* The longest text of `type` or `shape`. */
#define TENSOR_TEXT_MAX 4096

/*
 * A draft of a view that exists, or of any view of a tensor that does not exist, or of a helper (which no judge sees).
 * The logs must outlive it. Takes a reference to the base. The disk is not asked: a log is made by a write. 0, -ENOMEM.
 */
int tensor_draft_make(struct logs *logs, struct tensor_base *base, enum tensor_view view,
                      struct draft **ret, struct err *e);

/*
 * append: at its end, wherever that is; else at `off`. 0; 1: of a text, which ends with these bytes, a line is whole;
 * -EFBIG (longer than the view can be), -EINVAL (a NumPy header, whole or not, that cannot become one that is taken; a
 * text that has a hole or is too long), -ENOSPC, -ENOMEM, -EIO, -errno. On failure the content is undefined where it was
 * to be written.
 */
int tensor_draft_write(struct draft *d, bool append, uint64_t off, const void *bytes, size_t n,
                       struct err *e);
/* 0, -EFBIG, -ENOMEM, -errno. */
int tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e);
/* fallocate(2) without a mode, or to keep the size. Room is not reserved. 0, -EFBIG. */
int tensor_draft_allocate(struct draft *d, uint64_t off, uint64_t n, bool keep_size, struct err *e);
/* Up to n bytes at `off`; *got: fewer at the end. 0, -ENOMEM, -EIO, -errno. */
int tensor_draft_read(struct draft *d, uint64_t off, void *dst, size_t n, size_t *got);
/* The edit was accepted: the draft goes on from this base, which has it. Quick; before the model can be
 * edited again. Takes a reference. */
void tensor_draft_passed(struct draft *d, struct tensor_base *now);
/* It was not. */
void tensor_draft_failed(struct draft *d);
/* Take back a line that a signal has stopped: while it was judged (judged), or before, when no other line waits (all). */
void tensor_draft_take_back(struct draft *d, bool judged, bool all);
/*
 * All of a helper is what was written to this view, and is to be judged; or it is a helper again. Takes a reference to
 * the base. With `io`. And whether it can be that: 0, -EFBIG, -EINVAL, -errno, as of a write.
 */
void tensor_draft_become(struct draft *d, enum tensor_view view, struct tensor_base *base);
int tensor_draft_check(struct draft *d, struct err *e);

/* ---- for judges ---- */

/* What is judged, as it was when that began. */
struct tensor_round {
    struct tensor_base *base;   /* a reference */
    struct extents shown;       /* owned: their bytes do not change */
    struct tensor_ranges fresh; /* owned: what is to be judged */
    uint64_t size;
    uint64_t cut;
    unsigned truncations;
};

/* 0: nothing was written. 1: then _end() must follow. -errno. */
int tensor_draft_begin(struct draft *d, struct tensor_round *ret);
/* All of it is to be judged, by this header, and nothing of the base shows any more. 0, -errno. */
int tensor_draft_detach(struct draft *d, struct tensor_round *round, const struct npy *npy);
/* Bytes [lo, hi) are in the log from now on. 0, -errno. */
int tensor_draft_hold(struct draft *d, uint64_t lo, uint64_t hi);
/* Bytes [off, off + n) of the view as they are judged, behind the size zeros. 0, -EIO, -errno. */
int tensor_round_read(const struct draft *d, const struct tensor_round *round, uint64_t off,
                      void *dst, size_t n);
/* The same as a piece: how many of them, and where they are; *ret: log NULL: those of the base. 0, -errno. */
int tensor_round_piece(const struct draft *d, const struct tensor_round *round, uint64_t off,
                       uint64_t n, struct tensor_piece *ret, struct err *e);
/* All its bytes, which then never change, as a tensor of this shape. 0, -errno with a line. */
int tensor_draft_share(struct draft *d, const struct tensor_shape *shape, struct tensor_edit *ret,
                       struct err *e);
/* keep: passed() or failed() will follow; else all counts as not judged. -EAGAIN as above, else r. */
int tensor_draft_end(struct draft *d, struct tensor_round *round, bool keep, int r);

#endif
