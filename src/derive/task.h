/* SPDX-License-Identifier: MIT */
/*
 * The computation of one result of one tensor, in units of some milliseconds: hashes unit by unit, everything else on
 * several processors (base/pool.h).
 *
 * Threads: any; pure, except for reading the model's files.
 */
#ifndef DERIVE_TASK_H
#define DERIVE_TASK_H

#include "derive/kept.h"
#include "derive/stats.h"
#include "model/snapshot.h"

/* "OpenSSL 3.0.19 ..."; NULL: there is no SHA-256 in this build. */
const char *task_hash_library(void);

struct task {
    struct view view; /* references */
    uint32_t tensor;
    enum derived what;
    const atomic_bool *stop; /* true: end early. May be NULL. */
    struct moments moments;  /* for MOMENTS and STATS */
    bool measured;           /* `moments` are already known */
    struct buf bytes;        /* owned: the result */
};

/* 0, -EIO (data is missing, or the file was cut), -EINTR (stopped), -ENOMEM. */
int task_run(struct task *t);

#endif
