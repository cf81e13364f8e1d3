/* SPDX-License-Identifier: MIT */
/*
 * The history of a model: a file in the user's state directory with a record per edit, which holds
 * what takes the edit back.
 *
 *     r = history_open(&h, &sys_libc, NULL, "/real/path/m.gguf", HISTORY_KEEP, &e);
 *     r = history_append(&h, &edit, &e);                   before the commit
 *     if (done) h.ended = now;                             after it
 *     r = history_text(&h, edit_keys_id(keys), &text, &e);
 *     r = history_pick(&h, 0, keys, &pick, &e);            then edit_restore(&change, pick.keys, &e)
 *
 * The file's name is the hash of the model's path. Its numbers are little-endian:
 *
 *     head    "GGUFSHS7", u64 sum of what follows, u64 dropped and u64 forgotten (numbers of
 *             states, see below), u64 length of the model's path, the path
 *     record  u64 sum of what follows, u64 length of the record, u64 state, u64 restored (for an
 *             undo, the state that it restored; else 0), i64 time (seconds since 1970), u64 before
 *             and u64 after (edit_keys_id() of the keys), old slots
 *     slot    u32 kind, u32 place, u32 size of the key, u32 size of the bytes, bytes
 *
 * A record has an old slot for each key that its edit touched. It gives the key's place among the
 * keys before the edit, and the key, its type and its value as in the header; for a key that the
 * edit added, just the key. Taking these keys out of the keys after the edit, and putting the old ones
 * back in their places, gives the keys before it, in their order. A tensor that the edit touched
 * has a line of text, because only keys can be restored.
 *
 * A state is a run of records: an edit that begins less than HISTORY_JOIN seconds after the end of
 * the one before belongs to the same state, unless either is an undo. "State N" means the keys
 * before its first record.
 *
 * Invariants:
 *  H1. A record is durable before its edit is written. If the edit fails, or the process dies in
 *      between, the last record's `before` is the id of the keys in the file: the edit was never
 *      done, and the record is passed over and replaced by the next one. A record of tensors only,
 *      which takes nothing back, follows its edit; it is not synced: a power cut may take it.
 *  H2. The numbers of states increase. One that has been shown, and so synced, is never used again.
 *  H3. A model keeps its last `keep` records, and at most HISTORY_BYTES: the oldest are dropped
 *      when a new one is made, which always stays. `dropped` is the state of the last dropped record, `forgotten`
 *      that of the last forgotten one.
 *  H4. Only directories and regular files with a single name are used, and only if they belong to
 *      this process's user. Links are followed only in the state directory's own path.
 *  H5. Files are written under the directory's lock: a record is appended; where others are to go, the
 *      file is replaced as a whole.
 *
 * Nothing in the file is trusted. Keys are restored only if their id is the recorded one. Whatever
 * follows the last valid record is not used. A file with another head is replaced.
 *
 * Threads: one thread at a time may append to a history. Any thread may read it.
 */
#ifndef EDIT_HISTORY_H
#define EDIT_HISTORY_H

#include "base/buf.h"
#include "base/err.h"
#include "base/sys.h"
#include "edit/change.h"
#include "edit/commit.h"

#define HISTORY_KEEP 1000 /* records per model at most, and by default */
#define HISTORY_BYTES ((uint64_t)16 << 20)
#define HISTORY_JOIN 10       /* seconds */
#define HISTORY_PATIENCE 2000 /* longest wait for another process's lock, in ms */

struct history {
    const struct sys *sys;
    char *home, *model; /* owned: the state directory (NULL: there is none) and the model's path */
    size_t keep;
    int64_t ended; /* the caller's: the end of the last edit, in seconds since 1970; 0: none yet */
    /* For history_append(): the file's records, without their bytes, when it was this file, so that an
     * edit need not read those before it. Owned; NULL: not known. */
    struct records *known;
    struct edit_id left;
};

#define HISTORY_INIT ((struct history){0})

/*
 * Open the history of a model, without accessing the disk yet. home: the state directory; NULL:
 * $XDG_STATE_HOME, else /var/lib for root, else $HOME/.local/state. Call history_close() even after
 * a failure. Returns 0 or -ENOMEM.
 */
int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 size_t keep, struct err *e);
void history_close(struct history *h);

/* ---- recording edits ---- */

/* An edit that is about to be written, or has just been. */
struct history_edit {
    /* values and contents may have been dropped; the names remain */
    const struct edit_change *change;
    const struct gguf *after; /* the planned model */
    uint64_t restored;        /* for an undo, the state that it restores; else 0 */
    int64_t now;              /* seconds since 1970 */
    bool done;                /* it is in the file, or in its journal */
};

/*
 * Append an edit's record (H1). Call before and after an edit is written: it does nothing before one
 * that changes no keys, and after one that does.
 * Returns 0; or -EPERM, -EAGAIN (another process holds the lock), -ENOENT (no state directory) or
 * -errno, and the edit will have no record.
 */
int history_append(struct history *h, const struct history_edit *edit, struct err *e);

/* ---- for users ---- */

/*
 * Write one line per state, oldest first: number, time, what its edits changed. id: edit_keys_id()
 * of the present keys. A state whose edits changed nothing has no line. Returns 0 or -errno.
 */
int history_text(const struct history *h, uint64_t id, struct buf *out, struct err *e);

struct history_pick {
    uint64_t state;
    struct gguf *keys; /* owned: the keys of the state, without tensors */
    struct buf said;   /* owned: what restoring them changes, as text */
};

#define HISTORY_PICK_INIT ((struct history_pick){0})

/*
 * Take records back from the present keys until state `number` or, if that is 0, the last state
 * whose keys differ. Returns 0, -ENOENT (no such state; the message says why), -ESTALE (the keys are
 * not those that the records left), -EBADMSG (damaged) or -errno.
 */
int history_pick(const struct history *h, uint64_t number, const struct gguf *now,
                 struct history_pick *ret, struct err *e);
void history_pick_free(struct history_pick *p);

/* Forget all states. Returns 0, -EAGAIN or -errno. */
int history_clear(const struct history *h, struct err *e);

#endif
