/* SPDX-License-Identifier: MIT */
/* A tree, its files and its texts take a small multiple of the model file's size in memory. */
#include "cu_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "base/bytes.h"
#include "tree_image.h"

/* Memory that even the smallest file may take: minimal tables and a thread. */
#define FIXED ((size_t)1 << 16)

/* Open the image, read these files, list `folder`, and check what that took: each byte of the file
 * becomes up to six of text, which grows by doubling, as does the test's copy. Of `check`, whose
 * size is reported as 0, only the beginning is read. */
static void costs(const void *image, size_t n, bool read_only, const char *const *files,
                  const char *folder, uint32_t entries)
{
    CLEANUP(image_close) struct tree_image m;
    struct tree_dir *d = NULL;
    struct tree_entry e;
    char first[16], name[TREE_NAME_MAX + 1];
    size_t size;
    uint64_t cookie = 0;
    const struct tree_options o = {.read_only = read_only};
    alloc_count();
    CU_ASSERT_EQUAL_FATAL(image_try(image, n, &o, &m, NULL), 0);
    for (; *files; files++)
        if (strcmp(*files, "check") == 0)
            CU_ASSERT_TRUE(image_bytes(&m, *files, 0, sizeof(first), first) >= 0)
        else
            free(image_text(&m, *files, &size));
    CU_ASSERT_EQUAL_FATAL(tree_opendir(m.t, image_node(&m, folder), &d), 0);
    while (tree_readdir(m.t, d, &cookie, true, name, &e) > 0)
        entries--;
    CU_ASSERT_EQUAL(entries, (uint32_t)-2); /* . and .. */
    tree_closedir(d);
    if (alloc_peak() >= 32 * n + FIXED)
        (void)printf("\n  %zu bytes for a file of %zu\n", alloc_peak(), n);
    CU_ASSERT_TRUE(alloc_peak() < 32 * n + FIXED);
}

/* Return an image with the shortest possible entries. Each name has three bytes, none of them
 * zero. */
static uint8_t *smallest(bool keys, uint32_t entries, size_t *n)
{
    struct buf b = BUF_INIT;
    buf_str(&b, "GGUF");
    buf_uint(&b, 3, 4, false);
    buf_uint(&b, keys ? 0 : entries, 8, false);
    buf_uint(&b, keys ? entries : 0, 8, false);
    for (uint32_t i = 0; i < entries; i++) {
        buf_uint(&b, 3, 8, false);
        for (unsigned shift = 0; shift < 18; shift += 6)
            buf_char(&b, (char)('0' + (i >> shift & 63)));
        buf_uint(&b, 0, 4, false); /* u8; no dimensions */
        if (keys) {
            buf_uint(&b, 0, 1, false);
        } else {
            buf_uint(&b, 0, 4, false); /* F32 */
            buf_uint(&b, (uint64_t)i * 32, 8, false);
        }
    }
    buf_zero(&b, keys ? 0 : 31 + 32 * (size_t)entries);
    CU_ASSERT_EQUAL_FATAL(buf_error(&b), 0);
    *n = b.len;
    return buf_steal(&b);
}

TEST("a tree costs a small multiple of its file")
{
    enum { ENTRIES = 32769 };
    static const char *const whole[] = {
        "metadata.json", "tensors.json",      "tensors.txt", "info", "check",
        "model.gguf",    "model.safetensors", "stats.tsv",   NULL};
    for (int i = 0; i < 4; i++) {
        size_t n;
        CLEANUP(free_it) uint8_t *image = smallest(i & 1, ENTRIES, &n);
        costs(image, n, i & 2, whole, i & 1 ? "metadata" : "tensors", ENTRIES);
    }
}

/* Values with the longest text possible for the bytes that they take in the file. */
TEST("texts cost a small multiple of the file")
{
    enum { BYTES = 300000 };
    static const struct {
        enum gguf_value_type type;
        uint64_t bits;
    } rows[] = {{GGUF_BOOL, 0},
                {GGUF_I8, 0x80},                /* -128 */
                {GGUF_F32, 0x80000001},         /* -1e-45 */
                {GGUF_F64, 0xffefffffffffffff}, /* -1.7976931348623157e+308 */
                {GGUF_STRING, 0},
                {GGUF_ARRAY, 0}};
    static const char *const files[] = {"metadata/a.b", "metadata.json", "info", "check", NULL};
    for (size_t i = 0; i < 2 * COUNT(rows); i++) {
        const enum gguf_value_type type = rows[i / 2].type;
        const unsigned width = gguf_types[type].width ? gguf_types[type].width : 10;
        size_t n;
        struct build b = build_of(3, false);
        build_array(&b, "a.b", type, BYTES / width);
        for (unsigned k = 0; k < BYTES / width; k++)
            if (type == GGUF_STRING)
                build_item_str(&b, "\xff\x01"); /* \udcff\u0001 */
            else if (type == GGUF_ARRAY)
                build_item_array(&b, GGUF_U8, 0);
            else
                build_item_num(&b, type, rows[i / 2].bits);
        CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
        costs(image, n, i & 1, files, "metadata", 1);
    }
}
