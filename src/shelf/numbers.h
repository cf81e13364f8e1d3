/* SPDX-License-Identifier: MIT */
/*
 * Numbers that are kept for things that are gone, so that one that comes back has its number again.
 * Of the oldest of very many they are forgotten.
 *
 * Threads: the caller's lock.
 */
#ifndef SHELF_NUMBERS_H
#define SHELF_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

/* At least so many are kept, at most twice as many. Each takes up to 64 bytes. */
#define NUMBERS_KEPT ((size_t)1 << 20)

struct numbers {
    struct numbered {
        uint64_t key;
        uint32_t number; /* 0: none */
    } * young, *old;     /* owned; hash tables */
    size_t room, n;      /* of the young; n: cells in use, also those whose number was taken */
    size_t old_room;
};

/* Keep a number for a key, which is a hash. Best effort. */
void numbers_keep(struct numbers *s, uint64_t key, uint32_t number);
/* The number of a key, which is not kept from then on; 0: none. */
uint32_t numbers_take(struct numbers *s, uint64_t key);
void numbers_free(struct numbers *s);

#endif
