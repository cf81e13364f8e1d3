/* SPDX-License-Identifier: MIT */
/*
 * The disk of a run is a directory in memory, reached through a table of system calls that the
 * linker substitutes for sys_libc. Each call is a point of the scheduler, and may fail, be short
 * or be slow. File times, inode numbers and free space are virtual. Unsynced changes can be lost.
 *
 * Only one thread runs at a time (scheduler.h).
 */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The state that outlives a process, in memory shared by all processes of a story. */
struct disk_file {
    uint64_t real, number;
    uint64_t mtime, ctime; /* in nanoseconds, like sched_now() */
};
struct disk_state {
    struct disk_file file[4096];
    uint64_t n;
    unsigned hits; /* number of faults so far */
    /* The unsynced changes of a killed process. */
    struct fault_write *writes;
    struct fault_entry *entries;
    unsigned calls;
    size_t used; /* bytes of memory that these changes use */
};

/* Allocates the memory for unsynced changes, which all processes share. Call it before the first of
 * them starts. */
void disk_prepare(void);
/* Starts the disk. cuts: the power may be cut, so unsynced changes are recorded. `state` is zero at
 * first; later it holds what a killed process left in the same directory. features: what the file
 * system can and cannot do. */
enum { CLONES = 1, NO_EXCHANGE = 2, NO_NAMELESS = 4, NO_RANGE = 8, FEATURES = 4 };
void disk_begin(struct disk_state *state, const char *folder, bool cuts, unsigned features);
/* Records that the process is being killed. Its unsynced changes may still be lost. */
void disk_leave(const char *folder);

/* Makes calls whose name begins with `call` ("" for any) fail with `error`, `times` times,
 * beginning with the n-th such call from now on. */
void disk_fail(const char *call, unsigned n, int error, unsigned times);
/* Sets the free space in bytes. */
void disk_room(uint64_t bytes);
/* Makes reads, writes and copies short. */
void disk_brief(bool brief);
/* Makes some calls take `ms` milliseconds. */
void disk_slow(unsigned ms);
/* Ends all faults, and makes plenty of space available. */
void disk_mend(void);
/* Loses some of the unsynced changes. */
void disk_cut(uint64_t seed);
/* Calls fn at the n-th call from now on. disk_now() calls it at once unless it was already
 * called. */
void disk_then(unsigned n, void (*fn)(void));
void disk_now(void);
/* Returns whether a change made now would give the file a new time. */
bool disk_is_old(const char *path);

/* Allocate memory for the log of unsynced changes (meson.build). */
void *disk_malloc(size_t n);
void *disk_calloc(size_t n, size_t size);
void disk_free(void *p);

/* Returns a file's bytes, which the caller frees with __real_free(), or NULL if the file does not
 * exist. */
uint8_t *disk_read(const char *path, size_t *n);
bool disk_write(const char *path, const uint8_t *bytes, size_t n);

#endif
