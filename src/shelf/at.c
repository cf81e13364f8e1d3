/* SPDX-License-Identifier: MIT */
/* A node of the mount: the slot that it belongs to, and the tree in it. See internal.h. */
#include "shelf/internal.h"

struct at at_node(const struct shelf *s, uint64_t node)
{
    struct at at = {.shelf = s, .slot = ino_slot(node), .local = ino_local(node)};
    if (s->one) {
        at.local = node;
        return at;
    }
    at.own = at.slot == 0;
    at.model = !at.own && at.local == INO_ROOT;
    at.extra = at.own ? 0 : extra_of(at.local);
    return at;
}

int at_enter(struct shelf *s, const struct at *at, struct use *u)
{
    if (!s->one)
        return slot_use(&s->slots, at->slot, u, NULL);
    *u = (struct use){.tree = s->one};
    return 0;
}

void at_leave(struct shelf *s, struct use *u)
{
    if (!s->one && u->slot)
        slot_leave(&s->slots, u);
}

int at_left(struct shelf *s, struct use *u, int r)
{
    at_leave(s, u);
    return r;
}

int at_given(struct shelf *s, const struct at *at, int r, struct tree_entry *e)
{
    if (r == 0)
        entry_in_slot(at, e);
    if (r == 0 && !s->one)
        slot_known(&s->slots, at->slot);
    return r;
}

void entry_in_slot(const struct at *at, struct tree_entry *e)
{
    if (at->shelf->one)
        return;
    e->node = e->node ? ino_in_slot(at->slot, e->node) : 0;
    e->attr.st_ino = ino_in_slot(at->slot, e->attr.st_ino);
}
