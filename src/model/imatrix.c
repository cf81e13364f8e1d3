/* SPDX-License-Identifier: MIT */
/* Importance matrices: see imatrix.h. */
#include "model/imatrix.h"

#include <errno.h>
#include <inttypes.h>
#include <float.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sys.h"

#define SUMS ".in_sum2"
#define COUNTS ".counts"

/* ---- rows ---- */

static int lacks_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory");
}

static int read_some(const struct source *s, uint64_t off, void *dst, size_t n, struct err *e)
{
    const int r = s->read(s, off, dst, n);
    return err_sys(e, r, "cannot read");
}

/* Reads n floats. The caller has checked that the file has that many. */
static int read_floats(const struct source *s, uint64_t off, uint64_t n, bool big, float *dst,
                       struct err *e)
{
    int r = read_some(s, off, dst, (size_t)n * sizeof(float), e);
    if (r < 0)
        return r;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t bits = get_u32((const uint8_t *)(dst + i), big);
        memcpy(dst + i, &bits, sizeof(bits));
    }
    return 0;
}

/* Adds a row for a tensor, with room for n importances. */
static int add_imatrix_row(struct imatrix *m, const void *name, size_t len, uint64_t n,
                           struct imatrix_row **ret, struct err *e)
{
    if (array_grow(&m->row, &m->cap, m->n, sizeof(*m->row)) < 0)
        return lacks_memory(e);
    struct imatrix_row *r = &m->row[m->n];
    *r = (struct imatrix_row){.name = malloc(len + 1), .len = len, .n = n};
    r->of = malloc((size_t)n * sizeof(float));
    m->n++;
    if (!r->name || !r->of)
        return lacks_memory(e);
    memcpy(r->name, name, len);
    *ret = r;
    return 0;
}

/* Turns n sums over `count` tokens into importances. If count is 0, the sums stay as they are. */
static int divide(const struct imatrix_row *r, uint64_t at, uint64_t n, float count, struct err *e)
{
    for (uint64_t i = at; i < at + n; i++) {
        if (!(r->of[i] >= 0 && r->of[i] <= FLT_MAX))
            return err_set(e, -EBADMSG, "number %llu is %g, which cannot be a sum of squares",
                           (unsigned long long)i, (double)r->of[i]);
        r->of[i] = count > 0 ? r->of[i] / count : r->of[i];
    }
    return 0;
}

/* ---- GGUF ---- */

/* Finds the other tensor of a pair. Both must be F32. */
static int find_pair(const struct gguf *g, const struct gguf_tensor *t, const char *end,
                     const char *other, const struct gguf_tensor **ret, struct err *e)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    buf_add(&name, gguf_name(g, t), t->name_len - strlen(end));
    buf_str(&name, other);
    if (buf_error(&name))
        return lacks_memory(e);
    const uint32_t i = gguf_find_tensor(g, name.data, name.len);
    if (i == UINT32_MAX)
        return err_set(e, -EBADMSG, "has no matching tensor '...%s'", other);
    *ret = &g->tensor[i];
    const struct quant_type *f32 = quant_find(0);
    return gguf_type(t) == f32 && gguf_type(*ret) == f32
               ? 0
               : err_set(e, -EBADMSG, "is not a pair of F32 tensors");
}

static int pair_row(struct imatrix *m, const struct source *s, const struct gguf *g,
                    const struct gguf_tensor *t, const struct gguf_tensor *c, struct err *e)
{
    struct imatrix_row *row;
    if (t->n_elem == 0 || c->n_elem == 0 || t->n_elem % c->n_elem)
        return err_set(e, -EBADMSG, "%llu sums and %llu counts do not match",
                       (unsigned long long)t->n_elem, (unsigned long long)c->n_elem);
    int r = add_imatrix_row(m, gguf_name(g, t), t->name_len - strlen(SUMS), t->n_elem, &row, e);
    if (r == 0)
        r = read_floats(s, t->off, t->n_elem, g->fmt.big, row->of, e);
    const uint64_t n = t->n_elem / c->n_elem;
    for (uint64_t i = 0; r == 0 && i < c->n_elem; i++) {
        float count;
        r = read_floats(s, c->off + 4 * i, 1, g->fmt.big, &count, e);
        if (r == 0 && !(count >= 0 && count <= FLT_MAX))
            r = err_set(e, -EBADMSG, "count %llu is %g", (unsigned long long)i, (double)count);
        if (r == 0)
            r = divide(row, i * n, n, roundf(count), e);
        for (uint64_t k = i * n; r == 0 && roundf(count) == 0 && k < (i + 1) * n; k++)
            row->of[k] = 1;
    }
    return r;
}

static int parse_gguf(struct imatrix *m, const struct source *s, struct err *e)
{
    struct gguf *g;
    char shown[SHOW_MAX];
    int r = gguf_parse(s, 0, &g, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; r == 0 && i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i], *other;
        const struct text name = {gguf_name(g, t), t->name_len};
        const bool sums = text_ends(name, SUMS);
        if (!sums && !text_ends(name, COUNTS))
            continue;
        r = sums ? find_pair(g, t, SUMS, COUNTS, &other, e)
                 : find_pair(g, t, COUNTS, SUMS, &other, e);
        if (r == 0 && sums)
            r = pair_row(m, s, g, t, other, e);
        if (r < 0)
            (void)err_prefix(e, r, "tensor '%s'", show(shown, name.at, name.len));
    }
    gguf_free(g);
    return r;
}

/* ---- the older form ---- */

/* Checks that the file has n more bytes. */
static int next_bytes(const struct source *s, uint64_t at, uint64_t n, const char *what,
                      struct err *e)
{
    return n <= s->size - at ? 0
                             : err_set(e, -EBADMSG, "byte %llu: the file ends in %s",
                                       (unsigned long long)at, what);
}

/* Reads the number at *at, which must be at least `least`, and advances *at past it. */
static int next_int(const struct source *s, uint64_t *at, int32_t least, const char *what,
                    int32_t *ret, struct err *e)
{
    uint8_t b[4];
    int r = next_bytes(s, *at, 4, what, e);
    if (r == 0)
        r = read_some(s, *at, b, 4, e);
    if (r < 0)
        return r;
    *ret = (int32_t)get_u32(b, false);
    if (*ret < least)
        return err_set(e, -EBADMSG, "byte %llu: %s is %d", (unsigned long long)*at, what, *ret);
    *at += 4;
    return 0;
}

static int list_row(struct imatrix *m, const struct source *s, uint64_t *at, struct err *e)
{
    char name[UINT16_MAX], shown[SHOW_MAX];
    struct imatrix_row *row;
    int32_t len, calls, n;
    int r = next_int(s, at, 1, "the length of a name", &len, e);
    if (r == 0 && len > (int32_t)sizeof(name))
        r = err_set(e, -EBADMSG, "byte %llu: a name has %d bytes", (unsigned long long)*at, len);
    if (r == 0)
        r = next_bytes(s, *at, (uint64_t)len, "a name", e);
    if (r == 0)
        r = read_some(s, *at, name, (size_t)len, e);
    if (r < 0)
        return r;
    *at += (uint64_t)len;
    r = next_int(s, at, INT32_MIN, "a number of calls", &calls, e);
    if (r == 0)
        r = next_int(s, at, 1, "a number of columns", &n, e);
    if (r == 0)
        r = next_bytes(s, *at, 4 * (uint64_t)n, "importances", e);
    if (r == 0)
        r = add_imatrix_row(m, name, (size_t)len, (uint64_t)n, &row, e);
    if (r == 0)
        r = read_floats(s, *at, row->n, false, row->of, e);
    if (r == 0)
        r = divide(row, 0, row->n, (float)calls, e);
    if (r < 0)
        return err_prefix(e, r, "tensor '%s'", show(shown, name, (size_t)len));
    *at += 4 * row->n;
    return 0;
}

/* Parses the older format. Bytes after the rows are ignored. */
static int parse_entries(struct imatrix *m, const struct source *s, struct err *e)
{
    uint64_t at = 0;
    int32_t n;
    int r = next_int(s, &at, 1, "the number of tensors", &n, e);
    for (int32_t i = 0; r == 0 && i < n; i++)
        r = list_row(m, s, &at, e);
    return r;
}

/* ---- both ---- */

const struct imatrix_row *imatrix_find(const struct imatrix *m, const void *name, size_t n)
{
    for (size_t i = 0; m && i < m->n; i++)
        if (m->row[i].len == n && memcmp(m->row[i].name, name, n) == 0)
            return &m->row[i];
    return NULL;
}

int imatrix_parse(const struct source *s, const char *path, struct imatrix **ret, struct err *e)
{
    uint8_t magic[4] = {0};
    struct imatrix *m = calloc(1, sizeof(*m));
    if (!m)
        return lacks_memory(e);
    show_all(&m->path, path, strlen(path));
    int r = s->size < 4 ? err_set(e, -EBADMSG, "is not an importance matrix: it is too short")
                        : read_some(s, 0, magic, 4, e);
    if (r == 0)
        r = memcmp(magic, "GGUF", 4) == 0 ? parse_gguf(m, s, e) : parse_entries(m, s, e);
    if (r == 0 && m->n == 0)
        r = err_set(e, -EBADMSG, "is not an importance matrix: it has no tensors '...%s'", SUMS);
    if (r == 0 && buf_error(&m->path))
        r = lacks_memory(e);
    if (r < 0) {
        imatrix_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

int imatrix_open(const char *path, struct imatrix **ret, struct err *e)
{
    const struct sys *sys = &sys_libc;
    struct source s;
    const int fd = sys->openat(sys, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, fd, "cannot open");
    int r = source_fd(fd, &s, e);
    if (r == 0)
        r = imatrix_parse(&s, path, ret, e);
    (void)sys->close(sys, fd);
    return r;
}

void imatrix_free(struct imatrix *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        free(m->row[i].name);
        free(m->row[i].of);
    }
    free(m->row);
    buf_free(&m->path);
    free(m);
}

int imatrix_fit(const struct imatrix_row *r, uint32_t n_dims, const uint64_t *dims,
                struct quant_importances *ret, struct err *e)
{
    const uint64_t columns = n_dims ? dims[0] : 1, rows = n_dims > 1 ? dims[1] : 1;
    uint64_t matrices = 1;
    for (uint32_t i = 2; i < n_dims; i++)
        matrices *= dims[i];
    if (r->n != columns * matrices)
        return err_set(e, -EINVAL,
                       "the importance matrix has %" PRIu64 " columns for it, but the tensor has "
                       "%" PRIu64,
                       r->n, columns * matrices);
    *ret = (struct quant_importances){r->of, columns, columns * rows, 0};
    return 0;
}
