/* SPDX-License-Identifier: MIT */
/*
 * Reads an ollama store: manifests/HOST/NAMESPACE/MODEL/TAG name the layers, which are
 * blobs/sha256-<hex> (formerly sha256:<hex>). See place.h.
 *
 * Any thread may call these functions; they have no state. The bytes of a manifest are not trusted.
 */
#ifndef SHELF_OLLAMA_H
#define SHELF_OLLAMA_H

#include "shelf/place.h"

/* Returns true if a directory with these names is a store. */
bool ollama_is(struct reach *r, const struct found *dir, const struct names *names);
/* List a store or a place in one. */
int ollama_list(struct reach *r, const struct place *p, const struct found *dir,
                struct listing *ret);
/* Get the item of a REF_OLLAMA, REF_LAYER or REF_TEXT. */
int ollama_item(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret);

/* ---- a manifest: the layers of a model ---- */

/* Maximum size of a manifest in bytes. Those of ollama have a dozen layers in a thousand bytes. */
#define MANIFEST_MAX ((size_t)1 << 20)
#define MANIFEST_LAYERS_MAX 4096

#define DIGEST_DIGITS 64

/* A layer that the mount shows. */
struct layer {
    const char *name;               /* "model", "template", ... */
    bool model;                     /* true: a model; false: a text */
    char digest[DIGEST_DIGITS + 1]; /* SHA-256, in hexadecimal digits */
};

struct manifest {
    struct layer *layer; /* owned; models come first; layers of the same name are adjacent */
    size_t n;
    size_t models;  /* number of layers that are models */
    size_t tensors; /* number of layers that hold a single tensor, which are not shown */
};

/* Parse a manifest. Returns 0, or -EBADMSG, -EFBIG or -ENOMEM with a message. */
int manifest_parse(const void *bytes, size_t n, struct manifest *ret, struct err *e);
void manifest_free(struct manifest *m);

#endif
