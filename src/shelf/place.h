/* SPDX-License-Identifier: MIT */
/*
 * Decides what a shelf shows: directories ("places") with entries, each of which stands for a
 * directory, a model, or a small text of a store. Each call looks at the present state of the disk.
 * Only the names in directories are kept (reach.h), with the listing that follows from these names
 * alone.
 *
 *     struct place top;
 *     r = place_top(&reach, &top);
 *     r = place_list(&reach, &top, &list);               all names
 *     r = place_find(&reach, &top, "x.gguf", &item);     one name of that listing
 *     r = place_item(&reach, &top, entry_ref(&list, i), &item);     what an entry stands for
 *
 * A listing consists of names. Whether some of its entries are shown is decided only by
 * place_item(), which looks at the files, perhaps on another disk.
 *
 * Entries have the names of the files, encoded as in text/name.h. A single file or a directory
 * keeps its name; a split model is called NAME.gguf, or by the whole name of its first file if
 * NAME.gguf is taken; duplicates get ~2, ~3. Hidden names are left out, and so are directories in
 * which a ggufs is mounted.
 *
 * Any thread may call these functions; they have no state.
 */
#ifndef SHELF_PLACE_H
#define SHELF_PLACE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "shelf/reach.h"
#include "text/name.h"
#include "tree/rights.h"

/* Maximum number of links to directories on the way to a place. It is more than people use, but
 * small enough to limit the number of paths through many directories that link to each other. */
#define PLACE_LINKS_MAX 8

enum place_kind {
    PLACE_FOLDER, /* any directory; it may turn out to be a repository or an ollama store */
    PLACE_ORG,    /* in a Hugging Face cache: the repositories of an organisation */
    PLACE_OLLAMA  /* in an ollama store: a host, a namespace, or a model with its tag */
};

struct place {
    enum place_kind kind;
    bool store; /* it is in a store, so its contents are not edited */
    /* owned; the real path of the directory that it stands for; for PLACE_ORG and PLACE_OLLAMA,
     * that of the store */
    char *path;
    const char *sub; /* the organisation; the path below manifests/; else "" */
    /* real paths of the directories with links that were followed on the way to it, each with its
     * terminator */
    const char *passed;
    size_t len;     /* total size in bytes of `path`, `sub` and `passed` */
    unsigned links; /* number of followed links */
};

/* The kind of file or directory that an entry refers to, as far as the names in its place's
 * directory show. */
enum ref_kind {
    REF_FOLDER,   /* a directory `a`, or a link to one */
    REF_MODEL,    /* a file `a`, or a link to one; may turn out to be a directory */
    REF_SPLIT,    /* a split model of `shards` files; `a` is the name of one of them */
    REF_ORG,      /* organisation `a` */
    REF_REVISION, /* commit `b` of repository `a` ("models--org--name") */
    REF_OLLAMA, /* a host, a namespace, or a model with its tag, at the path `a` below manifests/ */
    REF_LAYER,  /* the layer of an ollama model with digest `a`, which is a model */
    REF_TEXT    /* such a layer that is a text */
};

/* How certain an entry's name and type make it that the entry is shown. */
enum ref_sure {
    REF_UNSURE, /* shown only if place_item() returns 0 */
    REF_SURE,   /* shown; may be on another disk */
    REF_HERE    /* shown; a file in the directory itself, which needs no other disk */
};

struct ref {
    enum ref_kind kind;
    uint32_t shards;
    const char *a, *b; /* valid as long as their source; `b` may be "" */
    enum ref_sure sure;
};

struct entry {
    uint32_t name, a, b; /* offsets of these texts in listing.texts */
    uint32_t shards;
    enum ref_kind kind;
    enum ref_sure sure;
};

struct listing {
    struct entry *entry; /* owned; sorted bytewise by name */
    size_t n, cap;
    struct buf texts;
    struct index index;     /* entries by name, while they are added */
    size_t room;            /* capacity of `index` */
    bool wide;              /* it does not follow from the names in the place's directory alone */
    bool store;             /* as in struct place */
    const struct names *of; /* a reference to the names that own the entries and texts, or NULL */
};

#define LISTING_INIT ((struct listing){0})

enum item_kind { ITEM_FOLDER, ITEM_MODEL, ITEM_TEXT };

/* The file or directory that a name stands for at present. */
struct item {
    enum item_kind kind;
    struct place place; /* for ITEM_FOLDER */
    struct stat st;     /* stat of the file or directory; zero if unknown */
    /* its access rights; everyone's if only a link and a line with the reason are shown */
    struct grant grant;
    char *path; /* owned; the path by which to open it, in a real directory; may be a link */
    char *real; /* owned; the real path, or NULL */
    /* length of the part of `real` that is the directory showing it; 0: a link leads here */
    size_t above;
    size_t shards;    /* for ITEM_MODEL: number of files of a split model; 0: not split */
    bool behind;      /* the model's files are beside `real`, not beside `path` */
    bool store;       /* it is in a store */
    struct err error; /* for ITEM_MODEL: why it cannot be opened, if already known */
};

/* Get the top of the shelf. Returns 0 or -ENOMEM. */
int place_top(const struct reach *r, struct place *ret);
void place_free(struct place *p);
/* Returns true if both show the same. The way to a place is compared, too, because it determines
 * which links are followed below it. */
bool place_same(const struct place *a, const struct place *b);

/* List the entries that a place shows now, or may show. Returns 0, -ENOENT (it was removed) or
 * another -errno. */
int place_list(struct reach *r, const struct place *p, struct listing *ret);
/* Returns true if everything that a place shows now belongs to a store, so that nothing in it is
 * edited. */
bool place_is_store(struct reach *r, const struct place *p);
/* Get the item that a name refers to. Returns 0, -ENOENT or another -errno. */
int place_find(struct reach *r, const struct place *p, const char *name, struct item *ret);
/* Look at the file or directory that an entry refers to. Returns 0, -ENOENT if it is gone or must
 * not be shown, or another -errno. */
int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret);
void item_free(struct item *i);

/* Return the path beside which the files of a split model lie. */
static inline const char *item_files(const struct item *i)
{
    return i->behind ? i->real : i->path;
}

struct ref entry_ref(const struct listing *l, size_t i);
static inline const char *entry_name(const struct listing *l, size_t i)
{
    return (const char *)l->texts.data + l->entry[i].name;
}
/* Returns true if the entry is shown as a directory, as everything except texts is. */
static inline bool entry_is_folder(const struct entry *e)
{
    return e->kind != REF_TEXT;
}
void listing_free(struct listing *l);

/* ---- for stores: ollama.h ---- */

/* Add an entry, shown under the encoding of `name`, with ~2, ~3 and so on if that is taken. Returns
 * 0 or -errno. */
int listing_add(struct listing *l, const char *name, const struct ref *ref);
/* Make a place below p, reached by a link if `linked`. Its path is p's if `path` is NULL. Returns 0
 * or -ENOMEM. */
int place_make(const struct place *p, enum place_kind kind, const char *path, const char *sub,
               bool linked, struct place *ret);
/* Make an item for a directory in p that has this place. Closes `f` after taking its path, and
 * takes ownership of the place even on failure. Returns 0 or -ENOMEM. */
int item_folder(const struct reach *r, const struct place *p, struct found *f, struct place *place,
                struct item *ret);
/* Make an item for the file `name`, a model or a text, in the directory `dir`. The file need not
 * exist. Returns 0 or -ENOMEM. */
int item_file(struct reach *r, const struct place *p, const struct found *dir, const char *name,
              enum item_kind kind, struct item *ret);
/* Make an item for a model that may be split; its files are those that shards_find() finds by this
 * name. Returns 0 or -ENOMEM. */
int item_model(struct reach *r, const struct place *p, const struct found *dir, const char *name,
               struct item *ret);

/* ---- what identifies an item, and its access rights ---- */

/*
 * Return the access rights of a file or directory that was found. They combine its own rights,
 * those of a store's directories that are passed but not shown and, if a link leads to it (above is
 * 0), those of all directories around it. The kernel checks the target of a link before anything
 * below it, so everything below has only its own rights, by whichever name the directory was
 * reached.
 */
struct grant found_grant(const struct reach *r, const struct found *f, size_t above);

/* Get a hash of the item's location (the place of a directory, else the path), whatever is there.
 * Returns 0 or -ENOMEM. */
int item_key(const struct item *i, uint64_t *ret);
/* Get a hash of the file that is there, or of all files of a model; for a directory, 0, as it stays
 * the same. Returns 0 or -errno. */
int item_stamp(struct reach *r, const struct item *i, uint64_t *ret);
/* Get such a hash of the file at `path`, by which a model is opened, or of all files of a split
 * model. It is the value that tree_identity() returns for a tree with these files open. */
int files_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret);
/* ---- a Hugging Face cache: models--ORG--NAME/{blobs,refs/REF,snapshots/COMMIT/PATH} ---- */

/* Split "models--org--name" into its two parts; org is "" without an organisation. Returns false
 * for any other kind of name. */
bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1]);
/* Number of hexadecimal digits in a commit. */
#define COMMIT_DIGITS 40
/* Parse the commit in a file in refs/, ignoring white space around it. Returns false if it is not a
 * commit. */
bool commit_parse(const void *bytes, size_t n, char ret[COMMIT_DIGITS + 1]);

#endif
