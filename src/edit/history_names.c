/* SPDX-License-Identifier: MIT */
/* The names of a history's folder: see history_names.h. */
#include "edit/history_names.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Twice what H3 allows: a folder with more was not made by this program. */
#define NAMES_MAX (2 * (HISTORY_BYTES_MAX / HISTORY_BLOCK))

void history_name_put(const struct history_name *n, char dst[HISTORY_NAME_MAX])
{
    (void)snprintf(dst, HISTORY_NAME_MAX, "%016" PRIx64 "-%" PRIx64 "-%" PRIx64 "-%" PRIx64,
                   n->hash, n->number, n->time, n->size);
}

bool history_name_get(const char *name, struct history_name *ret)
{
    char again[HISTORY_NAME_MAX];
    uint64_t part[4];
    const char *at = name;
    for (int i = 0; i < 4; i++) {
        char *end;
        errno = 0;
        part[i] = strtoull(at, &end, 16);
        if (errno || *end != (i < 3 ? '-' : '\0'))
            return false;
        at = end + 1;
    }
    *ret = (struct history_name){part[0], part[1], part[2], part[3]};
    history_name_put(ret, again); /* one spelling alone: no spaces, signs or capitals */
    return strcmp(name, again) == 0;
}

/* What a file takes: names are bounded as well as bytes. */
static uint64_t blocks(uint64_t size)
{
    return (size / HISTORY_BLOCK + 1) * HISTORY_BLOCK;
}

static int take_name(void *arg, const char *name)
{
    struct history_names *l = arg;
    struct history_name n;
    if (!history_name_get(name, &n) || n.size > HISTORY_BYTES_MAX)
        return 0;
    if (n.hash == 0 && n.number > l->floor)
        l->floor = n.number;
    if (l->n == NAMES_MAX)
        return -EFBIG;
    if (array_grow(&l->name, &l->cap, l->n, sizeof(*l->name)) < 0)
        return -ENOMEM;
    l->name[l->n++] = n;
    l->bytes += n.hash ? blocks(n.size) : 0;
    return 0;
}

int history_names_read(struct history *h, struct history_names *ret, struct err *e)
{
    *ret = HISTORY_NAMES_INIT;
    int r = h->sys->list(h->sys, h->place.dir, take_name, ret);
    if (r == -EFBIG)
        return err_set(e, r, "%s: it has more files than a history can have", h->place.path);
    return r < 0 ? err_set(e, r, "%s: cannot list it: %s", h->place.path, strerror(-r)) : 0;
}

void history_names_free(struct history_names *l)
{
    free(l->name);
    *l = HISTORY_NAMES_INIT;
}

uint64_t history_names_next(const struct history_names *l, uint64_t hash)
{
    uint64_t most = 0;
    for (size_t i = 0; i < l->n; i++)
        if (l->name[i].hash == hash && l->name[i].number > most)
            most = l->name[i].number;
    return (most ? most : l->floor) + 1;
}

/* ---- dropping ---- */

static int remove_name(struct history *h, const struct history_name *n, struct err *e)
{
    char name[HISTORY_NAME_MAX];
    history_name_put(n, name);
    int r = h->sys->unlinkat(h->sys, h->place.dir, name);
    if (r == 0 || r == -ENOENT)
        return 0;
    return err_set(e, r, "%s/%s: cannot remove it: %s", h->place.path, name, strerror(-r));
}

/* H2: no number up to this one is used again. The new floor is there before the old one goes. */
static int raise_floor(struct history *h, struct history_names *l, uint64_t number, struct err *e)
{
    char name[HISTORY_NAME_MAX];
    struct history_name floor = {.number = number};
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, r = 0;
    if (number <= l->floor)
        return 0;
    history_name_put(&floor, name);
    int fd = h->sys->openat(h->sys, h->place.dir, name, flags, 0600);
    if (fd < 0 && fd != -EEXIST)
        return err_set(e, fd, "%s: cannot make a file in it: %s", h->place.path, strerror(-fd));
    sys_close(h->sys, &fd);
    r = sys_sync_dir(h->sys, h->place.dir);
    if (r < 0)
        return err_set(e, r, "%s: cannot sync it: %s", h->place.path, strerror(-r));
    for (size_t i = 0; i < l->n && r == 0; i++)
        if (l->name[i].hash == 0)
            r = remove_name(h, &l->name[i], e);
    l->floor = number;
    return r;
}

/* Drop the first n of the list. */
static int drop_first(struct history *h, struct history_names *l, size_t n, struct err *e)
{
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (l->name[i].number > most)
            most = l->name[i].number;
    int r = n ? raise_floor(h, l, most, e) : 0;
    for (size_t i = 0; i < n && r == 0; i++)
        if (l->name[i].hash)
            r = remove_name(h, &l->name[i], e);
    return r;
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_time(const void *a, const void *b)
{
    const struct history_name *x = a, *y = b;
    int r = compare(x->time, y->time);
    r = r ? r : compare(x->number, y->number);
    return r ? r : compare(x->hash, y->hash);
}

static int by_number(const void *a, const void *b)
{
    const struct history_name *x = a, *y = b;
    return compare(x->number, y->number);
}

/* The names that `is` says, in front of the others. Returns how many they are. */
static size_t gather(struct history_names *l,
                     bool (*is)(const struct history_name *n, const struct history_name *of),
                     const struct history_name *of)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        struct history_name at = l->name[i];
        if (!is(&at, of))
            continue;
        l->name[i] = l->name[n];
        l->name[n++] = at;
    }
    return n;
}

static bool of_model(const struct history_name *n, const struct history_name *of)
{
    return n->hash == of->hash;
}

static bool is_other(const struct history_name *n, const struct history_name *of)
{
    return n->hash != 0 && by_time(n, of) != 0;
}

/* The oldest states of all models, until the rest is within the bound. */
static int prune_all(struct history *h, struct history_names *l, const struct history_name *kept,
                     struct err *e)
{
    size_t others = gather(l, is_other, kept), n = 0;
    if (others)
        qsort(l->name, others, sizeof(*l->name), by_time);
    while (n < others && l->bytes > HISTORY_BYTES_MAX)
        l->bytes -= blocks(l->name[n++].size);
    return drop_first(h, l, n, e);
}

/* Its oldest states beyond those that are kept. Its newest stays, and with it the largest number. */
static int prune_model(struct history *h, struct history_names *l, const struct history_name *kept,
                       struct err *e)
{
    size_t own = gather(l, of_model, kept), keep = h->keep;
    int r = 0;
    if (keep == HISTORY_KEEP_SAME)
        keep = own > HISTORY_KEEP ? own - 1 : HISTORY_KEEP;
    if (own <= keep)
        return 0;
    qsort(l->name, own, sizeof(*l->name), by_number);
    size_t n = own - keep;
    for (size_t i = 0; i < n && r == 0; i++) {
        l->bytes -= blocks(l->name[i].size);
        r = remove_name(h, &l->name[i], e);
    }
    memmove(l->name, l->name + n, (l->n - n) * sizeof(*l->name));
    l->n -= n;
    return r;
}

int history_names_prune(struct history *h, struct history_names *l, const struct history_name *kept,
                        struct err *e)
{
    int r = prune_model(h, l, kept, e);
    return r < 0 || l->bytes <= HISTORY_BYTES_MAX ? r : prune_all(h, l, kept, e);
}

int history_names_drop(struct history *h, struct history_names *l, size_t *n, struct err *e)
{
    const struct history_name model = {.hash = h->hash};
    *n = gather(l, of_model, &model);
    return drop_first(h, l, *n, e);
}
