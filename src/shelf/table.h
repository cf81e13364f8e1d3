/* SPDX-License-Identifier: MIT */
/*
 * A hash table of links that lie in what they find; things can be removed. The caller compares.
 *
 *     for (struct link *l = table_first(&t, hash); l; l = table_next(l)) ...
 *
 * Threads: the caller's lock.
 */
#ifndef SHELF_TABLE_H
#define SHELF_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct link {
    struct link *next;
    uint64_t hash;
};

struct table {
    struct link **bucket; /* owned; a power of two */
    size_t room, n;
};

/* 0, -ENOMEM. */
int table_add(struct table *t, struct link *l, uint64_t hash);
void table_remove(struct table *t, const struct link *l);
struct link *table_first(const struct table *t, uint64_t hash);
struct link *table_next(const struct link *l);
void table_free(struct table *t);

#endif
