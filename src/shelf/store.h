/* SPDX-License-Identifier: MIT */
/*
 * What the kinds of stores share; private to the shelf. Each has three functions: list all entries,
 * find one by its shown name, and make an item of what it refers to.
 */
#ifndef SHELF_STORE_H
#define SHELF_STORE_H

#include "shelf/look.h"
#include "shelf/place.h"

/* ---- listings ---- */

/*
 * Add an entry; its shown name is the encoding of `name`, with ~2, ~3 if that is taken. 0, -errno.
 */
int listing_add(struct listing *l, const char *name, const struct ref *ref);
/* True if this name, not encoded, is shown. */
bool listing_has(const struct listing *l, const char *name);
/* All are added: sort by name. */
int listing_end(struct listing *l);

/* The name behind a shown one: 0, -ENOENT, or -ENAMETOOLONG (only a listing can show it). */
int shown_name(const char *shown, char name[TREE_NAME_MAX + 1]);

/* ---- folders ---- */

/* Names of a folder but those of hidden files, and their types; DT_UNKNOWN: not to be looked at. */
struct names {
    struct buf texts;
    struct name {
        uint32_t text;
        uint8_t type;
    } * name; /* owned; sorted */
    size_t n, cap;
    unsigned refs; /* protected by the reach's lock */
};

/*
 * A reference to the names as they are now; those of the folders that were looked at last are kept,
 * and used again as long as the folder's times say that nothing was changed. 0, -errno (*ret is
 * NULL).
 */
int names_load(struct reach *r, const struct found *dir, const struct names **ret);
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

/* 1: `name` in a folder is a folder; with links also a link to one. 0: it is not; -ETIMEDOUT: it is on
 * another disk, which does not answer. */
int has_folder(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags);
/* A small file of a store, whole. 0, -EFBIG, -EINVAL (not a regular file), -errno. */
int read_small(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags,
               size_t most, struct buf *ret);
/* True if the process lacks memory or descriptors. Any other error of what is in a store leaves that
 * out of a listing, and nothing else. */
bool is_shortage(int e);

/* ---- items ---- */

/* A place below p: kind and parts; the path is p's if `path` is NULL. 0, -ENOMEM. */
int place_make(const struct place *p, enum place_kind kind, const char *path, const char *a,
               const char *b, const char *c, struct place *ret);
/* A link in p leads to the place `below`, which was made of p. 0, -ENOMEM. */
int place_follow(const struct place *p, struct place *below);
/* True if a link in p to this real path is not to be followed: what holds a folder that was passed on
 * the way would be shown in itself, for ever. */
bool place_goes_round(const struct reach *r, const struct place *p, const char *path);
/* An item that is a folder in p: `f` (whose path it takes, closed) with this place. */
int item_folder(const struct place *p, struct found *f, struct place *place, struct item *ret);
/* An item that is the file `name` in the folder `dir`: a model, or a text. It need not exist. */
int item_file(struct reach *r, const struct place *p, const struct found *dir, const char *name,
              enum item_kind kind, struct item *ret);
/* The same of a model, which may be split: its files are those that split_find() finds by this name.
 * 0, -ENOMEM. */
int item_model(struct reach *r, const struct place *p, const struct found *dir, const char *name,
               struct item *ret);

/* ---- kinds: plain.c, hub.c, ollama.c ---- */

/* How a kind of place is listed and searched. dir: its folder. */
struct store_kind {
    int (*list)(struct reach *r, const struct place *p, const struct found *dir,
                struct listing *ret);
    /* -ENOENT: it does not exist; -EAGAIN: only a listing can show it. a and b of *ref may point into
     * `room`. NULL: list the folder instead, which costs the same. */
    int (*find)(struct reach *r, const struct place *p, const struct found *dir, const char *name,
                char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref);
    int (*item)(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret);
};

extern const struct store_kind store_plain, store_repo, store_org, store_ollama, store_ollama_host,
    store_ollama_space, store_ollama_model;

/* True if a folder, open as dir, is one of these. */
bool is_ollama(struct reach *r, const struct found *dir);
bool is_repo(struct reach *r, const struct found *dir);

/* hub.c for plain.c: repositories in a folder are shown by their organisations and names. */

/*
 * "models--org--name" in two parts ("" and name if there is no organisation). False: another name.
 */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);
/* True if `folder` of a place is a repository, or a link to one; or is named as one on a disk that does
 * not answer. dir: the place's folder. */
bool has_repo(struct reach *r, const struct place *p, const struct found *dir, const char *folder);
/* Add a repository's revisions, as NAME and NAME@COMMIT. Nothing if it has none, or if its disk does
 * not answer. */
int repo_list(struct reach *r, const struct found *dir, const char *folder, const char *name,
              struct listing *ret);
/* What refers to NAME or NAME@COMMIT of this organisation (""): as store.find. */
int repo_find(struct reach *r, const struct found *dir, const char *org, const char *name,
              char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref);
int repo_item(struct reach *r, const struct place *p, const struct found *dir,
              const struct ref *ref, struct item *ret);

/* A commit: 40 hexadecimal digits. */
#define COMMIT_DIGITS 40
/* The commit that a file of refs/ holds, with white space around it; false: not a commit. */
bool commit_parse(const void *bytes, size_t n, char ret[COMMIT_DIGITS + 1]);

#endif
