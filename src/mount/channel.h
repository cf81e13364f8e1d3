/* SPDX-License-Identifier: MIT */
/*
 * Requests of commands to the daemon that edits a model.
 *
 *     r = channel_open("m.gguf", &c, &e);          c.daemon NULL: it is not mounted read-write
 *     r = channel_ask(&c, "undo 12", &said, &e);
 *     channel_close(&c);
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_CHANNEL_H
#define MOUNT_CHANNEL_H

#include "mount/daemon.h"

struct channel {
    struct daemons daemons;
    const struct daemon *daemon;
    char *place; /* owned: as shelf_ask() has it */
};

/*
 * Find the daemon of a model, given its file or one of its shards, or a link to one; a mount
 * point; or the model's folder in a mount. 0, with c->daemon NULL if no daemon that can be
 * seen, and that answers, has mounted the file read-write, or edits it in a mount of a folder of
 * models; -EINVAL (the folder is not a mount of a model), -ETIMEDOUT (the daemon of the mount is stopped), -errno.
 * channel_close() in any case.
 */
int channel_open(const char *operand, struct channel *c, struct err *e);
/* Have it do something to the model ("undo 12", control.h); what it says is added to `said`. 0, -errno. */
int channel_ask(const struct channel *c, const char *verb, struct buf *said, struct err *e);
void channel_close(struct channel *c);

#endif
