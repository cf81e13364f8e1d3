/* SPDX-License-Identifier: MIT */
/* check/check: models in files, interrupted edits, and failing allocations. */
#include "cu_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "check_rows.h"
#include "model_dir.h"
#include "place.h"
#include "put_journal.h"
#include "tree_image.h"

enum { TEXT_MAX = 4096 };

/* ---- a journal ---- */

static void add_line(void *arg, const struct check_finding *f)
{
    report_line(arg, f);
}

/* Return the report of check_file() on the model. The caller frees it. */
static char *told(const struct fixture *x, enum check_outcome *outcome)
{
    struct buf lines = BUF_INIT;
    struct check_options o = {0};
    char back[4096];
    CU_ASSERT_PTR_NOT_NULL_FATAL(getcwd(back, sizeof(back)));
    CU_ASSERT_EQUAL_FATAL(chdir(x->path), 0);
    *outcome = check_file(NAME, &o, add_line, &lines);
    CU_ASSERT_EQUAL_FATAL(chdir(back), 0);
    buf_char(&lines, '\0');
    return (char *)buf_steal(&lines);
}

/* A model that an interrupted edit left half written is not checked; --recover is named. */
static void test_journal(void)
{
    struct fixture x;
    struct edit d;
    enum check_outcome outcome;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(put_journal_of(&f, &d.p), 0);
    edit_file_close(&f);
    char *file = told(&x, &outcome);
    CU_ASSERT_EQUAL(outcome, CHECK_UNUSABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(file, "--recover"));
    free(file);
    CU_ASSERT_TRUE(is_old(&x));
    edit_done(&d);
    teardown(&x);
}

/* ---- failing allocations ---- */

static void put_shard(int dir, int no)
{
    struct build b;
    char name[64];
    size_t n;
    build_init(&b, 3, false);
    if (no == 0)
        check_put_keys(&b, NULL);
    build_num(&b, "split.no", GGUF_U16, (uint64_t)no);
    build_num(&b, "split.tensors.count", GGUF_I32, 11);
    build_num(&b, "split.count", GGUF_U16, 2);
    if (no == 1)
        check_put_tensors(&b, NULL);
    uint8_t *image = build_finish(&b, &n);
    (void)snprintf(name, sizeof(name), "Tiny-3.5K-v1.0-Q4_0-%05d-of-00002.gguf", no + 1);
    put_file(dir, name, image, n);
    free(image);
}

static void ignore(void *arg, const struct check_finding *f)
{
    unsigned *n = arg;
    CU_ASSERT_PTR_NOT_NULL(f->file);
    ++*n;
}

/* If an allocation fails, the model is reported either as unusable or as clean, as it would be
 * without the failure. */
static void test_memory(void)
{
    struct fixture x;
    char path[128];
    setup(&x);
    put_shard(x.dir, 0);
    put_shard(x.dir, 1);
    (void)snprintf(path, sizeof(path), "%s/Tiny-3.5K-v1.0-Q4_0-00002-of-00002.gguf", x.path);
    struct check_options o = {.values = true};
    for (unsigned at = 1, hit = 1; hit; at++) {
        unsigned n = 0;
        alloc_arm(at, false);
        enum check_outcome outcome = check_file(path, &o, ignore, &n);
        hit = alloc_disarm();
        CU_ASSERT_TRUE(outcome == CHECK_CLEAN || (hit && outcome == CHECK_UNUSABLE));
        CU_ASSERT_TRUE((outcome == CHECK_CLEAN) == (n == 0));
        CU_ASSERT_TRUE(hit || at > 20);
    }
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"a model that an interrupted edit left half written is unusable", test_journal},
    {"an allocation that fails gives no wrong report", test_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("check_file", tests)
