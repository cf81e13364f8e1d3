/* SPDX-License-Identifier: MIT */
/*
 * A key's value as shown by the tree: from a snapshot, or from an edit that is in no snapshot yet.
 * References are taken under a lock; work on the value, above all rendering, needs none.
 *
 * Threads: one at a time; the value itself is immutable.
 */
#ifndef EDIT_SHOWN_H
#define EDIT_SHOWN_H

#include "edit/change.h"
#include "model/snapshot.h"

struct shown {
    struct snapshot *snap;    /* a reference; NULL: the key has no value */
    struct edit_value *value; /* a reference; NULL: the value in the snapshot */
    uint32_t kv;              /* number of the key in the snapshot, if value is NULL */
};

#define SHOWN_NONE ((struct shown){0})

/* For CLEANUP(). */
void shown_free(struct shown *s);

/* The value; false if the key has none. Valid until shown_free(). */
bool shown_value(const struct shown *s, struct gguf_value *ret);
/* Its bytes as in the file, after the type word. */
const uint8_t *shown_bytes(const struct shown *s, size_t *n);
/* True if it has this type and these bytes. */
bool shown_is(const struct shown *s, uint32_t type, const struct buf *bytes);
/* The size of its text, measured once per value. */
uint64_t shown_size(const struct shown *s);
void shown_text(const struct shown *s, struct buf *out);
/* A number unique among all values of this key in this mount. */
uint64_t shown_id(const struct shown *s);

#endif
