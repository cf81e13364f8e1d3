/* SPDX-License-Identifier: MIT */
/* Manages the slots of a shelf, and opens and closes their models: see slots.h. */
#include "shelf/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <syslog.h>
#include <unistd.h>

#include "base/sys.h"
#include "edit/open.h"

#define SLOT_OF(l, member) ((struct slot *)((char *)(l)-offsetof(struct slot, member)))

/* ---- slots; call these functions with the lock held ---- */

static struct slot *slot_at(const struct slots *s, uint64_t node)
{
    for (struct link *l = table_first(&s->by_node, hash_number(node)); l; l = table_next(l))
        if (SLOT_OF(l, by_node)->node == node)
            return SLOT_OF(l, by_node);
    return NULL;
}

static void slot_free(struct slot *slot)
{
    place_free(&slot->place);
    free(slot->path);
    free(slot->real);
    free(slot->why);
    free(slot);
}

static void drop_unused(struct slots *s, struct slot *slot)
{
    if (slot->lookups || slot->uses || slot->tree || slot->busy)
        return;
    table_remove(&s->by_node, &slot->by_node);
    table_remove(&s->by_key, &slot->by_key);
    slot_free(slot);
}

/* Return the number of a new slot's own node, or 0 if there is none. Numbers of models are used
 * again only after 16 million others, and after the kernel has forgotten them. */
static uint64_t new_node(struct slots *s, enum item_kind kind)
{
    if (kind != ITEM_MODEL)
        return ++s->last_other < (uint64_t)1 << INO_LOCAL_BITS ? s->last_other : 0;
    if (s->by_node.n >= INO_MAX_SLOTS - 1)
        return 0;
    do
        s->last = s->last + 1 < INO_MAX_SLOTS ? s->last + 1 : 1;
    while (slot_at(s, ino_in_slot(s->last, INO_ROOT)));
    return ino_in_slot(s->last, INO_ROOT);
}

/* Make a slot that takes the item's paths and place. Returns NULL if there is no memory or no
 * number. */
static struct slot *new_slot(struct slots *s, struct item *i, uint64_t key, uint64_t stamp)
{
    struct slot *slot = calloc(1, sizeof(*slot));
    const uint64_t node = slot ? new_node(s, i->kind) : 0;
    if (!node || table_add(&s->by_node, &slot->by_node, hash_number(node)) < 0) {
        free(slot);
        return NULL;
    }
    if (table_add(&s->by_key, &slot->by_key, key) < 0) {
        table_remove(&s->by_node, &slot->by_node);
        free(slot);
        return NULL;
    }
    slot->slots = s;
    slot->node = node;
    slot->kind = i->kind;
    slot->store = i->store;
    slot->behind = i->behind;
    slot->shards = i->shards;
    slot->place = i->place;
    slot->path = i->path;
    slot->real = i->real;
    slot->stamp = stamp;
    i->place = (struct place){0};
    i->path = i->real = NULL;
    return slot;
}

/* ---- closing; call these functions with the lock held ---- */

static void unlist(struct slots *s, struct slot *slot)
{
    *(slot->prev ? &slot->prev->next : &s->first) = slot->next;
    *(slot->next ? &slot->next->prev : &s->end) = slot->prev;
    slot->prev = slot->next = NULL;
}

/* List a slot as the most recently used. */
static void enlist(struct slots *s, struct slot *slot)
{
    slot->prev = s->end;
    *(s->end ? &s->end->next : &s->first) = slot;
    s->end = slot;
}

/* Close the model of an unused slot, unless its edits must stay. The lock is released meanwhile.
 * Returns false if the model stays open. */
static bool close_slot(struct slots *s, struct slot *slot)
{
    struct tree *t = slot->tree;
    const bool edited = tree_edited(t);
    if (edited && !(slot->spent && tree_idle(t, true)))
        return false;
    slot->tree = NULL;
    slot->busy = true;
    unlist(s, slot);
    lock_drop(&s->lock);
    const int e = edited ? tree_finish(t) : 0;
    tree_close(t);
    lock_take(&s->lock);
    s->failed = s->failed ? s->failed : e;
    slot->busy = false;
    cond_broadcast(&s->done);
    drop_unused(s, slot);
    return true;
}

/* Close one unused model that was last used before that time. Returns false if there is none. */
static bool close_oldest(struct slots *s, time_t before)
{
    for (struct slot *slot = s->first; slot && slot->used <= before; slot = slot->next)
        if (!slot->uses && close_slot(s, slot))
            return true;
    return false;
}

/* Returns true if few descriptors are left: new ones get the lowest free number. */
static bool files_are_short(const struct slots *s)
{
    struct rlimit most;
    int fd = fcntl(s->paths->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        (void)close(fd);
    return fd < 0 || (getrlimit(RLIMIT_NOFILE, &most) == 0 && (rlim_t)fd > most.rlim_cur / 2);
}

/* Close idle models, and others beyond the bounds. */
static void close_idle(struct slots *s)
{
    const time_t now = when_now().tv_sec;
    size_t unused = 0;
    while (close_oldest(s, now - SLOT_IDLE))
        ;
    for (struct slot *slot = s->first; slot; slot = slot->next)
        unused += !slot->uses;
    for (; unused > SLOTS_IDLE_MAX && close_oldest(s, now); unused--)
        ;
    while (files_are_short(s) && close_oldest(s, now))
        ;
}

/* Close idle models. The pool calls this every few seconds while models are open. */
static bool sweep(struct pool_job *j, struct timespec *again)
{
    struct slots *s = (struct slots *)((char *)j - offsetof(struct slots, sweep));
    LOCKED(&s->lock);
    close_idle(s);
    *again = when_after(SLOT_SWEEP * 1000);
    return s->first != NULL;
}

/* ---- uses ---- */

static void begin_use(struct slot *slot, struct use *ret)
{
    slot->uses++;
    slot->used = when_now().tv_sec;
    *ret = (struct use){slot, slot->tree};
}

int slot_hold(struct slots *s, uint64_t node, struct use *ret)
{
    LOCKED(&s->lock);
    struct slot *slot = slot_at(s, node);
    if (!slot)
        return -ESTALE;
    begin_use(slot, ret);
    ret->tree = NULL;
    return 0;
}

void slot_leave(struct use *u)
{
    struct slot *slot = u->slot;
    *u = (struct use){0};
    if (!slot)
        return;
    struct slots *s = slot->slots;
    LOCKED(&s->lock);
    if (slot->tree && slot != s->end) {
        unlist(s, slot);
        enlist(s, slot);
    }
    if (--slot->uses == 0 && slot->spent && slot->tree && !slot->busy)
        (void)close_slot(s, slot); /* also drops the slot */
    else
        drop_unused(s, slot);
}

void slot_forget(struct slots *s, uint64_t node, uint64_t local, uint64_t n)
{
    struct use u = {0};
    lock_take(&s->lock);
    struct slot *slot = slot_at(s, node);
    if (slot && local == INO_ROOT)
        slot->lookups -= n < slot->lookups ? n : slot->lookups;
    if (slot)
        begin_use(slot, &u);
    lock_drop(&s->lock);
    if (u.tree && local != INO_ROOT)
        tree_forget(u.tree, local, n);
    slot_leave(&u);
}

/* ---- lookups ---- */

/* Returns true if the slot with this key is being edited and only its own tree has changed its file,
 * which an edit may replace. */
static bool is_own_edit(struct slots *s, uint64_t key)
{
    struct use u = {0};
    lock_take(&s->lock);
    for (struct link *l = table_first(&s->by_key, key); l && !u.slot; l = table_next(l)) {
        struct slot *slot = SLOT_OF(l, by_key);
        if (!slot->spent && slot->tree && tree_edited(slot->tree))
            begin_use(slot, &u);
    }
    lock_drop(&s->lock);
    const bool own = u.tree && !tree_changed(u.tree);
    slot_leave(&u);
    return own;
}

/* Find the slot of an item. Other slots with its key stand for files that are gone. */
static struct slot *find(struct slots *s, uint64_t key, uint64_t stamp, bool own)
{
    struct slot *found = NULL;
    for (struct link *l = table_first(&s->by_key, key); l; l = table_next(l)) {
        struct slot *slot = SLOT_OF(l, by_key);
        const bool edited = own && slot->tree && tree_edited(slot->tree);
        if (!slot->spent && !found && (slot->stamp == stamp || edited))
            found = slot;
        else
            slot->spent = true;
    }
    return found;
}

int slot_of(struct slots *s, struct item *i, uint64_t *ret)
{
    const uint64_t key = i->key;
    uint64_t stamp;
    int e = item_stamp(s->paths, i, &stamp);
    char *why = i->error.code ? strdup(i->error.msg) : NULL;
    if (e < 0 || (i->error.code && !why)) {
        free(why);
        return e < 0 ? e : -ENOMEM;
    }
    const bool own = i->kind == ITEM_MODEL && is_own_edit(s, key);
    LOCKED(&s->lock);
    struct slot *slot = find(s, key, stamp, own);
    if (!slot && !(slot = new_slot(s, i, key, stamp))) {
        free(why);
        return -ENOMEM;
    }
    slot->st = i->st;
    slot->grant = i->grant;
    slot->looked = when_now();
    slot->lookups++;
    if (why) {
        free(slot->why);
        slot->why = why;
        slot->failed = 0;
    }
    *ret = slot->node;
    return 0;
}

void slot_facts(struct slot *slot, struct stat *st, struct grant *g)
{
    struct slots *s = slot->slots;
    CLEANUP(found_close) struct found f = FOUND_NONE;
    lock_take(&s->lock);
    const bool due = slot->real && when_past(&slot->looked, SLOT_FRESH);
    if (due)
        slot->looked = when_now();
    *st = slot->st;
    *g = slot->grant;
    lock_drop(&s->lock);
    /* if the file was replaced, the name leads elsewhere within a second */
    if (!due || path_open(s->paths, slot->real, &f) < 0 || f.st.st_dev != st->st_dev ||
        f.st.st_ino != st->st_ino)
        return;
    *g = grant_of(f.fd, &f.st);
    if (slot->kind != ITEM_FOLDER || slot->place.kind != PLACE_OLLAMA) /* a tag has other times */
        *st = f.st;
    LOCKED(&s->lock);
    slot->st = *st;
    slot->grant = *g;
}

/* ---- opening a model ---- */

/* For struct tree_options: find a file of the model by the rules of path.h. */
static int find_file(void *arg, const char *path, struct model_file *m, struct err *e)
{
    const struct paths *p = arg;
    const char *name = path_name(path);
    CLEANUP(found_close) struct found dir = FOUND_NONE, f = FOUND_NONE;
    char *above = strndup(path, name - path > 1 ? (size_t)(name - path) - 1 : 1);
    *m = (struct model_file){.path = strdup(path), .dir = -1, .file = {.fd = -1}};
    int r = above && m->path ? path_open(p, above, &dir) : -ENOMEM;
    free(above);
    if (r == 0)
        r = path_in(p, &dir, name, true, &f);
    if (r == 0 && !S_ISREG(f.st.st_mode))
        return err_set(e, -EINVAL, "is not a regular file");
    if (r == 0)
        r = m->dir = path_parent(p, &f);
    if (r < 0)
        return err_set(e, r, "%s", strerror(-r));
    m->real = f.path;
    m->name = path_name(m->real);
    f.path = NULL;
    return 0;
}

/* Open the tree of a slot that was marked busy for this purpose. Call without the lock held. */
static int open_tree(const struct slots *s, const struct slot *slot, struct tree **ret,
                     struct err *e)
{
    struct tree_options o = s->opt->tree;
    struct tree *t = NULL;
    const char *what;
    o.wait = NULL; /* another process's lock must not delay readers */
    o.late = true;
    o.find = find_file;
    o.find_arg = (void *)s->paths;
    o.log.label = slot->path;
    o.read_only |= slot->store;
    o.why = slot->store && !s->opt->tree.read_only
                ? "it lies in a store of models: edit a copy of model.gguf (cp --no-preserve=mode)"
                : NULL;
    int r = tree_open(slot_files(slot), &o, &t, e);
    for (unsigned i = 0; r == 0 && (what = tree_warning(t, i)); i++)
        logger_log(&o.log, LOG_WARNING, "%s", what);
    *ret = t;
    return r;
}

/* Record the tree of a slot, or why there is none. Call with the lock held. */
static int opened(struct slots *s, struct slot *slot, struct tree *t, int r, const struct err *why)
{
    const struct timespec later = when_after(SLOT_SWEEP * 1000);
    if (r < 0 && !is_shortage(r)) {
        free(slot->why);
        slot->why = strdup(why->msg);
        slot->failed = when_now().tv_sec;
    }
    if (r < 0)
        return r;
    const struct stat *st = &slot->st;
    const uint64_t identity = tree_identity(t);
    /* The file, or one of the files, is not the one that was looked up, or opened before. */
    if ((slot->shards ? slot->identity && identity != slot->identity
                      : identity != tree_identity_with(0, st))) {
        slot->spent = true;
        return -ESTALE;
    }
    slot->identity = identity;
    slot->tree = t;
    enlist(s, slot);
    free(slot->why);
    slot->why = NULL;
    slot->failed = 0;
    if (!s->sweeps)
        s->sweeps = pool_join(&s->sweep, sweep) == 0;
    if (s->sweeps)
        pool_call_at(&s->sweep, &later);
    return 0;
}

/* Open a slot that is closed and not busy. Call with the lock held; it is released while the model
 * is opened. */
static int open_slot(struct slots *s, struct slot *slot, struct err *e)
{
    struct err why = {0};
    struct tree *t = NULL;
    int r;
    slot->busy = true;
    close_idle(s);
    do {
        lock_drop(&s->lock);
        why = (struct err){0};
        r = open_tree(s, slot, &t, &why);
        lock_take(&s->lock);
    } while ((r == -EMFILE || r == -ENFILE) && close_oldest(s, when_now().tv_sec));
    r = opened(s, slot, t, r, &why);
    slot->busy = false;
    cond_broadcast(&s->done);
    if (r == -ESTALE && t) {
        lock_drop(&s->lock);
        tree_close(t);
        lock_take(&s->lock);
    }
    if (e)
        *e = why;
    return r;
}

/* Call with the lock held. */
static int open_if_closed(struct slots *s, struct slot *slot, struct err *e)
{
    while (slot->busy)
        (void)lock_wait(&s->lock, &s->done, NULL);
    if (slot->tree)
        return 0;
    if (slot->spent)
        return -ESTALE;
    if (slot->why && (!slot->failed || when_now().tv_sec - slot->failed < SLOT_RETRY))
        return err_set(e, -EIO, "%s", slot->why);
    return open_slot(s, slot, e);
}

int slot_use(struct slots *s, uint64_t node, struct use *ret, struct err *e)
{
    lock_take(&s->lock);
    struct slot *slot = slot_at(s, node);
    int r = -ESTALE;
    if (slot) {
        begin_use(slot, ret);
        r = open_if_closed(s, slot, e);
        ret->tree = slot->tree;
    }
    lock_drop(&s->lock);
    if (r < 0)
        slot_leave(ret);
    return r;
}

/* ---- all slots ---- */

void slots_init(struct slots *s, const struct paths *p, const struct shelf_options *o)
{
    *s = (struct slots){.paths = p, .opt = o, .last_other = INO_ROOT - 1};
    lock_init(&s->lock);
    cond_init(&s->done);
}

int slots_each(struct slots *s, void (*call)(const struct use *u, void *arg), void *arg)
{
    lock_take(&s->lock);
    size_t n = 0, all = 0;
    for (struct slot *slot = s->first; slot; slot = slot->next)
        all++;
    struct use *u = calloc(all + 1, sizeof(*u));
    for (struct slot *slot = u ? s->first : NULL; slot; slot = slot->next) {
        const time_t used = slot->used;
        begin_use(slot, &u[n++]);
        slot->used = used;
    }
    lock_drop(&s->lock);
    for (size_t i = 0; i < n; i++) {
        call(&u[i], arg);
        slot_leave(&u[i]);
    }
    free(u);
    return u ? 0 : -ENOMEM;
}

static void hurry(const struct use *u, void *arg)
{
    (void)arg;
    tree_hurry(u->tree);
}

static void finish(const struct use *u, void *failed)
{
    const int e = tree_finish(u->tree);
    if (e < 0)
        *(int *)failed = e;
}

/* All begin to write before the first one is waited for. */
int slots_finish(struct slots *s)
{
    int r = slots_each(s, hurry, NULL);
    if (r == 0)
        r = slots_each(s, finish, &s->failed);
    return s->failed ? s->failed : r;
}

void slots_free(struct slots *s)
{
    if (s->sweeps)
        pool_leave(&s->sweep);
    for (struct link *l = table_each(&s->by_node, NULL), *next; l; l = next) {
        next = table_each(&s->by_node, l);
        tree_close(SLOT_OF(l, by_node)->tree);
        slot_free(SLOT_OF(l, by_node));
    }
    table_free(&s->by_node);
    table_free(&s->by_key);
    cond_destroy(&s->done);
    lock_destroy(&s->lock);
}
