/* SPDX-License-Identifier: MIT */
/*
 * Decides what a shelf shows: directories with entries, each of which stands for a directory, a model,
 * or a small text file in a store. docs/shelf.md describes the names.
 *
 *     r = item_top(&paths, &top);
 *     r = place_list(&paths, &top, NULL, &l);                  all names
 *     e = listing_find(l, "x.gguf");
 *     r = place_item(&paths, &top, e, &item);                  what one of them stands for
 *     listing_unref(l);
 *
 * Any thread may call these functions. The content of files is not trusted.
 */
#ifndef SHELF_PLACE_H
#define SHELF_PLACE_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "shelf/path.h"
#include "text/name.h"
#include "tree/attr.h"

/* What a name stands for. Of entries with equal names, the first kind keeps the name. */
enum place_kind {
    PLACE_FOLDER,   /* a directory, or a link to one; it may turn out to be an ollama store */
    PLACE_MODEL,    /* a file, or a link to one */
    PLACE_SPLIT,    /* a split model; `at` is the name of its first file */
    PLACE_ORG,      /* in a Hugging Face cache: an organisation; `at` is its name */
    PLACE_REVISION, /* of a repository: "models--org--name/snapshots/COMMIT" */
    PLACE_OLLAMA,   /* in an ollama store: a host, a namespace, or a model with its tag */
    PLACE_LAYER,    /* a layer of an ollama model that holds a model */
    PLACE_TEXT,     /* a layer that holds text */
    /* In a model's directory, besides its tree: */
    PLACE_LINK,  /* `source`, or a link in it: to the file `real` or, without one, `path` */
    PLACE_LINKS, /* `source` of a split model: a directory of links; `at` of each is its name */
    PLACE_ERROR  /* `error`: why the model, whose item it has, cannot be opened */
};

struct entry {
    char *name; /* owned; encoded as in text/name.h; unique in its listing */
    char *at;   /* owned; its path in the directory on disk, if not said otherwise */
    enum place_kind kind;
};

struct listing {
    struct entry *entry; /* owned; sorted bytewise by name */
    size_t n, cap;
    bool store;           /* all entries come from a store */
    struct stat st;       /* of the directory, before the names were read */
    struct timespec made; /* when they were read */
    atomic_uint refs;
};

/* What a name stands for at present. */
struct shelf_item {
    enum place_kind kind;
    bool store;     /* in a store: it cannot be edited */
    bool linked;    /* a link led here or above, so a directory does not show links to others */
    uint64_t key;   /* hash of its directory and name in the mount */
    uint64_t stamp; /* of a directory a hash of the following; of a model, tree_identity() */
    /* owned; of a file, the path by which it is opened, whose last name may be a link; of a directory,
     * its real path or, of PLACE_ORG and PLACE_OLLAMA, that of the store */
    char *path;
    char
        *sub; /* owned; of PLACE_ORG and PLACE_OLLAMA, `at` of its entry; of other directories "" */
    char *real;         /* owned; the real path; NULL if there is no regular file */
    size_t shards;      /* for a split model, the number of files that its name states; else 0 */
    struct stat st;     /* zero if there is no regular file */
    struct grant grant; /* 0777 if there is no regular file: only a link and the reason are shown */
    int error;          /* 0, or -errno if it is known that the model cannot be opened */
    char *why;          /* owned; the reason */
};

static inline bool place_is_model(enum place_kind kind)
{
    return kind == PLACE_MODEL || kind == PLACE_SPLIT || kind == PLACE_LAYER;
}

/* Get the top of the shelf. Returns 0 or -errno. Free the item in both cases. */
int item_top(const struct paths *p, struct shelf_item *ret);
void item_free(struct shelf_item *i);
/* Update `st` and `grant` if the file is still at its real path and, if it is a text, the same; if not,
 * the next lookup finds it. Returns 0, -ESTALE if a directory was replaced, or another -errno. */
int item_look(const struct paths *p, struct shelf_item *i);

/* Get a reference to the entries that a directory shows now. `kept` is an earlier listing of it, which
 * is used again if it is less than a second old and the directory has not changed, or NULL. Returns
 * 0, -ENOENT (the directory was removed), -ESTALE (it was replaced) or another -errno. */
int place_list(const struct paths *p, const struct shelf_item *folder, struct listing *kept,
               struct listing **ret);
void listing_unref(struct listing *l); /* may be NULL */
/* Return the entry with this name, or NULL. */
const struct entry *listing_find(const struct listing *l, const char *name);
/* Get the item that an entry stands for. Returns 0, -ENOENT or another -errno. */
int place_item(const struct paths *p, const struct shelf_item *folder, const struct entry *e,
               struct shelf_item *ret);

/* ---- a Hugging Face cache: models--ORG--NAME/{blobs,refs/REF,snapshots/REVISION/PATH} ---- */

/* Split "models--org--name" into its two parts; org is "" if there is no organisation. Returns
 * false for any other kind of name. */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);
/* Parse the revision (the name of a directory in snapshots/) in a file in refs/, ignoring white
 * space around it. Returns false if the file does not contain one. */
bool revision_parse(const void *bytes, size_t n, char ret[TREE_NAME_MAX + 1]);

#endif
