/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited, as objects: the facts about each in addition to the model's own, by
 * number (model/snapshot.h), for those that some call has touched. A removed one keeps its name,
 * and its place for the next tensor of that name.
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
 * Seconds without another removal after which tensors are removed, and after which views that were
 * unlinked without their directory reappear.
 */
#define OBJECTS_QUIET 2
#define OBJECTS_VIEWS 1

enum object_state {
    OBJECT_STORED, /* the model has it, with all edits accepted */
    OBJECT_NEW,    /* a directory was created, but it is not a tensor yet: tensors.h */
    /* Hidden, but part of no change until no tensor was removed for OBJECTS_QUIET seconds. */
    OBJECT_DOOMED,
    OBJECT_ABSENT, /* removed by the collecting change, and finally when that is on disk */
    OBJECT_LOST,   /* it was new, but could not be written */
    OBJECT_GONE,   /* it never became a tensor: only its drafts refer to it */
    OBJECT_STATES
};

enum object_event {
    OBJECT_MAKE,   /* its directory is created */
    OBJECT_ADD,    /* it becomes a tensor */
    OBJECT_DOOM,   /* its directory was removed */
    OBJECT_REMOVE, /* the edit that removes it is accepted; a new tensor is removed at once */
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
    uint64_t generation; /* how often it returned after a removal: FUSE's */
    char *error;    /* owned: why the last write was refused, or what a new tensor lacks, or NULL */
    int lost;       /* LOST: the reason */
    unsigned edits; /* number of edits of its content, and of the bytes below it */
    unsigned losses; /* number of accepted edits of it that were dropped */
    struct promise promise;
    struct timespec mtime; /* tv_sec 0: not written in this mount */
    /*
     * Rows of views opened for writing since the tensor has its version: the kernel's cache of
     * these may hold content that was not accepted.
     */
    uint32_t spent;
    uint32_t hidden;              /* rows of views that were unlinked ... */
    struct timespec hidden_at;    /* ... and the time of the last unlink: CLOCK_MONOTONIC */
    struct draft *drafts;         /* drafts of its views, and of helpers beside them (views.h) */
    struct object_list *in;       /* the list that it is in: objects.doomed, or .due; or NULL */
    struct object *next, *before; /* neighbours in that list */
    /* For new tensors: tensors.h. */
    bool has_type, has_shape;
    uint32_t type;
    struct tensor_shape shape;
    uint32_t aside;       /* rows that were written, but are ignored */
    unsigned open;        /* number of writable handles; and of them ... */
    unsigned unclosed;    /* ... those not closed since they were written */
    bool closing;         /* counted in objects.closing */
    bool dirty;           /* written since it was judged */
    struct timespec last; /* CLOCK_MONOTONIC: time of the last write */
};

/* Number of the latest replaced versions of tensors that are known, in case the kernel still
 * requests them. */
enum { OBJECTS_KNOWN = 1024 };

struct objects {
    struct object **of; /* owned, by number; NULL: untouched */
    size_t cap;
    struct table by_name;      /* objects that have a name */
    struct object_list doomed; /* in order of removal */
    struct object_list due;    /* new tensors to be judged, ordered by `last` */
    size_t n_new, n_errors;    /* n_errors: of tensors that the model has */
    size_t closing; /* number of new tensors whose writers have closed, but are not released yet */
    struct timespec removal; /* CLOCK_MONOTONIC: time at which doomed tensors are due for removal */
    bool now;                /* ... or at once, because the directory was synced ... */
    unsigned syncs;          /* ... this often */
    uint64_t ranks;          /* rank of the next new tensor */
    atomic_bool touched;     /* something is known of some tensor */
    /* Drafts of views, and of helpers beside them: views.h. */
    const struct object *judging; /* a new tensor, whose drafts stay during its judgement */
    struct draft *views;          /* owned list: all drafts that are open for writing */
    struct table nodes;           /* these drafts by their nodes */
    struct table shared;          /* handles, by nodes other than their drafts' */
    /* Versions of tensors; number: 1 + the tensor's; 0: none. */
    struct tensor_id given[OBJECTS_KNOWN];
    uint32_t first_numbers; /* below it, versions are numbers of tensors */
};

/* True if no call has touched any tensor. Without the lock. */
static inline bool objects_untouched(const struct objects *s)
{
    return !atomic_load_explicit(&s->touched, memory_order_acquire);
}

void objects_free(struct objects *s);
/* Return the object of a tensor, or NULL if there is none. */
struct object *object_find(const struct objects *s, uint32_t number);
/* Return the object of a tensor, and create it if needed. Returns NULL without memory. */
struct object *object_get(struct objects *s, uint32_t number);
/* Return the first object with at least this number, or NULL. */
struct object *object_from(const struct objects *s, uint64_t number);
/* Remove an object, and free it. */
void object_drop(struct objects *s, struct object *o);
/* Return the object with this name, in this state; or NULL. */
struct object *object_named(const struct objects *s, const void *name, size_t n,
                            enum object_state state);
/* Give the object a name, or remove its name and place. Returns 0 or -ENOMEM. */
int object_set_name(struct objects *s, struct object *o, const void *name, size_t n);
void object_clear_name(struct objects *s, struct object *o);
/* Record the reason why an edit was refused; NULL: it was not. If memory is short, no reason is
 * recorded. */
void object_set_error(struct objects *s, struct object *o, const char *why);

/*
 * Change the state of an object. Only this function does. An object that returns is a different one
 * to the kernel: the removed one stays dead as long as a program is in it.
 */
void object_event(struct objects *s, struct object *o, enum object_event event);
/* Move the object to a list, after another object (NULL: first), or only out of its present
 * list. */
void object_enlist(struct object_list *list, struct object *o, struct object *before);
void object_unlist(struct object *o);

/* Make doomed and new objects due, because tensors/ was synced. */
void objects_sync(struct objects *s);
/* True if the doomed objects are due. */
bool objects_due(const struct objects *s);

/* Return the views that are hidden at the moment, a bit per row. */
uint32_t object_hidden(struct object *o);
void object_hide(struct object *o, uint32_t row);
void object_unhide(struct object *o, uint32_t row);

#endif
