/* SPDX-License-Identifier: MIT */
/*
 * The models that paths name: a file is one, a split model is one whichever and however many of its
 * files are named, a folder stands for all models in it and below.
 *
 *     struct models m = MODELS_INIT;
 *     r = models_add(&m, "models");       any number of times
 *     for (size_t i = 0; i < m.n; i++) ... m.model[i].path
 *     models_free(&m);
 *
 * Folders are read as a shelf shows them (place.h), in the order of the shown names. Each folder is
 * visited once, and each file that is in one is listed once, by the first name that leads to it. Links
 * to folders are visited behind all else.
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
    char *path;    /* owned; where it is opened; of a split model the first file */
    char *label;   /* owned; the name in a store; NULL: the path is its name */
    char *tags;    /* owned; other tags of ollama's that lead to it: "latest, 8b"; or NULL */
    size_t shards; /* files of a split model; 0: it is not split */
    int error;     /* 0, or why it cannot be read: -errno */
    char *why;     /* owned; the same as a line */
};

/* What a model is called. */
static inline const char *model_label(const struct model_path *m)
{
    return m->label ? m->label : m->path;
}

struct models {
    struct model_path *model; /* owned */
    size_t n, cap;
    struct table files; /* in folders, each once */
    bool folders;       /* one of the paths was a folder */
};

#define MODELS_INIT ((struct models){0})

/* 0, also if there is nothing at `path` (it is added anyway); -ENOMEM. */
int models_add(struct models *m, const char *path);
/* One more, whose texts pass in any case. 0, -ENOMEM. */
int models_put(struct models *m, struct model_path *new);
void models_free(struct models *m);

#endif
