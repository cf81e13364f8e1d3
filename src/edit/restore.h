/* SPDX-License-Identifier: MIT */
/*
 * Restores all keys of a model to an earlier state, as one change. Pure: no file is touched.
 *
 *     edit_change_init(&c, g, NULL);
 *     r = edit_restore(&c, keys, &e);        then edit_plan_make(), as for any change
 *
 * Afterwards the change lists the keys of `keys` in their order, with their exact bytes and types,
 * even where a manual edit would be refused (architecture, alignment, names). ggufs' own keys,
 * `split.*` and `ggufs.reserve`, do not belong to the user: those of the base stay, those of `keys`
 * are left out. Keys that are equal in both keep their entries, so that only differences are
 * logged.
 *
 * Also the identity of a model's keys, by which an earlier state is recognised.
 */
#ifndef EDIT_RESTORE_H
#define EDIT_RESTORE_H

#include "edit/change.h"

/*
 * The change must not have any operation yet. Undo as usual. 0; -EINVAL (`keys` has another byte
 * order or layout than the base), -EFBIG, -ENOMEM (nothing changed).
 */
int edit_restore(struct edit_change *c, const struct gguf *keys, struct err *e);

/*
 * A hash of the format and of all entries in order, except for ggufs' own keys. Equal for equal
 * keys, in every process; not protected against forgery.
 */
uint64_t edit_keys_id(const struct gguf *g);
/* How entries are written: byte order and widths. A model can take back the keys of its own format only. */
uint32_t edit_keys_format(const struct gguf *g);

/* True if the entries of these keys have the same bytes. */
bool edit_same_entry(const struct gguf *a, uint32_t i, const struct gguf *b, uint32_t k);

/* True for a key that ggufs keeps for itself. */
bool edit_key_is_own(const struct gguf *g, uint32_t kv);

#endif
