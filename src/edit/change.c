/* SPDX-License-Identifier: MIT */
/* Operations on keys, and the header entries that result from them: see change.h. */
#include "edit/change.h"

#include <assert.h>
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
    return slot_refuse(e, code, EDIT_KEY, name, why);
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

/* ---- the change ---- */

void edit_change_on(struct edit_change *c, const struct edit_base *base)
{
    const struct gguf *g = base->g;
    const uint32_t reserve = gguf_find_key(g, KEY_RESERVE, sizeof(KEY_RESERVE) - 1);
    *c =
        (struct edit_change){.on = *base, .bytes = g->head_len, .data = g->file_size - g->data_off};
    if (reserve != EDIT_NONE) /* the plan makes a new one */
        c->bytes -= g->kv[reserve].end - g->kv[reserve].off;
}

void edit_change_init(struct edit_change *c, const struct gguf *base, const uint64_t *rank)
{
    edit_change_on(c, &(struct edit_base){.g = base, .rank = rank});
}

void edit_undo(struct edit_change *c, size_t mark)
{
    assert(mark <= c->n_undo);
    while (c->n_undo > mark)
        slot_undo(c, &c->undo[--c->n_undo]);
}

void edit_keep(struct edit_change *c, size_t mark)
{
    assert(mark <= c->n_undo);
    for (size_t i = 0; i < mark; i++)
        slot_free(c->undo[i].was);
    c->n_undo -= mark;
    if (c->n_undo)
        memmove(c->undo, c->undo + mark, c->n_undo * sizeof(*c->undo));
}

void edit_change_drop_values(struct edit_change *c)
{
    edit_keep(c, c->n_undo);
    for (size_t i = 0; i < c->n; i++) {
        edit_value_unref(c->slot[i]->value);
        tensor_content_unref(c->slot[i]->content);
        c->slot[i]->value = NULL;
        c->slot[i]->content = NULL;
    }
}

void edit_change_free(struct edit_change *c)
{
    edit_keep(c, c->n_undo);
    for (size_t i = 0; i < c->n; i++)
        slot_free(c->slot[i]);
    table_free(&c->by_name);
    table_free(&c->by_number);
    free((void *)c->slot);
    free((void *)c->slot_of);
    free(c->undo);
    *c = (struct edit_change){0};
}

static bool differs(const struct edit_change *c, const struct edit_slot *s)
{
    if (s->old == EDIT_NONE)
        return !s->gone;
    return s->gone || s->value || s->content ||
           !name_same(base_name(c, s->kind, s->old), slot_name(s));
}

size_t edit_change_count(const struct edit_change *c, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n && n < most; i++)
        n += differs(c, c->slot[i]);
    return n;
}

/* ---- operations ---- */

bool edit_find(const struct edit_change *c, const void *key, size_t n, const struct edit_slot **ret)
{
    return slot_find(c, EDIT_KEY, (struct name){key, n}, ret);
}

int edit_set(struct edit_change *c, const void *key, size_t key_len, struct edit_value *value,
             uint64_t rank, struct err *e)
{
    struct name name = {key, key_len};
    int r = check_name(name, e);
    if (r == 0)
        r = edit_check_value(c->on.g, key, key_len, value->type, value->bytes.data,
                             value->bytes.len, e);
    if (r < 0)
        return r;
    struct edit_slot *s = slot_begin(c, EDIT_KEY, name, name, rank);
    if (s) {
        edit_value_unref(s->value);
        s->value = edit_value_ref(value);
        s->gone = false;
    }
    return slot_end(c, s, e);
}

int edit_remove(struct edit_change *c, const void *key, size_t key_len, struct err *e)
{
    struct name name = {key, key_len};
    int r = check_name(name, e);
    if (r == 0 && name_is(name, architecture_key))
        r = refuse(e, -EPERM, name, "cannot be removed");
    return r < 0 ? r : slot_remove(c, EDIT_KEY, name, e);
}

int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len, struct err *e)
{
    struct name old = {from, from_len}, now = {to, to_len};
    int r = check_name(old, e);
    if (r == 0)
        r = check_name(now, e);
    if (r == 0 && (name_is(old, alignment_key) || name_is(now, alignment_key)))
        r = refuse(e, -EINVAL, old, "general.alignment cannot be made or lost by renaming");
    if (r == 0 && name_is(old, architecture_key))
        r = refuse(e, -EPERM, old, "cannot be renamed");
    return r < 0 ? r : slot_rename(c, EDIT_KEY, old, now, e);
}

/* ---- entries ---- */

static void put_slot(struct buf *b, const struct gguf *g, const struct edit_slot *s)
{
    const struct gguf_kv *kv = s->value ? NULL : &g->kv[s->old];
    buf_uint(b, s->name_len, g->fmt.len_width, g->fmt.big);
    buf_add(b, s->name, s->name_len);
    buf_uint(b, kv ? kv->type : s->value->type, 4, g->fmt.big);
    if (kv)
        buf_add(b, g->head + kv->val_off, (size_t)(kv->end - kv->val_off));
    else
        buf_add(b, s->value->bytes.data, s->value->bytes.len);
}

uint64_t edit_alignment(const struct edit_change *c)
{
    const struct edit_slot *s;
    if (!edit_find(c, alignment_key, sizeof(alignment_key) - 1, &s))
        return GGUF_DEFAULT_ALIGNMENT;
    return s && s->value ? get_u32(s->value->bytes.data, c->on.g->fmt.big) : c->on.g->alignment;
}

int edit_change_keys(const struct edit_change *c, struct buf *b, struct edit_entry **ret, size_t *n)
{
    const struct gguf *g = c->on.g;
    const struct edit_slot *s;
    struct slot_walk w;
    uint32_t i;
    *n = 0;
    *ret = malloc(((size_t)g->n_kv + c->n + 1) * sizeof(**ret));
    int r = slot_walk_begin(&w, c, EDIT_KEY);
    while (r == 0 && *ret && slot_walk_next(&w, &s, &i)) {
        if (s)
            put_slot(b, g, s);
        else if (name_is(base_name(c, EDIT_KEY, i), KEY_RESERVE))
            continue;
        else
            buf_add(b, g->head + g->kv[i].off, (size_t)(g->kv[i].end - g->kv[i].off));
        (*ret)[(*n)++] = (struct edit_entry){b->len, s ? s->rank : base_rank(c, EDIT_KEY, i)};
    }
    slot_walk_end(&w);
    if (r == 0 && *ret && buf_error(b) == 0)
        return 0;
    free(*ret);
    *ret = NULL;
    return -ENOMEM;
}
