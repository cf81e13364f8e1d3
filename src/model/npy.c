/* SPDX-License-Identifier: MIT */
/* NumPy's header: see npy.h. */
#include "model/npy.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "model/facts.h"

enum {
    ALIGN = 64,
    FIXED = 10, /* magic, version, u16 length; versions 2.0 and 3.0 have a u32 length */
};

static const char magic[] = "\x93NUMPY";
enum { MAGIC = sizeof(magic) - 1 };

/* ---- written ---- */

size_t npy_header(struct buf *out, const char *descr, uint32_t n_dims, const uint64_t *dims)
{
    size_t start = out->len;
    buf_add(out, "\x93NUMPY\x01\x00\x00\x00", FIXED);
    buf_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = n_dims; i-- > 0;)
        buf_printf(out, "%llu%s", (unsigned long long)dims[i], i ? ", " : "");
    buf_str(out, n_dims == 1 ? ",), }" : "), }");
    for (size_t n = ALIGN - 1 - (out->len - start) % ALIGN; n > 0; n--)
        buf_char(out, ' ');
    buf_char(out, '\n');
    size_t len = out->len - start;
    if (out->data && !buf_error(out))
        put_u16(out->data + start + FIXED - 2, (uint16_t)(len - FIXED), false);
    return len;
}

/* ---- read ---- */

struct npy_scan {
    const char *p, *end;
    struct err *e;
};

static int npy_refuse(struct err *e, const char *why)
{
    return err_set(e, -EINVAL, "not a NumPy header: %s", why);
}

static void skip_spaces(struct npy_scan *t)
{
    while (t->p < t->end && (*t->p == ' ' || *t->p == '\t' || *t->p == '\r' || *t->p == '\n'))
        t->p++;
}

/* Skips spaces, then takes the next byte if it is c. */
static bool npy_take(struct npy_scan *t, char c)
{
    skip_spaces(t);
    if (t->p == t->end || *t->p != c)
        return false;
    t->p++;
    return true;
}

/* Takes a Python string without escapes. */
static bool take_string(struct npy_scan *t, struct text *ret)
{
    skip_spaces(t);
    char quote = t->p < t->end ? *t->p : '\0';
    if (quote != '\'' && quote != '"')
        return false;
    const char *first = t->p + 1, *last = memchr(first, quote, (size_t)(t->end - first));
    if (!last || memchr(first, '\\', (size_t)(last - first)))
        return false;
    *ret = (struct text){first, (size_t)(last - first)};
    t->p = last + 1;
    return true;
}

static bool npy_take_word(struct npy_scan *t, const char *word)
{
    size_t n = strlen(word);
    skip_spaces(t);
    if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0)
        return false;
    t->p += n;
    return true;
}

static int read_descr(struct npy_scan *t, struct npy *ret)
{
    char shown[SHOW_MAX];
    struct text type;
    if (!take_string(t, &type))
        return npy_refuse(t->e, "the array has fields, or no type");
    ret->width = text_is(type, "<f4") ? 4 : text_is(type, "<f2") ? 2 : text_is(type, "<f8") ? 8 : 0;
    if (ret->width)
        return 0;
    return err_set(t->e, -EINVAL,
                   "the array has the type '%s': save a.astype('f4') or a.astype('f2')",
                   show(shown, type.at, type.len));
}

/*
 * Takes a decimal number, with or without the L that Python 2 wrote. Returns false if it is not a
 * number or does not fit into a u64.
 */
static bool take_number(struct npy_scan *t, uint64_t *ret)
{
    skip_spaces(t);
    const char *first = t->p;
    uint64_t v = 0;
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++)
        if (!mul_u64(v, 10, &v) || !add_u64(v, (uint64_t)(*t->p - '0'), &v))
            return false;
    *ret = v;
    bool any = t->p > first;
    if (any && t->p < t->end && *t->p == 'L')
        t->p++;
    return any;
}

/* Checks the dimensions and reverses them into the stored order. */
static int finish_shape(struct npy_scan *t, struct npy *ret)
{
    ret->n_elem = 1;
    for (uint32_t i = 0; i < ret->n_dims; i++) {
        if (ret->dims[i] == 0)
            return err_set(t->e, -EINVAL, "the array has a dimension of 0");
        if (!mul_u64(ret->n_elem, ret->dims[i], &ret->n_elem) || ret->n_elem > GGUF_MAX_ELEMENTS)
            return err_set(t->e, -EINVAL, "the array has too many elements");
    }
    for (uint32_t i = 0; i < ret->n_dims / 2; i++) {
        uint64_t first = ret->dims[i];
        ret->dims[i] = ret->dims[ret->n_dims - 1 - i];
        ret->dims[ret->n_dims - 1 - i] = first;
    }
    if (ret->n_dims == 0)
        ret->dims[ret->n_dims++] = 1;
    return 0;
}

static int read_shape(struct npy_scan *t, struct npy *ret)
{
    uint64_t v;
    if (!npy_take(t, '('))
        return npy_refuse(t->e, "the shape is not a tuple");
    ret->n_dims = 0;
    for (bool more = true; more && !npy_take(t, ')');) {
        if (!take_number(t, &v))
            return npy_refuse(t->e, "the shape is not a tuple of numbers");
        if (ret->n_dims == NPY_MAX_DIMS)
            return err_set(t->e, -EINVAL, "the array has more than %d dimensions", NPY_MAX_DIMS);
        ret->dims[ret->n_dims++] = v;
        more = npy_take(t, ',');
        if (!more && !npy_take(t, ')'))
            return npy_refuse(t->e, "the shape is not a tuple of numbers");
    }
    return finish_shape(t, ret);
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };

static int read_entry(struct npy_scan *t, struct npy *ret, bool *fortran, unsigned *seen)
{
    struct text key;
    if (!take_string(t, &key) || !npy_take(t, ':'))
        return npy_refuse(t->e, "the dict cannot be read");
    if (text_is(key, "descr")) {
        *seen |= DESCR;
        return read_descr(t, ret);
    }
    if (text_is(key, "shape")) {
        *seen |= SHAPE;
        return read_shape(t, ret);
    }
    *seen |= ORDER;
    const bool known = text_is(key, "fortran_order");
    *fortran = known && npy_take_word(t, "True");
    return known && (*fortran || npy_take_word(t, "False"))
               ? 0
               : npy_refuse(t->e, "the dict has an unknown entry");
}

static int read_dict(struct npy_scan *t, struct npy *ret)
{
    bool fortran = false;
    unsigned seen = 0;
    if (!npy_take(t, '{'))
        return npy_refuse(t->e, "there is no dict");
    for (bool more = true; more && !npy_take(t, '}');) {
        int r = read_entry(t, ret, &fortran, &seen);
        if (r < 0)
            return r;
        more = npy_take(t, ',');
        if (!more && !npy_take(t, '}'))
            return npy_refuse(t->e, "the dict cannot be read");
    }
    skip_spaces(t);
    if (t->p != t->end || seen != ALL)
        return npy_refuse(t->e, "an entry is missing from the dict, or something follows it");
    ret->fortran = fortran && ret->n_dims > 1;
    return 0;
}

int npy_parse(const uint8_t *p, size_t n, struct npy *ret, struct err *e)
{
    uint64_t len;
    if (memcmp(p, magic, n < MAGIC ? n : MAGIC) != 0)
        return npy_refuse(e, "it does not begin with \\x93NUMPY");
    if (n > MAGIC && (p[MAGIC] < 1 || p[MAGIC] > 3))
        return npy_refuse(e, "its version is not 1, 2 or 3");
    size_t fixed = n > MAGIC && p[MAGIC] > 1 ? FIXED + 2 : FIXED;
    if (n < fixed)
        return NPY_MORE;
    len = fixed + (fixed == FIXED ? get_u16(p + FIXED - 2, false) : get_u32(p + FIXED - 2, false));
    if (len > NPY_MAX_HEADER)
        return npy_refuse(e, "it is over 65536 bytes");
    if (n < len)
        return NPY_MORE;
    struct npy_scan t = {(const char *)p + fixed, (const char *)p + len, e};
    struct npy npy = {.header = (uint32_t)len};
    int r = read_dict(&t, &npy);
    if (r == 0)
        *ret = npy;
    return r;
}
