/* SPDX-License-Identifier: MIT */
/* Shows the model as a safetensors file: see safetensors.h. */
#include "derive/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/err.h"
#include "derive/stats.h"
#include "model/facts.h"
#include "quant/quant.h"
#include "quant/types.h"
#include "text/json.h"
#include "text/number.h"

enum { PAGE = 4096, LENGTH = 8 /* LENGTH: size of the length field */ };

/* ---- names, and omitted tensors and keys ---- */

/* Return the text itself if it is UTF-8, else a copy in `room` with the offending bytes replaced:
 * with %XX in tensors' names, with U+FFFD in keys and their texts. */
static const char *as_utf8(const char *s, size_t *n, struct buf *room, bool tensor)
{
    const uint8_t *p = (const uint8_t *)s;
    if (utf8_run(s, *n) == *n)
        return s;
    room->len = 0;
    for (size_t i = 0, len; i < *n; i += len ? len : 1) {
        len = utf8_len(p + i, *n - i);
        if (len)
            buf_add(room, p + i, len);
        else if (tensor)
            buf_printf(room, "%%%02X", p[i]);
        else
            buf_str(room, "\xef\xbf\xbd");
    }
    *n = room->len;
    return (const char *)room->data;
}

static void add_string(struct buf *out, const char *s, size_t n, bool tensor)
{
    CLEANUP(buf_free) struct buf room = BUF_INIT;
    const char *shown = as_utf8(s, &n, &room, tensor);
    if (buf_error(&room))
        out->err = buf_error(&room);
    else
        json_string(out, shown, n);
}

static const char *item_name(const struct gguf *g, bool tensor, uint32_t i, size_t *n)
{
    *n = tensor ? g->tensor[i].name_len : g->kv[i].key_len;
    return tensor ? gguf_name(g, &g->tensor[i]) : gguf_key(g, &g->kv[i]);
}

/* Omit name i if the index has a name that is shown the same way; else add it to the index. */
static int omit_double(const struct gguf *g, bool tensor, struct index *seen, uint32_t i,
                       bool *omit)
{
    CLEANUP(buf_free) struct buf room = BUF_INIT, other = BUF_INIT;
    size_t n, m;
    uint32_t k;
    const char *name = item_name(g, tensor, i, &n), *same;
    name = as_utf8(name, &n, &room, tensor);
    if (buf_error(&room))
        return buf_error(&room);
    uint64_t hash = hash_name(name, n);
    for (struct probe at = index_probe(seen, hash); index_next(seen, &at, &k);) {
        same = item_name(g, tensor, k, &m);
        same = as_utf8(same, &m, &other, tensor);
        if (buf_error(&other))
            return buf_error(&other);
        omit[i] |= m == n && memcmp(same, name, n) == 0;
    }
    if (!omit[i])
        index_insert(seen, hash, i);
    return 0;
}

/* Among names that are shown in the same way, omit all but the first. The parser refuses equal
 * names, so nothing is omitted unless a name must be changed. */
static int omit_doubles(const struct gguf *g, bool tensor, bool *omit)
{
    const uint32_t all = tensor ? g->n_tensors : g->n_kv;
    struct index seen = {0};
    bool may = false;
    for (uint32_t i = 0; i < all && !may; i++) {
        size_t n;
        const char *name = item_name(g, tensor, i, &n);
        may = utf8_run(name, n) < n;
    }
    int r = may ? index_init(&seen, all) : 0;
    for (uint32_t i = 0; i < all && may && r == 0; i++)
        if (!omit[i])
            r = omit_double(g, tensor, &seen, i, omit);
    index_free(&seen);
    return r;
}

static bool is_one_of(const char *name, size_t n, const char *const *list)
{
    for (; *list; list++)
        if (n == strlen(*list) && memcmp(name, *list, n) == 0)
            return true;
    return false;
}

/* ---- the plan ---- */

/* The tensors and keys to include when the file is measured or generated. */
struct plan {
    const struct snapshot *g;
    enum safetensors_as as;
    /* Owned: true for each tensor that is omitted: without values, or named like the metadata or an
     * earlier tensor. */
    bool *tensor;
    /* Owned: true for each key that is omitted: an array, hidden, or named like another entry in
     * the metadata. */
    bool *key;
    bool tensors;   /* at least one tensor is omitted */
    uint64_t limit; /* entries with a longer text are also omitted */
};

/* Make a plan. Returns 0 or -ENOMEM; free the plan in either case. */
static int plan_make(const struct snapshot *s, enum safetensors_as as, struct plan *p)
{
    static const char *const reserved[] = {"__metadata__", NULL};
    static const char *const own[] = {"format", "ggufs.omitted", NULL};
    const struct gguf *g = s->gguf;
    *p = (struct plan){.g = s, .as = as, .limit = UINT64_MAX};
    p->tensor = calloc((size_t)g->n_tensors + 1, sizeof(bool));
    p->key = calloc((size_t)g->n_kv + 1, sizeof(bool));
    if (!p->tensor || !p->key)
        return -ENOMEM;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        p->tensor[i] = !quant_has_values(gguf_type(t), g->fmt.big) ||
                       is_one_of(gguf_name(g, t), t->name_len, reserved);
    }
    for (uint32_t i = 0; i < g->n_kv; i++)
        p->key[i] = gguf_value(g, &g->kv[i]).type == GGUF_ARRAY || !snapshot_shows_key(s, i) ||
                    is_one_of(gguf_key(g, &g->kv[i]), g->kv[i].key_len, own);
    int r = omit_doubles(g, true, p->tensor);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        p->tensors |= p->tensor[i];
    return r < 0 ? r : omit_doubles(g, false, p->key);
}

static void plan_free(struct plan *p)
{
    free(p->tensor);
    free(p->key);
}

/* ---- types ---- */

/* Return the form in which the values of a tensor are shown. */
static const struct form *form_of(const struct plan *p, const struct gguf_tensor *t,
                                  const char **dtype)
{
    static const struct {
        const struct form *form;
        const char *dtype;
    } one[] = {[SAFETENSORS_OWN] = {&form_f32, "F32"},
               [SAFETENSORS_F32] = {&form_f32, "F32"},
               [SAFETENSORS_F16] = {&form_f16, "F16"},
               [SAFETENSORS_BF16] = {&form_bf16, "BF16"}};
    const struct quant_type *type = gguf_type(t);
    if (type->block_len == 1 && (p->as == SAFETENSORS_OWN || type->name[0] == 'I')) {
        *dtype = type->name;
        return &form_stored;
    }
    *dtype = one[p->as].dtype;
    return one[p->as].form;
}

static unsigned width_of(const struct form *f, const struct gguf_tensor *t)
{
    return f->width ? f->width : gguf_type(t)->block_bytes;
}

/* ---- metadata ---- */

/* Add key number i as `,"key":"text"`, or nothing if it is not shown. */
static void add_metadata_key(const struct plan *p, uint32_t i, struct buf *out)
{
    const struct gguf *g = p->g->gguf;
    const struct gguf_kv *kv = &g->kv[i];
    struct gguf_value v = gguf_value(g, kv);
    if (p->key[i])
        return;
    buf_char(out, ',');
    add_string(out, gguf_key(g, kv), kv->key_len, false);
    buf_char(out, ':');
    if (v.type == GGUF_STRING) {
        add_string(out, (const char *)v.data, (size_t)v.len, false);
        return;
    }
    buf_char(out, '"');
    text_scalar(out, &v, &float_names_text);
    buf_char(out, '"');
}

/* Add the list of omitted tensors as `,"ggufs.omitted":"[\"a\",...]"`. */
static void add_omitted(const struct plan *p, struct buf *out)
{
    const struct gguf *g = p->g->gguf;
    CLEANUP(buf_free) struct buf list = BUF_INIT;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (p->tensor[i]) {
            buf_char(&list, list.len ? ',' : '[');
            add_string(&list, gguf_name(g, &g->tensor[i]), g->tensor[i].name_len, true);
        }
    buf_char(&list, ']');
    if (buf_error(&list)) {
        out->err = buf_error(&list);
        return;
    }
    buf_str(out, ",\"ggufs.omitted\":");
    json_string(out, list.data, list.len);
}

/* Write entry number i; the list of omitted tensors follows the last key. */
static void add_tensor_entry(const struct plan *p, uint32_t i, struct buf *out)
{
    if (i < p->g->gguf->n_kv)
        add_metadata_key(p, i, out);
    else if (p->tensors)
        add_omitted(p, out);
}

/* ---- tensors ---- */

/* Call add() for each tensor, in the order of the data. */
static int each_tensor(const struct plan *p,
                       int (*add)(void *arg, uint32_t i, const struct form *f, const char *dtype),
                       void *arg)
{
    static const unsigned widths[] = {8, 4, 2, 1};
    const struct gguf *g = p->g->gguf;
    int r = 0;
    for (size_t w = 0; w < 4; w++)
        for (uint32_t i = 0; i < g->n_tensors && r == 0; i++) {
            const char *dtype;
            if (p->tensor[i])
                continue;
            const struct form *f = form_of(p, &g->tensor[i], &dtype);
            if (width_of(f, &g->tensor[i]) == widths[w])
                r = add(arg, i, f, dtype);
        }
    return r;
}

/* True if a header without its padding cannot be read. */
static bool is_too_long(const struct buf *out)
{
    return out->len > LENGTH + SAFETENSORS_HEADER_MOST;
}

struct header_text {
    const struct plan *p;
    struct buf *out;
    uint64_t at; /* offset of the next tensor in the data */
};

static int add_tensor_data(void *arg, uint32_t i, const struct form *f, const char *dtype)
{
    struct header_text *w = arg;
    const struct gguf *g = w->p->g->gguf;
    const struct gguf_tensor *t = &g->tensor[i];
    uint64_t end;
    if (!add_u64(w->at, form_size(f, t), &end) || end > INT64_MAX)
        return -EFBIG;
    if (is_too_long(w->out))
        return 0;
    buf_char(w->out, ',');
    add_string(w->out, gguf_name(g, t), t->name_len, true);
    buf_printf(w->out, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    fact_shape(g, t, ",", w->out);
    buf_printf(w->out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", w->at, end);
    w->at = end;
    return buf_error(w->out);
}

/* Write the header without its padding, or enough of it to see that it is too long. */
static int write_header(const struct plan *p, struct buf *out)
{
    struct header_text w = {p, out, 0};
    buf_str(out, "{\"__metadata__\":{\"format\":\"pt\"");
    for (uint32_t i = 0; i <= p->g->gguf->n_kv && !is_too_long(out); i++) {
        struct buf m = BUF_MEASURE;
        if (p->limit != UINT64_MAX)
            add_tensor_entry(p, i, &m);
        if (m.len <= p->limit)
            add_tensor_entry(p, i, out);
    }
    buf_char(out, '}');
    int r = each_tensor(p, add_tensor_data, &w);
    buf_char(out, '}');
    return r < 0 ? r : buf_error(out);
}

/* Write the length and the padded header. While it is too long, the longest texts are omitted: those
 * over 64 MiB, then those over 32 MiB, ... */
static int make_header(struct plan *p, struct buf *out)
{
    for (p->limit = UINT64_MAX;; p->limit = min_u64(p->limit / 2, (uint64_t)64 << 20)) {
        out->len = 0;
        buf_uint(out, 0, LENGTH, false);
        int r = write_header(p, out);
        for (size_t n = PAGE - 1 - (out->len - 1) % PAGE; n > 0; n--)
            buf_char(out, ' ');
        r = r < 0 ? r : buf_error(out);
        if (r == 0 && is_too_long(out) && p->limit == 0)
            r = -EFBIG;
        if (r == 0 && !is_too_long(out))
            put_u64(out->data, out->len - LENGTH, false);
        if (r < 0 || !is_too_long(out))
            return r;
    }
}

static int add_image_values(void *arg, uint32_t i, const struct form *f, const char *dtype)
{
    (void)dtype;
    image_add_values(arg, i, f);
    return 0;
}

/* ---- kept with a snapshot ---- */

struct kept_file {
    struct snapshot_part part;
    _Atomic(struct image *) image; /* a reference, or NULL */
    atomic_bool impossible;        /* the file cannot be generated */
};

static void kept_file_free(struct snapshot_part *part)
{
    struct kept_file *f = (struct kept_file *)part;
    image_unref(atomic_load(&f->image));
    free(f);
}

static struct kept_file *kept_file(struct snapshot *g, enum safetensors_as as)
{
    unsigned slot = LINES_SLOTS + (unsigned)as;
    struct snapshot_part *known = snapshot_part(g, slot);
    if (known)
        return (struct kept_file *)known;
    struct kept_file *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    f->part.free = kept_file_free;
    return (struct kept_file *)snapshot_add_part(g, slot, &f->part);
}

static int make_file_image(struct snapshot *g, enum safetensors_as as, struct image **ret)
{
    CLEANUP(plan_free) struct plan p = {0};
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    struct image *im = image_new(g->gguf);
    int r = im ? plan_make(g, as, &p) : -ENOMEM;
    if (r == 0)
        r = make_header(&p, &head);
    if (r == 0) {
        image_add_memory(im, head.data, head.len);
        (void)each_tensor(&p, add_image_values, im);
        image_own(im, buf_steal(&head));
        r = image_end(im);
    }
    if (r == 0)
        *ret = im;
    else
        image_unref(im);
    return r;
}

int safetensors_image(struct snapshot *g, enum safetensors_as as, struct image **ret)
{
    struct kept_file *f = kept_file(g, as);
    struct image *im = f ? atomic_load(&f->image) : NULL, *other = NULL;
    if (f && atomic_load(&f->impossible))
        return -EFBIG;
    int r = !f ? -ENOMEM : im ? 0 : make_file_image(g, as, &im);
    if (r == -EFBIG)
        atomic_store(&f->impossible, true);
    if (r < 0)
        return r;
    if (im != atomic_load(&f->image) && !atomic_compare_exchange_strong(&f->image, &other, im)) {
        image_unref(im); /* another thread made the image first */
        im = other;
    }
    *ret = image_ref(im);
    return 0;
}
