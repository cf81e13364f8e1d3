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

/* Of key or tensor i of the base: its name and rank. */
struct name base_name(const struct edit_change *c, enum edit_what kind, uint32_t i);
static inline uint64_t base_rank(const struct edit_change *c, enum edit_what kind, uint32_t i)
{
    const uint64_t *rank = kind == EDIT_KEY ? c->on.rank : c->on.tensor_rank;
    return rank ? rank[i] : edit_first_rank(i);
}

/* Its slot; NULL: none has touched it. */
static inline struct edit_slot *slot_of(const struct edit_change *c, enum edit_what kind,
                                        uint32_t i)
{
    return c->slot_of ? c->slot_of[kind == EDIT_KEY ? i : c->on.g->n_kv + i] : NULL;
}

/* The slot that answers to a name: that of what has it, else of what had it last and is gone; NULL. True: something
 * has the name after the change. */
bool slot_find(const struct edit_change *c, enum edit_what kind, struct name name,
               const struct edit_slot **ret);

/*
 * An operation changes a copy of a slot, and puts it.
 *
 * slot_begin: a copy of the one that slot_find() finds, or a first one of what the base has, or one of this rank of
 * something new, which is gone. slot_new: always the last. `to`: the name that it gets. NULL: no memory.
 * slot_end: takes it in any case. 0; -EFBIG if the header without reserve and padding is over GGUF_MAX_HEADER, -ENOMEM:
 * nothing changed.
 */
struct edit_slot *slot_begin(const struct edit_change *c, enum edit_what kind, struct name name,
                             struct name to, uint64_t rank);
struct edit_slot *slot_new(enum edit_what kind, struct name to, uint64_t rank);
int slot_end(struct edit_change *c, struct edit_slot *s, struct err *e);
/* The same without a line, and without looking at the size: edit_check_size() is called later. */
int slot_put(struct edit_change *c, struct edit_slot *s);
int edit_check_size(const struct edit_change *c, struct err *e);
/* The operations that keys and tensors have in common, and a refusal's line, which returns its code. */
int slot_remove(struct edit_change *c, enum edit_what kind, struct name name, struct err *e);
int slot_rename(struct edit_change *c, enum edit_what kind, struct name from, struct name to,
                struct err *e);
int slot_refuse(struct err *e, int code, enum edit_what kind, struct name name, const char *why);
void slot_free(struct edit_slot *s); /* may be NULL */

/* Put slot `at` back as it was. */
void slot_undo(struct edit_change *c, const struct edit_undo *u);

/* All keys or tensors after the change, by rank. */
struct slot_walk {
    const struct edit_change *c;
    enum edit_what kind;
    struct edit_slot **list; /* owned: the slots that are not gone */
    size_t at, n;
    uint32_t i; /* of the base */
};

/* 0, -ENOMEM. */
int slot_walk_begin(struct slot_walk *w, const struct edit_change *c, enum edit_what kind);
/* *ret: its slot; NULL: it is number *old of the base. False: no more. */
bool slot_walk_next(struct slot_walk *w, const struct edit_slot **ret, uint32_t *old);
void slot_walk_end(struct slot_walk *w);

#endif
