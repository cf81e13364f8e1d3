/* SPDX-License-Identifier: MIT */
/* Split models: see split.h. */
#include "model/split.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/path.h"
#include "gguf/keys.h"
#include "model/facts.h"
#include "model/image.h"

static bool five_digits(const char *s, unsigned *ret)
{
    *ret = 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        *ret = *ret * 10 + (unsigned)(s[i] - '0');
    }
    return true;
}

size_t split_count(const char *name)
{
    unsigned no, count;
    const size_t len = strlen(name);
    const char *t = name + len - SPLIT_TAIL;
    if (len <= SPLIT_TAIL || t[-1] == '/' || t[0] != '-' || strncmp(t + 6, "-of-", 4) != 0 ||
        strcmp(t + 15, ".gguf") != 0 || !five_digits(t + 1, &no) || !five_digits(t + 10, &count))
        return 0;
    return no >= 1 && no <= count && count > 1 ? count : 0;
}

static int find_by_name(const char *path, struct split *ret)
{
    struct split s = {.n = split_count(path)};
    if (s.n && !(s.prefix = strndup(path, strlen(path) - SPLIT_TAIL)))
        return -ENOMEM;
    *ret = s;
    return 0;
}

static bool has_first(const struct split *s)
{
    char *first = s->n ? split_path(s, 0) : NULL;
    bool has = first && access(first, F_OK) == 0;
    free(first);
    return has;
}

int split_find(const char *path, struct split *ret)
{
    struct split linked = {0};
    int r = find_by_name(path, ret);
    if (r < 0 || has_first(ret))
        return r;
    char *real = realpath(path, NULL);
    r = real ? find_by_name(real, &linked) : 0;
    free(real);
    if (r == 0 && linked.n && (ret->n == 0 || has_first(&linked))) {
        split_free(ret);
        *ret = linked;
        return 0;
    }
    split_free(&linked);
    if (r < 0)
        split_free(ret);
    return r;
}

void split_free(struct split *s)
{
    free(s->prefix);
    *s = (struct split){0};
}

static char *make_name(const char *prefix, size_t i, size_t n)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s-%05zu-of-%05zu.gguf%c", prefix, i + 1, n, '\0');
    if (buf_error(&b))
        buf_free(&b);
    return (char *)buf_steal(&b);
}

char *split_path(const struct split *s, size_t i)
{
    return make_name(s->prefix, i, s->n);
}

char *split_name(const struct split *s, size_t i)
{
    return make_name(path_name(s->prefix), i, s->n);
}

char *split_sibling(const char *name, size_t i, size_t n)
{
    char *prefix = strndup(name, strlen(name) - SPLIT_TAIL), *ret = NULL;
    if (prefix)
        ret = make_name(prefix, i, n);
    free(prefix);
    return ret;
}

/* ---- as one model ---- */

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

/* Writes the keys of the first shard, and returns their number. */
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

/* Writes a tensor info as it is in its file, except for the offset at its end. */
static void put_info(struct buf *out, const struct gguf *g, uint32_t i, uint64_t off)
{
    uint64_t end = i + 1 < g->n_tensors ? g->tensor[i + 1].info_off : g->head_len;
    uint64_t begin = g->tensor[i].info_off;
    buf_add(out, g->head + begin, (size_t)(end - begin - 8));
    buf_uint(out, off, 8, g->fmt.big);
}

/* Writes all tensor infos. *ret: size of the data section in bytes. */
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

/* Parses a header in memory. The data reads as zeros, as the parser ignores it. */
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

/*
 * Reports two shards that have a tensor of the same name. The parser's message for the merged model
 * would not name the shards.
 */
static int check_names(const struct gguf *const *shard, size_t n, struct err *e)
{
    char shown[SHOW_MAX];
    for (size_t k = 1; k < n; k++)
        for (uint32_t i = 0; i < shard[k]->n_tensors; i++) {
            const struct gguf_tensor *t = &shard[k]->tensor[i];
            const char *name = gguf_name(shard[k], t);
            size_t first = 0;
            while (first < k && gguf_find_tensor(shard[first], name, t->name_len) == UINT32_MAX)
                first++;
            if (first < k)
                return err_set(e, -EBADMSG,
                               "shard %zu: tensor '%s' has the same name as one of shard %zu",
                               k + 1, show(shown, name, t->name_len), first + 1);
        }
    return 0;
}

/*
 * Gives tensors of unknown type the sizes that they have in their own files, which exclude the
 * merged model's padding.
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
    buf_add(&head, g->head, 8); /* magic and version */
    buf_uint(&head, tensors, g->fmt.len_width, g->fmt.big);
    size_t count_at = head.len;
    buf_uint(&head, 0, g->fmt.len_width, g->fmt.big);
    uint64_t keys = put_keys(&head, g);
    int r = put_infos(&head, shard, n, &data);
    if (r < 0)
        return err_set(e, r, "the merged model is too large");
    if (buf_error(&head))
        return err_set(e, buf_error(&head), "no memory");
    put_uint(head.data + count_at, keys, g->fmt.len_width, g->fmt.big);
    r = parse_image(&head, data, g->alignment, tensors > 0, ret, e);
    if (r == 0)
        keep_sizes(shard, n, *ret);
    int twice = r == -EBADMSG ? check_names(shard, n, e) : 0;
    return twice < 0 ? twice : r;
}

/* ---- the files opened ---- */

/*
 * Allocates lists for s->n files. File names are added only as files are found, because the number
 * of files in a name may be wrong.
 */
static int make_lists(struct shards *s)
{
    s->name = calloc(s->n, sizeof(char *));
    s->g = calloc(s->n, sizeof(struct gguf *));
    s->file = calloc(s->n, sizeof(struct mapped *));
    if (!s->name || !s->g || !s->file)
        return -ENOMEM;
    s->name[0] = split_name(&s->split, 0);
    return s->name[0] ? 0 : -ENOMEM;
}

int shards_find(struct shards *s, const char *path, char **first)
{
    *s = (struct shards){0};
    int r = split_find(path, &s->split);
    s->n = s->split.n;
    if (r < 0 || s->n == 0)
        return r;
    *first = split_path(&s->split, 0);
    if (*first && make_lists(s) == 0)
        return 0;
    free(*first);
    *first = NULL;
    shards_free(s);
    return -ENOMEM;
}

void shards_release(struct shards *s)
{
    for (size_t i = 0; i < s->n; i++) {
        mapped_unref(s->file[i]);
        s->file[i] = NULL;
    }
}

void shards_free(struct shards *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->name)
            free(s->name[i]);
        if (s->g)
            gguf_free(s->g[i]);
        if (s->file)
            mapped_unref(s->file[i]);
    }
    free(s->name);
    free((void *)s->g);
    free((void *)s->file);
    split_free(&s->split);
    *s = (struct shards){0};
}

int shards_merge(const struct shards *s, const struct gguf *g, struct gguf **ret, struct err *e)
{
    const struct gguf **all = malloc(s->n * sizeof(struct gguf *));
    if (!all)
        return err_set(e, -ENOMEM, "no memory");
    memcpy((void *)all, (const void *)s->g, s->n * sizeof(struct gguf *));
    all[0] = g;
    int r = merge_shards(all, s->n, ret, e);
    free((void *)all);
    return r;
}
