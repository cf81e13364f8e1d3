/* SPDX-License-Identifier: MIT */
/* The table of kinds of stores: see place.h. */
#include "shelf/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/store.h"

/* A place whose folder is recognised when it is opened has a function for that. */
static const struct {
    const struct store *store;
    bool (*is)(struct reach *r, const struct found *dir);
} kinds[PLACE_KINDS] = {
    [PLACE_FOLDER] = {&store_plain, NULL},
    [PLACE_REPO] = {&store_repo, is_repo},
    [PLACE_ORG] = {&store_org, NULL},
    [PLACE_OLLAMA] = {&store_ollama, is_ollama},
    [PLACE_OLLAMA_HOST] = {&store_ollama_host, NULL},
    [PLACE_OLLAMA_SPACE] = {&store_ollama_space, NULL},
    [PLACE_OLLAMA_MODEL] = {&store_ollama_model, NULL},
};

/* ---- places ---- */

int place_top(struct reach *r, struct place *ret)
{
    *ret = (struct place){.kind = PLACE_FOLDER, .path = strdup(r->path)};
    return ret->path ? 0 : -ENOMEM;
}

int place_make(const struct place *p, enum place_kind kind, const char *path, const char *a,
               const char *b, const char *c, struct place *ret)
{
    const char *part[] = {a, b, c};
    struct place n = {.kind = kind,
                      .path = strdup(path ? path : p->path),
                      .store = p->store || kind != PLACE_FOLDER,
                      .linked = p->linked,
                      .links = p->links};
    bool ok = n.path != NULL;
    for (int i = 0; i < 3; i++) {
        n.part[i] = part[i] ? strdup(part[i]) : NULL;
        ok &= !part[i] || n.part[i];
    }
    if (!ok) {
        place_free(&n);
        return -ENOMEM;
    }
    *ret = n;
    return 0;
}

int place_copy(const struct place *p, struct place *ret)
{
    int r = place_make(p, p->kind, NULL, p->part[0], p->part[1], p->part[2], ret);
    if (r == 0)
        ret->store = p->store;
    return r;
}

void place_free(struct place *p)
{
    free(p->path);
    for (int i = 0; i < 3; i++)
        free(p->part[i]);
    *p = (struct place){0};
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool place_same(const struct place *a, const struct place *b)
{
    return a->kind == b->kind && a->store == b->store && same_text(a->path, b->path) &&
           same_text(a->part[0], b->part[0]) && same_text(a->part[1], b->part[1]) &&
           same_text(a->part[2], b->part[2]);
}

/* ---- items ---- */

void item_free(struct item *i)
{
    place_free(&i->place);
    free(i->path);
    free(i->real);
    *i = (struct item){0};
}

int item_folder(struct found *f, struct place *place, struct item *ret)
{
    *ret = (struct item){.kind = ITEM_FOLDER,
                         .place = *place,
                         .st = f->st,
                         .path = f->path,
                         .store = place->store,
                         .linked = place->linked || f->linked};
    ret->place.linked = ret->linked;
    ret->real = strdup(f->path);
    f->path = NULL;
    reach_close(f);
    if (ret->real)
        return 0;
    item_free(ret);
    return -ENOMEM;
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
    struct found f = FOUND_NONE;
    struct item i = {.kind = kind, .store = p->store, .linked = p->linked};
    if (asprintf(&i.path, "%s/%s", dir->path[1] ? dir->path : "", name) < 0)
        return -ENOMEM;
    int e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == 0 && !S_ISREG(f.st.st_mode))
        e = S_ISDIR(f.st.st_mode) ? -EISDIR : -EINVAL;
    if (e == 0) {
        i.linked |= f.linked;
        i.st = f.st;
        i.real = f.path;
        f.path = NULL;
    } else {
        (void)err_set(&i.error, e, "%s", why_not(e));
    }
    reach_close(&f);
    *ret = i;
    return 0;
}

/* ---- the calls ---- */

/* The folder of a place, and what it is at this moment. */
static int open_place(struct reach *r, const struct place *p, struct found *dir,
                      const struct store **store)
{
    int e = reach_again(r, p->path, dir);
    if (e == 0 && !S_ISDIR(dir->st.st_mode))
        e = -ENOTDIR;
    if (e < 0) {
        reach_close(dir);
        return e == -ELOOP || e == -ENOTDIR ? -ENOENT : e;
    }
    *store = kinds[p->kind].store;
    for (int k = 0; p->kind == PLACE_FOLDER && !p->store && k < PLACE_KINDS; k++)
        if (kinds[k].is && kinds[k].is(r, dir))
            *store = kinds[k].store;
    return 0;
}

int place_list(struct reach *r, const struct place *p, struct listing *ret)
{
    struct found dir = FOUND_NONE;
    struct listing l = LISTING_INIT;
    const struct store *store;
    int e = open_place(r, p, &dir, &store);
    if (e < 0)
        return e;
    e = store->list(r, p, &dir, &l);
    if (e == 0)
        e = listing_end(&l);
    reach_close(&dir);
    if (e == 0)
        *ret = l;
    else
        listing_free(&l);
    return e;
}

static int find_in_list(const struct listing *l, const char *name, struct ref *ref)
{
    size_t i = listing_find(l, name);
    if (i == SIZE_MAX)
        return -ENOENT;
    *ref = entry_ref(l, i);
    return 0;
}

int place_find(struct reach *r, const struct place *p, const struct listing *list, const char *name,
               struct item *ret)
{
    char room[2 * (TREE_NAME_MAX + 1)], raw[TREE_NAME_MAX + 1];
    struct found dir = FOUND_NONE;
    struct listing own = LISTING_INIT;
    const struct store *store;
    struct ref ref = {.b = ""};
    if (name[0] == '.' || strlen(name) > TREE_NAME_MAX)
        return -ENOENT;
    int e = open_place(r, p, &dir, &store);
    if (e < 0)
        return e;
    e = shown_name(name, raw);
    if (e == 0)
        e = raw[0] == '.' ? -ENOENT : store->find(r, p, &dir, raw, room, &ref);
    else if (e == -ENAMETOOLONG)
        e = -EAGAIN;
    if (e == -EAGAIN && !list) {
        e = store->list(r, p, &dir, &own);
        if (e == 0)
            e = listing_end(&own);
        list = &own;
        e = e == 0 ? -EAGAIN : e;
    }
    if (e == -EAGAIN)
        e = find_in_list(list, name, &ref);
    if (e == 0)
        e = store->item(r, p, &dir, &ref, ret);
    listing_free(&own);
    reach_close(&dir);
    return e;
}

int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret)
{
    struct found dir = FOUND_NONE;
    const struct store *store;
    int e = open_place(r, p, &dir, &store);
    if (e == 0)
        e = store->item(r, p, &dir, ref, ret);
    reach_close(&dir);
    return e;
}
