/* SPDX-License-Identifier: MIT */
/*
 * The model file from an edit's point of view: its directory and name, an open handle that holds
 * the writer's lock, and what identified it when it was parsed.
 *
 *     struct edit_file f;
 *     r = edit_file_open(&f, &sys_libc, dir, "model.gguf", true, &e);
 *     r = edit_recover(&f, &found, &e);            (journal.h) before it is parsed
 *     ... gguf_parse(f.fd), edits ...
 *     edit_file_close(&f);
 *
 * All work on paths goes through `dir`, so the directory may be renamed, or covered by a mount. One
 * process writes: the lock (flock) is on the open model file, and on a file that replaces it before
 * it does.
 *
 * Threads: a struct edit_file belongs to the one writer. Readers keep their own descriptors.
 */
#ifndef EDIT_FILE_H
#define EDIT_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/sys.h"

/* What identifies the opened file. */
struct edit_id {
    uint64_t dev, ino, size;
    struct timespec mtime;
};

enum edit_clone { EDIT_CLONE_UNKNOWN, EDIT_CLONE_YES, EDIT_CLONE_NO };

struct edit_file {
    const struct sys *sys;
    int dir;                 /* of the directory, not owned; not O_PATH: it is synced */
    int fd;                  /* the model, owned */
    char name[NAME_MAX + 1]; /* of the model in the directory; not a symbolic link */
    struct edit_id id;       /* as opened, or after the last edit */
    enum edit_clone clone;   /* whether the file system clones ranges; probed once */
    bool locked;             /* it is open for writing and locked */
    bool backed;             /* its backup was made (commit.h) */
    bool unfinished; /* its journal has an edit that could not be written to it (commit.h, C4) */
};

/*
 * Open the file; with `write`, for writing and locked. 0; -EWOULDBLOCK (another process writes it), -EACCES, -EROFS,
 * -ENOENT, -ELOOP (a symbolic link), -EINVAL (not a regular file), -ENAMETOOLONG, -ESTALE (replaced again and again).
 */
int edit_file_open(struct edit_file *f, const struct sys *sys, int dir, const char *name,
                   bool write, struct err *e);
/* Release the lock, and keep it open. */
void edit_file_unlock(const struct edit_file *f);
void edit_file_close(struct edit_file *f);

/*
 * 0 if the path still names the opened file, unchanged (while it is unfinished, it may be in any
 * state); otherwise -ESTALE.
 */
int edit_file_fresh(const struct edit_file *f, struct err *e);
/* -EMLINK if the model has other hard links, unless they may be broken. */
int edit_file_links(const struct stat *st, bool may_break, struct err *e);
/* Take the current state of f->fd as the file's identity. */
int edit_file_note(struct edit_file *f, struct err *e);

/* For the other parts of the edit layer: */

int edit_file_stat(const struct edit_file *f, struct stat *ret, struct err *e);
struct edit_id edit_id_of(const struct stat *st);
bool edit_id_equal(const struct edit_id *a, const struct edit_id *b);

/*
 * The name of a file of ours beside the model: ".NAME.ggufs-SUFFIX". A NAME that is too long for
 * that is shortened, and made unique by a hash of the whole.
 */
#define EDIT_JOURNAL_SUFFIX "journal"
#define EDIT_TEMP_SUFFIX 6 /* letters and digits */
void edit_side_name(char dst[NAME_MAX + 1], const char *name, const char *suffix);

/* True for regular files owned by this process's user, the model's owner or root. */
bool edit_is_owned(const struct stat *st, const struct stat *model);
/* The same, and without other hard links: only such a journal is opened, applied or removed. */
bool edit_is_ours(const struct stat *st, const struct stat *model);

#endif
