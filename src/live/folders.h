/* SPDX-License-Identifier: MIT */
/*
 * What is known of the folders of tensors while they can be edited, beside what the model has of the
 * tensors: by the tensor's number (model/ids.h), for those that some call has touched.
 *
 * A tensor that is removed is `doomed` at first: hidden, and part of no change until nothing was
 * removed for FOLDERS_QUIET seconds. Then it is `removed`: by the change that collects, and for good
 * once that is on the disk.
 *
 * Threads: everything is protected by the lock of `struct live`.
 */
#ifndef LIVE_FOLDERS_H
#define LIVE_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/hash.h"
#include "live/waits.h"

/* Seconds without another removal after which tensors are removed, and views that were unlinked
 * without their folder are back. */
#define FOLDERS_QUIET 2
#define FOLDERS_VIEWS 1

struct draft;
struct making;

struct folder {
    uint32_t number;
    uint64_t generation; /* how often it came back after it was removed: FUSE's */
    char *error;         /* owned: why the last write was refused, or NULL */
    unsigned losses;     /* how often an accepted edit of it was given up */
    struct promise promise;
    /* Rows of views that were opened to be written since the tensor has its version: the kernel's cache of these may
     * have what was not accepted. */
    uint32_t spent;
    uint32_t hidden;           /* rows of views that were unlinked ... */
    struct timespec hidden_at; /* ... and when the last of them was: CLOCK_MONOTONIC */
    unsigned edits;            /* of its content, and of what is below them */
    bool doomed, removed;
    struct timespec mtime;     /* tv_sec 0: not written in this mount */
    struct draft *drafts;      /* of its views, and helpers beside them (view.h) */
    struct making *making;     /* it is one still (makings.h); or NULL */
    struct folder *next, **at; /* in folders.first */
    struct folder *next_doomed;
};

struct folders {
    struct folder **of; /* owned, by number; NULL: untouched */
    size_t cap;
    struct folder *first; /* all */
    struct folder *doomed;
    size_t n_doomed, n_errors;
    struct timespec due; /* CLOCK_MONOTONIC: when what is doomed is to be removed */
    bool now;            /* ... or at once: the folder was synced ... */
    unsigned syncs;      /* ... so often */
};

void folders_free(struct folders *s);
/* What is known of a tensor; NULL: nothing. */
struct folder *folders_find(const struct folders *s, uint32_t number);
/* The same, made if it is not there. NULL: no memory. */
struct folder *folders_get(struct folders *s, uint32_t number);
/* Nothing of it is to be known any more: it is freed. */
void folders_drop(struct folders *s, struct folder *f);
/* Why it was refused; NULL: it was not. Rarely fails: then nothing is said. */
void folder_set_error(struct folders *s, struct folder *f, const char *why);

/* Hide it, until folders_take() or folder_back(). */
void folder_doom(struct folders *s, struct folder *f);
/* It is back, as another one to the kernel: the one that was removed stays dead as long as a program
 * is in it. */
void folder_back(struct folder *f);
/* The doomed ones, in the order in which they were removed, no longer in the list. */
struct folder *folders_take(struct folders *s);
/* One of them alone. */
void folders_untie(struct folders *s, struct folder *f);
/* It was synced: what is doomed, and what is in the making, is due. */
void folders_sync(struct folders *s);
/* True if the doomed ones are to be removed. */
bool folders_due(const struct folders *s);

/* Views that are hidden at the moment; a bit for each row. */
uint32_t folder_hidden(struct folder *f);
void folder_hide(struct folder *f, uint32_t row);
void folder_unhide(struct folder *f, uint32_t row);

/*
 * ---- where tensors that were removed stood, by their names: one that comes back gets its place again. An entry for A
 * says a rank that no tensor has but one that is called A: so a rename of A has to forget it ----
 */

/* Without memory nothing is noted: the tensor then comes back as the last. */
void places_note(struct table *t, const void *name, size_t n, uint64_t rank);
/* The rank, which is forgotten; `none`: it is not known. */
uint64_t places_take(struct table *t, const void *name, size_t n, uint64_t none);
void places_free(struct table *t);

#endif
