/* SPDX-License-Identifier: MIT */
/*
 * What a shelf shows: directories ("places") with entries, each of which stands for a directory, a
 * model, or a small text of a store. Each call looks at the disk as it is now. Only the names of
 * directories are kept (reach.h), each with the listing that follows from these names alone.
 *
 *     struct place top;
 *     r = place_top(&reach, &top);
 *     r = place_list(&reach, &top, &list);               all names
 *     r = place_find(&reach, &top, "x.gguf", &item);     one name of that listing
 *     r = place_item(&reach, &top, entry_ref(&list, i), &item);     what an entry stands for
 *
 * A listing consists of names. Whether some entries are shown is decided only by a look at the
 * files, perhaps on another disk: place_item().
 *
 * Names: those of the files, encoded as in text/name.h. A single file and a directory keep theirs;
 * a split model is NAME.gguf, or the whole name of its first file if that is taken; duplicates get
 * ~2, ~3. Hidden names are left out, and so are directories in which a ggufs is mounted.
 *
 * Threads: any; no state.
 */
#ifndef SHELF_PLACE_H
#define SHELF_PLACE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "shelf/reach.h"
#include "text/name.h"
#include "tree/rights.h"

/*
 * Limit on the links to directories on the way to a place: more than people use, but few enough
 * that many directories linking to each other have a limited number of paths.
 */
#define PLACE_LINKS_MAX 8

enum place_kind {
    PLACE_FOLDER, /* any directory; may turn out to be a repository, or an ollama store */
    PLACE_ORG,    /* in a Hugging Face cache: the repositories of an organisation */
    PLACE_OLLAMA  /* in an ollama store: a host, a namespace, or a model with its tag */
};

struct place {
    enum place_kind kind;
    bool store; /* it is in a store: its contents are not edited */
    /* owned; the real path of the directory that it stands for; for a store that of the store */
    char *path;
    const char *sub; /* the organisation; the path below manifests/; else "" */
    /* real paths of the directories whose links were followed on the way to it, each with its terminator */
    const char *passed;
    size_t len;     /* their total size in bytes */
    unsigned links; /* followed links */
};

/* The kind of file or directory that an entry refers to, by the names in its place's directory. */
enum ref_kind {
    REF_FOLDER,   /* a directory `a`, or a link to one */
    REF_MODEL,    /* a file `a`, or a link; `a` may turn out to be a directory */
    REF_SPLIT,    /* a split model of `shards` files; `a` is the name of one of them */
    REF_ORG,      /* organisation `a` */
    REF_REVISION, /* commit `b` of repository `a` ("models--org--name") */
    REF_OLLAMA,   /* a host, a namespace, or a model with its tag: the path `a` below manifests/ */
    REF_LAYER,    /* layer number `shards` of an ollama model, which is a model */
    REF_TEXT      /* the same, for a text */
};

/* How certain it is from an entry's name and type that it is shown. */
enum ref_sure {
    REF_UNSURE, /* it is shown if place_item() returns 0 */
    REF_SURE,   /* shown; it may be on another disk */
    REF_HERE    /* it is shown: a file in the directory itself, which needs no other disk */
};

struct ref {
    enum ref_kind kind;
    uint32_t shards;
    const char *a, *b; /* valid as long as their source; b may be "" */
    enum ref_sure sure;
};

struct entry {
    uint32_t name, a, b; /* texts: offsets in listing.texts */
    uint32_t shards;
    enum ref_kind kind;
    enum ref_sure sure;
};

struct listing {
    struct entry *entry; /* owned; sorted by name, byte by byte */
    size_t n, cap;
    struct buf texts;
    struct index index;     /* by name, while entries are added */
    size_t room;            /* of that */
    bool wide;              /* it does not follow from the names of the place's directory alone */
    bool store;             /* as of the place */
    const struct names *of; /* a reference: it is theirs; or NULL */
};

#define LISTING_INIT ((struct listing){0})

enum item_kind { ITEM_FOLDER, ITEM_MODEL, ITEM_TEXT };

/* The file or directory that a name stands for at the moment. */
struct item {
    enum item_kind kind;
    struct place place; /* ITEM_FOLDER */
    struct stat st;     /* of the directory or file that it stands for; zero if unknown */
    /* its access rights; of what is only a link, and a line that says why, everyone's */
    struct grant grant;
    char *path; /* owned; where to open it: in a real directory, perhaps by a link */
    char *real; /* owned; the real path, or NULL */
    /* how many bytes of `real` are the directory it is shown in; 0: a link leads here */
    size_t above;
    size_t shards;    /* ITEM_MODEL: files of a split model; 0: not split */
    bool behind;      /* its files are beside `real`, not beside `path` */
    bool store;       /* it is in a store */
    struct err error; /* ITEM_MODEL: why it cannot be opened, if already known */
};

/* Get the top of the shelf. Returns 0 or -ENOMEM. */
int place_top(const struct reach *r, struct place *ret);
void place_free(struct place *p);
/* True if both show the same. The way to a place determines which links are followed below it. */
bool place_same(const struct place *a, const struct place *b);

/* List what a place shows now, or may show. Returns 0, -ENOENT (it was removed) or -errno. */
int place_list(struct reach *r, const struct place *p, struct listing *ret);
/* True if everything that it shows now belongs to a store: nothing in it is edited. */
bool place_is_store(struct reach *r, const struct place *p);
/* Find one name: what it refers to. Returns 0, -ENOENT or -errno. */
int place_find(struct reach *r, const struct place *p, const char *name, struct item *ret);
/* Look at the file or directory that an entry refers to. Returns 0, -ENOENT if it is gone or must
 * not be shown, or -errno. */
int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret);
void item_free(struct item *i);

/* Return the path beside which the files of a split model are. */
static inline const char *item_files(const struct item *i)
{
    return i->behind ? i->real : i->path;
}

struct ref entry_ref(const struct listing *l, size_t i);
static inline const char *entry_name(const struct listing *l, size_t i)
{
    return (const char *)l->texts.data + l->entry[i].name;
}
/* True if it is shown as a directory: everything except texts. */
static inline bool entry_is_folder(const struct entry *e)
{
    return e->kind != REF_TEXT;
}
void listing_free(struct listing *l);

/* ---- for stores: ollama.h ---- */

/* Add an entry. Its shown name is the encoding of `name`, with ~2 or ~3 if that is taken. Returns 0
 * or -errno. */
int listing_add(struct listing *l, const char *name, const struct ref *ref);
/* Make a place below p, perhaps by a link. Its path is p's if `path` is NULL. Returns 0 or
 * -ENOMEM. */
int place_make(const struct place *p, enum place_kind kind, const char *path, const char *sub,
               bool linked, struct place *ret);
/*
 * Make an item for a directory in p, with this place. Closes `f` and takes its path, and takes
 * ownership of the place even on failure. Returns 0 or -ENOMEM.
 */
int item_folder(const struct reach *r, const struct place *p, struct found *f, struct place *place,
                struct item *ret);
/* Make an item for the file `name` in the directory `dir`: a model, or a text. The file need not
 * exist. */
int item_file(struct reach *r, const struct place *p, const struct found *dir, const char *name,
              enum item_kind kind, struct item *ret);
/* The same for a model, which may be split: its files are those that split_find() finds by this
 * name. Returns 0 or -ENOMEM. */
int item_model(struct reach *r, const struct place *p, const struct found *dir, const char *name,
               struct item *ret);

/* ---- what identifies an item, and its access rights ---- */

/*
 * Return the access rights of a file or directory that was found: its own, those of the directories
 * of a store that are passed but not shown and, if a link leads to it (above 0), those of all
 * directories around it. The kernel checks the target of a link before anything below it, so
 * everything below has only its own rights, by whichever name the directory was reached.
 */
struct grant found_grant(const struct reach *r, const struct found *f, size_t above);

/* Get a hash of the item's location, whatever is there: of the place for a directory, else of the
 * path. Returns 0 or -ENOMEM. */
int item_key(const struct item *i, uint64_t *ret);
/*
 * Get a hash of the file that is there, or of all files of a model; 0 for a directory, as it stays
 * the same. Returns 0 or -ENOMEM.
 */
int item_stamp(struct reach *r, const struct item *i, uint64_t *ret);
/*
 * The same for the file at `path`, by which a model is opened, or for all files of a split model:
 * the value that tree_identity() has for a tree with these files open.
 */
int files_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret);
/* ---- names in a Hugging Face cache: models--ORG--NAME/{blobs,refs/REF,snapshots/COMMIT/PATH} ---- */

/* Split "models--org--name" into its two parts; without an organisation org is "". False: another kind of name. */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);
/* A commit: 40 hexadecimal digits. */
#define COMMIT_DIGITS 40
/* Parse the commit in a file of refs/, with white space around it. False if it is not one. */
bool commit_parse(const void *bytes, size_t n, char ret[COMMIT_DIGITS + 1]);

#endif
