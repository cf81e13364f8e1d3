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
    char shown[SHOW_MAX];
    return err_set(e, code, "tensor '%s': %s", show(shown, name.p, name.n), why);
}

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory for the edit");
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

/* Every file of a split model says how many tensors all of them have. */
static int check_not_split(const struct edit_change *c, struct name name, struct err *e)
{
    static const char key[] = "split.tensors.count";
    static const char count[] = "split.count";
    if (gguf_find_key(c->base, key, sizeof(key) - 1) == EDIT_NONE &&
        gguf_find_key(c->base, count, sizeof(count) - 1) == EDIT_NONE)
        return 0;
    return refuse(e, -EOPNOTSUPP, name,
                  "the number of tensors of a split model cannot change: merge it first "
                  "(copy model.gguf out of the mount)");
}

/* ---- found ---- */

/* t is that of tensors, in the following. */
static struct edit_tensor of_base(const struct edit_change *t, uint32_t i)
{
    const struct gguf *g = t->base;
    const struct gguf_tensor *base = &g->tensor[i];
    return (struct edit_tensor){.id = ids_of(t->ids, i),
                                .old = i,
                                .place = i,
                                .nbytes = base->nbytes,
                                .rank = base_rank(t, i),
                                .name = gguf_name(g, base),
                                .name_len = base->name_len};
}

static struct edit_tensor of_slot(const struct edit_change *t, const struct edit_slot *s)
{
    return (struct edit_tensor){.id = s->id,
                                .old = s->again ? EDIT_NONE : s->old,
                                .place = s->old,
                                .nbytes = s->content ? s->content->nbytes
                                                     : t->base->tensor[s->old].nbytes,
                                .rank = s->rank,
                                .name = s->name,
                                .name_len = s->name_len,
                                .content = s->content};
}

/* The change of tensors; where none was touched, one without slots. */
static struct edit_change tensors_of(const struct edit_change *c)
{
    return c->tensors
               ? *c->tensors
               : (struct edit_change){
                     .base = c->base, .rank = c->tensor_rank, .ids = c->ids, .of_tensors = true};
}

bool edit_tensor_find(const struct edit_change *c, const void *name, size_t n,
                      struct edit_tensor *ret)
{
    const struct edit_change t = tensors_of(c);
    uint32_t i;
    if (!slots_find(&t, (struct name){name, n}, &i))
        return false;
    *ret =
        i != EDIT_NONE ? of_slot(&t, &t.slot[i]) : of_base(&t, gguf_find_tensor(c->base, name, n));
    return true;
}

bool edit_tensor_numbered(const struct edit_change *c, uint32_t number, struct edit_tensor *ret)
{
    const struct edit_change t = tensors_of(c);
    const uint32_t old = ids_find(c->ids, c->base->n_tensors, number);
    uint32_t i = old == IDS_NONE ? 0 : slot_of(&t, old);
    if (old != IDS_NONE && i == EDIT_NONE) {
        *ret = of_base(&t, old);
        return true;
    }
    for (; old == IDS_NONE && i < t.n && t.slot[i].id.number != number;)
        i++;
    if (i == t.n || t.slot[i].gone || t.slot[i].id.number != number)
        return false;
    *ret = of_slot(&t, &t.slot[i]);
    return true;
}

/* ---- operations ---- */

/* Versions have numbers up to here; beyond, what is begun at the same time gets its own. */
#define NUMBERS_MOST (IDS_NONE - (1u << 20))

/* What one operation needs. On failure all of it is undone. */
struct op {
    struct edit_change *c, *t;
    size_t mark;
    struct name name;
    struct err *e;
};

static int begin(struct op *op)
{
    const atomic_uint *numbers = op->c->numbers;
    op->mark = edit_mark(op->c);
    if (numbers && atomic_load(numbers) > NUMBERS_MOST)
        return err_set(op->e, -EOVERFLOW, "too many edits; mount it again");
    return slots_of_tensors(op->c, &op->t) < 0 ? no_memory(op->e) : 0;
}

static int end(struct op *op, int r)
{
    if (r == -ENOMEM)
        (void)no_memory(op->e);
    if (r == 0)
        r = edit_check_size(op->c, op->e);
    if (r < 0)
        edit_undo(op->c, op->mark);
    return r;
}

int edit_tensor_rename(struct edit_change *c, const void *from, size_t from_len, const void *to,
                       size_t to_len, struct err *e)
{
    struct op op = {.c = c, .name = {from, from_len}, .e = e};
    struct name now = {to, to_len};
    struct edit_tensor t;
    uint32_t i;
    if (!edit_tensor_find(c, from, from_len, &t))
        return refuse(e, -ENOENT, op.name, "does not exist");
    if (from_len == to_len && memcmp(from, to, to_len) == 0)
        return 0;
    int r = check_name(now, e);
    if (r < 0)
        return r;
    if (edit_tensor_find(c, to, to_len, &t))
        return refuse(e, -EEXIST, now, "already exists");
    r = begin(&op);
    if (r < 0)
        return r;
    r = slot_live(op.t, op.name, &i);
    if (r == 0)
        r = slot_rename(op.t, i, now);
    return end(&op, r);
}

int edit_tensor_remove(struct edit_change *c, const void *name, size_t n, struct err *e)
{
    struct op op = {.c = c, .name = {name, n}, .e = e};
    struct edit_tensor t;
    uint32_t i;
    if (!edit_tensor_find(c, name, n, &t))
        return refuse(e, -ENOENT, op.name, "does not exist");
    int r = check_not_split(c, op.name, e);
    if (r == 0)
        r = begin(&op);
    if (r < 0)
        return r;
    r = slot_live(op.t, op.name, &i);
    if (r == 0) {
        slot_set_gone(op.t, i, true);
        slot_set_content(op.t, i, NULL);
    }
    return end(&op, r);
}

/* All bytes of a shape. */
static int make_whole(const struct op *op, const struct tensor_shape *shape,
                      const struct tensor_piece *piece, size_t n, struct tensor_content **ret)
{
    uint64_t nbytes;
    int r = tensor_shape_bytes(shape, &nbytes, op->e);
    if (r < 0)
        return err_prefix(op->e, r, "tensor");
    struct tensor_content *k;
    r = tensor_content_make(shape, nbytes, NULL, piece, n, &k);
    if (r == 0 && !tensor_content_covers(k)) {
        tensor_content_unref(k);
        r = -EINVAL;
    }
    if (r == 0)
        *ret = k;
    if (r == -ENOMEM)
        return no_memory(op->e);
    return r < 0 ? refuse(op->e, r, op->name, "its new bytes are not exactly those of its shape")
                 : 0;
}

int edit_tensor_add(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, uint64_t rank, uint32_t number, struct err *e)
{
    struct op op = {.c = c, .name = {name, n}, .e = e};
    struct tensor_content *k = NULL;
    struct edit_tensor t;
    uint32_t i;
    int r = check_name(op.name, e);
    if (r == 0)
        r = check_not_split(c, op.name, e);
    if (r == 0 && edit_tensor_find(c, name, n, &t))
        r = refuse(e, -EEXIST, op.name, "already exists");
    if (r == 0)
        r = make_whole(&op, shape, piece, pieces, &k);
    if (r == 0)
        r = begin(&op);
    if (r < 0) {
        tensor_content_unref(k);
        return r;
    }
    i = slot_named(op.t, op.name);
    r = i == EDIT_NONE ? slot_add(op.t, op.name, rank, &i) : slot_save(op.t, i);
    if (r == 0) {
        slot_set_content(op.t, i, k);
        op.t->slot[i].id = (struct tensor_id){number, number};
        op.t->slot[i].again = op.t->slot[i].old != EDIT_NONE;
        slot_set_gone(op.t, i, false);
    }
    tensor_content_unref(k);
    return end(&op, r);
}

/* Give an existing tensor a content, whose reference is taken. */
static int change(struct op *op, struct tensor_content *k)
{
    uint32_t i;
    int r = begin(op);
    if (r == 0) {
        r = slot_live(op->t, op->name, &i);
        if (r == 0)
            slot_set_content(op->t, i, k);
        r = end(op, r);
    }
    tensor_content_unref(k);
    return r;
}

/* Another shape for the bytes that there are. */
static int reshape(struct op *op, const struct edit_tensor *t, const struct tensor_shape *shape)
{
    struct tensor_content *k;
    uint64_t nbytes;
    bool made = t->content && t->content->shape.n_dims;
    uint32_t type = made ? t->content->shape.type : op->c->base->tensor[t->old].type_id;
    int r = tensor_shape_bytes(shape, &nbytes, op->e);
    if (r < 0)
        return r;
    if (type != shape->type || nbytes != t->nbytes)
        return refuse(op->e, -EINVAL, op->name, "a shape of another size or type needs new bytes");
    r = tensor_content_make(shape, nbytes, t->content, NULL, 0, &k);
    return r < 0 ? no_memory(op->e) : change(op, k);
}

int edit_tensor_set(struct edit_change *c, const void *name, size_t n,
                    const struct tensor_shape *shape, const struct tensor_piece *piece,
                    size_t pieces, struct err *e)
{
    struct op op = {.c = c, .name = {name, n}, .e = e};
    struct tensor_content *k;
    struct edit_tensor t;
    if (!edit_tensor_find(c, name, n, &t))
        return refuse(e, -ENOENT, op.name, "does not exist");
    if (pieces == 0)
        return reshape(&op, &t, shape);
    int r = make_whole(&op, shape, piece, pieces, &k);
    return r < 0 ? r : change(&op, k);
}

int edit_tensor_write(struct edit_change *c, const void *name, size_t n,
                      const struct tensor_piece *piece, size_t pieces, struct err *e)
{
    struct op op = {.c = c, .name = {name, n}, .e = e};
    struct tensor_content *k;
    struct edit_tensor t;
    if (!edit_tensor_find(c, name, n, &t))
        return refuse(e, -ENOENT, op.name, "does not exist");
    const struct tensor_shape *shape = t.content ? &t.content->shape : NULL;
    int r = tensor_content_make(shape, t.nbytes, t.content, piece, pieces, &k);
    if (r == -EINVAL)
        return refuse(e, r, op.name, "the new bytes do not lie in it, or not in order");
    return r < 0 ? no_memory(e) : change(&op, k);
}

/* ---- the new list ---- */

int edit_change_tensors(const struct edit_change *c, struct edit_tensor **ret, size_t *n)
{
    const struct edit_change t = tensors_of(c);
    size_t at = 0, count = 0, slots;
    struct edit_tensor *all = malloc(((size_t)c->base->n_tensors + t.n + 1) * sizeof(*all));
    struct ranked *list = malloc((t.n + 1) * sizeof(*list));
    if (!all || !list) {
        free(all);
        free(list);
        return -ENOMEM;
    }
    slots = slots_by_rank(&t, list);
    for (uint32_t i = 0; i < c->base->n_tensors; i++) {
        for (; at < slots && list[at].rank < base_rank(&t, i); at++)
            all[count++] = of_slot(&t, &t.slot[list[at].slot]);
        if (slot_of(&t, i) == EDIT_NONE)
            all[count++] = of_base(&t, i);
    }
    for (; at < slots; at++)
        all[count++] = of_slot(&t, &t.slot[list[at].slot]);
    free(list);
    *ret = all;
    *n = count;
    return 0;
}

bool edit_change_is_empty(const struct edit_change *c)
{
    return c->n == 0 && (!c->tensors || c->tensors->n == 0);
}
