/* SPDX-License-Identifier: MIT */
/*
 * The log of a model that is edited (model/content.h): a file without a name beside it, made when a draft is
 * written first. It gives its room back when nothing needs it any more; one to which much was written, or that
 * has become a journal, is left to those that need it, and another one is begun.
 *
 * Threads: any.
 */
#ifndef LIVE_LOGS_H
#define LIVE_LOGS_H

#include "base/lock.h"
#include "edit/file.h"
#include "model/content.h"

struct logs {
    const struct edit_file *f; /* not owned; only what never changes of it is used */
    struct lock lock;
    struct log *now; /* a reference; NULL: none */
};

void logs_init(struct logs *s, const struct edit_file *f);
void logs_free(struct logs *s);
/* log_take() in the log of the model. *ret: a reference to it. 0, -errno with a line. */
int logs_take(struct logs *s, uint64_t n, uint64_t phase, struct log **ret, uint64_t *at,
              struct err *e);
/* The same, of zeros. */
int logs_take_zeros(struct logs *s, uint64_t n, struct log **ret, uint64_t *at, struct err *e);
/* Write bytes that were taken. 0, -ENOSPC, -errno. */
int logs_put(const struct logs *s, struct log *log, uint64_t at, const void *bytes, size_t n);
/* A line about what logs_put() returned. Returns r. */
int logs_failed(int r, struct err *e);
/* Something may need the log no more. */
void logs_rest(struct logs *s);

/* ---- what was written to a view: stretches of it, in order and disjoint, each in a log, or zeros. One thread at a
 * time ---- */

struct extent {
    uint64_t at, len; /* of the view */
    uint64_t src;     /* of its first byte in the log */
    struct log *log;  /* a reference; NULL: zeros */
    bool fresh;       /* it is to be judged */
};

struct extents {
    struct extent *of; /* owned */
    size_t n, cap;
};

void extents_free(struct extents *s);
/* Put one in, over what is there; it gets a reference of its own. 0, -ENOMEM. */
int extents_put(struct extents *s, const struct extent *x);
/* Nothing is behind `size` any more. */
void extents_cut(struct extents *s, uint64_t size);
/* All, with references of their own. *ret is empty before. 0, -ENOMEM. */
int extents_copy(const struct extents *s, struct extents *ret);
/* How many bytes from `off` on, at most n > 0, are of one: *ret; NULL: of none. */
uint64_t extents_stretch(const struct extents *s, uint64_t off, uint64_t n,
                         const struct extent **ret);
/* Bytes [off, off + n) of the view, which one has. 0, -EIO, -errno. */
int extent_read(const struct extent *x, uint64_t off, void *dst, size_t n);

#endif
