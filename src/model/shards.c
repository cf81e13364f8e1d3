/* SPDX-License-Identifier: MIT */
/* The files of a split model: see shards.h. */
#include "model/shards.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/sys.h"
#include "gguf/value.h"
#include "model/facts.h"

size_t split_count(const char *name)
{
    static const char digits[] = "0123456789";
    const size_t len = strlen(name);
    if (len <= SPLIT_TAIL)
        return 0;
    const char *t = name + len - SPLIT_TAIL;
    if (t[-1] == '/' || t[0] != '-' || strspn(t + 1, digits) != 5 ||
        strncmp(t + 6, "-of-", 4) != 0 || strspn(t + 10, digits) != 5 ||
        strcmp(t + 15, ".gguf") != 0)
        return 0;
    const unsigned long no = strtoul(t + 1, NULL, 10), count = strtoul(t + 10, NULL, 10);
    return no >= 1 && no <= count && count > 1 ? count : 0;
}

int shards_named(struct shards *ret, const char *path)
{
    const size_t n = split_count(path);
    char *prefix = strndup(path, strlen(path) - (n ? SPLIT_TAIL : 0));
    *ret = prefix ? (struct shards){.n = n, .all = n, .path = prefix} : (struct shards){0};
    return prefix ? 0 : -ENOMEM;
}

static bool has_first(const struct shards *s)
{
    char *first = s->n ? shards_path(s, 0) : NULL;
    bool has = first && access(first, F_OK) == 0;
    free(first);
    return has;
}

int shards_find(struct shards *ret, const char *path)
{
    struct shards linked = {0};
    int r = shards_named(ret, path);
    if (r < 0 || has_first(ret))
        return r;
    char *real = realpath(path, NULL);
    r = real ? shards_named(&linked, real) : 0;
    free(real);
    const bool better = r == 0 && linked.n && (ret->n == 0 || has_first(&linked));
    struct shards worse = better ? *ret : linked;
    *ret = better ? linked : *ret;
    shards_free(&worse);
    if (r < 0)
        shards_free(ret);
    return r;
}

void shards_release(struct shards *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->file)
            mapped_unref(s->file[i]);
        if (s->g)
            gguf_free(s->g[i]);
    }
    free((void *)s->g);
    free((void *)s->file);
    s->g = NULL;
    s->file = NULL;
}

void shards_free(struct shards *s)
{
    shards_release(s);
    for (size_t i = 0; s->name && i < s->n; i++)
        free(s->name[i]);
    free(s->name);
    free(s->no);
    free(s->path);
    *s = (struct shards){0};
}

static char *make_name(const char *prefix, size_t i, size_t n)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s-%05zu-of-%05zu.gguf%c", prefix, i + 1, n, '\0');
    if (buf_error(&b))
        buf_free(&b);
    return (char *)buf_steal(&b);
}

char *shards_path(const struct shards *s, size_t i)
{
    return s->n ? make_name(s->path, s->no ? s->no[i] : i, s->all) : strdup(s->path);
}

char *split_sibling(const char *name, size_t i, size_t n)
{
    char *prefix = strndup(name, strlen(name) - SPLIT_TAIL), *ret = NULL;
    if (prefix)
        ret = make_name(prefix, i, n);
    free(prefix);
    return ret;
}

static int check_split_key(const struct gguf *g, const char *key, uint64_t want, struct err *e)
{
    uint64_t is;
    if (!fact_uint(g, key, &is))
        return err_set(e, -EBADMSG, "%s: the key is missing or not a number", key);
    if (is != want)
        return err_set(e, -EBADMSG, "%s: is %" PRIu64 ", but by the file name it must be %" PRIu64,
                       key, is, want);
    return 0;
}

int merge_check(const struct gguf *first, const struct gguf *shard, size_t i, size_t n,
                struct err *e)
{
    int r = check_split_key(shard, "split.no", i, e);
    if (r == 0)
        r = check_split_key(shard, "split.count", n, e);
    if (r < 0)
        return r;
    if (shard->fmt.draft)
        return err_set(e, -EBADMSG, "the first draft of version 1 does not have shards");
    if (shard->fmt.version != first->fmt.version || shard->fmt.big != first->fmt.big ||
        shard->fmt.nul != first->fmt.nul)
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
                   " of a split model: rename it, so that its name ends in -%05" PRIu64
                   "-of-%05" PRIu64 ".gguf, by which the others are found",
                   count, no + 1, no + 1, count);
}

/* Writes the keys of the first shard. Returns their number. */
static uint64_t put_first_keys(struct buf *out, const struct gguf *g)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_kv; i++) {
        if (text_begins(gguf_name_of(g, true, i), KEY_SPLIT_PREFIX))
            continue;
        buf_add(out, g->head + g->kv[i].off, (size_t)(g->kv[i].end - g->kv[i].off));
        n++;
    }
    return n;
}

/* Maximum size of a data section: a multiple of every alignment, with room left for a header. */
#define LARGEST_DATA (((uint64_t)1 << 63) - ((uint64_t)8 << 30))

/* Copies all tensor infos, with a new offset at the end of each. *ret: size of the data section. */
static int put_all_infos(struct buf *out, const struct gguf *const *shard, size_t n, uint64_t *ret)
{
    uint64_t off = 0;
    for (size_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < shard[k]->n_tensors; i++) {
            const struct gguf *g = shard[k];
            const struct gguf_tensor *t = &g->tensor[i];
            uint64_t end = i + 1 < g->n_tensors ? t[1].info_off : g->head_len;
            buf_add(out, g->head + t->info_off, (size_t)(end - t->info_off - 8));
            buf_uint(out, off, 8, g->fmt.big);
            if (t->nbytes > LARGEST_DATA - off)
                return -EBADMSG;
            off = round_up(off + t->nbytes, shard[0]->alignment);
        }
    *ret = off;
    return 0;
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

/*
 * Restores tensor sizes from the shards' own files: the parser has counted the merged model's
 * padding as part of tensors of unknown type.
 */
static void restore_sizes(const struct gguf *const *shard, size_t n, struct gguf *merged)
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
    buf_add(&head, g->head, 8); /* magic and version */
    buf_uint(&head, tensors, g->fmt.len_width, g->fmt.big);
    size_t count_at = head.len;
    buf_uint(&head, 0, g->fmt.len_width, g->fmt.big);
    uint64_t keys = put_first_keys(&head, g);
    int r = put_all_infos(&head, shard, n, &data);
    if (r < 0)
        return err_set(e, r, "the merged model is too large");
    if (buf_error(&head))
        return err_set(e, buf_error(&head), "no memory");
    if (head.len > GGUF_MAX_HEADER)
        return err_set(e, -EFBIG, "the merged header is over %" PRIu64 " bytes", GGUF_MAX_HEADER);
    put_uint(head.data + count_at, keys, g->fmt.len_width, g->fmt.big);
    /* This source has no read(): the parser needs only the header, which is in memory. */
    const struct source s = {.size = data + (tensors ? round_up(head.len, g->alignment) : head.len),
                             .fd = -1};
    r = gguf_parse_head(&s, head.data, head.len, g, ret, e);
    if (r == 0) {
        (void)buf_steal(&head);
        restore_sizes(shard, n, *ret);
    }
    return r;
}
