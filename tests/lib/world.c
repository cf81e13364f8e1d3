/* SPDX-License-Identifier: MIT */
/* Models as lists of tensors: see world.h. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"

/* ---- a simple model ---- */

uint64_t world_state;

uint32_t world_draw(uint32_t n)
{
    world_state = world_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(world_state >> 33) % n;
}

static uint8_t *random_bytes(size_t n)
{
    uint8_t *p = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)world_draw(256);
    return p;
}

void world_drop(struct world_tensor *t)
{
    free(t->bytes);
    *t = (struct world_tensor){0};
}

void world_free(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        world_drop(&w->t[i]);
    w->n = 0;
}

struct world world_copy(const struct world *w)
{
    struct world c = *w;
    for (size_t i = 0; i < c.n; i++) {
        c.t[i].bytes = malloc(c.t[i].n + 1);
        memcpy(c.t[i].bytes, w->t[i].bytes, c.t[i].n);
    }
    return c;
}

/* ---- building and comparing ---- */

const struct kind world_kinds[WORLD_KINDS] = {
    {3, false, 32}, {3, true, 32},    {2, false, 8},
    {2, true, 64},  {3, false, 4096}, {3, false, 16384},
};

static uint8_t *build_world(const struct kind *k, const struct world *w, size_t *n)
{
    struct build b;
    build_init(&b, k->version, k->big);
    b.alignment = k->alignment;
    build_str(&b, "general.architecture", "llama");
    build_u32(&b, "general.alignment", k->alignment);
    build_str(&b, "text", "something");
    for (size_t i = 0; i < w->n; i++)
        build_tensor(&b, w->t[i].name, w->t[i].shape.type, w->t[i].shape.dims, w->t[i].shape.n_dims,
                     w->t[i].bytes, w->t[i].n);
    return build_finish(&b, n);
}

/* True if the file has these tensors in this order, byte for byte, and a regular layout. */
static bool shows(const struct gguf *g, const uint8_t *file, const struct world *w)
{
    bool good = g->n_tensors == w->n &&
                (g->anomalies & ~(unsigned)(GGUF_ANOMALY_UNKNOWN | GGUF_ANOMALY_NO_TAIL)) == 0;
    uint64_t at = g->data_off;
    for (uint32_t i = 0; i < w->n && good; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        const struct world_tensor *p = &w->t[i];
        bool unknown = p->shape.type == UNKNOWN;
        good = t->name_len == strlen(p->name) &&
               memcmp(gguf_name(g, t), p->name, t->name_len) == 0 && t->type_id == p->shape.type &&
               t->n_dims == p->shape.n_dims && t->off == at &&
               (unknown ? t->nbytes >= p->n : t->nbytes == p->n) &&
               memcmp(file + t->off, p->bytes, p->n) == 0;
        for (uint32_t k = 0; k < t->n_dims && good; k++)
            good = gguf_dim(g, t, k) == p->shape.dims[k];
        at = (at + p->n + g->alignment - 1) & ~(g->alignment - 1);
    }
    return good;
}

bool world_shown(const uint8_t *file, size_t n, const struct world *w)
{
    struct source s = source_mem(file, n);
    struct gguf *g = NULL;
    bool good = gguf_parse(&s, 0, &g, NULL) == 0 && shows(g, file, w) && g->n_kv >= 3 &&
                gguf_find_key(g, "text", 4) == 2;
    gguf_free(g);
    return good;
}

/* ---- operations on the list and the change ---- */

/* Make a draft with these bytes, in memory or in a file. */
static struct log *make_draft(const uint8_t *bytes, size_t n)
{
    struct log *d = memory_draft(bytes, n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    return d;
}

struct tensor_shape world_shape(void)
{
    static const uint32_t types[] = {F32, I8, Q8_0};
    struct tensor_shape s = {.type = types[world_draw(3)], .n_dims = 1 + world_draw(4)};
    for (uint32_t i = 0; i < s.n_dims; i++)
        s.dims[i] = 1 + world_draw(i == 0 ? 60 : 4);
    if (world_draw(3) == 0)
        s.dims[0] = s.type == F32 ? 1024 : 4096; /* whole blocks */
    if (s.type == Q8_0)
        s.dims[0] = 32 * (1 + s.dims[0] / 32);
    return s;
}

static struct world_tensor *pick(struct world *w)
{
    return w->n ? &w->t[world_draw((uint32_t)w->n)] : NULL;
}

static void op_rename(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = pick(w);
    char name[64];
    (void)snprintf(name, sizeof(name), "t%u", world_draw(30));
    bool taken = false, same = strcmp(name, t->name) == 0;
    for (size_t i = 0; i < w->n; i++)
        taken |= strcmp(w->t[i].name, name) == 0;
    int r = edit_tensor_rename(c, t->name, strlen(t->name), name, strlen(name), NULL);
    CU_ASSERT_EQUAL(r, taken && !same ? -EEXIST : 0);
    if (r == 0)
        memcpy(t->name, name, sizeof(name));
}

static void op_remove(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = pick(w);
    CU_ASSERT_EQUAL(edit_tensor_remove(c, t->name, strlen(t->name), NULL), 0);
    world_drop(t);
    memmove(t, t + 1, (size_t)(&w->t[w->n] - (t + 1)) * sizeof(*t));
    w->n--;
}

int world_put(struct edit_change *c, struct world_tensor *t, bool set)
{
    uint64_t n;
    CU_ASSERT_EQUAL_FATAL(tensor_shape_bytes(&t->shape, &n, NULL), 0);
    t->n = (size_t)n;
    t->bytes = random_bytes(t->n);
    struct log *d = make_draft(t->bytes, t->n);
    struct tensor_piece p = {0, t->n, 0, d};
    int r = set ? edit_tensor_set(c, t->name, strlen(t->name), &t->shape, &p, 1, NULL)
                : edit_tensor_add(c, t->name, strlen(t->name), &t->shape, &p, 1, 0, NULL);
    log_unref(d);
    return r;
}

void world_add(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = &w->t[w->n];
    static unsigned count;
    if (w->n == MOST)
        return;
    *t = (struct world_tensor){.shape = world_shape()};
    (void)snprintf(t->name, sizeof(t->name), "new%u", count++);
    CU_ASSERT_EQUAL(world_put(c, t, false), 0);
    w->n++;
}

static void op_set(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = pick(w);
    free(t->bytes);
    t->shape = world_shape();
    CU_ASSERT_EQUAL(world_put(c, t, true), 0);
}

static void op_reshape(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = pick(w);
    struct tensor_shape s = t->shape;
    if (s.type == UNKNOWN)
        return;
    s.n_dims = 2;
    s.dims[1] = 1;
    for (uint32_t i = 1; i < t->shape.n_dims; i++)
        s.dims[1] *= t->shape.dims[i];
    CU_ASSERT_EQUAL(edit_tensor_set(c, t->name, strlen(t->name), &s, NULL, 0, NULL), 0);
    t->shape = s;
}

/* Write one to three ranges of a tensor's bytes. */
static void op_write(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = pick(w);
    struct tensor_piece p[3];
    size_t n = 0, at = 0;
    uint8_t *bytes = random_bytes(t->n);
    struct log *d = make_draft(bytes, t->n);
    while (n < 3 && at < t->n) {
        size_t lo = at + world_draw((uint32_t)(t->n - at)),
               len = 1 + world_draw((uint32_t)(t->n - lo));
        size_t src = world_draw((uint32_t)(t->n - len + 1));
        p[n++] = (struct tensor_piece){lo, len, src, d};
        memcpy(t->bytes + lo, bytes + src, len);
        at = lo + len;
    }
    CU_ASSERT_EQUAL(edit_tensor_set(c, t->name, strlen(t->name), NULL, p, n, NULL), 0);
    log_unref(d);
    free(bytes);
}

static void op_key(struct edit_change *c, struct world *w)
{
    (void)w;
    uint8_t text[300] = {0};
    uint32_t n = world_draw(200);
    put_u64(text, n, c->on.g->fmt.big);
    CU_ASSERT_EQUAL(set_bytes(c, "text", 4, GGUF_STRING, text, 8 + n, NULL), 0);
}

void world_edit(struct edit_change *c, struct world *w)
{
    static void (*const ops[])(struct edit_change *, struct world *) = {
        op_rename, op_remove, op_set, op_reshape, op_write, op_write, world_add, op_key};
    uint32_t i = world_draw(8);
    if (w->n == 0)
        i = 6;
    ops[i](c, w);
}

/* ---- written to a file ---- */

struct world world_make(void)
{
    struct world w = {0};
    for (size_t n = 1 + world_draw(8); w.n < n; w.n++) {
        struct world_tensor *t = &w.t[w.n];
        uint64_t bytes;
        t->shape = world_shape();
        CU_ASSERT_EQUAL_FATAL(tensor_shape_bytes(&t->shape, &bytes, NULL), 0);
        if (world_draw(8) == 0)
            t->shape.type = UNKNOWN;
        (void)snprintf(t->name, sizeof(t->name), "t%zu", w.n);
        t->n = (size_t)bytes;
        t->bytes = random_bytes(t->n);
    }
    return w;
}

/* A tensor of unknown type includes all bytes up to the next tensor. */
static void learn_sizes(struct world *w, const struct gguf *g, const uint8_t *file)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->t[i].shape.type != UNKNOWN)
            continue;
        free(w->t[i].bytes);
        w->t[i].n = (size_t)g->tensor[i].nbytes;
        w->t[i].bytes = malloc(w->t[i].n + 1);
        memcpy(w->t[i].bytes, file + g->tensor[i].off, w->t[i].n);
    }
}

/* Make a directory with a random model, as in model_dir.h. */
void world_setup(struct fixture *x, const struct kind *k, struct world *w)
{
    setup(x);
    gguf_free(x->g);
    free(x->old);
    *w = world_make();
    x->old = build_world(k, w, &x->old_n);
    struct source s = source_mem(x->old, x->old_n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &x->g, NULL), 0);
    learn_sizes(w, x->g, x->old);
    (void)unlinkat(x->dir, NAME, 0);
    put_file(x->dir, NAME, x->old, x->old_n);
}
