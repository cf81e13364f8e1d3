/* SPDX-License-Identifier: MIT */
/* What a mount shows: see shelf.h. */
#include "shelf/shelf.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/lock.h"
#include "shelf/internal.h"
#include "shelf/look.h"

/* ---- open and close ---- */

static int open_folder(struct shelf *s, const char *path, struct err *e)
{
    struct item top = {.kind = ITEM_FOLDER};
    uint32_t root;
    if (s->opt.tree.backup)
        return err_set(e, -EINVAL, "is a folder: -o backup is for a mount of one model");
    int r = reach_begin(&s->reach, path, s->opt.strict, e);
    if (r < 0)
        return r;
    if (look_begin(&s->reach) < 0)
        return err_set(e, -ENOMEM, "no memory");
    if (fstat(s->reach.fd, &top.st) < 0)
        return err_set(e, -errno, "%s", strerror(errno));
    quant_init(); /* before threads open models */
    top.real = strdup(s->reach.path);
    top.above = strlen(s->reach.path);
    r = top.real ? place_top(&s->reach, &top.place) : -ENOMEM;
    if (r == 0)
        r = own_of(&s->owns, &s->reach, &top, &root);
    item_free(&top);
    return r < 0 ? err_set(e, r, "no memory") : 0;
}

int shelf_open(const char *path, const struct shelf_options *o, struct shelf **ret, struct err *e)
{
    struct stat st;
    struct shelf *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(e, -ENOMEM, "no memory");
    s->opt = *o;
    s->reach = (struct reach){.fd = -1, .mounts = -1};
    owns_init(&s->owns);
    int r = slots_init(&s->slots, &s->reach, &s->opt);
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (r < 0)
        (void)err_set(e, r, "no memory");
    else
        r = folder ? open_folder(s, path, e) : tree_open(path, &o->tree, &s->one, e);
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

static void stop(const struct use *u, void *arg)
{
    (void)arg;
    tree_stop(u->tree);
}

static void abandon(const struct use *u, void *arg)
{
    (void)arg;
    tree_abandon(u->tree);
}

void shelf_stop(struct shelf *s)
{
    if (s->one)
        tree_stop(s->one);
    else
        (void)slots_each(&s->slots, stop, NULL);
}

void shelf_abandon(struct shelf *s)
{
    if (s->one)
        tree_abandon(s->one);
    else
        (void)slots_each(&s->slots, abandon, NULL);
}

void shelf_unsaved(struct shelf *s, struct buf *out)
{
    if (s->one)
        tree_unsaved(s->one, out);
    else
        buf_add(out, s->slots.unsaved.data, s->slots.unsaved.len);
}

void shelf_backups(const struct shelf *s, struct buf *out)
{
    if (s->one)
        tree_backups(s->one, out);
}

/* The last shelf that a thread still needs which waits for a disk. The process is about to end. */
static _Atomic(struct shelf *) stays;

void shelf_close(struct shelf *s)
{
    if (!s)
        return;
    tree_close(s->one);
    slots_free(&s->slots);
    owns_free(&s->owns);
    if (!look_end(&s->reach)) {
        atomic_store(&stays, s);
        return;
    }
    reach_end(&s->reach);
    free(s);
}

/* ---- facts ---- */

void shelf_mounted(struct shelf *s, dev_t dev)
{
    lock_take(&s->reach.lock);
    s->reach.own = dev;
    lock_drop(&s->reach.lock);
}

bool shelf_is_folder(const struct shelf *s)
{
    return !s->one;
}

bool shelf_writable(const struct shelf *s)
{
    return s->one ? tree_writable(s->one) : !s->opt.tree.read_only;
}

const char *shelf_why_not(const struct shelf *s)
{
    return s->one ? tree_why_not(s->one) : "asked for by -o ro";
}

const char *shelf_path(const struct shelf *s)
{
    return s->one ? tree_path(s->one) : s->reach.path;
}

const char *shelf_warning(const struct shelf *s, unsigned i)
{
    return s->one ? tree_warning(s->one, i) : NULL;
}

int shelf_statfs(struct shelf *s, struct statvfs *ret)
{
    if (s->one)
        return tree_statfs(s->one, ret);
    if (fstatvfs(s->reach.fd, ret) < 0)
        return -errno;
    ret->f_namemax = TREE_NAME_MAX;
    return 0;
}

/* ---- rights ---- */

bool shelf_look(struct shelf *s, uint64_t node)
{
    struct at at = at_node(s, node);
    struct use u;
    if (at.own || at.model || at.extra) /* the kernel keeps nothing of these */
        return false;
    if (s->one) {
        const uint64_t rights = tree_look(s->one), before = atomic_exchange(&s->rights, rights);
        return before && before != rights;
    }
    if (slot_use(&s->slots, at.slot, &u, NULL) < 0)
        return false;
    bool changed = slot_look(&s->slots, &u, tree_look(u.tree));
    at_leave(s, &u);
    return changed;
}

struct telling {
    struct shelf *shelf;
    struct use use;
    void (*call)(void *arg, uint64_t node);
    void *arg;
};

static void tell_node(void *arg, uint64_t node)
{
    const struct telling *t = arg;
    struct tree_entry e = {.node = node};
    entry_in_slot(&t->use, &e);
    t->call(t->arg, e.node);
}

static void tell(const struct use *u, void *arg)
{
    struct telling *t = arg;
    t->use = *u;
    if (slot_tell(&t->shelf->slots, u))
        tree_nodes(u->tree, tell_node, t);
}

void shelf_nodes(struct shelf *s, void (*call)(void *arg, uint64_t node), void *arg)
{
    struct telling t = {.shelf = s, .call = call, .arg = arg};
    if (s->one)
        tree_nodes(s->one, call, arg);
    else
        (void)slots_each(&s->slots, tell, &t);
}

/* ---- look up ---- */

static int lookup_own(struct shelf *s, uint32_t number, const char *name, struct tree_entry *ret)
{
    struct item i;
    struct own *dir = own_use(&s->owns, number);
    if (!dir)
        return -ESTALE;
    int r =
        dir->kind == ITEM_FOLDER ? place_find(&s->reach, &dir->place, NULL, name, &i) : -ENOTDIR;
    own_leave(&s->owns, dir);
    return r < 0 ? r : item_entry(s, &i, ret);
}

/* In a model's folder, or its source: what is extra. -ENOENT: it may be in the tree. */
static int lookup_extra(struct shelf *s, const struct at *at, const char *name,
                        struct tree_entry *ret)
{
    struct use u;
    uint32_t extra = 0;
    int r = slot_hold(&s->slots, at->slot, &u);
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
    at_leave(s, &u);
    return extra ? extra_entry(s, at->slot, extra, ret) : -ENOENT;
}

int shelf_lookup(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct at at = at_node(s, parent);
    struct use u;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    if (at.own)
        return lookup_own(s, (uint32_t)at.local, name, ret);
    if (at.model || at.extra) {
        int r = lookup_extra(s, &at, name, ret);
        if (r == 0)
            slot_known(&s->slots, at.slot);
        if (r != -ENOENT || at.extra)
            return r;
    }
    int r = at_enter(s, &at, &u);
    if (r < 0) /* a model that cannot be opened has no other names */
        return r == -ESTALE || r == -ENOMEM || !at.model ? r : -ENOENT;
    r = at_given(s, &u, tree_lookup(tree_in(&u), at.local, name, ret), ret);
    return at_left(s, &u, r);
}

bool shelf_never(const struct shelf *s, uint64_t parent)
{
    (void)parent;
    return s->one && !tree_writable(s->one);
}

void shelf_forget(struct shelf *s, uint64_t node, uint64_t n)
{
    struct at at = at_node(s, node);
    if (s->one)
        tree_forget(s->one, node, n);
    else if (at.own)
        own_forget(&s->owns, (uint32_t)at.local, n);
    else
        slot_forget(&s->slots, at.slot, at.local, n);
}

int shelf_getattr(struct shelf *s, uint64_t node, const struct shelf_file *f,
                  struct tree_entry *ret)
{
    struct at at = at_node(s, node);
    struct use u;
    if (at.own)
        return own_entry(s, (uint32_t)at.local, ret);
    if (at.model)
        return model_entry(s, at.slot, ret);
    if (at.extra)
        return extra_entry(s, at.slot, at.extra, ret);
    int r = 0;
    bool open = f && tree_in(&f->use);
    if (open)
        u = f->use;
    r = open ? at_local(&u, at.local, &at.local) : at_enter(s, &at, &u);
    if (r < 0)
        return r;
    r = tree_fgetattr(tree_in(&u), at.local, f ? f->file : NULL, ret);
    if (r == 0)
        entry_in_slot(&u, ret);
    return open ? r : at_left(s, &u, r);
}

int shelf_readlink(struct shelf *s, uint64_t node, struct buf *out)
{
    struct at at = at_node(s, node);
    struct use u;
    if (at.own || at.model || at.extra == EXTRA_ERROR)
        return -EINVAL;
    int r = at.extra ? slot_hold(&s->slots, at.slot, &u) : at_enter(s, &at, &u);
    if (r < 0)
        return r;
    if (at.extra == EXTRA_SOURCE && u.slot->shards)
        r = -EINVAL;
    else if (at.extra >= EXTRA_SHARDS && at.extra - EXTRA_SHARDS >= u.slot->shards)
        r = -ESTALE;
    else
        r = at.extra ? source_target(s, u.slot, at.extra, out)
                     : tree_readlink(tree_in(&u), at.local, out);
    at_leave(s, &u);
    return r;
}
