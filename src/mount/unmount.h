/* SPDX-License-Identifier: MIT */
/*
 * The commands about mounts: --list, --unmount, and --undo of a mounted model. They read the list of
 * mounts, and ask a mount by fsync(2) and by its attributes user.gguf.*, only as the user that made
 * it. Call these functions before threads are started, but for mount_take_down().
 */
#ifndef MOUNT_UNMOUNT_H
#define MOUNT_UNMOUNT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "shelf/mountinfo.h"

/* If the daemon of a mount has been killed, so that all calls fail with ENOTCONN, remove the mount,
 * and log that. `shown` is its mount point. Returns 0, 1 if the mount is alive or of another user, or
 * -errno. */
int mount_remove_dead(const struct mount *m, const char *shown, struct err *e);
/* Unmount the mount at `at`, a real path: directly if run by root, otherwise with fusermount3. With
 * `lazy`, even a mount that is in use is unmounted. Returns 0, -EBUSY or another -errno. */
int mount_take_down(const char *at, bool lazy, struct err *e);

/*
 * Append a line for each mount, "MODEL on MOUNTPOINT, read-write", or with `json` an array of
 * objects:
 *
 *     mountpoint, model   paths
 *     mode                "rw" or "ro"
 *     reason              why the mount is read-only; null if read-write or unknown
 *     user                numeric id of the user that made the mount
 *     state               "alive"; "dead": the daemon was killed; "unknown": another user's mount,
 *                         which is not asked
 */
int mnt_list(bool json, struct buf *out, struct err *e);

/* Write pending edits, unmount, and wait until the daemon has ended. Run by root, this process becomes
 * the user that made the mount. Logs edits that were refused or could not be written, and a backup.
 * Returns 0, or -errno with the reason; then the mount still exists or is still being written. */
int mnt_unmount(const char *mountpoint, struct err *e);

/*
 * Restore the keys of a mounted model to a state of the history, given by its number ("0": before
 * the last edits). `operand` is a mount point, or the model's directory in a mount. Run by root, this
 * process becomes the user that made the mount. Appends what was done to `said`. Returns 0, 1
 * (`operand` is not in a mount), or -errno with the reason.
 */
int mnt_undo(const char *operand, const char *number, struct buf *said, struct err *e);
/* Return the real path of the file of a model that is given by a mount point or its directory in a
 * mount, or of any other operand a copy. The caller frees it. Returns NULL with errno. */
char *mnt_model(const char *operand);

#endif
