/* SPDX-License-Identifier: MIT */
/*
 * The shelf's own nodes: folders, and texts of stores. A node is made when it is found for the first
 * time, and is there until the mount ends, so that its number and what it means stay the same.
 *
 * Threads: any.
 */
#ifndef SHELF_OWN_H
#define SHELF_OWN_H

#include <pthread.h>

#include "shelf/place.h"
#include "shelf/table.h"
#include "tree/rights.h"

struct own {
    struct link by_number, by_key;
    uint32_t number;
    enum item_kind kind; /* ITEM_FOLDER, ITEM_TEXT */
    struct place place;  /* ITEM_FOLDER */
    char *real;          /* owned */
    /* Protected by the lock: as of the last time that it was found. */
    struct stat st;
    struct grant grant;
};

struct owns {
    pthread_mutex_t lock;
    struct table by_number, by_key;
    uint32_t last;
};

void owns_init(struct owns *o);
void owns_free(struct owns *o);
/* The node of an item that was found; its place passes to it. 0, -ENOMEM. */
int own_of(struct owns *o, struct reach *r, struct item *i, const struct own **ret);
/* NULL: no such number. */
const struct own *own_at(struct owns *o, uint32_t number);
/* What it was when it was found last. */
void own_facts(struct owns *o, const struct own *n, struct stat *st, struct grant *g);

/* Access rights of a file at its real path: those of the file itself and, if a link leads to it, of
 * the folders outside of the shelf. */
struct grant grant_of_item(struct reach *r, const struct item *i);

#endif
