/* SPDX-License-Identifier: MIT */
/* What a crash left: see recover.h. */
#include "edit/recover.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/bytes.h"

struct sweep {
    const struct edit_file *f;
    struct stat model;
    char pattern[NAME_MAX + 1]; /* the name of a temp, suffix aside */
    size_t prefix;              /* its bytes */
    unsigned removed;
};

static bool is_temp_name(const struct sweep *s, const char *name)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    return strncmp(name, s->pattern, s->prefix) == 0 &&
           strlen(name) == s->prefix + EDIT_TEMP_SUFFIX &&
           strspn(name + s->prefix, digits) == EDIT_TEMP_SUFFIX;
}

/*
 * True for a file of ours that is not locked: its writer has ended. It may have other hard links, if
 * they were to be broken: the old file keeps those.
 */
static bool is_left_over(const struct sweep *s, int fd)
{
    const struct sys *sys = s->f->sys;
    struct stat st;
    return sys->fstat(sys, fd, &st) == 0 && edit_is_owned(&st, &s->model) &&
           st.st_ino != s->model.st_ino && sys->flock(sys, fd, LOCK_EX | LOCK_NB) == 0;
}

static int sweep_one(void *arg, const char *name)
{
    struct sweep *s = arg;
    const struct sys *sys = s->f->sys;
    struct stat st;
    if (!is_temp_name(s, name) || sys->fstatat(sys, s->f->dir, name, &st) < 0 ||
        !edit_is_owned(&st, &s->model)) /* others are not even opened */
        return 0;
    /* For writing, if that may be: NFS locks nothing else exclusively. */
    int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    int fd = sys->openat(sys, s->f->dir, name, O_RDWR | flags, 0);
    if (fd < 0)
        fd = sys->openat(sys, s->f->dir, name, O_RDONLY | flags, 0);
    if (fd < 0)
        return 0;
    if (is_left_over(s, fd) && sys->unlinkat(sys, s->f->dir, name) == 0)
        s->removed++;
    sys_close(sys, &fd);
    return 0;
}

static int sweep(const struct edit_file *f, unsigned *removed, struct err *e)
{
    struct sweep s = {.f = f};
    int r = f->sys->fstat(f->sys, f->fd, &s.model);
    if (r == 0) {
        edit_side_name(s.pattern, f->name, "");
        s.prefix = strlen(s.pattern);
        r = f->sys->list(f->sys, f->dir, sweep_one, &s);
    }
    *removed = s.removed;
    return r < 0 ? err_set(e, r, "cannot list the model's folder: %s", strerror(-r)) : 0;
}

int edit_recover(struct edit_file *f, struct edit_recovered *ret, struct err *e)
{
    enum journal_state found = JOURNAL_NONE;
    *ret = (struct edit_recovered){0};
    int r = journal_settle(f, &found, e);
    if (r < 0)
        return r;
    ret->finished = found == JOURNAL_REDO;
    ret->dropped = found == JOURNAL_VOID;
    return sweep(f, &ret->removed, e);
}

int edit_overlay(const struct edit_file *f, struct edit_overlay *ret, struct err *e)
{
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    struct edit_overlay o = EDIT_OVERLAY_INIT;
    struct err why = {0};
    int r = journal_load(f, &j, &o.seen, &why);
    if (r < 0)
        return err_set(e, r, "%s", why.msg);
    o.planted = why;
    if (j.state == JOURNAL_REDO) {
        o.journal = j;
        j = JOURNAL_INIT;
    }
    *ret = o;
    return 0;
}

bool edit_overlay_holds(const struct edit_overlay *o, const struct edit_file *f)
{
    struct journal_seen now;
    return !journal_see(f, &now) || journal_seen_equal(&o->seen, &now);
}

int edit_overlay_source(struct edit_overlay *o, const struct edit_file *f, struct source *ret,
                        struct err *e)
{
    const struct journal *j = &o->journal;
    struct source file, journal = {.fd = -1};
    uint64_t at = 0;
    int r = source_fd(f->fd, &file, e);
    if (r == 0 && j->n)
        r = source_fd(j->fd, &journal, e);
    if (r < 0)
        return r;
    struct image *im = o->image = image_new(NULL);
    if (!im)
        return err_set(e, -ENOMEM, "no memory");
    const uint32_t no = image_file(im, file), from = image_file(im, journal);
    for (size_t i = 0; i < j->n; i++) {
        image_add_file(im, no, at, j->row[i].at - at);
        image_add_file(im, from, j->row[i].src, j->row[i].n);
        at = j->row[i].at + j->row[i].n;
    }
    image_add_file(im, no, at, (j->n ? j->after : file.size) - at);
    r = image_end(im);
    *ret = image_source(im);
    ret->fd = f->fd;
    return r < 0 ? err_set(e, r, "cannot lay the journal over the model: %s", strerror(-r)) : 0;
}

bool edit_overlay_changes(const struct edit_overlay *o)
{
    return o->journal.n > 0;
}

bool edit_overlay_interrupted(const struct edit_overlay *o)
{
    return edit_overlay_changes(o) && !o->journal.live;
}

int edit_overlay_map(const struct edit_overlay *o, struct map *m, struct err *e)
{
    int r = o->journal.n ? journal_map(&o->journal, m) : 0;
    return r < 0 ? err_set(e, r, "cannot map the journal: %s", strerror(-r)) : 0;
}

void edit_overlay_free(struct edit_overlay *o)
{
    journal_free(&o->journal);
    image_unref(o->image);
    *o = EDIT_OVERLAY_INIT;
}
