/* SPDX-License-Identifier: MIT */
/* The values of keys: their types, what a key has now, and a text as the value of a key. */
#ifndef LIVE_VALUE_H
#define LIVE_VALUE_H

#include "live/queue.h"

/* Parse the name of a type: "u32", "array[string]". Returns false if there is no such type, or if
 * values of it cannot be edited (arrays of arrays). */
bool type_by_name(const char *name, size_t n, struct typed *ret);
void type_put(const struct typed *t, struct buf *out);
/* Parse "KEY:TYPE", where TYPE names a type. Returns false for other names. */
bool type_of_name(const char *file, char key[TREE_NAME_MAX + 1], struct typed *ret);

/* True if the accepted state has the key, even if its name is gone or hidden. */
bool value_is_stored(const struct live *l, const struct name *x);
/* Return the key's value in the accepted state, which the caller frees with shown_free(). */
struct shown value_stored(const struct live *l, const struct name *x);

/*
 * Make a text the value of a key: parse it as `typed`, else as the key's type, else as the type
 * that a new key gets. `old` is the stored value. Returns 0 after setting *type and *payload, 1 if
 * the key has this value already, or -errno with the reason. Call without the lock.
 */
int value_parse(const struct name *x, const struct gguf_format *fmt, const struct shown *old,
                const struct typed *typed, const struct buf *text, uint32_t *type,
                struct buf *payload, struct err *e);
/* Make q->text the value of a key in l->pending. Returns as request.apply(). */
int value_accept(struct live *l, struct request *q, const struct name *x, struct err *e);
/*
 * Refuse a text while it is written, if nothing that follows could make it a value: a shell's echo
 * hears of an error in write(2), but not in close(2). at_once: the text, or what was appended to it,
 * came in one write. Returns 0 or -errno with the reason.
 */
int value_check_write(struct live *l, const struct name *x, const struct typed *typed,
                      const struct buf *text, bool at_once, struct err *e);

#endif
