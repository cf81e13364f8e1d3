/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited, as objects: what is known about each in addition to what the model has, by number
 * (model/snapshot.h), for those that some call has touched. A removed one keeps its name, and its place for the next
 * tensor of that name.
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
#include "model/store.h"
#include "model/snapshot.h"

/*
 * Seconds without another removal after which tensors are removed, and after which views that were unlinked without
 * their directory come back.
 */
#define OBJECTS_QUIET 2
#define OBJECTS_VIEWS 1

enum object_state {
    OBJECT_STORED, /* the model has it, with all edits accepted */
    OBJECT_NEW,    /* a directory was made, but it is not a tensor yet: tensors.h */
    /* hidden, but part of no change until nothing was removed for OBJECTS_QUIET seconds */
    OBJECT_DOOMED,
    OBJECT_ABSENT, /* removed: by the collecting change, and for good once that is on disk */
    OBJECT_LOST,   /* it was new, and could not be written */
    OBJECT_GONE,   /* it never became a tensor: only its drafts know it */
    OBJECT_STATES
};

enum object_event {
    OBJECT_MAKE,   /* its directory is made */
    OBJECT_ADD,    /* it becomes a tensor */
    OBJECT_DOOM,   /* its directory was removed */
    OBJECT_REMOVE, /* and the edit that removes it is accepted; a new one is removed at once */
    OBJECT_BACK,   /* it is not removed */
    OBJECT_LOSE,   /* the edit that added it is lost */
    OBJECT_REGAIN, /* another tensor with its name was added since */
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
    char *name;       /* owned: for those that the model lacks; NULL: the model has it */
    size_t name_len;
    uint64_t rank; /* ABSENT: its place among the others; 0: no longer known */
    uint32_t number;
    enum object_state state;
    uint64_t generation; /* how often it came back after a removal: FUSE's */
    char *error;     /* owned: why the last write was refused, or what a new one lacks, or NULL */
    int lost;        /* LOST: why */
    unsigned edits;  /* to its content, and to what lies below it */
    unsigned losses; /* how often an accepted edit of it was given up */
    struct promise promise;
    struct timespec mtime; /* tv_sec 0: not written in this mount */
    /*
     * Rows of views opened for writing since the tensor has its version: the kernel's cache of these may hold content
     * that was not accepted.
     */
    uint32_t spent;
    uint32_t hidden;              /* rows of views that were unlinked ... */
    struct timespec hidden_at;    /* ... and when the last of them was: CLOCK_MONOTONIC */
    struct draft *drafts;         /* of its views, and helpers beside them (views.h) */
    struct object_list *in;       /* objects.doomed, or .due; or NULL */
    struct object *next, *before; /* in there */
    /* For new ones: tensors.h. */
    bool has_type, has_shape;
    uint32_t type;
    struct tensor_shape shape;
    uint32_t aside;       /* rows that were written, but are ignored */
    unsigned open;        /* writable handles; and of them ... */
    unsigned unclosed;    /* ... those not closed since they were written */
    bool closing;         /* counted in objects.closing */
    bool dirty;           /* written since it was judged */
    struct timespec last; /* CLOCK_MONOTONIC: the last write */
};

/* How many of the latest replaced versions of tensors are known, in case the kernel still asks for them. */
enum { OBJECTS_KNOWN = 1024 };

struct objects {
    struct object **of; /* owned, by number; NULL: untouched */
    size_t cap;
    struct table by_name;      /* those that have a name */
    struct object_list doomed; /* in the order in which they were removed */
    struct object_list due;    /* new ones to be judged, ordered by `last` */
    size_t n_new, n_errors;    /* errors: of tensors that the model has */
    size_t closing;            /* new ones whose writers have closed, but are not released yet */
    struct timespec removal;   /* CLOCK_MONOTONIC: when doomed ones are due for removal */
    bool now;                  /* ... or at once: the directory was synced ... */
    unsigned syncs;            /* ... this often */
    uint64_t ranks;            /* the next new tensor's */
    atomic_bool touched;       /* something is known of some tensor */
    /* Drafts of views, and of helpers beside them: views.h. */
    const struct object *judging; /* a new one: its drafts stay meanwhile */
    struct draft *views;          /* owned list: all that are open for writing */
    struct table nodes;           /* the same by their nodes */
    struct table shared;          /* handles, by other nodes than their drafts' */
    /* versions of tensors; number: 1 + the tensor's; 0: none */
    struct tensor_id given[OBJECTS_KNOWN];
    uint32_t first_numbers; /* below it, versions are numbers of tensors */
};

/* True if nothing is known of any tensor. Without the lock. */
static inline bool objects_untouched(const struct objects *s)
{
    return !atomic_load_explicit(&s->touched, memory_order_acquire);
}

void objects_free(struct objects *s);
/* What is known about a tensor; NULL: nothing. */
struct object *object_find(const struct objects *s, uint32_t number);
/* The same, created if needed. NULL: no memory. */
struct object *object_get(struct objects *s, uint32_t number);
/* The first with at least this number; NULL: there are no more. */
struct object *object_from(const struct objects *s, uint64_t number);
/* Forget and free it. */
void object_drop(struct objects *s, struct object *o);
/* The object with this name, in this state; or NULL. */
struct object *object_named(const struct objects *s, const void *name, size_t n,
                            enum object_state state);
/* Give it a name, or take it away, together with its place. 0, -ENOMEM. */
int object_set_name(struct objects *s, struct object *o, const void *name, size_t n);
void object_clear_name(struct objects *s, struct object *o);
/* Record why it was refused; NULL: it was not. In the rare case of a failure nothing is recorded. */
void object_set_error(struct objects *s, struct object *o, const char *why);

/*
 * The only place where the state of an object changes. If it comes back, it is a different one to the kernel: the
 * removed one stays dead as long as a program is in it.
 */
void object_event(struct objects *s, struct object *o, enum object_event event);
/* Move it to a list, after another object (NULL: first), or only out of its present list. */
void object_enlist(struct object_list *list, struct object *o, struct object *before);
void object_unlist(struct object *o);

/* tensors/ was synced: doomed and new objects are due. */
void objects_sync(struct objects *s);
/* True if the doomed ones are due. */
bool objects_due(const struct objects *s);

/* Views that are hidden at the moment; a bit per row. */
uint32_t object_hidden(struct object *o);
void object_hide(struct object *o, uint32_t row);
void object_unhide(struct object *o, uint32_t row);

#endif
