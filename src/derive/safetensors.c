/* SPDX-License-Identifier: MIT */
/* Shows the model as a safetensors file: see safetensors.h. */
#include "derive/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "model/facts.h"
#include "quant/quant.h"
#include "text/json.h"
#include "text/number.h"

enum { PAGE = 4096, LENGTH = 8 /* LENGTH: size of the length field */ };

/* ---- what is shown ---- */

static bool shows_tensor(const struct gguf *g, uint32_t i)
{
    const struct text name = gguf_name_of(g, false, i);
    return quant_has_values(gguf_type(&g->tensor[i]), g->fmt.big) &&
           utf8_run(name.at, name.len) == name.len && !text_is(name, "__metadata__");
}

static bool shows_key(const struct snapshot *s, uint32_t i)
{
    const struct text name = gguf_name_of(s->gguf, true, i);
    const struct gguf_value v = gguf_value(s->gguf, &s->gguf->kv[i]);
    return v.type != GGUF_ARRAY && v.len <= SAFETENSORS_TEXT_MOST && snapshot_shows_key(s, i) &&
           utf8_run(name.at, name.len) == name.len && !text_is(name, "format") &&
           !text_is(name, "ggufs.omitted");
}

/* Return the form in which the values of a tensor are shown. */
static const struct quant_form *form_of(enum safetensors_as as, const struct gguf_tensor *t,
                                        const char **dtype)
{
    static const struct {
        const struct quant_form *form;
        const char *dtype;
    } one[] = {[SAFETENSORS_OWN] = {&quant_f32, "F32"},
               [SAFETENSORS_F32] = {&quant_f32, "F32"},
               [SAFETENSORS_F16] = {&quant_f16, "F16"},
               [SAFETENSORS_BF16] = {&quant_bf16, "BF16"}};
    const struct quant_type *type = gguf_type(t);
    if (type->block_len == 1 && (as == SAFETENSORS_OWN || type->name[0] == 'I')) {
        *dtype = type->name;
        return &quant_stored;
    }
    *dtype = one[as].dtype;
    return one[as].form;
}

/* Return the shown tensors in the order of the data, which the caller frees. */
static uint32_t *data_order(const struct gguf *g, enum safetensors_as as, uint32_t *n)
{
    const char *dtype;
    uint32_t *order = malloc(((size_t)g->n_tensors + 1) * sizeof(*order));
    *n = 0;
    for (unsigned width = 8; order && width > 0; width /= 2)
        for (uint32_t i = 0; i < g->n_tensors; i++) {
            const struct gguf_tensor *t = &g->tensor[i];
            const struct quant_form *f = shows_tensor(g, i) ? form_of(as, t, &dtype) : NULL;
            if (f && (f->width ? f->width : gguf_type(t)->block_bytes) == width)
                order[(*n)++] = i;
        }
    return order;
}

/* ---- the header ---- */

/* Add a text, with U+FFFD for bytes that are not UTF-8. */
static void add_text(struct buf *out, const void *bytes, size_t n)
{
    CLEANUP(buf_free) struct buf room = BUF_INIT;
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i += i < n) {
        const size_t run = utf8_run(p + i, n - i);
        buf_add(&room, p + i, run);
        i += run;
        buf_str(&room, i < n ? "\xef\xbf\xbd" : "");
    }
    if (buf_error(&room))
        out->err = buf_error(&room);
    else
        json_string(out, room.data, room.len);
}

/* Add `"__metadata__":{"format":"pt","key":"text",...,"ggufs.omitted":"[\"a\",...]"}`. */
static void add_metadata(const struct snapshot *s, struct buf *out)
{
    CLEANUP(buf_free) struct buf omitted = BUF_INIT;
    const struct gguf *g = s->gguf;
    buf_str(out, "\"__metadata__\":{\"format\":\"pt\"");
    for (uint32_t i = 0; i < g->n_kv; i++) {
        const struct gguf_value v = gguf_value(g, &g->kv[i]);
        if (!shows_key(s, i))
            continue;
        buf_char(out, ',');
        json_string(out, gguf_key(g, &g->kv[i]), g->kv[i].key_len);
        buf_char(out, ':');
        if (v.type == GGUF_STRING) {
            add_text(out, v.data, (size_t)v.len);
            continue;
        }
        buf_char(out, '"');
        text_scalar(out, &v, &float_names_text);
        buf_char(out, '"');
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (!shows_tensor(g, i)) {
            buf_char(&omitted, omitted.len ? ',' : '[');
            add_text(&omitted, gguf_name(g, &g->tensor[i]), g->tensor[i].name_len);
        }
    if (omitted.len) {
        buf_char(&omitted, ']');
        buf_str(out, ",\"ggufs.omitted\":");
        json_string(out, omitted.data, omitted.len);
    }
    buf_char(out, '}');
    out->err = out->err ? out->err : buf_error(&omitted);
}

/* Write the length and the padded header. */
static int make_header(const struct snapshot *s, enum safetensors_as as, const uint32_t *order,
                       uint32_t n, struct buf *out)
{
    const struct gguf *g = s->gguf;
    uint64_t at = 0, end;
    buf_uint(out, 0, LENGTH, false);
    buf_char(out, '{');
    add_metadata(s, out);
    for (uint32_t i = 0; i < n; i++, at = end) {
        const struct gguf_tensor *t = &g->tensor[order[i]];
        const char *dtype;
        const struct quant_form *f = form_of(as, t, &dtype);
        if (!add_u64(at, form_size(f, t), &end) || end > INT64_MAX)
            return -EFBIG;
        buf_char(out, ',');
        json_string(out, gguf_name(g, t), t->name_len);
        buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
        fact_shape(g, t, ",", out);
        buf_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, end);
    }
    buf_char(out, '}');
    for (size_t k = PAGE - 1 - (out->len - 1) % PAGE; k > 0; k--)
        buf_char(out, ' ');
    if (buf_error(out))
        return buf_error(out);
    put_u64(out->data, out->len - LENGTH, false);
    return out->len - LENGTH > SAFETENSORS_HEADER_MOST ? -EFBIG : 0;
}

/* ---- kept with a snapshot ---- */

static int make_file_image(const struct snapshot *s, enum safetensors_as as, struct image **ret)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    uint32_t n;
    uint32_t *order = data_order(s->gguf, as, &n);
    struct image *im = image_new(s->gguf);
    int r = im && order ? make_header(s, as, order, n, &head) : -ENOMEM;
    if (r == 0) {
        const char *dtype;
        image_add_memory(im, head.data, head.len);
        for (uint32_t i = 0; i < n; i++)
            image_add_values(im, order[i], form_of(as, &s->gguf->tensor[order[i]], &dtype));
        image_own(im, buf_steal(&head));
        r = image_end(im);
    }
    free(order);
    if (r == 0)
        *ret = im;
    else
        image_unref(im);
    return r;
}

int safetensors_image(struct snapshot *g, enum safetensors_as as, struct image **ret)
{
    struct image *im = atomic_load(&g->form[as]);
    if (!im) {
        int r = make_file_image(g, as, &im);
        if (r < 0)
            return r;
        im = snapshot_keep(&g->form[as], im);
    }
    *ret = REF(im);
    return 0;
}
