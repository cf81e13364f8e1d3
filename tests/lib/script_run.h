/* SPDX-License-Identifier: MIT */
/* A running script: shared by script.c, which parses it, and script_ops.c, which executes it. */
#ifndef TESTS_LIB_SCRIPT_RUN_H
#define TESTS_LIB_SCRIPT_RUN_H

#include <semaphore.h>
#include <string.h>

#include "script.h"
#include "script_model.h"
#include "tree/edits.h"
#include "tree/folder.h"
#include "tree/xattr.h"

enum { HANDLES = 26, WAITS = 8, ARGS = 12 };

struct waiter {
    struct live_wait wait; /* first */
    sem_t answered;
    int result;
};

struct handle {
    struct tree_file *f; /* NULL: not open */
    uint64_t node;
    uint64_t at; /* the offset of the next write */
};

struct run {
    const struct script *s;
    const char *mode;        /* for messages */
    struct tree_options opt; /* of each mount */
    struct script_model m;
    struct tree *t; /* NULL: finished */
    struct handle handle[HANDLES];
    struct waiter waiter[WAITS];
    unsigned started, waited; /* operations with & */
    int finished;             /* the result of the end of the mount */
    struct timespec noted;    /* by `time noted` */
    size_t heap;              /* memory in use at the beginning */
    char op[512];             /* the operation, for messages */
    bool failed;
    bool lenient; /* any error is allowed: memory is short */
};

/* An operation: its arguments; if it may have to wait, `w`. 0, -errno, LIVE_PARKED. */
struct script_op {
    const char *name;
    int (*run)(struct run *r, char **arg, struct waiter *w);
    unsigned least, most; /* arguments */
    bool rest;            /* one: the rest of the line */
};

/* All operations, up to one without a name. */
extern const struct script_op script_edits[], script_looks[], script_faults[], script_tensors[];

/* The code of a named error; 0: no such name. */
int script_errno(const char *name);

/* The test fails; the script ends. */
void script_fail(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Run one operation, n bytes of text. */
void script_do(struct run *r, const char *text, size_t n);
static inline void script_one(struct run *r, const char *op)
{
    script_do(r, op, strlen(op));
}

/* Run one given as a format. It is noted in the log; after a failure it is not run. */
void script_noted(struct run *r, struct buf *log, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void script_start(struct run *r);
int script_finish(struct run *r);

/* The final result of an operation that returned `result`. _here: `w` can be used again. */
int script_wait(struct waiter *w, int result);
int script_wait_here(struct waiter *w, int result);

/* From the words of `open`. */
int script_flags(struct run *r, char **word);
/* metadata/ */
uint64_t script_folder(void);
uint64_t script_number(struct run *r, const char *text);
/* An open handle. If it is not open, the script fails, and ->f is NULL. */
struct handle *script_handle(struct run *r, const char *name);
/* As the kernel opens a name: it looks it up, and opens or creates; 0 or -errno. And the end of the handle. */
int script_open(struct run *r, const char *name, int flags, struct handle *h);
void script_release(struct run *r, struct handle *h);
/* printf TEXT > NAME; flags: O_TRUNC or O_APPEND. */
int script_redirect(struct run *r, const char *name, int flags, const char *text, struct waiter *w);
/* Receives the lines of the tree's log; any thread. */
void script_log(int priority, const char *line);
void script_log_clear(void);
/* The real clock again: ends `later`, `hasty` and `still`. */
void script_time_runs(void);
/* Memory in use. */
size_t script_heap(void);

#endif
