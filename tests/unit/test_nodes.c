/* SPDX-License-Identifier: MIT */
/* Node numbers, and the state of nodes that the kernel knows. */
#include "cu_main.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "tree/history.h"
#include "tree/files.h"

static void same_node(struct node n, enum node_kind kind, uint32_t number, uint32_t row)
{
    CU_ASSERT_EQUAL(n.kind, kind);
    CU_ASSERT_EQUAL(n.number, number);
    if (kind == NODE_DIR || kind == NODE_TENSOR_FILE || kind == NODE_WHOLE)
        CU_ASSERT_EQUAL(n.row, row);
}

/* For any slot, each number is positive and belongs to exactly one node. */
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
            CU_ASSERT_EQUAL(ino_node(in).kind, NODE_NONE); /* a tree knows only its own numbers */
        }
    }
    CU_ASSERT_TRUE(ino_tensor_file((1 << 25) - 1, INO_MAX_ROWS - 1) <= UINT32_MAX);
    CU_ASSERT_TRUE(ino_key((1 << 25) - 1) <= UINT32_MAX);
}

enum { MANY = 5000 };

struct thing {
    struct link link;
    uint32_t number;
};

static struct thing *find(const struct table *t, uint32_t number)
{
    /* Many numbers have the same hash. */
    struct link *l = table_first(t, hash_number(number % 100));
    while (l && ((struct thing *)l)->number != number)
        l = table_next(l);
    return (struct thing *)l;
}

static size_t count(const struct table *t)
{
    size_t n = 0;
    for (struct link *l = NULL; (l = table_each(t, l)) != NULL;)
        n++;
    return n;
}

/* An entry is found by number until it is removed, whatever else the table holds. */
static void test_table(void)
{
    static struct thing all[MANY];
    struct table t = {0};
    CU_ASSERT_PTR_NULL(find(&t, 7));
    CU_ASSERT_PTR_NULL(table_each(&t, NULL));
    for (uint32_t i = 0; i < MANY; i++) {
        all[i].number = i;
        CU_ASSERT_EQUAL_FATAL(table_add(&t, &all[i].link, hash_number(i % 100)), 0);
    }
    CU_ASSERT_EQUAL(count(&t), MANY);
    for (uint32_t i = 0; i < MANY; i += 2)
        table_remove(&t, &all[i].link);
    for (uint32_t i = 0; i < MANY; i++)
        CU_ASSERT_PTR_EQUAL(find(&t, i), i % 2 ? &all[i] : NULL);
    CU_ASSERT_EQUAL(count(&t), MANY / 2);
    table_free(&t);
    CU_ASSERT_EQUAL(count(&t), 0);
}

static void says(const char *why_not, const char *tensors, const struct imatrix *im,
                 const struct live_counts *c, unsigned refused, const char *want)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT, out = BUF_INIT;
    char name[8];
    for (unsigned i = 0; i < refused; i++) {
        (void)snprintf(name, sizeof(name), "k.%u", i);
        unsaved_add(&notes, "metadata/", name, "why");
    }
    state_text(why_not, tensors, im, c, &notes, &out);
    buf_char(&out, '\0');
    CU_ASSERT_STRING_EQUAL(buf_text(&out), want);
}

#define LINE "mount:           "

static void test_state(void)
{
    struct imatrix im = {.path = BUF_INIT, .n = 1};
    buf_str(&im.path, "im.dat");
    says(NULL, NULL, NULL, &(struct live_counts){0}, 0, LINE "read-write\n");
    says("so", NULL, NULL, &(struct live_counts){.changed = true}, 0,
         LINE "read-only: so; the model's file was changed outside the mount\n");
    says(NULL, NULL, NULL, &(struct live_counts){.pending = 1, .refused = 1}, 1,
         LINE "read-write; 1 edit is not written yet; 1 write was refused (metadata/k.0)\n");
    says(NULL, NULL, NULL, &(struct live_counts){.pending = 100, .refused = 3}, 3,
         LINE "read-write; 100 edits are not written yet; 3 writes were refused "
              "(metadata/k.0, metadata/k.1, metadata/k.2)\n");
    says(NULL, NULL, NULL, &(struct live_counts){.pending = LIVE_COUNT_MOST, .refused = 5}, 5,
         LINE "read-write; more than 100 edits are not written yet; 5 writes were refused "
              "(metadata/k.0, metadata/k.1, metadata/k.2 and 2 more)\n");
    says(NULL, "no", &im, &(struct live_counts){0}, 0,
         "importances:     im.dat, of 1 tensor\ntensors=edit:    no\n" LINE "read-write\n");
    im.n = 2;
    says(NULL, NULL, &im, &(struct live_counts){0}, 0,
         "importances:     im.dat, of 2 tensors\n" LINE "read-write\n");
    buf_free(&im.path);
}

static CU_TestInfo tests[] = {
    {"each number belongs to one node", test_numbers},
    {"entries of a table are found", test_table},
    {"the state of the mount is shown as text", test_state},
    CU_TEST_INFO_NULL,
};

CU_MAIN("nodes", tests)
