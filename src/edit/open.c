/* SPDX-License-Identifier: MIT */
/* Opens the files of a model: see open.h. */
#include "edit/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "model/snapshot.h"

/* How many times parsing is tried while another process keeps editing the model in place. */
#define PARSE_TRIES 100

int model_find(const char *path, struct model_file *m, struct err *e)
{
    struct stat st;
    *m = (struct model_file){.path = strdup(path), .dir = -1, .file = {.fd = -1}};
    if (!m->path)
        return err_set(e, -ENOMEM, "no memory");
    m->real = realpath(path, NULL);
    if (!m->real)
        return sniff_no_file(path, -errno, e);
    if (stat(m->real, &st) == 0 && S_ISDIR(st.st_mode))
        return sniff_folder(e);
    char *slash = strrchr(m->real, '/');
    m->name = slash + 1;
    *slash = '\0'; /* temporarily shortens the path to the directory's */
    const char *dir = slash == m->real ? "/" : m->real;
    m->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (m->dir < 0 && errno == EACCES) /* not listable, but O_PATH is enough for one file */
        m->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = m->dir < 0 ? -errno : 0;
    *slash = '/';
    return err_sys(e, r, "cannot open its directory");
}

int model_parse(struct model_file *m, unsigned flags, struct gguf **ret, struct err *e)
{
    struct err why = {0};
    int r = 0;
    *ret = NULL;
    if (m->file.fd < 0)
        r = edit_file_open(&m->file, &sys_libc, m->dir, m->name, false, e);
    if (r < 0)
        return r;
    for (int i = 0; i < PARSE_TRIES; i++) {
        why = (struct err){0};
        gguf_free(*ret);
        *ret = NULL;
        edit_overlay_free(&m->overlay);
        m->src = (struct source){0};
        r = edit_overlay(&m->file, &m->overlay, &why);
        if (r == 0)
            r = edit_overlay_source(&m->overlay, &m->file, &m->src, &why);
        if (r < 0)
            break;
        r = gguf_parse(&m->src, flags, ret, &why);
        if (edit_overlay_holds(&m->overlay, &m->file))
            break;
    }
    if (why.code && e)
        *e = why;
    return r;
}

void model_free(struct model_file *m)
{
    edit_overlay_free(&m->overlay);
    if (m->file.fd >= 0)
        edit_file_close(&m->file);
    if (m->dir >= 0)
        (void)close(m->dir);
    free(m->real);
    free(m->path);
    *m = (struct model_file){.dir = -1, .file = {.fd = -1}};
}

static int open_shard(struct shards *s, size_t i, unsigned flags, const struct model_opener *o,
                      struct err *e)
{
    struct model_file m;
    char *path = shards_path(s, i);
    s->name[i] = path ? strdup(path_name(path)) : NULL;
    if (!s->name[i]) {
        free(path);
        return err_set(e, -ENOMEM, "no memory");
    }
    int r = model_find(path, &m, e);
    if (r == 0)
        r = model_parse(&m, flags, &s->g[i], e);
    if (r == 0)
        r = mapped_open(m.file.fd, m.src.size, &s->file[i], e);
    if (r == 0)
        r = edit_overlay_map(&m.overlay, &s->file[i]->map, e);
    if (r == 0 && o)
        o->keep(o->arg, i, &m);
    else
        model_free(&m);
    free(path);
    return r;
}

/*
 * Refuses a shard whose number exceeds the count: either it belongs to another split, or the count
 * is wrong.
 */
static int check_extra(const struct shards *s, struct err *e)
{
    char *path = shards_path(s, s->n);
    if (!path)
        return err_set(e, -ENOMEM, "no memory");
    char shown[SHOW_MAX];
    int r = 0;
    if (access(path, F_OK) == 0)
        r = err_set(e, -EBADMSG, "shard %s: one shard too many", show(shown, path, strlen(path)));
    free(path);
    return r;
}

/* Checks each shard's count of all tensors. On failure *i is the shard with the wrong count. */
static int check_totals(const struct shards *s, size_t *i, struct err *e)
{
    uint64_t total = 0;
    for (size_t k = 0; k < s->n; k++)
        total += s->g[k]->n_tensors;
    for (*i = 0; *i < s->n; ++*i)
        if (merge_check_total(s->g[*i], total, e) < 0)
            return -EBADMSG;
    return 0;
}

/*
 * Allocates the lists, and enters the first file. Names are added only as files are found, because
 * the count in a file's name may be wrong.
 */
static int begin_lists(struct shards *s, struct gguf *g)
{
    char *first = shards_path(s, 0);
    s->name = calloc(s->n, sizeof(char *));
    s->g = calloc(s->n, sizeof(struct gguf *));
    s->file = calloc(s->n, sizeof(struct mapped *));
    if (first && s->name)
        s->name[0] = strdup(path_name(first));
    free(first);
    if (!s->name || !s->name[0] || !s->g || !s->file)
        return -ENOMEM;
    s->g[0] = gguf_ref(g);
    return 0;
}

int model_open_shards(struct shards *s, struct gguf *g, unsigned parse_flags,
                      const struct model_opener *o, struct err *e)
{
    char shown[SHOW_MAX];
    size_t i = 0;
    if (begin_lists(s, g) < 0)
        return err_set(e, -ENOMEM, "no memory");
    int r = merge_check(g, g, 0, s->n, e);
    while (r == 0 && ++i < s->n) {
        r = open_shard(s, i, parse_flags, o, e);
        if (r == 0)
            r = merge_check(g, s->g[i], i, s->n, e);
    }
    if (r == 0)
        r = check_totals(s, &i, e);
    if (r < 0)
        return err_prefix(e, r, "shard %s",
                          s->name[i] ? show(shown, s->name[i], strlen(s->name[i])) : "");
    return check_extra(s, e);
}

static int recover_file(const char *path, struct edit_recovered *ret, struct err *e)
{
    struct model_file m;
    struct edit_recovered found = {0};
    int r = model_find(path, &m, e);
    if (r == 0)
        r = edit_file_open(&m.file, &sys_libc, m.dir, m.name, true, e);
    if (r == 0)
        r = edit_recover(&m.file, &found, e);
    model_free(&m);
    ret->finished |= found.finished;
    ret->dropped |= found.dropped;
    ret->removed += found.removed;
    return r;
}

/* Recovers each file separately, so that a fault in one does not leave the others unrecovered. */
static int recover_shards(const struct shards *s, struct edit_recovered *ret, struct err *e)
{
    int result = 0;
    for (size_t i = 0; i < s->n; i++) {
        char shown[SHOW_MAX], *path = shards_path(s, i);
        const char *name = path ? path_name(path) : "";
        struct err why = {0};
        int r = path ? recover_file(path, ret, &why) : -ENOMEM;
        if (r < 0 && result == 0)
            result = err_set(e, r, "shard %s: %s", show(shown, name, strlen(name)),
                             why.code ? why.msg : strerror(-r));
        free(path);
        if (r == -ENOENT) /* the count in the name may be too high */
            break;
    }
    return result;
}

int model_recover(const char *path, struct edit_recovered *ret, struct err *e)
{
    struct shards s;
    *ret = (struct edit_recovered){0};
    if (shards_find(&s, path) < 0)
        return err_set(e, -ENOMEM, "no memory");
    int r = s.n ? recover_shards(&s, ret, e) : recover_file(path, ret, e);
    shards_free(&s);
    return r;
}
