/* SPDX-License-Identifier: MIT */
/* What is not yet synced, for FAULT_POWER: see faultsys.h. */
#ifndef TESTS_LIB_FAULTLOG_H
#define TESTS_LIB_FAULTLOG_H

#include "faultsys.h"

struct fault_write {
    struct fault_write *next;
    int fd;                  /* a duplicate */
    uint64_t ino, off, size; /* size: of the file before the write */
    size_t n;                /* overwritten bytes, kept in `was`; zeros beyond the old size */
    bool dropped;            /* an fsync of it failed: no later one writes it */
    uint8_t *written;        /* for each sector: it has since been written again, and synced */
    uint8_t was[];
};

/* How to undo a change of the directory: by a rename or, if `to` is empty, by removing `from`. */
struct fault_entry {
    struct fault_entry *next; /* the one before */
    bool lost;
    int dir;
    unsigned flags;
    char from[256], to[256];
    char kept[64]; /* what the change removed: gets the name `from` back, or goes with the sync */
};

/* n bytes at `off` are about to be written or, if n is 0, the file to be truncated. */
void fault_log_write(struct faultsys *fs, int fd, uint64_t off, size_t n);
struct fault_entry *fault_log_entry(struct faultsys *fs, int dir, const char *from, const char *to);
/* A file, or a directory, was synced. */
void fault_synced(struct faultsys *fs, uint64_t ino);
/*
 * An fsync of the file failed: its pages count as written from then on, and can be read, though the
 * disk does not have them. A later fsync only writes what is written again.
 */
void fault_not_synced(struct faultsys *fs, uint64_t ino);
void fault_synced_folder(struct faultsys *fs, const struct stat *synced);

#endif
