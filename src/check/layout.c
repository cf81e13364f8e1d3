/* SPDX-License-Identifier: MIT */
/* Rules of the container: version, alignment, the places of data and the bytes between. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "check/rule.h"

static int rule_missing(struct checker *c)
{
    const struct gguf *g = c->g;
    if (g->anomalies & GGUF_ANOMALY_PARTIAL && !c->faults_reported)
        report(c, CHECK_ERROR, "end of file", "%" PRIu64 " bytes of data are missing",
               g->data_end - g->file_size);
    return 0;
}

static int rule_version(struct checker *c)
{
    const struct gguf_format *f = &c->g->fmt;
    if (f->version == 1)
        report(c, CHECK_WARNING, "version", "version 1%s: current readers refuse it",
               f->draft ? " as first drafted" : "");
    if (f->nul)
        report(c, CHECK_WARNING, "strings", "every string's length counts a trailing NUL");
    if (f->big)
        report(c, CHECK_NOTE, "version", "big-endian");
    return 0;
}

static int rule_alignment(struct checker *c)
{
    if (c->g->alignment % 8)
        report(c, CHECK_WARNING, "key 'general.alignment'", "must be a multiple of 8, is %" PRIu64,
               c->g->alignment);
    return 0;
}

static int rule_order(struct checker *c)
{
    if (c->g->anomalies & GGUF_ANOMALY_ORDER)
        report(c, CHECK_ERROR, "data section",
               "tensor data is not in the order of the tensor infos: ggml refuses it");
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    if ((*x)->off != (*y)->off)
        return (*x)->off < (*y)->off ? -1 : 1;
    return *x < *y ? -1 : 1;
}

/* The tensors that have data, in the order of their data. NULL: no memory. free() it. */
static const struct gguf_tensor **sorted(const struct gguf *g, size_t *n)
{
    const struct gguf_tensor **list = malloc(((size_t)g->n_tensors + 1) * sizeof(*list));
    *n = 0;
    for (uint32_t i = 0; list && i < g->n_tensors; i++)
        if (g->tensor[i].nbytes)
            list[(*n)++] = &g->tensor[i];
    if (list)
        qsort((void *)list, *n, sizeof(*list), by_offset);
    return list;
}

/* Call fn with each stretch between the header, the tensors' data and the end of the file. */
typedef int stretch_fn(struct checker *c, uint64_t first, uint64_t last,
                       const struct gguf_tensor *next);

static int each_stretch(struct checker *c, stretch_fn *fn)
{
    const struct gguf *g = c->g;
    size_t n;
    const struct gguf_tensor **list = sorted(g, &n);
    uint64_t at = g->head_len, end = g->file_size, padded;
    int r = list ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (list[i]->off > at)
            r = fn(c, at, list[i]->off, list[i]);
        at = max_u64(at, list[i]->off + list[i]->nbytes);
    }
    if (align_u64(at, g->alignment, &padded) && r == 0 && at < end)
        r = fn(c, at, min_u64(padded, end), NULL);
    free((void *)list);
    return r;
}

static int gap(struct checker *c, uint64_t first, uint64_t last, const struct gguf_tensor *next)
{
    char where[WHERE_MAX];
    uint64_t padded;
    if (next && align_u64(first, c->g->alignment, &padded) && last > padded)
        report(c, CHECK_ERROR, where_tensor(c->g, (uint32_t)(next - c->g->tensor), where),
               "begins at byte %" PRIu64 ", %" PRIu64 " bytes late: ggml refuses gaps", last,
               last - padded);
    return 0;
}

static int rule_gaps(struct checker *c)
{
    return each_stretch(c, gap);
}

static int rule_tail(struct checker *c)
{
    if (c->g->anomalies & GGUF_ANOMALY_NO_TAIL && !(c->g->anomalies & GGUF_ANOMALY_PARTIAL))
        report(c, CHECK_WARNING, "end of file",
               "the padding after the last tensor is missing: some readers require it");
    return 0;
}

static int rule_trailing(struct checker *c)
{
    const struct gguf *g = c->g;
    char where[WHERE_MAX];
    uint64_t padded;
    if (g->anomalies & GGUF_ANOMALY_TRAILING && align_u64(g->data_end, g->alignment, &padded))
        report(c, CHECK_WARNING, where_bytes(padded, g->file_size, where),
               "%" PRIu64 " bytes behind the data", g->file_size - padded);
    return 0;
}

/*
 * The first byte from `at` on, at most `last`, that is not in a hole of the file. A sparse file of
 * a few blocks can claim exabytes of zeros between two tensors.
 */
static uint64_t skip_hole(const struct source *src, uint64_t at, uint64_t last)
{
    off_t data = src->fd < 0 ? (off_t)at : lseek(src->fd, (off_t)at, SEEK_DATA);
    if (data < 0) /* ENXIO: only a hole is left; others: the file system cannot say */
        return errno == ENXIO ? last : at;
    return min_u64((uint64_t)data, last);
}

/* Counts whole pages, as the disk reads them. Stretches come in the order of the file. */
static bool may_read(struct checker *c, uint64_t first, uint64_t last)
{
    const uint64_t page = 4096;
    uint64_t from = max_u64(first / page, c->padding_page), upto = (last - 1) / page + 1;
    uint64_t cost = upto > from ? (upto - from) * page : 0;
    c->padding_cut |= c->padding_left < cost;
    if (c->padding_cut)
        return false;
    c->padding_left -= cost;
    c->padding_page = max_u64(upto, c->padding_page);
    return true;
}

/* The first byte that is not zero; `last` if all are, or if the rest may not be read. */
static int find_nonzero(struct checker *c, uint64_t first, uint64_t last, uint64_t *ret)
{
    const struct source *src = c->src;
    uint8_t room[16384];
    *ret = last;
    for (size_t n; first < last; first += n) {
        if (last - first > sizeof(room))
            first = skip_hole(src, first, last);
        n = (size_t)min_u64(last - first, sizeof(room));
        if (n == 0 || !may_read(c, first, first + n))
            return 0;
        int r = src->read(src, first, room, n);
        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++)
            if (room[i]) {
                *ret = first + i;
                return 0;
            }
    }
    return 0;
}

static int zero(struct checker *c, uint64_t first, uint64_t last, const struct gguf_tensor *next)
{
    char where[WHERE_MAX];
    uint64_t at;
    (void)next;
    last = min_u64(last, c->g->file_size);
    if (first >= last)
        return 0;
    int r = find_nonzero(c, first, last, &at);
    if (r == 0 && at < last)
        report(c, CHECK_WARNING, where_bytes(first, last, where),
               "padding that is not zero, first at byte %" PRIu64, at);
    return r;
}

static int rule_padding(struct checker *c)
{
    int r = c->src ? each_stretch(c, zero) : 0;
    if (r == 0 && c->padding_cut)
        report(c, CHECK_NOTE, "padding", "only a part was read; ggufs --check reads all of it");
    return r;
}

const struct rule layout_rules[] = {
    {"missing", rule_missing, CHECK_FILE},
    {"version", rule_version, CHECK_FILE},
    {"alignment", rule_alignment, CHECK_FILE},
    {"order", rule_order, CHECK_FILE},
    {"gaps", rule_gaps, CHECK_FILE},
    {"tail", rule_tail, CHECK_FILE},
    {"trailing", rule_trailing, CHECK_FILE},
    {"padding", rule_padding, CHECK_FILE},
    {0},
};
