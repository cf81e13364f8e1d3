/* SPDX-License-Identifier: MIT */
/* Node numbers, and what is kept for nodes that the kernel knows. */
#include "cu_main.h"

#include <string.h>

#include "tree/held.h"
#include "tree/ino.h"

static void same_node(struct node n, enum node_kind kind, uint32_t number, uint32_t row)
{
    CU_ASSERT_EQUAL(n.kind, kind);
    CU_ASSERT_EQUAL(n.number, number);
    if (kind == NODE_DIR || kind == NODE_TENSOR_FILE || kind == NODE_WHOLE)
        CU_ASSERT_EQUAL(n.row, row);
}

/* Each number is one node's, in every slot, and positive. */
static void test_numbers(void)
{
    static const uint32_t objects[] = {0, 1, 2, 12345, (1 << 25) - 1, UINT32_MAX};
    static const uint32_t rows[] = {0, 1, INO_MAX_ROWS - 1};
    same_node(ino_node(INO_ROOT), NODE_ROOT, 0, 0);
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
        uint32_t o = objects[i];
        same_node(ino_node(ino_tensor(o)), NODE_TENSOR, o, 0);
        same_node(ino_node(ino_key(o)), NODE_KEY, o, 0);
        for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
            same_node(ino_node(ino_tensor_file(o, rows[k])), NODE_TENSOR_FILE, o, rows[k]);
            same_node(ino_node(ino_whole(o, rows[k])), NODE_WHOLE, o, rows[k]);
            same_node(ino_node(ino_row(rows[k])), NODE_DIR, 0, rows[k]);
            struct node n = ino_node(ino_tensor_file(o, rows[k]));
            uint64_t local = ino_of(&n), in = ino_in_slot(INO_MAX_SLOTS - 1, local);
            CU_ASSERT_EQUAL(local, ino_tensor_file(o, rows[k]));
            CU_ASSERT_EQUAL(ino_slot(local), 0);
            CU_ASSERT_EQUAL(ino_slot(in), INO_MAX_SLOTS - 1);
            CU_ASSERT_EQUAL(ino_local(in), local);
            CU_ASSERT_TRUE((int64_t)in > 0);
            CU_ASSERT_EQUAL(ino_node(in).kind, NODE_NONE); /* a tree knows its own numbers only */
        }
    }
    CU_ASSERT_TRUE(ino_tensor_file((1 << 25) - 1, INO_MAX_ROWS - 1) <= UINT32_MAX);
    CU_ASSERT_TRUE(ino_key((1 << 25) - 1) <= UINT32_MAX);
}

enum { MANY = 5000 };

static size_t count(const struct held_table *h)
{
    size_t n = 0;
    for (const struct held *x = NULL; (x = held_next(h, x)) != NULL;)
        n++;
    return n;
}

/* Found by number, whatever else is held; gone when it is taken out. */
static void test_held(void)
{
    struct held_table h = {0};
    CU_ASSERT_PTR_NULL(held_find(&h, 7));
    CU_ASSERT_PTR_NULL(held_next(&h, NULL));
    for (uint32_t i = 0; i < MANY; i++) {
        struct held *x = held_get(&h, ino_whole(i, 2));
        CU_ASSERT_PTR_NOT_NULL_FATAL(x);
        CU_ASSERT_EQUAL(x->state, 0);
        x->state = i + 1;
        CU_ASSERT_PTR_EQUAL(held_get(&h, ino_whole(i, 2)), x);
    }
    CU_ASSERT_EQUAL(count(&h), MANY);
    for (uint32_t i = 0; i < MANY; i += 2)
        held_remove(&h, held_find(&h, ino_whole(i, 2)));
    for (uint32_t i = 0; i < MANY; i++) {
        const struct held *x = held_find(&h, ino_whole(i, 2));
        CU_ASSERT_EQUAL(x ? x->state : 0, i % 2 ? i + 1 : 0);
    }
    CU_ASSERT_EQUAL(count(&h), MANY / 2);
    held_free(&h);
    CU_ASSERT_EQUAL(count(&h), 0);
}

static CU_TestInfo tests[] = {
    {"each number is one node's", test_numbers},
    {"what nodes show is found by number", test_held},
    CU_TEST_INFO_NULL,
};

CU_MAIN("nodes", tests)
