/* SPDX-License-Identifier: MIT */
/*
 * Programs whose open of a view was answered with -ESTALE, so that the kernel looks the name up again
 * and opens what it then gets: see live_view_open().
 *
 * Threads: everything is protected by the lock of `struct live`.
 */
#ifndef LIVE_LOOKERS_H
#define LIVE_LOOKERS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct looker {
    struct looker *next;
    uint64_t program; /* its thread; 0: not known, then there may be more than one */
    time_t since;     /* CLOCK_MONOTONIC */
    unsigned times;   /* opens that have not come again */
    uint32_t tensor, row;
    unsigned kind;
    uint32_t node; /* of the draft that it was given; 0: none yet */
};

/* An open will come again. 0, -ENOMEM. */
int lookers_add(struct looker **all, uint64_t program, uint32_t tensor, uint32_t row,
                unsigned kind);
/* NULL: it was not asked to look again, or long ago. */
struct looker *lookers_find(struct looker *all, uint64_t program, uint32_t tensor, uint32_t row);
/* The node that some program was given for a view, and will open; 0: none. */
uint32_t lookers_node(const struct looker *all, uint32_t tensor, uint32_t row);
/* It came. k may be NULL. */
void looker_done(struct looker **all, struct looker *k);
void lookers_free(struct looker **all);

/* The origin of this thread's calls, as live_caller() was given it. */
uint64_t caller_program(void);

#endif
