/* SPDX-License-Identifier: MIT */
/* tree/texts: a text is rendered once for all that show it. */
#include "cu_main.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "tree/texts.h"

static struct texts texts;
static atomic_uint renders;

static void render(const void *arg, struct buf *out)
{
    atomic_fetch_add(&renders, 1);
    buf_str(out, arg);
}

static void no_memory(const void *arg, struct buf *out)
{
    (void)arg;
    out->err = -ENOMEM;
}

static struct rendered *get(uint64_t snap, uint64_t node, const char *text)
{
    struct rendered *x = NULL;
    CU_ASSERT_EQUAL_FATAL(texts_get(&texts, snap, node, render, text, &x), 0);
    return x;
}

static void shows(const struct rendered *x, const char *text)
{
    CU_ASSERT_EQUAL_FATAL(x->bytes.len, strlen(text));
    CU_ASSERT_EQUAL(memcmp(x->bytes.data, text, strlen(text)), 0);
}

static unsigned held(void)
{
    unsigned n = 0;
    for (struct link *l = NULL; (l = table_each(&texts.all, l)) != NULL;)
        n++;
    return n;
}

static void test_shared(void)
{
    texts_init(&texts);
    renders = 0;
    struct rendered *a = get(1, 7, "one"), *b = get(1, 7, "not asked for");
    CU_ASSERT_PTR_EQUAL(a, b);
    struct rendered *other_gen = get(2, 7, "two"), *other_node = get(1, 8, "three");
    CU_ASSERT_EQUAL(renders, 3);
    CU_ASSERT_EQUAL(held(), 3);
    rendered_unref(a);
    shows(b, "one");
    shows(other_gen, "two");
    shows(other_node, "three");
    rendered_unref(b);
    CU_ASSERT_EQUAL(held(), 2);
    a = get(1, 7, "anew");
    shows(a, "anew");
    CU_ASSERT_EQUAL(renders, 4);
    rendered_unref(a);
    rendered_unref(other_gen);
    rendered_unref(other_node);
    CU_ASSERT_EQUAL(held(), 0);
    texts_free(&texts);
}

/* More than there are buckets: each leaves its chain, whatever its place in it. */
static void test_many(void)
{
    enum { MANY = 1000 };
    struct rendered *x[MANY];
    texts_init(&texts);
    for (uint64_t i = 0; i < MANY; i++)
        x[i] = get(i % 3, i, "x");
    CU_ASSERT_EQUAL(held(), MANY);
    for (unsigned i = 0; i < MANY; i++) /* 7 and MANY have no divisor in common: each once */
        rendered_unref(x[i * 7 % MANY]);
    CU_ASSERT_EQUAL(held(), 0);
    texts_free(&texts);
}

static void test_failure(void)
{
    struct rendered *x = NULL;
    texts_init(&texts);
    CU_ASSERT_EQUAL(texts_get(&texts, 1, 1, no_memory, NULL, &x), -ENOMEM);
    CU_ASSERT_PTR_NULL(x);
    CU_ASSERT_EQUAL(held(), 0);
    x = get(1, 1, "there is memory again");
    shows(x, "there is memory again");
    rendered_unref(x);
    rendered_unref(NULL);
    texts_free(&texts);
}

enum { THREADS = 8 };
static pthread_barrier_t line;

/* Tells when it has begun, and goes on when it is told. */
static void slow(const void *arg, struct buf *out)
{
    render(arg, out);
    (void)pthread_barrier_wait(&line);
    (void)pthread_barrier_wait(&line);
}

static void *first(void *ret)
{
    struct rendered *x = NULL;
    return texts_get(&texts, 3, 3, slow, "slow", &x) == 0 ? *(struct rendered **)ret = x : NULL;
}

static void *next(void *ret)
{
    struct rendered *x = NULL;
    return texts_get(&texts, 3, 3, render, "late", &x) == 0 ? *(struct rendered **)ret = x : NULL;
}

/* The first renders; the others come while it does. Another text is not held up by it. */
static void test_threads(void)
{
    pthread_t thread[THREADS];
    struct rendered *got[THREADS] = {NULL};
    texts_init(&texts);
    renders = 0;
    CU_ASSERT_EQUAL_FATAL(pthread_barrier_init(&line, NULL, 2), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[0], NULL, first, &got[0]), 0);
    (void)pthread_barrier_wait(&line);
    for (int i = 1; i < THREADS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, next, &got[i]), 0);
    rendered_unref(get(3, 4, "other"));
    (void)pthread_barrier_wait(&line);
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(thread[i], NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(got[i]);
        CU_ASSERT_PTR_EQUAL(got[i], got[0]);
    }
    shows(got[0], "slow");
    CU_ASSERT_EQUAL(renders, 2);
    for (int i = 0; i < THREADS; i++)
        rendered_unref(got[i]);
    CU_ASSERT_EQUAL(held(), 0);
    (void)pthread_barrier_destroy(&line);
    texts_free(&texts);
}

static CU_TestInfo tests[] = {
    {"nodes that show the same share a text", test_shared},
    {"many texts", test_many},
    {"a text that cannot be rendered is nobody's", test_failure},
    {"threads wait for the one that renders it", test_threads},
    CU_TEST_INFO_NULL,
};

CU_MAIN("texts", tests)
