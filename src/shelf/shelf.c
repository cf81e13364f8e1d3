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
#include "tree/folder.h"
#include "tree/attr.h"
#include "tree/history.h"

/* ---- the location of a node ---- */

/* Numbers of the files in a model's directory that do not belong to its tree. No tree uses these
 * numbers in its slot. */
enum { EXTRA_SOURCE = 1, EXTRA_ERROR = 2, EXTRA_SHARDS = 16 };

static inline uint64_t extra_ino(uint32_t extra)
{
    return ino_make(INO_FIXED, extra, 0);
}

/* Return the number of an extra file (EXTRA_SOURCE, EXTRA_ERROR or EXTRA_SHARDS + i), or 0 if the
 * node is not an extra file. */
static inline uint32_t extra_of(uint64_t local)
{
    bool fixed = (local & 3) == INO_FIXED && (local >> INO_KIND_BITS & INO_MAX_ROWS) == 0;
    return fixed ? (uint32_t)(local >> (INO_KIND_BITS + INO_ROW_BITS)) : 0;
}

/* Locate a node without beginning to use its tree. */
static struct at at_node(const struct shelf *s, uint64_t node)
{
    const uint32_t slot = s->one ? 0 : ino_slot(node);
    struct at at = {.node = node,
                    .local = node,
                    .in_tree = s->one != NULL,
                    .own = !s->one && !slot,
                    .use = {.tree = s->one}};
    if (!slot)
        return at;
    at.node = ino_in_slot(slot, INO_ROOT);
    at.local = ino_local(node);
    at.model = at.local == INO_ROOT;
    at.extra = extra_of(at.local);
    at.in_tree = !at.model && !at.extra;
    return at;
}

/* Begin using the tree that contains a node. */
static int at_enter(struct shelf *s, struct at *at)
{
    return s->one ? 0 : slot_use(&s->slots, at->node, &at->use, NULL);
}

int shelf_enter(struct shelf *s, uint64_t node, int otherwise, struct at *ret)
{
    *ret = at_node(s, node);
    return ret->in_tree ? at_enter(s, ret) : otherwise;
}

void shelf_leave(struct at *at)
{
    slot_leave(&at->use);
}

/* Convert the node numbers in an entry from the tree's to the mount's. */
static void entry_in_slot(const struct use *u, struct tree_entry *e)
{
    if (!u->slot)
        return;
    e->node = e->node ? ino_in_slot(ino_slot(u->slot->node), e->node) : 0;
    e->attr.st_ino = ino_in_slot(ino_slot(u->slot->node), e->attr.st_ino);
}

int shelf_given(const struct use *u, int r, struct tree_entry *e)
{
    if (r == 0)
        entry_in_slot(u, e);
    return r;
}

/* Get the line that says why a model cannot be opened. Returns 1 with the line, 0 if the model can
 * be opened, or -errno. */
static int model_error(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(slot_leave) struct use u = {0};
    struct err e = {0};
    int r = slot_use(&s->slots, node, &u, &e);
    if (r == 0 || r == -ESTALE || r == -ENOMEM)
        return r;
    buf_printf(out, "%s\n", e.msg);
    return buf_error(out) ? buf_error(out) : 1;
}

/* ---- open and close ---- */

static int open_folder(struct shelf *s, const char *path, struct err *e)
{
    struct place top = {0};
    struct item item = {0};
    struct listing *l = NULL;
    uint64_t root;
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
    r = place_top(&s->paths, &top);
    if (r == 0)
        r = place_list(&s->listings, &top, &l);
    s->store = r == 0 && l->store;
    if (r == 0)
        r = place_item(&s->listings, &top, NULL, &item);
    if (r == 0)
        r = slot_of(&s->slots, &item, &root);
    listing_unref(l);
    item_free(&item);
    place_free(&top);
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
    listings_init(&s->listings, &s->paths);
    slots_init(&s->slots, &s->paths, &s->opt);
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int r = folder ? open_folder(s, path, e) : tree_open(path, &o->tree, &s->one, e);
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

/* Call a function for each open tree. Returns 0 or -ENOMEM. */
static int each_use(struct shelf *s, void (*call)(const struct use *u, void *arg), void *arg)
{
    const struct use one = {.tree = s->one};
    if (!s->one)
        return slots_each(&s->slots, call, arg);
    call(&one, arg);
    return 0;
}

/* ---- the pending edits of all models ---- */

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

static void sync_begin(const struct use *u, void *arg)
{
    struct sync_all *all = arg;
    struct sync_one *one = malloc(sizeof(*one));
    (void)atomic_fetch_add(&all->left, 1);
    if (!one) {
        sync_answer(all, -ENOMEM);
        return;
    }
    *one =
        (struct sync_one){.wait = {.done = sync_done, .request = all->then->request}, .all = all};
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
    sync_answer(all, each_use(s, sync_begin, all));
    return LIVE_PARKED;
}

int shelf_fsyncdir(struct shelf *s, uint64_t node, struct live_wait *w)
{
    CLEANUP(shelf_leave) struct at at = at_node(s, node);
    if (at.own && node == INO_ROOT)
        return sync_all(s, w);
    if (!at.in_tree && !at.model)
        return 0;
    int r = at_enter(s, &at);
    return r < 0 ? r : tree_fsyncdir(at.use.tree, w);
}

int shelf_sync(struct shelf *s)
{
    struct tree_call c = TREE_CALL;
    return tree_call_end(&c, sync_all(s, &c.wait));
}

static void unsaved(const struct use *u, void *out)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    const char *name = u->slot ? path_name(u->slot->path) : "";
    char shown[SHOW_MAX];
    tree_notes(u->tree, &notes);
    for (struct note n = {0}; unsaved_next(&notes, &n);)
        buf_printf(out, "%s%s%s: %s\n", show(shown, name, strlen(name)), *name ? ": " : "", n.path,
                   n.why);
}

static void stop_use(const struct use *u, void *abandon)
{
    tree_stop(u->tree);
    if (*(const bool *)abandon)
        tree_abandon(u->tree);
}

void shelf_stop(struct shelf *s, bool abandon)
{
    (void)each_use(s, stop_use, &abandon);
}

void shelf_unsaved(struct shelf *s, struct buf *out)
{
    (void)each_use(s, unsaved, out);
}

void shelf_close(struct shelf *s)
{
    if (!s)
        return;
    tree_close(s->one);
    slots_free(&s->slots);
    listings_free(&s->listings);
    paths_end(&s->paths);
    free(s);
}

/* ---- facts ---- */

void shelf_mounted(struct shelf *s, dev_t dev)
{
    s->paths.own = dev; /* no request is served yet */
}

bool shelf_is_folder(const struct shelf *s)
{
    return !s->one;
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

const char *shelf_warning(const struct shelf *s, unsigned i)
{
    return s->one ? tree_warning(s->one, i) : NULL;
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

/* ---- nodes ---- */

/* Set owner, group and mode from the rights in g, unless options override them. */
static void set_rights(const struct shelf *s, const struct grant *g, mode_t mask,
                       struct tree_entry *e)
{
    const struct tree_options *o = &s->opt.tree;
    mode_t from = o->set_umask ? 0777 & ~o->umask : g->bits;
    if (mask == 0444 && !o->set_umask && g->uid == geteuid())
        from |= 0400; /* so that users can read why their own model cannot be read */
    e->attr.st_uid = o->set_uid ? o->uid : g->uid;
    e->attr.st_gid = o->set_gid ? o->gid : g->gid;
    e->attr.st_mode |= from & mask;
    if (S_ISDIR(e->attr.st_mode) && mask == 0444)
        e->attr.st_mode |= (from & 0444) >> 2;
}

static struct tree_entry plain_entry(uint64_t node, mode_t type, const struct stat *st,
                                     uint64_t size)
{
    return (struct tree_entry){.node = node,
                               .attr = {.st_ino = node,
                                        .st_mode = type,
                                        .st_nlink = type == S_IFDIR ? 2 : 1,
                                        .st_size = (off_t)size,
                                        .st_blocks = (blkcnt_t)((size + 511) / 512),
                                        .st_blksize = 4096,
                                        .st_atim = st->st_mtim,
                                        .st_mtim = st->st_mtim,
                                        .st_ctim = st->st_mtim}};
}

/* Get the entry for a directory, a text file, or a model's directory. */
static int slot_entry(struct shelf *s, uint64_t node, struct tree_entry *ret)
{
    CLEANUP(slot_leave) struct use u = {0};
    struct stat st;
    struct grant g;
    int r = slot_hold(&s->slots, node, &u);
    if (r < 0)
        return r;
    slot_facts(u.slot, &st, &g);
    const bool text = u.slot->kind == ITEM_TEXT, folder = u.slot->kind == ITEM_FOLDER;
    *ret = plain_entry(node, text ? S_IFREG : S_IFDIR, &st, text ? (uint64_t)st.st_size : 0);
    if (!text && !folder)
        /* metadata/, tensors/ and, if it is a directory, source/ */
        ret->attr.st_nlink += u.slot->shards ? 3 : 2;
    set_rights(s, &g, folder ? 0777 : 0444, ret);
    ret->name_for = ret->attr_for = 1;
    return 0;
}

/* ---- source and error ---- */

static char *shard_name(const struct slot *slot, size_t i)
{
    return split_sibling(strrchr(slot_files(slot), '/') + 1, i, slot->shards);
}

/* Get the target of `source`, or of one of the links in it. */
static int source_target(const struct slot *slot, uint32_t extra, struct buf *out)
{
    if (extra >= EXTRA_SHARDS && extra - EXTRA_SHARDS >= slot->shards)
        return -ESTALE;
    if (!slot->shards) {
        buf_str(out, slot->real ? slot->real : slot->path);
        return buf_error(out);
    }
    const char *path = slot_files(slot);
    char *name = shard_name(slot, extra - EXTRA_SHARDS);
    if (!name)
        return -ENOMEM;
    buf_printf(out, "%.*s/%s", (int)(strrchr(path, '/') - path), path, name);
    free(name);
    return buf_error(out);
}

static int extra_entry(struct shelf *s, struct slot *slot, uint32_t extra, struct tree_entry *ret)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    const bool folder = extra == EXTRA_SOURCE && slot->shards, error = extra == EXTRA_ERROR;
    struct stat st;
    struct grant g;
    int r = error ? model_error(s, slot->node, &text) : 0;
    if (error && r != 1)
        return r == 0 ? -ENOENT : r;
    if (!folder && !error && (r = source_target(slot, extra, &text)) < 0)
        return r;
    slot_facts(slot, &st, &g);
    *ret = plain_entry(ino_in_slot(ino_slot(slot->node), extra_ino(extra)),
                       folder  ? S_IFDIR
                       : error ? S_IFREG
                               : S_IFLNK | 0777,
                       &st, text.len);
    ret->name_for = ret->attr_for = !error;
    if (folder || error)
        set_rights(s, &g, 0444, ret);
    return 0;
}

/* Return the number of the extra file at position i, or 0 at the end. If `extra` is EXTRA_SOURCE,
 * the file is in `source`; otherwise it is in the model's directory, after the tree's entries. */
static uint32_t extra_at(const struct slot *slot, uint32_t extra, bool broken, size_t i,
                         char name[TREE_NAME_MAX + 1])
{
    if (extra != EXTRA_SOURCE) {
        (void)strcpy(name, i ? "error" : "source");
        return i == 0 ? EXTRA_SOURCE : i == 1 && broken ? EXTRA_ERROR : 0;
    }
    char *shard = i < slot->shards ? shard_name(slot, i) : NULL;
    if (!shard)
        return 0;
    (void)name_encode(shard, strlen(shard), name);
    free(shard);
    return EXTRA_SHARDS + (uint32_t)i;
}

/* Return the index of the shard that a name in `source` refers to, or the number of shards if there
 * is no such shard. */
static size_t extra_shard(const struct slot *slot, const char *name)
{
    char shown[TREE_NAME_MAX + 1];
    const size_t n = strlen(name);
    const bool cut = strstr(name, "%~"); /* a hash replaces the shard's number */
    size_t i = cut || n <= SPLIT_TAIL ? 0 : strtoul(name + n - SPLIT_TAIL + 1, NULL, 10) - 1;
    for (; extra_at(slot, EXTRA_SOURCE, false, i, shown); i = cut ? i + 1 : slot->shards)
        if (strcmp(shown, name) == 0)
            return i;
    return slot->shards;
}

/* Get the entry for an item that was found, and count the kernel's reference to it. Frees the
 * item. */
static int item_entry(struct shelf *s, struct item *i, struct tree_entry *ret)
{
    uint64_t node;
    int r = slot_of(&s->slots, i, &node);
    item_free(i);
    return r < 0 ? r : slot_entry(s, node, ret);
}

/* ---- lookups ---- */

static int lookup_own(struct shelf *s, uint64_t folder, const char *name, struct tree_entry *ret)
{
    CLEANUP(slot_leave) struct use u = {0};
    struct item i;
    int r = slot_hold(&s->slots, folder, &u);
    if (r == 0)
        r = u.slot->kind == ITEM_FOLDER ? place_find(&s->listings, &u.slot->place, name, &i)
                                        : -ENOTDIR;
    return r < 0 ? r : item_entry(s, &i, ret);
}

/* Look up an extra file in a model's directory or in its `source`. Returns -ENOENT if the name is
 * not an extra file's; it may then be in the tree. */
static int lookup_extra(struct shelf *s, const struct at *at, const char *name,
                        struct tree_entry *ret)
{
    CLEANUP(slot_leave) struct use u = {0};
    uint32_t extra = 0;
    int r = slot_hold(&s->slots, at->node, &u);
    if (r < 0)
        return r;
    if (at->model)
        extra = strcmp(name, "source") == 0  ? EXTRA_SOURCE
                : strcmp(name, "error") == 0 ? EXTRA_ERROR
                                             : 0;
    if (at->extra == EXTRA_SOURCE) {
        size_t i = extra_shard(u.slot, name);
        extra = i < u.slot->shards ? EXTRA_SHARDS + (uint32_t)i : 0;
    }
    return extra ? extra_entry(s, u.slot, extra, ret) : -ENOENT;
}

int shelf_lookup(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret)
{
    CLEANUP(shelf_leave) struct at at = at_node(s, parent);
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    if (at.own)
        return lookup_own(s, parent, name, ret);
    int r = at.in_tree ? -ENOENT : lookup_extra(s, &at, name, ret);
    if (r != -ENOENT || at.extra)
        return r;
    r = at_enter(s, &at);
    if (r < 0) /* the directory of a model that cannot be opened has no other names */
        return r == -ESTALE || r == -ENOMEM || !at.model ? r : -ENOENT;
    return shelf_given(&at.use, tree_lookup(at.use.tree, at.local, name, ret), ret);
}

void shelf_forget(struct shelf *s, uint64_t node, uint64_t n)
{
    struct at at = at_node(s, node);
    if (s->one)
        tree_forget(s->one, node, n);
    else
        slot_forget(&s->slots, at.node, at.own ? INO_ROOT : at.local, n);
}

int shelf_getattr(struct shelf *s, uint64_t node, const struct tree_file *f, struct tree_entry *ret)
{
    CLEANUP(shelf_leave) struct at at = at_node(s, node);
    int r;
    if (at.extra) {
        r = slot_hold(&s->slots, at.node, &at.use);
        return r < 0 ? r : extra_entry(s, at.use.slot, at.extra, ret);
    }
    if (!at.in_tree)
        return slot_entry(s, node, ret);
    const bool opened = f && f->tree;
    const struct use *u = opened ? &(struct use){f->owner, f->tree} : &at.use;
    r = opened ? 0 : at_enter(s, &at);
    if (r == 0)
        r = tree_getattr(u->tree, at.local, opened ? f : NULL, ret);
    if (r == 0)
        entry_in_slot(u, ret);
    return r;
}

int shelf_readlink(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(shelf_leave) struct at at = at_node(s, node);
    if (at.own || at.model || at.extra == EXTRA_ERROR)
        return -EINVAL;
    int r = at.extra ? slot_hold(&s->slots, at.node, &at.use) : at_enter(s, &at);
    if (r < 0 || !at.extra)
        return r < 0 ? r : tree_readlink(at.use.tree, at.local, out);
    return at.extra == EXTRA_SOURCE && at.use.slot->shards
               ? -EINVAL
               : source_target(at.use.slot, at.extra, out);
}

/* ---- directories ---- */

/* The cookie of the first extra file in a model's directory, greater than any cookie of a tree. */
#define EXTRA_COOKIE ((uint64_t)1 << 40)

/* The inode number shown for an unknown inode. */
#define UNKNOWN_INO 0xffffffff

struct shelf_dir {
    struct shelf *shelf;
    struct at at; /* in use; has a tree only if `tree` is set */
    /* for a directory of the shelf itself: its entries, and the mounts, when it was opened */
    struct listing *list;
    struct mounts mounts;
    struct tree_dir *tree; /* NULL: the directory is not in a tree */
    bool broken;           /* the model cannot be opened */
};

static int load(struct shelf_dir *d)
{
    struct listing *l;
    struct mounts ms;
    int r = mounts_load(&ms);
    if (r == 0)
        r = place_list(&d->shelf->listings, &d->at.use.slot->place, &l);
    if (r < 0) {
        mounts_free(&ms);
        return r;
    }
    mounts_free(&d->mounts);
    listing_unref(d->list);
    d->mounts = ms;
    d->list = l;
    return 0;
}

static int open_dir(struct shelf_dir *d)
{
    struct shelf *s = d->shelf;
    if (d->at.in_tree || d->at.model) {
        int r = at_enter(s, &d->at);
        if (r == 0)
            return tree_opendir(d->at.use.tree, d->at.local, &d->tree);
        if (!d->at.model || r == -ESTALE || r == -ENOMEM)
            return r;
        d->broken = true;
    }
    int r = slot_hold(&s->slots, d->at.node, &d->at.use);
    if (r < 0 || d->broken)
        return r;
    if (d->at.own)
        return d->at.use.slot->kind == ITEM_FOLDER ? load(d) : -ENOTDIR;
    return d->at.extra == EXTRA_SOURCE && d->at.use.slot->shards ? 0 : -ENOTDIR;
}

int shelf_opendir(struct shelf *s, uint64_t node, struct shelf_dir **ret)
{
    struct shelf_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->shelf = s;
    d->at = at_node(s, node);
    int r = open_dir(d);
    if (r < 0)
        shelf_closedir(d);
    else
        *ret = d;
    return r;
}

void shelf_closedir(struct shelf_dir *d)
{
    listing_unref(d->list);
    mounts_free(&d->mounts);
    if (d->tree)
        tree_closedir(d->tree);
    shelf_leave(&d->at);
    free(d);
}

bool shelf_dir_cacheable(const struct shelf_dir *d)
{
    return d->tree && tree_dir_cacheable(d->at.use.tree, d->tree);
}

/* Get "." or ".." and its type. */
static void dot(const struct shelf_dir *d, uint64_t i, char name[TREE_NAME_MAX + 1],
                struct tree_entry *ret)
{
    const uint64_t local = d->at.own ? INO_ROOT : d->at.local,
                   node = d->at.own ? d->at.node : ino_in_slot(ino_slot(d->at.node), local);
    (void)strcpy(name, i ? ".." : ".");
    *ret = (struct tree_entry){.node = node, .attr = {.st_ino = node, .st_mode = S_IFDIR}};
}

/* Return true if a ggufs is mounted on a directory that is an entry. */
static bool is_mount(const struct shelf_dir *d, const struct entry *e)
{
    char path[PATH_MAX];
    const char *folder = d->at.use.slot->place.path;
    return e->kind == ENTRY_FOLDER &&
           (size_t)snprintf(path, sizeof(path), "%s/%s", folder[1] ? folder : "", e->at) <
               sizeof(path) &&
           path_barred(&d->shelf->paths, &d->mounts, path);
}

/* Get the next entry of one of the shelf's own directories. Only models are examined, and only for
 * a listing with attributes. */
static int next_own(struct shelf_dir *d, uint64_t *cookie, bool attrs, char name[TREE_NAME_MAX + 1],
                    struct tree_entry *ret)
{
    for (size_t i = (size_t)(*cookie - 2); i < d->list->n; i++) {
        const struct entry *e = &d->list->entry[i];
        const bool here = attrs && (e->kind == ENTRY_MODEL || e->kind == ENTRY_SPLIT);
        struct item item;
        int r = is_mount(d, e) ? -ENOENT : 0;
        *cookie = i + 3;
        *ret = (struct tree_entry){
            .attr = {.st_ino = UNKNOWN_INO, .st_mode = e->kind == ENTRY_TEXT ? S_IFREG : S_IFDIR}};
        if (r == 0 && here)
            r = place_item(&d->shelf->listings, &d->at.use.slot->place, e, &item);
        if (r == 0 && here)
            r = item_entry(d->shelf, &item, ret);
        (void)strcpy(name, e->name);
        if (r >= 0 || is_shortage(r)) /* else it is gone or may not be shown */
            return r < 0 ? r : 1;
    }
    return 0;
}

static int next_extra(struct shelf_dir *d, uint64_t *cookie, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    uint64_t i = *cookie < EXTRA_COOKIE ? 0 : *cookie - EXTRA_COOKIE;
    struct slot *slot = d->at.use.slot;
    uint32_t extra = slot ? extra_at(slot, d->at.extra, d->broken, (size_t)i, name) : 0;
    if (!extra)
        return 0;
    *cookie = EXTRA_COOKIE + i + 1;
    if (attrs && extra_entry(d->shelf, slot, extra, ret) == 0)
        return 1;
    bool folder = extra == EXTRA_SOURCE && slot->shards;
    *ret =
        (struct tree_entry){.attr = {.st_ino = ino_in_slot(ino_slot(slot->node), extra_ino(extra)),
                                     .st_mode = folder                 ? S_IFDIR
                                                : extra == EXTRA_ERROR ? S_IFREG
                                                                       : S_IFLNK}};
    return 1;
}

int shelf_readdir(struct shelf_dir *d, uint64_t *cookie, bool attrs, char name[TREE_NAME_MAX + 1],
                  struct tree_entry *ret)
{
    int r = 0;
    if (d->tree && *cookie < EXTRA_COOKIE) {
        r = tree_readdir(d->at.use.tree, d->tree, cookie, attrs, name, ret);
        if (r <= 0 && !(r == 0 && d->at.model))
            return r;
    }
    if (r > 0) {
        entry_in_slot(&d->at.use, ret);
        return r;
    }
    if (*cookie < 2 && !d->tree) {
        /* after a rewind, load the current entries */
        if (*cookie == 0 && d->at.own && (r = load(d)) < 0)
            return r;
        dot(d, (*cookie)++, name, ret);
        return 1;
    }
    return d->at.own ? next_own(d, cookie, attrs, name, ret)
                     : next_extra(d, cookie, attrs, name, ret);
}

/* ---- extended attributes ---- */

/* The extended attribute that states why a model, or the whole mount, cannot be edited. If editing
 * is possible, the attribute does not exist. */
#define READ_ONLY "user.gguf.readonly"

static int read_only_text(struct shelf *s, struct at *at, struct buf *out)
{
    if (at->own) {
        if (shelf_writable(s))
            return -ENODATA;
        buf_str(out, shelf_why_not(s));
        return buf_error(out);
    }
    int r = at_enter(s, at);
    if (r < 0)
        return r == -ESTALE || r == -ENOMEM ? r : -ENODATA;
    if (tree_writable(at->use.tree))
        return -ENODATA;
    buf_str(out, tree_why_not(at->use.tree));
    return buf_error(out);
}

int shelf_getxattr(struct shelf *s, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(shelf_leave) struct at at = at_node(s, node);
    if (at.own && node == INO_ROOT && strcmp(name, "user.gguf.error") == 0) {
        shelf_unsaved(s, out);
        return buf_error(out) ? buf_error(out) : out->len ? 0 : -ENODATA;
    }
    if (at.local == INO_ROOT && strcmp(name, READ_ONLY) == 0)
        return read_only_text(s, &at, out);
    if (!at.in_tree && !(at.model && strncmp(name, "user.gguf.", 10) == 0))
        /* answered without opening the model, because ls requests such attributes for each file */
        return -ENODATA;
    int r = at_enter(s, &at);
    if (r < 0)
        return r == -ESTALE || r == -ENOMEM ? r : -ENODATA;
    return tree_getxattr(at.use.tree, at.local, name, out);
}

int shelf_listxattr(struct shelf *s, uint64_t node, struct buf *out)
{
    CLEANUP(shelf_leave) struct at at = at_node(s, node);
    bool read_only = !shelf_writable(s);
    if (at.in_tree) {
        int r = at_enter(s, &at);
        if (r == 0)
            r = tree_listxattr(at.use.tree, at.local, out);
        if (r < 0)
            return r;
        read_only = !tree_writable(at.use.tree);
    }
    if (read_only && at.local == INO_ROOT)
        buf_add(out, READ_ONLY, sizeof(READ_ONLY)); /* including its NUL */
    return buf_error(out);
}

/* ---- open files ---- */

static int read_own(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    ssize_t got = pread(f->fd, r->scratch, n, (off_t)off);
    r->bytes = r->scratch;
    r->len = got < 0 ? 0 : (size_t)got;
    return got < 0 ? -errno : 0;
}

static void close_own(struct tree_file *f)
{
    (void)close(f->fd);
}

static const struct file_ops file_own = {.read = read_own, .release = close_own};
static const struct file_ops file_error = {.read = file_read_text};

/* Open a text file in a store. Its content is read from the file itself. */
static int open_own(struct shelf *s, uint64_t node, int flags, struct tree_file *f)
{
    CLEANUP(found_close) struct found found = FOUND_NONE;
    CLEANUP(slot_leave) struct use u = {0};
    int r = slot_hold(&s->slots, node, &u);
    if (r < 0)
        return r;
    r = u.slot->kind != ITEM_TEXT ? -EISDIR : sys_open_changes(flags) ? -EPERM : 0;
    if (r == 0)
        r = path_open(&s->paths, u.slot->real, &found);
    if (r == 0 && (found.st.st_ino != u.slot->st.st_ino || found.st.st_dev != u.slot->st.st_dev))
        r = -ESTALE;
    if (r == 0)
        r = found_read(&found);
    if (r < 0)
        return r;
    f->ops = &file_own;
    f->fd = r;
    f->cacheable = true;
    return 0;
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
    int r = shelf_enter(s, node, -EISDIR, &at);
    if (r == 0)
        r = tree_open_file(at.use.tree, at.local, flags, ret);
    if (r == 0)
        keep(&at, *ret);
    if (at.in_tree || !(at.own || at.extra == EXTRA_ERROR))
        return r;
    struct tree_file *f = tree_file_new(NULL, 0);
    if (!f)
        return -ENOMEM;
    if (at.own) {
        r = open_own(s, node, flags, f);
    } else {
        f->ops = &file_error;
        r = sys_open_changes(flags) ? -EPERM : model_error(s, at.node, &f->text);
        r = r == 0 ? -ESTALE : r; /* the model can be opened now */
    }
    if (r < 0)
        (void)tree_release(f);
    else
        *ret = f;
    return r < 0 ? r : 0;
}

int shelf_release(struct tree_file *f)
{
    struct use u = {.slot = f->owner};
    int r = tree_release(f);
    slot_leave(&u);
    return r;
}

/* ---- edits ---- */

int shelf_unopened_file(struct shelf *s, uint64_t node, struct tree_file **ret)
{
    CLEANUP(shelf_leave) struct at at;
    int r = shelf_enter(s, node, -EPERM, &at);
    struct tree_file *f = r == 0 ? tree_file_new(at.use.tree, at.local) : NULL;
    if (!f)
        return r < 0 ? r : -ENOMEM;
    keep(&at, f);
    *ret = f;
    return 0;
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
    CLEANUP(shelf_leave) struct at at = at_node(s, parent);
    const struct at to = at_node(s, new_parent);
    if (!at.in_tree || to.own || (!to.in_tree && to.node == at.node))
        return -EPERM;
    if (to.node != at.node && !s->one)
        return -EXDEV;
    int r = at_enter(s, &at);
    return r < 0 ? r : tree_rename(at.use.tree, at.local, name, to.local, new_name, flags, w);
}

static void interrupt_use(const struct use *u, void *request)
{
    tree_interrupt(u->tree, request);
}

void shelf_interrupt(struct shelf *s, const void *request)
{
    (void)each_use(s, interrupt_use, (void *)request);
}
