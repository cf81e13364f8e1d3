/* SPDX-License-Identifier: MIT */
/*
 * A mount that ends by itself when nobody uses it (`-o idle=SECONDS`): a thread unmounts it as
 * `fusermount3 -u` does, once nothing is open and nothing was opened or closed for that long. A
 * mount that is in use in another way (a process has its working folder there) stays.
 *
 *     idle_begin(&i, ...);          after the process detached
 *     ... the loop ...
 *     idle_end(&i);                 it has returned
 *
 * Threads: the calls come from the thread that loops.
 */
#ifndef MOUNT_IDLE_H
#define MOUNT_IDLE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/lock.h"
#include "base/thread.h"
#include "base/err.h"
#include "mount/handles.h"

struct idle {
    unsigned seconds;
    char *mountpoint;
    dev_t dev; /* of the mount */
    struct handles *handles;
    struct lock lock;
    struct cond end;
    bool stop; /* protected by the lock */
    struct thread thread;
    bool runs;
};

/* 0 seconds: never. `mountpoint` and `handles` are borrowed until idle_end(). 0, -EAGAIN. */
int idle_begin(struct idle *i, unsigned seconds, char *mountpoint, dev_t dev,
               struct handles *handles, struct err *e);
void idle_end(struct idle *i);

#endif
