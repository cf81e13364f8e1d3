/* SPDX-License-Identifier: MIT */
/*
 * The redo journal of an in-place edit is a file beside the model. It records which ranges of the
 * model change, and where in the journal their new bytes are. It may be large; only its rows are
 * kept in memory.
 *
 * A row covers at most 1 MiB of the model, in whole sectors except at the end of the file. A sector
 * is 512 bytes, the smallest unit that any disk writes atomically. Rows of tensor data are whole
 * units of 64 KiB, both in the model and in the journal, so that readers can map them in place of
 * the model's bytes; no page is larger than 64 KiB. Numbers are little-endian.
 *
 *     0  "GGUFSJN3"
 *     8  u32 length of the name        12  u32 0
 *    16  u64 size of the model before, 24  u64 after, never smaller: tensors may be added
 *    32  u64 number of rows            40  u64 where the rows begin
 *    48  u64 sum over the fields above, the rows and the name
 *     -  new bytes
 *     -  the rows, in order and disjoint: u64 first byte, u64 length, u64 offset in the journal of
 *        its new bytes, u64 sum of its part of the table and of its new bytes
 *        the model's name
 *     -  the table, to the end: for each sector of each row a u64, the sum of its old bytes
 *
 * The log of drafts (model/store.h) becomes the journal if it has new bytes aligned as in the
 * model. These bytes stay where they are, and the rest of the record is written before and after
 * them. Otherwise the journal is a separate, small file. If the model grows, rows cover every byte
 * that is added. Device and inode numbers are not part of the record, because they may differ after
 * a reboot or after a backup is restored.
 *
 * Steps of an edit, each taken only after the previous one is known to be on disk:
 *  1. the record is written, its first 56 bytes last, and synced; then its directory is synced;
 *  2. the model is written and synced;
 *  3. the journal's name is removed or, failing that, its first 56 bytes are wiped.
 * Invariants:
 *  J1. Until step 1 is done, the model is untouched; a journal with wrong sums has never taken
 *      effect.
 *  J2. From then on every sector that the rows cover is either old or new, and the journal is
 *      complete. The edit counts as done, and replaying the journal finishes it. Bytes beyond the
 *      model's old end are missing, zero or new.
 *  J3. A journal is applied only if it is ours (edit_is_ours()), names the model and its size, and
 *      every sector is old or new. So a journal that does not fit the model, because either was
 *      copied, restored or planted, changes nothing (-ESTALE) and stays for the user to examine. A
 *      file that is not ours is never opened, nor does it prevent reading: the model is then read
 *      as it is.
 *
 * Private to the edit layer, except for crash recovery and overlays.
 */
#ifndef EDIT_JOURNAL_H
#define EDIT_JOURNAL_H

#include "base/map.h"
#include "edit/commit.h"
#include "model/store.h"

#define JOURNAL_UNIT ((uint64_t)64 << 10)
#define JOURNAL_SECTOR 512
#define JOURNAL_ROW ((uint64_t)1 << 20) /* largest size of a row in bytes */
/* Allows an edit of 256 GiB in one range, or of 16 GiB in scattered units. */
#define JOURNAL_MAX_ROWS ((uint64_t)1 << 18)

struct stretch; /* a row in memory */

enum journal_state {
    JOURNAL_NONE,
    JOURNAL_PLANTED, /* the object with the journal's name is not ours (edit_is_ours()) */
    JOURNAL_VOID,    /* not completed (J1) */
    JOURNAL_DONE,    /* every sector is new */
    JOURNAL_REDO,    /* every sector is old or new, but not all are new */
};

struct journal_row {
    uint64_t at, n; /* range of the model */
    uint64_t src;   /* offset of its new bytes in the journal */
    uint64_t sum;
    uint64_t table; /* offset in the journal of its part of the table */
};

struct journal {
    enum journal_state state;
    bool begun;            /* REDO: at least one sector is already new */
    bool live;             /* REDO: a process is still making the edit (journal_load()) */
    const struct sys *sys; /* NULL: nothing is open */
    int fd;                /* owned */
    uint64_t before, after;
    struct journal_row *row; /* owned */
    size_t n, cap;
    struct stretch *room; /* owned: room for one row, so that journal_apply() allocates nothing */
};

#define JOURNAL_INIT ((struct journal){0})
void journal_free(struct journal *j);

/*
 * Compute the largest number of bytes that an in-place edit can write to the model. Returns 0,
 * -EFBIG (too many rows) or -ENOMEM.
 */
int journal_bytes(const struct edit_plan *plan, uint64_t *ret);

/*
 * Do step 1 for a plan that is written in place. On failure nothing is left on disk except what
 * journal_cancel() cannot remove. Returns 0 or -errno.
 */
int journal_write(const struct edit_file *f, const struct edit_plan *plan,
                  const struct edit_hooks *hooks, struct journal *ret, struct err *e);
/*
 * Do step 2, repeating it once if it fails, and note the model's new identity in f. Returns 0, or
 * -errno if the edit may be only partly written.
 */
int journal_apply(struct edit_file *f, const struct journal *j);
/*
 * Do step 3, so that no complete journal is found later. If the journal can be neither removed nor
 * wiped, the next edit is refused unless it can remove it (journal_settle()), because the journal
 * might later be applied on top of that edit. Returns 0 or -errno.
 */
int journal_end(const struct edit_file *f, const struct journal *j);

/*
 * Call journal_end() to cancel an edit that failed with r before step 2. Returns r. If
 * journal_end() failed, the message says that the edit may still be applied.
 */
int journal_cancel(const struct edit_file *f, const struct journal *j, int r, struct err *e);

/*
 * Compare an open journal with the model, setting its state and, unless that is VOID, `begun`.
 * Returns 0, -ESTALE (J3) or -errno.
 */
int journal_compare(const struct edit_file *f, struct journal *j, struct err *e);

/*
 * Identities of the model's file and its journal. As long as neither changes, no in-place edit has
 * begun or ended.
 */
struct journal_seen {
    struct edit_id model, journal; /* 0: the file does not exist */
};

/*
 * Find the model's journal and judge it. Since another process may be editing the model, a journal
 * that does not fit is checked again until it stays the same and no process holds the lock. *seen:
 * the identities just before the journal was read; seen may be NULL. Returns 0, with a message in
 * *e for PLANTED, -ESTALE (J3), -EBUSY (another process keeps editing the model) or -errno.
 */
int journal_load(const struct edit_file *f, struct journal *ret, struct journal_seen *seen,
                 struct err *e);

/*
 * Replay or drop the journal if there is one. f must be open for writing and locked. edits: true
 * before an edit that was planned for the file as f knows it; the only journal allowed is then that
 * of f's own unfinished edit. Fails if a complete journal cannot be removed. Returns 0, -ESTALE
 * (also for PLANTED) or -errno.
 */
int journal_settle(struct edit_file *f, bool edits, enum journal_state *found, struct err *e);

/* ---- crash recovery ---- */

struct edit_recovered {
    bool finished;    /* an interrupted edit was completed */
    bool dropped;     /* an incomplete journal was removed */
    unsigned removed; /* number of leftover files removed */
};

/*
 * Finish or drop an in-place edit, and remove new files that never replaced the model. f must be
 * open for writing, and the model not parsed yet. Returns 0, -ESTALE (the journal does not fit the
 * model; it stays) or -errno. Always sets *ret.
 */
int edit_recover(struct edit_file *f, struct edit_recovered *ret, struct err *e);

/* The bytes that the journal would write. Read-only mounts read the model through this overlay. */
struct edit_overlay {
    struct journal journal; /* owned; has no rows if there is nothing to write */
    struct image *image;    /* owned: the file with the overlay applied */
    struct err planted;     /* set if the object with the journal's name is not ours; else code 0 */
    struct journal_seen seen;
};

#define EDIT_OVERLAY_INIT ((struct edit_overlay){0})

/* Load the overlay. f may be open for reading only. Returns 0, or -ESTALE, -EBUSY or -errno as for
 * journal_load(). */
int edit_overlay(const struct edit_file *f, struct edit_overlay *ret, struct err *e);
/*
 * Return false if another process has begun or ended an in-place edit since the overlay was loaded,
 * so that the bytes read may be torn.
 */
bool edit_overlay_holds(const struct edit_overlay *o, const struct edit_file *f);
/*
 * Make a source of the file with the overlay applied. The source reads from f->fd, and o must
 * outlive it.
 */
int edit_overlay_source(struct edit_overlay *o, const struct edit_file *f, struct source *ret,
                        struct err *e);
/* Return true if the overlay changes anything. */
static inline bool edit_overlay_changes(const struct edit_overlay *o)
{
    return o->journal.n > 0;
}
/* Return true if the overlay changes anything and no process is still making the edit. */
static inline bool edit_overlay_interrupted(const struct edit_overlay *o)
{
    return o->journal.n > 0 && !o->journal.live;
}
/*
 * Map the overlay over m, which maps the file at the source's size. Leaves out the header, which
 * the source provides. Returns 0 or -errno.
 */
int edit_overlay_map(const struct edit_overlay *o, struct map *m, struct err *e);
void edit_overlay_free(struct edit_overlay *o);

#endif
