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
 * In a folder a model is a file NAME.gguf, in any case, or sha256-HASH (as ollama calls them) that
 * begins as a GGUF file does. Names are taken in the order of their bytes. Hidden folders and files
 * are left out. Links to folders are visited behind all else, but none to a folder that was visited or
 * that holds the folder that was named. Left out and never opened: anything but regular files, and
 * the mounts of this program.
 *
 * Threads: a struct models belongs to one.
 */
#ifndef CHECK_MODELS_H
#define CHECK_MODELS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/hash.h"

struct model_path {
    char *path;    /* owned; of a split model that of the first file */
    size_t shards; /* files of a split model; 0: it is not split */
    int error;     /* 0, or why this folder cannot be read: -errno; -ENOENT: no models are in it */
};

struct folder_id {
    dev_t dev;
    ino_t ino;
};

/* Numbers by hash, any number of them. */
struct growing {
    struct index index;
    size_t room;
};

struct models {
    struct model_path *model; /* owned */
    size_t n, cap;
    struct growing by_path;
    bool folders; /* one of the paths was a folder */
    /* Of the folder that is being visited: */
    struct folder_id *visited; /* owned; those that are not to be visited either */
    size_t n_visited, cap_visited;
    struct growing by_id;
    char **link; /* owned: paths of links to folders, visited behind all else */
    size_t n_links, cap_links;
};

#define MODELS_INIT ((struct models){0})

/* 0, also if there is nothing at `path` (it is added anyway); -ENOMEM. */
int models_add(struct models *m, const char *path);
/* The line for an entry with an error. */
const char *models_error(const struct model_path *m, char dst[SHOW_MAX]);
void models_free(struct models *m);

#endif
