/* SPDX-License-Identifier: MIT */
/*
 * Finds a model's folder in a mount of a folder of models, from outside of its daemon.
 *
 * Threads: only before any are started (a process is forked).
 */
#ifndef MOUNT_SEEK_H
#define MOUNT_SEEK_H

struct seek {
    const char *at;    /* the mount point */
    const char *shelf; /* the real path of the folder that is mounted there */
    const char *model; /* the real path of the model; of a split one, of its first file */
};

/*
 * The model's folder in the mount: the one whose `source` leads to the same file. The place that the
 * model's path gives is looked at first, then all others, those with fewer folders around them first.
 * free() *ret. 0; -ENOENT: not found among the first of them; -ETIMEDOUT: nor in time; -errno.
 */
int seek_model(const struct seek *s, char **ret);

#endif
