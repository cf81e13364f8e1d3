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

/* The name of key or tensor i of the base. */
static inline struct name base_name(const struct edit_change *c, uint32_t i)
{
    const struct gguf *g = c->base;
    if (c->of_tensors)
        return (struct name){gguf_name(g, &g->tensor[i]), g->tensor[i].name_len};
    return (struct name){gguf_key(g, &g->kv[i]), g->kv[i].key_len};
}

/* How many the base has. */
static inline uint32_t base_count(const struct edit_change *c)
{
    return c->of_tensors ? c->base->n_tensors : c->base->n_kv;
}

/* The slot of key or tensor i of the base; EDIT_NONE: none has touched it. */
static inline uint32_t slot_of(const struct edit_change *c, uint32_t i)
{
    return c->slot_of ? c->slot_of[i] : EDIT_NONE;
}

static inline uint64_t base_rank(const struct edit_change *c, uint32_t i)
{
    return c->rank ? c->rank[i] : edit_first_rank(i);
}

static inline struct name slot_name(const struct edit_slot *s)
{
    return (struct name){s->name, s->name_len};
}

bool name_is(struct name a, const char *text);

/* The slot that answers to a name: a live one if there is one, else of a removed key; EDIT_NONE. */
uint32_t slot_named(const struct edit_change *c, struct name name);

/* Make a slot for key `kv` of the base, which has none. Undo drops it. 0, -ENOMEM. */
int slot_touch(struct edit_change *c, uint32_t kv, uint32_t *ret);
/* Make a slot for a key that the base does not have. 0, -ENOMEM. */
int slot_add(struct edit_change *c, struct name name, uint64_t rank, uint32_t *ret);
/* Remember what a slot is now, for edit_undo(). 0, -ENOMEM. */
int slot_save(struct edit_change *c, uint32_t i);
/* Change a slot. slot_rename: 0, -ENOMEM. */
void slot_set_gone(struct edit_change *c, uint32_t i, bool gone);
void slot_set_value(struct edit_change *c, uint32_t i, struct edit_value *v);
void slot_set_content(struct edit_change *c, uint32_t i, struct tensor_content *k);
int slot_rename(struct edit_change *c, uint32_t i, struct name to);

/* As edit_find(), of keys or tensors. */
bool slots_find(const struct edit_change *c, struct name name, uint32_t *ret);
/*
 * The slot of a key or tensor that exists after the change, made if it has none. -ENOENT, -ENOMEM.
 */
int slot_live(struct edit_change *c, struct name name, uint32_t *ret);
/* Get the overlay of tensors, or make it. An operation on it begins. 0, -ENOMEM. */
int slots_of_tensors(struct edit_change *c, struct edit_change **ret);
/* 0; -EFBIG if the header without reserve and padding is over GGUF_MAX_HEADER. */
int edit_check_size(const struct edit_change *c, struct err *e);

struct ranked {
    uint64_t rank;
    uint32_t slot;
};

/* The slots that are not gone, by rank, into a list with room for all. Returns how many. */
size_t slots_by_rank(const struct edit_change *c, struct ranked *list);

#endif
