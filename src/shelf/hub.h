/* SPDX-License-Identifier: MIT */
/*
 * A Hugging Face cache: models--ORG--NAME/{blobs,refs/REF,snapshots/COMMIT/PATH}. A snapshot is a
 * folder of links to blobs, or of files. In a folder, repositories are shown by their organisations and names
 * (place.h).
 *
 * Threads: any; no state.
 */
#ifndef SHELF_HUB_H
#define SHELF_HUB_H

#include "shelf/place.h"

/*
 * "models--org--name" in two parts ("" and name if there is no organisation). False: another name.
 */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);

/* True if `folder` of a place is a repository, or a link to one. dir: the place's folder. */
bool hub_has(struct reach *r, const struct place *p, const struct found *dir, const char *folder);
/* True if a folder with these names has repositories. */
bool hub_is(struct reach *r, const struct place *p, const struct found *dir,
            const struct names *names);
/* Add a repository's revisions, as NAME and NAME@COMMIT; nothing if it has none. `folder`: "." for dir itself. */
int hub_add(struct reach *r, const struct place *p, const struct found *dir, const char *folder,
            const char *name, struct listing *ret);
/* The repositories of an organisation. */
int hub_list(struct reach *r, const struct place *p, const struct found *dir, const char *wanted,
             struct listing *ret);
/* REF_ORG, REF_REVISION. */
int hub_item(struct reach *r, const struct place *p, const struct found *dir, const struct ref *ref,
             struct item *ret);

/* A commit: 40 hexadecimal digits. */
#define COMMIT_DIGITS 40
/* The commit that a file of refs/ holds, with white space around it; false: not a commit. */
bool commit_parse(const void *bytes, size_t n, char ret[COMMIT_DIGITS + 1]);

#endif
