/* SPDX-License-Identifier: MIT */
/* Places and items: see place.h. */
#include "shelf/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/split.h"
#include "shelf/store.h"

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
                      .links = p->links};
    bool ok = n.path != NULL;
    for (unsigned i = 0; i < n.links; i++)
        ok &= (n.passed[i] = strdup(p->passed[i])) != NULL;
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
    for (unsigned i = 0; i < p->links; i++)
        free(p->passed[i]);
    *p = (struct place){0};
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool place_same(const struct place *a, const struct place *b)
{
    bool same_way = a->links == b->links;
    for (unsigned i = 0; same_way && i < a->links; i++)
        same_way = strcmp(a->passed[i], b->passed[i]) == 0;
    return same_way && a->kind == b->kind && a->store == b->store && same_text(a->path, b->path) &&
           same_text(a->part[0], b->part[0]) && same_text(a->part[1], b->part[1]) &&
           same_text(a->part[2], b->part[2]);
}

int place_follow(const struct place *p, struct place *below)
{
    below->passed[below->links] = strdup(p->path);
    below->links += below->passed[below->links] != NULL;
    return below->links > p->links ? 0 : -ENOMEM;
}

/* True if the real path `path` is the folder at `above`, or below it. */
static bool is_below(const char *path, const char *above)
{
    size_t n = strlen(above);
    return strncmp(path, above, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

bool place_goes_round(const struct reach *r, const struct place *p, const char *path)
{
    bool round = p->links == PLACE_LINKS_MAX || is_below(p->path, path) || is_below(r->path, path);
    for (unsigned i = 0; i < p->links && !round; i++)
        round = is_below(p->passed[i], path);
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

int item_folder(const struct place *p, struct found *f, struct place *place, struct item *ret)
{
    *ret = (struct item){.kind = ITEM_FOLDER,
                         .place = *place,
                         .st = f->st,
                         .path = f->path,
                         .above = f->linked ? 0 : strlen(p->path),
                         .store = place->store};
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
    struct item i = {.kind = kind, .above = strlen(p->path), .store = p->store};
    if (asprintf(&i.path, "%s/%s", dir->path[1] ? dir->path : "", name) < 0)
        return -ENOMEM;
    int e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == 0 && !S_ISREG(f.st.st_mode))
        e = S_ISDIR(f.st.st_mode) ? -EISDIR : -EINVAL;
    if (e == 0) {
        i.above = f.linked ? 0 : i.above;
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

/* 1: the first of the n files of a split model is beside `path`, also if rules forbid to follow it. */
static int has_first(struct reach *r, const char *path, size_t n)
{
    struct found dir = FOUND_NONE, f = FOUND_NONE;
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    char *first = split_sibling(slash + 1, 0, n);
    int e = folder && first ? reach_again(r, folder, &dir) : -ENOMEM;
    if (e == 0)
        e = reach_open(r, &dir, first, REACH_LINKS, &f);
    reach_close(&f);
    reach_close(&dir);
    free(folder);
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
