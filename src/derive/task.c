/* SPDX-License-Identifier: MIT */
/* Computes a result for a tensor: see task.h. */
#include "derive/task.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/pool.h"

/* Bytes hashed and values measured per unit, which takes a few milliseconds. Values are measured in
 * whole stretches. */
#define HASHED ((uint64_t)8 << 20)
#define MEASURED ((uint64_t)1024 * STATS_STRETCH)

/* Number of values that each thread has room for. */
enum { ROOM = 4096 };
_Static_assert((int)ROOM >= (int)PICTURE_ROOM && (int)ROOM >= (int)STATS_STRETCH, "room for all");

/* A pass over all values of the tensor. */
struct task_pass {
    struct task *t;
    const struct gguf_tensor *tensor;
    const struct quant_type *type;
    bool big;
    int (*look)(void *unit); /* runs under map_guard() */
    EVP_MD_CTX *digest;      /* for a hash */
    struct {
        struct moments moments;
        struct spread spread;
    } * part;    /* owned; one per unit */
    bool second; /* the moments are known */
    struct alive alive;
    struct picture picture;
    float *pixel; /* owned; see picture_pixels() */
};

struct task_unit {
    struct task_pass *p;
    uint64_t no, first, end; /* number of the unit; range of its values, or of bytes to hash */
    const uint8_t *data;     /* data of the tensor */
    float *room;
};

static uint64_t parts(uint64_t n, uint64_t size)
{
    return n / size + (n % size != 0);
}

static int measure_unit(void *arg)
{
    const struct task_unit *u = arg;
    struct task_pass *p = u->p;
    for (uint64_t at = u->first; at < u->end; at += STATS_STRETCH) {
        size_t n = (size_t)min_u64(STATS_STRETCH, u->end - at);
        floats_read(p->type, p->big, u->data, at, n, u->room);
        if (p->second)
            spread_add(&p->part[u->no].spread, &p->alive, &p->t->moments, u->room, at, n);
        else
            moments_add(&p->part[u->no].moments, u->room, n);
    }
    return 0;
}

static int draw(void *arg)
{
    const struct task_unit *u = arg;
    const struct task_pass *p = u->p;
    picture_pixels(&p->picture, p->type, p->big, u->data, u->no, u->room, p->pixel);
    return 0;
}

/* Run a unit. A page partly beyond the end of a truncated file reads as zeros, so the length is
 * checked afterwards. */
static int do_unit(void *arg, uint64_t no, void *room)
{
    struct task_pass *p = arg;
    const struct task *t = p->t;
    const uint64_t size = p->digest ? HASHED : MEASURED;
    const uint64_t all = p->digest ? p->tensor->nbytes : p->tensor->n_elem;
    struct task_unit u = {p, no, no * size, min_u64((no + 1) * size, all), NULL, room};
    if (p->pixel)
        picture_values(&p->picture, no, &u.first, &u.end);
    uint64_t first = u.first, end = u.end;
    uint8_t *copy;
    if (!p->digest)
        quant_extent(p->type, sizeof(float), first * sizeof(float),
                     (size_t)(end - first) * sizeof(float), &first, &end);
    int r = store_bytes(t->view.store, t->tensor, first, end, p->tensor->nbytes, &copy, &u.data);
    if (r < 0)
        return r;
    /* Point to where byte 0 would be; only bytes [first, end) are accessed. */
    u.data = (const uint8_t *)((uintptr_t)u.data - (uintptr_t)first);
    r = map_guard(p->look, &u);
    free(copy);
    return r < 0 ? r : store_check(t->view.store, t->tensor, first, end);
}

static int run_units(struct task_pass *p, uint64_t n)
{
    const struct units_watch watch = {.cancel = p->t->stop};
    struct units u = {.n = n, .unit = do_unit, .arg = p, .room = ROOM * sizeof(float)};
    return units_run(&u, &watch);
}

/* Hash a unit's bytes. Must not allocate memory or take a lock. */
static int hash(void *arg)
{
    const struct task_unit *u = arg;
    const size_t n = (size_t)(u->end - u->first);
    return EVP_DigestUpdate(u->p->digest, u->data + u->first, n) == 1 ? 0 : -EIO;
}

static int run_hash(struct task_pass *p)
{
    uint8_t got[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    const uint64_t n = max_u64(1, parts(p->tensor->nbytes, HASHED));
    p->look = hash;
    p->digest = EVP_MD_CTX_new();
    int r = p->digest && EVP_DigestInit_ex(p->digest, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
    for (uint64_t i = 0; r == 0 && i < n; i++)
        r = atomic_load(p->t->stop) ? -EINTR : do_unit(p, i, NULL);
    if (r == 0 && EVP_DigestFinal_ex(p->digest, got, &len) != 1)
        r = -EIO;
    for (unsigned i = 0; i < len; i++)
        buf_printf(&p->t->bytes, "%02x", got[i]);
    buf_char(&p->t->bytes, '\n');
    EVP_MD_CTX_free(p->digest);
    return r;
}

static int run_stats(struct task_pass *p)
{
    struct task *t = p->t;
    const struct gguf *g = t->view.snap->gguf;
    const uint64_t n = parts(p->tensor->n_elem, MEASURED);
    struct spread all = {0};
    p->look = measure_unit;
    p->part = calloc(n + 1, sizeof(*p->part));
    int r = p->part ? 0 : -ENOMEM;
    if (r == 0 && !t->measured) {
        r = run_units(p, n);
        t->moments = MOMENTS_NONE;
        for (uint64_t i = 0; r == 0 && i < n; i++)
            moments_join(&t->moments, &p->part[i].moments);
    }
    if (t->what == DERIVED_MOMENTS)
        buf_add(&t->bytes, &t->moments, sizeof(t->moments));
    if (r < 0 || t->what == DERIVED_MOMENTS)
        return r;
    p->second = true;
    r = alive_begin(&p->alive, g, p->tensor);
    if (r == 0)
        r = run_units(p, n);
    for (uint64_t i = 0; r == 0 && i < n; i++)
        spread_join(&all, &p->part[i].spread);
    if (r == 0)
        stats_text(g, p->tensor, &t->moments, &all, &p->alive, &t->bytes);
    return r;
}

/* ---- pictures: the layout ---- */

struct picture picture_of(const struct gguf *g, const struct gguf_tensor *t)
{
    struct picture p = {.n = t->n_elem, .columns = t->n_dims ? gguf_dim(g, t, 0) : 1};
    if (t->n_dims == 1)
        p.columns = (uint64_t)ceil(sqrt((double)p.n));
    p.rows = p.columns ? p.n / p.columns + (p.n % p.columns != 0) : 0;
    p.height = (uint32_t)max_u64(1, min_u64(p.rows, PICTURE_MOST));
    p.width = (uint32_t)max_u64(1, min_u64(p.columns, PICTURE_MOST));
    return p;
}

/* Return floor(i * n / parts) without overflow: the start of part i when n items are divided into
 * `parts` parts. */
static uint64_t part_start(uint64_t n, uint32_t i, uint32_t parts)
{
    return n / parts * i + n % parts * i / parts;
}

void picture_values(const struct picture *p, uint64_t y, uint64_t *first, uint64_t *end)
{
    *first = min_u64(p->n, part_start(p->rows, (uint32_t)y, p->height) * p->columns);
    *end = min_u64(p->n, part_start(p->rows, (uint32_t)y + 1, p->height) * p->columns);
}

/* ---- values ---- */

struct sums {
    double squares[PICTURE_MOST];
    uint64_t n[PICTURE_MOST];
    bool broken[PICTURE_MOST]; /* the block has a value that is not finite */
};

/* Add n values to pixel x. */
static void add_run(struct sums *s, uint32_t x, const float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i]))
            sum += (double)v[i] * (double)v[i];
        else
            s->broken[x] = true;
    s->n[x] += n;
    s->squares[x] += sum;
}

void picture_pixels(const struct picture *p, const struct quant_type *type, bool big,
                    const uint8_t *data, uint64_t y, float *room, float *pixel)
{
    struct sums s;
    uint64_t at, end, column = 0;
    uint32_t x = 0;
    memset(&s, 0, sizeof(s));
    picture_values(p, y, &at, &end);
    for (size_t n, i, run; at < end; at += n) {
        n = (size_t)min_u64(PICTURE_ROOM, end - at);
        floats_read(type, big, data, at, n, room);
        for (i = 0; i < n; i += run) {
            while (part_start(p->columns, x + 1, p->width) <= column)
                x++;
            run = (size_t)min_u64(n - i, part_start(p->columns, x + 1, p->width) - column);
            add_run(&s, x, room + i, run);
            column += run;
            if (column == p->columns) /* the next row of the grid */
                column = x = 0;
        }
    }
    for (x = 0, pixel += y * p->width; x < p->width; x++)
        pixel[x] = s.broken[x] ? INFINITY
                   : s.n[x]    ? (float)sqrt(s.squares[x] / (double)s.n[x])
                               : NAN;
}

/* ---- PNG ---- */

/*
 * A PNG file consists of a signature and the chunks IHDR, IDAT and IEND. A chunk consists of a u32
 * length, a type, data, and the CRC-32 of type and data. The data of IDAT is a zlib stream of
 * stored blocks, which contain the rows, each preceded by a 0 byte (no filter).
 */
enum {
    SIGNATURE = 8,
    CHUNK = 12,    /* size of a chunk without its data */
    HEADER = 13,   /* size of the data of IHDR */
    ZLIB = 2 + 4,  /* size of the stream's header and Adler-32 */
    STORED = 5,    /* size of a block's header and lengths */
    BLOCK = 65535, /* maximum number of bytes in a block */
};

static size_t pixels_size(const struct picture *p)
{
    return p->height * (1 + 3 * (size_t)p->width);
}

static size_t stream_size(const struct picture *p)
{
    size_t n = pixels_size(p);
    return ZLIB + n + STORED * ((n + BLOCK - 1) / BLOCK);
}

size_t picture_size(const struct picture *p)
{
    return SIGNATURE + 3 * CHUNK + HEADER + stream_size(p);
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Return the 99.9th percentile of the pixels above 0; 0 if there are no such pixels; -1 if out of
 * memory. */
static double brightest(const float *pixel, size_t n)
{
    float *bright = malloc(n * sizeof(*bright));
    size_t k = 0;
    for (size_t i = 0; bright && i < n; i++)
        if (pixel[i] > 0 && isfinite(pixel[i]))
            bright[k++] = pixel[i];
    if (k > 0)
        qsort(bright, k, sizeof(*bright), by_size);
    const double ret = !bright ? -1 : k ? (double)bright[(k - 1) * 999 / 1000] : 0;
    free(bright);
    return ret;
}

static void colour(uint8_t dst[3], float v, double most)
{
    static const uint8_t ramp[][3] = {{0, 0, 4},     {87, 16, 110},   {188, 55, 84},
                                      {249, 142, 9}, {252, 255, 164}, {252, 255, 164}};
    static const uint8_t none[] = {128, 128, 128}, broken[] = {0, 200, 0}, beyond[] = {0, 255, 255};
    if (!isfinite(v) || (double)v > 2 * most) {
        memcpy(dst, isnan(v) ? none : isinf(v) ? broken : beyond, 3);
        return;
    }
    double place = most > 0 ? 4 * fmin((double)v / most, 1) : 0;
    for (int i = 0; i < 3; i++) {
        double low = ramp[(int)place][i], high = ramp[(int)place + 1][i];
        dst[i] = (uint8_t)lround(low + (high - low) * (place - (int)place));
    }
}

/* Begin a chunk with n bytes of data. Returns the offset of the data. */
static size_t chunk_begin(struct buf *out, const char *type, size_t n)
{
    buf_uint(out, n, 4, true);
    buf_str(out, type);
    return out->len;
}

static void chunk_end(struct buf *out, size_t begin)
{
    if (buf_error(out))
        return;
    buf_uint(out, crc32_z(0, out->data + begin - 4, out->len - begin + 4), 4, true);
}

static void add_stream(struct buf *out, const uint8_t *pixels, size_t n)
{
    buf_add(out, "\x78\x01", 2);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = (size_t)min_u64(BLOCK, n - at);
        buf_char(out, at + len == n);
        buf_uint(out, len, 2, false);
        buf_uint(out, len ^ 0xffff, 2, false);
        buf_add(out, pixels + at, len);
    }
    buf_uint(out, adler32_z(1, pixels, n), 4, true);
}

/* Write the file, given all pixels. */
static void picture_png(const struct picture *p, const float *pixel, struct buf *out)
{
    CLEANUP(buf_free) struct buf pixels = BUF_INIT;
    size_t n = pixels_size(p);
    uint8_t *at = buf_extend(&pixels, n);
    double most = brightest(pixel, (size_t)p->width * p->height);
    if (!at || most < 0) {
        out->err = -ENOMEM;
        return;
    }
    for (uint32_t y = 0; y < p->height; y++) {
        *at++ = 0;
        for (uint32_t x = 0; x < p->width; x++, at += 3)
            colour(at, *pixel++, most);
    }
    buf_add(out, "\x89PNG\r\n\x1a\n", SIGNATURE);
    size_t begin = chunk_begin(out, "IHDR", HEADER);
    buf_uint(out, p->width, 4, true);
    buf_uint(out, p->height, 4, true);
    buf_add(out, "\x08\x02\x00\x00\x00", 5); /* 8 bits, RGB, deflate, no filters, not interlaced */
    chunk_end(out, begin);
    begin = chunk_begin(out, "IDAT", stream_size(p));
    add_stream(out, pixels.data, n);
    chunk_end(out, begin);
    chunk_end(out, chunk_begin(out, "IEND", 0));
}

/* ---- any result ---- */

static int run_picture(struct task_pass *p)
{
    p->picture = picture_of(p->t->view.snap->gguf, p->tensor);
    p->look = draw;
    p->pixel = malloc((size_t)p->picture.height * p->picture.width * sizeof(*p->pixel));
    int r = p->pixel ? run_units(p, p->picture.height) : -ENOMEM;
    if (r == 0)
        picture_png(&p->picture, p->pixel, &p->t->bytes);
    return r;
}

int task_run(struct task *t)
{
    const struct gguf *g = t->view.snap->gguf;
    const struct gguf_tensor *tensor = &g->tensor[t->tensor];
    struct task_pass p = {.t = t, .tensor = tensor, .type = gguf_type(tensor), .big = g->fmt.big};
    int r = -EIO;
    if (store_there(t->view.store, t->tensor, tensor->nbytes) == tensor->nbytes)
        r = t->what == DERIVED_SHA256    ? run_hash(&p)
            : t->what == DERIVED_PICTURE ? run_picture(&p)
                                         : run_stats(&p);
    free(p.part);
    alive_free(&p.alive);
    free(p.pixel);
    return r < 0 ? r : buf_error(&t->bytes);
}
