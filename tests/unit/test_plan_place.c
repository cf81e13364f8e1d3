/* SPDX-License-Identifier: MIT */
/* edit/plan: exact data offsets and reserve lengths (R1 and R2 in plan.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "cu_main.h"
#include "edit/plan.h"
#include "gguf/value.h"

enum { F32 = 0, BLOCK = 4096, SLACK = 4 };

/* size of the reserve's entry without spaces */
#define ENTRY (8 + sizeof(KEY_RESERVE) - 1 + 4 + 8)

struct model {
    uint8_t *bytes;
    struct gguf *g;
};

static void model_free(struct model *m)
{
    gguf_free(m->g);
    free(m->bytes);
}

/* Make a model with a string of n bytes, optionally an alignment and a reserve, and two tensors. */
static struct model make(size_t n, uint32_t align, const char *spaces)
{
    struct model m = {0};
    struct build b;
    size_t size;
    char *text = malloc(n + 1);
    build_init(&b, 3, false);
    if (align) {
        build_u32(&b, "general.alignment", align);
        b.alignment = align;
    }
    memset(text, 'x', n);
    build_str_n(&b, "a.text", text, n);
    if (spaces)
        build_str(&b, KEY_RESERVE, spaces);
    build_tensor(&b, "t", F32, (uint64_t[]){5}, 1, NULL, 20);
    build_tensor(&b, "u", F32, (uint64_t[]){3}, 1, NULL, 12);
    m.bytes = build_finish(&b, &size);
    struct source s = source_mem(m.bytes, size);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &m.g, NULL), 0);
    free(text);
    return m;
}

/* A plan that makes the model's text n bytes long, with the given options. */
struct made {
    struct edit_plan p;
    uint64_t bare; /* size of the header without reserve and padding */
    uint64_t spaces;
    bool has;
};

static struct made edit(const struct gguf *g, size_t n, struct edit_options o)
{
    struct made r;
    struct err e = {0};
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(buf_free) struct buf value = BUF_INIT;
    r.p = EDIT_PLAN_INIT;
    edit_change_init(&c, &(struct edit_base){.g = g});
    buf_uint(&value, n, 8, false);
    memset(buf_extend(&value, n), 'y', n);
    CU_ASSERT_EQUAL_FATAL(
        set_bytes(&c, "a.text", 6, GGUF_STRING, value.data, value.len, EDIT_LAST, &e), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &r.p, &e), 0);
    const struct gguf *next = r.p.next;
    uint32_t i = gguf_find_key(next, KEY_RESERVE, sizeof(KEY_RESERVE) - 1);
    r.has = i != UINT32_MAX;
    r.spaces = r.has ? gguf_value(next, &next->kv[i]).len : 0;
    r.bare = next->head_len - (r.has ? ENTRY + r.spaces : 0);
    CU_ASSERT_EQUAL(r.p.head.len, next->data_off);
    return r;
}

/* A new reserve is the shortest that has enough room and moves the data by whole blocks. */
static void test_new(void)
{
    static const uint64_t asked[] = {1, 100, 4095, 4096, 5000, 70000};
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
        for (size_t n = 190; n < 200; n++) {
            struct model m = make(100, 0, NULL);
            struct made r = edit(m.g, n, (struct edit_options){.reserve = asked[i]});
            uint64_t at = r.p.next->data_off, least = r.bare + ENTRY + asked[i] + SLACK;
            CU_ASSERT_TRUE(r.has && r.spaces >= asked[i]);
            CU_ASSERT_EQUAL((at - m.g->data_off) % BLOCK, 0);
            CU_ASSERT_TRUE(at >= least && at - least < BLOCK);
            CU_ASSERT_EQUAL(r.p.next->head_len, at - SLACK);
            CU_ASSERT_FALSE(r.p.inplace);
            /* Only the last bytes, which do not fill a block, are copied. */
            CU_ASSERT_TRUE(r.p.copied < 2 * BLOCK);
            edit_plan_free(&r.p);
            model_free(&m);
        }
}

/* If the alignment is at least one block, the data moves to the next multiple of the alignment. */
static void test_large_alignment(void)
{
    for (uint32_t align = BLOCK; align <= 4 * BLOCK; align *= 2) {
        struct model m = make(100, align, NULL);
        struct made r = edit(m.g, 5 * BLOCK, (struct edit_options){.reserve = 20 * BLOCK});
        uint64_t least = r.bare + ENTRY + 20 * BLOCK + SLACK;
        CU_ASSERT_EQUAL(r.p.next->data_off, (least + align - 1) / align * align);
        CU_ASSERT_EQUAL(r.p.next->head_len, r.p.next->data_off - SLACK);
        edit_plan_free(&r.p);
        model_free(&m);
    }
}

/* Edits use up the reserve to its last byte, then drop it, and only then move the data. */
static void test_use_up(void)
{
    struct model m = make(100, 0, NULL);
    struct edit_options o = {.reserve = 200};
    struct made first = edit(m.g, 200, o);
    const struct gguf *g = first.p.next;
    size_t room = (size_t)first.spaces;
    for (size_t grow = room - 3; grow <= room + ENTRY + SLACK + 1; grow++) {
        struct made r = edit(g, 200 + grow, o);
        /* Without a reserve, a header of two lengths would let the data begin earlier. */
        bool fits =
            grow <= room + ENTRY + SLACK && (grow < room + SLACK || grow >= room + SLACK + 2);
        CU_ASSERT_EQUAL(r.p.inplace, fits);
        CU_ASSERT_EQUAL(r.p.next->data_off == g->data_off, fits);
        if (grow <= room)
            CU_ASSERT_TRUE(r.has && r.spaces == room - grow);
        CU_ASSERT_EQUAL(r.has, grow < room + SLACK || !fits);
        edit_plan_free(&r.p);
    }
    edit_plan_free(&first.p);
    model_free(&m);
}

/* With reserve=auto, a small file does not get a reserve, but an existing reserve keeps roughly its
 * size. */
static void test_auto(void)
{
    char spaces[3001];
    struct edit_options o = {.reserve = EDIT_RESERVE_AUTO};
    struct model m = make(100, 0, NULL);
    struct made r = edit(m.g, 5000, o);
    CU_ASSERT_FALSE(r.has);
    edit_plan_free(&r.p);
    model_free(&m);
    memset(spaces, ' ', 3000);
    spaces[3000] = '\0';
    m = make(100, 0, spaces);
    r = edit(m.g, 100, o);
    CU_ASSERT_EQUAL(r.p.next->data_off, m.g->data_off);
    edit_plan_free(&r.p);
    /* Once it is used up, the new reserve is at least as large as the old one was. */
    r = edit(m.g, 100 + 3100, o);
    CU_ASSERT_TRUE(r.p.next->data_off > m.g->data_off);
    CU_ASSERT_TRUE(r.spaces >= 3000 && r.spaces < 3000 + BLOCK);
    edit_plan_free(&r.p);
    model_free(&m);
    /* A key of that name that is not a string counts as an empty reserve. */
    m = make(100, 0, "");
    struct source s = source_mem(m.bytes, (size_t)m.g->file_size);
    const uint32_t i = gguf_find_key(m.g, KEY_RESERVE, sizeof(KEY_RESERVE) - 1);
    put_u32(m.bytes + m.g->kv[i].val_off - 4, GGUF_U64, false);
    gguf_free(m.g);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &m.g, NULL), 0);
    r = edit(m.g, 100, o);
    CU_ASSERT_TRUE(r.has && r.spaces < BLOCK);
    CU_ASSERT_EQUAL(r.p.next->kv[r.p.next->n_kv - 1].type, GGUF_STRING);
    edit_plan_free(&r.p);
    model_free(&m);
}

static CU_TestInfo tests[] = {
    {"a new reserve is as short as possible", test_new},
    {"a new reserve moves data by a large alignment", test_large_alignment},
    {"a reserve that is used up is dropped", test_use_up},
    {"an automatic reserve is not added to a small file", test_auto},
    CU_TEST_INFO_NULL,
};

CU_MAIN("edit/plan: places", tests)
