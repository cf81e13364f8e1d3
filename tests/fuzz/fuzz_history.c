/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as a state of a model's history: as a whole file, and as the facts in a
 * file with a valid checksum. An accepted state can be restored.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "edit/history.h"
#include "edit/plan.h"
#include "edit/change.h"

static void check_err(int r, const struct err *e)
{
    FUZZ_CHECK(r < 0 ? e->code == r && e->msg[0] && !strchr(e->msg, '\n') : r == 0);
}

/* Make a model whose keys are restored: two keys and a tensor. */
static struct gguf *make_base(bool big)
{
    uint8_t image[256] = {0};
    struct gguf *g = NULL;
    memcpy(image, "GGUF", 4);
    put_u32(image + 4, 3, big);
    put_u64(image + 8, 1, big);
    put_u64(image + 16, 2, big);
    put_u64(image + 24, 3, big);
    memcpy(image + 32, "a.a", 3);
    put_u32(image + 35, GGUF_U8, big);
    put_u64(image + 40, 4, big);
    memcpy(image + 48, "none", 4);
    put_u32(image + 52, GGUF_U32, big);
    put_u64(image + 60, 1, big);
    memcpy(image + 68, "t", 1);
    put_u32(image + 69, 1, big);
    put_u64(image + 73, 4, big);
    struct source s = source_mem(image, 160);
    FUZZ_CHECK(gguf_parse(&s, 0, &g, NULL) == 0);
    return g;
}

static void restore(const struct gguf *g, const struct gguf *keys)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct err e = {0};
    edit_change_init(&c, &(struct edit_base){.g = g});
    int r = edit_restore(&c, keys, &e);
    check_err(r, &e);
    if (r == 0)
        r = edit_plan_make(&c, &o, &p, &e);
    check_err(r, &e);
    FUZZ_CHECK(r < 0 || edit_keys_id(p.next) == edit_keys_id(keys));
    history_describe(g, keys, &text);
    FUZZ_CHECK(!memchr(text.data ? (char *)text.data : "", '\n', text.len));
}

static void take(const struct buf *file, struct gguf *base)
{
    struct history_state s = {.bytes = *file};
    struct gguf *keys = NULL;
    struct err e = {0};
    int r = history_parse(&s, "/m", &e);
    check_err(r, &e);
    if (r == 0) {
        r = history_before(&s, base, &keys, &e);
        check_err(r, &e);
    }
    if (r == 0)
        restore(base, keys);
    gguf_free(keys);
    history_state_free(&s);
}

/* Put the bytes, as facts, into a file with a valid checksum. */
static void dress(const uint8_t *data, size_t size, struct gguf *base)
{
    struct buf file = BUF_INIT;
    const uint64_t record[10] = {[0] = 1, [7] = edit_keys_format(base), [9] = 2};
    buf_str(&file, "GGUFSHS5");
    buf_zero(&file, 8);
    for (size_t i = 0; i < sizeof(record) / sizeof(record[0]); i++)
        buf_uint(&file, record[i], 8, false);
    buf_str(&file, "/m");
    buf_add(&file, data, size);
    FUZZ_CHECK(!buf_error(&file));
    put_u64(file.data + 8, xxh64(0, file.data + 16, file.len - 16), false);
    take(&file, base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *base = make_base(size && data[0] & 1);
    struct buf file = BUF_INIT;
    buf_add(&file, data, size);
    take(&file, base);
    if (size)
        dress(data, size, base);
    gguf_free(base);
    return 0;
}
