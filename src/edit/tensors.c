/* SPDX-License-Identifier: MIT */
/* Operations on tensors: see tensors.h. */
#include "edit/tensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "edit/slots.h"

/* ---- what is refused ---- */

static int refuse(struct err *e, int code, struct name name, const char *why)
{
    return slot_refuse(e, code, EDIT_TENSOR, name, why);
}

static int check_name(struct name name, struct err *e)
{
    if (name.n == 0)
        return err_set(e, -EINVAL, "a tensor's name is empty");
    if (memchr(name.p, 0, name.n))
        return refuse(e, -EINVAL, name, "the name has a NUL");
    if (name.n > EDIT_MAX_TENSOR_NAME)
        return refuse(e, -ENAMETOOLONG, name, "the name is over 63 bytes");
    return 0;
}

/* Every file of a split model states how many tensors there are in total. */
static int check_not_split(const struct edit_change *c, struct name name, struct err *e)
{
    static const char key[] = "split.tensors.count";
    static const char count[] = "split.count";
    if (gguf_find_key(c->on.g, key, sizeof(key) - 1) == EDIT_NONE &&
        gguf_find_key(c->on.g, count, sizeof(count) - 1) == EDIT_NONE)
        return 0;
    return refuse(e, -EOPNOTSUPP, name,
                  "the number of tensors of a split model cannot change: merge it first "
                  "(copy model.gguf out of the mount)");
}

/* ---- found ---- */

static struct edit_tensor of_base(const struct edit_change *c, uint32_t i)
{
    const struct name name = base_name(c, EDIT_TENSOR, i);
    return (struct edit_tensor){.id = ids_of(c->on.ids, i),
                                .old = i,
                                .nbytes = c->on.g->tensor[i].nbytes,
                                .rank = base_rank(c, EDIT_TENSOR, i),
                                .name = name.p,
                                .name_len = name.n};
}

static struct edit_tensor of_slot(const struct edit_change *c, const struct edit_slot *s)
{
    return (struct edit_tensor){.id = s->id,
                                .old = s->old,
                                .nbytes = s->content ? s->content->nbytes
                                                     : c->on.g->tensor[s->old].nbytes,
                                .rank = s->rank,
                                .name = s->name,
                                .name_len = s->name_len,
                                .content = s->content};
}

bool edit_tensor_find(const struct edit_change *c, const void *name, size_t n,
                      struct edit_tensor *ret)
{
    const struct edit_slot *s;
    if (!slot_find(c, EDIT_TENSOR, (struct name){name, n}, &s))
        return false;
    *ret = s ? of_slot(c, s) : of_base(c, gguf_find_tensor(c->on.g, name, n));
    return true;
}

bool edit_tensor_numbered(const struct edit_change *c, uint32_t number, struct edit_tensor *ret)
{
    for (struct link *l = table_first(&c->by_number, hash_number(number)); l; l = table_next(l)) {
        const struct edit_slot *s =
            (const struct edit_slot *)((const char *)l - offsetof(struct edit_slot, by_number));
        if (s->id.number == number && !s->gone) {
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

/* ---- operations ---- */

/* Versions have numbers up to here; beyond are those for tensors begun at the same time. */
#define NUMBERS_MOST (IDS_NONE - (1u << 20))

static int check_numbers(const struct edit_change *c, struct err *e)
{
    if (c->on.numbers && atomic_load(c->on.numbers) > NUMBERS_MOST)
        return err_set(e, -EOVERFLOW, "too many edits; mount it again");
    return 0;
}

int edit_tensor_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                       size_t to_len, struct err *e)
{
    const struct name old = {from, from_len}, now = {to, to_len};
    int r = name_same(old, now) ? 0 : check_name(now, e);
    if (r == 0)
        r = check_numbers(c, e);
    return r < 0 ? r : slot_rename(c, EDIT_TENSOR, old, now, e);
}

int edit_tensor_remove(struct edit_change *c, const void *name, size_t n, struct err *e)
{
    const struct name of = {name, n};
    int r = check_not_split(c, of, e);
    if (r == 0)
        r = check_numbers(c, e);
    return r < 0 ? r : slot_remove(c, EDIT_TENSOR, of, e);
}

/* Give a slot, which may be NULL, a content, taking a reference. */
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

/* A content that covers all bytes of a shape. */
static int make_whole(struct name name, const struct tensor_shape *shape,
                      const struct tensor_piece *piece, size_t n, struct tensor_content **ret,
                      struct err *e)
{
    uint64_t nbytes;
    int r = tensor_shape_bytes(shape, &nbytes, e);
    if (r < 0)
        return err_prefix(e, r, "tensor");
    r = tensor_content_make(shape, nbytes, NULL, piece, n, ret);
    if (r == 0 && !tensor_content_covers(*ret)) {
        tensor_content_unref(*ret);
        r = -EINVAL;
    }
    if (r == -ENOMEM)
        return err_set(e, r, "no memory for the edit");
    return r < 0 ? refuse(e, r, name, "its new bytes are not exactly those of its shape") : 0;
}

int edit_tensor_add(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, uint64_t rank, uint32_t number, struct err *e)
{
    const struct name of = {name, n};
    const struct edit_slot *removed;
    struct tensor_content *k;
    int r = check_name(of, e);
    if (r == 0)
        r = check_not_split(c, of, e);
    if (r == 0 && slot_find(c, EDIT_TENSOR, of, &removed))
        r = refuse(e, -EEXIST, of, "already exists");
    if (r == 0)
        r = check_numbers(c, e);
    if (r == 0)
        r = make_whole(of, shape, piece, pieces, &k, e);
    if (r < 0)
        return r;
    struct edit_slot *s = slot_new(EDIT_TENSOR, of, removed ? removed->rank : rank);
    if (s) {
        s->id = (struct tensor_id){number, number};
        s->gone = false;
    }
    return end_with(c, s, k, e);
}

/* Another shape for the existing bytes. */
static int reshape(const struct edit_change *c, const struct edit_tensor *t,
                   const struct tensor_shape *shape, struct tensor_content **ret, struct err *e)
{
    uint64_t nbytes;
    bool made = t->content && t->content->shape.n_dims;
    uint32_t type = made ? t->content->shape.type : c->on.g->tensor[t->old].type_id;
    int r = tensor_shape_bytes(shape, &nbytes, e);
    if (r < 0)
        return r;
    if (type != shape->type || nbytes != t->nbytes)
        return refuse(e, -EINVAL, (struct name){t->name, t->name_len},
                      "a shape of another size or type needs new bytes");
    r = tensor_content_make(shape, nbytes, t->content, NULL, 0, ret);
    return r < 0 ? err_set(e, r, "no memory for the edit") : 0;
}

int edit_tensor_set(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, struct err *e)
{
    const struct name of = {name, n};
    struct tensor_content *k;
    struct edit_tensor t;
    if (!edit_tensor_find(c, name, n, &t))
        return refuse(e, -ENOENT, of, "does not exist");
    int r = check_numbers(c, e);
    if (r == 0)
        r = pieces ? make_whole(of, shape, piece, pieces, &k, e) : reshape(c, &t, shape, &k, e);
    return r < 0 ? r : end_with(c, slot_begin(c, EDIT_TENSOR, of, of, 0), k, e);
}

int edit_tensor_write(struct edit_change *c, const void *name, size_t n,
                      const struct tensor_piece *piece, size_t pieces, struct err *e)
{
    const struct name of = {name, n};
    struct tensor_content *k;
    struct edit_tensor t;
    if (!edit_tensor_find(c, name, n, &t))
        return refuse(e, -ENOENT, of, "does not exist");
    int r = check_numbers(c, e);
    if (r < 0)
        return r;
    r = tensor_content_make(t.content ? &t.content->shape : NULL, t.nbytes, t.content, piece,
                            pieces, &k);
    if (r == -EINVAL)
        return refuse(e, r, of, "the new bytes do not lie in it, or not in order");
    if (r < 0)
        return err_set(e, r, "no memory for the edit");
    return end_with(c, slot_begin(c, EDIT_TENSOR, of, of, 0), k, e);
}

/* ---- the new list ---- */

int edit_change_tensors(const struct edit_change *c, struct edit_tensor **ret, size_t *n)
{
    struct slot_walk w;
    const struct edit_slot *s;
    uint32_t i;
    struct edit_tensor *all = malloc(((size_t)c->on.g->n_tensors + c->n + 1) * sizeof(*all));
    int r = slot_walk_begin(&w, c, EDIT_TENSOR);
    if (r < 0 || !all) {
        slot_walk_end(&w);
        free(all);
        return -ENOMEM;
    }
    for (*n = 0; slot_walk_next(&w, &s, &i);)
        all[(*n)++] = s ? of_slot(c, s) : of_base(c, i);
    slot_walk_end(&w);
    *ret = all;
    return 0;
}
