/* SPDX-License-Identifier: MIT */
/* edit/change: operations on keys and the entries that they make. */
#include "cu_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "edit/change.h"

/* The model of all tests: a, b, c, then the two special keys and two of the program's own. */
static struct gguf *model(uint8_t **image)
{
    struct build b;
    size_t n;
    build_init(&b, 3, false);
    build_u32(&b, "a", 1);
    build_str(&b, "b", "two");
    build_u32(&b, "c", 3);
    build_str(&b, "general.architecture", "test");
    build_u32(&b, "general.alignment", 64);
    build_num(&b, "split.no", GGUF_U16, 0);
    build_str(&b, "ggufs.reserve", "   ");
    *image = build_finish(&b, &n);
    struct source s = source_mem(*image, n);
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    return g;
}

/* One operation: "= key" sets the u32 9, "- key" removes, "> key new" renames, "+ key after" sets
 * a new key behind another. */
static void add_op(struct edit_change *c, const char *op)
{
    char kind, key[64] = "", arg[64] = "";
    uint8_t nine[4];
    put_u32(nine, 9, false);
    CU_ASSERT_TRUE_FATAL(sscanf(op, "%c %63s %63s", &kind, key, arg) >= 2);
    int r = -1;
    if (kind == '=')
        r = edit_set(c, key, strlen(key), GGUF_U32, nine, 4);
    else if (kind == '+')
        r = edit_set_after(c, key, strlen(key), GGUF_U32, nine, 4, arg, strlen(arg));
    else if (kind == '-')
        r = edit_remove(c, key, strlen(key));
    else if (kind == '>')
        r = edit_rename(c, key, strlen(key), arg, strlen(arg));
    CU_ASSERT_EQUAL_FATAL(r, 0);
}

/* "a=9 b c ...": the keys in order, with =9 where the entry was made and its value is the u32 9,
 * with * where it was made otherwise. */
static void spell(const struct gguf *g, const struct edit_keys *k, struct buf *out)
{
    for (size_t i = 0; i < k->n; i++) {
        const struct edit_entry *e = &k->entry[i];
        const uint8_t *p = (e->made ? k->bytes.data : g->head) + e->off;
        uint64_t n = get_u64(p, false), left = e->end - e->off - 8 - n;
        bool nine =
            left == 8 && get_u32(p + 8 + n, false) == GGUF_U32 && get_u32(p + 12 + n, false) == 9;
        buf_printf(out, "%s%.*s%s", i ? " " : "", (int)n, (const char *)p + 8,
                   !e->made ? ""
                   : nine   ? "=9"
                            : "*");
    }
}

struct row {
    const char *ops; /* separated by ';' */
    int code;
    const char *keys; /* without the two special keys and split.no, which follow */
};

static const struct row rows[] = {
    {"", 0, "a b c REST"},
    {"= a", 0, "a=9 b c REST"},
    {"= b", 0, "a b=9 c REST"}, /* another type and length, the same place */
    {"= d", 0, "a b c REST d=9"},
    {"= d;= e;= d", 0, "a b c REST d=9 e=9"},
    {"+ d a", 0, "a d=9 b c REST"},
    {"+ d a;+ e d", 0, "a d=9 e=9 b c REST"},
    {"+ d nowhere", 0, "a b c REST d=9"},
    {"+ b a", 0, "a b=9 c REST"}, /* not new: keeps its place */
    {"- b", 0, "a c REST"},
    {"- b;= b", 0, "a b=9 c REST"},
    {"- a;- b;- c", 0, "REST"},
    {"= d;- d", 0, "a b c REST"},
    {"= d;- d;= d", 0, "a b c REST d=9"},
    {"> b x", 0, "a x* c REST"},
    {"> b x;> x y", 0, "a y* c REST"},
    {"> b x;> x b", 0, "a b* c REST"},
    {"> b x;= b", 0, "a x* c REST b=9"},
    {"> b x;= x", 0, "a x=9 c REST"},
    {"> b x;- x", 0, "a c REST"},
    {"> b x;- x;= b", 0, "a c REST b=9"},
    {"- b;> a b", 0, "b* c REST"},
    {"> b b", 0, "a b c REST"},
    {"= d;> d e", 0, "a b c REST e=9"},
    {"> a t;> b a;> t b", 0, "b* a* c REST"},
    {"- x", -ENOENT, NULL},
    {"- b;- b", -ENOENT, NULL},
    {"> x y", -ENOENT, NULL},
    {"> b x;> b y", -ENOENT, NULL},
    {"> b c", -EEXIST, NULL},
    {"= d;> b d", -EEXIST, NULL},
    {"- general.architecture", -EPERM, NULL},
    {"> general.architecture x", -EPERM, NULL},
    {"= ggufs.reserve", -EPERM, NULL},
    {"- ggufs.reserve", -EPERM, NULL},
    {"> b ggufs.reserve", -EPERM, NULL},
    {"= split.count", -EPERM, NULL},
    {"- split.no", -EPERM, NULL},
    {"= general.alignment", -EINVAL, NULL}, /* 9 is no power of two */
    {"> general.alignment x", -EINVAL, NULL},
    {"- general.alignment;> a general.alignment", -EINVAL, NULL},
};

#define REST "general.architecture general.alignment split.no"

static void add_ops(struct edit_change *c, const char *ops)
{
    char all[256];
    (void)snprintf(all, sizeof(all), "%s", ops);
    for (char *save, *op = strtok_r(all, ";", &save); op; op = strtok_r(NULL, ";", &save))
        add_op(c, op);
}

static void check_row(const struct gguf *g, const struct row *row)
{
    CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
    CLEANUP(edit_keys_free) struct edit_keys k = EDIT_KEYS_INIT;
    CLEANUP(buf_free) struct buf got = BUF_INIT;
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    struct err e = {0};
    add_ops(&c, row->ops);
    int r = edit_apply(g, &c, &k, &e);
    CU_ASSERT_EQUAL(r, row->code);
    CU_ASSERT_EQUAL(e.code, row->code);
    CU_ASSERT_EQUAL(e.msg[0] != '\0', row->code != 0);
    if (r < 0 || !row->keys)
        return;
    spell(g, &k, &got);
    const char *rest = strstr(row->keys, "REST");
    buf_printf(&want, "%.*s" REST "%s", (int)(rest - row->keys), row->keys, rest + 4);
    if (got.len != want.len || memcmp(got.data, want.data, want.len) != 0) {
        CU_FAIL("keys differ");
        (void)printf("\n%s: got '%.*s'\n", row->ops, (int)got.len, (const char *)got.data);
    }
}

static void test_rows(void)
{
    uint8_t *image;
    struct gguf *g = model(&image);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_row(g, &rows[i]);
    gguf_free(g);
    free(image);
}

static int set_alignment(const struct gguf *g, uint32_t type, uint64_t v, size_t width,
                         uint64_t *ret)
{
    CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
    CLEANUP(edit_keys_free) struct edit_keys k = EDIT_KEYS_INIT;
    uint8_t bytes[8];
    put_uint(bytes, v, width, false);
    CU_ASSERT_EQUAL(edit_set(&c, "general.alignment", 17, type, bytes, width), 0);
    int r = edit_apply(g, &c, &k, NULL);
    *ret = k.alignment;
    return r;
}

static void test_alignment(void)
{
    uint8_t *image;
    struct gguf *g = model(&image);
    uint64_t got;
    for (uint64_t v = 1; v <= (uint64_t)1 << 21; v *= 2) {
        bool good = v >= 8 && v <= (uint64_t)1 << 20;
        CU_ASSERT_EQUAL(set_alignment(g, GGUF_U32, v, 4, &got), good ? 0 : -EINVAL);
        CU_ASSERT_EQUAL(got, good ? v : 0);
    }
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_U32, 0, 4, &got), -EINVAL);
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_U32, 48, 4, &got), -EINVAL);
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_I32, 64, 4, &got), -EINVAL);
    CU_ASSERT_EQUAL(set_alignment(g, GGUF_U64, 64, 8, &got), -EINVAL);
    CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
    CLEANUP(edit_keys_free) struct edit_keys k = EDIT_KEYS_INIT;
    CU_ASSERT_EQUAL(edit_remove(&c, "general.alignment", 17), 0);
    CU_ASSERT_EQUAL(edit_apply(g, &c, &k, NULL), 0);
    CU_ASSERT_EQUAL(k.alignment, 32);
    gguf_free(g);
    free(image);
}

static void test_names(void)
{
    uint8_t *image;
    struct gguf *g = model(&image);
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    CLEANUP(edit_keys_free) struct edit_keys k = EDIT_KEYS_INIT;
    memset(buf_extend(&name, EDIT_MAX_KEY + 1), 'k', EDIT_MAX_KEY + 1);
    for (size_t n = EDIT_MAX_KEY; n <= EDIT_MAX_KEY + 1; n++) {
        CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
        CU_ASSERT_EQUAL(edit_rename(&c, "a", 1, name.data, n), 0);
        CU_ASSERT_EQUAL(edit_apply(g, &c, &k, NULL), n > EDIT_MAX_KEY ? -EINVAL : 0);
    }
    CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
    CU_ASSERT_EQUAL(edit_set(&c, "", 0, GGUF_U8, "x", 1), 0);
    CU_ASSERT_EQUAL(edit_apply(g, &c, &k, NULL), -EINVAL);
    gguf_free(g);
    free(image);
}

static CU_TestInfo tests[] = {
    {"operations keep places and refuse what they must", test_rows},
    {"general.alignment is a u32 power of two from 8 to 2^20", test_alignment},
    {"names are neither empty nor too long", test_names},
    CU_TEST_INFO_NULL,
};

CU_MAIN("change", tests)
