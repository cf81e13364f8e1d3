/* SPDX-License-Identifier: MIT */
/*
 * A directory with a history, for the tests of histories.
 *
 *     struct home x;
 *     home_setup(&x);                             x.h: 20 states of /models/m.gguf
 *     CU_ASSERT_EQUAL(save(&x.h, a, b, 1000, 0, &e), 1);
 *     home_teardown(&x);
 */
#ifndef TESTS_LIB_HISTORY_DIR_H
#define TESTS_LIB_HISTORY_DIR_H

#include "cu_main.h"
#include "edit/history.h"

struct home {
    char path[64]; /* in memory if possible; `state` in it is the state directory */
    int dir;
    struct history h;
};

void home_setup(struct home *x);
void home_teardown(struct home *x);
/* Open another history in this directory, possibly of another model. */
int open_history(const struct home *x, struct history *h, const char *model, unsigned keep);
/* Return the number of files in the history's directory. */
unsigned home_files(const struct home *x);

/* Make a model without tensors whose key `text` has this value. The caller calls gguf_free(). */
struct gguf *keys_of(const char *text);
/* True if the keys are the same, in the same order, byte for byte, except for ggufs' own. */
bool same_keys(const struct gguf *a, const struct gguf *b);

/* Save an edit that was written at time `now`. restored: the edit is an undo. Returns the number of
 * the new state, or -errno. */
int64_t save(struct history *h, struct gguf *before, struct gguf *after, int64_t now,
             uint64_t restored, struct err *e);
/* True if the states are exactly those from `first` to `last`, or none if first > last. */
bool numbers_are(struct history *h, uint64_t first, uint64_t last);

#endif
