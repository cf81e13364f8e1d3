/* SPDX-License-Identifier: MIT */
/*
 * Keeps editable tensors as objects. An object has the facts about a tensor beyond those in the
 * model, and is found by its number (model/snapshot.h); only tensors that some call has touched
 * have one. A removed tensor keeps its name, and keeps its place for the next tensor with that
 * name.
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

/* The number of seconds without another removal after which tensors are removed, and that after
 * which views reappear that were unlinked without their directory. */
#define OBJECTS_QUIET 2
#define OBJECTS_VIEWS 1

enum object_state {
    OBJECT_STORED, /* the model has it once all accepted edits are applied */
    OBJECT_NEW,    /* a directory was created, but is not a tensor yet (tensors.h) */
    /* Hidden, but in no change until no tensor has been removed for OBJECTS_QUIET seconds. */
    OBJECT_DOOMED,
    OBJECT_ABSENT, /* removed by the change being collected; final once that is on disk */
    OBJECT_LOST,   /* it was new, but could not be written */
    OBJECT_GONE,   /* it never became a tensor; only its drafts refer to it */
    OBJECT_STATES
};

enum object_event {
    OBJECT_MAKE,   /* its directory was created */
    OBJECT_ADD,    /* it became a tensor */
    OBJECT_DOOM,   /* its directory was removed */
    OBJECT_REMOVE, /* the edit that removes it was accepted; a new tensor goes at once */
    OBJECT_BACK,   /* it was not removed after all */
    OBJECT_LOSE,   /* the edit that added it was lost */
    OBJECT_REGAIN, /* another tensor with its name has been added since */
    OBJECT_EVENTS
};

struct draft;
struct object;

struct object_list {
    struct object *first, *last;
    size_t n;
};

struct object {
    struct link link; /* in objects.by_name, if the object has a name */
    char *name;       /* owned; set if the model lacks the tensor, else NULL */
    size_t name_len;
    uint64_t rank; /* ABSENT: the place among the others; 0: no longer known */
    uint32_t number;
    enum object_state state;
    uint64_t generation; /* FUSE's: how often it has returned after a removal */
    char *error;     /* owned: why the last write was refused, what a new tensor lacks, or NULL */
    int lost;        /* LOST: the reason */
    unsigned edits;  /* number of edits to its content and to the bytes below it */
    unsigned losses; /* number of accepted edits to it that were dropped */
    struct promise promise;
    struct timespec mtime; /* tv_sec 0: not written in this mount */
    /* Rows of the views that were opened for writing since the tensor got its version: the kernel's
     * cache of these may hold content that was not accepted. */
    uint32_t spent;
    uint32_t hidden;              /* rows of views that were unlinked */
    struct timespec hidden_at;    /* CLOCK_MONOTONIC: when the last view was unlinked */
    struct draft *drafts;         /* drafts of its views and of helpers beside them (views.h) */
    struct object_list *in;       /* its list: objects.doomed, objects.due or NULL */
    struct object *next, *before; /* its neighbours in that list */
    /* For new tensors (tensors.h): */
    bool has_type, has_shape;
    uint32_t type;
    struct tensor_shape shape;
    uint32_t aside;       /* rows of views that were written but are ignored */
    unsigned open;        /* number of writable handles */
    unsigned unclosed;    /* number of writable handles not closed since they were written */
    bool closing;         /* counted in objects.closing */
    bool dirty;           /* written since it was last judged */
    struct timespec last; /* CLOCK_MONOTONIC: when it was last written */
};

/* How many of the latest replaced versions of tensors are remembered, in case the kernel still
 * requests them. */
enum { OBJECTS_KNOWN = 1024 };

struct objects {
    struct object **of; /* owned, by number; NULL if untouched */
    size_t cap;
    struct table by_name;      /* objects with a name */
    struct object_list doomed; /* in order of removal */
    struct object_list due;    /* new tensors to judge, ordered by `last` */
    size_t n_new, n_errors;    /* n_errors counts only tensors that the model has */
    size_t closing; /* number of new tensors whose writers are closed but not yet released */
    struct timespec removal; /* CLOCK_MONOTONIC: when doomed tensors are due for removal */
    bool now;                /* they are due now, because the directory was synced */
    unsigned syncs;          /* number of syncs so far */
    uint64_t ranks;          /* the rank of the next new tensor */
    atomic_bool touched;     /* at least one tensor has been touched */
    /* Drafts of views and of helpers beside them (views.h): */
    const struct object *judging; /* the new tensor being judged, which keeps its drafts */
    struct draft *views;          /* owned list: all drafts that are open for writing */
    struct table nodes;           /* those drafts, by node */
    struct table shared;          /* handles opened by other nodes than their drafts', by node */
    /* Versions of tensors. `number` is the tensor's number plus 1, or 0 in an unused entry. */
    struct tensor_id given[OBJECTS_KNOWN];
    uint32_t first_numbers; /* versions below this are numbers of tensors */
};

/* True if no call has touched any tensor. Does not need the lock. */
static inline bool objects_untouched(const struct objects *s)
{
    return !atomic_load_explicit(&s->touched, memory_order_acquire);
}

void objects_free(struct objects *s);
/* Return the object of a tensor, or NULL if there is none. */
struct object *object_find(const struct objects *s, uint32_t number);
/* Return the object of a tensor, creating it if needed. Returns NULL without memory. */
struct object *object_get(struct objects *s, uint32_t number);
/* Return the object with the lowest number that is at least this one, or NULL. */
struct object *object_from(const struct objects *s, uint64_t number);
void object_drop(struct objects *s, struct object *o);
/* Return the object with this name in this state, or NULL. */
struct object *object_named(const struct objects *s, const void *name, size_t n,
                            enum object_state state);
/* Give the object a name. Returns 0 or -ENOMEM. The second function removes its name and place. */
int object_set_name(struct objects *s, struct object *o, const void *name, size_t n);
void object_clear_name(struct objects *s, struct object *o);
/* Record why an edit was refused, or forget the reason if `why` is NULL. Without memory, no reason
 * is recorded. */
void object_set_error(struct objects *s, struct object *o, const char *why);

/* Change the state of an object; no other function does. An object that returns is a different one
 * to the kernel: the removed one stays dead as long as a program is in it. */
void object_event(struct objects *s, struct object *o, enum object_event event);
/* Insert an object that is not in a list after the object `before`, or first if that is NULL. The
 * second function removes it from its list, if any. */
void object_enlist(struct object_list *list, struct object *o, struct object *before);
void object_unlist(struct object *o);

/* Make doomed and new objects due, because tensors/ was synced. */
void objects_sync(struct objects *s);
/* True if the doomed objects are due. */
bool objects_due(const struct objects *s);

/* Return the views that are hidden at the moment, one bit per row. */
uint32_t object_hidden(struct object *o);
void object_hide(struct object *o, uint32_t row);
void object_unhide(struct object *o, uint32_t row);

#endif
