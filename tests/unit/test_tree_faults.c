/* SPDX-License-Identifier: MIT */
/* Every kind of key edit while calls fail; edit_case.h has the cases. */
#include "cu_main.h"

#include <string.h>

#include "base/bytes.h"
#include "edit_case.h"
#include "tree_edit.h"

static int longer(struct tree *t)
{
    char text[2500];
    memset(text, 'n', sizeof(text));
    return do_write(t, "general.name", text, sizeof(text));
}

static int same_length(struct tree *t)
{
    return do_write(t, "general.name", "NAME\n", 5);
}

/* Wait for the work that a call postpones. */
static int then_sync(struct tree *t, int r)
{
    return r < 0 ? r : do_sync(t);
}

static int shorter(struct tree *t)
{
    return then_sync(t, do_truncate(t, "general.name"));
}

static int new_key(struct tree *t)
{
    return do_write(t, "my.flag:u8", "1", 1);
}

static int more_elements(struct tree *t)
{
    return do_append(t, "my.list", "4\n5\n6\n", 6);
}

static int remove_key(struct tree *t)
{
    return then_sync(t, do_unlink(t, "my.number"));
}

static int rename_key(struct tree *t)
{
    return do_rename(t, "my.number", "my.renamed");
}

static int rename_over(struct tree *t)
{
    return then_sync(t, do_rename(t, "my.number", "my.other"));
}

static int retype_key(struct tree *t)
{
    return do_retype(t, "my.number", "u64");
}

static int align(struct tree *t)
{
    return do_write(t, "general.alignment", "64", 2);
}

/* Write a file under another name and rename it over the key, as editors do. */
static int by_helper(struct tree *t)
{
    int r = do_write(t, "general.name.tmp", "by a helper", 11);
    return r < 0 ? r : do_rename(t, "general.name.tmp", "general.name");
}

static const struct edit_kind kinds[] = {
    {"longer", longer, false},       {"same length", same_length, false},
    {"shorter", shorter, false},     {"new key", new_key, false},
    {"array", more_elements, false}, {"remove", remove_key, true},
    {"rename", rename_key, false},   {"rename over", rename_over, false},
    {"retype", retype_key, false},   {"alignment", align, false},
    {"helper", by_helper, false},
};
const struct edit_suite edit_suite = {kinds, COUNT(kinds), false, NULL};

static CU_TestInfo tests[] = {
    {"if any call fails, the old file stays, shown and editable", test_fail},
    {"a kill at any call leaves the old or the new file", test_kill},
    {"a power cut at any call leaves the old or the new file", test_power},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tree_faults", tests)
