/* SPDX-License-Identifier: MIT */
/*
 * All keys of a model made what they once were, as one change. Pure: no file is touched.
 *
 *     edit_change_init(&c, g, NULL);
 *     r = edit_restore(&c, keys, &e);        then edit_plan_make(), as for any change
 *
 * Afterwards the change lists the keys of `keys` in their order, with their exact bytes and types,
 * whatever an edit by hand may not do (architecture, alignment, names). The program's own keys,
 * `split.*` and `ggufs.reserve`, are not the user's: those of the base stay, those of `keys` are
 * left out. Keys that are equal in both keep their entries, so that only differences are logged.
 *
 * Also the identity of a model's keys, by which a state of the past is recognised.
 */
#ifndef EDIT_RESTORE_H
#define EDIT_RESTORE_H

#include "edit/change.h"

/*
 * The change has no operation yet. Undo as for any. 0; -EINVAL (`keys` is of another byte order or
 * layout than the base), -EFBIG, -ENOMEM (nothing changed).
 */
int edit_restore(struct edit_change *c, const struct gguf *keys, struct err *e);

/* A hash of the format and of all entries in order, but for those of the program's own keys. Equal
 * for equal keys, in every process; not made against forgery. */
uint64_t edit_keys_id(const struct gguf *g);

/* True if these keys' entries are the same bytes. */
bool edit_same_entry(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k);

/* True for a key that the program keeps for itself. */
bool edit_key_is_own(const struct gguf *g, uint32_t kv);

#endif
