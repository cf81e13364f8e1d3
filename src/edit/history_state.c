/* SPDX-License-Identifier: MIT */
/* The file of a state: see history_state.h. */
#include "edit/history_state.h"

#include <errno.h>

#include "base/bytes.h"
#include "edit/restore.h"

static const char magic[8] = {'G', 'G', 'U', 'F', 'S', 'H', 'S', '2'};
static const uint64_t sum_key[2] = {0x67677566732d7374, 0x6174652d73756d21}; /* any, but fixed */

enum { CLOSED = 1 };
enum { SUM_AT = HISTORY_RECORD - 8 };
/* Magic and version, the number of tensors and the number of keys. */
enum { IMAGE_HEAD = 24 };

void history_record_put(const struct history_record *r, uint8_t dst[HISTORY_RECORD])
{
    memset(dst, 0, HISTORY_RECORD);
    memcpy(dst, magic, sizeof(magic));
    put_u64(dst + 8, r->number, false);
    put_u64(dst + 16, r->restored, false);
    put_u64(dst + 24, (uint64_t)r->begin, false);
    put_u64(dst + 32, (uint64_t)r->end, false);
    put_u64(dst + 40, r->before, false);
    put_u64(dst + 48, r->landed, false);
    put_u64(dst + 56, r->planned, false);
    put_u32(dst + 64, r->closed ? CLOSED : 0, false);
    put_u32(dst + 68, r->path_len, false);
    put_u64(dst + 72, r->image_len, false);
    put_u64(dst + 80, r->sum, false);
    put_u64(dst + SUM_AT, siphash(sum_key, dst, SUM_AT), false);
}

int history_record_get(const uint8_t src[HISTORY_RECORD], struct history_record *ret, struct err *e)
{
    if (memcmp(src, magic, sizeof(magic)) != 0)
        return err_set(e, -EBADMSG, "it is not the file of a state");
    if (get_u64(src + SUM_AT, false) != siphash(sum_key, src, SUM_AT))
        return err_set(e, -EBADMSG, "it is damaged: the sum of its record is wrong");
    *ret = (struct history_record){
        .number = get_u64(src + 8, false),
        .restored = get_u64(src + 16, false),
        .begin = (int64_t)get_u64(src + 24, false),
        .end = (int64_t)get_u64(src + 32, false),
        .before = get_u64(src + 40, false),
        .landed = get_u64(src + 48, false),
        .planned = get_u64(src + 56, false),
        .closed = get_u32(src + 64, false) & CLOSED,
        .path_len = get_u32(src + 68, false),
        .image_len = get_u64(src + 72, false),
        .sum = get_u64(src + 80, false),
    };
    return 0;
}

/* ---- path and image ---- */

uint64_t history_sum(const void *bytes, size_t n, size_t path_len)
{
    size_t most = path_len + IMAGE_HEAD;
    return siphash(sum_key, bytes, n < most ? n : most);
}

static size_t entry_bytes(const struct gguf_kv *kv)
{
    return (size_t)(kv->end - kv->off);
}

int history_head(struct history_record *r, const char *path, const struct gguf *g, struct buf *ret)
{
    struct buf b = BUF_INIT;
    uint64_t n_kv = 0;
    r->path_len = (uint32_t)strlen(path);
    r->image_len = IMAGE_HEAD;
    for (uint32_t i = 0; i < g->n_kv; i++) {
        if (edit_key_is_own(g, i))
            continue;
        r->image_len += entry_bytes(&g->kv[i]);
        n_kv++;
    }
    buf_zero(&b, HISTORY_RECORD);
    buf_add(&b, path, r->path_len);
    buf_add(&b, g->head, 8);        /* magic and version */
    buf_uint(&b, 0, 8, g->fmt.big); /* no tensors */
    buf_uint(&b, n_kv, 8, g->fmt.big);
    if (buf_error(&b)) {
        buf_free(&b);
        return -ENOMEM;
    }
    r->sum = history_sum(b.data + HISTORY_RECORD, b.len - HISTORY_RECORD, r->path_len);
    *ret = b;
    return 0;
}

bool history_run(const struct gguf *g, uint32_t *at, const uint8_t **bytes, size_t *n)
{
    while (*at < g->n_kv && edit_key_is_own(g, *at))
        ++*at;
    if (*at == g->n_kv)
        return false;
    *bytes = g->head + g->kv[*at].off;
    for (*n = 0; *at < g->n_kv && !edit_key_is_own(g, *at); ++*at)
        *n += entry_bytes(&g->kv[*at]);
    return true;
}

static int parse_image(const uint8_t *image, size_t n, const struct history_record *r,
                       struct gguf **keys, struct err *e)
{
    struct source src = source_mem(image, n);
    struct gguf *g = NULL;
    int done = gguf_parse(&src, 0, &g, e);
    if (done == -ENOMEM)
        return done;
    bool fits = done == 0 && g->n_tensors == 0 && g->head_len == n && g->fmt.version > 1 &&
                !g->fmt.nul && edit_keys_id(g) == r->before;
    if (!fits) {
        gguf_free(g);
        return err_set(e, -EBADMSG, "it is damaged: its keys are not those that its record names");
    }
    *keys = g;
    return 0;
}

int history_parse(const void *bytes, size_t n, const char *path, struct history_record *ret,
                  struct gguf **keys, struct err *e)
{
    const uint8_t *at = bytes;
    if (n < HISTORY_RECORD)
        return err_set(e, -EBADMSG, "it is damaged: %zu bytes are less than a record", n);
    int r = history_record_get(at, ret, e);
    if (r < 0)
        return r;
    size_t body = n - HISTORY_RECORD;
    if (ret->path_len > body || ret->image_len != body - ret->path_len)
        return err_set(e, -EBADMSG, "it is damaged: its length is not what its record says");
    at += HISTORY_RECORD;
    if (history_sum(at, body, ret->path_len) != ret->sum)
        return err_set(e, -EBADMSG, "it is damaged: the sum of its path is wrong");
    if (ret->path_len != strlen(path) || memcmp(at, path, ret->path_len) != 0)
        return err_set(e, -ESTALE, "it is a state of another model");
    return parse_image(at + ret->path_len, (size_t)ret->image_len, ret, keys, e);
}
