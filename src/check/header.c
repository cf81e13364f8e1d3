/* SPDX-License-Identifier: MIT */
/* A model's header without a mount: see header.h. */
#include "check/header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check/part.h"
#include "check/summary.h"
#include "model/merge.h"
#include "model/split.h"

/* Load the header of one file. Frees the path. */
static int load(char *path, struct gguf **ret, struct err *e)
{
    struct part p;
    int r = path ? part_open_file(path, &p, e) : err_set(e, -ENOMEM, "no memory");
    if (r == 0)
        r = gguf_parse(&p.src, GGUF_PARTIAL, ret, e);
    if (path)
        part_free(&p);
    return r;
}

static int load_shards(const struct split *s, struct gguf **g, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < s->n && r == 0; i++) {
        char shown[SHOW_MAX], *name = split_name(s, i);
        r = name ? load(split_path(s, i), &g[i], e) : err_set(e, -ENOMEM, "no memory");
        if (r == 0)
            r = merge_check(g[0], g[i], i, s->n, e);
        if (r < 0 && name)
            (void)err_prefix(e, "shard %s", show(shown, name, strlen(name)));
        free(name);
    }
    return r;
}

static int open_split(const struct split *s, struct header *h, struct err *e)
{
    struct gguf **g = calloc(s->n, sizeof(*g));
    int r = g ? load_shards(s, g, e) : err_set(e, -ENOMEM, "no memory");
    if (r == 0)
        r = merge_shards((const struct gguf *const *)g, s->n, &h->g, e);
    for (size_t i = 0; g && i < s->n; i++) {
        h->missing += r == 0 ? summary_missing(g[i]) : 0;
        gguf_free(g[i]);
    }
    free((void *)g);
    return r;
}

int header_open(const char *path, struct header *ret, struct err *e)
{
    struct split s;
    struct header h = {0};
    int r = split_find(path, &s);
    if (r < 0)
        return err_set(e, r, "no memory");
    h.shards = s.n;
    r = s.n ? open_split(&s, &h, e) : load(strdup(path), &h.g, e);
    split_free(&s);
    if (r < 0)
        return r;
    h.missing += h.shards ? 0 : summary_missing(h.g);
    *ret = h;
    return 0;
}

void header_free(struct header *h)
{
    gguf_free(h->g);
    *h = (struct header){0};
}
