/* SPDX-License-Identifier: MIT */
/* tree: reading when data is missing, either from the start or because the file was truncated while
 * the tree was open. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tree_image.h"

enum { F32 = 0, Q8_0 = 8, I8 = 24 };

static const struct tree_options plain;
static const struct tree_options partial = {.partial = true};

static void content_is(const struct tree_image *m, const char *path, const char *want)
{
    size_t n;
    char *text = image_text(m, path, &n);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

enum { PAGE = 4096, BLOCKS = 600, Q8_BYTES = BLOCKS * 34 };

/* Make two tensors of several pages: "a" is plain, "q" has blocks. Each ends in a page of its
 * own. */
static struct tree_image large(const struct tree_options *o)
{
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.name", "large");
    build_tensor(&b, "a", F32, (uint64_t[]){3 * PAGE}, 1, NULL, 12 * PAGE);
    build_tensor(&b, "q", Q8_0, (uint64_t[]){32 * BLOCKS}, 1, NULL, Q8_BYTES);
    return image_open(&b, o);
}

static size_t offset_of(const struct tree_image *m, const char *path)
{
    size_t n;
    char *text = image_text(m, path, &n);
    size_t off = strtoul(text, NULL, 10);
    free(text);
    return off;
}

/* The header, text files and listings are readable without the data. */
static void header_works(const struct tree_image *m)
{
    uint8_t byte[8];
    content_is(m, "metadata/general.name", "large\n");
    content_is(m, "tensors/q/type", "Q8_0\n");
    CU_ASSERT_EQUAL(image_bytes(m, "model.gguf", 0, 8, byte), 8);
    CU_ASSERT_EQUAL(memcmp(byte, "GGUF\3\0\0\0", 8), 0);
    CU_ASSERT_EQUAL(image_stat(m, "tensors/q/raw").st_size, Q8_BYTES);
    CU_ASSERT_EQUAL(image_stat(m, "tensors/q/f32").st_size, BLOCKS * 32 * 4);
    CU_ASSERT_EQUAL(image_stat(m, "model.gguf").st_size, (off_t)m->size);
}

/* If the file ends `kept` bytes into the data of q, only bytes before that can be read. */
static void cut_in_q(const struct tree_image *m, size_t kept)
{
    uint8_t byte[256];
    size_t q = offset_of(m, "tensors/q/offset"), whole = kept / 34;
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/a/raw", 0, 256, byte), 256);
    CU_ASSERT_EQUAL(memcmp(byte, m->image + offset_of(m, "tensors/a/offset"), 256), 0);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", kept - 16, 16, byte), 16);
    CU_ASSERT_EQUAL(memcmp(byte, m->image + q + kept - 16, 16), 0);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", kept - 16, 17, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", kept, 1, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/raw", Q8_BYTES - 1, 1, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * whole - 4, 4, byte), 4);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * whole, 4, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * BLOCKS - 4, 4, byte), -EIO);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32.npy", 0, 128, byte), 128);
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32.npy", 128 * BLOCKS, 256, byte), -EIO);
    /* A read at the end of a view returns no bytes. */
    CU_ASSERT_EQUAL(image_bytes(m, "tensors/q/f32", 128 * BLOCKS, 4, byte), 0);
    CU_ASSERT_EQUAL(image_bytes(m, "model.gguf", q, 256, byte), 256);
    CU_ASSERT_EQUAL(image_bytes(m, "model.gguf", q + kept, 1, byte), -EIO);
    header_works(m);
}

/* The file is truncated while the tree is open: either inside a page, whose rest then reads as
 * zeros, or by whole pages (SIGBUS). */
static void test_cut_behind(void)
{
    static const size_t kept[] = {4 * PAGE + 100, 4 * PAGE, 1000};
    struct tree_image m = large(&plain);
    size_t q = offset_of(&m, "tensors/q/offset");
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(ftruncate(m.fd, (off_t)(q + kept[i])), 0);
        cut_in_q(&m, kept[i]);
    }
    CU_ASSERT_EQUAL(ftruncate(m.fd, 0), 0);
    header_works(&m);
    /* Once the file has its bytes back, reads no longer return the error. */
    CU_ASSERT_EQUAL(pwrite(m.fd, m.image, m.size, 0), (ssize_t)m.size);
    content_is(&m, "tensors/q/type", "Q8_0\n");
    uint8_t byte[64];
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/q/f32", 128 * BLOCKS - 64, 64, byte), 64);
    image_close(&m);
}

static void test_partial(void)
{
    struct tree_image whole = large(&plain), m;
    size_t kept = 2 * PAGE + 10, n = offset_of(&whole, "tensors/q/offset") + kept;
    struct err e = {0};
    CU_ASSERT_EQUAL(image_try(whole.image, n, &plain, &m, &e), -ENODATA);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "bytes are missing"));
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "-o partial"));
    CU_ASSERT_EQUAL_FATAL(image_try(whole.image, n, &partial, &m, &e), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(tree_warning(m.t, 0));
    const char *last = NULL, *line;
    for (unsigned i = 0; (line = tree_warning(m.t, i)); i++)
        last = line;
    CU_ASSERT_STRING_EQUAL(last, "the file is incomplete: reading the missing part gives EIO");
    m.image = malloc(whole.size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m.image);
    memcpy(m.image, whole.image, whole.size);
    m.size = (size_t)image_stat(&m, "model.gguf").st_size;
    CU_ASSERT_EQUAL(m.size, offset_of(&whole, "tensors/q/offset") + Q8_BYTES);
    cut_in_q(&m, kept);
    image_close(&m);
    image_close(&whole);
}

/* With the maximum number of elements, views have the largest sizes that can be shown. */
static void test_huge(void)
{
    struct build b;
    struct tree_image m;
    struct err e = {0};
    size_t n;
    build_init(&b, 3, false);
    build_tensor(&b, "h", I8, (uint64_t[]){GGUF_MAX_ELEMENTS}, 1, NULL, 0);
    uint8_t *image = build_finish(&b, &n);
    CU_ASSERT_EQUAL(image_try(image, n, &plain, &m, &e), -ENODATA);
    CU_ASSERT_EQUAL_FATAL(image_try(image, n, &partial, &m, &e), 0);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/h/raw").st_size, 1ll << 60);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/h/f32").st_size, 1ll << 62);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/h/f32.npy").st_size, (1ll << 62) + 128);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/h/raw", 1ull << 59, 1, &e), -EIO);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/h/f32", (1ull << 62) - 1, 1, &e), -EIO);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/h/f32", 1ull << 62, 1, &e), 0);
    free(image);
    image_close(&m);
}

static CU_TestInfo tests[] = {
    {"a file truncated while the tree is open gives EIO, and other reads succeed", test_cut_behind},
    {"an incomplete download is shown only on request", test_partial},
    {"a tensor with the maximum number of values shows its sizes", test_huge},
    CU_TEST_INFO_NULL,
};

CU_MAIN("gone", tests)
