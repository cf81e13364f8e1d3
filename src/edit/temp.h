/* SPDX-License-Identifier: MIT */
/*
 * A new file beside the model that replaces the model, completely or not at all.
 *
 *     r = temp_create(f, &t, e);      created, empty, readable by no other user
 *     r = temp_dress(f, &t, e);       locked, with the model's owner, attributes and mode
 *     ... temp_fill(), or write t.fd ...
 *     r = temp_sync(f, &t, e);
 *     r = temp_publish(f, &t, &old, e);
 *     temp_abandon(f, &t);            always; does nothing to a published file
 *
 * States of a temp, and the meaning of its name:
 *  EMPTY      fd -1: no file
 *  OPEN       `name` is the new file; the path names the old one
 *  PUBLISHED the path names the new file, the old one has no name; fd was passed on
 *
 * Invariants:
 *  T1. The path always names a complete file: the new one is synced before it is exchanged with the old one
 *      (RENAME_EXCHANGE), in one step.
 *  T2. The displaced file is checked after the exchange: if it is not the one opened, it goes back (-ESTALE). So
 *      nothing is lost that appeared between the last check of the path and this step.
 *  T3. Success is reported only after the directory is synced. If that fails, the old file goes back.
 *  T4. A crash leaves at most a file that matches ".NAME.ggufs-XXXXXX", contains the old or the new content, and is
 *      neither locked nor read: edit_recover() removes it.
 *  T5. The new file has the owner, mode and attributes that the model has when it is displaced: they are set again if
 *      they changed while it was written, and hard links are checked again. Of changes in the last moment, those of
 *      owner, mode and links are noticed (-EBUSY, -EMLINK, the old file goes back), those of other attributes are not.
 * File systems without the exchange get a plain rename after the same check: T2 and T5 then have a gap of one system
 * call, and if the directory cannot be synced, the new file stays. It also stays if a failing rename removes the model
 * (SMB, which temp_probe() detects).
 *
 * Private to the edit layer, except for temp_unnamed().
 */
#ifndef EDIT_TEMP_H
#define EDIT_TEMP_H

#include "edit/commit.h"

struct temp {
    int fd; /* read and write */
    char name[NAME_MAX + 1];
    struct edit_id id; /* when it was synced */
    struct stat model; /* of the model, before its attributes were copied */
    bool break_links;  /* the model may have other hard links, which keep the old content */
};

#define TEMP_INIT ((struct temp){.fd = -1})

/* Create the new file. Returns 0 or -errno. */
int temp_create(const struct edit_file *f, struct temp *t, struct err *e);
/* Give the new file the attributes of the old one. Returns 0, -EPERM (owner, mode, attributes or
 * ACL cannot be reproduced) or -errno. */
int temp_dress(const struct edit_file *f, struct temp *t, struct err *e);

/*
 * Give an empty file its size, the plan's header and all its data, with `clone` whole blocks of old data cloned. Holes
 * of the old file stay holes. 0, -errno; -EOPNOTSUPP: it cannot be cloned.
 */
int temp_fill(const struct edit_file *f, struct temp *t, const struct edit_plan *plan, bool clone,
              const struct edit_hooks *h, struct err *e);
/* The same for the unchanged model, cloned if possible. */
int temp_copy(const struct edit_file *f, struct temp *t, const struct edit_hooks *h, struct err *e);
/* Return 0 if all padding of the plan is zero in the old file at the same place, else
 * -EOPNOTSUPP. */
int temp_check_padding(const struct edit_file *f, const struct edit_plan *p, struct err *e);

/* Make what was written durable. 0, -errno. */
int temp_sync(const struct edit_file *f, struct temp *t, struct err *e);
/*
 * Replace the model by a synced file. On success f has the new descriptor and identity, and the caller closes *old, the
 * previous one. On failure *old is -1 and f unchanged; if the new file could not be taken back, the path no longer
 * names f (-ESTALE from then on). 0; -ESTALE; -EMLINK; -EPERM as above; -EBUSY (T5); -errno.
 */
int temp_publish(struct edit_file *f, struct temp *t, int *old, struct err *e);

/* Open a file without a name beside the model, or one whose name is removed immediately. Returns
 * the descriptor or -errno. */
int temp_unnamed(const struct edit_file *f, struct err *e);

/* Give a synced file a permanent name, in place of an existing file; *t is then as after temp_abandon(). 0, -errno. */
int temp_name(const struct edit_file *f, struct temp *t, const char *name, struct err *e);

void temp_abandon(const struct edit_file *f, struct temp *t);

/*
 * Probe what temp_create(), temp_dress() and temp_publish() need, beside the model: with a file without a name; where
 * these do not exist, or on a remote file system, with two files, which are removed again. 0, -errno.
 */
int temp_probe(const struct edit_file *f, struct err *e);

/* ---- owner, mode, extended attributes and ACLs ---- */

/*
 * Give `to`, a file of ours, the attributes of `from`, whose stat is st, and no others. 0; -EPERM (something cannot be
 * reproduced), -ENOSPC, -EDQUOT, -EIO, -ENOMEM.
 */
int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e);

/* True if only the mode gives access to a file: it certainly has no ACL. */
bool attr_no_acl(const struct sys *s, int fd);
/* Remove the ACL, if there is one. False if that failed. */
bool attr_drop_acl(const struct sys *s, int fd);

/* Check that the attributes of a file can be listed and read, as attr_copy() will do. Returns as
 * above. */
int attr_check(const struct sys *s, int fd, struct err *e);

#endif
