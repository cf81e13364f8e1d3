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

int mnt_fill_open(struct mnt *m, struct fuse_file_info *fi, struct shelf_file *f, bool writes)
{
    bool cacheable = shelf_cacheable(f), keep = shelf_cached_right(f);
    struct reader *r = reader_open(f);
    if (!r) {
        (void)shelf_release(f);
        if (writes)
            handles_edited(&m->handles);
        return -ENOMEM;
    }
    struct handle *h = handle_open(&m->handles, r, NULL, writes);
    if (!h)
        return -ENOMEM;
    fi->fh = (uint64_t)(uintptr_t)h;
    fi->keep_cache = keep;      /* the node's content never changes */
    fi->direct_io = !cacheable; /* each reader sees what it opened */
    fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
    order_before(h);
    return 0;
}
