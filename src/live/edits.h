/* SPDX-License-Identifier: MIT */
/*
 * Finds the value that a key has after all accepted edits, and the content that the key's name
 * shows. Also keeps the drafts of files in metadata/, and turns their texts into accepted edits:
 * values are parsed and added to the change that is not on disk yet (edit/change.h).
 *
 * A draft belongs to its file and, like an open file, follows it through renames. At each flush or
 * fsync after a write, the draft becomes the file's value. A draft that was only truncated is not
 * an edit until its last writer has closed the file: shells close the truncated file once before
 * they write. The file shows its draft from the write or truncation until the draft is accepted or
 * refused. After that, the file shows the stored value, while its writers continue with the draft.
 *
 * Threads: call all functions with the lock of `struct live` held, unless they say otherwise.
 */
#ifndef LIVE_EDITS_H
#define LIVE_EDITS_H

#include "live/batch.h"
#include "live/draft.h"
#include "live/names.h"

/* ---- types ---- */

/* Parse the name of a type: "u32", "array[string]". Returns false if there is no such type. */
bool type_by_name(const char *name, size_t n, struct typed *ret);
void type_put(const struct typed *t, struct buf *out);

/* ---- stored and shown values ---- */

bool stored_has(const struct live *l, const struct name *x);
/* Return the key's value, which the caller frees with shown_free(). */
struct shown stored_value(const struct live *l, const struct name *x);
/* Return the type that a new value should have, as far as it is known without a text. */
struct typed stored_known_type(const struct live *l, const struct name *x);

/* Report a refused value in the log and in user.gguf.error. Returns e->code. */
int name_refused(struct live *l, struct name *x, const struct err *e);
/* Hide a name if the model lacks its key and no program is writing it. */
void name_hide(struct live *l, struct name *x);
/* After edits were dropped, show or hide a name depending on whether the model has its key. x may
 * be NULL. */
void name_follow(struct live *l, struct name *x);

/* ---- finding by name and number ---- */

/* Return the name with this text, even of an untouched key. Returns NULL with the reason in
 * live.names.missing, as do the following functions. */
struct name *look_name(struct live *l, const char *text);
struct name *look_key(struct live *l, const char *key, size_t n);
/* Return the file with this number. */
struct file *look_file(struct live *l, uint32_t number);
/* Three functions for untouched keys of the base: get the number of the key with this name, check
 * whether a number belongs to such a key, and get its attributes as look_attr() does. */
bool look_number(const struct live *l, const char *text, uint32_t *ret);
bool look_is_first(const struct live *l, uint32_t number);
struct shown look_first(const struct live *l, uint32_t number, struct live_attr *ret);
/* Get the number of key kv in a snapshot of the file, if the key is untouched. The second function
 * gets the file name of an untouched key. */
bool look_untouched(const struct live *l, const struct snapshot *g, uint32_t kv, uint32_t *ret);
void look_text(const struct live *l, uint32_t number, char ret[TREE_NAME_MAX + 1]);
/* Return the file that a name shows, making one if the model has the key and there is no file.
 * Returns NULL if the name is hidden. */
struct file *look_visible(struct live *l, struct name *x);
/* Like look_visible(), for a name given as text. */
struct file *look_find(struct live *l, const char *text);
/* Return the file with this name. KEY:TYPE is another name for KEY as long as KEY has that type. */
struct file *look_find_typed(struct live *l, const char *text);
/* True if a key has or had this name. */
bool look_is_key(const struct live *l, const char *text);
/* Return the type that a file without a value should have. */
struct typed look_type(const struct file *f);
/* Return the value that a key's file shows. */
struct shown look_shown(const struct live *l, const struct file *f);
/* Get the file's attributes. If the size depends on a value, returns that value, which must be
 * measured without the lock; otherwise sets the size. */
struct shown look_attr(const struct live *l, struct file *f, struct live_attr *ret);
/* Measure the value that look_attr() returned, and free it. Call without the lock. */
void look_measure(struct shown *s, struct live_attr *ret);

/* Classify a name that has no file (names.h). */
enum name_class look_classify(const struct live *l, const char *text, enum name_way way);
/* Parse "KEY:TYPE", where TYPE names a value type. Returns false for other names. */
bool name_typed(const char *file, char key[TREE_NAME_MAX + 1], struct typed *ret);

/* ---- drafts ---- */

/* Add a writer, creating the draft if needed. unready: why the model cannot be edited at the
 * moment; code 0 if it can. made: the file is new, and is empty whatever value its key has. */
int draft_join(struct live *l, struct file *f, bool truncate, bool made, const struct err *unready);
/* Remove a writer; the removal of the last one ends the draft. Returns 0, or an error if a
 * truncation without a write was refused. */
int draft_leave(struct live *l, struct file *f);
int draft_write(struct live *l, struct file *f, bool append, uint64_t off, const void *bytes,
                size_t n);
int draft_truncate(struct live *l, struct file *f, uint64_t size);
/* Accept the draft, and record the edit's number in file->promise. Returns 1 if an edit was made, 0
 * if there was nothing to do, or -errno. */
int draft_settle(struct live *l, struct file *f);
/* True if some content written to the draft has not been accepted. */
bool draft_is_unjudged(const struct draft *d);

/* True if the file shows the draft rather than its key's value. */
bool draft_is_shown(const struct draft *d);
/* Turn a helper's draft into the draft of a key whose value is the helper's text. emptied: start
 * with an empty text instead. */
void draft_to_key(struct draft *d, bool emptied);
/* Turn a key's draft into a helper's with this content, which is moved. */
void draft_to_helper(struct draft *d, struct buf *text);

/* Turn a helper into a key's file, or vice versa. Updates the byte count of all helpers, which
 * includes their drafts. */
void file_set_kind(struct live *l, struct file *f, enum file_kind kind);
/* Return the bytes that a file shows instead of a key's value: those of a helper, or of a draft
 * that has not been accepted or refused yet. Returns NULL if the file shows its key's value. */
struct buf *file_bytes(struct file *f);

/* ---- edits ---- */

/* True if the name of a key or tensor contains a NUL, and thus may equal another one up to the NUL.
 * Any thread may call this. */
bool has_nul_names(const struct gguf *g);

/* Make a text the value of a key. Returns 1 if it was accepted, 0 if the key already has it, or
 * -errno with a message in *e. Call writer_accepted() after an accepted edit. */
int edits_accept(struct live *l, struct name *x, const struct buf *text, struct err *e);
/* Rename a key to one that is not stored, or change a key's type. Returns the same results as
 * edits_accept(). */
int edits_rename(struct live *l, struct name *from, struct name *to, struct err *e);
int edits_retype(struct live *l, struct name *x, struct typed type, struct err *e);
/* Remove a key. Returns the same results as edits_accept(). */
int edits_remove(struct live *l, struct name *x, struct err *e);
/* Accept the removals that are due. Returns 0, or the error that kept keys from being removed. */
int edits_remove_due(struct live *l);

#endif
