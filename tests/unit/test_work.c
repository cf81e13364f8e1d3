/* SPDX-License-Identifier: MIT */
/* Results computed for tensors: requests that share a result, are interrupted, or fail. */
#include "cu_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "derive/task.h"
#include "derive/stats.h"
#include "derive/work.h"
#include "build_gguf.h"

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
    for (uint64_t i = 0; i < large; i++) {
        uint32_t bits;
        float v = (float)(i % 1000);
        memcpy(&bits, &v, sizeof(bits));
        put_u32(&x[i], bits, false); /* as in the file, on any machine */
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
    struct model m = model(TENSORS, 3000000, 0);
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
    model_free(&m);
}

/* All kinds of results are requested together, each for a different tensor. Statistics use moments
 * that were kept. */
TEST("all kinds of results are requested together")
{
    struct model m = model(3, 100000, 0);
    struct work *w = work_new();
    struct heard h = HEARD;
    unsigned parked = 0;
    for (enum derived what = DERIVED_MOMENTS; what <= DERIVED_PICTURE; what++)
        parked += want(w, &m.view, what, 0, 3, &h, &h) == WORK_PARKED;
    CU_ASSERT_EQUAL(wait_for(&h, parked), 0);
    struct result *stats = work_result(w, &m.view, 0, DERIVED_STATS);
    CU_ASSERT_EQUAL_FATAL(stats->bytes.len, STATS_TEXT);
    CU_ASSERT_EQUAL(memcmp(stats->bytes.data, "elements      100000  ", 22), 0);
    result_unref(stats);
    work_free(w);
    model_free(&m);
}

/* Of the pictures of a tensor's states only the most recent are kept. */
TEST("of pictures, as many are kept as fit")
{
    enum { STATES = 24 };
    struct model m = model(1, 1 << 20, 0);
    struct work *w = work_new();
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
    work_free(w);
    model_free(&m);
}

/* An interrupted request is answered at once; every waiting request is eventually answered. */
TEST("an interrupted request is answered immediately")
{
    enum { WISHES = 8 };
    struct model m = model(2, 8000000, 0);
    struct work *w = work_new();
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
    work_free(w);
    model_free(&m);
}

TEST("the end of the mount answers all requests")
{
    struct model m = model(2, 8000000, 0);
    struct work *w = work_new();
    struct heard h = HEARD;
    int r = want(w, &m.view, DERIVED_STATS, 0, 2, &h, &h);
    work_stop(w);
    CU_ASSERT_EQUAL(h.n, r == WORK_PARKED ? 1 : 0);
    CU_ASSERT_EQUAL(want(w, &m.view, DERIVED_STATS, 0, 2, &h, &h), -EINTR);
    work_free(w);
    model_free(&m);
}

/* Failures are not kept, and do not affect results that do not need the part that failed. */
TEST("missing data fails only the results that need it")
{
    struct model m = model(3, 50, 32); /* t2 is missing */
    struct work *w = work_new();
    struct heard h = HEARD, other = HEARD;
    for (unsigned round = 1; round <= 2; round++) {
        CU_ASSERT_EQUAL(want(w, &m.view, DERIVED_MOMENTS, 1, 3, &h, &h), WORK_PARKED);
        CU_ASSERT_EQUAL(wait_for(&h, round), -EIO);
    }
    int r = want(w, &m.view, DERIVED_MOMENTS, 0, 2, &other, &other);
    CU_ASSERT_EQUAL(r == WORK_PARKED ? wait_for(&other, 1) : r, 0);
    work_free(w);
    model_free(&m);
}
