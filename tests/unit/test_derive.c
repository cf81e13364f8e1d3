/* SPDX-License-Identifier: MIT */
/* Results computed from tensors: statistics compared with sums in long double, values at the edges
 * of bins; requests that share a result, are interrupted, or fail. */
#include "cu_test.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "build_gguf.h"
#include "derive/stats.h"
#include "derive/task.h"
#include "derive/work.h"
#include "quant/f16.h"
#include "soak.h"

/* ---- statistics ---- */

/* Return the moments of n floats, added in stretches of the given length, which must not affect the
 * result. */
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

/* The mean is far from zero, so a sum of squares would lose the deviation. */
TEST("moments do not depend on the lengths of stretches")
{
    enum { N = 100003 };
    CLEANUP(free_it) float *x = malloc(N * sizeof(*x));
    long double sum = 0, squares = 0;
    uint64_t state = 1;
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    for (size_t i = 0; i < N; i++) {
        x[i] = 10000 + (float)soak_draw(&state, 1 << 24) * 0x1p-24f;
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
}

TEST("NaN and infinities are counted and left out")
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

TEST("zeros of either sign are one value")
{
    float x[][3] = {
        {0, -0.0f, -0.0f}, {-0.0f, 0, -0.0f}, {-0.0f, -0.0f, 0}, {-0.0f, -1, 0}, {1, -0.0f, 0}};
    for (size_t i = 0; i < 5; i++)
        for (size_t stretch = 1; stretch <= 3; stretch++) {
            struct moments m = measured(x[i], 3, stretch);
            CU_ASSERT_FALSE(m.min == 0 && signbit(m.min));
            CU_ASSERT_FALSE(m.max == 0 && signbit(m.max));
            CU_ASSERT_FALSE(signbit(moments_absmax(&m)));
        }
}

/* Make a two-dimensional tensor. `dims` has room for 16 bytes. */
static struct gguf_tensor matrix(struct gguf *g, uint8_t *dims, uint64_t columns, uint64_t rows)
{
    put_u64(dims, columns, false);
    put_u64(dims + 8, rows, false);
    *g = (struct gguf){.head = dims, .fmt = {.len_width = 8}};
    return (struct gguf_tensor){.n_elem = columns * rows, .n_dims = 2};
}

/* Return the bin of x by the definition of bins. */
static size_t bin_of(double x, double mean, double std)
{
    size_t i = 0;
    while (i < STATS_BINS - 1 && x >= mean + std * ((int)i + 1 - 25) / 4)
        i++;
    return i;
}

static void bins_are(float *x, size_t n, double mean, double std)
{
    const struct moments m = {.n = 1, .mean = mean, .squares = std * std};
    struct alive none = {0};
    struct spread s = {.count = {3}};
    uint64_t own[STATS_BINS] = {3};
    for (size_t i = 0; i < n; i++)
        own[bin_of((double)x[i], mean, std)]++;
    spread_add(&s, &none, &m, x, 0, n);
    CU_ASSERT_EQUAL(memcmp(own, s.count, sizeof(own)), 0);
}

/* Each bin edge and its neighbours are counted correctly, for means and deviations of all
 * magnitudes. */
TEST("each bin includes exactly its lower edge")
{
    uint64_t state = 7;
    for (int round = 0; round < 1000; round++) {
        float x[3 * 41];
        size_t n = 0;
        state = state * 6364136223846793005u + 1442695040888963407u;
        double std = ldexp((double)(state >> 40 | 1), (int)(state % 200) - 140);
        double mean = round % 3 ? std * ((double)(state >> 20 & 0xfff) - 2048) / 512 : 0;
        for (int i = -20; i <= 20; i++) {
            x[n] = (float)(mean + std * i / 4);
            x[n + 1] = nextafterf(x[n], -INFINITY);
            x[n + 2] = nextafterf(x[n], INFINITY);
            n += 3;
        }
        bins_are(x, n, mean, std);
    }
}

TEST("a text has the announced size for all numbers")
{
    const double largest[] = {0, 1, 3.4028234663852886e38, 1.401298464324817e-45};
    uint8_t dims[16];
    struct gguf g;
    struct gguf_tensor t = matrix(&g, dims, (uint64_t)1 << 31, (uint64_t)1 << 31);
    for (size_t i = 0; i < 4; i++) {
        CLEANUP(buf_free) struct buf out = BUF_INIT;
        struct spread s = {{UINT64_MAX >> 4, 1}, t.n_elem, 1e300};
        struct alive a = {.columns = 1, .rows = 1};
        struct moments m = {.n = UINT64_MAX >> 4,
                            .min = (float)-largest[i],
                            .max = (float)largest[i],
                            .mean = -2.2250738585072014e-308,
                            .squares = 1e300};
        stats_text(&g, &t, &m, &s, &a, &out);
        CU_ASSERT_EQUAL(out.len, STATS_TEXT);
    }
}

/* ---- pictures ---- */

static struct picture picture_with(uint64_t columns, uint64_t rows)
{
    uint8_t dims[16];
    struct gguf g;
    struct gguf_tensor t = matrix(&g, dims, columns, rows);
    return picture_of(&g, &t);
}

/* The rows of pixels are contiguous and cover all values. */
TEST("the rows of a picture are contiguous and cover all values")
{
    const uint64_t many = (uint64_t)1 << 31;
    const uint64_t dims[][2] = {
        {many, 1},       {1, many}, {many / 3, 3}, {3, many / 3}, {4096, many / 4096},
        {4 << 20, 1023}, {9, 5},    {1, 1},        {0, 0}};
    for (size_t i = 0; i < 9; i++) {
        struct picture p = picture_with(dims[i][0], dims[i][1]);
        uint64_t at = 0;
        for (uint64_t y = 0; y < p.height; y++) {
            uint64_t first, end;
            picture_values(&p, y, &first, &end);
            CU_ASSERT_EQUAL_FATAL(first, at);
            at = end;
        }
        CU_ASSERT_EQUAL(at, p.n);
    }
}

/* ---- models ---- */

struct model {
    struct snapshot *snap;
    struct store *store;
    struct view view;
};

static struct snapshot *snapshot_of(struct gguf *g, uint32_t number)
{
    struct snapshot *ret = NULL;
    CU_ASSERT_EQUAL_FATAL(newest_make(&(struct newest){.name = "m.gguf"}, g, NULL, number,
                                      &(struct timespec){0}, &ret, NULL),
                          0);
    return ret;
}

/* Make tensors of the F32 values 1, 2, 3 ... in an unlinked file: `large` values in the first, 7 in
 * each of the others. */
static struct model model(uint32_t tensors, uint64_t large, uint64_t missing)
{
    struct model m = {NULL, NULL, VIEW_INIT};
    struct gguf *g = NULL;
    size_t n;
    struct build b = build_of(3, false);
    float *x = malloc(large * sizeof(*x));
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    for (uint64_t i = 0; i < large; i++) /* as in the file, on any machine */
        put_u32(&x[i], f32_bits((float)(i % 1000)), false);
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
    CU_ASSERT_EQUAL_FATAL(mapped_open(fileno(f), n - missing, &mapped, NULL), 0);
    (void)fclose(f);
    CU_ASSERT_EQUAL_FATAL(store_make(mapped, NULL, (const struct gguf *const *)&g, 1, &m.store), 0);
    mapped_unref(mapped);
    m.snap = snapshot_of(g, 0);
    free(bytes);
    m.view = (struct view){m.snap, m.store, NULL};
    return m;
}

static void model_free(struct model *m)
{
    view_free(&m->view);
}

static void work_drop(struct work **w)
{
    work_free(*w);
}

static bool moments_of(struct work *w, const struct view *v, uint32_t i, struct moments *ret)
{
    struct result *r = work_result(w, v, i, DERIVED_MOMENTS);
    if (r)
        memcpy(ret, r->bytes.data, sizeof(*ret));
    result_unref(r);
    return r;
}

/* Counter of answers. */
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

static int want(struct work *w, const struct view *v, enum derived what, uint32_t first,
                uint32_t last, const void *request, struct heard *h)
{
    const struct work_waiter waiter = {.request = request, .done = hear, .arg = h};
    return work_want(w, v, what, first, last, &waiter);
}

TEST("many requests share one computation")
{
    enum { TENSORS = 60, WISHES = 20 };
    CLEANUP(model_free) struct model m = model(TENSORS, 3000000, 0);
    struct work *w = work_new();
    struct heard h = HEARD;
    struct moments got;
    unsigned parked = 0;
    for (unsigned i = 0; i < WISHES; i++)
        parked += want(w, &m.view, DERIVED_MOMENTS, 0, TENSORS, &h, &h) == WORK_PARKED;
    CU_ASSERT_EQUAL(parked ? wait_for(&h, parked) : 0, 0);
    CU_ASSERT_EQUAL(want(w, &m.view, DERIVED_MOMENTS, 0, TENSORS, &h, &h), 0);
    for (uint32_t i = 0; i < TENSORS; i++) {
        CU_ASSERT_TRUE(moments_of(w, &m.view, i, &got));
        CU_ASSERT_EQUAL(got.n, i ? 7 : 3000000);
        CU_ASSERT_DOUBLE_EQUAL(got.mean, i ? 3 : 499.5, 1e-9);
    }
    work_free(w);
    CU_ASSERT_EQUAL(h.n, parked);
}

/* All kinds of results are requested together, each for a different tensor. Statistics use moments
 * that were kept. */
TEST("all kinds of results are requested together")
{
    CLEANUP(model_free) struct model m = model(3, 100000, 0);
    CLEANUP(work_drop) struct work *w = work_new();
    struct heard h = HEARD;
    unsigned parked = 0;
    for (enum derived what = DERIVED_MOMENTS; what <= DERIVED_PICTURE; what++)
        parked += want(w, &m.view, what, 0, 3, &h, &h) == WORK_PARKED;
    CU_ASSERT_EQUAL(wait_for(&h, parked), 0);
    struct result *stats = work_result(w, &m.view, 0, DERIVED_STATS);
    CU_ASSERT_EQUAL_FATAL(stats->bytes.len, STATS_TEXT);
    CU_ASSERT_EQUAL(memcmp(stats->bytes.data, "elements      100000  ", 22), 0);
    result_unref(stats);
}

/* Of the pictures of a tensor's states only the most recent are kept. */
TEST("of pictures, as many are kept as fit")
{
    enum { STATES = 24 };
    CLEANUP(model_free) struct model m = model(1, 1 << 20, 0);
    CLEANUP(work_drop) struct work *w = work_new();
    struct view view[STATES];
    size_t kept = 0, size = 1;
    for (uint32_t i = 0; i < STATES; i++) {
        struct heard h = HEARD;
        view[i] = (struct view){NULL, m.store, NULL};
        view[i].snap = snapshot_of(REF(m.snap->gguf), i);
        view[i].snap->ids = ids_new(1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(view[i].snap->ids);
        view[i].snap->ids->of[0] = (struct tensor_id){0, i};
        if (want(w, &view[i], DERIVED_PICTURE, 0, 1, &h, &h) == WORK_PARKED)
            CU_ASSERT_EQUAL(wait_for(&h, 1), 0);
    }
    for (uint32_t i = 0; i < STATES; i++) {
        struct result *r = work_result(w, &view[i], 0, DERIVED_PICTURE);
        kept += r != NULL;
        CU_ASSERT_TRUE(r || i + 1 < STATES);
        size = r ? r->bytes.len : size;
        result_unref(r);
        snapshot_unref(view[i].snap);
    }
    CU_ASSERT_EQUAL(kept, KEPT_BYTES / size);
}

/* An interrupted request is answered at once; every waiting request is eventually answered. */
TEST("an interrupted request is answered immediately")
{
    enum { WISHES = 8 };
    CLEANUP(model_free) struct model m = model(2, 8000000, 0);
    CLEANUP(work_drop) struct work *w = work_new();
    struct heard h[WISHES];
    int who[WISHES];
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < WISHES; i++) {
            h[i] = (struct heard)HEARD;
            who[i] = want(w, &m.view, DERIVED_STATS, 0, 2, &who[i], &h[i]);
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
}

TEST("the end of the mount answers all requests")
{
    CLEANUP(model_free) struct model m = model(2, 8000000, 0);
    CLEANUP(work_drop) struct work *w = work_new();
    struct heard h = HEARD;
    int r = want(w, &m.view, DERIVED_STATS, 0, 2, &h, &h);
    work_stop(w);
    CU_ASSERT_EQUAL(h.n, r == WORK_PARKED ? 1 : 0);
    CU_ASSERT_EQUAL(want(w, &m.view, DERIVED_STATS, 0, 2, &h, &h), -EINTR);
}

/* Failures are not kept, and do not affect results that do not need the part that failed. */
TEST("missing data fails only the results that need it")
{
    CLEANUP(model_free) struct model m = model(3, 50, 32); /* t2 is missing */
    CLEANUP(work_drop) struct work *w = work_new();
    struct heard h = HEARD, other = HEARD;
    for (unsigned round = 1; round <= 2; round++) {
        CU_ASSERT_EQUAL(want(w, &m.view, DERIVED_MOMENTS, 1, 3, &h, &h), WORK_PARKED);
        CU_ASSERT_EQUAL(wait_for(&h, round), -EIO);
    }
    int r = want(w, &m.view, DERIVED_MOMENTS, 0, 2, &other, &other);
    CU_ASSERT_EQUAL(r == WORK_PARKED ? wait_for(&other, 1) : r, 0);
}
