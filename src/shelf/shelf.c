/* SPDX-License-Identifier: MIT */
/* Shows a model or a directory of models: see shelf.h. */
#include "shelf/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "model/snapshot.h"
#include "shelf/slots.h"
#include "tree/attr.h"
#include "tree/folder.h"
#include "tree/history.h"

/* ---- the location of a node ---- */

/* Locate a node, and begin to use its slot. Returns 0 or -ESTALE. Call shelf_leave() in both cases. */
static int at_find(struct shelf *s, uint64_t node, struct at *ret)
{
    *ret = (struct at){.use = {.tree = s->one}, .local = node};
    if (s->one)
        return 0;
    ret->local = ino_local(node);
    ret->own = ret->local == INO_ROOT;
    int r = slot_hold(&s->slots, ino_slot(node), &ret->use);
    return r < 0 || ret->own || place_is_model(ret->use.slot->is.kind) ? r : -ESTALE;
}

static enum place_kind at_kind(const struct at *at)
{
    return at->use.slot->is.kind;
}

static uint64_t at_node(const struct at *at)
{
    return at->use.slot ? ino_in_slot(at->use.slot->id, at->local) : at->local;
}

/* Returns true for the root of a directory of models. */
static bool is_root(const struct at *at)
{
    return at->own && at_node(at) == INO_ROOT;
}

/* Locate a node, and open its tree if it is in one. Call shelf_leave() even on failure. */
static int at_enter(struct shelf *s, uint64_t node, struct at *ret)
{
    int r = at_find(s, node, ret);
    return r == 0 && !ret->own && !s->one ? slot_open(&ret->use, NULL) : r;
}

/* Open the model of a model's directory. Returns 0, 1 if it cannot be opened, so that the directory
 * shows only the reason *why, or -errno. */
static int at_open(struct at *at, struct err *why)
{
    int r = slot_open(&at->use, why);
    return r == 0 || r == -ESTALE || is_shortage(r) ? r : 1;
}

int shelf_enter(struct shelf *s, uint64_t node, int otherwise, struct at *ret)
{
    int r = at_enter(s, node, ret);
    return r < 0 || !ret->own ? r : otherwise;
}

void shelf_leave(struct at *at)
{
    slot_leave(&at->use);
}

int shelf_given(const struct use *u, int r, struct tree_entry *e)
{
    if (r < 0 || !u->slot)
        return r;
    e->node = e->node ? ino_in_slot(u->slot->id, e->node) : 0;
    e->attr.st_ino = ino_in_slot(u->slot->id, e->attr.st_ino);
    return r;
}

/* ---- open and close ---- */

static int begin_folder(struct shelf *s, const char *path, struct err *e)
{
    CLEANUP(slot_leave) struct use root = {0};
    struct listing *l = NULL;
    if (s->opt.tree.backup)
        return err_set(e, -EINVAL, "is a directory: -o backup is for a mount of one model");
    if (s->opt.tree.edit_hash_names)
        return err_set(e, -EINVAL, "is a directory: -o hashnames=edit is for a mount of one model");
    int r = paths_begin(&s->paths, path, s->opt.strict, e);
    const char *at = s->opt.mountpoint;
    if (r == 0 && at && (path_below(at, s->paths.path) || path_below(s->paths.path, at)))
        r = err_set(e, -EINVAL,
                    "the mount point is in the directory, or above it: mount it elsewhere");
    if (r < 0)
        return r;
    quant_init(); /* must be called before threads open models */
    r = slot_look_up(&s->slots, NULL, NULL, &root);
    if (r == 0)
        r = slot_names(root.slot, &l);
    s->store = r == 0 && l->store;
    listing_unref(l);
    return r < 0 ? err_set(e, r, "%s", strerror(-r)) : 0;
}

int shelf_open(const char *path, const struct shelf_options *o, struct shelf **ret, struct err *e)
{
    struct stat st;
    struct shelf *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(e, -ENOMEM, "no memory");
    s->opt = *o;
    s->paths = PATHS_NONE;
    slots_init(&s->slots, &s->paths, &s->opt);
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int r = folder ? begin_folder(s, path, e) : tree_open(path, &o->tree, &s->one, e);
    if (r < 0) {
        shelf_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

int shelf_finish(struct shelf *s)
{
    return s->one ? tree_finish(s->one) : slots_finish(&s->slots);
}

void shelf_close(struct shelf *s)
{
    if (!s)
        return;
    tree_close(s->one);
    slots_free(&s->slots);
    paths_end(&s->paths);
    free(s);
}

/* ---- all models ---- */

/* Call a function for each open tree. */
static void each_use(struct shelf *s, void (*call)(const struct use *u, void *arg), void *arg)
{
    const struct use one = {.tree = s->one};
    if (s->one)
        call(&one, arg);
    else
        slots_each(&s->slots, call, arg);
}

/* A call that writes the edits of several models, and ends with the last of them. */
struct sync_all {
    struct live_wait *then;
    atomic_uint left; /* models that have not answered, and one more until all were asked */
    atomic_int first; /* the first error; 0: none so far */
};

struct sync_one {
    struct live_wait wait; /* must come first */
    struct sync_all *all;
};

static void sync_answer(struct sync_all *all, int result)
{
    int none = 0;
    if (result < 0)
        (void)atomic_compare_exchange_strong(&all->first, &none, result);
    if (atomic_fetch_sub(&all->left, 1) != 1)
        return;
    struct live_wait *w = all->then;
    result = atomic_load(&all->first);
    free(all);
    w->done(w, result);
}

static void sync_done(struct live_wait *w, int result)
{
    struct sync_all *all = ((struct sync_one *)w)->all;
    free(w);
    sync_answer(all, result);
}

static bool sync_stopped(struct live_wait *w)
{
    struct live_wait *then = ((struct sync_one *)w)->all->then;
    return then->stopped && then->stopped(then);
}

static void sync_begin(const struct use *u, void *arg)
{
    struct sync_all *all = arg;
    struct sync_one *one = malloc(sizeof(*one));
    (void)atomic_fetch_add(&all->left, 1);
    if (!one) {
        sync_answer(all, -ENOMEM);
        return;
    }
    *one = (struct sync_one){
        .wait = {.done = sync_done, .request = all->then->request, .stopped = sync_stopped},
        .all = all};
    int r = tree_fsyncdir(u->tree, &one->wait);
    if (r != LIVE_PARKED)
        sync_done(&one->wait, r);
}

static int sync_all(struct shelf *s, struct live_wait *w)
{
    struct sync_all *all = malloc(sizeof(*all));
    if (!all)
        return -ENOMEM;
    all->then = w;
    atomic_init(&all->left, 1);
    atomic_init(&all->first, 0);
    each_use(s, sync_begin, all);
    sync_answer(all, 0);
    return LIVE_PARKED;
}

int shelf_fsyncdir(struct shelf *s, uint64_t node, struct live_wait *w)
{
    CLEANUP(shelf_leave) struct at at;
    int r = at_enter(s, node, &at);
    if (r == 0 && is_root(&at))
        return sync_all(s, w);
    /* a model that is not open has nothing to write */
    return r < 0 || !at.use.tree ? r : tree_fsyncdir(at.use.tree, w);
}

int shelf_sync(struct shelf *s)
{
    struct tree_call c = TREE_CALL;
    return tree_call_end(&c, sync_all(s, &c.wait));
}

static void stop_use(const struct use *u, void *abandon)
{
    tree_stop(u->tree);
    if (*(const bool *)abandon)
        live_abandon(tree_live(u->tree));
}

void shelf_stop(struct shelf *s, bool abandon)
{
    each_use(s, stop_use, &abandon);
}

static void interrupt_use(const struct use *u, void *request)
{
    tree_interrupt(u->tree, request);
}

void shelf_interrupt(struct shelf *s, const void *request)
{
    each_use(s, interrupt_use, (void *)request);
}

/* ---- facts ---- */

void shelf_mounted(struct shelf *s, dev_t dev)
{
    s->paths.own = dev; /* no request is served yet */
}

bool shelf_writable(const struct shelf *s)
{
    return s->one ? tree_writable(s->one) : !s->opt.tree.read_only && !s->store;
}

const char *shelf_why_not(const struct shelf *s)
{
    return s->one ? tree_why_not(s->one)
           : s->opt.tree.read_only
               ? "requested by -o ro"
               : "it is a store of models: edit a copy of a model.gguf (cp --no-preserve=mode)";
}

const char *shelf_path(const struct shelf *s)
{
    return s->one ? tree_path(s->one) : s->paths.path;
}

int shelf_statfs(struct shelf *s, struct statvfs *ret)
{
    if (s->one)
        return tree_statfs(s->one, ret);
    if (fstatvfs(s->paths.fd, ret) < 0)
        return -errno;
    ret->f_namemax = TREE_NAME_MAX;
    return 0;
}

/* ---- what is in no tree ---- */

/* Get the line that says why a model cannot be opened. Returns 0, -ENOENT if it can, or another
 * -errno. */
static int error_text(const struct at *at, struct buf *out)
{
    struct at model = *at;
    struct err e = {0};
    int r = at_open(&model, &e);
    if (r <= 0)
        return r == 0 ? -ENOENT : r;
    buf_printf(out, "%s\n", e.msg);
    return buf_error(out);
}

/* Get the target of a link. */
static int link_target(const struct at *at, struct buf *out)
{
    const struct shelf_item *is = &at->use.slot->is;
    buf_str(out, is->real ? is->real : is->path);
    return buf_error(out);
}

/* Return the type of what an entry stands for. */
static mode_t type_of(enum place_kind kind)
{
    return kind == PLACE_LINK                          ? S_IFLNK
           : kind == PLACE_TEXT || kind == PLACE_ERROR ? S_IFREG
                                                       : S_IFDIR;
}

/* Set owner, group and mode from the rights in g, unless options override them. Whoever may list a
 * directory that stands for a file may read the file. */
static void set_rights(const struct shelf *s, const struct grant *g, enum place_kind kind,
                       struct tree_entry *e)
{
    const struct tree_options *o = &s->opt.tree;
    const bool folder = type_of(kind) == S_IFDIR,
               itself = folder && !place_is_model(kind) && kind != PLACE_LINKS;
    mode_t from = o->set_umask ? 0777 & ~o->umask : g->bits;
    if (kind == PLACE_LINK) {
        e->attr.st_mode |= 0777;
        return;
    }
    if (!itself && !o->set_umask && g->uid == geteuid())
        from |= 0400; /* so that users can read why their own model cannot be read */
    e->attr.st_uid = o->set_uid ? o->uid : g->uid;
    e->attr.st_gid = o->set_gid ? o->gid : g->gid;
    e->attr.st_mode |= from & (itself ? 0777 : 0444);
    if (folder && !itself)
        e->attr.st_mode |= (from & 0444) >> 2;
}

/* Get the entry of a node that is in no tree; with `look`, look at its file again. */
static int own_entry(struct shelf *s, const struct at *at, bool look, struct tree_entry *ret)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    const enum place_kind kind = at_kind(at);
    const uint64_t node = at_node(at);
    struct stat st;
    struct grant g;
    int r = kind == PLACE_ERROR  ? error_text(at, &text)
            : kind == PLACE_LINK ? link_target(at, &text)
                                 : 0;
    if (r == 0)
        r = slot_facts(at->use.slot, look, &st, &g);
    if (r < 0)
        return r;
    const off_t size = kind == PLACE_TEXT ? st.st_size : (off_t)text.len;
    *ret = (struct tree_entry){.node = node,
                               .attr = {.st_ino = node,
                                        .st_mode = type_of(kind),
                                        .st_nlink = 1, /* of a directory: unknown */
                                        .st_size = size,
                                        .st_blocks = (blkcnt_t)((size + 511) / 512),
                                        .st_blksize = 4096,
                                        .st_atim = st.st_mtim,
                                        .st_mtim = st.st_mtim,
                                        .st_ctim = st.st_mtim},
                               .name_for = kind != PLACE_ERROR,
                               .attr_for = kind != PLACE_ERROR};
    set_rights(s, &g, kind, ret);
    return 0;
}

/* Get the entry of a name in a directory, and count the kernel's reference to it. */
static int name_entry(struct shelf *s, const struct shelf_slot *folder, const struct entry *e,
                      struct tree_entry *ret)
{
    CLEANUP(shelf_leave) struct at at = {.local = INO_ROOT, .own = true};
    int r = slot_look_up(&s->slots, folder, e, &at.use);
    if (r == 0)
        r = own_entry(s, &at, false, ret);
    if (r < 0 && at.use.slot)
        slot_forget(at.use.slot, 1);
    return r;
}

/* ---- lookups ---- */

static int lookup_own(struct shelf *s, struct at *at, const char *name, struct tree_entry *ret)
{
    struct listing *l;
    int r = slot_names(at->use.slot, &l);
    if (r < 0)
        return r;
    const struct entry *e = listing_find(l, name);
    r = e && e->kind == PLACE_ERROR ? at_open(at, NULL) : 1;
    if (r >= 0) /* a model that can be opened has no `error` */
        r = e && r ? name_entry(s, at->use.slot, e, ret) : -ENOENT;
    listing_unref(l);
    return r;
}

int shelf_lookup(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret)
{
    CLEANUP(shelf_leave) struct at at;
    int r = at_enter(s, parent, &at);
    if (r < 0)
        return r;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    if (at.own) {
        r = lookup_own(s, &at, name, ret);
        if (r != -ENOENT || !place_is_model(at_kind(&at)))
            return r;
        r = at_open(&at, NULL);
    }
    if (r != 0)
        return r < 0 ? r : -ENOENT;
    return shelf_given(&at.use, tree_lookup(at.use.tree, at.local, name, ret), ret);
}

void shelf_forget(struct shelf *s, uint64_t node, uint64_t n)
{
    CLEANUP(shelf_leave) struct at at;
    if (at_find(s, node, &at) < 0)
        return;
    if (at.own)
        slot_forget(at.use.slot, n);
    else if (at.use.tree)
        tree_forget(at.use.tree, at.local, n);
}

int shelf_getattr(struct shelf *s, uint64_t node, const struct tree_file *f, struct tree_entry *ret)
{
    CLEANUP(shelf_leave) struct at at;
    int r = at_enter(s, node, &at);
    if (r < 0)
        return r;
    return at.own ? own_entry(s, &at, true, ret)
                  : shelf_given(&at.use, tree_getattr(at.use.tree, at.local, f, ret), ret);
}

int shelf_readlink(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(shelf_leave) struct at at;
    int r = at_enter(s, node, &at);
    return r < 0                        ? r
           : !at.own                    ? tree_readlink(at.use.tree, at.local, out)
           : at_kind(&at) == PLACE_LINK ? link_target(&at, out)
                                        : -EINVAL;
}

/* ---- directories ---- */

/* The cookie of the first extra file in a model's directory, greater than any cookie of a tree. */
#define EXTRA_COOKIE ((uint64_t)1 << 40)

/* The inode number shown for an unknown inode. */
#define UNKNOWN_INO 0xffffffff

struct shelf_dir {
    struct shelf *shelf;
    struct at at;
    struct listing *list;  /* what is in no tree: the entries; NULL: not read yet, or none */
    struct tree_dir *tree; /* NULL: the directory is not in a tree */
};

int shelf_opendir(struct shelf *s, uint64_t node, struct shelf_dir **ret)
{
    struct shelf_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->shelf = s;
    struct at *at = &d->at;
    int r = at_enter(s, node, at);
    const bool model = r == 0 && at->own && place_is_model(at_kind(at));
    if (model)
        r = at_open(at, NULL);
    if (r == 0 && (model || !at->own))
        r = tree_opendir(at->use.tree, at->local, &d->tree);
    else if (r == 0 && type_of(at_kind(at)) != S_IFDIR)
        r = -ENOTDIR;
    if (r >= 0 && at->own) /* if it is stale, the kernel looks it up again */
        r = slot_names(at->use.slot, &d->list);
    if (r < 0)
        shelf_closedir(d);
    else
        *ret = d;
    return r < 0 ? r : 0;
}

void shelf_closedir(struct shelf_dir *d)
{
    listing_unref(d->list);
    if (d->tree)
        tree_closedir(d->tree);
    shelf_leave(&d->at);
    free(d);
}

bool shelf_dir_cacheable(const struct shelf_dir *d)
{
    return d->tree && tree_dir_cacheable(d->at.use.tree, d->tree);
}

/* Get entry i, or one after it, of what is in no tree. Only models and files are examined, and only for
 * a listing with attributes. */
static int next_own(struct shelf_dir *d, uint64_t i, uint64_t *cookie, bool attrs,
                    char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    for (; i < d->list->n; i++) {
        const struct entry *e = &d->list->entry[i];
        int r = d->tree && e->kind == PLACE_ERROR ? -ENOENT : 0;
        *ret = (struct tree_entry){.attr = {.st_ino = UNKNOWN_INO, .st_mode = type_of(e->kind)}};
        if (r == 0 && attrs && (place_is_model(e->kind) || type_of(e->kind) != S_IFDIR))
            r = name_entry(d->shelf, d->at.use.slot, e, ret);
        *cookie = (d->tree ? EXTRA_COOKIE : 2) + i + 1;
        (void)strcpy(name, e->name);
        if (r >= 0 || is_shortage(r)) /* else it is gone or may not be shown */
            return r < 0 ? r : 1;
    }
    return 0;
}

int shelf_readdir(struct shelf_dir *d, uint64_t *cookie, bool attrs, char name[TREE_NAME_MAX + 1],
                  struct tree_entry *ret)
{
    int r = 0;
    if (d->tree && *cookie < EXTRA_COOKIE) {
        r = tree_readdir(d->at.use.tree, d->tree, cookie, attrs, name, ret);
        if (r != 0 || !d->at.own)
            return shelf_given(&d->at.use, r, ret);
        *cookie = EXTRA_COOKIE;
    }
    if (!d->list || *cookie == 0) { /* also after a rewind */
        listing_unref(d->list);
        d->list = NULL;
        r = slot_names(d->at.use.slot, &d->list);
    }
    if (r < 0)
        return r;
    if (*cookie < 2) { /* only the type of "." and ".." is used */
        const uint64_t node = at_node(&d->at);
        brief_entry(node, node, S_IFDIR, ret);
        (void)strcpy(name, (*cookie)++ ? ".." : ".");
        return 1;
    }
    return next_own(d, *cookie - (d->tree ? EXTRA_COOKIE : 2), cookie, attrs, name, ret);
}

/* ---- extended attributes ---- */

/* The extended attribute that states why a model, or the whole mount, cannot be edited. If editing
 * is possible, the attribute does not exist. */
#define READ_ONLY "user.gguf.readonly"
/* The extended attribute of the root that lists the edits that are not in their files: refused, or
 * not written (yet). */
#define UNSAVED "user.gguf.error"

static void add_unsaved(const struct use *u, void *out)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    const char *name = path_name(u->slot->is.path);
    char shown[SHOW_MAX];
    live_notes(tree_live(u->tree), NOTES_REFUSED | NOTES_LOST, &notes);
    for (struct note n = {0}; unsaved_next(&notes, &n);)
        buf_printf(out, "%s: %s: %s\n", show(shown, name, strlen(name)), n.path, n.why);
}

int shelf_getxattr(struct shelf *s, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(shelf_leave) struct at at = {0};
    /* no ACLs and labels, for which ls then does not ask again */
    int r = strncmp(name, "user.", 5) == 0 ? at_enter(s, node, &at) : -EOPNOTSUPP;
    if (r < 0)
        return r;
    if (is_root(&at)) {
        if (strcmp(name, UNSAVED) == 0)
            each_use(s, add_unsaved, out);
        else if (strcmp(name, READ_ONLY) == 0 && !shelf_writable(s))
            buf_str(out, shelf_why_not(s));
        return buf_error(out) ? buf_error(out) : out->len ? 0 : -ENODATA;
    }
    if (at.own) /* file managers ask for others: no model is opened for that */
        r = place_is_model(at_kind(&at)) && strncmp(name, "user.gguf.", 10) == 0
                ? at_open(&at, NULL)
                : 1;
    if (r != 0)
        return r < 0 ? r : -ENODATA;
    return tree_getxattr(at.use.tree, at.local, name, out);
}

int shelf_listxattr(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(shelf_leave) struct at at;
    int r = at_enter(s, node, &at);
    if (r == 0 && !at.own)
        return tree_listxattr(at.use.tree, at.local, out);
    if (r == 0 && !shelf_writable(s) && (is_root(&at) || place_is_model(at_kind(&at))))
        buf_add(out, READ_ONLY, sizeof(READ_ONLY)); /* including its NUL */
    return r < 0 ? r : buf_error(out);
}

/* ---- open files ---- */

/* Maximum size in bytes of a text in a store. */
#define TEXT_MAX ((size_t)16 << 20)

/* Read a text file of a store, which must be the one that was found. */
static int store_text(struct shelf *s, struct shelf_slot *slot, struct buf *out)
{
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    int r = path_open(&s->paths, slot->is.real, &f);
    if (r < 0)
        return r;
    return tree_identity_with(0, &f.st) == slot->is.stamp ? found_text(&f, TEXT_MAX, out) : -ESTALE;
}

/* Open a file that is in no tree. */
static int open_own(struct shelf *s, const struct at *at, int flags, struct tree_file **ret)
{
    const bool text = at_kind(at) == PLACE_TEXT;
    if (!text && at_kind(at) != PLACE_ERROR)
        return -EISDIR;
    if (sys_open_changes(flags))
        return -EPERM;
    struct tree_file *f = tree_file_new(NULL, 0);
    if (!f)
        return -ENOMEM;
    int r = text ? store_text(s, at->use.slot, &f->text) : error_text(at, &f->text);
    if (r < 0)
        (void)tree_release(f);
    else
        *ret = f;
    return r == -ENOENT ? -ESTALE : r;
}

/* Keep the slot of a tree in use while one of the tree's files is open. */
static void keep(struct at *at, struct tree_file *f)
{
    f->owner = at->use.slot;
    at->use.slot = NULL;
}

int shelf_open_file(struct shelf *s, uint64_t node, int flags, struct tree_file **ret)
{
    CLEANUP(shelf_leave) struct at at;
    int r = at_enter(s, node, &at);
    if (r == 0 && at.own)
        return open_own(s, &at, flags, ret);
    if (r == 0)
        r = tree_open_file(at.use.tree, at.local, flags, ret);
    if (r == 0)
        keep(&at, *ret);
    return r;
}

int shelf_release(struct tree_file *f)
{
    struct use u = {.slot = f->owner};
    int r = tree_release(f);
    slot_leave(&u);
    return r;
}

/* ---- edits ---- */

int shelf_truncate(struct shelf *s, uint64_t node, uint64_t size, struct live_wait *w)
{
    CLEANUP(shelf_leave) struct at at;
    int r = shelf_enter(s, node, -EPERM, &at);
    return r < 0 ? r : tree_truncate_unopened(at.use.tree, at.local, size, w);
}

int shelf_create(struct shelf *s, uint64_t parent, const char *name, int flags,
                 struct tree_entry *ret, struct tree_file **file)
{
    CLEANUP(shelf_leave) struct at at;
    int r = shelf_enter(s, parent, -EPERM, &at);
    if (r == 0)
        r = shelf_given(&at.use, tree_create(at.use.tree, at.local, name, flags, ret, file), ret);
    if (r == 0)
        keep(&at, *file);
    return r;
}

int shelf_rename(struct shelf *s, uint64_t parent, const char *name, uint64_t new_parent,
                 const char *new_name, unsigned flags, struct live_wait *w)
{
    CLEANUP(shelf_leave) struct at to;
    CLEANUP(shelf_leave) struct at at;
    int r = at_find(s, new_parent, &to), from = shelf_enter(s, parent, -EPERM, &at);
    if (r < 0 || from < 0)
        return r < 0 ? r : from;
    if (to.own)
        return -EPERM;
    if (to.use.slot != at.use.slot)
        return -EXDEV;
    return tree_rename(at.use.tree, at.local, name, to.local, new_name, flags, w);
}
