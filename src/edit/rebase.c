/* SPDX-License-Identifier: MIT */
/*
 * A change moved to another base: see change.h. Names may have changed places (a to b, b to c), so
 * all keys that the change has touched leave their names first, and then take their new ones.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "edit/slots.h"

/* The slot in `to` of the key that slot s of `from` came from; EDIT_NONE if it is in neither base. */
static int origin(struct edit_change *to, const struct edit_change *from, const struct edit_slot *s,
                  uint32_t *ret)
{
    *ret = EDIT_NONE;
    if (s->old == EDIT_NONE)
        return 0;
    struct name name = base_name(from, s->old);
    uint32_t kv = gguf_find_key(to->base, name.p, name.n);
    if (kv == EDIT_NONE)
        return 0;
    int r = slot_touch(to, kv, ret);
    if (r == 0)
        slot_set_gone(to, *ret, true);
    return r;
}

/* Its edit does not apply: the key stays as the new base has it, if its name is free. Returns 1. */
static int leave_as_is(struct edit_change *to, uint32_t i)
{
    uint32_t taken;
    if (i != EDIT_NONE && !edit_find(to, to->slot[i].name, to->slot[i].name_len, &taken))
        slot_set_gone(to, i, false);
    return 1;
}

/* The key that the new base has under this name gets the value of one that was made anew. */
static int join(struct edit_change *to, const struct edit_slot *s, uint32_t i)
{
    int r = i == EDIT_NONE ? slot_touch(to, gguf_find_key(to->base, s->name, s->name_len), &i) : 0;
    if (r == 0)
        slot_set_value(to, i, s->value);
    return r;
}

/* What the change makes of a key; i: the slot of the key that it came from. 1: it does not apply.
 * 0, -ENOMEM. */
static int land(struct edit_change *to, const struct edit_slot *s, uint32_t i)
{
    uint32_t taken;
    if (s->gone)
        return 0;
    bool there = edit_find(to, s->name, s->name_len, &taken);
    if (there && i == EDIT_NONE && s->value)
        return join(to, s, taken);
    if (there || (i == EDIT_NONE && !s->value))
        return leave_as_is(to, i);
    int r =
        i == EDIT_NONE ? slot_add(to, slot_name(s), s->rank, &i) : slot_rename(to, i, slot_name(s));
    if (r < 0)
        return r;
    to->slot[i].rank = s->rank;
    slot_set_value(to, i, s->value);
    slot_set_gone(to, i, false);
    return 0;
}

int edit_rebase(struct edit_change *c, const struct gguf *base, const uint64_t *rank,
                void (*lost)(void *arg, const char *name, size_t n), void *arg)
{
    struct edit_change to;
    edit_change_init(&to, base, rank);
    uint32_t *from = malloc((c->n + 1) * sizeof(*from));
    int r = from ? 0 : -ENOMEM;
    for (size_t i = 0; i < c->n && r >= 0; i++)
        r = origin(&to, c, &c->slot[i], &from[i]);
    for (size_t i = 0; i < c->n && r >= 0; i++) {
        r = land(&to, &c->slot[i], from[i]);
        if (r > 0)
            lost(arg, c->slot[i].name, c->slot[i].name_len);
    }
    free(from);
    if (r < 0) {
        edit_change_free(&to);
        return r;
    }
    edit_keep(&to, edit_mark(&to));
    edit_change_free(c);
    *c = to;
    return 0;
}
