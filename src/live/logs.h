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
/* Something may need the log no more. */
void logs_rest(struct logs *s);

#endif
