/* SPDX-License-Identifier: MIT */
/* Handles paths as texts, without looking anything up. Any thread may call these functions. */
#ifndef BASE_PATH_H
#define BASE_PATH_H

#include <stdbool.h>
#include <string.h>

/* Return the last component of a path. */
static inline const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Return true if an absolute path is `folder` or lies below it. */
static inline bool path_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

#endif
