/* SPDX-License-Identifier: MIT */
/* Tensors: see tensors.h. */
#include "tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "hooks.h"

#define TENSORS ino_row(1)

/* ---- forms ---- */

enum { F32 = 0, Q8_0 = 8, I32 = 26, BLOCK = 32, BLOCK_BYTES = 34 };
static const struct {
    const char *name;
    uint32_t id;
    size_t bytes;
} types[FORMS] = {{"F32", F32, FLOATS * 4},
                  {"Q8_0", Q8_0, FLOATS / BLOCK *BLOCK_BYTES},
                  {"I32", I32, FLOATS * 4}};
static const struct {
    const char *text, *numpy;
    uint64_t dims[2];
} shapes[FORMS] = {{"3008", "(3008,)", {3008, 1}},
                   {"47 64", "(47, 64)", {64, 47}},
                   {"94 32", "(94, 32)", {32, 94}}};

unsigned token_of_type(uint32_t type)
{
    for (unsigned i = 0; i < FORMS; i++)
        if (types[i].id == type)
            return TOKEN_FIRST + i;
    return TOKEN_OTHER;
}

unsigned token_of_shape(uint32_t n, const uint64_t *dims)
{
    for (unsigned i = 0; i < FORMS; i++)
        if (n >= 1 && n <= 2 && dims[0] == shapes[i].dims[0] &&
            (n == 1 ? 1 : dims[1]) == shapes[i].dims[1])
            return TOKEN_FIRST + i;
    return TOKEN_OTHER;
}

/* Rounds a number below 8192 to one that a half-precision float holds exactly. */
static unsigned rounded(unsigned n)
{
    const unsigned unit = n >= 4096 ? 4 : n >= 2048 ? 2 : 1;
    const unsigned down = n / unit, twice = 2 * (n % unit);
    return (down + (twice > unit || (twice == unit && down % 2))) * unit;
}

/* Returns a rounded number as a half-precision float. */
static uint16_t half_of(unsigned n)
{
    unsigned exponent = 0;
    while (n >> (exponent + 1))
        exponent++;
    return n ? (uint16_t)((exponent + 15) << 10 | ((n << 10 >> exponent) & 1023)) : 0;
}

/* Writes the unit that the data repeats, and returns its size. */
static size_t block_of(unsigned form, unsigned token, uint8_t dst[BLOCK_BYTES])
{
    const uint32_t whole = 127 * token; /* the value that a Q8_0 block holds exactly */
    const float value = (float)whole;
    uint32_t word;
    memcpy(&word, &value, sizeof(word));
    if (types[form].id == I32)
        word = whole;
    memset(dst, 127, BLOCK_BYTES);
    if (types[form].id == Q8_0) {
        dst[0] = (uint8_t)half_of(token);
        dst[1] = (uint8_t)(half_of(token) >> 8);
        return BLOCK_BYTES;
    }
    for (size_t i = 0; i < 4; i++)
        dst[i] = (uint8_t)(word >> 8 * i);
    return 4;
}

size_t tensors_bytes(unsigned form, unsigned token, uint8_t *dst)
{
    uint8_t block[BLOCK_BYTES];
    const size_t n = block_of(form, token, block);
    for (size_t i = 0; i < types[form].bytes; i += n)
        memcpy(dst + i, block, n);
    return types[form].bytes;
}

unsigned tensors_token(uint32_t type, const uint8_t *bytes, size_t n)
{
    uint8_t block[BLOCK_BYTES];
    unsigned form = token_of_type(type) - TOKEN_FIRST;
    if (form >= FORMS || n < types[form].bytes)
        return TOKEN_OTHER;
    for (unsigned token = TOKEN_FIRST; token < TOKENS; token++) {
        size_t len = block_of(form, token, block);
        if (memcmp(bytes, block, len) == 0)
            return memcmp(bytes, bytes + len, types[form].bytes - len) == 0 ? token : TOKEN_OTHER;
    }
    return TOKEN_OTHER;
}

/* ---- what the oracle knows ---- */

static struct oracle *of(const struct kernel *k)
{
    return &k->w->oracle;
}

static uint32_t bit(int name)
{
    return (uint32_t)1 << (name - KEYS);
}

static unsigned type_reg(int name)
{
    return (unsigned)(TYPES + name - KEYS);
}

static unsigned shape_reg(int name)
{
    return (unsigned)(SHAPES + name - KEYS);
}

bool tensors_unsettled(const struct kernel *k)
{
    bool may = false;
    for (int i = KEYS; i < REGS; i++)
        may |= k->made[i].may;
    return may;
}

static void widen_made(struct kernel *k, int name, uint64_t content, uint64_t type, uint64_t shape)
{
    const uint64_t masks[] = {content, type, shape};
    for (unsigned i = 0; i < 3; i++)
        oracle_widen(of(k), (unsigned)k->made[name].of[i], masks[i]);
}

/* Records that, from now on, a new tensor of this name with these values may be incomplete. */
static void may_make(struct kernel *k, int name, uint64_t content, uint64_t type, uint64_t shape)
{
    struct made_tensor *m = &k->made[name];
    m->whole = false;
    if (m->may) {
        widen_made(k, name, content, type, shape);
        return;
    }
    m->may = true;
    m->of[0] = (int)oracle_begin(of(k), (unsigned)name, content);
    m->of[1] = (int)oracle_begin(of(k), type_reg(name), type);
    m->of[2] = (int)oracle_begin(of(k), shape_reg(name), shape);
}

static void end_made(struct kernel *k, int name, enum outcome how)
{
    for (unsigned i = 0; i < 3; i++)
        oracle_end(of(k), (unsigned)k->made[name].of[i], how);
    k->made[name].may = k->made[name].whole = false;
}

void tensors_written(struct kernel *k, int name, uint64_t mask)
{
    if (!is_tensor(name) || !k->made[name].may)
        return;
    widen_made(k, name, mask | BIT(TOKEN_OTHER), 0, 0);
    k->changes[name]++;
}

uint32_t tensors_whole(const struct kernel *k)
{
    uint32_t whole = 0;
    for (int i = KEYS; i < REGS; i++)
        if (k->made[i].may && k->made[i].whole && k->made[i].changes == k->changes[i])
            whole |= bit(i);
    /* a new tensor is not added while any of its files is open */
    for (unsigned i = 0; i < k->objects; i++)
        if (is_tensor(k->object[i].name) && k->object[i].handles)
            whole &= ~bit(k->object[i].name);
    return whole;
}

void tensors_added(struct kernel *k, uint32_t whole)
{
    whole &= tensors_whole(k);
    for (int i = KEYS; i < REGS; i++)
        if (whole & bit(i))
            end_made(k, i, DURABLE);
}

/* Begins a step that reaches a tensor through the inode number of its directory. The masks are the
 * possible results, under each name that the tensor has during the step. */
static void enter(struct program *p, int name, uint64_t content, uint64_t type, uint64_t shape)
{
    p->names_of = bit(name);
    p->content = content;
    p->type = type;
    p->shape = shape;
}

static void leave(struct program *p)
{
    p->judges = 0;
    p->names_of = 0;
}

/* Also assigns to the tensor's earlier name, which is restored if a rename cannot be written.
 * Returns -1 if the tensor had no other name. */
static int begin_back(struct kernel *k, int name, unsigned first, uint64_t mask)
{
    const int old = k->came[name] - 1;
    return old < 0 ? -1 : (int)oracle_begin(of(k), first + (unsigned)(old - KEYS), mask);
}

static void end_back(struct kernel *k, int back, uint64_t mask)
{
    if (back < 0)
        return;
    oracle_widen(of(k), (unsigned)back, mask);
    oracle_end(of(k), (unsigned)back, k->w->disk.hits ? PERHAPS : FAILED);
}

struct tensor_move tensors_move_begin(struct kernel *k, int from, int next)
{
    struct tensor_move m = {from, next, -1, -1, k->made[from].may};
    k->changes[from]++;
    if (next < 0)
        return m;
    k->changes[next]++;
    k->begun[next] = k->begun[from] > k->begun[next] ? k->begun[from] : k->begun[next];
    for (unsigned i = 0; i < ACTORS; i++) {
        struct program *p = &k->program[i];
        if (!(p->names_of & bit(from)))
            continue;
        p->names_of |= bit(next);
        may_make(k, next, p->content, p->type, p->shape);
    }
    m.type = (int)oracle_begin(of(k), type_reg(next),
                               oracle_may(of(k), type_reg(from), 0, UINT64_MAX, false));
    m.shape = (int)oracle_begin(of(k), shape_reg(next),
                                oracle_may(of(k), shape_reg(from), 0, UINT64_MAX, false));
    return m;
}

void tensors_move_end(struct kernel *k, const struct tensor_move *m, int made, int r,
                      enum outcome how)
{
    k->changes[m->from]++;
    if (m->next < 0)
        return;
    k->changes[m->next]++;
    if (r < 0 || !m->making) {
        oracle_end(of(k), (unsigned)m->type, how);
        oracle_end(of(k), (unsigned)m->shape, how);
        return;
    }
    /* Under its new name the tensor is new and incomplete, or already part of the model. */
    if (k->made[m->next].may) {
        const int also[] = {made, m->type, m->shape};
        for (unsigned i = 0; i < 3; i++)
            oracle_widen(of(k), (unsigned)k->made[m->next].of[i], of(k)->a[also[i]].mask);
        return;
    }
    k->made[m->next] = (struct made_tensor){
        .may = true, .of = {made, m->type, m->shape}, .open = k->made[m->next].open};
}

/* ---- calls ---- */

static int look_once(struct program *p, int name, const char *view, struct tree_entry *ret)
{
    struct kernel *k = p->k;
    struct tree_entry dir;
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_lookup(k->t, TENSORS, names[name], view ? &dir : ret));
    if (r < 0 || !view)
        return r;
    (void)kernel_begin(p);
    r = kernel_end(p, tree_lookup(k->t, dir.node, view, ret));
    tree_forget(k->t, dir.node, 1);
    return r;
}

/* Looks up the path, and tries again if a part of it has disappeared in the meantime. */
static int look_up(struct program *p, int name, const char *view, struct tree_entry *ret)
{
    int r = look_once(p, name, view, ret);
    return r == -ESTALE ? look_once(p, name, view, ret) : r;
}

static int open_view(struct program *p, int name, const char *view, int flags, struct tree_file **f,
                     uint64_t *node)
{
    struct kernel *k = p->k;
    struct tree_entry e;
    int r = -ESTALE;
    for (unsigned i = 0; i < 2 && r == -ESTALE; i++) {
        lock_take(&k->dir);
        r = look_up(p, name, view, &e);
        lock_drop(&k->dir);
        if (r < 0)
            continue;
        (void)kernel_begin(p);
        r = kernel_end(p, tree_open_file(k->t, e.node, flags, f));
        *node = e.node;
        if (r < 0)
            kernel_later(k, NULL, e.node, -1);
    }
    return r;
}

/* Does what open(2) with O_CREAT and O_TRUNC does. */
static int create(struct program *p, uint64_t dir, const char *view, struct tree_file **f,
                  uint64_t *node)
{
    struct kernel *k = p->k;
    struct tree_entry e;
    lock_take(&k->dir);
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_lookup(k->t, dir, view, &e));
    bool there = r == 0;
    (void)kernel_begin(p);
    if (r == -ENOENT)
        r = tree_create(k->t, dir, view, O_WRONLY | O_CREAT | O_TRUNC, &e, f);
    r = kernel_end(p, r);
    lock_drop(&k->dir);
    if (there) {
        (void)kernel_begin(p);
        r = kernel_end(p, tree_open_file(k->t, e.node, O_WRONLY | O_TRUNC, f));
        if (r < 0)
            kernel_later(k, NULL, e.node, -1);
    }
    if (r == 0)
        *node = e.node;
    return r;
}

static int write_some(struct program *p, struct tree_file *f, uint64_t off, const void *bytes,
                      size_t n)
{
    struct live_wait *w = kernel_begin(p);
    return kernel_end(p, tree_write(f, off, bytes, n, f->converts ? w : NULL));
}

static int write_all(struct program *p, struct tree_file *f, uint64_t off, const uint8_t *bytes,
                     size_t n)
{
    const size_t first = n > 2 * PAGE ? 2 * PAGE : n;
    int r = write_some(p, f, off, bytes, first);
    return r == 0 && first < n ? write_some(p, f, off + first, bytes + first, n - first) : r;
}

static int flush(struct program *p, struct tree_file *f)
{
    struct live_wait *w = kernel_begin(p);
    return kernel_end(p, tree_flush(f, w));
}

/* Returns whether concurrent steps of other programs explain the error. */
static bool is_usual(int r)
{
    return r == -ENOENT || r == -ESTALE || r == -EBUSY || r == -EEXIST;
}

/* ---- type, shape ---- */

static void step_form(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    const bool is_type = s->word == W_TYPE;
    const unsigned form = s->n % FORMS;
    const uint64_t mask = BIT(TOKEN_FIRST + form);
    const unsigned reg = is_type ? type_reg(s->name) : shape_reg(s->name);
    struct tree_file *f;
    uint64_t node = 0;
    char text[16];
    int n = snprintf(text, sizeof(text), "%s\n", is_type ? types[form].name : shapes[form].text);
    const unsigned stamp = ++k->changes[s->name];
    bool making = k->made[s->name].may;
    if (making)
        widen_made(k, s->name, BIT(TOKEN_OTHER), is_type ? mask : 0, is_type ? 0 : mask);
    bool wrote = false, alone = true; /* alone: no concurrent step truncates what this one writes */
    unsigned made = oracle_begin(of(k), reg, mask);
    const int back = begin_back(k, s->name, is_type ? TYPES : SHAPES, mask);
    for (unsigned i = 0; i < ACTORS; i++) {
        if (!(k->program[i].names_of & bit(s->name)))
            continue;
        alone = false;
        if (k->program[i].judges) /* in a different type, the same bytes are different values */
            oracle_widen(of(k), (unsigned)k->program[i].judges - 1, BIT(TOKEN_OTHER));
    }
    enter(p, s->name, 0, is_type ? mask : 0, is_type ? 0 : mask);
    int r = open_view(p, s->name, is_type ? "type" : "shape", O_WRONLY | O_TRUNC, &f, &node);
    if (r == 0) {
        r = write_some(p, f, 0, text, (size_t)n);
        wrote = r == 0;
        int closed = flush(p, f);
        kernel_later(k, f, node, -1);
        r = r < 0 ? r : closed;
    }
    bool sure = alone && k->changes[s->name] == stamp && p->names_of == bit(s->name);
    making |= k->made[s->name].may;
    leave(p);
    k->changes[s->name]++;
    enum outcome good = kernel_durable_close(k) ? DURABLE : ACCEPTED;
    oracle_end(of(k), made,
               r < 0 && !wrote            ? kernel_failed(k, r)
               : r < 0 || !sure || making ? PERHAPS
                                          : good);
    end_back(k, back, 0);
    bool other = oracle_ever(of(k), s->name) & (BIT(TOKEN_OTHER) | BIT(TOKEN_EMPTY));
    kernel_expect(p, is_type ? "type" : "shape", r,
                  is_usual(r) || (other && (r == -EDOM || r == -ERANGE)) ||
                      (making && r == -EINVAL));
    if (r == 0 && good == DURABLE)
        kernel_look_disk(k, "after a conversion");
}

/* ---- new tensors ---- */

/* NumPy headers: good ones, then one that is good only for a single dimension, then those of an
 * array of doubles, of more or fewer elements, one that is cut off, and one that is damaged. */
enum head { PLAIN, VERSION_2, HALF, FORTRAN, DOUBLE, LARGE, SMALL, CUT, DAMAGED, HEADS };
enum { HEAD = 128, HEAD_CUT = 40 };

/* Writes a NumPy header. Returns its size. */
static size_t head_of(enum head head, unsigned shape, uint8_t *dst)
{
    const size_t fixed = head == VERSION_2 ? 12 : 10;
    int n = snprintf((char *)dst + fixed, HEAD - fixed,
                     "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }",
                     head == HALF     ? "<f2"
                     : head == DOUBLE ? "<f8"
                                      : "<f4",
                     head == FORTRAN ? "True" : "False",
                     head == LARGE   ? "(64, 64)"
                     : head == SMALL ? "(32, 32)"
                                     : shapes[shape].numpy);
    memcpy(dst, "\x93NUMPY\1\0\0\0\0\0", fixed);
    dst[6] = head == VERSION_2 ? 2 : 1;
    dst[8] = (uint8_t)(HEAD - fixed);
    memset(dst + fixed + n, ' ', HEAD - fixed - (size_t)n);
    dst[HEAD - 1] = '\n';
    dst[5] ^= head == DAMAGED && shape == 0;
    dst[HEAD / 4] ^= head == DAMAGED && shape > 0;
    return head == CUT ? HEAD_CUT : HEAD;
}

/* Writes the values that follow such a header. Returns their size. */
static size_t values_of(enum head head, unsigned token, uint8_t *dst)
{
    const uint16_t half = half_of(rounded(127 * token));
    for (size_t i = 0; i < FLOATS && head == HALF; i++) {
        dst[2 * i] = (uint8_t)half;
        dst[2 * i + 1] = (uint8_t)(half >> 8);
    }
    return head == HALF ? (size_t)FLOATS * 2 : tensors_bytes(0, token, dst);
}

/* Views in the orders in which programs write them. The type in the last order is invalid, so it is
 * refused. */
enum { ORDERS = 7, NO_TYPE = 6 };

/* Generates the content of one view of a new tensor. Returns its size. */
static size_t content_of(const struct step *s, const char *view, uint8_t *dst)
{
    const unsigned form = s->n2 % FORMS, shape = s->n2 / FORMS % FORMS;
    if (strcmp(view, "f32.npy") == 0)
        return head_of(PLAIN, shape, dst) + values_of(PLAIN, s->n, dst + HEAD);
    if (strcmp(view, "raw") == 0)
        return tensors_bytes(form, s->n, dst);
    if (strcmp(view, "f32") == 0)
        return tensors_bytes(0, s->n, dst);
    return (size_t)snprintf((char *)dst, 16, "%s\n",
                            strcmp(view, "type") != 0                     ? shapes[shape].text
                            : s->n2 / (FORMS * FORMS) % ORDERS == NO_TYPE ? "Q9"
                                                                          : types[form].name);
}

static int put_view(struct program *p, const struct step *s, uint64_t dir, const char *view)
{
    static uint8_t room[ACTORS][FLOATS * 4 + 256];
    uint8_t *bytes = room[p->number];
    struct tree_file *f;
    uint64_t node = 0;
    size_t n = content_of(s, view, bytes);
    int r = create(p, dir, view, &f, &node);
    if (r < 0)
        return r;
    r = write_all(p, f, 0, bytes, n);
    int closed = flush(p, f);
    kernel_later(p->k, f, node, s->name);
    return r < 0 ? r : closed;
}

/* Nanoseconds without a write after which a new tensor is judged. */
#define QUIET UINT64_C(2000000000)

static void step_add(struct program *p, const struct step *s)
{
    static const char *const orders[][4] = {{"type", "shape", "raw"},
                                            {"raw", "type", "shape"},
                                            {"shape", "type", "f32"},
                                            {"f32", "raw", "shape", "type"},
                                            {"f32.npy"},
                                            {"f32.npy"},
                                            {"f32", "shape", "type"}};
    struct kernel *k = p->k;
    const unsigned order = s->n2 / (FORMS * FORMS) % ORDERS;
    const unsigned form = order >= 4 ? 0 : s->n2 % FORMS;
    const uint64_t content = BIT(s->n), type = order == NO_TYPE ? 0 : BIT(TOKEN_FIRST + form);
    const uint64_t shape = BIT(TOKEN_FIRST + s->n2 / FORMS % FORMS);
    const uint64_t begun = sched_now();
    struct tree_entry dir;
    lock_take(&k->dir);
    const unsigned stamp = ++k->changes[s->name];
    bool made = k->made[s->name].may, before = made;
    may_make(k, s->name, content | (before ? BIT(TOKEN_OTHER) : 0), type, shape);
    for (unsigned i = 0; i < ACTORS; i++)
        if (k->program[i].names_of & bit(s->name)) {
            widen_made(k, s->name, k->program[i].content | BIT(TOKEN_OTHER), k->program[i].type,
                       k->program[i].shape);
            before = true;
        }
    enter(p, s->name, content | BIT(TOKEN_OTHER), type, shape);
    (void)kernel_begin(p);
    int r = kernel_end(p, tree_mkdir(k->t, TENSORS, names[s->name], &dir));
    if (r < 0 && !made)
        end_made(k, s->name, FAILED);
    lock_drop(&k->dir);
    kernel_expect(p, "mkdir", r, r == -EEXIST);
    for (unsigned i = 0; i < 4 && orders[order][i] && r == 0; i++)
        r = put_view(p, s, dir.node, orders[order][i]);
    /* without a valid type, it was complete for a while, as F32 */
    if (order == NO_TYPE && sched_now() - begun >= QUIET)
        widen_made(k, s->name, 0, BIT(TOKEN_FIRST), 0);
    kernel_expect(p, "a new tensor", r,
                  is_usual(r) || r == -EPERM || (r == -EINVAL && order == NO_TYPE) ||
                      k->changes[s->name] != stamp || before);
    leave(p);
    if (dir.node && r == 0)
        kernel_later(k, NULL, dir.node, -1);
    k->made[s->name].whole = r == 0 && !before && k->changes[s->name] == stamp;
    k->made[s->name].changes = stamp;
}

/* ---- a file beside raw ---- */

/* Returns a mask of the values that the tensor's drafts may have. */
static uint64_t drafts(const struct kernel *k, int name)
{
    uint64_t mask = 0;
    for (unsigned i = 0; i < k->objects; i++) {
        const struct object *o = &k->object[i];
        if (o->writers && (o->name == name || (o->moved && o->old_name == name)))
            mask |= o->content | o->seen | BIT(TOKEN_OTHER);
    }
    return mask;
}

static unsigned flushes(const struct kernel *k, int name)
{
    unsigned n = 0;
    for (unsigned i = 0; i < k->objects; i++)
        n += k->object[i].name == name ? k->object[i].judged : 0;
    return n;
}

/* Returns whether the tensor may ever have had a type other than F32. */
static bool is_other(const struct kernel *k, int name)
{
    return oracle_ever(of(k), type_reg(name)) & ~BIT(TOKEN_FIRST);
}

static void step_swap(struct program *p, const struct step *s)
{
    static uint8_t room[ACTORS][FLOATS * 4];
    struct kernel *k = p->k;
    struct tree_entry dir;
    struct tree_file *f;
    char name[] = ".raw.Tmp00A";
    uint64_t node = 0;
    const bool early = s->n2;
    name[10] = (char)('A' + p->number);
    const unsigned stamp = k->changes[s->name], flushed = flushes(k, s->name);
    uint64_t mask = BIT(s->n);
    if (early || is_other(k, s->name))
        mask |= BIT(TOKEN_OTHER);
    lock_take(&k->dir);
    enter(p, s->name, mask | BIT(TOKEN_OTHER), 0, 0);
    int r = look_up(p, s->name, NULL, &dir);
    lock_drop(&k->dir);
    kernel_expect(p, "lookup", r, r == -ENOENT);
    if (r < 0) {
        leave(p);
        return;
    }
    r = create(p, dir.node, name, &f, &node);
    bool opened = r == 0;
    if (r == 0)
        r = write_all(p, f, 0, room[p->number], tensors_bytes(0, s->n, room[p->number]));
    if (r == 0 && !early)
        r = flush(p, f);
    lock_take(&k->dir);
    mask |= drafts(k, s->name) | (is_other(k, s->name) ? BIT(TOKEN_OTHER) : 0);
    kernel_disturb(k, s->name, mask, 1);
    tensors_written(k, s->name, mask);
    unsigned made = oracle_begin(of(k), s->name, mask);
    const int back = begin_back(k, s->name, KEYS, mask);
    p->judges = (int)made + 1;
    if (r == 0) {
        struct live_wait *w = kernel_begin(p);
        r = kernel_end(p, tree_rename(k->t, dir.node, name, dir.node, "raw", 0, w));
    }
    if (r < 0) {
        (void)kernel_begin(p);
        (void)kernel_end(p, tree_unlink(k->t, dir.node, name));
    }
    kernel_disturb(k, s->name, mask, -1);
    lock_drop(&k->dir);
    bool sure = !early && (mask & (mask - 1)) == 0 && k->changes[s->name] == stamp;
    if (opened && early) {
        int closed = flush(p, f);
        r = r < 0 ? r : closed;
        oracle_widen(of(k), made, drafts(k, s->name));
        kernel_disturb(k, s->name, mask, 0);
    }
    sure &= !is_other(k, s->name) && !k->made[s->name].may && p->names_of == bit(s->name);
    leave(p);
    /* While the file is open, an fsync of the view judges it again. */
    enum outcome lost = opened && early && k->w->disk.hits ? PERHAPS : kernel_failed(k, r);
    enum outcome good = kernel_durable_close(k) ? DURABLE : ACCEPTED;
    oracle_end(of(k), made, r < 0 ? lost : sure ? good : PERHAPS);
    end_back(k, back, of(k)->a[made].mask);
    if (opened)
        kernel_later(k, f, node, -1);
    kernel_later(k, NULL, dir.node, -1);
    kernel_expect(p, "a file beside raw", r,
                  is_usual(r) || ((r == -EINVAL || r == -EFBIG) &&
                                  (early || is_other(k, s->name) || (mask & (mask - 1)) ||
                                   drafts(k, s->name) || kernel_cuts(k, s->name) ||
                                   flushes(k, s->name) != flushed)));
}

/* ---- looks, and rm -r ---- */

enum { ENTRIES = 40 };

static unsigned list(struct program *p, uint64_t node, char name[ENTRIES][TREE_NAME_MAX + 1],
                     int *ret)
{
    struct kernel *k = p->k;
    struct tree_dir *d;
    struct tree_entry e;
    uint64_t cookie = 0;
    unsigned n = 0;
    int r;
    (void)kernel_begin(p);
    *ret = kernel_end(p, tree_opendir(k->t, node, &d));
    if (*ret < 0)
        return 0;
    (void)kernel_begin(p);
    while (n < ENTRIES && (r = tree_readdir(k->t, d, &cookie, false, name[n], &e)) > 0)
        n += name[n][0] != '.';
    *ret = kernel_end(p, r);
    tree_closedir(d);
    return n;
}

void tensors_list(struct program *p)
{
    static char name[ACTORS][ENTRIES][TREE_NAME_MAX + 1];
    struct kernel *k = p->k;
    uint64_t since = oracle_time(of(k));
    unsigned changes[REGS];
    uint32_t there = 0, twice = 0;
    int r;
    memcpy(changes, k->changes, sizeof(changes));
    unsigned n = list(p, TENSORS, name[p->number], &r);
    kernel_expect(p, "list of tensors", r, false);
    for (unsigned i = 0; i < n; i++)
        for (int t = KEYS; t < REGS; t++)
            if (strcmp(name[p->number][i], names[t]) == 0) {
                twice |= there & bit(t);
                there |= bit(t);
            }
    for (int t = KEYS; t < REGS; t++)
        if (twice & bit(t) && changes[t] == k->changes[t])
            sched_fail("list: %s is there twice", names[t]);
    for (int t = KEYS; t < REGS && r == 0 && !k->rough; t++) {
        uint64_t may = oracle_may(of(k), (unsigned)t, since, UINT64_MAX, false);
        bool is = there & bit(t);
        if (changes[t] != k->changes[t] || k->made[t].may ||
            oracle_changed(of(k), (unsigned)t, since))
            continue;
        if (is ? !(may & ~BIT(TOKEN_ABSENT)) : !(may & BIT(TOKEN_ABSENT)))
            sched_fail("list: %s is %s, may be %llx", names[t], is ? "there" : "not there",
                       (unsigned long long)may);
    }
}

static void step_rmr(struct program *p, const struct step *s)
{
    static char name[ACTORS][ENTRIES][TREE_NAME_MAX + 1];
    struct kernel *k = p->k;
    struct tree_entry dir;
    lock_take(&k->dir);
    int r = look_up(p, s->name, NULL, &dir);
    lock_drop(&k->dir);
    kernel_expect(p, "lookup", r, r == -ENOENT);
    if (r < 0)
        return;
    k->changes[s->name]++;
    /* once its `type` is gone, a sync may add the tensor, with F32 values */
    if (k->made[s->name].may) {
        widen_made(k, s->name, 0, BIT(TOKEN_FIRST), 0);
        enter(p, s->name, 0, BIT(TOKEN_FIRST), 0);
    }
    unsigned n = list(p, dir.node, name[p->number], &r);
    kernel_expect(p, "list of views", r, is_usual(r));
    for (unsigned i = 0; i < n; i++) {
        lock_take(&k->dir);
        (void)kernel_begin(p);
        k->changes[s->name]++;
        r = kernel_end(p, tree_unlink(k->t, dir.node, name[p->number][i]));
        k->changes[s->name]++;
        lock_drop(&k->dir);
        kernel_expect(p, "unlink of a view", r, is_usual(r));
    }
    leave(p);
    kernel_later(k, NULL, dir.node, -1);
    struct step one = *s;
    one.word = W_RM;
    kernel_step_tensor(p, &one);
}

/* ---- NumPy views ---- */

/*
 * What a program does: it writes the header and the values; closes after the header, and writes the
 * values through a second handle; writes only the header; overwrites the existing header; truncates
 * the view below its header; writes a file beside the view and renames it; or reads.
 */
enum way { SAVE, LATER, ONLY, OVER, BELOW, BESIDE, LOOK, WAYS };
/* The effect on the tensor. */
enum fate { REFUSED, NOTHING, RESHAPED, STORED };

struct numpy {
    enum head head;
    enum way way;
    unsigned shape;
    bool half; /* the view is f16.npy */
    bool sync; /* fsync before the close; BESIDE: the close follows the rename */
};

static struct numpy numpy_of(const struct step *s)
{
    return (struct numpy){s->n2 / FORMS % HEADS, s->n3 % WAYS, s->n2 % FORMS, s->n3 / WAYS & 1,
                          s->n3 / WAYS & 2};
}

static const char *numpy_name(const struct numpy *a)
{
    return a->half ? "f16.npy" : "f32.npy";
}

static enum fate numpy_result(const struct numpy *a)
{
    const bool good = a->head <= HALF || (a->head == FORTRAN && a->shape == 0);
    switch (a->way) {
    case ONLY:
        return good || a->head == LARGE || a->head == SMALL ? NOTHING : REFUSED;
    case OVER: /* the values must still fit; a header cut short matches the old one in f32.npy */
        return good && (a->head == HALF) == a->half ? RESHAPED
               : a->head == CUT && !a->half         ? NOTHING
                                                    : REFUSED;
    case BELOW:
        return NOTHING;
    default:
        return good ? STORED : REFUSED;
    }
}

static int numpy_head(struct program *p, const struct numpy *a, struct tree_file *f)
{
    uint8_t head[HEAD];
    const size_t n = head_of(a->head, a->shape, head);
    return write_some(p, f, 0, head, n);
}

static int numpy_values(struct program *p, const struct numpy *a, unsigned token,
                        struct tree_file *f)
{
    static uint8_t room[ACTORS][FLOATS * 4];
    uint8_t *values = room[p->number];
    const size_t n = values_of(a->head, token, values);
    return a->head == CUT ? 0 : write_all(p, f, HEAD, values, n);
}

/* Closes the file and releases it at once, not late. */
static int numpy_close(struct program *p, struct tree_file *f, uint64_t node, bool sync, int r)
{
    if (r == 0 && sync) {
        struct live_wait *w = kernel_begin(p);
        r = kernel_end(p, tree_fsync(f, w));
    }
    int closed = flush(p, f);
    (void)tree_release(f);
    kernel_later(p->k, NULL, node, -1);
    return r < 0 ? r : closed;
}

/* Writes the view itself. */
static int numpy_write(struct program *p, const struct step *s, const struct numpy *a)
{
    const bool truncates = a->way <= ONLY;
    struct tree_file *f;
    uint64_t node = 0;
    int r = open_view(p, s->name, numpy_name(a), O_RDWR | (truncates ? O_TRUNC : 0), &f, &node);
    if (r < 0)
        return r;
    if (a->way == BELOW) {
        struct live_wait *w = kernel_begin(p);
        r = kernel_end(p, tree_truncate(f, HEAD / 2, w));
    } else {
        r = numpy_head(p, a, f);
    }
    if (r == 0 && a->way == SAVE)
        r = numpy_values(p, a, s->n, f);
    r = numpy_close(p, f, node, a->sync && a->way != LATER, r);
    if (r < 0 || a->way != LATER)
        return r;
    r = open_view(p, s->name, numpy_name(a), O_RDWR, &f, &node);
    return r < 0 ? r : numpy_close(p, f, node, a->sync, numpy_values(p, a, s->n, f));
}

/* Writes a file beside the view, and renames it over the view. */
static int numpy_beside(struct program *p, const struct step *s, const struct numpy *a)
{
    struct kernel *k = p->k;
    struct tree_entry dir;
    struct tree_file *f;
    char name[] = ".npy.Tmp00A";
    uint64_t node = 0;
    name[10] = (char)('A' + p->number);
    lock_take(&k->dir);
    int r = look_up(p, s->name, NULL, &dir);
    lock_drop(&k->dir);
    if (r < 0)
        return r;
    r = create(p, dir.node, name, &f, &node);
    const bool opened = r == 0;
    if (r == 0)
        r = numpy_head(p, a, f);
    if (r == 0)
        r = numpy_values(p, a, s->n, f);
    if (r == 0 && !a->sync)
        r = flush(p, f);
    lock_take(&k->dir);
    struct live_wait *w = kernel_begin(p);
    r = kernel_end(p, r < 0 ? r : tree_rename(k->t, dir.node, name, dir.node, numpy_name(a), 0, w));
    if (r < 0) {
        (void)kernel_begin(p);
        (void)kernel_end(p, tree_unlink(k->t, dir.node, name));
    }
    lock_drop(&k->dir);
    if (opened)
        r = numpy_close(p, f, node, false, r);
    kernel_later(k, NULL, dir.node, -1);
    return r;
}

/* Reads the view, which shows the model's values if no program writes it. */
static void numpy_look(struct program *p, const struct step *s, const struct numpy *a)
{
    static uint8_t room[ACTORS][2][HEAD + FLOATS * 4 + 1];
    struct kernel *k = p->k;
    const enum head head = a->half ? HALF : PLAIN;
    uint8_t *has = room[p->number][0], *want = room[p->number][1];
    const uint64_t since = oracle_time(of(k));
    const unsigned stamp = k->changes[s->name], regs[] = {s->name, shape_reg(s->name)};
    struct tree_file *f;
    struct reply reply = {.scratch = has};
    uint64_t node = 0, may[2];
    bool busy = k->begun[s->name] > sched_now() || k->made[s->name].may;
    int r = open_view(p, s->name, numpy_name(a), O_RDONLY, &f, &node);
    kernel_expect(p, "open of an array", r, is_usual(r));
    if (r < 0)
        return;
    (void)kernel_begin(p);
    r = kernel_end(p, tree_read(f, 0, sizeof(room[0][0]), &reply));
    kernel_expect(p, "read of an array", r, false);
    const size_t n = reply.len;
    if (r == 0 && n && reply.bytes != reply.scratch)
        memcpy(has, reply.bytes, n);
    tree_reply_done(&reply);
    (void)tree_release(f);
    kernel_later(k, NULL, node, -1);
    busy |= r < 0 || k->rough || k->changes[s->name] != stamp || k->made[s->name].may ||
            is_other(k, s->name);
    for (unsigned i = 0; i < 2; i++) {
        may[i] = oracle_may(of(k), regs[i], since, UINT64_MAX, false);
        busy |= oracle_changed(of(k), regs[i], since) || may[i] & BIT(TOKEN_OTHER);
    }
    bool is = busy;
    for (unsigned i = 0; i < FORMS * TOKENS && !is; i++) {
        const unsigned shape = i % FORMS, token = i / FORMS;
        if (!(may[0] & BIT(token)) || !(may[1] & BIT(TOKEN_FIRST + shape)))
            continue;
        const size_t size = head_of(head, shape, want) + values_of(head, token, want + HEAD);
        is = n == size && memcmp(has, want, n) == 0;
    }
    if (!is)
        sched_fail("%s of %s has %zu bytes that it may not have", numpy_name(a), names[s->name], n);
}

/* Programs that write the view at the same time share its draft, which may combine one program's
 * header with another's values. */
static void numpy_share(struct program *p)
{
    struct kernel *k = p->k;
    for (unsigned i = 0; i < ACTORS; i++) {
        struct program *q = &k->program[i];
        if (q == p || !q->numpy[0] || !(q->names_of & p->names_of))
            continue;
        p->content = q->content |= p->content;
        p->shape = q->shape |= p->shape;
        p->shares = q->shares = true;
    }
    for (unsigned i = 0; i < ACTORS && p->shares; i++) {
        const struct program *q = &k->program[i];
        if (!q->numpy[0] || !(q->names_of & p->names_of))
            continue;
        oracle_widen(of(k), (unsigned)q->numpy[0] - 1, q->content);
        oracle_widen(of(k), (unsigned)q->numpy[1] - 1, q->shape);
    }
}

/* Begins a step that writes a NumPy view, and the step's assignments. The masks are the results if
 * no other program writes the view at the same time. */
static void numpy_begin(struct program *p, const struct step *s, uint64_t content, uint64_t shape,
                        int back[2])
{
    struct kernel *k = p->k;
    const struct numpy a = numpy_of(s);
    const int name = s->name;
    enter(p, name, BIT(s->n) | BIT(TOKEN_OTHER), BIT(TOKEN_FIRST) | (a.half ? BIT(TOKEN_OTHER) : 0),
          BIT(TOKEN_FIRST + a.shape));
    if (k->made[name].may) {
        widen_made(k, name, p->content, p->type, p->shape);
        k->changes[name]++;
    }
    const unsigned made = oracle_begin(of(k), (unsigned)name, content);
    p->judges = p->numpy[0] = (int)made + 1;
    p->numpy[1] = (int)oracle_begin(of(k), shape_reg(name), shape) + 1;
    p->shares = false;
    back[0] = begin_back(k, name, KEYS, content);
    back[1] = begin_back(k, name, SHAPES, shape);
    numpy_share(p);
}

/* Ends the step. alone: nothing else can have affected the result. */
static void numpy_end(struct program *p, const int back[2], enum fate result, bool alone,
                      enum outcome how)
{
    struct kernel *k = p->k;
    for (unsigned i = 0; i < 2; i++) {
        const unsigned made = (unsigned)p->numpy[i] - 1;
        const bool assigns = result == STORED || (i == 1 && result == RESHAPED);
        end_back(k, back[i], of(k)->a[made].mask);
        oracle_end(of(k), made, !alone ? PERHAPS : assigns ? how : FAILED);
        p->numpy[i] = 0;
    }
    leave(p);
}

static void step_numpy(struct program *p, const struct step *s)
{
    struct kernel *k = p->k;
    const struct numpy a = numpy_of(s);
    const enum fate result = numpy_result(&a);
    /* between its two handles, another edit may make the header void */
    const uint64_t mixed = a.way == LATER ? BIT(s->n) | BIT(TOKEN_OTHER) : 0;
    /* half-precision floats round some values */
    const bool rounds = a.head == HALF && rounded(127 * s->n) != 127 * s->n;
    const uint64_t other = rounds ? BIT(TOKEN_OTHER) : 0;
    const uint64_t content = mixed | (result == STORED ? BIT(s->n) | other : 0);
    const uint64_t shape = result >= RESHAPED ? BIT(TOKEN_FIRST + a.shape) : 0;
    const uint64_t begun = sched_now(), since = oracle_time(of(k));
    /* a header without values is kept for about ten seconds */
    const bool left = a.way >= OVER && k->begun[s->name] > begun;
    int back[2];
    if (a.way == LOOK) {
        numpy_look(p, s, &a);
        return;
    }
    numpy_begin(p, s, content, shape, back);
    const unsigned made[] = {(unsigned)p->numpy[0] - 1, (unsigned)p->numpy[1] - 1};
    const unsigned stamp = k->changes[s->name];
    int r = a.way == BESIDE ? numpy_beside(p, s, &a) : numpy_write(p, s, &a);
    const bool converts = is_other(k, s->name);
    bool alone = !p->shares && !left && !k->made[s->name].may && p->names_of == bit(s->name) &&
                 k->changes[s->name] == stamp;
    if (a.way == LATER)
        alone &= oracle_alone(of(k), made[0]) && oracle_alone(of(k), made[1]) &&
                 !oracle_changed(of(k), type_reg(s->name), since) &&
                 sched_now() - begun < UINT64_C(9000000000);
    if (a.way == LATER && alone)
        of(k)->a[made[0]].mask = BIT(s->n) | other;
    if (converts)
        oracle_widen(of(k), made[0], BIT(TOKEN_OTHER));
    for (int i = KEYS; i < REGS; i++)
        if (p->names_of & bit(i) && (!alone || a.way == ONLY || a.way == LATER))
            k->begun[i] = sched_now() + UINT64_C(12000000000);
    const bool synced = a.sync && a.way != BESIDE;
    const enum outcome good = synced || kernel_durable_close(k) ? DURABLE : ACCEPTED;
    const enum outcome lost = k->w->disk.hits ? PERHAPS : kernel_failed(k, r);
    numpy_end(p, back, result, alone, r < 0 ? lost : good);
    kernel_expect(p, "an array", r,
                  is_usual(r) || ((r == -EINVAL || r == -EFBIG) && (!alone || result == REFUSED)) ||
                      (r == -EPERM && !alone) ||
                      ((r == -EDOM || r == -ERANGE) && (!alone || converts)));
    if (r == 0 && alone && result == REFUSED && !k->rough)
        sched_fail("a bad header of %s is accepted", names[s->name]);
    if (r == 0 && good == DURABLE)
        kernel_look_disk(k, "after an array was saved");
}

void tensors_step(struct program *p, const struct step *s)
{
    switch ((enum word)s->word) {
    case W_TYPE:
    case W_SHAPE:
        step_form(p, s);
        break;
    case W_ADD:
        step_add(p, s);
        break;
    case W_SWAP:
        step_swap(p, s);
        break;
    case W_NPY:
        step_numpy(p, s);
        break;
    default:
        step_rmr(p, s);
    }
}
