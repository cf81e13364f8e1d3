/* SPDX-License-Identifier: MIT */
/* Begins and ends to reach files below a shelf's folder: see reach.h. */
#include "base/lock.h"
#include "shelf/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int reach_begin(struct reach *r, const char *path, bool strict, struct err *e)
{
    struct stat st;
    *r = (struct reach){.fd = -1, .strict = strict, .mounts = -1};
    lock_init(&r->lock);
    r->path = realpath(path, NULL);
    if (!r->path)
        return err_set(e, -errno, "%s", strerror(errno));
    r->fd = open(r->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &st) < 0)
        return err_set(e, -errno, "cannot open the folder: %s", strerror(errno));
    if (faccessat(r->fd, ".", R_OK | X_OK, AT_EACCESS) < 0)
        return err_set(e, -errno, "cannot read the folder: %s", strerror(errno));
    r->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    return reach_look_at_mounts(r) < 0 ? err_set(e, -EIO, "cannot read the list of mounts") : 0;
}

void reach_end(struct reach *r)
{
    if (r->fd >= 0)
        (void)close(r->fd);
    if (r->mounts >= 0)
        (void)close(r->mounts);
    free(r->path);
    reach_forget_mounts(r);
    for (size_t i = 0; i < KEPT_MAX; i++)
        names_free(r, r->kept[i].names);
    lock_destroy(&r->lock);
}
