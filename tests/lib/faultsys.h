/* SPDX-License-Identifier: MIT */
/*
 * A table of system calls that fail, are shortened, or end the process at a chosen call: see
 * base/sys.h.
 *
 *     for (unsigned n = 1;; n++) {
 *         struct faultsys fs;
 *         faultsys_init(&fs, FAULT_FAIL, n, -EIO);
 *         ... run with &fs.sys ...
 *         if (!fs.hit) break;          every call has failed once
 *     }
 *
 * FAULT_POWER simulates a power cut at call n (in a child process, which ends there with
 * FAULT_EXIT): each sector written since the last fsync of its file is randomly kept or lost, as is
 * each change to the directory since its last fsync, in any order, except that after a lost change
 * all later changes to the same name are also lost. A rename (or exchange) changes both names in
 * one step. `seed` determines what is lost.
 *
 * fsync calls are only recorded: waiting for the disk would test nothing, and there are many calls.
 */
#ifndef TESTS_LIB_FAULTSYS_H
#define TESTS_LIB_FAULTSYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/sys.h"

#define FAULT_EXIT 99

enum fault_mode {
    FAULT_NONE,
    FAULT_FAIL,   /* call n returns the error and does nothing */
    FAULT_BROKEN, /* call n and all later calls return the error */
    FAULT_KILL,   /* the process ends before call n */
    FAULT_POWER,  /* see above */
};

/* Calls that a store other than a disk can lack: the error that each returns, or 0. */
struct fault_lacks {
    int no_tmpfile; /* creating a file without a name */
    int no_create;  /* creating a file with a name */
    int no_list;    /* listing extended attributes */
    int no_read;    /* reading through a writable descriptor */
    int no_rename;
    int no_replace; /* renaming over a file; the file then disappears, as on SMB */
    bool sticky;    /* a created file keeps its name while it is open */
};

struct faultsys {
    struct sys sys; /* must come first: the table that the tested code gets */
    enum fault_mode mode;
    unsigned n; /* number of the call that fails, from 1 */
    int error;
    /* Atomic, because several threads may make calls. */
    atomic_uint calls;          /* calls so far (close is not counted) */
    atomic_bool hit;            /* call n was made */
    _Atomic(const char *) what; /* name of call n */
    /* Additional options: */
    bool brief;       /* every read, write and copy moves at most 1000 bytes */
    bool clone;       /* the file system seems to clone ranges */
    bool no_exchange; /* rename does not support RENAME_EXCHANGE */
    bool done;    /* call n, if it is a rename, is done, and so is each later one, but they fail */
    bool full;    /* the file system has no free blocks */
    int no_xattr; /* error for setting an attribute */
    int no_range; /* error for copy_file_range */
    struct fault_lacks lacks;
    int fresh;          /* the last descriptor created, or -1 */
    int frozen;         /* a descriptor that can no longer be written (EPERM); 0: none */
    const char *before; /* name of a call: hook runs once, before such a call */
    unsigned at;        /* number of a call, from 1: hook runs once, before it */
    void (*hook)(void *arg);
    void *arg;
    /* Called before each call, with its name and descriptor: an error that it returns is the result. */
    int (*each)(const char *what, int fd);
    /* Returns how many of n bytes may be written at an offset, or an error. */
    ssize_t (*room)(int fd, uint64_t off, size_t n);
    unsigned created; /* files created */
    /* A name was used unsafely: not relative to the directory's handle, through a link, created
     * although it existed, or taken from a locked file (C6) for one without a lock. */
    bool loose;
    /* For FAULT_POWER: */
    uint64_t seed;
    struct fault_write *writes; /* newest first */
    struct fault_entry *entries;
};

void faultsys_init(struct faultsys *fs, enum fault_mode mode, unsigned n, int error);

/* Simulate a power cut now, as FAULT_POWER does at call n. */
void faultsys_power_cut(struct faultsys *fs);

/* ---- changes that are not yet synced, for FAULT_POWER ---- */

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
