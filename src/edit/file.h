/* SPDX-License-Identifier: MIT */
/*
 * The model file that an edit changes, with its directory and name, an open handle that holds the
 * writer's lock, and its identity as of parsing.
 *
 *     struct edit_file f;
 *     r = edit_file_open(&f, &sys_libc, dir, "model.gguf", true, &e);
 *     r = edit_recover(&f, &found, &e);            before parsing; see journal.h
 *     ... gguf_parse(f.fd), edits ...
 *     edit_file_close(&f);
 *
 * All path operations go through `dir`, so the directory may be renamed, or covered by a mount. The
 * lock (flock) ensures that only one process writes. It is on the open model file, and a
 * replacement is locked before it takes the name.
 *
 * Threads: a struct edit_file belongs to the only writer. Readers keep their own descriptors.
 */
#ifndef EDIT_FILE_H
#define EDIT_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "base/sys.h"

/* Identity of the opened file. */
struct edit_id {
    uint64_t dev, ino, size;
    struct timespec mtime;
};

enum edit_clone { EDIT_CLONE_UNKNOWN, EDIT_CLONE_YES, EDIT_CLONE_NO };

struct edit_file {
    const struct sys *sys;
    int dir;                 /* directory handle, not owned; not O_PATH, because it is synced */
    int fd;                  /* owned: the model's handle */
    char name[NAME_MAX + 1]; /* the model's name in the directory; not a symbolic link */
    struct edit_id id;       /* as opened, or after the last edit */
    enum edit_clone clone;   /* whether the file system clones ranges; probed once */
    bool locked;             /* the file is open for writing and locked */
    bool backed;             /* the backup was made (commit.h) */
    /* The journal has an edit that could not be written to the model (commit.h, C4). */
    bool unfinished;
};

/*
 * Open the file. With `write`, open it for writing and lock it. Returns 0, -EWOULDBLOCK (another
 * process is writing it), -EACCES, -EROFS, -ENOENT, -ELOOP (a symbolic link), -EINVAL (not a
 * regular file), -ENAMETOOLONG or -ESTALE (replaced again and again).
 */
int edit_file_open(struct edit_file *f, const struct sys *sys, int dir, const char *name,
                   bool write, struct err *e);
/* Release the lock, but keep the file open. */
void edit_file_unlock(const struct edit_file *f);
void edit_file_close(struct edit_file *f);

/*
 * Return 0 if the path still names the opened file and it is unchanged, otherwise -ESTALE. A file
 * with an unfinished edit may have changed.
 */
int edit_file_fresh(const struct edit_file *f, struct err *e);
/* Return -EMLINK if the model has other hard links, unless may_break allows breaking them. */
int edit_file_links(const struct stat *st, bool may_break, struct err *e);
/* Take the current state of f->fd as the file's identity. */
int edit_file_note(struct edit_file *f, struct err *e);

/* For the rest of the edit layer: */

int edit_file_stat(const struct edit_file *f, struct stat *ret, struct err *e);
struct edit_id edit_id_of(const struct stat *st);
bool edit_id_equal(const struct edit_id *a, const struct edit_id *b);

/*
 * Write the name of one of our files beside the model: ".NAME.ggufs-SUFFIX". If NAME is too long
 * for that, it is shortened and made unique by a hash of the whole name.
 */
#define EDIT_JOURNAL_SUFFIX "journal"
#define EDIT_TEMP_SUFFIX 6 /* number of letters and digits */
void edit_side_name(char dst[NAME_MAX + 1], const char *name, const char *suffix);

/* Return true for a regular file owned by this process's user, the model's owner or root. */
bool edit_is_owned(const struct stat *st, const struct stat *model);
/*
 * Return true for such a file without other hard links. Only such a journal is opened, applied or
 * removed.
 */
bool edit_is_ours(const struct stat *st, const struct stat *model);

#endif
