/* SPDX-License-Identifier: MIT */
/*
 * The oracle says what may be seen: it is the contract, played one call after another. A state has
 * the keys' values, the drafts, the helpers, the edits that wait for their turn, and what may be on
 * the disk.
 *
 * Calls overlap, so the oracle keeps all states that the answers so far allow. A call takes effect
 * at one moment between its beginning and its answer; an edit does so when its turn comes. At each
 * answer, states that cannot explain it go; the run fails when none is left.
 *
 * The keys' texts are empty or a number; a spoilt one has a byte that no value has.
 */
#ifndef TESTS_SIM_ORACLE_H
#define TESTS_SIM_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "story.h"

enum { TOKEN_FIRST = 3, TOKENS = 64 };
enum { CALLERS = ACTORS + 1, LATE_CALLER = ACTORS, HANDLES = 64 };

struct chars {
    char b[7];
    uint8_t n;
};

enum kind {
    /* A look: its answer must fit one moment. */
    OP_LOOKUP, /* name; node */
    OP_READ,   /* node: the text of its file */
    OP_LIST,   /* the keys that are listed */
    OP_VIEW,   /* a view of the whole */
    /* A call that changes something. */
    OP_OPEN,   /* node, handle, flags */
    OP_CREATE, /* name, handle, flags */
    OP_WRITE,  /* handle, text: at the beginning */
    OP_CUT,    /* handle: ftruncate to 0 */
    OP_FLUSH,
    OP_FSYNC,
    OP_RELEASE,
    OP_UNLINK,   /* name */
    OP_RENAME,   /* name, to */
    OP_RETYPE,   /* node, type */
    OP_TRUNCATE, /* node: truncate(2) to 0 */
    OP_SYNC,     /* fsync of the directory */
    OP_UNDO,
};

struct op {
    enum kind kind;
    int name, to;
    unsigned flags, type, handle;
    uint64_t node;
    struct chars text;
};

/* A key's value: its type and its number, or 0 if there is no such key. */
typedef uint16_t value_t;
enum { TYPE_STRING = 1, TYPE_U32, TYPE_U64, EMPTY = 0xfff };
value_t value_make(unsigned type, unsigned number);

struct state;
enum { STATES = 8192 };

struct oracle {
    const unsigned *faults; /* number of faults so far */
    bool fails;             /* there may be some: then an edit may fail */
    bool finishes;          /* ... or be finished later, in place (contract 7) */
    bool astray;            /* ... or leave its file in the place, after two of the medium */
    bool off;               /* anything may be seen: another program wrote the model */
    bool lost;              /* there were too many states to follow */
    bool durable;           /* closes write before they return */
    bool tensors;           /* they can be edited */
    unsigned stopped;       /* callers that got a signal */
    struct op op[CALLERS];
    unsigned n;
    struct state *state; /* shared by all processes of a story */
};

/* Allocates the states. Call it before the first process starts. */
void oracle_prepare(struct oracle *o);
void oracle_reset(struct oracle *o, const unsigned *faults);
void oracle_begin(struct oracle *o, const value_t first[KEYS], bool durable);

void oracle_call(struct oracle *o, unsigned caller, const struct op *op);
/* The call's text, or its edit, has been taken: it waits for its turn. */
void oracle_parked(struct oracle *o, unsigned caller);
/* A signal may end the wait of the call in progress. */
void oracle_signal(struct oracle *o, unsigned caller);
/* The call is answered. node: the result of a lookup or create. */
void oracle_answer(struct oracle *o, unsigned caller, int r, uint64_t node);
void oracle_answer_read(struct oracle *o, unsigned caller, const char *text, int n);
void oracle_answer_list(struct oracle *o, unsigned caller, unsigned listed);
void oracle_answer_view(struct oracle *o, unsigned caller, const value_t seen[KEYS]);
/* A look has failed. */
void oracle_no_answer(struct oracle *o, unsigned caller);
/* An undo has left these values in the file. Nothing else is in progress. */
void oracle_undone(struct oracle *o, const value_t now[KEYS]);
/* The mount has ended, and everything is on the disk. */
void oracle_finished(struct oracle *o);
/* The file has these values. */
void oracle_look(struct oracle *o, const char *when, const value_t disk[KEYS]);

#endif
