/* SPDX-License-Identifier: MIT */
/*
 * Looks at what may be on another disk than the folder that is listed. Such a disk may not answer, and
 * a folder that merely holds a link to it, or its mount point, must be listed nevertheless.
 *
 *     n = look(r, act, &dir, "name", &out);
 *
 * Threads: any; the caller holds no lock.
 */
#ifndef SHELF_LOOK_H
#define SHELF_LOOK_H

#include "shelf/reach.h"

/* Milliseconds: a look at a disk that answered so far, and one while another look is late. */
#define LOOK_PATIENCE 1000
#define LOOK_IMPATIENCE 100
/* Looks that may be late at a time; each has a thread. */
#define LOOK_LATE_MAX 16

/* A result of 0 or more, or -errno, and what was found. `name` may be several names with slashes. */
typedef int look_act(struct reach *r, const struct found *dir, const char *name, struct buf *out);

/* Have looks of this reach given up: before any. Else they take as long as they take. 0, -ENOMEM. */
int look_begin(struct reach *r);
/* False: looks that are late still use it, and it must stay. */
bool look_end(struct reach *r);

/* act(), by another thread if `name` leads to another disk. -ETIMEDOUT: it is late, and *out as it
 * was; as long as it is, the same look is -ETIMEDOUT at once. */
int look(struct reach *r, look_act *act, const struct found *dir, const char *name,
         struct buf *out);

#endif
