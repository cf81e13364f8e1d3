/* SPDX-License-Identifier: MIT */
/* Slots: found by name, changed, and put back as they were. See change.h, slots.h. */
#include "edit/slots.h"
#include "gguf/keys.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_LEAST 64

/* What a slot was before an operation. A fresh slot did not exist. */
struct edit_undo {
    uint32_t i;
    bool fresh;
    struct edit_slot was; /* owned */
};

/* ---- values ---- */

struct edit_value *edit_value_make(uint32_t type, struct buf *bytes)
{
    static _Atomic(uint64_t) count;
    struct edit_value *v = calloc(1, sizeof(*v));
    if (!v)
        return NULL;
    atomic_init(&v->refs, 1);
    v->id = atomic_fetch_add(&count, 1) + 1;
    v->type = type;
    v->bytes = *bytes;
    *bytes = BUF_INIT;
    return v;
}

struct edit_value *edit_value_ref(struct edit_value *v)
{
    if (v)
        atomic_fetch_add(&v->refs, 1);
    return v;
}

void edit_value_unref(struct edit_value *v)
{
    if (!v || atomic_fetch_sub(&v->refs, 1) != 1)
        return;
    buf_free(&v->bytes);
    free(v);
}

/* ---- names ---- */

bool name_is(struct name a, const char *text)
{
    return a.n == strlen(text) && memcmp(a.p, text, a.n) == 0;
}

static bool answers(const struct edit_slot *s, uint64_t hash, struct name name)
{
    return s->hash == hash && s->name_len == name.n && memcmp(s->name, name.p, name.n) == 0;
}

uint32_t slot_named(const struct edit_change *c, struct name name)
{
    uint64_t hash = hash_name(name.p, name.n);
    uint32_t found = EDIT_NONE;
    uint32_t i = c->buckets ? c->bucket[hash & (c->buckets - 1)] : EDIT_NONE;
    for (; i != EDIT_NONE; i = c->slot[i].next) {
        if (!answers(&c->slot[i], hash, name))
            continue;
        if (!c->slot[i].gone)
            return i;
        found = i;
    }
    return found;
}

static void enter(struct edit_change *c, uint32_t i)
{
    uint32_t *head = &c->bucket[c->slot[i].hash & (c->buckets - 1)];
    c->slot[i].next = *head;
    c->slot[i].named = true;
    *head = i;
}

static void leave(struct edit_change *c, uint32_t i)
{
    uint32_t *p = &c->bucket[c->slot[i].hash & (c->buckets - 1)];
    if (!c->slot[i].named)
        return;
    while (*p != i)
        p = &c->slot[*p].next;
    *p = c->slot[i].next;
    c->slot[i].named = false;
}

static int grow_buckets(struct edit_change *c)
{
    size_t n = c->buckets ? c->buckets * 2 : BUCKETS_LEAST;
    uint32_t *now = malloc(n * sizeof(*now));
    if (!now)
        return -ENOMEM;
    memset(now, 0xff, n * sizeof(*now));
    free(c->bucket);
    c->bucket = now;
    c->buckets = n;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->slot[i].named)
            enter(c, i);
    return 0;
}

/* ---- sizes ---- */

static uint64_t base_entry(const struct edit_change *c, uint32_t kv)
{
    return c->base->kv[kv].end - c->base->kv[kv].off;
}

/* Bytes of the slot's entry in the new header. */
static uint64_t entry_bytes(const struct edit_change *c, const struct edit_slot *s)
{
    if (s->gone)
        return 0;
    const struct gguf_kv *kv = s->old == EDIT_NONE ? NULL : &c->base->kv[s->old];
    uint64_t value = s->value ? s->value->bytes.len : kv ? kv->end - kv->val_off : 0;
    return c->base->fmt.len_width + s->name_len + 4 + value;
}

/* ---- made, changed ---- */

static int copy_name(struct edit_slot *s, struct name name)
{
    char *copy = malloc(name.n + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, name.p, name.n);
    copy[name.n] = '\0';
    s->name = copy;
    s->name_len = name.n;
    s->hash = hash_name(name.p, name.n);
    return 0;
}

static void slot_free(struct edit_slot *s)
{
    free(s->name);
    edit_value_unref(s->value);
}

/* Room for one more slot, its name and the way back. */
static int make_room(struct edit_change *c)
{
    if (array_grow(&c->slot, &c->cap, c->n, sizeof(*c->slot)) < 0 ||
        array_grow(&c->undo, &c->cap_undo, c->n_undo, sizeof(*c->undo)) < 0)
        return -ENOMEM;
    return c->n >= c->buckets ? grow_buckets(c) : 0;
}

static int append(struct edit_change *c, struct edit_slot s, struct name name, uint32_t *ret)
{
    int r = make_room(c);
    if (r == 0)
        r = copy_name(&s, name);
    if (r < 0)
        return r;
    *ret = (uint32_t)c->n;
    c->slot[c->n++] = s;
    enter(c, *ret);
    c->undo[c->n_undo++] = (struct edit_undo){.i = *ret, .fresh = true};
    c->version++;
    return 0;
}

int slot_touch(struct edit_change *c, uint32_t kv, uint32_t *ret)
{
    size_t all = ((size_t)c->base->n_kv + 1) * sizeof(*c->slot_of);
    struct edit_slot s = {.old = kv, .rank = c->rank ? c->rank[kv] : (uint64_t)kv + 1};
    if (!c->slot_of) {
        c->slot_of = malloc(all);
        if (!c->slot_of)
            return -ENOMEM;
        memset(c->slot_of, 0xff, all);
    }
    assert(c->slot_of[kv] == EDIT_NONE);
    int r = append(c, s, base_name(c, kv), ret);
    if (r < 0)
        return r;
    c->slot_of[kv] = *ret;
    c->bytes += entry_bytes(c, &c->slot[*ret]) - base_entry(c, kv);
    return 0;
}

int slot_add(struct edit_change *c, struct name name, uint64_t rank, uint32_t *ret)
{
    struct edit_slot s = {.old = EDIT_NONE, .rank = rank, .gone = true};
    return append(c, s, name, ret);
}

int slot_save(struct edit_change *c, uint32_t i)
{
    if (array_grow(&c->undo, &c->cap_undo, c->n_undo, sizeof(*c->undo)) < 0)
        return -ENOMEM;
    struct edit_undo u = {.i = i, .was = c->slot[i]};
    if (copy_name(&u.was, slot_name(&c->slot[i])) < 0)
        return -ENOMEM;
    (void)edit_value_ref(u.was.value);
    c->undo[c->n_undo++] = u;
    return 0;
}

/* The entry of slot i is about to change, or has changed: both, in this order. */
static void before(struct edit_change *c, uint32_t i)
{
    c->bytes -= entry_bytes(c, &c->slot[i]);
}

static void after(struct edit_change *c, uint32_t i)
{
    c->bytes += entry_bytes(c, &c->slot[i]);
    c->version++;
}

/* Of the removed keys of one name the last alone is found by it: a walk meets two slots at most. */
static void forget_gone(struct edit_change *c, uint32_t i)
{
    uint32_t other = slot_named(c, slot_name(&c->slot[i]));
    if (other != EDIT_NONE && other != i && c->slot[other].gone)
        leave(c, other);
}

void slot_set_gone(struct edit_change *c, uint32_t i, bool gone)
{
    before(c, i);
    if (gone) {
        leave(c, i);
        forget_gone(c, i);
        enter(c, i);
    }
    c->slot[i].gone = gone;
    after(c, i);
}

void slot_set_value(struct edit_change *c, uint32_t i, struct edit_value *v)
{
    before(c, i);
    (void)edit_value_ref(v);
    edit_value_unref(c->slot[i].value);
    c->slot[i].value = v;
    after(c, i);
}

int slot_rename(struct edit_change *c, uint32_t i, struct name to)
{
    struct edit_slot named = c->slot[i];
    if (copy_name(&named, to) < 0)
        return -ENOMEM;
    before(c, i);
    leave(c, i);
    free(c->slot[i].name);
    c->slot[i].name = named.name;
    c->slot[i].name_len = named.name_len;
    c->slot[i].hash = named.hash;
    enter(c, i);
    after(c, i);
    return 0;
}

/* ---- back ---- */

static void drop_last(struct edit_change *c)
{
    uint32_t i = (uint32_t)--c->n;
    struct edit_slot *s = &c->slot[i];
    leave(c, i);
    c->bytes -= entry_bytes(c, s);
    if (s->old != EDIT_NONE) {
        c->slot_of[s->old] = EDIT_NONE;
        c->bytes += base_entry(c, s->old);
    }
    slot_free(s);
}

static void put_back(struct edit_change *c, struct edit_undo *u)
{
    before(c, u->i);
    leave(c, u->i);
    slot_free(&c->slot[u->i]);
    bool named = u->was.named;
    c->slot[u->i] = u->was;
    c->slot[u->i].named = false;
    if (named)
        enter(c, u->i);
    after(c, u->i);
}

void edit_undo(struct edit_change *c, size_t mark)
{
    assert(mark <= c->n_undo);
    while (c->n_undo > mark) {
        struct edit_undo *u = &c->undo[--c->n_undo];
        if (u->fresh)
            drop_last(c);
        else
            put_back(c, u);
        c->version++;
    }
}

void edit_keep(struct edit_change *c, size_t mark)
{
    assert(mark <= c->n_undo);
    for (size_t i = 0; i < mark; i++)
        if (!c->undo[i].fresh)
            slot_free(&c->undo[i].was);
    c->n_undo -= mark;
    if (c->n_undo)
        memmove(c->undo, c->undo + mark, c->n_undo * sizeof(*c->undo));
}

void edit_change_init(struct edit_change *c, const struct gguf *base, const uint64_t *rank)
{
    *c = (struct edit_change){.base = base, .rank = rank};
    for (uint32_t i = 0; i < base->n_kv; i++)
        if (!name_is(base_name(c, i), KEY_RESERVE)) /* the plan makes a new one */
            c->bytes += base_entry(c, i);
}

void edit_change_drop_values(struct edit_change *c)
{
    edit_keep(c, c->n_undo);
    for (size_t i = 0; i < c->n; i++) {
        edit_value_unref(c->slot[i].value);
        c->slot[i].value = NULL;
    }
}

void edit_change_free(struct edit_change *c)
{
    edit_keep(c, c->n_undo);
    for (size_t i = 0; i < c->n; i++)
        slot_free(&c->slot[i]);
    free(c->slot);
    free(c->bucket);
    free(c->slot_of);
    free(c->undo);
    *c = (struct edit_change){0};
}
