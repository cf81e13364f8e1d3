/* SPDX-License-Identifier: MIT */
/*
 * The directory metadata/ while it can be edited: names and files.
 *
 * As in any file system, a name is an entry of the directory and points to a file, or to none.
 * Programs open files: a file has a number (the object of its node), a draft while it is written,
 * handles and lookups. A rename moves the pointer; everything else moves with the file.
 *
 * Whether the model has a key is not recorded here: a key that it has is visible, unless its name
 * was removed (doomed) or was renamed to a backup. So names and files are only made when a program
 * asks for them: an untouched key has neither. Key i of the first snapshot has number i even so.
 *
 *  M1. A file has at most one name: f is the file of x if and only if x->file == f, and then
 *      f->of == x.
 *  M2. Numbers, of files and of names, come from one counter and are never used again.
 *
 * A file without a name is an orphan: writes to it are discarded. It is freed with its last handle
 * and lookup.
 *
 * Threads: all members are protected by the lock of `struct live`.
 */
#ifndef LIVE_NAMES_H
#define LIVE_NAMES_H

#include <stdatomic.h>
#include <time.h>

#include "base/buf.h"
#include "base/hash.h"
#include "live/waits.h"
#include "live/helper.h"
#include "text/name.h"

enum file_kind { FILE_KEY, FILE_HELPER, FILE_LINK };

struct file;
struct draft;
struct live_file;

struct name {
    struct link link;           /* first member; in names.by_text */
    struct link ino_link;       /* in names.by_ino */
    struct name *newer, *older; /* in names.newest, names.oldest */
    struct file *file;     /* NULL: no file; if the model has the key, a file is made when needed */
    char *error;           /* owned: the reason why the last write was refused, or NULL */
    uint32_t ino;          /* st_ino, which belongs to the name, whatever file it points to */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
    unsigned refs;         /* number of files that have, or had, this name, and of steps */
    uint64_t edit;         /* the number of the last accepted edit of its key */
    char *key;             /* owned: the key; NULL: a helper's name */
    size_t key_len;
    struct file *backup; /* the helper that has its text, while the key is hidden */
    bool doomed;         /* unlinked, but the removal is not yet part of the change */
    struct typed typed;  /* the type for a new value: for a removed key, its former type */
    uint64_t rank;       /* its place among the keys; 0: it never had one */
    char text[];         /* the file name */
};

struct file {
    struct link link; /* first member; in names.by_number */
    uint32_t number;
    enum file_kind kind;
    struct name *of;     /* the name that it has, or had last: see file_name() */
    struct draft *draft; /* owned; NULL unless the file is open for writing */
    /* HELPER: bytes, unless it has a draft; LINK: target. For a key: its bytes as a helper, until
     * the key is on disk. */
    struct buf content;
    struct name *parked;    /* HELPER: the key whose backup it is */
    struct typed typed;     /* HELPER: for the key that it may become */
    bool inherited;         /* HELPER: `typed` is the type of the key that it was */
    bool replaced;          /* it does not go back if its edit fails */
    struct promise promise; /* for its accepted edits as a key */
    unsigned drafts;        /* number of drafts begun so far */
    unsigned opens;         /* number of handles */
    unsigned steps;         /* number of steps that may move it back */
    uint64_t lookups;       /* number of the kernel's references */
};

struct names {
    uint32_t first;               /* keys of the first snapshot: their numbers are 0 to first - 1 */
    uint32_t given;               /* the next number */
    struct table by_number;       /* files */
    struct table by_ino, by_text; /* names, ... */
    struct name *oldest, *newest; /* ... in the order in which they were made */
    size_t n_doomed, n_errors;    /* how many are doomed, or have an error */
    atomic_bool other_doomed;     /* they differ from those that the newest snapshot lacks */
    uint64_t helper_bytes;        /* bytes of all helpers */
    uint64_t ranks;               /* rank of the next new key */
    bool nul;                     /* some key has a NUL in it */
    struct {
        struct live_file *file; /* owned; or NULL */
        struct timespec due;    /* CLOCK_MONOTONIC: time at which it is closed */
    } made;                     /* the file that mknod made last, which is open */
    int missing;                /* reason of the last failed lookup: -ENOENT or -ENOMEM */
};

/* Limit on the text of a value, and on all helpers together: more than any tokenizer's array needs. */
#define TEXT_MAX ((uint64_t)1 << 30)

/* Begin with `first` keys, all untouched. */
void names_init(struct names *n, uint32_t first);
void names_close(struct names *n);

/* ---- names ---- */

struct name *names_find(const struct names *n, const char *text);
struct name *names_of_ino(const struct names *n, uint32_t ino);
/* Swap two st_ino: a helper's goes with its file. */
void name_swap_inos(struct names *n, struct name *x, struct name *y);
/* Find a name by its key. */
struct name *names_find_key(const struct names *n, const char *key, size_t len);
/* Return the name of a key or a helper, and create it if needed. NULL: no memory, or not a key's
 * name. */
struct name *names_get(struct names *n, const char *text, bool key);
/* Return the name of a key, even if it is longer than a file name. The name of a helper with a file
 * stays a helper's. */
struct name *names_get_key(struct names *n, const char *key, size_t len);
/* Touch number i of the original keys: make its name and its file. Returns NULL without memory. */
struct name *names_touch(struct names *n, uint32_t i, const char *key, size_t len);
/* Free a name that has no meaning any more. */
void name_reap(struct names *n, struct name *x);
void name_set_error(struct names *n, struct name *x, const char *why); /* NULL: none */

/*
 * Point the name to the file, which leaves its previous name. The name's previous file becomes an
 * orphan, which shows the key's value, because a program may have found it by its name.
 */
void name_take(struct names *n, struct name *x, struct file *f);
/* Point the name to no file. Its previous file is freed if nothing refers to it. */
void name_leave(struct names *n, struct name *x);
/* Turn a helper's name into a key's. Returns -EINVAL for an invalid key, or -ENOMEM. The second
 * function turns it back, if no such key was ever stored. */
int name_set_key(struct name *x);
void name_unset_key(struct name *x);

/* Hide the key of a removed name until the removal is part of the change. */
void name_doom(struct names *n, struct name *x);
/* Show a key that was doomed, or hidden behind a backup. */
void name_spare(struct names *n, struct name *x);

/* ---- files ---- */

/* Make a file with a new number, for a name without a file. NULL: no memory. */
struct file *file_new(struct names *n, struct name *x, enum file_kind kind);
/* A new file for a name that is given as text. */
struct file *names_make(struct names *n, const char *text, enum file_kind kind);
/* Return the file's name, or NULL if it is an orphan. */
static inline struct name *file_name(const struct file *f)
{
    return f->of->file == f ? f->of : NULL;
}
/* Free a file that nothing refers to any more, and its last name. */
void file_reap(struct names *n, struct file *f);
/* Drop its bytes, which count towards the limit for helpers; or replace them by these (moved). */
void file_free_content(struct names *n, struct file *f);
void file_set_content(struct names *n, struct file *f, struct buf *bytes);
/* Drop the bytes that a key's file had as a helper, if no handle reads them, and no step can bring them back. */
void file_is_key(struct names *n, struct file *f);

/* Return the file with this number. NULL: no such file, or an untouched key. */
struct file *names_file(const struct names *n, uint32_t number);
/* True if a helper may grow from `was` (0: a new one) to `len` bytes within the limit for all helpers. */
bool names_have_room(const struct names *n, uint64_t was, uint64_t len);

#endif
