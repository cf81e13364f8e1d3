/* SPDX-License-Identifier: MIT */
/* The shelf's own nodes: see own.h. */
#include "shelf/own.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/when.h"
#include "tree/ino.h"

/* Seconds after which it is looked at again. */
#define OWN_LOOK 1
#define OWN_OF(l, member) ((struct own *)((char *)(l)-offsetof(struct own, member)))

/* Rights of i->real, where it is. False if they cannot be found out: then the owner alone has them. */
static bool grant_at(struct reach *r, const struct item *i, const char *base, struct grant *ret)
{
    struct rights all = RIGHTS_INIT;
    struct found f = FOUND_NONE;
    bool known = reach_again(r, i->real, &f) == 0 &&
                 rights_add_real(&all, f.fd, i->real, base) == 0 &&
                 rights_settle(&all, geteuid(), false) == 0;
    *ret = known ? all.own : (struct grant){.uid = i->st.st_uid, .gid = i->st.st_gid, .bits = 0700};
    rights_free(&all);
    reach_close(&f);
    return known;
}

void granted_look(struct reach *r, const struct item *i, struct granted *g)
{
    if (!i->real) { /* nothing is behind it but a link, and a line that says why */
        *g = (struct granted){.grant = {i->st.st_uid, i->st.st_gid, 0777, false, 0}};
        return;
    }
    char *above =
        i->above ? strndup(i->real, i->above) : NULL; /* what leads there is shown itself */
    const char *base = above ? above : r->path;
    const uint64_t stamp = above || !i->above ? rights_stamp(&i->st, i->real, base) : 0;
    if (!stamp || stamp != g->stamp) /* a look that failed is repeated */
        g->stamp = grant_at(r, i, base, &g->grant) ? stamp : 0;
    free(above);
}

void owns_init(struct owns *o)
{
    *o = (struct owns){.last = 1}; /* the number of the root, which comes first */
    lock_init(&o->lock);
}

static void free_own(struct own *n)
{
    place_free(&n->place);
    free(n->real);
    free(n);
}

void owns_free(struct owns *o)
{
    for (size_t i = 0; i < o->by_number.room; i++)
        for (struct link *l = o->by_number.bucket[i], *next; l; l = next) {
            next = l->next;
            free_own(OWN_OF(l, by_number));
        }
    table_free(&o->by_number);
    table_free(&o->by_key);
    lock_destroy(&o->lock);
}

static void add_part(struct buf *b, const char *text)
{
    buf_str(b, text ? text : "");
    buf_char(b, '\0');
}

/* By what a node is found again: of a folder its place, of a text the file and its time. */
static uint64_t key_of(const struct item *i)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_char(&b, (char)i->kind);
    if (i->kind == ITEM_FOLDER) {
        buf_char(&b, (char)i->place.kind);
        add_part(&b, i->place.path);
        for (int k = 0; k < 3; k++)
            add_part(&b, i->place.part[k]);
    } else {
        add_part(&b, i->real);
    }
    return buf_error(&b) ? 0 : hash_name(b.data, b.len);
}

static bool same(const struct own *n, const struct item *i)
{
    if (n->kind != i->kind || n->above != i->above)
        return false;
    if (n->kind == ITEM_FOLDER)
        return place_same(&n->place, &i->place);
    return strcmp(n->real, i->real) == 0 && n->st.st_ino == i->st.st_ino &&
           n->st.st_dev == i->st.st_dev && n->st.st_size == i->st.st_size &&
           n->st.st_mtim.tv_sec == i->st.st_mtim.tv_sec &&
           n->st.st_mtim.tv_nsec == i->st.st_mtim.tv_nsec;
}

/* Under the lock. The place and the real path pass to it. */
static struct own *new_own(struct owns *o, struct item *i, uint64_t key)
{
    struct own *n = calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    *n = (struct own){
        .number = o->last, .kind = i->kind, .above = i->above, .place = i->place, .real = i->real};
    n->ino = n->number == INO_ROOT ? INO_ROOT : key | (uint64_t)1 << 63;
    if (table_add(&o->by_number, &n->by_number, n->number) < 0 ||
        table_add(&o->by_key, &n->by_key, key) < 0) {
        if (o->by_number.n > o->by_key.n)
            table_remove(&o->by_number, &n->by_number);
        free(n);
        return NULL;
    }
    i->place = (struct place){0};
    i->real = NULL;
    o->last++;
    return n;
}

/* Under the lock. */
static struct own *find(const struct owns *o, uint32_t number)
{
    struct own *found = NULL;
    for (struct link *l = table_first(&o->by_number, number); l && !found; l = table_next(l))
        found = OWN_OF(l, by_number);
    return found;
}

/* Under the lock. */
static void drop(struct owns *o, struct own *n)
{
    if (n->lookups || n->uses)
        return;
    table_remove(&o->by_number, &n->by_number);
    table_remove(&o->by_key, &n->by_key);
    free_own(n);
}

/* Under the lock. NULL: it was not found before. */
static struct own *find_same(struct owns *o, const struct item *i, uint64_t key)
{
    struct own *found = NULL;
    for (struct link *l = table_first(&o->by_key, key); l && !found; l = table_next(l))
        found = same(OWN_OF(l, by_key), i) ? OWN_OF(l, by_key) : NULL;
    return found;
}

/* What it gives now. */
static struct granted granted_now(struct owns *o, struct reach *r, const struct item *i,
                                  uint64_t key)
{
    struct granted g = {0};
    lock_take(&o->lock);
    const struct own *known = find_same(o, i, key);
    if (known)
        g = known->granted;
    lock_drop(&o->lock);
    granted_look(r, i, &g);
    return g;
}

int own_of(struct owns *o, struct reach *r, struct item *i, uint32_t *ret)
{
    uint64_t key = key_of(i);
    const struct granted g = granted_now(o, r, i, key);
    lock_take(&o->lock);
    struct own *found = find_same(o, i, key);
    if (!found)
        found = o->last < UINT32_MAX ? new_own(o, i, key) : NULL;
    if (found) {
        found->st = i->st;
        found->granted = g;
        found->looked = when_now();
        found->lookups++;
        *ret = found->number;
    }
    lock_drop(&o->lock);
    return found ? 0 : -ENOMEM;
}

struct own *own_use(struct owns *o, uint32_t number)
{
    lock_take(&o->lock);
    struct own *n = find(o, number);
    if (n)
        n->uses++;
    lock_drop(&o->lock);
    return n;
}

void own_leave(struct owns *o, struct own *n)
{
    if (!n)
        return;
    lock_take(&o->lock);
    n->uses--;
    drop(o, n);
    lock_drop(&o->lock);
}

void own_forget(struct owns *o, uint32_t number, uint64_t n)
{
    lock_take(&o->lock);
    struct own *own = number == INO_ROOT ? NULL : find(o, number); /* the root stays */
    if (own) {
        own->lookups -= n < own->lookups ? n : own->lookups;
        drop(o, own);
    }
    lock_drop(&o->lock);
}

void own_facts(struct owns *o, struct reach *r, struct own *n, struct stat *st, struct grant *g)
{
    struct item i = {.real = n->real, .above = n->above};
    struct found f = FOUND_NONE;
    lock_take(&o->lock);
    bool due = when_past(&n->looked, OWN_LOOK);
    if (due)
        n->looked = when_now();
    struct granted now = n->granted;
    *st = n->st;
    *g = now.grant;
    lock_drop(&o->lock);
    bool same =
        due && n->real && reach_again(r, n->real, &f) == 0 && f.st.st_dev == st->st_dev &&
        f.st.st_ino == st->st_ino; /* of one that is gone, or another one: what it was before */
    i.st = f.st;
    reach_close(&f);
    if (!same)
        return;
    granted_look(r, &i, &now);
    lock_take(&o->lock);
    n->st = *st = i.st;
    n->granted = now;
    *g = now.grant;
    lock_drop(&o->lock);
}
