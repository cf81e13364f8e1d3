/* SPDX-License-Identifier: MIT */
/* Files modelled on published security advisories about other GGUF readers, tested in every layer
 * from the parser to the tree. A file is either refused, at a cost proportional to its size, or
 * shown without a name that leads outside the tree. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "base/bytes.h"
#include "quant/types.h"
#include "tree_image.h"

enum { F32 = 0, I8 = 24, I64 = 27 };
/* Memory that even the smallest file may take: minimal tables and a thread. */
#define FIXED ((size_t)1 << 16)

/* ---- files that are refused ---- */

static void one_key(struct build *b)
{
    build_u32(b, "a.b", 1); /* length at 24, type at 35 */
}

static void string_key(struct build *b)
{
    build_str(b, "a.b", "text"); /* length at 39 */
}

static void strings_key(struct build *b)
{
    build_array(b, "a.b", GGUF_STRING, 1); /* count at 43 */
    build_item_str(b, "text");             /* length at 51 */
}

static void numbers_key(struct build *b)
{
    build_array(b, "a.b", GGUF_U64, 1); /* count at 43 */
    build_item_num(b, GGUF_U64, 1);
}

/* The parser has already allocated several values when it finds the fault, and must free them. */
static void keys_then_fault(struct build *b)
{
    strings_key(b);
    build_array(b, "c.d", GGUF_STRING, 1);
    build_item_str(b, "text");
    build_array(b, "e.f", GGUF_STRING, 1);
    build_item_str(b, "text");
}

static void one_tensor(struct build *b)
{
    build_tensor(b, "t", F32, (uint64_t[]){4}, 1, NULL, 16); /* n_dims at 33, dimension at 37 */
}

static void square(struct build *b)
{
    build_tensor(b, "t", F32, (uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 32}, 2, NULL, 16);
}

static void hidden_by_zero(struct build *b)
{
    build_tensor(b, "t", F32, (uint64_t[]){(uint64_t)1 << 40, (uint64_t)1 << 40, 0}, 3, NULL, 0);
}

/* Each size is legal, but the sum of the padded sizes wraps to a small number. */
static void sum_wraps(struct build *b)
{
    static const uint64_t half[] = {(uint64_t)1 << 60};
    build_tensor(b, "a", I64, half, 1, NULL, 0);
    build_tensor(b, "b", I64, half, 1, NULL, 0); /* offset at 82 */
    build_tensor(b, "c", F32, (uint64_t[]){4}, 1, NULL, 16);
}

/* Only the padding makes this size wrap. */
static void padding_wraps(struct build *b)
{
    build_tensor(b, "a", I8, (uint64_t[]){INT64_MAX}, 1, NULL, 0);
    build_tensor(b, "b", I8, (uint64_t[]){INT64_MAX}, 1, NULL, 0); /* offset at 82 */
}

static void aligned(struct build *b)
{
    build_u32(b, "general.alignment", 32); /* type at 49, value at 53 */
    one_tensor(b);
}

static void aligned_by_text(struct build *b)
{
    build_str(b, "general.alignment", "32");
    one_tensor(b);
}

static void nested(struct build *b)
{
    build_array(b, "a.b", GGUF_ARRAY, 1);
    for (int i = 0; i < 50000; i++)
        build_item_array(b, GGUF_ARRAY, 1);
    build_item_array(b, GGUF_U8, 0);
}

struct bad_file {
    const char *name;
    void (*make)(struct build *b);
    uint32_t at; /* offset at which `value` is written as `width` bytes; width 0: not written */
    uint8_t width;
    uint64_t value;
    uint32_t cut; /* length to which the file is cut; 0: not cut */
};

#define P(n) ((uint64_t)1 << (n))

// clang-format off
static const struct bad_file cases[] = {
    {"a file of only the magic (CVE-2024-39720)",                 one_key,         0, 0, 0, 4},
    {"an empty file",                                             one_key,         0, 0, 0, 1},
    {"tensors whose table wraps to 0 bytes (CVE-2024-21836)",     one_tensor,      8, 8, P(60), 0},
    {"tensors whose table wraps to few bytes (CVE-2024-21836)",   one_tensor,      8, 8, UINT64_MAX / 88 + 2, 0},
    {"as many tensors as a word can hold (CVE-2025-0315)",        one_tensor,      8, 8, UINT64_MAX, 0},
    {"keys whose table wraps to 0 bytes (CVE-2024-23605)",        one_key,        16, 8, P(59), 0},
    {"keys whose table wraps to few bytes (CVE-2024-23605)",      one_key,        16, 8, UINT64_MAX / 48 + 2, 0},
    {"a negative number of keys",                                 one_key,        16, 8, (uint64_t)-2, 0},
    {"a key's length plus one wraps (CVE-2024-23496)",            one_key,        24, 8, UINT64_MAX, 0},
    {"a string's length plus one wraps (CVE-2024-23496)",         string_key,     39, 8, UINT64_MAX, 0},
    {"a string's length is negative",                             string_key,     39, 8, (uint64_t)-9, 0},
    {"a string that ends one byte past the file",                 string_key,     39, 8, 5, 0},
    {"an element's length plus one wraps (CVE-2024-23496)",       strings_key,    51, 8, UINT64_MAX, 0},
    {"strings whose table wraps to 0 bytes (CVE-2024-21825)",     strings_key,    43, 8, P(60), 0},
    {"strings whose table wraps to few bytes (CVE-2024-21825)",   strings_key,    43, 8, UINT64_MAX / 16 + 2, 0},
    {"as many strings as would take 16 GiB (CVE-2025-0315)",      strings_key,    43, 8, P(30), 0},
    {"numbers whose bytes wrap (CVE-2024-21825)",                 numbers_key,    43, 8, P(61), 0},
    {"an invalid element type",                                   strings_key,    39, 4, 0x7fffffff, 0},
    {"an invalid value type",                                     one_key,        35, 4, (uint32_t)-1, 0},
    {"a fault after strings that were read (CVE-2024-32878)",     keys_then_fault, 71, 8, P(62), 0},
    {"the file ends after strings that were read (CVE-2024-32878)", keys_then_fault, 0, 0, 0, 100},
    {"more dimensions than a table holds (CVE-2024-21802)",       one_tensor,     33, 4, 0x1000000, 0},
    {"a negative number of dimensions (CVE-2024-21802)",          one_tensor,     33, 4, (uint32_t)-1, 0},
    {"a negative dimension (CVE-2024-21802)",                     one_tensor,     37, 8, (uint64_t)-4, 0},
    {"a product that wraps to 0 (CVE-2026-33298)",                square,          0, 0, 0, 0},
    {"a product that wraps, hidden by a zero dimension (CVE-2026-33298)", hidden_by_zero,  0, 0, 0, 0},
    {"a size in bytes that wraps (CVE-2026-33298)",               one_tensor,     37, 8, P(62), 0},
    {"a sum of sizes that wraps (CVE-2025-53630)",                sum_wraps,      82, 8, P(63), 0},
    {"a sum that wraps by its padding (CVE-2026-27940)",          padding_wraps,  82, 8, P(63), 0},
    {"an offset near 2^64",                                       one_tensor,     49, 8, UINT64_MAX - 31, 0},
    {"data beyond the end of the file",                           one_tensor,     49, 8, P(40), 0},
    {"alignment 0 (CVE-2025-0317)",                               aligned,        53, 4, 0, 0},
    {"alignment not a power of two",                              aligned,        53, 4, 33, 0},
    {"alignment of another type of the same width",               aligned,        49, 4, GGUF_I32, 0},
    {"a float alignment",                                         aligned,        49, 4, GGUF_F32, 0},
    {"a string alignment",                                        aligned_by_text, 0, 0, 0, 0},
    {"arrays nested 50000 deep",                                  nested,          0, 0, 0, 0},
};
// clang-format on

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct bad_file *row = &cases[i];
        struct tree_image m;
        struct build b;
        struct err e = {0};
        size_t n;
        build_init(&b, 3, false);
        row->make(&b);
        uint8_t *image = build_finish(&b, &n);
        if (row->width)
            put_uint(image + row->at, row->value, row->width, false);
        if (row->cut)
            n = row->cut;
        alloc_count();
        int r = image_try(image, n, &(struct tree_options){0}, &m, &e);
        size_t peak = alloc_peak();
        if ((r != -EBADMSG && r != -ENODATA) || peak > 8 * n + FIXED)
            (void)printf("\n  %s: %d, %s; %zu bytes of memory\n", row->name, r, e.msg, peak);
        CU_ASSERT_TRUE(r == -EBADMSG || r == -ENODATA);
        CU_ASSERT_TRUE(peak <= 8 * n + FIXED);
        CU_ASSERT_PTR_NULL(strchr(e.msg, '\n'));
        if (r == 0)
            image_close(&m);
        free(image);
    }
}

/* An invalid type is never used as a table index. The tensor has no values, only its bytes. */
static void test_type_out_of_table(void)
{
    static const uint32_t ids[] = {QUANT_N_TYPES, 255, 0x7fffffff, 0x80000000, 0xffffffff};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct build b;
        char text[64];
        size_t n;
        build_init(&b, 3, false);
        build_tensor(&b, "t", ids[i], (uint64_t[]){4}, 1, NULL, 32);
        struct tree_image m = image_open(&b, &(struct tree_options){0});
        (void)snprintf(text, sizeof(text), "unknown:%u\n", ids[i]);
        char *shown = image_text(&m, "tensors/t/type", &n);
        CU_ASSERT_STRING_EQUAL(shown, text);
        CU_ASSERT_EQUAL(image_node(&m, "tensors/t/f32"), 0);
        CU_ASSERT_EQUAL(image_stat(&m, "tensors/t/raw").st_size, 32);
        free(shown);
        image_close(&m);
    }
}

/* ---- names that mean another place on other systems ---- */

static const struct {
    const char *name;
    size_t n;
    const char *shown;
} names[] = {
    {"../../etc/passwd", 16, "..%2F..%2Fetc%2Fpasswd"},
    {"/etc/passwd", 11, "%2Fetc%2Fpasswd"},
    {"..", 2, "%2E%2E"},
    {".", 1, "%2E"},
    {"a\0b", 3, "a%00b"},
    {"\0", 1, "%00"},
    {"\x1b[2J\x1b]0;x\x07", 10, "%1B[2J%1B]0;x%07"},
    {"a\nb", 3, "a%0Ab"},
    {"%2F", 3, "%252F"},
    {"", 0, "%"},
};
enum { NAMES = sizeof(names) / sizeof(names[0]) };

/* Check that each name is listed, and can be looked up, only as a single path component. */
static void check_names(const char *folder, bool read_only)
{
    struct build b;
    build_init(&b, 3, false);
    bool keys = strcmp(folder, "metadata") == 0;
    for (size_t i = 0; i < NAMES; i++)
        if (keys && names[i].n)
            build_raw(&b, names[i].name, names[i].n, GGUF_U8, "x", 1);
        else if (!keys && strlen(names[i].name) == names[i].n)
            build_tensor(&b, names[i].name, F32, (uint64_t[]){8}, 1, NULL, 32);
    struct tree_image m = image_open(&b, &(struct tree_options){.read_only = read_only});
    char *list = image_list(&m, folder);
    size_t found = 0;
    for (size_t i = 0; i < NAMES; i++) {
        struct tree_entry e;
        char line[64];
        (void)snprintf(line, sizeof(line), "%s\n", names[i].shown);
        if (!strstr(list, line))
            continue;
        found++;
        uint64_t dir = image_node(&m, folder);
        CU_ASSERT_EQUAL(tree_lookup(m.t, dir, names[i].shown, &e), 0);
        if (strcmp(names[i].name, names[i].shown) != 0 && names[i].n == strlen(names[i].name))
            CU_ASSERT_EQUAL(tree_lookup(m.t, dir, names[i].name, &e), -ENOENT);
    }
    CU_ASSERT_EQUAL(found, keys ? NAMES - 1 : NAMES - 2);
    for (const char *p = list; *p; p++)
        CU_ASSERT_TRUE(*p != '/' && *p != '\x1b');
    free(list);
    image_close(&m);
}

static void test_names(void)
{
    check_names("metadata", true);
    check_names("metadata", false);
    check_names("tensors", true);
}

/* ---- a tree costs a small multiple of its file ---- */

/* Read all of a view, but only the first bytes of `check`, whose size is reported as 0. */
static void make_view(const struct tree_image *m, const char *path)
{
    size_t n;
    char first[16];
    if (strcmp(path, "check") == 0) {
        CU_ASSERT_TRUE(image_bytes(m, path, 0, sizeof(first), first) >= 0);
    } else {
        free(image_text(m, path, &n));
    }
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
            buf_uint(&b, F32, 4, false);
            buf_uint(&b, (uint64_t)i * 32, 8, false);
        }
    }
    buf_zero(&b, keys ? 0 : 31 + 32 * (size_t)entries);
    CU_ASSERT_EQUAL_FATAL(buf_error(&b), 0);
    *n = b.len;
    return buf_steal(&b);
}

/* Return the number of entries in a directory. */
static uint32_t count_entries(const struct tree_image *m, const char *folder)
{
    struct tree_dir *d = NULL;
    struct tree_entry e;
    char name[TREE_NAME_MAX + 1];
    uint64_t cookie = 0;
    uint32_t n = 0;
    CU_ASSERT_EQUAL_FATAL(tree_opendir(m->t, image_node(m, folder), &d), 0);
    while (tree_readdir(m->t, d, &cookie, true, name, &e) > 0)
        n++;
    tree_closedir(d);
    return n;
}

static void test_cost(void)
{
    enum { ENTRIES = 32769 };
    static const char *const whole[] = {
        "metadata.json", "tensors.json", "tensors.txt",       "info",
        "check",         "model.gguf",   "model.safetensors", "stats.tsv"};
    for (int i = 0; i < 4; i++) {
        struct tree_image m;
        size_t n;
        uint8_t *image = smallest(i & 1, ENTRIES, &n);
        alloc_count();
        CU_ASSERT_EQUAL_FATAL(
            image_try(image, n, &(struct tree_options){.read_only = i & 2}, &m, NULL), 0);
        for (size_t k = 0; k < sizeof(whole) / sizeof(whole[0]); k++)
            make_view(&m, whole[k]);
        CU_ASSERT_EQUAL(count_entries(&m, i & 1 ? "metadata" : "tensors"), ENTRIES + 2);
        /* The JSON takes about 70 bytes for every 16 bytes of the file, and the test copies the
         * JSON. */
        CU_ASSERT_TRUE(alloc_peak() < 32 * n + FIXED);
        if (alloc_peak() >= 32 * n + FIXED)
            (void)printf("\n  %zu bytes for a file of %zu\n", alloc_peak(), n);
        image_close(&m);
        free(image);
    }
}

/* Number of values. Each has the longest text possible for the bytes that it takes in the file. */

enum { ITEMS = 300000 };

static void control_text(struct build *b)
{
    char *text = malloc(ITEMS);
    memset(text, 1, ITEMS); /* each byte is shown as \u0001 */
    build_str_n(b, "a.b", text, ITEMS);
    free(text);
}

static void control_texts(struct build *b)
{
    build_array(b, "a.b", GGUF_STRING, ITEMS / 10);
    for (int i = 0; i < ITEMS / 10; i++)
        build_item_str(b, "\xff\xff");
}

static void bools(struct build *b)
{
    build_array(b, "a.b", GGUF_BOOL, ITEMS);
    for (int i = 0; i < ITEMS; i++)
        build_item_num(b, GGUF_BOOL, 0);
}

static void signed_bytes(struct build *b)
{
    build_array(b, "a.b", GGUF_I8, ITEMS);
    for (int i = 0; i < ITEMS; i++)
        build_item_num(b, GGUF_I8, 0x80); /* -128 */
}

static void floats(struct build *b)
{
    build_array(b, "a.b", GGUF_F32, ITEMS / 4);
    for (int i = 0; i < ITEMS / 4; i++)
        build_item_num(b, GGUF_F32, 0x80000001); /* -1e-45 */
}

static void doubles(struct build *b)
{
    build_array(b, "a.b", GGUF_F64, ITEMS / 8);
    for (int i = 0; i < ITEMS / 8; i++)
        build_item_num(b, GGUF_F64, 0xffefffffffffffff); /* -1.7976931348623157e+308 */
}

static void empty_lists(struct build *b)
{
    build_array(b, "a.b", GGUF_ARRAY, ITEMS / 10);
    for (int i = 0; i < ITEMS / 10; i++)
        build_item_array(b, GGUF_U8, 0);
}

static void test_cost_of_values(void)
{
    static void (*const make[])(struct build *) = {
        control_text, control_texts, bools, signed_bytes, floats, doubles, empty_lists};
    static const char *const views[] = {"metadata/a.b", "metadata.json", "info", "check"};
    for (size_t i = 0; i < 2 * sizeof(make) / sizeof(make[0]); i++) {
        struct tree_image m;
        struct build b;
        size_t n;
        build_init(&b, 3, false);
        make[i / 2](&b);
        uint8_t *image = build_finish(&b, &n);
        alloc_count();
        CU_ASSERT_EQUAL_FATAL(
            image_try(image, n, &(struct tree_options){.read_only = i & 1}, &m, NULL), 0);
        for (size_t k = 0; k < sizeof(views) / sizeof(views[0]); k++)
            make_view(&m, views[k]);
        /* Each byte of the file becomes six bytes of text. The text and the test's copy of it both
         * grow by doubling. */
        CU_ASSERT_TRUE(alloc_peak() < 32 * n + FIXED);
        if (alloc_peak() >= 32 * n + FIXED)
            (void)printf("\n  %zu: %zu bytes for a file of %zu\n", i, alloc_peak(), n);
        image_close(&m);
        free(image);
    }
}

static CU_TestInfo tests[] = {
    {"files from published advisories are refused at little cost", test_refused},
    {"a type outside the table never indexes it", test_type_out_of_table},
    {"names that are paths elsewhere name nothing outside the tree", test_names},
    {"a tree costs a small multiple of its file", test_cost},
    {"texts cost a small multiple of the file", test_cost_of_values},
    CU_TEST_INFO_NULL,
};

CU_MAIN("advisories", tests)
