/* SPDX-License-Identifier: MIT */
/*
 * NaN and infinity in the tensors of a mapped model: every value is decoded and checked, on all processors. Decoding
 * takes most of the time.
 *
 *     struct scan s = {.g = g, .map = &map};
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

/* The result for one tensor. */
struct scan_result {
    uint64_t nan, inf; /* values */
    uint64_t scales;   /* blocks with a scale that is NaN or infinite, even if no value is */
    uint64_t first;    /* the first element of these; for a scale, the first of its block */
    bool unread;       /* a type without values, or data missing from the file */
};

struct scan {
    const struct gguf *g;
    const struct map *map; /* the file */
    /* Called now and then with the bytes done, by the thread that called scan_run(). May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * found: n_tensors zeroed results. 0, -EIO (the file was truncated, or the medium failed), -ENOMEM.
 */
int scan_run(const struct scan *s, struct scan_result *found);

/* The bytes that scan_run() has to decode, for its progress. Uses only the size of s->map. */
uint64_t scan_bytes(const struct scan *s);

/* Report each tensor with NaN or infinity. label: names the file in findings. */
void scan_tell(const struct gguf *g, const char *label, const struct scan_result *found,
               check_sink *sink, void *arg);

#endif
