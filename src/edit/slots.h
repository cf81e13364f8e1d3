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

static inline struct name base_name(const struct edit_change *c, uint32_t kv)
{
    const struct gguf_kv *at = &c->base->kv[kv];
    return (struct name){gguf_key(c->base, at), at->key_len};
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
int slot_rename(struct edit_change *c, uint32_t i, struct name to);

/* 0; -EFBIG if the header without reserve and padding is over GGUF_MAX_HEADER. */
int edit_check_size(const struct edit_change *c, struct err *e);

#endif
