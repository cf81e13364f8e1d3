/* SPDX-License-Identifier: MIT */
/* State of a running script, and its model: script.c parses scripts, script_ops.c has their
 * operations, script_model.c makes and reads models, and holds copies of them. */
#ifndef TESTS_LIB_SCRIPT_RUN_H
#define TESTS_LIB_SCRIPT_RUN_H

#include "model_dir.h"
#include "script.h"
#include "tree_image.h"

enum { HANDLES = 26, WAITS = 8, ARGS = 12 };

struct handle {
    struct tree_file *f; /* NULL: not open */
    uint64_t node;
    uint64_t at; /* offset of the next write */
};

struct run {
    const struct script *s;
    const char *mode;        /* commit mode, for messages */
    struct tree_options opt; /* options of each mount */
    struct place place;      /* the directory, and the file that has the keys */
    struct content old;      /* original content of that file */
    struct content other;    /* the second shard; bytes is NULL without one */
    struct tree *t;          /* NULL once the mount has ended */
    struct handle handle[HANDLES];
    struct tree_wait waiter[WAITS];
    unsigned started, waited; /* counts of operations with & */
    int finished;             /* result of ending the mount */
    struct timespec noted;    /* set by `time noted` */
    uint64_t node;            /* set by `note` */
    char op[512];             /* the operation, for messages */
    bool failed;
};

/* Runs an operation with its arguments, using `w` if it may have to wait. Returns 0, -errno or
 * LIVE_PARKED. */
struct script_op {
    const char *name;
    int (*run)(struct run *r, char **arg, struct tree_wait *w);
    unsigned least, most; /* minimum and maximum number of arguments */
    bool rest;            /* the rest of the line is one argument */
    const struct script_op *next;
};

/* The list of all operations. */
extern struct script_op *script_ops;

/* Make the test fail, and end the script. */
void script_fail(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Return the code of a named error, or 0. */
int script_errno(const char *name);
void script_start(struct run *r);
int script_finish(struct run *r);
/* Release a handle, and wait for what that leaves behind. */
void script_release(struct run *r, struct handle *h);

/* ---- the model ---- */

/* Two shards; editable tensors (a, c and z of bytes, b of floats); a large model; with an array of
 * arrays. */
enum { SCRIPT_SPLIT = 1, SCRIPT_TENSORS = 2, SCRIPT_LARGE = 4, SCRIPT_DEEP = 8 };
void script_model_make(struct run *r, unsigned how);
/* Remove the directory and everything in it. */
void script_model_drop(struct run *r);

/*
 * Write "KEY:TYPE=TEXT " for each key except general.architecture, the reserve and split.*, with
 * newlines as commas. Returns false if the bytes are not a regular model.
 */
bool script_model_keys(const void *bytes, size_t n, struct buf *out);
/* Write "NAME:TYPE:SHAPE=VALUES " for each tensor of the current files: I8 as unchanged bytes, F32
 * as comma-separated floats, other types as a byte count. */
bool script_model_tensors(const struct run *r, struct buf *out);
/* Write the keys, or with `tensors` the tensors, that the model had at the beginning. */
void script_model_before(const struct run *r, struct buf *out);
/* Write bytes as text. A run of nine or more equal bytes becomes X{N}. */
void script_model_brief(struct buf *out, const void *bytes, size_t n);
/* Return the current file that has the keys. The caller frees its bytes. */
struct content script_model_file(const struct run *r);
/* True if the directory holds only the model's files and, without `tensors`, these have their
 * original bytes. */
bool script_model_whole(const struct run *r);

/* ---- copies of the model, the disk, the clock and the log ---- */

/* What copies do, and the disk says. */
struct script_gate {
    bool hold;     /* copies stop at their beginning */
    bool full;     /* no room is left */
    unsigned held; /* number of copies that have stopped */
    int spoilt;    /* result of those that have stopped, when they go on; 0: success */
    int error;     /* error that copies return */
    unsigned torn; /* 1: a write to the model is cut short; 2: and then fails */
};
/* Change the gate: script_gate_go() lets the copies go on. */
struct script_gate *script_gate_open(void);
void script_gate_close(void);
/* Wait for a copy to stop. Returns false if none does within a minute. */
bool script_copies_held(void);
/* Forget all of it, and let copies go on. */
void script_calm(void);

extern _Atomic long script_ahead; /* seconds by which the clock runs ahead */
extern _Atomic long script_still; /* the second at which the clock is stopped; 0: running */

/* Receive the lines of the tree's log; any thread may call this. */
void script_log(int priority, const char *line);
/* Check that the log since the last call contains the text. text NULL: that it has no warning. */
void script_logged(struct run *r, const char *text);

#endif
