/* SPDX-License-Identifier: MIT */
/*
 * The history of a model: what edits changed in its keys, kept in a file of the user's state directory, so that
 * mistakes can be undone.
 *
 *     r = history_open(&h, &sys_libc, home, "/real/path/m.gguf", HISTORY_KEEP, &e);
 *     struct recorder rec = {.h = &h};
 *     r = recorder_begin(&rec, &edit, &e);       before an edit is written
 *     r = recorder_end(&rec, true, now, &e);     its outcome; drops what exceeds the limits
 *     r = history_text(&h, now, &text, &e);
 *     r = history_pick(&h, 0, now, &pick, &e);   the keys as before the last edits
 *
 * A model has one file, named by a hash of its path. All numbers are little-endian; all parts begin at multiples of
 * 128 bytes, so that a record is rewritten within one sector:
 *
 *     head     "GGUFSHS4"; u64 number up to which states have been forgotten; u32 bytes of the path; zeros;
 *              at 120 u64 sum of head and path; the path
 *     states   oldest first: a record, and facts; an edit that joins the last state adds facts to it
 *
 * A fact is about one key: its place among the state's keys, and its entry in the model's header; or that the state did
 * not have it. A state has a fact about each key that the edits after it changed, made, moved or removed. So its keys
 * follow from those of the next state, or from the model's: keys without a fact stay unchanged, in their order, and the
 * others go where the facts say.
 *
 * Invariants:
 *  H1. Everything kept about an edit is durable before the edit is written.
 *  H2. The numbers of a model's states rise, and none is used twice.
 *  H3. After recorder_end() a model has at most `keep` states (HISTORY_KEEP_SAME: no more than before
 *      its newest), and all models at most HISTORY_BYTES_MAX; the oldest go first, but never the last of a model.
 *  H4. Only directories and regular files with a single name are used that are owned by this process's user and
 *      writable by no other. Links are followed only above the state directory.
 *  H5. A file is changed only under the directory's lock. A removed directory is created again with the next state;
 *      until then readers find nothing.
 *
 * Nothing in a file is trusted: sums and sizes are checked, and keys are parsed like those of a model. What cannot be
 * read at its end (after a power failure, or damaged) is ignored, and overwritten.
 *
 * Threads: one at a time.
 */
#ifndef EDIT_HISTORY_H
#define EDIT_HISTORY_H

#include <limits.h>

#include "base/buf.h"
#include "base/sys.h"
#include "gguf/gguf.h"

#define HISTORY_KEEP 20       /* states per model, by default */
#define HISTORY_KEEP_MAX 1000 /* more than anybody reads */
/* As many as there are, at least HISTORY_KEEP: for a caller that does not know the user's number. */
#define HISTORY_KEEP_SAME UINT_MAX
#define HISTORY_BYTES_MAX ((uint64_t)256 << 20)
#define HISTORY_PATIENCE 2000 /* milliseconds that history_clear() waits for another process */
#define HISTORY_JOIN 10       /* seconds after an edit within which the next one joins its state */
#define HISTORY_UNIT 128

struct history {
    const struct sys *sys;
    char *home, *model; /* owned: the state directory, and the model's real path */
    char name[17];      /* of the model's file */
    unsigned keep;
    int dir; /* the directory, owned; -1: not open */
};

#define HISTORY_INIT ((struct history){.dir = -1})

/* Get $XDG_STATE_HOME, else $HOME/.local/state, else for root /var/lib. The caller frees it.
 * Returns 0, -ENOENT (no home) or -ENOMEM. */
int history_home(char **ret, struct err *e);
/* Open the history of a model. home: from history_home(). Does not access the disk yet. Close it
 * even after a failure. Returns 0 or -ENOMEM. */
int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e);
void history_close(struct history *h);

/* As in the file, in this order. */
struct history_record {
    uint64_t number;
    uint64_t restored;   /* 0; or the state that an undo, which no edit joins, went back to */
    int64_t begin, end;  /* times of its edits: seconds since 1970 */
    uint64_t before;     /* edit_keys_id(): of the state, ... */
    uint64_t landed;     /* ... after its last edit known to be in the file, ... */
    uint64_t planned;    /* ... and after the one being written */
    uint64_t format;     /* of the entries: byte order and widths */
    uint64_t bytes, sum; /* of the facts that follow */
};

struct history_state {
    struct history_record rec;
    uint64_t at; /* its offset in the file */
    size_t fact; /* its first */
};

struct history_fact {
    uint64_t place;       /* among the state's keys, without ggufs' own; UINT64_MAX: it has none */
    const uint8_t *bytes; /* the entry; without a place: the key */
    size_t n;
    uint32_t key_off, key_len; /* the key within it */
};

/* A model's file in memory. */
struct history_file {
    struct buf bytes;
    uint64_t forgotten;
    struct history_state *state; /* owned */
    struct history_fact *fact;   /* owned */
    size_t n, cap, n_fact, cap_fact;
    uint64_t first, end; /* offsets: where the states begin and end; 0: no file */
};

#define HISTORY_FILE_INIT ((struct history_file){0})

/* Load the states. Without a file there are no states. Returns 0, -EPERM, -EBADMSG (a damaged
 * head), -ESTALE (of another model) or -errno. */
int history_load(struct history *h, struct history_file *ret, struct err *e);
void history_file_free(struct history_file *f);
/* The same for bytes already in f->bytes. */
int history_parse(struct history_file *f, const char *model, struct err *e);

/* Derive the keys of state i from those of the next one. Returns 0, -EBADMSG, -EINVAL (of another
 * format) or -ENOMEM. */
int history_before(const struct history_file *f, size_t i, const struct gguf *next,
                   struct gguf **ret, struct err *e);

/* ---- recording edits ---- */

/* An edit that is about to be written. */
struct recorded_edit {
    struct gguf *before, *after;
    uint64_t restored; /* for an undo: the state that it goes back to; else 0 */
    int64_t now;       /* seconds since 1970 */
};

/*
 * An edit that begins less than HISTORY_JOIN seconds after the end of the previous one joins its state, unless either
 * is an undo. The next edit reuses a state whose edit never reached the file.
 */
struct recorder {
    struct history *h;         /* not owned */
    struct history_record rec; /* for the edit's state, ... */
    uint64_t at;               /* ... and its offset in the file */
    bool running;              /* an edit is being written */
    bool added;                /* the state was added for this edit */
};

/* Record the changes of an edit before it is written. Returns 1 if they are kept, 0 if the edit
 * changes no key, -EFBIG (over HISTORY_BYTES_MAX), -EPERM or -errno. */
int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e);
/* Record the outcome of the edit. landed: it is in the file. Without this call the outcome stays
 * unknown. Returns 0 or -errno. */
int recorder_end(struct recorder *r, bool landed, int64_t now, struct err *e);

/* ---- for users ---- */

/*
 * Write a line for each state, oldest first: its number, the time of its first edit, and the
 * changes by the edits after it, up to `now`, the model's current keys. A state whose edits changed
 * nothing has no line. Returns 0 or -errno.
 */
int history_text(struct history *h, struct gguf *now, struct buf *out, struct err *e);

/* Describe the differences between two models' keys in a few words: "general.name changed, a.b
 * added". */
void history_describe(const struct gguf *from, const struct gguf *to, struct buf *out);

struct history_pick {
    struct history_record rec;
    struct gguf *keys; /* owned; history_pick_free() */
    bool fits;         /* these are the state's keys: no other program has changed the file since */
};

#define HISTORY_PICK_INIT ((struct history_pick){0})

/*
 * Find the state that an undo restores: `number`, or for 0 the last one whose edits changed
 * something. now: the current keys; if these do not fit, only keys that recorded edits changed are
 * taken from the state. Returns 0, -ENOENT (no such state; the message says why), -ESTALE (number
 * 0, and it does not fit) or -errno.
 */
int history_pick(struct history *h, uint64_t number, struct gguf *now, struct history_pick *ret,
                 struct err *e);
void history_pick_free(struct history_pick *p);

/* For a state that was restored although it does not fit. */
#define HISTORY_FOREIGN \
    "the keys were not those that the last recorded edit left: another program changed the file"

/* Forget the model's states; there were *n. 0; -EAGAIN (another process holds the lock for too long), -errno. */
int history_clear(struct history *h, size_t *n, struct err *e);

#endif
