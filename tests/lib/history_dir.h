/* SPDX-License-Identifier: MIT */
/*
 * A folder with a history in it, for the tests of histories.
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
    char path[64]; /* in memory, where that can be; the state folder is `state` in it */
    int dir;
    struct history h;
};

void home_setup(struct home *x);
void home_teardown(struct home *x);
/* One more history there, of another model perhaps. */
int open_history(const struct home *x, struct history *h, const char *model, unsigned keep);
/* Files in the folder of states. */
unsigned home_files(const struct home *x);

/* A model without tensors whose key `text` is this; gguf_free() it. */
struct gguf *keys_of(const char *text);
/* The same keys in the same order, byte for byte, but for the program's own. */
bool same_keys(const struct gguf *a, const struct gguf *b);

/* An edit at `now`, written; restored: it is an undo. The number of its state, or -errno. */
int64_t save(struct history *h, struct gguf *before, struct gguf *after, int64_t now,
             uint64_t restored, struct err *e);
/* The states are those from `first` to `last`; first > last: there are none. */
bool numbers_are(struct history *h, uint64_t first, uint64_t last);

#endif
