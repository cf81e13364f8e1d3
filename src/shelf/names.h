/* SPDX-License-Identifier: MIT */
/*
 * The names of folders, which are kept as long as the folders' times say that nothing was changed, and small
 * files in them.
 *
 * Threads: any.
 */
#ifndef SHELF_NAMES_H
#define SHELF_NAMES_H

#include <stdint.h>
#include <string.h>

#include "shelf/reach.h"

/* Names of a folder but those of hidden files, and their types; DT_UNKNOWN: not to be looked at. */
struct names {
    struct buf texts;
    struct name {
        uint32_t text;
        uint8_t type;
    } * name; /* owned; sorted */
    size_t n, cap;
    struct reach *reach;
    unsigned refs; /* protected by the reach's lock */
};

/*
 * A reference to the names as they are now; those of the folders that were looked at last are kept,
 * and used again as long as the folder's times say that nothing was changed; of another machine's, within a
 * second. 0, -errno (*ret is NULL).
 */
int names_load(struct reach *r, const struct found *dir, const struct names **ret);
void names_free(const struct names *const *n); /* may be of NULL */
static inline bool is_hidden(const char *name)
{
    return name[0] == '.';
}
/* The number of the first name that is not before `text`. */
size_t names_from(const struct names *n, const char *text);
static inline const char *name_at(const struct names *n, size_t i)
{
    return (const char *)n->texts.data + n->name[i].text;
}
/* True if there is such a number, and the name begins so. */
static inline bool name_begins(const struct names *n, size_t i, const char *start)
{
    return i < n->n && strncmp(name_at(n, i), start, strlen(start)) == 0;
}
/* The type of a name; DT_UNKNOWN: it is not there. */
uint8_t names_type(const struct names *n, const char *text);

/* True if `name` in a folder is a folder; with links also a link to one. */
bool has_folder(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags);
/* A small file of a store, whole. 0, -EFBIG, -EINVAL (not a regular file), -errno. */
int read_small(const struct found *f, size_t most, struct buf *ret);
/* True if the process lacks memory or descriptors. Any other error of what is in a store leaves that
 * out of a listing, and nothing else. */
bool is_shortage(int e);

#endif
