/* SPDX-License-Identifier: MIT */
/* A model opened and closed as a tree, for reading or for editing too. See tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "check/filename.h"
#include "edit/change.h"
#include "edit/commit.h"

__attribute__((format(printf, 3, 4))) static void log_line(const struct tree *t, int priority,
                                                           const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    if (!t->opt.log)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    t->opt.log(priority, line);
}

/* ---- may it be edited? ---- */

/* Why the model is not to be edited, before it was opened; NULL if nothing speaks against it. */
static const char *reason(const struct tree *t)
{
    if (t->opt.read_only)
        return "asked for by -o ro";
    if (t->opt.partial)
        return "nothing is edited with -o partial";
    if (file_name_is_hash(t->model.name) && !t->opt.edit_hash_names)
        return "its name is a hash of its content (-o hashnames=edit allows edits)";
    if (faccessat(t->model.dir, ".", W_OK, AT_EACCESS) < 0)
        return "its folder is not writable";
    if (faccessat(t->model.dir, ".", R_OK, AT_EACCESS) < 0) /* leftovers are not to be found */
        return "its folder is not readable";
    return NULL;
}

static void not_writable(struct tree *t, const char *why)
{
    t->writable = false;
    (void)show_in(t->why, sizeof(t->why), why, strlen(why));
}

static int open_model_file(struct tree *t, bool write, struct err *e)
{
    return edit_file_open(&t->model.file, &sys_libc, t->model.dir, t->model.name, write, e);
}

/* It is not to be edited, and nobody else kept from it: open it anew, for reading. */
static int give_up(struct tree *t, const char *why, struct err *e)
{
    not_writable(t, why);
    if (t->model.file.fd >= 0)
        edit_file_close(&t->model.file); /* and its lock */
    return open_model_file(t, false, e);
}

/* Wait for a process that holds the lock and is about to end. */
static bool wait_for_lock(const struct tree *t, bool busy, struct err *why)
{
    const struct model_file *m = &t->model;
    return t->opt.wait && t->opt.wait(t->opt.wait_arg, m->dir, m->name, busy, why);
}

/* What every edit needs but one in place, tried before the file is opened for writing. */
static int try_attributes(struct tree *t, struct err *e)
{
    if (t->opt.strategy == EDIT_INPLACE || open_model_file(t, false, NULL) < 0)
        return 0;
    int r = edit_try_attributes(&t->model.file, e);
    edit_file_close(&t->model.file);
    return edit_try_failed(r) ? r : 0;
}

static int open_for_editing(struct tree *t, struct err *why)
{
    int r = open_model_file(t, true, why);
    while (r == -EWOULDBLOCK && wait_for_lock(t, true, why))
        r = open_model_file(t, true, why);
    return r < 0 ? r : edit_try_handle(&t->model.file, why);
}

/* Open the file, for writing if it can be. */
static int open_file(struct tree *t, struct err *e)
{
    struct err why = {0};
    const char *no = reason(t);
    t->writable = !no && try_attributes(t, &why) == 0 && open_for_editing(t, &why) == 0;
    if (t->writable)
        return 0;
    if (no)
        (void)wait_for_lock(t, false, &why);
    return give_up(t, no ? no : why.msg, e);
}

/* Finish or undo what a crash interrupted. A journal that does not fit makes the mount read-only. */
static int recover(struct tree *t, struct err *e)
{
    struct edit_recovered found;
    struct err why = {0};
    if (!t->writable)
        return 0;
    int r = edit_recover(&t->model.file, &found, &why);
    if (found.finished)
        log_line(t, LOG_NOTICE, "an edit that was interrupted has been finished");
    if (found.removed)
        log_line(t, LOG_NOTICE, "%u leftover files were removed", found.removed);
    return r < 0 ? give_up(t, why.msg, e) : 0;
}

/* Whether a new file could take the model's place: any edit needs that but one in place. */
static int try_new_file(struct tree *t, struct err *e)
{
    struct err why = {0};
    if (!t->writable || t->opt.strategy == EDIT_INPLACE)
        return 0;
    return edit_try_failed(edit_try_new(&t->model.file, &why)) ? give_up(t, why.msg, e) : 0;
}

/* ---- the first generation ---- */

static int start_editing(struct tree *t)
{
    struct err why = {0};
    struct statvfs fs;
    if (fstatvfs(t->model.file.fd, &fs) == 0)
        t->edit.block = (uint32_t)fs.f_bsize;
    struct live_options o = {.commit = t->opt.commit, .edit = t->edit, .log = t->opt.log};
    if (t->writable && edit_allowed(gen_own(t->newest.view.gen), &why) < 0)
        not_writable(t, why.msg);
    if (t->writable && t->opt.history &&
        keeper_open(t->model.real, t->opt.history, t->opt.log, &o.history) < 0)
        return -ENOMEM;
    t->history = o.history;
    return t->writable ? live_open(&t->newest, &t->model.file, &o, &t->live) : 0;
}

static int first_gen(struct tree *t, const struct source *src, struct err *e)
{
    struct gguf *g = NULL;
    unsigned flags = t->opt.partial ? GGUF_PARTIAL : 0;
    int r = gguf_parse(src, flags, &g, e);
    if (r == 0 && t->shards.n)
        r = model_open_shards(&t->shards, g, flags, e);
    if (r < 0) {
        gguf_free(g);
        return r;
    }
    t->odd = g->odd;
    for (size_t i = 1; i < t->shards.n; i++)
        t->odd |= t->shards.g[i]->odd;
    t->newest.name = t->name;
    t->newest.shards = t->shards.n ? &t->shards : NULL;
    t->newest.changed = t->st.st_mtim;
    r = newest_make(&t->newest, g, 0, &t->st.st_mtim, &t->newest.view.gen, e);
    if (r == 0)
        atomic_store(&t->newest.numbers, t->newest.view.gen->gguf->n_tensors);
    if (r == 0)
        r = newest_make_store(&t->newest, t->model.file.fd, g, &t->newest.view.store, e);
    if (r < 0)
        return r;
    r = gen_keep_file(t->newest.view.gen, src, t->newest.view.store->file[0], &t->newest.file);
    if (r < 0)
        return err_set(e, r, "cannot read: %s", strerror(-r));
    return start_editing(t) < 0 ? err_set(e, -ENOMEM, "no memory") : 0;
}

/* The header may be one that an interrupted edit still has to write. */
static int parse_file(struct tree *t, struct err *e)
{
    struct model_file *m = &t->model;
    if (fstat(m->file.fd, &t->st) < 0)
        return err_set(e, -errno, "cannot stat: %s", strerror(errno));
    int r = t->writable ? source_fd(m->file.fd, &m->src, e) : model_open(m, e);
    if (m->overlay.planted.code)
        log_line(t, LOG_WARNING, "%s", m->overlay.planted.msg);
    if (r == 0)
        r = first_gen(t, &m->src, e);
    if (r == 0)
        t->newest.view.gen->journal = m->overlay.bytes.len > 0;
    edit_overlay_free(&m->overlay);
    return r;
}

/* A copy of what is behind the last slash. */
static char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strdup(slash ? slash + 1 : path);
}

/* The model's file, or the first of them. */
static int find_model(struct tree *t, const char *path, struct err *e)
{
    char *first = NULL, shown[SHOW_MAX];
    if (shards_find(&t->shards, path, &first) < 0)
        return err_set(e, -ENOMEM, "no memory");
    int r = model_find(first ? first : path, &t->model, e);
    if (r < 0 && first)
        (void)err_prefix(e, "shard %s", show(shown, t->shards.name[0], strlen(t->shards.name[0])));
    t->name = base_name(first ? first : path);
    free(first);
    return r < 0 || t->name ? r : err_set(e, -ENOMEM, "no memory");
}

/* The real path of the folder that a path names something in. */
static char *real_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    char *real = folder ? realpath(folder, NULL) : NULL;
    free(folder);
    return real;
}

static int add_rights(struct tree *t, size_t i, const char *path)
{
    char *name = t->shards.n ? split_path(&t->shards.split, i) : strdup(path);
    char *base = name ? real_folder(name) : NULL;
    int fd = i ? t->shards.file[i]->fd : t->model.file.fd;
    int r = base ? rights_add(&t->rights, fd, name, base) : -ENOMEM;
    free(base);
    free(name);
    return r;
}

/* Who may read what of the model, which was found by `path`. */
static int find_rights(struct tree *t, const char *path, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < (t->shards.n ? t->shards.n : 1) && r == 0; i++)
        r = add_rights(t, i, path);
    if (r == 0)
        r = rights_settle(&t->rights, geteuid(), t->writable);
    return r < 0 ? err_set(e, r, "cannot tell who may read it: %s", strerror(-r)) : 0;
}

static int open_model(struct tree *t, const char *path, struct err *e)
{
    int r = map_guard_init();
    if (r < 0)
        return err_set(e, r, "cannot handle SIGBUS: %s", strerror(-r));
    r = find_model(t, path, e);
    if (r == 0)
        r = open_file(t, e);
    if (r == 0)
        r = recover(t, e);
    if (r == 0)
        r = try_new_file(t, e);
    if (r == 0)
        r = parse_file(t, e);
    return r < 0 ? r : find_rights(t, path, e);
}

/* A tree with nothing opened. NULL: no memory. */
static struct tree *tree_new(const struct tree_options *o)
{
    struct tree *t = calloc(1, sizeof(*t));
    if (!t || !(t->work = work_new())) {
        free(t);
        return NULL;
    }
    t->opt = *o;
    t->model = (struct model_file){.dir = -1, .file = {.fd = -1}};
    t->edit = (struct edit_options){
        .strategy = o->strategy, .reserve = o->reserve, .break_hardlinks = o->break_hardlinks};
    newest_init(&t->newest);
    t->newest.leaving = tree_keep_views;
    t->newest.leaving_arg = t;
    texts_init(&t->texts);
    return t;
}

int tree_open(const char *path, const struct tree_options *o, struct tree **ret, struct err *e)
{
    struct tree *t = tree_new(o);
    if (!t)
        return err_set(e, -ENOMEM, "no memory");
    int r = open_model(t, path, e);
    if (r < 0) {
        tree_close(t);
        return r;
    }
    quant_init();
    *ret = t;
    return 0;
}

void tree_close(struct tree *t)
{
    if (!t)
        return;
    work_free(t->work);
    held_free(&t->held);
    live_close(t->live);
    keeper_close(t->history); /* while the model is locked: the next writer finds it complete */
    newest_free(&t->newest);
    shards_free(&t->shards);
    rights_free(&t->rights);
    model_free(&t->model);
    texts_free(&t->texts);
    free(t->name);
    free(t);
}

bool tree_writable(const struct tree *t)
{
    return t->live;
}

const char *tree_why_not(const struct tree *t)
{
    return t->why;
}

const char *tree_path(const struct tree *t)
{
    return t->model.real;
}

const char *tree_warning(const struct tree *t, unsigned i)
{
    static const struct {
        enum gguf_odd odd;
        const char *line;
    } lines[] = {
        {GGUF_ODD_ORDER, "tensor data lies in another order than tensors are listed"},
        {GGUF_ODD_GAPS, "there are gaps between tensors, or before the first"},
        {GGUF_ODD_NO_TAIL, "the padding after the last tensor is missing"},
        {GGUF_ODD_TRAILING, "there are bytes behind the data"},
        {GGUF_ODD_UNKNOWN, "some tensors are of a type that is not known: no f32 for them"},
        {GGUF_ODD_PARTIAL, "the file is incomplete: reads of what is missing give EIO"},
    };
    for (size_t k = 0; k < sizeof(lines) / sizeof(lines[0]); k++)
        if (t->odd & lines[k].odd && i-- == 0)
            return lines[k].line;
    return NULL;
}

int tree_statfs(struct tree *t, struct statvfs *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    if (fstatvfs(v.store->file[0]->fd, ret) < 0)
        return -errno;
    ret->f_namemax = TREE_NAME_MAX;
    return 0;
}
