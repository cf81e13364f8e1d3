/* SPDX-License-Identifier: MIT */
/* Finds the models that paths refer to: see models.h. */
#include "shelf/models.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/sys.h"
#include "model/snapshot.h"
#include "shelf/place.h"

/* ---- directories and files that have been seen ---- */

/* A file or directory that has been seen. */
struct seen {
    struct link link;
    dev_t dev;
    ino_t ino;
    size_t model; /* for a file: the index of its model */
};

#define SEEN_OF(l) ((struct seen *)((char *)(l)-offsetof(struct seen, link)))

/* Add a file or directory. If it is new, records *model for it and returns 1; otherwise sets *model
 * to the recorded value and returns 0. On failure, returns -ENOMEM. */
static int seen_add(struct table *all, const struct stat *st, size_t *model)
{
    const uint64_t hash = hash_number(st->st_ino ^ st->st_dev << 40);
    for (struct link *l = table_first(all, hash); l; l = table_next(l))
        if (SEEN_OF(l)->dev == st->st_dev && SEEN_OF(l)->ino == st->st_ino) {
            *model = SEEN_OF(l)->model;
            return 0;
        }
    struct seen *new = calloc(1, sizeof(*new));
    if (!new || table_add(all, &new->link, hash) < 0) {
        free(new);
        return -ENOMEM;
    }
    new->dev = st->st_dev;
    new->ino = st->st_ino;
    new->model = *model;
    return 1;
}

static void seen_free(struct table *all)
{
    for (struct link *l = table_each(all, NULL), *next; l; l = next) {
        next = table_each(all, l);
        free(SEEN_OF(l));
    }
    table_free(all);
}

/* ---- entries ---- */

static void free_model(struct model_path *m)
{
    free(m->path);
    free(m->label);
    free(m->tags);
    free(m->why);
}

int models_put(struct models *m, struct model_path *new)
{
    if (!new->path || array_grow(&m->model, &m->cap, m->n, sizeof(*m->model)) < 0) {
        free_model(new);
        return -ENOMEM;
    }
    m->model[m->n++] = *new;
    return 0;
}

static int add_error(struct models *m, const char *path, int error, const char *why)
{
    struct model_path new = {.path = strdup(path), .error = error, .why = strdup(why)};
    if (new.why)
        return models_put(m, &new);
    free(new.path);
    return -ENOMEM;
}

static int add_unreadable(struct models *m, const char *path, int error)
{
    char why[SHOW_MAX];
    (void)snprintf(why, sizeof(why), "cannot be read: %s", strerror(-error));
    return add_error(m, path, error, why);
}

/* Add a file. If it belongs to a split model, add that model instead, unless that model is already
 * listed. */
static int add_file(struct models *m, const char *path)
{
    struct shards s;
    int r = shards_find(&s, path);
    if (r < 0)
        return r;
    struct model_path new = {.path = shards_path(&s, 0), .shards = s.n};
    size_t i = s.n && new.path ? 0 : m->n;
    while (i < m->n && strcmp(m->model[i].path, new.path) != 0)
        i++;
    if (i < m->n)
        free(new.path);
    else
        r = models_put(m, &new);
    shards_free(&s);
    return r;
}

/* ---- mounts ---- */

#define FUSE_MAGIC 0x65735546 /* FUSE_SUPER_MAGIC in statfs(2) */

static bool has(const char *folder, const char *name, mode_t type)
{
    char path[PATH_MAX];
    struct stat st;
    return (size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) < sizeof(path) &&
           stat(path, &st) == 0 && (st.st_mode & S_IFMT) == type;
}

static bool is_mounted(const char *folder)
{
    struct statfs fs;
    return statfs(folder, &fs) == 0 && fs.f_type == FUSE_MAGIC &&
           has(folder, "metadata", S_IFDIR) && has(folder, "tensors", S_IFDIR) &&
           has(folder, "model.gguf", S_IFREG);
}

/* Add a model in a mount. Its file model.gguf has all edits. */
static int add_mounted(struct models *m, const char *folder)
{
    struct model_path new = {.label = strdup(folder), .mounted = true};
    if (asprintf(&new.path, "%s/model.gguf", folder) < 0)
        new.path = NULL;
    if (new.label)
        return models_put(m, &new);
    free(new.path);
    return -ENOMEM;
}

/* ---- directories ---- */

/* A place to visit, and its label. */
struct visit {
    struct place place;
    char *label; /* owned */
    bool named;  /* the label comes from a store and is not a path */
};

struct walk {
    struct models *models;
    struct paths paths;
    struct listings listings;
    struct table folders;
    struct visit *later; /* owned: directories reached by links, to be visited last */
    size_t n, cap;
};

static void visit_free(struct visit *v)
{
    place_free(&v->place);
    free(v->label);
}

static int walk(struct walk *w, const struct visit *v);

/* Visit a place now, or later if it was reached by a link. Places already visited are skipped.
 * Takes ownership of the place and the label. */
static int walk_folder(struct walk *w, const struct visit *above, struct item *i, char *label)
{
    struct visit v = {i->place, label, above->named || i->place.store};
    i->place = (struct place){0};
    bool later = v.place.linked && !above->place.linked;
    int r = 1;
    if (!label)
        r = -ENOMEM;
    else if (!v.named && is_mounted(v.label))
        r = add_mounted(w->models, v.label);
    else if (v.place.kind == PLACE_FOLDER && !later)
        r = seen_add(&w->folders, &i->st, &(size_t){0});
    if (r > 0 && later)
        r = array_grow(&w->later, &w->cap, w->n, sizeof(*w->later)) < 0 ? -ENOMEM : 1;
    if (r > 0 && later) {
        w->later[w->n++] = v;
        return 0;
    }
    r = r > 0 ? walk(w, &v) : r;
    visit_free(&v);
    return r;
}

/* Return the length of the label up to its tag ("DIR/llama3.1:" in "DIR/llama3.1:8b/model"), or 0
 * if the label has no tag. *tag is set to the tag's length. */
static size_t before_tag(const char *label, size_t *tag)
{
    const char *end = strrchr(label, '/'), *at = end;
    while (at && at > label && *at != ':' && (at == end || *at != '/'))
        at--;
    *tag = at && *at == ':' ? (size_t)(end - at) - 1 : 0;
    return *tag ? (size_t)(at - label) + 1 : 0;
}

/* Add a second name for model `no`. If that name is another tag of the same ollama model, the tag
 * is added to the model's tags; otherwise the name is ignored. Returns 0 or -ENOMEM. */
static int add_tag(struct models *m, size_t no, const char *label)
{
    size_t tag, first;
    const size_t n = before_tag(label, &tag);
    struct model_path *x = no < m->n ? &m->model[no] : NULL;
    if (!n || !x || !x->label || before_tag(x->label, &first) != n ||
        memcmp(x->label, label, n) != 0)
        return 0;
    char *tags;
    if (asprintf(&tags, "%s%s%.*s", x->tags ? x->tags : "", x->tags ? ", " : "", (int)tag,
                 label + n) < 0)
        return -ENOMEM;
    free(x->tags);
    x->tags = tags;
    return 0;
}

/* Add a model, taking ownership of the label. Skips anything that is not a regular file or is
 * inside a ggufs mount. A dangling link is added; a model with a broken manifest is added with its
 * error. */
static int walk_model(struct walk *w, const struct visit *above, const struct item *i, char *label)
{
    int e = i->error.code, r = 1;
    size_t no = w->models->n;
    if (label && !e)
        r = seen_add(&w->models->files, &i->st, &no);
    if (label && r == 0 && i->store)
        r = add_tag(w->models, no, label);
    if (!label || r <= 0 || e == -EINVAL || e == -EXDEV) {
        free(label);
        return label ? (r < 0 ? r : 0) : -ENOMEM;
    }
    bool named = above->named || i->store, broken = e == -EBADMSG || e == -EFBIG;
    struct model_path new = {.path = named ? strdup(i->path) : label,
                             .label = named ? label : NULL,
                             .shards = i->shards,
                             .error = broken ? e : 0,
                             .why = broken ? strdup(i->error.msg) : NULL};
    if (!new.path || (broken && !new.why)) {
        free_model(&new);
        return -ENOMEM;
    }
    return models_put(w->models, &new);
}

static int walk_entry(struct walk *w, const struct visit *v, const struct entry *e)
{
    struct item i;
    char *label;
    int r = place_item(&w->listings, &v->place, e, &i);
    if (r < 0) /* the entry was removed or must not be shown */
        return r == -ENOMEM ? r : 0;
    /* The label is a path, unless the names that a store shows differ from those on disk. */
    const bool plain = v->place.kind == PLACE_FOLDER && e->kind <= ENTRY_SPLIT;
    if (asprintf(&label, "%s%s%s", v->label, v->label[strlen(v->label) - 1] == '/' ? "" : "/",
                 plain ? e->at : e->name) < 0)
        label = NULL;
    if (i.kind == ITEM_FOLDER)
        r = walk_folder(w, v, &i, label);
    else if (i.kind == ITEM_MODEL)
        r = walk_model(w, v, &i, label);
    else
        free(label);
    item_free(&i);
    return r;
}

/* Visit a place and everything below it. The maximum length of a path limits the recursion. */
static int walk(struct walk *w, const struct visit *v)
{
    struct listing *l = NULL;
    int r = place_list(&w->listings, &v->place, &l);
    if (r < 0 && r != -ENOMEM && r != -ENOENT)
        return add_unreadable(w->models, v->label, r);
    for (size_t i = 0; r == 0 && i < l->n; i++)
        r = walk_entry(w, v, &l->entry[i]);
    listing_unref(l);
    return r == -ENOENT ? 0 : r;
}

/* Walk the directory at `path`, and then the directories reached by links, except those already
 * visited. */
static int walk_top(struct walk *w, const char *path)
{
    struct visit v = {.label = strdup(path)};
    struct stat st;
    int r = v.label ? place_top(&w->paths, &v.place) : -ENOMEM;
    if (r == 0 && fstat(w->paths.fd, &st) == 0)
        r = seen_add(&w->folders, &st, &(size_t){0});
    if (r >= 0)
        r = walk(w, &v);
    visit_free(&v);
    for (size_t i = 0; r == 0 && i < w->n; i++) {
        v = w->later[i]; /* copied, because the list may be reallocated */
        w->later[i] = (struct visit){0};
        if (stat(v.place.path, &st) == 0)
            r = seen_add(&w->folders, &st, &(size_t){0});
        r = r > 0 ? walk(w, &v) : r;
        visit_free(&v);
    }
    return r;
}

static int add_folder(struct models *m, const char *path)
{
    struct walk w = {.models = m};
    struct err e = {0};
    size_t before = m->n;
    m->folders = true;
    listings_init(&w.listings, &w.paths);
    int r = paths_begin(&w.paths, path, false, &e);
    r = r < 0 ? add_unreadable(m, path, r) : walk_top(&w, path);
    for (size_t i = 0; i < w.n; i++)
        visit_free(&w.later[i]);
    free(w.later);
    seen_free(&w.folders);
    listings_free(&w.listings);
    paths_end(&w.paths);
    return r == 0 && m->n == before
               ? add_error(m, path, -ENOENT, "this directory contains no models (files NAME.gguf)")
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
    seen_free(&m->files);
    *m = MODELS_INIT;
}
