/* SPDX-License-Identifier: MIT */
/* Restoring all keys: see restore.h. */
#include "edit/restore.h"

#include <errno.h>
#include <string.h>

#include "edit/slots.h"
#include "gguf/keys.h"

bool edit_key_is_own(const struct gguf *g, uint32_t kv)
{
    return key_is_own(gguf_key(g, &g->kv[kv]), g->kv[kv].key_len);
}

uint32_t edit_keys_format(const struct gguf *g)
{
    return (uint32_t)g->fmt.big | (uint32_t)(g->fmt.len_width == 4) << 1 |
           (uint32_t)g->fmt.nul << 2;
}

uint64_t edit_keys_id(const struct gguf *g)
{
    uint64_t id = g->fmt.big;
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (!edit_key_is_own(g, i))
            id = xxh64(id, g->head + g->kv[i].off, (size_t)(g->kv[i].end - g->kv[i].off));
    return id;
}

/* ---- one key ---- */

bool edit_same_entry(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k)
{
    uint64_t n = a->kv[i].end - a->kv[i].off;
    return n == b->kv[k].end - b->kv[k].off &&
           memcmp(a->head + a->kv[i].off, b->head + b->kv[k].off, (size_t)n) == 0;
}

/* The value of a key of `keys`, for a slot. */
static int set_value(struct edit_slot *s, const struct gguf *keys, const struct gguf_kv *kv)
{
    CLEANUP(buf_free) struct buf bytes = BUF_INIT;
    buf_add(&bytes, keys->head + kv->val_off, (size_t)(kv->end - kv->val_off));
    s->value = buf_error(&bytes) ? NULL : edit_value_make(kv->type, &bytes);
    s->gone = false;
    return s->value ? 0 : -ENOMEM;
}

/* ---- all of them ---- */

/* The position in the base of the walk over the keys to restore. */
struct at {
    uint64_t rank; /* of the last key */
    uint32_t next; /* in the base: the first key with a higher rank */
};

static void pass(const struct edit_change *c, struct at *at, uint64_t rank)
{
    at->rank = rank;
    while (at->next < c->on.g->n_kv && base_rank(c, EDIT_KEY, at->next) <= rank)
        at->next++;
}

/*
 * A rank after the last key and before the base's next, with room for `left` keys in between. Its
 * last bit is set, unlike in the rank of an original key. Equal to the last if no number is left,
 * after a great many undos: slots of one rank are listed in the order in which they were made,
 * after the base's key.
 */
static uint64_t rank_here(const struct edit_change *c, struct at *at, uint32_t left)
{
    const bool end = at->next == c->on.g->n_kv;
    const uint64_t next = end ? EDIT_LAST : base_rank(c, EDIT_KEY, at->next);
    const bool last = next == EDIT_LAST; /* only the reserve may follow */
    const uint64_t room = next - at->rank, step = room / ((uint64_t)left + 1);
    if (last)
        at->rank += EDIT_RANK_STEP;
    else if (room > 1)
        at->rank += step ? step : 1;
    if (last || (at->rank | 1) < next)
        at->rank |= 1;
    return at->rank;
}

static int restore_key(struct edit_change *c, const struct gguf *keys, uint32_t k, struct at *at)
{
    const struct gguf_kv *kv = &keys->kv[k];
    struct name name = {gguf_key(keys, kv), kv->key_len};
    uint32_t old = gguf_find_key(c->on.g, name.p, name.n);
    bool exists = old != EDIT_NONE, same = exists && edit_same_entry(c->on.g, old, keys, k);
    bool stays = exists && base_rank(c, EDIT_KEY, old) > at->rank;
    if (stays)
        pass(c, at, base_rank(c, EDIT_KEY, old));
    if (stays && same)
        return 0;
    uint64_t rank = stays ? at->rank : rank_here(c, at, keys->n_kv - k);
    struct edit_slot *s = slot_begin(c, EDIT_KEY, name, name, rank);
    if (!s)
        return -ENOMEM;
    s->rank = rank;
    if (!same && set_value(s, keys, kv) < 0) {
        slot_free(s);
        return -ENOMEM;
    }
    return slot_put(c, s);
}

static int remove_others(struct edit_change *c, const struct gguf *keys)
{
    int r = 0;
    for (uint32_t kv = 0; kv < c->on.g->n_kv && r == 0; kv++) {
        struct name name = base_name(c, EDIT_KEY, kv);
        if (edit_key_is_own(c->on.g, kv) || gguf_find_key(keys, name.p, name.n) != EDIT_NONE)
            continue;
        struct edit_slot *s = slot_begin(c, EDIT_KEY, name, name, 0);
        if (!s)
            return -ENOMEM;
        s->gone = true;
        r = slot_put(c, s);
    }
    return r;
}

int edit_restore(struct edit_change *c, const struct gguf *keys, struct err *e)
{
    size_t mark = edit_mark(c);
    struct at at = {0};
    if (edit_keys_format(c->on.g) != edit_keys_format(keys))
        return err_set(e, -EINVAL,
                       "the keys are of a file of another byte order or version of GGUF");
    int r = remove_others(c, keys);
    for (uint32_t k = 0; k < keys->n_kv && r == 0; k++)
        if (!edit_key_is_own(keys, k))
            r = restore_key(c, keys, k, &at);
    if (r < 0)
        (void)err_set(e, r, "no memory for the keys");
    else
        r = edit_check_size(c, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}
