/* SPDX-License-Identifier: MIT */
/* A model's header without a mount: see header.h. */
#include "check/header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check/summary.h"
#include "edit/open.h"
#include "model/merge.h"

/* Of a split model, the first file and then the others. */
static int load(const char *path, struct shards *s, struct gguf **first, struct err *e)
{
    struct model_file m;
    int r = model_find(path, &m, e);
    if (r == 0)
        r = model_parse(&m, GGUF_PARTIAL, first, e);
    model_free(&m);
    if (r < 0 && s->n) {
        char shown[SHOW_MAX];
        (void)err_prefix(e, r, "shard %s", show(shown, s->name[0], strlen(s->name[0])));
    }
    if (r == 0)
        r = s->n ? model_open_shards(s, *first, GGUF_PARTIAL, NULL, e)
                 : merge_check_single(*first, e);
    return r;
}

int header_open(const char *path, struct header *ret, struct err *e)
{
    struct shards s;
    struct gguf *g = NULL, *merged = NULL;
    char *first = NULL;
    if (shards_find(&s, path, &first) < 0)
        return err_set(e, -ENOMEM, "no memory");
    int r = load(first ? first : path, &s, &g, e);
    if (r == 0 && s.n)
        r = shards_merge(&s, g, &merged, e);
    if (r == 0) {
        *ret = (struct header){merged ? merged : g, s.n, summary_missing(g)};
        for (size_t i = 1; i < s.n; i++)
            ret->missing += summary_missing(s.g[i]);
    }
    if (r < 0 || merged)
        gguf_free(g);
    shards_free(&s);
    free(first);
    return r;
}

void header_free(struct header *h)
{
    gguf_free(h->g);
    *h = (struct header){0};
}
