/* SPDX-License-Identifier: MIT */
/* The model of a script: made, read back, and held or failed while it is copied. See script.h. */
#ifndef TESTS_LIB_SCRIPT_MODEL_H
#define TESTS_LIB_SCRIPT_MODEL_H

#include "base/buf.h"
#include "place.h"

struct script_model {
    struct place place;   /* its folder, and the file that has the keys */
    struct content old;   /* that file as it was made */
    struct content other; /* the second shard; bytes is NULL without one */
};

/* Two shards; big-endian; tensors a, c and z of bytes and b of floats, to be edited. */
enum { SCRIPT_SPLIT = 1, SCRIPT_BIG = 2, SCRIPT_TENSORS = 4, SCRIPT_LARGE = 8 };
/* Bytes of the tensor `big` of a large model, which has no z. */
#define SCRIPT_LARGE_SIZE ((size_t)66 << 20)
void script_model_make(struct script_model *m, unsigned how);
/* Drops the folder and all in it. */
void script_model_drop(struct script_model *m);

/* "KEY:TYPE=TEXT " of each key but general.architecture, the reserve and split.*; newlines as
 * commas. False: the bytes are not a model, or not a regular one. */
bool script_model_keys(const void *bytes, size_t n, struct buf *out);
/* "NAME:TYPE:SHAPE=VALUES " of each tensor: bytes of I8 as they are, floats of F32 with commas, the
 * number of bytes of others. Of all files, as they are now. */
bool script_model_tensors(const struct script_model *m, struct buf *out);
/* Bytes as text, from nine equal ones on as X{N}. */
void script_model_brief(struct buf *out, const void *bytes, size_t n);
/* The file that has the keys, as it is now. free() its bytes. */
struct content script_model_file(const struct script_model *m);
/* The tensors are what they were, and no other file is there. */
bool script_model_whole(const struct script_model *m);

/* No other file is there. */
bool script_model_alone(const struct script_model *m);

/* Copies stop when they begin, until they are let go: to go on, or to fail with an error. */
void script_copies_hold(void);
/* The disk says that it has no room. */
void script_disk_full(bool full);
void script_copies_go(int error);
/* Waits for one that has stopped. False: none did, for a long time. */
bool script_copies_held(void);
/* Copies fail; 0: no longer. */
void script_copies_fail(int error);

#endif
