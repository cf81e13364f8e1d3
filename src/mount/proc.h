/* SPDX-License-Identifier: MIT */
/* Facts from /proc about the holder of a model's lock, signals of other processes, and mounts. */
#ifndef MOUNT_PROC_H
#define MOUNT_PROC_H

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "shelf/mountinfo.h"

/* Return the last mount on this real path, which covers all earlier ones, or NULL. */
const struct mount *mounts_at(const struct mounts *ms, const char *path);
/* Return the mount of ggufs that edits the model at this real path, or NULL: its source is the model,
 * or a directory above it. */
const struct mount *mounts_editing(const struct mounts *ms, const char *path);
/* Return the user that made a mount of FUSE, or -1 if it is none. */
long mount_user(const struct mount *m);

/*
 * Return true if a pending signal should stop the thread, which may belong to any process, or if
 * this cannot be determined. While a program waits for a request, the kernel reports only the first
 * signal, even if that signal does not stop the program (such as SIGCHLD for a shell).
 */
bool stops_thread(pid_t thread);
/* Like stops_thread(), but takes the content of /proc/TID/status, NUL-terminated. */
bool stops_by_status(const char *status);

/* Waits for the lock of a model. */
struct holder {
    const char *model;     /* as given by the user, for messages */
    struct timespec since; /* when the wait began; tv_sec 0: not yet */
    bool said;             /* a line about the wait was logged */
    bool late;             /* the lock did not become free in time */
};

/*
 * For struct tree_options.wait; `arg` is a struct holder. Returns false if a mount of ggufs serves
 * the model, which *why names, or if the lock has not become free after ten seconds. Otherwise waits
 * a moment and returns true, to try again: a daemon is still writing after its unmount.
 */
bool holder_wait(void *arg, int dir, const char *name, struct err *why);

#endif
