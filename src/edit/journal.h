/* SPDX-License-Identifier: MIT */
/*
 * The redo journal of an in-place edit: one record beside the model that says which ranges of the model change, and
 * where their new bytes are in the journal's own file. It may be large; only its rows are in memory.
 *
 * A row is at most 1 MiB of the model, whole sectors except at the end of the file: a sector is 512 bytes, the least
 * that any disk writes atomically. Where bytes of tensors change, rows are whole units of 64 KiB, in the journal too,
 * so that readers can map them in place of the model's (no page is larger). Numbers are little-endian.
 *
 *     0  "GGUFSJN3"
 *     8  u32 bytes of the name         12  u32 0
 *    16  u64 size of the model before, 24  u64 after: not less, for tensors may be added at the end
 *    32  u64 number of rows            40  u64 where they begin
 *    48  u64 sum of everything before, and of the rows and the name
 *     -  new bytes
 *     -  the rows: u64 first byte, u64 bytes, u64 where in the journal their new bytes begin, u64 sum of
 *        its part of the table and of its new bytes; in order, disjoint
 *        the model's name
 *     -  the table, to the end: for each sector of each row a u64, the sum of its old bytes
 *
 * The log of drafts (model/store.h) becomes the journal if it has new bytes aligned as in the model: they stay where
 * they are, and the rest of the record is written before and after them. Any other edit has a small separate journal.
 * Everything that extends the model is in rows to the last byte. Device and inode numbers are not part of the record:
 * they differ after a reboot or a restored backup.
 *
 * Steps of an edit, each after the previous one is known to be on disk:
 *  1. the record is written, its first 56 bytes last, and synced, then its directory;
 *  2. the model is written and synced;
 *  3. the name is removed.
 * Invariants:
 *  J1. Before step 1 is done the model is untouched; a journal with wrong sums has never taken effect.
 *  J2. From then on every sector of the rows is as before or as after, and the journal is complete: the edit counts as
 *      done, and replaying finishes it. What extends the model is missing, zero or new.
 *  J3. A journal is applied only if it is ours (edit_is_ours()), names the model and its size, and every sector is one
 *      of the two. So one that does not fit a copied, restored or planted file changes nothing (-ESTALE, and it stays,
 *      for the user to examine). Nothing that is not ours is opened, and it never prevents reading: the model is then
 *      read as it is.
 *
 * Private to the edit layer, except for crash recovery.
 */
#ifndef EDIT_JOURNAL_H
#define EDIT_JOURNAL_H

#include "base/map.h"
#include "edit/commit.h"
#include "model/image.h"

#define JOURNAL_UNIT ((uint64_t)64 << 10)
#define JOURNAL_SECTOR 512
#define JOURNAL_ROW ((uint64_t)1 << 20) /* bytes of a row */
/* For one edit: 256 GiB in one piece, and 16 GiB in the smallest. */
#define JOURNAL_MAX_ROWS ((uint64_t)1 << 18)

struct stretch; /* a row in memory */

enum journal_state {
    JOURNAL_NONE,
    JOURNAL_PLANTED, /* the object of this name is not ours (edit_is_ours()) */
    JOURNAL_VOID,    /* not completed (J1) */
    JOURNAL_DONE,    /* every sector is new */
    JOURNAL_REDO,    /* every sector is old or new, not all new */
};

struct journal_row {
    uint64_t at, n; /* range of the model */
    uint64_t src;   /* where its new bytes begin in the journal */
    uint64_t sum;
    uint64_t table; /* where its part of the table begins in the journal */
};

struct journal {
    enum journal_state state;
    bool begun;            /* REDO: some sector is already new */
    bool live;             /* REDO: its editor is still working (journal_load()) */
    const struct sys *sys; /* NULL: nothing is open */
    int fd;                /* owned */
    uint64_t before, after;
    struct journal_row *row; /* owned */
    size_t n, cap;
    struct stretch *room; /* owned: for a row, so that applying what was written takes no memory */
};

#define JOURNAL_INIT ((struct journal){0})
void journal_free(struct journal *j);

/* Count the bytes of the model that an edit in place writes, at most. Returns 0, -EFBIG (too many
 * rows) or -ENOMEM. */
int journal_bytes(const struct edit_plan *plan, uint64_t *ret);

/*
 * Do step 1 for a plan that is written in place. If it fails, nothing is left, or what
 * journal_cancel() may leave. Returns 0 or -errno.
 */
int journal_write(const struct edit_file *f, const struct edit_plan *plan,
                  const struct edit_hooks *hooks, struct journal *ret, struct err *e);
/*
 * Do step 2, and repeat it once if it fails; f then has the model's identity. Returns 0, or -errno
 * if perhaps only a part is written.
 */
int journal_apply(struct edit_file *f, const struct journal *j);
/*
 * Do step 3. A failure does no harm: a journal that stays is applied again. Returns 0, or -errno if
 * the name may still be there.
 */
int journal_remove(const struct edit_file *f);

/*
 * Cancel an edit that failed with r before step 2, so that no complete journal is found later:
 * remove its name, or else wipe its head. Returns r. If neither could be done, the message says
 * that the edit may still be made.
 */
int journal_cancel(const struct edit_file *f, const struct journal *j, int r, struct err *e);

/* Compare an open journal with the model: sets the state and `begun`. 0, -ESTALE (J3), -errno. */
int journal_compare(const struct edit_file *f, struct journal *j, struct err *e);

/* The model's file and its journal. If both are the same later, no in-place edit began or ended in between. */
struct journal_seen {
    struct edit_id model, journal; /* 0: it does not exist */
};

/*
 * Find the model's journal and judge it. Another process may be editing the model: a journal that does not fit is
 * checked again, until it stays the same and no process holds the lock. *seen: the state before; may be NULL. 0, with a
 * line in *e for PLANTED; -ESTALE (J3), -EBUSY (another process edits the model continuously), -errno.
 */
int journal_load(const struct edit_file *f, struct journal *ret, struct journal_seen *seen,
                 struct err *e);

/*
 * Replay or drop the journal, if there is one. f is open for writing, and locked. edits: an edit follows, planned on the
 * file known to f; then only the journal of f's own unfinished edit may be there. 0, -ESTALE (also for PLANTED), -errno.
 */
int journal_settle(struct edit_file *f, bool edits, enum journal_state *found, struct err *e);

/* ---- crash recovery ---- */

struct edit_recovered {
    bool finished;    /* an interrupted edit was completed */
    bool dropped;     /* a meaningless journal was removed */
    unsigned removed; /* leftover files removed */
};

/*
 * Finish or drop an in-place edit, and remove new files that never replaced the model. f is open for writing, and the
 * model not parsed yet. 0, -ESTALE (the journal does not fit the model; it stays), -errno. *ret is always set.
 */
int edit_recover(struct edit_file *f, struct edit_recovered *ret, struct err *e);

/* What the journal would write: read-only mounts read the model through it. */
struct edit_overlay {
    struct journal journal; /* owned: without rows if it does not exist or has nothing to write */
    struct image *image;    /* owned: the file with the overlay */
    struct err planted;     /* code 0; or an object of this name that is not ours was not opened */
    struct journal_seen seen;
};

#define EDIT_OVERLAY_INIT ((struct edit_overlay){0})

/* Load the overlay. f may be open for reading only. Returns 0, or -ESTALE, -EBUSY or -errno as for
 * journal_load(). */
int edit_overlay(const struct edit_file *f, struct edit_overlay *ret, struct err *e);
/* False if another process has begun or ended an in-place edit since: what was read may be torn. */
bool edit_overlay_holds(const struct edit_overlay *o, const struct edit_file *f);
/* Make a source of the file with the overlay applied. It reads from f->fd, and o must outlive
 * it. */
int edit_overlay_source(struct edit_overlay *o, const struct edit_file *f, struct source *ret,
                        struct err *e);
/* True if it changes anything. */
static inline bool edit_overlay_changes(const struct edit_overlay *o)
{
    return o->journal.n > 0;
}
/* The same, for an edit that no process is making any more. */
static inline bool edit_overlay_interrupted(const struct edit_overlay *o)
{
    return o->journal.n > 0 && !o->journal.live;
}
/* Map it over a mapping of the file, of the source's size, except for the header, which the source has. 0, -errno. */
int edit_overlay_map(const struct edit_overlay *o, struct map *m, struct err *e);
void edit_overlay_free(struct edit_overlay *o);

#endif
