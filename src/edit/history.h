/* SPDX-License-Identifier: MIT */
/*
 * The history of a model records what edits changed in its keys, in a file in the user's state
 * directory, so that mistakes can be undone.
 *
 *     r = history_open(&h, &sys_libc, home, "/real/path/m.gguf", HISTORY_KEEP, &e);
 *     struct recorder rec = {.h = &h};
 *     r = recorder_begin(&rec, &edit, &e);       before writing an edit
 *     r = recorder_end(&rec, true, now, &e);     after it: outcome; drops states over the limits
 *     r = history_text(&h, now, &text, &e);
 *     r = history_pick(&h, 0, now, &pick, &e);   the keys before the last edits
 *
 * Each model has one file, named by a hash of the model's path. All numbers are little-endian. All
 * parts begin at multiples of 128 bytes, so that a record is rewritten within one sector:
 *
 *     head     "GGUFSHS4"; u64 number of the last forgotten state; u32 length of the path; zeros;
 *              at 120 u64 sum of head and path; the path
 *     states   oldest first; each is a record and facts; an edit that joins the last state adds
 *              facts to it
 *
 * A fact gives one key's place among the state's keys and its entry in the model's header, or that
 * the state did not have the key. A state has a fact about each key that the edits after it
 * changed, made, moved or removed. So its keys can be derived from those of the next state, or from
 * the model's for the last state. Keys without a fact keep their entries and order, and the others
 * go where the facts say.
 *
 * Invariants:
 *  H1. All that is kept about an edit is durable before the edit is written.
 *  H2. The numbers of a model's states increase and are never reused.
 *  H3. After recorder_end() a model has at most `keep` states (for HISTORY_KEEP_SAME, at most as
 *      many as before its newest was added), and all models together take at most
 *      HISTORY_BYTES_MAX. The oldest states are removed first, but never a model's last state.
 *  H4. Only directories, and regular files with a single name, are used, and only if this process's
 *      user owns them and no other user can write to them. Links are followed only above the state
 *      directory.
 *  H5. A file is changed only under the directory's lock. If the directory is removed, the next
 *      state creates it again; until then readers find no states.
 *
 * Nothing in a file is trusted. Sums and sizes are checked, and keys are parsed like those of a
 * model. An unreadable end of a file, damaged or left by a power failure, is ignored and
 * overwritten.
 *
 * Threads: one thread at a time may use a history.
 */
#ifndef EDIT_HISTORY_H
#define EDIT_HISTORY_H

#include <limits.h>

#include "base/buf.h"
#include "base/sys.h"
#include "gguf/gguf.h"

#define HISTORY_KEEP 20       /* states per model, by default */
#define HISTORY_KEEP_MAX 1000 /* more than a user would ever read */
/*
 * Keep as many states as there are, at least HISTORY_KEEP. For callers that do not know the user's
 * limit.
 */
#define HISTORY_KEEP_SAME UINT_MAX
#define HISTORY_BYTES_MAX ((uint64_t)256 << 20)
#define HISTORY_PATIENCE 2000 /* longest wait of history_clear() for another process, in ms */
#define HISTORY_JOIN 10       /* seconds after an edit in which the next one joins its state */
#define HISTORY_UNIT 128

struct history {
    const struct sys *sys;
    char *home, *model; /* owned: paths of the state directory and of the model, links resolved */
    char name[17];      /* name of the model's history file */
    unsigned keep;
    int dir; /* owned: the open directory; -1: not open */
};

#define HISTORY_INIT ((struct history){.dir = -1})

/*
 * Get the state directory: $XDG_STATE_HOME, else $HOME/.local/state, else /var/lib for root. The
 * caller frees it. Returns 0, -ENOENT (no home) or -ENOMEM.
 */
int history_home(char **ret, struct err *e);
/*
 * Open the history of a model, without accessing the disk yet. home: from history_home(). Call
 * history_close() even after a failure. Returns 0 or -ENOMEM.
 */
int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e);
void history_close(struct history *h);

/* The members are in the order of the file. */
struct history_record {
    uint64_t number;
    uint64_t restored;   /* for an undo, which no edit joins, the state it went back to; else 0 */
    int64_t begin, end;  /* times of its first and last edit, in seconds since 1970 */
    uint64_t before;     /* edit_keys_id() of the state */
    uint64_t landed;     /* edit_keys_id() after its last edit known to be in the file */
    uint64_t planned;    /* edit_keys_id() after the edit being written */
    uint64_t format;     /* format of the entries: byte order and widths */
    uint64_t bytes, sum; /* size and sum of the facts that follow */
};

struct history_state {
    struct history_record rec;
    uint64_t at; /* offset of the record in the file */
    size_t fact; /* index of its first fact */
};

struct history_fact {
    uint64_t place;       /* among the state's keys except ggufs' own; UINT64_MAX: no such key */
    const uint8_t *bytes; /* the entry, or just the key if it has no place */
    size_t n;
    uint32_t key_off, key_len; /* the key's range within bytes */
};

/* A model's history file in memory. */
struct history_file {
    struct buf bytes;
    uint64_t forgotten;
    struct history_state *state; /* owned */
    struct history_fact *fact;   /* owned */
    size_t n, cap, n_fact, cap_fact;
    uint64_t first, end; /* offsets of the beginning and end of the states; 0: no file */
};

#define HISTORY_FILE_INIT ((struct history_file){0})

/*
 * Load the states; a missing file has no states. Returns 0, -EPERM, -EBADMSG (a damaged head),
 * -ESTALE (a file of another model) or -errno.
 */
int history_load(struct history *h, struct history_file *ret, struct err *e);
void history_file_free(struct history_file *f);
/* Parse bytes already in f->bytes. Returns the same errors. */
int history_parse(struct history_file *f, const char *model, struct err *e);

/*
 * Derive the keys of state i from those of the next one. Returns 0, -EBADMSG, -EINVAL (another
 * format) or -ENOMEM.
 */
int history_before(const struct history_file *f, size_t i, const struct gguf *next,
                   struct gguf **ret, struct err *e);

/* ---- recording edits ---- */

/* An edit that is about to be written. */
struct recorded_edit {
    struct gguf *before, *after;
    uint64_t restored; /* for an undo, the state that it goes back to; else 0 */
    int64_t now;       /* seconds since 1970 */
};

/*
 * An edit that begins less than HISTORY_JOIN seconds after the end of the previous one joins that
 * edit's state, unless either is an undo. A state whose edit never reached the file is reused by
 * the next edit.
 */
struct recorder {
    struct history *h;         /* not owned */
    struct history_record rec; /* the record of the edit's state */
    uint64_t at;               /* offset of that state in the file */
    bool running;              /* an edit is being written */
    bool added;                /* the state was added for this edit */
};

/*
 * Record an edit's changes before it is written. Returns 1 if they are kept, 0 if it changes no
 * key, -EFBIG (over HISTORY_BYTES_MAX), -EPERM or -errno.
 */
int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e);
/*
 * Record whether the edit has landed in the file. Without this call the outcome stays unknown.
 * Returns 0 or -errno.
 */
int recorder_end(struct recorder *r, bool landed, int64_t now, struct err *e);

/* ---- for users ---- */

/*
 * Write one line per state, oldest first, with its number, the time of its first edit, and the
 * changes that its edits made. now: the model's current keys. A state whose edits changed nothing
 * has no line. Returns 0 or -errno.
 */
int history_text(struct history *h, struct gguf *now, struct buf *out, struct err *e);

/*
 * Describe the differences between two models' keys in a few words, such as "general.name changed,
 * a.b added".
 */
void history_describe(const struct gguf *from, const struct gguf *to, struct buf *out);

struct history_pick {
    struct history_record rec;
    struct gguf *keys; /* owned; history_pick_free() */
    bool fits;         /* keys are exactly the state's, as no other program has changed the file */
};

#define HISTORY_PICK_INIT ((struct history_pick){0})

/*
 * Find the state that an undo restores: state `number` or, if that is 0, the last one whose edits
 * changed something. now: the current keys; if another program changed them, only keys that
 * recorded edits changed are taken from the state. Returns 0, -ENOENT (no such state; the message
 * says why), -ESTALE (number is 0 and the state does not fit) or -errno.
 */
int history_pick(struct history *h, uint64_t number, struct gguf *now, struct history_pick *ret,
                 struct err *e);
void history_pick_free(struct history_pick *p);

/* The message for a state that was restored although it does not fit. */
#define HISTORY_FOREIGN \
    "the keys were not those that the last recorded edit left: another program changed the file"

/*
 * Forget the model's states and set *n to their number. Returns 0, -EAGAIN (another process holds
 * the lock for too long) or -errno.
 */
int history_clear(struct history *h, size_t *n, struct err *e);

#endif
