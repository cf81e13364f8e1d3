/* SPDX-License-Identifier: MIT */
/* Finds the models that paths refer to: see models.h. */
#include "shelf/models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "shelf/place.h"

/* ---- entries ---- */

static void free_model(struct model_path *m)
{
    free(m->path);
    free(m->label);
    free(m->why);
}

/* Add a model with copies of these strings; label and why may be NULL. */
static int put(struct models *m, const char *path, const char *label, const char *why,
               struct model_path new)
{
    new.path = strdup(path);
    new.label = label ? strdup(label) : NULL;
    new.why = why ? strdup(why) : NULL;
    if (!new.path || (label && !new.label) || (why && !new.why) ||
        array_grow(&m->model, &m->cap, m->n, sizeof(*m->model)) < 0) {
        free_model(&new);
        return -ENOMEM;
    }
    m->model[m->n++] = new;
    return 0;
}

/* Add a file. If it belongs to a split model, add that model instead, unless that model is already
 * listed. */
static int add_file(struct models *m, const char *path)
{
    struct shards s;
    int r = shards_find(&s, path);
    if (r < 0)
        return r;
    char *first = shards_path(&s, 0);
    size_t i = s.n ? 0 : m->n;
    while (first && i < m->n && strcmp(m->model[i].path, first) != 0)
        i++;
    if (!first)
        r = -ENOMEM;
    else if (i == m->n)
        r = put(m, first, NULL, NULL, (struct model_path){.shards = s.n});
    free(first);
    shards_free(&s);
    return r;
}

/* ---- mounts ---- */

#define FUSE_MAGIC 0x65735546 /* FUSE_SUPER_MAGIC in statfs(2) */

/* Return true for the directory of a model in a mount, which has the path of the model's file. On other
 * file systems, anyone can set that attribute. */
static bool is_mounted(const char *folder)
{
    struct statfs fs;
    return statfs(folder, &fs) == 0 && fs.f_type == FUSE_MAGIC &&
           getxattr(folder, "user.gguf.source", NULL, 0) > 0;
}

/* Add a model in a mount. Its file model.gguf has all edits. */
static int add_mounted(struct models *m, const char *folder)
{
    char *path;
    if (asprintf(&path, "%s/model.gguf", folder) < 0)
        return -ENOMEM;
    int r = put(m, path, folder, NULL, (struct model_path){.mounted = true});
    free(path);
    return r;
}

/* ---- directories ---- */

/* Add a model that was found. Skips what is not a regular file or is inside a ggufs mount. A
 * dangling link is added; a model with a broken manifest is added with its error. The path of a
 * model in a store is not its name. */
static int add_model(struct models *m, const struct shelf_item *i, const char *label)
{
    const bool broken = i->error == -EBADMSG || i->error == -EFBIG;
    if (i->error == -EINVAL || i->error == -EXDEV)
        return 0;
    return put(m, i->store ? i->path : label, i->store ? label : NULL, broken ? i->why : NULL,
               (struct model_path){.shards = i->shards, .error = broken ? i->error : 0});
}

static int walk(struct models *m, const struct paths *p, const struct shelf_item *folder,
                const char *label);

static int walk_entry(struct models *m, const struct paths *p, const struct shelf_item *folder,
                      const struct entry *e, const char *above)
{
    CLEANUP(item_free) struct shelf_item i = {0};
    char *label;
    int r = place_item(p, folder, e, &i);
    if (r < 0) /* the entry was removed or must not be shown */
        return r == -ENOMEM ? r : 0;
    /* The label is a path, unless the names that a store shows differ from those on disk. */
    const bool plain = e->kind <= PLACE_SPLIT;
    if (asprintf(&label, "%s%s%s", above, above[strlen(above) - 1] == '/' ? "" : "/",
                 plain ? e->at : e->name) < 0)
        return -ENOMEM;
    if (place_is_model(i.kind))
        r = add_model(m, &i, label);
    else if (i.kind != PLACE_TEXT)
        r = !i.store && is_mounted(label) ? add_mounted(m, label) : walk(m, p, &i, label);
    free(label);
    return r;
}

/* Visit a place and everything below it. The maximum length of a path limits the recursion. */
static int walk(struct models *m, const struct paths *p, const struct shelf_item *folder,
                const char *label)
{
    struct listing *l = NULL;
    int r = place_list(p, folder, NULL, &l);
    if (r < 0 && r != -ENOMEM && r != -ENOENT)
        return put(m, label, NULL, strerror(-r), (struct model_path){.error = r});
    for (size_t i = 0; r == 0 && i < l->n; i++)
        r = walk_entry(m, p, folder, &l->entry[i], label);
    listing_unref(l);
    return r == -ENOENT ? 0 : r;
}

static int add_folder(struct models *m, const char *path)
{
    CLEANUP(paths_end) struct paths p = PATHS_NONE;
    CLEANUP(item_free) struct shelf_item top = {0};
    struct err e = {0};
    const size_t before = m->n;
    m->folders = true;
    int r = paths_begin(&p, path, false, &e);
    if (r < 0)
        r = put(m, path, NULL, e.msg, (struct model_path){.error = r});
    else if ((r = item_top(&p, &top)) == 0)
        r = walk(m, &p, &top, path);
    return r == 0 && m->n == before
               ? put(m, path, NULL, "this directory contains no models (files NAME.gguf)",
                     (struct model_path){.error = -ENOENT})
               : r;
}

int models_add(struct models *m, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return is_mounted(path) ? add_mounted(m, path) : add_folder(m, path);
    return add_file(m, path);
}

void models_free(struct models *m)
{
    for (size_t i = 0; i < m->n; i++)
        free_model(&m->model[i]);
    free(m->model);
    *m = MODELS_INIT;
}
