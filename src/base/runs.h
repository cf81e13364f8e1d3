/* SPDX-License-Identifier: MIT */
/*
 * Reads of a file that come in order, among others that do not: how far ahead of them to read.
 *
 * Several programs may read a file in order at once, each another part of it. Requests may overtake
 * each other by some megabytes, as those of one readahead do. What is read ahead is at most as much
 * as such a program has read so far: what a short run costs is bounded by what it read. Most programs
 * stop at the end of a part of the file (a tensor), and nothing is read ahead beyond it for them; one
 * that went on to another part is expected to go on.
 *
 * Threads: any.
 */
#ifndef BASE_RUNS_H
#define BASE_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"

/* So many at once; of more the one that waited longest is forgotten. */
#define RUNS_MOST 8

/* begin <= next <= upto, once something was read ahead. */
struct in_order {
    uint64_t begin; /* of the first read */
    uint64_t next;  /* the furthest end of a read */
    uint64_t upto;  /* the end of what was read ahead */
    uint64_t have;  /* bytes that were read, at most next - begin */
    uint64_t end;   /* of the part that the last read was in */
    bool beyond;    /* it went on from one part to another */
    uint64_t used;  /* when: of `clock` */
};

struct runs {
    struct lock lock;
    uint64_t least,
        most;       /* bytes ahead; nothing is read ahead while a run is shorter than `least` */
    uint64_t clock; /* reads so far */
    struct in_order run[RUNS_MOST];
};

void runs_init(struct runs *r, uint64_t least, uint64_t most);
void runs_free(struct runs *r);

/*
 * Note a read of bytes [off, off + n) of a part that ends at `end`, of a file of `size`. Returns the end
 * of what is to be read now: of the read itself, or of more that follows. *from: where what follows
 * begins, without what was read ahead before; the returned end if nothing follows.
 */
uint64_t runs_note(struct runs *r, uint64_t off, uint64_t n, uint64_t end, uint64_t size,
                   uint64_t *from);

#endif
