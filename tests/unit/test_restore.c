/* SPDX-License-Identifier: MIT */
/* edit_restore(): after any edit, all keys are restored bit for bit, and no tensor changes. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build_gguf.h"
#include "changes.h"
#include "edit/plan.h"
#include "edit/change.h"
#include "history_dir.h"
#include "soak.h"

enum { F32 = 0 };

/* A model after an edit: its bytes, and their parsed form. */
struct version {
    uint8_t *image;
    size_t n;
    struct gguf *g;
};

static void parse(struct version *v)
{
    struct source s = source_mem(v->image, v->n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &v->g, NULL), 0);
}

static void version_free(struct version *v)
{
    free(v->image);
    gguf_free(v->g);
}

/* Make a model whose keys have unusual bytes and nested arrays and include ggufs' own. */
static struct version first(bool big, unsigned alignment)
{
    struct version v = {0};
    struct build b;
    build_init(&b, 3, big);
    build_str(&b, "general.architecture", "test");
    if (alignment) {
        build_u32(&b, "general.alignment", alignment);
        b.alignment = alignment;
    }
    build_str(&b, "split.count", "odd");
    build_num(&b, "a.nan", GGUF_F32, 0x7fc01234);
    build_num(&b, "a.bool", GGUF_BOOL, 7);
    build_array(&b, "a.nested", GGUF_ARRAY, 2);
    build_item_array(&b, GGUF_U8, 0);
    build_item_array(&b, GGUF_I16, 1);
    build_item_num(&b, GGUF_I16, 3);
    build_str_n(&b, "a.bytes", "\xff\x00\n", 3);
    build_str(&b, "no dots, / and \n", "x");
    build_u32(&b, "a.last", 7);
    build_str(&b, "ggufs.reserve", "     ");
    build_tensor(&b, "t", F32, (uint64_t[]){5}, 1, NULL, 20);
    build_tensor(&b, "u", F32, (uint64_t[]){3}, 1, NULL, 12);
    v.image = build_finish(&b, &v.n);
    parse(&v);
    return v;
}

static int carry_out(const struct version *from, const struct edit_change *c, struct version *to,
                     struct err *e)
{
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = EDIT_OPTIONS_INIT;
    int r = edit_plan_make(c, &o, &p, e);
    if (r < 0)
        return r;
    p.image->file[EDIT_OLD_FILE] = source_mem(from->image, from->n);
    struct source s = image_source(p.image);
    *to = (struct version){.n = (size_t)s.size, .image = malloc((size_t)s.size)};
    CU_ASSERT_EQUAL_FATAL(s.read(&s, 0, to->image, to->n), 0);
    parse(to);
    return 0;
}

static bool same_tensors(const struct version *a, const struct version *b)
{
    bool same = a->g->n_tensors == b->g->n_tensors;
    for (uint32_t i = 0; same && i < a->g->n_tensors; i++) {
        const struct gguf_tensor *x = &a->g->tensor[i], *y = &b->g->tensor[i];
        same = x->nbytes == y->nbytes &&
               memcmp(a->image + x->off, b->image + y->off, (size_t)x->nbytes) == 0;
    }
    return same;
}

/* Restore the keys of `was` in `now` and check the result. */
static void check_restore(const struct version *now, const struct gguf *was)
{
    CLEANUP(edit_change_free) struct edit_change c;
    struct version back;
    struct err e = {0};
    edit_change_init(&c, &(struct edit_base){.g = now->g});
    CU_ASSERT_EQUAL(edit_restore(&c, was, &e), 0);
    CU_ASSERT_EQUAL_FATAL(carry_out(now, &c, &back, &e), 0);
    CU_ASSERT_TRUE(same_keys(back.g, was));
    CU_ASSERT_EQUAL(edit_keys_id(back.g), edit_keys_id(was));
    CU_ASSERT_EQUAL(back.g->alignment, was->alignment);
    CU_ASSERT_TRUE(same_tensors(&back, now));
    /* ggufs' own keys are not restored but stay as in the current file. */
    CU_ASSERT_EQUAL(gguf_find_key(back.g, "split.count", 11) != UINT32_MAX,
                    gguf_find_key(now->g, "split.count", 11) != UINT32_MAX);
    version_free(&back);
}

/* ---- random edits ---- */

static unsigned lot(uint64_t *seed, unsigned n)
{
    *seed = *seed * 6364136223846793005 + 1442695040888963407;
    return (unsigned)(*seed >> 33) % n;
}

static const char *const names[] = {"a.nan",  "a.bool", "a.nested", "a.bytes",
                                    "a.last", "b.new",  "b.other",  "general.alignment"};
enum { NAMES = sizeof(names) / sizeof(names[0]) };

static void edit_once(struct edit_change *c, uint64_t *seed)
{
    const char *key = names[lot(seed, NAMES)], *other = names[lot(seed, NAMES - 1)];
    uint8_t value[8] = {0};
    bool big = c->on.g->fmt.big;
    unsigned v = strcmp(key, "general.alignment") == 0 ? 8u << lot(seed, 6) : lot(seed, 1000);
    value[big ? 3 : 0] = (uint8_t)v;
    value[big ? 2 : 1] = (uint8_t)(v >> 8);
    switch (lot(seed, 4)) {
    case 0:
        (void)edit_remove(c, key, strlen(key), NULL);
        break;
    case 1:
        (void)edit_rename(c, key, strlen(key), other, strlen(other), NULL);
        break;
    default:
        (void)set_bytes(c, key, strlen(key), GGUF_U32, value, 4, NULL);
    }
}

enum { EDITS = 12 };

static void run_random(uint64_t seed, bool big)
{
    struct version v[EDITS + 1] = {first(big, 0)};
    for (int i = 0; i < EDITS; i++) {
        CLEANUP(edit_change_free) struct edit_change c;
        edit_change_init(&c, &(struct edit_base){.g = v[i].g});
        for (unsigned n = lot(&seed, 5); n > 0; n--)
            edit_once(&c, &seed);
        /* Some edits are restores. */
        if (lot(&seed, 6) == 0) {
            edit_change_free(&c);
            edit_change_init(&c, &(struct edit_base){.g = v[i].g});
            CU_ASSERT_EQUAL(edit_restore(&c, v[lot(&seed, (unsigned)i + 1)].g, NULL), 0);
        }
        CU_ASSERT_EQUAL_FATAL(carry_out(&v[i], &c, &v[i + 1], NULL), 0);
    }
    for (int i = 0; i <= EDITS; i++)
        check_restore(&v[EDITS], v[i].g);
    for (int i = 0; i <= EDITS; i++)
        check_restore(&v[0], v[i].g);
    for (int i = 0; i <= EDITS; i++)
        version_free(&v[i]);
}

static void test_random(void)
{
    unsigned runs = (unsigned)soak_size(300);
    for (unsigned seed = 1; seed <= runs; seed++)
        run_random(seed, seed & 1);
}

/* ---- states that no manual edit can make ---- */

/* Restore from `now` to `was`, both built by hand. */
static void between(struct version *now, struct version *was)
{
    check_restore(now, was->g);
    version_free(now);
    version_free(was);
}

static struct version built(struct build *b)
{
    struct version v = {0};
    build_tensor(b, "t", F32, (uint64_t[]){5}, 1, NULL, 20);
    v.image = build_finish(b, &v.n);
    parse(&v);
    return v;
}

static void test_without_architecture(void)
{
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "a.b", "x");
    struct version was = built(&b), now = first(false, 0);
    between(&now, &was);
}

/* An alignment that a file can have but that is too small to be set. */
static void test_alignment(void)
{
    struct version was = first(false, 4), now = first(false, 64);
    between(&now, &was);
    was = first(true, 0);
    now = first(true, 128);
    between(&now, &was);
}

static void test_order(void)
{
    static const char *const keys[] = {"a.a", "a.b", "a.c", "a.d", "a.e", "a.f"};
    struct build up, down;
    build_init(&up, 3, false);
    build_init(&down, 3, false);
    for (size_t i = 0; i < 6; i++) {
        build_str(&up, keys[i], "x");
        build_str(&down, keys[5 - i], i % 2 ? "x" : "y");
    }
    struct version now = built(&up), was = built(&down);
    check_restore(&was, now.g);
    between(&now, &was);
}

static void test_nothing(void)
{
    struct build b;
    build_init(&b, 3, false);
    struct version was = built(&b), now = first(false, 0);
    check_restore(&was, now.g);
    between(&now, &was);
}

static void test_other_format(void)
{
    CLEANUP(edit_change_free) struct edit_change c;
    struct version was = first(true, 0), now = first(false, 0);
    struct err e = {0};
    edit_change_init(&c, &(struct edit_base){.g = now.g});
    CU_ASSERT_EQUAL(edit_restore(&c, was.g, &e), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "byte order"));
    version_free(&was);
    version_free(&now);
}

static CU_TestInfo tests[] = {
    {"random edits are undone back to each state", test_random},
    {"a state without an architecture can be restored", test_without_architecture},
    {"an alignment that no edit can set can be restored", test_alignment},
    {"the order of all keys can be restored", test_order},
    {"a state without keys can be restored", test_nothing},
    {"keys of a different byte order are refused", test_other_format},
    CU_TEST_INFO_NULL,
};

CU_MAIN("restore", tests)
