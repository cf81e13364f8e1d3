/* SPDX-License-Identifier: MIT */
/*
 * Computes one result of one tensor, in units of some milliseconds. The units of a hash run one
 * after another, all others on several processors (base/pool.h).
 *
 * Any thread may call these functions; they are pure except for reading the model's files.
 */
#ifndef DERIVE_TASK_H
#define DERIVE_TASK_H

#include "derive/kept.h"
#include "derive/stats.h"
#include "model/snapshot.h"

/* Return "OpenSSL 3.0.19 ...", or NULL if this build has no SHA-256. */
const char *task_hash_library(void);

struct task {
    struct view view; /* owned references */
    uint32_t tensor;
    enum derived what;
    const atomic_bool *stop; /* set to true to end the task early; may be NULL */
    struct moments moments;  /* for DERIVED_MOMENTS and DERIVED_STATS */
    bool measured;           /* `moments` are already known */
    struct buf bytes;        /* owned: the result */
};

/* Run the task. Returns 0, -EIO (data is missing, or the file was truncated), -EINTR (stopped) or
 * -ENOMEM. */
int task_run(struct task *t);

#endif
