/* SPDX-License-Identifier: MIT */
/*
 * Whether a model can be edited, and how editing begins with the first edit. Private to this layer.
 */
#ifndef TREE_BEGIN_H
#define TREE_BEGIN_H

#include "tree/internal.h"

/* Open the model's file: for writing if it should and can be edited, and not `late`. */
int begin_open(struct tree *t, struct err *e);
/* The same for the other files of a split model, for model_open_shards(). */
struct model_opener begin_opener(struct tree *t);
void begin_close(struct tree *t);
/*
 * True if another program changed a file of the model, among those that `l` does not edit; NULL: none is edited yet.
 * Accesses the disk; if the model has very many files, checks some of them, in turn.
 */
bool begin_is_changed(struct tree *t, const struct live *l);
/* Called once the model is parsed: it may turn out that it cannot be edited. */
void begin_parsed(struct tree *t);
/* Call before each edit: *ret is what is edited. -EROFS, -EBUSY (another process has the lock), -errno. */
int begin_editing(struct tree *t, struct live **ret);

#endif
