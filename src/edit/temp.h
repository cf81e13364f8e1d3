/* SPDX-License-Identifier: MIT */
/*
 * A new file beside the model that takes the model's place, whole or not at all.
 *
 *     r = temp_create(f, &t, e);      made, empty, readable by nobody else
 *     r = temp_dress(f, &t, e);       locked, with the model's owner, attributes and mode
 *     ... temp_fill(), or write t.fd ...
 *     r = temp_sync(f, &t, e);
 *     r = temp_publish(f, &t, &old, e);
 *     temp_abandon(f, &t);            always; does nothing to a file that was published
 *
 * States of a temp, and what its name stands for:
 *  EMPTY      fd -1: no file
 *  OPEN       `name` is the new file; the path names the old one
 *  PUBLISHED  the path names the new file, the old one has no name; fd was handed over
 *
 * Invariants:
 *  T1. The path names a whole file at every moment: the new one is synced before it is exchanged
 *      with the old one (RENAME_EXCHANGE), in one step.
 *  T2. What was displaced is looked at after the exchange: a file that was not the one opened goes
 *      back (-ESTALE). So nothing is lost that came between the last look at the path and the step.
 *  T3. Success is reported only after the folder is synced. If that fails the old file goes back.
 *  T4. A crash leaves at most a file that matches ".NAME.ggufs-XXXXXX", holds the old or the new
 *      content, is locked by nobody and read by nobody: edit_recover() removes it.
 *  T5. The new file has the owner, mode and attributes that the model has when it is displaced, not
 *      those from before it was written: they are given again if they changed meanwhile. So are hard
 *      links looked at again. Of a change in the last moment, owner, mode and links are noticed
 *      (-EBUSY, -EMLINK, the old file goes back), other attributes are not.
 * On file systems without the exchange a plain rename is used, after the same look at the path;
 * then T2 and T5 have a gap of one system call, and a folder that does not sync leaves the new file there.
 * Where a rename that fails removes the model (SMB, which temp_probe() finds out), the new file stays.
 *
 * Private to the edit layer, but for temp_unnamed().
 */
#ifndef EDIT_TEMP_H
#define EDIT_TEMP_H

#include "edit/commit.h"

struct temp {
    int fd; /* read and write */
    char name[NAME_MAX + 1];
    struct edit_id id; /* as it was synced */
    struct stat model; /* of the model, before its attributes were given */
    bool break_links;  /* the model may have other hard links, which keep the old content */
};

#define TEMP_INIT ((struct temp){.fd = -1})

/* 0, -errno. */
int temp_create(const struct edit_file *f, struct temp *t, struct err *e);
/* 0; -EPERM (owner, mode, attributes or ACL cannot be reproduced), -errno. */
int temp_dress(const struct edit_file *f, struct temp *t, struct err *e);

/*
 * Give a file that is empty its size, the plan's header and all its data; clone: with whole blocks of old data cloned.
 * Holes of the old file stay holes. 0, -errno; -EOPNOTSUPP: cannot be cloned.
 */
int temp_fill(const struct edit_file *f, struct temp *t, const struct edit_plan *plan, bool clone,
              const struct edit_hooks *h, struct err *e);
/* The same of the model as it is, cloned if it can be. */
int temp_copy(const struct edit_file *f, struct temp *t, const struct edit_hooks *h, struct err *e);
/* 0 if all padding of the plan is zero in the old file at the same place, else -EOPNOTSUPP. */
int temp_check_padding(const struct edit_file *f, const struct edit_plan *p, struct err *e);

/* What was written is on the disk. 0, -errno. */
int temp_sync(const struct edit_file *f, struct temp *t, struct err *e);
/*
 * Put a file that was synced in the model's place. On success f has the new descriptor and identity and *old the
 * one before, for the caller to close. On failure *old is -1 and f unchanged; where the new file
 * could not be taken back it no longer is the file that the path names (-ESTALE from then on).
 * 0; -ESTALE; -EMLINK; -EPERM as above; -EBUSY (T5); -errno.
 */
int temp_publish(struct edit_file *f, struct temp *t, int *old, struct err *e);

/* A file without a name beside the model; where the file system has none, one whose name is removed
 * at once. The descriptor, or -errno. */
int temp_unnamed(const struct edit_file *f, struct err *e);

/* Give a file that was synced a name of its own for good; a file that had it is replaced. On success *t is
 * as temp_abandon() leaves it. 0, -errno. */
int temp_name(const struct edit_file *f, struct temp *t, const char *name, struct err *e);

void temp_abandon(const struct edit_file *f, struct temp *t);

/*
 * What temp_create(), temp_dress() and temp_publish() need, tried beside the model without leaving
 * anything: a file without a name. Where the file system has none, or is of another machine, two
 * with names, which are removed again; one is renamed over the other. 0, -errno.
 */
int temp_probe(const struct edit_file *f, struct err *e);

/* ---- owner, mode, extended attributes and ACLs ---- */

/*
 * Give `to`, a file that we made, the attributes of `from`, whose stat is st. Attributes that it
 * inherited from its folder and that `from` does not have are removed. 0; -EPERM if anything cannot
 * be reproduced; -ENOSPC, -EDQUOT, -EIO, -ENOMEM.
 */
int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e);

/* True if the mode is all that gives access to a file: it is certain that there is no ACL. */
bool attr_no_acl(const struct sys *s, int fd);
/* Remove the ACL, if there is one. False if that failed. */
bool attr_drop_acl(const struct sys *s, int fd);

/* Whether the attributes of a file can be listed and read, as attr_copy() will. As above. */
int attr_check(const struct sys *s, int fd, struct err *e);

#endif
