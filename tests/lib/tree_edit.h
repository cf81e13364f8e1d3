/* SPDX-License-Identifier: MIT */
/*
 * Makes edits to a tree with requests like the kernel's, and waits for each: open or create, write,
 * flush, release. Functions return 0 or the first -errno, and always release everything that they
 * hold.
 */
#ifndef TESTS_LIB_TREE_EDIT_H
#define TESTS_LIB_TREE_EDIT_H

#include <errno.h>
#include <semaphore.h>

#include "tree/folder.h"
#include "tree/attr.h"

/* The wait of a call that may be parked: r = tree_waited(&w, tree_flush(f, tree_wait(&w))). The
 * wait's request is w itself. */
struct tree_wait {
    struct live_wait wait; /* must come first */
    sem_t answered;
    int result;
};
/* Seconds; enough for any call on a busy machine. */
enum { WAIT_MOST = 60 };
struct live_wait *tree_wait(struct tree_wait *w);
int tree_waited(struct tree_wait *w, int r);

/* Do what "echo TEXT > metadata/NAME" does, for n bytes. NAME may be KEY:TYPE. */
int do_write(struct tree *t, const char *name, const void *text, size_t n);
/* Do what rm, mv, and setfattr -n user.gguf.type -v TYPE do. */
int do_unlink(struct tree *t, const char *name);
int do_rename(struct tree *t, const char *from, const char *to);
int do_retype(struct tree *t, const char *name, const char *type);
/* Do what "sync metadata" does. */
int do_sync(struct tree *t);

#endif
