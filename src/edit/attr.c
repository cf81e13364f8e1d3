/* SPDX-License-Identifier: MIT */
/* Owner, mode, extended attributes and ACLs: see attr.h. ACLs are extended attributes too. */
#include "edit/attr.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

#define ACL "system.posix_acl_access"

/* Errors of the medium are passed on; any other is a refusal. */
static int refuse(struct err *e, int r, const char *what, const char *name)
{
    bool medium = r == -ENOSPC || r == -EDQUOT || r == -EIO || r == -ENOMEM;
    char shown[SHOW_MAX];
    return err_set(e, medium ? r : -EPERM, "the model's %s%s%s cannot be reproduced: %s", what,
                   *name ? " " : "", show(shown, name, strlen(name)), strerror(-r));
}

/* Read a whole attribute (name) or the list of names (NULL), which may grow between two calls. */
static int get_all(const struct sys *s, int fd, const char *name, struct buf *ret)
{
    for (;;) {
        ssize_t n = name ? s->fgetxattr(s, fd, name, NULL, 0) : s->flistxattr(s, fd, NULL, 0);
        if (n < 0)
            return (int)n;
        ret->len = 0;
        uint8_t *at = buf_extend(ret, (size_t)n + 1);
        if (!at)
            return -ENOMEM;
        n = name ? s->fgetxattr(s, fd, name, at, (size_t)n + 1)
                 : s->flistxattr(s, fd, (char *)at, (size_t)n + 1);
        if (n == -ERANGE)
            continue;
        ret->len = n < 0 ? 0 : (size_t)n;
        return n < 0 ? (int)n : 0;
    }
}

/* The names, one after another, each with its NUL. File systems without attributes have none. */
static int get_names(const struct sys *s, int fd, struct buf *ret)
{
    int r = get_all(s, fd, NULL, ret);
    return r == -EOPNOTSUPP || r == -ENOSYS ? 0 : r;
}

static const char *next_name(const struct buf *names, const char *name)
{
    const char *at = name ? name + strlen(name) + 1 : (const char *)names->data;
    return names->len && at < (const char *)names->data + names->len ? at : NULL;
}

static bool has_name(const struct buf *names, const char *name)
{
    const char *at = NULL;
    while ((at = next_name(names, at)))
        if (strcmp(at, name) == 0)
            return true;
    return false;
}

/*
 * Copy one attribute. If `to` already has it (a label that the system gives), no permission is
 * needed.
 */
static int copy_one(const struct sys *s, int from, int to, const char *name)
{
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    CLEANUP(buf_free) struct buf have = BUF_INIT;
    int r = get_all(s, from, name, &want);
    if (r < 0)
        return r;
    if (get_all(s, to, name, &have) == 0 && have.len == want.len &&
        (want.len == 0 || memcmp(have.data, want.data, want.len) == 0))
        return 0;
    return s->fsetxattr(s, to, name, want.data, want.len);
}

static int copy_xattrs(const struct sys *s, int from, int to, struct err *e)
{
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    CLEANUP(buf_free) struct buf have = BUF_INIT;
    int r = get_names(s, from, &want);
    if (r == 0)
        r = get_names(s, to, &have);
    if (r < 0)
        return refuse(e, r, "list of extended attributes", "");
    for (const char *name = NULL; (name = next_name(&have, name));)
        if (!has_name(&want, name) && (r = s->fremovexattr(s, to, name)) < 0)
            return refuse(e, r, "lack of the attribute", name);
    for (const char *name = NULL; (name = next_name(&want, name));)
        if ((r = copy_one(s, from, to, name)) < 0)
            return refuse(e, r, "extended attribute", name);
    return 0;
}

static bool no_acl(int r)
{
    return r == -ENODATA || r == -EOPNOTSUPP || r == -ENOSYS;
}

bool attr_no_acl(const struct sys *s, int fd)
{
    return no_acl((int)s->fgetxattr(s, fd, ACL, NULL, 0));
}

bool attr_drop_acl(const struct sys *s, int fd)
{
    int r = s->fremovexattr(s, fd, ACL);
    return r == 0 || no_acl(r);
}

int attr_check(const struct sys *s, int fd, struct err *e)
{
    CLEANUP(buf_free) struct buf names = BUF_INIT;
    CLEANUP(buf_free) struct buf value = BUF_INIT;
    int r = get_names(s, fd, &names);
    if (r < 0)
        return refuse(e, r, "list of extended attributes", "");
    for (const char *name = NULL; (name = next_name(&names, name));)
        if ((r = get_all(s, fd, name, &value)) < 0)
            return refuse(e, r, "extended attribute", name);
    return 0;
}

int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e)
{
    struct stat now;
    int r = s->fstat(s, to, &now);
    if (r == 0 && (now.st_uid != st->st_uid || now.st_gid != st->st_gid))
        r = s->fchown(s, to, st->st_uid, st->st_gid);
    if (r < 0)
        return refuse(e, r, "owner and group", "");
    r = copy_xattrs(s, from, to, e);
    if (r < 0)
        return r;
    /* Last: a change of owner clears the set-id bits, and an ACL has its mask in the group bits. */
    r = s->fchmod(s, to, st->st_mode & 07777);
    return r < 0 ? refuse(e, r, "mode", "") : 0;
}
