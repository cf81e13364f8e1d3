/* SPDX-License-Identifier: MIT */
/*
 * The word that a mistyped one was most likely meant to be: the closest candidate, if it is close
 * enough. Upper and lower case count as the same.
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
    size_t which; /* if found: the caller's number of the best candidate, the first of equals */
    unsigned distance; /* if found: letters that are wrong, missing, too many or swapped */
};

struct nearest nearest_to(const char *word, size_t len);
void nearest_offer(struct nearest *n, const char *candidate, size_t len, size_t which);

#endif
