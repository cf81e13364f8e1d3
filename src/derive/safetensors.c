/* SPDX-License-Identifier: MIT */
/* Models as safetensors: see safetensors.h. */
#include "derive/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "derive/lines.h"
#include "model/facts.h"
#include "quant/quant.h"
#include "quant/types.h"
#include "text/json.h"
#include "text/number.h"

enum { PAGE = 4096, LENGTH = 8 /* bytes before the header */ };

/* ---- names, and what is left out ---- */

/* Writes a byte that is not UTF-8. */
typedef void utf8_bad_fn(struct buf *out, uint8_t byte);

struct left_out {
    bool *tensor; /* owned: of each: without values, named as the metadata, or as an earlier one */
    bool *key;    /* owned: of each: an array, hidden, or named as what the metadata has already */
    bool tensors; /* some */
};

static bool is_utf8(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = utf8_len(p + i, n - i)))
            return false;
    return true;
}

/* %XX: of tensors' names */
static void utf8_percent(struct buf *out, uint8_t byte)
{
    buf_printf(out, "%%%02X", byte);
}

/* U+FFFD: of keys and their texts */
static void utf8_replacement(struct buf *out, uint8_t byte)
{
    (void)byte;
    buf_str(out, "\xef\xbf\xbd");
}

/* The text itself if it is UTF-8, else in `room` with bytes that are not as `bad` writes them. */
static const char *as_utf8(const char *s, size_t *n, struct buf *room, utf8_bad_fn *bad)
{
    const uint8_t *p = (const uint8_t *)s;
    if (is_utf8(s, *n))
        return s;
    room->len = 0;
    for (size_t i = 0; i < *n;) {
        size_t len = utf8_len(p + i, *n - i);
        if (len)
            buf_add(room, p + i, len);
        else
            bad(room, p[i]);
        i += len ? len : 1;
    }
    *n = room->len;
    return (const char *)room->data;
}

/* A JSON string of n bytes, made in `room` where they are not UTF-8; an error of that is *out's. */
static void utf8_json(struct buf *out, struct buf *room, const char *s, size_t n, utf8_bad_fn *bad)
{
    const char *shown = as_utf8(s, &n, room, bad);
    if (shown != s && buf_error(room))
        out->err = buf_error(room);
    else
        json_string(out, shown, n);
}

/* Names of one kind, by number. */
struct names {
    const struct gguf *g;
    uint32_t n;
    const char *(*get)(const struct gguf *g, uint32_t i, size_t *n);
    utf8_bad_fn *bad;
};

static const char *tensor_name(const struct gguf *g, uint32_t i, size_t *n)
{
    *n = g->tensor[i].name_len;
    return gguf_name(g, &g->tensor[i]);
}

static const char *key_name(const struct gguf *g, uint32_t i, size_t *n)
{
    *n = g->kv[i].key_len;
    return gguf_key(g, &g->kv[i]);
}

static const char *shown(const struct names *all, uint32_t i, struct buf *room, size_t *n)
{
    const char *name = all->get(all->g, i, n);
    return as_utf8(name, n, room, all->bad);
}

/* The parser refuses names that are equal: they can be that only where they are written otherwise. */
static bool may_collide(const struct names *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        size_t n;
        const char *name = all->get(all->g, i, &n);
        if (!is_utf8(name, n))
            return true;
    }
    return false;
}

/* Leave out name i if one of those in the index is shown as it is; else add it. */
static int omit_double(const struct names *all, struct index *seen, uint32_t i, struct buf room[2],
                       bool *omit)
{
    size_t n, m;
    uint32_t other;
    const char *name = shown(all, i, &room[0], &n);
    if (buf_error(&room[0]))
        return buf_error(&room[0]);
    uint64_t hash = hash_name(name, n);
    for (struct probe at = index_probe(seen, hash); index_next(seen, &at, &other);) {
        const char *same = shown(all, other, &room[1], &m);
        if (buf_error(&room[1]))
            return buf_error(&room[1]);
        omit[i] |= m == n && memcmp(same, name, n) == 0;
    }
    if (!omit[i])
        index_insert(seen, hash, i);
    return 0;
}

/* Of names that are shown alike leave all but the first out. */
static int omit_doubles(const struct names *all, bool *omit)
{
    struct buf room[2] = {BUF_INIT, BUF_INIT};
    struct index seen = {0};
    if (!may_collide(all))
        return 0;
    int r = index_init(&seen, all->n);
    for (uint32_t i = 0; i < all->n && r == 0; i++)
        if (!omit[i])
            r = omit_double(all, &seen, i, room, omit);
    buf_free(&room[0]);
    buf_free(&room[1]);
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

static int omit_tensors(const struct gguf *g, struct left_out *l)
{
    static const char *const reserved[] = {"__metadata__", NULL};
    const struct names all = {g, g->n_tensors, tensor_name, utf8_percent};
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        l->tensor[i] = !quant_has_values(gguf_type(t), g->fmt.big) ||
                       is_one_of(gguf_name(g, t), t->name_len, reserved);
    }
    int r = omit_doubles(&all, l->tensor);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        l->tensors |= l->tensor[i];
    return r;
}

/* Names that the metadata has for itself are left out too. */
static int omit_keys(const struct snapshot *s, struct left_out *l)
{
    static const char *const own[] = {"format", "ggufs.omitted", NULL};
    const struct gguf *g = s->gguf;
    const struct names all = {g, g->n_kv, key_name, utf8_replacement};
    for (uint32_t i = 0; i < g->n_kv; i++)
        l->key[i] = gguf_value(g, &g->kv[i]).type == GGUF_ARRAY || !snapshot_shows_key(s, i) ||
                    is_one_of(gguf_key(g, &g->kv[i]), g->kv[i].key_len, own);
    return omit_doubles(&all, l->key);
}

/* 0, -ENOMEM; free it in both cases. */
static int left_out_find(const struct snapshot *g, struct left_out *ret)
{
    *ret = (struct left_out){.tensor = calloc((size_t)g->gguf->n_tensors + 1, sizeof(bool)),
                             .key = calloc((size_t)g->gguf->n_kv + 1, sizeof(bool))};
    if (!ret->tensor || !ret->key)
        return -ENOMEM;
    int r = omit_tensors(g->gguf, ret);
    return r < 0 ? r : omit_keys(g, ret);
}

static void left_out_free(struct left_out *l)
{
    free(l->tensor);
    free(l->key);
}

/* ---- the plan ---- */

/* What a build goes over; the same for the measuring of a size. */
struct plan {
    const struct snapshot *g;
    enum safetensors_as as;
    struct left_out out; /* owned */
    uint64_t limit;      /* keys whose text is longer are left out too */
};

static int plan_make(const struct snapshot *g, enum safetensors_as as, struct plan *p)
{
    *p = (struct plan){.g = g, .as = as, .limit = UINT64_MAX};
    return left_out_find(g, &p->out);
}

static void plan_free(struct plan *p)
{
    left_out_free(&p->out);
}

/* ---- types ---- */

static const char *dtype_of(uint32_t type)
{
    switch (type) {
    case F32_ID:
        return "F32";
    case F16_ID:
        return "F16";
    case BF16_ID:
        return "BF16";
    case F64_ID:
        return "F64";
    case I8_ID:
        return "I8";
    case I16_ID:
        return "I16";
    case I32_ID:
        return "I32";
    case I64_ID:
        return "I64";
    default:
        return NULL;
    }
}

/* How the values of a tensor are shown. */
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
    const char *own = dtype_of(t->type_id);
    if (own && (p->as == SAFETENSORS_OWN || own[0] == 'I')) {
        *dtype = own;
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

/* Key number i as `,"key":"text"`; nothing if it is not shown. */
static void add_key(const struct plan *p, uint32_t i, struct buf *room, struct buf *out)
{
    const struct gguf *g = p->g->gguf;
    const struct gguf_kv *kv = &g->kv[i];
    struct gguf_value v = gguf_value(g, kv);
    if (p->out.key[i])
        return;
    buf_char(out, ',');
    utf8_json(out, room, gguf_key(g, kv), kv->key_len, utf8_replacement);
    buf_char(out, ':');
    if (v.type == GGUF_STRING) {
        utf8_json(out, room, (const char *)v.data, (size_t)v.len, utf8_replacement);
        return;
    }
    buf_char(out, '"');
    text_scalar(out, &v, &float_names_text);
    buf_char(out, '"');
}

/* `,"ggufs.omitted":"[\"a\",...]"` */
static void add_omitted(const struct plan *p, struct buf *room, struct buf *out)
{
    const struct gguf *g = p->g->gguf;
    CLEANUP(buf_free) struct buf list = BUF_INIT;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (p->out.tensor[i]) {
            buf_char(&list, list.len ? ',' : '[');
            utf8_json(&list, room, gguf_name(g, &g->tensor[i]), g->tensor[i].name_len,
                      utf8_percent);
        }
    buf_char(&list, ']');
    if (buf_error(&list)) {
        out->err = buf_error(&list);
        return;
    }
    buf_str(out, ",\"ggufs.omitted\":");
    json_string(out, list.data, list.len);
}

/* Writes an entry, number i; the list of what is left out is behind the last key. */
static void add_entry(const struct plan *p, uint32_t i, struct buf *room, struct buf *out)
{
    if (i < p->g->gguf->n_kv)
        add_key(p, i, room, out);
    else if (p->out.tensors)
        add_omitted(p, room, out);
}

static void add_metadata(const struct plan *p, struct buf *room, struct buf *out)
{
    buf_str(out, "{\"__metadata__\":{\"format\":\"pt\"");
    for (uint32_t i = 0; i <= p->g->gguf->n_kv; i++) {
        struct buf m = BUF_MEASURE;
        if (p->limit != UINT64_MAX)
            add_entry(p, i, room, &m);
        if (m.len <= p->limit)
            add_entry(p, i, room, out);
    }
    buf_char(out, '}');
}

/* ---- tensors ---- */

/* Call add() for each tensor in the order of the data. */
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
            if (p->out.tensor[i])
                continue;
            const struct form *f = form_of(p, &g->tensor[i], &dtype);
            if (width_of(f, &g->tensor[i]) == widths[w])
                r = add(arg, i, f, dtype);
        }
    return r;
}

struct writing {
    const struct plan *p;
    struct buf *room, *out;
    uint64_t at; /* of the data */
};

static int add_tensor(void *arg, uint32_t i, const struct form *f, const char *dtype)
{
    struct writing *w = arg;
    const struct gguf *g = w->p->g->gguf;
    const struct gguf_tensor *t = &g->tensor[i];
    uint64_t end;
    if (!add_u64(w->at, form_size(f, t), &end) || end > INT64_MAX)
        return -EFBIG;
    buf_char(w->out, ',');
    utf8_json(w->out, w->room, gguf_name(g, t), t->name_len, utf8_percent);
    buf_printf(w->out, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    fact_shape(g, t, ",", w->out);
    buf_printf(w->out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", w->at, end);
    w->at = end;
    return buf_error(w->out);
}

/* The header without what pads it; *data: bytes of all tensors. */
static int write_header(const struct plan *p, struct buf *out, uint64_t *data)
{
    CLEANUP(buf_free) struct buf room = BUF_INIT;
    struct writing w = {p, &room, out, 0};
    add_metadata(p, &room, out);
    int r = each_tensor(p, add_tensor, &w);
    buf_char(out, '}');
    *data = w.at;
    return r < 0 ? r : buf_error(out);
}

/* ---- the limit of the header ---- */

/* Bytes of the file before its data, for n bytes of header without padding. */
static uint64_t data_begin(uint64_t n)
{
    return (LENGTH + n + PAGE - 1) / PAGE * PAGE;
}

static bool fits(uint64_t n)
{
    return data_begin(n) - LENGTH <= SAFETENSORS_HEADER_MOST;
}

static int by_length(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/*
 * Leave the longest keys out until the header, of n bytes with all of them, is short enough. All that
 * are as long as the first of these go with it.
 */
static int limit_keys(struct plan *p, uint64_t n)
{
    CLEANUP(buf_free) struct buf room = BUF_INIT;
    uint32_t count = p->g->gguf->n_kv + 1, i;
    uint64_t *length = malloc(count * sizeof(*length));
    if (!length)
        return -ENOMEM;
    for (i = 0; i < count; i++) {
        struct buf m = BUF_MEASURE;
        add_entry(p, i, &room, &m);
        length[i] = m.len;
    }
    qsort(length, count, sizeof(*length), by_length);
    for (i = count; i > 0 && !fits(n); i--)
        n -= length[i - 1];
    p->limit = i ? length[i - 1] : 0;
    if (i < count && i && length[i] == p->limit)
        p->limit--;
    free(length);
    return !fits(n) ? -EFBIG : buf_error(&room);
}

/* Measure the header, without padding, and the data. */
static int measure(struct plan *p, uint64_t *head, uint64_t *data)
{
    struct buf m = BUF_MEASURE;
    int r = write_header(p, &m, data);
    if (r == 0 && !fits(m.len)) {
        r = limit_keys(p, m.len);
        m = BUF_MEASURE;
        r = r < 0 ? r : write_header(p, &m, data);
    }
    *head = m.len;
    return r;
}

/* ---- kept with a snapshot ---- */

struct kept_file {
    struct snapshot_part part;
    _Atomic(uint64_t) size;        /* + 1; 0: not measured yet; UINT64_MAX: there can be none */
    _Atomic(struct image *) image; /* a reference, or NULL */
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

static int measure_file(struct snapshot *g, enum safetensors_as as, uint64_t *ret)
{
    CLEANUP(plan_free) struct plan p = {0};
    uint64_t head, data;
    int r = plan_make(g, as, &p);
    if (r == 0)
        r = measure(&p, &head, &data);
    if (r == 0 && (!add_u64(data_begin(head), data, ret) || *ret > INT64_MAX))
        r = -EFBIG;
    return r;
}

int safetensors_size(struct snapshot *g, enum safetensors_as as, uint64_t *ret)
{
    struct kept_file *f = kept_file(g, as);
    uint64_t known = f ? atomic_load(&f->size) : 0;
    int r = !f ? -ENOMEM : known == UINT64_MAX ? -EFBIG : 0;
    if (r < 0 || known) {
        *ret = known - 1;
        return r;
    }
    r = measure_file(g, as, ret);
    if (r == 0 || r == -EFBIG)
        atomic_store(&f->size, r < 0 ? UINT64_MAX : *ret + 1);
    return r;
}

static int add_values(void *arg, uint32_t i, const struct form *f, const char *dtype)
{
    (void)dtype;
    image_add_values(arg, i, f);
    return 0;
}

/* The length and the header, padded. */
static int make_head(struct plan *p, struct buf *out)
{
    uint64_t head, data, begin;
    int r = measure(p, &head, &data);
    if (r < 0)
        return r;
    begin = data_begin(head);
    buf_uint(out, begin - LENGTH, LENGTH, false);
    r = write_header(p, out, &data);
    for (uint64_t n = LENGTH + head; n < begin; n++)
        buf_char(out, ' ');
    return r < 0 ? r : buf_error(out);
}

static int make_image(struct snapshot *g, enum safetensors_as as, struct image **ret)
{
    CLEANUP(plan_free) struct plan p = {0};
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    struct image *im = image_new(g->gguf);
    int r = im ? plan_make(g, as, &p) : -ENOMEM;
    if (r == 0)
        r = make_head(&p, &head);
    if (r == 0) {
        image_add_memory(im, head.data, head.len);
        (void)each_tensor(&p, add_values, im);
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
    int r = !f ? -ENOMEM : im ? 0 : make_image(g, as, &im);
    if (r < 0)
        return r;
    if (im != atomic_load(&f->image) && !atomic_compare_exchange_strong(&f->image, &other, im)) {
        image_unref(im); /* another thread was quicker */
        im = other;
    }
    *ret = image_ref(im);
    return 0;
}
