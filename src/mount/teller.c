/* SPDX-License-Identifier: MIT */
/* Rights that change: see teller.h. */
#include "mount/teller.h"

#include <errno.h>
#include <stdlib.h>

#include "mount/control.h"

/* Pages stay: what is in the file did not change. The kernel has most nodes not, and says so. */
static void tell_node(void *arg, uint64_t node)
{
    const struct teller *t = arg;
    (void)fuse_lowlevel_notify_inval_inode(t->session, node, -1, 0);
}

static void tell(void *arg)
{
    struct teller *t = arg;
    shelf_nodes(t->shelf, tell_node, t);
}

void teller_look(struct teller *t, uint64_t node)
{
    if (!shelf_look(t->shelf, node))
        return;
    atomic_store(&t->checks, true);
    (void)control_do(t->control, tell, t); /* else the daemon checks alone */
}

static bool is_in_group(fuse_req_t req, gid_t gid)
{
    if (fuse_req_ctx(req)->gid == gid)
        return true;
    int n = fuse_req_getgroups(req, 0, NULL), got = 0;
    gid_t *group = n > 0 ? calloc((size_t)n, sizeof(*group)) : NULL;
    if (group)
        got = fuse_req_getgroups(req, n, group);
    bool in = false;
    for (int i = 0; i < got && i < n && !in; i++)
        in = group[i] == gid;
    free(group);
    return in;
}

int teller_check(struct teller *t, fuse_req_t req, uint64_t node, mode_t wanted)
{
    struct tree_entry e;
    const uid_t uid = fuse_req_ctx(req)->uid;
    if (!atomic_load(&t->checks) || uid == 0 || shelf_getattr(t->shelf, node, NULL, &e) < 0)
        return 0;
    mode_t bits = e.attr.st_mode;
    if (uid == e.attr.st_uid)
        bits >>= 6;
    else if (is_in_group(req, e.attr.st_gid))
        bits >>= 3;
    return wanted & ~bits ? -EACCES : 0;
}
