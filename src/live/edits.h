/* SPDX-License-Identifier: MIT */
/*
 * Finds the value of a key in the model with all accepted edits, and the content that the key's
 * name shows. Also makes an accepted edit from a text: values are parsed and put into the change
 * that is not on disk yet (edit/change.h). Planning is in batch.h.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_EDITS_H
#define LIVE_EDITS_H

#include "live/batch.h"
#include "live/key_draft.h"
#include "live/helper.h"

/* ---- stored and shown values ---- */

bool stored_has(const struct live *l, const struct name *x);
/* Return the value, with references for shown_free(). */
struct shown stored_value(const struct live *l, const struct name *x);
/* Return the rank of a stored key. */
uint64_t stored_rank(const struct live *l, const struct name *x);
/*
 * Return the type that a new value should have: as far as the name has it; and as far as it is
 * known before there is a text.
 */
struct typed stored_wanted_type(const struct name *x);
struct typed stored_known_type(const struct live *l, const struct name *x);

/* Record a refused value for the log and for user.gguf.error. Returns e->code. */
int name_refused(struct live *l, struct name *x, const struct err *e);
/* Hide a name: a key that the model lacks is visible only while it is being written. */
void name_hide(struct live *l, struct name *x);
/* Edits were given up: what a name (or NULL) shows is derived from whether the model has the key. */
void name_follow(struct live *l, struct name *x);

/* ---- finding by name and number ---- */

/* Return a name, even of an untouched key; NULL: live.names.missing says why. The same holds for
 * the next functions. */
struct name *look_name(struct live *l, const char *text);
struct name *look_key(struct live *l, const char *key, size_t n);
/* Return the file with this number. */
struct file *look_file(struct live *l, uint32_t number);
/* Get the number of an untouched key of the base by its name; check whether a number is one; get
 * the entry of one, like look_attr(). */
bool look_number(const struct live *l, const char *text, uint32_t *ret);
bool look_is_first(const struct live *l, uint32_t number);
struct shown look_first(const struct live *l, uint32_t number, struct live_attr *ret);
/* Get the number of key kv of a snapshot of the file, if it is untouched, and its name. */
bool look_untouched(const struct live *l, const struct snapshot *g, uint32_t kv, uint32_t *ret);
void look_text(const struct live *l, uint32_t number, char ret[TREE_NAME_MAX + 1]);
/* Return the file that a name shows. If the model has the key and there is no file, one is made.
 * NULL: the name is hidden. */
struct file *look_visible(struct live *l, struct name *x);
/* The same for a name that is given as text. */
struct file *look_find(struct live *l, const char *text);
/* Return the file of a text. KEY:TYPE is another name for KEY as long as that has the type. */
struct file *look_find_typed(struct live *l, const char *text);
/* True if a key has, or had, this name. */
bool look_is_key(const struct live *l, const char *text);
/* Return the type that a file without a value should have. */
struct typed look_type(const struct file *f);
/* Return the value that a file shows, if it is a key's file. */
struct shown look_shown(const struct live *l, const struct file *f);
/*
 * Get the file's entry. If its size depends on a value, that value is returned, to be measured
 * without the lock; otherwise the size is set.
 */
struct shown look_attr(const struct live *l, struct file *f, struct live_attr *ret);
/* Measures that value, without the lock, and frees it. */
void look_measure(struct shown *s, struct live_attr *ret);

/* Classifies a name in metadata/. */
enum name_class look_classify(const struct live *l, const char *text);
/* Message about a file that is neither a key nor a known helper, and is dropped at the end. */
#define LOOK_STRAY "it is not a key name: these have a dot, as my.flag"

/* ---- edits ---- */

/* True if some key has a NUL in it, and may equal another one up to there. Any thread. */
bool has_nul_names(const struct gguf *g);
/* Return the type that this text would have. */
struct typed edits_type(const struct live *l, const struct name *x, const struct buf *text);
/* Parse the text as a value of a type. Returns 1 if the key already has it, 0, or -errno. */
int edits_parse(const struct live *l, const struct name *x, const struct buf *text,
                const struct typed *type, struct buf *payload, struct err *e);

/*
 * Take a text as the value of a key. Returns 1 if it was accepted, 0 if the key already has it, or
 * -errno with a message in *e. After an accepted edit call writer_accepted().
 */
int edits_accept(struct live *l, struct name *x, const struct buf *text, struct err *e);
/* Give a key an earlier value; if there was none, remove it. Returns the same results as
 * edits_accept(). */
int edits_restore(struct live *l, struct name *x, const struct shown *value, struct err *e);
/* Rename a key to one that is not stored, or change a type. Returns the same results as
 * edits_accept(). */
int edits_rename(struct live *l, struct name *from, struct name *to, struct err *e);
int edits_retype(struct live *l, struct name *x, struct typed type, struct err *e);
/* Remove a key. Returns the same results as edits_accept(). */
int edits_remove(struct live *l, struct name *x, struct err *e);
/* Accept the due removals. Returns 0, or the reason why keys reappeared. */
int edits_remove_due(struct live *l);

#endif
