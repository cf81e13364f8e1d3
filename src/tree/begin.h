/* SPDX-License-Identifier: MIT */
/* Decides whether a model can be edited, and begins editing at the first edit. Private to this
 * layer. */
#ifndef TREE_BEGIN_H
#define TREE_BEGIN_H

#include "tree/internal.h"

/* Open the model's file, for writing if it should and can be edited and `late` is not set. */
int begin_open(struct tree *t, struct err *e);
/* Open for reading the other files of a split model; g is the header of its first file. */
int begin_shards(struct tree *t, struct gguf *g, unsigned flags, struct err *e);
void begin_close(struct tree *t);
/* Returns true if another program changed a file of the model that is not being edited. Accesses
 * the disk; if the model has very many files, each call checks only some of them, in turn. */
bool begin_is_changed(struct tree *t);
/* Call this when the model has been parsed; it may turn out that it cannot be edited. */
void begin_parsed(struct tree *t);
/* Begin editing if it has not begun. Call before each edit to t->meta. Returns 0, -EROFS, -EBUSY
 * (another process has the lock) or another -errno. */
int begin_editing(struct tree *t);

#endif
