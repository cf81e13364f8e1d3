/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited, as objects: what is known of each beside what the model has of it, by its number
 * (model/ids.h), for those that some call has touched. One that was removed keeps its name, and its place among the
 * others for the next of that name.
 *
 * Threads: everything is protected by the lock of `struct live`.
 */
#ifndef LIVE_OBJECTS_H
#define LIVE_OBJECTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/hash.h"
#include "live/waits.h"
#include "model/content.h"
#include "model/ids.h"

/* Seconds without another removal after which tensors are removed, and views that were unlinked
 * without their folder are back. */
#define OBJECTS_QUIET 2
#define OBJECTS_VIEWS 1

enum object_state {
    OBJECT_STORED, /* the model has it, with all edits accepted */
    OBJECT_NEW,    /* a folder that was made, and not a tensor yet: new_tensor.h */
    OBJECT_DOOMED, /* hidden, and part of no change until nothing was removed for OBJECTS_QUIET seconds */
    OBJECT_ABSENT, /* removed: by the change that collects, and for good once that is on the disk */
    OBJECT_LOST,   /* it was new, and could not be written */
    OBJECT_GONE,   /* it never was a tensor: its drafts alone know it */
    OBJECT_STATES
};

enum object_event {
    OBJECT_MAKE,   /* its folder is made */
    OBJECT_ADD,    /* it is a tensor now */
    OBJECT_DOOM,   /* its folder was removed */
    OBJECT_REMOVE, /* and the edit that removes it is accepted; a new one is removed at once */
    OBJECT_BACK,   /* it is not removed */
    OBJECT_LOSE,   /* the edit that added it is lost */
    OBJECT_REGAIN, /* another one of its name was added since */
    OBJECT_EVENTS
};

struct draft;
struct object;

struct object_list {
    struct object *first, *last;
    size_t n;
};

struct object {
    struct link link; /* in objects.by_name, if it has a name */
    char *name;       /* owned: of those that the model does not have; NULL: the model has it */
    size_t name_len;
    uint64_t rank; /* ABSENT: where it stood among the others; 0: not known any more */
    uint32_t number;
    enum object_state state;
    uint64_t generation; /* how often it came back after it was removed: FUSE's */
    char *error;     /* owned: why the last write was refused, or what a new one lacks, or NULL */
    int lost;        /* LOST: why */
    unsigned edits;  /* of its content, and of what is below them */
    unsigned losses; /* how often an accepted edit of it was given up */
    struct promise promise;
    struct timespec mtime; /* tv_sec 0: not written in this mount */
    /* Rows of views that were opened to be written since the tensor has its version: the kernel's cache of these may
     * have what was not accepted. */
    uint32_t spent;
    uint32_t hidden;              /* rows of views that were unlinked ... */
    struct timespec hidden_at;    /* ... and when the last of them was: CLOCK_MONOTONIC */
    struct draft *drafts;         /* of its views, and helpers beside them (view.h) */
    struct object_list *in;       /* objects.doomed, or .due; or NULL */
    struct object *next, *before; /* in there */
    /* Of new ones: new_tensor.h. */
    bool has_type, has_shape;
    uint32_t type;
    struct tensor_shape shape;
    uint32_t aside;       /* rows that were written, and are left aside */
    unsigned open;        /* handles that may write; and of them ... */
    unsigned unclosed;    /* ... those that were not closed since they were written */
    bool closing;         /* it counts in objects.closing */
    bool dirty;           /* written since it was judged */
    struct timespec last; /* CLOCK_MONOTONIC: when something was written */
};

/* Of the last so many versions of tensors something is known that the kernel may still ask for. */
enum { OBJECTS_KNOWN = 1024 };

struct objects {
    struct object **of; /* owned, by number; NULL: untouched */
    size_t cap;
    struct table by_name;      /* those that have one */
    struct object_list doomed; /* in the order in which they were removed */
    struct object_list due;    /* new ones that are to be judged, in the order of `last` */
    size_t n_new, n_errors;    /* errors: of tensors that the model has */
    size_t closing;            /* new ones whose writers have closed, and are not released yet */
    struct timespec removal;   /* CLOCK_MONOTONIC: when what is doomed is to be removed */
    bool now;                  /* ... or at once: the folder was synced ... */
    unsigned syncs;            /* ... so often */
    uint64_t ranks;            /* the next new tensor's */
    atomic_bool touched; /* something is known of some tensor's directory; read without the lock */
    /* Drafts of views, and of helpers beside them: view.h. */
    const struct object *judging; /* a new one: its drafts stay meanwhile */
    struct draft *views;          /* owned list: all that are open for writing */
    struct table nodes;           /* the same by their nodes */
    struct table shared;          /* handles, by other nodes than their drafts' */
    struct tensor_id
        given[OBJECTS_KNOWN]; /* versions of tensors; number: 1 + the tensor's; 0: none */
    uint32_t first_numbers;   /* below it, versions are numbers of tensors */
};

void objects_free(struct objects *s);
/* What is known of a tensor; NULL: nothing. */
struct object *object_find(const struct objects *s, uint32_t number);
/* The same, made if it is not there. NULL: no memory. */
struct object *object_get(struct objects *s, uint32_t number);
/* The first whose number is at least this one; NULL: there are no more. */
struct object *object_from(const struct objects *s, uint64_t number);
/* Nothing of it is to be known any more: it is freed. */
void object_drop(struct objects *s, struct object *o);
/* One that has this name, in this state: NULL. */
struct object *object_named(const struct objects *s, const void *name, size_t n,
                            enum object_state state);
/* Give it a name, or take it away, with its place. 0, -ENOMEM. */
int object_set_name(struct objects *s, struct object *o, const void *name, size_t n);
void object_clear_name(struct objects *s, struct object *o);
/* Why it was refused; NULL: it was not. Rarely fails: then nothing is said. */
void object_set_error(struct objects *s, struct object *o, const char *why);

/* The one place where the state of an object changes. One that is back is another one to the kernel: what was removed
 * stays dead as long as a program is in it. */
void object_event(struct objects *s, struct object *o, enum object_event event);
/* Put it into a list, behind another one (NULL: as the first); take it out of the one that it is in. */
void object_enlist(struct object_list *list, struct object *o, struct object *before);
void object_unlist(struct object *o);

/* tensors/ was synced: what is doomed, and what is new, is due. */
void objects_sync(struct objects *s);
/* True if the doomed ones are to be removed. */
bool objects_due(const struct objects *s);

/* Views that are hidden at the moment; a bit for each row. */
uint32_t object_hidden(struct object *o);
void object_hide(struct object *o, uint32_t row);
void object_unhide(struct object *o, uint32_t row);

#endif
