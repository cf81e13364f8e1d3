/* SPDX-License-Identifier: MIT */
/*
 * An ollama store: manifests/HOST/NAMESPACE/MODEL/TAG name the layers, which are blobs/sha256-<hex>
 * (before: sha256:<hex>). See place.h.
 *
 * Threads: any; no state.
 */
#ifndef SHELF_OLLAMA_H
#define SHELF_OLLAMA_H

#include "shelf/place.h"

/* True if a folder with these names is a store. */
bool ollama_is(struct reach *r, const struct found *dir, const struct names *names);
/* Of a store or a place in one. */
int ollama_list(struct reach *r, const struct place *p, const struct found *dir, const char *wanted,
                struct listing *ret);
/* REF_HOST to REF_TEXT. */
int ollama_item(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret);

#endif
