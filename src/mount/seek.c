/* SPDX-License-Identifier: MIT */
/* Finds a model's folder in a mount: see seek.h. */
#include "mount/seek.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "mount/aside.h"
#include "text/name.h"

/* The longest search in milliseconds, and the most folders: more than people have, but links between
 * folders can show any number of them. */
#define SEEK_MS 10000
#define SEEK_FOLDERS 100000

/* Folders to look at: a queue of owned paths. */
struct queue {
    char **path;
    size_t n, cap, next;
};

static void push(struct queue *q, const char *folder, const char *name)
{
    char *path;
    if (q->n >= SEEK_FOLDERS || array_grow(&q->path, &q->cap, q->n, sizeof(*q->path)) < 0 ||
        asprintf(&path, "%s/%s", folder, name) < 0)
        return;
    q->path[q->n++] = path;
}

static void queue_free(struct queue *q)
{
    for (size_t i = 0; i < q->n; i++)
        free(q->path[i]);
    free(q->path);
}

/* True if both lead to one file, which is looked at now: an edit puts another in its place. Of a file with
 * several names each is a model of its own. */
static bool same_file(const char *source, const char *model)
{
    struct stat x, y;
    if (stat(source, &x) < 0 || stat(model, &y) < 0 || x.st_dev != y.st_dev || x.st_ino != y.st_ino)
        return false;
    char *real = y.st_nlink > 1 ? realpath(source, NULL) : NULL;
    bool same = y.st_nlink == 1 || (real && strcmp(real, model) == 0);
    free(real);
    return same;
}

enum kind { PLACE, MODEL, FOUND };

/* A folder `source`: of a split model, with links in it, or one of the shelf. */
static enum kind look_at_links(const char *source, const char *model)
{
    enum kind kind = PLACE;
    const struct dirent *e;
    DIR *d = opendir(source);
    while (d && kind != FOUND && (e = readdir(d))) {
        char *path;
        if (e->d_type != DT_LNK || asprintf(&path, "%s/%s", source, e->d_name) < 0)
            continue;
        kind = same_file(path, model) ? FOUND : MODEL;
        free(path);
    }
    if (d)
        (void)closedir(d);
    return kind;
}

static enum kind look_at(const char *folder, const char *model)
{
    struct stat st;
    char *source;
    enum kind kind = PLACE;
    if (asprintf(&source, "%s/source", folder) < 0)
        return PLACE;
    mode_t mode = lstat(source, &st) == 0 ? st.st_mode : 0;
    if (S_ISDIR(mode))
        kind = look_at_links(source, model);
    else if (S_ISLNK(mode))
        kind = same_file(source, model) ? FOUND : MODEL;
    free(source);
    return kind;
}

/* Look at all folders in one; the others than models are queued if `deep`. The path of the model's, or NULL. */
static char *look_in(const char *folder, const char *model, struct queue *q, bool deep)
{
    char *found = NULL, *path;
    const struct dirent *e;
    DIR *d = opendir(folder);
    while (d && !found && (e = readdir(d))) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.' ||
            asprintf(&path, "%s/%s", folder, e->d_name) < 0)
            continue;
        enum kind kind = look_at(path, model);
        if (kind == FOUND)
            found = path;
        else
            free(path);
        if (kind == PLACE && deep)
            push(q, folder, e->d_name);
    }
    if (d)
        (void)closedir(d);
    return found;
}

/* The folder that shows the one that the model is in; NULL: the model is not below the shelf. */
static char *likely(const struct seek *s)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    char shown[TREE_NAME_MAX + 1];
    size_t n = strlen(s->shelf);
    while (n > 0 && s->shelf[n - 1] == '/') /* the root */
        n--;
    if (strncmp(s->model, s->shelf, n) != 0 || s->model[n] != '/')
        return NULL;
    buf_str(&path, s->at);
    const char *name = s->model + n + 1, *slash;
    for (; (slash = strchr(name, '/')); name = slash + 1) {
        (void)name_encode(name, (size_t)(slash - name), shown);
        buf_printf(&path, "/%s", shown);
    }
    buf_char(&path, '\0');
    return buf_error(&path) ? NULL : (char *)buf_steal(&path);
}

/* In the process that may hang. 0: the path was written; 1: not found. */
static int search(const void *arg, int out)
{
    const struct seek *s = arg;
    struct queue q = {0};
    char *folder = likely(s);
    char *found = folder ? look_in(folder, s->model, &q, false) : NULL;
    if (!found)
        found = look_in(s->at, s->model, &q, true);
    while (!found && q.next < q.n) {
        const char *next = q.path[q.next++];
        found = look_in(next, s->model, &q, true);
    }
    int status = 1;
    if (found && write(out, found, strlen(found) + 1) == (ssize_t)strlen(found) + 1)
        status = 0;
    free(found);
    free(folder);
    queue_free(&q);
    return status;
}

int seek_model(const struct seek *s, char **ret)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    *ret = NULL;
    int r = aside(search, s, SEEK_MS, &said);
    if (r == 0)
        r = buf_error(&said);
    else if (r > 0)
        r = -ENOENT;
    if (r == 0 && (said.len == 0 || said.data[said.len - 1] != '\0'))
        r = -ENOENT;
    if (r == 0)
        *ret = (char *)buf_steal(&said);
    return r;
}
