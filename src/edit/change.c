/* SPDX-License-Identifier: MIT */
/* Slots, and operations on keys and tensors: see change.h. */
#include "edit/change.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "quant/quant.h"
#include "text/text.h"

#define MIN_ALIGNMENT ((uint64_t)8)
/*
 * The highest version number. The numbers above it are reserved for tensors that other threads
 * begin at the same time.
 */
#define NUMBERS_MOST (IDS_NONE - (1u << 20))

static const char alignment_key[] = "general.alignment";
static const char architecture_key[] = "general.architecture";

/* ---- values ---- */

static void value_unref(struct edit_value *v)
{
    if (!REF_DROP(v))
        return;
    buf_free(&v->bytes);
    free(v);
}

/* ---- names, and the base ---- */

static bool name_same(struct text a, struct text b)
{
    return a.len == b.len && memcmp(a.at, b.at, b.len) == 0;
}

static struct text slot_name(const struct edit_slot *s)
{
    return (struct text){s->name, s->name_len};
}

static uint32_t base_find(const struct edit_change *c, enum edit_what kind, struct text name)
{
    return kind == EDIT_TENSOR ? gguf_find_tensor(c->on.g, name.at, name.len)
                               : gguf_find_key(c->on.g, name.at, name.len);
}

/* The rank of key or tensor i of the base. The gaps leave room for keys that are restored. */
static uint64_t base_rank(uint32_t i)
{
    return ((uint64_t)i + 1) << 32;
}

/* The rank after all others. */
#define LAST UINT64_MAX

/* Returns the slot of key or tensor i of the base, or NULL if no operation touched it. */
static struct edit_slot *slot_of(const struct edit_change *c, enum edit_what kind, uint32_t i)
{
    return c->slot_of ? c->slot_of[kind == EDIT_KEY ? i : c->on.g->n_kv + i] : NULL;
}

/*
 * Returns true if an object has this name after the change. Sets *ret to its slot or, if there is
 * none, to the slot of the last object of this name that was removed or renamed, or to NULL.
 */
static bool slot_find(const struct edit_change *c, enum edit_what kind, struct text name,
                      const struct edit_slot **ret)
{
    const struct edit_slot *found = NULL;
    struct link *l = table_first(&c->by_name, hash_name(name.at, name.len));
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

/* Returns the size of a tensor info: name, dimensions, type and offset. */
static uint64_t info_bytes(size_t name_len, uint32_t n_dims)
{
    return 8 + name_len + 4 + (uint64_t)n_dims * 8 + 4 + 8;
}

/* Returns the size of a slot's entry in the base's header. */
static uint64_t base_entry(const struct gguf *g, const struct edit_slot *s)
{
    if (s->old == EDIT_NONE)
        return 0;
    if (s->kind == EDIT_TENSOR)
        return info_bytes(g->tensor[s->old].name_len, g->tensor[s->old].n_dims);
    return g->kv[s->old].end - g->kv[s->old].off;
}

/* Returns the size of a slot's entry after the change. */
static uint64_t entry_bytes(const struct gguf *g, const struct edit_slot *s)
{
    if (s->gone)
        return 0;
    if (s->kind == EDIT_TENSOR)
        return info_bytes(s->name_len, s->content && s->content->shape.n_dims
                                           ? s->content->shape.n_dims
                                           : g->tensor[s->old].n_dims);
    const uint64_t value =
        s->value ? s->value->bytes.len : g->kv[s->old].end - g->kv[s->old].val_off;
    return g->fmt.len_width + s->name_len + 4 + value;
}

/* Adds a slot's differences from the base to the counts, or subtracts them. */
static void count(struct edit_change *c, const struct edit_slot *s, bool now)
{
    const uint64_t sign = now ? 1 : UINT64_MAX; /* modulo 2^64 */
    c->bytes += sign * (entry_bytes(c->on.g, s) - base_entry(c->on.g, s));
    c->tensors += (size_t)sign * (s->kind == EDIT_TENSOR);
}

/* ---- slots changed ---- */

static void slot_free(struct edit_slot *s) /* may be NULL */
{
    if (!s)
        return;
    value_unref(s->value);
    tensor_content_unref(s->content);
    free(s);
}

/*
 * Gives a slot a value that takes over these bytes, and returns the slot. s may be NULL. If memory has
 * run out, frees the slot and returns NULL.
 */
static struct edit_slot *slot_set(struct edit_slot *s, uint32_t type, struct buf *bytes)
{
    struct edit_value *v = s && !buf_error(bytes) ? calloc(1, sizeof(*v)) : NULL;
    if (!v) {
        slot_free(s);
        return NULL;
    }
    atomic_init(&v->refs, 1);
    v->type = type;
    v->bytes = *bytes;
    *bytes = BUF_INIT;
    value_unref(s->value);
    s->value = v;
    s->gone = false;
    return s;
}

/* Copies a slot under another name. Returns NULL if out of memory. */
static struct edit_slot *copy(const struct edit_slot *from, struct text to)
{
    struct edit_slot *s = malloc(sizeof(*s) + to.len + 1);
    if (!s)
        return NULL;
    *s = *from;
    (void)REF(s->value);
    (void)REF(s->content);
    s->name_len = to.len;
    memcpy(s->name, to.at, to.len);
    s->name[to.len] = '\0';
    return s;
}

/* Returns the first slot of a new object, marked as gone, or NULL if out of memory. */
static struct edit_slot *slot_new(enum edit_what kind, struct text to, uint64_t rank)
{
    const struct edit_slot first = {.kind = kind,
                                    .gone = true,
                                    .old = EDIT_NONE,
                                    .at = EDIT_NONE,
                                    .rank = rank,
                                    .id = {IDS_NONE, IDS_NONE}};
    return copy(&first, to);
}

/*
 * Begins an operation. Returns a copy of the object's slot, or a new slot if it has none; the
 * caller changes this slot and passes it to slot_end(), which replaces the old one. `to`: the new
 * name. Returns NULL if out of memory.
 */
static struct edit_slot *slot_begin(const struct edit_change *c, enum edit_what kind,
                                    struct text name, struct text to)
{
    const struct edit_slot *s;
    const bool found = slot_find(c, kind, name, &s);
    if (s)
        return copy(s, to);
    if (!found)
        return slot_new(kind, to, LAST);
    struct edit_slot first = {.kind = kind, .old = base_find(c, kind, name), .at = EDIT_NONE};
    first.rank = base_rank(first.old);
    if (kind == EDIT_TENSOR)
        first.id = ids_of(c->on.ids, first.old);
    return copy(&first, to);
}

/* Makes room for another slot and another undo; the first call also allocates slot_of. */
static int slot_room(struct edit_change *c)
{
    const size_t all = (size_t)c->on.g->n_kv + c->on.g->n_tensors + 1;
    if (!c->slot_of && !(c->slot_of = (struct edit_slot **)calloc(all, sizeof(*c->slot_of))))
        return -ENOMEM;
    int r = array_grow((void *)&c->slot, &c->cap, c->n, sizeof(*c->slot));
    return r < 0 ? r : array_grow(&c->undo, &c->cap_undo, c->n_undo, sizeof(*c->undo));
}

/*
 * Replaces one slot with another; either may be NULL. Returns 0, or -ENOMEM with nothing changed.
 * Putting back an earlier slot never runs out of memory.
 */
static int exchange(struct edit_change *c, struct edit_slot *was, struct edit_slot *now)
{
    const struct edit_slot *any = now ? now : was;
    int r = now ? table_add(&c->by_name, &now->by_name, hash_name(now->name, now->name_len)) : 0;
    if (r < 0)
        return r;
    if (was) {
        table_remove(&c->by_name, &was->by_name);
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

void edit_undo(struct edit_change *c, size_t mark)
{
    assert(mark <= c->n_undo);
    while (c->n_undo > mark) {
        const struct edit_undo u = c->undo[--c->n_undo];
        struct edit_slot *now = c->slot[u.at];
        (void)exchange(c, now, u.was);
        slot_free(now);
    }
}

static int check_limits(const struct edit_change *c, struct err *e)
{
    if (c->bytes > GGUF_MAX_HEADER)
        return err_set(e, -EFBIG, "the header would be over %llu bytes",
                       (unsigned long long)GGUF_MAX_HEADER);
    if (c->tensors && c->on.numbers && atomic_load(c->on.numbers) > NUMBERS_MOST)
        return err_set(e, -EOVERFLOW, "too many edits; unmount the model and mount it again");
    return 0;
}

/*
 * Ends an operation. Takes ownership of s, which is NULL if memory ran out. Returns 0, or -ENOMEM,
 * -EFBIG or -EOVERFLOW with nothing changed.
 */
static int slot_end(struct edit_change *c, struct edit_slot *s, struct err *e)
{
    const size_t mark = edit_mark(c);
    int r = s ? slot_room(c) : -ENOMEM;
    struct edit_slot *was = s && s->at != EDIT_NONE ? c->slot[s->at] : NULL;
    if (r == 0) {
        s->serial = ++c->serial;
        s->at = was ? s->at : (uint32_t)c->n;
        r = exchange(c, was, s);
    }
    if (r < 0) {
        slot_free(s);
        return err_set(e, r, "no memory for the edit");
    }
    c->undo[c->n_undo++] = (struct edit_undo){s->at, was};
    r = check_limits(c, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}

/* ---- the change as a whole ---- */

void edit_change_init(struct edit_change *c, const struct edit_base *base)
{
    const struct gguf *g = base->g;
    const uint32_t reserve = gguf_find_key(g, KEY_RESERVE, sizeof(KEY_RESERVE) - 1);
    *c = (struct edit_change){.on = *base, .bytes = g->head_len};
    if (reserve != EDIT_NONE) /* the plan makes a new one */
        c->bytes -= g->kv[reserve].end - g->kv[reserve].off;
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

void edit_change_free(struct edit_change *c)
{
    edit_keep(c, c->n_undo);
    for (size_t i = 0; i < c->n; i++)
        slot_free(c->slot[i]);
    table_free(&c->by_name);
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
           !name_same(gguf_name_of(c->on.g, s->kind == EDIT_KEY, s->old), slot_name(s));
}

size_t edit_change_count(const struct edit_change *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        n += differs(c, c->slot[i]);
    return n;
}

void edit_describe(const struct edit_change *c, const struct edit_slot *s, struct buf *out)
{
    char old[SHOW_MAX], now[SHOW_MAX];
    const struct gguf *g = c->on.g;
    const bool known = s->old != EDIT_NONE;
    const struct gguf_tensor *t = known && s->kind == EDIT_TENSOR ? &g->tensor[s->old] : NULL;
    const struct gguf_kv *kv = known && !t ? &g->kv[s->old] : NULL;
    const struct tensor_content *k = t ? s->content : NULL;
    const struct quant_type *was = t ? quant_find(t->type_id) : NULL;
    const struct quant_type *is = k && k->shape.n_dims ? quant_find(k->shape.type) : was;
    (void)show(now, s->name, s->name_len);
    (void)(t    ? show(old, gguf_name(g, t), t->name_len)
           : kv ? show(old, gguf_key(g, kv), kv->key_len)
                : strcpy(old, now));
    buf_printf(out, "%s: ", old);
    const bool renamed = strcmp(old, now) != 0;
    if (s->gone || !known) {
        buf_str(out, s->gone ? "removed" : "new");
        return;
    }
    if (renamed)
        buf_printf(out, "renamed to %s%s", now, k ? ", " : "");
    if (was != is && was && is)
        buf_printf(out, "%s -> %s", was->name, is->name);
    else if (k || !renamed)
        buf_str(out, "changed");
}

/* ---- what is refused ---- */

static int change_refuse(struct err *e, int code, enum edit_what kind, struct text name,
                         const char *why)
{
    char shown[SHOW_MAX];
    return err_set(e, code, "%s '%s': %s", kind == EDIT_KEY ? "key" : "tensor",
                   show(shown, name.at, name.len), why);
}

static int check_key(struct text name, struct err *e)
{
    if (name.len == 0)
        return err_set(e, -EINVAL, "a key's name is empty");
    if (name.len > EDIT_MAX_KEY)
        return change_refuse(e, -EINVAL, EDIT_KEY, name, "the name is over 65535 bytes");
    if (key_is_own(name.at, name.len))
        return change_refuse(e, -EPERM, EDIT_KEY, name, "is maintained by ggufs itself");
    return 0;
}

int edit_check_value(const struct gguf *g, const void *key, size_t key_len, uint32_t type,
                     const void *value, size_t value_len, struct err *e)
{
    struct text name = {key, key_len};
    if (!text_is(name, alignment_key))
        return 0;
    if (type != GGUF_U32 || value_len != 4)
        return change_refuse(e, -EINVAL, EDIT_KEY, name, "must be a u32");
    uint64_t v = get_u32(value, g->fmt.big);
    if (!is_pow2(v) || v < MIN_ALIGNMENT || v > EDIT_MAX_ALIGNMENT)
        return change_refuse(e, -EINVAL, EDIT_KEY, name,
                             "must be a power of two from 8 to 1048576");
    return 0;
}

static int check_tensor(struct text name, struct err *e)
{
    if (name.len == 0)
        return err_set(e, -EINVAL, "a tensor's name is empty");
    if (memchr(name.at, 0, name.len))
        return change_refuse(e, -EINVAL, EDIT_TENSOR, name, "the name contains a NUL");
    if (name.len > EDIT_MAX_TENSOR_NAME)
        return change_refuse(e, -ENAMETOOLONG, EDIT_TENSOR, name, "the name is over 63 bytes");
    return 0;
}

/* Refuses the operation in a split model, where every file states the total number of tensors. */
static int check_not_split(const struct edit_change *c, struct text name, struct err *e)
{
    static const char key[] = "split.tensors.count";
    static const char count[] = "split.count";
    if (gguf_find_key(c->on.g, key, sizeof(key) - 1) == EDIT_NONE &&
        gguf_find_key(c->on.g, count, sizeof(count) - 1) == EDIT_NONE)
        return 0;
    return change_refuse(e, -EOPNOTSUPP, EDIT_TENSOR, name,
                         "the number of tensors of a split model cannot change: merge it first "
                         "(copy model.gguf out of the mount)");
}

/* ---- operations on keys and tensors ---- */

static int slot_remove(struct edit_change *c, enum edit_what kind, struct text name, struct err *e)
{
    const struct edit_slot *found;
    if (!slot_find(c, kind, name, &found))
        return change_refuse(e, -ENOENT, kind, name, "does not exist");
    struct edit_slot *s = slot_begin(c, kind, name, name);
    if (s) {
        tensor_content_unref(s->content);
        s->content = NULL;
        s->gone = true;
    }
    return slot_end(c, s, e);
}

static int slot_rename(struct edit_change *c, enum edit_what kind, struct text from, struct text to,
                       struct err *e)
{
    const struct edit_slot *found;
    if (!slot_find(c, kind, from, &found))
        return change_refuse(e, -ENOENT, kind, from, "does not exist");
    if (name_same(from, to))
        return 0;
    if (slot_find(c, kind, to, &found))
        return change_refuse(e, -EEXIST, kind, to, "already exists");
    return slot_end(c, slot_begin(c, kind, from, to), e);
}

/* ---- keys ---- */

bool edit_find(const struct edit_change *c, const void *key, size_t n, const struct edit_slot **ret)
{
    return slot_find(c, EDIT_KEY, (struct text){key, n}, ret);
}

int edit_set(struct edit_change *c, const void *key, size_t key_len, uint32_t type,
             struct buf *bytes, struct err *e)
{
    struct text name = {key, key_len};
    int r = check_key(name, e);
    if (r == 0)
        r = edit_check_value(c->on.g, key, key_len, type, bytes->data, bytes->len, e);
    if (r < 0)
        return r;
    return slot_end(c, slot_set(slot_begin(c, EDIT_KEY, name, name), type, bytes), e);
}

int edit_remove(struct edit_change *c, const void *key, size_t key_len, struct err *e)
{
    struct text name = {key, key_len};
    int r = check_key(name, e);
    if (r == 0 && text_is(name, architecture_key))
        r = change_refuse(e, -EPERM, EDIT_KEY, name, "cannot be removed");
    return r < 0 ? r : slot_remove(c, EDIT_KEY, name, e);
}

int edit_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                size_t to_len, struct err *e)
{
    struct text old = {from, from_len}, now = {to, to_len};
    int r = check_key(old, e);
    if (r == 0)
        r = check_key(now, e);
    if (r == 0 && (text_is(old, alignment_key) || text_is(now, alignment_key)))
        r = change_refuse(e, -EINVAL, EDIT_KEY, old,
                          "renaming cannot create or remove general.alignment");
    if (r == 0 && text_is(old, architecture_key))
        r = change_refuse(e, -EPERM, EDIT_KEY, old, "cannot be renamed");
    return r < 0 ? r : slot_rename(c, EDIT_KEY, old, now, e);
}

uint64_t edit_alignment(const struct edit_change *c)
{
    const struct edit_slot *s;
    if (!edit_find(c, alignment_key, sizeof(alignment_key) - 1, &s))
        return GGUF_DEFAULT_ALIGNMENT;
    return s && s->value ? get_u32(s->value->bytes.data, c->on.g->fmt.big) : c->on.g->alignment;
}

/* ---- tensors ---- */

static struct edit_tensor of_base(const struct edit_change *c, uint32_t i)
{
    const struct text name = gguf_name_of(c->on.g, false, i);
    return (struct edit_tensor){.id = ids_of(c->on.ids, i),
                                .old = i,
                                .nbytes = c->on.g->tensor[i].nbytes,
                                .name = name.at,
                                .name_len = name.len};
}

static struct edit_tensor of_slot(const struct edit_change *c, const struct edit_slot *s)
{
    return (struct edit_tensor){.id = s->id,
                                .old = s->old,
                                .nbytes = s->content ? s->content->nbytes
                                                     : c->on.g->tensor[s->old].nbytes,
                                .name = s->name,
                                .name_len = s->name_len,
                                .content = s->content};
}

bool edit_tensor_find(const struct edit_change *c, const void *name, size_t n,
                      struct edit_tensor *ret)
{
    const struct edit_slot *s;
    if (!slot_find(c, EDIT_TENSOR, (struct text){name, n}, &s))
        return false;
    *ret = s ? of_slot(c, s) : of_base(c, gguf_find_tensor(c->on.g, name, n));
    return true;
}

bool edit_tensor_numbered(const struct edit_change *c, uint32_t number, struct edit_tensor *ret)
{
    for (size_t i = 0; c->tensors && i < c->n; i++) {
        const struct edit_slot *s = c->slot[i];
        if (s->kind == EDIT_TENSOR && s->id.number == number && !s->gone) {
            *ret = of_slot(c, s);
            return true;
        }
    }
    const uint32_t old = ids_find(c->on.ids, c->on.g->n_tensors, number);
    if (old == IDS_NONE || slot_of(c, EDIT_TENSOR, old))
        return false;
    *ret = of_base(c, old);
    return true;
}

int edit_tensor_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                       size_t to_len, struct err *e)
{
    const struct text old = {from, from_len}, now = {to, to_len};
    int r = name_same(old, now) ? 0 : check_tensor(now, e);
    return r < 0 ? r : slot_rename(c, EDIT_TENSOR, old, now, e);
}

int edit_tensor_remove(struct edit_change *c, const void *name, size_t n, struct err *e)
{
    const struct text of = {name, n};
    int r = check_not_split(c, of, e);
    return r < 0 ? r : slot_remove(c, EDIT_TENSOR, of, e);
}

/* Ends an operation that sets a tensor's content. Takes ownership of s and k; s may be NULL. */
static int end_with(struct edit_change *c, struct edit_slot *s, struct tensor_content *k,
                    struct err *e)
{
    if (!s) {
        tensor_content_unref(k);
        return slot_end(c, s, e);
    }
    tensor_content_unref(s->content);
    s->content = k;
    if (c->on.numbers)
        s->id.version = atomic_fetch_add(c->on.numbers, 1);
    return slot_end(c, s, e);
}

/* Creates content: the pieces over `old` or, if `whole`, the pieces, which must supply all bytes. */
static int make_content(struct text name, const struct tensor_shape *shape, uint64_t nbytes,
                        const struct tensor_content *old, bool whole,
                        const struct tensor_piece *piece, size_t n, struct tensor_content **ret,
                        struct err *e)
{
    int r = tensor_content_make(shape, nbytes, whole ? NULL : old, piece, n, ret);
    if (r == 0 && whole && !tensor_content_covers(*ret)) {
        tensor_content_unref(*ret);
        r = -EINVAL;
    }
    return r == -EINVAL
               ? change_refuse(e, r, EDIT_TENSOR, name,
                               "the new bytes are not in order, or do not fit type and shape")
           : r < 0 ? err_set(e, r, "no memory for the edit")
                   : 0;
}

int edit_tensor_add(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, uint32_t number, struct err *e)
{
    const struct text of = {name, n};
    const struct edit_slot *removed;
    struct tensor_content *k;
    uint64_t nbytes;
    int r = check_tensor(of, e);
    if (r == 0)
        r = check_not_split(c, of, e);
    if (r == 0 && slot_find(c, EDIT_TENSOR, of, &removed))
        r = change_refuse(e, -EEXIST, EDIT_TENSOR, of, "already exists");
    if (r == 0)
        r = tensor_shape_bytes(shape, &nbytes, e);
    if (r == 0)
        r = make_content(of, shape, nbytes, NULL, true, piece, pieces, &k, e);
    if (r < 0)
        return r;
    struct edit_slot *s = slot_new(EDIT_TENSOR, of, removed ? removed->rank : LAST);
    if (s) {
        s->id = (struct tensor_id){number, number};
        s->gone = false;
    }
    return end_with(c, s, k, e);
}

int edit_tensor_set(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, struct err *e)
{
    const struct text of = {name, n};
    struct tensor_content *k;
    struct edit_tensor t;
    if (!edit_tensor_find(c, name, n, &t))
        return change_refuse(e, -ENOENT, EDIT_TENSOR, of, "does not exist");
    const bool made = t.content && t.content->shape.n_dims;
    uint64_t nbytes = t.nbytes;
    bool whole = false;
    int r = shape ? tensor_shape_bytes(shape, &nbytes, e) : 0;
    if (shape)
        whole = nbytes != t.nbytes ||
                shape->type != (made ? t.content->shape.type : c->on.g->tensor[t.old].type_id);
    else if (made)
        shape = &t.content->shape;
    if (r == 0)
        r = make_content(of, shape, nbytes, t.content, whole, piece, pieces, &k, e);
    return r < 0 ? r : end_with(c, slot_begin(c, EDIT_TENSOR, of, of), k, e);
}

/* ---- listed ---- */

/* A key or tensor after the change, with its slot (or NULL) and its number in the base. */
struct item {
    const struct edit_slot *slot;
    uint32_t old;
};

static int by_rank(const void *a, const void *b)
{
    const struct edit_slot *x = ((const struct item *)a)->slot, *y = ((const struct item *)b)->slot;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/*
 * Lists all keys or tensors by rank, and sets *n to their number. At equal rank, those without a
 * slot come first. Returns NULL if out of memory.
 */
static struct item *list(const struct edit_change *c, enum edit_what kind, size_t *n)
{
    const uint32_t all = kind == EDIT_KEY ? c->on.g->n_kv : c->on.g->n_tensors;
    struct item *item = malloc((all + c->n + 1) * sizeof(*item)), *slot = item + all;
    size_t slots = 0, k = 0;
    if (!item)
        return NULL;
    for (size_t i = 0; i < c->n; i++)
        if (c->slot[i]->kind == kind && !c->slot[i]->gone)
            slot[slots++] = (struct item){c->slot[i], c->slot[i]->old};
    if (slots)
        qsort(slot, slots, sizeof(*slot), by_rank);
    *n = 0;
    for (uint32_t i = 0; i < all; i++) {
        if (slot_of(c, kind, i))
            continue;
        while (k < slots && slot[k].slot->rank < base_rank(i))
            item[(*n)++] = slot[k++];
        item[(*n)++] = (struct item){NULL, i};
    }
    memmove(item + *n, slot + k, (slots - k) * sizeof(*slot));
    *n += slots - k;
    return item;
}

static void slot_put(struct buf *b, const struct gguf *g, const struct edit_slot *s)
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

int edit_change_keys(const struct edit_change *c, struct buf *b, uint64_t **ret, size_t *n)
{
    const struct gguf *g = c->on.g;
    size_t all;
    struct item *item = list(c, EDIT_KEY, &all);
    uint64_t *end = item ? malloc((all + 1) * sizeof(*end)) : NULL;
    *n = 0;
    for (size_t k = 0; end && k < all; k++) {
        const struct edit_slot *s = item[k].slot;
        const uint32_t i = item[k].old;
        if (s)
            slot_put(b, g, s);
        else if (text_is(gguf_name_of(c->on.g, true, i), KEY_RESERVE))
            continue;
        else
            buf_add(b, g->head + g->kv[i].off, (size_t)(g->kv[i].end - g->kv[i].off));
        end[(*n)++] = b->len;
    }
    free(item);
    *ret = end;
    return end ? buf_error(b) : -ENOMEM;
}

int edit_change_tensors(const struct edit_change *c, struct edit_tensor **ret, size_t *n)
{
    size_t all = 0;
    struct item *item = list(c, EDIT_TENSOR, &all);
    struct edit_tensor *t = item ? malloc((all + 1) * sizeof(*t)) : NULL;
    for (size_t k = 0; t && k < all; k++)
        t[k] = item[k].slot ? of_slot(c, item[k].slot) : of_base(c, item[k].old);
    free(item);
    if (!t)
        return -ENOMEM;
    *ret = t;
    *n = all;
    return 0;
}

/* ---- all keys restored ---- */

bool edit_key_is_own(const struct gguf *g, uint32_t kv)
{
    return key_is_own(gguf_key(g, &g->kv[kv]), g->kv[kv].key_len);
}

uint64_t edit_keys_id(const struct gguf *g)
{
    uint64_t id = g->fmt.big;
    for (uint32_t i = 0; i < g->n_kv; i++)
        if (!edit_key_is_own(g, i))
            id = xxh64(id, g->head + g->kv[i].off, (size_t)(g->kv[i].end - g->kv[i].off));
    return id;
}

bool edit_same_entry(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k)
{
    uint64_t n = a->kv[i].end - a->kv[i].off;
    return n == b->kv[k].end - b->kv[k].off &&
           memcmp(a->head + a->kv[i].off, b->head + b->kv[k].off, (size_t)n) == 0;
}

/* Restores key k. *last: the rank of the key before it, or 0. The key keeps its place if it is after
 * that one, or else comes right after it. */
static int restore_key(struct edit_change *c, const struct gguf *keys, uint32_t k, uint64_t *last,
                       struct err *e)
{
    const struct gguf_kv *kv = &keys->kv[k];
    const struct text name = {gguf_key(keys, kv), kv->key_len};
    const uint32_t old = base_find(c, EDIT_KEY, name);
    const bool exists = old != EDIT_NONE, same = exists && edit_same_entry(c->on.g, old, keys, k);
    const bool stays = exists && base_rank(old) > *last;
    *last = stays ? base_rank(old) : *last + 1;
    if (stays && same)
        return 0;
    struct edit_slot *s = slot_begin(c, EDIT_KEY, name, name);
    if (s)
        s->rank = *last;
    if (same)
        return slot_end(c, s, e);
    CLEANUP(buf_free) struct buf bytes = BUF_INIT;
    buf_add(&bytes, keys->head + kv->val_off, (size_t)(kv->end - kv->val_off));
    return slot_end(c, slot_set(s, kv->type, &bytes), e);
}

int edit_restore(struct edit_change *c, const struct gguf *keys, struct err *e)
{
    const size_t mark = edit_mark(c);
    uint64_t last = 0;
    int r = 0;
    if (memcmp(&c->on.g->fmt, &keys->fmt, sizeof(keys->fmt)) != 0)
        return err_set(e, -EINVAL,
                       "the keys are from a file with another byte order or GGUF version");
    for (uint32_t kv = 0; kv < c->on.g->n_kv && r == 0; kv++) {
        const struct text name = gguf_name_of(c->on.g, true, kv);
        if (!edit_key_is_own(c->on.g, kv) && gguf_find_key(keys, name.at, name.len) == EDIT_NONE)
            r = slot_remove(c, EDIT_KEY, name, e);
    }
    for (uint32_t k = 0; k < keys->n_kv && r == 0; k++)
        if (!edit_key_is_own(keys, k))
            r = restore_key(c, keys, k, &last, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}

/* ---- values as they are shown ---- */

void shown_free(struct shown *s)
{
    snapshot_unref(s->snap);
    *s = SHOWN_NONE;
}

bool shown_value(const struct shown *s, struct gguf_value *ret)
{
    if (s->snap)
        *ret = gguf_value(s->snap->gguf, &s->snap->gguf->kv[s->kv]);
    return s->snap;
}

bool shown_is(const struct shown *s, uint32_t type, const struct buf *bytes)
{
    if (!s->snap)
        return false;
    const struct gguf *g = s->snap->gguf;
    const struct gguf_kv *kv = &g->kv[s->kv];
    return kv->type == type && kv->end - kv->val_off == bytes->len &&
           memcmp(g->head + kv->val_off, bytes->data, bytes->len) == 0;
}

void shown_text(const struct shown *s, struct buf *out)
{
    struct gguf_value v;
    if (shown_value(s, &v))
        text_value(out, &v);
}

uint64_t shown_size(const struct shown *s)
{
    _Atomic(uint64_t) *cache = &s->snap->key_size[s->kv];
    const uint64_t known = atomic_load_explicit(cache, memory_order_relaxed);
    if (known)
        return known - 1;
    struct buf m = BUF_MEASURE;
    shown_text(s, &m);
    atomic_store_explicit(cache, m.len + 1, memory_order_relaxed);
    return m.len;
}
