/* SPDX-License-Identifier: MIT */
/*
 * The history of a model: files in the user's state directory that record what edits changed in the
 * model's keys, so that mistakes can be undone.
 *
 *     r = history_open(&h, &sys_libc, NULL, "/real/path/m.gguf", HISTORY_KEEP, &e);
 *     r = history_record(&h, &edit, &e);         before writing an edit
 *     r = history_end(&h, id, now, &e);          after it
 *     r = history_text(&h, now, &text, &e);
 *     r = history_pick(&h, 0, now, &pick, &e);   the keys before the last edits
 *
 * Each state of a model is a file, "HASH-NUMBER", where HASH is the hash of the model's path. The
 * file is only ever replaced as a whole. All its numbers are little-endian:
 *
 *     0   "GGUFSHS5"
 *     8   u64 sum of everything that follows
 *     16  the record: ten u64
 *     96  the model's path
 *     -   the facts: u64 place, u64 size of the bytes, u32 offset and u32 size of the key in them,
 *         and the bytes
 *
 * A fact gives one key's place among the state's keys and its entry in the model's header, or says
 * that the state did not have the key. A state has a fact about each key that the edits after it
 * changed, added, moved or removed. So the keys of a state can be derived from those of the next
 * state or, for the last state, from the model's. Keys without a fact keep their entries and order,
 * and the others go where the facts say.
 *
 * Invariants:
 *  H1. Everything kept about an edit is durable before the edit is written.
 *  H2. The numbers of a model's states increase and are never reused.
 *  H3. A model keeps its last `keep` states, but at least two (for HISTORY_KEEP_SAME, as many as it
 *      had). A state counts even if its edit was not written. All models together keep at most
 *      HISTORY_BYTES_MAX: the oldest states are removed first, but never a model's last.
 *  H4. Only directories, and regular files with a single name, are used, and only if this process's
 *      user owns them and no other user can write to them. Links are followed only in the state
 *      directory's own path.
 *  H5. Files are changed only under the directory's lock. If the directory is removed, the next
 *      state creates it again; until then readers find no states.
 *
 * Nothing in a file is trusted. Sums and sizes are checked, and keys are parsed like those of a
 * model. A damaged state is skipped.
 *
 * Threads: one thread at a time may use a history.
 */
#ifndef EDIT_HISTORY_H
#define EDIT_HISTORY_H

#include <limits.h>

#include "base/buf.h"
#include "base/err.h"
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
#define HISTORY_PATIENCE 2000 /* longest that history_clear() waits for another process, in ms */
#define HISTORY_JOIN 10       /* an edit begun within this many seconds joins the last state */

struct history {
    const struct sys *sys;
    char *home, *model; /* owned: paths of the state directory and of the model, links resolved */
    uint64_t hash;      /* hash of the model's path */
    unsigned keep;
    int dir; /* owned: the open directory; -1: not open */
};

#define HISTORY_INIT ((struct history){.dir = -1})

/*
 * Open the history of a model, without accessing the disk yet. home: the state directory; NULL:
 * $XDG_STATE_HOME, else $HOME/.local/state, else /var/lib for root. Call history_close() even after
 * a failure. Returns 0, -ENOENT (no home) or -ENOMEM.
 */
int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e);
void history_close(struct history *h);

/* The members are in the same order as in the file. */
struct history_record {
    uint64_t number;
    uint64_t restored;  /* for an undo, which no edit joins, the state that it restored; else 0 */
    int64_t begin, end; /* times of its first and last edit, in seconds since 1970 */
    uint64_t before;    /* edit_keys_id() of the state */
    uint64_t landed;    /* edit_keys_id() after its last edit known to be in the file */
    uint64_t planned;   /* edit_keys_id() after the edit being written */
    uint64_t format;    /* edit_keys_format() of its keys */
    uint64_t forgotten; /* 1: not a state; all states up to this number were forgotten */
    uint64_t path_len;
};

struct history_fact {
    uint64_t place;       /* position, not counting ggufs' own keys; UINT64_MAX: no such key */
    const uint8_t *bytes; /* the entry, or just the key if it has no place */
    size_t n;
    uint32_t key_off, key_len; /* the key's range within bytes */
};

struct history_state {
    struct history_record rec;
    struct buf bytes;          /* the file */
    struct history_fact *fact; /* owned */
    size_t n, cap;
};

/* The states of a model, in memory. */
struct history_states {
    struct history_state *of; /* owned; oldest first */
    size_t n, cap;
    size_t damaged;     /* number of damaged files */
    uint64_t last;      /* the highest number used so far */
    uint64_t forgotten; /* number of the last forgotten state */
};

#define HISTORY_STATES_INIT ((struct history_states){0})

/*
 * Load the states. Returns 0, -EPERM, -ESTALE (a file of another model) or -errno.
 */
int history_load(struct history *h, struct history_states *ret, struct err *e);
void history_states_free(struct history_states *s);
/* Parse the bytes in s->bytes. Returns 0, -EBADMSG, -ESTALE or -ENOMEM. */
int history_parse(struct history_state *s, const char *model, struct err *e);
void history_state_free(struct history_state *s);

/*
 * Derive the keys of a state from those of the next one. Returns 0, -EBADMSG, -EINVAL (a different
 * format) or -ENOMEM.
 */
int history_before(const struct history_state *s, const struct gguf *next, struct gguf **ret,
                   struct err *e);

/* ---- recording edits ---- */

/* An edit that changes keys and is about to be written. */
struct recorded_edit {
    struct gguf *before, *after;
    uint64_t restored; /* for an undo, the state that it restores; else 0 */
    int64_t now;       /* seconds since 1970 */
    int64_t ended;     /* the end of the previous edit, if known; else 0 */
};

/*
 * Record an edit's changes before it is written. An edit that begins less than HISTORY_JOIN seconds
 * after the end of the previous one joins its state, unless either is an undo. A state whose edit
 * never reached the file is reused by the next edit. Returns 0, -EFBIG (over HISTORY_BYTES_MAX),
 * -EPERM or -errno.
 */
int history_record(struct history *h, const struct recorded_edit *edit, struct err *e);
/*
 * Record that the last edit has reached the file. Does nothing unless `planned` is the
 * edit_keys_id() after that edit. Without this call, the next edit or look-up of a state finds out
 * from the model's keys that the edit has landed, unless another program changes the keys first.
 * Returns 0 or -errno.
 */
int history_end(struct history *h, uint64_t planned, int64_t now, struct err *e);

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
    bool fits;         /* keys are exactly the state's: no other program changed the file */
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

/* ---- while a model is edited ---- */

/*
 * Records the history in turns of the pool, so that a slow or hanging state directory delays no
 * edit by more than 2 * HISTORY_WAIT.
 *
 *     r = history_job_make("/real/path/m.gguf", HISTORY_KEEP, &sys_libc, &log, &j);
 *     history_job_begin(j, before, after, 0);     before edit_commit()
 *     history_job_wait(j);                        before the edit takes effect: edit_hooks.ready
 *     history_job_end(j, landed);                 after edit_commit()
 *     history_job_close(j);
 *
 * A failure here does not stop an edit. It is logged, but not again until the next success.
 *
 * Threads: the committing thread calls history_job_begin(), _wait() and _end(); any thread may call
 * history_job_look().
 */
#define HISTORY_WAIT 1    /* longest time that a call below blocks an edit, in seconds */
#define HISTORY_SETTLE 10 /* longest time that history_job_look() waits, in seconds */

struct history_job;

/* Make a job. `sys`, and the objects that `log` refers to, must outlive the job. Returns 0 or
 * -ENOMEM. */
int history_job_make(const char *model, unsigned keep, const struct sys *sys,
                     const struct logger *log, struct history_job **ret);

/*
 * Announce an edit that changes the file's content from `before` to `after`. restored: for an undo,
 * the state that it restores, else 0. If an earlier edit is still being recorded, waits up to
 * HISTORY_WAIT for it.
 */
void history_job_begin(struct history_job *j, struct gguf *before, struct gguf *after,
                       uint64_t restored);
/* Wait up to HISTORY_WAIT for the changes to be recorded, successfully or not. */
void history_job_wait(struct history_job *j);
void history_job_end(struct history_job *j, bool landed);
/*
 * Record the end of the last edit, waiting up to 2 * HISTORY_WAIT. Do not begin an edit during the
 * call.
 */
void history_job_settle(struct history_job *j);

/*
 * Open the job's history for reading. Waits up to HISTORY_SETTLE for the directory to respond.
 * Call history_close() even after a failure. Returns 0, or -errno with the reason why there is no
 * history.
 */
int history_job_look(const struct history_job *j, struct history *ret, struct err *e);

/* Call history_job_settle() and free the job. j may be NULL. */
void history_job_close(struct history_job *j);

#endif
