/* SPDX-License-Identifier: MIT */
/*
 * What a shelf shows: folders ("places") with entries, each of which stands for a folder, a model,
 * or a small text of a store. Nothing is kept but names of folders (names.h): each call looks at the disk as it is now.
 *
 *     struct place top;
 *     r = place_top(&reach, &top);
 *     r = place_list(&reach, &top, &list);               all names
 *     r = place_find(&reach, &top, "x.gguf", &item);     one name: a listing of those that begin so
 *     r = place_item(&reach, &top, entry_ref(&list, i), &item);     what an entry stands for
 *
 * A listing is made of names. Some of its entries may turn out not to be shown, which only a look at them
 * shows, perhaps on another disk: place_item().
 *
 * Names: those of the files in the encoding of text/name.h. A single file and a folder keep theirs;
 * a split model is NAME.gguf, or the whole name of its first file if that is taken; what is still
 * taken gets ~2, ~3. Hidden names are left out, and so are folders in which a ggufs is mounted.
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

/* Links to folders on the way to a place: more than people use, so that many folders that link to each
 * other have few ways through them. */
#define PLACE_LINKS_MAX 8

enum place_kind {
    PLACE_FOLDER, /* any folder; may turn out to be a repository, or an ollama store */
    PLACE_ORG,    /* of a Hugging Face cache: the repositories of an organisation */
    PLACE_OLLAMA  /* of an ollama store: a host, a namespace, or a model with its tag */
};

struct place {
    enum place_kind kind;
    bool store;      /* it is in a store: what is in it is not edited */
    char *path;      /* owned; the real path of the folder that it stands for; of a store its own */
    const char *sub; /* the organisation; the path below manifests/; else "" */
    const char *
        passed; /* real paths of the folders whose links were followed on the way to it, each with its end */
    size_t len;     /* bytes of these, which follow each other */
    unsigned links; /* paths that were passed */
};

/* What an entry refers to, by the names in its place's folder. */
enum ref_kind {
    REF_FOLDER,   /* a folder `a`, or a link to one */
    REF_MODEL,    /* a file `a`, or a link; `a` may turn out to be a folder */
    REF_SPLIT,    /* a split model of `shards` files; `a` is the name of one of them */
    REF_ORG,      /* organisation `a` */
    REF_REVISION, /* of repository `a` ("models--org--name") commit `b` */
    REF_OLLAMA,   /* host, namespace, or model with its tag: a path `a` below manifests/ */
    REF_LAYER,    /* layer number `shards` of an ollama model: a model */
    REF_TEXT      /* the same: a text */
};

/* What is known of an entry by its name and type. */
enum ref_sure {
    REF_UNSURE, /* it is shown if place_item() is 0 */
    REF_SURE,   /* it is shown; it may be on another disk */
    REF_HERE    /* it is shown: a file in the folder itself, to look at it asks no other disk */
};

struct ref {
    enum ref_kind kind;
    uint32_t shards;
    const char *a, *b; /* good as long as what they came from; b may be "" */
    enum ref_sure sure;
};

struct entry {
    uint32_t name, a, b; /* texts: bytes in listing.texts */
    uint32_t shards;
    enum ref_kind kind;
    enum ref_sure sure;
};

struct listing {
    struct entry *entry; /* owned; by name, byte by byte */
    size_t n, cap;
    struct buf texts;
    struct index index; /* by name, while entries are added */
    size_t room;        /* of that */
};

#define LISTING_INIT ((struct listing){0})

enum item_kind { ITEM_FOLDER, ITEM_MODEL, ITEM_TEXT };

/* What a name stands for, looked at now. */
struct item {
    enum item_kind kind;
    struct place place; /* ITEM_FOLDER */
    struct stat st;     /* of the folder or file that it stands for; zero if that is not known */
    char *path;         /* owned; where it is opened: in a real folder, perhaps by a link */
    char *real;         /* owned; the real path, or NULL */
    size_t above;     /* bytes of `real` that are the folder it is shown in; 0: a link leads here */
    size_t shards;    /* ITEM_MODEL: files of a split model; 0: it is not split */
    bool behind;      /* they are beside `real`, not beside `path` */
    bool store;       /* it is in a store */
    struct err error; /* ITEM_MODEL: why it cannot be opened, if that is known already */
};

/* The top of the shelf. 0, -ENOMEM. */
int place_top(const struct reach *r, struct place *ret);
void place_free(struct place *p);
/* True if both show the same: which links are followed below one depends on the way to it. */
bool place_same(const struct place *a, const struct place *b);

/* What it shows now, or may show. 0, -ENOENT (it is gone), -errno. */
int place_list(struct reach *r, const struct place *p, struct listing *ret);
/* True if all that it shows now belongs to a store: nothing in it is edited. */
bool place_is_store(struct reach *r, const struct place *p);
/* The same for one name, and what it refers to. -ENOENT, -errno. */
int place_find(struct reach *r, const struct place *p, const char *name, struct item *ret);
/* What an entry refers to. 0, -ENOENT if it is gone or not to be shown, -errno. */
int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret);
void item_free(struct item *i);

/* A path beside which the files of a split model are. */
static inline const char *item_files(const struct item *i)
{
    return i->behind ? i->real : i->path;
}

struct ref entry_ref(const struct listing *l, size_t i);
static inline const char *entry_name(const struct listing *l, size_t i)
{
    return (const char *)l->texts.data + l->entry[i].name;
}
/* True if it is shown as a folder: all but texts are. */
static inline bool entry_is_folder(const struct entry *e)
{
    return e->kind != REF_TEXT;
}
void listing_free(struct listing *l);

/* ---- for the kinds of stores: folder.h, ollama.h ---- */

/*
 * Add an entry; its shown name is the encoding of `name`, with ~2, ~3 if that is taken. 0, -errno.
 */
int listing_add(struct listing *l, const char *name, const struct ref *ref);
/* True if this name, not encoded, is shown. */
bool listing_has(const struct listing *l, const char *name);

/* True if what is called `name`, with more behind it, may be shown as `wanted`. NULL: any name is wanted. */
bool name_leads(const char *name, const char *wanted);

/* A place below p, perhaps by a link; the path is p's if `path` is NULL. 0, -ENOMEM. */
int place_make(const struct place *p, enum place_kind kind, const char *path, const char *sub,
               bool linked, struct place *ret);
/* True if a link in p to this real path is not to be followed: what holds a folder that was passed on
 * the way would be shown in itself, for ever. */
bool place_goes_round(const struct reach *r, const struct place *p, const char *path);
/* An item that is a folder in p: `f` (whose path it takes, closed) with this place. 0, -ENOMEM: the place passes in
 * both cases. */
int item_folder(const struct place *p, struct found *f, struct place *place, struct item *ret);
/* The same of any folder, to which a link in p may lead; `store`: in a store. -ENOENT: it is not to be followed.
 * f passes in any case. */
int item_below(const struct reach *r, const struct place *p, struct found *f, bool linked,
               bool store, struct item *ret);
/* An item that is the file `name` in the folder `dir`: a model, or a text. It need not exist. */
int item_file(struct reach *r, const struct place *p, const struct found *dir, const char *name,
              enum item_kind kind, struct item *ret);
/* The same of a model, which may be split: its files are those that split_find() finds by this name.
 * 0, -ENOMEM. */
int item_model(struct reach *r, const struct place *p, const struct found *dir, const char *name,
               struct item *ret);

/* ---- what identifies an item, and its access rights ---- */

/* Access rights of a file at its real path: those of the file itself, of the folders of a store that
 * are passed but not shown and, if a link leads to it, of all folders around it. The kernel checks what
 * a link leads to before anything below that, so what is below has rights of its own only, by whichever
 * name the folder was reached. */
struct granted {
    struct grant grant;
    uint64_t stamp; /* grant_stamp() */
};
/* As they are now, if they are others than before. {0}: there was no before. */
void granted_look(struct reach *r, const struct item *i, struct granted *g);

/* A hash of where it is, whatever is there: of a folder its place, else the path. 0, -ENOMEM. */
int item_key(const struct item *i, uint64_t *ret);
/* A hash of what is there: of a text or model the file, or all files; of a folder 0, as it stays what it is. 0, -ENOMEM. */
int item_stamp(struct reach *r, const struct item *i, uint64_t *ret);
/* The same of the file at `path`, by which a model is opened, or of all files of a split model: what
 * tree_identity() is of a tree that has these open. */
int files_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret);
/* True if nobody changed the file, nor its attributes. */
bool same_file(const struct stat *a, const struct stat *b);

#endif
