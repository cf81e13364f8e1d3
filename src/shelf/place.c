/* SPDX-License-Identifier: MIT */
/* Places and items: see place.h. */
#include "shelf/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/count.h"
#include "base/path.h"
#include "model/split.h"
#include "shelf/folder.h"
#include "shelf/ollama.h"
#include "tree/tree.h"

/* ---- places ---- */

int place_make(const struct place *p, enum place_kind kind, const char *path, const char *sub,
               bool linked, struct place *ret)
{
    struct buf b = BUF_INIT;
    path = path ? path : p->path;
    buf_add(&b, path, strlen(path) + 1);
    buf_add(&b, sub, strlen(sub) + 1);
    const size_t passed = b.len;
    if (p->links)
        buf_add(&b, p->passed, p->len - (size_t)(p->passed - p->path));
    if (linked)
        buf_add(&b, p->path, strlen(p->path) + 1);
    if (buf_error(&b)) {
        buf_free(&b);
        return -ENOMEM;
    }
    *ret = (struct place){.kind = kind,
                          .store = p->store || kind != PLACE_FOLDER,
                          .len = b.len,
                          .links = p->links + linked};
    ret->path = (char *)buf_steal(&b);
    ret->sub = ret->path + strlen(ret->path) + 1;
    ret->passed = ret->path + passed;
    return 0;
}

int place_top(const struct reach *r, struct place *ret)
{
    return place_make(&(struct place){0}, PLACE_FOLDER, r->path, "", false, ret);
}

void place_free(struct place *p)
{
    free(p->path);
    *p = (struct place){0};
}

bool place_same(const struct place *a, const struct place *b)
{
    return a->kind == b->kind && a->store == b->store && a->len == b->len &&
           memcmp(a->path, b->path, a->len) == 0;
}

bool place_goes_round(const struct reach *r, const struct place *p, const char *path)
{
    bool round =
        p->links == PLACE_LINKS_MAX || path_below(p->path, path) || path_below(r->path, path);
    const char *passed = p->passed;
    for (unsigned i = 0; i < p->links && !round; i++, passed += strlen(passed) + 1)
        round = path_below(passed, path);
    return round;
}

/* ---- items ---- */

void item_free(struct item *i)
{
    place_free(&i->place);
    free(i->path);
    free(i->real);
    *i = (struct item){0};
}

struct grant found_grant(const struct reach *r, const struct found *f, size_t above)
{
    struct grant g = {f->st.st_uid, f->st.st_gid, 0700};
    char *shown = above ? strndup(f->path, above) : NULL; /* what leads there is itself shown */
    if (shown || !above)
        (void)grant_of_real(f->fd, &f->st, f->path, shown ? shown : r->path, &g);
    free(shown);
    return g;
}

int item_folder(const struct reach *r, const struct place *p, struct found *f, struct place *place,
                struct item *ret)
{
    const size_t above = f->linked ? 0 : strlen(p->path);
    *ret = (struct item){.kind = ITEM_FOLDER,
                         .place = *place,
                         .st = f->st,
                         .path = f->path,
                         .above = above,
                         .grant = found_grant(r, f, above),
                         .store = place->store};
    ret->real = strdup(f->path);
    f->path = NULL;
    reach_close(f);
    if (ret->real)
        return 0;
    item_free(ret);
    return -ENOMEM;
}

int item_below(const struct reach *r, const struct place *p, struct found *f, bool linked,
               bool store, struct item *ret)
{
    struct place below;
    int e = linked && place_goes_round(r, p, f->path)
                ? -ENOENT
                : place_make(p, PLACE_FOLDER, f->path, "", linked, &below);
    if (e < 0) {
        reach_close(f);
        return e;
    }
    f->linked |= linked;
    below.store |= store;
    return item_folder(r, p, f, &below, ret);
}

static const char *why_not(int e)
{
    if (e == -EINVAL)
        return "is not a regular file";
    return e == -EXDEV ? "is in a mount of ggufs" : strerror(-e);
}

int item_file(struct reach *r, const struct place *p, const struct found *dir, const char *name,
              enum item_kind kind, struct item *ret)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    struct item i = {
        .kind = kind, .above = strlen(p->path), .store = p->store, .grant = {.bits = 0777}};
    if (asprintf(&i.path, "%s/%s", dir->path[1] ? dir->path : "", name) < 0)
        return -ENOMEM;
    int e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == 0 && !S_ISREG(f.st.st_mode))
        e = S_ISDIR(f.st.st_mode) ? -EISDIR : -EINVAL;
    if (e == 0) {
        i.above = f.linked ? 0 : i.above;
        i.st = f.st;
        i.grant = found_grant(r, &f, i.above);
        i.real = f.path;
        f.path = NULL;
    } else {
        (void)err_set(&i.error, e, "%s", why_not(e));
    }
    *ret = i;
    return 0;
}

/* 1: the first of the n files of a split model is beside `path`, even if rules forbid following it. */
static int has_first(struct reach *r, const char *path, size_t n)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE, f = FOUND_NONE;
    char *first = split_sibling(path_name(path), 0, n);
    int e = first ? reach_around(r, path, &dir) : -ENOMEM;
    if (e == 0)
        e = reach_open(r, &dir, first, REACH_LINKS, &f);
    free(first);
    return e == -ENOMEM ? e : e != -ENOENT;
}

static int find_files(struct reach *r, struct item *i)
{
    size_t behind = i->real ? split_count(i->real) : 0;
    i->shards = split_count(i->path);
    if (behind == 0 || strcmp(i->path, i->real) == 0)
        return 0;
    int here = i->shards ? has_first(r, i->path, i->shards) : 0;
    int there = here == 0 && i->shards ? has_first(r, i->real, behind) : here == 0;
    if (here < 0 || there < 0)
        return -ENOMEM;
    i->behind = there;
    i->shards = there ? behind : i->shards;
    return 0;
}

int item_model(struct reach *r, const struct place *p, const struct found *dir, const char *name,
               struct item *ret)
{
    int e = item_file(r, p, dir, name, ITEM_MODEL, ret);
    if (e == 0 && (e = find_files(r, ret)) < 0)
        item_free(ret);
    return e;
}

/* ---- listings ---- */

/* Store a text with its terminator, and return its offset. 0, -ENOMEM. */
static int add_text(struct buf *texts, const char *text, uint32_t *ret)
{
    size_t at = texts->len, n = strlen(text) + 1;
    if (at + n > UINT32_MAX)
        return -ENOMEM;
    buf_add(texts, text, n);
    *ret = (uint32_t)at;
    return buf_error(texts);
}

static uint64_t hash_text(const char *text)
{
    return hash_name(text, strlen(text));
}

/* When the index is full, it is rebuilt with a larger size. */
static int make_room(struct listing *l)
{
    struct index bigger;
    size_t room = l->room ? 2 * l->room : 64;
    int r = array_grow(&l->entry, &l->cap, l->n, sizeof(*l->entry));
    if (r < 0 || l->n < l->room)
        return r;
    if (l->n >= UINT32_MAX / 4 || index_init(&bigger, room) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < l->n; i++)
        index_insert(&bigger, hash_text(entry_name(l, i)), (uint32_t)i);
    index_free(&l->index);
    l->index = bigger;
    l->room = room;
    return 0;
}

static size_t listing_find(const struct listing *l, const char *name)
{
    uint32_t i;
    if (l->n == 0)
        return SIZE_MAX;
    for (struct probe p = index_probe(&l->index, hash_text(name)); index_next(&l->index, &p, &i);)
        if (strcmp(entry_name(l, i), name) == 0)
            return i;
    return SIZE_MAX;
}

bool listing_has(const struct listing *l, const char *name)
{
    char shown[TREE_NAME_MAX + 1];
    (void)name_encode(name, strlen(name), shown);
    return listing_find(l, shown) != SIZE_MAX;
}

int listing_add(struct listing *l, const char *name, const struct ref *ref)
{
    char shown[TREE_NAME_MAX + 1];
    struct entry e = {.kind = ref->kind, .shards = ref->shards, .sure = ref->sure};
    (void)name_encode(name, strlen(name), shown);
    for (unsigned k = 2; listing_find(l, shown) != SIZE_MAX; k++) {
        char *numbered;
        int n = asprintf(&numbered, "%s~%u", name, k);
        if (n < 0)
            return -ENOMEM;
        (void)name_encode(numbered, (size_t)n, shown);
        free(numbered);
    }
    int r = make_room(l);
    if (r == 0)
        r = add_text(&l->texts, shown, &e.name);
    if (r == 0)
        r = strcmp(shown, ref->a) == 0 ? (int)(e.a = e.name, 0) : add_text(&l->texts, ref->a, &e.a);
    if (r == 0)
        r = add_text(&l->texts, ref->b ? ref->b : "", &e.b);
    if (r < 0)
        return r;
    l->entry[l->n] = e;
    index_insert(&l->index, hash_text(shown), (uint32_t)l->n);
    l->n++;
    return 0;
}

static int by_name(const void *a, const void *b, void *texts)
{
    const struct entry *x = a, *y = b;
    return strcmp((const char *)texts + x->name, (const char *)texts + y->name);
}

/* All are added. */
static void sort(struct listing *l)
{
    if (l->n && !l->of)
        qsort_r(l->entry, l->n, sizeof(*l->entry), by_name, l->texts.data);
    index_free(&l->index);
}

static void made_free(struct names_listing *made)
{
    struct listing *l = (struct listing *)((char *)made - offsetof(struct listing, made));
    listing_free(l);
    free(l);
}

bool listing_kept(const struct names *names, const struct place *p, struct listing *ret)
{
    const struct names_listing *made = atomic_load(&names->made);
    const struct listing *l =
        made ? (const void *)((const char *)made - offsetof(struct listing, made)) : NULL;
    if (!l || l->store != p->store)
        return false;
    *ret = *l;
    ret->of = names_ref(names);
    return true;
}

void listing_keep(const struct names *names, const struct place *p, struct listing *l)
{
    struct listing *kept = malloc(sizeof(*kept));
    struct names_listing *none = NULL;
    sort(l);
    if (!kept)
        return;
    *kept = *l;
    kept->store = p->store;
    kept->made.free = made_free;
    if (atomic_compare_exchange_strong(&((struct names *)names)->made, &none, &kept->made))
        l->of = names_ref(names);
    else
        free(kept);
}

struct ref entry_ref(const struct listing *l, size_t i)
{
    const struct entry *e = &l->entry[i];
    const char *texts = (const char *)l->texts.data;
    return (struct ref){e->kind, e->shards, texts + e->a, texts + e->b, e->sure};
}

void listing_free(struct listing *l)
{
    if (l->of) {
        names_free(&l->of);
    } else {
        free(l->entry);
        buf_free(&l->texts);
        index_free(&l->index);
    }
    *l = LISTING_INIT;
}

/* ---- the calls ---- */

/* Open the directory of a place. */
static int open_place(struct reach *r, const struct place *p, struct found *dir)
{
    int e = reach_again(r, p->path, dir);
    if (e == 0 && !S_ISDIR(dir->st.st_mode))
        e = -ENOTDIR;
    if (e < 0)
        reach_close(dir);
    return e == -ELOOP || e == -ENOTDIR ? -ENOENT : e;
}

/* What a place shows, by name. */
static int list(struct reach *r, const struct place *p, const struct found *dir,
                struct listing *ret)
{
    *ret = LISTING_INIT;
    int e = p->kind == PLACE_ORG      ? hub_list(r, p, dir, ret)
            : p->kind == PLACE_OLLAMA ? ollama_list(r, p, dir, ret)
                                      : folder_list(r, p, dir, ret);
    if (e < 0)
        listing_free(ret);
    else
        sort(ret);
    return e;
}

static int item_of(struct reach *r, const struct place *p, const struct found *dir,
                   const struct ref *ref, struct item *ret)
{
    switch (ref->kind) {
    case REF_ORG:
    case REF_REVISION:
        return hub_item(r, p, dir, ref, ret);
    case REF_OLLAMA:
    case REF_LAYER:
    case REF_TEXT:
        return ollama_item(r, p, dir, ref, ret);
    default:
        return folder_item(r, p, dir, ref, ret);
    }
}

int place_list(struct reach *r, const struct place *p, struct listing *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    struct listing l;
    int e = open_place(r, p, &dir);
    if (e == 0)
        e = list(r, p, &dir, &l);
    if (e == 0)
        *ret = l;
    return e;
}

bool place_is_store(struct reach *r, const struct place *p)
{
    static const char *const hub[] = {".", "models--", "datasets--", "spaces--"};
    struct listing l = LISTING_INIT;
    bool some = false, others = false;
    if (place_list(r, p, &l) < 0)
        return false;
    for (size_t i = 0; i < l.n; i++) {
        bool own = l.entry[i].kind > REF_SPLIT;
        some |= own;
        for (size_t k = 0; k < COUNT(hub); k++)
            own |= strncmp(entry_name(&l, i), hub[k], strlen(hub[k])) == 0;
        others |= !own;
    }
    listing_free(&l);
    return some && !others;
}

/* What is not sure to be shown is not there. */
static int item_shown(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    const int e = item_of(r, p, dir, ref, ret);
    return e < 0 && ref->sure == REF_UNSURE && !is_shortage(e) ? -ENOENT : e;
}

int place_find(struct reach *r, const struct place *p, const char *name, struct item *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    CLEANUP(listing_free) struct listing l = LISTING_INIT;
    int e = open_place(r, p, &dir);
    if (e == 0)
        e = list(r, p, &dir, &l);
    size_t low = 0, high = e == 0 ? l.n : 0;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (strcmp(entry_name(&l, mid), name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (e == 0 && (low == l.n || strcmp(entry_name(&l, low), name) != 0))
        e = -ENOENT;
    if (e < 0)
        return e;
    const struct ref ref = entry_ref(&l, low);
    return item_shown(r, p, &dir, &ref, ret);
}

int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    int e = open_place(r, p, &dir);
    return e < 0 ? (ref->sure == REF_UNSURE && !is_shortage(e) ? -ENOENT : e)
                 : item_shown(r, p, &dir, ref, ret);
}

/* ---- identity ---- */

/* Add one file to the stamp so far. 0, -ENOMEM. */
static int stamp_file(struct reach *r, const struct found *dir, const char *name, uint64_t *stamp)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    int is = name ? reach_open(r, dir, name, REACH_LINKS, &f) : -ENOMEM;
    if (is == -ENOMEM || is == -EMFILE || is == -ENFILE) /* this says nothing about the file */
        return is;
    *stamp = tree_identity_with(*stamp, is == 0 ? &f.st : &(struct stat){.st_size = is});
    return 0;
}

/*
 * The number of the file of a split model that is `first`, or of the next one in the directory;
 * `shards`: there are no more. Names in between that only look similar are skipped.
 */
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

/* The files of a split model. Its name may claim many more files than exist: those are not searched for. */
static int stamp_split(struct reach *r, const struct found *dir, const char *name, size_t shards,
                       uint64_t *stamp)
{
    CLEANUP(names_free) const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e < 0 && e != -ENOMEM)
        e = 0; /* it may be searched but not read */
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
    return e;
}

int files_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    int e = reach_around(r, path, &dir);
    *ret = 0;
    if (e < 0)
        return e;
    return shards ? stamp_split(r, &dir, path_name(path), shards, ret)
                  : stamp_file(r, &dir, path_name(path), ret);
}

int item_stamp(struct reach *r, const struct item *i, uint64_t *ret)
{
    if (i->shards || i->error.code)
        return files_stamp(r, item_files(i), i->shards, ret);
    *ret = i->kind == ITEM_FOLDER ? 0 : tree_identity_with(0, &i->st);
    return 0;
}

bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* ---- location ---- */

int item_key(const struct item *i, uint64_t *ret)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_char(&b, (char)i->kind);
    buf_char(&b, (char)i->place.kind);
    if (i->kind == ITEM_FOLDER)
        buf_add(&b, i->place.path, (size_t)(i->place.passed - i->place.path));
    else
        buf_str(&b, i->path);
    *ret = hash_name(b.data, b.len);
    return buf_error(&b);
}
