/* SPDX-License-Identifier: MIT */
/*
 * Plain folders: models by their names, split models once, folders, repositories of a Hugging Face
 * cache by organisation and name; and what turns out to be a store. See place.h.
 *
 * Threads: any; no state.
 */
#ifndef SHELF_PLAIN_H
#define SHELF_PLAIN_H

#include "shelf/place.h"

int plain_list(struct reach *r, const struct place *p, const struct found *dir, const char *wanted,
               struct listing *ret);
/* REF_FOLDER, REF_MODEL, REF_SPLIT. */
int plain_item(struct reach *r, const struct place *p, const struct found *dir,
               const struct ref *ref, struct item *ret);

#endif
