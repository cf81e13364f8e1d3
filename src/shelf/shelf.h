/* SPDX-License-Identifier: MIT */
/*
 * Shows one model as a tree (tree/tree.h), or a directory of models with a tree for each.
 * docs/shelf.md describes the result for users.
 *
 *     r = shelf_open(path, &options, &s, &e);
 *     ... any of the other calls, from any threads ...
 *     r = shelf_finish(s);
 *     shelf_close(s);
 *
 * The calls are those of a tree. A slot represents one state of one model's file, or something else
 * that is in no tree (slots.h); slot 0 is the mounted directory, or the model if it is mounted alone.
 *
 * Any thread may call these functions. No lock is held during disk access.
 */
#ifndef SHELF_SHELF_H
#define SHELF_SHELF_H

#include "tree/folder.h"

struct shelf;
struct shelf_dir;
struct shelf_slot;

/* A slot in use. */
struct use {
    struct shelf_slot *slot; /* NULL: no slot is in use, or the model is mounted alone */
    struct tree *tree;       /* NULL: not open, or not a model's */
    bool own; /* for what the slot stands for, in no tree; a model's directory is so, too */
};

struct shelf_options {
    struct tree_options tree;
    bool strict; /* other users can access the mount (struct paths) */
    /* real path of the mount point, which must be neither in the directory nor above it; NULL: not
     * known. Not owned */
    const char *mountpoint;
};

int shelf_open(const char *path, const struct shelf_options *o, struct shelf **ret, struct err *e);
/* Write pending edits. Returns 0, or -errno if an edit was lost; the loss is logged. */
int shelf_finish(struct shelf *s);
/* Write the accepted edits of all models at the same time. May return LIVE_PARKED; the result is 0, or
 * -errno if an edit could not be written. */
int shelf_sync(struct shelf *s, struct live_wait *w);
/* Sync a directory: write the accepted edits of its model or, for a directory of models, of all models.
 * May return LIVE_PARKED. */
int shelf_fsyncdir(struct shelf *s, uint64_t node, struct live_wait *w);
/* Call live_abandon(), or tree_stop(), for each open tree. This must come before shelf_finish(). */
void shelf_abandon(struct shelf *s);
void shelf_stop(struct shelf *s);
void shelf_close(struct shelf *s);

bool shelf_writable(const struct shelf *s);
const char *shelf_why_not(const struct shelf *s);
/* Return the real path of the model or directory; it is valid until shelf_close(). */
const char *shelf_path(const struct shelf *s);

int shelf_lookup(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret);
void shelf_forget(struct shelf *s, uint64_t node, uint64_t n);
/* Get the attributes of a node. `file` is an open file of the node, or NULL. */
int shelf_getattr(struct shelf *s, uint64_t node, const struct tree_file *file,
                  struct tree_entry *ret);
int shelf_statfs(struct shelf *s, struct statvfs *ret);
int shelf_readlink(struct shelf *s, uint64_t node, struct buf *out);
int shelf_getxattr(struct shelf *s, uint64_t node, const char *name, struct buf *out);
int shelf_listxattr(struct shelf *s, uint64_t node, struct buf *out);

int shelf_opendir(struct shelf *s, uint64_t node, struct shelf_dir **ret);
void shelf_closedir(struct shelf_dir *d);
bool shelf_dir_cacheable(const struct shelf_dir *d);
int shelf_readdir(struct shelf_dir *d, uint64_t *cookie, bool attrs, char name[TREE_NAME_MAX + 1],
                  struct tree_entry *ret);

/* ---- open files (tree/file.h has the other calls), and calls that edit ---- */

int shelf_open_file(struct shelf *s, uint64_t node, int flags, struct tree_file **ret);
int shelf_create(struct shelf *s, uint64_t parent, const char *name, int flags,
                 struct tree_entry *ret, struct tree_file **file);
void shelf_release(struct tree_file *f);

/* Begin to use the tree that contains a node, opening the tree if it is closed. Returns 0, -errno if
 * the tree cannot be opened, or `otherwise` for a node outside any tree. Call shelf_leave() even on
 * failure. */
int shelf_enter(struct shelf *s, uint64_t node, int otherwise, struct use *ret);
void shelf_leave(struct use *u);
/* Rename a file within one directory, or move it to another directory of the same model. */
int shelf_rename(struct shelf *s, uint64_t parent, const char *name, uint64_t new_parent,
                 const char *new_name, unsigned flags, struct live_wait *w);
void shelf_interrupt(struct shelf *s, const void *request);

#endif
