/* SPDX-License-Identifier: MIT */
/* Shows a model or a directory of models: see shelf.h. */
#include "shelf/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shelf/slots.h"
#include "tree/attr.h"
#include "tree/folder.h"

/* ---- the location of a node ---- */

/* Begin to use the slot of a node. Returns 0 or -ESTALE. Call slot_leave() in both cases. */
static int find_use(struct shelf *s, uint64_t node, struct use *ret)
{
    *ret = (struct use){.tree = s->one};
    if (s->one)
        return 0;
    int r = slot_hold(&s->slots, ino_slot(node), ret);
    ret->own = node == ino_in_slot(ino_slot(node), INO_ROOT);
    return r < 0 || ret->own || place_is_model(ret->slot->is.kind) ? r : -ESTALE;
}

/* Return the number of the node that a slot itself has. */
static uint64_t own_node(const struct use *u)
{
    return ino_in_slot(u->slot->id, INO_ROOT);
}

/* Returns true for the root of a directory of models. */
static bool is_root(const struct use *u)
{
    return u->own && u->slot->id == 0;
}

/* Locate a node, and open its tree if it is in one. Call slot_leave() even on failure. */
static int enter(struct shelf *s, uint64_t node, struct use *ret)
{
    int r = find_use(s, node, ret);
    return r == 0 && !ret->own && !s->one ? slot_open(ret, NULL) : r;
}

/* Open the model of a model's directory. Returns 0, 1 if it cannot be opened, so that the directory
 * shows only the reason *why, or -errno. */
static int open_model(struct use *u, struct err *why)
{
    int r = slot_open(u, why);
    return r == 0 || r == -ESTALE || is_shortage(r) ? r : 1;
}

int shelf_enter(struct shelf *s, uint64_t node, int otherwise, struct use *ret)
{
    int r = enter(s, node, ret);
    return r < 0 || !ret->own ? r : otherwise;
}

void shelf_leave(struct use *u)
{
    slot_leave(u);
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
    const char *at = s->paths.own = s->opt.mountpoint;
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

/* Go on from an open tree (at first none) to the next one. Returns false after the last. */
static bool next_use(struct shelf *s, struct use *u)
{
    if (!s->one)
        return slots_next(&s->slots, u);
    u->tree = u->tree ? NULL : s->one;
    return u->tree;
}

/* All begin to write before the first one is waited for. */
int shelf_finish(struct shelf *s)
{
    for (struct use u = {0}; next_use(s, &u);)
        live_hurry(tree_live(u.tree));
    for (struct use u = {0}; next_use(s, &u);) {
        const int e = tree_finish(u.tree);
        s->slots.failed = e < 0 ? e : s->slots.failed;
    }
    return s->slots.failed;
}

/* A call that writes the edits of several models, and ends with the last of them. */
struct sync {
    struct live_wait *then;
    atomic_uint left; /* models that have not answered, and one more until all were asked */
    atomic_int first; /* the first error; 0: none so far */
};

struct sync_one {
    struct live_wait wait; /* must come first */
    struct sync *all;
};

static void sync_answer(struct sync *all, int result)
{
    int none = 0;
    if (result < 0)
        (void)atomic_compare_exchange_strong(&all->first, &none, result);
    if (atomic_fetch_sub(&all->left, 1) != 1)
        return;
    all->then->done(all->then, atomic_load(&all->first));
    free(all);
}

static void sync_done(struct live_wait *w, int result)
{
    sync_answer(((struct sync_one *)w)->all, result);
    free(w);
}

static bool sync_stopped(struct live_wait *w)
{
    struct live_wait *then = ((struct sync_one *)w)->all->then;
    return then->stopped && then->stopped(then);
}

static void sync_begin(struct sync *all, struct tree *t)
{
    struct sync_one *one = malloc(sizeof(*one));
    (void)atomic_fetch_add(&all->left, 1);
    if (!one) {
        sync_answer(all, -ENOMEM);
        return;
    }
    *one = (struct sync_one){{sync_done, all->then->request, sync_stopped}, all};
    const int r = tree_fsyncdir(t, &one->wait);
    if (r != LIVE_PARKED)
        sync_done(&one->wait, r);
}

int shelf_sync(struct shelf *s, struct live_wait *w)
{
    struct sync *all = malloc(sizeof(*all));
    if (!all)
        return -ENOMEM;
    *all = (struct sync){.then = w, .left = 1};
    for (struct use u = {0}; next_use(s, &u);)
        sync_begin(all, u.tree);
    sync_answer(all, 0);
    return LIVE_PARKED;
}

int shelf_fsyncdir(struct shelf *s, uint64_t node, struct live_wait *w)
{
    CLEANUP(slot_leave) struct use u;
    int r = enter(s, node, &u);
    if (r == 0 && u.own &&
        !place_is_model(u.slot->is.kind)) /* the root, or a directory of models */
        return shelf_sync(s, w);
    /* a model that is not open has nothing to write */
    return r < 0 || !u.tree ? r : tree_fsyncdir(u.tree, w);
}

void shelf_abandon(struct shelf *s)
{
    for (struct use u = {0}; next_use(s, &u);)
        live_abandon(tree_live(u.tree));
}

void shelf_stop(struct shelf *s)
{
    for (struct use u = {0}; next_use(s, &u);)
        tree_stop(u.tree);
}

void shelf_interrupt(struct shelf *s, const void *request)
{
    for (struct use u = {0}; next_use(s, &u);)
        tree_interrupt(u.tree, request);
}

/* ---- facts ---- */

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
static int error_text(struct use *u, struct buf *out)
{
    struct err e = {0};
    int r = open_model(u, &e);
    if (r <= 0)
        return r == 0 ? -ENOENT : r;
    buf_printf(out, "%s\n", e.msg);
    return buf_error(out);
}

/* Get the target of a link. */
static int link_target(const struct use *u, struct buf *out)
{
    const struct shelf_item *is = &u->slot->is;
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

/* Return the mode of what stands for a file with the rights g. Whoever may list a directory that stands
 * for a file may read the file. */
static mode_t own_mode(const struct tree_options *o, const struct grant *g, enum place_kind kind)
{
    const mode_t type = type_of(kind);
    const bool itself = type == S_IFDIR && !place_is_model(kind) && kind != PLACE_LINKS;
    mode_t from = grant_shown(o, *g).bits;
    if (kind == PLACE_LINK || itself)
        return type | (itself ? from : 0777);
    if (!o->set_umask && g->uid == geteuid())
        from |= 0400; /* so that users can read why their own model cannot be read */
    return type | (from & 0444) | (type == S_IFDIR ? (from & 0444) >> 2 : 0);
}

/* Get the entry of a node that is in no tree; with `look`, look at its file again. */
static int own_entry(struct use *u, bool look, struct tree_entry *ret)
{
    const struct tree_options *o = &u->slot->slots->opt->tree;
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    const enum place_kind kind = u->slot->is.kind;
    struct stat st;
    struct grant g;
    int r = kind == PLACE_ERROR  ? error_text(u, &text)
            : kind == PLACE_LINK ? link_target(u, &text)
                                 : 0;
    if (r == 0)
        r = slot_facts(u->slot, look, &st, &g);
    if (r < 0)
        return r;
    const struct grant shown = grant_shown(o, g);
    *ret = (struct tree_entry){.node = own_node(u),
                               .attr.st_ino = own_node(u),
                               .name_for = kind != PLACE_ERROR,
                               .attr_for = kind != PLACE_ERROR};
    entry_fill(ret, own_mode(o, &g, kind), &shown,
               kind == PLACE_TEXT ? (uint64_t)st.st_size : text.len, st.st_mtim);
    return 0;
}

/* Get the entry of a name in a directory, and count the kernel's reference to it. */
static int name_entry(const struct shelf_slot *folder, const struct entry *e,
                      struct tree_entry *ret)
{
    CLEANUP(slot_leave) struct use u = {0};
    int r = slot_look_up(folder->slots, folder, e, &u);
    if (r == 0)
        r = own_entry(&u, false, ret);
    if (r < 0 && u.slot)
        slot_forget(u.slot, 1);
    return r;
}

/* ---- lookups ---- */

static int lookup_own(struct use *u, const char *name, struct tree_entry *ret)
{
    struct listing *l;
    int r = slot_names(u->slot, &l);
    if (r < 0)
        return r;
    const struct entry *e = listing_find(l, name);
    r = e && e->kind == PLACE_ERROR ? open_model(u, NULL) : 1;
    if (r >= 0) /* a model that can be opened has no `error` */
        r = e && r ? name_entry(u->slot, e, ret) : -ENOENT;
    listing_unref(l);
    return r;
}

int shelf_lookup(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret)
{
    CLEANUP(slot_leave) struct use u;
    int r = enter(s, parent, &u);
    if (r < 0)
        return r;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    if (u.own) {
        r = lookup_own(&u, name, ret);
        if (r != -ENOENT || !place_is_model(u.slot->is.kind))
            return r;
        r = open_model(&u, NULL);
    }
    if (r != 0)
        return r < 0 ? r : -ENOENT;
    return tree_lookup(u.tree, parent, name, ret);
}

void shelf_forget(struct shelf *s, uint64_t node, uint64_t n)
{
    CLEANUP(slot_leave) struct use u;
    if (find_use(s, node, &u) < 0)
        return;
    if (u.own)
        slot_forget(u.slot, n);
    else if (u.tree)
        tree_forget(u.tree, node, n);
}

int shelf_getattr(struct shelf *s, uint64_t node, const struct tree_file *f, struct tree_entry *ret)
{
    CLEANUP(slot_leave) struct use u;
    int r = enter(s, node, &u);
    if (r < 0)
        return r;
    return u.own ? own_entry(&u, true, ret) : tree_getattr(u.tree, node, f, ret);
}

int shelf_readlink(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(slot_leave) struct use u;
    int r = enter(s, node, &u);
    return r < 0 ? r : u.own && u.slot->is.kind == PLACE_LINK ? link_target(&u, out) : -EINVAL;
}

/* ---- directories ---- */

/* The cookie of the first extra file in a model's directory, greater than any cookie of a tree. */
#define EXTRA_COOKIE ((uint64_t)1 << 40)

/* The inode number shown for an unknown inode. */
#define UNKNOWN_INO 0xffffffff

struct shelf_dir {
    struct use use;
    struct listing *list;  /* what is in no tree: the entries; NULL: not read yet, or none */
    struct tree_dir *tree; /* NULL: the directory is not in a tree */
};

int shelf_opendir(struct shelf *s, uint64_t node, struct shelf_dir **ret)
{
    struct shelf_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    struct use *u = &d->use;
    int r = enter(s, node, u);
    const bool model = r == 0 && u->own && place_is_model(u->slot->is.kind);
    if (model)
        r = open_model(u, NULL);
    if (r == 0 && (model || !u->own))
        r = tree_opendir(u->tree, node, &d->tree);
    else if (r == 0 && type_of(u->slot->is.kind) != S_IFDIR)
        r = -ENOTDIR;
    if (r >= 0 && u->own) /* if it is stale, the kernel looks it up again */
        r = slot_names(u->slot, &d->list);
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
    slot_leave(&d->use);
    free(d);
}

bool shelf_dir_cacheable(const struct shelf_dir *d)
{
    return d->tree && tree_dir_cacheable(d->use.tree, d->tree);
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
            r = name_entry(d->use.slot, e, ret);
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
        r = tree_readdir(d->use.tree, d->tree, cookie, attrs, name, ret);
        if (r != 0 || !d->use.own)
            return r;
        *cookie = EXTRA_COOKIE;
    }
    if (!d->list || *cookie == 0) { /* also after a rewind */
        listing_unref(d->list);
        d->list = NULL;
        r = slot_names(d->use.slot, &d->list);
    }
    if (r < 0)
        return r;
    if (*cookie < 2) { /* only the type of "." and ".." is used */
        *ret = (struct tree_entry){.attr = {.st_ino = own_node(&d->use), .st_mode = S_IFDIR}};
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

static void add_unsaved(const struct use *u, struct buf *out)
{
    const char *name = path_name(u->slot->is.path);
    char shown[SHOW_MAX + 2];
    (void)show(shown, name, strlen(name));
    live_notes(tree_live(u->tree), true, strcat(shown, ": "), out);
}

int shelf_getxattr(struct shelf *s, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(slot_leave) struct use u = {0};
    /* no ACLs and labels, for which ls then does not ask again */
    int r = strncmp(name, "user.", 5) == 0 ? enter(s, node, &u) : -EOPNOTSUPP;
    if (r < 0)
        return r;
    if (is_root(&u)) {
        if (strcmp(name, UNSAVED) == 0)
            for (struct use of = {0}; next_use(s, &of);)
                add_unsaved(&of, out);
        else if (strcmp(name, READ_ONLY) == 0 && !shelf_writable(s))
            buf_str(out, shelf_why_not(s));
        return buf_error(out) ? buf_error(out) : out->len ? 0 : -ENODATA;
    }
    if (u.own) /* file managers ask for others: no model is opened for that */
        r = place_is_model(u.slot->is.kind) && strncmp(name, "user.gguf.", 10) == 0
                ? open_model(&u, NULL)
                : 1;
    if (r != 0)
        return r < 0 ? r : -ENODATA;
    return tree_getxattr(u.tree, node, name, out);
}

int shelf_listxattr(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(slot_leave) struct use u;
    int r = enter(s, node, &u);
    if (r == 0 && !u.own)
        return tree_listxattr(u.tree, node, out);
    if (r == 0 && !shelf_writable(s) && (is_root(&u) || place_is_model(u.slot->is.kind)))
        buf_add(out, READ_ONLY, sizeof(READ_ONLY)); /* including its NUL */
    return r < 0 ? r : buf_error(out);
}

/* ---- open files ---- */

/* Maximum size in bytes of a text in a store. */
#define TEXT_MAX ((size_t)16 << 20)

/* Read a text file of a store, which must be the one that was found. */
static int store_text(const struct shelf_slot *slot, struct buf *out)
{
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    int r = path_open(slot->slots->paths, slot->is.real, &f);
    if (r < 0)
        return r;
    return tree_identity_with(0, &f.st) == slot->is.stamp ? found_text(&f, TEXT_MAX, out) : -ESTALE;
}

/* Open a file that is in no tree. */
static int open_own(struct use *u, int flags, struct tree_file **ret)
{
    const bool text = u->slot->is.kind == PLACE_TEXT;
    if (!text && u->slot->is.kind != PLACE_ERROR)
        return -EISDIR;
    if (sys_open_changes(flags))
        return -EPERM;
    struct tree_file *f = tree_file_new(NULL, 0);
    if (!f)
        return -ENOMEM;
    int r = text ? store_text(u->slot, &f->text) : error_text(u, &f->text);
    if (r < 0)
        tree_release(f);
    else
        *ret = f;
    return r == -ENOENT ? -ESTALE : r;
}

/* Keep the slot of a tree in use while one of the tree's files is open. */
static void keep(struct use *u, struct tree_file *f)
{
    f->owner = u->slot;
    u->slot = NULL;
}

int shelf_open_file(struct shelf *s, uint64_t node, int flags, struct tree_file **ret)
{
    CLEANUP(slot_leave) struct use u;
    int r = enter(s, node, &u);
    if (r == 0 && u.own)
        return open_own(&u, flags, ret);
    if (r == 0)
        r = tree_open_file(u.tree, node, flags, ret);
    if (r == 0)
        keep(&u, *ret);
    return r;
}

void shelf_release(struct tree_file *f)
{
    struct use u = {.slot = f->owner};
    tree_release(f);
    slot_leave(&u);
}

/* ---- edits ---- */

int shelf_create(struct shelf *s, uint64_t parent, const char *name, int flags,
                 struct tree_entry *ret, struct tree_file **file)
{
    CLEANUP(slot_leave) struct use u;
    int r = shelf_enter(s, parent, -EPERM, &u);
    if (r == 0)
        r = tree_create(u.tree, parent, name, flags, ret, file);
    if (r == 0)
        keep(&u, *file);
    return r;
}

int shelf_rename(struct shelf *s, uint64_t parent, const char *name, uint64_t new_parent,
                 const char *new_name, unsigned flags, struct live_wait *w)
{
    CLEANUP(slot_leave) struct use to;
    CLEANUP(slot_leave) struct use u;
    int r = find_use(s, new_parent, &to), from = shelf_enter(s, parent, -EPERM, &u);
    if (r < 0 || from < 0)
        return r < 0 ? r : from;
    if (to.own)
        return -EPERM;
    if (to.slot != u.slot)
        return -EXDEV;
    return tree_rename(u.tree, parent, name, new_parent, new_name, flags, w);
}
