/* SPDX-License-Identifier: MIT */
/* Opens and closes a model as a tree, begins to edit it at the first edit, and handles calls that
 * concern the whole tree: see tree.h. */
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <syslog.h>
#include <unistd.h>

#include "base/pool.h"
#include "check/filename.h"
#include "check/summary.h"
#include "edit/commit.h"
#include "model/snapshot.h"
#include "tree/nodes.h"

/* ---- the model's file, and whether it can be edited ---- */

/* True if a file in this directory, or with "." the directory itself, has the attribute. */
static bool has_attribute(int dir, const char *name, uint64_t attribute)
{
    struct statx st;
    return statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, 0, &st) == 0 &&
           st.stx_attributes & attribute;
}

/* Return the reason why a file of the model must not be edited, or NULL. Checks only what is known
 * before the file is opened. */
static const char *reason(const struct tree *t, const struct model_file *m)
{
    if (t->opt.read_only)
        return t->opt.why ? t->opt.why : "requested by -o ro";
    if (t->opt.partial)
        return "nothing can be edited with -o partial";
    if (file_name_is_hash(m->name) && !t->opt.edit_hash_names)
        return "its name is a hash of its content (-o hashnames=edit allows edits)";
    /* as with docker -v m.gguf:/m.gguf; its directory is not the one that the file lies in */
    if (has_attribute(m->dir, m->name, STATX_ATTR_MOUNT_ROOT))
        return "the file is a mount point and cannot be replaced: bind its directory instead";
    if (has_attribute(m->dir, ".", STATX_ATTR_APPEND))
        return "its directory is append-only";
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

/*
 * Finish or undo an edit that a crash interrupted. of: the file as it was parsed, or NULL; what was
 * parsed lacks an edit that is finished now, so nothing can be built on it.
 */
static int recover(const struct tree *t, struct edit_file *f, struct edit_file *of, struct err *e)
{
    struct edit_recovered found;
    int r = edit_recover(f, &found, e);
    const char *text = edit_recovered_text(&found);
    if (text)
        logger_log(&t->opt.log, LOG_NOTICE, "%s", text);
    if (!of || !found.finished)
        return r;
    of->id = (struct edit_id){0}; /* not even if the file's time is the same */
    return err_set(e, -ESTALE, "an interrupted edit, finished only now, has changed the model");
}

/*
 * Open the file for writing and lock it if the file system has everything that edits need;
 * otherwise f stays closed. If `of` is not NULL, the file must be the one that `of` identifies, and
 * is no more once a recovery has changed it.
 */
static int open_for_editing(const struct tree *t, const struct model_file *m, struct edit_file *of,
                            struct edit_file *f, struct err *e)
{
    /* The lock of another file does not concern this tree. */
    int r = of ? edit_file_fresh(of, e) : 0;
    if (r == 0)
        r = edit_file_open(f, &sys_libc, m->dir, m->name, true, e);
    /* wait for a process that holds the lock and is about to end */
    while (r == -EWOULDBLOCK && !of && t->opt.wait &&
           t->opt.wait(t->opt.wait_arg, m->dir, m->name, e))
        r = edit_file_open(f, &sys_libc, m->dir, m->name, true, e);
    if (r < 0)
        return r;
    if (of)
        r = edit_file_fresh(of, e);
    if (r == 0)
        r = recover(t, f, of, e);
    if (r == 0)
        r = edit_try(f, t->opt.strategy != EDIT_INPLACE, e);
    if (r < 0)
        edit_file_close(f);
    return r;
}

/* Open the model's file, for writing if it should and can be edited and `late` is not set. */
static int open_first(struct tree *t, struct err *e)
{
    struct model_file *m = &t->model;
    struct err why = {0};
    const char *no = reason(t, m);
    int r = -EROFS;
    if (!no && !t->opt.late)
        r = open_for_editing(t, m, NULL, &m->file, &why);
    else if (!no && (r = faccessat(m->dir, m->name, W_OK, AT_EACCESS)) < 0)
        (void)err_set(&why, -errno, "%s", strerror(errno));
    t->writable = r == 0;
    t->locked = r == 0 && !t->opt.late;
    if (!t->writable)
        not_writable(t, no ? no : why.msg);
    return t->locked ? 0 : edit_file_open(&m->file, &sys_libc, m->dir, m->name, false, e);
}

/* ---- the other files of a split model ---- */

/* Keep only the identity that the shard had when it was opened, and its directory. */
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

/* Open the other files of a split model for reading; g is the header of its first file. */
static int open_shards(struct tree *t, struct gguf *g, unsigned flags, struct err *e)
{
    const struct model_opener opener = {
        .keep = keep_shard, .arg = t, .find = t->opt.find, .find_arg = t->opt.find_arg};
    t->others = calloc(t->shards.n, sizeof(*t->others));
    return t->others ? model_open_shards(&t->shards, g, flags, &opener, e)
                     : err_set(e, -ENOMEM, "no memory");
}

/* ---- changes by other programs ---- */

bool tree_changed(struct tree *t)
{
    bool changed = live_count(t->meta).changed; /* once the first file has been edited */
    for (size_t i = tree_edited(t); i < (t->n_others ? t->n_others : 1) && !changed; i++) {
        lock_take(&t->newest.lock);
        const struct edit_file f = i ? t->others[i] : t->opened;
        lock_drop(&t->newest.lock);
        changed = edit_file_fresh(&f, NULL) == -ESTALE;
    }
    return changed;
}

bool tree_lies_in(const struct tree *t, int dir)
{
    struct stat a, b;
    return fstat(t->model.dir, &a) == 0 && fstat(dir, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* ---- the beginning of editing ---- */

/* Find out whether the model, which has been parsed, can be edited. */
static void find_out_writable(struct tree *t)
{
    struct err why = {0};
    struct statvfs fs = {0};
    t->opened = t->model.file;
    (void)fstatvfs(t->model.file.fd, &fs);
    t->edit.block = (uint32_t)fs.f_bsize;
    if (t->writable && t->model.planted.code)
        not_writable(t, t->model.planted.msg);
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

/* Begin editing, in one thread at a time. */
static int begin_alone(struct tree *t, struct err *e)
{
    int r = t->locked ? 0 : take_file(t, e);
    if (r == 0 && t->opt.history && !t->history.model)
        r = history_open(&t->history, &sys_libc, NULL, t->model.real, t->opt.history, e);
    if (r == 0)
        r = live_start(t->meta, t->opt.history ? &t->history : NULL, e);
    if (r == 0)
        atomic_store(&t->live, t->meta);
    return r;
}

int begin_editing(struct tree *t)
{
    struct err e = {0};
    int r = 0;
    if (!t->writable)
        return -EROFS;
    if (atomic_load(&t->live))
        return 0;
    while (!atomic_exchange(&t->rests, false)) /* another thread is beginning */
        (void)pool_wait(&t->rests, NULL);
    if (!atomic_load(&t->live))
        r = begin_alone(t, &e);
    pool_tell(&t->rests);
    if (r < 0) {
        logger_log(&t->opt.log, LOG_ERR, "cannot be edited: %s", e.msg);
        LOCKED(&t->newest.lock);
        (void)strcpy(t->refusal, e.msg);
    }
    return r;
}

/* ---- open ---- */

/* Create the first state. Takes ownership of g, the first file's header. */
static int first_gen(struct tree *t, struct gguf *g, unsigned flags, struct err *e)
{
    int r = t->shards.n ? open_shards(t, g, flags, e) : merge_check_single(g, e);
    if (r < 0) {
        gguf_free(g);
        return r;
    }
    t->newest.name = path_name(t->model.path);
    t->newest.shards = t->shards.n ? &t->shards : NULL;
    t->newest.changed = t->st.st_mtim;
    r = newest_make(&t->newest, g, t->shards.g, 0, &t->st.st_mtim, &t->newest.view.snap, e);
    if (r < 0)
        return r;
    atomic_store(&t->newest.numbers, t->newest.view.snap->gguf->n_tensors);
    r = newest_make_store(t->newest.view.snap, t->shards.file, t->model.file.fd,
                          &t->newest.view.store, e);
    if (r < 0)
        return r;
    shards_release(&t->shards);
    r = snapshot_keep_file(t->newest.view.snap, &t->model.src, t->newest.view.store->file[0],
                           &t->newest.view.file);
    if (r < 0)
        return err_sys(e, r, "cannot read");
    find_out_writable(t);
    return 0;
}

/* Parse the model's file. */
static int parse_file(struct tree *t, struct err *e)
{
    struct model_file *m = &t->model;
    struct gguf *g = NULL;
    const unsigned flags = t->opt.partial ? GGUF_PARTIAL : 0;
    (void)fstat(m->file.fd, &t->st);
    int r = t->locked ? source_fd(m->file.fd, &m->src, e) : model_parse(m, flags, &g, e);
    if (r == 0 && !g)
        r = gguf_parse(&m->src, flags, &g, e);
    if (m->planted.code)
        logger_log(&t->opt.log, LOG_WARNING, "%s", m->planted.msg);
    if (r == 0)
        r = first_gen(t, g, flags, e);
    return r;
}

/* Find the model's file, or the first file of a split model. */
static int find_model(struct tree *t, const char *path, struct err *e)
{
    int (*const named)(struct shards *, const char *) = t->opt.find ? shards_named : shards_find;
    char shown[SHOW_MAX], *first = named(&t->shards, path) < 0 ? NULL : shards_path(&t->shards, 0);
    if (!first)
        return err_set(e, -ENOMEM, "no memory");
    int r = t->opt.find ? t->opt.find(t->opt.find_arg, first, &t->model, e)
                        : model_find(first, &t->model, e);
    if (r < 0 && t->shards.n)
        (void)err_prefix(e, r, "shard %s", show(shown, path_name(first), strlen(path_name(first))));
    free(first);
    return r;
}

uint64_t tree_identity_with(uint64_t identity, const struct stat *st)
{
    uint64_t all[] = {identity,
                      st->st_dev,
                      st->st_ino,
                      (uint64_t)st->st_size,
                      (uint64_t)st->st_mtim.tv_sec,
                      (uint64_t)st->st_mtim.tv_nsec};
    return hash_name(all, sizeof(all));
}

/* Compute the identity. Files that are missing count as such. */
static int find_identity(struct tree *t)
{
    const size_t n = t->shards.n ? t->shards.n : 1;
    size_t no = 0;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        for (; t->shards.no && no < t->shards.no[i]; no++)
            t->identity = tree_identity_with(t->identity, &(struct stat){.st_size = -ENOENT});
        no++;
        if (fstat(t->newest.view.store->file[i]->fd, &st) < 0)
            return -errno;
        t->identity = tree_identity_with(t->identity, &st);
    }
    return 0;
}

/* Create a tree with no open files. Returns NULL if out of memory. */
static struct tree *tree_new(const struct tree_options *o)
{
    struct tree *t = calloc(1, sizeof(*t));
    if (!t || !(t->work = work_new())) {
        free(t);
        return NULL;
    }
    t->opt = *o;
    t->model = (struct model_file){.dir = -1, .file = {.fd = -1}};
    t->history = HISTORY_INIT;
    t->edit =
        (struct edit_options){.strategy = o->strategy, .reserve = o->reserve, .backup = o->backup};
    atomic_init(&t->rests, true);
    newest_init(&t->newest);
    t->newest.leaving = tree_keep_views;
    t->newest.leaving_arg = t;
    return t;
}

int tree_open(const char *path, const struct tree_options *o, struct tree **ret, struct err *e)
{
    struct tree *t = tree_new(o);
    if (!t)
        return err_set(e, -ENOMEM, "no memory");
    (void)map_guard_init();
    int r = find_model(t, path, e);
    if (r == 0)
        r = open_first(t, e);
    if (r == 0)
        r = parse_file(t, e);
    if (r == 0)
        r = err_sys(e, find_identity(t), "cannot read its attributes");
    const struct live_options live = {.commit = o->commit,
                                      .edit = t->edit,
                                      .tensors = t->opt.tensors,
                                      .imatrix = o->imatrix,
                                      .log = o->log};
    if (r == 0 && live_open(&t->newest, &t->model.file, &live, &t->meta) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    if (r < 0) {
        tree_close(t);
        return r;
    }
    (void)tree_grant(t, &t->newest.view); /* so that threads find it */
    quant_init();
    *ret = t;
    return 0;
}

void tree_close(struct tree *t)
{
    if (!t)
        return;
    work_free(t->work);
    node_free(t);
    live_close(t->meta);
    history_close(&t->history);
    newest_free(&t->newest);
    for (size_t i = 1; i < t->n_others; i++)
        (void)close(t->others[i].dir);
    free(t->others);
    shards_free(&t->shards);
    model_free(&t->model);
    free(t);
}

/* ---- facts ---- */

bool tree_writable(const struct tree *t)
{
    return t->writable;
}

const char *tree_why_not(const struct tree *t)
{
    return t->why;
}

const char *tree_path(const struct tree *t)
{
    return t->model.real;
}

int tree_statfs(struct tree *t, struct statvfs *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    if (fstatvfs(v.store->file[0]->fd, ret) < 0)
        return -errno;
    ret->f_namemax = TREE_NAME_MAX;
    return 0;
}

void tree_backup(const struct tree *t, struct buf *out)
{
    const struct edit_file *f = &t->model.file;
    char name[NAME_MAX + 1], shown[SHOW_MAX];
    struct stat st;
    if (!f->backed)
        return;
    (void)edit_backup_name(name, f, &t->edit, NULL); /* cannot fail, because the backup was made */
    if (f->sys->fstatat(f->sys, f->dir, name, &st) < 0)
        return;
    buf_printf(out, "%s: the model as it was before the first edit, ",
               show(shown, name, strlen(name)));
    summary_size(out, (uint64_t)st.st_size);
}

struct live *tree_live(const struct tree *t)
{
    return t->meta;
}

/* ---- unused trees ---- */

bool tree_idle(struct tree *t)
{
    return atomic_load(&t->open) == 0 && live_idle(t->meta);
}

uint64_t tree_identity(const struct tree *t)
{
    return t->identity;
}

bool tree_edited(const struct tree *t)
{
    return atomic_load(&t->live) != NULL;
}

/* ---- the end ---- */

void tree_stop(struct tree *t)
{
    work_stop(t->work);
}

void tree_interrupt(struct tree *t, const void *request)
{
    (void)work_interrupt(t->work, request);
    live_interrupt(t->meta, request);
}

int tree_finish(struct tree *t)
{
    return live_finish(t->meta);
}

/* ---- calls that wait ---- */

void tree_call_done(struct live_wait *w, int result)
{
    struct tree_call *c = (struct tree_call *)w;
    c->result = result;
    pool_tell(&c->answered);
}

int tree_call_end(struct tree_call *c, int r)
{
    if (r != LIVE_PARKED)
        return r;
    (void)pool_wait(&c->answered, NULL);
    return c->result;
}
