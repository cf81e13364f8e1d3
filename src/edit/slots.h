/* SPDX-License-Identifier: MIT */
/* The slots of a change, for the files that implement it: see change.h. Private to this layer. */
#ifndef EDIT_SLOTS_H
#define EDIT_SLOTS_H

#include "edit/change.h"

/* A range of bytes, not owned. */
struct name {
    const void *p;
    size_t n;
};

bool name_is(struct name a, const char *text);
bool name_same(struct name a, struct name b);

static inline struct name slot_name(const struct edit_slot *s)
{
    return (struct name){s->name, s->name_len};
}

/* For key or tensor i of the base: its name and rank. */
struct name base_name(const struct edit_change *c, enum edit_what kind, uint32_t i);
static inline uint64_t base_rank(const struct edit_change *c, enum edit_what kind, uint32_t i)
{
    const uint64_t *rank = kind == EDIT_KEY ? c->on.rank : c->on.tensor_rank;
    return rank ? rank[i] : edit_first_rank(i);
}

/* Its slot; NULL: untouched. */
static inline struct edit_slot *slot_of(const struct edit_change *c, enum edit_what kind,
                                        uint32_t i)
{
    return c->slot_of ? c->slot_of[kind == EDIT_KEY ? i : c->on.g->n_kv + i] : NULL;
}

/*
 * The slot for a name: that of the object that has it, else of the one that had it last and is
 * gone; NULL. True: an object has the name after the change.
 */
bool slot_find(const struct edit_change *c, enum edit_what kind, struct name name,
               const struct edit_slot **ret);

/*
 * An operation changes a copy of a slot, and puts it back.
 *
 * slot_begin: a copy of the one that slot_find() finds, or a first one for an object of the base,
 * or, with this rank, one for a new object, marked as gone. slot_new: always the last of these.
 * `to`: the new name. NULL: no memory. slot_end: always takes ownership. 0; -EFBIG if the header
 * without reserve and padding is over GGUF_MAX_HEADER, -ENOMEM: nothing changed.
 */
struct edit_slot *slot_begin(const struct edit_change *c, enum edit_what kind, struct name name,
                             struct name to, uint64_t rank);
struct edit_slot *slot_new(enum edit_what kind, struct name to, uint64_t rank);
int slot_end(struct edit_change *c, struct edit_slot *s, struct err *e);
/* The same without a line, and without checking the size: edit_check_size() is called later. */
int slot_put(struct edit_change *c, struct edit_slot *s);
int edit_check_size(const struct edit_change *c, struct err *e);
/* The operations common to keys and tensors, and the line for a refusal, which returns its code. */
int slot_remove(struct edit_change *c, enum edit_what kind, struct name name, struct err *e);
int slot_rename(struct edit_change *c, enum edit_what kind, struct name from, struct name to,
                struct err *e);
int slot_refuse(struct err *e, int code, enum edit_what kind, struct name name, const char *why);
void slot_free(struct edit_slot *s); /* may be NULL */

/* Restore slot `at`. */
void slot_undo(struct edit_change *c, const struct edit_undo *u);

/* All keys or tensors after the change, by rank. */
struct slot_walk {
    const struct edit_change *c;
    enum edit_what kind;
    struct edit_slot **list; /* owned: the slots that are not gone */
    size_t at, n;
    uint32_t i; /* index in the base */
};

/* 0, -ENOMEM. */
int slot_walk_begin(struct slot_walk *w, const struct edit_change *c, enum edit_what kind);
/* *ret: its slot; NULL: it is number *old of the base. False: no more. */
bool slot_walk_next(struct slot_walk *w, const struct edit_slot **ret, uint32_t *old);
void slot_walk_end(struct slot_walk *w);

#endif
