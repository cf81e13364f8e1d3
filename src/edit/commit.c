/* SPDX-License-Identifier: MIT */
/* A plan carried out: see commit.h, whose invariants are named here. */
#include "edit/commit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "edit/attr.h"
#include "edit/backup.h"
#include "edit/journal.h"
#include "edit/move.h"
#include "edit/temp.h"

/* Room left for what the file system itself needs for a new file of this size. */
#define SPACE_SLACK ((uint64_t)1 << 20)

struct job {
    struct edit_file *f;
    const struct edit_plan *p;
    const struct edit_options *o;
    const struct edit_hooks *h;
    struct edit_result *ret;
    struct stat st; /* of the model, when the commit began */
};

struct strategy {
    const char *name;
    int (*applies)(struct job *j, struct err *e); /* 0; -EOPNOTSUPP and why; -errno */
    int (*run)(struct job *j, struct err *e);
};

static void call_ready(const struct job *j)
{
    if (j->h && j->h->ready)
        j->h->ready(j->h->arg);
}

/* New files: reflink and copy. */

static int replace(struct job *j, int (*fill)(struct move *, struct err *), struct err *e)
{
    struct temp t = TEMP_INIT;
    int r = temp_create(j->f, &t, e);
    if (r < 0)
        return r;
    t.break_links = j->o->break_hardlinks;
    struct move m = {.sys = j->f->sys, .plan = j->p, .hooks = j->h, .from = j->f->fd, .to = t.fd};
    r = temp_dress(j->f, &t, e);
    if (r == 0)
        r = fill(&m, e);
    if (r == 0)
        r = temp_sync(j->f, &t, e);
    if (r == 0) {
        call_ready(j);
        r = temp_publish(j->f, &t, &j->ret->old_fd, e);
    }
    temp_abandon(j->f, &t);
    return r;
}

/* Errors about the present state of the file system, not about its abilities. */
static bool is_passing(int r)
{
    return r == -EIO || r == -EINTR || r == -ENOMEM;
}

/* Ask the file system, with a file beside the model. Its answer does not change. */
static int probe_clone(struct edit_file *f, uint64_t block, struct err *e)
{
    struct temp t = TEMP_INIT;
    uint64_t n = f->id.size < block ? 0 : block; /* 0: all, where there is less than a block */
    int r = temp_create(f, &t, e);
    if (r < 0)
        return r;
    r = f->sys->clone_range(f->sys, f->fd, 0, t.fd, 0, n);
    temp_abandon(f, &t);
    if (is_passing(r))
        return err_set(e, r, "cannot clone a range: %s", strerror(-r));
    if (r == -ENOSPC || r == -EDQUOT)
        return err_set(e, -EOPNOTSUPP, "reflink: there is no room to clone a range");
    f->clone = r == 0 ? EDIT_CLONE_YES : EDIT_CLONE_NO;
    return 0;
}

/* Bytes that are free for new files. */
static int free_bytes(const struct edit_file *f, uint64_t *ret, struct err *e)
{
    struct statvfs v;
    int r = f->sys->fstatvfs(f->sys, f->dir, &v);
    if (r < 0)
        return err_set(e, r, "cannot find the free space: %s", strerror(-r));
    if (!mul_u64(geteuid() == 0 ? v.f_bfree : v.f_bavail, v.f_frsize, ret))
        *ret = UINT64_MAX;
    return 0;
}

static int check_free(uint64_t found, uint64_t needed, const char *what, struct err *e)
{
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

static int reflink_applies(struct job *j, struct err *e)
{
    int r = edit_plan_applies(j->p, EDIT_REFLINK, e);
    if (r == 0 && j->f->clone == EDIT_CLONE_UNKNOWN)
        r = probe_clone(j->f, j->p->block, e);
    if (r == 0 && j->f->clone == EDIT_CLONE_NO)
        return err_set(e, -EOPNOTSUPP, "reflink: the file system does not clone ranges");
    uint64_t fresh = j->p->copied + j->p->changed;
    return r < 0 || fresh == 0 ? r : edit_room_for(j->f, fresh, "reflink", e);
}

static int reflink_run(struct job *j, struct err *e)
{
    return replace(j, move_clone, e);
}

static int copy_applies(struct job *j, struct err *e)
{
    const uint64_t fresh = j->p->head.len + j->p->changed; /* holes stay holes */
    return edit_room_for(j->f, min_u64(j->p->image->size, (uint64_t)j->st.st_blocks * 512 + fresh),
                         "copy", e);
}

static int copy_run(struct job *j, struct err *e)
{
    return replace(j, move_copy, e);
}

/* In place. */

/* New bytes are written twice; where the file system writes nothing over what it has, that takes as much room. */
static int bytes_apply(const struct job *j, struct err *e)
{
    uint64_t bytes, most = min_u64(EDIT_INPLACE_MAX, j->p->image->size / EDIT_INPLACE_PART);
    if (j->o->strategy == EDIT_AUTO && j->p->changed > most)
        return err_set(e, -EOPNOTSUPP, "inplace: too much of the model changes");
    int r = journal_bytes(j->p, &bytes);
    if (r == -EFBIG)
        return err_set(e, -EOPNOTSUPP,
                       "inplace: the model changes in more than %llu places of 1 MiB",
                       (unsigned long long)JOURNAL_MAX_ROWS);
    if (r < 0)
        return err_set(e, r, "no memory for the journal");
    return edit_room_for(j->f, 2 * bytes + (j->p->image->size - j->p->old_size), "inplace", e);
}

static int inplace_applies(struct job *j, struct err *e)
{
    int r = edit_plan_applies(j->p, EDIT_INPLACE, e);
    if (r < 0)
        return r;
    if (j->st.st_nlink > 1)
        return err_set(e, -EOPNOTSUPP, "inplace: the model has other hard links");
    if (j->o->strategy == EDIT_AUTO && j->p->image->size <= EDIT_INPLACE_FROM)
        return err_set(e, -EOPNOTSUPP, "inplace: the model is small enough to be copied");
    r = j->p->changed ? bytes_apply(j, e) : 0;
    return r < 0 ? r : move_check_padding(j->f->sys, j->p, j->f->fd, e);
}

/* The model could not be written, but the journal has the edit. What was written is this file's own doing. */
static int unfinished(struct job *j, struct err *e)
{
    j->f->unfinished = j->ret->unfinished = true;
    (void)edit_file_note(j->f, NULL);
    return err_prefix(e, -EIO,
                      "the edit is in the journal beside the model (the next edit, the next mount "
                      "or --recover finishes it)");
}

static int inplace_run(struct job *j, struct err *e)
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
        (void)err_set(e, r, "cannot write the model: %s", strerror(-r));
        /* Where nothing of it was written, the edit is taken back. */
        if (journal_compare(f, &k, NULL) < 0 || k.begun)
            return unfinished(j, e);
        (void)edit_file_note(f, NULL); /* a write that fails may set the time */
        return journal_cancel(f, &k, r, e);
    }
    (void)journal_remove(f);
    return 0;
}

/* The table, in the order in which EDIT_AUTO tries it. */
static const struct strategy strategies[] = {
    [EDIT_AUTO] = {"auto", NULL, NULL},
    [EDIT_REFLINK] = {"reflink", reflink_applies, reflink_run},
    [EDIT_INPLACE] = {"inplace", inplace_applies, inplace_run},
    [EDIT_COPY] = {"copy", copy_applies, copy_run},
};

const char *edit_strategy_name(enum edit_strategy s)
{
    return strategies[s].name;
}

/* The strategy, or EDIT_AUTO where nothing has to be done. */
static int choose(struct job *j, enum edit_strategy *ret, struct err *e)
{
    enum edit_strategy s = j->o->strategy;
    *ret = EDIT_AUTO;
    if (j->p->same)
        return 0;
    if (s != EDIT_AUTO) {
        *ret = s;
        return strategies[s].applies(j, e);
    }
    struct err why = {0}; /* of the last one that does not apply */
    int r = -EOPNOTSUPP;
    for (s = EDIT_REFLINK; s <= EDIT_COPY && r == -EOPNOTSUPP; s++) {
        r = strategies[s].applies(j, &why);
        *ret = s;
    }
    return r < 0 ? err_set(e, r, "%s", why.msg) : 0;
}

/* Room for a backup that is still to be made, beside what the edit itself takes. */
static int check_backup(struct job *j, enum edit_strategy s, struct err *e)
{
    if (s == EDIT_AUTO || !backup_wanted(j->f, j->o))
        return 0;
    int r = backup_check(j->f, j->o, e);
    if (r == 0 && j->f->clone == EDIT_CLONE_UNKNOWN)
        (void)probe_clone(j->f, j->p->block, NULL);
    if (r < 0 || j->f->clone == EDIT_CLONE_YES)
        return r;
    uint64_t old = (uint64_t)j->st.st_blocks * 512;
    uint64_t next =
        s == EDIT_COPY ? min_u64(j->p->image->size, old + j->p->head.len + j->p->changed) : 0;
    return edit_room_for(j->f, old + next, "backup", e);
}

/* C1. A journal whose edit is not done is finished if it is this file's last edit: the plan is made on that. Else
 * the model is not what f knows. */
static int check_journal(struct edit_file *f, struct err *e)
{
    CLEANUP(journal_free) struct journal k = JOURNAL_INIT;
    enum journal_state found;
    int r = journal_load(f, &k, NULL, e);
    if (r == 0 && k.state == JOURNAL_REDO && !f->unfinished)
        return err_set(e, -ESTALE, "an interrupted edit must be recovered first");
    if (r == 0 && k.state != JOURNAL_REDO && k.state != JOURNAL_DONE && f->unfinished)
        return err_set(e, -ESTALE, "the journal of an unfinished edit is gone");
    return r < 0 || k.state == JOURNAL_NONE ? r : journal_settle(f, &found, e);
}

static int check_file(const struct edit_file *f, const struct edit_options *o, struct stat *st,
                      struct err *e)
{
    int r = f->sys->fstat(f->sys, f->fd, st);
    if (r < 0)
        return err_set(e, r, "cannot stat the model: %s", strerror(-r));
    r = edit_file_links(st, o->break_hardlinks, e);
    return r < 0 ? r : edit_file_fresh(f, e);
}

int edit_look(struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
              struct err *e)
{
    struct stat st;
    struct edit_disk d = {.known = true};
    int r = check_file(f, o, &st, e);
    if (r == 0)
        r = free_bytes(f, &d.free, e);
    d.backup = backup_wanted(f, o);
    if (r == 0 && d.backup)
        r = backup_check(f, o, e);
    if (r < 0)
        return r;
    const bool clones = o->strategy == EDIT_AUTO || o->strategy == EDIT_REFLINK;
    if (clones && f->clone == EDIT_CLONE_UNKNOWN)
        (void)probe_clone(f, edit_block(o), NULL); /* a commit asks again */
    d.used = (uint64_t)st.st_blocks * 512;
    d.linked = st.st_nlink > 1;
    *ret = d;
    ret->clone = f->clone;
    return 0;
}

/* The strategy that is asked for, or the first that applies, as far as sizes show. */
static enum edit_strategy expected(const struct edit_change *c, const struct edit_options *o,
                                   const struct edit_disk *d)
{
    const struct edit_change *t = c->tensors;
    if (o->strategy != EDIT_AUTO)
        return o->strategy;
    if (d->clone == EDIT_CLONE_YES && edit_change_applies(c, o, EDIT_REFLINK, NULL) >= 0)
        return EDIT_REFLINK;
    const uint64_t size = c->bytes + (t ? t->data : c->base->file_size - c->base->data_off);
    const bool little = !t || t->fresh <= min_u64(EDIT_INPLACE_MAX, size / EDIT_INPLACE_PART);
    if (little && !d->linked && size > EDIT_INPLACE_FROM &&
        edit_change_applies(c, o, EDIT_INPLACE, NULL) == 0)
        return EDIT_INPLACE;
    return EDIT_COPY;
}

int edit_estimate(const struct edit_change *c, const struct edit_options *o,
                  const struct edit_disk *d, enum edit_strategy *ret, struct err *e)
{
    const struct edit_change *t = c->tensors;
    const enum edit_strategy how = expected(c, o, d);
    const uint64_t head = c->bytes + (t ? t->bytes : c->base->head_len - c->base->info_off),
                   fresh = t ? t->fresh : 0,
                   data = t ? t->data : c->base->file_size - c->base->data_off;
    uint64_t needed = how == EDIT_COPY      ? min_u64(head + data, d->used + head + fresh)
                      : how == EDIT_INPLACE ? 2 * fresh
                                            : fresh;
    *ret = how;
    if (d->backup && d->clone != EDIT_CLONE_YES)
        needed += d->used;
    return !d->known || needed == 0 ? 0 : check_free(d->free, needed, strategies[how].name, e);
}

int edit_try_attributes(const struct edit_file *f, struct err *e)
{
    return attr_check(f->sys, f->fd, e);
}

int edit_try_handle(const struct edit_file *f, struct err *e)
{
    uint8_t byte;
    int r = f->id.size ? sys_read_all(f->sys, f->fd, &byte, 1, 0) : 0;
    return r < 0
               ? err_set(e, r, "cannot read a file that is open for writing here: %s", strerror(-r))
               : 0;
}

int edit_try_new(const struct edit_file *f, struct err *e)
{
    return temp_probe(f, e);
}

bool edit_try_failed(int r)
{
    static const int passing[] = {-ENOSPC, -EDQUOT, -ENOMEM, -EINTR, -EMFILE, -ENFILE, -EAGAIN};
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
        if (r == passing[i])
            return false;
    return r < 0;
}

static int begin(struct job *j, struct err *e)
{
    int r = check_file(j->f, j->o, &j->st, e);
    if (r == 0)
        r = check_journal(j->f, e);
    if (r == 0 && j->p->old_size != j->f->id.size)
        return err_set(e, -ESTALE, "the edit was planned for a file of %llu bytes, not of %llu",
                       (unsigned long long)j->p->old_size, (unsigned long long)j->f->id.size);
    return r;
}

static int run(struct job *j, struct err *e)
{
    enum edit_strategy s;
    int r = begin(j, e);
    if (r == 0)
        r = choose(j, &s, e);
    if (r == 0)
        r = check_backup(j, s, e);
    if (r < 0 || s == EDIT_AUTO)
        return r;
    if (backup_wanted(j->f, j->o))
        r = backup_make(j->f, j->o, j->h, e);
    if (r < 0)
        return r;
    r = strategies[s].run(j, e);
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
    if (r == 0 && e) /* what a strategy that does not apply left */
        *e = (struct err){0};
    return r;
}
