/* SPDX-License-Identifier: MIT */
/* Helpers beside views: their content (tensor_helpers.h); and made, found, renamed and removed (tensors.h). */
#include "live/tensor_helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "base/sys.h"
#include "edit/temp.h"
#include "live/new_tensor.h"
#include "live/tensor.h"

/* Bytes that are copied at a time. */
#define COPY_ROOM ((size_t)1 << 20)

/* ---- content ---- */

/* Its own content, without the lock. As helper_read(). */
static int read_own(const struct draft *d, uint64_t off, void *dst, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        ssize_t k = sys_libc.pread(&sys_libc, d->fd, (uint8_t *)dst + *got, n - *got, off + *got);
        if (k == -EINTR)
            continue;
        if (k <= 0)
            return (int)k;
        *got += (size_t)k;
    }
    return 0;
}

int helper_read(struct live *l, struct draft *d, uint64_t off, void *dst, size_t n, size_t *got)
{
    lock_take(&l->lock);
    bool into = d->into;
    lock_drop(&l->lock);
    return into ? VIEW_INTO : read_own(d, off, dst, n, got);
}

static int write_own(struct draft *d, bool append, uint64_t off, const void *bytes, size_t n)
{
    uint64_t size = atomic_load(&d->size);
    if (append)
        off = size;
    if (off > INT64_MAX || n > INT64_MAX - off)
        return -EFBIG;
    d->writes++;
    int r = sys_write_all(&sys_libc, d->fd, bytes, n, off);
    if (r == 0)
        atomic_store(&d->size, max_u64(size, off + n));
    return r;
}

int helper_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
                 size_t n)
{
    (void)l;
    lock_take(&d->io);
    int r = d->into ? VIEW_INTO : write_own(d, append, off, bytes, n);
    lock_drop(&d->io);
    return r;
}

static int truncate_own(struct draft *d, uint64_t size)
{
    int r = size > INT64_MAX ? -EFBIG : sys_libc.ftruncate(&sys_libc, d->fd, size);
    d->writes++;
    if (r == 0)
        atomic_store(&d->size, size);
    return r;
}

int helper_truncate(struct live *l, struct draft *d, uint64_t size)
{
    (void)l;
    lock_take(&d->io);
    int r = d->into ? VIEW_INTO : truncate_own(d, size);
    lock_drop(&d->io);
    return r;
}

struct live_view *helper_flushed(struct live *l, struct live_view *h)
{
    lock_take(&l->lock);
    h->d->unflushed -= h->writes && !h->flushed;
    h->flushed = true;
    struct live_view *into = h->d->into;
    lock_drop(&l->lock);
    return into;
}

struct live_view *helper_released(struct draft *d, const struct live_view *h)
{
    struct live_view *into = d->handles ? NULL : d->into;
    d->unflushed -= h->writes && !h->flushed;
    if (into) {
        atomic_store(&d->size, draft_size(into->d));
        d->into = NULL;
    }
    return into;
}

/* ---- names ---- */

static struct draft *find(const struct live *l, uint32_t tensor, const char *name)
{
    struct draft *d = view_drafts(l, tensor);
    while (d && (!d->helper || d->unlinked || strcmp(d->helper, name) != 0))
        d = d->inside;
    return d;
}

/* fd passes to it on success. */
static int make(struct live *l, uint32_t tensor, const char *name, int fd, struct draft **ret)
{
    struct draft *d = draft_new();
    char *helper = strdup(name);
    struct object *o = tensor_object(l, tensor);
    if (d)
        d->node = atomic_fetch_add(&l->newest->numbers, 1);
    int r = !d || !helper || !o ? -ENOMEM : view_draft_add(l, d, o);
    if (r < 0) {
        draft_free(d);
        free(helper);
        return r;
    }
    d->live = l;
    d->of = &view_helper;
    d->tensor = tensor;
    d->row = VIEW_NO_ROW;
    d->kind = LIVE_HELPER;
    d->helper = helper;
    d->fd = fd;
    *ret = d;
    return 0;
}

int live_helper_create(struct live *l, uint32_t tensor, const char *name, int flags,
                       struct live_view **ret, uint32_t *node)
{
    struct err e = {0};
    lock_take(&l->lock);
    const struct edit_file *f = l->file;
    lock_drop(&l->lock);
    int fd = temp_unnamed(f, &e);
    if (fd < 0)
        return fd;
    lock_take(&l->lock);
    struct draft *d = find(l, tensor, name);
    int r = d && flags & O_EXCL ? -EEXIST : 0;
    if (!d) {
        r = make(l, tensor, name, fd, &d);
        fd = r == 0 ? -1 : fd;
    }
    if (r == 0)
        r = view_join(l, d, d->node, O_RDWR | flags, ret);
    if (r == 0)
        *node = d->node;
    lock_drop(&l->lock);
    if (fd >= 0)
        (void)close(fd);
    return r;
}

int live_helper_find(struct live *l, uint32_t tensor, const char *name, uint32_t *node)
{
    lock_take(&l->lock);
    const struct draft *d = find(l, tensor, name);
    if (d)
        *node = d->node;
    lock_drop(&l->lock);
    return d ? 0 : -ENOENT;
}

bool live_helper_at(struct live *l, uint32_t tensor, uint64_t i, char name[TREE_NAME_MAX + 1],
                    uint32_t *node)
{
    if (!atomic_load_explicit(&l->touched, memory_order_acquire))
        return false;
    lock_take(&l->lock);
    const struct draft *d = view_drafts(l, tensor);
    for (; d; d = d->inside)
        if (d->helper && !d->unlinked && i-- == 0)
            break;
    if (d) {
        (void)strcpy(name, d->helper);
        *node = d->node;
    }
    lock_drop(&l->lock);
    return d;
}

/* Its name is gone. Returns what view_draft_end() is to free, or NULL. */
static struct draft *forget(struct live *l, struct draft *d)
{
    d->unlinked = true;
    return view_draft_reap(l, d);
}

int live_helper_unlink(struct live *l, uint32_t tensor, const char *name)
{
    lock_take(&l->lock);
    struct draft *d = find(l, tensor, name), *dead = d ? forget(l, d) : NULL;
    lock_drop(&l->lock);
    if (dead)
        view_draft_end(dead);
    return d ? 0 : -ENOENT;
}

/* *dead: what end() is to free, or NULL. */
static int rename_helper(struct live *l, struct draft *d, const char *to, struct draft **dead)
{
    struct draft *over = find(l, d->tensor, to);
    char *name = strdup(to);
    if (!name)
        return -ENOMEM;
    free(d->helper);
    d->helper = name;
    if (over && over != d)
        *dead = forget(l, over);
    return 0;
}

/* The view's draft is all of a helper. */
static int copy(struct live *l, const struct draft *from, struct live_view *to)
{
    uint8_t *room = malloc(COPY_ROOM);
    uint64_t at = 0;
    size_t got = 1;
    int r = room ? live_view_truncate(l, to, 0) : -ENOMEM;
    while (r == 0 && got > 0) {
        r = read_own(from, at, room, COPY_ROOM, &got);
        if (r == 0 && got > 0)
            r = live_view_write(l, to, at, room, got, NULL);
        at += got;
    }
    free(room);
    return r;
}

/* A handle of the view's draft. With the lock. */
static int open_view(struct live *l, uint32_t tensor, uint32_t row, enum live_view_kind kind,
                     struct live_view **ret)
{
    struct draft *d = view_find(l, tensor, row);
    int r = !new_tensor(l, tensor) && view_is_busy(l, tensor, row) ? -EBUSY : 0;
    if (r == 0 && !d)
        r = view_make(l, IDS_NONE, tensor, row, kind, &d);
    return r < 0 ? r : view_join(l, d, d->node, O_WRONLY, ret);
}

/* What is written to a helper is written to the view's draft from now on: h passes. It has what the helper
 * was when `writes` was its number. */
static int become(struct live *l, struct draft *from, uint64_t writes, struct live_view *h)
{
    lock_take(&from->io);
    int r = from->writes == writes ? 0 : copy(l, from, h);
    if (r == 0) {
        lock_take(&l->lock);
        from->into = h;
        lock_drop(&l->lock);
    }
    lock_drop(&from->io);
    return r;
}

static uint64_t count_writes(struct draft *d)
{
    lock_take(&d->io);
    uint64_t n = d->writes;
    lock_drop(&d->io);
    return n;
}

/* Once nothing else is done with the view's draft. What a program has not flushed yet is judged when it does: more
 * may come. h passes, if it is 0. */
static int replace(struct live *l, struct draft *from, struct live_view *h, bool whole,
                   struct live_wait *w)
{
    struct draft *d = h->d;
    uint64_t writes = count_writes(from);
    int r = copy(l, from, h);
    if (r == 0 && whole)
        r = d->of->judge(l, d, d->of->ends, w);
    if (r >= 0)
        r = become(l, from, writes, h);
    if (r < 0 && d->made)
        (void)live_view_truncate(l, h, 0); /* nothing of it counts */
    return r;
}

/* It has its name again, if it is not the view's draft; another may have that by now. */
static void renamed(struct live *l, struct live_view *own, uint32_t row, bool unhid, int r)
{
    struct draft *d = own->d;
    lock_take(&l->lock);
    d->unlinked = r >= 0 || find(l, d->tensor, d->helper);
    if (!d->unlinked && unhid)
        object_hide(d->object, row);
    lock_drop(&l->lock);
    live_view_release(l, own);
}

static int rename_asked(struct live *l, struct live_wait *w, bool stopped)
{
    struct live_view *h = w->view, *own = h->from;
    const uint32_t row = h->d->row;
    lock_take(&l->lock);
    bool whole = own->d->unflushed == 0, unhid = h->unhid;
    h->from = NULL;
    lock_drop(&l->lock);
    int r = stopped ? -EINTR : replace(l, own->d, h, whole, w);
    renamed(l, own, row, unhid, r);
    if (stopped)
        live_view_release(l, h); /* another request of its draft is being carried out */
    else if (r < 0)
        view_release(l, h);
    else if (whole)
        r = view_flushed(l, h, w); /* it was judged: others may have cut it since */
    return r;
}

/* Over a view. With the lock, which it drops. */
static int rename_over(struct live *l, struct live_view *own, uint32_t row,
                       enum live_view_kind kind, struct live_wait *w)
{
    struct draft *d = own->d;
    struct live_view *h = NULL;
    bool hidden = object_hidden(d->object) >> row & 1;
    d->unlinked = true;
    if (hidden)
        object_unhide(d->object, row);
    lock_drop(&l->lock);
    int r = 0;
    if (kind != LIVE_ASIDE && !live_making_leaves(l, d->tensor, row, kind)) {
        lock_take(&l->lock);
        r = open_view(l, d->tensor, row, kind, &h);
        if (h) {
            h->from = own;
            h->unhid = hidden;
        }
        lock_drop(&l->lock);
    }
    if (h)
        return waits_judge(l, h, rename_asked, w);
    renamed(l, own, row, hidden, r);
    return r;
}

int live_helper_rename(struct live *l, uint32_t tensor, const char *name, const char *to,
                       uint32_t row, enum live_view_kind kind, struct live_wait *w)
{
    struct live_view *own = NULL;
    lock_take(&l->lock);
    struct draft *d = find(l, tensor, name), *dead = NULL;
    int r = !d                    ? -ENOENT
            : kind == LIVE_HELPER ? rename_helper(l, d, to, &dead)
                                  : view_join(l, d, d->node, O_RDONLY, &own);
    if (own)
        return rename_over(l, own, row, kind, w);
    lock_drop(&l->lock);
    if (dead)
        view_draft_end(dead);
    return r;
}
