/* SPDX-License-Identifier: MIT */
/*
 * The log of an edited model, and stretches of a view that lie in it.
 *
 * The log (model/store.h) is an unnamed file beside the model, created when a draft is first
 * written. Its space is freed once nothing needs it any more. After a lot has been written to a
 * log, it is kept only for its current users, and a new one is started. Threads: any, without the
 * lock.
 */
#ifndef LIVE_EXTENTS_H
#define LIVE_EXTENTS_H

#include "base/lock.h"
#include "edit/commit.h"
#include "model/store.h"

struct logs {
    const struct edit_file *f; /* not owned; only its constant members are used */
    struct lock *lock;         /* not owned: the lock of the live state, which protects `now` */
    /* References to the log and, after it, to those that are still used; NULL: no log. So the last
     * reference, which closes a file, is never dropped with the lock held. */
    struct log *now;
};

/* Call log_take() on the model's log; *ret is a reference to it. Returns 0, or -errno with a
 * message. */
int logs_take(struct logs *s, uint64_t n, uint64_t phase, struct log **ret, uint64_t *at,
              struct err *e);
/* Write bytes to a range taken before. Returns 0, -ENOSPC or -errno. */
int logs_put(const struct logs *s, struct log *log, uint64_t at, const void *bytes, size_t n);
/* Set e to a message about r, an error from logs_put(). Returns r. */
int logs_failed(int r, struct err *e);
struct extents;
/* Call log_check() on each log that these extents are in. */
int logs_check(const struct logs *s, const struct extents *of, struct err *e);
/* Close the logs that nothing needs. */
void logs_rest(struct logs *s);

/*
 * ---- bytes written to a view ----
 *
 * They are disjoint stretches of the view in ascending order, each in a log or all zeros. One
 * thread at a time may use them.
 */

struct extent {
    uint64_t at, len; /* in the view */
    uint64_t src;     /* offset of the first byte in the log */
    struct log *log;  /* a reference; NULL: zeros */
    uint64_t epoch;   /* the draft's when it was written (objects.h) */
};

struct extents {
    struct extent *of; /* owned */
    size_t n, cap;
};

void extents_free(struct extents *s);
/* Put an extent over the existing ones, taking another reference to its log. Returns 0 or
 * -ENOMEM. */
int extents_put(struct extents *s, const struct extent *x);
/* Drop extents of this epoch or older. */
void extents_drop(struct extents *s, uint64_t epoch);
/* Drop all bytes past `size`. */
void extents_cut(struct extents *s, uint64_t size);
/* Copy the extents of bytes [off, off + n) into *ret, which must be empty, with new references.
 * Returns 0 or -ENOMEM. */
int extents_copy(const struct extents *s, uint64_t off, uint64_t n, struct extents *ret);
/* Return how many of the n > 0 bytes at `off` belong to one extent (*ret), or to no extent (*ret is
 * NULL). */
uint64_t extents_stretch(const struct extents *s, uint64_t off, uint64_t n,
                         const struct extent **ret);
/* Read bytes [off, off + n) of the view, all within one extent. Returns 0, -EIO or -errno. */
int extent_read(const struct extent *x, uint64_t off, void *dst, size_t n);

#endif
