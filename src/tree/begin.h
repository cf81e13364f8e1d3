/* SPDX-License-Identifier: MIT */
/*
 * Whether a model can be edited, and editing begun with the first edit. Private to this layer.
 */
#ifndef TREE_BEGIN_H
#define TREE_BEGIN_H

#include "tree/internal.h"

/* Open the model's file: for writing if it is to be edited and can be, and not late. */
int begin_open(struct tree *t, struct err *e);
/* The same of the other files of a split model, for model_open_shards(). */
struct model_opener begin_opener(struct tree *t);
void begin_close(struct tree *t);
/*
 * True if another program changed a file of the model: of those that `l` does not edit; NULL: none is
 * edited yet. The disk is asked, of a model of very many files for some of them, in turn.
 */
bool begin_is_changed(struct tree *t, const struct live *l);
/* It is parsed: it may be one that cannot be edited. */
void begin_parsed(struct tree *t);
/*
 * Before each edit: *ret is what is edited. -EROFS, -EBUSY (another process has the lock), -errno.
 */
int begin_editing(struct tree *t, struct live **ret);

#endif
