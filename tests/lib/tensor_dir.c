/* SPDX-License-Identifier: MIT */
/* Makes a directory with a model of one tensor: see tensor_dir.h. */
#include "tensor_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_gguf.h"
#include "quant/encode.h"

uint64_t tensor_dir_seed = 1;

uint64_t tensor_dir_draw(uint64_t n)
{
    tensor_dir_seed += 0x9e3779b97f4a7c15u;
    uint64_t z = tensor_dir_seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

static void build(struct tensor_dir *x, bool big, const struct tensor_shape *s)
{
    struct build b;
    size_t size;
    build_init(&b, 3, big);
    build_str(&b, "general.architecture", "test");
    build_tensor(&b, "before", F32, SHAPE(3), NULL, 12);
    build_tensor(&b, "t", s->type, s->dims, s->n_dims, x->raw, x->n);
    build_tensor(&b, "after", F32, SHAPE(3), NULL, 12);
    uint8_t *image = build_finish(&b, &size);
    put_file(x->dir, NAME, image, size);
    struct source src = source_mem(image, size);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, 0, &x->g, NULL), 0);
    free(image);
}

static void open_store(struct tensor_dir *x)
{
    struct mapped *m;
    int fd = openat(x->dir, NAME, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(mapped_open(fd, x->g->file_size, &m, NULL), 0);
    (void)close(fd);
    CU_ASSERT_EQUAL_FATAL(store_make(&m, (const struct gguf *const *)&x->g, 1, &x->store), 0);
    mapped_unref(m);
}

void tensor_dir_make(struct tensor_dir *x, uint32_t type, bool big, const uint64_t *dims,
                     uint32_t n_dims, const uint8_t *raw)
{
    struct tensor_shape s = {.type = type, .n_dims = n_dims};
    uint64_t n;
    memset(x, 0, sizeof(*x));
    struct tensor_shape sized = {.type = type, .n_dims = 1, .dims = {1}}; /* without dimensions */
    if (n_dims)
        memcpy(s.dims, dims, n_dims * sizeof(*dims));
    CU_ASSERT_EQUAL_FATAL(tensor_shape_bytes(n_dims ? &s : &sized, &n, NULL), 0);
    x->n = (size_t)n;
    x->raw = malloc(x->n);
    for (size_t i = 0; i < x->n; i++)
        x->raw[i] = raw ? raw[i] : (uint8_t)tensor_dir_draw(256);
    const char *root = access("/dev/shm", R_OK | W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(x->path, sizeof(x->path), "%s/ggufs-test-XXXXXX", root);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(x->path));
    x->dir = open(x->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    build(x, big, &s);
    open_store(x);
    CU_ASSERT_EQUAL_FATAL(tensor_base_make(x->g, 1, x->store, NULL, &x->base), 0);
    x->f = (struct edit_file){.sys = &sys_libc, .dir = x->dir, .fd = -1, .name = NAME};
    lock_init(&x->lock);
    x->logs = (struct logs){.f = &x->f, .lock = &x->lock};
}

void tensor_dir_fault(struct tensor_dir *x, enum fault_mode mode, unsigned n, int error)
{
    faultsys_init(&x->fs, mode, n, error);
    x->f.sys = &x->fs.sys;
}

uint8_t *tensor_dir_encode(uint32_t type, bool big, size_t n)
{
    const struct quant_type *t = quant_find(type);
    struct quant_fault fault;
    float *v = malloc(n * sizeof(*v));
    uint8_t *raw = malloc(n / t->block_len * t->block_bytes);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)((int)(i * 7 % 255) - 127);
    CU_ASSERT_EQUAL_FATAL(quant_encode(t, big, v, n / t->block_len, raw, NULL, &fault), 0);
    free(v);
    return raw;
}

void tensor_dir_sane(struct tensor_dir *x, uint32_t type, const uint64_t *dims, uint32_t n_dims)
{
    uint8_t *raw = tensor_dir_encode(type, false, (size_t)(dims[0] * dims[1]));
    tensor_dir_make(x, type, false, dims, n_dims, raw);
    free(raw);
}

static int count_one(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
    return 0;
}

void tensor_dir_free(struct tensor_dir *x)
{
    unsigned n = 0;
    (void)sys_libc.list(&sys_libc, x->dir, count_one, &n);
    CU_ASSERT_EQUAL(n, 1); /* no file is left beside the model */
    CU_ASSERT_EQUAL(unlinkat(x->dir, NAME, 0), 0);
    CU_ASSERT_EQUAL(rmdir(x->path), 0);
    (void)close(x->dir);
    log_unref(x->logs.now);
    lock_destroy(&x->lock);
    tensor_base_unref(x->base);
    store_unref(x->store);
    gguf_free(x->g);
    free(x->raw);
}

struct tensor_base *tensor_dir_after(const struct tensor_dir *x, const struct tensor_base *now,
                                     const struct tensor_edit *edit)
{
    struct tensor_base *ret;
    struct tensor_content *k;
    uint64_t nbytes = now->nbytes;
    const struct tensor_content *old = now->content;
    const struct tensor_shape *shape = edit->shaped ? &edit->shape : old ? &old->shape : NULL;
    if (edit->shaped)
        CU_ASSERT_EQUAL_FATAL(tensor_shape_bytes(&edit->shape, &nbytes, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(
        tensor_content_make(shape, nbytes, edit->whole ? NULL : old, edit->piece, edit->n, &k), 0);
    CU_ASSERT_TRUE(!edit->whole || tensor_content_covers(k));
    CU_ASSERT_EQUAL_FATAL(tensor_base_make(x->g, 1, x->store, k, &ret), 0);
    tensor_content_unref(k);
    return ret;
}

uint8_t *tensor_dir_bytes(const struct tensor_base *base, enum tensor_view view, size_t *n)
{
    *n = (size_t)tensor_view_size(base, view);
    uint8_t *bytes = malloc(*n + 1);
    CU_ASSERT_EQUAL(tensor_view_read(base, view, 0, bytes, *n), 0);
    return bytes;
}
