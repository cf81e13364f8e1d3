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
                                     .entry_timeout = e->fixed  ? FOREVER
                                                      : e->slow ? 1
                                                                : 0};
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
static int fill_pass(struct mnt *m, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    int r = passing_open(&m->passing, m->device, ino, file_of(fi), fi->flags, &h->passed);
#ifdef GGUFS_PASSTHROUGH
    if (passing_id(h->passed)) {
        fi->backing_id = passing_id(h->passed);
        fi->keep_cache = 0; /* no page of it is the mount's own */
    }
#endif
    if (r < 0)
        mnt_close(m, h);
    else
        order_before(h);
    return r;
}

int mnt_fill_open(struct mnt *m, fuse_ino_t ino, struct fuse_file_info *fi, struct shelf_file *f)
{
    bool cacheable = shelf_cacheable(f), keep = shelf_cached_right(f);
    struct reader *r = reader_open(f);
    if (!r) {
        (void)shelf_release(f);
        return -ENOMEM;
    }
    struct handle *h = handle_open(&m->handles, r, NULL);
    if (!h)
        return -ENOMEM;
    fi->fh = (uint64_t)(uintptr_t)h;
    fi->keep_cache = keep;      /* the node's content never changes */
    fi->direct_io = !cacheable; /* each reader sees what it opened */
    fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
    return fill_pass(m, ino, fi);
}

void mnt_close(struct mnt *m, struct handle *h)
{
    struct passed *x = h->passed;
    handle_close(&m->handles, h);
    passing_close(&m->passing, m->device, x);
}
