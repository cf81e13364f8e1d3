/* SPDX-License-Identifier: MIT */
/*
 * A backup: the model as it was before the first edit, beside it, under its name with a suffix. It is
 * made before anything of the edit is written: cloned where the file system clones, else copied. It gets
 * its name when it is on the disk, so that it is never there half; an older one is replaced.
 *
 * Private to the edit layer, but for backup_name().
 */
#ifndef EDIT_BACKUP_H
#define EDIT_BACKUP_H

#include "edit/commit.h"

/* True if one is asked for and not made yet. */
static inline bool backup_wanted(const struct edit_file *f, const struct edit_options *o)
{
    return o->backup && !f->backed;
}

/* Its name. 0, -ENAMETOOLONG. */
int backup_name(char dst[NAME_MAX + 1], const struct edit_file *f, const struct edit_options *o,
                struct err *e);

/* 0; -ENAMETOOLONG, -EISDIR (a folder has its name). */
int backup_check(const struct edit_file *f, const struct edit_options *o, struct err *e);

/* Make it, and set f->backed. -EINTR (hooks), -ENOSPC, -EPERM as edit_commit(), -errno. */
int backup_make(struct edit_file *f, const struct edit_options *o, const struct edit_hooks *h,
                struct err *e);

#endif
