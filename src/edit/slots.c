/* SPDX-License-Identifier: MIT */
/* Slots: finding, replacing and listing them. See slots.h. */
#include "edit/slots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

bool name_same(struct name a, struct name b)
{
    return a.n == b.n && memcmp(a.p, b.p, b.n) == 0;
}

bool name_is(struct name a, const char *text)
{
    return name_same(a, (struct name){text, strlen(text)});
}

struct name base_name(const struct edit_change *c, enum edit_what kind, uint32_t i)
{
    const struct gguf *g = c->on.g;
    if (kind == EDIT_TENSOR)
        return (struct name){gguf_name(g, &g->tensor[i]), g->tensor[i].name_len};
    return (struct name){gguf_key(g, &g->kv[i]), g->kv[i].key_len};
}

static uint32_t base_find(const struct edit_change *c, enum edit_what kind, struct name name)
{
    return kind == EDIT_TENSOR ? gguf_find_tensor(c->on.g, name.p, name.n)
                               : gguf_find_key(c->on.g, name.p, name.n);
}

bool slot_find(const struct edit_change *c, enum edit_what kind, struct name name,
               const struct edit_slot **ret)
{
    const struct edit_slot *found = NULL;
    struct link *l = table_first(&c->by_name, hash_name(name.p, name.n));
    for (; l && (!found || found->gone); l = table_next(l)) {
        const struct edit_slot *s = (const struct edit_slot *)l;
        if (s->kind == kind && name_same(slot_name(s), name) &&
            (!found || !s->gone || s->serial > found->serial))
            found = s;
    }
    *ret = found;
    if (found)
        return !found->gone;
    const uint32_t old = base_find(c, kind, name);
    return old != EDIT_NONE && !slot_of(c, kind, old);
}

/* ---- sizes ---- */

/* For a tensor's info: name, dimensions, type, offset. */
static uint64_t info_bytes(size_t name_len, uint32_t n_dims)
{
    return 8 + name_len + 4 + (uint64_t)n_dims * 8 + 4 + 8;
}

/* The bytes that the base has for a slot, in the header and as data. */
static uint64_t base_entry(const struct gguf *g, const struct edit_slot *s)
{
    if (s->old == EDIT_NONE)
        return 0;
    if (s->kind == EDIT_TENSOR)
        return info_bytes(g->tensor[s->old].name_len, g->tensor[s->old].n_dims);
    return g->kv[s->old].end - g->kv[s->old].off;
}

static uint64_t base_data(const struct gguf *g, const struct edit_slot *s)
{
    return s->kind == EDIT_TENSOR && s->old != EDIT_NONE ? g->tensor[s->old].nbytes : 0;
}

/* The same after the change. */
static uint64_t entry_bytes(const struct gguf *g, const struct edit_slot *s)
{
    if (s->gone)
        return 0;
    if (s->kind == EDIT_TENSOR)
        return info_bytes(s->name_len, s->content && s->content->shape.n_dims
                                           ? s->content->shape.n_dims
                                           : g->tensor[s->old].n_dims);
    const struct gguf_kv *kv = s->old == EDIT_NONE ? NULL : &g->kv[s->old];
    const uint64_t value = s->value ? s->value->bytes.len : kv ? kv->end - kv->val_off : 0;
    return g->fmt.len_width + s->name_len + 4 + value;
}

static uint64_t data_bytes(const struct gguf *g, const struct edit_slot *s)
{
    return s->gone ? 0 : s->content ? s->content->nbytes : base_data(g, s);
}

/* True if, because of a slot, data of the base moves or disappears. */
static bool moves(const struct edit_change *c, const struct edit_slot *s)
{
    const uint32_t n = c->on.g->n_tensors;
    if (s->kind == EDIT_KEY)
        return false;
    if (s->old == EDIT_NONE)
        return !s->gone && n && s->rank < base_rank(c, EDIT_TENSOR, n - 1);
    return s->gone || data_bytes(c->on.g, s) != base_data(c->on.g, s);
}

/* Add or remove a slot's differences from the base. */
static void count(struct edit_change *c, const struct edit_slot *s, bool now)
{
    const uint64_t sign = now ? 1 : UINT64_MAX; /* modulo 2^64 */
    c->bytes += sign * (entry_bytes(c->on.g, s) - base_entry(c->on.g, s));
    c->data += sign * (data_bytes(c->on.g, s) - base_data(c->on.g, s));
    c->fresh += sign * (s->content && !s->gone ? s->content->fresh : 0);
    c->moves += (size_t)sign * moves(c, s);
    c->tensors += (size_t)sign * (s->kind == EDIT_TENSOR);
}

int edit_check_size(const struct edit_change *c, struct err *e)
{
    if (c->bytes <= GGUF_MAX_HEADER)
        return 0;
    return err_set(e, -EFBIG, "the header would be over %llu bytes",
                   (unsigned long long)GGUF_MAX_HEADER);
}

/* ---- changed ---- */

void slot_free(struct edit_slot *s)
{
    if (!s)
        return;
    edit_value_unref(s->value);
    tensor_content_unref(s->content);
    free(s);
}

/* A copy, under this name. */
static struct edit_slot *copy(const struct edit_slot *from, struct name to)
{
    struct edit_slot *s = malloc(sizeof(*s) + to.n + 1);
    if (!s)
        return NULL;
    *s = *from;
    (void)edit_value_ref(s->value);
    (void)tensor_content_ref(s->content);
    s->name_len = to.n;
    memcpy(s->name, to.p, to.n);
    s->name[to.n] = '\0';
    return s;
}

struct edit_slot *slot_new(enum edit_what kind, struct name to, uint64_t rank)
{
    const struct edit_slot first = {
        .kind = kind, .gone = true, .old = EDIT_NONE, .at = EDIT_NONE, .rank = rank};
    return copy(&first, to);
}

struct edit_slot *slot_begin(const struct edit_change *c, enum edit_what kind, struct name name,
                             struct name to, uint64_t rank)
{
    const struct edit_slot *s;
    if (!slot_find(c, kind, name, &s) && !s)
        return slot_new(kind, to, rank);
    if (s)
        return copy(s, to);
    struct edit_slot first = {.kind = kind, .old = base_find(c, kind, name), .at = EDIT_NONE};
    first.rank = base_rank(c, kind, first.old);
    if (kind == EDIT_TENSOR)
        first.id = ids_of(c->on.ids, first.old);
    return copy(&first, to);
}

/* The indexes of slots are made when the first is put. */
static int make_room(struct edit_change *c)
{
    const size_t all = (size_t)c->on.g->n_kv + c->on.g->n_tensors + 1;
    if (!c->slot_of && !(c->slot_of = (struct edit_slot **)calloc(all, sizeof(*c->slot_of))))
        return -ENOMEM;
    int r = array_grow((void *)&c->slot, &c->cap, c->n, sizeof(*c->slot));
    return r < 0 ? r : array_grow(&c->undo, &c->cap_undo, c->n_undo, sizeof(*c->undo));
}

static int enter(struct edit_change *c, struct edit_slot *s)
{
    int r = table_add(&c->by_name, &s->by_name, hash_name(s->name, s->name_len));
    if (r < 0 || s->kind == EDIT_KEY)
        return r;
    r = table_add(&c->by_number, &s->by_number, hash_number(s->id.number));
    if (r < 0)
        table_remove(&c->by_name, &s->by_name);
    return r;
}

static void leave(struct edit_change *c, struct edit_slot *s)
{
    table_remove(&c->by_name, &s->by_name);
    if (s->kind == EDIT_TENSOR)
        table_remove(&c->by_number, &s->by_number);
}

/*
 * Replace one slot by another; either may be NULL. 0; -ENOMEM: nothing changed. When a slot is put
 * back, there is memory for it.
 */
static int exchange(struct edit_change *c, struct edit_slot *was, struct edit_slot *now)
{
    const struct edit_slot *any = now ? now : was;
    int r = now ? enter(c, now) : 0;
    if (r < 0)
        return r;
    if (was) {
        leave(c, was);
        count(c, was, false);
    }
    if (now)
        count(c, now, true);
    if (any->old != EDIT_NONE)
        c->slot_of[any->kind == EDIT_KEY ? any->old : c->on.g->n_kv + any->old] = now;
    c->slot[any->at] = now;
    c->n = c->n - (was != NULL) + (now != NULL);
    return 0;
}

int slot_put(struct edit_change *c, struct edit_slot *s)
{
    int r = make_room(c);
    struct edit_slot *was = s->at == EDIT_NONE ? NULL : c->slot[s->at];
    s->serial = ++c->serial;
    if (!was)
        s->at = (uint32_t)c->n;
    if (r == 0)
        r = exchange(c, was, s);
    if (r == 0)
        c->undo[c->n_undo++] = (struct edit_undo){s->at, was};
    else
        slot_free(s);
    return r;
}

void slot_undo(struct edit_change *c, const struct edit_undo *u)
{
    struct edit_slot *now = c->slot[u->at];
    (void)exchange(c, now, u->was);
    slot_free(now);
}

int slot_end(struct edit_change *c, struct edit_slot *s, struct err *e)
{
    const size_t mark = edit_mark(c);
    int r = s ? slot_put(c, s) : -ENOMEM;
    if (r < 0)
        return err_set(e, r, "no memory for the edit");
    r = edit_check_size(c, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}

int slot_refuse(struct err *e, int code, enum edit_what kind, struct name name, const char *why)
{
    char shown[SHOW_MAX];
    return err_set(e, code, "%s '%s': %s", kind == EDIT_KEY ? "key" : "tensor",
                   show(shown, name.p, name.n), why);
}

int slot_remove(struct edit_change *c, enum edit_what kind, struct name name, struct err *e)
{
    const struct edit_slot *found;
    if (!slot_find(c, kind, name, &found))
        return slot_refuse(e, -ENOENT, kind, name, "does not exist");
    struct edit_slot *s = slot_begin(c, kind, name, name, 0);
    if (s) {
        edit_value_unref(s->value);
        tensor_content_unref(s->content);
        s->value = NULL;
        s->content = NULL;
        s->gone = true;
    }
    return slot_end(c, s, e);
}

int slot_rename(struct edit_change *c, enum edit_what kind, struct name from, struct name to,
                struct err *e)
{
    const struct edit_slot *found;
    if (!slot_find(c, kind, from, &found))
        return slot_refuse(e, -ENOENT, kind, from, "does not exist");
    if (name_same(from, to))
        return 0;
    if (slot_find(c, kind, to, &found))
        return slot_refuse(e, -EEXIST, kind, to, "already exists");
    return slot_end(c, slot_begin(c, kind, from, to, 0), e);
}

/* ---- listed ---- */

static int by_rank(const void *a, const void *b)
{
    const struct edit_slot *x = *(struct edit_slot *const *)a, *y = *(struct edit_slot *const *)b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

int slot_walk_begin(struct slot_walk *w, const struct edit_change *c, enum edit_what kind)
{
    *w = (struct slot_walk){.c = c, .kind = kind};
    w->list = (struct edit_slot **)malloc((c->n + 1) * sizeof(*w->list));
    if (!w->list)
        return -ENOMEM;
    for (size_t i = 0; i < c->n; i++)
        if (c->slot[i]->kind == kind && !c->slot[i]->gone)
            w->list[w->n++] = c->slot[i];
    if (w->n)
        qsort((void *)w->list, w->n, sizeof(*w->list), by_rank);
    return 0;
}

bool slot_walk_next(struct slot_walk *w, const struct edit_slot **ret, uint32_t *old)
{
    const struct gguf *g = w->c->on.g;
    const uint32_t all = w->kind == EDIT_KEY ? g->n_kv : g->n_tensors;
    while (w->i < all && slot_of(w->c, w->kind, w->i))
        w->i++;
    const bool base =
        w->i < all && (w->at == w->n || w->list[w->at]->rank >= base_rank(w->c, w->kind, w->i));
    if (!base && w->at == w->n)
        return false;
    *ret = base ? NULL : w->list[w->at++];
    *old = base ? w->i++ : (*ret)->old;
    return true;
}

void slot_walk_end(struct slot_walk *w)
{
    free((void *)w->list);
}
