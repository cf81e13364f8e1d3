/* SPDX-License-Identifier: MIT */
/* One of two compared models: see side.h. */
#include "diff/side.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sys.h"

static int found(void *arg, struct model_file *m, struct err *e)
{
    (void)arg;
    (void)m;
    (void)e;
    return 0;
}

static void keep(void *arg, size_t i, struct model_file *m)
{
    struct side *s = arg;
    s->file[i] = *m;
    *m = (struct model_file){.dir = -1, .file = {.fd = -1}};
}

static void place_file(struct side *s, const struct gguf *g, size_t file, uint32_t *n)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        s->place[(*n)++] = (struct side_place){g->tensor[i].off, file};
}

/* Find the place of each tensor. The model's tensors are those of its files, one after another. */
static int place_all(struct side *s, const struct gguf *first)
{
    uint32_t n = 0;
    s->place = calloc((size_t)s->g->n_tensors + 1, sizeof(*s->place));
    if (!s->place)
        return -ENOMEM;
    place_file(s, first, 0, &n);
    for (size_t i = 1; i < s->shards.n; i++)
        place_file(s, s->shards.g[i], i, &n);
    return 0;
}

static int open_files(struct side *s, const char *path, struct err *e)
{
    const struct model_opener opener = {found, keep, s};
    struct gguf *first = NULL;
    int r = model_find(path, &s->file[0], e);
    if (r == 0)
        r = model_parse(&s->file[0], 0, &first, e);
    if (r == 0 && s->shards.n)
        r = model_open_shards(&s->shards, first, 0, &opener, e);
    if (r == 0 && s->shards.n)
        r = merge_shards((const struct gguf *const *)s->shards.g, s->shards.n, &s->g, e);
    else if (r == 0)
        s->g = gguf_ref(first);
    if (r == 0 && place_all(s, first) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    gguf_free(first);
    shards_release(&s->shards); /* tensors are read from the files, not through mappings */
    return r;
}

int side_open(struct side *s, const char *path, const char *label, struct err *e)
{
    *s = (struct side){.label = label};
    char *first = shards_find(&s->shards, path) < 0 ? NULL : shards_path(&s->shards, 0);
    size_t n = s->shards.n ? s->shards.n : 1;
    s->file = first ? calloc(n, sizeof(*s->file)) : NULL;
    for (size_t i = 0; s->file && i < n; i++)
        s->file[i] = (struct model_file){.dir = -1, .file = {.fd = -1}};
    int r = s->file ? open_files(s, first, e) : err_set(e, -ENOMEM, "no memory");
    free(first);
    return r;
}

void side_free(struct side *s)
{
    size_t n = s->shards.n ? s->shards.n : 1;
    for (size_t i = 0; s->file && i < n; i++)
        model_free(&s->file[i]);
    free(s->file);
    free(s->place);
    gguf_free(s->g);
    shards_free(&s->shards);
    *s = (struct side){0};
}

int side_read(const struct side *s, uint32_t tensor, uint64_t off, void *dst, size_t n)
{
    const struct side_place *p = &s->place[tensor];
    const struct source *src = &s->file[p->file].src;
    uint64_t at = p->off + off;
    return at > src->size || n > src->size - at ? -EIO : src->read(src, at, dst, n);
}

uint64_t side_hole(const struct side *s, uint32_t tensor, uint64_t off)
{
    const struct side_place *p = &s->place[tensor];
    const struct model_file *m = &s->file[p->file];
    uint64_t at = p->off + off, data;
    if (edit_overlay_changes(&m->overlay))
        return off;
    int r = sys_libc.seek(&sys_libc, m->file.fd, at, SEEK_DATA, &data);
    if (r == -ENXIO) { /* a hole extends to the end of the file; the end must still exist */
        r = sys_libc.seek(&sys_libc, m->file.fd, 0, SEEK_END, &data);
        r = r == 0 && data < m->src.size ? -EIO : r;
    }
    return r == 0 && data > at ? data - p->off : off;
}
