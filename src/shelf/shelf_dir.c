/* SPDX-License-Identifier: MIT */
/* Listings of a shelf: see shelf.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/internal.h"

/* Where the entries that are not a tree's begin in a model's folder: beyond any cookie of a tree. */
#define EXTRA_COOKIE ((uint64_t)1 << 40)

/* To the kernel a number that is not known yet. */
#define UNKNOWN_INO 0xffffffff

struct shelf_dir {
    struct shelf *shelf;
    struct at at;
    struct own *own; /* in use: of the shelf itself, and what it held when it was opened */
    struct listing list;
    struct use use;        /* of a model; without a tree if it cannot be opened, or in `source` */
    struct tree_dir *tree; /* NULL: without one */
    bool broken;           /* the model cannot be opened */
};

static int load(struct shelf_dir *d)
{
    listing_free(&d->list);
    return place_list(&d->shelf->reach, &d->own->place, &d->list);
}

static int open_own(struct shelf_dir *d)
{
    d->own = own_use(&d->shelf->owns, (uint32_t)d->at.local);
    if (!d->own)
        return -ESTALE;
    return d->own->kind == ITEM_FOLDER ? load(d) : -ENOTDIR;
}

static int open_in_slot(struct shelf_dir *d)
{
    struct shelf *s = d->shelf;
    if (d->at.extra) {
        int r = slot_hold(&s->slots, d->at.slot, &d->use);
        return r == 0 && (d->at.extra != EXTRA_SOURCE || !d->use.slot->shards) ? -ENOTDIR : r;
    }
    int r = at_enter(s, &d->at, &d->use);
    if (r == 0)
        return tree_opendir(tree_in(&d->use), d->at.local, &d->tree);
    if (!d->at.model || r == -ESTALE || r == -ENOMEM)
        return r;
    d->broken = true;
    return slot_hold(&s->slots, d->at.slot, &d->use);
}

int shelf_opendir(struct shelf *s, uint64_t node, struct shelf_dir **ret)
{
    struct shelf_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->shelf = s;
    d->at = at_node(s, node);
    int r = d->at.own ? open_own(d) : open_in_slot(d);
    if (r < 0)
        shelf_closedir(d);
    else
        *ret = d;
    return r;
}

void shelf_closedir(struct shelf_dir *d)
{
    listing_free(&d->list);
    if (d->tree)
        tree_closedir(d->tree);
    at_leave(d->shelf, &d->use);
    own_leave(&d->shelf->owns, d->own);
    free(d);
}

bool shelf_dir_cacheable(const struct shelf_dir *d)
{
    return d->tree && tree_dir_cacheable(tree_in(&d->use), d->tree);
}

/* "." and "..", by their types. */
static void dot(const struct shelf_dir *d, uint64_t i, char name[TREE_NAME_MAX + 1],
                struct tree_entry *ret)
{
    uint64_t node = d->at.own ? d->at.local : ino_in_slot(d->at.slot, d->at.local);
    (void)strcpy(name, i ? ".." : ".");
    *ret = (struct tree_entry){.node = node,
                               .attr = {.st_ino = d->own ? d->own->ino : node, .st_mode = S_IFDIR}};
}

/*
 * An entry of the shelf's own folder. Only what is a file there is looked at for a listing with
 * attributes: behind a folder or a link may be a disk that does not answer.
 */
static int next_own(struct shelf_dir *d, uint64_t *cookie, bool attrs, char name[TREE_NAME_MAX + 1],
                    struct tree_entry *ret)
{
    for (size_t i = (size_t)(*cookie - 2); i < d->list.n; i++) {
        const struct entry *e = &d->list.entry[i];
        struct ref ref = entry_ref(&d->list, i);
        struct item item;
        mode_t type = entry_is_folder(e) ? S_IFDIR : S_IFREG;
        (void)strcpy(name, entry_name(&d->list, i));
        *cookie = i + 3;
        *ret = (struct tree_entry){.attr = {.st_ino = UNKNOWN_INO, .st_mode = type}};
        if (!attrs || !e->here)
            return 1;
        int r = place_item(&d->shelf->reach, &d->own->place, &ref, &item);
        if (r == 0)
            r = item_entry(d->shelf, &item, ret);
        if (r == 0)
            return 1;
        if (r != -ENOENT)
            return r;
    }
    return 0;
}

static int next_extra(struct shelf_dir *d, uint64_t *cookie, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct shelf *s = d->shelf;
    uint64_t i = *cookie < EXTRA_COOKIE ? 0 : *cookie - EXTRA_COOKIE;
    const struct slot *slot = d->use.slot;
    uint32_t extra = slot ? extra_at(slot, d->at.extra, d->broken, (size_t)i, name) : 0;
    if (!extra)
        return 0;
    *cookie = EXTRA_COOKIE + i + 1;
    int r = attrs ? extra_entry(s, d->at.slot, extra, ret) : 0;
    if (r == 0 && attrs) {
        slot_known(&s->slots, d->at.slot);
        return 1;
    }
    uint64_t node = ino_in_slot(d->at.slot, extra_ino(extra));
    bool folder = extra == EXTRA_SOURCE && slot->shards;
    *ret = (struct tree_entry){.attr = {.st_ino = node,
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
        r = tree_readdir(tree_in(&d->use), d->tree, cookie, attrs, name, ret);
        if (r <= 0 && !(r == 0 && d->at.model))
            return r;
    }
    if (r > 0) {
        entry_in_slot(&d->use, ret);
        bool dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        if (attrs && ret->node && !dots && !d->shelf->one)
            slot_known(&d->shelf->slots, d->at.slot);
        return r;
    }
    if (*cookie < 2 && !d->tree) {
        if (*cookie == 0 && d->own && (r = load(d)) < 0) /* rewound: as it is now */
            return r;
        dot(d, (*cookie)++, name, ret);
        return 1;
    }
    return d->own ? next_own(d, cookie, attrs, name, ret) : next_extra(d, cookie, attrs, name, ret);
}
