/* SPDX-License-Identifier: MIT */
/*
 * The computation of one result of one tensor, in units. Private to work.c.
 *
 *     task_begin()  ->  task_unit() of each unit of the phase  ->  task_phase()  -> ... -> task_keep()
 *
 * Units of a phase may run side by side, unless the task is serial. task_phase() runs when all of
 * them have ended and says whether another phase follows.
 */
#ifndef DERIVE_TASK_H
#define DERIVE_TASK_H

#include "derive/kept.h"
#include "derive/picture.h"
#include "model/snapshot.h"

struct task {
    struct task *next;
    struct view view; /* references */
    uint32_t tensor;
    struct kept_key key;
    enum derived what;
    /* Protected by the lock of the work: */
    uint64_t units, given, ended; /* of the phase */
    bool closing;                 /* task_phase() runs */
    bool begun;                   /* a unit was given out */
    bool small;                   /* goes before others */
    int err;
    /* What follows belongs to the units and phases. */
    bool serial;
    int phase;
    struct digest *digest;
    uint8_t hash[DIGEST_BYTES];
    struct moments *part; /* owned: of each unit */
    struct moments moments;
    struct spread *spread; /* owned: of each unit */
    struct alive alive;
    struct picture picture;
    float *pixel; /* owned: see picture_pixels() */
    struct buf bytes;
};

/* Room for decoded values, one for each thread. */
enum { TASK_ROOM = 4096 };
_Static_assert((int)TASK_ROOM >= (int)PICTURE_ROOM && (int)TASK_ROOM >= (int)STATS_STRETCH,
               "room for all");

/*
 * Prepare the first phase. `known`: moments that are kept, or NULL. 0, -EIO (data is missing),
 * -ENOMEM.
 */
int task_begin(struct task *t, const struct moments *known);
/* 0, -EIO. */
int task_unit(struct task *t, uint64_t unit, float room[TASK_ROOM]);
/* 1: another phase follows; 0: no more phases; -errno. */
int task_phase(struct task *t);
/* Keep what was computed. */
int task_keep(struct task *t, struct kept *k);
void task_free(struct task *t);

/* A unit of the phase can be begun. */
static inline bool task_has_unit(const struct task *t)
{
    if (t->closing || t->err)
        return false;
    return t->serial ? t->given == t->ended && t->given < t->units : t->given < t->units;
}

/* All of the phase is done, or what runs of a task that failed. */
static inline bool task_may_close(const struct task *t)
{
    return !t->closing && t->given == t->ended && (t->err || t->ended == t->units);
}

#endif
