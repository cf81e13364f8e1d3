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
 * Make `to` (of our own making) like `from`, whose stat is st. What it inherited from its folder
 * and `from` has not is taken away. 0; -EPERM if anything cannot be reproduced; -ENOSPC, -EDQUOT,
 * -EIO, -ENOMEM.
 */
int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e);

/* Whether the attributes of a file can be listed and read, as attr_copy() will. As above. */
int attr_check(const struct sys *s, int fd, struct err *e);

#endif
