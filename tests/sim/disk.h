/* SPDX-License-Identifier: MIT */
/*
 * The disk of a run: real files in a directory in memory, reached through a table of system calls
 * that the linker puts in place of sys_libc. Each call is a point of the scheduler, and may fail,
 * be short or be slow. File times and inode numbers are virtual; so is the free space. What is not
 * synced can be lost.
 *
 * Threads: one at a time (scheduler.h).
 */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What outlives a process: in memory shared with a child. */
struct disk_file {
    uint64_t real, number;
    uint64_t mtime, ctime; /* nanoseconds of sched_now() */
};
struct disk_state {
    struct disk_file file[4096];
    uint64_t n;
    unsigned hits; /* errors that the disk gave */
    /* For a killed process: what it did not sync. */
    struct fault_write *writes;
    struct fault_entry *entries;
    unsigned calls;
    size_t used; /* of the memory for that */
};

/* Before the first process: set up the memory for what is not synced, shared by all. */
void disk_prepare(void);
/*
 * cuts: the power may be cut, so what is not synced is noted. `state` is zero at the beginning, or
 * that of a killed process, in the same directory. features: of the file system.
 */
enum { CLONES = 1, NO_EXCHANGE = 2, NO_NAMELESS = 4, NO_LINK = 8, NO_RANGE = 16, FEATURES = 5 };
void disk_begin(struct disk_state *state, const char *folder, bool cuts, unsigned features);
/* The process is killed: what it did not sync may still be lost. */
void disk_leave(const char *folder);

/* From now on, the n-th call whose name begins with this ("": any) gives the error, `times` times. */
void disk_fail(const char *call, unsigned n, int error, unsigned times);
/* How many bytes may be written. */
void disk_room(uint64_t bytes);
/* Reads, writes and copies are short. */
void disk_brief(bool brief);
/* Calls sometimes take this long. */
void disk_slow(unsigned ms);
/* No more faults, and enough space. */
void disk_mend(void);
/* Lose part of what is not synced. */
void disk_cut(uint64_t seed);
/* Call fn after that many calls; or immediately, if it is still outstanding. */
void disk_then(unsigned n, void (*fn)(void));
void disk_now(void);
/* A change of the file now gives it another time. */
bool disk_is_old(const char *path);
/* A file was changed by another program. */
void disk_changed(int fd);

/* Memory for the log of what is not synced (meson.build). */
void *disk_malloc(size_t n);
void *disk_calloc(size_t n, size_t size);
void disk_free(void *p);

/* A file's bytes; free() them. NULL: it does not exist. */
uint8_t *disk_read(const char *path, size_t *n);
bool disk_write(const char *path, const uint8_t *bytes, size_t n);

#endif
