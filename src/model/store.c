/* SPDX-License-Identifier: MIT */
/* Stores: see store.h. */
#include "model/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/sys.h"

int mapped_open(int fd, uint64_t size, struct mapped **ret, struct err *e)
{
    struct mapped *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(e, -ENOMEM, "no memory");
    int r = map_open(&m->map, fd, size);
    if (r < 0) {
        free(m);
        return err_sys(e, r, "cannot map");
    }
    atomic_init(&m->refs, 1);
    m->fd = fd;
    m->far = far_file(fd);
    if (m->far)
        far_init(&m->map);
    *ret = m;
    return 0;
}

struct mapped *mapped_ref(struct mapped *m)
{
    atomic_fetch_add(&m->refs, 1);
    return m;
}

void mapped_unref(struct mapped *m)
{
    if (!m || atomic_fetch_sub(&m->refs, 1) != 1)
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

int mapped_copy_of(struct mapped *m, uint64_t off, void *dst, size_t n, uint64_t end)
{
    if (off > m->map.size || n > m->map.size - off)
        return -EIO;
    mapped_want(m, off, n, end);
    int r = map_copy(dst, m->map.data + off, n), cut = mapped_check(m, off + n);
    return r < 0 ? r : cut;
}

int mapped_copy(struct mapped *m, uint64_t off, void *dst, size_t n)
{
    return mapped_copy_of(m, off, dst, n, m->map.size);
}

/* From this size on it is cheaper to ask whether bytes are a hole than to read a hole, which fills pages of memory. */
#define HOLE_LEAST ((size_t)64 << 10)

/* True: a hole, with data after it. Without data after it the file may have been cut. */
static bool is_hole(int fd, uint64_t off, size_t n)
{
    uint64_t data = off;
    return n >= HOLE_LEAST && sys_libc.seek(&sys_libc, fd, off, SEEK_DATA, &data) == 0 &&
           data - off >= n;
}

/* With pread(2): on a file system in memory, reading a hole through a mapping allocates its pages. */
static int read_mapped(const struct source *s, uint64_t off, void *dst, size_t n)
{
    if (!is_hole(s->fd, off, n))
        return sys_read_all(&sys_libc, s->fd, dst, n, off);
    memset(dst, 0, n);
    return 0;
}

struct source mapped_source(struct mapped *m)
{
    return (struct source){.size = m->map.size, .read = read_mapped, .mem = m, .fd = m->fd};
}

struct mapped *mapped_of(const struct source *s)
{
    return s->read == read_mapped ? (struct mapped *)(uintptr_t)s->mem : NULL;
}

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

int store_make(struct mapped *const *file, const struct gguf *const *g, size_t n,
               struct store **ret)
{
    size_t tensors = 0, at = 0;
    for (size_t k = 0; k < n; k++)
        tensors += g[k]->n_tensors;
    struct place_in_store *place = malloc((tensors + 1) * sizeof(*place));
    if (!place)
        return -ENOMEM;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < g[k]->n_tensors; i++)
            place[at++] = (struct place_in_store){g[k]->tensor[i].off, k, k, NULL};
    int r = store_of(file, n, place, tensors, ret);
    free(place);
    return r;
}

int store_of(struct mapped *const *file, size_t files, const struct place_in_store *place, size_t n,
             struct store **ret)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    atomic_init(&s->refs, 1);
    s->file = calloc(files + 1, sizeof(struct mapped *));
    s->place = malloc((n + 1) * sizeof(*s->place));
    if (!s->file || !s->place) {
        store_free(s);
        return -ENOMEM;
    }
    for (size_t i = 0; i < files; i++)
        s->file[i] = mapped_ref(file[i]);
    s->files = files;
    memcpy(s->place, place, n * sizeof(*place));
    s->n = n;
    for (size_t i = 0; i < n; i++)
        (void)tensor_content_ref(place[i].over);
    *ret = s;
    return 0;
}

struct store *store_ref(struct store *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void store_unref(struct store *s)
{
    if (s && atomic_fetch_sub(&s->refs, 1) == 1)
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
        int r = piece
                    ? tensor_piece_read(piece, off, to, (size_t)len)
                    : mapped_copy_of(s->file[p->file], p->off + off, to, (size_t)len, p->off + end);
        if (r < 0)
            return r;
    }
    return 0;
}

int store_bytes(const struct store *s, uint32_t i, uint64_t first, uint64_t last, uint64_t end,
                uint8_t **room, const uint8_t **ret)
{
    uint64_t at, upto, n = last - first;
    struct mapped *m = store_mapped(s, i, first, n, &at);
    *room = NULL;
    if (m) {
        if (n > 0 && (!add_u64(at, n, &upto) || upto > m->map.size))
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
