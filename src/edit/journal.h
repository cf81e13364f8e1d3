/* SPDX-License-Identifier: MIT */
/*
 * The redo journal of an in-place edit is a file beside the model. It records which ranges of the
 * model change, and their new bytes. It may be large, and is never in memory as a whole.
 *
 *     head  "GGUFSJN4", u64 sum of the model's name, u64 size of the model before and u64 after the
 *           edit (never smaller: tensors may be added), u64 sum over these fields and all rows
 *     row   u64 first byte and u64 length of a range of the model, a u64 for each sector in it (the
 *           sum of its old bytes), its new bytes
 *
 * Rows go up to the end of the file, in order and disjoint. A row covers at most 1 MiB, in whole
 * sectors except at the end of the model. A sector is 512 bytes, the smallest unit that any disk
 * writes atomically. Numbers are little-endian.
 *
 * If the model grows, rows cover every byte that is added. Device and inode numbers are not part of
 * the record, because they may differ after a reboot or after a backup is restored.
 *
 * Steps of an edit, each taken only after the previous one is known to be on disk:
 *  1. the record is written, its head last, and synced; then its directory is synced;
 *  2. the model is written and synced;
 *  3. the journal's name is removed or, failing that, its head is wiped.
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
 *  J4. While there is a journal that is ours, only the writer reads the model (edit_at_rest()).
 *
 * Private to the edit layer, except for crash recovery.
 */
#ifndef EDIT_JOURNAL_H
#define EDIT_JOURNAL_H

#define JOURNAL_FINISHES                                                                   \
    "edit is in the journal beside the model (the next edit, the next mount or --recover " \
    "finishes it)"

#include "edit/commit.h"

#define JOURNAL_SECTOR 512
#define JOURNAL_ROW ((uint64_t)1 << 20) /* most bytes of the model that a row covers */
#define JOURNAL_HEAD 40                 /* size of the head */

enum journal_state {
    JOURNAL_NONE,
    JOURNAL_PLANTED, /* the object with the journal's name is not ours (edit_is_ours()) */
    JOURNAL_VOID,    /* not completed (J1) */
    JOURNAL_DONE,    /* every sector is new */
    JOURNAL_REDO,    /* every sector is old or new, but not all are new */
};

struct journal {
    enum journal_state state;
    bool begun;            /* REDO: at least one sector is already new */
    const struct sys *sys; /* NULL: nothing is open */
    int fd;                /* owned */
    uint64_t size;         /* the journal's own */
    uint8_t head[JOURNAL_HEAD];
    uint64_t before, after; /* sizes of the model, as in the head */
    struct stretch *row;    /* owned: room for one row, so that journal_apply() allocates nothing */
};

#define JOURNAL_INIT ((struct journal){0})
void journal_free(struct journal *j);

/*
 * Do step 1 for a plan that is written in place. On failure nothing is left on disk except what
 * journal_cancel() cannot remove. Returns 0 or -errno.
 */
int journal_write(struct edit_file *f, const struct edit_plan *plan, const struct edit_hooks *hooks,
                  struct journal *ret, struct err *e);
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
int journal_cancel(struct edit_file *f, const struct journal *j, int r, struct err *e);

/*
 * Compare an open journal with the model, setting its state and, unless that is VOID, `begun`.
 * Returns 0, -ESTALE (J3) or -errno.
 */
int journal_compare(const struct edit_file *f, struct journal *j, struct err *e);

/*
 * Find the model's journal and judge it. f must be locked. Returns 0, with a message in *e for
 * PLANTED, -ESTALE (J3) or -errno.
 */
int journal_load(const struct edit_file *f, struct journal *ret, struct err *e);

/*
 * Replay or drop the journal if there is one. f must be open for writing and locked. edits: true
 * before an edit that was planned for the file as f knows it; the only journal allowed is then that
 * of f's own unfinished edit, or of one that was cancelled, which is removed. Fails if a complete
 * journal or, before an edit, any journal cannot be removed. Returns 0, -ESTALE (also for PLANTED) or -errno.
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
/*
 * Return what a recovery found, for users; NULL if it found nothing. A writer that was killed may
 * have accepted edits that it had not begun to write.
 */
const char *edit_recovered_text(const struct edit_recovered *r);

/*
 * Check that the model, which f may have open for reading only, is not being edited in place, and
 * was not left half edited (J4). Waits until `until` while another process edits it. *ret: the
 * file's identity; if it is still the same after a later call, the bytes read in between were not
 * torn. *planted: set if the object with the journal's name is not ours (J3). Returns 0, -EUCLEAN
 * (an edit was interrupted), -EBUSY (it is still being edited) or -errno.
 */
int edit_at_rest(const struct edit_file *f, const struct timespec *until, struct edit_id *ret,
                 struct err *planted, struct err *e);

#endif
