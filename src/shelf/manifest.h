/* SPDX-License-Identifier: MIT */
/*
 * Parses the manifests of an ollama store: manifests/HOST/NAMESPACE/MODEL/TAG name the layers of a
 * model, which are blobs/sha256-<hex> (formerly sha256:<hex>). Their content is not trusted.
 *
 * Pure functions. Callable from any thread.
 */
#ifndef SHELF_MANIFEST_H
#define SHELF_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Maximum size of a manifest in bytes. */
#define MANIFEST_MAX ((size_t)1 << 20)
#define MANIFEST_LAYERS_MAX 4096

#define DIGEST_DIGITS 64

/* A layer that the mount shows. */
struct layer {
    const char *name;               /* "model", "template", ... */
    bool model;                     /* true: the layer holds a model; false: it holds text */
    char digest[DIGEST_DIGITS + 1]; /* SHA-256, in hexadecimal digits */
};

struct manifest {
    struct layer *layer; /* owned */
    size_t n;
};

/* Parse a manifest. Returns 0, or -EBADMSG, -EFBIG or -ENOMEM with a message. One whose layers hold
 * a tensor each is -EBADMSG. */
int manifest_parse(const void *bytes, size_t n, struct manifest *ret, struct err *e);
void manifest_free(struct manifest *m);

#endif
