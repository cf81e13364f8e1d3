/* SPDX-License-Identifier: MIT */
/*
 * A table of system calls that fails, shortens or ends at a chosen call: see base/sys.h.
 *
 *     for (unsigned n = 1;; n++) {
 *         struct faultsys fs;
 *         faultsys_init(&fs, FAULT_FAIL, n, -EIO);
 *         ... run with &fs.sys ...
 *         if (!fs.hit) break;          every call had its turn
 *     }
 *
 * FAULT_POWER simulates a power cut at call n (in a child process, which ends there with
 * FAULT_EXIT): of what was written since the last fsync of its file each sector is kept or lost by
 * lot, and so is each change of the folder since its last fsync, in no order but this: what was
 * done to a name after a change of it that is lost, is lost too. A rename, also an exchange, changes
 * both names in one step. Which are lost, is told by `seed`.
 *
 * fsync itself is only noted: waiting for the disk would tell nothing, and there are many.
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
    FAULT_BROKEN, /* and so does every one after it */
    FAULT_SHORT,  /* nothing fails, but `brief` is on */
    FAULT_KILL,   /* the process ends before call n */
    FAULT_POWER,  /* as told above */
};

struct fault_write; /* a write that is not synced yet */
struct fault_entry; /* a change of the folder that is not synced yet */

struct faultsys {
    struct sys sys; /* first: what the tested code is given */
    enum fault_mode mode;
    unsigned n; /* the call that fails, from 1 */
    int error;
    /* Threads may call at the same time. */
    atomic_uint calls;          /* calls so far (close is not counted) */
    atomic_bool hit;            /* call n has come */
    _Atomic(const char *) what; /* its name */
    /* What may be asked in addition: */
    bool brief;       /* every read, write and copy moves at most 1000 bytes */
    bool clone;       /* clone ranges, by copying, with the demands of a file system that does */
    bool no_exchange; /* rename knows no RENAME_EXCHANGE */
    bool full;        /* the file system has no free block */
    int no_xattr;     /* setting an attribute fails with this */
    int no_range;     /* copy_file_range fails with this */
    /* Stores that are no disks. Each is an error that the call then always gives, or 0. */
    int no_tmpfile; /* making a file without a name */
    int no_link;    /* giving one a name */
    int no_create;  /* making one with a name */
    int no_list;    /* listing extended attributes */
    int no_read;    /* reading through a handle that may write */
    int no_rename;
    int no_replace;     /* renaming over a file, which is gone then, as over an open one with SMB */
    bool sticky;        /* a file that was made keeps its name while it is open */
    int fresh;          /* the descriptor of the one made last, or -1 */
    int frozen;         /* a descriptor that cannot be written any more (EPERM); 0: none */
    const char *before; /* a call's name: run hook once before the first such call ... */
    unsigned skip;      /* ... but for so many */
    unsigned at;        /* or once before the call of this number, from 1 */
    void (*hook)(void *arg);
    void *arg;
    unsigned created; /* files made */
    /* A name was used that could lead elsewhere: not in the folder's handle, through a link, or made
     * where one was. */
    bool loose;
    /* FAULT_POWER: */
    uint64_t seed;
    struct fault_write *writes; /* newest first */
    struct fault_entry *entries;
};

void faultsys_init(struct faultsys *fs, enum fault_mode mode, unsigned n, int error);

/* What FAULT_POWER does at call n, now. */
void faultsys_power_cut(struct faultsys *fs);

#endif
