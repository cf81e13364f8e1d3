/* SPDX-License-Identifier: MIT */
/*
 * A simple model of metadata/, for random tests: keys, helpers and files open for writing, as
 * arrays. Each value is a number of one or two digits. See test_random.c, which performs the same
 * operations on a tree.
 *
 * The name of a file decides whether it is a key or a helper. Operations on an open file follow the
 * file through renames; they have no effect once it has no name.
 */
#ifndef TESTS_LIB_PLAIN_H
#define TESTS_LIB_PLAIN_H

#include <stdbool.h>

enum { KEYS = 6, NAMES = 10, FILES = 32, OPEN = 5 };
enum { PLAIN_U32 = 1, PLAIN_STRING = 6, PLAIN_TYPES = 7 };

extern const char *const plain_names[NAMES]; /* the first names are keys */
extern const char *const plain_types[PLAIN_TYPES];

/* The stored state of a key. */
struct slot {
    bool stored;
    bool parked;  /* stored, but a helper has its name */
    bool removed; /* not stored since the last fsync */
    bool anew;    /* stored, with the value from before it was removed and created again */
    bool known;   /* the key had a type in this mount */
    bool gone;    /* the key was removed: its type and place are kept */
    unsigned type;
    char text[4];
};

/* A file that has a name or is open. */
struct file {
    int name;         /* -1: no name */
    unsigned writers; /* if there are any, `text` is the draft */
    bool dirty;       /* a key's draft was written but not accepted */
    bool written;     /* the draft has been written to */
    bool typed;       /* opened as KEY:TYPE, and not accepted */
    unsigned type;
    int backup;   /* for a helper, the key whose text it holds; -1: none */
    char text[8]; /* text of a draft or a helper */
};

struct plain {
    struct slot slot[KEYS];
    struct file file[FILES];
    struct file *at[NAMES];    /* NULL: no visible file */
    struct file *handle[OPEN]; /* NULL: not open */
    bool wrote[OPEN];          /* written to since the draft was last accepted */
};

void plain_init(struct plain *x);
bool plain_is_key(int name);

/* Create the file of a stored key; create the file of a new name. */
struct file *plain_show(struct plain *x, int name);
struct file *plain_create(struct plain *x, int name);
/* Take a name from its file; rename a file. */
void plain_orphan(struct plain *x, int name);
void plain_move(struct plain *x, int from, int to);
void plain_drop(struct plain *x, int key);
/* Store text as the value of a key, with the type that `typed` was opened with, if any. */
void plain_store(struct plain *x, int key, const char *text, const struct file *typed);

/* Return what a read of this name returns; the text may be stored in dst. */
const char *plain_text(const struct plain *x, int name, char dst[8]);

/* Open for writing; write a digit; close for one of several owners; end a handle. */
void plain_join(struct plain *x, struct file *f, bool truncate);
void plain_write(struct file *f, unsigned off, char digit);
void plain_accept(struct plain *x, struct file *f);
void plain_leave(struct plain *x, struct file *f);

/* True if the file is the only backup of a removed key. */
bool plain_is_parked(const struct plain *x, const struct file *f);
/* True if closing this handle would judge another program's writes. */
bool plain_is_of_others(const struct plain *x, int h);

#endif
