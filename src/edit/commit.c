/* SPDX-License-Identifier: MIT */
/* Carries out a plan: see commit.h, whose invariants are cited here. */
#include "edit/commit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "edit/journal.h"
#include "edit/temp.h"

/* Extra space that a new file needs for the file system's own data. */
#define SPACE_SLACK ((uint64_t)1 << 20)

struct job {
    struct edit_file *f;
    const struct edit_plan *p;
    const struct edit_options *o;
    const struct edit_hooks *h;
    struct edit_result *ret;
    struct edit_disk d; /* the disk when the commit began */
};

static const char *const names[] = {"auto", "reflink", "inplace", "copy"}; /* as in the enum */

const char *edit_strategy_name(enum edit_strategy s)
{
    return names[s];
}

static void call_ready(const struct job *j)
{
    if (j->h && j->h->ready)
        j->h->ready(j->h->arg);
}

/* ---- the disk ---- */

/* Tries to clone into a file beside the model, and remembers the answer, which never changes. */
static int probe_clone(struct edit_file *f, uint64_t block, struct err *e)
{
    struct temp t = TEMP_INIT;
    uint64_t n = f->id.size < block ? 0 : block; /* 0: the whole file, if smaller than a block */
    int r = temp_create(f, &t, e);
    if (r < 0)
        return r;
    r = f->sys->clone_range(f->sys, f->fd, 0, t.fd, 0, n);
    temp_abandon(f, &t);
    if (r == -EIO || r == -EINTR || r == -ENOMEM) /* a passing state, not a missing feature */
        return err_set(e, r, "cannot clone a range: %s", strerror(-r));
    if (r == -ENOSPC || r == -EDQUOT)
        return err_set(e, -EOPNOTSUPP, "reflink: there is no room to clone a range");
    f->clone = r == 0 ? EDIT_CLONE_YES : EDIT_CLONE_NO;
    return 0;
}

/* Determines how many bytes new files may take. */
static int free_bytes(const struct edit_file *f, uint64_t *ret, struct err *e)
{
    struct statvfs v;
    int r = f->sys->fstatvfs(f->sys, f->dir, &v);
    if (r < 0)
        return err_sys(e, r, "cannot find the free space");
    if (!mul_u64(geteuid() == 0 ? v.f_bfree : v.f_bavail, v.f_frsize, ret))
        *ret = UINT64_MAX;
    return 0;
}

static int check_free(uint64_t found, uint64_t needed, const char *what, struct err *e)
{
    if (needed == 0)
        return 0;
    needed = needed > UINT64_MAX - SPACE_SLACK ? UINT64_MAX : needed + SPACE_SLACK;
    if (found >= needed)
        return 0;
    return err_set(e, -ENOSPC, "%s: %llu bytes are needed, %llu are free", what,
                   (unsigned long long)needed, (unsigned long long)found);
}

int edit_room_for(const struct edit_file *f, uint64_t needed, const char *what, struct err *e)
{
    uint64_t found;
    int r = free_bytes(f, &found, e);
    return r < 0 ? r : check_free(found, needed, what, e);
}

/*
 * Returns how many bytes must be free, counting new data, a new file of `size` bytes and a backup.
 */
static uint64_t room_for(const struct edit_disk *d, enum edit_strategy how, uint64_t size,
                         uint64_t head, uint64_t fresh)
{
    uint64_t n = how == EDIT_COPY ? min_u64(size, d->used + head + fresh) /* holes stay holes */
                 : how == EDIT_INPLACE ? 2 * fresh /* even if nothing existing is overwritten */
                                       : fresh;
    return d->backup && d->clone != EDIT_CLONE_YES ? n + d->used : n;
}

int edit_backup_name(char dst[NAME_MAX + 1], const struct edit_file *f,
                     const struct edit_options *o, struct err *e)
{
    size_t n = strlen(f->name), more = strlen(o->backup);
    if (more > NAME_MAX - n)
        return err_set(e, -ENAMETOOLONG, "the backup's name would be over %d bytes", NAME_MAX);
    memcpy(dst, f->name, n);
    memcpy(dst + n, o->backup, more + 1);
    return 0;
}

/* Writes the backup's name to `name`, and refuses a name that a directory has. */
static int check_backup(const struct edit_file *f, const struct edit_options *o,
                        char name[NAME_MAX + 1], struct err *e)
{
    char shown[SHOW_MAX];
    struct stat st;
    int r = edit_backup_name(name, f, o, e);
    if (r == 0 && f->sys->fstatat(f->sys, f->dir, name, &st) == 0 && S_ISDIR(st.st_mode))
        r = err_set(e, -EISDIR, "%s, the name of the backup, is a directory",
                    show(shown, name, strlen(name)));
    return r;
}

static int look(struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
                struct err *e)
{
    struct stat st;
    struct edit_disk d = {.known = true, .backup = o->backup && !f->backed};
    int r = edit_file_stat(f, &st, e);
    if (r == 0)
        r = edit_file_links(&st, o->break_hardlinks, e);
    if (r == 0)
        r = edit_file_fresh(f, e);
    if (r == 0)
        r = free_bytes(f, &d.free, e);
    if (r < 0)
        return r;
    d.used = (uint64_t)st.st_blocks * 512;
    d.linked = st.st_nlink > 1;
    *ret = d;
    return 0;
}

int edit_look(struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
              struct err *e)
{
    const bool clones = o->strategy == EDIT_AUTO || o->strategy == EDIT_REFLINK;
    char name[NAME_MAX + 1];
    struct edit_disk d;
    int r = look(f, o, &d, e);
    if (r == 0 && d.backup)
        r = check_backup(f, o, name, e);
    if (r < 0)
        return r;
    if (clones && f->clone == EDIT_CLONE_UNKNOWN)
        (void)probe_clone(f, edit_block(o), NULL); /* a commit probes again */
    d.clone = f->clone;
    *ret = d;
    return 0;
}

/*
 * Checks whether a strategy is possible, given the disk, the size of the new file and the size of
 * its part that comes from drafts. Returns 0 or -EOPNOTSUPP.
 */
static int check_sizes(const struct edit_disk *d, const struct edit_options *o,
                       enum edit_strategy how, uint64_t size, uint64_t changed, struct err *e)
{
    const bool asked = o->strategy == how;
    if (how == EDIT_REFLINK && d->clone != EDIT_CLONE_YES)
        return err_set(e, -EOPNOTSUPP, "reflink: the file system does not clone ranges");
    if (how != EDIT_INPLACE)
        return 0;
    if (d->linked)
        return err_set(e, -EOPNOTSUPP, "inplace: the model has other hard links");
    if (!asked && size <= EDIT_INPLACE_FROM)
        return err_set(e, -EOPNOTSUPP, "inplace: the model is small enough to be copied");
    if (!asked && changed > min_u64(EDIT_INPLACE_MAX, size / EDIT_INPLACE_PART))
        return err_set(e, -EOPNOTSUPP, "inplace: too much of the model changes");
    return 0;
}

/* Returns the requested strategy or, for EDIT_AUTO, the first that applies, judging by sizes. */
static enum edit_strategy expected(const struct edit_change *c, const struct edit_options *o,
                                   const struct edit_disk *d)
{
    if (o->strategy != EDIT_AUTO)
        return o->strategy;
    for (enum edit_strategy s = EDIT_REFLINK; s < EDIT_COPY; s++) {
        const int r = check_sizes(d, o, s, c->bytes + c->data, c->fresh, NULL) < 0
                          ? -EOPNOTSUPP
                          : edit_change_applies(c, o, s, NULL);
        if (r == 0 || (r > 0 && s == EDIT_REFLINK))
            return s;
    }
    return EDIT_COPY;
}

int edit_estimate(const struct edit_change *c, const struct edit_options *o,
                  const struct edit_disk *d, enum edit_strategy *ret, struct err *e)
{
    *ret = expected(c, o, d);
    const uint64_t needed = room_for(d, *ret, c->bytes + c->data, c->bytes, c->fresh);
    return d->known ? check_free(d->free, needed, names[*ret], e) : 0;
}

/* ---- in place ---- */

/*
 * Reports that the model could not be written although the journal has the edit. The bytes written
 * count as this file's own.
 */
static int unfinished(struct job *j, struct err *e)
{
    j->f->unfinished = j->ret->unfinished = true;
    (void)edit_file_note(j->f, NULL);
    return err_prefix(e, -EIO,
                      "the edit is in the journal beside the model (the next edit, the next mount "
                      "or --recover finishes it)");
}

static int write_inplace(struct job *j, struct err *e)
{
    CLEANUP(journal_free) struct journal k = JOURNAL_INIT;
    struct edit_file *f = j->f;
    call_ready(j);
    int r = journal_write(f, j->p, j->h, &k, e);
    if (r < 0)
        return r;
    r = edit_file_fresh(f, e);
    if (r < 0)
        return journal_cancel(f, &k, r, e);
    r = journal_apply(f, &k);
    if (r < 0) {
        (void)err_sys(e, r, "cannot write the model");
        /* If none of the edit was written, it is taken back. */
        if (journal_compare(f, &k, NULL) < 0 || k.begun)
            return unfinished(j, e);
        (void)edit_file_note(f, NULL); /* even a failed write may have set the time */
        return journal_cancel(f, &k, r, e);
    }
    (void)journal_remove(f);
    return 0;
}

/* ---- a new file ---- */

/*
 * Makes a new file that replaces the model. Or, given the name of a backup, copies the unchanged
 * model. The copy gets that name, replacing an older backup, once it is on disk, so that no backup
 * is ever incomplete.
 */
static int make_file(struct job *j, bool clone, const char *backup, struct err *e)
{
    struct temp t = TEMP_INIT;
    int r = temp_create(j->f, &t, e);
    t.break_links = j->o->break_hardlinks;
    if (r == 0)
        r = temp_dress(j->f, &t, e);
    if (r == 0)
        r = backup ? temp_copy(j->f, &t, j->h, e) : temp_fill(j->f, &t, j->p, clone, j->h, e);
    if (r == 0)
        r = temp_sync(j->f, &t, e);
    if (r == 0 && backup) {
        r = temp_name(j->f, &t, backup, e);
    } else if (r == 0) {
        call_ready(j);
        r = temp_publish(j->f, &t, &j->ret->old_fd, e);
    }
    temp_abandon(j->f, &t);
    return r;
}

/* ---- strategies ---- */

/* Checks that the old and new bytes allow an edit in place. *fresh: how many bytes it writes. */
static int check_inplace(const struct job *j, uint64_t *fresh, struct err *e)
{
    int r = j->p->changed ? journal_bytes(j->p, fresh) : 0;
    if (r == -EFBIG)
        return err_set(e, -EOPNOTSUPP,
                       "inplace: the model changes in more than %llu places of 1 MiB",
                       (unsigned long long)JOURNAL_MAX_ROWS);
    if (r < 0)
        return err_set(e, r, "no memory for the journal");
    return temp_check_padding(j->f, j->p, e);
}

static int applies(struct job *j, enum edit_strategy how, struct err *e)
{
    const struct edit_plan *p = j->p;
    struct edit_file *f = j->f;
    uint64_t fresh = how == EDIT_REFLINK ? p->copied + p->changed : p->changed;
    int r = edit_plan_applies(p, how, e);
    if (r == 0 && how == EDIT_REFLINK && f->clone == EDIT_CLONE_UNKNOWN)
        r = probe_clone(f, p->block, e);
    if (r == 0 && j->d.backup && f->clone == EDIT_CLONE_UNKNOWN)
        (void)probe_clone(f, p->block, NULL);
    j->d.clone = f->clone;
    if (r == 0)
        r = check_sizes(&j->d, j->o, how, p->image->size, p->changed, e);
    if (r == 0 && how == EDIT_INPLACE)
        r = check_inplace(j, &fresh, e);
    if (r < 0)
        return r;
    return check_free(j->d.free, room_for(&j->d, how, p->image->size, p->head.len, fresh),
                      names[how], e);
}

static int choose(struct job *j, enum edit_strategy *ret, struct err *e)
{
    struct err why = {0}; /* why the last strategy does not apply */
    int r = -EOPNOTSUPP;
    *ret = j->o->strategy;
    if (*ret != EDIT_AUTO)
        return applies(j, *ret, e);
    for (enum edit_strategy s = EDIT_REFLINK; s <= EDIT_COPY && r == -EOPNOTSUPP; s++)
        r = applies(j, *ret = s, &why);
    return r < 0 ? err_set(e, r, "%s", why.msg) : 0;
}

/* ---- probes ---- */

/* Turns errors that may be temporary into 0. */
static int lasting(int r)
{
    static const int passing[] = {-ENOSPC, -EDQUOT, -ENOMEM, -EINTR, -EMFILE, -ENFILE, -EAGAIN};
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
        if (r == passing[i])
            return 0;
    return r;
}

int edit_try_attributes(const struct edit_file *f, struct err *e)
{
    return lasting(attr_check(f->sys, f->fd, e));
}

int edit_try_handle(const struct edit_file *f, struct err *e)
{
    uint8_t byte;
    int r = f->id.size ? sys_read_all(f->sys, f->fd, &byte, 1, 0) : 0;
    return err_sys(e, r, "cannot read a file that is open for writing here");
}

int edit_try_new(const struct edit_file *f, struct err *e)
{
    return lasting(temp_probe(f, e));
}

/* ---- the commit ---- */

/*
 * C4. Finishes the file's own unfinished edit first, because the plan builds on it, and its journal
 * takes space.
 */
static int begin(struct job *j, struct err *e)
{
    enum journal_state found;
    int r = edit_file_fresh(j->f, e);
    if (r == 0)
        r = journal_settle(j->f, true, &found, e);
    if (r == 0)
        r = look(j->f, j->o, &j->d, e);
    if (r == 0 && j->p->old_size != j->f->id.size)
        return err_set(e, -ESTALE, "the edit was planned for a file of %llu bytes, not of %llu",
                       (unsigned long long)j->p->old_size, (unsigned long long)j->f->id.size);
    return r;
}

static int run(struct job *j, struct err *e)
{
    char name[NAME_MAX + 1];
    enum edit_strategy s = EDIT_AUTO;
    int r = begin(j, e);
    if (r < 0 || j->p->same)
        return r;
    if (j->d.backup)
        r = check_backup(j->f, j->o, name, e);
    if (r == 0)
        r = choose(j, &s, e);
    if (r == 0 && j->d.backup) {
        r = make_file(j, false, name, e);
        j->f->backed = r == 0;
        if (r < 0)
            (void)err_prefix(e, r, "backup");
    }
    if (r < 0)
        return r;
    r = s == EDIT_INPLACE ? write_inplace(j, e) : make_file(j, s == EDIT_REFLINK, NULL, e);
    /* The probe succeeded, but this range cannot be cloned (a limit of the file system). */
    if (r == -EOPNOTSUPP && s == EDIT_REFLINK && j->o->strategy == EDIT_AUTO) {
        j->f->clone = EDIT_CLONE_NO;
        return run(j, e);
    }
    j->ret->strategy = s;
    return r;
}

int edit_commit(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
                const struct edit_hooks *h, struct edit_result *ret, struct err *e)
{
    *ret = (struct edit_result){.old_fd = -1};
    struct job j = {.f = f, .p = p, .o = o, .h = h, .ret = ret};
    int r = run(&j, e);
    if (r == 0 && e) /* the message of a strategy that does not apply */
        *e = (struct err){0};
    return r;
}
