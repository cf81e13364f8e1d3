/* SPDX-License-Identifier: MIT */
/* A backup before the first edit: see backup.h. */
#include "edit/backup.h"

#include <errno.h>
#include <string.h>

#include "edit/move.h"
#include "edit/temp.h"

int backup_name(char dst[NAME_MAX + 1], const struct edit_file *f, const struct edit_options *o,
                struct err *e)
{
    size_t n = strlen(f->name), more = strlen(o->backup);
    if (more > NAME_MAX - n)
        return err_set(e, -ENAMETOOLONG, "the backup's name would be over %d bytes", NAME_MAX);
    memcpy(dst, f->name, n);
    memcpy(dst + n, o->backup, more + 1);
    return 0;
}

int backup_check(const struct edit_file *f, const struct edit_options *o, struct err *e)
{
    char name[NAME_MAX + 1], shown[SHOW_MAX];
    struct stat st;
    int r = backup_name(name, f, o, e);
    if (r == 0 && f->sys->fstatat(f->sys, f->dir, name, &st) == 0 && S_ISDIR(st.st_mode))
        r = err_set(e, -EISDIR, "%s, which is to be the backup, is a folder",
                    show(shown, name, strlen(name)));
    return r;
}

static int fill(const struct edit_file *f, const struct edit_hooks *h, int to, struct err *e)
{
    struct move m = {.sys = f->sys, .hooks = h, .from = f->fd, .to = to};
    if (f->clone != EDIT_CLONE_NO && f->sys->clone_range(f->sys, f->fd, 0, to, 0, 0) == 0)
        return 0;
    return move_file(&m, f->id.size, e);
}

int backup_make(struct edit_file *f, const struct edit_options *o, const struct edit_hooks *h,
                struct err *e)
{
    char name[NAME_MAX + 1];
    struct temp t = TEMP_INIT;
    int r = backup_name(name, f, o, e);
    if (r == 0)
        r = temp_create(f, &t, e);
    if (r < 0)
        return err_prefix(e, r, "backup");
    r = temp_dress(f, &t, e);
    if (r == 0)
        r = fill(f, h, t.fd, e);
    if (r == 0)
        r = temp_sync(f, &t, e);
    if (r == 0)
        r = temp_name(f, &t, name, e);
    temp_abandon(f, &t);
    f->backed = r == 0;
    return r < 0 ? err_prefix(e, r, "backup") : 0;
}
