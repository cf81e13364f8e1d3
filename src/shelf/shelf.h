/* SPDX-License-Identifier: MIT */
/*
 * Shows one model, or a directory of models, each as a tree (tree/tree.h) under its name.
 * docs/shelf.md describes what a user sees.
 *
 *     r = shelf_open(path, &options, &s, &e);
 *     ... any of the other calls, from any threads ...
 *     r = shelf_finish(s);
 *     shelf_close(s);
 *
 * The calls are those of a tree, with the node numbers of the mount: slot 0 has the directories and
 * texts of the shelf itself (or the model, if it is mounted alone), each other slot is one state of
 * one model's file (slots.h). It is opened when something in it is requested, for editing with the
 * first edit, and closed after a minute without use.
 *
 * Threads: any. No lock is held during disk access.
 */
#ifndef SHELF_SHELF_H
#define SHELF_SHELF_H

#include "tree/folder.h"

struct shelf;
struct shelf_dir;
struct slot;

/* A model in use. */
struct use {
    struct slot *slot; /* NULL: nothing, or the model that is mounted alone */
    struct tree *tree; /* NULL: not opened for this */
};

/* A node of a mount, as seen by the calls. */
struct at {
    /* of the slot: a directory or text, or the directory of the model that contains the node */
    uint64_t node;
    uint64_t local; /* the number in the slot, which is the tree's, if it is: */
    bool in_tree;   /* in a model; otherwise it is: */
    bool own;       /* a directory or text of the shelf itself */
    bool model;     /* a model's directory in a mount of many */
    uint32_t extra; /* a file in such a directory */
    struct use use;
};

struct shelf_options {
    struct tree_options tree;
    bool strict; /* other users have access to the mount: links of others do not lead out */
};

/* Open a shelf. `path`: a model or a directory. */
int shelf_open(const char *path, const struct shelf_options *o, struct shelf **ret, struct err *e);
/* Write pending edits. Returns 0, or why an edit was lost (logged). */
int shelf_finish(struct shelf *s);
/*
 * Call fn with a model's tree, which is opened if it is closed. `place` is the path of its
 * directory in the mount, "/" and more; or ":" and the real path of its first file, which is being
 * edited. Returns -ENOENT, -EINVAL (not a model), -errno with the reason, or the result of fn().
 */
int shelf_ask(struct shelf *s, const char *place, int (*fn)(struct tree *t, void *arg), void *arg,
              struct err *e);
/* Write accepted edits, and wait until they are written. Returns 0 or the first error. */
int shelf_sync(struct shelf *s);
/* The same, and then let other processes write the models. Call it after the last edit. */
int shelf_retire(struct shelf *s);
/* Call this before the end, like tree_stop() and tree_abandon(). */
void shelf_stop(struct shelf *s);
void shelf_abandon(struct shelf *s);
void shelf_unsaved(struct shelf *s, struct buf *out);
/* Append lines about backups, like tree_backups(). */
void shelf_backups(const struct shelf *s, struct buf *out);
void shelf_close(struct shelf *s);

/* Set the device of the mount. Nothing on it is accessed. */
void shelf_mounted(struct shelf *s, dev_t dev);
/* True if it is a directory of models. */
bool shelf_is_folder(const struct shelf *s);
/* True if something may be edited. */
bool shelf_writable(const struct shelf *s);
const char *shelf_why_not(const struct shelf *s);
/* Return the real path, which is valid until shelf_close(). */
const char *shelf_path(const struct shelf *s);
/* Return a warning, like tree_warning(). A directory has none: its models' are logged when they are
 * opened. */
const char *shelf_warning(const struct shelf *s, unsigned i);

int shelf_lookup(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret);
void shelf_forget(struct shelf *s, uint64_t node, uint64_t n);
/*
 * Like tree_look(), before a call about a node: true if its model's rights have changed. shelf_nodes(): all nodes of
 * such models that the kernel may know.
 */
bool shelf_look(struct shelf *s, uint64_t node);
void shelf_nodes(struct shelf *s, void (*call)(void *arg, uint64_t node), void *arg);
/* Get the attributes of a node. file: an open file of the node, or NULL. */
int shelf_getattr(struct shelf *s, uint64_t node, const struct tree_file *file,
                  struct tree_entry *ret);
int shelf_statfs(struct shelf *s, struct statvfs *ret);
int shelf_readlink(struct shelf *s, uint64_t node, struct buf *out);
int shelf_getxattr(struct shelf *s, uint64_t node, const char *name, struct buf *out);
int shelf_listxattr(struct shelf *s, uint64_t node, struct buf *out);

int shelf_opendir(struct shelf *s, uint64_t node, struct shelf_dir **ret);
void shelf_closedir(struct shelf_dir *d);
bool shelf_dir_cacheable(const struct shelf_dir *d);
/* List a directory, like tree_readdir(). */
int shelf_readdir(struct shelf_dir *d, uint64_t *cookie, bool attrs, char name[TREE_NAME_MAX + 1],
                  struct tree_entry *ret);

/* ---- open files, and calls that edit: those of a tree ---- */

/* tree/file.h has all other calls for an open file; but shelf_release() ends it. */
int shelf_open_file(struct shelf *s, uint64_t node, int flags, struct tree_file **ret);
int shelf_create(struct shelf *s, uint64_t parent, const char *name, int flags,
                 struct tree_entry *ret, struct tree_file **file);
/*
 * Get a node that may be edited as a file that is not open, for truncate(2). Its model stays open
 * until shelf_release(). Returns 0, -EPERM, -ENOMEM, or why the model cannot be opened.
 */
int shelf_unopened_file(struct shelf *s, uint64_t node, struct tree_file **ret);
int shelf_release(struct tree_file *f);

/*
 * Use the tree that contains a node, for one of its calls. The tree is opened if it is closed, and
 * the node is ret->local there. `otherwise`: the result for a node outside any tree. Returns -errno
 * if it cannot be opened. Always call shelf_leave().
 */
int shelf_enter(struct shelf *s, uint64_t node, int otherwise, struct at *ret);
void shelf_leave(struct at *at);
/* If r is 0, the kernel gets this entry of the tree in use, and knows its slot from then on. Returns r. */
int shelf_given(const struct use *u, int r, struct tree_entry *e);
/* Rename a file within one directory, or to another one of the same model. */
int shelf_rename(struct shelf *s, uint64_t parent, const char *name, uint64_t new_parent,
                 const char *new_name, unsigned flags, struct live_wait *w);
void shelf_interrupt(struct shelf *s, const void *request);

#endif
