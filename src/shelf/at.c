/* SPDX-License-Identifier: MIT */
/* Where a node is: see at.h. */
#include "shelf/at.h"

#include <errno.h>

struct at at_node(const struct shelf *s, uint64_t node)
{
    const uint32_t slot = s->one ? 0 : ino_slot(node);
    struct at at = {.node = node,
                    .local = node,
                    .in_tree = s->one != NULL,
                    .own = !s->one && !slot,
                    .use = {.tree = s->one}};
    if (!slot)
        return at;
    at.node = ino_in_slot(slot, INO_ROOT);
    at.local = ino_local(node);
    at.model = at.local == INO_ROOT;
    at.extra = extra_of(at.local);
    at.in_tree = !at.model && !at.extra;
    return at;
}

int at_enter(struct shelf *s, struct at *at)
{
    const struct node n = ino_node(at->local);
    int r = s->one ? 0 : slot_use(&s->slots, at->node, &at->use, NULL);
    return r == 0 && at->use.slot && n.kind == NODE_KEY && n.number < at->use.slot->left.keys
               ? -ESTALE
               : r;
}

int at_given(const struct use *u, int r, struct tree_entry *e)
{
    if (r == 0)
        entry_in_slot(u, e);
    if (r == 0 && u->slot)
        slot_known(u->slot);
    return r;
}

void entry_in_slot(const struct use *u, struct tree_entry *e)
{
    if (!u->slot)
        return;
    e->node = e->node ? ino_in_slot(ino_slot(u->slot->node), e->node) : 0;
    e->attr.st_ino = slot_ino(u->slot, e->attr.st_ino);
}

int model_error(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(slot_leave) struct use u = {0};
    struct err e = {0};
    int r = slot_use(&s->slots, node, &u, &e);
    if (r == 0 || r == -ESTALE || r == -ENOMEM)
        return r;
    buf_printf(out, "%s\n", e.msg);
    return buf_error(out) ? buf_error(out) : 1;
}
