/* SPDX-License-Identifier: MIT */
/*
 * gguf_parse: refused files, their errors, and the byte named in the message. Numbers that wrap are
 * those of published advisories about other readers; a refusal costs no more memory than the file's
 * size justifies, whatever it claims.
 *
 * A case is a row of the table `cases`: an image (the base image, or the result of `make`), at most
 * one number written over it, and the expected refusal. The base image, version 3, little-endian:
 *
 *       0 magic      4 version      8 tensors: 2      16 keys: 4
 *      24 key 0  'k.u32' u32      37 type    41 value
 *      45 key 1  'k.str' string   58 type    62 length   70 "abc"
 *      73 key 2  'k.arr' i32[2]   86 type    90 element type   94 count   102 elements
 *     110 key 3  'k.tok' str[2]  123 type   127 element type  131 count   139 "x"   148 "yz"
 *     158 tensor 0 't0'  168 dimensions: 2  172 4  180 2   188 type F32   192 offset 0
 *     200 tensor 1 't1'  210 dimensions: 1  214 3          222 type F16   226 offset 32
 *     234 end of the header      256 data of t0      288 data of t1      294 its end      320 end
 */
#include "cu_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "base/bytes.h"
#include "build_gguf.h"

enum { F32 = 0, F16 = 1, Q8_0 = 8 };
enum { HEAD_END = 234, DATA_END = 294, BASE_END = 320 };

#define BASE_TEXT                                                                      \
    "k.u32:u32=7|k.str=abc|k.arr:array=i32[1,2]|k.tok:array=string[x,yz]|>t0 F32 4x2|" \
    ">t1 F16 3"

/* ---- images that no text describes ---- */

static void make_nested(struct build *b, int depth)
{
    build_array(b, "k", GGUF_ARRAY, 1);
    for (int i = 1; i < depth; i++)
        build_item_array(b, GGUF_ARRAY, 1);
    build_item_array(b, GGUF_U8, 0);
}

static void make_deep(struct build *b)
{
    make_nested(b, GGUF_MAX_DEPTH);
}

static void make_very_deep(struct build *b)
{
    make_nested(b, 100000);
}

static void make_array_of_arrays(struct build *b)
{
    build_array(b, "k", GGUF_ARRAY, 1);
    build_item_array(b, GGUF_ARRAY, UINT64_MAX / 12 + 1); /* 12 times this wraps to 8 */
}

static void make_nul_counted(struct build *b)
{
    *b = build_of(2, false);
    build_text(b,
               "general.alignment^:u32=1|a.b:u32=1"); /* one string has no NUL: none is trimmed */
}

static void make_base(struct build *b)
{
    build_text(b, BASE_TEXT);
}

static void make_v1(struct build *b)
{
    *b = build_of(1, false);
    make_base(b);
}

static void make_draft(struct build *b)
{
    *b = build_draft();
    make_base(b);
}

static void make_big(struct build *b)
{
    *b = build_of(3, true);
    make_base(b);
}

/* ---- the table ---- */

struct row {
    const char *name, *text;
    void (*make)(struct build *b); /* neither: the base image */
    /* offset at which `value` is written, little-endian, as `width` bytes; width 0: not written */
    uint32_t at;
    uint8_t width;
    uint64_t value;
    uint32_t cut;  /* length to which the image is truncated; 0: not truncated */
    int code;      /* 0: EBADMSG */
    uint64_t byte; /* position named in the message */
    const char *words;
};

#define MAX UINT64_MAX
#define P(n) ((uint64_t)1 << (n))
#define ROW(n, b, s, ...)                             \
    {                                                 \
        .name = n, .byte = b, .words = s, __VA_ARGS__ \
    }
#define AT(a, w, v) .at = a, .width = w, .value = v
#define BASE(n, a, w, v, b, s) ROW(n, b, s, AT(a, w, v))
#define ALIGNED .text = "general.alignment:u32=32|" BASE_TEXT
#define CUT(n) .cut = n, .code = -ENODATA

// clang-format off
static const struct row cases[] = {
    BASE("magic",                     0, 4, 0x66554747,      0, "magic"),
    BASE("magic reversed",            0, 4, 0x47475546,      0, "'FUGG' is not 'GGUF'"),
    BASE("version 0",                 4, 4, 0,               4, "0 is not a version"),
    BASE("version 4",                 4, 4, 4,               4, "4 is not a version"),
    BASE("version 2^32-1",            4, 4, 0xffffffff,      4, "4294967295 is not a version"),
    BASE("version 0x10003",           4, 4, 0x10003,         4, "65539 is not a version"),
    BASE("version big 4",             4, 4, 0x04000000,      4, "big-endian 4 is not a version"),
    BASE("version big 1",             4, 4, 0x01000000,      4, "big-endian 1 is not a version"),
    BASE("tensors 2^64-1",            8, 8, MAX,             8, "cannot fit into a file of 320"),
    BASE("tensors whose table wraps", 8, 8, MAX / 88 + 2,    8, "cannot fit"),
    BASE("tensors 2^63",              8, 8, P(63),           8, "cannot fit"),
    BASE("tensors 2^32",              8, 8, P(32),           8, "cannot fit"),
    BASE("tensors over size / 20",    8, 8, 16,              8, "into a file of 320 bytes (an incomplete download?)"),
    BASE("keys 2^64-1",              16, 8, MAX,            16, "cannot fit"),
    BASE("keys whose table wraps",   16, 8, MAX / 48 + 2,   16, "cannot fit"),
    BASE("keys 2^61",                16, 8, P(61),          16, "cannot fit"),
    BASE("keys over size / 10",      16, 8, 30,             16, "number of keys"),
    BASE("key length 2^64-1",        24, 8, MAX,            24, "key 0: key length"),
    BASE("key length 2^64-8",        24, 8, MAX - 7,        24, "over the limit"),
    BASE("key length 2^63",          24, 8, P(63),          24, "over the limit"),
    BASE("key length 2^30+1",        24, 8, P(30) + 1,      24, "over the limit of 1073741824"),
    BASE("key length 2^30",          24, 8, P(30),          32, "1073741824 bytes needed, 288 left"),
    BASE("key length past the end",  24, 8, 289,            32, "left (an incomplete download?)"),
    BASE("key empty",                24, 8, 0,              24, "the key is empty"),
    BASE("key twice",                54, 4, 0x3233752e,     53, "key 1 'k.u32': name at byte 53: the same name as key 0"),
    BASE("value type 13",            37, 4, 13,             37, "key 0 'k.u32': value type at byte 37: 13 is not"),
    BASE("value type 256",           37, 4, 256,            37, "256 is not a value type"),
    BASE("value type 2^31",          37, 4, P(31),          37, "not a value type"),
    BASE("value type 2^32-1",        37, 4, 0xffffffff,     37, "not a value type"),
    BASE("string length 2^64-1",     62, 8, MAX,            62, "key 1 'k.str': string length"),
    BASE("string length 2^30+1",     62, 8, P(30) + 1,      62, "over the limit"),
    BASE("string past the end",      62, 8, 251,            70, "251 bytes needed, 250 left"),
    BASE("element type 13",          90, 4, 13,             90, "array element type"),
    BASE("element type 2^32-1",      90, 4, 0xffffffff,     90, "4294967295 is not a value type"),
    BASE("array 2^64-1",             94, 8, MAX,            94, "18446744073709551615 elements of type i32"),
    BASE("array 2^62: 0 bytes",      94, 8, P(62),          94, "do not fit"),
    BASE("array 2^30+1",             94, 8, P(30) + 1,      94, "do not fit"),
    BASE("array one too many",       94, 8, 55,             94, "do not fit into the 218 bytes left (an incomplete download?)"),
    BASE("strings 2^61: 0 bytes",   131, 8, P(61),         131, "elements of type string"),
    BASE("strings 2^64-1",          131, 8, MAX,           131, "do not fit"),
    BASE("strings over size / 8",   131, 8, 23,            131, "do not fit into the 181 bytes left"),
    BASE("string item 2^64-1",      139, 8, MAX,           139, "key 3 'k.tok': array string length"),
    BASE("string item past the end", 148, 8, 165,          156, "array string length"),
    BASE("name length 2^64-1",      158, 8, MAX,           158, "tensor 0: name length"),
    BASE("name length past the end", 158, 8, 155,          166, "name length"),
    BASE("name twice",              209, 1, '0',           208, "tensor 1 't0': name at byte 208: the same name as tensor 0"),
    BASE("33 dimensions",           168, 4, 33,            168, "tensor 0 't0': number of dimensions"),
    BASE("2^32-1 dimensions",       168, 4, 0xffffffff,    168, "4294967295 is over the limit of 32"),
    BASE("dimension -1",            172, 8, MAX,           172, "-1 is negative"),
    BASE("dimension -2^63",         180, 8, P(63),         180, "is negative"),
    BASE("elements wrap to 0",      180, 8, P(62),         180, "the number of elements overflows"),
    BASE("elements over 2^63-1",    180, 8, P(61),         180, "the number of elements overflows"),
    BASE("elements over the limit", 180, 8, P(58) + 1,     180, "the number of elements overflows"),
    BASE("not a row of blocks",     188, 4, Q8_0,          172, "4 elements per row is not a multiple of 32"),
    BASE("offset 33",               226, 8, 33,            226, "33 is not a multiple of the alignment of 32"),
    BASE("offset 16",               226, 8, 16,            226, "not a multiple"),
    BASE("first offset 8",          192, 8, 8,             192, "tensor 0 't0': offset"),
    BASE("offset 2^64-32",          226, 8, MAX - 31,      226, "the end of the data overflows"),
    BASE("offset 2^63",             226, 8, P(63),         226, "the end of the data overflows"),
    BASE("offset of another",       226, 8, 0,             226, "begins at 256, inside that of tensor 0 (256 to 288)"),
    ROW("overlap in part", 82, "tensor 1 'b': offset", .text = ">a F32 16 64 0|>b F32 1 4 32"),
    ROW("overlap of unknown", 82, "inside that of tensor 0", .text = ">a 9999 1 4 0|>b F32 1 4 0"),
    ROW("nested too deep", 133, "nested more than 8 deep", .make = make_deep),
    ROW("nested 100000 deep", 133, "nested more than 8 deep", .make = make_very_deep),
    ROW("arrays wrap", 53, "elements of type array do not fit", .make = make_array_of_arrays),
    ROW("2^32 x 2^32", 45, "the number of elements overflows", .text = ">t F32 4294967296x4294967296 0"),
    ROW("2^16 to the 4th", 61, "the number of elements overflows", .text = ">t F32 65536x65536x65536x65536 0"),
    ROW("wraps to 2", 45, "the number of elements overflows", .text = ">t F32 3x6148914691236517206 0"),
    ROW("0 x 2^32 x 2^32", 53, "the number of elements overflows", .text = ">t F32 0x4294967296x4294967296 0"),
    ROW("2^63 bytes", 37, "the size in bytes overflows", .text = ">t F64 1152921504606846976 0"),
    ROW("scalar of blocks", 37, "1 elements per row", .text = ">t Q8_0 - 0"),
    ROW("alignment u64", 49, "value type at byte 49: must be u32, is u64", .text = "general.alignment:u64=32"),
    ROW("alignment text", 49, "must be u32, is string", .text = "general.alignment=32"),
    ROW("alignment array", 49, "must be u32, is array", .text = "general.alignment:array=u32[32]"),
    ROW("key known up to a NUL", 32, "key 0 'general.alignment\\x00x': name at byte 32: readers that stop at a NUL read it as 'general.alignment'", .text = "general.alignment^x:u32=1"),
    ROW("the same of an architecture", 32, "read it as 'any-arch.context_length'", .text = "any-arch.context_length^:u32=1"),
    ROW("key twice up to its NUL", 51, "key 1 'a.b\\x00': name at byte 51: the same name as key 0 up to a NUL", .text = "a.b:u32=1|a.b^:u32=1"),
    ROW("up to the first one's NUL", 53, "the same name as key 0 up to a NUL", .text = "a.b^c:u32=1|a.b:u32=1"),
    ROW("up to both NULs", 53, "the same name as key 0 up to a NUL", .text = "a.b^c:u32=1|a.b^d:u32=1"),
    ROW("a counted NUL that others have not", 32, "read it as 'general.alignment'", .make = make_nul_counted),
    ROW("alignment 0", 53, "0 is not a power of two", ALIGNED, AT(53, 4, 0)),
    ROW("alignment 3", 53, "3 is not a power of two", ALIGNED, AT(53, 4, 3)),
    ROW("alignment 24", 53, "24 is not a power of two", ALIGNED, AT(53, 4, 24)),
    ROW("alignment -1", 53, "not a power of two", ALIGNED, AT(53, 4, 0xffffffff)),
    ROW("alignment 64, laid out to 32", 259, "tensor 1 't1': offset", ALIGNED, AT(53, 4, 64)),
    ROW("alignment 2^31", 259, "not a multiple of the alignment of 2147483648", ALIGNED, AT(53, 4, P(31))),
    ROW("big-endian count", 8, "number of tensors", .make = make_big, AT(8, 8, MAX)),
    ROW("big-endian version only", 8, "144115188075855872 cannot fit", AT(4, 4, P(24) * 3)),
    ROW("version 1: u64", 25, "10 is not a value type", .make = make_v1, AT(25, 4, GGUF_U64)),
    ROW("version 1: array 2^32-1", 70, "array length", .make = make_v1, AT(70, 4, P(32) - 1)),
    ROW("version 1, body of 3", 44, "the number of elements overflows with 1280", AT(4, 4, 1)),
    ROW("one byte of data missing", 288, "1 bytes are missing: the file ends at 293, the data at 294", CUT(DATA_END - 1)),
    ROW("padding at the end cut in two", 288, "1 bytes are missing", CUT(BASE_END - 1)),
    ROW("no data at all", 288, "60 bytes are missing", CUT(HEAD_END)),
    ROW("padding before the data missing", 64, "7 bytes are missing", .text = ">t F32 0", CUT(57)),
    ROW("data far away", 256 + P(40), "tensor 1 't1': data", AT(226, 8, P(40)), .code = -ENODATA),
    ROW("two times 2^62 bytes", 82, "the end of the data overflows", .text = ">a I64 576460752303423488 0|>b I64 576460752303423488 0", AT(82, 8, P(62))),
};
// clang-format on

static uint8_t *image_of(const struct row *row, size_t *n)
{
    struct build b = build_of(3, false);
    if (row->make)
        row->make(&b);
    else
        build_text(&b, row->text ? row->text : BASE_TEXT);
    uint8_t *image = build_finish(&b, n);
    if (row->width)
        put_uint(image + row->at, row->value, row->width, false);
    if (row->cut)
        *n = row->cut;
    return image;
}

/* Parse an image that must be refused; no model is returned. */
static int refused(const void *image, size_t n, unsigned flags, struct err *e)
{
    struct source s = source_mem(image, n);
    struct gguf *g = NULL;
    *e = (struct err){0};
    int r = gguf_parse(&s, flags, &g, e);
    CU_ASSERT_PTR_NULL(g);
    gguf_free(g);
    return r;
}

TEST("each check names the byte at which it refuses a file")
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct row *row = &cases[i];
        char at[64];
        size_t n;
        struct err e;
        CLEANUP(free_it) uint8_t *image = image_of(row, &n);
        (void)snprintf(at, sizeof(at), " at byte %llu: ", (unsigned long long)row->byte);
        alloc_count();
        int r = refused(image, n, 0, &e);
        CU_ASSERT_TRUE(alloc_peak() <= 8 * n + 65536);
        bool ok = r == (row->code ? row->code : -EBADMSG) && e.code == r && strstr(e.msg, at) &&
                  strstr(e.msg, row->words);
        CU_SAYS(ok, "%s: %d '%s', not%s'%s'", row->name, r, e.msg, at, row->words);
        CU_ASSERT_PTR_NULL(strchr(e.msg, '\n'));
    }
}

/* ---- every length of a file ---- */

/* With GGUF_CUT, a file that ends in its header has the keys that are complete, and no tensors. */
static void cut_in_header(const struct gguf *whole, const uint8_t *part, size_t n)
{
    const struct source s = source_mem(part, n);
    CLEANUP(gguf_drop) struct gguf *g = NULL;
    struct err e = {0};
    uint32_t keys = 0;
    while (keys < whole->n_kv && whole->kv[keys].end <= n)
        keys++;
    const int r = gguf_parse(&s, GGUF_CUT, &g, &e);
    CU_ASSERT_EQUAL(r, keys && whole->fmt.version > 1 ? 0 : -EBADMSG);
    if (r == 0) {
        CU_ASSERT_EQUAL(e.code, 0);
        CU_ASSERT_EQUAL(g->n_kv, keys);
        CU_ASSERT_EQUAL(g->n_tensors, 0);
        CU_ASSERT_EQUAL(gguf_stated(g, true), whole->n_kv);
        CU_ASSERT_EQUAL(gguf_stated(g, false), whole->n_tensors);
        CU_ASSERT_EQUAL(g->head_len, whole->kv[keys - 1].end);
        CU_ASSERT_TRUE(g->anomalies & GGUF_ANOMALY_CUT);
    }
}

/* A file truncated anywhere is refused, with two exceptions. A file cut exactly at the end of the
 * data lacks only the final padding, which some writers omit. With GGUF_PARTIAL, data may be
 * missing. */
static void cut_everywhere(void (*make)(struct build *b))
{
    struct build b = build_of(3, false);
    make(&b);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    for (size_t n = 0; n < p.size; n++) {
        struct err e;
        /* The copy has exactly n bytes, so that a sanitizer detects reads beyond them. */
        CLEANUP(free_it) uint8_t *part = malloc(n ? n : 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(part);
        memcpy(part, p.image, n);
        if (n != p.g->data_end) {
            int r = refused(part, n, 0, &e);
            CU_ASSERT_EQUAL(r, n < p.g->head_len ? -EBADMSG : -ENODATA);
            CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, " at byte "));
            /* A truncated draft is refused with the shipped layout's error. */
            const char *words = n ? "incomplete download" : "an empty file";
            CU_ASSERT_TRUE(p.g->fmt.draft || strstr(e.msg, words));
        }
        if (n < p.g->head_len) {
            CU_ASSERT_EQUAL(refused(part, n, GGUF_PARTIAL, &e), -EBADMSG);
            cut_in_header(p.g, part, n);
        }
    }
}

TEST("a file truncated at any byte is refused")
{
    cut_everywhere(make_base);
    cut_everywhere(make_big);
    cut_everywhere(make_v1);
    cut_everywhere(make_draft);
}

/* ---- the first draft of version 1 ---- */

/*
 * Redundant fields of the draft must agree. A file that is neither version 1 as shipped nor a draft
 * is refused with the error of the shipped layout.
 *
 *      16 key length   20 'k.u32'   25 value length: 4   29 type   33 value   37 key 1
 *     133 end of keys   192 tensor 0   198 dimensions   202 4   206 2   210 elements: 8
 */
TEST("redundant fields of the first draft must agree")
{
    static const struct {
        const char *what;
        uint32_t at;
        uint32_t value;
    } row[] = {
        {"value length", 25, 5},
        {"value length", 25, 0},
        {"padding", 160, 1},
        {"element count", 210, 9},
    };
    struct build b;
    make_draft(&b);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    CU_ASSERT_EQUAL(p.g->kv[0].val_off, 33);
    CU_ASSERT_EQUAL(p.g->info_off, 192);
    CU_ASSERT_EQUAL(p.g->tensor[0].dims_off, 202);
    for (size_t i = 0; i < COUNT(row); i++) {
        struct err e;
        uint32_t was = get_u32(p.image + row[i].at, false);
        put_u32(p.image + row[i].at, row[i].value, false);
        int r = refused(p.image, p.size, 0, &e);
        CU_SAYS(r == -EBADMSG && strncmp(e.msg, "key ", 4) == 0, "%s: %d '%s'", row[i].what, r,
                e.msg);
        put_u32(p.image + row[i].at, was, false);
    }
}
