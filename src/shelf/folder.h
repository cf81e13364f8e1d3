/* SPDX-License-Identifier: MIT */
/*
 * Directories: models by their names, split models once, subdirectories, repositories of a Hugging
 * Face cache by organisation and name (models--ORG--NAME/{blobs,refs/REF,snapshots/COMMIT/PATH}: a
 * snapshot is a directory of links to blobs, or of files); and whatever turns out to be a store.
 * See place.h.
 *
 * Threads: any; no state.
 */
#ifndef SHELF_FOLDER_H
#define SHELF_FOLDER_H

#include "shelf/place.h"

int folder_list(struct reach *r, const struct place *p, const struct found *dir,
                struct listing *ret);
/* REF_FOLDER, REF_MODEL, REF_SPLIT. */
int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret);

/* The repositories of an organisation. */
int hub_list(struct reach *r, const struct place *p, const struct found *dir, struct listing *ret);
/* REF_ORG, REF_REVISION. */
int hub_item(struct reach *r, const struct place *p, const struct found *dir, const struct ref *ref,
             struct item *ret);

/* Split "models--org--name" into its two parts; without an organisation org is "". False: another kind of name. */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);
/* A commit: 40 hexadecimal digits. */
#define COMMIT_DIGITS 40
/* The commit in a file of refs/, with white space around it; false: not a commit. */
bool commit_parse(const void *bytes, size_t n, char ret[COMMIT_DIGITS + 1]);

#endif
