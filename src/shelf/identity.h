/* SPDX-License-Identifier: MIT */
/*
 * What identifies an item that was found, and its access rights.
 *
 * Threads: any; no state.
 */
#ifndef SHELF_IDENTITY_H
#define SHELF_IDENTITY_H

#include "shelf/place.h"
#include "tree/rights.h"

/* Access rights of a file at its real path: those of the file itself, of the folders of a store that
 * are passed but not shown and, if a link leads to it, of all folders around it. The kernel checks what
 * a link leads to before anything below that, so what is below has rights of its own only, by whichever
 * name the folder was reached. */
struct granted {
    struct grant grant;
    uint64_t stamp; /* rights_stamp() */
};
/* As they are now, if they are others than before. {0}: there was no before. */
void granted_look(struct reach *r, const struct item *i, struct granted *g);

/* A hash of where it is, whatever is there: of a folder its place, else the path. 0, -ENOMEM. */
int item_key(const struct item *i, uint64_t *ret);
/* A hash of what is there: of a text or model the file, or all files; of a folder 0, as it stays what it is. 0, -ENOMEM. */
int item_stamp(struct reach *r, const struct item *i, uint64_t *ret);
/* The same of the file at `path`, by which a model is opened, or of all files of a split model: what
 * tree_identity() is of a tree that has these open. */
int files_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret);
/* True if nobody changed the file, nor its attributes. */
bool same_file(const struct stat *a, const struct stat *b);

#endif
