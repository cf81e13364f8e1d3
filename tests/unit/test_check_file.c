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

/* Return the text of `check` in a read-only tree. The caller frees it. */
static char *shown(const struct fixture *x)
{
    char path[128];
    struct tree_image m = {.fd = -1};
    struct tree_options o = {.read_only = true};
    struct err e = {0};
    char *text = calloc(1, TEXT_MAX + 1); /* the file's size is reported as 0 */
    (void)snprintf(path, sizeof(path), "%s/%s", x->path, NAME);
    CU_ASSERT_EQUAL_FATAL(tree_open(path, &o, &m.t, &e), 0);
    CU_ASSERT_TRUE(image_bytes(&m, "check", 0, TEXT_MAX, text) > 0);
    tree_close(m.t);
    return text;
}

/* If an edit in place stopped after writing its journal, the new header is checked, and the edit is
 * reported. */
static void test_journal(void)
{
    static const char want[] = NAME ": warning: an interrupted edit was checked as if written "
                                    "(--recover finishes it) (journal)\n";
    struct fixture x;
    struct edit d;
    enum check_outcome outcome;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(put_journal_of(&f, &d.p), 0);
    char *live = told(&x, &outcome);
    CU_ASSERT_PTR_NULL(strstr(live, "interrupted")); /* f holds the lock */
    free(live);
    edit_file_unlock(&f);
    char *file = told(&x, &outcome), *tree = shown(&x);
    CU_ASSERT_EQUAL(outcome, CHECK_WARNINGS);
    CU_ASSERT_EQUAL(strncmp(file, want, strlen(want)), 0);
    CU_ASSERT_STRING_EQUAL(file, tree);
    free(file);
    free(tree);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

/* An interrupted edit also changes tensor bytes and adds a tensor. A tree shows all these
 * changes. */
static void test_patch_read(void)
{
    struct fixture x;
    struct edit d;
    struct tree_image m = {.fd = -1};
    struct tree_options o = {.read_only = true};
    char path[128];
    setup(&x);
    make_tensor_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, EDIT_BYTES | EDIT_ADDED);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL_FATAL(put_journal_of(&f, &d.p), 0);
    edit_file_close(&f);
    (void)snprintf(path, sizeof(path), "%s/%s", x.path, NAME);
    CU_ASSERT_EQUAL_FATAL(tree_open(path, &o, &m.t, NULL), 0);
    const struct gguf *g = d.p.next;
    const struct gguf_tensor *b = &g->tensor[1], *more = &g->tensor[3];
    uint8_t *got = malloc((size_t)d.p.image->size);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/b/raw", 0, b->nbytes, got), (ssize_t)b->nbytes);
    CU_ASSERT_EQUAL(memcmp(got, d.image + b->off, b->nbytes), 0);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/more/raw", 0, 70001, got), 70001);
    CU_ASSERT_EQUAL(memcmp(got, d.image + more->off, 70001), 0);
    struct content want = as_shown(&(struct content){d.image, (size_t)d.p.image->size});
    CU_ASSERT_EQUAL(image_bytes(&m, "model.gguf", 0, want.n, got), (ssize_t)want.n);
    CU_ASSERT_EQUAL(memcmp(got, want.bytes, want.n), 0);
    free(want.bytes);
    free(got);
    tree_close(m.t);
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
    {"an interrupted edit counts as written and is reported", test_journal},
    {"tensor bytes in a journal are shown", test_patch_read},
    {"an allocation that fails gives no wrong report", test_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("check_file", tests)
