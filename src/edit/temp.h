/* SPDX-License-Identifier: MIT */
/*
 * A new file beside the model that replaces it completely or not at all.
 *
 *     r = temp_create(f, &t, e);      created, empty, not readable by other users
 *     r = temp_dress(f, &t, e);       locked; gets the model's owner, attributes and mode
 *     ... temp_fill(), or write t.fd ...
 *     r = temp_sync(f, &t, e);
 *     r = temp_publish(f, &t, &old, e);
 *     temp_abandon(f, &t);            always; does nothing to a published file
 *
 * States of a temp, and what its `name` means in each:
 *  EMPTY      there is no file; fd is -1
 *  OPEN       `name` is the new file; the path names the old one
 *  PUBLISHED  the path names the new file and the old one has no name; fd was passed on
 *
 * Invariants:
 *  T1. The path always names a complete file, because the new file is synced before it is
 *      atomically exchanged with the old one (RENAME_EXCHANGE).
 *  T2. The displaced file is checked after the exchange; if it is not the file that was opened, it
 *      is put back (-ESTALE). So a file that appeared between the last check of the path and the
 *      exchange is not lost.
 *  T3. Success is reported only after the directory is synced. If the sync fails, the old file is
 *      put back.
 *  T4. A crash leaves at most one file, which matches ".NAME.ggufs-XXXXXX", has the old or the new
 *      content, and is neither locked nor read. edit_recover() removes it.
 *  T5. The new file has the owner, mode and attributes that the model has when it is displaced.
 *      They are set again if they changed while the new file was written, and hard links are
 *      checked again. Last-moment changes to owner, mode and links are noticed (-EBUSY or -EMLINK,
 *      and the old file is put back), but changes to other attributes are not.
 * On file systems without the exchange, a plain rename follows the same check. T2 and T5 then have
 * a gap of one system call, and the new file stays if the directory cannot be synced. It also stays
 * if a failing rename removes the model, as on SMB, which temp_probe() detects.
 *
 * Private to the edit layer, except for temp_unnamed().
 */
#ifndef EDIT_TEMP_H
#define EDIT_TEMP_H

#include "edit/commit.h"

struct temp {
    int fd; /* open for reading and writing */
    char name[NAME_MAX + 1];
    struct edit_id id; /* its identity when it was synced */
    struct stat model; /* the model's, from before its attributes were copied */
    bool break_links;  /* the model may have other hard links; they keep the old content */
};

#define TEMP_INIT ((struct temp){.fd = -1})

/* Create the new file. Returns 0 or -errno. */
int temp_create(const struct edit_file *f, struct temp *t, struct err *e);
/* Give the new file the attributes of the old one. Returns 0, -EPERM (owner, mode, attributes or
 * ACL cannot be reproduced) or -errno. */
int temp_dress(const struct edit_file *f, struct temp *t, struct err *e);

/*
 * Give an empty file its size, the plan's header and all the data. With `clone`, whole blocks of
 * old data are cloned. Holes in the old file stay holes. Returns 0, -EOPNOTSUPP (cannot clone) or
 * -errno.
 */
int temp_fill(const struct edit_file *f, struct temp *t, const struct edit_plan *plan, bool clone,
              const struct edit_hooks *h, struct err *e);
/* Fill the file with the unchanged model, cloned if possible. */
int temp_copy(const struct edit_file *f, struct temp *t, const struct edit_hooks *h, struct err *e);
/* Return 0 if the old file has zeros wherever the plan has padding, otherwise -EOPNOTSUPP. */
int temp_check_padding(const struct edit_file *f, const struct edit_plan *p, struct err *e);

/* Make the bytes written durable. Returns 0 or -errno. */
int temp_sync(const struct edit_file *f, struct temp *t, struct err *e);
/*
 * Replace the model by a synced file. On success f has the new descriptor and identity, and the
 * caller closes the previous descriptor, *old. On failure *old is -1 and f is unchanged; if the new
 * file could not be taken back, the path no longer names f's file (-ESTALE from then on). Returns
 * 0, -ESTALE, -EMLINK, -EPERM as above, -EBUSY (T5) or -errno.
 */
int temp_publish(struct edit_file *f, struct temp *t, int *old, struct err *e);

/*
 * Open an unnamed file beside the model, or a named one whose name is removed immediately. Returns
 * the descriptor or -errno.
 */
int temp_unnamed(const struct edit_file *f, struct err *e);

/*
 * Give a synced file a permanent name, replacing an existing file of that name; *t is then as after
 * temp_abandon(). Returns 0 or -errno.
 */
int temp_name(const struct edit_file *f, struct temp *t, const char *name, struct err *e);

void temp_abandon(const struct edit_file *f, struct temp *t);

/*
 * Probe beside the model whether temp_create(), temp_dress() and temp_publish() can work. The probe
 * uses an unnamed file or, where these do not exist or on a remote file system, two named files,
 * which it removes again. Returns 0 or -errno.
 */
int temp_probe(const struct edit_file *f, struct err *e);

/* ---- owner, mode, extended attributes and ACLs ---- */

/*
 * Give `to`, a file of ours, exactly the attributes of `from`, whose stat is st. Returns 0, -EPERM
 * (something cannot be reproduced), -ENOSPC, -EDQUOT, -EIO or -ENOMEM.
 */
int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e);

/* Return true if the file certainly has no ACL, so that its mode alone determines access. */
bool attr_no_acl(const struct sys *s, int fd);
/* Remove the ACL if there is one. Returns false on failure. */
bool attr_drop_acl(const struct sys *s, int fd);

/*
 * Check that the attributes of a file can be listed and read, as attr_copy() does. Returns the same
 * errors.
 */
int attr_check(const struct sys *s, int fd, struct err *e);

#endif
