/* SPDX-License-Identifier: MIT */
/*
 * Makes edits to a tree's tensors with requests like the kernel's, and waits for each. Functions
 * return 0 or the first -errno, and always release everything they hold.
 *
 *     struct viewfile v;
 *     r = viewfile_open(t, "w", "raw", O_RDWR, &v);       one open file
 *     r = viewfile_pwrite(&v, off, bytes, n);
 *     r = viewfile_close(&v);
 *
 *     r = viewfile_put(t, "w", "type", "F16\n", 4);       cp: all of the above
 */
#ifndef TESTS_LIB_VIEWFILE_H
#define TESTS_LIB_VIEWFILE_H

#include "tree_edit.h"

struct viewfile {
    struct tree *t;
    struct tree_file *f;
    uint64_t node;
};

/* Open a view with the flags of open(2). O_CREAT creates the view, or a helper. */
int viewfile_open(struct tree *t, const char *tensor, const char *view, int flags,
                  struct viewfile *ret);
int viewfile_pwrite(const struct viewfile *v, uint64_t off, const void *bytes, size_t n);
/* The close by the last owner without its flush; with it. */
void viewfile_release(struct viewfile *v);
int viewfile_close(struct viewfile *v);
int viewfile_sync(const struct viewfile *v);

/* Do what cp does: open with O_TRUNC (and `flags`), write, close. */
int viewfile_put_with(struct tree *t, const char *tensor, const char *view, int flags,
                      const void *bytes, size_t n);
int viewfile_put(struct tree *t, const char *tensor, const char *view, const void *bytes, size_t n);
/* Do what rename(2) and unlink(2) do in a tensor's directory. */
int viewfile_rename(struct tree *t, const char *tensor, const char *from, const char *to);
int viewfile_unlink(struct tree *t, const char *tensor, const char *view);

/* Do what mkdir, mv and rmdir do with a tensor's directory. do_sync() writes pending edits. */
int do_mkdir_tensor(struct tree *t, const char *name);
int do_rename_tensor(struct tree *t, const char *from, const char *to);
int do_rmdir_tensor(struct tree *t, const char *name);

#endif
