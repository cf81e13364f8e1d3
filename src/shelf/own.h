/* SPDX-License-Identifier: MIT */
/*
 * The shelf's own nodes: folders, and texts of stores. A node is made when it is found, and freed when
 * the kernel has forgotten it and nothing uses it. Its number is not used again; st_ino follows from
 * what it stands for, so that it is the same when that is found again.
 *
 * Threads: any.
 */
#ifndef SHELF_OWN_H
#define SHELF_OWN_H

#include "base/lock.h"
#include "shelf/place.h"
#include "base/hash.h"
#include "tree/rights.h"

/* Access rights of a file at its real path: those of the file itself, of the folders of a store that
 * are passed but not shown and, if a link leads to it, of all folders around it. The kernel checks what
 * a link leads to before anything below that, so what is below has rights of its own only, by whichever
 * name the folder was reached. */
struct granted {
    struct grant grant;
    uint64_t stamp; /* rights_stamp() */
};
/* As they are now, if they are others than before. {0}: there was no before. */
void granted_look(struct reach *r, const struct item *i, struct granted *g);

struct own {
    struct link by_number, by_key;
    uint32_t number;
    uint64_t ino;        /* for st_ino; beyond all numbers of nodes, but for that of the root */
    enum item_kind kind; /* ITEM_FOLDER, ITEM_TEXT */
    size_t above;        /* as of struct item: by a link and without one it is two nodes */
    struct place place;  /* ITEM_FOLDER */
    char *real;          /* owned */
    /* Protected by the lock: as of the last time that it was found. */
    struct stat st;
    struct granted granted;
    struct timespec looked; /* when that was */
    uint64_t lookups;       /* that the kernel did not forget */
    unsigned uses;
};

struct owns {
    struct lock lock;
    struct table by_number, by_key;
    uint32_t last;
};

void owns_init(struct owns *o);
void owns_free(struct owns *o);
/* The number of the node of an item that was found, whose place passes to it; the kernel gets one more
 * reference to it. 0, -ENOMEM. */
int own_of(struct owns *o, struct reach *r, struct item *i, uint32_t *ret);
/* Use a node; NULL: no such number. own_leave() it. */
struct own *own_use(struct owns *o, uint32_t number);
void own_leave(struct owns *o, struct own *n); /* may be NULL */
/* The kernel loses n references. */
void own_forget(struct owns *o, uint32_t number, uint64_t n);
/* What it was when it was found last, or a second ago: a process may stay in it. */
void own_facts(struct owns *o, struct reach *r, struct own *n, struct stat *st, struct grant *g);

#endif
