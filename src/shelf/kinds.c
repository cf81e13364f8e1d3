/* SPDX-License-Identifier: MIT */
/* The table of kinds of stores: a new kind is a row, and its functions in a file. See place.h. */
#include "shelf/store.h"

#include <errno.h>
#include <string.h>

/* A place whose folder is recognised when it is opened has a function for that. */
static const struct {
    const struct store_kind *store;
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

/* ---- the calls ---- */

/* The folder of a place, and what it is at this moment. */
static int open_place(struct reach *r, const struct place *p, struct found *dir,
                      const struct store_kind **store)
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
    const struct store_kind *store;
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
    const struct store_kind *store;
    struct ref ref = {.b = ""};
    if (strlen(name) > TREE_NAME_MAX)
        return -ENOENT;
    int e = open_place(r, p, &dir, &store);
    if (e < 0)
        return e;
    e = shown_name(name, raw);
    if (e == 0)
        e = is_hidden(raw) && store != &store_plain ? -ENOENT
            : !store->find                          ? -EAGAIN
                                                    : store->find(r, p, &dir, raw, room, &ref);
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
    const struct store_kind *store;
    int e = open_place(r, p, &dir, &store);
    if (e == 0)
        e = store->item(r, p, &dir, ref, ret);
    reach_close(&dir);
    return e;
}
