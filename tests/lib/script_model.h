/* SPDX-License-Identifier: MIT */
/* The model of a script: making it, reading it back, and holding or failing its copies. See script.h. */
#ifndef TESTS_LIB_SCRIPT_MODEL_H
#define TESTS_LIB_SCRIPT_MODEL_H

#include "base/buf.h"
#include "place.h"

struct script_model {
    struct place place;   /* its directory, and the file that has the keys */
    struct content old;   /* that file as it was made */
    struct content other; /* the second shard; bytes is NULL without one */
};

/* Two shards; big-endian; tensors a, c and z of bytes and b of floats, to be edited. */
enum { SCRIPT_SPLIT = 1, SCRIPT_BIG = 2, SCRIPT_TENSORS = 4, SCRIPT_LARGE = 8 };
/* The size of the tensor `big` of a large model, which has no z. */
#define SCRIPT_LARGE_SIZE ((size_t)66 << 20)
void script_model_make(struct script_model *m, unsigned how);
/* Remove the directory and everything in it. */
void script_model_drop(struct script_model *m);

/*
 * "KEY:TYPE=TEXT " of each key except general.architecture, the reserve and split.*; newlines as
 * commas. False: the bytes are not a model, or not a regular one.
 */
bool script_model_keys(const void *bytes, size_t n, struct buf *out);
/*
 * "NAME:TYPE:SHAPE=VALUES " of each tensor: bytes of I8 unchanged, floats of F32 with commas, the
 * number of bytes for others. For all files, as they are now.
 */
bool script_model_tensors(const struct script_model *m, struct buf *out);
/* Bytes as text; a run of nine or more equal ones is X{N}. */
void script_model_brief(struct buf *out, const void *bytes, size_t n);
/* The file that has the keys, as it is now. free() its bytes. */
struct content script_model_file(const struct script_model *m);
/* The tensors are unchanged, and there is no other file. */
bool script_model_whole(const struct script_model *m);

/* There is no other file. */
bool script_model_alone(const struct script_model *m);

/* Copies stop when they begin, until they are released: to continue, or to fail with an error. */
void script_copies_hold(void);
/* The disk reports that it has no space. */
void script_disk_full(bool full);
void script_copies_go(int error);
/* Wait for one that has stopped. False: none has, for a long time. */
bool script_copies_held(void);
/* Copies fail; 0: no longer. */
void script_copies_fail(int error);

#endif
