/* SPDX-License-Identifier: MIT */
/*
 * The models that paths refer to: a file is one, a split model is one whichever and however many of
 * its files are named, a directory stands for all models in it and below.
 *
 *     struct models m = MODELS_INIT;
 *     r = models_add(&m, "models");       any number of times
 *     for (size_t i = 0; i < m.n; i++) ... m.model[i].path
 *     models_free(&m);
 *
 * Directories are read as a shelf shows them (place.h), in the order of the shown names. Each
 * directory is visited once, and each file in one is listed once, by the first name that leads to
 * it. Links to directories are visited last.
 *
 * Threads: a struct models belongs to one.
 */
#ifndef SHELF_MODELS_H
#define SHELF_MODELS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/hash.h"

struct model_path {
    char *path;    /* owned; where it is opened; for a split model the first file */
    char *label;   /* owned; its name in a store; NULL: the path is its name */
    char *tags;    /* owned; other ollama tags that lead to it: "latest, 8b"; or NULL */
    size_t shards; /* files of a split model; 0: not split */
    int error;     /* 0, or why it cannot be read: -errno */
    char *why;     /* owned; the same as a line */
};

/* The name to show for a model. */
static inline const char *model_label(const struct model_path *m)
{
    return m->label ? m->label : m->path;
}

struct models {
    struct model_path *model; /* owned */
    size_t n, cap;
    struct table files; /* in directories, each once */
    bool folders;       /* one of the paths was a directory */
};

#define MODELS_INIT ((struct models){0})

/* 0, even if there is nothing at `path` (it is added anyway); -ENOMEM. */
int models_add(struct models *m, const char *path);
/* Add one more, always taking ownership of its texts. 0, -ENOMEM. */
int models_put(struct models *m, struct model_path *new);
void models_free(struct models *m);

#endif
