/* SPDX-License-Identifier: MIT */
/* Finds and reads the bytes of tensors: see store.h. */
#include "model/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/lock.h"
#include "base/sys.h"
#include "gguf/value.h"

/* Ranges of at least this many bytes keep their phase (see log_take()). */
#define LOG_ALIGNED ((uint64_t)4096)

/* ---- shapes ---- */

int tensor_shape_bytes(const struct tensor_shape *s, uint64_t *ret, struct err *e)
{
    const struct quant_type *type = quant_find(s->type);
    uint64_t elements = 1;
    if (!type || type->block_len == 0)
        return err_set(e, -EOPNOTSUPP, "a tensor of unknown type %u cannot be created", s->type);
    if (s->n_dims == 0 || s->n_dims > TENSOR_MAX_DIMS)
        return err_set(e, -EINVAL, "a shape has 1 to %d dimensions, not %u", TENSOR_MAX_DIMS,
                       s->n_dims);
    for (uint32_t i = 0; i < s->n_dims; i++) {
        if (s->dims[i] == 0)
            return err_set(e, -EINVAL, "a dimension is 0");
        if (!mul_u64(elements, s->dims[i], &elements) || elements > GGUF_MAX_ELEMENTS)
            return err_set(e, -EINVAL, "the number of elements overflows");
    }
    if (s->dims[0] % type->block_len)
        return err_set(e, -EINVAL,
                       "a row of %llu elements is not a whole number of blocks of %u (%s)",
                       (unsigned long long)s->dims[0], type->block_len, type->name);
    /* This cannot overflow: no type has more than 8 bytes per element, and `elements` is at most
     * 2^60. */
    *ret = elements / type->block_len * type->block_bytes;
    return *ret > INT64_MAX ? err_set(e, -EINVAL, "the size in bytes overflows") : 0;
}

/* ---- logs ---- */

int log_make(int fd, struct log **ret, struct err *e)
{
    struct log *s = calloc(1, sizeof(*s));
    int r = s ? source_fd(fd, &s->src, e) : err_set(e, -ENOMEM, "no memory for a draft");
    if (r < 0) {
        free(s);
        return r;
    }
    atomic_init(&s->refs, 1);
    atomic_init(&s->end, s->src.size);
    *ret = s;
    return 0;
}

void log_unref(struct log *s)
{
    if (!REF_DROP(s))
        return;
    (void)close(s->src.fd);
    free(s);
}

uint64_t log_take(struct log *s, uint64_t n, uint64_t phase)
{
    uint64_t at, end = atomic_load(&s->end);
    do {
        at = n < LOG_ALIGNED ? end : end + ((phase - end) & (LOG_BLOCK - 1));
    } while (!atomic_compare_exchange_weak(&s->end, &end, at + n));
    return at;
}

struct source log_source(const struct log *s)
{
    struct source ret = s->src;
    ret.size = log_end(s);
    return ret;
}

int log_check(struct log *s, const struct sys *sys, bool sync, struct err *e)
{
    int r = sync ? sys_sync(sys, s->src.fd) : sys->settled(sys, s->src.fd);
    if (r == -EIO || r == -ENOSPC || r == -EDQUOT || (sync && r < 0))
        atomic_store(&s->lost, r);
    r = atomic_load(&s->lost);
    return err_sys(e, r, "what was written to a tensor did not reach the disk");
}

/* ---- contents ---- */

void tensor_content_unref(struct tensor_content *k)
{
    if (!REF_DROP(k))
        return;
    for (size_t i = 0; i < k->n; i++)
        log_unref(k->piece[i].log);
    free(k);
}

static bool are_valid(const struct tensor_piece *p, size_t n, uint64_t nbytes)
{
    uint64_t at = 0, end, src;
    for (size_t i = 0; i < n; i++) {
        if (p[i].len == 0 || p[i].at < at || !add_u64(p[i].at, p[i].len, &end) || end > nbytes ||
            !add_u64(p[i].src, p[i].len, &src) || src > log_end(p[i].log))
            return false;
        at = end;
    }
    return true;
}

static void append_piece(struct tensor_content *k, struct tensor_piece p)
{
    struct tensor_piece *last = k->n ? &k->piece[k->n - 1] : NULL;
    if (last && last->log == p.log && last->at + last->len == p.at &&
        last->src + last->len == p.src) {
        last->len += p.len;
        return;
    }
    (void)REF(p.log);
    k->piece[k->n++] = p;
}

/* Merges the new pieces with the uncovered parts of the old ones. Both lists are in order. */
static void merge(struct tensor_content *k, const struct tensor_content *old,
                  const struct tensor_piece *piece, size_t n)
{
    uint64_t at = 0; /* all bytes before this offset are done */
    size_t o = 0, last = old ? old->n : 0;
    for (size_t i = 0; i <= n; i++) {
        uint64_t upto = i < n ? piece[i].at : k->nbytes;
        while (o < last && old->piece[o].at < upto) {
            const struct tensor_piece *p = &old->piece[o];
            uint64_t lo = max_u64(at, p->at), hi = min_u64(upto, p->at + p->len);
            if (lo < hi)
                append_piece(k, (struct tensor_piece){lo, hi - lo, p->src + (lo - p->at), p->log});
            if (p->at + p->len > upto)
                break;
            o++;
        }
        if (i < n) {
            append_piece(k, piece[i]);
            at = piece[i].at + piece[i].len;
        }
    }
}

int tensor_content_make(const struct tensor_shape *shape, uint64_t nbytes,
                        const struct tensor_content *old, const struct tensor_piece *piece,
                        size_t n, struct tensor_content **ret)
{
    if (!are_valid(piece, n, nbytes))
        return -EINVAL;
    /* A new piece splits at most one old piece in two. */
    size_t most = 2 * n + (old ? old->n : 0);
    struct tensor_content *k = calloc(1, sizeof(*k) + most * sizeof(*piece));
    if (!k)
        return -ENOMEM;
    atomic_init(&k->refs, 1);
    if (shape)
        k->shape = *shape;
    k->nbytes = nbytes;
    merge(k, old, piece, n);
    for (size_t i = 0; i < k->n; i++)
        k->fresh += k->piece[i].len;
    *ret = k;
    return 0;
}

uint64_t tensor_content_stretch(const struct tensor_content *k, uint64_t off, uint64_t n,
                                const struct tensor_piece **ret)
{
    const size_t i = k ? UPTO(k->piece, at, k->n, off) : 0;
    const struct tensor_piece *p = i ? &k->piece[i - 1] : NULL;
    *ret = p && off - p->at < p->len ? p : NULL;
    if (*ret)
        return min_u64(n, p->at + p->len - off);
    return k && i < k->n ? min_u64(n, k->piece[i].at - off) : n;
}

int tensor_piece_read(const struct tensor_piece *p, uint64_t off, void *dst, size_t n)
{
    return p->log->src.read(&p->log->src, p->src + (off - p->at), dst, n);
}

bool tensor_content_covers(const struct tensor_content *k)
{
    uint64_t at = 0;
    for (size_t i = 0; i < k->n && k->piece[i].at == at; i++)
        at += k->piece[i].len;
    return at == k->nbytes;
}

/* ---- mapped files ---- */

int mapped_open(int fd, uint64_t size, struct mapped **ret, struct err *e)
{
    struct mapped *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(e, -ENOMEM, "no memory");
    m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int r = m->fd < 0 ? err_set(e, -errno, "cannot duplicate: %s", strerror(errno))
                      : err_sys(e, map_open(&m->map, m->fd, size), "cannot map");
    if (r < 0) {
        sys_close(&sys_libc, &m->fd);
        free(m);
        return r;
    }
    atomic_init(&m->refs, 1);
    m->far = far_file(fd);
    if (m->far)
        far_init(&m->map);
    *ret = m;
    return 0;
}

void mapped_unref(struct mapped *m)
{
    if (!REF_DROP(m))
        return;
    map_close(&m->map);
    (void)close(m->fd);
    free(m);
}

int mapped_check(struct mapped *m, uint64_t end)
{
    int r = map_check(&m->map, end);
    if (r < 0)
        atomic_store(&m->cut, true);
    return r;
}

int mapped_copy(struct mapped *m, uint64_t off, void *dst, size_t n, uint64_t end)
{
    if (off > m->map.size || n > m->map.size - off)
        return -EIO;
    mapped_want(m, off, n, end);
    int r = map_copy(dst, m->map.data + off, n), cut = mapped_check(m, off + n);
    return r < 0 ? r : cut;
}

/*
 * Reads with pread(2): on a file system in memory, reading a hole through a mapping allocates its
 * pages.
 */
static int read_mapped(const struct source *s, uint64_t off, void *dst, size_t n)
{
    return sys_read_all(&sys_libc, s->fd, dst, n, off);
}

struct source mapped_source(struct mapped *m)
{
    return (struct source){.size = m->map.size, .read = read_mapped, .mem = m, .fd = m->fd};
}

/* Return the file of a source that mapped_source() made, or NULL for any other source. */
static struct mapped *mapped_of(const struct source *s)
{
    return s->read == read_mapped ? (struct mapped *)(uintptr_t)s->mem : NULL;
}

/* ---- stores ---- */

static void store_free(struct store *s)
{
    for (size_t i = 0; s->file && i < s->files; i++)
        mapped_unref(s->file[i]);
    for (size_t i = 0; s->place && i < s->n; i++)
        tensor_content_unref(s->place[i].over);
    free(s->file);
    free(s->place);
    free(s);
}

struct store *store_new(struct mapped *first, struct mapped *const *file, size_t files, size_t n)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->file = calloc(files + 1, sizeof(struct mapped *));
    s->place = calloc(n + 1, sizeof(*s->place));
    if (!s->file || !s->place) {
        store_free(s);
        return NULL;
    }
    for (; s->files < files; s->files++)
        s->file[s->files] = REF(first && s->files == 0 ? first : file[s->files]);
    s->n = n;
    return s;
}

int store_make(struct mapped *first, struct mapped *const *file, const struct gguf *const *g,
               size_t n, struct store **ret)
{
    size_t tensors = 0, at = 0;
    for (size_t k = 0; k < n; k++)
        tensors += g[k]->n_tensors;
    struct store *s = store_new(first, file, n, tensors);
    for (uint32_t k = 0; s && k < n; k++)
        for (uint32_t i = 0; i < g[k]->n_tensors; i++)
            s->place[at++] = (struct place_in_store){g[k]->tensor[i].off, k, k, NULL};
    if (!s)
        return -ENOMEM;
    *ret = s;
    return 0;
}

void store_unref(struct store *s)
{
    if (REF_DROP(s))
        store_free(s);
}

struct mapped *store_mapped(const struct store *s, uint32_t i, uint64_t off, uint64_t n,
                            uint64_t *at)
{
    const struct place_in_store *p = &s->place[i];
    const struct tensor_piece *piece = NULL;
    *at = p->off + off;
    if (p->over && n > 0 && (tensor_content_stretch(p->over, off, n, &piece) < n || piece))
        return NULL;
    return s->file[p->file];
}

int store_read(const struct store *s, uint32_t i, uint64_t off, void *dst, size_t n, uint64_t end)
{
    const struct place_in_store *p = &s->place[i];
    const struct tensor_piece *piece;
    uint8_t *to = dst;
    for (uint64_t len; n > 0; off += len, to += len, n -= (size_t)len) {
        len = tensor_content_stretch(p->over, off, n, &piece);
        int r = piece ? tensor_piece_read(piece, off, to, (size_t)len)
                      : mapped_copy(s->file[p->file], p->off + off, to, (size_t)len, p->off + end);
        if (r < 0)
            return r;
    }
    return 0;
}

int store_bytes(const struct store *s, uint32_t i, uint64_t first, uint64_t last, uint64_t end,
                uint8_t **room, const uint8_t **ret)
{
    uint64_t at, n = last - first;
    struct mapped *m = store_mapped(s, i, first, n, &at);
    *room = NULL;
    if (m) {
        if (n > 0 && at + n > m->map.size)
            return -EIO;
        *ret = m->map.data + min_u64(at, m->map.size);
        mapped_want(m, at, n, s->place[i].off + end);
        return 0;
    }
    *room = malloc((size_t)n);
    *ret = *room;
    int r = *room ? store_read(s, i, first, *room, (size_t)n, end) : -ENOMEM;
    if (r < 0) {
        free(*room);
        *room = NULL;
    }
    return r;
}

uint64_t store_there(const struct store *s, uint32_t i, uint64_t n)
{
    const struct place_in_store *p = &s->place[i];
    return p->over ? n : within_u64(p->off, n, s->file[p->file]->map.size);
}

int store_check(const struct store *s, uint32_t i, uint64_t first, uint64_t last)
{
    uint64_t at;
    struct mapped *m = store_mapped(s, i, first, last - first, &at);
    return m && last > first ? mapped_check(m, at + (last - first)) : 0;
}

bool store_cut(const struct store *s)
{
    bool cut = false;
    for (size_t i = 0; i < s->files; i++)
        cut |= atomic_load(&s->file[i]->cut);
    return cut;
}

/* ---- forms ---- */

bool form_decodes(const struct quant_form *f, const struct gguf *g, const struct gguf_tensor *t)
{
    return g->fmt.big || (f->width && t->type_id != f->same);
}

_Static_assert(GGUF_MAX_ELEMENTS <= INT64_MAX / QUANT_WIDEST,
               "the size of a view of values is an off_t");

uint64_t form_size(const struct quant_form *f, const struct gguf_tensor *t)
{
    return f->width ? t->n_elem * f->width : t->nbytes;
}

struct decode {
    const struct quant_form *form;
    const struct quant_type *type;
    bool big;
    const uint8_t *data;
    uint64_t off;
    size_t n;
    void *dst;
};

static int decode(void *arg)
{
    const struct decode *d = arg;
    quant_read(d->form, d->type, d->big, d->data, d->off, d->n, d->dst);
    return 0;
}

int form_read(const struct quant_form *f, const struct gguf *g, const struct store *s, uint32_t i,
              uint64_t off, void *dst, size_t n)
{
    const struct quant_type *type = gguf_type(&g->tensor[i]);
    const unsigned width = f->width ? f->width : type->block_bytes;
    uint64_t first, last;
    quant_extent(type, width, off, n, &first, &last);
    uint8_t *room;
    const uint8_t *data;
    int r = store_bytes(s, i, first, last, g->tensor[i].nbytes, &room, &data);
    if (r < 0)
        return r;
    off -= first / type->block_bytes * type->block_len * width;
    struct decode d = {f, type, g->fmt.big, data, off, n, dst};
    r = map_guard(decode, &d);
    free(room);
    return r < 0 ? r : store_check(s, i, first, last);
}

/* ---- images ---- */

struct image *image_new(const struct gguf *g)
{
    struct image *im = calloc(1, sizeof(*im));
    if (!im)
        return NULL;
    atomic_init(&im->refs, 1);
    im->g = g;
    return im;
}

void image_unref(struct image *im)
{
    if (!REF_DROP(im))
        return;
    for (size_t i = 0; i < im->files; i++)
        mapped_unref(mapped_of(&im->file[i]));
    free(im->file);
    free(im->seg);
    free(im->own);
    free(im);
}

uint32_t image_file(struct image *im, struct source src)
{
    struct mapped *m = mapped_of(&src);
    if (array_grow(&im->file, &im->cap_files, im->files, sizeof(*im->file)) < 0) {
        im->err = -ENOMEM;
        return 0;
    }
    if (m)
        (void)REF(m);
    im->file[im->files] = src;
    return (uint32_t)im->files++;
}

void image_own(struct image *im, void *memory)
{
    assert(!im->own);
    im->own = memory;
}

/* I2. Returns true if b continues a. */
static bool continues(const struct segment *a, const struct segment *b)
{
    if (a->from != b->from || a->no != b->no || a->from == IMAGE_VALUES)
        return false;
    if (a->from == IMAGE_MEMORY)
        return a->bytes + a->len == b->bytes;
    return a->from == IMAGE_ZERO || a->src + a->len == b->src;
}

static void add_segment(struct image *im, struct segment s)
{
    struct segment *last = im->n ? &im->seg[im->n - 1] : NULL;
    if (im->err || s.len == 0)
        return;
    s.at = im->size;
    if (s.len > INT64_MAX - im->size) {
        im->err = -EFBIG;
        return;
    }
    if (last && continues(last, &s)) {
        last->len += s.len;
    } else if (array_grow(&im->seg, &im->cap, im->n, sizeof(*im->seg)) < 0) {
        im->err = -ENOMEM;
        return;
    } else {
        im->seg[im->n++] = s;
    }
    im->size += s.len;
}

void image_add_memory(struct image *im, const void *bytes, uint64_t n)
{
    add_segment(im, (struct segment){.from = IMAGE_MEMORY, .len = n, .bytes = bytes});
}

void image_add_file(struct image *im, uint32_t file, uint64_t off, uint64_t n)
{
    add_segment(im, (struct segment){.from = IMAGE_FILE, .no = file, .len = n, .src = off});
}

void image_add_tensor(struct image *im, uint32_t i, uint64_t off, uint64_t n)
{
    add_segment(im, (struct segment){.from = IMAGE_TENSOR, .no = i, .len = n, .src = off});
}

void image_add_values(struct image *im, uint32_t i, const struct quant_form *form)
{
    const struct gguf_tensor *t = &im->g->tensor[i];
    struct segment s = {.from = IMAGE_VALUES, .no = i, .len = form_size(form, t), .form = form};
    if (form_decodes(form, im->g, t))
        add_segment(im, s);
    else
        image_add_tensor(im, i, 0, t->nbytes);
}

void image_add_zeros(struct image *im, uint64_t n)
{
    add_segment(im, (struct segment){.from = IMAGE_ZERO, .len = n});
}

/* I3. Checks one segment. */
static bool is_inside(const struct image *im, const struct segment *s)
{
    uint64_t end = 0;
    if (s->from == IMAGE_FILE)
        return s->no < im->files && add_u64(s->src, s->len, &end);
    if (s->from != IMAGE_TENSOR && s->from != IMAGE_VALUES)
        return true;
    if (!im->g || s->no >= im->g->n_tensors)
        return false;
    const struct gguf_tensor *t = &im->g->tensor[s->no];
    if (s->from == IMAGE_VALUES)
        return quant_has_values(gguf_type(t), im->g->fmt.big) && s->len == form_size(s->form, t);
    return add_u64(s->src, s->len, &end) && end <= t->nbytes;
}

int image_end(struct image *im)
{
    uint64_t at = 0;
    for (size_t i = 0; i < im->n && im->err == 0; i++) {
        const struct segment *s = &im->seg[i];
        assert(s->at == at && s->len > 0 && (i == 0 || !continues(s - 1, s)));
        if (!is_inside(im, s))
            im->err = -EINVAL;
        at += s->len;
    }
    assert(im->err || at == im->size);
    return im->err;
}

/*
 * Returns the reserve's entry, or NULL if the header has no reserve. This program never writes
 * version 1, so files of that version have none.
 */
static const struct gguf_kv *reserve_of(const struct gguf *g)
{
    uint32_t i =
        g->fmt.version > 1 ? gguf_find_key(g, KEY_RESERVE, strlen(KEY_RESERVE)) : UINT32_MAX;
    return i == UINT32_MAX ? NULL : &g->kv[i];
}

bool image_hides(const struct gguf *g)
{
    return reserve_of(g) != NULL;
}

void image_add_header(struct image *im, const struct gguf *g)
{
    const struct gguf_kv *r = reserve_of(g);
    const uint64_t count = 8 + g->fmt.len_width, keys = count + g->fmt.len_width;
    if (!r) {
        image_add_memory(im, g->head, g->head_len);
        return;
    }
    put_uint(im->count, g->n_kv - 1, g->fmt.len_width, g->fmt.big);
    image_add_memory(im, g->head, count);
    image_add_memory(im, im->count, g->fmt.len_width);
    image_add_memory(im, g->head + keys, r->off - keys);
    image_add_memory(im, g->head + r->end, g->head_len - r->end);
}

uint64_t image_cut(const struct gguf *g)
{
    const struct gguf_kv *r = reserve_of(g);
    if (!r)
        return 0;
    const uint64_t at = g->head_len - (r->end - r->off);
    return g->data_off - (g->n_tensors ? round_up(at, g->alignment) : at);
}

int image_of_model(const struct gguf *g, struct image **ret)
{
    const uint64_t cut = image_cut(g);
    struct image *im = image_new(g);
    if (!im)
        return -ENOMEM;
    image_add_header(im, g);
    for (uint32_t i = 0; i < g->n_tensors && im->err == 0; i++) {
        const uint64_t at = g->tensor[i].off - cut;
        if (g->tensor[i].nbytes == 0)
            continue;
        if (at < im->size)
            im->err = -EINVAL;
        else
            image_add_zeros(im, at - im->size);
        image_add_tensor(im, i, 0, g->tensor[i].nbytes);
    }
    image_add_zeros(im, max_u64(g->file_size - cut, im->size) - im->size);
    int r = image_end(im);
    if (r == 0)
        *ret = im;
    else
        image_unref(im);
    return r;
}

const struct segment *image_at(const struct image *im, uint64_t off)
{
    return &im->seg[UPTO(im->seg, at, im->n, off) - 1];
}

/*
 * Returns the mapping that holds the n bytes at offset `in` of a segment, and sets *at to their
 * offset in the mapping. Returns NULL if no mapping holds them.
 */
static struct mapped *find_mapped(const struct image *im, const struct store *s,
                                  const struct segment *seg, uint64_t in, size_t n, uint64_t *at)
{
    *at = in;
    if (seg->from == IMAGE_FILE) {
        *at += seg->src;
        return mapped_of(&im->file[seg->no]);
    }
    if (seg->from != IMAGE_TENSOR || !s)
        return NULL;
    return store_mapped(s, seg->no, seg->src + in, n, at);
}

static int read_segment(const struct image *im, const struct store *s, const struct segment *seg,
                        uint64_t in, void *dst, size_t n)
{
    const struct source *src = seg->from == IMAGE_FILE ? &im->file[seg->no] : NULL;
    uint64_t at;
    struct mapped *m = find_mapped(im, s, seg, in, n, &at);
    if (m && s)
        return mapped_copy(m, at, dst, n, m->map.size);
    if (seg->from == IMAGE_TENSOR && s)
        return store_read(s, seg->no, seg->src + in, dst, n, im->g->tensor[seg->no].nbytes);
    if (seg->from == IMAGE_VALUES && s)
        return form_read(seg->form, im->g, s, seg->no, in, dst, n);
    if (src && src->read)
        return within_u64(at, n, src->size) < n ? -EIO : src->read(src, at, dst, n);
    if (seg->from == IMAGE_MEMORY)
        memcpy(dst, seg->bytes + in, n);
    else
        memset(dst, 0, n);
    return 0;
}

int image_read(const struct image *im, const struct store *s, uint64_t off, void *dst, size_t n)
{
    uint8_t *to = dst;
    if (off > im->size || n > im->size - off)
        return -EIO;
    for (const struct segment *seg = n ? image_at(im, off) : NULL; n > 0; seg++) {
        uint64_t in = off - seg->at;
        size_t part = (size_t)min_u64(n, seg->len - in);
        int r = read_segment(im, s, seg, in, to, part);
        if (r < 0)
            return r;
        to += part;
        off += part;
        n -= part;
    }
    return 0;
}

struct mapped *image_mapped(const struct image *im, const struct store *s, uint64_t off, size_t n,
                            uint64_t *at)
{
    const struct segment *seg = off < im->size ? image_at(im, off) : NULL;
    if (!seg || n > seg->len - (off - seg->at))
        return NULL;
    return find_mapped(im, s, seg, off - seg->at, n, at);
}

static int read_source(const struct source *src, uint64_t off, void *dst, size_t n)
{
    return image_read(src->mem, NULL, off, dst, n);
}

struct source image_source(const struct image *im)
{
    return (struct source){.size = im->size, .read = read_source, .mem = im, .fd = -1};
}
