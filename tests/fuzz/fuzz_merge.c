/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as the files of a split model: two 16-bit lengths, the first file, the
 * second, and the rest (if any) as the third. They are merged if they belong together, and checked
 * as one.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "check/check.h"
#include "edit/change.h"
#include "model/snapshot.h"
#include "gguf/value.h"

enum { SHARDS = 3 };

static void sink(void *arg, const struct check_finding *f)
{
    (void)arg;
    FUZZ_CHECK(f->rule[0] && f->where && strcmp(f->file, "x") == 0);
    fuzz_line(f->what);
}

/* A tensor of the merged model must equal the tensor in its shard, and follow all earlier
 * tensors. */
static void same(const struct gguf *m, const struct gguf_tensor *a, const struct gguf *g,
                 const struct gguf_tensor *b, uint64_t *end)
{
    FUZZ_CHECK(a->name_len == b->name_len && a->n_dims == b->n_dims);
    FUZZ_CHECK(memcmp(gguf_name(m, a), gguf_name(g, b), a->name_len) == 0);
    FUZZ_CHECK(a->n_elem == b->n_elem && a->nbytes == b->nbytes && a->type_id == b->type_id);
    FUZZ_CHECK(a->off % m->alignment == 0 && a->off >= *end);
    FUZZ_CHECK(a->off + a->nbytes <= m->file_size);
    *end = a->off + a->nbytes;
}

static void compare(const struct gguf *m, const struct gguf *const *g, size_t n)
{
    static const char split[] = KEY_SPLIT_PREFIX;
    uint64_t at = 0, end = m->data_off;
    for (size_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < g[k]->n_tensors; i++)
            same(m, &m->tensor[at++], g[k], &g[k]->tensor[i], &end);
    FUZZ_CHECK(at == m->n_tensors && m->alignment == g[0]->alignment);
    for (uint32_t i = 0; i < m->n_kv; i++)
        FUZZ_CHECK(m->kv[i].key_len < strlen(split) ||
                   memcmp(gguf_key(m, &m->kv[i]), split, strlen(split)) != 0);
}

static void merge(const struct gguf *const *g, size_t n)
{
    struct gguf *m = NULL;
    struct err e = {0};
    for (size_t k = 0; k < n; k++)
        if (merge_check(g[0], g[k], k, n, &e) < 0) {
            fuzz_line(e.msg);
            return;
        }
    int r = merge_shards(g, n, &m, &e);
    if (r < 0) {
        FUZZ_CHECK(r == -EBADMSG || r == -EFBIG);
        fuzz_line(e.msg);
        return;
    }
    compare(m, g, n);
    struct check_model whole = {.g = m,
                                .file = "A-7B-v1.0-00001-of-00002.gguf",
                                .label = "x",
                                .scope = CHECK_WHOLE,
                                .shards = n};
    FUZZ_CHECK(check_rules(&whole, sink, NULL) == 0);
    gguf_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g[SHARDS] = {NULL};
    size_t n = 0, room = size > 4 ? size - 4 : 0;
    const uint8_t *p = data + 4;
    for (; n < SHARDS && room > 0; n++) {
        size_t len = n < 2 ? (size_t)min_u64(get_u16(data + 2 * n, false), room) : room;
        struct source s = source_mem(p, len);
        if (gguf_parse(&s, 0, &g[n], NULL) < 0)
            break;
        p += len;
        room -= len;
    }
    if (room == 0 && n > 0)
        merge((const struct gguf *const *)g, n);
    for (size_t i = 0; i < SHARDS; i++)
        gguf_free(g[i]);
    return 0;
}
