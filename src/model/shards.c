/* SPDX-License-Identifier: MIT */
/* The files of a split model: see shards.h. */
#include "model/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

void shards_release(struct shards *s)
{
    for (size_t i = 0; i < s->n; i++) {
        mapped_unref(s->file[i]);
        s->file[i] = NULL;
    }
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
