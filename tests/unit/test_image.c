/* SPDX-License-Identifier: MIT */
/*
 * model/store.h: images composed of segments and read in pieces of every size, and missing parts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "cu_main.h"
#include "model/store.h"
#include "parsed.h"

enum { F32 = 0, I16 = 25, Q8_0 = 8 };

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* A model with three tensors, stored in a file in memory. */
struct model {
    struct parsed p;
    struct mapped *file;
    struct store *store;
};

/* `spaces`: length of a reserve between the keys, in a file not padded with zeros; -1: no
 * reserve. */
static struct model open_spaced(bool big, size_t missing, int spaces)
{
    struct model m = {0};
    struct err e = {0};
    struct build b;
    char reserve[200];
    build_init(&b, 3, big);
    build_str(&b, "general.architecture", "llama");
    if (spaces >= 0) {
        memset(reserve, ' ', sizeof(reserve));
        build_str_n(&b, "ggufs.reserve", reserve, (size_t)spaces);
    }
    build_u32(&b, "llama.block_count", 7);
    uint8_t blocks[34], floats[20], words[6];
    for (size_t i = 0; i < sizeof(blocks); i++)
        blocks[i] = (uint8_t)(i * 7 + 1);
    for (size_t i = 0; i < 5; i++)
        put_u32(floats + 4 * i, 0x3f800000 + (uint32_t)i, big);
    for (size_t i = 0; i < 3; i++)
        put_u16(words + 2 * i, (uint16_t)(0x0102 * (i + 1)), big);
    build_tensor(&b, "floats", F32, SHAPE(5), floats, sizeof(floats));
    build_tensor(&b, "blocks", Q8_0, SHAPE(32), blocks, sizeof(blocks));
    build_tensor(&b, "words", I16, SHAPE(3), words, sizeof(words));
    m.p = parse_build(&b, 0);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, (off_t)(m.p.size - missing)), 0);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, m.p.image, m.p.size - missing, 0),
                          (ssize_t)(m.p.size - missing));
    CU_ASSERT_EQUAL_FATAL(mapped_open(fd, m.p.size - missing, &m.file, &e), 0);
    (void)close(fd);
    CU_ASSERT_EQUAL_FATAL(store_make(&m.file, (const struct gguf *const *)&m.p.g, 1, &m.store), 0);
    return m;
}

static struct model open_model(bool big, size_t missing)
{
    return open_spaced(big, missing, -1);
}

static void close_model(struct model *m)
{
    store_unref(m->store);
    mapped_unref(m->file);
    parsed_free(&m->p);
}

/* Check the image's bytes by reading from every offset, in pieces of several sizes. */
static void is(const struct image *im, const struct store *s, const uint8_t *want, size_t n)
{
    uint8_t got[4096];
    static const size_t sizes[] = {1, 3, 64, 4096};
    CU_ASSERT_EQUAL_FATAL(im->size, n);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
        for (size_t off = 0; off < n; off++) {
            size_t part = (size_t)min_u64(min_u64(sizes[k], sizeof(got)), n - off);
            CU_ASSERT_EQUAL(image_read(im, s, off, got, part), 0);
            CU_ASSERT_EQUAL(memcmp(got, want + off, part), 0);
        }
    CU_ASSERT_EQUAL(image_read(im, s, n, got, 1), -EIO);
    CU_ASSERT_EQUAL(image_read(im, s, 0, got, n + 1), -EIO);
}

static void test_model(void)
{
    for (int big = 0; big < 2; big++) {
        struct model m = open_model(big, 0);
        struct image *im;
        uint64_t at;
        CU_ASSERT_EQUAL_FATAL(image_of_model(m.p.g, &im), 0);
        is(im, m.store, m.p.image, m.p.size);
        const struct gguf_tensor *t = &m.p.g->tensor[1];
        CU_ASSERT_PTR_EQUAL(image_mapped(im, m.store, t->off + 1, 33, &at), m.file);
        CU_ASSERT_EQUAL(at, t->off + 1);
        CU_ASSERT_PTR_NULL(image_mapped(im, m.store, t->off + 1, 34, &at));
        CU_ASSERT_PTR_NULL(image_mapped(im, m.store, 0, 1, &at));
        CU_ASSERT_PTR_NULL(image_mapped(im, m.store, im->size, 1, &at));
        /* Without a store, data reads as zeros. */
        uint8_t byte = 1;
        CU_ASSERT_EQUAL(image_read(im, NULL, t->off + 1, &byte, 1), 0);
        CU_ASSERT_EQUAL(byte, 0);
        image_unref(im);
        close_model(&m);
    }
}

/* The image of a model omits its reserve. */
static void test_reserve(void)
{
    struct model want[2] = {open_model(false, 0), open_model(true, 0)};
    for (int spaces = 0; spaces < 140; spaces++) {
        const bool big = spaces % 2;
        struct model m = open_spaced(big, 0, spaces);
        struct image *im;
        CU_ASSERT_EQUAL_FATAL(image_of_model(m.p.g, &im), 0);
        is(im, m.store, want[big].p.image, want[big].p.size);
        CU_ASSERT_EQUAL(m.p.size - image_cut(m.p.g), want[big].p.size);
        image_unref(im);
        close_model(&m);
    }
    close_model(&want[0]);
    close_model(&want[1]);
}

/* The end of the data is missing from the file. */
static void test_missing(void)
{
    struct model m = open_model(false, 70);
    struct image *im;
    uint8_t bytes[64];
    const struct gguf_tensor *t = &m.p.g->tensor[2];
    uint64_t end = m.p.size - 70;
    CU_ASSERT_EQUAL_FATAL(image_of_model(m.p.g, &im), 0);
    CU_ASSERT_TRUE(t->off > end && m.p.g->tensor[1].off + 34 > end);
    CU_ASSERT_EQUAL(image_read(im, m.store, end, bytes, 1), -EIO);
    CU_ASSERT_EQUAL(image_read(im, m.store, end - 1, bytes, 2), -EIO);
    CU_ASSERT_EQUAL(image_read(im, m.store, end - 1, bytes, 1), 0);
    image_unref(im);
    close_model(&m);
    /* A range beyond the end of a file counts as missing. */
    im = image_new(NULL);
    image_add_file(im, image_file(im, source_mem("abc", 3)), 2, 4);
    CU_ASSERT_EQUAL_FATAL(image_end(im), 0);
    CU_ASSERT_EQUAL(image_read(im, NULL, 0, bytes, 1), 0);
    CU_ASSERT_EQUAL(image_read(im, NULL, 0, bytes, 2), -EIO);
    image_unref(im);
}

static void test_values(void)
{
    for (int big = 0; big < 2; big++) {
        struct model m = open_model(big, 0);
        const struct gguf_tensor *t = m.p.g->tensor;
        uint8_t want[7 + 20 + 64 + 6] = "header";
        for (size_t i = 0; i < 5; i++)
            put_u32(want + 7 + 4 * i, 0x3f800000 + (uint32_t)i, false);
        quant_read_f16(gguf_type(&t[1]), big, m.p.image + t[1].off, 0, 64, want + 27);
        for (size_t i = 0; i < 3; i++)
            put_u16(want + 91 + 2 * i, (uint16_t)(0x0102 * (i + 1)), false);
        char *own = strdup("header");
        struct image *im = image_new(m.p.g);
        image_own(im, own);
        image_add_memory(im, own, 7);
        image_add_values(im, 0, &form_f32);
        image_add_values(im, 1, &form_f16);
        image_add_values(im, 2, &form_stored);
        CU_ASSERT_EQUAL_FATAL(image_end(im), 0);
        is(im, m.store, want, sizeof(want));
        uint8_t byte = 1;
        CU_ASSERT_EQUAL(image_read(im, NULL, 28, &byte, 1), 0);
        CU_ASSERT_EQUAL(byte, 0);
        image_unref(image_ref(im));
        image_unref(im);
        close_model(&m);
    }
}

static void test_files(void)
{
    static const char a[] = "0123456789", b[] = "abcdefghij";
    struct model m = open_model(false, 0);
    struct image *im = image_new(NULL);
    uint32_t one = image_file(im, source_mem(a, 10)), two = image_file(im, source_mem(b, 10));
    uint32_t none = image_file(im, (struct source){.size = 100, .fd = -1});
    uint32_t map = image_file(im, mapped_source(m.file));
    mapped_unref(m.file); /* the image has its own reference */
    image_add_file(im, one, 2, 3);
    image_add_file(im, one, 5, 1);
    image_add_file(im, two, 6, 0);
    image_add_file(im, two, 6, 2);
    image_add_file(im, none, 7, 2);
    image_add_zeros(im, 1);
    image_add_zeros(im, 1);
    image_add_memory(im, b, 2);
    image_add_memory(im, b + 2, 2);
    image_add_file(im, map, 0, 4);
    CU_ASSERT_EQUAL_FATAL(image_end(im), 0);
    is(im, NULL, (const uint8_t *)"2345gh\0\0\0\0abcdGGUF", 18);
    struct source s = image_source(im);
    uint8_t got[18];
    CU_ASSERT_EQUAL(s.size, 18);
    CU_ASSERT_EQUAL(s.read(&s, 0, got, 18), 0);
    CU_ASSERT_EQUAL(memcmp(got, "2345gh", 6), 0);
    image_unref(im);
    m.file = mapped_ref(m.store->file[0]);
    close_model(&m);
}

static CU_TestInfo tests[] = {
    {"the image of a regular model is the model", test_model},
    {"an image omits the reserve", test_reserve},
    {"bytes missing from the file are missing from the image", test_missing},
    {"values are shown in a 16-bit form", test_values},
    {"an image consists of ranges of files and memory", test_files},
    CU_TEST_INFO_NULL,
};

CU_MAIN("image", tests)
