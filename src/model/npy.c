/* SPDX-License-Identifier: MIT */
/* NumPy's header: see npy.h. */
#include "model/npy.h"

#include <errno.h>
#include <stdlib.h>
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

static int npy_refuse(struct err *e, const char *why)
{
    return err_set(e, -EINVAL, "not a NumPy header: %s", why);
}

/* Copies the dict as Python prints it, but without blanks. */
static void copy_dict(const uint8_t *p, size_t n, char *dst)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] && !strchr(" \t\r\n", p[i]))
            *dst++ = p[i] == '"' ? '\'' : (char)p[i];
    *dst = '\0';
}

/* Returns what follows "'key':" and the beginning of its value, or NULL. */
static const char *find_entry(const char *dict, const char *begin)
{
    const char *at = strstr(dict, begin);
    return at ? at + strlen(begin) : NULL;
}

static int read_descr(const char *type, struct npy *ret, struct err *e)
{
    char shown[SHOW_MAX];
    const struct text t = {type, strcspn(type, "'")};
    ret->width = text_is(t, "<f4") ? 4 : text_is(t, "<f2") ? 2 : text_is(t, "<f8") ? 8 : 0;
    if (ret->width)
        return 0;
    return err_set(e, -EINVAL, "the array has the type '%s': save a.astype('f4') or a.astype('f2')",
                   show(shown, t.at, t.len));
}

/* Checks the dimensions and reverses them into the stored order. */
static int finish_shape(struct npy *ret, struct err *e)
{
    ret->n_elem = 1;
    for (uint32_t i = 0; i < ret->n_dims; i++) {
        if (ret->dims[i] == 0)
            return err_set(e, -EINVAL, "the array has a dimension of 0");
        if (!mul_u64(ret->n_elem, ret->dims[i], &ret->n_elem) || ret->n_elem > GGUF_MAX_ELEMENTS)
            return err_set(e, -EINVAL, "the array has too many elements");
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

/* Reads "2,3)" or "7,)". Python 2 wrote an L behind each number. */
static int read_shape(const char *at, struct npy *ret, struct err *e)
{
    char *end;
    for (; *at != ')'; at = end + (*end == ',')) {
        errno = 0;
        const uint64_t v = strtoull(at, &end, 10);
        end += *end == 'L';
        if (*at < '0' || *at > '9' || errno || (*end != ',' && *end != ')'))
            return npy_refuse(e, "the shape is not a tuple of numbers");
        if (ret->n_dims == NPY_MAX_DIMS)
            return err_set(e, -EINVAL, "the array has more than %d dimensions", NPY_MAX_DIMS);
        ret->dims[ret->n_dims++] = v;
    }
    return finish_shape(ret, e);
}

static int read_dict(const char *dict, struct npy *ret, struct err *e)
{
    const char *type = find_entry(dict, "'descr':'"), *shape = find_entry(dict, "'shape':(");
    const bool fortran = find_entry(dict, "'fortran_order':True");
    if (dict[0] != '{' || dict[strlen(dict) - 1] != '}')
        return npy_refuse(e, "there is no dict");
    if (!type || !shape || (!fortran && !find_entry(dict, "'fortran_order':False")))
        return npy_refuse(e, "an entry is missing, or the array has fields");
    int r = read_descr(type, ret, e);
    if (r == 0)
        r = read_shape(shape, ret, e);
    ret->fortran = fortran && ret->n_dims > 1;
    return r;
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
    char dict[NPY_MAX_HEADER];
    struct npy npy = {.header = (uint32_t)len};
    copy_dict(p + fixed, (size_t)len - fixed, dict);
    int r = read_dict(dict, &npy, e);
    if (r == 0)
        *ret = npy;
    return r;
}
