/* SPDX-License-Identifier: MIT */
/* Reads the state of a tensor before an edit (tensor_base.h). */
#include "live/tensor_base.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/nearest.h"
#include "quant/encode.h"
#include "text/number.h"

/* ---- making bases ---- */

uint64_t tensor_shape_elements(const struct tensor_shape *s)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < s->n_dims; i++)
        n *= s->dims[i];
    return n;
}

static void take_shape(struct tensor_base *b, const struct tensor_shape *s, uint64_t nbytes)
{
    b->type = s->type;
    b->n_dims = s->n_dims;
    b->n_elem = tensor_shape_elements(s);
    b->nbytes = nbytes;
    memcpy(b->dims, s->dims, s->n_dims * sizeof(s->dims[0]));
}

static void take_tensor(struct tensor_base *b, const struct gguf *g, const struct gguf_tensor *t)
{
    b->type = t->type_id;
    b->n_dims = t->n_dims;
    b->n_elem = t->n_elem;
    b->nbytes = t->nbytes;
    for (uint32_t i = 0; i < t->n_dims; i++)
        b->dims[i] = gguf_dim(g, t, i);
}

int tensor_base_make(const struct gguf *g, uint32_t i, struct store *store, uint32_t place,
                     struct tensor_content *content, struct tensor_base **ret)
{
    struct tensor_base *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    atomic_init(&b->refs, 1);
    b->big = g->fmt.big;
    b->exists = true;
    if (content && content->shape.n_dims > 0)
        take_shape(b, &content->shape, content->nbytes);
    else
        take_tensor(b, g, &g->tensor[i]);
    b->store = store ? store_ref(store) : NULL;
    b->place = place;
    b->content = tensor_content_ref(content);
    *ret = b;
    return 0;
}

int tensor_base_none(bool big, struct tensor_base **ret)
{
    struct tensor_base *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    atomic_init(&b->refs, 1);
    b->big = big;
    *ret = b;
    return 0;
}

struct tensor_base *tensor_base_ref(struct tensor_base *b)
{
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void tensor_base_unref(struct tensor_base *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    store_unref(b->store);
    tensor_content_unref(b->content);
    free(b);
}

uint64_t tensor_base_offset(const struct tensor_base *b)
{
    return b->store ? b->store->place[b->place].off : 0;
}

/* ---- views ---- */

static const struct {
    const char *name;
    const struct form *form;
    bool npy;
} views[TENSOR_ASIDE] = {
    [TENSOR_RAW] = {"raw", NULL, false},
    [TENSOR_F32] = {"f32", &form_f32, false},
    [TENSOR_F16] = {"f16", &form_f16, false},
    [TENSOR_BF16] = {"bf16", &form_bf16, false},
    [TENSOR_F32_NPY] = {"f32.npy", &form_f32, true},
    [TENSOR_F16_NPY] = {"f16.npy", &form_f16, true},
    [TENSOR_TYPE] = {"type", NULL, false},
    [TENSOR_SHAPE] = {"shape", NULL, false},
    [TENSOR_HELPER] = {"the file", NULL, false},
};

const char *tensor_view_name(enum tensor_view view)
{
    return views[view].name;
}

const struct form *tensor_view_form(enum tensor_view view)
{
    return views[view].form;
}

bool tensor_view_is_npy(enum tensor_view view)
{
    return views[view].npy;
}

enum quant_view tensor_view_values(enum tensor_view view)
{
    const struct form *form = views[view].form;
    return form == &form_f16 ? QUANT_F16 : form == &form_bf16 ? QUANT_BF16 : QUANT_F32;
}

enum quant_view tensor_npy_values(const struct npy *npy)
{
    return npy->width == 2 ? QUANT_F16 : QUANT_F32;
}

unsigned tensor_values_width(enum quant_view values)
{
    return values == QUANT_F32 ? 4 : 2;
}

bool tensor_view_exists(const struct tensor_base *b, enum tensor_view view)
{
    return b->exists && (!views[view].form || quant_has_values(quant_find(b->type), b->big));
}

static bool is_text(enum tensor_view view)
{
    return view == TENSOR_TYPE || view == TENSOR_SHAPE;
}

static size_t header(const struct tensor_base *b, enum tensor_view view, struct buf *out)
{
    return views[view].npy ? npy_header(out, views[view].form->descr, b->n_dims, b->dims) : 0;
}

uint64_t tensor_view_size(const struct tensor_base *b, enum tensor_view view)
{
    struct buf measure = BUF_MEASURE;
    if (!tensor_view_exists(b, view))
        return 0;
    if (is_text(view))
        tensor_text(b, view, &measure);
    if (!views[view].form)
        return is_text(view) ? measure.len : b->nbytes;
    return header(b, view, &measure) + b->n_elem * views[view].form->width;
}

/* ---- bytes ---- */

/* From this size on, copying with a system call is faster than accessing the mapped pages. */
#define MUCH ((size_t)32 << 10)

static int read_store(const struct tensor_base *b, uint64_t off, void *dst, size_t n)
{
    uint64_t at;
    assert(b->store && b->place < b->store->n);
    struct mapped *m = n < MUCH ? NULL : store_mapped(b->store, b->place, off, n, &at);
    const struct source file = m ? mapped_source(m) : (struct source){0};
    int r = m && !m->far ? file.read(&file, at, dst, n) : -EIO;
    /* store_read() also records that the file was truncated. */
    return r == -EIO ? store_read(b->store, b->place, off, dst, n, b->nbytes) : r;
}

static int read_raw(const struct tensor_base *b, uint64_t off, uint8_t *dst, size_t n)
{
    const struct tensor_piece *p;
    for (uint64_t len; n > 0; off += len, dst += len, n -= (size_t)len) {
        len = tensor_content_stretch(b->content, off, n, &p);
        int r =
            p ? tensor_piece_read(p, off, dst, (size_t)len) : read_store(b, off, dst, (size_t)len);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Maximum number of stored bytes decoded at a time. */
enum { ROOM = 64 * 1024 };

static int read_values(const struct tensor_base *b, const struct form *form, uint64_t off,
                       uint8_t *dst, size_t n)
{
    const struct quant_type *t = quant_find(b->type);
    const uint64_t blocks = ROOM / t->block_bytes, step = blocks * t->block_len * form->width;
    uint8_t *raw = malloc(ROOM);
    int r = raw ? 0 : -ENOMEM;
    for (size_t done = 0; r == 0 && done < n;) {
        uint64_t at = off + done, first, last, skip = at / step * step;
        size_t len = (size_t)min_u64(n - done, step - (at - skip));
        quant_extent(t, form->width, at, len, &first, &last);
        r = read_raw(b, first, raw, (size_t)(last - first));
        /* Offset, among the values, of the first block that is read. */
        uint64_t start = first / t->block_bytes * t->block_len * form->width;
        if (r == 0)
            form->read(t, b->big, raw, at - start, len, dst + done);
        done += len;
    }
    free(raw);
    return r;
}

int tensor_view_read(const struct tensor_base *b, enum tensor_view view, uint64_t off, void *dst,
                     size_t n)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT; /* the header, or the whole text */
    if (is_text(view))
        tensor_text(b, view, &head);
    else if (!views[view].form)
        return read_raw(b, off, dst, n);
    size_t len = is_text(view) ? head.len : header(b, view, &head), done = 0;
    if (buf_error(&head))
        return buf_error(&head);
    if (off < len) {
        done = (size_t)min_u64(n, len - off);
        memcpy(dst, head.data + off, done);
    }
    return is_text(view) ? 0
                         : read_values(b, views[view].form, off + done - len, (uint8_t *)dst + done,
                                       n - done);
}

/* ---- the result of a judgement ---- */

int tensor_edit_apply(const struct tensor_edit *t, struct edit_change *c, const void *name,
                      size_t n, struct err *e)
{
    size_t mark = edit_mark(c);
    int r = 0;
    if (t->shaped)
        r = edit_tensor_set(c, name, n, &t->shape, t->whole ? t->piece : NULL, t->whole ? t->n : 0,
                            e);
    if (r == 0 && t->n > 0 && !(t->shaped && t->whole))
        r = edit_tensor_write(c, name, n, t->piece, t->n, e);
    if (r < 0)
        edit_undo(c, mark);
    return r;
}

void tensor_edit_free(struct tensor_edit *t)
{
    for (size_t i = 0; i < t->n; i++)
        log_unref(t->piece[i].log);
    free(t->piece);
    *t = TENSOR_EDIT_INIT;
}

/* ---- texts ---- */

/* Get the first line, without surrounding blanks. Only blanks may follow it. */
static int take_line(const char *text, size_t n, const char **ret, const char **upto, struct err *e)
{
    const char *last = n ? memchr(text, '\n', n) : NULL, *end = last ? last : text + n;
    for (const char *p = end; p < text + n; p++)
        if (!is_space((uint8_t)*p))
            return err_set(e, -EINVAL, "more than one line");
    while (text < end && is_space((uint8_t)*text))
        text++;
    while (end > text && is_space((uint8_t)end[-1]))
        end--;
    *ret = text;
    *upto = end;
    return 0;
}

/* ---- type ---- */

static int not_a_type(const char *p, size_t n, struct err *e)
{
    char shown[SHOW_MAX];
    struct nearest near = nearest_to(p, n);
    /* If the text is the beginning of a name, that name is meant. */
    for (uint32_t id = 0; quant_find(id); id++)
        if (quant_find(id)->block_len > 0 && strncasecmp(quant_find(id)->name, p, n) == 0)
            return err_set(e, -EINVAL, "'%s' is not a type; did you mean %s?", show(shown, p, n),
                           quant_find(id)->name);
    for (uint32_t id = 0; quant_find(id); id++)
        if (quant_find(id)->block_len > 0)
            nearest_offer(&near, quant_find(id)->name, strlen(quant_find(id)->name), id);
    if (near.found)
        return err_set(e, -EINVAL, "'%s' is not a type; did you mean %s?", show(shown, p, n),
                       quant_find((uint32_t)near.which)->name);
    return err_set(e, -EINVAL, "'%s' is not a type, such as Q8_0 or F16", show(shown, p, n));
}

/* True for "unknown:NNN". */
static bool is_unknown(const char *p, size_t n)
{
    const size_t prefix = strlen("unknown:");
    size_t i = prefix;
    if (n <= prefix || strncasecmp(p, "unknown:", prefix) != 0)
        return false;
    while (i < n && isdigit((unsigned char)p[i]))
        i++;
    return i == n;
}

int tensor_type_parse(const char *text, size_t n, uint32_t *ret, struct err *e)
{
    char shown[SHOW_MAX];
    const char *p, *end;
    int r = take_line(text, n, &p, &end, e);
    const size_t len = r < 0 ? 0 : (size_t)(end - p);
    if (r == 0 && len == 0)
        r = err_set(e, -EINVAL, "no type is given, such as Q8_0 or F16");
    if (r < 0)
        return r;
    for (uint32_t id = 0; quant_find(id); id++) {
        const struct quant_type *t = quant_find(id);
        if (strlen(t->name) != len || strncasecmp(t->name, p, len) != 0)
            continue;
        if (t->block_len == 0)
            return err_set(e, -EOPNOTSUPP, "a tensor of the retired type %s cannot be made",
                           t->name);
        *ret = id;
        return 0;
    }
    if (is_unknown(p, len))
        return err_set(e, -EOPNOTSUPP, "a tensor of type %s cannot be made", show(shown, p, len));
    return not_a_type(p, len, e);
}

/* ---- shape ---- */

static int not_a_shape(const char *p, const char *end, struct err *e)
{
    char shown[SHOW_MAX];
    return err_set(e, -EINVAL, "'%s' is not a shape: numbers with spaces between, such as 4096 128",
                   show(shown, p, (size_t)(end - p)));
}

/* Parse the number at *p, and move *p past it. Returns 0 or -ERANGE. */
static int take_number(const char **p, const char *end, uint64_t *ret)
{
    uint64_t v = 0;
    for (; *p < end && isdigit((unsigned char)**p); ++*p)
        if (!mul_u64(v, 10, &v) || !add_u64(v, (uint64_t)(**p - '0'), &v))
            return -ERANGE;
    *ret = v;
    return 0;
}

static int take_dims(const char *line, const char *end, struct tensor_shape *s, struct err *e)
{
    uint64_t elements = 1, v;
    for (const char *p = line; p < end;) {
        if (is_space((uint8_t)*p)) {
            p++;
            continue;
        }
        const char *first = p;
        int r = take_number(&p, end, &v);
        if (r == 0 && (p == first || (p < end && !is_space((uint8_t)*p))))
            return not_a_shape(line, end, e);
        if (r == 0 && v == 0)
            return err_set(e, -EINVAL, "a dimension is 0");
        if (s->n_dims == TENSOR_MAX_DIMS)
            return err_set(e, -EINVAL, "a shape has 1 to %d dimensions", TENSOR_MAX_DIMS);
        if (r < 0 || !mul_u64(elements, v, &elements) || elements > GGUF_MAX_ELEMENTS)
            return err_set(e, -EINVAL, "the number of elements overflows");
        s->dims[s->n_dims++] = v;
    }
    return 0;
}

/* Convert dimensions from NumPy's order to the stored one. */
static void reverse(struct tensor_shape *s)
{
    for (uint32_t i = 0; i < s->n_dims / 2; i++) {
        uint64_t first = s->dims[i];
        s->dims[i] = s->dims[s->n_dims - 1 - i];
        s->dims[s->n_dims - 1 - i] = first;
    }
}

int tensor_shape_parse(const char *text, size_t n, struct tensor_shape *ret, struct err *e)
{
    struct tensor_shape s = {0};
    const char *p, *end;
    int r = take_line(text, n, &p, &end, e);
    if (r == 0)
        r = take_dims(p, end, &s, e);
    if (r < 0)
        return r;
    reverse(&s);
    if (s.n_dims == 0)
        s.dims[s.n_dims++] = 1;
    ret->n_dims = s.n_dims;
    memcpy(ret->dims, s.dims, sizeof(s.dims));
    return 0;
}

/* ---- the content of texts ---- */

void tensor_text(const struct tensor_base *base, enum tensor_view view, struct buf *out)
{
    const struct quant_type *type = quant_find(base->type);
    if (view == TENSOR_TYPE && type && type->block_len)
        buf_str(out, type->name);
    else if (view == TENSOR_TYPE)
        buf_printf(out, "unknown:%" PRIu32, base->type);
    for (uint32_t i = base->n_dims; view == TENSOR_SHAPE && i-- > 0;)
        buf_printf(out, "%" PRIu64 "%s", base->dims[i], i ? " " : "");
    buf_char(out, '\n');
}

int tensor_reshape(const struct tensor_base *base, struct tensor_shape *shape, struct err *e)
{
    uint64_t nbytes;
    shape->type = base->type;
    int r = tensor_shape_bytes(shape, &nbytes, e);
    if (r < 0)
        return r;
    const uint64_t elements = tensor_shape_elements(shape);
    if (elements != base->n_elem)
        return err_set(e, -EINVAL, "the shape has %llu elements, the tensor has %llu",
                       (unsigned long long)elements, (unsigned long long)base->n_elem);
    bool same = shape->n_dims == base->n_dims &&
                memcmp(shape->dims, base->dims, shape->n_dims * sizeof(shape->dims[0])) == 0;
    bool scalar = base->n_dims == 0 && shape->n_dims == 1;
    return same || scalar ? TENSOR_SAME : TENSOR_CHANGED;
}
