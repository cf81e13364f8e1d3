/* SPDX-License-Identifier: MIT */
/* Finds the models at given paths: see models.h. */
#include "check/models.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "check/filename.h"
#include "model/split.h"

/* ---- sets that grow ---- */

/* Make room for number n. A new index gets the hashes of all earlier numbers. */
static int growing_room(struct growing *s, size_t n, uint64_t (*hash)(const void *list, size_t i),
                        const void *list)
{
    struct index bigger;
    size_t room = s->room ? 2 * s->room : 64;
    if (n < s->room)
        return 0;
    if (index_init(&bigger, room) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        index_insert(&bigger, hash(list, i), (uint32_t)i);
    index_free(&s->index);
    *s = (struct growing){bigger, room};
    return 0;
}

static uint64_t hash_path(const void *list, size_t i)
{
    const char *path = ((const struct model_path *)list)[i].path;
    return hash_name(path, strlen(path));
}

static uint64_t hash_id(const void *list, size_t i)
{
    const struct folder_id *id = (const struct folder_id *)list + i;
    uint64_t words[] = {id->dev, id->ino};
    return hash_name(words, sizeof(words));
}

/* 1: the folder is new, and is now remembered; 0: it is known; -ENOMEM. */
static int visit(struct models *m, const struct stat *st)
{
    struct folder_id id = {st->st_dev, st->st_ino};
    uint32_t i;
    struct probe p;
    int r = growing_room(&m->by_id, m->n_visited, hash_id, m->visited);
    if (r == 0)
        r = array_grow(&m->visited, &m->cap_visited, m->n_visited, sizeof(id));
    if (r < 0)
        return r;
    for (p = index_probe(&m->by_id.index, hash_id(&id, 0)); index_next(&m->by_id.index, &p, &i);)
        if (m->visited[i].dev == id.dev && m->visited[i].ino == id.ino)
            return 0;
    index_insert(&m->by_id.index, hash_id(&id, 0), (uint32_t)m->n_visited);
    m->visited[m->n_visited++] = id;
    return 1;
}

/* ---- entries ---- */

/* Takes ownership of the path. 0, -ENOMEM. */
static int add(struct models *m, char *path, size_t shards, int error)
{
    int r = path ? growing_room(&m->by_path, m->n, hash_path, m->model) : -ENOMEM;
    if (r == 0)
        r = array_grow(&m->model, &m->cap, m->n, sizeof(*m->model));
    if (r < 0) {
        free(path);
        return r;
    }
    m->model[m->n] = (struct model_path){path, shards, error};
    index_insert(&m->by_path.index, hash_path(m->model, m->n), (uint32_t)m->n);
    m->n++;
    return 0;
}

static bool has(const struct models *m, const char *path)
{
    uint32_t i;
    if (m->n == 0)
        return false;
    struct probe p = index_probe(&m->by_path.index, hash_name(path, strlen(path)));
    while (index_next(&m->by_path.index, &p, &i))
        if (strcmp(m->model[i].path, path) == 0)
            return true;
    return false;
}

/* Add a file: if it belongs to a split model, that model, unless it is in the list. */
static int add_file(struct models *m, const char *path)
{
    struct split s;
    int r = split_find(path, &s);
    if (r < 0)
        return r;
    char *first = s.n ? split_path(&s, 0) : strdup(path);
    if (s.n && first && has(m, first))
        free(first);
    else
        r = add(m, first, s.n, 0);
    split_free(&s);
    return r;
}

/* ---- folders ---- */

static bool named_gguf(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strcasecmp(name + n - 5, ".gguf") == 0;
}

/* A blob of ollama: a model or a text. */
static bool is_blob(const char *path, const char *name)
{
    char magic[4] = "";
    if (strncmp(name, "sha256-", 7) != 0 || !file_name_is_hash(name))
        return false;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool is = fd >= 0 && pread(fd, magic, 4, 0) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0)
        (void)close(fd);
    return is;
}

/* True for a device that is a mount of this program. */
static bool our_mount(dev_t dev)
{
    char *line = NULL;
    size_t room = 0;
    bool is = false;
    unsigned major, minor;
    FILE *list = fopen("/proc/self/mountinfo", "re");
    while (list && !is && getline(&line, &room, list) > 0)
        is = strstr(line, " - fuse.ggufs ") && sscanf(line, "%*s %*s %u:%u", &major, &minor) == 2 &&
             makedev(major, minor) == dev;
    free(line);
    if (list)
        (void)fclose(list);
    return is;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct listing {
    char **name; /* owned */
    size_t n, cap;
};

static void listing_free(struct listing *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->name[i]);
    free((void *)l->name);
}

/* All names but hidden ones, sorted. *error: why the folder cannot be read. 0, -ENOMEM. */
static int list(const char *path, struct listing *l, int *error)
{
    DIR *dir = opendir(path);
    const struct dirent *d;
    int r = 0;
    errno = dir ? 0 : errno;
    while (dir && r == 0 && (errno = 0, d = readdir(dir))) {
        if (d->d_name[0] == '.')
            continue;
        r = array_grow((void *)&l->name, &l->cap, l->n, sizeof(*l->name));
        if (r == 0 && !(l->name[l->n] = strdup(d->d_name)))
            r = -ENOMEM;
        l->n += r == 0;
    }
    *error = -errno;
    if (dir)
        (void)closedir(dir);
    if (l->n)
        qsort((void *)l->name, l->n, sizeof(*l->name), by_bytes);
    return r;
}

static int walk(struct models *m, const char *path, dev_t dev);

/* A link to a folder is visited later: the walk may still reach the folder itself. */
static int add_link(struct models *m, const char *path)
{
    int r = array_grow((void *)&m->link, &m->cap_links, m->n_links, sizeof(*m->link));
    if (r == 0 && !(m->link[m->n_links] = strdup(path)))
        r = -ENOMEM;
    m->n_links += r == 0;
    return r;
}

/* One name in a folder that lies on `dev`. */
static int add_entry(struct models *m, const char *path, const char *name, dev_t dev)
{
    struct stat is, st;
    if (lstat(path, &is) < 0) /* it was removed, or may not be read */
        return named_gguf(name) ? add_file(m, path) : 0;
    if (S_ISDIR(is.st_mode))
        return is.st_dev != dev && our_mount(is.st_dev) ? 0 : walk(m, path, is.st_dev);
    bool link = S_ISLNK(is.st_mode), there = !link || stat(path, &st) == 0;
    if (link && there && S_ISDIR(st.st_mode))
        return our_mount(st.st_dev) ? 0 : add_link(m, path);
    if (there && !S_ISREG((link ? st : is).st_mode))
        return 0;
    return named_gguf(name) || (there && is_blob(path, name)) ? add_file(m, path) : 0;
}

/* A folder and all below it. Depth is bounded by the length of a path. */
static int walk(struct models *m, const char *path, dev_t dev)
{
    struct stat st;
    struct listing l = {0};
    int error = stat(path, &st) < 0 ? -errno : 0;
    int r = error ? 1 : visit(m, &st);
    if (r <= 0)
        return r;
    if (!error && faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0)
        error = -errno;
    r = error ? 0 : list(path, &l, &error);
    if (r == 0 && error)
        r = add(m, strdup(path), 0, error);
    for (size_t i = 0; i < l.n && r == 0; i++) {
        char *child;
        const char *slash = path[strlen(path) - 1] == '/' ? "" : "/";
        if (asprintf(&child, "%s%s%s", path, slash, l.name[i]) < 0) {
            r = -ENOMEM;
            break;
        }
        r = add_entry(m, child, l.name[i], dev);
        free(child);
    }
    listing_free(&l);
    return r;
}

/* Links do not lead to the folders above the given one. */
static int forbid_above(struct models *m, const char *path)
{
    struct stat st;
    int r = 0;
    char *real = realpath(path, NULL), *slash;
    while (r >= 0 && real && (slash = strrchr(real, '/')) && real[1]) {
        slash[slash == real] = '\0';
        if (stat(real, &st) == 0)
            r = visit(m, &st);
    }
    free(real);
    return r < 0 ? r : 0;
}

static void forget_visits(struct models *m)
{
    for (size_t i = 0; i < m->n_links; i++)
        free(m->link[i]);
    free((void *)m->link);
    free(m->visited);
    index_free(&m->by_id.index);
    m->link = NULL;
    m->visited = NULL;
    m->by_id = (struct growing){0};
    m->n_links = m->cap_links = m->n_visited = m->cap_visited = 0;
}

static int add_folder(struct models *m, const char *path, dev_t dev)
{
    size_t before = m->n;
    m->folders = true;
    int r = forbid_above(m, path);
    if (r == 0)
        r = walk(m, path, dev);
    for (size_t i = 0; i < m->n_links && r == 0; i++)
        r = walk(m, m->link[i], dev);
    forget_visits(m);
    return r == 0 && m->n == before ? add(m, strdup(path), 0, -ENOENT) : r;
}

int models_add(struct models *m, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return add_folder(m, path, st.st_dev);
    return add_file(m, path);
}

const char *models_error(const struct model_path *m, char dst[SHOW_MAX])
{
    if (m->error == -ENOENT)
        (void)snprintf(dst, SHOW_MAX, "this folder contains no models (files NAME.gguf)");
    else
        (void)snprintf(dst, SHOW_MAX, "cannot be read: %s", strerror(-m->error));
    return dst;
}

void models_free(struct models *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->model[i].path);
    free(m->model);
    index_free(&m->by_path.index);
    forget_visits(m);
    *m = MODELS_INIT;
}
