/* SPDX-License-Identifier: MIT */
/* State of a running script, shared by script.c, which parses it, and script_ops.c, which executes
 * it. */
#ifndef TESTS_LIB_SCRIPT_RUN_H
#define TESTS_LIB_SCRIPT_RUN_H

#include <semaphore.h>
#include <string.h>

#include "script.h"
#include "script_model.h"
#include "tree/folder.h"
#include "tree/attr.h"

enum { HANDLES = 26, WAITS = 8, ARGS = 12 };

struct waiter {
    struct live_wait wait; /* must come first */
    sem_t answered;
    int result;
};

struct handle {
    struct tree_file *f; /* NULL: not open */
    uint64_t node;
    uint64_t at; /* offset of the next write */
};

struct run {
    const struct script *s;
    const char *mode;        /* commit mode, for messages */
    struct tree_options opt; /* options of each mount */
    struct script_model m;
    struct tree *t; /* NULL once the mount has ended */
    struct handle handle[HANDLES];
    struct waiter waiter[WAITS];
    unsigned started, waited; /* counts of operations with & */
    int finished;             /* result of ending the mount */
    struct timespec noted;    /* set by `time noted` */
    size_t heap;              /* memory in use at the beginning */
    char op[512];             /* the operation, for messages */
    bool failed;
    bool lenient; /* any error is allowed, because allocations fail */
};

/* Runs an operation with its arguments, using `w` if it may have to wait. Returns 0, -errno or
 * LIVE_PARKED. */
struct script_op {
    const char *name;
    int (*run)(struct run *r, char **arg, struct waiter *w);
    unsigned least, most; /* minimum and maximum number of arguments */
    bool rest;            /* the rest of the line is one argument */
};

/* All operations. Each array ends with an entry without a name. */
extern const struct script_op script_edits[], script_looks[], script_faults[], script_tensors[];

/* Return the code of a named error, or 0 for an unknown name. */
int script_errno(const char *name);

/* Make the test fail, and end the script. */
void script_fail(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Run one operation, a string of n bytes. */
void script_do(struct run *r, const char *text, size_t n);

/* Note an operation, given as a format, in the log, and run it unless the script has failed. */
void script_noted(struct run *r, struct buf *log, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void script_start(struct run *r);
int script_finish(struct run *r);

/* Wait for the operation, if necessary, and return its final result. After _here, `w` can be used
 * again. */
int script_wait(struct waiter *w, int result);
int script_wait_here(struct waiter *w, int result);

/* Return the open(2) flags for the words of `open`. */
int script_flags(struct run *r, char **word);
/* Return the node of metadata/. */
uint64_t script_folder(void);
uint64_t script_number(struct run *r, const char *text);
/* Return an open handle. If it is not open, the script fails, and ->f is NULL. */
struct handle *script_handle(struct run *r, const char *name);
/* Open a name as the kernel does: look it up, then open or create it. Returns 0 or -errno.
 * script_release() ends the handle. */
int script_open(struct run *r, const char *name, int flags, struct handle *h);
void script_release(struct run *r, struct handle *h);
/* Do what "printf TEXT > NAME" does, or ">>" if flags is O_APPEND, not O_TRUNC. */
int script_redirect(struct run *r, const char *name, int flags, const char *text, struct waiter *w);
/* Receive the lines of the tree's log; any thread may call this. */
void script_log(int priority, const char *line);
void script_log_clear(void);
/* Restore the real clock after `later`, `hasty` and `still`. */
void script_time_runs(void);
/* Return the amount of memory in use. */
size_t script_heap(void);

#endif
