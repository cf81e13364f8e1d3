/* SPDX-License-Identifier: MIT */
/* FUSE passthrough: see passing.h. */
#include "mount/passing.h"

#ifdef GGUFS_PASSTHROUGH

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/lock.h"
#include "mount/log.h"

struct passed {
    uint64_t node;
    struct passed *next; /* in its bucket */
    unsigned opens;      /* handles */
    int id;              /* of the file, in the kernel; 0: they are read through the daemon */
};

bool passing_built(void)
{
    return true;
}

bool passing_possible(void)
{
    return geteuid() == 0;
}

/* Models on overlayfs are read through the daemon: else no overlayfs could lie over the mount. */
void passing_begin(struct passing *p, struct fuse_conn_info *conn)
{
    if (!passing_possible() || !(conn->capable & FUSE_CAP_PASSTHROUGH))
        return;
    conn->want |= FUSE_CAP_PASSTHROUGH;
    conn->max_backing_stack_depth = FUSE_BACKING_STACKED_UNDER;
    atomic_store(&p->on, true);
}

/* ---- the kernel's list ---- */

/* libfuse's own call writes to the log whatever goes wrong. */
static int backing_open(int device, int fd)
{
    struct fuse_backing_map map = {.fd = fd};
    int id = ioctl(device, FUSE_DEV_IOC_BACKING_OPEN, &map);
    return id < 0 ? -errno : id;
}

static void backing_close(int device, int id)
{
    uint32_t number = (uint32_t)id;
    (void)ioctl(device, FUSE_DEV_IOC_BACKING_CLOSE, &number);
}

/* The file's number; 0: it is read through the daemon. Under the lock. */
static int add_backing(struct passing *p, int device, int fd)
{
    int id = fd >= 0 ? backing_open(device, fd) : 0;
    if (id == -EPERM) /* root, but not of the whole system */
        atomic_store(&p->on, false);
    if (id <= 0)
        return 0;
    if (!p->logged)
        log_line(LOG_INFO, "model.gguf: programs read the model's own file (FUSE passthrough)");
    p->logged = true;
    return id;
}

/* ---- open nodes ---- */

/* Where a node is linked in, or would be. */
static struct passed **place_of(struct passing *p, uint64_t node)
{
    uint64_t h = node >> INO_LOCAL_BITS ^ node >> (INO_ROW_BITS + INO_KIND_BITS);
    struct passed **at = &p->bucket[h % PASSING_BUCKETS];
    while (*at && (*at)->node != node)
        at = &(*at)->next;
    return at;
}

static int enter(struct passing *p, int device, uint64_t node, int fd, struct passed **ret)
{
    struct passed **at = place_of(p, node), *x = *at;
    if (!x && !(x = calloc(1, sizeof(*x))))
        return -ENOMEM;
    if (x->opens++ == 0) {
        x->node = node;
        x->id = add_backing(p, device, fd);
        *at = x;
    }
    *ret = x;
    return 0;
}

/* The kernel counts a handle later than this, and drops it earlier: what it has open is counted here. */
int passing_open(struct passing *p, int device, uint64_t node, struct shelf_file *f, int flags,
                 struct passed **ret)
{
    *ret = NULL;
    if (!atomic_load(&p->on) || !shelf_is_model(f))
        return 0;
    int fd = flags & O_DIRECT ? -1 : shelf_disk_file(f); /* not every file system has O_DIRECT */
    lock_take(&p->lock);
    int r = enter(p, device, node, fd, ret);
    lock_drop(&p->lock);
    if (fd >= 0)
        (void)close(fd);
    return r;
}

int passing_id(const struct passed *x)
{
    return x ? x->id : 0;
}

void passing_close(struct passing *p, int device, struct passed *x)
{
    if (!x)
        return;
    lock_take(&p->lock);
    bool last = --x->opens == 0;
    if (last && x->id)
        backing_close(device, x->id);
    if (last) {
        *place_of(p, x->node) = x->next;
        free(x);
    }
    lock_drop(&p->lock);
}

void passing_free(struct passing *p)
{
    for (size_t i = 0; i < PASSING_BUCKETS; i++)
        for (struct passed *x = p->bucket[i], *next; x; x = next) {
            next = x->next;
            free(x);
        }
}

#else

bool passing_built(void)
{
    return false;
}

bool passing_possible(void)
{
    return false;
}

void passing_begin(struct passing *p, struct fuse_conn_info *conn)
{
    (void)p;
    (void)conn;
}

int passing_open(struct passing *p, int device, uint64_t node, struct shelf_file *f, int flags,
                 struct passed **ret)
{
    (void)p;
    (void)device;
    (void)node;
    (void)f;
    (void)flags;
    *ret = NULL;
    return 0;
}

int passing_id(const struct passed *x)
{
    (void)x;
    return 0;
}

void passing_close(struct passing *p, int device, struct passed *x)
{
    (void)p;
    (void)device;
    (void)x;
}

void passing_free(struct passing *p)
{
    (void)p;
}

#endif
