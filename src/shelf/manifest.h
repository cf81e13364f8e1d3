/* SPDX-License-Identifier: MIT */
/*
 * A manifest of an ollama store: the layers of a model. Its bytes are not to be trusted.
 *
 * Threads: pure functions.
 */
#ifndef SHELF_MANIFEST_H
#define SHELF_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* More than any manifest takes: ollama's have a dozen layers in a thousand bytes. */
#define MANIFEST_MAX ((size_t)1 << 20)
#define MANIFEST_LAYERS_MAX 4096

#define DIGEST_DIGITS 64

/* A layer that is shown. */
struct layer {
    const char *name;               /* "model", "template", ... */
    bool model;                     /* else a text */
    char digest[DIGEST_DIGITS + 1]; /* SHA-256, in hexadecimal digits */
};

struct manifest {
    struct layer *layer; /* owned; models first; those of one name follow each other */
    size_t n;
    size_t models;  /* how many of them are models */
    size_t tensors; /* layers that are a tensor each; not shown */
};

/* 0, or -EBADMSG, -EFBIG, -ENOMEM with a line. */
int manifest_parse(const void *bytes, size_t n, struct manifest *ret, struct err *e);
void manifest_free(struct manifest *m);

#endif
