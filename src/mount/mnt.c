/* SPDX-License-Identifier: MIT */
/* What the FUSE callbacks share: see mnt.h. */
#include "mount/mnt.h"

#include <errno.h>
#include <fcntl.h>

double mnt_timeout(const struct tree_entry *e)
{
    return e->lasting ? FOREVER : e->steady ? 1 : 0;
}

struct fuse_entry_param mnt_entry(const struct tree_entry *e)
{
    return (struct fuse_entry_param){.ino = e->node,
                                     .generation = e->generation,
                                     .attr = e->attr,
                                     .attr_timeout = mnt_timeout(e),
                                     .entry_timeout = e->fixed ? FOREVER : 0};
}

void mnt_reply_entry(fuse_req_t req, int r, const struct tree_entry *e)
{
    if (r < 0) {
        (void)fuse_reply_err(req, -r);
        return;
    }
    struct fuse_entry_param p = mnt_entry(e);
    if (fuse_reply_entry(req, &p) < 0) /* interrupted: the kernel did not get it */
        shelf_forget(shelf_of(req), e->node, 1);
}

/* Programs read the model's own file through this handle, if that is possible. */
static void fill_pass(struct fuse_file_info *fi, const struct passed *x)
{
#ifdef GGUFS_PASSTHROUGH
    if (passing_id(x)) {
        fi->backing_id = passing_id(x);
        fi->keep_cache = 0; /* no page of it is the mount's own */
    }
#else
    (void)fi;
    (void)x;
#endif
}

int mnt_fill_open(struct mnt *m, fuse_ino_t ino, struct fuse_file_info *fi, struct shelf_file *f)
{
    bool cacheable = shelf_cacheable(f), keep = shelf_cached_right(f);
    struct passed *x;
    struct reader *r = reader_open(f);
    if (!r) {
        (void)shelf_release(f);
        return -ENOMEM;
    }
    if (passing_open(&m->passing, m->device, ino, f, fi->flags, &x) < 0) {
        reader_close(r);
        return -ENOMEM;
    }
    struct handle *h = handle_open(&m->handles, r, NULL, x);
    if (!h) {
        passing_close(&m->passing, m->device, x);
        return -ENOMEM;
    }
    fi->fh = (uint64_t)(uintptr_t)h;
    fi->keep_cache = keep;      /* the node's content never changes */
    fi->direct_io = !cacheable; /* each reader sees what it opened */
    fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
    fill_pass(fi, x);
    return 0;
}

void mnt_close(struct mnt *m, struct handle *h)
{
    passing_close(&m->passing, m->device, handle_drop(&m->handles, h));
}

struct use mnt_use(fuse_req_t req, const struct fuse_file_info *fi)
{
    struct use u = {.m = mnt_of(req), .h = fi ? handle_of(fi) : NULL};
    if (u.h)
        handle_use(&u.m->handles, u.h);
    return u;
}

void mnt_leave(struct use *u)
{
    if (u->h)
        mnt_close(u->m, u->h);
}

void mnt_made(struct mnt *m, struct shelf_file *f)
{
    struct shelf_file *before = atomic_exchange(&m->made, f);
    if (before)
        (void)shelf_release(before);
}
