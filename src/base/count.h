/* SPDX-License-Identifier: MIT */
#ifndef BASE_COUNT_H
#define BASE_COUNT_H

/* The number of elements in an array (not for pointers). */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
