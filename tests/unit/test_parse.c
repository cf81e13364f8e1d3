/* SPDX-License-Identifier: MIT */
/* gguf_parse, gguf/source: valid files of every version and layout; headers read from files, failing
 * media, limits, and error messages. test_malformed.c tests refused files. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "text/json.h"

enum { F32 = 0, F16 = 1, Q4_0 = 2, Q4_2_GONE = 4, Q8_0 = 8, I8 = 24, I32 = 26 };

static struct gguf_value value_of(const struct gguf *g, const char *key)
{
    uint32_t i = gguf_find_key(g, key, strlen(key));
    CU_ASSERT_NOT_EQUAL_FATAL(i, UINT32_MAX);
    return gguf_value(g, &g->kv[i]);
}

static void key_is(const struct gguf *g, const char *key, const char *want)
{
    CLEANUP(buf_free) struct buf json = BUF_INIT;
    struct gguf_value v = value_of(g, key);
    json_value(&json, &v);
    buf_char(&json, '\0');
    CU_ASSERT_STRING_EQUAL(buf_text(&json), want);
}

/* ---- every layout ---- */

/* Begin a build in layout i. Returns false if there is no such layout. */
static bool layout(struct build *b, int i)
{
    static const struct {
        uint8_t version;
        bool big, nul;
    } layouts[] = {{1, false, false}, {1, false, true}, {2, false, false}, {2, true, false},
                   {2, false, true},  {2, true, true},  {3, false, false}, {3, true, false}};
    const int n = COUNT(layouts);
    if (i < n) {
        *b = build_of(layouts[i].version, layouts[i].big);
        b->fmt.nul = layouts[i].nul;
    } else {
        *b = build_draft();
        b->fmt.nul = i > n;
    }
    return i < n + 2;
}

/* The last keys do not exist in version 1. */
static void put_all(struct build *b)
{
    build_text(b, "general.architecture=test|empty=|u8:u8=0xfe|i8:i8=0xfe|u16:u16=0xfedc|"
                  "i16:i16=0xfedc|u32:u32=0xfedcba98|i32:i32=0xfedcba98|f32:f32=0x3fc00000|"
                  "bool:bool=1|strings:array=string[one,]|nested:array=array[u16[7],string[]]|"
                  "none:array=array[]|>m F32 3x2|>v F16 5");
    if (b->fmt.version > 1)
        build_text(b, "u64:u64=0x8000000000000000|i64:i64=0x8000000000000000|"
                      "f64:f64=0x3ff8000000000000");
}

/* Check that entries are contiguous, with no gaps between the parts of the header. */
static void check_extents(const struct gguf *g)
{
    uint64_t at = 8 + 2 * (uint64_t)g->fmt.len_width;
    for (uint32_t i = 0; i < g->n_kv; i++) {
        CU_ASSERT_EQUAL(g->kv[i].off, at);
        CU_ASSERT_EQUAL(g->kv[i].key_off, at + g->fmt.len_width);
        struct gguf_value v = gguf_value(g, &g->kv[i]);
        CU_ASSERT_PTR_EQUAL(gguf_value_end(&v), g->head + g->kv[i].end);
        at = g->kv[i].end;
    }
    CU_ASSERT_EQUAL(g->tensor[0].info_off, g->info_off);
    CU_ASSERT_EQUAL(g->info_off, g->fmt.draft ? (at / 64 + 1) * 64 : at);
}

static void check_tensors(const struct parsed *p)
{
    const struct gguf *g = p->g;
    uint64_t align = g->fmt.draft ? 64 : 32;
    CU_ASSERT_EQUAL(g->alignment, align);
    CU_ASSERT_EQUAL(g->data_off, (g->head_len + align - 1) / align * align);
    CU_ASSERT_EQUAL(gguf_find_tensor(g, "m", 1), 0);
    CU_ASSERT_EQUAL(gguf_find_tensor(g, "v", 1), 1);
    CU_ASSERT_EQUAL(gguf_find_tensor(g, "w", 1), UINT32_MAX);
    CU_ASSERT_EQUAL(gguf_find_tensor(g, "m\0", 2), UINT32_MAX);
    CU_ASSERT_EQUAL(g->tensor[0].n_dims, 2);
    CU_ASSERT_EQUAL(gguf_dim(g, &g->tensor[0], 0), 3);
    CU_ASSERT_EQUAL(gguf_dim(g, &g->tensor[0], 1), 2);
    CU_ASSERT_EQUAL(g->tensor[0].n_elem, 6);
    CU_ASSERT_EQUAL(g->tensor[0].nbytes, 24);
    CU_ASSERT_EQUAL(g->tensor[0].off, g->data_off);
    CU_ASSERT_EQUAL(g->tensor[1].off, g->data_off + align);
    CU_ASSERT_EQUAL(g->tensor[1].nbytes, 10);
    CU_ASSERT_EQUAL(g->data_end, g->tensor[1].off + 10);
    CU_ASSERT_STRING_EQUAL(gguf_type(&g->tensor[1])->name, "F16");
}

TEST("every layout, version, byte order and value type is parsed")
{
    struct build b;
    for (int i = 0; layout(&b, i); i++) {
        struct build as = b; /* requested version and layout */
        put_all(&b);
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(p.g->fmt.version, as.fmt.version);
        CU_ASSERT_EQUAL(p.g->fmt.big, as.fmt.big);
        CU_ASSERT_EQUAL(p.g->fmt.nul, as.fmt.nul);
        CU_ASSERT_EQUAL(p.g->fmt.draft, as.fmt.draft);
        CU_ASSERT_EQUAL(p.g->anomalies, 0);
        CU_ASSERT_EQUAL(p.g->n_kv, as.fmt.version == 1 ? 13 : 16);
        CU_ASSERT_EQUAL(p.g->n_tensors, 2);
        check_extents(p.g);
        check_tensors(&p);
    }
}

/* Parse an image in the first draft's layout, and check that its infos begin at `info_off`. */
static void draft_is(const uint8_t *image, size_t n, uint64_t info_off)
{
    CLEANUP(gguf_drop) struct gguf *g = gguf_in(image, n);
    CU_ASSERT_TRUE(g->fmt.draft);
    CU_ASSERT_EQUAL(g->kv[g->n_kv - 1].end, 64);
    CU_ASSERT_EQUAL(g->info_off, info_off);
    CU_ASSERT_EQUAL(g->tensor[0].off, info_off + 64);
    CU_ASSERT_EQUAL(image[g->tensor[0].off], 0x55);
    CU_ASSERT_EQUAL(g->anomalies, 0);
}

/* If the keys of a first draft end at a multiple of 64, some writers add 64 more bytes of
 * padding. */
TEST("both paddings of the first draft are accepted")
{
    static const uint8_t data[8] = {0x55};
    struct build b;
    b = build_draft();
    build_str(&b, "k", "0123456789012345678901234567890"); /* ends at 64 */
    build_tensor(&b, "t", F32, (uint64_t[]){2}, 1, data, 8);
    size_t n;
    uint8_t more[512] = {0};
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    draft_is(image, n, 64);
    memcpy(more, image, 64);
    memcpy(more + 128, image + 64, n - 64);
    uint8_t *offset = more + 128 + 5 + 4 + 4 + 4 + 4; /* after name, dimensions, elements, type */
    CU_ASSERT_EQUAL(get_u64(offset, false), 128);
    put_u64(offset, 192, false);
    draft_is(more, n + 64, 128);
}

/* ---- strings ---- */

/* In version 3, strings are shown unchanged, even if each of them ends in NUL. */
TEST("version 3 strings keep a trailing NUL")
{
    struct build b = build_of(3, false);
    build_raw(&b, "k\0", 2, GGUF_STRING, "\2\0\0\0\0\0\0\0v\0", 10);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    CU_ASSERT_FALSE(p.g->fmt.nul);
    CU_ASSERT_EQUAL(gguf_find_key(p.g, "k\0", 2), 0);
    CU_ASSERT_EQUAL(gguf_find_key(p.g, "k", 1), UINT32_MAX);
}

TEST("if any string lacks a NUL, no NUL is counted")
{
    struct build b = build_of(2, false);
    b.fmt.nul = true;
    build_str(&b, "k", "v");
    b.fmt.nul = false;
    build_str(&b, "plain", "");
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    CU_ASSERT_FALSE(p.g->fmt.nul);
    CU_ASSERT_EQUAL(gguf_find_key(p.g, "k\0", 2), 0);
}

TEST("arrays may be nested up to the limit")
{
    struct build b = build_of(3, true);
    build_text(&b, "k:array=array[array[array[array[array[array[array[u8[42]]]]]]]]");
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    key_is(p.g, "k", "[[[[[[[[42]]]]]]]]");
}

/* ---- tensors ---- */

TEST("tensors with zero or many dimensions, or several blocks, are accepted")
{
    uint64_t many[GGUF_MAX_DIMS];
    for (int i = 0; i < GGUF_MAX_DIMS; i++)
        many[i] = i < 3 ? 2 : 1;
    struct build b = build_of(3, false);
    build_text(&b, ">scalar F32 -|>zero F32 0|>zero_rows Q4_0 32x0|>rows_of_zero Q4_0 0x7|"
                   ">five F16 1x2x3x4x5");
    build_tensor(&b, "many", I8, many, GGUF_MAX_DIMS, NULL, 8);
    build_text(&b, ">blocks Q8_0 64x3");
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    static const uint64_t n_elem[] = {1, 0, 0, 0, 120, 8, 192};
    static const uint64_t nbytes[] = {4, 0, 0, 0, 240, 8, 204};
    for (uint32_t i = 0; i < 7; i++) {
        CU_ASSERT_EQUAL(p.g->tensor[i].n_elem, n_elem[i]);
        CU_ASSERT_EQUAL(p.g->tensor[i].nbytes, nbytes[i]);
    }
    CU_ASSERT_EQUAL(p.g->anomalies, 0);
    CU_ASSERT_EQUAL(gguf_dim(p.g, &p.g->tensor[4], 4), 5);
}

/* If the type id of a tensor is unknown or was removed from ggml, its data extends to the next
 * tensor's data or to the end of the file. */
TEST("data of unknown and removed types extends to the next tensor")
{
    struct build b = build_of(3, false);
    build_tensor(&b, "gone", Q4_2_GONE, (uint64_t[]){7}, 1, NULL, 40);
    build_text(&b, ">known F32 1|>new 9999 100x3 33");
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    CU_ASSERT_EQUAL(p.g->anomalies, GGUF_ANOMALY_UNKNOWN);
    CU_ASSERT_EQUAL(p.g->tensor[0].nbytes, 64);
    CU_ASSERT_EQUAL(p.g->tensor[0].type_id, Q4_2_GONE);
    CU_ASSERT_EQUAL(p.g->tensor[2].nbytes, 64);
    CU_ASSERT_EQUAL(p.g->tensor[2].off + 64, p.size);
    CU_ASSERT_EQUAL(p.g->tensor[2].n_elem, 300);
    CU_ASSERT_PTR_NULL(gguf_type(&p.g->tensor[2]));
    CU_ASSERT_EQUAL(gguf_type(&p.g->tensor[0])->block_len, 0);
}

/* In version 1 only, ids 16 to 18 were I8, I16 and I32. */
TEST("version 1 has its own type ids")
{
    for (uint8_t version = 1; version <= 2; version++) {
        struct build b = build_of(version, false);
        build_tensor(&b, "i32", 18, (uint64_t[]){256}, 1, NULL, version == 1 ? 1024 : 98);
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(p.g->tensor[0].stored_id, 18);
        CU_ASSERT_EQUAL(p.g->tensor[0].type_id, version == 1 ? I32 : 18);
        CU_ASSERT_EQUAL(p.g->tensor[0].nbytes, version == 1 ? 1024 : 98);
        CU_ASSERT_EQUAL(p.g->anomalies, 0);
    }
}

/* To the reference reader, tensor names that differ only after a NUL are equal. */
TEST("tensor names are distinguished up to a NUL")
{
    for (int differ = 0; differ < 2; differ++) {
        CLEANUP(gguf_drop) struct gguf *g = NULL;
        struct err e = {0};
        size_t n;
        struct build b = build_of(3, false);
        build_text(&b, ">aXb I32 8|>aXc I32 8");
        CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
        for (size_t i = 0; i + 3 <= n; i++)
            if (memcmp(image + i, "aX", 2) == 0 && (image[i + 2] == 'b' || !differ))
                image[i + 1] = '\0';
        struct source s = source_mem(image, n);
        CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), differ ? 0 : -EBADMSG);
        CU_ASSERT_EQUAL(differ ? gguf_find_tensor(g, "a\0b", 3) : 0, 0);
        CU_ASSERT_EQUAL(differ ? gguf_find_tensor(g, "a", 1) : UINT32_MAX, UINT32_MAX);
    }
}

/* A key with a NUL is found only by its whole name, provided that no other key is equal up to the
 * NUL. */
TEST("a key with a NUL that equals no other is read")
{
    struct build b = build_of(3, false);
    build_raw(&b, "a\0b", 3, GGUF_U32, "\1\0\0\0", 4);
    build_raw(&b, "\0", 1, GGUF_U32, "\2\0\0\0", 4);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    CU_ASSERT_EQUAL(gguf_find_key(p.g, "a\0b", 3), 0);
    CU_ASSERT_EQUAL(gguf_find_key(p.g, "\0", 1), 1);
    CU_ASSERT_EQUAL(gguf_find_key(p.g, "a", 1), UINT32_MAX);
    CU_ASSERT_EQUAL(gguf_find_key(p.g, "a\0c", 3), UINT32_MAX);
}

static void two(struct build *b, uint64_t first, uint64_t second)
{
    build_tensor_at(b, "a", F32, (uint64_t[]){3}, 1, first, NULL, 12);
    build_tensor_at(b, "b", F32, (uint64_t[]){8}, 1, second, NULL, 32);
}

TEST("gaps, order, a missing tail and trailing bytes are noted")
{
    static const struct {
        uint64_t first, second; /* where two tensors are */
        bool no_tail;
        size_t trailing;
        unsigned odd;
        uint64_t end;
    } rows[] = {
        {0, 32, false, 0, 0, 64},
        {0, 96, false, 0, GGUF_ANOMALY_GAPS, 128},
        {32, 64, false, 0, GGUF_ANOMALY_GAPS, 96},
        {32, 0, false, 0, GGUF_ANOMALY_ORDER, 44},
        {32, 0, true, 0, GGUF_ANOMALY_ORDER | GGUF_ANOMALY_NO_TAIL, 44},
        {0, 32, false, 1, GGUF_ANOMALY_TRAILING, 64}, /* padded to 32 bytes */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct build b = build_of(3, false);
        two(&b, rows[i].first, rows[i].second);
        b.no_tail = rows[i].no_tail;
        buf_zero(&b.data, rows[i].trailing);
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(p.g->anomalies, rows[i].odd);
        CU_ASSERT_EQUAL(p.g->tensor[0].off, p.g->data_off + rows[i].first);
        CU_ASSERT_EQUAL(p.g->data_end, p.g->data_off + rows[i].end);
        CU_ASSERT_NOT_EQUAL(p.image[p.g->tensor[0].off], 0);
    }
}

/* A tensor without elements may share the offset of another tensor, and does not affect the
 * order. */
TEST("tensors without elements may share an offset")
{
    struct build b = build_of(3, false);
    build_text(&b, ">zero F32 0 0 0|>a F32 3 12 0|>b F32 3 12 32");
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    CU_ASSERT_EQUAL(p.g->anomalies, 0);
}

TEST("alignments from 1 to 65536 are accepted")
{
    for (uint32_t align = 1; align <= 1 << 16; align *= 2) {
        struct build b = build_of(3, align & 0x5555);
        b.alignment = align;
        build_u32(&b, "general.alignment", align);
        build_text(&b, ">a I8 3|>b I8 3");
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(p.g->alignment, align);
        CU_ASSERT_EQUAL(p.g->data_off % align, 0);
        CU_ASSERT_TRUE(p.g->data_off - p.g->head_len < align);
        CU_ASSERT_EQUAL(p.g->tensor[1].off - p.g->tensor[0].off,
                        align < 4 ? 4 - (align == 1) : align);
        CU_ASSERT_EQUAL(p.g->anomalies, 0);
    }
}

/* A file that is truncated anywhere after its header is still shown, and is reported as
 * incomplete. */
TEST("an incomplete download is shown on request")
{
    struct build b = build_of(3, false);
    two(&b, 0, 32);
    size_t n;
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, GGUF_PARTIAL, &g, NULL), 0);
    CU_ASSERT_EQUAL(g->anomalies, 0);
    uint64_t head = g->head_len;
    gguf_free(g);
    for (uint64_t cut = head; cut < n; cut++) {
        s = source_mem(image, (size_t)cut);
        CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, GGUF_PARTIAL, &g, NULL), 0);
        CU_ASSERT_TRUE(g->anomalies & GGUF_ANOMALY_PARTIAL);
        CU_ASSERT_EQUAL(g->tensor[1].nbytes, 32);
        CU_ASSERT_EQUAL(g->data_end, n);
        gguf_free(g);
    }
}

/* A file of 2^40 bytes, all zero after the beginning of its header. Reads beyond `fails_at`
 * fail. */
struct medium {
    struct source s;
    const uint8_t *head;
    size_t n;
    uint64_t fails_at;
};

static int read_medium(const struct source *s, uint64_t off, void *dst, size_t n)
{
    const struct medium *m = s->mem;
    if (off + n > m->fails_at)
        return -EIO;
    memset(dst, 0, n);
    if (off < m->n)
        memcpy(dst, m->head + off, min_u64(n, m->n - off));
    return 0;
}

static int parse_medium(struct build *b, uint64_t fails_at, struct err *e)
{
    struct medium m = {.fails_at = fails_at};
    struct gguf *g = NULL;
    uint8_t *image = build_finish(b, &m.n);
    m.head = image;
    m.s = (struct source){.size = 1ull << 40, .read = read_medium, .mem = &m};
    int r = gguf_parse(&m.s, 0, &g, e);
    CU_ASSERT_PTR_NULL(g);
    free(image);
    return r;
}

/* Headers are checked against the limit before memory is allocated for them. */
TEST("a header over the limit is refused without being read")
{
    struct err e = {0};
    struct build b = build_of(3, false);
    build_array(&b, "k", GGUF_U64, 1 << 30);
    CU_ASSERT_EQUAL(parse_medium(&b, UINT64_MAX, &e), -EFBIG);
    CU_ASSERT_STRING_EQUAL(e.msg, "key 0 'k': array elements at byte 49: the header is over "
                                  "4294967296 bytes");
}

TEST("a medium that fails gives EIO")
{
    struct err e = {0};
    struct build b = build_of(3, false);
    build_u32(&b, "k", 1);
    CU_ASSERT_EQUAL(parse_medium(&b, 0, &e), -EIO);
    CU_ASSERT_STRING_EQUAL(e.msg, "magic at byte 0: Input/output error");
    b = build_of(3, false);
    build_array(&b, "k", GGUF_U8, 1 << 20);
    CU_ASSERT_EQUAL(parse_medium(&b, 1 << 20, &e), -EIO);
    CU_ASSERT_STRING_EQUAL(e.msg, "key 0 'k': array elements at byte 49: Input/output error");
}

/* A message is one line without control bytes, whatever names it contains. */
TEST("names in messages are escaped and shortened")
{
    char name[2000];
    struct err e;
    struct gguf *g = NULL;
    size_t n;
    memset(name, '\n', sizeof(name));
    struct build b = build_of(3, false);
    build_raw(&b, name, sizeof(name), 99, NULL, 0);
    build_u32(&b, "room", 0);
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
    CU_ASSERT_PTR_NULL(strchr(e.msg, '\n'));
    CU_ASSERT_EQUAL(strncmp(e.msg, "key 0 '\\x0a\\x0a", 15), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "...': value type at byte 2032: 99 is not a value type"));
}

/* A model whose header is read from a file in several steps equals the same model in memory. */
TEST("a file is read, even if it is truncated meanwhile")
{
    struct gguf *g = NULL;
    struct source s;
    struct build b = build_of(3, false);
    build_array(&b, "k", GGUF_U8, 1 << 20);
    buf_zero(&b.keys, 1 << 20);
    build_str(&b, "last", "one");
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    int fd = memfd_create("model", 0);
    CU_ASSERT_EQUAL_FATAL(write(fd, p.image, p.size), (ssize_t)p.size);
    CU_ASSERT_EQUAL(source_fd(fd, &s, NULL), 0);
    CU_ASSERT_EQUAL(s.size, p.size);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    CU_ASSERT_EQUAL(g->head_len, p.g->head_len);
    CU_ASSERT_EQUAL(memcmp(g->head, p.g->head, (size_t)g->head_len), 0);
    CU_ASSERT_EQUAL(gguf_find_key(g, "last", 4), 1);
    gguf_free(g);
    /* The file was truncated after it was examined. */
    g = NULL;
    CU_ASSERT_EQUAL(ftruncate(fd, 100000), 0);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, NULL), -EIO);
    CU_ASSERT_PTR_NULL(g);
    (void)close(fd);
}

TEST("only regular files can be sources")
{
    struct source s = {.size = 777};
    struct err e = {0};
    int fd = open("/", O_RDONLY | O_DIRECTORY), pipes[2];
    CU_ASSERT_EQUAL(source_fd(fd, &s, &e), -EISDIR);
    (void)close(fd);
    CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
    CU_ASSERT_EQUAL(source_fd(pipes[0], &s, &e), -EINVAL);
    CU_ASSERT_STRING_EQUAL(e.msg, "is not a regular file");
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    CU_ASSERT_EQUAL(source_fd(-1, &s, &e), -EBADF);
    CU_ASSERT_EQUAL(s.size, 777);
}

TEST("200,000 keys are found, and duplicate names are refused")
{
    enum { N = 200000 };
    struct gguf *g;
    size_t n;
    char key[16];
    struct build b = build_of(3, false);
    for (uint32_t i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "key.%u", i);
        build_u32(&b, key, i);
    }
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    g = gguf_in(image, n);
    CU_ASSERT_EQUAL(g->n_kv, N);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "key.%u", i);
        wrong += gguf_find_key(g, key, strlen(key)) != i;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    gguf_free(g);
    /* If the first and the last key have the same name, the message names both. */
    uint8_t *last = image + n - 4 - 4 - strlen("key.199999");
    memcpy(last, "key.199998", 10);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, NULL), -EBADMSG);
}

/* Blanks alone are not JSON. */
TEST("a file of blanks is not taken for JSON")
{
    const struct source s = source_mem("    ", 4);
    struct gguf *g = NULL;
    struct err e = {0};
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
    CU_ASSERT_PTR_NULL(strstr(e.msg, "JSON"));
}

TEST("more keys or tensors than the limit are refused")
{
    for (size_t at = 8; at <= 16; at += 8) {
        uint8_t head[24] = "GGUF\3";
        const struct medium m = {.head = head, .n = sizeof(head), .fails_at = UINT64_MAX};
        struct source s = {.size = (uint64_t)1 << 40, .read = read_medium, .mem = &m, .fd = -1};
        struct gguf *g = NULL;
        struct err e = {0};
        put_u64(head + at, GGUF_MAX_ITEMS + 1, false);
        CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EFBIG);
        CU_ASSERT_STRING_EQUAL(e.msg, at == 8 ? "number of tensors at byte 8: 16777217 is over the "
                                                "limit of 16777216"
                                              : "number of keys at byte 16: 16777217 is over the "
                                                "limit of 16777216");
        /* The limit itself is accepted; parsing then fails at the second entry. */
        put_u64(head + at, GGUF_MAX_ITEMS, false);
        CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, at == 8 ? "tensor 1" : "key 0"));
        CU_ASSERT_PTR_NULL(g);
    }
}
