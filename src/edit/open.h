/* SPDX-License-Identifier: MIT */
/*
 * Finds the files of a model by path and opens them for reading. Used by mounts, --check, --info
 * and --recover. Symbolic links are followed to the real file. A model that an interrupted edit
 * left half written is not read.
 *
 *     r = model_find(path, &m, &e);
 *     r = model_parse(&m, 0, &g, &e);
 *     model_free(&m);
 *
 * For a split model, shards_find() (model/shards.h) finds the path of the first file, and
 * model_open_shards() opens the others.
 *
 * Threads: one thread at a time may use a model_file.
 */
#ifndef EDIT_OPEN_H
#define EDIT_OPEN_H

#include "edit/journal.h"
#include "model/snapshot.h"

struct model_file {
    char *path;       /* owned: the requested path */
    char *real;       /* owned: the path with links resolved */
    const char *name; /* the last component of real */
    int dir;          /* owned: the directory (O_PATH, since it may not be listable) */
    struct edit_file file;
    struct source src;  /* the file */
    bool stream;        /* the file is in memory: what was read from a pipe */
    struct err planted; /* set if the object with the journal's name is not ours; else code 0 */
};

/*
 * Find a file and its directory. A writer then opens it with edit_file_open(&m->file, ..., m->dir,
 * m->name, ...). Returns 0, or -errno with a message (-EISDIR for a directory). Call model_free()
 * even after a failure.
 */
int model_find(const char *path, struct model_file *m, struct err *e);
/* True for a path that model_read() takes: "-" (standard input), or a pipe. */
bool model_is_stream(const char *path);
/*
 * Read the beginning of a model from a pipe, as far as its header goes, for model_parse(). The data
 * counts as present, but is not read. Returns 0 or -errno. Call model_free() even after a failure.
 */
int model_read(const char *path, struct model_file *m, struct err *e);
/*
 * Open the file if necessary, set m->src, and parse the model. While another process edits it in
 * place, waits up to ten seconds. flags: as for gguf_parse(). Returns 0, -EUCLEAN or -EBUSY as for
 * edit_at_rest(), or -errno; m->src.read is NULL if parsing was not reached.
 */
int model_parse(struct model_file *m, unsigned flags, struct gguf **ret, struct err *e);
void model_free(struct model_file *m);

/* A hook for a caller that keeps the files of a split model. */
struct model_opener {
    /* Called when file number i has been read. Takes ownership of m. */
    void (*keep)(void *arg, size_t i, struct model_file *m);
    void *arg;
    /* Finds a file in place of model_find(). May be NULL. */
    int (*find)(void *arg, const char *path, struct model_file *m, struct err *e);
    void *find_arg;
};

/*
 * Open and check all files of a split model except the first, whose content is g. parse_flags: as
 * for gguf_parse(); with GGUF_PARTIAL, files that do not exist are left out of s. o: may be NULL.
 * Returns 0, or -EBADMSG, -ENOENT, -ENODATA or another
 * -errno with a message that names the file.
 */
int model_open_shards(struct shards *s, struct gguf *g, unsigned parse_flags,
                      const struct model_opener *o, struct err *e);

/* A model of which all files have been read. */
struct model_whole {
    struct shards files;     /* if the model is split: its files, as after model_open_shards() */
    struct model_file first; /* the first file */
    struct gguf *g; /* owned: the first file's content or, of a split model, all of them merged */
};

/*
 * Open all files of the model at `path`, which may be any shard and, with GGUF_CUT, a pipe. flags: as
 * for gguf_parse(). If the header ends early, the other files are not opened. Returns 0, or -errno
 * with the message that a mount would print. Call model_whole_free() even after a failure.
 */
int model_whole_open(const char *path, unsigned flags, struct model_whole *m, struct err *e);
void model_whole_free(struct model_whole *m);

/*
 * Finish or undo an edit of the model at `path` that a crash interrupted. Of a split model only the
 * first file is ever edited. Returns the same results as edit_recover().
 */
int model_recover(const char *path, struct edit_recovered *ret, struct err *e);

#endif
