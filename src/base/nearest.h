/* SPDX-License-Identifier: MIT */
/*
 * Finds the word that a mistyped word probably stands for: the closest candidate, if it is close
 * enough. Case is ignored.
 *
 *     struct nearest n = nearest_to("comit", 5);
 *     for (...) nearest_offer(&n, name[i], strlen(name[i]), i);
 *     if (n.found) ... name[n.which]
 */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>

struct nearest {
    const char *word;
    size_t len;
    bool found;
    /* If found: the caller's number for the best candidate, or for the first of several equals. */
    size_t which;
    unsigned distance; /* if found: how many letters are wrong, missing, extra or swapped */
};

struct nearest nearest_to(const char *word, size_t len);
void nearest_offer(struct nearest *n, const char *candidate, size_t len, size_t which);

#endif
