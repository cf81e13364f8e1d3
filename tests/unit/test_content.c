/* SPDX-License-Identifier: MIT */
/* model/store: sizes of shapes, logs, and tensor contents made of pieces, holes. */
#include "cu_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "changes.h"
#include "model/store.h"
#include "soak.h"

enum { F32 = 0, Q4_0 = 2, Q4_2 = 4, Q8_0 = 8, F64 = 28 };

/* ---- shapes ---- */

TEST("the size of a shape is computed, or its fault named")
{
    static const uint64_t most = GGUF_MAX_ELEMENTS;
    static const struct {
        struct tensor_shape shape;
        int r;
        uint64_t bytes;
        const char *line;
    } row[] = {
        {{F32, 1, {1}}, 0, 4, ""},
        {{F32, 4, {2, 3, 5, 7}}, 0, 840, ""},
        {{Q8_0, 2, {64, 3}}, 0, 204, ""},
        {{F32, 4, {1ull << 59, 2, 1, 1}}, 0, 1ull << 62, ""},
        {{F64, 1, {most - 1}}, 0, 8 * (most - 1), ""},
        {{F64, 1, {most}}, -EINVAL, 0, "the size in bytes overflows"},
        {{F32, 1, {most + 1}}, -EINVAL, 0, "the number of elements overflows"},
        {{F32, 2, {1ull << 32, 1ull << 32}}, -EINVAL, 0, "the number of elements overflows"},
        {{F32, 1, {UINT64_MAX}}, -EINVAL, 0, "the number of elements overflows"},
        {{F32, 0, {1}}, -EINVAL, 0, "a shape has 1 to 4 dimensions, not 0"},
        {{F32, 5, {1, 1, 1, 1}}, -EINVAL, 0, "a shape has 1 to 4 dimensions, not 5"},
        {{F32, 2, {1, 0}}, -EINVAL, 0, "a dimension is 0"},
        {{F32, 1, {1, 0}}, 0, 4, ""},
        {{Q4_0, 2, {33, 32}},
         -EINVAL,
         0,
         "a row of 33 elements is not a whole number of blocks of 32 (Q4_0)"},
        {{Q4_2, 1, {32}}, -EOPNOTSUPP, 0, "a tensor of unknown type 4 cannot be created"},
        {{9999, 1, {32}}, -EOPNOTSUPP, 0, "a tensor of unknown type 9999 cannot be created"},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct err e = {0};
        uint64_t bytes = 0;
        CU_ASSERT_EQUAL(tensor_shape_bytes(&row[i].shape, &bytes, &e), row[i].r);
        CU_ASSERT_EQUAL(e.code, row[i].r);
        CU_ASSERT_STRING_EQUAL(e.msg, row[i].line);
        if (row[i].r == 0)
            CU_ASSERT_EQUAL(bytes, row[i].bytes);
    }
}

/* ---- logs ---- */

enum { BYTES = 60, LOG = 500 };

static struct log *made(void)
{
    static const uint8_t bytes[LOG];
    struct log *log = memory_draft(bytes, LOG);
    CU_ASSERT_PTR_NOT_NULL_FATAL(log);
    return log;
}

/* ---- pieces ---- */

/* Where a byte of a tensor is stored; log NULL: in the base. */
struct place {
    struct log *log;
    uint64_t src;
};

static uint64_t seed = 1;

/* Draw random pieces in ascending order. Some are adjacent; some start where the previous piece
 * ends in its log. */
static size_t draw_pieces(struct log *const logs[2], struct tensor_piece *ret)
{
    size_t n = 0;
    for (uint64_t at = soak_draw(&seed, 20); at < BYTES;) {
        struct tensor_piece p = {at, 1 + soak_draw(&seed, 12), soak_draw(&seed, LOG - BYTES),
                                 logs[soak_draw(&seed, 2)]};
        const struct tensor_piece *last = n ? &ret[n - 1] : NULL;
        p.len = p.len < BYTES - at ? p.len : BYTES - at;
        if (last && soak_draw(&seed, 2)) {
            p.log = last->log;
            p.src = last->src + last->len;
        }
        if (p.src + p.len > LOG)
            p.src = 0;
        ret[n++] = p;
        at += p.len + (soak_draw(&seed, 2) ? soak_draw(&seed, 9) : 0);
    }
    return n;
}

static void lay(struct place *shown, const struct tensor_piece *piece, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < piece[i].len; k++)
            shown[piece[i].at + k] = (struct place){piece[i].log, piece[i].src + k};
}

static bool continues(const struct place *shown, size_t i)
{
    return shown[i].log == shown[i - 1].log &&
           (!shown[i].log || shown[i].src == shown[i - 1].src + 1);
}

/* Check that the pieces are exactly the longest runs in `shown`, and that a search from any byte
 * finds the rest of its run. */
static void check(const struct tensor_content *k, const struct place *shown, size_t size)
{
    uint64_t fresh = 0;
    size_t n = 0;
    for (size_t i = 0, end; i < size; i = end) {
        for (end = i + 1; end < size && continues(shown, end);)
            end++;
        if (shown[i].log) {
            CU_ASSERT_TRUE_FATAL(n < k->n);
            const struct tensor_piece *p = &k->piece[n++];
            CU_ASSERT_TRUE(p->at == i && p->len == end - i && p->src == shown[i].src &&
                           p->log == shown[i].log);
            fresh += p->len;
        }
        for (size_t off = i; off < end; off++)
            for (uint64_t most = 1; most <= end - off + 1; most++) {
                const struct tensor_piece *p = NULL;
                uint64_t got = tensor_content_stretch(k, off, most, &p);
                CU_ASSERT_EQUAL(
                    got, most <= end - off || (end == size && !shown[i].log) ? most : end - off);
                CU_ASSERT_PTR_EQUAL(p, shown[i].log ? &k->piece[n - 1] : NULL);
            }
    }
    CU_ASSERT_EQUAL(k->n, n);
    CU_ASSERT_EQUAL(k->fresh, fresh);
    CU_ASSERT_EQUAL(tensor_content_covers(k), fresh == size);
}

TEST("random pieces over earlier ones give the bytes of a plain array")
{
    struct log *logs[2] = {made(), made()};
    for (int i = 0; i < 400; i++) {
        struct place shown[BYTES] = {{0}};
        struct tensor_content *old = NULL, *now = NULL;
        for (int step = 0; step < 5; step++) {
            struct tensor_piece piece[BYTES];
            size_t n = draw_pieces(logs, piece);
            CU_ASSERT_EQUAL_FATAL(tensor_content_make(NULL, BYTES, old, piece, n, &now), 0);
            lay(shown, piece, n);
            check(now, shown, BYTES);
            tensor_content_unref(old);
            old = now;
        }
        size_t less = 1 + soak_draw(&seed, BYTES - 1); /* the tensor becomes shorter */
        CU_ASSERT_EQUAL_FATAL(tensor_content_make(NULL, less, old, NULL, 0, &now), 0);
        check(now, shown, less);
        tensor_content_unref(now);
        tensor_content_unref(old);
    }
    CU_ASSERT_EQUAL(logs[0]->refs, 1);
    CU_ASSERT_EQUAL(logs[1]->refs, 1);
    log_unref(logs[0]);
    log_unref(logs[1]);
}

TEST("invalid pieces are refused")
{
    CLEANUP(log_drop) struct log *log = made();
    const struct {
        struct tensor_piece piece[2];
        size_t n;
        int r;
    } row[] = {
        {{{0, BYTES, LOG - BYTES, log}}, 1, 0},
        {{{0, 5, 0, log}, {5, 5, 0, log}}, 2, 0},
        {{{0, 5, 0, log}, {4, 5, 0, log}}, 2, -EINVAL},
        {{{9, 5, 0, log}, {0, 5, 0, log}}, 2, -EINVAL},
        {{{0, 0, 0, log}}, 1, -EINVAL},
        {{{0, BYTES + 1, 0, log}}, 1, -EINVAL},
        {{{BYTES, 1, 0, log}}, 1, -EINVAL},
        {{{1, UINT64_MAX, 0, log}}, 1, -EINVAL},
        {{{0, BYTES, LOG - BYTES + 1, log}}, 1, -EINVAL},
        {{{0, BYTES, UINT64_MAX, log}}, 1, -EINVAL},
        {{{0, 5, 0, log}, {5, BYTES, 0, log}}, 2, -EINVAL},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct tensor_content *k = NULL;
        int r = tensor_content_make(NULL, BYTES, NULL, row[i].piece, row[i].n, &k);
        CU_ASSERT_EQUAL(r, row[i].r);
        CU_ASSERT_EQUAL(k == NULL, r < 0);
        tensor_content_unref(k);
    }
}

/* ---- mapped files ---- */

/* A hole before data reads as zeros. Once the file is truncated, the hole is gone too. */
TEST("a hole reads as zeros without touching its pages")
{
    enum { HOLE = 3 * (64 << 10) };
    struct mapped *m = NULL;
    CLEANUP(free_it) uint8_t *bytes = malloc(HOLE + 1);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(pwrite(fd, "x", 1, HOLE), 1);
    CU_ASSERT_EQUAL_FATAL(mapped_open(fd, HOLE + 1, &m, NULL), 0);
    const struct source s = mapped_source(m);
    memset(bytes, 1, HOLE + 1);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE), 0);
    CU_ASSERT_TRUE(bytes[0] == 0 && memcmp(bytes, bytes + 1, HOLE - 1) == 0);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE + 1), 0);
    CU_ASSERT_EQUAL(bytes[HOLE], 'x');
    CU_ASSERT_EQUAL(ftruncate(fd, 4096), 0);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE), -EIO);
    (void)close(fd);
    mapped_unref(m);
}
