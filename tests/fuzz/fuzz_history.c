/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a state of a history: as a whole file, and as the keys of a file whose sums are right.
 * What is accepted can be restored: the keys that come out are the state's, and parse.
 */
#include "fuzz.h"

#include <string.h>

#include "base/bytes.h"
#include "edit/history_look.h"
#include "edit/plan.h"
#include "edit/restore.h"

static void check_err(int r, const struct err *e)
{
    FUZZ_CHECK(r < 0 ? e->code == r && e->msg[0] && !strchr(e->msg, '\n') : r == 0);
}

/* A model to restore the keys in, of the state's byte order: two keys and a tensor. */
static struct gguf *base_for(const struct gguf *keys, uint8_t image[256])
{
    bool big = keys->fmt.big;
    struct gguf *g = NULL;
    memset(image, 0, 256);
    memcpy(image, "GGUF", 4);
    put_u32(image + 4, keys->fmt.version, big);
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

static void restore(const struct gguf *keys)
{
    uint8_t image[256];
    struct gguf *g = base_for(keys, image);
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct err e = {0};
    edit_change_init(&c, g, NULL);
    int r = edit_restore(&c, keys, &e);
    check_err(r, &e);
    if (r == 0)
        r = edit_plan_make(&c, &o, &p, &e);
    check_err(r, &e);
    FUZZ_CHECK(r < 0 || edit_keys_id(p.next) == edit_keys_id(keys));
    history_describe(g, keys, &text);
    FUZZ_CHECK(!memchr(text.data ? (char *)text.data : "", '\n', text.len));
    gguf_free(g);
}

static void take(const uint8_t *data, size_t size)
{
    struct history_record rec;
    struct gguf *keys = NULL;
    struct err e = {0};
    int r = history_parse(data, size, "/m", &rec, &keys, &e);
    check_err(r, &e);
    if (r == 0)
        restore(keys);
    gguf_free(keys);
}

/* The bytes as keys, behind a record that fits. */
static void dress(const uint8_t *data, size_t size)
{
    struct source s = source_mem(data, size);
    struct gguf *g = NULL;
    struct history_record rec = {.path_len = 2, .image_len = size};
    uint8_t *file = malloc(HISTORY_RECORD + 2 + size);
    FUZZ_CHECK(file);
    memcpy(file + HISTORY_RECORD, "/m", 2);
    memcpy(file + HISTORY_RECORD + 2, data, size);
    rec.sum = history_sum(file + HISTORY_RECORD, 2 + size, 2);
    if (gguf_parse(&s, 0, &g, NULL) == 0)
        rec.before = edit_keys_id(g);
    gguf_free(g);
    history_record_put(&rec, file);
    take(file, HISTORY_RECORD + 2 + size);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    take(data, size);
    if (size)
        dress(data, size);
    return 0;
}
