/* SPDX-License-Identifier: MIT */
/*
 * What is computed of tensors: figures against sums in long double, bins at their edges, results that
 * are kept, wishes that are shared, interrupted, and fail.
 */
#include "cu_main.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "derive/picture.h"
#include "derive/work.h"
#include "parsed.h"

/* ---- statistics ---- */

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

/* n floats in stretches of one length; what is measured must not depend on it. */
static struct moments measured(const float *x, size_t n, size_t stretch)
{
    static float room[STATS_STRETCH];
    struct moments all = MOMENTS_NONE;
    for (size_t at = 0; at < n; at += stretch) {
        size_t k = (size_t)min_u64(stretch, n - at);
        memcpy(room, x + at, k * sizeof(*x));
        moments_add(&all, room, k);
    }
    return all;
}

static void is_near(double got, long double want)
{
    CU_ASSERT_TRUE(fabsl((long double)got - want) <= 1e-12L * fabsl(want));
}

/* The mean is far from zero: sums of squares would lose the deviation. */
static void test_moments(void)
{
    enum { N = 100003 };
    float *x = malloc(N * sizeof(*x));
    long double sum = 0, squares = 0;
    uint32_t state = 1;
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    for (size_t i = 0; i < N; i++) {
        x[i] = 10000 + (float)draw(&state) * 0x1p-24f;
        sum += (long double)x[i];
    }
    for (size_t i = 0; i < N; i++)
        squares += ((long double)x[i] - sum / N) * ((long double)x[i] - sum / N);
    for (size_t stretch = 1; stretch <= STATS_STRETCH; stretch = 3 * stretch + 1) {
        struct moments m = measured(x, N, stretch);
        CU_ASSERT_EQUAL(m.n, N);
        is_near(m.mean, sum / N);
        CU_ASSERT_TRUE(fabsl((long double)m.squares - squares) < 1e-8L * squares);
    }
    free(x);
}

static void test_not_finite(void)
{
    float x[] = {NAN, 1, INFINITY, -0.0f, -2, -INFINITY, 0, NAN, NAN, 3};
    struct moments m = measured(x, 10, 10);
    CU_ASSERT_EQUAL(m.n, 5);
    CU_ASSERT_EQUAL(m.nan, 3);
    CU_ASSERT_EQUAL(m.inf, 2);
    CU_ASSERT_EQUAL(m.zeros, 2);
    CU_ASSERT_EQUAL(m.min, -2);
    CU_ASSERT_EQUAL(m.max, 3);
    CU_ASSERT_EQUAL(moments_absmax(&m), 3);
    CU_ASSERT_EQUAL(m.mean, 0.4);
    float none[] = {NAN, INFINITY};
    m = measured(none, 2, 1);
    CU_ASSERT_EQUAL(m.n + m.zeros, 0);
    CU_ASSERT_EQUAL(moments_absmax(&m), 0);
}

/* The bin by the definition: its edges are exact in double. */
static size_t bin_of(double x, double absmax)
{
    size_t i = 0;
    while (i < STATS_BINS - 1 && x >= absmax * ((double)i + 1 - 16) / 16)
        i++;
    return i;
}

static void bins_are(float *x, size_t n, float absmax)
{
    struct bins got = {{0}}, want = {{0}};
    for (size_t i = 0; i < n; i++)
        want.count[bin_of((double)x[i], (double)absmax)]++;
    bins_add(&got, x, n, absmax);
    CU_ASSERT_EQUAL(memcmp(&got, &want, sizeof(got)), 0);
}

/* Each edge and its neighbours, whatever the largest value is. */
static void test_bins(void)
{
    uint32_t state = 7;
    for (int round = 0; round < 2000; round++) {
        float x[3 * 33],
            absmax = ldexpf((float)(draw(&state) | 1), (int)(draw(&state) % 250) - 149);
        size_t n = 0;
        for (int i = 0; i <= 32; i++) {
            float edge = (float)((double)absmax * (i - 16) / 16);
            x[n++] = edge;
            if (i > 0)
                x[n++] = nextafterf(edge, -INFINITY);
            if (i < 32)
                x[n++] = nextafterf(edge, INFINITY);
        }
        bins_are(x, n, absmax);
    }
}

/* Values that grew since the largest was looked for are counted in the outer bins. */
static void test_bins_outside(void)
{
    struct bins b = {{0}};
    float x[] = {1e30f, -1e30f, 2, -2, NAN};
    bins_add(&b, x, 5, 1);
    CU_ASSERT_EQUAL(b.count[31], 2);
    CU_ASSERT_EQUAL(b.count[0], 2);
    b = (struct bins){{0}};
    float zeros[] = {0, -0.0f, 0};
    bins_add(&b, zeros, 3, 0);
    CU_ASSERT_EQUAL(b.count[16], 3);
}

static void test_text_size(void)
{
    const double largest[] = {0, 1, 3.4028234663852886e38, 1.401298464324817e-45};
    for (size_t i = 0; i < 4; i++) {
        CLEANUP(buf_free) struct buf out = BUF_INIT;
        struct bins b = {{UINT64_MAX >> 4, 1}};
        struct moments m = {.n = UINT64_MAX >> 4,
                            .min = (float)-largest[i],
                            .max = (float)largest[i],
                            .mean = -2.2250738585072014e-308,
                            .squares = 1e300};
        stats_text(&m, &b, &out);
        CU_ASSERT_EQUAL(out.len, STATS_TEXT);
    }
}

/* ---- what is kept ---- */

static void put(struct kept *k, struct kept_key key, enum derived what, size_t n)
{
    CLEANUP(buf_free) struct buf bytes = BUF_INIT;
    buf_zero(&bytes, n);
    CU_ASSERT_EQUAL(kept_put_blob(k, key, what, &bytes), 0);
}

static void test_kept(void)
{
    struct kept k = KEPT_NONE;
    struct moments m = {.n = 5};
    uint8_t hash[DIGEST_BYTES] = {1, 2, 3}, got[DIGEST_BYTES];
    const struct kept_key a = {3, 0}, far = {1000000, 2}, newer = {3, 1};
    CU_ASSERT_FALSE(kept_has(&k, a, DERIVED_SHA256));
    CU_ASSERT_EQUAL(kept_put_sha256(&k, a, hash), 0);
    CU_ASSERT_EQUAL(kept_put_moments(&k, far, &m), 0);
    put(&k, a, DERIVED_STATS, 100);
    CU_ASSERT_TRUE(kept_sha256(&k, a, got) && memcmp(got, hash, sizeof(hash)) == 0);
    CU_ASSERT_FALSE(kept_has(&k, a, DERIVED_MOMENTS));
    CU_ASSERT_TRUE(kept_has(&k, far, DERIVED_MOMENTS));
    CU_ASSERT_FALSE(kept_has(&k, newer, DERIVED_SHA256));
    struct blob *held = kept_blob(&k, a, DERIVED_STATS);
    CU_ASSERT_EQUAL(kept_put_sha256(&k, newer, hash), 0); /* what was of the older state goes */
    CU_ASSERT_FALSE(kept_has(&k, a, DERIVED_SHA256));
    CU_ASSERT_PTR_NULL(kept_blob(&k, a, DERIVED_STATS));
    CU_ASSERT_EQUAL(held->bytes.len, 100);
    blob_unref(held);
    kept_free(&k);
}

/* Those that were not used for longest go first. */
static void test_kept_most(void)
{
    struct kept k = KEPT_NONE;
    enum { SIZE = 10 << 20 };
    for (uint32_t i = 0; i < 6; i++)
        put(&k, (struct kept_key){i, 0}, DERIVED_PICTURE, SIZE);
    blob_unref(kept_blob(&k, (struct kept_key){0, 0}, DERIVED_PICTURE));
    put(&k, (struct kept_key){6, 0}, DERIVED_PICTURE, SIZE);
    CU_ASSERT_TRUE(kept_has(&k, (struct kept_key){0, 0}, DERIVED_PICTURE));
    CU_ASSERT_FALSE(kept_has(&k, (struct kept_key){1, 0}, DERIVED_PICTURE));
    CU_ASSERT_EQUAL(k.bytes, (size_t)6 * SIZE);
    put(&k, (struct kept_key){7, 0}, DERIVED_PICTURE,
        KEPT_BYTES + 1); /* the newest stays in any case */
    CU_ASSERT_TRUE(kept_has(&k, (struct kept_key){7, 0}, DERIVED_PICTURE));
    CU_ASSERT_FALSE(kept_has(&k, (struct kept_key){6, 0}, DERIVED_PICTURE));
    kept_free(&k);
}

/* ---- work ---- */

struct model {
    struct snapshot *snap;
    struct store *store;
    struct view view;
};

/* Tensors of F32 1, 2, 3 ...: `large` values in the first, 7 in the others; in an unlinked file. */
static struct model model(uint32_t tensors, uint64_t large, uint64_t missing)
{
    struct build b;
    struct model m = {NULL, NULL, VIEW_INIT};
    struct gguf *g = NULL;
    size_t n;
    build_init(&b, 3, false);
    float *x = malloc(large * sizeof(*x));
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    for (uint64_t i = 0; i < large; i++) {
        uint32_t bits;
        float v = (float)(i % 1000);
        memcpy(&bits, &v, sizeof(bits));
        put_u32(&x[i], bits, false); /* as the file has it, on any machine */
    }
    for (uint32_t i = 0; i < tensors; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "t%u", i);
        uint64_t k = i ? 7 : large;
        build_tensor(&b, name, 0, &k, 1, x, k * sizeof(*x));
    }
    free(x);
    uint8_t *bytes = build_finish(&b, &n);
    FILE *f = tmpfile();
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, n - missing, f), n - missing);
    CU_ASSERT_EQUAL(fflush(f), 0);
    struct source src = source_mem(bytes, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, 0, &g, NULL), 0);
    struct mapped *mapped = NULL;
    CU_ASSERT_EQUAL_FATAL(mapped_open(dup(fileno(f)), n - missing, &mapped, NULL), 0);
    (void)fclose(f);
    CU_ASSERT_EQUAL_FATAL(store_make(&mapped, (const struct gguf *const *)&g, 1, &m.store), 0);
    mapped_unref(mapped);
    CU_ASSERT_EQUAL_FATAL(snapshot_make(g, 0, &(struct timespec){0}, &m.snap), 0);
    free(bytes);
    m.view = (struct view){m.snap, m.store, NULL};
    return m;
}

static void model_free(struct model *m)
{
    view_free(&m->view);
}

/* Counts answers. */
struct heard {
    pthread_mutex_t lock;
    pthread_cond_t more;
    unsigned n;
    int last;
};

#define HEARD                                                     \
    {                                                             \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 1 \
    }

static void hear(void *arg, int result)
{
    struct heard *h = arg;
    (void)pthread_mutex_lock(&h->lock);
    h->n++;
    h->last = result;
    (void)pthread_cond_signal(&h->more);
    (void)pthread_mutex_unlock(&h->lock);
}

static int wait_for(struct heard *h, unsigned n)
{
    (void)pthread_mutex_lock(&h->lock);
    while (h->n < n)
        (void)pthread_cond_wait(&h->more, &h->lock);
    int last = h->last;
    (void)pthread_mutex_unlock(&h->lock);
    return last;
}

static void test_shared(void)
{
    enum { TENSORS = 60, WISHES = 20 };
    struct model m = model(TENSORS, 3000000, 0);
    struct work *w = work_new();
    struct heard h = HEARD;
    struct moments got;
    unsigned parked = 0;
    for (unsigned i = 0; i < WISHES; i++)
        parked += work_want(w, &m.view, DERIVED_MOMENTS, 0, TENSORS, &h, hear, &h) == WORK_PARKED;
    CU_ASSERT_EQUAL(parked ? wait_for(&h, parked) : 0, 0);
    CU_ASSERT_EQUAL(work_count(w), TENSORS); /* each once */
    CU_ASSERT_EQUAL(work_want(w, &m.view, DERIVED_MOMENTS, 0, TENSORS, &h, hear, &h), 0);
    for (uint32_t i = 0; i < TENSORS; i++) {
        CU_ASSERT_TRUE(work_moments(w, &m.view, i, &got));
        CU_ASSERT_EQUAL(got.n, i ? 7 : 3000000);
        is_near(got.mean, i ? 3 : 499.5L);
    }
    work_free(w);
    CU_ASSERT_EQUAL(h.n, parked);
    model_free(&m);
}

/* All kinds at once, of a tensor each; statistics use moments that are kept. */
static void test_kinds(void)
{
    struct model m = model(3, 100000, 0);
    struct work *w = work_new();
    struct heard h = HEARD;
    unsigned parked = 0;
    for (enum derived what = DERIVED_MOMENTS; what <= DERIVED_PICTURE; what++)
        if (what != DERIVED_PICTURE || picture_library())
            parked += work_want(w, &m.view, what, 0, 3, &h, hear, &h) == WORK_PARKED;
    CU_ASSERT_EQUAL(wait_for(&h, parked), 0);
    struct blob *stats = work_blob(w, &m.view, 0, DERIVED_STATS);
    CU_ASSERT_EQUAL_FATAL(stats->bytes.len, STATS_TEXT);
    CU_ASSERT_EQUAL(memcmp(stats->bytes.data, "elements 100000  ", 17), 0);
    blob_unref(stats);
    work_free(w);
    model_free(&m);
}

/* A wish that is interrupted is answered at once, and what only it wanted is given up. */
static void test_interrupt(void)
{
    enum { WISHES = 8 };
    struct model m = model(2, 8000000, 0);
    struct work *w = work_new();
    struct heard h[WISHES];
    int who[WISHES];
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < WISHES; i++) {
            h[i] = (struct heard)HEARD;
            who[i] = work_want(w, &m.view, DERIVED_STATS, 0, 2, &who[i], hear, &h[i]);
        }
        for (unsigned i = 0; i < WISHES; i++)
            if (i != round % WISHES)
                (void)work_interrupt(w, &who[i]);
        for (unsigned i = 0; i < WISHES; i++) {
            int r = who[i] == WORK_PARKED ? wait_for(&h[i], 1) : who[i];
            CU_ASSERT_TRUE(r == 0 || (r == -EINTR && i != round % WISHES));
        }
        work_free(w);
        w = work_new();
    }
    work_free(w);
    model_free(&m);
}

/* The end answers all that waits. */
static void test_stop(void)
{
    struct model m = model(2, 8000000, 0);
    struct work *w = work_new();
    struct heard h = HEARD;
    int r = work_want(w, &m.view, DERIVED_STATS, 0, 2, &h, hear, &h);
    work_stop(w);
    CU_ASSERT_EQUAL(h.n, r == WORK_PARKED ? 1 : 0);
    CU_ASSERT_EQUAL(work_want(w, &m.view, DERIVED_STATS, 0, 2, &h, hear, &h), -EINTR);
    work_free(w);
    model_free(&m);
}

/* What fails is not kept, and does not fail what does not need it. */
static void test_missing(void)
{
    struct model m = model(3, 50, 32); /* the last tensor */
    struct work *w = work_new();
    struct heard h = HEARD, other = HEARD;
    for (unsigned round = 1; round <= 2; round++) {
        CU_ASSERT_EQUAL(work_want(w, &m.view, DERIVED_MOMENTS, 1, 3, &h, hear, &h), WORK_PARKED);
        CU_ASSERT_EQUAL(wait_for(&h, round), -EIO);
    }
    int r = work_want(w, &m.view, DERIVED_MOMENTS, 0, 2, &other, hear, &other);
    CU_ASSERT_EQUAL(r == WORK_PARKED ? wait_for(&other, 1) : r, 0);
    work_free(w);
    model_free(&m);
}

static CU_TestInfo tests[] = {
    {"moments do not depend on stretches", test_moments},
    {"NaN and infinities are counted and left out", test_not_finite},
    {"a bin holds its lower edge, exactly", test_bins},
    {"values outside are in the outer bins", test_bins_outside},
    {"a text has its size, whatever the numbers are", test_text_size},
    {"results are kept by state", test_kept},
    {"what was used last is kept", test_kept_most},
    {"many wishes, one computation", test_shared},
    {"all kinds at once", test_kinds},
    {"an interrupted wish", test_interrupt},
    {"the end answers", test_stop},
    {"missing data", test_missing},
    CU_TEST_INFO_NULL,
};

CU_MAIN("derive", tests)
