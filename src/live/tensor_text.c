/* SPDX-License-Identifier: MIT */
/* The texts of a tensor's type and shape: see tensor_text.h. */
#include "live/tensor_text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/nearest.h"
#include "live/tensor_edit.h"
#include "text/scan.h"

/* The text, which may end in a newline; what follows it may be blank only. */
struct line {
    const char *p, *end; /* of the line, without spaces before it */
    bool whole;          /* no more of it will come */
};

static bool take_line(const char *text, size_t n, bool end, struct line *ret)
{
    const char *last = n ? memchr(text, '\n', n) : NULL, *after = text + n;
    for (const char *p = last; p && p < after; p++)
        if (!is_space((uint8_t)*p))
            return false;
    ret->p = text;
    ret->end = last ? last : after;
    ret->whole = last || end;
    while (ret->p < ret->end && is_space((uint8_t)*ret->p))
        ret->p++;
    return true;
}

/* ---- type ---- */

static int not_a_type(const char *p, size_t n, struct err *e)
{
    char shown[SHOW_MAX];
    struct nearest near = nearest_to(p, n);
    for (uint32_t id = 0; n > 0 && quant_find(id); id++) /* what only lacks its end, is meant */
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

/* True if more text could make it the name of a type, or "unknown:NNN". */
static bool may_become(const char *p, size_t n)
{
    static const char unknown[] = "unknown:";
    const size_t prefix = sizeof(unknown) - 1;
    for (uint32_t id = 0; quant_find(id); id++)
        if (strlen(quant_find(id)->name) >= n && strncasecmp(quant_find(id)->name, p, n) == 0)
            return true;
    if (strncasecmp(unknown, p, n < prefix ? n : prefix) != 0)
        return false;
    for (size_t i = prefix; i < n; i++)
        if (!isdigit((unsigned char)p[i]))
            return false;
    return true;
}

static int find_type(const char *p, size_t n, uint32_t *ret, struct err *e)
{
    char shown[SHOW_MAX];
    for (uint32_t id = 0; quant_find(id); id++) {
        const struct quant_type *t = quant_find(id);
        if (strlen(t->name) != n || strncasecmp(t->name, p, n) != 0)
            continue;
        if (t->block_len == 0)
            return err_set(e, -EOPNOTSUPP, "a tensor of the retired type %s cannot be made",
                           t->name);
        *ret = id;
        return 0;
    }
    if (n > 8 && may_become(p, n))
        return err_set(e, -EOPNOTSUPP, "a tensor of type %s cannot be made", show(shown, p, n));
    return not_a_type(p, n, e);
}

int tensor_type_parse(const char *text, size_t n, bool end, uint32_t *ret, struct err *e)
{
    struct line line;
    if (!take_line(text, n, end, &line))
        return err_set(e, -EINVAL, "more than one line");
    const char *last = line.end;
    while (last > line.p && is_space((uint8_t)last[-1]))
        last--;
    size_t len = (size_t)(last - line.p);
    if (line.whole && len == 0)
        return err_set(e, -EINVAL, "no type is given, such as Q8_0 or F16");
    if (!line.whole && last == line.end)
        return may_become(line.p, len) ? TENSOR_TEXT_MORE : not_a_type(line.p, len, e);
    int r = find_type(line.p, len, ret, e);
    return r < 0 || line.whole ? r : TENSOR_TEXT_MORE;
}

/* ---- shape ---- */

static int not_a_shape(const char *p, const char *end, struct err *e)
{
    char shown[SHOW_MAX];
    return err_set(e, -EINVAL, "'%s' is not a shape: numbers with spaces between, such as 4096 128",
                   show(shown, p, (size_t)(end - p)));
}

/* The number at *p, past its end. open: more digits may follow. */
static int take_number(const char **p, const char *end, uint64_t *ret)
{
    const char *first = *p;
    uint64_t v = 0;
    for (; *p < end && isdigit((unsigned char)**p); ++*p)
        if (!mul_u64(v, 10, &v) || !add_u64(v, (uint64_t)(**p - '0'), &v))
            return -ERANGE;
    *ret = v;
    return *p > first ? 0 : -EINVAL;
}

static int take_dims(const struct line *line, struct tensor_shape *s, struct err *e)
{
    uint64_t elements = 1, v;
    for (const char *p = line->p; p < line->end;) {
        if (is_space((uint8_t)*p)) {
            p++;
            continue;
        }
        int r = take_number(&p, line->end, &v);
        bool open = p == line->end && !line->whole;
        if (r == -EINVAL || (p < line->end && r == 0 && !is_space((uint8_t)*p)))
            return not_a_shape(line->p, line->end, e);
        if (r == 0 && v == 0 && open)
            continue; /* a zero may come before other digits */
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

/* NumPy's order becomes the stored one. */
static void reverse(struct tensor_shape *s)
{
    for (uint32_t i = 0; i < s->n_dims / 2; i++) {
        uint64_t first = s->dims[i];
        s->dims[i] = s->dims[s->n_dims - 1 - i];
        s->dims[s->n_dims - 1 - i] = first;
    }
}

int tensor_shape_parse(const char *text, size_t n, bool end, struct tensor_shape *ret,
                       struct err *e)
{
    struct line line;
    struct tensor_shape s = {0};
    if (!take_line(text, n, end, &line))
        return err_set(e, -EINVAL, "more than one line");
    int r = take_dims(&line, &s, e);
    if (r < 0)
        return r;
    if (!line.whole)
        return TENSOR_TEXT_MORE;
    reverse(&s);
    if (s.n_dims == 0)
        s.dims[s.n_dims++] = 1;
    ret->n_dims = s.n_dims;
    memcpy(ret->dims, s.dims, sizeof(s.dims));
    return 0;
}

/* ---- shown ---- */

void tensor_type_text(const struct tensor_base *base, struct buf *out)
{
    const struct quant_type *type = quant_find(base->type);
    if (type && type->block_len)
        buf_printf(out, "%s\n", type->name);
    else
        buf_printf(out, "unknown:%" PRIu32 "\n", base->type);
}

void tensor_shape_text(const struct tensor_base *base, struct buf *out)
{
    for (uint32_t i = base->n_dims; i-- > 0;)
        buf_printf(out, "%" PRIu64 "%s", base->dims[i], i ? " " : "");
    buf_char(out, '\n');
}

int tensor_reshape(const struct tensor_base *base, struct tensor_shape *shape, struct err *e)
{
    uint64_t nbytes, elements = 1;
    shape->type = base->type;
    int r = tensor_shape_bytes(shape, &nbytes, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < shape->n_dims; i++)
        elements *= shape->dims[i];
    if (elements != base->n_elem)
        return err_set(e, -EINVAL, "the shape has %llu elements, the tensor has %llu",
                       (unsigned long long)elements, (unsigned long long)base->n_elem);
    bool same = shape->n_dims == base->n_dims &&
                memcmp(shape->dims, base->dims, shape->n_dims * sizeof(shape->dims[0])) == 0;
    bool scalar = base->n_dims == 0 && shape->n_dims == 1;
    return same || scalar ? TENSOR_SAME : TENSOR_CHANGED;
}
