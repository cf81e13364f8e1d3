/* SPDX-License-Identifier: MIT */
/*
 * Decides whether a model can be edited, and begins editing with the first edit. Private to this
 * layer.
 */
#ifndef TREE_BEGIN_H
#define TREE_BEGIN_H

#include "tree/internal.h"

/* Open the model's file: for writing if it should and can be edited, and not `late`. */
int begin_open(struct tree *t, struct err *e);
/* Open the other files of a split model, whose first file holds g, for reading. */
int begin_shards(struct tree *t, struct gguf *g, unsigned flags, struct err *e);
void begin_close(struct tree *t);
/*
 * True if another program changed a file of the model, among those that are not edited. Accesses
 * the disk; if the model has very many files, each call checks only some of them, in turn.
 */
bool begin_is_changed(struct tree *t);
/* Call this when the model is parsed: it may turn out that it cannot be edited. */
void begin_parsed(struct tree *t);
/* Call this before each edit of t->meta. Returns -EROFS, -EBUSY (another process has the lock) or
 * -errno. */
int begin_editing(struct tree *t);

#endif
