/* SPDX-License-Identifier: MIT */
/*
 * The folder metadata/ while it can be edited: names and files.
 *
 * As in any file system, a name is an entry of the folder and points to a file, or to none. A file
 * is what programs open: it has a number (the object of its node), a draft while it is written, its
 * handles and lookups. A rename moves the pointer; all else moves with the file.
 *
 * What the model has of a key is not stated here: a key that it has is visible, unless its name was removed
 * (doomed) or has gone to a backup. So a name, and its file, are made when a program asks for them: a key that
 * nobody has touched has neither. Key i of the first snapshot has number i, then as before.
 *
 *  M1. A file has at most one name: f is the file of x if and only if x->file == f, and then f->of == x.
 *  M2. Numbers, of files and of names, come from one counter and are never used again.
 *
 * A file without a name is an orphan: what is written to it goes nowhere. It is freed with its last
 * handle and lookup.
 *
 * Threads: everything is protected by the lock of `struct live`.
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
    struct link link;           /* first; in names.by_text */
    struct link ino_link;       /* in names.by_ino */
    struct name *newer, *older; /* in names.newest, names.oldest */
    struct file
        *file;    /* NULL: it has none: a key that the model has gets one when it is asked for */
    char *error;  /* owned: why the last write was refused, or NULL */
    uint32_t ino; /* what st_ino is made of: it is the name's, whatever file that points to */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
    unsigned refs;         /* files that have, or had, this name, and steps */
    uint64_t edit;         /* the number of the last one that was accepted of its key */
    char *key;             /* owned: the key; NULL: it is a helper's name */
    size_t key_len;
    struct file *backup; /* the helper that has its text: the key is hidden */
    bool doomed;         /* unlinked; the removal is not yet part of the change: */
    struct name *next_doomed, **doomed_at; /* in names.doomed */
    struct typed typed; /* the type that a value is to have: of a key that is gone, what it had */
    uint64_t rank;      /* its place among the keys; 0: it has never had one */
    char text[];        /* the file name */
};

struct file {
    struct link link; /* first; in names.by_number */
    uint32_t number;
    enum file_kind kind;
    struct name *of;        /* the name that it has, or had last: see file_name(); NULL: none */
    struct draft *draft;    /* owned; NULL unless it is open for writing */
    struct buf content;     /* HELPER: bytes, unless it has a draft; LINK: target. Of a key: what it
                            was as a helper, until that is on the disk */
    struct name *parked;    /* HELPER: the key whose backup it is */
    struct typed typed;     /* HELPER: for the key that it may become */
    bool inherited;         /* HELPER: typed is that of the key it was */
    bool replaced;          /* it does not go back if its edit fails */
    struct promise promise; /* what was accepted of it as a key */
    unsigned drafts;        /* begun so far */
    unsigned opens;         /* handles */
    unsigned steps;         /* that may move it back */
    uint64_t lookups;       /* references of the kernel */
};

struct names {
    uint32_t first;               /* keys of the first snapshot: their numbers are 0 to first - 1 */
    uint32_t given;               /* the next number */
    struct table by_number;       /* files */
    struct table by_ino, by_text; /* names, ... */
    struct name *oldest, *newest; /* ... as they were made */
    struct name *doomed;          /* all that are */
    size_t n_doomed, n_errors;
    atomic_bool other_doomed; /* they are others than the newest snapshot is without */
    uint64_t helper_bytes;    /* of all helpers */
    uint64_t ranks;           /* the next new key's */
    bool nul;                 /* some key has a NUL in it */
    struct {
        struct live_file *file; /* owned; or NULL */
        struct timespec due;    /* CLOCK_MONOTONIC: when it is closed */
    } made;                     /* what mknod made last, open */
    int missing;                /* why what was looked for last is not there: -ENOENT, -ENOMEM */
};

/* Bytes of a value's text, and of all helpers together: more than any tokenizer's array has. */
#define TEXT_MAX ((uint64_t)1 << 30)

/* `first` keys that nobody has touched. */
void names_init(struct names *n, uint32_t first);
void names_close(struct names *n);

/* ---- names ---- */

struct name *names_find(const struct names *n, const char *text);
struct name *names_of_ino(const struct names *n, uint32_t ino);
/* The ino of a helper goes with its file. */
void name_swap_inos(struct names *n, struct name *x, struct name *y);
/* The same for a key's name. */
struct name *names_find_key(const struct names *n, const char *key, size_t len);
/*
 * The name of a key or a helper, made if it does not exist. NULL: no memory, or not a key's name.
 */
struct name *names_get(struct names *n, const char *text, bool key);
/* The same by the key, also of one longer than a file name; it stays a helper's that has a file. */
struct name *names_get_key(struct names *n, const char *key, size_t len);
/* Number i of the first keys, which nobody has touched: its name and its file. NULL: no memory. */
struct name *names_touch(struct names *n, uint32_t i, const char *key, size_t len);
/* Free a name that means nothing any more. */
void name_reap(struct names *n, struct name *x);
void name_set_error(struct names *n, struct name *x, const char *why); /* NULL: none */

/* The name points to the file, and what had it no longer. What the name had is an orphan, which shows the value that
 * the key has: a program may have found it by its name. */
void name_take(struct names *n, struct name *x, struct file *f);
/* The name points to no file: what it had is freed if nothing refers to it. */
void name_leave(struct names *n, struct name *x);
/* A helper's name is that of a key. -EINVAL: it cannot be; -ENOMEM. And is a helper's again: no such key was ever stored. */
int name_set_key(struct name *x);
void name_unset_key(struct name *x);

/* Its name is removed: hide the key until the removal is part of the change. */
void name_doom(struct names *n, struct name *x);
/* The key is neither doomed, nor has it gone to a backup. */
void name_spare(struct names *n, struct name *x);

/* ---- files ---- */

/* A new file with a new number, an orphan. NULL: no memory. */
struct file *file_new(struct names *n, enum file_kind kind);
/* The same with a name that points to no file, which it gets. */
struct file *names_make(struct names *n, const char *text, enum file_kind kind);
/* The name that it has; NULL: it is an orphan. */
static inline struct name *file_name(const struct file *f)
{
    return f->of && f->of->file == f ? f->of : NULL;
}
/* Free a file that nothing refers to any more, and the name that it had last. */
void file_reap(struct names *n, struct file *f);
/* Drop its bytes, which helpers' room counts. */
void file_free_content(struct names *n, struct file *f);
/* Drop what a key's file was as a helper, if no handle reads that, and no step can bring it back. */
void file_is_key(struct names *n, struct file *f);

/* The file of a number; NULL: it means nothing, or a key that nobody has touched. */
struct file *names_file(const struct names *n, uint32_t number);
/* True if one helper may be `len` bytes instead of `was` (0: a new one): all together have room. */
bool names_have_room(const struct names *n, uint64_t was, uint64_t len);

#endif
