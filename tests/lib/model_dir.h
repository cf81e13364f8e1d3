/* SPDX-License-Identifier: MIT */
/*
 * A directory with a model, and edits to the model, for tests of what edits do to files.
 *
 *     CLEANUP(teardown) struct fixture x = setup();
 *     struct edit d;
 *     make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 100);
 *     struct edit_file f = open_model(&x, &fs.sys);
 *     r = commit(&f, &d, &result, &e);
 *     CU_ASSERT_TRUE(r == 0 ? is_new(&x, &d) : is_old(&x));
 */
#ifndef TESTS_LIB_MODEL_DIR_H
#define TESTS_LIB_MODEL_DIR_H

#include "build_gguf.h"
#include "cu_main.h"
#include "edit/history.h"
#include "edit/journal.h"
#include "faultsys.h"

enum { F32 = 0, I8 = 24 }; /* ggml's type ids */
#define NAME "model.gguf"
#define JOURNAL "." NAME ".ggufs-journal"
/* Dimensions and their number: two arguments for build_tensor(). */
#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* ---- a model file in its own directory ---- */

struct content {
    uint8_t *bytes;
    size_t n;
};

struct place {
    char folder[64], model[96];
    int dir;
};

/* Make the directory and the file, in memory if possible. drop_place() removes all that is in it. */
void make_place(struct place *p, const struct content *i);
/* Make them with the model of a build. */
struct place place_of(struct build *b);
void drop_place(struct place *p);

/* Make a directory in another one, and open it. */
void make_folder(char path[64], int *dir, const char *root);
/* Return where a directory lies in memory, if possible, because some tests make thousands. */
const char *in_memory(void);
/* Remove a directory and everything in it. */
void remove_tree(const char *path);

/* Return the number of files in a directory. */
unsigned files_in(int dir);
void put_file(int dir, const char *name, const void *bytes, size_t n);
uint8_t *get_file(int dir, const char *name, size_t *n);
/* Return whether the file consists of these bytes. */
bool file_has(int dir, const char *name, const void *bytes, size_t n);

/* ---- a given model, and edits of it ---- */

struct fixture {
    char path[64];
    int dir;
    uint8_t *old; /* bytes of the model */
    size_t old_n;
    struct gguf *g;
};

/* Make the directory in /tmp; in memory if possible, to prepare make_tensor_edit() with `what`. */
struct fixture setup(void);
struct fixture setup_tensors(unsigned what, uint8_t pad_byte);
void teardown(struct fixture *x);

/* An edit to the model that sets its key `text` to a letter repeated n times. */
struct edit {
    struct edit_options o;
    struct edit_plan p;
    uint8_t *image; /* the expected new file */
};

void make_edit(struct edit *d, const struct gguf *g, const uint8_t *old, size_t old_n,
               enum edit_strategy s, char letter, size_t n);
/* Edits to the model's tensors, in any combination. */
enum {
    EDIT_BYTES = 1,   /* change ranges of `b`, from drafts in memory and in a file */
    EDIT_RENAMED = 2, /* rename `a` to `first` */
    EDIT_ADDED = 4,   /* add `more`, of 70001 bytes, at the end */
    EDIT_REMOVED = 8, /* remove b */
    EDIT_MADE = 16,   /* set `a` to 3 x 5 bytes */
    /* Append two tensors of 5 bytes each; the model's alignment is then several units. */
    EDIT_APART = 32,
};
void make_tensor_edit(struct edit *d, const struct gguf *g, const uint8_t *old, size_t old_n,
                      enum edit_strategy s, unsigned what);
void edit_done(struct edit *d);
/* Check that readers get the old or the new content, or are told to recover the model. */
void check_readers(const struct fixture *x, const struct edit *d);

/* Open the model with real system calls; later calls go through `sys`. */
struct edit_file open_model(const struct fixture *x, const struct sys *sys);
/* Return system calls without faults, and without waiting for the disk. */
const struct sys *calm(void);
/* Call edit_commit(), and close the old descriptor. */
int commit(struct edit_file *f, const struct edit *d, struct edit_result *ret, struct err *e);

bool is_old(const struct fixture *x);
bool is_new(const struct fixture *x, const struct edit *d);
/* True if any process holds the model's lock. */
bool is_locked(const struct fixture *x);
/* Check that another edit to the current file, without faults, succeeds and leaves no other file
 * behind. */
void check_next(struct fixture *x, struct edit_file *f);

/* All of the above: a model, an edit of it, and its open file, whose system calls go through fs. */
struct scene {
    struct fixture x;
    struct edit d;
    struct faultsys fs; /* without faults at first */
    struct edit_file f;
    struct edit_result res; /* of the last commit */
    struct err e;
};

/* The edit sets `text` to n letters. scene_begin_at() makes the directory under `root`. */
void scene_begin(struct scene *s, enum edit_strategy how, size_t n);
void scene_begin_at(struct scene *s, const char *root, enum edit_strategy how, size_t n);
/* Commit the edit. An error has a message. */
int scene_commit(struct scene *s);
/* Recover the model, as a process that opens it anew. */
int scene_recover(struct scene *s, struct edit_recovered *found);
void scene_end(struct scene *s);

/* ---- journals ---- */

/* Write the journal of a plan, like journal_write(). */
int put_journal_of(struct edit_file *f, const struct edit_plan *p);
/* Write a journal that replaces the first n bytes of a file. */
int put_journal(struct edit_file *f, const uint8_t *new, size_t n);

/* ---- a directory with a history ---- */

struct home {
    char path[64]; /* in memory if possible; `state` in it is the state directory */
    int dir;
    struct history h;
};

void home_setup(struct home *x);
void home_teardown(struct home *x);
/* Open another history in this directory, possibly of another model. */
int open_history(const struct home *x, struct history *h, const char *model, size_t keep);
/* Return the number of files in the history's directory. */
unsigned home_files(const struct home *x);

/* Make a model without tensors whose key `text` has this value. The caller calls gguf_free(). */
struct gguf *keys_of(const char *text);
/* True if the keys are the same, in the same order, byte for byte, except for ggufs' own. */
bool same_keys(const struct gguf *a, const struct gguf *b);

/* Record an edit that was written at time `now`. restored: for an undo, the state that it restored.
 * begin_save() leaves its outcome open. */
int save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
         uint64_t restored, struct err *e);
int begin_save(struct history *h, const struct gguf *before, const struct gguf *after, int64_t now,
               uint64_t restored, struct err *e);

#endif
