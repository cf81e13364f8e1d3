/* SPDX-License-Identifier: MIT */
/* edit/parts: a change of a split model as changes of its files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "changes.h"
#include "cu_main.h"
#include "edit/parts.h"
#include "edit/plan.h"
#include "model/merge.h"
#include "parsed.h"

enum { I8 = 24, FILES = 4 };

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* Tensors a and b, none, c, and d. */
struct model {
    struct parsed file[FILES];
    struct gguf *g[FILES];
    struct gguf *whole;
    struct edit_change c;
};

static void put_file(struct model *m, unsigned i, const char *const *name)
{
    struct build b;
    build_init(&b, 3, false);
    if (i == 0)
        build_str(&b, "general.name", "x");
    build_num(&b, "split.no", GGUF_U16, i);
    build_num(&b, "split.count", GGUF_U16, FILES);
    build_num(&b, "split.tensors.count", GGUF_I32, 4);
    for (; *name; name++)
        build_tensor(&b, *name, I8, SHAPE(8), "abcdefgh", 8);
    m->file[i] = parse_build(&b, 0);
    m->g[i] = m->file[i].g;
}

static void setup(struct model *m)
{
    static const char *const names[FILES][3] = {{"a", "b"}, {NULL}, {"c"}, {"d"}};
    struct err e = {0};
    for (unsigned i = 0; i < FILES; i++)
        put_file(m, i, names[i]);
    CU_ASSERT_EQUAL_FATAL(merge_shards((const struct gguf *const *)m->g, FILES, &m->whole, &e), 0);
    const struct edit_base base = {.g = m->g[0], .whole = m->whole};
    edit_change_on(&m->c, &base);
}

static void teardown(struct model *m)
{
    edit_change_free(&m->c);
    gguf_free(m->whole);
    for (unsigned i = 0; i < FILES; i++)
        parsed_free(&m->file[i]);
}

static void write_byte(struct model *m, const char *name, uint64_t at)
{
    struct err e = {0};
    struct edit_draft *d = memory_draft("X", 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    struct edit_piece p = {at, 1, 0, d};
    CU_ASSERT_EQUAL(edit_tensor_write(&m->c, name, strlen(name), &p, 1, &e), 0);
    edit_draft_unref(d);
}

static void rename_to(struct model *m, const char *from, const char *to, int want)
{
    struct err e = {0};
    CU_ASSERT_EQUAL(edit_tensor_rename(&m->c, from, strlen(from), to, strlen(to), &e), want);
}

static void set_key(struct model *m, const char *key)
{
    struct buf bytes = BUF_INIT;
    struct err e = {0};
    buf_uint(&bytes, 7, 4, false);
    struct edit_value *v = edit_value_make(GGUF_U32, &bytes);
    CU_ASSERT_EQUAL(edit_set(&m->c, key, strlen(key), v, EDIT_LAST, &e), 0);
    edit_value_unref(v);
}

/* The files that parts are of, and what their plans make of the tensors: "0:a=abcdefgh b=... ". */
static void show_parts(struct model *m, const struct edit_parts *p, struct buf *out)
{
    const struct edit_options o = EDIT_OPTIONS_INIT;
    for (size_t i = 0; i < p->n; i++) {
        CLEANUP(edit_plan_free) struct edit_plan plan = EDIT_PLAN_INIT;
        const uint32_t file = p->part[i].file;
        struct err e = {0};
        CU_ASSERT_EQUAL_FATAL(edit_plan_make(&p->part[i].change, &o, &plan, &e), 0);
        plan.image->file[EDIT_OLD_FILE] = source_mem(m->file[file].image, m->file[file].size);
        buf_printf(out, "%u:", file);
        for (uint32_t k = 0; k < plan.next->n_tensors; k++) {
            const struct gguf_tensor *t = &plan.next->tensor[k];
            char bytes[9] = "";
            CU_ASSERT_EQUAL(image_read(plan.image, NULL, t->off, bytes, 8), 0);
            buf_printf(out, "%.*s=%s ", (int)t->name_len, gguf_name(plan.next, t), bytes);
        }
        CU_ASSERT_EQUAL(gguf_find_key(plan.next, "split.no", 8) == UINT32_MAX, false);
        CU_ASSERT_EQUAL(gguf_find_key(plan.next, "a.new", 5) != UINT32_MAX,
                        file == 0 && m->c.n > 0);
    }
    buf_char(out, '\0');
}

static void expect(struct model *m, const char *want)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(edit_parts_free) struct edit_parts p = EDIT_PARTS_INIT;
    CU_ASSERT_EQUAL_FATAL(edit_parts_make(&m->c, m->g, FILES, &p), 0);
    show_parts(m, &p, &text);
    CU_ASSERT_STRING_EQUAL((char *)text.data, want);
}

/* Files come in the order of their first edits, each with its own. */
static void test_order(void)
{
    struct model m;
    setup(&m);
    expect(&m, "");
    write_byte(&m, "d", 2);
    write_byte(&m, "b", 0);
    rename_to(&m, "c", "z", 0);
    rename_to(&m, "b", "y", 0);
    write_byte(&m, "d", 7);
    expect(&m, "3:d=abXdefgX 0:a=abcdefgh y=Xbcdefgh 2:z=abcdefgh ");
    set_key(&m, "a.new");
    expect(&m, "3:d=abXdefgX 0:a=abcdefgh y=Xbcdefgh 2:z=abcdefgh ");
    edit_undo(&m.c, 0);
    expect(&m, "");
    set_key(&m, "a.new");
    expect(&m, "0:a=abcdefgh b=abcdefgh ");
    write_byte(&m, "c", 1);
    rename_to(&m, "a", "x", 0);
    expect(&m, "0:x=abcdefgh b=abcdefgh 2:c=aXcdefgh ");
    teardown(&m);
}

/* Names are those of the whole model. */
static void test_names(void)
{
    struct model m;
    setup(&m);
    rename_to(&m, "a", "d", -EEXIST);
    rename_to(&m, "a", "tmp", 0);
    rename_to(&m, "b", "a", 0);
    rename_to(&m, "tmp", "b", 0);
    expect(&m, "0:b=abcdefgh a=abcdefgh ");
    teardown(&m);
}

/* A model of one file has one part: the change itself. */
static void test_one(void)
{
    struct model m;
    setup(&m);
    CLEANUP(edit_parts_free) struct edit_parts p = EDIT_PARTS_INIT;
    struct edit_change c;
    edit_change_init(&c, m.g[2], NULL);
    CU_ASSERT_EQUAL(edit_parts_make(&c, &m.g[2], 1, &p), 0);
    CU_ASSERT_TRUE(p.n == 1 && !p.split && p.part[0].file == 0 && p.part[0].change.base == m.g[2]);
    edit_change_free(&c);
    teardown(&m);
}

static void test_memory(void)
{
    struct model m;
    bool failed = true;
    setup(&m);
    write_byte(&m, "d", 2);
    rename_to(&m, "a", "long enough to be somewhere else", 0);
    set_key(&m, "a.new");
    for (unsigned n = 1; failed; n++) {
        struct edit_parts p = EDIT_PARTS_INIT;
        alloc_count();
        alloc_arm(n, false);
        int r = edit_parts_make(&m.c, m.g, FILES, &p);
        failed = alloc_disarm();
        CU_ASSERT_EQUAL(r, failed ? -ENOMEM : 0);
        edit_parts_free(&p);
        CU_ASSERT_EQUAL(alloc_live(), 0);
    }
    teardown(&m);
}

static CU_TestInfo tests[] = {
    {"files in the order of their first edits", test_order},
    {"names of the whole model", test_names},
    {"a model of one file", test_one},
    {"without memory", test_memory},
    CU_TEST_INFO_NULL,
};

CU_MAIN("parts", tests)
