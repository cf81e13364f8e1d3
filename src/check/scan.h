/* SPDX-License-Identifier: MIT */
/*
 * NaN and infinity in the tensors of a mapped model: every value is decoded and looked at, by as
 * many threads as are asked for. What takes the time is the decoding.
 *
 *     struct scan s = {.g = g, .map = &map, .threads = 4};
 *     struct scan_result *found = calloc(g->n_tensors, sizeof(*found));
 *     r = scan_run(&s, found);
 *     scan_tell(g, path, found, sink, arg);
 *
 * Needs map_guard_init() and, to be fast, quant_init().
 */
#ifndef CHECK_SCAN_H
#define CHECK_SCAN_H

#include "base/map.h"
#include "check/check.h"

/* Of one tensor. */
struct scan_result {
    uint64_t nan, inf; /* values */
    uint64_t scales;   /* blocks with a scale that is NaN or infinite, also where no value is */
    uint64_t first;    /* the first element (of a scale: its block's) of any of these */
    bool unread;       /* type without values, or data that is not in the file */
};

struct scan {
    const struct gguf *g;
    const struct map *map; /* the file */
    unsigned threads;      /* 0: one for each CPU */
    /* Told now and then, by any of the threads, one at a time: bytes done. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/* found: n_tensors zeroed results. 0, -EIO (the file was cut, or the medium failed), -ENOMEM. */
int scan_run(const struct scan *s, struct scan_result *found);

/* The bytes that scan_run() has to look at: the total that it tells. Of s->map only the size counts. */
uint64_t scan_bytes(const struct scan *s);

/* A finding for each tensor with something in it. label: what findings call the file. */
void scan_tell(const struct gguf *g, const char *label, const struct scan_result *found,
               check_sink *sink, void *arg);

#endif
