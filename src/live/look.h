/* SPDX-License-Identifier: MIT */
/*
 * Files found by name and number, for the files that open, list and rename them.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_LOOK_H
#define LIVE_LOOK_H

#include "live/core.h"
#include "live/helper.h"

/* The file that a visible name has; NULL for other names. */
struct file *look_find(const struct live *l, const char *text);
/* The same; KEY:TYPE is a name of KEY as long as that has the type. */
struct file *look_find_typed(const struct live *l, const char *text);
/* The value that a file shows, if it is a key's. */
struct shown look_shown(const struct live *l, const struct file *f);
/* Its entry; the size is that of what is returned, to be measured without the lock, if that is a
 * value, else it is set. */
struct shown look_attr(const struct live *l, struct file *f, struct live_attr *ret);
/* Measure it: without the lock. s is freed. */
void look_measure(struct shown *s, struct live_attr *ret);

/* What a name in metadata/ is. */
enum name_class look_classify(const struct live *l, const char *text);
/* A file that is neither a key nor a known helper is dropped at the end. */
#define LOOK_STRAY "it is not a key name: these have a dot, as my.flag"

#endif
