/* SPDX-License-Identifier: MIT */
/* Stores: see store.h. */
#include "model/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fetch.h"
#include "base/sys.h"

/* Bytes that are copied at a time. */
#define COPY_ROOM ((size_t)1 << 20)

int mapped_open(int fd, uint64_t size, struct mapped **ret, struct err *e)
{
    struct mapped *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(e, -ENOMEM, "no memory");
    int r = map_open(&m->map, fd, size);
    if (r < 0) {
        free(m);
        return err_set(e, r, "cannot map: %s", strerror(-r));
    }
    atomic_init(&m->refs, 1);
    m->fd = fd;
    m->from = far_file(fd) ? MAPPED_FAR : MAPPED_DISK;
    if (m->from == MAPPED_FAR)
        far_init(&m->runs, &m->map);
    else
        runs_init(&m->runs, MAPPED_AHEAD_LEAST, MAPPED_AHEAD);
    *ret = m;
    return 0;
}

struct mapped *mapped_of_pages(int fd, uint64_t base, const void *pages, uint64_t size,
                               uint64_t own)
{
    struct mapped *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    atomic_init(&m->refs, 1);
    atomic_init(&m->frozen, true);
    m->fd = fd;
    m->map = (struct map){.fd = fd, .data = pages, .size = size, .own = own, .base = base};
    return m;
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
    if (m->from != MAPPED_PAGES)
        runs_free(&m->runs);
    map_close(&m->map);
    (void)close(m->fd);
    free(m);
}

static void release(void *owner)
{
    mapped_unref(owner);
}

static void want_pages(struct mapped *m, uint64_t off, uint64_t n, uint64_t end)
{
    uint64_t from, upto, size = m->map.size;
    if (off > size || n > size - off)
        return;
    upto = runs_note(&m->runs, off, n, min_u64(end, size), size, &from);
    if (from < upto && !fetch_pages(&m->map, from, upto - from, mapped_ref(m), release))
        mapped_unref(m);
}

void mapped_want(struct mapped *m, uint64_t off, uint64_t n, uint64_t end)
{
    if (m->from == MAPPED_FAR)
        far_want(&m->runs, &m->map, off, n, end);
    else if (m->from == MAPPED_DISK)
        want_pages(m, off, n, end);
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

int mapped_lay(struct mapped *m, uint64_t off, uint64_t n, int fd, uint64_t at)
{
    if (off >= m->map.size)
        return 0;
    void *to = (void *)(uintptr_t)(m->map.data + off);
    n = min_u64(n, m->map.size - off);
    if (mmap(to, (size_t)n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)at) == MAP_FAILED)
        return -errno;
    atomic_store(&m->frozen, true);
    return 0;
}

int mapped_freeze(struct mapped *m, uint64_t off, uint64_t n, int fd, uint64_t at, uint64_t *copied)
{
    const struct sys *s = &sys_libc;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), last = off + n;
    off = max_u64(off, m->map.base) - m->map.base;
    last = max_u64(last, m->map.base) - m->map.base;
    uint64_t lo = off & ~(page - 1), end = min_u64(m->map.size, (last + page - 1) & ~(page - 1));
    uint64_t done = 0;
    *copied = 0;
    if (off >= last || lo >= end)
        return 0;
    uint8_t *room = malloc(COPY_ROOM);
    int r = room ? 0 : -ENOMEM;
    while (r == 0 && done < end - lo) {
        size_t k = (size_t)min_u64(COPY_ROOM, end - lo - done);
        r = mapped_copy(m, lo + done, room, k);
        if (r == 0)
            r = sys_write_all(s, fd, room, k, at + done);
        done += k;
    }
    free(room);
    uint64_t whole = (end - lo + page - 1) & ~(page - 1);
    if (r == 0)
        r = s->ftruncate(s, fd, at + whole);
    void *addr = (void *)(uintptr_t)(m->map.data + lo);
    if (r == 0 && mmap(addr, (size_t)(end - lo), PROT_READ, MAP_SHARED | MAP_FIXED, fd,
                       (off_t)at) == MAP_FAILED)
        r = -errno;
    if (r < 0)
        return r;
    atomic_store(&m->frozen, true);
    *copied = whole;
    return 0;
}

/* Bytes from which on to ask whether they are a hole is quicker than to read one: that fills pages of memory. */
#define HOLE_LEAST ((size_t)64 << 10)

/* True: a hole, with data behind it. Without data behind it the file may have been cut. */
static bool is_hole(int fd, uint64_t off, size_t n)
{
    uint64_t data = off;
    return n >= HOLE_LEAST && sys_libc.seek(&sys_libc, fd, off, SEEK_DATA, &data) == 0 &&
           data - off >= n;
}

/*
 * By pread(2): on a file system in memory, reading a hole through a mapping fills it with a page.
 */
static int read_mapped(const struct source *s, uint64_t off, void *dst, size_t n)
{
    struct mapped *m = (struct mapped *)(uintptr_t)s->mem;
    int r = 0;
    if (is_hole(s->fd, off, n))
        memset(dst, 0, n);
    else
        r = sys_read_all(&sys_libc, s->fd, dst, n, off);
    /* The file may have been changed before or while it was read. */
    return atomic_load(&m->frozen) ? mapped_copy(m, off, dst, n) : r;
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
    free(s->file);
    free(s->place);
    free(s);
}

static void fill(struct store *s, struct mapped *const *file, const struct gguf *const *g)
{
    size_t at = 0;
    for (uint32_t k = 0; k < s->files; k++) {
        s->file[k] = mapped_ref(file[k]);
        for (uint32_t i = 0; i < g[k]->n_tensors; i++)
            s->place[at++] = (struct place_in_store){g[k]->tensor[i].off, k, k};
    }
}

int store_make(struct mapped *const *file, const struct gguf *const *g, size_t n,
               struct store **ret)
{
    size_t tensors = 0;
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        tensors += g[i]->n_tensors;
    atomic_init(&s->refs, 1);
    s->file = calloc(n, sizeof(struct mapped *));
    s->place = malloc((tensors + 1) * sizeof(*s->place));
    if (!s->file || !s->place) {
        store_free(s);
        return -ENOMEM;
    }
    s->files = n;
    s->n = tensors;
    fill(s, file, g);
    *ret = s;
    return 0;
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
    *ret = s;
    return 0;
}

int store_with(const struct store *base, const struct store *to, uint32_t no, size_t n,
               struct store **ret)
{
    const size_t files = base->files + (to->files - n);
    struct mapped **file = malloc(files * sizeof(struct mapped *));
    struct place_in_store *place = malloc((base->n + 1) * sizeof(*place));
    int r = file && place ? 0 : -ENOMEM;
    if (r == 0) {
        memcpy((void *)file, (const void *)base->file, base->files * sizeof(struct mapped *));
        memcpy((void *)(file + base->files), (const void *)(to->file + n),
               (to->files - n) * sizeof(struct mapped *));
        file[no] = to->file[no];
    }
    for (size_t i = 0; r == 0 && i < base->n; i++) {
        place[i] = base->place[i].shard == no ? to->place[i] : base->place[i];
        if (base->place[i].shard == no && place[i].file >= n)
            place[i].file += (uint32_t)(base->files - n);
    }
    if (r == 0)
        r = store_of(file, files, place, base->n, ret);
    free((void *)file);
    free(place);
    return r;
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

const uint8_t *store_data(const struct store *s, uint32_t i, uint64_t first, uint64_t last)
{
    if (i >= s->n)
        return NULL;
    const struct map *m = &s->file[s->place[i].file]->map;
    uint64_t off = s->place[i].off, end;
    if (last == 0) /* no bytes: a tensor without elements may lie behind the end */
        return m->data + min_u64(off, m->size);
    if (!add_u64(off, last, &end) || end > m->size)
        return NULL;
    return m->data + off + first;
}

void store_want(const struct store *s, uint32_t i, uint64_t first, uint64_t last, uint64_t n)
{
    uint64_t off = s->place[i].off;
    mapped_want(s->file[s->place[i].file], off + first, last - first, off + n);
}

uint64_t store_there(const struct store *s, uint32_t i, uint64_t n)
{
    uint64_t size = s->file[s->place[i].file]->map.size, off = s->place[i].off;
    return within_u64(off, n, size);
}

int store_check(const struct store *s, uint32_t i, uint64_t last)
{
    return last ? mapped_check(s->file[s->place[i].file], s->place[i].off + last) : 0;
}

bool store_cut(const struct store *s)
{
    bool cut = false;
    for (size_t i = 0; i < s->files; i++)
        cut |= atomic_load(&s->file[i]->cut);
    return cut;
}
