/* SPDX-License-Identifier: MIT */
/*
 * Open files of a shelf, and the calls that edit: those of a tree (tree/tree.h), with the node numbers of the mount.
 *
 * Threads: any; a file belongs to the caller that opened it.
 */
#ifndef SHELF_SHELF_FILE_H
#define SHELF_SHELF_FILE_H

#include "shelf/shelf.h"

int shelf_open_file(struct shelf *s, uint64_t node, int flags, struct shelf_file **ret);
struct shelf *shelf_of_file(const struct shelf_file *f);
int shelf_release(struct shelf_file *f);
bool shelf_cacheable(const struct shelf_file *f);
bool shelf_cached_right(const struct shelf_file *f);
bool shelf_ahead(const struct shelf_file *f);
bool shelf_waits(const struct shelf_file *f);
int shelf_read(struct shelf_file *f, uint64_t off, size_t n, struct reply *r);

/* Editing. The calls of a folder's own names are EPERM, renames across models EXDEV. */
int shelf_create(struct shelf *s, uint64_t parent, const char *name, int flags,
                 struct tree_entry *ret, struct shelf_file **file);
int shelf_mknod(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret);
int shelf_write(struct shelf_file *f, uint64_t off, const void *bytes, size_t n,
                struct live_wait *w);
/* A node that may be edited, as a file that is not open, for truncate(2): its model stays open until
 * shelf_release(). 0, -EPERM, -ENOMEM, or why the model cannot be opened. */
int shelf_unopened_file(struct shelf *s, uint64_t node, struct shelf_file **ret);
int shelf_truncate(struct shelf_file *f, uint64_t node, uint64_t size, struct live_wait *w);
int shelf_flush(struct shelf_file *f, struct live_wait *w);
int shelf_fsync(struct shelf_file *f, struct live_wait *w);
int shelf_fsyncdir(struct shelf *s, uint64_t node, struct live_wait *w);
int shelf_unlink(struct shelf *s, uint64_t parent, const char *name);
int shelf_rename(struct shelf *s, uint64_t parent, const char *name, uint64_t new_parent,
                 const char *new_name, unsigned flags, struct live_wait *w);
bool shelf_converts(const struct shelf_file *f);
int shelf_allocate(struct shelf_file *f, int mode, uint64_t off, uint64_t n);
int shelf_mkdir(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret);
int shelf_rmdir(struct shelf *s, uint64_t parent, const char *name);
int shelf_symlink(struct shelf *s, uint64_t parent, const char *name, const char *target,
                  struct tree_entry *ret);
int shelf_setxattr(struct shelf *s, uint64_t node, const char *name, const void *value, size_t n,
                   struct live_wait *w);
int shelf_removexattr(struct shelf *s, uint64_t node, const char *name);
void shelf_interrupt(struct shelf *s, const void *request);

#endif
