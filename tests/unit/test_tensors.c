/* SPDX-License-Identifier: MIT */
/* Tensor edits (edit/change.h): refusals, and random operations, some of which are undone before the
 * rest is committed with each strategy. The reference is a plain list of tensors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "changes.h"
#include "model_dir.h"
#include "parsed.h"
#include "soak.h"

enum { Q8_0 = 8, UNKNOWN = 200, MOST = 40 };

struct world_tensor {
    char name[64];
    struct tensor_shape shape;
    uint8_t *bytes;
    size_t n;
};

struct world {
    struct world_tensor t[MOST];
    size_t n;
};

static uint64_t state;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static uint8_t *random_bytes(size_t n)
{
    uint8_t *p = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)draw(256);
    return p;
}

static void world_drop(struct world_tensor *t)
{
    free(t->bytes);
    *t = (struct world_tensor){0};
}

static void world_free(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        world_drop(&w->t[i]);
    w->n = 0;
}

static struct world world_copy(const struct world *w)
{
    struct world c = *w;
    for (size_t i = 0; i < c.n; i++) {
        c.t[i].bytes = malloc(c.t[i].n + 1);
        memcpy(c.t[i].bytes, w->t[i].bytes, c.t[i].n);
    }
    return c;
}

/* ---- building and comparing ---- */

static const struct kind {
    uint8_t version;
    bool big;
    uint32_t alignment;
} kinds[] = {
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

static bool shown(const uint8_t *file, size_t n, const struct world *w)
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

static struct tensor_shape random_shape(void)
{
    static const uint32_t types[] = {F32, I8, Q8_0};
    struct tensor_shape s = {.type = types[draw(3)], .n_dims = 1 + draw(4)};
    for (uint32_t i = 0; i < s.n_dims; i++)
        s.dims[i] = 1 + draw(i == 0 ? 60 : 4);
    if (draw(3) == 0)
        s.dims[0] = s.type == F32 ? 1024 : 4096; /* whole blocks */
    if (s.type == Q8_0)
        s.dims[0] = 32 * (1 + s.dims[0] / 32);
    return s;
}

static struct world_tensor *pick(struct world *w)
{
    return w->n ? &w->t[draw((uint32_t)w->n)] : NULL;
}

static void op_rename(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = pick(w);
    char name[64];
    (void)snprintf(name, sizeof(name), "t%u", draw(30));
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

static int put(struct edit_change *c, struct world_tensor *t, bool set)
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

static void op_add(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = &w->t[w->n];
    static unsigned count;
    if (w->n == MOST)
        return;
    *t = (struct world_tensor){.shape = random_shape()};
    (void)snprintf(t->name, sizeof(t->name), "new%u", count++);
    CU_ASSERT_EQUAL(put(c, t, false), 0);
    w->n++;
}

static void op_set(struct edit_change *c, struct world *w)
{
    struct world_tensor *t = pick(w);
    free(t->bytes);
    t->shape = random_shape();
    CU_ASSERT_EQUAL(put(c, t, true), 0);
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
        size_t lo = at + draw((uint32_t)(t->n - at)), len = 1 + draw((uint32_t)(t->n - lo));
        size_t src = draw((uint32_t)(t->n - len + 1));
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
    uint32_t n = draw(200);
    put_u64(text, n, c->on.g->fmt.big);
    CU_ASSERT_EQUAL(set_bytes(c, "text", 4, GGUF_STRING, text, 8 + n, NULL), 0);
}

static void edit_once(struct edit_change *c, struct world *w)
{
    static void (*const ops[])(struct edit_change *, struct world *) = {
        op_rename, op_remove, op_set, op_reshape, op_write, op_write, op_add, op_key};
    uint32_t i = draw(8);
    if (w->n == 0)
        i = 6;
    ops[i](c, w);
}

/* ---- written to a file ---- */

static struct world world_make(void)
{
    struct world w = {0};
    for (size_t n = 1 + draw(8); w.n < n; w.n++) {
        struct world_tensor *t = &w.t[w.n];
        uint64_t bytes;
        t->shape = random_shape();
        CU_ASSERT_EQUAL_FATAL(tensor_shape_bytes(&t->shape, &bytes, NULL), 0);
        if (draw(8) == 0)
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
static void world_setup(struct fixture *x, const struct kind *k, struct world *w)
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

static void commit_world(struct fixture *x, const struct edit_change *c, const struct world *w,
                         enum edit_strategy s)
{
    struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = {.strategy = s, .reserve = draw(2) ? 2000 : EDIT_RESERVE_AUTO};
    struct edit_result res;
    struct faultsys fs;
    struct err e = {0};
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = s == EDIT_COPY && draw(2);
    if (edit_plan_make(c, &o, &p, &e) < 0)
        (void)printf("\n%s\n", e.msg);
    CU_ASSERT_EQUAL_FATAL(e.code, 0);
    p.image->file[EDIT_OLD_FILE] = source_mem(x->old, x->old_n);
    uint8_t *bytes = malloc(p.image->size);
    CU_ASSERT_EQUAL(image_read(p.image, NULL, 0, bytes, p.image->size), 0);
    CU_ASSERT_TRUE(shown(bytes, p.image->size, w));
    struct edit_file f = open_model(x, &fs.sys);
    int r = edit_commit(&f, &p, &o, NULL, &res, &e);
    if (r == -EOPNOTSUPP && s == EDIT_INPLACE) {
        CU_ASSERT_FALSE(p.inplace);
        CU_ASSERT_TRUE(is_old(x));
    } else {
        CU_ASSERT_EQUAL(r, 0);
        CU_ASSERT_TRUE(model_is(x, bytes, p.image->size));
    }
    if (r < 0 && r != -EOPNOTSUPP)
        (void)printf("\n%s\n", e.msg);
    CU_ASSERT_EQUAL(files(x), 1);
    if (res.old_fd >= 0)
        (void)close(res.old_fd);
    edit_file_close(&f);
    free(bytes);
    edit_plan_free(&p);
}

static void run(const struct kind *k, enum edit_strategy s, size_t ops)
{
    struct fixture x;
    struct world w;
    struct edit_change c;
    world_setup(&x, k, &w);
    edit_change_init(&c, &(struct edit_base){.g = x.g});
    for (size_t i = 0; i < ops; i++) {
        struct world before = world_copy(&w);
        size_t mark = edit_mark(&c);
        for (uint32_t n = 1 + draw(3); n > 0; n--)
            edit_once(&c, &w);
        if (draw(3) == 0) {
            edit_undo(&c, mark);
            world_free(&w);
            w = before;
        } else {
            world_free(&before);
        }
        if (draw(4) == 0)
            edit_keep(&c, draw((uint32_t)edit_mark(&c) + 1) == 0 ? 0 : edit_mark(&c));
    }
    if (w.n == 0)
        op_add(&c, &w);
    commit_world(&x, &c, &w, s);
    edit_change_free(&c);
    world_free(&w);
    teardown(&x);
}

static void test_random(void)
{
    static const enum edit_strategy how[] = {EDIT_COPY, EDIT_INPLACE, EDIT_AUTO};
    const char *seed = getenv("GGUFS_SEED");
    state = seed ? strtoull(seed, NULL, 10) : 1;
    for (size_t i = 0; i < soak_size(600); i++)
        run(&kinds[i % COUNT(kinds)], how[i / COUNT(kinds) % COUNT(how)], 1 + draw(8));
    soak_count("random edits of tensors", soak_size(600));
}

/* ---- one by one ---- */

static void test_refused(void)
{
    struct fixture x;
    struct edit_change c;
    struct err e;
    char name[70];
    memset(name, 'n', sizeof(name));
    struct log *d = memory_draft(name, 64);
    setup(&x);
    edit_change_init(&c, &(struct edit_base){.g = x.g});
    const char *a = gguf_name(x.g, &x.g->tensor[0]);
    size_t n = x.g->tensor[0].name_len;
    struct tensor_piece p = {0, 4, 0, d};
    const struct tensor_shape one = {F32, 1, {1}}, zero = {F32, 1, {0}}, five = {F32, 5, {1}};
    const struct tensor_shape rows = {Q8_0, 1, {33}}, unknown = {UNKNOWN, 1, {1}},
                              none = {F32, 0, {0}};
    const struct tensor_shape huge = {F32, 2, {INT64_MAX, INT64_MAX}};
#define REFUSED(call, want)               \
    do {                                  \
        e = (struct err){0};              \
        CU_ASSERT_EQUAL((call), (want));  \
        CU_ASSERT_EQUAL(e.code, (want));  \
        CU_ASSERT_TRUE(e.msg[0] != '\0'); \
    } while (0)
    REFUSED(edit_tensor_rename(&c, "no", 2, "b", 1, &e), -ENOENT);
    REFUSED(edit_tensor_rename(&c, a, n, "", 0, &e), -EINVAL);
    REFUSED(edit_tensor_rename(&c, a, n, "a\0b", 3, &e), -EINVAL);
    REFUSED(edit_tensor_rename(&c, a, n, name, 64, &e), -ENAMETOOLONG);
    REFUSED(
        edit_tensor_rename(&c, a, n, gguf_name(x.g, &x.g->tensor[1]), x.g->tensor[1].name_len, &e),
        -EEXIST);
    REFUSED(edit_tensor_remove(&c, "no", 2, &e), -ENOENT);
    REFUSED(edit_tensor_add(&c, a, n, &one, &p, 1, 0, &e), -EEXIST);
    REFUSED(edit_tensor_add(&c, "", 0, &one, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &zero, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &five, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &none, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &rows, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &huge, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_add(&c, "new", 3, &unknown, &p, 1, 0, &e), -EOPNOTSUPP);
    REFUSED(edit_tensor_add(&c, "new", 3, &one, NULL, 0, 0, &e), -EINVAL);
    p.len = 3;
    REFUSED(edit_tensor_add(&c, "new", 3, &one, &p, 1, 0, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, a, n, &one, &p, 1, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, a, n, &one, NULL, 0, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, "no", 2, &one, NULL, 0, &e), -ENOENT);
    p.at = x.g->tensor[0].nbytes - 2;
    REFUSED(edit_tensor_set(&c, a, n, NULL, &p, 1, &e), -EINVAL);
    p = (struct tensor_piece){0, 4, 61, d};
    REFUSED(edit_tensor_set(&c, a, n, NULL, &p, 1, &e), -EINVAL);
    struct tensor_piece twice[] = {{0, 2, 0, d}, {1, 2, 0, d}};
    REFUSED(edit_tensor_set(&c, a, n, NULL, twice, 2, &e), -EINVAL);
    REFUSED(edit_tensor_set(&c, "no", 2, NULL, &p, 1, &e), -ENOENT);
    REFUSED(edit_tensor_set(&c, a, n, &zero, NULL, 0, &e), -EINVAL);
    const struct tensor_shape other = {I8, 1, {x.g->tensor[0].nbytes}};
    REFUSED(edit_tensor_set(&c, a, n, &other, NULL, 0, &e), -EINVAL);
    atomic_uint numbers = IDS_NONE - 1;
    c.on.numbers = &numbers;
    REFUSED(edit_tensor_rename(&c, a, n, "other", 5, &e), -EOVERFLOW);
    REFUSED(edit_tensor_remove(&c, a, n, &e), -EOVERFLOW);
#undef REFUSED
    CU_ASSERT_TRUE(edit_change_is_empty(&c));
    CU_ASSERT_TRUE(edit_mark(&c) == 0 && c.tensors == 0);
    edit_change_free(&c);
    log_unref(d);
    teardown(&x);
}

static void split_by(const char *key)
{
    struct build b;
    struct gguf *g;
    struct edit_change c;
    struct err e = {0};
    size_t n;
    build_init(&b, 3, false);
    build_num(&b, key, GGUF_U16, 2);
    build_tensor(&b, "a", F32, SHAPE(1), "abcd", 4);
    uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "a", 1, &e), -EOPNOTSUPP);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "merge"));
    struct tensor_shape one = {F32, 1, {1}};
    CU_ASSERT_EQUAL(edit_tensor_add(&c, "b", 1, &one, NULL, 0, 0, &e), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(edit_tensor_rename(&c, "a", 1, "b", 1, &e), 0);
    edit_change_free(&c);
    gguf_free(g);
    free(image);
}

static void test_split(void)
{
    split_by("split.count");
    split_by("split.tensors.count");
}

static CU_TestInfo tests[] = {
    {"a refused edit changes nothing", test_refused},
    {"files of a split model keep their numbers of tensors", test_split},
    {"random operations are undone and committed", test_random},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensors", tests)
