/* SPDX-License-Identifier: MIT */
/* Decides whether a model can be edited, and begins editing at the first edit: see begin.h. */
#include "tree/begin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <syslog.h>
#include <unistd.h>

#include "base/path.h"
#include "check/filename.h"
#include "edit/commit.h"

/* Return the reason why a file of the model must not be edited, as far as it is known before the
 * file is opened, or NULL if it may be edited. */
static const char *reason(const struct tree *t, const struct model_file *m)
{
    if (t->opt.read_only)
        return t->opt.why ? t->opt.why : "asked for by -o ro";
    if (t->opt.partial)
        return "nothing is edited with -o partial";
    if (file_name_is_hash(m->name) && !t->opt.edit_hash_names)
        return "its name is a hash of its content (-o hashnames=edit allows edits)";
    if (faccessat(m->dir, ".", W_OK, AT_EACCESS) < 0)
        return "its directory is not writable";
    if (faccessat(m->dir, ".", R_OK, AT_EACCESS) < 0) /* leftover files could not be found */
        return "its directory is not readable";
    return NULL;
}

static void not_writable(struct tree *t, const char *why)
{
    t->writable = false;
    (void)show_in(t->why, sizeof(t->why), why, strlen(why));
}

static int open_file(const struct model_file *m, struct edit_file *f, bool write, struct err *e)
{
    return edit_file_open(f, &sys_libc, m->dir, m->name, write, e);
}

/* Wait for a process that holds the lock and is about to end. */
static bool wait_for_lock(const struct tree *t, const struct model_file *m, bool busy,
                          struct err *why)
{
    return t->opt.wait && t->opt.wait(t->opt.wait_arg, m->dir, m->name, busy, why);
}

/* Before the file is opened for writing, try the features that every edit needs except one in
 * place. */
static int try_attributes(const struct tree *t, const struct model_file *m, struct err *e)
{
    struct edit_file f = {.fd = -1};
    if (t->opt.strategy == EDIT_INPLACE || open_file(m, &f, false, NULL) < 0)
        return 0;
    int r = edit_try_attributes(&f, e);
    edit_file_close(&f);
    return r;
}

/* Finish or undo an edit that a crash interrupted. */
static int recover(const struct tree *t, struct edit_file *f, struct err *e)
{
    struct edit_recovered found;
    int r = edit_recover(f, &found, e);
    if (found.finished)
        logger_log(&t->opt.log, LOG_NOTICE, "an edit that was interrupted has been finished");
    if (found.removed)
        logger_log(&t->opt.log, LOG_NOTICE, "%u leftover files were removed", found.removed);
    return r;
}

/*
 * Open the file for writing and lock it if the file system has everything that edits need;
 * otherwise f stays closed. If `of` is not NULL, it must be that file. A recovery changes the file
 * even if a later step fails, so the id in `of` is updated.
 */
static int open_for_editing(const struct tree *t, const struct model_file *m, struct edit_file *of,
                            struct edit_file *f, struct err *e)
{
    /* The lock of another file does not concern this tree. */
    int r = of ? edit_file_fresh(of, e) : 0;
    if (r == 0)
        r = try_attributes(t, m, e);
    if (r == 0)
        r = open_file(m, f, true, e);
    while (r == -EWOULDBLOCK &&
           (of ? t->opt.refused && t->opt.refused(t->opt.refused_arg, of->id.dev, of->id.ino, e)
               : wait_for_lock(t, m, true, e)))
        r = open_file(m, f, true, e);
    if (r < 0)
        return r;
    r = edit_try_handle(f, e);
    if (r == 0 && of)
        r = edit_file_fresh(of, e);
    if (r == 0) {
        r = recover(t, f, e);
        /* check whether a new file could replace it */
        if (r == 0 && t->opt.strategy != EDIT_INPLACE)
            r = edit_try_new(f, e);
        if (of)
            of->id = f->id;
    }
    if (r < 0)
        edit_file_close(f);
    return r;
}

int begin_open(struct tree *t, struct err *e)
{
    struct model_file *m = &t->model;
    struct err why = {0};
    const char *no = reason(t, m);
    int r = -EROFS;
    if (!no && !t->opt.late)
        r = open_for_editing(t, m, NULL, &m->file, &why);
    else if (!no && (r = faccessat(m->dir, m->name, W_OK, AT_EACCESS)) < 0)
        (void)err_set(&why, -errno, "%s", strerror(errno));
    else if (no && !t->opt.late)
        (void)wait_for_lock(t, m, false, &why);
    t->writable = r == 0;
    t->locked = r == 0 && !t->opt.late;
    if (!t->writable)
        not_writable(t, no ? no : why.msg);
    return t->locked ? 0 : open_file(m, &m->file, false, e);
}

/* ---- the other files of a split model ---- */

/* Keep only the identity of the shard when it was opened, and its directory. */
static void keep_shard(void *arg, size_t i, struct model_file *m)
{
    struct tree *t = arg;
    t->others[i] = m->file;
    t->others[i].fd = -1;
    t->others[i].dir = m->dir;
    t->n_others = i + 1;
    m->dir = -1;
    model_free(m);
}

int begin_shards(struct tree *t, struct gguf *g, unsigned flags, struct err *e)
{
    const struct model_opener opener = {NULL, keep_shard, t};
    t->others = calloc(t->shards.n, sizeof(*t->others));
    return t->others ? model_open_shards(&t->shards, g, flags, &opener, e)
                     : err_set(e, -ENOMEM, "no memory");
}

void begin_close(struct tree *t)
{
    for (size_t i = 1; i < t->n_others; i++)
        (void)close(t->others[i].dir);
    free(t->others);
}

/* ---- changes by other programs ---- */

/* Maximum number of files that one call checks, besides the first. */
#define LOOK_MOST ((size_t)64)

/* Return the state that a file had when it was opened. */
static struct edit_file opened(struct tree *t, size_t i)
{
    lock_take(&t->newest.lock);
    struct edit_file f = i ? t->others[i] : t->opened;
    lock_drop(&t->newest.lock);
    return f;
}

/* Returns true if a file changed. A change that may come from this tree itself, because editing has
 * begun or begins in the meantime, does not count. */
static bool is_stale(struct tree *t, size_t i)
{
    const unsigned begun = atomic_load(&t->begun);
    const struct edit_file f = opened(t, i);
    if (begun % 2 || (i == 0 && atomic_load(&t->live)))
        return false;
    return edit_file_fresh(&f, NULL) == -ESTALE && atomic_load(&t->begun) == begun;
}

bool begin_is_changed(struct tree *t)
{
    const size_t n = t->n_others ? t->n_others - 1 : 0, from = atomic_load(&t->look);
    bool stale = is_stale(t, 0);
    size_t k = 0;
    for (; k < n && k < LOOK_MOST && !stale; k++)
        stale = is_stale(t, 1 + (from + k) % n);
    if (k > 0)
        atomic_store(&t->look, from + k - stale);
    return stale;
}

/* ---- the beginning of editing ---- */

void begin_parsed(struct tree *t)
{
    struct err why = {0};
    struct statvfs fs = {0};
    t->opened = t->model.file;
    (void)fstatvfs(t->model.file.fd, &fs);
    t->edit.block = (uint32_t)fs.f_bsize;
    if (t->writable && t->model.overlay.planted.code)
        not_writable(t, t->model.overlay.planted.msg);
    if (t->writable && edit_allowed(snapshot_own(t->newest.view.snap), &why) < 0)
        not_writable(t, why.msg); /* the lock is kept nevertheless */
    t->merge_first = t->opt.tensors && t->writable && t->shards.n;
    t->opt.tensors &= t->writable && !t->shards.n;
}

/* Open the file for writing, replacing the descriptor that was opened for reading. */
static int take_file(struct tree *t, struct err *e)
{
    struct model_file *m = &t->model;
    struct edit_file f = {.fd = -1}, old = m->file;
    int r = open_for_editing(t, m, &old, &f, e);
    m->file = r < 0 ? old : f;
    lock_take(&t->newest.lock);
    t->opened.id = m->file.id;
    lock_drop(&t->newest.lock);
    if (r == 0)
        edit_file_close(&old);
    t->locked = r == 0;
    return r == -EWOULDBLOCK ? -EBUSY : r;
}

/* Begin editing. Call with the lock `beginning` held. */
static int begin(struct tree *t, struct err *e)
{
    int r = t->locked ? 0 : take_file(t, e);
    if (r == 0 && t->opt.history && !t->history &&
        history_job_make(t->model.real, t->opt.history, &sys_libc, &t->opt.log, &t->history) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    if (r == 0)
        r = live_start(t->meta, t->history, e);
    if (r == 0)
        atomic_store(&t->live, t->meta);
    return r;
}

int begin_editing(struct tree *t)
{
    struct err e = {0};
    if (!t->writable)
        return -EROFS;
    LOCKED(&t->beginning);
    if (atomic_load(&t->live))
        return 0;
    atomic_fetch_add(&t->begun, 1);
    int r = begin(t, &e);
    atomic_fetch_add(&t->begun, 1);
    if (r < 0) {
        logger_log(&t->opt.log, LOG_ERR, "cannot be edited: %s", e.msg);
        lock_take(&t->newest.lock);
        (void)strcpy(t->refusal, e.msg);
        lock_drop(&t->newest.lock);
    }
    return r;
}
