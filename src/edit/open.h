/* SPDX-License-Identifier: MIT */
/*
 * The files of a model, found by a path and opened for reading: for mounts, --check, --info and
 * --recover alike. Symbolic links are followed to the real file; a header that an interrupted edit
 * still has to write is read as if it were written.
 *
 *     r = model_find(path, &m, &e);
 *     r = model_parse(&m, 0, &g, &e);
 *     model_free(&m);
 *
 * For a split model, shards_find() (model/split.h) finds the path of the first file, and
 * model_open_shards() opens the others.
 *
 * Threads: one at a time.
 */
#ifndef EDIT_OPEN_H
#define EDIT_OPEN_H

#include "edit/journal.h"
#include "model/split.h"

struct model_file {
    char *path;       /* owned: the requested path */
    char *real;       /* owned: links followed */
    const char *name; /* its last component */
    int dir;          /* owned: of its directory, which may not be listable (O_PATH) */
    struct edit_file file;
    struct edit_overlay overlay; /* what an interrupted edit has yet to write */
    struct source src;           /* the file with that applied */
};

/*
 * Find a file and its directory. A writer then opens it with edit_file_open(&m->file, ..., m->dir, m->name, ...). 0, or
 * -errno with a line (-EISDIR: it is a directory). Free it even after a failure.
 */
int model_find(const char *path, struct model_file *m, struct err *e);
/*
 * Open it if necessary, look for a journal, set m->src, and parse it, again if another process edits it in place
 * meanwhile; flags as in gguf_parse(). 0, -ESTALE, -EBUSY (edit_overlay()), -errno; m->src.read is NULL if parsing was
 * not reached.
 */
int model_parse(struct model_file *m, unsigned flags, struct gguf **ret, struct err *e);
void model_free(struct model_file *m);

/* Hooks for opening the files of a split model for writing. */
struct model_opener {
    /* NULL, or called before each file is read; it may open m->file. If it returns -errno, with a message, opening fails. */
    int (*found)(void *arg, struct model_file *m, struct err *e);
    /* File number i was read: takes ownership of m. */
    void (*keep)(void *arg, size_t i, struct model_file *m);
    void *arg;
};

/*
 * Open and check all files of a split model except the first, whose content is g; parse_flags as in gguf_parse(). o:
 * NULL for reading only. 0; -EBADMSG, -ENOENT, -ENODATA ... with a line that names the file.
 */
int model_open_shards(struct shards *s, const struct gguf *g, unsigned parse_flags,
                      const struct model_opener *o, struct err *e);

/* Finish or undo what a crash interrupted in the model at `path`. As edit_recover(). */
int model_recover(const char *path, struct edit_recovered *ret, struct err *e);

#endif
