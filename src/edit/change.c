/* SPDX-License-Identifier: MIT */
/* Operations on keys, and the entries that they make of the header: see change.h. */
#include "edit/change.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/slots.h"
#include "gguf/keys.h"

static const char alignment_key[] = "general.alignment";
static const char architecture_key[] = "general.architecture";

/* ---- what is refused ---- */

static int refuse(struct err *e, int code, struct name name, const char *why)
{
    char shown[SHOW_MAX];
    return err_set(e, code, "key '%s': %s", show(shown, name.p, name.n), why);
}

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for the edit");
}

static int check_name(struct name name, struct err *e)
{
    if (name.n == 0)
        return err_set(e, -EINVAL, "a key's name is empty");
    if (name.n > EDIT_MAX_KEY)
        return refuse(e, -EINVAL, name, "the name is over 65535 bytes");
    if (key_is_own(name.p, name.n))
        return refuse(e, -EPERM, name, "is kept by the program itself");
    return 0;
}

int edit_check_value(const struct gguf *g, const void *key, size_t key_len, uint32_t type,
                     const void *value, size_t value_len, struct err *e)
{
    struct name name = {key, key_len};
    if (!name_is(name, alignment_key))
        return 0;
    if (type != GGUF_U32 || value_len != 4)
        return refuse(e, -EINVAL, name, "must be a u32");
    uint64_t v = get_u32(value, g->fmt.big);
    if (!is_pow2(v) || v < EDIT_MIN_ALIGNMENT || v > EDIT_MAX_ALIGNMENT)
        return refuse(e, -EINVAL, name, "must be a power of two from 8 to 1048576");
    return 0;
}

/* ---- operations ---- */

bool edit_find(const struct edit_change *c, const void *key, size_t n, uint32_t *ret)
{
    return slots_find(c, (struct name){key, n}, ret);
}

/* Of a key that may be new, or come back. */
static int any_slot(struct edit_change *c, struct name name, uint64_t rank, uint32_t *ret)
{
    int r = slot_live(c, name, ret);
    if (r != -ENOENT)
        return r;
    return *ret != EDIT_NONE ? slot_save(c, *ret) : slot_add(c, name, rank, ret);
}

int edit_set(struct edit_change *c, const void *key, size_t key_len, struct edit_value *value,
             uint64_t rank, struct err *e)
{
    struct name name = {key, key_len};
    size_t mark = edit_mark(c);
    uint32_t i;
    int r = check_name(name, e);
    if (r == 0)
        r = edit_check_value(c->base, key, key_len, value->type, value->bytes.data,
                             value->bytes.len, e);
    if (r < 0)
        return r;
    if (any_slot(c, name, rank, &i) < 0)
        return no_memory(e);
    slot_set_value(c, i, value);
    if (c->slot[i].gone)
        slot_set_gone(c, i, false);
    r = edit_check_size(c, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}

int edit_remove(struct edit_change *c, const void *key, size_t key_len, struct err *e)
{
    struct name name = {key, key_len};
    uint32_t i;
    int r = check_name(name, e);
    if (r < 0)
        return r;
    if (name_is(name, architecture_key))
        return refuse(e, -EPERM, name, "cannot be removed");
    r = slot_live(c, name, &i);
    if (r < 0)
        return r == -ENOENT ? refuse(e, r, name, "does not exist") : no_memory(e);
    slot_set_value(c, i, NULL);
    slot_set_gone(c, i, true);
    return 0;
}

static int check_rename(const struct edit_change *c, struct name from, struct name to,
                        struct err *e)
{
    uint32_t i;
    int r = check_name(from, e);
    if (r == 0)
        r = check_name(to, e);
    if (r < 0)
        return r;
    if (name_is(from, alignment_key) || name_is(to, alignment_key))
        return refuse(e, -EINVAL, from, "general.alignment cannot be made or lost by renaming");
    if (name_is(from, architecture_key))
        return refuse(e, -EPERM, from, "cannot be renamed");
    if (!edit_find(c, from.p, from.n, &i))
        return refuse(e, -ENOENT, from, "does not exist");
    bool same = from.n == to.n && memcmp(from.p, to.p, to.n) == 0;
    if (!same && edit_find(c, to.p, to.n, &i))
        return refuse(e, -EEXIST, to, "already exists");
    return same;
}

int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len, struct err *e)
{
    struct name old = {from, from_len}, now = {to, to_len};
    size_t mark = edit_mark(c);
    uint32_t i;
    int r = check_rename(c, old, now, e);
    if (r != 0)
        return r < 0 ? r : 0;
    r = slot_live(c, old, &i);
    if (r == 0)
        r = slot_rename(c, i, now);
    r = r < 0 ? no_memory(e) : edit_check_size(c, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}

static bool differs(const struct edit_change *c, const struct edit_slot *s)
{
    if (s->old == EDIT_NONE)
        return !s->gone;
    struct name name = base_name(c, s->old);
    return s->gone || s->value || s->content || name.n != s->name_len ||
           memcmp(name.p, s->name, name.n) != 0;
}

size_t edit_change_count(const struct edit_change *c, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n && n < most; i++)
        n += differs(c, &c->slot[i]);
    return c->tensors && n < most ? n + edit_change_count(c->tensors, most - n) : n;
}

/* ---- entries ---- */

static void put_value(struct buf *b, const struct edit_change *c, const struct edit_slot *s)
{
    if (s->value) { /* its bytes stay where they are */
        buf_uint(b, s->value->type, 4, c->base->fmt.big);
        return;
    }
    const struct gguf_kv *kv = &c->base->kv[s->old];
    buf_uint(b, kv->type, 4, c->base->fmt.big);
    buf_add(b, c->base->head + kv->val_off, (size_t)(kv->end - kv->val_off));
}

static void put_slot(struct edit_keys *k, const struct edit_change *c, const struct edit_slot *s)
{
    struct edit_entry entry = {.rank = s->rank};
    if (differs(c, s)) {
        entry.made = true;
        entry.off = k->bytes.len;
        buf_uint(&k->bytes, s->name_len, c->base->fmt.len_width, c->base->fmt.big);
        buf_add(&k->bytes, s->name, s->name_len);
        put_value(&k->bytes, c, s);
        entry.end = k->bytes.len;
        entry.value = s->value;
    } else {
        entry.off = c->base->kv[s->old].off;
        entry.end = c->base->kv[s->old].end;
    }
    k->entry[k->n++] = entry;
}

static void put_base(struct edit_keys *k, const struct edit_change *c, uint32_t kv)
{
    if (slot_of(c, kv) != EDIT_NONE || name_is(base_name(c, kv), KEY_RESERVE))
        return;
    k->entry[k->n++] = (struct edit_entry){
        .off = c->base->kv[kv].off, .end = c->base->kv[kv].end, .rank = base_rank(c, kv)};
}

uint64_t edit_alignment(const struct edit_change *c)
{
    uint32_t i;
    if (!edit_find(c, alignment_key, sizeof(alignment_key) - 1, &i))
        return GGUF_DEFAULT_ALIGNMENT;
    const struct edit_value *v = i == EDIT_NONE ? NULL : c->slot[i].value;
    return v ? get_u32(v->bytes.data, c->base->fmt.big) : c->base->alignment;
}

int edit_change_keys(const struct edit_change *c, struct edit_keys *ret)
{
    size_t most = (size_t)c->base->n_kv + c->n + 1, at = 0;
    struct edit_keys k = {.entry = malloc(most * sizeof(*k.entry))};
    struct ranked *list = malloc((c->n + 1) * sizeof(*list));
    if (!k.entry || !list) {
        free(list);
        edit_keys_free(&k);
        return -ENOMEM;
    }
    size_t slots = slots_by_rank(c, list);
    for (uint32_t kv = 0; kv < c->base->n_kv; kv++) {
        uint64_t rank = base_rank(c, kv);
        for (; at < slots && list[at].rank < rank; at++)
            put_slot(&k, c, &c->slot[list[at].slot]);
        put_base(&k, c, kv);
    }
    for (; at < slots; at++)
        put_slot(&k, c, &c->slot[list[at].slot]);
    free(list);
    int r = buf_error(&k.bytes);
    if (r < 0) {
        edit_keys_free(&k);
        return r;
    }
    k.alignment = edit_alignment(c);
    *ret = k;
    return 0;
}

void edit_keys_free(struct edit_keys *k)
{
    free(k->entry);
    buf_free(&k->bytes);
    *k = EDIT_KEYS_INIT;
}
