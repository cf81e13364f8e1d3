/* SPDX-License-Identifier: MIT */
/*
 * The history of a model: what edits changed of its keys, kept in a file of the user's state folder, so
 * that mistakes can be taken back.
 *
 *     r = history_open(&h, &sys_libc, home, "/real/path/m.gguf", HISTORY_KEEP, &e);
 *     struct recorder rec = {.h = &h};
 *     r = recorder_begin(&rec, &edit, &e);       before an edit is written
 *     r = recorder_end(&rec, true, now, &e);     what became of it; what is too much is dropped
 *     r = history_text(&h, now, &text, &e);
 *     r = history_pick(&h, 0, now, &pick, &e);   the keys as before the last edits
 *
 * A model has one file, named by a hash of its path. All numbers are little-endian, all parts begin at
 * multiples of 128 bytes, so that a record is rewritten in one sector:
 *
 *     head     "GGUFSHS4"; u64 number up to which states were forgotten; u32 bytes of the path; zeros;
 *              at 120 u64 sum of head and path; the path
 *     states   oldest first: a record, and facts; an edit that joins the last state adds facts to it
 *
 * A fact is about one key of the state: where it stood among the state's keys, and its entry as it was in
 * the model's header; or that the state did not have it. A state has a fact about each key that the
 * edits after it changed, made, moved or removed. So its keys are found from those of the next state, or from the
 * model's: keys without a fact stay as they are, in their order, and the others go where the facts say.
 *
 * Invariants:
 *  H1. All that is kept of an edit is durable before it is written.
 *  H2. Numbers of a model rise, and none is used twice.
 *  H3. After recorder_end() a model has at most `keep` states (HISTORY_KEEP_SAME: no more than before
 *      its newest), and all models at most HISTORY_BYTES_MAX; the oldest go first, but never the last of a model.
 *  H4. Nothing is used but folders and regular files with one name, of this process's user and written by
 *      nobody else. Links are followed above the state folder only.
 *  H5. What changes a file holds the folder's lock. A folder that was removed is made anew with the next
 *      state; what looks finds nothing until then.
 *
 * Nothing in a file is trusted: sums and sizes are checked, and keys are parsed as those of a model. What cannot be
 * read at its end (the power failed, or it is damaged) is left aside, and written over.
 *
 * Threads: one at a time.
 */
#ifndef EDIT_HISTORY_H
#define EDIT_HISTORY_H

#include <limits.h>

#include "base/buf.h"
#include "base/sys.h"
#include "gguf/gguf.h"

#define HISTORY_KEEP 20       /* states of a model, by default */
#define HISTORY_KEEP_MAX 1000 /* more than anybody reads */
/* As many as there are, at least HISTORY_KEEP: for a caller that does not have the user's number. */
#define HISTORY_KEEP_SAME UINT_MAX
#define HISTORY_BYTES_MAX ((uint64_t)256 << 20)
#define HISTORY_PATIENCE 2000 /* milliseconds that history_clear() waits for another process */
#define HISTORY_JOIN 10       /* seconds after an edit in which the next one joins its state */
#define HISTORY_UNIT 128

struct history {
    const struct sys *sys;
    char *home, *model; /* owned: the state folder, and the model's real path */
    char name[17];      /* of the model's file */
    unsigned keep;
    int dir; /* the folder, owned; -1: not open */
};

#define HISTORY_INIT ((struct history){.dir = -1})

/*
 * $XDG_STATE_HOME if it is an absolute path, else $HOME/.local/state, else for root /var/lib. free()
 * it. 0; -ENOENT (a user without a home), -ENOMEM.
 */
int history_home(char **ret, struct err *e);
/* home: history_home(). The disk is not asked yet. Close it in any case. 0, -ENOMEM. */
int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e);
void history_close(struct history *h);

struct history_record {
    uint64_t number;
    uint64_t
        restored; /* of an undo, which no edit joins: the state that it went back to; 0: an edit */
    int64_t begin, end; /* of its edits: seconds since 1970 */
    uint64_t before, landed,
        planned;         /* edit_keys_id(): of the state, after its last edit that is known
                                       * to be in the file, and after the one that is being written */
    uint64_t format;     /* of the entries: byte order and widths */
    uint64_t bytes, sum; /* of the facts behind it */
};

struct history_state {
    struct history_record rec;
    uint64_t at; /* its offset in the file */
    size_t fact; /* its first */
};

struct history_fact {
    uint64_t place; /* among the state's keys, without the program's own; UINT64_MAX: it has none */
    const uint8_t *bytes; /* the entry; without a place: the key */
    size_t n;
    uint32_t key_off, key_len; /* where the key is in it */
};

/* A model's file in memory. */
struct history_file {
    struct buf bytes;
    uint64_t forgotten;
    struct history_state *state; /* owned */
    struct history_fact *fact;   /* owned */
    size_t n, cap, n_fact, cap_fact;
    uint64_t first, end; /* offsets: where the states begin and end; 0: there is no file */
};

#define HISTORY_FILE_INIT ((struct history_file){0})

/* Without a file it has no states. 0, -EPERM, -EBADMSG (its head is damaged), -ESTALE (of another model), -errno. */
int history_load(struct history *h, struct history_file *ret, struct err *e);
void history_file_free(struct history_file *f);
/* Bytes as a file. The same, and they are the file's in any case. */
int history_parse(struct history_file *f, const char *model, struct err *e);

/* The keys of state i, made of those of the next one; gguf_free() them. 0, -EBADMSG, -EINVAL (of another byte
 * order or version), -ENOMEM. */
int history_before(const struct history_file *f, size_t i, const struct gguf *next,
                   struct gguf **ret, struct err *e);

/* ---- what edits leave ---- */

/* An edit that is about to be written. */
struct recorded_edit {
    struct gguf *before, *after;
    uint64_t restored; /* of an undo: the state that it goes back to; else 0 */
    int64_t now;       /* seconds since 1970 */
};

/*
 * An edit that begins less than HISTORY_JOIN seconds after the end of the one before joins its state, unless
 * one of the two is an undo. A state whose edit never reached the file is used for the next.
 */
struct recorder {
    struct history *h;         /* not owned */
    struct history_record rec; /* of the edit's state, ... */
    uint64_t at;               /* ... and where that is in the file */
    bool running;              /* an edit is being written */
    bool added;                /* the state is its own */
};

/* 1: what it changes is kept; 0: it changes no key; -EFBIG (over HISTORY_BYTES_MAX), -EPERM, -errno. */
int recorder_begin(struct recorder *r, const struct recorded_edit *edit, struct err *e);
/* landed: the edit is in the file. Without it the edit's outcome stays unknown. 0, -errno. */
int recorder_end(struct recorder *r, bool landed, int64_t now, struct err *e);

/* ---- for people ---- */

/*
 * A line for each state, oldest first: its number, when its first edit was made, and what the edits
 * after it changed, up to the next state or, for the last, up to `now`, the model's present keys.
 * A state whose edits changed nothing has no line. 0, -errno.
 */
int history_text(struct history *h, struct gguf *now, struct buf *out, struct err *e);

/* The differences of two models' keys in a few words: "general.name changed, a.b added". */
void history_describe(const struct gguf *from, const struct gguf *to, struct buf *out);

struct history_pick {
    struct history_record rec;
    struct gguf *keys; /* owned; history_pick_free() */
    bool fits;         /* these are the state's keys: no other program changed the file since */
};

#define HISTORY_PICK_INIT ((struct history_pick){0})

/*
 * The state that an undo restores: `number`, or for 0 the last one whose edits changed something.
 * now: the present keys. Where these do not fit, the keys that recorded edits changed are the state's. 0;
 * -ENOENT (no such state; the line says why), -ESTALE (number 0, and it does not fit), -errno.
 */
int history_pick(struct history *h, uint64_t number, struct gguf *now, struct history_pick *ret,
                 struct err *e);
void history_pick_free(struct history_pick *p);

/* Of a state that was restored although it does not fit. */
#define HISTORY_FOREIGN \
    "the keys were not those that the last recorded edit left: another program changed the file"

/* Forget the model's states. *n: how many they were. 0; -EAGAIN (another process has the lock for
 * HISTORY_PATIENCE), -errno. */
int history_clear(struct history *h, size_t *n, struct err *e);

#endif
