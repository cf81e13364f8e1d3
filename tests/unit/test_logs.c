/* SPDX-License-Identifier: MIT */
/* live/logs: when a log is abandoned, and lists of extents compared with arrays of bytes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "quant/types.h"
#include "tensor_dir.h"

/* ---- logs ---- */

static void test_shared(void)
{
    struct tensor_dir x;
    struct log *a = NULL, *b = NULL, *c = NULL;
    struct err e = {0};
    uint64_t at = 0, next = 0;
    tensor_dir_make(&x, F32_ID, false, SHAPE(2), NULL);
    CU_ASSERT_EQUAL_FATAL(logs_take(&x.logs, 10, 0, &a, &at, &e), 0);
    CU_ASSERT_EQUAL(at, LOG_ROOM);
    CU_ASSERT_EQUAL_FATAL(logs_take(&x.logs, 10, 0, &b, &next, &e), 0);
    CU_ASSERT_TRUE(b == a && next == at + 10 && a->refs == 3);
    log_unref(b);
    logs_rest(&x.logs); /* kept, because `a` needs it */
    CU_ASSERT_PTR_EQUAL(x.logs.now, a);
    CU_ASSERT_EQUAL_FATAL(logs_take_zeros(&x.logs, 5000, &b, &at, &e), 0);
    CU_ASSERT_PTR_EQUAL(b, a);
    CU_ASSERT_EQUAL(logs_put(&x.logs, b, at, "x", 1), 0);
    static uint8_t bytes[5000];
    memset(bytes, 1, sizeof(bytes));
    CU_ASSERT_EQUAL(a->src.read(&a->src, at, bytes, sizeof(bytes)), 0);
    CU_ASSERT_TRUE(bytes[0] == 'x' && bytes[1] == 0 && memcmp(bytes + 1, bytes + 2, 4998) == 0);
    CU_ASSERT_EQUAL(a->used, 2);
    log_unref(b);
    log_unref(a);
    CU_ASSERT_EQUAL_FATAL(logs_take(&x.logs, 10, 0, &c, &at, &e), 0);
    CU_ASSERT_TRUE(at == LOG_ROOM && c->used == 0); /* the first log was no longer needed */
    log_unref(c);
    logs_rest(&x.logs);
    CU_ASSERT_PTR_NULL(x.logs.now);
    logs_rest(&x.logs);
    tensor_dir_free(&x);
}

/* Return whether a log with `used` bytes in use and a length of `end` is extended. */
static bool is_extended(uint64_t used, uint64_t end)
{
    struct tensor_dir x;
    struct log *a = NULL, *b = NULL;
    struct err e = {0};
    uint64_t at;
    tensor_dir_make(&x, F32_ID, false, SHAPE(2), NULL);
    CU_ASSERT_EQUAL_FATAL(logs_take(&x.logs, 10, 0, &a, &at, &e), 0);
    atomic_store(&a->used, used);
    atomic_store(&a->end, end);
    CU_ASSERT_EQUAL_FATAL(logs_take(&x.logs, 10, 0, &b, &at, &e), 0);
    CU_ASSERT_EQUAL(at, b == a ? end & ~LOG_CLOSED : LOG_ROOM);
    const bool same = a == b;
    log_unref(a);
    log_unref(b);
    tensor_dir_free(&x);
    return same;
}

static void test_given_up(void)
{
    const uint64_t large = (uint64_t)1 << 30, longest = (uint64_t)1 << 36;
    CU_ASSERT_TRUE(is_extended(large - 1, longest - 1));
    CU_ASSERT_FALSE(is_extended(large, LOG_ROOM));
    CU_ASSERT_FALSE(is_extended(0, longest));
    CU_ASSERT_FALSE(is_extended(0, LOG_ROOM | LOG_CLOSED)); /* the log became a journal */
}

/* ---- extents ---- */

enum { BYTES = 60, LOG = 300 };

/* The source of a byte of a view. */
struct place {
    bool there, fresh;
    struct log *log;
    uint64_t src;
};

static uint8_t byte_of(uint64_t at)
{
    return (uint8_t)(at * 31 + at / 256 + 1);
}

static struct log *made(void)
{
    struct log *log = NULL;
    uint8_t bytes[LOG];
    int fd = memfd_create("log", MFD_CLOEXEC);
    for (size_t i = 0; i < LOG; i++)
        bytes[i] = byte_of(i);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, bytes, LOG, 0), LOG);
    CU_ASSERT_EQUAL_FATAL(log_make(fd, &log, NULL), 0);
    return log;
}

static bool continues(const struct place *p)
{
    const struct place *last = p - 1;
    return p->there == last->there && p->fresh == last->fresh && p->log == last->log &&
           (!p->log || p->src == last->src + 1);
}

/* Check that the list holds exactly the longest runs in `shown`. */
static void check(const struct extents *s, const struct place *shown)
{
    size_t n = 0;
    for (size_t i = 0, end; i < BYTES; i = end) {
        const struct extent *x = s->of;
        uint8_t bytes[BYTES];
        for (end = i + 1; end < BYTES && continues(&shown[end]);)
            end++;
        CU_ASSERT_EQUAL(extents_stretch(s, i, BYTES - i, &x),
                        !shown[i].there && n == s->n ? BYTES - i : end - i);
        CU_ASSERT_EQUAL(extents_stretch(s, end - 1, 99, &x), !shown[i].there && n == s->n ? 99 : 1);
        CU_ASSERT_EQUAL(extents_stretch(s, i, 1, &x), 1);
        CU_ASSERT_EQUAL(x != NULL, shown[i].there);
        if (!x)
            continue;
        CU_ASSERT_PTR_EQUAL(x, &s->of[n++]);
        CU_ASSERT_TRUE(x->at == i && x->len == end - i && x->log == shown[i].log &&
                       x->fresh == shown[i].fresh && (!x->log || x->src == shown[i].src));
        CU_ASSERT_EQUAL(extent_read(x, i, bytes, end - i), 0);
        CU_ASSERT_EQUAL(extent_read(x, end - 1, bytes + (end - 1 - i), 1), 0);
        for (size_t k = 0; k < end - i; k++)
            CU_ASSERT_EQUAL(bytes[k], x->log ? byte_of(shown[i].src + k) : 0);
    }
    CU_ASSERT_EQUAL(s->n, n);
}

static void put_some(struct extents *s, struct place *shown, struct log *const logs[3])
{
    struct extent x = {.at = tensor_dir_draw(BYTES), .fresh = tensor_dir_draw(2)};
    x.len = 1 + tensor_dir_draw(tensor_dir_draw(3) ? 9 : BYTES);
    x.len = x.len < BYTES - x.at ? x.len : BYTES - x.at;
    x.log = logs[tensor_dir_draw(3)];
    x.src = x.log ? tensor_dir_draw(LOG - BYTES) : 0;
    if (x.at && tensor_dir_draw(2) && shown[x.at - 1].src + 1 < LOG - BYTES) { /* a continuation */
        x.log = shown[x.at - 1].log;
        x.src = x.log ? shown[x.at - 1].src + 1 : 0;
    }
    CU_ASSERT_EQUAL_FATAL(extents_put(s, &x), 0);
    for (uint64_t i = 0; i < x.len; i++)
        shown[x.at + i] = (struct place){true, x.fresh, x.log, x.log ? x.src + i : 0};
}

static void test_extents(void)
{
    struct log *logs[3] = {made(), made(), NULL};
    for (int i = 0; i < 300; i++) {
        struct place shown[BYTES] = {{0}};
        struct extents s = {0}, copy = {0};
        extents_cut(&s, 0);
        for (int step = 0; step < 30; step++) {
            if (tensor_dir_draw(8)) {
                put_some(&s, shown, logs);
            } else {
                size_t size = tensor_dir_draw(BYTES + 1);
                extents_cut(&s, size);
                memset(shown + size, 0, (BYTES - size) * sizeof(shown[0]));
            }
            check(&s, shown);
        }
        CU_ASSERT_EQUAL_FATAL(extents_copy(&s, &copy), 0);
        extents_free(&s);
        check(&copy, shown);
        extents_free(&copy);
        CU_ASSERT_TRUE(logs[0]->refs == 1 && logs[1]->refs == 1);
    }
    log_unref(logs[0]);
    log_unref(logs[1]);
}

static CU_TestInfo tests[] = {
    {"a log is shared for as long as it is needed", test_shared},
    {"a log that is too large, too long or a journal is not extended", test_given_up},
    {"random extents give the bytes of a plain array", test_extents},
    CU_TEST_INFO_NULL,
};

CU_MAIN("logs", tests)
