/* SPDX-License-Identifier: MIT */
/*
 * The redo journal of an edit in place: the new bytes of the header, beside the model, so that a
 * header torn by a crash can be made whole. An edit that changes bytes of tensors has a journal of
 * another form, see patch.h. Both are read, of whatever version of ggufs; a later form is left alone.
 *
 * All numbers are little-endian. A sector is 512 bytes, the least that any disk writes whole; the
 * range [lo, lo + n) of the model begins on one.
 *
 *     0  "GGUFSJN1"
 *     8  u32 sector      12  u32 bytes of the name
 *    16  u64 size of the model
 *    24  u64 lo          32  u64 n
 *    40  the model's name
 *        u64 sum of the old bytes, for each sector of the range
 *        n new bytes
 *        u64 sum of everything before
 *
 * Steps of an edit, each after the one before is known to be on disk:
 *  1. the journal is written and synced, then its folder;
 *  2. the header is written and synced;
 *  3. the journal is removed.
 * Invariants:
 *  J1. Before step 1 is done the model is untouched; a journal whose sum is wrong never mattered.
 *  J2. From then on every sector of the range is as before or as after, and the journal is whole:
 *      the edit is as good as done, replaying it completes it.
 *  J3. A journal is applied only if it is ours (edit_is_ours()), names the model and its size, and
 *      every sector of the range is one of the two. So one that a copied, restored or planted file
 *      does not fit changes nothing (-ESTALE, and it stays, for a person to look at). Nothing that is
 *      not ours is opened, and it never prevents reading: the header is then read as it is.
 * Device and inode numbers are not part of it: they differ after a reboot or a restored backup.
 *
 * Private to the edit layer.
 */
#ifndef EDIT_JOURNAL_H
#define EDIT_JOURNAL_H

#include "base/buf.h"
#include "edit/patch.h"

#define JOURNAL_SECTOR 512

/* A journal in memory; new and sums point into raw. */
struct journal {
    struct buf raw;
    uint64_t lo, n;      /* the range of the model */
    const uint8_t *sums; /* of the old bytes */
    const uint8_t *new;  /* n bytes */
    struct patch patch;  /* if there is one, the rest is empty */
};

#define JOURNAL_INIT ((struct journal){0})
void journal_free(struct journal *j);

/* Make the file. Its descriptor, for reading too, or -errno. */
int journal_create(const struct edit_file *f, struct err *e);
/* Give a log the name instead, and close it. Another descriptor of it; -errno: it was closed before, or the file
 * system does not name files without a name. */
int journal_adopt(const struct edit_file *f, struct log *s);

/* The smallest range of whole sectors in which two headers of n bytes differ; *len 0: none. */
void journal_range(const uint8_t *old, const uint8_t *new, uint64_t n, uint64_t *lo, uint64_t *len);

/*
 * Step 1 for the bytes [lo, lo + n), of which old and new point to the first. On failure nothing
 * is left.
 */
int journal_write(const struct edit_file *f, uint64_t lo, const uint8_t *old, const uint8_t *new,
                  uint64_t n, struct err *e);

/* Step 3. Best effort: what stays is found to be done by the next recovery. */
void journal_remove(const struct edit_file *f);

enum journal_state {
    JOURNAL_NONE,
    JOURNAL_PLANTED, /* what has its name is not ours (edit_is_ours()) */
    JOURNAL_VOID,    /* was not written to its end (J1) */
    JOURNAL_DONE,    /* every sector is new */
    JOURNAL_REDO,    /* every sector is old or new, not all new */
};

/*
 * The model's file and its journal as they were seen at one time. If both are the same later, no
 * edit in place began or ended in between.
 */
struct journal_seen {
    struct edit_id model, journal; /* 0: it does not exist */
    bool gone;                     /* the file has no name any more: no journal is about it */
};

/* False: they cannot be looked at. */
bool journal_see(const struct edit_file *f, struct journal_seen *ret);
bool journal_seen_equal(const struct journal_seen *a, const struct journal_seen *b);

/*
 * Find the model's journal and judge it; *ret is loaded for DONE and REDO. Another process may be
 * editing the model: what does not fit is looked at again, until it stays the same and nobody has the
 * lock. *seen: what was there before the look; may be NULL. 0, with a line in *e for PLANTED; -ESTALE
 * (J3), -EBUSY (another process edits the model all the time), -errno.
 */
int journal_load(const struct edit_file *f, enum journal_state *state, struct journal *ret,
                 struct journal_seen *seen, struct err *e);

/* Replay or drop the journal, if there is one. f is open for writing, and locked. 0, -ESTALE (also
 * where one is planted), -errno. */
int journal_settle(struct edit_file *f, enum journal_state *found, struct err *e);

#endif
