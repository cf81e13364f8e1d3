/* SPDX-License-Identifier: MIT */
/*
 * A directory with a history, for the tests of histories.
 *
 *     struct home x;
 *     home_setup(&x);                             x.h: of /models/m.gguf, 20 states
 *     CU_ASSERT_EQUAL(save(&x.h, a, b, 1000, 0, &e), 1);
 *     home_teardown(&x);
 */
#ifndef TESTS_LIB_HISTORY_DIR_H
#define TESTS_LIB_HISTORY_DIR_H

#include "cu_main.h"
#include "edit/history.h"

struct home {
    char path[64]; /* in memory, if possible; the state directory is `state` in it */
    int dir;
    struct history h;
};

void home_setup(struct home *x);
void home_teardown(struct home *x);
/* One more history there, perhaps of another model. */
int open_history(const struct home *x, struct history *h, const char *model, unsigned keep);
/* The number of files in the directory of states. */
unsigned home_files(const struct home *x);

/* A model without tensors whose key `text` has this value; gguf_free() it. */
struct gguf *keys_of(const char *text);
/* The same keys in the same order, byte for byte, except for ggufs' own. */
bool same_keys(const struct gguf *a, const struct gguf *b);

/* A written edit at time `now`; restored: it is an undo. Returns the number of its state, or -errno. */
int64_t save(struct history *h, struct gguf *before, struct gguf *after, int64_t now,
             uint64_t restored, struct err *e);
/* The states are exactly those from `first` to `last`; first > last: there are none. */
bool numbers_are(struct history *h, uint64_t first, uint64_t last);

#endif
