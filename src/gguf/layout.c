/* SPDX-License-Identifier: MIT */
/*
 * The data section: where each tensor's data lies, checked for alignment, overlap and the end of
 * the file. See cursor.h.
 *
 * On entry a tensor's `off` is the offset in the file (relative to the data section; absolute in
 * the first draft of version 1). On return it is absolute. In the regular layout, the only one that
 * the strictest readers accept, tensors are in the order of their infos, each at the running sum of
 * the padded sizes before it. Anomalies are noted in gguf.anomalies.
 */
#include "gguf/cursor.h"

#include <stdlib.h>

/* A tensor that has data, or may have (unknown type), in the order of offsets. */
struct place {
    uint64_t off;
    uint32_t number;
};

static void name_tensor(struct cursor *c, const struct gguf *g, uint32_t i)
{
    c->item = "tensor";
    c->item_no = i;
    c->name_off = g->tensor[i].name_off;
    c->name_len = g->tensor[i].name_len;
}

/* The offset word is the last of an info. */
static uint64_t offset_word(const struct cursor *c, const struct gguf *g, uint32_t i)
{
    const struct gguf_tensor *t = &g->tensor[i];
    return t->dims_off + (uint64_t)t->n_dims * c->fmt.len_width + (c->fmt.draft ? 4 : 0) + 4;
}

static bool unknown_size(const struct gguf_tensor *t)
{
    const struct quant_type *type = quant_find(t->type_id);
    return t->n_elem > 0 && (!type || type->block_len == 0);
}

/* The absolute place of tensor i's data. */
static int place_tensor(struct cursor *c, struct gguf *g, uint32_t i)
{
    struct gguf_tensor *t = &g->tensor[i];
    uint64_t stored = t->off, end;
    int r = 0;
    name_tensor(c, g, i);
    if (stored % g->alignment)
        r = cursor_fault(c, -EBADMSG, "offset", offset_word(c, g, i),
                         "%llu is not a multiple of the alignment of %llu",
                         (unsigned long long)stored, (unsigned long long)g->alignment);
    if (r < 0)
        return r;
    if (!add_u64(c->fmt.draft ? 0 : g->data_off, stored, &t->off) ||
        !add_u64(t->off, t->nbytes, &end) || end > INT64_MAX) {
        t->off = g->data_off;
        t->nbytes = t->n_elem = 0;
        return cursor_fault(c, -EBADMSG, "offset", offset_word(c, g, i),
                            "the end of the data overflows");
    }
    if (t->off < g->data_off)
        return cursor_fault(c, -EBADMSG, "offset", offset_word(c, g, i),
                            "%llu lies in the header, which ends at %llu",
                            (unsigned long long)t->off, (unsigned long long)g->data_off);
    return 0;
}

static int make_absolute(struct cursor *c, struct gguf *g)
{
    int r = 0;
    for (uint32_t i = 0; i < g->n_tensors && r == 0; i++)
        r = place_tensor(c, g, i);
    return r;
}

static int by_offset(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* The tensors with data, sorted by offset. *in_order is false if infos have another order. */
static size_t collect(const struct gguf *g, struct place *places, bool *in_order)
{
    size_t n = 0;
    *in_order = true;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        if (t->nbytes == 0 && !unknown_size(t))
            continue;
        *in_order &= n == 0 || places[n - 1].off <= t->off;
        places[n++] = (struct place){t->off, i};
    }
    if (!*in_order)
        qsort(places, n, sizeof(*places), by_offset);
    return n;
}

/* Unknown types get their extent: up to the next data, or to the end of the file. */
static int check_overlap(struct cursor *c, struct gguf *g, const struct place *places, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        struct gguf_tensor *t = &g->tensor[places[k].number];
        uint64_t limit = k + 1 < n ? places[k + 1].off : UINT64_MAX;
        if (unknown_size(t)) {
            t->nbytes = (limit == UINT64_MAX ? max_u64(g->file_size, t->off) : limit) - t->off;
            g->anomalies |= GGUF_ANOMALY_UNKNOWN;
        }
        if (t->off + t->nbytes > limit || t->off == limit) {
            uint32_t next = places[k + 1].number;
            name_tensor(c, g, next);
            int r =
                cursor_fault(c, -EBADMSG, "offset", offset_word(c, g, next),
                             "its data begins at %llu, inside that of tensor %u (%llu to %llu)",
                             (unsigned long long)limit, places[k].number,
                             (unsigned long long)t->off, (unsigned long long)(t->off + t->nbytes));
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* The running sum of padded sizes, as a strict reader makes it. */
static bool has_gaps(const struct gguf *g)
{
    uint64_t expect = g->data_off;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        if (t->off != expect || !align_u64(t->off + t->nbytes, g->alignment, &expect))
            return true;
    }
    return false;
}

static int missing(struct cursor *c, const struct gguf *g, uint32_t last, uint64_t end)
{
    if (g->n_tensors)
        name_tensor(c, g, last);
    return cursor_fault(c, -ENODATA, "data", g->n_tensors ? g->tensor[last].off : g->data_off,
                        "%llu bytes are missing: the file ends at %llu, the data at %llu "
                        "(an incomplete download? -o partial mounts what is there)",
                        (unsigned long long)(end - g->file_size), (unsigned long long)g->file_size,
                        (unsigned long long)end);
}

/*
 * Some writers leave out the padding after the last tensor. Padding that exists in part was written
 * whole: the file was truncated.
 */
static int check_end(struct cursor *c, struct gguf *g, unsigned flags, uint32_t last)
{
    uint64_t padded;
    if (!align_u64(g->data_end, g->alignment, &padded))
        padded = g->data_end;
    if (g->n_tensors && g->file_size < padded)
        g->anomalies |= GGUF_ANOMALY_NO_TAIL;
    if (g->file_size > padded)
        g->anomalies |= GGUF_ANOMALY_TRAILING;
    if (g->data_end > g->file_size)
        g->anomalies |= GGUF_ANOMALY_PARTIAL;
    bool cut = g->data_end > g->file_size ||
               (g->anomalies & GGUF_ANOMALY_NO_TAIL && g->data_end < g->file_size);
    return cut && !(flags & GGUF_PARTIAL)
               ? missing(c, g, last, g->data_end > g->file_size ? g->data_end : padded)
               : 0;
}

static int check_places(struct cursor *c, struct gguf *g, unsigned flags, struct place *places)
{
    bool in_order;
    size_t n = collect(g, places, &in_order);
    int r = check_overlap(c, g, places, n);
    if (r < 0)
        return r;
    /* Without any data the section is empty, but the file must still reach its start. */
    uint32_t last = n ? places[n - 1].number : 0;
    g->data_end = n ? g->tensor[last].off + g->tensor[last].nbytes : g->data_off;
    if (!in_order)
        g->anomalies |= GGUF_ANOMALY_ORDER;
    else if (has_gaps(g))
        g->anomalies |= GGUF_ANOMALY_GAPS;
    return check_end(c, g, flags, last);
}

int parse_layout(struct cursor *c, struct gguf *g, unsigned flags)
{
    g->data_off = g->data_end = g->head_len;
    if (g->n_tensors && !align_u64(g->head_len, g->alignment, &g->data_off))
        return cursor_fail(c, -EBADMSG, "data section", g->head_len, "its offset overflows");
    int r = make_absolute(c, g);
    if (r < 0)
        return r;
    struct place *places = malloc(((size_t)g->n_tensors + 1) * sizeof(*places));
    if (!places)
        return cursor_fail(c, -ENOMEM, "data section", g->data_off, "no memory");
    r = check_places(c, g, flags, places);
    free(places);
    c->item = NULL;
    return r;
}
