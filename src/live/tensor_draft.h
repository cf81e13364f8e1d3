/* SPDX-License-Identifier: MIT */
/*
 * The data in the draft of one view of one tensor: what was written, over what the view showed when the draft was
 * begun, and the judge that turns it into an edit.
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
 * Bytes lie in the model's log (logs.h): a draft is a list of stretches of it, over what the view shows of the base.
 * Bytes not judged yet are overwritten in place; bytes that are being judged, or were, never change: new ones are
 * written elsewhere. Where the draft was truncated and grew again, there are zeros.
 *
 * The judge looks at what was written since the draft last passed. Values are compared with what the view shows of
 * the base, block by block: equal blocks keep their bytes, others are encoded, on all processors. A draft that passed
 * shows what was written to it, not the encoded result, and continues from the new base; it holds all values of each
 * block that it changed, so that judging them again gives the same bytes. If a NumPy header moves the values or
 * changes their type, all of them are judged again.
 *
 * Bytes of `raw` that differ become pieces of the log as written; values are encoded into it.
 *
 * Threads: any. One judges at a time, up to passed() or failed(). Others may read and write meanwhile: what they
 * write is part of this judgement or the next. `io` is held for one write and while the disk is accessed, but not
 * while values are compared and encoded; `lock` is held only briefly, to look at what it protects, and comes after
 * all other locks.
 */
#ifndef LIVE_TENSOR_DRAFT_H
#define LIVE_TENSOR_DRAFT_H

#include "base/pool.h"
#include "live/draft.h"
#include "quant/encode.h"

/* Limit on a draft whose length is not bounded by a tensor, in bytes: larger than any tensor. */
#define TENSOR_DRAFT_MAX ((uint64_t)1 << 43)
/* The longest text of `type` or `shape`. */
#define TENSOR_TEXT_MAX 4096

/*
 * A draft of a view that exists, or of any view of a tensor that does not exist, or of a helper (which is never
 * judged). The logs must outlive it. Takes a reference to the base. Does not access the disk: the first write creates
 * a log. 0, -ENOMEM.
 */
int tensor_draft_make(struct logs *logs, struct tensor_base *base, enum tensor_view view,
                      struct draft **ret, struct err *e);

/*
 * append: at its present end; else at `off`. 0; 1: for a text, if a line is complete and ends with these bytes;
 * -EFBIG (longer than the view can be), -EINVAL (a complete or incomplete NumPy header that cannot become a valid
 * one; a text that has a hole or is too long), -ENOSPC, -ENOMEM, -EIO, -errno. On failure the content is undefined
 * where it should have been written.
 */
int tensor_draft_write(struct draft *d, bool append, uint64_t off, const void *bytes, size_t n,
                       struct err *e);
/* 0, -EFBIG, -ENOMEM, -errno. */
int tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e);
/* fallocate(2) with mode 0, or keeping the size. Reserves no space. 0, -EFBIG. */
int tensor_draft_allocate(struct draft *d, uint64_t off, uint64_t n, bool keep_size, struct err *e);
/* Read up to n bytes at `off`; *got: fewer at the end. 0, -ENOMEM, -EIO, -errno. */
int tensor_draft_read(struct draft *d, uint64_t off, void *dst, size_t n, size_t *got);
/*
 * The edit was accepted: the draft continues from this base, which includes it. Quick; call it before the model can
 * be edited again. Takes a reference.
 */
void tensor_draft_passed(struct draft *d, struct tensor_base *now);
/* The edit was not accepted. */
void tensor_draft_failed(struct draft *d);
/*
 * Take back a line that a signal has stopped: while it was judged (judged), or before, when no other line waits
 * (all).
 */
void tensor_draft_take_back(struct draft *d, bool judged, bool all);
/*
 * Everything in a helper counts as written to this view, and must be judged; or it becomes a helper again. Takes a
 * reference to the base. With `io`. And whether it can: 0, -EFBIG, -EINVAL, -errno, as for a write.
 */
void tensor_draft_become(struct draft *d, enum tensor_view view, struct tensor_base *base);
int tensor_draft_check(struct draft *d, struct err *e);

/* ---- for judges ---- */

/* What is judged, as of the beginning of the judgement. */
struct tensor_round {
    struct tensor_base *base;   /* a reference */
    struct extents shown;       /* owned: their bytes do not change */
    struct tensor_ranges fresh; /* owned: the ranges to judge */
    uint64_t size;
    uint64_t cut;
    unsigned truncations;
};

/* 0: nothing was written. 1: then _end() must follow. -errno. */
int tensor_draft_begin(struct draft *d, struct tensor_round *ret);
/* Judge all of it, by this header, showing nothing of the base any more. 0, -errno. */
int tensor_draft_detach(struct draft *d, struct tensor_round *round, const struct npy *npy);
/* Copy bytes [lo, hi) to the log unless they are there. 0, -errno. */
int tensor_draft_hold(struct draft *d, uint64_t lo, uint64_t hi);
/* Read bytes [off, off + n) of the view as judged, zeros past the size. 0, -EIO, -errno. */
int tensor_round_read(const struct draft *d, const struct tensor_round *round, uint64_t off,
                      void *dst, size_t n);
/* The same as a piece: how many bytes, and where they are; *ret: log NULL: in the base. 0, -errno. */
int tensor_round_piece(const struct draft *d, const struct tensor_round *round, uint64_t off,
                       uint64_t n, struct tensor_piece *ret, struct err *e);
/* All its bytes, which then never change, as a tensor of this shape. 0, -errno with a line. */
int tensor_draft_share(struct draft *d, const struct tensor_shape *shape, struct tensor_edit *ret,
                       struct err *e);
/* keep: passed() or failed() will follow; otherwise everything counts as not judged. -EAGAIN as above, else r. */
int tensor_draft_end(struct draft *d, struct tensor_round *round, bool keep, int r);

#endif
