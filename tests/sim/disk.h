/* SPDX-License-Identifier: MIT */
/*
 * The disk of a run: real files in a folder in memory, reached through a table of system calls that the
 * linker puts in the place of sys_libc. Each call is a point of the scheduler, and may fail, be short or
 * take its time. Times and numbers of files are virtual; so is the room. What is not synced can be lost.
 *
 * Threads: one at a time (scheduler.h).
 */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What lasts longer than a process: in memory that a child shares. */
struct disk_file {
    uint64_t real, number;
    uint64_t mtime, ctime; /* nanoseconds of sched_now() */
};
struct disk_state {
    struct disk_file file[4096];
    uint64_t n;
    unsigned hits; /* errors that the disk gave */
};

/* cuts: the power may be cut, so that what is not synced is noted. `state` is zero at the beginning. */
void disk_begin(struct disk_state *state, bool cuts, bool clones);

/* Call number n from now on whose name begins so ("": any) gives the error, `times` times. */
void disk_fail(const char *call, unsigned n, int error, unsigned times);
/* So many bytes may be written. */
void disk_room(uint64_t bytes);
/* Reads, writes and copies are short. */
void disk_brief(bool brief);
/* Calls take so long at times. */
void disk_slow(unsigned ms);
/* No faults from now on, and room. */
void disk_mend(void);
/* Of what is not synced some is lost. */
void disk_cut(uint64_t seed);
/* A change of the file now gives it another time. */
bool disk_is_old(const char *path);
/* A file was changed by another program. */
void disk_changed(int fd);

/* A file's bytes; free() them. NULL: there is none. */
uint8_t *disk_read(const char *path, size_t *n);
bool disk_write(const char *path, const uint8_t *bytes, size_t n);

#endif
