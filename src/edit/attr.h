/* SPDX-License-Identifier: MIT */
/*
 * Owner, mode, extended attributes and ACLs of one file given to another. Private to the edit
 * layer.
 */
#ifndef EDIT_ATTR_H
#define EDIT_ATTR_H

#include "base/err.h"
#include "base/sys.h"

/*
 * Give `to`, a file that we made, the attributes of `from`, whose stat is st. Attributes that it
 * inherited from its folder and that `from` does not have are removed. 0; -EPERM if anything cannot
 * be reproduced; -ENOSPC, -EDQUOT, -EIO, -ENOMEM.
 */
int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e);

/* Whether the attributes of a file can be listed and read, as attr_copy() will. As above. */
int attr_check(const struct sys *s, int fd, struct err *e);

#endif
