/* SPDX-License-Identifier: MIT */
/*
 * A directory with a history, for the tests of histories.
 *
 *     struct home x;
 *     home_setup(&x);                             x.h: the history of /models/m.gguf
 *     CU_ASSERT_EQUAL(save(&x.h, a, b, 1000, 0, &e), 0);
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
int open_history(const struct home *x, struct history *h, const char *model, size_t keep);
/* Return the number of files in the history's directory. */
unsigned home_files(const struct home *x);

/* Make a model without tensors whose key `text` has this value. The caller calls gguf_free(). */
struct gguf *keys_of(const char *text);
/* True if the keys are the same, in the same order, byte for byte, except for ggufs' own. */
bool same_keys(const struct gguf *a, const struct gguf *b);

/* Record an edit that was written at time `now`. restored: for an undo, the state that it restored.
 * begin_save() leaves its outcome open. */
int save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
         uint64_t restored, struct err *e);
int begin_save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
               uint64_t restored, struct err *e);
/* List the numbers of the states that are shown if these are the present keys: "1 2 3". */
void states_of(const struct history *h, const struct gguf *now, char *dst, size_t room);

#endif
