/* SPDX-License-Identifier: MIT */
#ifndef BASE_COUNT_H
#define BASE_COUNT_H

/* The number of elements of an array (not of a pointer). */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
