/* SPDX-License-Identifier: MIT */
/*
 * A change moved to another base: see change.h. Names may have changed places (a to b, b to c), so
 * all keys that the change has touched leave their names first, and then take their new ones. So do
 * tensors.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "edit/slots.h"

struct rebase {
    struct edit_change *to; /* of keys or tensors, as is `from` */
    const struct edit_change *from;
    const struct edit_change *now, *before; /* the changes that they belong to */
    void (*lost)(void *arg, const char *name, size_t n);
    void *arg;
};

/* The number in the new base of key or tensor `old` of the one before; EDIT_NONE: it has none. */
static uint32_t number_of(const struct rebase *b, uint32_t old)
{
    struct name name = base_name(b->from, old);
    if (!b->from->of_tensors)
        return gguf_find_key(b->to->base, name.p, name.n);
    const struct edit_change *now = b->now;
    return ids_find(now->ids, now->whole->n_tensors, ids_of(b->before->ids, old).number);
}

/* The slot in `to` of the key or tensor that slot s of `from` came from; EDIT_NONE if it is in
 * neither base. */
static int origin(const struct rebase *b, const struct edit_slot *s, uint32_t *ret)
{
    *ret = EDIT_NONE;
    uint32_t i = s->old == EDIT_NONE ? EDIT_NONE : number_of(b, s->old);
    if (i == EDIT_NONE)
        return 0;
    int r = slot_touch(b->to, i, ret);
    if (r == 0)
        slot_set_gone(b->to, *ret, true);
    return r;
}

/* The slot that has the name which slot i has in the new base; EDIT_NONE: the name is free. */
static uint32_t in_the_way(const struct edit_change *to, uint32_t i)
{
    uint32_t taken;
    return slots_find(to, base_name(to, to->slot[i].old), &taken) && taken != i ? taken : EDIT_NONE;
}

/*
 * Its edit does not apply: it stays as the new base has it. What was given its name meanwhile loses
 * that: a new key or tensor is gone, and one of the base gets its own name back, from which another
 * one may have to give way in turn. None is lost so that the new base has. Returns 1; -ENOMEM.
 */
static int leave_as_is(const struct rebase *b, uint32_t i)
{
    struct edit_change *to = b->to;
    int r = 0;
    for (uint32_t next; i != EDIT_NONE && r == 0; i = next) {
        next = in_the_way(to, i);
        if (next != EDIT_NONE)
            b->lost(b->arg, to->slot[next].name, to->slot[next].name_len);
        if (next != EDIT_NONE && to->slot[next].old == EDIT_NONE) {
            slot_set_gone(to, next, true);
            next = EDIT_NONE;
        }
        r = slot_rename(to, i, base_name(to, to->slot[i].old));
        if (r == 0)
            slot_set_gone(to, i, false);
    }
    return r < 0 ? r : 1;
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
static int land(const struct rebase *b, const struct edit_slot *s, uint32_t i)
{
    struct edit_change *to = b->to;
    uint32_t taken;
    if (s->gone)
        return 0;
    bool there = edit_find(to, s->name, s->name_len, &taken);
    if (there && i == EDIT_NONE && s->value)
        return join(to, s, taken);
    if (there || (i == EDIT_NONE && !s->value))
        return leave_as_is(b, i);
    int r =
        i == EDIT_NONE ? slot_add(to, slot_name(s), s->rank, &i) : slot_rename(to, i, slot_name(s));
    if (r < 0)
        return r;
    to->slot[i].rank = s->rank;
    to->slot[i].born = s->born;
    slot_set_value(to, i, s->value);
    slot_set_gone(to, i, false);
    return 0;
}

/* True if the content can be that of tensor `old` of the new base. */
static bool fits(const struct edit_change *to, uint32_t old, const struct edit_content *k)
{
    const struct gguf_tensor *t = &to->base->tensor[old];
    return !k || (k->nbytes == t->nbytes && (k->shape.n_dims == 0 || k->shape.type == t->type_id));
}

/* The same as land() of a tensor. A name that was not changed is the one that the new base has. */
static int land_tensor(const struct rebase *b, const struct edit_slot *s, uint32_t i)
{
    struct edit_change *to = b->to;
    bool whole = s->content && s->content->shape.n_dims && edit_content_covers(s->content);
    struct name name = slot_name(s);
    uint32_t taken;
    if (s->gone)
        return 0;
    struct name was = s->old == EDIT_NONE ? (struct name){"", 0} : base_name(b->from, s->old);
    if (i != EDIT_NONE && was.n == name.n && memcmp(was.p, name.p, name.n) == 0)
        name = base_name(to, to->slot[i].old);
    if (slots_find(to, name, &taken) || (i == EDIT_NONE && !whole) ||
        (i != EDIT_NONE && !whole && !fits(to, to->slot[i].old, s->content)))
        return leave_as_is(b, i);
    int r = i == EDIT_NONE ? slot_add(to, name, s->rank, &i) : slot_rename(to, i, name);
    if (r < 0)
        return r;
    slot_set_content(to, i, s->content);
    to->slot[i].rank = s->rank;
    to->slot[i].born = s->born;
    to->slot[i].again = s->again && to->slot[i].old != EDIT_NONE;
    slot_set_gone(to, i, false);
    return 0;
}

static int move_slots(const struct rebase *b)
{
    const struct edit_change *from = b->from;
    uint32_t *at = malloc((from->n + 1) * sizeof(*at));
    int r = at ? 0 : -ENOMEM;
    for (size_t i = 0; i < from->n && r >= 0; i++)
        r = origin(b, &from->slot[i], &at[i]);
    for (size_t i = 0; i < from->n && r >= 0; i++) {
        const struct edit_slot *s = &from->slot[i];
        r = from->of_tensors ? land_tensor(b, s, at[i]) : land(b, s, at[i]);
        if (r > 0)
            b->lost(b->arg, s->name, s->name_len);
    }
    free(at);
    return r < 0 ? r : 0;
}

int edit_rebase(struct edit_change *c, const struct edit_base *base,
                void (*lost)(void *arg, const char *name, size_t n), void *arg)
{
    struct edit_change to;
    edit_change_on(&to, base);
    struct rebase b = {&to, c, &to, c, lost, arg};
    int r = move_slots(&b);
    if (r == 0 && c->tensors) {
        b.from = c->tensors;
        r = slots_of_tensors(&to, &b.to);
        if (r == 0)
            r = move_slots(&b);
    }
    if (r < 0) {
        edit_change_free(&to);
        return r;
    }
    edit_keep(&to, edit_mark(&to));
    edit_change_free(c);
    *c = to;
    return 0;
}
