/* SPDX-License-Identifier: MIT */
/*
 * What may be seen: the oracle. It knows registers (a key's value) and their assignments, each with
 * the time from its call to its answer, and nothing about how the program works.
 *
 * Values are tokens: each write of a run has a different one. A set of tokens is a mask. An
 * assignment whose value is uncertain has more than one in its mask.
 *
 * A look from time a to time b may see every assignment that began before b, except those that
 * failed before a, and those followed by another one that began after their end and was certain
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
    FAILED,   /* it is not made */
    PERHAPS,  /* it is, or not */
    HIDDEN,   /* it is shown, but may not be durable: a key that may come back */
    ACCEPTED, /* it is shown; perhaps on the disk */
    DURABLE,  /* on the disk */
};

struct assign {
    unsigned reg;
    uint64_t mask;
    uint64_t start, end; /* end UINT64_MAX: in progress */
    uint64_t sure[2];    /* when it is certain to be shown; on the disk. UINT64_MAX: not yet */
    uint64_t dead;       /* it failed */
    bool hidden;
    bool undoes; /* while it goes on its value may be any that there was, by now */
};

struct oracle {
    struct assign a[ASSIGNS];
    unsigned n;
    uint64_t time;
    const unsigned *faults; /* once there are any, accepted assignments may be lost */
};

uint64_t oracle_time(struct oracle *o); /* a different one each time */
unsigned oracle_begin(struct oracle *o, unsigned reg, uint64_t mask);
/* Any value that there was, or will be until it ends. */
unsigned oracle_begin_undo(struct oracle *o, unsigned reg);
/* Its value may also be one of these. */
void oracle_widen(struct oracle *o, unsigned i, uint64_t mask);
void oracle_end(struct oracle *o, unsigned i, enum outcome how);
/* It ended, and is now durable. */
void oracle_durable(struct oracle *o, unsigned i);
/* Everything that ended before `since` and was accepted is durable. */
void oracle_all_durable(struct oracle *o, uint64_t since);
/* A register's possible values for a look from a to b; disk: on the disk. */
uint64_t oracle_may(const struct oracle *o, unsigned reg, uint64_t a, uint64_t b, bool disk);
/* All values that it ever had. */
uint64_t oracle_ever(const struct oracle *o, unsigned reg);
/* It was assigned since then, or is being assigned. */
bool oracle_changed(const struct oracle *o, unsigned reg, uint64_t since);
/* No other assignment of its register has gone on since it began, and no removal may still follow. */
bool oracle_alone(const struct oracle *o, unsigned i);
/* The assignments of a register, for a report. */
void oracle_tell(const struct oracle *o, unsigned reg, char *dst, unsigned n);

#endif
