/* SPDX-License-Identifier: MIT */
/* live: types of nested arrays, which are known only after a walk through the whole value. */
#include <string.h>

#include "cu_main.h"
#include "live/batch.h"
#include "live/tensors.h"
#include "script_run.h"
#include "text/text.h"
#include "tree/nodes.h"

static struct live *live; /* NULL: calls are not counted */
static unsigned walks, locked;

void __real_type_name_put(const struct gguf_value *v, struct buf *out);
void __wrap_type_name_put(const struct gguf_value *v, struct buf *out);

void __wrap_type_name_put(const struct gguf_value *v, struct buf *out)
{
    if (live) {
        walks++;
        locked += lock_held(&live->lock);
    }
    __real_type_name_put(v, out);
}

static void count(const struct run *r)
{
    live = r->t->live;
    walks = locked = 0;
}

static void run(struct run *r, const char *op)
{
    script_do(r, op, strlen(op));
    CU_ASSERT_FALSE(r->failed);
}

/* Start a mount of a model with the key a.rows. */
static void begin(struct run *r)
{
    static const struct script s = {"types", NULL, "", ""};
    *r = (struct run){.s = &s, .mode = "sync"};
    r->opt = (struct tree_options){
        .strategy = EDIT_COPY, .commit = LIVE_COMMIT_SYNC, .log = {.line = script_log}};
    script_model_make(&r->m, 0);
    script_start(r);
    run(r, "put 'a.rows:array[array[u8]]' '[1]\n[2]\n'");
    run(r, "fsync");
}

static void end(struct run *r)
{
    live = NULL;
    CU_ASSERT_EQUAL(script_finish(r), 0);
    script_model_drop(&r->m);
}

static void test_attribute(void)
{
    struct run r;
    begin(&r);
    count(&r);
    run(&r, "typed a.rows array[array[u8]]");
    CU_ASSERT_TRUE(walks > 0);
    CU_ASSERT_EQUAL(locked, 0);
    end(&r);
}

static void test_writes(void)
{
    struct run r;
    begin(&r);
    run(&r, "open A a.rows w trunc");
    count(&r);
    for (int i = 0; i < 100; i++)
        run(&r, "write A '[7]\n'");
    run(&r, "flush A");
    CU_ASSERT_EQUAL(walks, 1);
    /* the stored value has changed */
    for (int i = 0; i < 100; i++)
        run(&r, "write A '[8]\n'");
    run(&r, "flush A");
    CU_ASSERT_EQUAL(walks, 2);
    /* If the type changes in the meantime, the attribute is correct immediately. */
    run(&r, "type a.rows array[array[u16]]");
    run(&r, "write A '[300]\n'");
    run(&r, "close A");
    run(&r, "typed a.rows array[array[u16]]");
    end(&r);
}

static CU_TestInfo tests[] = {
    {"an attribute is computed without the lock", test_attribute},
    {"a draft determines its type once for each value", test_writes},
    CU_TEST_INFO_NULL,
};

CU_MAIN("live_types", tests)
