/* SPDX-License-Identifier: MIT */
/*
 * The models at given paths: a file is one model; any number of files of a split model are one
 * model; a folder means all models in it and below.
 *
 *     struct models m = MODELS_INIT;
 *     r = models_add(&m, "models");       any number of times
 *     for (size_t i = 0; i < m.n; i++) ... m.model[i].path
 *     models_free(&m);
 *
 * In a folder a model is a file NAME.gguf, in upper or lower case, or a file sha256-HASH (ollama's
 * names) that begins like a GGUF file. Names are sorted by their bytes. Hidden folders and files
 * are left out. Links to folders are visited after everything else, except links to a folder
 * already visited or to one above the given folder. Never opened: anything but regular files, and
 * the mounts of this program.
 *
 * Threads: a struct models belongs to one thread.
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
    int error; /* 0, or -errno: why this folder cannot be read; -ENOENT: it contains no models */
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
    /* The walk through the current folder: */
    struct folder_id *visited; /* owned; includes those that must not be visited */
    size_t n_visited, cap_visited;
    struct growing by_id;
    char **link; /* owned: paths of links to folders, visited after everything else */
    size_t n_links, cap_links;
};

#define MODELS_INIT ((struct models){0})

/* 0, even if nothing exists at `path` (it is added anyway); -ENOMEM. */
int models_add(struct models *m, const char *path);
/* The line for an entry with an error. */
const char *models_error(const struct model_path *m, char dst[SHOW_MAX]);
void models_free(struct models *m);

#endif
