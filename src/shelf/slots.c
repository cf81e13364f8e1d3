/* SPDX-License-Identifier: MIT */
/* Manages the slots of a shelf, and opens and closes their models: see slots.h. */
#include "shelf/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "edit/open.h"

/* Seconds without use after which a model is closed, and seconds between checks for such models. */
#define IDLE 60
#define SWEEP 5
/* Maximum number of models that are kept open without use. */
#define IDLE_MAX 64

#define SLOT_OF(l, member) ((struct shelf_slot *)((char *)(l)-offsetof(struct shelf_slot, member)))

/* ---- slots; call these functions with the lock held ---- */

static struct shelf_slot *slot_at(const struct slots *s, uint32_t id)
{
    for (struct link *l = table_first(&s->by_id, hash_number(id)); l; l = table_next(l))
        if (SLOT_OF(l, by_id)->id == id)
            return SLOT_OF(l, by_id);
    return NULL;
}

static void slot_free(struct shelf_slot *slot)
{
    item_free(&slot->is);
    listing_unref(slot->names);
    free(slot);
}

static void drop_unused(struct shelf_slot *slot)
{
    if (slot->lookups || slot->uses || slot->tree)
        return;
    table_remove(&slot->slots->by_id, &slot->by_id);
    table_remove(&slot->slots->by_key, &slot->by_key);
    slot_free(slot);
}

/* Return an id for a new slot. Ids are used again only after 16 million others, and after the kernel
 * has forgotten them. */
static uint32_t new_id(struct slots *s)
{
    uint32_t id;
    do
        id = s->next++ % INO_MAX_SLOTS;
    while (slot_at(s, id));
    return id;
}

/* Make a slot that takes what the item owns. Returns NULL if out of memory. */
static struct shelf_slot *new_slot(struct slots *s, struct shelf_item *i)
{
    struct shelf_slot *slot = calloc(1, sizeof(*slot));
    if (!slot)
        return NULL;
    slot->slots = s;
    slot->id = new_id(s);
    slot->made = ++s->looks;
    const bool added = table_add(&s->by_id, &slot->by_id, hash_number(slot->id)) == 0;
    if (!added || table_add(&s->by_key, &slot->by_key, i->key) < 0) {
        if (added)
            table_remove(&s->by_id, &slot->by_id);
        free(slot);
        return NULL;
    }
    slot->is = *i;
    *i = (struct shelf_item){0};
    return slot;
}

/* ---- closing; call these functions with the lock held ---- */

/* Returns true if the model is open, not in use, and closing it loses nothing. */
static bool can_close(const struct shelf_slot *slot)
{
    return slot->tree && !slot->uses &&
           (!tree_edited(slot->tree) || (slot->spent && tree_idle(slot->tree)));
}

/* Close a model. The lock is released meanwhile. */
static void close_model(struct shelf_slot *slot)
{
    struct slots *s = slot->slots;
    struct tree *t = slot->tree;
    struct shelf_slot **at = &s->open;
    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    slot->tree = NULL;
    slot->uses++; /* its path is in the tree's log lines */
    lock_drop(&s->lock);
    const int e = tree_edited(t) ? tree_finish(t) : 0;
    tree_close(t);
    lock_take(&s->lock);
    s->failed = s->failed ? s->failed : e;
    slot->uses--;
    drop_unused(slot);
}

/* Close models whose files are gone, that have been idle for long, or that are beyond the bounds, or
 * all that are idle. Returns true if any was closed. */
static bool close_idle(struct slots *s, bool all)
{
    for (bool closed = false;; closed = true) {
        struct shelf_slot *oldest = NULL;
        size_t idle = 0;
        for (struct shelf_slot *slot = s->open; slot && !(oldest && oldest->spent);
             slot = slot->next)
            if (can_close(slot)) {
                idle++;
                if (!oldest || slot->spent || when_before(&slot->used, &oldest->used))
                    oldest = slot;
            }
        if (!oldest ||
            !(all || oldest->spent || idle > s->idle_max || when_past(&oldest->used, IDLE)))
            return closed;
        close_model(oldest);
    }
}

/* Returns true if a call that returned r lacked descriptors, and can be tried again because models
 * were closed. Call it without the lock. */
static bool has_made_room(struct slots *s, int r)
{
    if (r != -EMFILE && r != -ENFILE)
        return false;
    LOCKED(&s->lock);
    return close_idle(s, true);
}

/* Close idle models. The pool calls this every few seconds while models are open. */
static bool close_swept(struct pool_job *j, struct timespec *again)
{
    struct slots *s = (struct slots *)((char *)j - offsetof(struct slots, sweep));
    LOCKED(&s->lock);
    (void)close_idle(s, false);
    *again = when_after(SWEEP * 1000);
    return s->open != NULL;
}

/* ---- uses ---- */

/* Call with the lock held. */
static void begin_use(struct shelf_slot *slot, struct use *ret)
{
    slot->uses++;
    *ret = (struct use){.slot = slot, .tree = slot->tree};
}

int slot_hold(struct slots *s, uint32_t id, struct use *ret)
{
    LOCKED(&s->lock);
    struct shelf_slot *slot = slot_at(s, id);
    if (!slot)
        return -ESTALE;
    begin_use(slot, ret);
    return 0;
}

void slot_leave(struct use *u)
{
    struct shelf_slot *slot = u->slot;
    *u = (struct use){0};
    if (!slot)
        return;
    struct slots *s = slot->slots;
    LOCKED(&s->lock);
    slot->used = when_now();
    slot->uses--;
    if (slot->tree && slot->spent)
        (void)close_idle(s, false); /* also drops the slot if it closes its model */
    else
        drop_unused(slot);
}

void slot_forget(struct shelf_slot *slot, uint64_t n)
{
    LOCKED(&slot->slots->lock);
    slot->lookups -= n < slot->lookups ? n : slot->lookups;
}

/* ---- lookups ---- */

/* Return the slot with this key whose file is at its path, or NULL. Call with the lock held. */
static struct shelf_slot *current(const struct slots *s, uint64_t key)
{
    for (struct link *l = table_first(&s->by_key, key); l; l = table_next(l))
        if (!SLOT_OF(l, by_key)->spent)
            return SLOT_OF(l, by_key);
    return NULL;
}

static bool is_edited(const struct shelf_slot *slot)
{
    return slot->tree && tree_edited(slot->tree);
}

/* Returns true if an item leads to the file of the slot with its key, and only the slot's own tree has
 * changed that, which an edit may replace: the directory at the item's path is the tree's. */
static bool is_own_edit(struct slots *s, const struct shelf_item *i)
{
    struct use u = {0};
    lock_take(&s->lock);
    struct shelf_slot *slot = current(s, i->key);
    if (slot && is_edited(slot) && i->real && strcmp(i->real, slot->is.real) == 0)
        begin_use(slot, &u);
    lock_drop(&s->lock);
    if (!u.slot)
        return false;
    const int dir = path_parent(s->paths, i->real);
    const bool own = dir >= 0 && tree_lies_in(u.tree, dir) && !tree_changed(u.tree);
    if (dir >= 0)
        (void)close(dir);
    slot_leave(&u);
    return own;
}

static bool is_same(const struct shelf_item *a, const struct shelf_item *b)
{
    const char *x = a->real ? a->real : "", *y = b->real ? b->real : "";
    return a->stamp == b->stamp && strcmp(x, y) == 0;
}

/* Use the slot of an item; a new slot takes what the item owns. The item was looked at after look number
 * `look`. Returns 0, -ENOMEM, or 1 if the slot may be younger than the item. */
static int take_slot(struct slots *s, struct shelf_item *i, uint64_t look, struct use *ret)
{
    const struct shelf_item now = *i;
    const bool own = place_is_model(i->kind) && is_own_edit(s, i);
    LOCKED(&s->lock);
    struct shelf_slot *slot = current(s, i->key);
    if (slot && !(own && is_edited(slot)) && !is_same(&slot->is, i)) {
        if (slot->made > look)
            return 1;
        slot->spent = true; /* its file is gone */
        slot = NULL;
    }
    if (!slot && !(slot = new_slot(s, i)))
        return -ENOMEM;
    slot->is.st = now.st;
    slot->is.grant = now.grant;
    slot->lookups++;
    begin_use(slot, ret);
    return 0;
}

int slot_look_up(struct slots *s, const struct shelf_slot *folder, const struct entry *e,
                 struct use *ret)
{
    int r;
    do {
        struct shelf_item i = {0};
        lock_take(&s->lock);
        const uint64_t look = ++s->looks;
        const struct shelf_item in = folder ? folder->is : i;
        lock_drop(&s->lock);
        r = folder ? place_item(s->paths, &in, e, &i) : item_top(s->paths, &i);
        if (r == 0)
            r = take_slot(s, &i, look, ret);
        item_free(&i);
    } while (r > 0 || has_made_room(s, r));
    return r;
}

int slot_facts(struct shelf_slot *slot, bool look, struct stat *st, struct grant *g)
{
    struct slots *s = slot->slots;
    lock_take(&s->lock);
    struct shelf_item now = slot->is;
    lock_drop(&s->lock);
    const int e = look ? item_look(s->paths, &now) : 0;
    LOCKED(&s->lock);
    if (now.st.st_dev == slot->is.st.st_dev && now.st.st_ino == slot->is.st.st_ino) {
        slot->is.st = now.st;
        slot->is.grant = now.grant;
    }
    *st = slot->is.st;
    *g = slot->is.grant;
    return e;
}

int slot_names(struct shelf_slot *slot, struct listing **ret)
{
    struct slots *s = slot->slots;
    lock_take(&s->lock);
    struct listing *kept = REF(slot->names);
    lock_drop(&s->lock);
    int e;
    do
        e = place_list(s->paths, &slot->is, kept, ret);
    while (has_made_room(s, e));
    listing_unref(kept);
    if (e < 0 || *ret == kept)
        return e;
    lock_take(&s->lock);
    struct listing *old = slot->names;
    slot->names = REF(*ret);
    lock_drop(&s->lock);
    listing_unref(old);
    return 0;
}

/* ---- opening a model ---- */

/* For struct tree_options: find a file of the model by the rules of path.h. */
static int find_file(void *arg, const char *path, struct model_file *m, struct err *e)
{
    const struct paths *p = arg;
    CLEANUP(found_close) struct path_found dir = FOUND_NONE, f = FOUND_NONE;
    char *above = path_above(path);
    *m = (struct model_file){.path = strdup(path), .dir = -1, .file = {.fd = -1}};
    int r = above && m->path ? path_open(p, above, &dir) : -ENOMEM;
    free(above);
    if (r == 0)
        r = path_in(p, &dir, path_name(path), &f);
    if (r == 0 && !S_ISREG(f.st.st_mode))
        return err_set(e, -EINVAL, "is not a regular file");
    if (r == 0)
        r = m->dir = path_parent(p, f.path);
    if (r < 0)
        return err_set(e, r, "%s", strerror(-r));
    m->real = f.path;
    m->name = path_name(m->real);
    f.path = NULL;
    return 0;
}

static int open_tree(const struct slots *s, const struct shelf_slot *slot, struct tree **ret,
                     struct err *e)
{
    struct tree_options o = s->opt->tree;
    o.wait = NULL; /* another process's lock must not delay readers */
    o.late = true;
    o.find = find_file;
    o.find_arg = (void *)s->paths;
    o.log.label = slot->is.path;
    o.slot = slot->id;
    o.read_only |= slot->is.store;
    o.why = slot->is.store && !s->opt->tree.read_only
                ? "it lies in a store of models: edit a copy of model.gguf (cp --no-preserve=mode)"
                : NULL;
    return tree_open(slot->is.path, &o, ret, e);
}

/* Give a slot its tree, unless another thread has done so, or one of the files is not the one that
 * was looked up, or opened before, or whether it can be edited has changed, which the kernel keeps.
 * Returns 0 or -ESTALE. */
static int take_tree(struct slots *s, struct shelf_slot *slot, struct tree **t)
{
    const struct timespec later = when_after(SWEEP * 1000);
    LOCKED(&s->lock);
    const uint64_t files = tree_identity(*t), identity = hash_number(files) + tree_writable(*t);
    if (slot->tree) /* which may have been edited since, so that its file is another one */
        return 0;
    slot->spent |= files != slot->is.stamp && !s->opt->tree.partial; /* then files may be missing */
    slot->spent |= slot->identity && slot->identity != identity;
    if (slot->spent)
        return -ESTALE;
    slot->identity = identity;
    slot->tree = *t;
    *t = NULL;
    slot->next = s->open;
    s->open = slot;
    if (!s->sweeps)
        s->sweeps = pool_join(&s->sweep, close_swept) == 0;
    if (s->sweeps)
        pool_call_at(&s->sweep, &later);
    (void)close_idle(s, false);
    return 0;
}

/* A model that was edited under a name that it no longer has is closed, so that its file can be edited
 * under the present one. */
static void leave_renamed(struct slots *s, const struct stat *st)
{
    CLEANUP(slot_leave) struct use u = {0};
    lock_take(&s->lock);
    struct shelf_slot *slot = s->open;
    while (slot && !(is_edited(slot) && live_is_file(tree_live(slot->tree), st)))
        slot = slot->next;
    if (slot)
        begin_use(slot, &u);
    lock_drop(&s->lock);
    if (!slot || !tree_changed(u.tree))
        return;
    LOCKED(&s->lock);
    slot->spent = true;
}

int slot_open(struct use *u, struct err *e)
{
    struct shelf_slot *slot = u->slot;
    struct slots *s = slot->slots;
    struct tree *t = NULL;
    int r;
    lock_take(&s->lock);
    const bool spent = slot->spent;
    const struct stat st = slot->is.st;
    u->tree = slot->tree;
    lock_drop(&s->lock);
    if (u->tree)
        return 0;
    if (spent)
        return -ESTALE;
    if (slot->is.why)
        return err_set(e, -EIO, "%s", slot->is.why);
    leave_renamed(s, &st);
    do
        r = open_tree(s, slot, &t, e);
    while (has_made_room(s, r));
    if (r == 0)
        r = take_tree(s, slot, &t);
    tree_close(t);
    LOCKED(&s->lock);
    u->tree = slot->tree; /* perhaps another thread's; stays as it is while the slot is in use */
    return u->tree ? 0 : r;
}

/* ---- all slots ---- */

void slots_init(struct slots *s, const struct paths *p, const struct shelf_options *o)
{
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};
    *s = (struct slots){.paths = p, .opt = o};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    s->idle_max = min_u64(IDLE_MAX, files.rlim_cur / 16); /* a model has several files open */
    lock_init(&s->lock);
}

/* A slot in use stays in the list, in its place. */
bool slots_next(struct slots *s, struct use *u)
{
    LOCKED(&s->lock);
    struct shelf_slot *next = u->slot ? u->slot->next : s->open;
    if (u->slot)
        u->slot->uses--;
    if (next)
        begin_use(next, u);
    else
        (void)close_idle(s, false);
    return next;
}

void slots_free(struct slots *s)
{
    if (s->sweeps)
        pool_leave(&s->sweep);
    for (struct link *l = table_each(&s->by_id, NULL), *next; l; l = next) {
        next = table_each(&s->by_id, l);
        tree_close(SLOT_OF(l, by_id)->tree);
        slot_free(SLOT_OF(l, by_id));
    }
    table_free(&s->by_id);
    table_free(&s->by_key);
    lock_destroy(&s->lock);
}
