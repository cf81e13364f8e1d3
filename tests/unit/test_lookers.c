/* SPDX-License-Identifier: MIT */
/* live/lookers.h: which programs are to look a view up again. */
#include "cu_main.h"
#include "live/lookers.h"

static unsigned count(const struct looker *k)
{
    unsigned n = 0;
    for (; k; k = k->next)
        n++;
    return n;
}

/* A program has one view that it looks up: the last one. */
static void test_programs(void)
{
    struct looker *all = NULL;
    lookers_add(&all, 1, 10, 2, 5);
    lookers_add(&all, 2, 10, 2, 6);
    CU_ASSERT_EQUAL(count(all), 2);
    CU_ASSERT_PTR_NULL(lookers_find(all, 3, 10, 2));
    CU_ASSERT_PTR_NULL(lookers_find(all, 1, 11, 2));
    CU_ASSERT_PTR_NULL(lookers_find(all, 1, 10, 3));
    struct looker *k = lookers_find(all, 1, 10, 2);
    CU_ASSERT_PTR_NOT_NULL_FATAL(k);
    CU_ASSERT_EQUAL(k->kind, 5);
    CU_ASSERT_EQUAL(lookers_find(all, 2, 10, 2)->kind, 6);
    lookers_add(&all, 1, 11, 3, 7);
    CU_ASSERT_EQUAL(count(all), 2);
    CU_ASSERT_PTR_NULL(lookers_find(all, 1, 10, 2));
    CU_ASSERT_EQUAL(lookers_find(all, 1, 11, 3)->kind, 7);
    lookers_add(&all, 1, 11, 3, 7); /* twice is once */
    looker_done(&all, lookers_find(all, 1, 11, 3));
    CU_ASSERT_PTR_NULL(lookers_find(all, 1, 11, 3));
    CU_ASSERT_EQUAL(count(all), 1);
    looker_done(&all, NULL);
    CU_ASSERT_EQUAL(count(all), 1);
    lookers_free(&all);
    CU_ASSERT_PTR_NULL(all);
}

/* Programs that are not known: each view as often as it was opened. */
static void test_unknown(void)
{
    struct looker *all = NULL;
    lookers_add(&all, 0, 10, 2, 5);
    lookers_add(&all, 0, 11, 2, 5);
    lookers_add(&all, 0, 10, 2, 5);
    CU_ASSERT_EQUAL(count(all), 2);
    looker_done(&all, lookers_find(all, 0, 10, 2));
    CU_ASSERT_PTR_NOT_NULL(lookers_find(all, 0, 10, 2));
    looker_done(&all, lookers_find(all, 0, 10, 2));
    CU_ASSERT_PTR_NULL(lookers_find(all, 0, 10, 2));
    CU_ASSERT_PTR_NOT_NULL(lookers_find(all, 0, 11, 2));
    lookers_free(&all);
}

static void test_nodes(void)
{
    struct looker *all = NULL;
    lookers_add(&all, 1, 10, 2, 5);
    lookers_add(&all, 2, 10, 3, 5);
    CU_ASSERT_EQUAL(lookers_node(all, 10, 2), 0);
    lookers_find(all, 1, 10, 2)->node = 77;
    lookers_find(all, 2, 10, 3)->node = 88;
    CU_ASSERT_EQUAL(lookers_node(all, 10, 2), 77);
    CU_ASSERT_EQUAL(lookers_node(all, 10, 3), 88);
    CU_ASSERT_EQUAL(lookers_node(all, 11, 2), 0);
    lookers_add(&all, 1, 10, 2, 5); /* anew: no node yet */
    CU_ASSERT_EQUAL(lookers_node(all, 10, 2), 0);
    lookers_free(&all);
}

/* Ten seconds later it is forgotten: not found, and taken out by the next one. */
static void test_late(void)
{
    struct looker *all = NULL;
    for (uint32_t i = 1; i <= 3; i++)
        lookers_add(&all, i, i, 0, 0);
    struct looker *k = lookers_find(all, 2, 2, 0);
    k->since -= 9;
    CU_ASSERT_PTR_EQUAL(lookers_find(all, 2, 2, 0), k);
    k->since -= 2;
    CU_ASSERT_PTR_NULL(lookers_find(all, 2, 2, 0));
    CU_ASSERT_EQUAL(count(all), 3);
    lookers_add(&all, 4, 4, 0, 0);
    CU_ASSERT_EQUAL(count(all), 3);
    CU_ASSERT_PTR_NOT_NULL(lookers_find(all, 1, 1, 0));
    CU_ASSERT_PTR_NOT_NULL(lookers_find(all, 3, 3, 0));
    /* One's own late entry is used again. */
    lookers_find(all, 1, 1, 0)->since -= 20;
    lookers_add(&all, 1, 9, 0, 0);
    CU_ASSERT_EQUAL(count(all), 3);
    CU_ASSERT_PTR_NOT_NULL(lookers_find(all, 1, 9, 0));
    lookers_free(&all);
}

static CU_TestInfo tests[] = {
    {"programs", test_programs},
    {"programs that are not known", test_unknown},
    {"nodes that were given", test_nodes},
    {"lookups that no open follows", test_late},
    CU_TEST_INFO_NULL,
};

CU_MAIN("live/lookers", tests)
