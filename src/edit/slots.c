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
    bool tensors; /* an operation on tensors: `mark` is where it began in the undo list of theirs */
    size_t mark;
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
    v->id = atomic_fetch_add(&count, 1);
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

/* Of a tensor's info: name, dimensions, type, offset. */
static uint64_t info_bytes(size_t name_len, uint32_t n_dims)
{
    return 8 + name_len + 4 + (uint64_t)n_dims * 8 + 4 + 8;
}

static uint64_t base_entry(const struct edit_change *c, uint32_t i)
{
    const struct gguf *g = c->base;
    return c->of_tensors ? info_bytes(g->tensor[i].name_len, g->tensor[i].n_dims)
                         : g->kv[i].end - g->kv[i].off;
}

/* Bytes of the slot's entry in the new header. */
static uint64_t entry_bytes(const struct edit_change *c, const struct edit_slot *s)
{
    if (s->gone)
        return 0;
    if (c->of_tensors)
        return info_bytes(s->name_len, s->content && s->content->shape.n_dims
                                           ? s->content->shape.n_dims
                                           : c->base->tensor[s->old].n_dims);
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
    tensor_content_unref(s->content);
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
    size_t all = ((size_t)base_count(c) + 1) * sizeof(*c->slot_of);
    struct edit_slot s = {.old = kv, .rank = base_rank(c, kv)};
    if (c->of_tensors)
        s.id = ids_of(c->ids, kv);
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
    (void)tensor_content_ref(u.was.content);
    c->undo[c->n_undo++] = u;
    return 0;
}

/* Bytes of a tensor's data. */
static uint64_t data_bytes(const struct edit_change *c, const struct edit_slot *s)
{
    if (s->gone || (!s->content && s->old == EDIT_NONE))
        return 0;
    return s->content ? s->content->nbytes : c->base->tensor[s->old].nbytes;
}

/* Does data of the base lie elsewhere, or nowhere, because of a slot? */
static bool moves(const struct edit_change *c, const struct edit_slot *s)
{
    const uint32_t n = c->base->n_tensors;
    if (s->old == EDIT_NONE)
        return !s->gone && n && s->rank < base_rank(c, n - 1);
    return s->gone || s->again || data_bytes(c, s) != c->base->tensor[s->old].nbytes;
}

static void count(struct edit_change *c, const struct edit_slot *s, bool in)
{
    const uint64_t sign = in ? 1 : UINT64_MAX; /* modulo 2^64 */
    c->bytes += sign * entry_bytes(c, s);
    if (!c->of_tensors)
        return;
    c->data += sign * data_bytes(c, s);
    c->fresh += sign * (s->content && !s->gone ? s->content->fresh : 0);
    c->moves += (size_t)sign * moves(c, s);
}

/* The entry of slot i is about to change, or has changed: both, in this order. */
static void before(struct edit_change *c, uint32_t i)
{
    count(c, &c->slot[i], false);
}

static void after(struct edit_change *c, uint32_t i)
{
    count(c, &c->slot[i], true);
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

void slot_set_content(struct edit_change *c, uint32_t i, struct tensor_content *k)
{
    before(c, i);
    (void)tensor_content_ref(k);
    tensor_content_unref(c->slot[i].content);
    c->slot[i].content = k;
    if (k && c->numbers)
        c->slot[i].id.version = atomic_fetch_add(c->numbers, 1);
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
    count(c, s, false);
    if (s->old != EDIT_NONE) {
        c->slot_of[s->old] = EDIT_NONE;
        c->bytes += base_entry(c, s->old);
        c->data += c->of_tensors ? c->base->tensor[s->old].nbytes : 0;
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
        if (u->tensors)
            edit_undo(c->tensors, u->mark);
        else if (u->fresh)
            drop_last(c);
        else
            put_back(c, u);
        c->version++;
    }
}

/* The operations on tensors that are noted before `mark` stay. */
static void keep_tensors(struct edit_change *c, size_t mark)
{
    size_t next = mark;
    while (next < c->n_undo && !c->undo[next].tensors)
        next++;
    size_t kept = next < c->n_undo ? c->undo[next].mark : c->tensors->n_undo;
    edit_keep(c->tensors, kept);
    for (; next < c->n_undo; next++)
        if (c->undo[next].tensors)
            c->undo[next].mark -= kept;
}

void edit_keep(struct edit_change *c, size_t mark)
{
    assert(mark <= c->n_undo);
    if (c->tensors)
        keep_tensors(c, mark);
    for (size_t i = 0; i < mark; i++)
        if (!c->undo[i].fresh && !c->undo[i].tensors)
            slot_free(&c->undo[i].was);
    c->n_undo -= mark;
    if (c->n_undo)
        memmove(c->undo, c->undo + mark, c->n_undo * sizeof(*c->undo));
}

/* ---- of keys and of tensors ---- */

bool slots_find(const struct edit_change *c, struct name name, uint32_t *ret)
{
    uint32_t i = slot_named(c, name);
    *ret = i;
    if (i != EDIT_NONE)
        return !c->slot[i].gone;
    uint32_t old = c->of_tensors ? gguf_find_tensor(c->base, name.p, name.n)
                                 : gguf_find_key(c->base, name.p, name.n);
    return old != EDIT_NONE && slot_of(c, old) == EDIT_NONE;
}

int slot_live(struct edit_change *c, struct name name, uint32_t *ret)
{
    if (!slots_find(c, name, ret))
        return -ENOENT;
    if (*ret != EDIT_NONE)
        return slot_save(c, *ret);
    uint32_t old = c->of_tensors ? gguf_find_tensor(c->base, name.p, name.n)
                                 : gguf_find_key(c->base, name.p, name.n);
    return slot_touch(c, old, ret);
}

int slots_of_tensors(struct edit_change *c, struct edit_change **ret)
{
    if (array_grow(&c->undo, &c->cap_undo, c->n_undo, sizeof(*c->undo)) < 0)
        return -ENOMEM;
    if (!c->tensors) {
        struct edit_change *t = calloc(1, sizeof(*t));
        if (!t)
            return -ENOMEM;
        *t = (struct edit_change){.base = c->base,
                                  .rank = c->tensor_rank,
                                  .ids = c->ids,
                                  .numbers = c->numbers,
                                  .of_tensors = true};
        for (uint32_t i = 0; i < c->base->n_tensors; i++) {
            t->bytes += base_entry(t, i);
            t->data += c->base->tensor[i].nbytes;
        }
        c->tensors = t;
    }
    c->undo[c->n_undo++] = (struct edit_undo){.tensors = true, .mark = c->tensors->n_undo};
    c->version++;
    *ret = c->tensors;
    return 0;
}

int edit_check_size(const struct edit_change *c, struct err *e)
{
    uint64_t infos = c->tensors ? c->tensors->bytes : c->base->head_len - c->base->info_off;
    if (c->bytes <= GGUF_MAX_HEADER && infos <= GGUF_MAX_HEADER - c->bytes)
        return 0;
    return err_set(e, -EFBIG, "the header would be over %llu bytes",
                   (unsigned long long)GGUF_MAX_HEADER);
}

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

size_t slots_by_rank(const struct edit_change *c, struct ranked *list)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (!c->slot[i].gone)
            list[n++] = (struct ranked){c->slot[i].rank, i};
    if (n)
        qsort(list, n, sizeof(*list), by_rank);
    return n;
}

void edit_change_init(struct edit_change *c, const struct gguf *base, const uint64_t *rank)
{
    *c = (struct edit_change){.base = base, .rank = rank};
    for (uint32_t i = 0; i < base->n_kv; i++)
        if (!name_is(base_name(c, i), KEY_RESERVE)) /* the plan makes a new one */
            c->bytes += base_entry(c, i);
}

void edit_change_on(struct edit_change *c, const struct edit_base *base)
{
    edit_change_init(c, base->g, base->rank);
    c->tensor_rank = base->tensor_rank;
    c->ids = base->ids;
    c->numbers = base->numbers;
}

void edit_change_drop_values(struct edit_change *c)
{
    edit_keep(c, c->n_undo);
    for (size_t i = 0; i < c->n; i++) {
        edit_value_unref(c->slot[i].value);
        tensor_content_unref(c->slot[i].content);
        c->slot[i].value = NULL;
        c->slot[i].content = NULL;
    }
    if (c->tensors)
        edit_change_drop_values(c->tensors);
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
    if (c->tensors)
        edit_change_free(c->tensors);
    free(c->tensors);
    *c = (struct edit_change){0};
}
