/* SPDX-License-Identifier: MIT */
/* The models of a shelf: see slots.h. */
#include "shelf/slots.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/when.h"
#include "base/lock.h"
#include "model/split.h"
#include "shelf/own.h"
#include "shelf/store.h"

time_t slots_now(void)
{
    struct timespec t = when_now();
    return t.tv_sec;
}

/* ---- what identifies a model ---- */

/* One file, with those before it. 0, -ENOMEM. */
static int stamp_file(struct reach *r, const struct found *dir, const char *name, uint64_t *stamp)
{
    struct found f = FOUND_NONE;
    int is = name ? reach_open(r, dir, name, REACH_LINKS, &f) : -ENOMEM;
    if (is == -ENOMEM || is == -EMFILE || is == -ENFILE) /* this says nothing of the file */
        return is;
    *stamp = tree_identity_with(*stamp, is == 0 ? &f.st : &(struct stat){.st_size = is});
    reach_close(&f);
    return 0;
}

/* The number of the file of a split model that is `first`, or the next one that the folder has;
 * `shards`: no more of them. Names between them that only look similar are passed over. */
static size_t next_shard(const struct names *names, const char *first, size_t shards)
{
    size_t n = strlen(first) - SPLIT_TAIL;
    for (size_t at = names_from(names, first); at < names->n; at++) {
        const char *name = name_at(names, at);
        if (strncmp(name, first, n + 1) != 0)
            break;
        if (strlen(name) == n + SPLIT_TAIL && split_count(name) == shards)
            return strtoul(name + n + 1, NULL, 10) - 1; /* it has five digits, and is not 0 */
    }
    return shards;
}

/* The files of a split model. Its name may stand for many more files than there are: those are not
 * looked for. */
static int stamp_split(struct reach *r, const struct found *dir, const char *name, size_t shards,
                       uint64_t *stamp)
{
    const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e < 0 && e != -ENOMEM)
        e = 0; /* it may be searched, but not read */
    for (size_t i = 0; e == 0 && i < shards; i++) {
        char *shard = split_sibling(name, i, shards);
        size_t next = names && shard ? next_shard(names, shard, shards) : i;
        for (; i < next; i++)
            *stamp = tree_identity_with(*stamp, &(struct stat){.st_size = -ENOENT});
        if (names && shard && next < shards) {
            free(shard);
            shard = split_sibling(name, i, shards);
        }
        if (i < shards)
            e = stamp_file(r, dir, shard, stamp);
        free(shard);
    }
    names_free(r, names);
    return e;
}

/* Of the file at `path`, by which a model is opened, or of all files of a split model: what
 * tree_identity() is of a tree that has these open. */
int slot_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret)
{
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    struct found dir = FOUND_NONE;
    int e = folder ? reach_again(r, folder, &dir) : -ENOMEM;
    *ret = 0;
    if (e == 0)
        e = shards ? stamp_split(r, &dir, slash + 1, shards, ret)
                   : stamp_file(r, &dir, slash + 1, ret);
    reach_close(&dir);
    free(folder);
    return e;
}

/* ---- slots ---- */

static uint64_t model_hash(const char *path, uint64_t stamp)
{
    return hash_name(path, strlen(path)) ^ stamp;
}

struct slot *slots_at(const struct slots *s, uint32_t number)
{
    for (struct link *l = table_first(&s->by_number, number); l; l = table_next(l))
        if (SLOT_OF(l, by_number)->number == number)
            return SLOT_OF(l, by_number);
    return NULL;
}

/* True if a slot is of this model, in whichever state: what differs has other rights, is edited or
 * not, or leads elsewhere. */
static bool is_slot_of(const struct slot *slot, const struct item *i)
{
    bool real = slot->real && i->real ? strcmp(slot->real, i->real) == 0 : slot->real == i->real;
    return real && strcmp(slot->path, i->path) == 0 && slot->store == i->store &&
           slot->above == i->above && slot->behind == i->behind;
}

static struct slot *by_model(const struct slots *s, const struct item *i, uint64_t stamp)
{
    struct link *l = table_first(&s->by_path, hash_name(i->path, strlen(i->path)));
    for (; l; l = table_next(l)) {
        struct slot *slot = SLOT_OF(l, by_path);
        if (!slot->spent && slot->stamp == stamp && is_slot_of(slot, i))
            return slot;
    }
    return NULL;
}

/* The open slot of a model that is edited, whose file is changed by that. Under the lock. */
static struct slot *edited(const struct slots *s, const struct item *i)
{
    struct link *l = table_first(&s->by_path, hash_name(i->path, strlen(i->path)));
    for (; l; l = table_next(l)) {
        struct slot *slot = SLOT_OF(l, by_path);
        if (slot->tree && !slot->spent && is_slot_of(slot, i) && tree_edited(slot->tree))
            return slot;
    }
    return NULL;
}

void slot_free(struct slot *slot)
{
    free(slot->path);
    free(slot->real);
    free(slot->why);
    buf_free(&slot->notes);
    renumber_free(&slot->renumber);
    free(slot);
}

/* Once the kernel has forgotten its nodes; the number is for the same state of the same file only. */
void slots_drop(struct slots *s, struct slot *slot)
{
    if (slot->lookups || slot->uses || slot->tree || slot->busy || slot->notes.len)
        return;
    if (!slot->spent && !slot->edited)
        numbers_keep(&s->numbers, model_hash(slot->path, slot->stamp), slot->number);
    table_remove(&s->by_number, &slot->by_number);
    table_remove(&s->by_path, &slot->by_path);
    slot_free(slot);
}

static struct slot *new_slot(struct slots *s, const struct item *i, uint64_t stamp)
{
    struct slot *slot = calloc(1, sizeof(*slot));
    if (!slot)
        return NULL;
    slot->path = strdup(i->path);
    slot->real = i->real ? strdup(i->real) : NULL;
    slot->stamp = stamp;
    slot->shards = i->shards;
    slot->store = i->store;
    slot->above = i->above;
    slot->behind = i->behind;
    uint32_t before = numbers_take(&s->numbers, model_hash(i->path, stamp));
    slot->number = before ? before : s->last + 1;
    if (!slot->path || (i->real && !slot->real) ||
        table_add(&s->by_number, &slot->by_number, slot->number) < 0) {
        slot_free(slot);
        return NULL;
    }
    if (table_add(&s->by_path, &slot->by_path, hash_name(i->path, strlen(i->path))) < 0) {
        table_remove(&s->by_number, &slot->by_number);
        slot_free(slot);
        return NULL;
    }
    s->last += before == 0;
    return slot;
}

void slot_rest(struct slots *s, struct slot *slot)
{
    if (!slot->tree || slot->busy || slot->uses || slot->rests)
        return;
    slot->rests = true;
    slot->older = s->newest;
    if (s->newest)
        s->newest->newer = slot;
    else
        s->oldest = slot;
    s->newest = slot;
    s->n_rest++;
}

void slot_rouse(struct slots *s, struct slot *slot)
{
    if (!slot->rests)
        return;
    if (slot->older)
        slot->older->newer = slot->newer;
    else
        s->oldest = slot->newer;
    if (slot->newer)
        slot->newer->older = slot->older;
    else
        s->newest = slot->older;
    slot->older = slot->newer = NULL;
    slot->rests = false;
    s->n_rest--;
}

/* Another file took its place: the first to be closed, at once. */
static void slot_expire(struct slots *s, struct slot *slot)
{
    if (!slot->rests || !(slot->replaced || slot->spent))
        return;
    slot_rouse(s, slot);
    slot->rests = true;
    slot->newer = s->oldest;
    if (s->oldest)
        s->oldest->older = slot;
    else
        s->newest = slot;
    s->oldest = slot;
    s->n_rest++;
    slot->used = 0;
    cond_signal(&s->wake);
}

void slot_begin(struct slots *s, struct slot *slot, struct tree *t, struct use *ret)
{
    slot->uses++;
    slot_rouse(s, slot);
    slot->used = slots_now();
    *ret = (struct use){slot, t};
}

void slot_let_go(struct slots *s, struct slot *slot)
{
    if (--slot->uses == 0)
        cond_broadcast(&s->done); /* it may be closed now */
    slot_rest(s, slot);
    slot_expire(s, slot);
    slots_drop(s, slot);
}

void slot_leave(struct slots *s, struct use *u)
{
    lock_take(&s->lock);
    u->slot->used = slots_now();
    slot_let_go(s, u->slot);
    lock_drop(&s->lock);
    *u = (struct use){0};
}

static bool use_edited(struct slots *s, const struct item *i, struct use *ret)
{
    lock_take(&s->lock);
    struct slot *slot = edited(s, i);
    if (slot)
        slot_begin(s, slot, slot->tree, ret);
    lock_drop(&s->lock);
    return slot != NULL;
}

static void spend(struct slots *s, struct slot *slot)
{
    lock_take(&s->lock);
    slot->spent = true;
    lock_drop(&s->lock);
}

/* What is at a path now is `slot`: of other files that were there no room is to be taken any more. Under
 * the lock. */
static void replaces(struct slots *s, struct slot *slot, const struct item *i)
{
    struct link *l = table_first(&s->by_path, hash_name(i->path, strlen(i->path)));
    for (struct link *next; l; l = next) {
        struct slot *other = SLOT_OF(l, by_path);
        next = table_next(l);
        other->replaced = other != slot && is_slot_of(other, i);
        slot_expire(s, other);
    }
}

/* What identifies a model that was just found: the file itself, if that is all of it. */
static int stamp_of(struct slots *s, const struct item *i, uint64_t *ret)
{
    if (i->shards || i->error.code)
        return slot_stamp(s->reach, item_files(i), i->shards, ret);
    *ret = tree_identity_with(0, &i->st);
    return 0;
}

/* Its rights: those that were found before as long as its file is unchanged, or within a second. */
static struct grant grant_now(struct slots *s, const struct item *i, uint64_t stamp, bool *again)
{
    struct grant g;
    lock_take(&s->lock);
    const struct slot *slot = by_model(s, i, stamp);
    bool soon = slot && !when_past(&slot->looked, LOOK_AGAIN) &&
                slot->st.st_ctim.tv_sec == i->st.st_ctim.tv_sec &&
                slot->st.st_ctim.tv_nsec == i->st.st_ctim.tv_nsec;
    bool known = soon || (slot && grant_stays(i->real, i->above, &slot->st, &i->st));
    if (known)
        g = slot->grant;
    lock_drop(&s->lock);
    *again = !known;
    return known ? g : grant_of_item(s->reach, i);
}

int slot_of(struct slots *s, const struct item *i, uint32_t *ret)
{
    uint64_t stamp;
    int e = stamp_of(s, i, &stamp);
    bool again = false;
    struct grant grant = e == 0 ? grant_now(s, i, stamp, &again) : (struct grant){0};
    char *why = i->error.code ? strdup(i->error.msg) : NULL;
    if (e < 0 || (i->error.code && !why)) {
        free(why);
        return e < 0 ? e : -ENOMEM;
    }
    struct use u;
    bool same = false; /* it was changed by nobody but its own tree */
    if (use_edited(s, i, &u)) {
        same = !tree_changed(u.tree);
        if (!same)
            spend(s, u.slot);
        slot_leave(s, &u);
    }
    lock_take(&s->lock);
    struct slot *slot = same ? edited(s, i) : NULL;
    if (!slot)
        slot = by_model(s, i, stamp);
    if (!slot)
        slot = s->last + 1 < INO_MAX_SLOTS ? new_slot(s, i, stamp) : NULL;
    if (slot) {
        slot->st = i->st;
        slot->grant = grant;
        if (again)
            slot->looked = when_now();
        slot->lookups++;
        replaces(s, slot, i);
        if (why || !slot->failed) {
            free(slot->why);
            slot->why = why;
            slot->failed = 0;
            why = NULL;
        }
        *ret = slot->number;
    }
    e = slot ? 0 : s->last + 1 < INO_MAX_SLOTS ? -ENOMEM : -ENFILE;
    lock_drop(&s->lock);
    free(why);
    return e;
}

bool slot_look(struct slots *s, const struct use *u, uint64_t rights)
{
    LOCKED(&s->lock);
    bool changed = u->slot->rights && u->slot->rights != rights;
    u->slot->rights = rights;
    u->slot->told &= !changed;
    return changed;
}

bool slot_tell(struct slots *s, const struct use *u)
{
    LOCKED(&s->lock);
    bool tell = u->slot->rights && !u->slot->told;
    u->slot->told = true;
    return tell;
}

/* Of one whose file is gone, or is another one: those of before. */
static void look_again(struct slots *s, struct slot *slot)
{
    struct item i = {.real = slot->real, .above = slot->above, .st = slot->st};
    struct found f = FOUND_NONE;
    bool same = slot->real && reach_again(s->reach, slot->real, &f) == 0 &&
                f.st.st_dev == slot->st.st_dev && f.st.st_ino == slot->st.st_ino;
    i.st = f.st;
    const struct grant g = same ? grant_of_item(s->reach, &i) : (struct grant){0};
    reach_close(&f);
    if (!same)
        return;
    lock_take(&s->lock);
    slot->grant = g;
    lock_drop(&s->lock);
}

void slot_facts(struct slots *s, const struct use *u, struct stat *st, struct grant *g)
{
    struct slot *slot = u->slot;
    lock_take(&s->lock);
    bool due = when_past(&slot->looked, LOOK_AGAIN);
    if (due)
        slot->looked = when_now();
    lock_drop(&s->lock);
    if (due)
        look_again(s, slot);
    lock_take(&s->lock);
    *st = slot->st;
    *g = slot->grant;
    lock_drop(&s->lock);
}

void slot_known(struct slots *s, uint32_t number)
{
    lock_take(&s->lock);
    struct slot *slot = slots_at(s, number);
    if (slot)
        slot->lookups++;
    lock_drop(&s->lock);
}

void slot_forget(struct slots *s, uint32_t number, uint64_t local, uint64_t n)
{
    lock_take(&s->lock);
    struct slot *slot = slots_at(s, number);
    if (slot)
        slot->uses++;
    struct tree *t = slot ? slot->tree : NULL;
    lock_drop(&s->lock);
    if (t && renumber_in(&slot->renumber, local, &local))
        tree_forget(t, local, n); /* may close a file */
    if (!slot)
        return;
    lock_take(&s->lock);
    slot->lookups -= n < slot->lookups ? n : slot->lookups;
    slot_let_go(s, slot);
    lock_drop(&s->lock);
}
