/* SPDX-License-Identifier: MIT */
/*
 * Decides what a shelf shows: directories ("places") with entries, each of which stands for a
 * directory, a model, or a small text file in a store. docs/shelf.md describes the names.
 *
 *     r = place_top(&paths, &top);
 *     r = place_list(&cache, &top, &l);                        all names
 *     r = place_find(&cache, &top, "x.gguf", &item);           what one of them stands for
 *     r = place_item(&cache, &top, &l->entry[i], &item);
 *     listing_unref(l);
 *
 * The listings of the most recently used places are kept: those that depend only on the names in
 * one directory until its times change, others for a second.
 *
 * Any thread may call these functions. The content of files is not trusted.
 */
#ifndef SHELF_PLACE_H
#define SHELF_PLACE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/lock.h"
#include "shelf/path.h"
#include "text/name.h"
#include "tree/attr.h"

enum place_kind {
    PLACE_FOLDER, /* any directory; it may turn out to be a repository or an ollama store */
    PLACE_ORG,    /* in a Hugging Face cache: the repositories of an organisation */
    PLACE_OLLAMA  /* in an ollama store: a host, a namespace, or a model with its tag */
};

struct place {
    enum place_kind kind;
    bool store;  /* in a store: its contents cannot be edited */
    bool linked; /* a link led here or above, so links to directories are not shown */
    char *path;  /* owned; the real path of the directory or, unless PLACE_FOLDER, of the store */
    const char *sub; /* in the same memory; PLACE_ORG: the organisation; PLACE_OLLAMA: the path
                      * below manifests/; else "" */
};

/* What an entry stands for. */
enum entry_kind {
    ENTRY_FOLDER,   /* a directory, or a link to one; `at` is its name */
    ENTRY_MODEL,    /* a file, or a link to one; `at` is its name */
    ENTRY_SPLIT,    /* a split model; `at` is the name of one of its files */
    ENTRY_ORG,      /* an organisation; `at` is its name */
    ENTRY_REVISION, /* of a repository; `at` is "models--org--name/COMMIT" */
    ENTRY_OLLAMA,   /* a host, a namespace, or a model with its tag; `at` is the path below
                     * manifests/ */
    ENTRY_LAYER,    /* a layer of an ollama model that holds a model; `at` is its digest */
    ENTRY_TEXT      /* a layer that holds text; `at` is its digest */
};

struct entry {
    char *name;     /* owned; encoded as in text/name.h; unique in its listing */
    const char *at; /* in the same memory */
    enum entry_kind kind;
};

struct listing {
    struct entry *entry; /* owned; sorted bytewise by name */
    size_t n, cap;
    bool wide;  /* depends on more than the names in one directory and their types */
    bool store; /* all entries come from a store */
    /* what identifies the place, and its directory as it was before the names were read */
    uint64_t place;
    struct stat st;
    struct timespec made;
    atomic_uint refs;
};

/* How many listings are kept. */
#define LISTINGS_KEPT 16

struct listings {
    const struct paths *paths;
    struct lock lock;
    struct listing *kept[LISTINGS_KEPT]; /* references, the most recently used first */
};

enum item_kind { ITEM_FOLDER, ITEM_MODEL, ITEM_TEXT };

/* What a name stands for at present. */
struct item {
    enum item_kind kind;
    bool store;         /* it cannot be edited */
    uint64_t key;       /* hash of its place and name in the mount */
    struct place place; /* for ITEM_FOLDER */
    char *path; /* owned; for a file, the path by which it is opened; its last name may be a link */
    char *real; /* owned; the real path; NULL if there is no regular file */
    size_t shards;      /* for a split model, the number of files that its name states; else 0 */
    bool behind;        /* the files of a split model lie beside `real`, not beside `path` */
    struct stat st;     /* zero if there is no regular file */
    struct grant grant; /* 0777 if there is no regular file: only a link and the reason are shown */
    struct err error;   /* why the model cannot be opened, if already known */
};

void listings_init(struct listings *l, const struct paths *p);
void listings_free(struct listings *l);

/* Get the top of the shelf. Returns 0 or -ENOMEM. */
int place_top(const struct paths *p, struct place *ret);
void place_free(struct place *p);
uint64_t place_hash(const struct place *p);

/* Get a reference to the entries that a place shows now. Returns 0, -ENOENT (the directory was
 * removed) or another -errno. */
int place_list(struct listings *l, const struct place *p, struct listing **ret);
void listing_unref(struct listing *l); /* may be NULL */
/* Get the item that a name, or an entry (NULL: the place itself), stands for. Returns 0, -ENOENT or
 * another -errno. */
int place_find(struct listings *l, const struct place *p, const char *name, struct item *ret);
int place_item(struct listings *l, const struct place *p, const struct entry *e, struct item *ret);
void item_free(struct item *i);
/* Get a hash of what the item is: of a directory the place, of a file its path and identity, of a
 * split model those of its files. */
int item_stamp(const struct paths *p, const struct item *i, uint64_t *ret);

/* ---- a Hugging Face cache: models--ORG--NAME/{blobs,refs/REF,snapshots/REVISION/PATH} ---- */

/* Split "models--org--name" into its two parts; org is "" if there is no organisation. Returns
 * false for any other kind of name. */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);
/* Parse the revision (the name of a directory in snapshots/) in a file in refs/, ignoring white
 * space around it. Returns false if the file does not contain one. */
bool revision_parse(const void *bytes, size_t n, char ret[TREE_NAME_MAX + 1]);

#endif
