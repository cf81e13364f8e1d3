/* SPDX-License-Identifier: MIT */
/* Log of changes that are not yet synced, for FAULT_POWER: see faultsys.h. */
#ifndef TESTS_LIB_FAULTLOG_H
#define TESTS_LIB_FAULTLOG_H

#include "faultsys.h"

struct fault_write {
    struct fault_write *next;
    int fd;                  /* a duplicate of the file's descriptor */
    uint64_t ino, off, size; /* size: the file's size before the write */
    size_t n;         /* number of overwritten bytes, kept in `was`; zeros beyond the old size */
    bool dropped;     /* an fsync of the file failed: later fsyncs will not write this data */
    uint8_t *written; /* for each sector, whether it was written again and synced */
    uint8_t was[];
};

/* How to undo a change to the directory: rename `from` to `to` or, if `to` is empty, remove
 * `from`. */
struct fault_entry {
    struct fault_entry *next; /* the previous change */
    bool lost;
    int dir;
    unsigned flags;
    char from[256], to[256];
    /* A second name for the object that the change removed. If the change is lost, the object
     * regains its name `from`; otherwise, the second name is deleted at the next sync. */
    char kept[64];
};

/* Record that n bytes at `off` will be written or, if n is 0, that the file will be truncated. */
void fault_log_write(struct faultsys *fs, int fd, uint64_t off, size_t n);
struct fault_entry *fault_log_entry(struct faultsys *fs, int dir, const char *from, const char *to);
/* Record that a file or a directory was synced. */
void fault_synced(struct faultsys *fs, uint64_t ino);
/* Record that an fsync of the file failed. The file's pages can still be read and count as clean,
 * but are not on the disk. A later fsync writes only pages that have been written again. */
void fault_not_synced(struct faultsys *fs, uint64_t ino);
void fault_synced_folder(struct faultsys *fs, const struct stat *synced);

#endif
