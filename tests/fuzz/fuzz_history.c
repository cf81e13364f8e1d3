/* SPDX-License-Identifier: MIT */
/*
 * Takes any bytes as a model's history: as a whole file, and as the content of a file with valid
 * checksums. Accepted states can be restored.
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

static void take(const uint8_t *data, size_t size, struct gguf *base)
{
    CLEANUP(history_file_free) struct history_file f = HISTORY_FILE_INIT;
    struct err e = {0};
    buf_add(&f.bytes, data, size);
    int r = history_parse(&f, "/m", &e);
    check_err(r, &e);
    struct gguf *now = gguf_ref(base);
    for (size_t i = f.n; i > 0 && r == 0; i--) {
        struct gguf *keys = NULL;
        e = (struct err){0};
        r = history_before(&f, i - 1, now, &keys, &e);
        check_err(r, &e);
        if (r < 0)
            break;
        restore(base, keys);
        gguf_free(now);
        now = keys;
    }
    gguf_free(now);
}

static void put_sum(uint8_t *part, const void *more, size_t n)
{
    uint64_t sum = xxh64(0, part, 120);
    put_u64(part + 120, n ? xxh64(sum, more, n) : sum, false);
}

/* Put the bytes into a file with valid checksums, as the content of one or two states. */
static void dress(const uint8_t *data, size_t size, struct gguf *base)
{
    size_t part = size / 2, room = 4 * HISTORY_UNIT + size + 2 * HISTORY_UNIT,
           at = 2 * HISTORY_UNIT;
    uint8_t *file = calloc(1, room);
    FUZZ_CHECK(file);
    memcpy(file, "GGUFSHS4", 8);
    put_u32(file + 16, 2, false);
    memcpy(file + HISTORY_UNIT, "/m", 2);
    put_sum(file, "/m", 2);
    for (int i = 0; i < 2; i++) {
        size_t n = i ? size - part : part;
        put_u32(file + at, i && size % 3 == 0 ? 2 : 1, false);
        put_u64(file + at + 8, (uint64_t)i + 1, false);
        put_u64(file + at + 64, base->fmt.big, false);
        put_u64(file + at + 72, n, false);
        put_u64(file + at + 80, xxh64(0, data + (i ? part : 0), n), false);
        put_sum(file + at, "", 0);
        memcpy(file + at + HISTORY_UNIT, data + (i ? part : 0), n);
        at += HISTORY_UNIT + (n + HISTORY_UNIT - 1) / HISTORY_UNIT * HISTORY_UNIT;
    }
    take(file, at, base);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *base = make_base(size && data[0] & 1);
    take(data, size, base);
    if (size)
        dress(data, size, base);
    gguf_free(base);
    return 0;
}
