/* SPDX-License-Identifier: MIT */
/*
 * A run of a story: the tree on the virtual disk, a thread for each actor, and the oracle. It has a
 * process of its own, which ends with it; its findings are in memory shared with the parent.
 */
#ifndef TESTS_SIM_RUN_H
#define TESTS_SIM_RUN_H

#include "disk.h"
#include "oracle.h"
#include "scheduler.h"
#include "story.h"
#include "tree/edits.h"
#include "tree/folder.h"
#include "tree/xattr.h"

struct outcome_of_run {
    bool failed, ended; /* ended: it came to its end, or to a power cut */
    bool crashed;       /* the power was cut, or the process killed: to be recovered */
    unsigned crashes;   /* so far */
    char why[1200];
    uint64_t hash, steps, calls;
};

/* Shared between the processes. */
struct world {
    struct story story;
    uint64_t seed;
    bool strict; /* known faults (known.md) fail, too */
    char folder[64];
    struct disk_state disk;
    bool altered; /* by another program, to these bytes */
    size_t altered_n;
    uint8_t altered_head[1 << 16];
    size_t second_n; /* of a split model */
    uint8_t second[1024];
    struct oracle oracle;
    struct outcome_of_run out;
};

/* The path of the model's file, the first of two if it is split. */
void run_path(const struct world *w, char dst[128]);
/* The same of the journal beside it. */
void run_journal(const struct world *w, char dst[128]);
/* In the run's process. They do not return. */
_Noreturn void run_story(struct world *w);
/* After a power cut: a new process opens the model and looks. */
_Noreturn void run_recovered(struct world *w);

#endif
