/* SPDX-License-Identifier: MIT */
/*
 * The segments of a plan carried out: see move.h.
 *
 * Cloning takes whole blocks, tensors begin anywhere. A run of segments whose data moves by the same
 * distance is therefore cloned as one span of whole blocks, the padding between its tensors with
 * it; what sticks out at the ends is copied, padding that was not zero is wiped, and what the edit
 * changes is written over it. A run that moves by other distances is copied.
 *
 *     blocks    |       |       |       |       |
 *     run          [tensor][pad][tensor ]
 *     cloned            [---------------]
 *     copied       [---]
 */
#include "edit/move.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

#define CHUNK ((size_t)16 << 20)  /* between two reports of progress */
#define PIECE ((size_t)256 << 10) /* where the kernel does not copy by itself */

static int fail(struct err *e, int r, const char *what)
{
    return err_set(e, r, "cannot %s: %s", what, strerror(-r));
}

static void advance(struct move *m, uint64_t n)
{
    m->done += n;
    if (m->hooks && m->hooks->progress)
        m->hooks->progress(m->done, m->total, m->hooks->arg);
}

/* Copying. */

static int copy_piecewise(struct move *m, int from, uint64_t src, uint64_t at, size_t n)
{
    size_t room = (size_t)min_u64(n, PIECE);
    uint8_t *piece = malloc(room);
    int r = piece ? 0 : -ENOMEM;
    while (r == 0 && n > 0) {
        size_t part = (size_t)min_u64(n, room);
        r = sys_read_all(m->sys, from, piece, part, src);
        if (r == 0)
            r = sys_write_all(m->sys, m->to, piece, part, at);
        src += part;
        at += part;
        n -= part;
    }
    free(piece);
    return r;
}

/* Errors of copy_file_range() that are about the call, not about the medium. */
static bool is_unsupported(ssize_t r)
{
    return r == -EXDEV || r == -ENOSYS || r == -EOPNOTSUPP || r == -EINVAL || r == -EPERM;
}

static int copy_bytes(struct move *m, int from, uint64_t src, uint64_t at, uint64_t n)
{
    while (n > 0) {
        const size_t part = (size_t)min_u64(n, CHUNK);
        ssize_t got = m->sys->copy_range(m->sys, from, src, m->to, at, part);
        if (got == -EINTR)
            continue;
        if (got == 0 || is_unsupported(got)) {
            const int r = copy_piecewise(m, from, src, at, part);
            got = r < 0 ? r : (ssize_t)part;
        }
        if (got < 0)
            return (int)got;
        advance(m, (uint64_t)got);
        src += (uint64_t)got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

/* The next stretch of data at or after src, before end; without such knowledge all is data. */
static int find_data(const struct move *m, int from, uint64_t src, uint64_t end, uint64_t *lo,
                     uint64_t *hi)
{
    *lo = src;
    *hi = end;
    int r = m->sys->seek(m->sys, from, src, SEEK_DATA, lo);
    if (r == -ENXIO) /* nothing but a hole up to the end of the file */
        *lo = end;
    if (r == 0 && *lo < end)
        r = m->sys->seek(m->sys, from, *lo, SEEK_HOLE, hi);
    *lo = min_u64(*lo, end);
    *hi = min_u64(*hi, end);
    return r == -ENXIO || r == -EINVAL || r == -EOPNOTSUPP ? 0 : r;
}

/* A range of a file, whose holes are holes of the new file already. */
static int copy_sparse(struct move *m, int from, uint64_t src, uint64_t at, uint64_t n)
{
    uint64_t end = src + n, lo, hi;
    while (src < end) {
        int r = find_data(m, from, src, end, &lo, &hi);
        if (r < 0)
            return r;
        advance(m, lo - src);
        r = copy_bytes(m, from, lo, at + (lo - src), hi - lo);
        if (r < 0)
            return r;
        at += hi - src;
        src = hi;
    }
    return 0;
}

static bool is_old(const struct segment *s)
{
    return s->from == IMAGE_FILE && s->no == EDIT_OLD_FILE;
}

static int fd_of(const struct move *m, const struct segment *s)
{
    return is_old(s) ? m->from : m->plan->image->file[s->no].fd;
}

/*
 * A range of a draft, which stays as it is: its whole blocks are cloned, if they can be. Their bytes are
 * then written once, for the draft.
 */
static int clone_draft(struct move *m, const struct segment *s)
{
    const uint64_t mask = m->plan->block - 1;
    uint64_t lo = (s->at + mask) & ~mask, hi = (s->at + s->len) & ~mask;
    int from = fd_of(m, s), r = -EOPNOTSUPP;
    if (m->clones && ((s->at ^ s->src) & mask) == 0 && lo < hi)
        r = m->sys->clone_range(m->sys, from, s->src + (lo - s->at), m->to, lo, hi - lo);
    if (r < 0) /* whatever it is: to copy them shows */
        return 1;
    advance(m, hi - lo);
    r = copy_bytes(m, from, s->src, s->at, lo - s->at);
    return r < 0 ? r : copy_bytes(m, from, s->src + (hi - s->at), hi, s->at + s->len - hi);
}

/* Size and header, which is the first segment. */
static int begin(struct move *m, struct err *e)
{
    const struct image *im = m->plan->image;
    m->done = m->total = 0;
    for (size_t i = 1; i < im->n; i++)
        m->total += im->seg[i].from == IMAGE_ZERO ? 0 : im->seg[i].len;
    int r = m->sys->ftruncate(m->sys, m->to, im->size);
    if (r < 0)
        return fail(e, r, "size the new file");
    r = sys_write_all(m->sys, m->to, im->seg[0].bytes, (size_t)im->seg[0].len, 0);
    return r < 0 ? fail(e, r, "write the new header") : 0;
}

int move_file(struct move *m, uint64_t size, struct err *e)
{
    m->done = 0;
    m->total = size;
    int r = m->sys->ftruncate(m->sys, m->to, size);
    if (r == 0)
        r = copy_sparse(m, m->from, 0, 0, size);
    return r < 0 ? fail(e, r, "copy the model") : 0;
}

/* Cloning. */

/* A span of the new file, whole blocks; shift: what to add for the offset in the old one. */
struct span {
    uint64_t lo, hi, shift;
};

/* The run that begins at segment i; returns the segment after it. */
static size_t find_run(const struct edit_plan *p, size_t i, struct span *ret)
{
    uint64_t shift = p->image->seg[i].src - p->image->seg[i].at,
             end = p->image->seg[i].at + p->image->seg[i].len;
    uint64_t mask = p->block - 1;
    *ret = (struct span){.lo = (p->image->seg[i].at + mask) & ~mask, .shift = shift};
    for (i++; i < p->image->n; i++) {
        const struct segment *s = &p->image->seg[i];
        if (is_old(s) && s->src - s->at != shift)
            break;
        if (is_old(s))
            end = s->at + s->len;
    }
    ret->hi = end & ~mask;
    if (ret->hi < ret->lo || shift & mask) /* nothing to clone */
        ret->hi = ret->lo;
    return i;
}

static int clone_span(struct move *m, const struct span *span)
{
    if (span->hi == span->lo)
        return 0;
    int r = m->sys->clone_range(m->sys, m->from, span->lo + span->shift, m->to, span->lo,
                                span->hi - span->lo);
    return r == -EINVAL || r == -EXDEV || r == -ENOTTY || r == -ENOSYS ? -EOPNOTSUPP : r;
}

/* Is [at, at + n) of a file zero? */
static int check_zero(const struct sys *s, int fd, uint64_t at, uint64_t n, bool *ret)
{
    uint8_t piece[4096];
    *ret = true;
    while (n > 0 && *ret) {
        size_t part = (size_t)min_u64(n, sizeof(piece));
        int r = sys_read_all(s, fd, piece, part, at);
        if (r < 0)
            return r;
        *ret = piece[0] == 0 && memcmp(piece, piece + 1, part - 1) == 0;
        at += part;
        n -= part;
    }
    return 0;
}

static int wipe(struct move *m, uint64_t lo, uint64_t hi)
{
    static const uint8_t zeros[4096];
    bool zero = true;
    int r = lo < hi ? check_zero(m->sys, m->to, lo, hi - lo, &zero) : 0;
    while (r == 0 && !zero && lo < hi) {
        size_t part = (size_t)min_u64(hi - lo, sizeof(zeros));
        r = sys_write_all(m->sys, m->to, zeros, part, lo);
        lo += part;
    }
    return r;
}

/* What of a segment the clone did not do; what it did not reach has no byte in the new file yet: a hole. */
static int finish_segment(struct move *m, const struct segment *s, const struct span *span)
{
    const uint64_t end = s->at + s->len, lo = min_u64(max_u64(s->at, span->lo), end),
                   hi = max_u64(min_u64(end, span->hi), lo);
    if (s->from == IMAGE_ZERO)
        return wipe(m, lo, hi);
    int r = is_old(s) ? 1 : clone_draft(m, s);
    if (r <= 0)
        return r;
    if (!is_old(s) && lo < hi) /* over what was cloned, its holes too */
        return copy_bytes(m, fd_of(m, s), s->src, s->at, s->len);
    if (!is_old(s))
        return copy_sparse(m, fd_of(m, s), s->src, s->at, s->len);
    advance(m, hi - lo);
    r = copy_sparse(m, m->from, s->src, s->at, lo - s->at);
    return r < 0 ? r : copy_sparse(m, m->from, s->src + (hi - s->at), hi, end - hi);
}

int move_plan(struct move *m, bool clone, struct err *e)
{
    const struct image *im = m->plan->image;
    int r = begin(m, e);
    m->clones = clone;
    for (size_t i = 1, end; i < im->n && r == 0; i = end) {
        struct span span = {0};
        end = i + 1;
        if (clone && is_old(&im->seg[i])) {
            end = find_run(m->plan, i, &span);
            r = clone_span(m, &span);
        }
        for (; i < end && r == 0; i++)
            r = finish_segment(m, &im->seg[i], &span);
        if (r < 0)
            return fail(e, r, clone ? "clone the tensors" : "copy the tensors");
    }
    return r;
}

int move_check_padding(const struct sys *s, const struct edit_plan *p, int from, struct err *e)
{
    for (size_t i = 0; i < p->image->n; i++) {
        const struct segment *seg = &p->image->seg[i];
        bool zero;
        if (seg->from != IMAGE_ZERO || seg->at >= p->old_size)
            continue;
        int r = check_zero(s, from, seg->at, min_u64(seg->len, p->old_size - seg->at), &zero);
        if (r < 0)
            return fail(e, r, "read the padding between tensors");
        if (!zero)
            return err_set(e, -EOPNOTSUPP, "padding between tensors is not zero (byte %llu)",
                           (unsigned long long)seg->at);
    }
    return 0;
}
