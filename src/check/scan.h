/* SPDX-License-Identifier: MIT */
/*
 * Searches the tensors of a mapped model for NaN and infinity. Every value is decoded and checked,
 * on all processors; decoding takes most of the time.
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
    uint64_t nan, inf; /* numbers of values */
    uint64_t scales; /* number of blocks with a NaN or infinite scale, even if no value shows it */
    uint64_t first;  /* the first bad element; for a scale, the first element of its block */
    bool unread;     /* the type has no values, or data is missing from the file */
};

struct scan {
    const struct gguf *g;
    const struct map *map; /* the file */
    /* Called now and then with the number of bytes done, on the thread that called scan_run(). May
     * be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Scan all tensors. found: n_tensors zeroed results. Returns 0, -EIO (the file was truncated, or
 * the medium failed) or -ENOMEM.
 */
int scan_run(const struct scan *s, struct scan_result *found);

/* Return the number of bytes that scan_run() has to decode, for its progress. Uses only the size of
 * s->map. */
uint64_t scan_bytes(const struct scan *s);

/* Report each tensor with NaN or infinity. label: name of the file in findings. */
void scan_tell(const struct gguf *g, const char *label, const struct scan_result *found,
               check_sink *sink, void *arg);

#endif
