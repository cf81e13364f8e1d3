/* SPDX-License-Identifier: MIT */
/*
 * Hashes, and a table of links. Names are hashed with a random secret that differs in each process,
 * so an attacker cannot make a file whose names all collide.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

/* Return the XXH3 of n bytes with this process's secret. */
uint64_t hash_name(const void *bytes, size_t n);
/* Return the hash of a number that this program chose. An attacker could choose numbers that
 * collide. */
static inline uint64_t hash_number(uint64_t number)
{
    return ((number ^ number >> 32) + 1) * 0x9e3779b97f4a7c15u >> 32;
}

/* Return the XXH64 (Collet, 2014) of n bytes, for detecting changes. It is the same in each process,
 * and does not protect against bytes made to collide. */
static inline uint64_t xxh64(uint64_t seed, const void *bytes, size_t n)
{
    return XXH64(bytes, n, seed);
}

/*
 * A table of links, each embedded in its object. Entries can be removed. The caller compares keys.
 *
 *     for (struct link *l = table_first(&t, hash); l; l = table_next(l)) ...
 *
 * The table is protected by the caller's lock.
 */
struct link {
    struct link *next;
    uint64_t hash;
};

struct table {
    struct link **bucket; /* owned; their number is a power of two */
    size_t room, n;
};

/* Add a link. Returns 0 or -ENOMEM. */
int table_add(struct table *t, struct link *l, uint64_t hash);
void table_remove(struct table *t, const struct link *l);
struct link *table_first(const struct table *t, uint64_t hash);
struct link *table_next(const struct link *l);
/* Return the entry after `l`, or the first one if `l` is NULL; NULL after the last. The order is
 * arbitrary. */
struct link *table_each(const struct table *t, const struct link *l);
/* Free the table, but not the objects in it. */
void table_free(struct table *t);

#endif
