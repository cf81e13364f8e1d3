/* SPDX-License-Identifier: MIT */
/* check/check: models in files, and interrupted edits. */
#include "cu_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/check.h"
#include "model_dir.h"
#include "put_journal.h"

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

static CU_TestInfo tests[] = {
    {"a model that an interrupted edit left half written is unusable", test_journal},
    CU_TEST_INFO_NULL,
};

CU_MAIN("check_file", tests)
