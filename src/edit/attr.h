/* SPDX-License-Identifier: MIT */
/*
 * Owner, mode, extended attributes and ACLs of one file given to another. Private to the edit
 * layer.
 */
#ifndef EDIT_ATTR_H
#define EDIT_ATTR_H

#include <stdbool.h>

#include "base/err.h"
#include "base/sys.h"

/*
 * Give `to`, a file that we made, the attributes of `from`, whose stat is st. Attributes that it
 * inherited from its folder and that `from` does not have are removed. 0; -EPERM if anything cannot
 * be reproduced; -ENOSPC, -EDQUOT, -EIO, -ENOMEM.
 */
int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e);

/* True if the mode is all that gives access to a file: it is certain that there is no ACL. */
bool attr_no_acl(const struct sys *s, int fd);
/* Remove the ACL, if there is one. False if that failed. */
bool attr_drop_acl(const struct sys *s, int fd);

/* Whether the attributes of a file can be listed and read, as attr_copy() will. As above. */
int attr_check(const struct sys *s, int fd, struct err *e);

#endif
