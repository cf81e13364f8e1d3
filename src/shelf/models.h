/* SPDX-License-Identifier: MIT */
/*
 * Finds the models that paths refer to. A file is a model or part of a split model. A split model
 * is listed once, even if several of its files are named. A directory represents the models that a
 * mount of it shows (place.h), in the order of their names; a model's directory in a mount
 * represents that model.
 *
 *     struct models m = MODELS_INIT;
 *     r = models_add(&m, "models");       any number of times
 *     for (size_t i = 0; i < m.n; i++) ... m.model[i].path
 *     models_free(&m);
 *
 * Only one thread may use a struct models.
 */
#ifndef SHELF_MODELS_H
#define SHELF_MODELS_H

#include <stdbool.h>
#include <stddef.h>

struct model_path {
    char *path;    /* owned; path of the file to open (the first file of a split model) */
    char *label;   /* owned; the model's name in a store; NULL: `path` serves as the name */
    size_t shards; /* number of files of a split model; 0: not split */
    bool mounted;  /* `path` is the file model.gguf of a mount, `label` the model's directory */
    int error;     /* 0, or -errno if the model cannot be read */
    char *why;     /* owned; the message for the error */
};

/* Return the name to show for a model. */
static inline const char *model_label(const struct model_path *m)
{
    return m->label ? m->label : m->path;
}

struct models {
    struct model_path *model; /* owned */
    size_t n, cap;
    bool folders; /* at least one path was a directory of models */
};

#define MODELS_INIT ((struct models){0})

/* Add the models at `path`. If no models are found, adds the path itself. Returns 0 or -ENOMEM. */
int models_add(struct models *m, const char *path);
void models_free(struct models *m);

#endif
