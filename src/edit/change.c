/* SPDX-License-Identifier: MIT */
/*
 * Operations on keys, applied: see change.h.
 *
 * While a change is applied, keys stand in slots: one for each key of the old header, then one for
 * each new key. A slot is never freed: a removed key's slot is its place if it comes back. The
 * order of the header is a list through the slots, so that a new key can go anywhere.
 */
#include "edit/change.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

static const char alignment_key[] = "general.alignment";
static const char architecture_key[] = "general.architecture";

/* The operations. */

static size_t keep(struct edit_change *c, const void *p, size_t n)
{
    size_t at = c->bytes.len;
    buf_add(&c->bytes, p, n);
    return at;
}

static int append(struct edit_change *c, struct edit_op op, const void *key, const void *arg,
                  const void *after)
{
    size_t before = c->bytes.len;
    int r = array_grow(&c->op, &c->cap, c->n, sizeof(*c->op));
    if (r < 0)
        return r;
    op.key = keep(c, key, op.key_len);
    op.arg = keep(c, arg, op.arg_len);
    op.after = keep(c, after, op.after_len);
    r = buf_error(&c->bytes);
    if (r < 0) {
        c->bytes.len = before;
        c->bytes.err = 0;
        return r;
    }
    c->op[c->n++] = op;
    return 0;
}

int edit_set_after(struct edit_change *c, const void *key, size_t key_len, uint32_t type,
                   const void *value, size_t value_len, const void *after, size_t after_len)
{
    struct edit_op op = {.kind = EDIT_SET,
                         .type = type,
                         .key_len = key_len,
                         .arg_len = value_len,
                         .after_len = after_len};
    return append(c, op, key, value, after);
}

int edit_set(struct edit_change *c, const void *key, size_t key_len, uint32_t type,
             const void *value, size_t value_len)
{
    return edit_set_after(c, key, key_len, type, value, value_len, NULL, 0);
}

int edit_remove(struct edit_change *c, const void *key, size_t key_len)
{
    return append(c, (struct edit_op){.kind = EDIT_REMOVE, .key_len = key_len}, key, NULL, NULL);
}

int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len)
{
    struct edit_op op = {.kind = EDIT_RENAME, .key_len = from_len, .arg_len = to_len};
    return append(c, op, from, to, NULL);
}

void edit_change_free(struct edit_change *c)
{
    free(c->op);
    buf_free(&c->bytes);
    *c = EDIT_CHANGE_INIT;
}

/* The slots. */

#define NONE UINT32_MAX

struct text {
    const void *p;
    size_t n;
};

struct slot {
    struct text name;  /* in the old header, or in the change */
    struct text value; /* p NULL: the old header's */
    uint32_t old;      /* number of the key in the old header; NONE: a new one */
    uint32_t type;
    uint32_t next; /* slot that follows in the header */
    bool gone;     /* removed */
    bool renamed;
};

struct slots {
    const struct gguf *g;
    struct slot *slot; /* owned */
    size_t n, cap;
    uint32_t first, last;
    uint32_t *moved; /* owned: slots whose name is not the one that the old header has */
    size_t n_moved, moved_cap;
};

static bool equal(struct text a, struct text b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

static bool is(struct text a, const char *name)
{
    return equal(a, (struct text){name, strlen(name)});
}

bool edit_is_own_key(const void *key, size_t n)
{
    size_t split = sizeof(EDIT_SPLIT_PREFIX) - 1;
    return is((struct text){key, n}, EDIT_RESERVE_KEY) ||
           (n >= split && memcmp(key, EDIT_SPLIT_PREFIX, split) == 0);
}

static int refuse(struct err *e, int code, struct text name, const char *why)
{
    char shown[SHOW_MAX];
    return err_set(e, code, "key '%s': %s", show(shown, name.p, name.n), why);
}

static void link_slot(struct slots *s, uint32_t i, uint32_t after)
{
    uint32_t *from = after == NONE ? &s->first : &s->slot[after].next;
    s->slot[i].next = *from;
    *from = i;
    if (after == s->last)
        s->last = i;
}

static int add_slot(struct slots *s, struct slot slot, uint32_t after)
{
    int r = array_grow(&s->slot, &s->cap, s->n, sizeof(*s->slot));
    if (r < 0)
        return r;
    s->slot[s->n] = slot;
    link_slot(s, (uint32_t)s->n++, after);
    return 0;
}

static int mark_moved(struct slots *s, uint32_t i)
{
    int r = array_grow(&s->moved, &s->moved_cap, s->n_moved, sizeof(*s->moved));
    if (r == 0)
        s->moved[s->n_moved++] = i;
    return r;
}

static int load_slots(struct slots *s)
{
    int r = 0;
    for (uint32_t i = 0; i < s->g->n_kv && r == 0; i++) {
        const struct gguf_kv *kv = &s->g->kv[i];
        struct slot slot = {.name = {gguf_key(s->g, kv), kv->key_len}, .old = i, .type = kv->type};
        slot.gone = is(slot.name, EDIT_RESERVE_KEY); /* the plan makes a new one */
        r = add_slot(s, slot, s->last);
    }
    return r;
}

/* The slot of a name: of a key that is there, or (gone) of one that was removed; else NONE. */
static uint32_t find_slot(const struct slots *s, struct text name, bool gone)
{
    for (size_t k = s->n_moved; k-- > 0;) {
        const struct slot *at = &s->slot[s->moved[k]];
        if (at->gone == gone && equal(at->name, name))
            return s->moved[k];
    }
    uint32_t i = gguf_find_key(s->g, name.p, name.n);
    return i != NONE && !s->slot[i].renamed && s->slot[i].gone == gone ? i : NONE;
}

/* The operations on slots. */

/* The text of an operation's range. */
static struct text part(const struct edit_change *c, size_t at, size_t n)
{
    return (struct text){n ? c->bytes.data + at : (const uint8_t *)"", n};
}

static int check_name(struct text name, struct err *e)
{
    if (name.n == 0)
        return err_set(e, -EINVAL, "a key's name is empty");
    if (name.n > EDIT_MAX_KEY)
        return refuse(e, -EINVAL, name, "the name is over 65535 bytes");
    if (edit_is_own_key(name.p, name.n))
        return refuse(e, -EPERM, name, "is kept by the program itself");
    return 0;
}

int edit_check_value(const struct gguf *g, const void *key, size_t key_len, uint32_t type,
                     const void *value, size_t value_len, struct err *e)
{
    struct text name = {key, key_len};
    if (!is(name, alignment_key))
        return 0;
    if (type != GGUF_U32 || value_len != 4)
        return refuse(e, -EINVAL, name, "must be a u32");
    uint64_t v = get_u32(value, g->fmt.big);
    if (v == g->alignment) /* no edit, whatever it is */
        return 0;
    if (!is_pow2(v) || v < EDIT_MIN_ALIGNMENT || v > EDIT_MAX_ALIGNMENT)
        return refuse(e, -EINVAL, name, "must be a power of two from 8 to 1048576");
    return 0;
}

static int do_set(struct slots *s, const struct edit_change *c, const struct edit_op *op,
                  struct err *e)
{
    struct text name = part(c, op->key, op->key_len), value = part(c, op->arg, op->arg_len);
    int r = edit_check_value(s->g, name.p, name.n, op->type, value.p, value.n, e);
    if (r < 0)
        return r;
    uint32_t i = find_slot(s, name, false);
    if (i == NONE)
        i = find_slot(s, name, true);
    if (i != NONE) {
        s->slot[i].value = value;
        s->slot[i].type = op->type;
        s->slot[i].gone = false;
        return 0;
    }
    uint32_t after = op->after_len ? find_slot(s, part(c, op->after, op->after_len), false) : NONE;
    struct slot slot = {.name = name, .value = value, .old = NONE, .type = op->type};
    r = mark_moved(s, (uint32_t)s->n);
    return r < 0 ? r : add_slot(s, slot, after == NONE ? s->last : after);
}

static int do_remove(struct slots *s, const struct edit_change *c, const struct edit_op *op,
                     struct err *e)
{
    struct text name = part(c, op->key, op->key_len);
    if (is(name, architecture_key))
        return refuse(e, -EPERM, name, "cannot be removed");
    uint32_t i = find_slot(s, name, false);
    if (i == NONE)
        return refuse(e, -ENOENT, name, "is not there");
    s->slot[i].gone = true;
    return 0;
}

static int do_rename(struct slots *s, const struct edit_change *c, const struct edit_op *op,
                     struct err *e)
{
    struct text from = part(c, op->key, op->key_len), to = part(c, op->arg, op->arg_len);
    int r = check_name(to, e);
    if (r < 0)
        return r;
    if (is(from, alignment_key) || is(to, alignment_key))
        return refuse(e, -EINVAL, from, "general.alignment cannot be made or lost by renaming");
    if (is(from, architecture_key))
        return refuse(e, -EPERM, from, "cannot be renamed");
    uint32_t i = find_slot(s, from, false);
    if (i == NONE)
        return refuse(e, -ENOENT, from, "is not there");
    if (equal(from, to))
        return 0;
    if (find_slot(s, to, false) != NONE)
        return refuse(e, -EEXIST, to, "is there already");
    r = s->slot[i].renamed || s->slot[i].old == NONE ? 0 : mark_moved(s, i);
    if (r < 0)
        return r;
    s->slot[i].name = to;
    s->slot[i].renamed = true;
    return 0;
}

static int do_op(struct slots *s, const struct edit_change *c, const struct edit_op *op,
                 struct err *e)
{
    static int (*const run[])(struct slots *, const struct edit_change *, const struct edit_op *,
                              struct err *) = {
        [EDIT_SET] = do_set,
        [EDIT_REMOVE] = do_remove,
        [EDIT_RENAME] = do_rename,
    };
    int r = check_name(part(c, op->key, op->key_len), e);
    if (r == 0)
        r = run[op->kind](s, c, op, e);
    return r == -ENOMEM ? err_set(e, r, "no memory for the edit") : r;
}

/* The entries. */

static struct text old_value(const struct gguf *g, uint32_t i)
{
    return (struct text){g->head + g->kv[i].val_off, (size_t)(g->kv[i].end - g->kv[i].val_off)};
}

static struct edit_entry make_entry(struct buf *b, const struct gguf *g, const struct slot *slot)
{
    struct text value = slot->value.p ? slot->value : old_value(g, slot->old);
    struct edit_entry entry = {.made = true, .off = b->len};
    buf_uint(b, slot->name.n, g->fmt.len_width, g->fmt.big);
    buf_add(b, slot->name.p, slot->name.n);
    buf_uint(b, slot->type, 4, g->fmt.big);
    buf_add(b, value.p, value.n);
    entry.end = b->len;
    return entry;
}

static void put_entry(struct edit_keys *k, const struct gguf *g, const struct slot *slot)
{
    bool same = slot->old != NONE && !slot->renamed && !slot->value.p;
    if (same)
        k->entry[k->n++] =
            (struct edit_entry){.off = g->kv[slot->old].off, .end = g->kv[slot->old].end};
    else
        k->entry[k->n++] = make_entry(&k->bytes, g, slot);
}

static uint64_t alignment_of(const struct slots *s)
{
    uint32_t i = find_slot(s, (struct text){alignment_key, sizeof(alignment_key) - 1}, false);
    if (i == NONE)
        return GGUF_DEFAULT_ALIGNMENT;
    return s->slot[i].value.p ? get_u32(s->slot[i].value.p, s->g->fmt.big) : s->g->alignment;
}

static int put_entries(const struct slots *s, struct edit_keys *ret)
{
    struct edit_keys k = {.entry = malloc((s->n + 1) * sizeof(*k.entry))};
    if (!k.entry)
        return -ENOMEM;
    for (uint32_t i = s->first; i != NONE; i = s->slot[i].next)
        if (!s->slot[i].gone)
            put_entry(&k, s->g, &s->slot[i]);
    int r = buf_error(&k.bytes);
    if (r < 0) {
        edit_keys_free(&k);
        return r;
    }
    k.alignment = alignment_of(s);
    *ret = k;
    return 0;
}

int edit_apply(const struct gguf *g, const struct edit_change *c, struct edit_keys *ret,
               struct err *e)
{
    struct slots s = {.g = g, .first = NONE, .last = NONE};
    int r = load_slots(&s);
    if (r < 0)
        (void)err_set(e, r, "no memory for %u keys", g->n_kv);
    for (size_t i = 0; i < c->n && r == 0; i++)
        r = do_op(&s, c, &c->op[i], e);
    if (r == 0 && (r = put_entries(&s, ret)) < 0)
        (void)err_set(e, r, "no memory for the new header");
    free(s.slot);
    free(s.moved);
    return r;
}

void edit_keys_free(struct edit_keys *k)
{
    free(k->entry);
    buf_free(&k->bytes);
    *k = EDIT_KEYS_INIT;
}
