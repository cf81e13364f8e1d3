/* SPDX-License-Identifier: MIT */
/*
 * Requests of commands to the daemon that serves a model: attributes of its folder metadata/
 * (tree.h). The kernel checks the rights: setting one requires the right to write the model.
 *
 *     r = channel_find("m.gguf", &folder, &e);     folder NULL: it is not mounted read-write
 *     r = channel_undo(folder, "12", &said, &e);
 *
 * Threads: only before any are started (a process is forked).
 */
#ifndef MOUNT_CHANNEL_H
#define MOUNT_CHANNEL_H

#include "base/buf.h"
#include "base/err.h"

/*
 * Find the folder metadata/ of a model, given its file or one of its shards, or a link to one; a mount
 * point; or the model's folder in a mount. free() it. 0, with *folder NULL if no daemon that can be
 * seen, and that answers, has mounted the file read-write, or edits it in a mount of a folder of
 * models; -EINVAL (the folder is not a mount of a model), -errno.
 */
int channel_find(const char *operand, char **folder, struct err *e);

/* Go back to a state ("": before the last edits), after all edits are written. The daemon's line
 * about it in `said`. 0, -errno. */
int channel_undo(const char *folder, const char *number, struct buf *said, struct err *e);
/* The states as text. 0, -errno. */
int channel_history(const char *folder, struct buf *out, struct err *e);
int channel_clear(const char *folder, struct err *e);

#endif
