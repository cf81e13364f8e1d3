/* SPDX-License-Identifier: MIT */
/*
 * A run plays one story, with the tree on the virtual disk, a thread for each actor, and the
 * oracle. Each run is a process, which leaves its findings in memory shared with its parent.
 */
#ifndef TESTS_SIM_RUN_H
#define TESTS_SIM_RUN_H

#include "disk.h"
#include "scheduler.h"
#include "story.h"
#include "oracle.h"
#include "tensors.h"
#include "tree/folder.h"
#include "tree/attr.h"

struct outcome_of_run {
    bool failed, ended; /* ended: the run reached its end or a crash */
    bool crashed;       /* by a power cut or a kill: the next process recovers the model */
    unsigned crashes;   /* number of crashes so far in this story */
    char why[1200];
    uint64_t hash, steps, calls;
};

/* Shared between the processes. */
struct world {
    struct story story;
    uint64_t seed;
    char folder[64];
    struct disk_state disk;
    bool altered; /* another program has written these bytes to the model */
    size_t altered_n;
    uint8_t altered_head[1 << 16];
    size_t second_n; /* size of the second file of a split model */
    uint8_t second[1024];
    struct oracle oracle;
    struct tensor_oracle tensors;
    struct outcome_of_run out;
};

/* Returns the path of the model, which for a split model is the first of its two files. */
void run_path(const struct world *w, char dst[128]);
/* Returns the path of the journal beside the model. */
void run_journal(const struct world *w, char dst[128]);
/* Plays w->story, then ends the run's process. */
_Noreturn void run_story(struct world *w);
/* Checks the tensors, and everything in the model that no program edits. *ret: the keys' values.
 * disk: this is the file itself; otherwise it was read since then (tensors_now()). */
void check_model(struct world *w, const uint8_t *bytes, size_t n, bool disk, uint32_t since,
                 value_t ret[KEYS]);
/* Returns the values in metadata.json. */
void check_json(const char *text, value_t ret[KEYS]);
/* Opens the model after a crash, in a new process, and checks it. */
_Noreturn void run_recovered(struct world *w);

#endif
