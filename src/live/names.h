/* SPDX-License-Identifier: MIT */
/*
 * The folder metadata/ while it can be edited: names, files and slots.
 *
 * As in any file system, a name is an entry of the folder and points to a file, or to none. A file
 * is what programs open: it has a number (the object of its node), a draft while it is written, its
 * handles and lookups. A rename moves the pointer; all else moves with the file. What the model has
 * of a key is the slot of the key's name.
 *
 * Each key of the first snapshot has a name and a file from the beginning, with the number that it
 * has there. So editing a model takes memory for each of its keys, some hundred bytes.
 *
 *  M1. A file has at most one name: name->file == f if and only if f->name == name.
 *  M2. A name is visible if and only if it points to a file; no state says it again.
 *  M3. A slot's state changes in slot_event() alone.
 *  M5. The spare file of a name has no name.
 *
 * A file without a name is an orphan: what is written to it goes nowhere. It is freed with its last
 * handle and lookup, and its number is used again with another generation of FUSE's.
 *
 * Threads: everything is protected by the lock of `struct live`.
 */
#ifndef LIVE_NAMES_H
#define LIVE_NAMES_H

#include <stdatomic.h>
#include <time.h>

#include "base/buf.h"
#include "base/hash.h"
#include "model/snapshot.h"
#include "live/waits.h"
#include "live/helper.h"
#include "text/name.h"

enum slot {
    SLOT_ABSENT,
    SLOT_STORED,
    SLOT_DOOMED, /* unlinked; the removal is not yet part of the change */
    SLOT_PARKED, /* renamed to a helper, its backup */
    SLOTS
};

/* The model of a slot is that with all edits accepted. */
enum slot_event {
    SLOT_ACCEPT,  /* the key has a value now: a text, or by a rename */
    SLOT_CREATE,  /* a file without a value yet has its name */
    SLOT_UNLINK,  /* its name is removed */
    SLOT_PARK,    /* its name has gone to a helper's */
    SLOT_LOST,    /* the backup is gone */
    SLOT_REMOVED, /* the key is removed, or has gone to another name */
    SLOT_REFUSED, /* what should have been done with the key is not done */
    SLOT_BACK,    /* edits were given up, and the model has the key */
    SLOT_GONE,    /* edits were given up, and the model does not have it */
    SLOT_EVENTS
};

enum file_kind { FILE_KEY, FILE_HELPER, FILE_LINK };

struct file;
struct draft;

struct name {
    struct link link;      /* first; in names.by_text */
    struct file *file;     /* NULL: not visible */
    struct file *spare;    /* pinned: what it points to when the key is back; or NULL */
    char *error;           /* owned: why the last write was refused, or NULL */
    uint32_t ino;          /* in names.of; what st_ino is made of, whatever file it points to */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
    unsigned pins;         /* steps that name it */
    uint64_t edit;         /* the number of the last one that was accepted of its key */
    char *key;             /* owned: the key; NULL: it is a helper's name */
    size_t key_len;
    enum slot slot;
    struct file *backup;                   /* PARKED: the helper that has its text */
    struct name *next_doomed, **doomed_at; /* DOOMED: in names.doomed */
    struct typed typed; /* the type that a value is to have: of a key that is gone, what it had */
    uint64_t rank;      /* its place among the keys; 0: it has never had one */
    char text[];        /* the file name */
};

struct file {
    uint32_t number;
    enum file_kind kind;
    struct name *name;      /* NULL: an orphan */
    struct name *last;      /* of an orphan: pinned, the key whose value it shows; or NULL */
    struct draft *draft;    /* owned; NULL unless it is open for writing */
    struct buf content;     /* HELPER: bytes, unless it has a draft; LINK: target. Of a key: what it
                            was as a helper, until that is on the disk */
    struct name *parked;    /* HELPER: the key whose backup it is */
    struct typed typed;     /* HELPER: for the key that it may become */
    bool inherited;         /* HELPER: typed is that of the key it was */
    struct promise promise; /* what was accepted of it as a key */
    unsigned drafts;        /* begun so far */
    unsigned opens;         /* handles */
    unsigned pins;          /* names that keep it */
    unsigned steps;         /* that may move it back */
    const struct name
        *home;        /* the name that it goes back to with its bytes if its edit fails; or NULL */
    uint64_t lookups; /* references of the kernel */
};

struct number {
    struct file *file;   /* NULL: the number is not in use */
    uint32_t generation; /* how often it was used before */
};

/* Numbers, given from 0 on, and those that are to be given again. */
struct pool {
    uint32_t given;
    uint32_t *back; /* owned */
    size_t n_back, cap;
};

struct names {
    uint32_t first; /* keys of the first snapshot: their numbers are 0 to first - 1 */
    struct pool numbers;
    struct number *at; /* owned, by number: all that were given */
    size_t cap;
    struct pool inos; /* of names */
    struct name **of; /* owned: all of them by that, or NULL */
    size_t cap_of;
    struct table by_text; /* the same by their text */
    struct name *doomed;  /* all that are DOOMED */
    size_t n_doomed, n_errors;
    atomic_bool other_doomed; /* they are others than the newest snapshot is without */
    uint64_t helper_bytes;    /* of all helpers */
};

/* Bytes of a value's text, and of all helpers together: more than any tokenizer's array has. */
#define TEXT_MAX ((uint64_t)1 << 30)

/* For the first snapshot, whose key i gets number i. 0, -ENOMEM. */
int names_init(struct names *n, const struct gguf *first);
void names_close(struct names *n);

/* ---- names ---- */

struct name *names_find(const struct names *n, const char *text);
/* That with this ino, or with the next one that is used; NULL: there are no more. */
struct name *name_from(const struct names *n, uint32_t ino);
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
/* Free a name that means nothing any more. */
void name_reap(struct names *n, struct name *x);
void name_set_error(struct names *n, struct name *x, const char *why); /* NULL: none */

/* The name points to the file, which had none, and no longer to that of before. */
void name_take(struct names *n, struct name *x, struct file *f);
/* The name points to no file: returns what it had, now an orphan that file_reap() may free. The
 * orphan of a key shows the value that the key has: a program may have found it by its name. */
struct file *name_leave(struct name *x);
/* The file of one name is that of another: returns it. */
struct file *name_move(struct names *n, struct name *from, struct name *to);
/* Make sure that the key can be shown again whatever becomes of its file. 0, -ENOMEM. */
int name_keep_spare(struct names *n, struct name *x);
/* It is a helper's name again: no key of this name was ever stored. */
void name_unset_key(struct name *x);
/* Keep the file that a name had as its spare, unless it has one already that programs may have open. */
void name_spare(struct names *n, struct name *x, struct file *f);
/* Show a name by its spare file, or by a new one; without memory for that it stays hidden. */
void name_show(struct names *n, struct name *x);

/* The one place where the state of a slot changes. */
void slot_event(struct names *n, struct name *x, enum slot_event event);
/* The helper is the only backup of a key that is PARKED. */
void slot_backup(struct name *key, struct file *helper);

/* ---- files ---- */

/* A new file with a new number, an orphan. NULL: no memory. */
struct file *file_new(struct names *n, enum file_kind kind);
/* The same with a name that points to no file, which it gets. */
struct file *names_make(struct names *n, const char *text, enum file_kind kind);
/* Free a file that nothing refers to any more; then file->last may be reaped too. */
void file_reap(struct names *n, struct file *f);
/* Drop its bytes, which helpers' room counts. */
void file_free_content(struct names *n, struct file *f);
/* Drop what a key's file was as a helper, if no handle reads that, and no step can bring it back. */
void file_is_key(struct names *n, struct file *f);

/* The file of a number; NULL: it means nothing. */
struct file *names_file(const struct names *n, uint32_t number);
/* True if one helper may be `len` bytes instead of `was` (0: a new one): all together have room. */
bool names_have_room(const struct names *n, uint64_t was, uint64_t len);

#endif
