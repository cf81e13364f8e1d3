/* SPDX-License-Identifier: MIT */
/*
 * From a text to an accepted edit: values are parsed, and the change of what is not on the disk yet
 * takes them (edit/change.h). Nothing is planned here: see batch.h.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_EDITS_H
#define LIVE_EDITS_H

#include "live/batch.h"
#include "live/stored.h"

/* Some key has a NUL in it: it may be equal to another up to that. Any thread. */
bool has_nul_names(const struct gguf *g);
/* The type that this text is to have. */
struct typed edits_type(const struct live *l, const struct name *x, const struct buf *text);
/* The text as a value of a type. 1: it is what the key has already; 0; -errno. */
int edits_parse(const struct live *l, const struct name *x, const struct buf *text,
                const struct typed *type, struct buf *payload, struct err *e);

/*
 * Take a text as the value of a key. 1: it is accepted; 0: it is what the key has already; -errno
 * with a line in *e. What was accepted goes to writer_accepted().
 */
int edits_accept(struct live *l, struct name *x, const struct buf *text, struct err *e);
/* Give a key the value that it had once; none: it is removed. As edits_accept(). */
int edits_restore(struct live *l, struct name *x, const struct shown *value, struct err *e);
/* Rename a key to one that is not stored, or change a type. As edits_accept(). */
int edits_rename(struct live *l, struct name *from, struct name *to, struct err *e);
int edits_retype(struct live *l, struct name *x, struct typed type, struct err *e);
/* Remove a key. As edits_accept(). */
int edits_remove(struct live *l, struct name *x, struct err *e);
/* Make the removals that are due part of what is accepted. 0, or why keys are back. */
int edits_remove_due(struct live *l);
#endif
