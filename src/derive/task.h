/* SPDX-License-Identifier: MIT */
/*
 * Computes one result of one tensor, in units of some milliseconds: hashes unit by unit, all other
 * results on several processors (base/pool.h).
 *
 * Threads: any; pure, except for reading the model's files.
 */
#ifndef DERIVE_TASK_H
#define DERIVE_TASK_H

#include "derive/kept.h"
#include "derive/stats.h"
#include "model/snapshot.h"

/* Return "OpenSSL 3.0.19 ...", or NULL if this build has no SHA-256. */
const char *task_hash_library(void);

struct task {
    struct view view; /* references */
    uint32_t tensor;
    enum derived what;
    const atomic_bool *stop; /* true: end early; may be NULL */
    struct moments moments;  /* for MOMENTS and STATS */
    bool measured;           /* `moments` are already known */
    struct buf bytes;        /* owned: the result */
};

/* Run the task. Returns 0, -EIO (data is missing, or the file was truncated), -EINTR (stopped) or
 * -ENOMEM. */
int task_run(struct task *t);

#endif
