/* SPDX-License-Identifier: MIT */
/*
 * Decides what a shelf shows: directories ("places") with entries, each of which represents a
 * directory, a model, or a small text file in a store. Nothing is cached except the names in
 * directories (reach.h) and, with these names, a listing that depends only on the names.
 *
 *     struct place top;
 *     r = place_top(&reach, &top);
 *     r = place_list(&reach, &top, &list);               all names
 *     r = place_find(&reach, &top, "x.gguf", &item);     one name of that listing
 *     r = place_item(&reach, &top, &list.entry[i].ref, &item);     what an entry stands for
 *
 * A listing consists of names, encoded as in text/name.h; docs/shelf.md describes the names.
 * Whether some of its entries are shown is decided only by place_item(), which examines files that
 * may be on another disk.
 *
 * Any thread may call these functions. The content of files is not trusted.
 */
#ifndef SHELF_PLACE_H
#define SHELF_PLACE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "shelf/reach.h"
#include "text/name.h"
#include "tree/attr.h"

/* Maximum number of links to directories on the way to a place, which limits the number of paths
 * through directories that link to each other. */
#define PLACE_LINKS_MAX 8

enum place_kind {
    PLACE_FOLDER, /* any directory; it may turn out to be a repository or an ollama store */
    PLACE_ORG,    /* in a Hugging Face cache: the repositories of an organisation */
    PLACE_OLLAMA  /* in an ollama store: a host, a namespace, or a model with its tag */
};

struct place {
    enum place_kind kind;
    bool store; /* in a store: its contents cannot be edited */
    /* owned; the real path of the directory or, for PLACE_ORG and PLACE_OLLAMA, of the store */
    char *path;
    const char *sub; /* PLACE_ORG: the organisation; PLACE_OLLAMA: the path below manifests/;
                      * else "" */
    /* the real paths, each with its NUL, of the directories whose links were followed to get
     * here */
    const char *passed;
    size_t len;     /* total size in bytes of `path`, `sub` and `passed` */
    unsigned links; /* number of links followed */
};

/* What an entry refers to, judging only by the names in its place's directory. */
enum ref_kind {
    REF_FOLDER, /* a directory, or a link to one; `at` is its name */
    REF_MODEL,  /* a file, or a link to one; may turn out to be a directory */
    REF_SPLIT,  /* a split model of `shards` files; `at` is the name of one of them */
    REF_ORG,    /* an organisation */
    /* a revision of the repository "models--org--name"; `at` is "REPOSITORY/COMMIT" */
    REF_REVISION,
    /* a host, a namespace, or a model with its tag; `at` is the path below manifests/ */
    REF_OLLAMA,
    REF_LAYER, /* a layer of an ollama model that holds a model; `at` is its digest */
    REF_TEXT   /* a layer of an ollama model that holds text; `at` is its digest */
};

/* How certain it is, from an entry's name and type alone, that the entry is shown. */
enum ref_sure {
    REF_UNSURE, /* shown only if place_item() returns 0 */
    REF_SURE,   /* shown; may be on another disk */
    REF_HERE    /* shown; in the directory itself, so no other disk is accessed */
};

struct ref {
    enum ref_kind kind;
    uint32_t shards;
    const char *at; /* borrowed */
    enum ref_sure sure;
};

struct entry {
    char *name; /* owned; the text of ref.at follows in the same memory */
    struct ref ref;
};

struct listing {
    struct entry *entry; /* owned; sorted bytewise by name */
    size_t n, cap;
    struct index taken;     /* owned; finds the entries by name while they are being added */
    const char *want;       /* borrowed; the only shown name that is needed; NULL: all are needed */
    bool found;             /* the entry with this name has been added */
    bool wide;              /* the entries depend on more than the names in the place's directory */
    bool store;             /* as in struct place */
    const struct names *of; /* a reference to the names that own the entries and texts, or NULL */
};

#define LISTING_INIT ((struct listing){0})

enum item_kind { ITEM_FOLDER, ITEM_MODEL, ITEM_TEXT };

/* The file or directory that a name currently refers to. */
struct item {
    enum item_kind kind;
    struct place place; /* for ITEM_FOLDER */
    struct stat st;     /* stat of the file or directory; zero if unknown */
    /* its access rights; 0777 if there is no regular file, because then only a link and the reason
     * for the error are shown */
    struct grant grant;
    /* owned; for a file, the path by which to open it, in which only the last name may be a link */
    char *path;
    char *real; /* owned; the real path, or NULL */
    /* length of the prefix of `real` that names the directory showing the item; 0: reached by a
     * link */
    size_t above;
    size_t shards;    /* for ITEM_MODEL: number of files of a split model; 0: not split */
    bool behind;      /* the model's files are beside `real`, not beside `path` */
    bool store;       /* the item is in a store */
    struct err error; /* for ITEM_MODEL: why the model cannot be opened, if already known */
};

/* Get the top of the shelf. Returns 0 or -ENOMEM. */
int place_top(const struct reach *r, struct place *ret);
void place_free(struct place *p);
/* Returns true if both places show the same entries, and follow the same links below them. */
bool place_same(const struct place *a, const struct place *b);

/* List the entries that a place now shows or might show. Returns 0, -ENOENT (the directory was
 * removed) or another -errno. */
int place_list(struct reach *r, const struct place *p, struct listing *ret);
/* Returns true if everything that a place shows now belongs to a store, judging only by the names in
 * its directory. */
bool place_is_store(struct reach *r, const struct place *p);
/* Get the item that a name refers to. Returns 0, -ENOENT or another -errno. */
int place_find(struct reach *r, const struct place *p, const char *name, struct item *ret);
/* Get the item that an entry refers to. Returns 0, -ENOENT if the item is gone or must not be
 * shown, or another -errno. */
int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret);
void item_free(struct item *i);

void listing_free(struct listing *l);

/* Make an item for the directory f in p; `linked` is true if a link led to it. Takes ownership of
 * f->path. Returns 0, -ENOENT if the link must not be followed, or -ENOMEM. */
int item_folder(const struct reach *r, const struct place *p, enum place_kind kind, const char *sub,
                bool linked, struct found *f, struct item *ret);

/* ---- what identifies an item, and its access rights ---- */

/* Return the access rights of a file or directory that was found: its own rights, restricted by
 * those of the directories between it and the directory that shows it (length `above`). If `above`
 * is 0 because a link was followed, its rights are restricted by all directories above the file
 * that are not also above the shelf's directory. */
struct grant found_grant(const struct reach *r, const struct found *f, size_t above);

/* Return a hash of the item's location (a directory's place, or else the path), regardless of what
 * is there now. */
uint64_t item_key(const struct item *i);
/* Get a hash of the file at `path`, or of all files of a split model. The hash equals the
 * tree_identity() of a tree that has these files open. */
int files_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret);

/* ---- a Hugging Face cache: models--ORG--NAME/{blobs,refs/REF,snapshots/REVISION/PATH} ---- */

/* Split "models--org--name" into its two parts; org is "" if there is no organisation. Returns
 * false for any other kind of name. */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);
/* Parse the revision (the name of a directory in snapshots/, usually a commit's 40 digits) in a file
 * in refs/, ignoring white space around it. Returns false if the file does not contain one. */
bool revision_parse(const void *bytes, size_t n, char ret[TREE_NAME_MAX + 1]);

/* ---- an ollama store: manifests/HOST/NAMESPACE/MODEL/TAG name the layers, which are
 * blobs/sha256-<hex> (formerly sha256:<hex>) ---- */

/* Maximum size of a manifest in bytes. */
#define MANIFEST_MAX ((size_t)1 << 20)
#define MANIFEST_LAYERS_MAX 4096

#define DIGEST_DIGITS 64

/* A layer that the mount shows. */
struct layer {
    const char *name;               /* "model", "template", ... */
    bool model;                     /* true: the layer holds a model; false: it holds text */
    char digest[DIGEST_DIGITS + 1]; /* SHA-256, in hexadecimal digits */
};

struct manifest {
    struct layer *layer; /* owned; models come first; layers of the same name are adjacent */
    size_t n;
    size_t models;  /* number of layers that are models */
    size_t tensors; /* number of layers that each hold a single tensor; they are not shown */
};

/* Parse a manifest. Returns 0, or -EBADMSG, -EFBIG or -ENOMEM with a message. */
int manifest_parse(const void *bytes, size_t n, struct manifest *ret, struct err *e);
void manifest_free(struct manifest *m);

#endif
