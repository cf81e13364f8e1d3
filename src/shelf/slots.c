/* SPDX-License-Identifier: MIT */
/* Manages the slots of a shelf, and opens and closes their models: see slots.h. */
#include "shelf/slots.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <syslog.h>

#include "base/sys.h"
#include "base/lock.h"

/* ---- slots ---- */

struct slot *slots_at(const struct slots *s, uint64_t node)
{
    for (struct link *l = table_first(&s->by_node, hash_number(node)); l; l = table_next(l))
        if (SLOT_OF(l, by_node)->node == node)
            return SLOT_OF(l, by_node);
    return NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Returns true if a slot belongs to this item, in whatever state. A slot that differs in any of
 * these facts has different rights, is editable where the item is not (or vice versa), or leads
 * elsewhere. */
static bool is_slot_of(const struct slot *slot, const struct item *i)
{
    if (slot->kind != i->kind || slot->above != i->above)
        return false;
    if (i->kind == ITEM_FOLDER)
        return place_same(&slot->place, &i->place);
    return same_text(slot->real, i->real) && strcmp(slot->path, i->path) == 0 &&
           slot->store == i->store && slot->behind == i->behind;
}

/* Find the slot of an item in the state `stamp`. If `stamp` is NULL, find the item's slot whose
 * model is open and being edited, because edits change the state. Call with the lock held. */
static struct slot *find(const struct slots *s, const struct item *i, uint64_t key,
                         const uint64_t *stamp)
{
    for (struct link *l = table_first(&s->by_key, key); l; l = table_next(l)) {
        struct slot *slot = SLOT_OF(l, by_key);
        const bool is =
            stamp ? slot->stamp == *stamp : slot->tree != NULL && tree_edited(slot->tree);
        if (is && !slot->spent && is_slot_of(slot, i))
            return slot;
    }
    return NULL;
}

static void slot_free(struct slot *slot)
{
    place_free(&slot->place);
    free(slot->path);
    free(slot->real);
    free(slot->why);
    buf_free(&slot->notes);
    ids_unref(slot->left.ids);
    free(slot);
}

/* Drop a slot if it is closed and unused, has no notes, and the kernel has forgotten its nodes. Its
 * st_ino is reused only for the same state of the same file. */
static void slots_drop(struct slots *s, struct slot *slot)
{
    if (slot->lookups || slot->uses || slot->tree || slot->busy || slot->notes.len)
        return;
    table_remove(&s->by_node, &slot->by_node);
    table_remove(&s->by_key, &slot->by_key);
    slot_free(slot);
}

/* Return a number for a new slot, or 0 if all numbers are in use. A model gets the number that has
 * been free for the longest time; a directory or text file gets one that was never used. */
static uint64_t free_node(struct slots *s, enum item_kind kind)
{
    if (kind != ITEM_MODEL)
        return s->last_other < UINT32_MAX ? ++s->last_other : 0;
    if (s->by_node.n >= INO_MAX_SLOTS - 1)
        return 0;
    do
        s->last = s->last + 1 < INO_MAX_SLOTS ? s->last + 1 : 1;
    while (slots_at(s, ino_in_slot(s->last, INO_ROOT)));
    return ino_in_slot(s->last, INO_ROOT);
}

/* Make a slot that takes ownership of the item's paths and place. Returns NULL if there is no
 * memory or no free number. */
static struct slot *new_slot(struct slots *s, struct item *i, uint64_t key, uint64_t stamp)
{
    struct slot *slot = calloc(1, sizeof(*slot));
    const uint64_t node = slot ? free_node(s, i->kind) : 0;
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
    slot->seed = xxh64(stamp, &key, sizeof(key));
    slot->place = i->place;
    slot->path = i->path;
    slot->real = i->real;
    slot->stamp = stamp;
    slot->shards = i->shards;
    slot->store = i->store;
    slot->above = i->above;
    slot->behind = i->behind;
    i->place = (struct place){0};
    i->path = i->real = NULL;
    return slot;
}

/* ---- open and closed models ---- */

/* Return the maximum number of descriptors that an open model uses: one to read each file, one to
 * edit the first file, and one each for its directory, for the history, and for a file being
 * written. The log of tensors' drafts and a journal use one each. */
static size_t files_of(const struct slots *s, const struct slot *slot)
{
    return (slot->shards ? slot->shards : 1) + (s->opt->tree.tensors ? 6 : 4);
}

struct opened slots_opened(const struct slots *s)
{
    struct opened o = {0};
    for (struct slot *slot = s->first; slot; slot = slot->next) {
        o.n++;
        o.files += files_of(s, slot);
        o.closing += slot->busy;
        o.closing_files += slot->busy ? files_of(s, slot) : 0;
        if (slot_rests(slot) && o.rest++ == 0)
            o.oldest = slot;
    }
    return o;
}

static void unlist(struct slots *s, struct slot *slot)
{
    *(slot->prev ? &slot->prev->next : &s->first) = slot->next;
    *(slot->next ? &slot->next->prev : &s->end) = slot->prev;
    slot->prev = slot->next = NULL;
}

/* Add a slot to the list as the most recently used. */
static void enlist(struct slots *s, struct slot *slot)
{
    slot->prev = s->end;
    *(s->end ? &s->end->next : &s->first) = slot;
    s->end = slot;
}

/* Add a line for each note about a model, beginning with the model's path below the shelf's
 * directory. */
static void add_notes(const struct slot *slot, const struct buf *notes, struct buf *out)
{
    const struct slots *s = slot->slots;
    const char *name = slot->path;
    char shown[SHOW_MAX];
    if (notes->len == 0)
        return;
    if (path_below(name, s->reach->path))
        name += strlen(s->reach->path) + (s->reach->path[1] != '\0');
    (void)show(shown, name, strlen(name));
    for (struct note n = {0}; unsaved_next(notes, &n);)
        buf_printf(out, "%s: %s: %s\n", shown, n.path, n.why);
}

/* Drop the notes about earlier files at a slot's path. */
static void drop_older_notes(struct slots *s, const struct slot *slot)
{
    struct link *l = table_first(&s->by_key, slot->by_key.hash);
    for (struct link *next; l; l = next) {
        struct slot *other = SLOT_OF(l, by_key);
        next = table_next(l);
        if (other == slot || other->tree || other->busy || !same_text(other->path, slot->path))
            continue;
        buf_free(&other->notes);
        slots_drop(s, other);
    }
}

/* Close the model of a slot that was marked busy for this purpose, if its tree allows that. The
 * tree is queried without the lock held. */
static void close_slot(struct slots *s, struct slot *slot)
{
    struct buf notes = BUF_INIT;
    lock_take(&mount_lock);
    const bool old = slot->spent || slot->replaced || slot->used <= when_now().tv_sec - SLOT_IDLE;
    lock_drop(&mount_lock);
    /* Soon after the last use, a program that is saving a file may still need its helpers. */
    const bool idle = tree_idle(slot->tree, old);
    lock_take(&mount_lock);
    struct tree *t =
        s->stop || (idle && slot->uses == 0) ? slot->tree : NULL; /* the slot may be in use again */
    if (t && !s->stop) { /* save the numbers from which the next tree continues */
        ids_unref(slot->left.ids);
        tree_leave(t, &slot->left);
        slot->stamp = slot->left.identity;
        slot->spent |= tree_is_full(&slot->left);
    }
    if (t) {
        slot->tree = NULL;
        lock_drop(&mount_lock);
        int e = tree_finish(t);
        tree_notes(t, &notes);
        tree_close(t);
        lock_take(&mount_lock);
        s->failed = s->failed ? s->failed : e;
        slot->notes = notes;
        if (notes.len)
            drop_older_notes(s, slot);
    }
    slot->busy = false;
    unlist(s, slot);
    if (!t)
        enlist(s, slot); /* the next sweep tries the other slots first */
    slots_drop(s, slot);
    cond_broadcast(&s->done);
    lock_drop(&mount_lock);
}

static bool closing_turn(struct pool_job *j, struct timespec *again)
{
    struct slot *slot = (struct slot *)((char *)j - offsetof(struct slot, closing));
    (void)again;
    close_slot(slot->slots, slot);
    return false;
}

/* Start closing the model of an unused slot. Returns false if no thread is available. Call with the
 * lock held. */
static bool begin_to_close(struct slot *slot)
{
    slot->busy = pool_do(&slot->closing, closing_turn) == 0;
    return slot->busy;
}

/* Start closing models that have not been used for a minute, and unused models beyond the limits.
 * Separate threads close them, because a file on a hung disk is not closed until the disk answers.
 * Call with the lock held. */
static void close_idle(struct slots *s)
{
    const time_t before = when_now().tv_sec - SLOT_IDLE;
    for (struct opened o; (o = slots_opened(s)).oldest;) {
        const bool many = o.files - o.closing_files > s->files_most && o.rest > SLOTS_IDLE_LEAST;
        if (o.rest <= SLOTS_IDLE_MAX && !many && o.oldest->used > before)
            return;
        if (!begin_to_close(o.oldest))
            return;
    }
}

/* Close idle models. The pool calls this every few seconds while models are open. */
static bool sweep(struct pool_job *j, struct timespec *again)
{
    struct slots *s = (struct slots *)((char *)j - offsetof(struct slots, sweep));
    LOCKED(&mount_lock);
    if (s->stop)
        return false;
    close_idle(s);
    *again = when_after(SLOT_SWEEP * 1000);
    return s->first != NULL;
}

/* ---- uses ---- */

static void slot_begin(struct slot *slot, struct tree *t, struct use *ret)
{
    slot->uses++;
    slot->used = when_now().tv_sec;
    *ret = (struct use){slot, t};
}

/* Start closing an unused slot immediately if its file has been replaced or changed. */
static void slot_expire(struct slot *slot)
{
    if (slot_rests(slot) && (slot->replaced || slot->spent)) {
        slot->used = 0;
        (void)begin_to_close(slot);
    }
}

/* End a use that began with uses++, without changing the time of last use. */
static void slot_let_go(struct slots *s, struct slot *slot)
{
    if (--slot->uses == 0)
        cond_broadcast(&s->done); /* the slot may be closed now */
    slot_expire(slot);
    slots_drop(s, slot);
}

void slot_leave(struct use *u)
{
    struct slot *slot = u->slot;
    *u = (struct use){0};
    if (!slot)
        return;
    struct slots *s = slot->slots;
    LOCKED(&mount_lock);
    slot->used = when_now().tv_sec;
    if (slot->tree) {
        unlist(s, slot);
        enlist(s, slot);
    }
    slot_let_go(s, slot);
}

/* ---- lookups ---- */

/* Returns true if the item's model is open and being edited, and only its own tree has changed its
 * file. */
static bool changed_by_edits(struct slots *s, const struct item *i, uint64_t key)
{
    struct use u = {0};
    lock_take(&mount_lock);
    struct slot *slot = find(s, i, key, NULL);
    if (slot)
        slot_begin(slot, slot->tree, &u);
    lock_drop(&mount_lock);
    if (!slot)
        return false;
    const bool same = !tree_changed(u.tree);
    lock_take(&mount_lock);
    slot->spent |= !same;
    lock_drop(&mount_lock);
    slot_leave(&u);
    return same;
}

/* Record that `slot` is now at an item's path, so that the slots for earlier files at that path are
 * closed. Call with the lock held. */
static void replaces(struct slots *s, const struct slot *slot, const struct item *i, uint64_t key)
{
    struct link *l = table_first(&s->by_key, key);
    for (struct link *next; l; l = next) {
        struct slot *other = SLOT_OF(l, by_key);
        next = table_next(l);
        other->replaced = other != slot && is_slot_of(other, i);
        slot_expire(other);
    }
}

int slot_of(struct slots *s, struct item *i, uint64_t *ret)
{
    const uint64_t key = item_key(i);
    uint64_t stamp = i->kind == ITEM_FOLDER ? 0 : tree_identity_with(0, &i->st);
    int e = 0;
    if (i->shards || i->error.code)
        e = files_stamp(s->reach, i->behind ? i->real : i->path, i->shards, &stamp);
    char *why = e == 0 && i->error.code ? strdup(i->error.msg) : NULL;
    if (e < 0 || (i->error.code && !why))
        return e < 0 ? e : -ENOMEM;
    const bool same = changed_by_edits(s, i, key);
    lock_take(&mount_lock);
    struct slot *slot = same ? find(s, i, key, NULL) : NULL;
    if (!slot)
        slot = find(s, i, key, &stamp);
    replaces(s, slot, i, key);
    if (!slot)
        slot = new_slot(s, i, key, stamp);
    if (slot) {
        slot->st = i->st;
        slot->grant = i->grant;
        slot->looked = when_now();
        slot->lookups++;
        if (why || !slot->failed) {
            free(slot->why);
            slot->why = why;
            slot->failed = 0;
            why = NULL;
        }
        *ret = slot->node;
    }
    lock_drop(&mount_lock);
    free(why);
    return slot ? 0 : -ENOMEM;
}

bool slot_look(struct slot *slot, uint64_t rights)
{
    LOCKED(&mount_lock);
    bool changed = slot->rights && slot->rights != rights;
    slot->rights = rights;
    return changed;
}

void slot_facts(struct slot *slot, struct stat *st, struct grant *g)
{
    struct slots *s = slot->slots;
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    lock_take(&mount_lock);
    bool due = when_past(&slot->looked, LOOK_AGAIN);
    if (due)
        slot->looked = when_now();
    *st = slot->st;
    *g = slot->grant;
    lock_drop(&mount_lock);
    const bool same = due && slot->real && reach_again(s->reach, slot->real, &f) == 0 &&
                      f.st.st_dev == st->st_dev && f.st.st_ino == st->st_ino;
    if (!same) /* not due, or the file is gone or was replaced: keep the previous facts */
        return;
    *g = found_grant(s->reach, &f, slot->above);
    lock_take(&mount_lock);
    slot->grant = *g;
    if (slot->kind != ITEM_MODEL) /* a model's `st` must match the slot's state of the file */
        slot->st = *st = f.st;
    lock_drop(&mount_lock);
}

void slot_known(struct slot *slot)
{
    LOCKED(&mount_lock);
    slot->lookups++;
}

void slot_forget(struct slots *s, uint64_t node, uint64_t local, uint64_t n)
{
    lock_take(&mount_lock);
    struct slot *slot = slots_at(s, node);
    if (slot)
        slot->uses++;
    struct tree *t = slot ? slot->tree : NULL;
    lock_drop(&mount_lock);
    if (t)
        tree_forget(t, local, n); /* this may close a file */
    if (!slot)
        return;
    lock_take(&mount_lock);
    slot->lookups -= n < slot->lookups ? n : slot->lookups;
    slot_let_go(s, slot);
    lock_drop(&mount_lock);
}

/* Wait until a model that is being closed releases its descriptors, but at most a second, because
 * its disk may be hung. Returns true if a model has released them. Call with the lock held; it is
 * released during the wait. */
static bool wait_for_close(struct slots *s)
{
    const struct timespec until = when_after(SLOT_PATIENCE);
    const unsigned before = slots_opened(s).n;
    struct opened o;
    while ((o = slots_opened(s)).closing && o.n >= before)
        if (!lock_wait(&mount_lock, &s->done, &until))
            return false;
    return o.n < before;
}

/* Close the least recently used model to free its descriptors. Returns false if no model was
 * closed. */
static bool make_room(struct slots *s)
{
    const struct opened o = slots_opened(s);
    if (o.oldest)
        (void)begin_to_close(o.oldest);
    return wait_for_close(s);
}

/* ---- two names of one file ---- */

static struct slot *editor_of(const struct slots *s, dev_t dev, ino_t ino)
{
    for (struct slot *slot = s->first; slot; slot = slot->next)
        if (slot->tree && tree_edits(slot->tree, dev, ino))
            return slot;
    return NULL;
}

/* Free a file that one tree needs to edit but a second tree has locked under a different name,
 * by closing the second tree if it is no longer in use. Returns true if locking should be tried
 * again. */
static bool make_free(void *arg, dev_t dev, ino_t ino, struct err *why)
{
    struct slots *s = arg;
    struct slot *slot;
    const struct timespec until = when_after(SLOT_PATIENCE);
    bool early = true, found = false, waited = false, tried = false;
    lock_take(&mount_lock);
    while (((slot = editor_of(s, dev, ino)) || slots_opened(s).closing) && early) {
        bool rests = slot && slot_rests(slot);
        if (rests && (tried || !begin_to_close(slot)))
            break; /* the model has unwritten data */
        tried |= rests;
        found |= slot != NULL;
        waited = early = lock_wait(&mount_lock, &s->done, &until);
    }
    if (slot) {
        char shown[SHOW_MAX];
        (void)show(shown, slot->path, strlen(slot->path));
        (void)err_set(why, -EWOULDBLOCK, "the file is edited in this mount as %s", shown);
    }
    lock_drop(&mount_lock);
    return !slot && (found || waited);
}

/* ---- opening a model ---- */

/* Open the tree of a slot that was marked busy for this purpose. Call without the lock held. */
static int open_tree(struct slots *s, const struct slot *slot, struct tree **ret, struct err *e)
{
    struct tree_options o = s->opt->tree;
    struct tree *t = NULL;
    const char *what;
    uint64_t now;
    o.base = slot->above ? NULL : s->reach->path;
    o.wait = NULL; /* another process's lock must not delay readers */
    o.late = true;
    o.refused = make_free;
    o.refused_arg = s;
    o.before = &slot->left;
    o.log.label = slot->path;
    o.read_only |= slot->store;
    o.why = slot->store && !s->opt->tree.read_only
                ? "it lies in a store of models: edit a copy of model.gguf (cp --no-preserve=mode)"
                : NULL;
    int r = tree_open(slot->path, &o, &t, e);
    /*
     * The tree must have opened exactly the files that the rules of reach.h lead to. If it has not,
     * although those files have not changed since the name was looked up, then it opened a file
     * that the rules forbid.
     */
    if (r == 0 && tree_identity(t) != slot->stamp) {
        r = files_stamp(s->reach, slot_files(slot), slot->shards, &now);
        r = r == 0 && now == slot->stamp
                ? err_set(e, -EACCES,
                          "one of its files is reached through a link that is not followed")
                : err_set(e, -ESTALE, "the file was changed");
    }
    if (r < 0) {
        tree_close(t);
        return r;
    }
    for (unsigned i = 0; (what = tree_warning(t, i)); i++)
        logger_log(&o.log, LOG_WARNING, "%s", what);
    *ret = t;
    return 0;
}

/* Open a slot that is closed and not busy. Call with the lock held; it is released while the model
 * is opened. */
static int open_slot(struct slots *s, struct slot *slot, struct err *e)
{
    struct err why = {0};
    struct tree *t = NULL;
    const struct timespec later = when_after(SLOT_SWEEP * 1000);
    int r;
    slot->busy = true;
    /* Wait for descriptors, because many models may be opened in a row. */
    while (slots_opened(s).files > s->files_most && wait_for_close(s))
        ;
    do {
        lock_drop(&mount_lock);
        r = open_tree(s, slot, &t, &why);
        lock_take(&mount_lock);
    } while ((r == -EMFILE || r == -ENFILE) && make_room(s));
    slot->busy = false;
    cond_broadcast(&s->done);
    if (r == 0) {
        slot->tree = t;
        tree_recall(t, &slot->notes);
        enlist(s, slot);
        free(slot->why);
        slot->why = NULL;
        slot->failed = 0;
        /* If the sweep cannot join the pool, models are closed only when other models are
         * opened. */
        if (!s->sweeps)
            s->sweeps = pool_join(&s->sweep, sweep) == 0;
        if (s->sweeps)
            pool_call_at(&s->sweep, &later);
    } else if (r == -ESTALE) {
        slot->spent = true;
    } else if (r != -ENOMEM && r != -EMFILE && r != -ENFILE) {
        free(slot->why);
        slot->why = strdup(why.msg);
        slot->failed = when_now().tv_sec;
    }
    if (e)
        *e = why;
    return r;
}

/* ---- using a slot ---- */

int slot_hold(struct slots *s, uint64_t node, struct use *ret)
{
    lock_take(&mount_lock);
    struct slot *slot = slots_at(s, node);
    if (slot)
        slot_begin(slot, NULL, ret);
    lock_drop(&mount_lock);
    return slot ? 0 : -ESTALE;
}

int slot_use(struct slots *s, uint64_t node, struct use *ret, struct err *e)
{
    int r = slot_hold(s, node, ret);
    if (r < 0)
        return r;
    struct slot *slot = ret->slot;
    lock_take(&mount_lock);
    while (slot->busy)
        (void)lock_wait(&mount_lock, &s->done, NULL);
    bool closed = !slot->tree;
    if (closed && slot->spent)
        r = -ESTALE;
    else if (closed && slot->why &&
             (!slot->failed || when_now().tv_sec - slot->failed < SLOT_RETRY))
        r = err_set(e, -EIO, "%s", slot->why);
    if (closed && r == 0)
        r = open_slot(s, slot, e);
    ret->tree = slot->tree;
    if (r == 0 && closed)
        close_idle(s);
    lock_drop(&mount_lock);
    if (r < 0)
        slot_leave(ret);
    return r;
}

/* ---- all slots ---- */

void slots_init(struct slots *s, struct reach *r, const struct shelf_options *o)
{
    *s = (struct slots){.reach = r, .opt = o};
    cond_init(&s->done);
    struct rlimit files;
    s->files_most = SLOTS_FILES_MOST;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 2 < s->files_most)
        s->files_most = files.rlim_cur / 2;
}

int slots_each(struct slots *s, void (*call)(const struct use *u, void *arg), void *arg)
{
    lock_take(&mount_lock);
    unsigned n = 0;
    struct use *u = calloc(slots_opened(s).n + 1, sizeof(*u));
    for (struct slot *slot = s->first; u && slot; slot = slot->next)
        if (slot->tree) {
            slot->uses++;
            u[n++] = (struct use){slot, slot->tree};
        }
    lock_drop(&mount_lock);
    for (unsigned i = 0; i < n; i++) {
        call(&u[i], arg);
        lock_take(&mount_lock);
        slot_let_go(s, u[i].slot);
        lock_drop(&mount_lock);
    }
    bool all = u != NULL;
    free(u);
    return all ? 0 : -ENOMEM;
}

static void tell_open(const struct use *u, void *out)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    tree_notes(u->tree, &notes);
    add_notes(u->slot, &notes, out);
}

void slots_unsaved(struct slots *s, struct buf *out)
{
    lock_take(&mount_lock);
    for (struct link *l = table_each(&s->by_node, NULL); l; l = table_each(&s->by_node, l))
        if (!SLOT_OF(l, by_node)->tree)
            add_notes(SLOT_OF(l, by_node), &SLOT_OF(l, by_node)->notes, out);
    lock_drop(&mount_lock);
    (void)slots_each(s, tell_open, out);
}

/* Close all trees, including those already being closed, in separate threads, so that a hung disk
 * does not delay other models. If no thread is available, a tree is closed here. */
int slots_finish(struct slots *s)
{
    lock_take(&mount_lock);
    s->stop = true;
    lock_drop(&mount_lock);
    if (s->sweeps)
        pool_leave(&s->sweep);
    s->sweeps = false;
    lock_take(&mount_lock);
    for (struct slot *slot = s->first; slot; slot = slot->next) {
        if (slot->tree)
            /* start writing now, so that no tree waits for the trees before it */
            tree_hurry(slot->tree);
        if (!slot->busy)
            (void)begin_to_close(slot);
    }
    while (slots_opened(s).closing)
        (void)lock_wait(&mount_lock, &s->done, NULL);
    for (struct slot *slot; (slot = s->first);) {
        slot->busy = true;
        lock_drop(&mount_lock);
        close_slot(s, slot);
        lock_take(&mount_lock);
    }
    int failed = s->failed;
    lock_drop(&mount_lock);
    return failed;
}

void slots_free(struct slots *s)
{
    (void)slots_finish(s);
    for (struct link *l = table_each(&s->by_node, NULL), *next; l; l = next) {
        next = table_each(&s->by_node, l);
        slot_free(SLOT_OF(l, by_node));
    }
    table_free(&s->by_node);
    table_free(&s->by_key);
    cond_destroy(&s->done);
}
