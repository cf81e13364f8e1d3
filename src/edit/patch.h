/* SPDX-License-Identifier: MIT */
/*
 * The redo journal of an edit in place that changes bytes of tensors: as journal.h, whose steps and
 * invariants hold for it too, but it may be large and is never in memory as a whole.
 *
 * The model is changed by units of 64 KiB, each from a multiple of 64 KiB on; only the last one of
 * the file may be shorter. A unit's new bytes begin at a multiple of 64 KiB in the journal as well, so
 * that readers can map them in the place of the model's (no page is larger). Numbers are
 * little-endian; n is the number of units.
 *
 *     0  "GGUFSJN2"
 *     8  u32 bytes of a unit          12  u32 bytes of the name
 *    16  u64 size of the model before, 24  u64 after: not less, for tensors may be added at the end
 *    32  u64 ranges                   40  u64 n
 *    48  u64 where the rest of the head begins
 *    56  u64 sum of everything before
 *     -  new bytes, from 64 KiB on
 *     -  the rest of the head:
 *        the ranges: u64 first byte, u64 bytes, u64 where in the journal their new bytes begin; in
 *        order, disjoint
 *        u64 for each unit: sum of its row of the table, and of its new bytes
 *        the model's name
 *        u64 sum of both parts of the head
 *     -  the table, to the end: for each unit a row of 128 u64, the sums of the old bytes of its sectors
 *
 * The head is all that is held in memory: 8 bytes for 64 KiB of the model.
 *
 * A large draft need not be written twice: its file has no name, and becomes the journal
 * (journal_adopt()). New bytes then stay where they are in the draft, if they lie there as they are to
 * lie in the model; the rest of the journal is written before and behind them.
 *
 * All that the model did not have before is in the ranges, also the padding between tensors that are
 * added: less than EDIT_MAX_ALIGNMENT for each. Until the edit is done these bytes of the model are
 * missing, zero or new; a file that has grown is cut back if the edit fails.
 *
 * Private to the edit layer.
 */
#ifndef EDIT_PATCH_H
#define EDIT_PATCH_H

#include "base/map.h"
#include "edit/commit.h"

#define PATCH_MAGIC "GGUFSJN2"
#define PATCH_UNIT ((uint64_t)64 << 10)
#define PATCH_SECTOR 512 /* as JOURNAL_SECTOR */
/* Units of one edit, 256 GiB: a head takes up to 32 bytes of memory for each. */
#define PATCH_MAX_UNITS ((uint64_t)1 << 22)

struct patch_range {
    uint64_t lo, n;   /* of the model */
    uint64_t src;     /* where in the journal its new bytes begin */
    uint64_t unit;    /* number of its first unit */
    uint64_t stretch; /* and of its first stretch (patch_units.h) */
};

struct patch {
    const struct sys *sys; /* NULL: no journal */
    int fd;                /* owned: of the journal */
    uint64_t before, after;
    struct patch_range *range; /* owned */
    size_t n_range, cap_range;
    uint64_t units, stretches;
    uint64_t *sum;  /* owned: of each unit */
    uint64_t own;   /* new bytes that lie before it in the journal are the draft's */
    uint64_t rest;  /* where the rest of the head begins */
    uint64_t table; /* and the table */
    /* Owned; NULL: patch_each() makes it. Of a journal that was written: so that memory is needed neither
     * to apply it nor to undo that. */
    struct patch_stretch *room;
};

#define PATCH_INIT ((struct patch){0})
void patch_free(struct patch *p);

/* How many bytes of the model an edit writes in place: whole units. 0, -ENOMEM. */
int patch_bytes(const struct edit_plan *plan, uint64_t *ret);

/*
 * Step 1: fill and sync a new journal, open as `fd`, for a plan that is a `patch`. `lent`: the log of
 * the plan that has become the journal; NULL: none. What the model has there now is kept in the file
 * `undo`. Both stay the caller's on failure; else fd passes to *ret. 0, -EINTR (hooks), -errno.
 */
int patch_write(const struct edit_file *f, const struct edit_plan *plan,
                const struct edit_hooks *hooks, const struct log *lent, int fd, int undo,
                struct patch *ret, struct err *e);
/* Step 2: write the new bytes into the model and sync it: of a journal that was just written, or that was
 * found; or, from `undo`, the old ones back. */
int patch_apply(const struct edit_file *f, const struct patch *p);
int patch_redo(const struct edit_file *f, const struct patch *p);
int patch_undo(const struct edit_file *f, const struct patch *p, int undo);

/*
 * Read the head of a journal from fd, which passes to *ret if that returns 0 with *whole. Not whole:
 * it was not written to its end (J1). *foreign: why it is not for the model `name` of `size` bytes
 * (J3), or NULL. 0, -ENOMEM, -errno.
 */
int patch_load(const struct sys *s, int fd, const char *name, uint64_t size, struct patch *ret,
               bool *whole, const char **foreign);
/*
 * J2, J3: *done if every sector of the model is new, *fits if each is the old or the new one; not
 * whole: the journal's own bytes are not what its sums say. 0, -errno.
 */
int patch_compare(const struct edit_file *f, const struct patch *p, bool *whole, bool *fits,
                  bool *done, struct err *e);

/* Map the new bytes over a mapping of the model as it will be. 0, -errno. */
int patch_map(const struct patch *p, struct map *m);

#endif
