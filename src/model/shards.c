/* SPDX-License-Identifier: MIT */
/* The files of a split model: see shards.h. */
#include "model/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/merge.h"

/* Lists with room for s->n files. Names are made as files are found: a name may lie about n. */
static int make_lists(struct shards *s)
{
    s->name = calloc(s->n, sizeof(char *));
    s->g = calloc(s->n, sizeof(struct gguf *));
    s->file = calloc(s->n, sizeof(struct mapped *));
    if (!s->name || !s->g || !s->file)
        return -ENOMEM;
    s->name[0] = split_name(&s->split, 0);
    return s->name[0] ? 0 : -ENOMEM;
}

int shards_find(struct shards *s, const char *path, char **first)
{
    *s = (struct shards){0};
    int r = split_find(path, &s->split);
    s->n = s->split.n;
    if (r < 0 || s->n == 0)
        return r;
    *first = split_path(&s->split, 0);
    if (*first && make_lists(s) == 0)
        return 0;
    free(*first);
    *first = NULL;
    shards_free(s);
    return -ENOMEM;
}

void shards_free(struct shards *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->name)
            free(s->name[i]);
        if (s->g)
            gguf_free(s->g[i]);
        if (s->file)
            mapped_unref(s->file[i]);
    }
    free(s->name);
    free((void *)s->g);
    free((void *)s->file);
    split_free(&s->split);
    *s = (struct shards){0};
}

/* A device or pipe that a link leads to is not even opened. */
static int open_fd(const struct shards *s, size_t i, int *ret, struct err *e)
{
    struct stat st;
    char *path = split_path(&s->split, i);
    if (!path)
        return err_set(e, -ENOMEM, "no memory");
    int r = stat(path, &st) < 0 ? -errno : 0;
    bool other = r == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    if (r == 0 && !other && (*ret = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) < 0)
        r = -errno;
    free(path);
    if (other)
        return err_set(e, -EINVAL, "is not a regular file");
    return r < 0 ? err_set(e, r, "%s", strerror(-r)) : 0;
}

/* Parse and map one; its descriptor passes to s->file[i] on success. */
static int take_file(struct shards *s, size_t i, int fd, unsigned flags, struct err *e)
{
    struct source src;
    int r = source_fd(fd, &src, e);
    if (r == 0)
        r = gguf_parse(&src, flags, &s->g[i], e);
    return r < 0 ? r : mapped_open(fd, src.size, &s->file[i], e);
}

static int open_shard(struct shards *s, const struct gguf *first, size_t i, unsigned flags,
                      struct err *e)
{
    int fd = -1;
    s->name[i] = split_name(&s->split, i);
    int r = s->name[i] ? open_fd(s, i, &fd, e) : err_set(e, -ENOMEM, "no memory");
    if (r < 0)
        return r;
    r = take_file(s, i, fd, flags, e);
    if (r < 0) {
        (void)close(fd);
        return r;
    }
    return merge_check(first, s->g[i], i, s->n, e);
}

/* A file whose number is above the count belongs to another split, or the count is wrong. */
static int check_extra(const struct shards *s, struct err *e)
{
    char *path = split_path(&s->split, s->n);
    if (!path)
        return err_set(e, -ENOMEM, "no memory");
    char shown[SHOW_MAX];
    int r = 0;
    if (access(path, F_OK) == 0)
        r = err_set(e, -EBADMSG, "shard %s: one more than there are",
                    show(shown, path, strlen(path)));
    free(path);
    return r;
}

/* On failure *i is the number of the shard whose count is wrong. */
static int check_totals(const struct shards *s, const struct gguf *first, size_t *i, struct err *e)
{
    uint64_t total = first->n_tensors;
    for (size_t k = 1; k < s->n; k++)
        total += s->g[k]->n_tensors;
    for (*i = 0; *i < s->n; ++*i)
        if (merge_check_total(*i ? s->g[*i] : first, total, e) < 0)
            return -EBADMSG;
    return 0;
}

int shards_open(struct shards *s, const struct gguf *g, unsigned parse_flags, struct err *e)
{
    char shown[SHOW_MAX];
    size_t i = 0;
    int r = merge_check(g, g, 0, s->n, e);
    while (r == 0 && ++i < s->n)
        r = open_shard(s, g, i, parse_flags, e);
    if (r == 0)
        r = check_totals(s, g, &i, e);
    if (r < 0)
        return err_prefix(e, "shard %s",
                          s->name[i] ? show(shown, s->name[i], strlen(s->name[i])) : "");
    return check_extra(s, e);
}

int shards_merge(const struct shards *s, const struct gguf *g, struct gguf **ret, struct err *e)
{
    const struct gguf **all = malloc(s->n * sizeof(struct gguf *));
    if (!all)
        return err_set(e, -ENOMEM, "no memory");
    memcpy((void *)all, (const void *)s->g, s->n * sizeof(struct gguf *));
    all[0] = g;
    int r = merge_shards(all, s->n, ret, e);
    free((void *)all);
    return r;
}

int shards_store(const struct shards *s, const struct gguf *g, struct mapped *first,
                 struct store **ret)
{
    size_t n = s->n ? s->n : 1;
    const struct gguf **all = calloc(n, sizeof(struct gguf *));
    struct mapped **file = calloc(n, sizeof(struct mapped *));
    int r = all && file ? 0 : -ENOMEM;
    for (size_t i = 1; i < n && r == 0; i++) {
        all[i] = s->g[i];
        file[i] = s->file[i];
    }
    if (r == 0) {
        all[0] = g;
        file[0] = first;
        r = store_make(file, all, n, ret);
    }
    free((void *)all);
    free((void *)file);
    return r;
}
