/* SPDX-License-Identifier: MIT */
/* Shards as one model: see merge.h. */
#include "model/merge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "gguf/keys.h"
#include "model/facts.h"
#include "model/image.h"

static int check_key(const struct gguf *g, const char *key, uint64_t want, struct err *e)
{
    uint64_t is;
    if (!fact_uint(g, key, &is))
        return err_set(e, -EBADMSG, "%s: the key is missing or not a number", key);
    if (is != want)
        return err_set(e, -EBADMSG, "%s: is %" PRIu64 ", by its name it must be %" PRIu64, key, is,
                       want);
    return 0;
}

int merge_check(const struct gguf *first, const struct gguf *shard, size_t i, size_t n,
                struct err *e)
{
    int r = check_key(shard, "split.no", i, e);
    if (r == 0)
        r = check_key(shard, "split.count", n, e);
    if (r < 0)
        return r;
    if (shard->fmt.draft)
        return err_set(e, -EBADMSG, "the first draft of version 1 does not have shards");
    if (shard->fmt.version != first->fmt.version || shard->fmt.big != first->fmt.big ||
        shard->fmt.draft != first->fmt.draft || shard->fmt.nul != first->fmt.nul)
        return err_set(e, -EBADMSG, "its version or byte order differs from the first shard's");
    return 0;
}

int merge_check_single(const struct gguf *g, struct err *e)
{
    uint64_t no = 0, count = 0;
    if (!fact_shard(g))
        return 0;
    (void)fact_uint(g, "split.no", &no);
    (void)fact_uint(g, "split.count", &count);
    return err_set(e, -EBADMSG,
                   "split.count: is %" PRIu64 ": this is file %" PRIu64
                   " of a split model, and its name does not end in -%05" PRIu64 "-of-%05" PRIu64
                   ".gguf, by which the others are found",
                   count, no + 1, no + 1, count);
}

static bool is_split_key(const struct gguf *g, const struct gguf_kv *kv)
{
    size_t n = sizeof(KEY_SPLIT_PREFIX) - 1;
    return kv->key_len >= n && memcmp(gguf_key(g, kv), KEY_SPLIT_PREFIX, n) == 0;
}

/* Keys of the first shard; returns how many. */
static uint64_t put_keys(struct buf *out, const struct gguf *g)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_kv; i++) {
        if (is_split_key(g, &g->kv[i]))
            continue;
        buf_add(out, g->head + g->kv[i].off, (size_t)(g->kv[i].end - g->kv[i].off));
        n++;
    }
    return n;
}

/* An info as in its file, except for the offset, its last word. */
static void put_info(struct buf *out, const struct gguf *g, uint32_t i, uint64_t off)
{
    uint64_t end = i + 1 < g->n_tensors ? g->tensor[i + 1].info_off : g->head_len;
    uint64_t begin = g->tensor[i].info_off;
    buf_add(out, g->head + begin, (size_t)(end - begin - 8));
    buf_uint(out, off, 8, g->fmt.big);
}

/* All tensor infos; *ret: bytes of the data section. */
static int put_infos(struct buf *out, const struct gguf *const *shard, size_t n, uint64_t *ret)
{
    uint64_t off = 0;
    for (size_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < shard[k]->n_tensors; i++) {
            put_info(out, shard[k], i, off);
            if (!add_u64(off, shard[k]->tensor[i].nbytes, &off) ||
                !align_u64(off, shard[0]->alignment, &off) || off > INT64_MAX)
                return -EBADMSG;
        }
    *ret = off;
    return 0;
}

/* The header from memory, zeros for the data, which the parser does not look at. */
static int parse_image(const struct buf *head, uint64_t data, uint64_t alignment, bool tensors,
                       struct gguf **ret, struct err *e)
{
    uint64_t data_off = head->len;
    struct image *im = image_new(NULL);
    if (!im)
        return err_set(e, -ENOMEM, "no memory");
    image_add_memory(im, head->data, head->len);
    if (tensors && align_u64(data_off, alignment, &data_off))
        image_add_zeros(im, data_off - head->len);
    image_add_zeros(im, data);
    struct source s = image_source(im);
    int r = image_end(im);
    if (r == 0)
        r = gguf_parse(&s, 0, ret, e);
    else
        r = r == -EFBIG ? err_set(e, -EBADMSG, "the merged model is too large")
                        : err_set(e, r, "no memory");
    image_unref(im);
    return r;
}

int merge_check_total(const struct gguf *shard, uint64_t total, struct err *e)
{
    static const char key[] = "split.tensors.count";
    uint64_t count;
    if (gguf_find_key(shard, key, strlen(key)) == UINT32_MAX)
        return 0;
    if (!fact_uint(shard, key, &count))
        return err_set(e, -EBADMSG, "%s: is not a number", key);
    if (count != total)
        return err_set(e, -EBADMSG, "%s is %" PRIu64 ", but the shards have %" PRIu64 " tensors",
                       key, count, total);
    return 0;
}

static int check_totals(const struct gguf *const *shard, size_t n, uint64_t total, struct err *e)
{
    for (size_t k = 0; k < n; k++)
        if (merge_check_total(shard[k], total, e) < 0)
            return err_prefix(e, -EBADMSG, "shard %zu", k + 1);
    return 0;
}

/* ---- names that are in two shards ---- */

/* Names of tensors already seen: number i of the index is tensor i of all shards. */
struct seen {
    struct index names;
    const char **name;
    uint32_t *len; /* up to a NUL: names must differ before it */
    uint32_t *shard;
};

static void seen_free(struct seen *s)
{
    index_free(&s->names);
    free((void *)s->name);
    free(s->len);
    free(s->shard);
}

static int seen_init(struct seen *s, uint64_t total)
{
    s->name = calloc((size_t)total + 1, sizeof(*s->name));
    s->len = calloc((size_t)total + 1, sizeof(*s->len));
    s->shard = calloc((size_t)total + 1, sizeof(*s->shard));
    return s->name && s->len && s->shard ? index_init(&s->names, (size_t)total) : -ENOMEM;
}

/* Enter number i. Returns the shard that already has the name, else its own. */
static uint32_t enter(struct seen *s, uint32_t i)
{
    uint32_t other;
    uint64_t hash = hash_name(s->name[i], s->len[i]);
    for (struct probe p = index_probe(&s->names, hash); index_next(&s->names, &p, &other);)
        if (s->len[other] == s->len[i] && memcmp(s->name[other], s->name[i], s->len[i]) == 0)
            return s->shard[other];
    index_insert(&s->names, hash, i);
    return s->shard[i];
}

/* Fail with a line that names both shards; the parser's line for the merged model does not. */
static int check_names(const struct gguf *const *shard, size_t n, uint64_t total, struct err *e)
{
    CLEANUP(seen_free) struct seen s = {0};
    char shown[SHOW_MAX];
    uint32_t at = 0;
    if (total >= UINT32_MAX)
        return err_set(e, -EBADMSG, "the merged model is too large");
    if (seen_init(&s, total) < 0)
        return err_set(e, -ENOMEM, "no memory");
    for (size_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < shard[k]->n_tensors; i++, at++) {
            const struct gguf_tensor *t = &shard[k]->tensor[i];
            s.name[at] = gguf_name(shard[k], t);
            s.len[at] = (uint32_t)strnlen(s.name[at], t->name_len);
            s.shard[at] = (uint32_t)k;
            uint32_t first = enter(&s, at);
            if (first != k)
                return err_set(e, -EBADMSG,
                               "shard %zu: tensor '%s' has the same name as one of shard %u", k + 1,
                               show(shown, s.name[at], t->name_len), first + 1);
        }
    return 0;
}

/* ---- the merged model ---- */

/*
 * A tensor of unknown type has its size from its own file, without the padding of the merged model.
 */
static void keep_sizes(const struct gguf *const *shard, size_t n, struct gguf *merged)
{
    uint32_t at = 0;
    for (size_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < shard[k]->n_tensors; i++)
            merged->tensor[at++].nbytes = shard[k]->tensor[i].nbytes;
}

int merge_shards(const struct gguf *const *shard, size_t n, struct gguf **ret, struct err *e)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    const struct gguf *g = shard[0];
    uint64_t tensors = 0, data;
    for (size_t k = 0; k < n; k++)
        tensors += shard[k]->n_tensors;
    int r = check_totals(shard, n, tensors, e);
    if (r < 0)
        return r;
    buf_add(&head, g->head, 8); /* magic and version */
    buf_uint(&head, tensors, g->fmt.len_width, g->fmt.big);
    size_t count_at = head.len;
    buf_uint(&head, 0, g->fmt.len_width, g->fmt.big);
    uint64_t keys = put_keys(&head, g);
    r = put_infos(&head, shard, n, &data);
    if (r < 0)
        return err_set(e, r, "the merged model is too large");
    if (buf_error(&head))
        return err_set(e, buf_error(&head), "no memory");
    put_uint(head.data + count_at, keys, g->fmt.len_width, g->fmt.big);
    r = parse_image(&head, data, g->alignment, tensors > 0, ret, e);
    if (r == 0)
        keep_sizes(shard, n, *ret);
    int twice = r == -EBADMSG ? check_names(shard, n, tensors, e) : 0;
    return twice < 0 ? twice : r;
}
