/* SPDX-License-Identifier: MIT */
/*
 * A simple model of metadata/, for random tests: keys, helpers and files open for writing, as
 * arrays. Each value is a number of one or two digits. See test_random.c, which performs the same
 * operations on a tree.
 *
 * A file belongs to a key or a helper, by its name. What is done to it while it is open follows it
 * through renames; without a name it no longer changes anything.
 */
#ifndef TESTS_LIB_PLAIN_H
#define TESTS_LIB_PLAIN_H

#include <stdbool.h>

enum { KEYS = 6, NAMES = 10, FILES = 32, OPEN = 5 };
enum { PLAIN_U32 = 1, PLAIN_STRING = 6, PLAIN_TYPES = 7 };

extern const char *const plain_names[NAMES]; /* the first are keys */
extern const char *const plain_types[PLAIN_TYPES];

/* The stored state of a key. */
struct slot {
    bool stored;
    bool parked;  /* stored, and its name has gone to a helper */
    bool removed; /* not stored, since the last fsync */
    bool anew;    /* stored, with its value from before it was removed and created again */
    bool known;   /* it had a type in this mount */
    bool gone;    /* it was removed: its type and place are kept */
    unsigned type;
    char text[4];
};

/* A file that has a name or is open. */
struct file {
    int name;         /* -1: none */
    unsigned writers; /* with writers, `text` is the draft */
    bool dirty;       /* of a key: written but not accepted */
    bool written;     /* since the draft was begun */
    bool typed;       /* opened as KEY:TYPE, and not accepted */
    unsigned type;
    int backup;   /* of a helper: the key whose text it has; -1: none */
    char text[8]; /* of a draft or a helper */
};

struct plain {
    struct slot slot[KEYS];
    struct file file[FILES];
    struct file *at[NAMES];    /* NULL: no visible file */
    struct file *handle[OPEN]; /* NULL: not open */
    bool wrote[OPEN];          /* and its draft was not accepted since */
};

void plain_init(struct plain *x);
bool plain_is_key(int name);

/* A file of a stored key; and one that is created under a name. */
struct file *plain_show(struct plain *x, int name);
struct file *plain_create(struct plain *x, int name);
/* The name is taken from its file, or passes to it from another. */
void plain_orphan(struct plain *x, int name);
void plain_move(struct plain *x, int from, int to);
/* The key is removed. */
void plain_drop(struct plain *x, int key);
/* A text becomes the value of a key, with the type that `typed` was opened with, if any. */
void plain_store(struct plain *x, int key, const char *text, const struct file *typed);

/* The result of reading the name; dst may hold it. */
const char *plain_text(const struct plain *x, int name, char dst[8]);

/* Open for writing, write a digit, close by one of several owners, the end of a handle. */
void plain_join(struct plain *x, struct file *f, bool truncate);
void plain_write(struct file *f, unsigned off, char digit);
void plain_accept(struct plain *x, struct file *f);
void plain_leave(struct plain *x, struct file *f);

/* The file is the only backup of a removed key. */
bool plain_is_parked(const struct plain *x, const struct file *f);
/* A close of this handle would judge what others wrote. */
bool plain_is_of_others(const struct plain *x, int h);

#endif
