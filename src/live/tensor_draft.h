/* SPDX-License-Identifier: MIT */
/*
 * The draft of one view of one tensor: what was written to it over what the view showed when the
 * draft was begun, and the judge that makes an edit of it.
 *
 *     r = tensor_draft_make(f, base, TENSOR_F32, &d, &e);
 *     r = tensor_draft_write(d, false, off, bytes, n, &e);       ... truncate, allocate, read
 *     r = tensor_draft_judge(d, &watch, &edit, &e);              at a flush, fsync or release
 *     TENSOR_CHANGED:  r = tensor_edit_apply(&edit, change, name, n, &e);
 *                      r == 0: tensor_draft_passed(d, base with the new content)
 *                      r < 0:  tensor_draft_failed(d)
 *     tensor_edit_free(&edit);
 *     tensor_draft_free(d);
 *
 * Bytes lie in a file without a name beside the model, few of them in memory (draft_bytes.h), in
 * granules of 4096 bytes. A granule that was written is there whole: the rest of it was filled with what
 * the view shows of the base. So what counts is what differs from the base; a bit is kept for each
 * granule that was written, two while it is not judged. Bytes behind the least length that the draft was
 * truncated to are zeros, not the base's.
 *
 * The judge looks at what was written since it passed last. Values are compared with what the view
 * shows of the base, block by block: equal ones keep their bytes, others are encoded, by all
 * processors. A draft that passed shows what was written to it, not what that was encoded to, and
 * goes on from the new base; it holds all values of each block that it changed, so that
 * judging them again gives the same bytes. A NumPy header that moves the values or changes their type
 * has all of them judged again.
 *
 * Much of `raw` that was written is not copied: the file is sealed when it is judged
 * (tensor_seal.h), and what is written meanwhile goes to a new one over it. Passed, the base has the bytes
 * of the seal, and the draft does without; else the two become one file again before it is judged anew. A sealed
 * file may become the journal of the edit, and has room for it before its bytes (EDIT_DRAFT_ROOM).
 *
 * Threads: any. One judges at a time, up to passed() or failed(). Others may read and write
 * meanwhile: what they write is part of this judgement or of the next. Of two locks `io` is held for one
 * write, and while the disk is asked, but not while values are compared and encoded; `lock` is only held
 * for a look at what it protects, and comes after all others.
 */
#ifndef LIVE_TENSOR_DRAFT_H
#define LIVE_TENSOR_DRAFT_H

#include "base/bits.h"
#include "base/units.h"
#include "base/lock.h"
#include "live/spool.h"
#include "live/tensor_base.h"
#include "live/tensor_edit.h"
#include "live/tensor_seal.h"
#include "live/view_state.h"
#include "quant/encode.h"

/* Bytes of a draft whose length is not bounded by a tensor: more than any tensor has. The bits of as
 * many granules take 256 MiB. */
#define TENSOR_DRAFT_MAX ((uint64_t)1 << 43)

/* Where the values of a NumPy view are, by its header. */
struct tensor_layout {
    uint32_t header, width; /* bytes of the header, of a value; 0: unknown */
};

struct tensor_draft {
    const struct edit_file *f; /* not owned; constant, as what follows up to the locks */
    enum tensor_view view;
    uint64_t shift; /* of the view's first byte in the file */
    struct lock io, lock;
    /* Changed with both locks: */
    struct edit_draft *to; /* owned: its file, or memory; NULL: nothing was written */
    uint64_t first;        /* byte of the view with which memory begins */
    _Atomic uint64_t size;
    uint64_t cut;         /* bytes from here on are not those below */
    struct bits present;  /* granules that are there */
    unsigned truncations; /* how often it was cut: a judgement of what is gone does not count */
    struct npy npy;       /* of a NumPy view: its header, if npy.header is not 0 */
    /* For `io` alone: */
    bool untidy; /* the file may have bytes in other granules */
    bool behind; /* a write that failed may have left bytes behind the end */
    struct draft_run run;
    /* Protected by `lock`: what is below the file, and */
    struct tensor_base *base; /* a reference */
    struct tensor_seal *seal; /* a reference: over the base; NULL: nothing is */
    struct bits fresh;        /* not judged yet: of the granules, and of zeros by which it grew */
    struct bits judging;      /* what is being judged */
    _Atomic enum view_state state;
    /* Any thread: */
    _Atomic(uint64_t) limit; /* no write may end behind it */
    /* The judge's: */
    struct spool spool;
    struct tensor_layout layout; /* as which all is judged that is not to be judged again */
};

/*
 * A draft of a view that exists, or of any view of a tensor that does not exist. f must outlive it;
 * only what never changes of it is used. Takes a reference to the base. The disk is not asked: a file is
 * made by a write. 0, -ENOMEM.
 */
int tensor_draft_make(const struct edit_file *f, struct tensor_base *base, enum tensor_view view,
                      struct tensor_draft **ret, struct err *e);
void tensor_draft_free(struct tensor_draft *d); /* may be NULL */

/*
 * append: at its end, wherever that is; else at `off`. 0; -EFBIG (longer than the view can be),
 * -EINVAL (a NumPy header, whole or not, that cannot become one that is taken), -ENOSPC, -ENOMEM,
 * -EIO, -errno. On failure the content is undefined where it was to be written.
 */
int tensor_draft_write(struct tensor_draft *d, bool append, uint64_t off, const void *bytes,
                       size_t n, struct err *e);
/* 0, -EFBIG, -ENOMEM, -errno. */
int tensor_draft_truncate(struct tensor_draft *d, uint64_t size, struct err *e);
/* fallocate(2) without a mode, or to keep the size. Room is not reserved. 0, -EFBIG. */
int tensor_draft_allocate(struct tensor_draft *d, uint64_t off, uint64_t n, bool keep_size,
                          struct err *e);
/* Up to n bytes at `off`; *got: fewer at the end. 0, -ENOMEM, -EIO, -errno. */
int tensor_draft_read(struct tensor_draft *d, uint64_t off, void *dst, size_t n, size_t *got);
/* These two take no lock. */
uint64_t tensor_draft_size(const struct tensor_draft *d);
/* VIEW_CLEAN: nothing was written since it was begun or passed. To truncate it is not writing; zeros by
 * which it is made longer are written. */
enum view_state tensor_draft_state(const struct tensor_draft *d);
/* What was written and is not accepted never is. Not while it is judged. */
void tensor_draft_drop(struct tensor_draft *d);
/* How long a view of a tensor that does not exist can be, when that is known (a shape and type were
 * given). What is longer already is refused by the judge. */
void tensor_draft_limit(struct tensor_draft *d, uint64_t limit);

/*
 * Judge what was written since it was begun or passed. enum tensor_verdict:
 *
 *     TENSOR_SAME      nothing was written, or nothing that differs
 *     TENSOR_CHANGED   *ret is what to do; passed() or failed() must follow
 *     TENSOR_SHORT     too short, for now
 *     TENSOR_BEGUN     only a NumPy header
 *
 * or -EDOM, -ERANGE, -EOPNOTSUPP (as in quant_write(); the line names the element), -EINVAL (a header
 * or shape that cannot be, bytes behind the values), -ENOSPC, -ENOMEM, -EIO (also: the model was cut),
 * -EINTR (watch->cancel), -EAGAIN (it was truncated meanwhile: judge again). Of a tensor that does
 * not exist yet: tensor_new.h. After anything but CHANGED and SAME all that was written counts as
 * not judged.
 */
int tensor_draft_judge(struct tensor_draft *d, const struct units_watch *watch,
                       struct tensor_edit *ret, struct err *e);
/* The edit was accepted: the draft goes on from this base, which has it. Quick; before the model can be
 * edited again. Takes a reference. */
void tensor_draft_passed(struct tensor_draft *d, struct tensor_base *now);
/* It was not. */
void tensor_draft_failed(struct tensor_draft *d);

/* ---- for judges ---- */

static inline uint64_t tensor_granules(uint64_t bytes)
{
    return bytes / TENSOR_GRANULE + (bytes % TENSOR_GRANULE > 0);
}

/* What is judged, as it was when that began. */
struct tensor_round {
    struct tensor_base *base; /* a reference */
    struct tensor_seal *seal; /* a reference: all of it; NULL: what the draft shows is judged */
    uint64_t size;
    uint64_t cut;
    unsigned truncations;
};

/* 0: nothing was written. 1: then _end() must follow. -errno. */
int tensor_draft_begin(struct tensor_draft *d, struct tensor_round *ret);
/* All of it is to be judged, by this header, and nothing of the base shows any more. 0, -errno. */
int tensor_draft_detach(struct tensor_draft *d, struct tensor_round *round, const struct npy *npy);
/* Its bytes are in a file from now on. With `io`. 0, -errno. */
int tensor_draft_to_file(struct tensor_draft *d);
/* Put a granule into the file, if it is not there, with what the draft shows. With `io`. 0, -errno. */
int tensor_draft_fill(struct tensor_draft *d, uint64_t granule);
/* Bytes [lo, hi) are in the file from now on. 0, -errno. */
int tensor_draft_hold(struct tensor_draft *d, uint64_t lo, uint64_t hi);
/*
 * The header of a NumPy view of `size` bytes. 0, TENSOR_SHORT, TENSOR_BEGUN, -EINVAL, -errno.
 */
int tensor_draft_header(struct tensor_draft *d, uint64_t size, struct npy *ret, struct err *e);
/*
 * All values, which begin behind `head` bytes, as a tensor of this shape. Blocks that `old` has, if it
 * is of that type, keep their bytes where the values are equal. The spool was begun. 0, as above.
 */
int tensor_draft_encode(struct tensor_draft *d, enum quant_view values, uint64_t head,
                        const struct edit_shape *shape, const struct tensor_base *old,
                        const struct units_watch *watch, struct tensor_edit *ret, struct err *e);
/* All its bytes, for an edit: a reference. It shows them on, and is not written as long as the edit has them.
 * 0, -errno. */
int tensor_draft_share(struct tensor_draft *d, struct edit_draft **ret, struct err *e);
/* keep: passed() or failed() will follow; else all counts as not judged. -EAGAIN as above, else r. */
int tensor_draft_end(struct tensor_draft *d, struct tensor_round *round, bool keep, int r);

#endif
