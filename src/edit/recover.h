/* SPDX-License-Identifier: MIT */
/*
 * What a crash left: an edit in place is finished or dropped, new files that never took the model's
 * place are removed. And for mounts that may not write: the model as the journal makes it.
 */
#ifndef EDIT_RECOVER_H
#define EDIT_RECOVER_H

#include "base/buf.h"
#include "edit/journal.h"
#include "model/image.h"

struct edit_recovered {
    bool finished;    /* an interrupted edit was completed */
    bool dropped;     /* a journal without meaning was removed */
    unsigned removed; /* leftover files removed */
};

/*
 * f is open for writing (the lock keeps other writers away). Before the model is parsed.
 * 0, -ESTALE (the journal does not fit the model; it stays), -errno. *ret is set in any case.
 */
int edit_recover(struct edit_file *f, struct edit_recovered *ret, struct err *e);

/* What the journal would write, for reading through. */
struct edit_overlay {
    struct journal journal; /* owned: without rows if it does not exist, or has nothing to write */
    struct image *image;    /* owned: the file with it */
    struct err planted; /* code 0, or what has the journal's name is not ours and was not opened */
    struct journal_seen seen;
};

#define EDIT_OVERLAY_INIT ((struct edit_overlay){0})

/* f may be open for reading only. 0, -ESTALE, -EBUSY, -errno as journal_load(). */
int edit_overlay(const struct edit_file *f, struct edit_overlay *ret, struct err *e);
/* False if another process began or ended an edit in place since: what was read may be torn. */
bool edit_overlay_holds(const struct edit_overlay *o, const struct edit_file *f);
/* The file with the overlay applied; o must outlive it. f->fd is read. */
int edit_overlay_source(struct edit_overlay *o, const struct edit_file *f, struct source *ret,
                        struct err *e);
/* True if there is something that it changes. */
bool edit_overlay_changes(const struct edit_overlay *o);
/* The same, of an edit that nobody is making any more. */
bool edit_overlay_interrupted(const struct edit_overlay *o);
/* Lay it over a mapping of the file, of the source's size, but for the header, which readers have from the source. 0,
 * -errno. */
int edit_overlay_map(const struct edit_overlay *o, struct map *m, struct err *e);
void edit_overlay_free(struct edit_overlay *o);

#endif
