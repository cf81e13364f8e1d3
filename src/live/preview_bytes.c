/* SPDX-License-Identifier: MIT */
/* Bytes of tensors that are changed and not on the disk: see preview_bytes.h. */
#include "live/preview_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"

/* Changed bytes of a tensor up to this are kept in memory, as the pages that have them. */
#define IN_MEMORY ((uint64_t)16 << 20)
/* And so many ranges of drafts are mapped: a process has some 65,000 mappings. */
#define MOST_RUNS 256

int preview_read(const struct edit_file *f, const struct edit_draft *d, uint64_t from, void *dst,
                 size_t n)
{
    const struct source *s = &d->src;
    int r = s->fd >= 0 ? sys_read_all(f->sys, s->fd, dst, n, from)
                       : map_copy(dst, (const uint8_t *)s->mem + from, n);
    return r == -EFAULT ? -EIO : r;
}

/* Ranges of drafts that continue each other. */
struct run {
    uint64_t at, len, src;
    struct edit_draft *draft;
};

/* The run of pieces from *i on, which is that behind them then. */
static struct run run_at(const struct edit_content *k, size_t *i)
{
    const struct edit_piece *p = &k->piece[*i];
    struct run r = {p->at, p->len, p->src, p->draft};
    while (++*i < k->n) {
        p = &k->piece[*i];
        if (p->draft != r.draft || p->at != r.at + r.len || p->src != r.src + r.len)
            break;
        r.len += p->len;
    }
    return r;
}

/* The whole pages of a run that can be mapped, `in` bytes behind the begin of a page: bytes [*lo, *hi)
 * of the run; none: they are equal. */
static void whole_pages(const struct run *r, uint64_t in, uint64_t *lo, uint64_t *hi)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = (in + r->at) & (page - 1);
    *lo = *hi = 0;
    if (r->draft->src.fd < 0 || first != (r->src & (page - 1)))
        return;
    uint64_t edge = first ? page - first : 0;
    if (edge >= r->len)
        return;
    *lo = edge;
    *hi = edge + ((r->len - edge) & ~(page - 1));
}

/* False: too much would have to be copied to memory, or too many ranges be mapped. */
static bool can_map(const struct edit_content *k, uint64_t in)
{
    uint64_t copied = 0, lo, hi;
    unsigned runs = 0;
    for (size_t i = 0; i < k->n; runs++) {
        struct run r = run_at(k, &i);
        whole_pages(&r, in, &lo, &hi);
        copied += r.len - (hi - lo);
    }
    return copied <= IN_MEMORY && runs <= MOST_RUNS;
}

/* All bytes are one range of a draft's file. */
static int map_draft(const struct run *run, struct shown_bytes *ret, struct err *e)
{
    int fd = fcntl(run->draft->src.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return err_set(e, -errno, "cannot duplicate: %s", strerror(errno));
    int r = mapped_open(fd, run->src + run->len, &ret->m, e);
    if (r < 0)
        (void)close(fd);
    ret->off = run->src;
    return r;
}

/* Its whole pages are mapped, and the rest of it copied to those that are there. */
static int map_run(const struct run *r, const struct below *b, uint8_t *pages)
{
    uint64_t lo, hi;
    uint8_t *to = pages + b->in + r->at;
    whole_pages(r, b->in, &lo, &hi);
    int err = preview_read(b->f, r->draft, r->src, to, (size_t)lo);
    if (err == 0 && hi > lo &&
        mmap(to + lo, (size_t)(hi - lo), PROT_READ, MAP_PRIVATE | MAP_FIXED, r->draft->src.fd,
             (off_t)(r->src + lo)) == MAP_FAILED)
        err = -errno;
    return err < 0 ? err
                   : preview_read(b->f, r->draft, r->src + hi, to + hi, (size_t)(r->len - hi));
}

/* The pages of the base, with a copy in the place of each that is changed; or new pages. */
static int map_pages(const struct edit_content *k, const struct below *b, struct shown_bytes *ret,
                     struct err *e)
{
    const uint64_t base = b->m ? b->off - b->in : 0;
    size_t size = (size_t)(b->in + k->nbytes);
    int how = b->m ? MAP_PRIVATE : MAP_PRIVATE | MAP_ANONYMOUS;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, how, b->m ? b->m->fd : -1, (off_t)base);
    if (at == MAP_FAILED)
        return err_set(e, -errno, "cannot map: %s", strerror(errno));
    int r = 0,
        fd = b->m ? fcntl(b->m->fd, F_DUPFD_CLOEXEC, 0) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < k->n && r == 0;) {
        struct run run = run_at(k, &i);
        r = map_run(&run, b, at);
    }
    if (r == 0 && fd < 0)
        r = -errno;
    *ret = (struct shown_bytes){NULL, b->in, b->m};
    ret->m = r == 0 ? mapped_of_pages(fd, base, at, size, b->m ? size : 0) : NULL;
    if (ret->m) {
        (void)mprotect(at, size, PROT_READ);
        return 0;
    }
    (void)munmap(at, size);
    if (fd >= 0)
        (void)close(fd);
    return err_set(e, r < 0 ? r : -ENOMEM, "cannot keep changed bytes: %s",
                   strerror(r < 0 ? -r : ENOMEM));
}

bool preview_bytes_at_hand(const struct edit_content *k, const struct below *b)
{
    size_t i = 0;
    while (!b->m && i < k->n && k->piece[i].draft->src.fd < 0)
        i++;
    return i == k->n;
}

int preview_bytes_map(const struct edit_content *k, const struct below *b, struct shown_bytes *ret,
                      struct err *e)
{
    size_t n = 0;
    const struct run first = run_at(k, &n);
    if (!b->m && n == k->n && first.draft->src.fd >= 0)
        return map_draft(&first, ret, e);
    const bool plain = !b->m || !atomic_load(&b->m->frozen);
    return plain && can_map(k, b->in) ? map_pages(k, b, ret, e) : 1;
}
