/* SPDX-License-Identifier: MIT */
/* Parser for the bytes of a GGUF image: see gguf.h and docs/format.md. This file is best read
 * from the bottom up, starting at gguf_parse(). */
#include "gguf/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/map.h"
#include "gguf/value.h"
#include "quant/types.h"

/* Minimum sizes, in bytes, of a key-value pair and of a tensor info in any version. */
enum { LEAST_KEY = 10, LEAST_TENSOR = 20 };
/* No real model has more keys or tensors than this. A larger count means damage, not truncation. */
#define PLAUSIBLE_COUNT 1000000
/* Minimum number of bytes to load at a time. Most headers without a tokenizer are smaller. */
#define LOAD_STEP ((uint64_t)64 << 10)
/* Maximum number of bytes to load beyond those requested. They may all lie after the header. */
#define AHEAD_MOST ((uint64_t)2 << 20)

/*
 * ---- the cursor ----
 *
 * The cursor holds the bytes from the file's start to the parser's position, and loads more as
 * needed, up to the end of the file.
 *
 * Everything that the parser reads goes through cursor_need(), which fails if the file ends first.
 * So the parser does not trust a length from the file until that many bytes are loaded. The next
 * cursor_need() invalidates pointers into the bytes: keep offsets instead.
 *
 * The first failure stays: from then on nothing is read, numbers and lengths are 0, and further
 * failures are not reported. So only what uses a value that must be right, and loops, look at `code`.
 */

struct cursor {
    const struct source *src;
    struct gguf_format fmt;
    uint8_t *bytes; /* owned: bytes [0, have) of the file */
    bool given;     /* `bytes` is the caller's, holds the whole header and is never reallocated */
    uint64_t have;
    uint64_t cap;
    uint64_t pos;      /* the next byte to parse */
    uint64_t strings;  /* number of strings seen */
    uint64_t nul_ends; /* number of strings seen that end in a counted NUL */
    bool plain;        /* the strings do not count a NUL, even if all end in one */
    bool may_cut;      /* GGUF_CUT */
    bool cut;          /* parsing failed because the file ends too early */
    /* The item being parsed, for error messages: "key 3 'general.name'". */
    const char *item; /* "key", "tensor", or NULL for the file's header */
    uint64_t item_no;
    uint64_t name_off; /* offset of its name, once known (name_len > 0) */
    uint64_t name_len;
    int code; /* 0, or the first failure */
    struct err *err;
    gguf_fault_fn *fault; /* NULL: parsing stops at the first fault */
    void *fault_arg;
};

/*
 * Fail with the error "key 3 'general.name': FIELD at byte AT: REASON". A fault that is collected is
 * no failure; the caller continues with a substitute value.
 */
static void cursor_refuse(struct cursor *c, bool fault, int code, const char *field, uint64_t at,
                          const char *fmt, ...) __attribute__((format(printf, 6, 7)));

static void cursor_refuse(struct cursor *c, bool fault, int code, const char *field, uint64_t at,
                          const char *fmt, ...)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    struct err collected = {0}, *e = fault && c->fault ? &collected : c->err;
    char reason[256], name[SHOW_MAX];
    va_list ap;
    if (c->code < 0)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(reason, sizeof(reason), fmt, ap);
    va_end(ap);
    if (c->item)
        buf_printf(&b, "%s %" PRIu64, c->item, c->item_no);
    if (c->item && c->name_len > 0)
        buf_printf(&b, " '%s'", show(name, c->bytes + c->name_off, (size_t)c->name_len));
    buf_printf(&b, "%s%s at byte %" PRIu64, c->item ? ": " : "", field, at);
    (void)err_set(e, code, "%.*s: %s", (int)b.len, b.data ? (const char *)b.data : "", reason);
    if (e)
        e->where = (unsigned)b.len;
    if (e == &collected)
        c->fault(c->fault_arg, e);
    else
        c->code = code;
}

#define cursor_fail(c, ...) cursor_refuse(c, false, __VA_ARGS__)
/* Report a fault after which the rest of the file can still be parsed. */
#define cursor_fault(c, ...) cursor_refuse(c, true, -EBADMSG, __VA_ARGS__)

/* Appended to the reason for a fault that truncation could also have caused. */
#define CURSOR_CUT " (an incomplete download?)"

static uint64_t cursor_left(const struct cursor *c)
{
    return c->src->size - c->pos;
}

static int cursor_grow(struct cursor *c, uint64_t need)
{
    uint64_t cap = min_u64(max_u64(max_u64(c->cap * 2, LOAD_STEP), need), c->src->size);
    uint8_t *bytes = cap > SIZE_MAX ? NULL : realloc(c->bytes, (size_t)cap);
    if (!bytes)
        return -ENOMEM;
    c->bytes = bytes;
    c->cap = cap;
    return 0;
}

/* Load the rest of the n bytes at pos. This is the slow path of cursor_need(). */
static void cursor_load(struct cursor *c, uint64_t n, const char *field)
{
    const uint64_t end = c->pos + n;
    c->cut = n > cursor_left(c);
    if (c->cut)
        cursor_fail(c, -EBADMSG, field, c->pos,
                    "unexpected end of file: %" PRIu64 " bytes needed, %" PRIu64 " left" CURSOR_CUT,
                    n, cursor_left(c));
    else if (c->given)
        cursor_fail(c, -EBADMSG, field, c->pos, "is not in the header");
    else if (end > GGUF_MAX_HEADER)
        cursor_fail(c, -EFBIG, field, c->pos, "the header is over %" PRIu64 " bytes",
                    GGUF_MAX_HEADER);
    if (c->code < 0)
        return;
    int r = end > c->cap ? cursor_grow(c, end) : 0;
    /* Read ahead as many bytes as are already loaded, within limits, so that the work stays
     * proportional to the header's size. */
    uint64_t ahead = min_u64(max_u64(c->have, LOAD_STEP), AHEAD_MOST);
    uint64_t upto = min_u64(max_u64(end, c->have + ahead), c->cap);
    if (r == 0)
        r = c->src->read(c->src, c->have, c->bytes + c->have, (size_t)(upto - c->have));
    if (r < 0)
        cursor_fail(c, r, field, c->pos, "%s", strerror(-r));
    else
        c->have = upto;
}

/* Make sure that n bytes at pos are loaded. Fails with -EBADMSG (the file ends), -EFBIG, -ENOMEM or
 * -EIO. */
static bool cursor_need(struct cursor *c, uint64_t n, const char *field)
{
    if (c->code == 0 && n > c->have - c->pos)
        cursor_load(c, n, field);
    return c->code == 0;
}

/* Pass n bytes. Returns the offset of the first. */
static uint64_t cursor_skip(struct cursor *c, uint64_t n, const char *field)
{
    const uint64_t at = c->pos;
    c->pos += cursor_need(c, n, field) ? n : 0;
    return at;
}

/* Read an unsigned number of `width` bytes. */
static uint64_t cursor_uint(struct cursor *c, size_t width, const char *field)
{
    const uint64_t at = cursor_skip(c, width, field);
    return c->code == 0 ? get_uint(c->bytes + at, width, c->fmt.big) : 0;
}

/* Read a string. Sets *off to the offset of its bytes, and returns their number, including a counted
 * NUL. */
static uint32_t cursor_string(struct cursor *c, const char *field, uint64_t *off)
{
    const uint64_t at = c->pos, n = cursor_uint(c, c->fmt.len_width, field);
    if (n > GGUF_MAX_STRING)
        cursor_fail(c, -EBADMSG, field, at, "a length of %" PRIu64 " is over the limit of %" PRIu64,
                    n, GGUF_MAX_STRING);
    *off = cursor_skip(c, n, field);
    if (c->code < 0)
        return 0;
    c->strings++;
    c->nul_ends += n > 0 && c->bytes[c->pos - 1] == 0;
    return (uint32_t)n;
}

/* Set the item that error messages name from now on. */
static void name_item(struct cursor *c, const char *item, uint64_t no, uint64_t off, uint64_t len)
{
    c->item = item;
    c->item_no = no;
    c->name_off = off;
    c->name_len = len;
}

/* ---- the key-values ---- */

/* Version 2 added u64, i64 and f64. */
static bool type_known(const struct cursor *c, uint64_t type)
{
    return c->fmt.version == 1 ? type <= GGUF_ARRAY : type < GGUF_VALUE_TYPES;
}

/* Return the minimum size of an element of this type, in bytes. */
static uint64_t least_bytes(const struct cursor *c, uint64_t type)
{
    if (type == GGUF_STRING)
        return c->fmt.len_width;
    if (type == GGUF_ARRAY)
        return (uint64_t)c->fmt.len_width + 4;
    return gguf_types[type].width;
}

/* Read the head of an array: element type, then count (in the first draft, count first). */
static uint64_t array_head(struct cursor *c, uint64_t *elem)
{
    uint64_t at = c->pos, bytes, type_at = c->fmt.draft ? at + 4 : at, count = 0;
    if (c->fmt.draft)
        count = cursor_uint(c, 4, "array length");
    *elem = cursor_uint(c, 4, "array element type");
    if (!c->fmt.draft)
        count = cursor_uint(c, c->fmt.len_width, "array length");
    if (!type_known(c, *elem))
        cursor_fail(c, -EBADMSG, "array element type", type_at, "%" PRIu64 " is not a value type",
                    *elem);
    if (c->code < 0)
        return 0;
    const bool sane = count <= GGUF_MAX_COUNT && mul_u64(count, least_bytes(c, *elem), &bytes);
    c->cut = sane && bytes > cursor_left(c);
    if (!sane || c->cut)
        cursor_fail(c, -EBADMSG, "array length", c->fmt.draft ? at : at + 4,
                    "%" PRIu64 " elements of type %s do not fit into the %" PRIu64 " bytes left%s",
                    count, gguf_types[*elem].name, cursor_left(c),
                    count > GGUF_MAX_COUNT ? "" : CURSOR_CUT);
    return count;
}

static void skip_value(struct cursor *c, uint64_t type, unsigned depth)
{
    uint64_t elem, off;
    if (type == GGUF_STRING) {
        (void)cursor_string(c, depth ? "array string length" : "string length", &off);
    } else if (type != GGUF_ARRAY) {
        (void)cursor_skip(c, gguf_types[type].width, "value");
    } else if (depth >= GGUF_MAX_DEPTH) {
        cursor_fail(c, -EBADMSG, "array", c->pos, "nested more than %d deep", GGUF_MAX_DEPTH);
    } else {
        const uint64_t count = array_head(c, &elem);
        const unsigned width = c->code < 0 ? 0 : gguf_types[elem].width;
        if (width)
            (void)cursor_skip(c, count * width, "array elements");
        for (uint64_t i = 0; !width && i < count && c->code == 0; i++)
            skip_value(c, elem, depth + 1);
    }
}

static void parse_entry(struct cursor *c, void *entry)
{
    struct gguf_kv *kv = entry;
    kv->off = c->pos;
    kv->key_len = cursor_string(c, "key length", &kv->key_off);
    c->name_off = kv->key_off;
    c->name_len = kv->key_len;
    if (kv->key_len == 0)
        cursor_fail(c, -EBADMSG, "key length", kv->off, "the key is empty");
    /* Only the first draft stores the value's length in bytes. */
    const uint64_t declared = c->fmt.draft ? cursor_uint(c, 4, "value length") : 0;
    const uint64_t type = cursor_uint(c, 4, "value type");
    if (!type_known(c, type))
        cursor_fail(c, -EBADMSG, "value type", c->pos - 4, "%" PRIu64 " is not a value type", type);
    kv->type = (uint32_t)type;
    kv->val_off = c->pos;
    if (c->code == 0)
        skip_value(c, type, 0);
    kv->end = c->pos;
    if (c->fmt.draft && declared != kv->end - kv->val_off)
        cursor_fail(c, -EBADMSG, "value length", kv->val_off - 8,
                    "declared length %" PRIu64 ", actual %" PRIu64 " bytes", declared,
                    kv->end - kv->val_off);
}

/* ---- the tensor infos ---- */

/* Return the product of the next n_dims dimensions. A product over the limit is a fault even if one
 * of the dimensions is 0. */
static uint64_t count_elements(struct cursor *c, uint32_t n_dims)
{
    uint64_t product = 1;
    bool empty = false;
    for (uint32_t i = 0; i < n_dims && c->code == 0; i++) {
        const uint64_t at = c->pos, d = cursor_uint(c, c->fmt.len_width, "dimension");
        bool fits =
            d <= INT64_MAX && mul_u64(product, d ? d : 1, &product) && product <= GGUF_MAX_ELEMENTS;
        if (d > INT64_MAX)
            cursor_fault(c, "dimension", at, "%lld is negative", (long long)d);
        else if (!fits)
            cursor_fault(c, "dimension", at, "the number of elements overflows with %" PRIu64, d);
        if (!fits)
            product = 1;
        empty |= d == 0 || !fits;
    }
    return empty ? 0 : product;
}

/* Set t->nbytes, except for an unknown type, for which check_overlap() sets it from the layout. */
static void count_bytes(struct cursor *c, struct gguf_tensor *t)
{
    const struct quant_type *type = quant_find(t->type_id);
    if (!type || type->block_len == 0)
        return;
    uint64_t row = t->n_dims ? get_uint(c->bytes + t->dims_off, c->fmt.len_width, c->fmt.big) : 1;
    if (row % type->block_len) {
        t->n_elem = 0;
        cursor_fault(c, "dimension", t->dims_off,
                     "%" PRIu64 " elements per row is not a multiple of %u, the block size of %s",
                     row, type->block_len, type->name);
    } else if (!mul_u64(t->n_elem / type->block_len, type->block_bytes, &t->nbytes) ||
               t->nbytes > INT64_MAX) {
        cursor_fail(c, -EBADMSG, "dimension", t->dims_off, "the size in bytes overflows");
    }
}

static void parse_dims(struct cursor *c, struct gguf_tensor *t)
{
    const uint64_t at = c->pos, n_dims = cursor_uint(c, 4, "number of dimensions");
    if (n_dims > GGUF_MAX_DIMS)
        cursor_fail(c, -EBADMSG, "number of dimensions", at, "%" PRIu64 " is over the limit of %d",
                    n_dims, GGUF_MAX_DIMS);
    t->n_dims = (uint32_t)n_dims;
    t->dims_off = c->pos;
    t->n_elem = count_elements(c, t->n_dims);
    const uint64_t declared = c->fmt.draft ? cursor_uint(c, 4, "number of elements") : t->n_elem;
    if (declared != t->n_elem)
        cursor_fail(c, -EBADMSG, "number of elements", c->pos - 4,
                    "declared %" PRIu64 ", but the dimensions give %" PRIu64, declared, t->n_elem);
}

static void parse_info(struct cursor *c, void *entry)
{
    struct gguf_tensor *t = entry;
    *t = (struct gguf_tensor){.info_off = c->pos};
    t->name_len = cursor_string(c, "name length", &t->name_off);
    c->name_off = t->name_off;
    c->name_len = t->name_len;
    parse_dims(c, t);
    t->stored_id = t->type_id = (uint32_t)cursor_uint(c, 4, "type");
    t->off = cursor_uint(c, 8, "offset");
    /* In version 1, which was written only in August 2023, ids 16 to 18 were the integer types. */
    if (c->fmt.version == 1 && t->type_id >= 16 && t->type_id <= 18)
        t->type_id += 8;
    if (c->code == 0)
        count_bytes(c, t);
}

/* Parse `count` entries. The list grows as entries are parsed, because the count is not trusted. */
static void parse_each(struct cursor *c, const char *item, uint64_t count, void *list, uint32_t *n,
                       size_t size, void (*parse)(struct cursor *c, void *entry))
{
    uint8_t *entries;
    size_t cap = 0;
    c->item = item;
    for (; c->code == 0 && *n < count; *n += c->code == 0) {
        c->item_no = *n;
        c->name_len = 0;
        int r = array_grow(list, &cap, *n, size);
        if (r < 0) {
            cursor_fail(c, r, "entry", c->pos, "no memory");
            return;
        }
        memcpy(&entries, list, sizeof(entries));
        parse(c, entries + *n * size);
    }
    c->item = NULL;
}

/*
 * ---- the data section ----
 *
 * Compute where each tensor's data lies, and check alignment, overlap and the end of the file.
 *
 * On entry, a tensor's `off` is the offset as stored: relative to the data section, or absolute in
 * the first draft of version 1. On return it is absolute. In the regular layout, the only one that
 * the strictest readers accept, tensors are in the order of their infos, each at the running sum of
 * the padded sizes before it. Anomalies are noted in gguf.anomalies.
 */

/* A tensor that has data or, because its type is unknown, may have some. Places are sorted by
 * offset. */
struct data_place {
    uint64_t off;
    uint32_t number;
};

static void name_tensor(struct cursor *c, const struct gguf *g, uint32_t i)
{
    name_item(c, "tensor", i, g->tensor[i].name_off, g->tensor[i].name_len);
}

/* Return where tensor i's offset is stored: in the last word of its info. */
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

/* Make the offset of tensor i's data absolute, and check it. */
static void place_tensor(struct cursor *c, struct gguf *g, uint32_t i)
{
    struct gguf_tensor *t = &g->tensor[i];
    uint64_t stored = t->off, end;
    name_tensor(c, g, i);
    if (stored % g->alignment)
        cursor_fault(c, "offset", offset_word(c, g, i),
                     "%" PRIu64 " is not a multiple of the alignment of %" PRIu64, stored,
                     g->alignment);
    if (!add_u64(c->fmt.draft ? 0 : g->data_off, stored, &t->off) ||
        !add_u64(t->off, t->nbytes, &end) || end > INT64_MAX) {
        t->off = g->data_off;
        t->nbytes = t->n_elem = 0;
        cursor_fault(c, "offset", offset_word(c, g, i), "the end of the data overflows");
    } else if (t->off < g->data_off) {
        cursor_fault(c, "offset", offset_word(c, g, i),
                     "%" PRIu64 " lies in the header, which ends at %" PRIu64, t->off, g->data_off);
    }
}

static int tensors_by_offset(const void *a, const void *b)
{
    const struct data_place *x = a, *y = b;
    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Collect the tensors with data, sorted by offset. *in_order: whether the infos are in that
 * order. */
static size_t collect_places(const struct gguf *g, struct data_place *places, bool *in_order)
{
    size_t n = 0;
    *in_order = true;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        if (t->nbytes == 0 && !unknown_size(t))
            continue;
        *in_order &= n == 0 || places[n - 1].off <= t->off;
        places[n++] = (struct data_place){t->off, i};
    }
    if (!*in_order)
        qsort(places, n, sizeof(*places), tensors_by_offset);
    return n;
}

/* Report tensors that overlap. A tensor of unknown type extends to the next tensor's data, or to
 * the end of the file. */
static void check_overlap(struct cursor *c, struct gguf *g, const struct data_place *places,
                          size_t n)
{
    for (size_t k = 0; k < n && c->code == 0; k++) {
        struct gguf_tensor *t = &g->tensor[places[k].number];
        uint64_t limit = k + 1 < n ? places[k + 1].off : UINT64_MAX;
        if (unknown_size(t)) {
            t->nbytes = (limit == UINT64_MAX ? max_u64(g->file_size, t->off) : limit) - t->off;
            g->anomalies |= GGUF_ANOMALY_UNKNOWN;
        }
        if (t->off + t->nbytes > limit || t->off == limit) {
            uint32_t next = places[k + 1].number;
            name_tensor(c, g, next);
            cursor_fault(c, "offset", offset_word(c, g, next),
                         "its data begins at %" PRIu64 ", inside that of tensor %u (%" PRIu64
                         " to %" PRIu64 ")",
                         limit, places[k].number, t->off, (t->off + t->nbytes));
        }
    }
}

/* True if an offset differs from the running sum of the padded sizes, as strict readers compute
 * it. */
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

/* True if another GGUF file begins at `at`. */
static bool gguf_begins(const struct cursor *c, uint64_t at)
{
    uint8_t magic[8];
    return !c->given && within_u64(at, sizeof(magic), c->src->size) == sizeof(magic) &&
           c->src->read(c->src, at, magic, sizeof(magic)) == 0 && memcmp(magic, "GGUF", 4) == 0 &&
           (get_u32(magic + 4, false) <= 3 || get_u32(magic + 4, true) <= 3);
}

/*
 * Some writers omit the padding after the last tensor. Incomplete padding, however, means that the
 * file was truncated.
 */
static void check_end(struct cursor *c, struct gguf *g, unsigned flags, uint32_t last)
{
    uint64_t padded;
    if (!align_u64(g->data_end, g->alignment, &padded))
        padded = g->data_end;
    if (g->n_tensors && g->file_size < padded)
        g->anomalies |= GGUF_ANOMALY_NO_TAIL;
    const uint64_t joined = gguf_begins(c, padded)        ? padded
                            : gguf_begins(c, g->data_end) ? g->data_end
                                                          : 0;
    c->item = NULL;
    if (joined) {
        cursor_fail(c, -EBADMSG, "end of the data", joined,
                    "continues with another GGUF file at byte %" PRIu64
                    ": shards joined by cat (llama-gguf-split --merge joins them)",
                    joined);
        return;
    }
    if (g->file_size > padded)
        g->anomalies |= GGUF_ANOMALY_TRAILING;
    if (g->data_end > g->file_size)
        g->anomalies |= GGUF_ANOMALY_PARTIAL;
    bool cut = g->data_end > g->file_size ||
               (g->anomalies & GGUF_ANOMALY_NO_TAIL && g->data_end < g->file_size);
    if (!cut || flags & GGUF_PARTIAL)
        return;
    const uint64_t end = g->data_end > g->file_size ? g->data_end : padded;
    if (g->n_tensors)
        name_tensor(c, g, last);
    cursor_refuse(c, true, -ENODATA, "data", g->n_tensors ? g->tensor[last].off : g->data_off,
                  "%" PRIu64 " bytes are missing: the file ends at %" PRIu64
                  ", the data at %" PRIu64
                  " (an incomplete download? -o partial mounts what is there)",
                  end - g->file_size, g->file_size, end);
}

/*
 * Refuse the blocks of 34 bytes for 128 values that PrismML's llama.cpp stored under the id of
 * Q2_0 before that id got its blocks of 18 bytes for 64: the next tensor, or the end of the file,
 * then comes too early by just that.
 */
static void check_old_q2(struct cursor *c, const struct gguf *g, const struct data_place *places,
                         size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const struct gguf_tensor *t = &g->tensor[places[k].number];
        const uint64_t limit = k + 1 < n ? places[k + 1].off : g->file_size;
        uint64_t padded;
        if (t->type_id != Q2_0_ID || t->n_elem % 128 || limit >= t->off + t->nbytes ||
            !align_u64(t->off + t->n_elem / 128 * 34, g->alignment, &padded) ||
            (limit != padded && (k + 1 < n || limit != t->off + t->n_elem / 128 * 34)))
            continue;
        name_tensor(c, g, places[k].number);
        cursor_fail(c, -EBADMSG, "type", offset_word(c, g, places[k].number) - 4,
                    "42 with 34 bytes for 128 values is PrismML's old Q2_0, which only its own "
                    "llama.cpp of that time reads");
    }
}

static void check_places(struct cursor *c, struct gguf *g, unsigned flags,
                         struct data_place *places)
{
    bool in_order;
    size_t n = collect_places(g, places, &in_order);
    check_old_q2(c, g, places, n);
    check_overlap(c, g, places, n);
    /* If no tensor has data, the section is empty, but the file must still reach its start. */
    uint32_t last = n ? places[n - 1].number : 0;
    g->data_end = n ? g->tensor[last].off + g->tensor[last].nbytes : g->data_off;
    if (!in_order)
        g->anomalies |= GGUF_ANOMALY_ORDER;
    else if (has_gaps(g))
        g->anomalies |= GGUF_ANOMALY_GAPS;
    if (c->code == 0)
        check_end(c, g, flags, last);
}

static void parse_layout(struct cursor *c, struct gguf *g, unsigned flags)
{
    g->data_off = g->data_end = g->head_len;
    if (g->n_tensors && !align_u64(g->head_len, g->alignment, &g->data_off))
        cursor_fail(c, -EBADMSG, "data section", g->head_len, "its offset overflows");
    for (uint32_t i = 0; i < g->n_tensors && c->code == 0; i++)
        place_tensor(c, g, i);
    struct data_place *places = malloc(((size_t)g->n_tensors + 1) * sizeof(*places));
    if (!places)
        cursor_fail(c, -ENOMEM, "data section", g->data_off, "no memory");
    if (c->code == 0)
        check_places(c, g, flags, places);
    free(places);
    c->item = NULL;
}

/* ---- the file ---- */

/* Report a wrong magic. If the file is of another known kind, name that kind. */
static void not_gguf(struct cursor *c)
{
    char magic[SHOW_MAX];
    const struct sniffed *s = sniff_bytes(c->bytes, (size_t)c->have, c->src->size);
    if (s)
        cursor_fail(c, -EBADMSG, "magic", 0, "this is %s, not a GGUF file: %s", s->what, s->todo);
    else
        cursor_fail(c, -EBADMSG, "magic", 0, "'%s' is not 'GGUF'",
                    show(magic, c->bytes, (size_t)min_u64(c->have, 4)));
}

/*
 * Parse magic and version. The magic is the same in both byte orders; a file is big-endian when the
 * low half of its version word, read as little-endian, is zero.
 */
static void parse_version(struct cursor *c)
{
    size_t n = (size_t)min_u64(c->src->size, 4);
    if (cursor_need(c, n, "magic") && (n == 0 || memcmp(c->bytes, "GGUF", n) != 0))
        not_gguf(c);
    if (!cursor_need(c, 8, "magic"))
        return;
    uint32_t version = get_u32(c->bytes + 4, false);
    bool big = version != 0 && (version & 0xffff) == 0;
    if (big)
        version = get_u32(c->bytes + 4, true);
    if (version < 1 || version > 3 || (version == 1 && big))
        cursor_fail(c, -EBADMSG, "version", 4, "%s%u is not a version of GGUF (1, 2, 3)",
                    big ? "big-endian " : "", version);
    else
        c->fmt = (struct gguf_format){
            .version = (uint8_t)version, .big = big, .len_width = version == 1 ? 4 : 8};
    c->pos = 8;
}

static uint64_t parse_count(struct cursor *c, const char *field, uint64_t least)
{
    const uint64_t at = c->pos, n = cursor_uint(c, c->fmt.len_width, field);
    const bool cut = c->may_cut && n <= PLAUSIBLE_COUNT;
    if (n > cursor_left(c) / least && !cut)
        cursor_fail(c, -EBADMSG, field, at,
                    "%" PRIu64 " cannot fit into a file of %" PRIu64 " bytes%s", n, c->src->size,
                    n <= PLAUSIBLE_COUNT ? CURSOR_CUT : "");
    else if (n > GGUF_MAX_ITEMS)
        cursor_fail(c, -EFBIG, field, at, "%" PRIu64 " is over the limit of %" PRIu64, n,
                    GGUF_MAX_ITEMS);
    return n;
}

/*
 * The first draft pads the keys with zeros to a multiple of 64 bytes. Its formula adds 64 bytes
 * even if the keys already end at such a multiple. Some writers followed the formula; others wrote
 * no padding in that case.
 */
static void draft_padding(struct cursor *c)
{
    uint64_t n = GGUF_DRAFT_ALIGNMENT - c->pos % GGUF_DRAFT_ALIGNMENT;
    bool whole = n == GGUF_DRAFT_ALIGNMENT;
    if ((whole && cursor_left(c) < n) || !cursor_need(c, n, "padding"))
        return;
    bool zero = is_zero(c->bytes + c->pos, (size_t)n);
    if (!zero && !whole)
        cursor_fail(c, -EBADMSG, "padding", c->pos, "is not zero");
    c->pos += zero ? n : 0;
}

/* If the file ends in the header and that is accepted, keep the keys that are complete. */
static void parse_body(struct cursor *c, struct gguf *g)
{
    const uint64_t n_tensors = parse_count(c, "number of tensors", LEAST_TENSOR);
    const uint64_t n_kv = parse_count(c, "number of keys", LEAST_KEY);
    parse_each(c, "key", n_kv, &g->kv, &g->n_kv, sizeof(*g->kv), parse_entry);
    if (c->fmt.draft && n_tensors > 0)
        draft_padding(c);
    g->info_off = c->pos;
    parse_each(c, "tensor", n_tensors, &g->tensor, &g->n_tensors, sizeof(*g->tensor), parse_info);
    g->head_len = c->pos;
    if (c->code == 0 || !c->may_cut || !c->cut || g->n_kv == 0)
        return;
    g->anomalies |= GGUF_ANOMALY_CUT;
    g->n_tensors = 0;
    g->info_off = g->head_len = g->kv[g->n_kv - 1].end;
    c->code = 0;
    if (c->err)
        *c->err = (struct err){0};
}

/*
 * Early writers counted a trailing NUL in the length of every string. If every string of a version
 * 1 or 2 file ends in NUL, such a writer made the file, and names and values are shown without the
 * NUL.
 */
static void trim_nul(struct cursor *c, struct gguf *g)
{
    c->fmt.nul = c->fmt.version <= 2 && c->strings > 0 && c->nul_ends == c->strings && !c->plain;
    for (uint32_t i = 0; c->fmt.nul && i < g->n_kv; i++)
        g->kv[i].key_len--;
    for (uint32_t i = 0; c->fmt.nul && i < g->n_tensors; i++)
        g->tensor[i].name_len--;
}

/* Return the name as a reader of C strings sees it. */
static struct text before_nul(struct text n)
{
    return (struct text){n.at, strnlen(n.at, n.len)};
}

static bool same_name(struct text a, struct text b)
{
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

static int chains_init(struct gguf_chains *c, uint32_t n)
{
    for (c->mask = 7; c->mask < n;)
        c->mask = 2 * c->mask + 1;
    c->of = calloc((size_t)c->mask + 1 + n, sizeof(*c->of));
    return c->of ? 0 : -ENOMEM;
}

static uint32_t *chain_of(const struct gguf_chains *c, struct text name)
{
    return &c->of[hash_name(name.at, name.len) & c->mask];
}

/* Return the number of the item with this name. If `whole`, compare all bytes, not only those
 * before the first NUL. */
static uint32_t find_name(const struct gguf *g, bool keys, struct text n, bool whole)
{
    const struct text t = before_nul(n);
    const struct gguf_chains *c = keys ? &g->keys : &g->names;
    for (uint32_t i = *chain_of(c, t); i; i = c->of[c->mask + i]) {
        const struct text other = gguf_name_of(g, keys, i - 1);
        if (whole ? same_name(other, n) : same_name(before_nul(other), t))
            return i - 1;
    }
    return UINT32_MAX;
}

/*
 * Index item i by its name up to the first NUL. Refuse a name whose indexed part equals that of an
 * earlier name, and a key that consists of a standardized key, a NUL and any other bytes. Many
 * readers compare C strings: for them, `general.alignment` followed by a NUL would move the data;
 * for others, it would not.
 */
static void enter_name(struct cursor *c, struct gguf *g, bool keys, uint32_t i)
{
    char shown[SHOW_MAX];
    struct text n = gguf_name_of(g, keys, i), t = before_nul(n);
    uint32_t first = find_name(g, keys, n, false);
    bool known = keys && t.len < n.len && key_find(t.at, t.len);
    if (first == UINT32_MAX) {
        const struct gguf_chains *chains = keys ? &g->keys : &g->names;
        uint32_t *chain = chain_of(chains, t);
        chains->of[chains->mask + 1 + i] = *chain;
        *chain = i + 1;
    }
    if (first == UINT32_MAX && !known)
        return;
    name_item(c, keys ? "key" : "tensor", i, (uint64_t)(n.at - (const char *)g->head), n.len);
    if (first == UINT32_MAX)
        cursor_fault(c, "name", c->name_off, "readers that stop at a NUL read it as '%s'",
                     show(shown, t.at, t.len));
    else
        cursor_fault(c, "name", c->name_off, "the same name as %s %u%s", c->item, first,
                     same_name(gguf_name_of(g, keys, first), n) ? "" : " up to a NUL");
}

static void build_indexes(struct cursor *c, struct gguf *g)
{
    if (chains_init(&g->keys, g->n_kv) < 0 || chains_init(&g->names, g->n_tensors) < 0)
        cursor_fail(c, -ENOMEM, "names", c->pos, "no memory");
    for (uint32_t i = 0; i < g->n_kv && c->code == 0; i++)
        enter_name(c, g, true, i);
    for (uint32_t i = 0; i < g->n_tensors && c->code == 0; i++)
        enter_name(c, g, false, i);
}

static void find_alignment(struct cursor *c, struct gguf *g)
{
    static const char key[] = "general.alignment";
    g->alignment = c->fmt.draft ? GGUF_DRAFT_ALIGNMENT : GGUF_DEFAULT_ALIGNMENT;
    uint32_t i = gguf_find_key(g, key, sizeof(key) - 1);
    if (i == UINT32_MAX || c->fmt.draft)
        return;
    struct gguf_value v = gguf_value(g, &g->kv[i]);
    name_item(c, "key", i, g->kv[i].key_off, g->kv[i].key_len);
    if (v.type != GGUF_U32)
        cursor_fault(c, "value type", g->kv[i].val_off - 4, "must be u32, is %s",
                     gguf_types[v.type].name);
    else if (!is_pow2(gguf_uint(&v)))
        cursor_fault(c, "value", g->kv[i].val_off, "%" PRIu64 " is not a power of two",
                     gguf_uint(&v));
    else
        g->alignment = gguf_uint(&v);
    c->item = NULL;
}

static void parse_rest(struct cursor *c, struct gguf *g, unsigned flags)
{
    parse_body(c, g);
    if (c->code < 0)
        return;
    trim_nul(c, g);
    g->fmt = c->fmt;
    g->file_size = c->src->size;
    g->head = c->bytes;
    build_indexes(c, g);
    if (c->code == 0)
        find_alignment(c, g);
    if (c->code == 0)
        parse_layout(c, g, flags);
}

/* Parse the file in the layout of c->fmt. */
static int parse_as(struct cursor *c, unsigned flags, struct gguf **ret)
{
    struct gguf *g = calloc(1, sizeof(*g));
    if (!g) {
        cursor_fail(c, -ENOMEM, "header", 0, "no memory");
        return c->code;
    }
    atomic_init(&g->refs, 1);
    parse_rest(c, g, flags);
    if (c->code < 0) {
        g->head = NULL; /* still owned by the cursor */
        gguf_free(g);
        return c->code;
    }
    /* Drop the bytes loaded beyond the header's end. */
    uint8_t *exact = c->given ? NULL : realloc(c->bytes, (size_t)g->head_len);
    g->head = exact ? exact : c->bytes;
    c->bytes = NULL;
    *ret = g;
    return 0;
}

/*
 * Parse the file in the layout of the first draft, once parsing in the shipped layout of version 1
 * has failed. If the file is malformed in the draft's layout too, keep the first error, because all
 * known files have the shipped layout. If parsing fails for any other reason, report that reason.
 */
static int parse_draft(struct cursor *c, unsigned flags, struct gguf **ret)
{
    struct err why = {0};
    struct cursor d = {.src = c->src,
                       .fmt = {.version = 1, .draft = true, .len_width = 4},
                       .bytes = c->bytes,
                       .have = c->have,
                       .cap = c->cap,
                       .pos = 8,
                       .err = &why};
    int r = parse_as(&d, flags, ret);
    c->bytes = d.bytes;
    if (r < 0 && r != -EBADMSG && c->err)
        *c->err = why;
    return r;
}

static int parse_source(struct cursor *c, unsigned flags, struct gguf **ret)
{
    gguf_fault_fn *fault = c->fault;
    c->fault = NULL;
    parse_version(c);
    c->fault = c->fmt.version == 1 ? NULL : fault;
    c->may_cut = flags & GGUF_CUT && c->fmt.version > 1;
    int r = c->code < 0 ? c->code : parse_as(c, flags, ret);
    if (r == -EBADMSG && c->fmt.version == 1)
        r = parse_draft(c, flags, ret);
    free(c->bytes);
    return r;
}

/* If the file is on a different machine, turn off the kernel's readahead. The parser reads the
 * header in order, in growing pieces; with readahead, the kernel would read as many bytes again
 * beyond the header. */
int gguf_parse(const struct source *s, unsigned flags, struct gguf **ret, struct err *e)
{
    struct cursor c = {.src = s, .err = e};
    bool far = s->fd >= 0 && far_file(s->fd);
    if (far)
        far_exact(s->fd, true);
    int r = parse_source(&c, flags, ret);
    if (far)
        far_exact(s->fd, false);
    return r;
}

int gguf_parse_head(const struct source *s, uint8_t *head, uint64_t len, const struct gguf *from,
                    struct gguf **ret, struct err *e)
{
    struct cursor c = {.src = s, .err = e, .bytes = head, .given = true, .have = len, .cap = len};
    c.plain = from && !from->fmt.nul;
    parse_version(&c);
    return c.code < 0 ? c.code : parse_as(&c, 0, ret);
}

int gguf_parse_faults(const struct source *s, gguf_fault_fn *fault, void *arg, struct gguf **ret,
                      struct err *e)
{
    struct cursor c = {.src = s, .err = e, .fault = fault, .fault_arg = arg};
    return parse_source(&c, 0, ret);
}

void gguf_free(struct gguf *g)
{
    if (!REF_DROP(g))
        return;
    free(g->keys.of);
    free(g->names.of);
    free(g->kv);
    free(g->tensor);
    free(g->head);
    free(g);
}

uint32_t gguf_find_key(const struct gguf *g, const void *key, size_t n)
{
    return find_name(g, true, (struct text){key, n}, true);
}

uint32_t gguf_find_tensor(const struct gguf *g, const void *name, size_t n)
{
    return find_name(g, false, (struct text){name, n}, true);
}

struct gguf_value gguf_value(const struct gguf *g, const struct gguf_kv *kv)
{
    return gguf_value_at(&g->fmt, kv->type, g->head + kv->val_off);
}

bool gguf_same_value(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k)
{
    const struct gguf_kv *x = &a->kv[i], *y = &b->kv[k];
    uint64_t n = x->end - x->val_off;
    return x->type == y->type && n == y->end - y->val_off &&
           memcmp(a->head + x->val_off, b->head + y->val_off, (size_t)n) == 0;
}

uint64_t gguf_dim(const struct gguf *g, const struct gguf_tensor *t, uint32_t i)
{
    return get_uint(g->head + t->dims_off + (uint64_t)i * g->fmt.len_width, g->fmt.len_width,
                    g->fmt.big);
}

uint64_t gguf_stated(const struct gguf *g, bool keys)
{
    return get_uint(g->head + 8 + (keys ? g->fmt.len_width : 0), g->fmt.len_width, g->fmt.big);
}
