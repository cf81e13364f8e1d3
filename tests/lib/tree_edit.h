/* SPDX-License-Identifier: MIT */
/*
 * Edits of a tree as the kernel asks for them, each waited for: open or create, write, flush,
 * release. Functions return 0 or the first -errno, and give up all that they hold in any case.
 */
#ifndef TESTS_LIB_TREE_EDIT_H
#define TESTS_LIB_TREE_EDIT_H

#include "tree/tree.h"

/* echo TEXT > metadata/NAME, of n bytes. NAME may be KEY:TYPE. */
int do_write(struct tree *t, const char *name, const void *text, size_t n);
/* echo TEXT >> metadata/NAME */
int do_append(struct tree *t, const char *name, const void *text, size_t n);
/* truncate -s 0 metadata/NAME; rm; mv; setfattr -n user.gguf.type -v TYPE */
int do_truncate(struct tree *t, const char *name);
int do_unlink(struct tree *t, const char *name);
int do_rename(struct tree *t, const char *from, const char *to);
int do_retype(struct tree *t, const char *name, const char *type);
/* sync metadata */
int do_sync(struct tree *t);

#endif
