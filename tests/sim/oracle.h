/* SPDX-License-Identifier: MIT */
/*
 * The oracle says what may be seen. It knows registers (such as a key's value) and their
 * assignments, each with the time from its call to its answer, but nothing about how the program
 * works.
 *
 * Values are tokens: each write of a run has its own. A mask is a set of tokens; the mask of an
 * assignment whose value is uncertain has several.
 *
 * A look from time a to time b may see every assignment that began before b, except those that
 * failed before a, and those that were replaced: a later one began after their end and was certain
 * before a.
 */
#ifndef TESTS_SIM_ORACLE_H
#define TESTS_SIM_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

enum { TOKEN_ABSENT, TOKEN_EMPTY, TOKEN_OTHER, TOKEN_FIRST, TOKENS = 64 };
#define BIT(token) (UINT64_C(1) << (token))

enum { ASSIGNS = 1500 };

/* How an assignment ended. */
enum outcome {
    FAILED,   /* it was not made */
    PERHAPS,  /* it may or may not have been made */
    HIDDEN,   /* it is shown, but may never be written: the key may come back */
    ACCEPTED, /* it is shown, and may be on the disk */
    DURABLE,  /* it is on the disk */
};

struct assign {
    unsigned reg;
    uint64_t mask;
    uint64_t start, end; /* `end` is UINT64_MAX while it is in progress */
    /* times since which it is certainly shown, and certainly on the disk; or UINT64_MAX */
    uint64_t sure[2];
    uint64_t dead; /* when it failed */
    bool hidden;
    bool undoes; /* until it ends, it may have any value that the register ever had */
};

struct oracle {
    struct assign a[ASSIGNS];
    unsigned n;
    uint64_t time;
    const unsigned *faults; /* number of faults; after one, accepted assignments may be lost */
};

void oracle_reset(struct oracle *o, const unsigned *faults);
/* Returns the time, which advances with each call. */
uint64_t oracle_time(struct oracle *o);
/* Begins an assignment of one of these values, and returns its number. */
unsigned oracle_begin(struct oracle *o, unsigned reg, uint64_t mask);
/* Begins an assignment of any value that the register has had, or will have until the assignment
 * ends. */
unsigned oracle_begin_undo(struct oracle *o, unsigned reg);
/* Adds possible values to an assignment. */
void oracle_widen(struct oracle *o, unsigned i, uint64_t mask);
void oracle_end(struct oracle *o, unsigned i, enum outcome how);
/* Records that an assignment, which has ended, is now durable. */
void oracle_durable(struct oracle *o, unsigned i);
/* Records that all accepted assignments that ended before `since` are durable. */
void oracle_all_durable(struct oracle *o, uint64_t since);
/* Returns the values that a look from a to b may see; disk: a look at the file. */
uint64_t oracle_may(const struct oracle *o, unsigned reg, uint64_t a, uint64_t b, bool disk);
/* Returns all values that the register may ever have had. */
uint64_t oracle_ever(const struct oracle *o, unsigned reg);
/* Returns whether the register has been assigned since that time, or is being assigned. */
bool oracle_changed(const struct oracle *o, unsigned reg, uint64_t since);
/* Returns whether nothing else has been assigned to the assignment's register since it began, and
 * no removal may follow. */
bool oracle_alone(const struct oracle *o, unsigned i);
/* Writes the assignments of a register, for a report. */
void oracle_tell(const struct oracle *o, unsigned reg, char *dst, unsigned n);

#endif
