/* SPDX-License-Identifier: MIT */
/* Makes the model of a script, reads the model back, and makes copies of it wait or fail. See
 * script.h. */
#ifndef TESTS_LIB_SCRIPT_MODEL_H
#define TESTS_LIB_SCRIPT_MODEL_H

#include "base/buf.h"
#include "model_dir.h"

struct script_model {
    struct place place;   /* the directory, and the file that has the keys */
    struct content old;   /* original content of that file */
    struct content other; /* the second shard; bytes is NULL without one */
};

/* Two shards; big-endian; editable tensors (a, c and z of bytes, b of floats); a large model; with
 * an array of arrays. */
enum { SCRIPT_SPLIT = 1, SCRIPT_BIG = 2, SCRIPT_TENSORS = 4, SCRIPT_LARGE = 8, SCRIPT_DEEP = 16 };
/* Size of the tensor `big` of a large model, which has no z. */
#define SCRIPT_LARGE_SIZE ((size_t)66 << 20)
void script_model_make(struct script_model *m, unsigned how);
/* Remove the directory and everything in it. */
void script_model_drop(struct script_model *m);

/*
 * Write "KEY:TYPE=TEXT " for each key except general.architecture, the reserve and split.*, with
 * newlines as commas. Returns false if the bytes are not a regular model.
 */
bool script_model_keys(const void *bytes, size_t n, struct buf *out);
/* Write "NAME:TYPE:SHAPE=VALUES " for each tensor of the current files: I8 as unchanged bytes, F32
 * as comma-separated floats, other types as a byte count. */
bool script_model_tensors(const struct script_model *m, struct buf *out);
/* Write bytes as text. A run of nine or more equal bytes becomes X{N}. */
void script_model_brief(struct buf *out, const void *bytes, size_t n);
/* Return the current file that has the keys. The caller frees its bytes. */
struct content script_model_file(const struct script_model *m);
/* True if the tensors are unchanged, and the directory holds only the model's files. */
bool script_model_whole(const struct script_model *m);

/* True if there is no other file. */
bool script_model_alone(const struct script_model *m);

/* Stop each copy at its beginning until it is released, to continue or to fail with an error. */
void script_copies_hold(void);
/* Make the disk report that it is full, or that it has space again. */
void script_disk_full(bool full);
void script_copies_go(int error);
/* Wait for a copy to stop. Returns false if no copy stops within a minute. */
bool script_copies_held(void);
/* Return whether copies are to stop. */
bool script_copies_are_held(void);

/* Seconds; enough for any operation on a busy machine. */
#ifndef WAIT_MOST
#define WAIT_MOST 60
#endif
/* Make copies fail with this error, or succeed again if it is 0. */
void script_copies_fail(int error);

#endif
