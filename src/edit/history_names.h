/* SPDX-License-Identifier: MIT */
/*
 * The names of a history's folder, HASH-NUMBER-TIME-SIZE in hex (history.h): read as a whole, and
 * what has to go, so that the bounds hold (H2, H3).
 *
 * Private to the history. Threads: one at a time, with the folder's lock where files are removed.
 */
#ifndef EDIT_HISTORY_NAMES_H
#define EDIT_HISTORY_NAMES_H

#include "edit/history.h"

/* Room for a name: four numbers and what stands between them. */
#define HISTORY_NAME_MAX (4 * 16 + 4)

void history_name_put(const struct history_name *n, char dst[HISTORY_NAME_MAX]);
/* False: it is not a name of ours. */
bool history_name_get(const char *name, struct history_name *ret);

struct history_names {
    struct history_name *name; /* owned; in no order */
    size_t n, cap;
    uint64_t bytes; /* that all files take */
    uint64_t floor; /* no new model's number is this or less */
};

#define HISTORY_NAMES_INIT ((struct history_names){0})

/* 0, -EFBIG (more files than a history can have), -errno. Free `ret` in any case. */
int history_names_read(struct history *h, struct history_names *ret, struct err *e);
void history_names_free(struct history_names *l);

/* The next number of the model. */
uint64_t history_names_next(const struct history_names *l, uint64_t hash);

/* Drop what is too much (H3), but never the state `kept`, which is in the list. 0, -errno. */
int history_names_prune(struct history *h, struct history_names *l, const struct history_name *kept,
                        struct err *e);
/* Drop all states of the model; *n: how many they were. 0, -errno. */
int history_names_drop(struct history *h, struct history_names *l, size_t *n, struct err *e);

#endif
