/* SPDX-License-Identifier: MIT */
/*
 * metadata/: what is being edited of a model that can be (live/live.h), else what its one
 * generation holds. The only functions that do either, but for those of edit.c.
 */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>

int keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node n = {.kind = NODE_KEY, .number = a->number};
    return node_entry_as(t, &v, &n, a, ret);
}

/* Of the one generation. */
static void attr_fixed(const struct gen *g, uint32_t kv, struct live_attr *ret)
{
    *ret = (struct live_attr){
        .number = kv, .size = shown_size(&(struct shown){.gen = (struct gen *)g, .kv = kv})};
}

static int lookup_fixed(const struct gen *g, const char *name, struct live_attr *ret)
{
    uint32_t kv = gen_find_key(g, name);
    if (kv == UINT32_MAX || !gen_shows_key(g, kv))
        return -ENOENT;
    attr_fixed(g, kv, ret);
    return 0;
}

int keys_lookup(struct tree *t, const char *name, struct tree_entry *ret)
{
    struct live_attr a;
    int r = t->live ? live_lookup(t->live, name, &a) : lookup_fixed(t->newest.view.gen, name, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

static int check_fixed(const struct gen *g, uint32_t kv)
{
    return kv < g->gguf->n_kv ? 0 : -ENOENT;
}

int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret)
{
    struct live_attr a;
    const struct gen *g = t->live ? NULL : t->newest.view.gen;
    int r = g ? check_fixed(g, number) : live_attr(t->live, number, f ? f->live : NULL, &a);
    if (r == 0 && g)
        attr_fixed(g, number, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

void keys_forget(struct tree *t, uint32_t number, uint64_t n)
{
    if (t->live)
        live_forget(t->live, number, n);
}

/* ---- listing ---- */

int keys_list(struct tree *t, struct live_list *list)
{
    return t->live ? live_list(t->live, list) : 0;
}

static int list_fixed(const struct gen *g, uint64_t *i, char name[TREE_NAME_MAX + 1],
                      struct live_attr *ret)
{
    while (*i < g->gguf->n_kv && !gen_shows_key(g, (uint32_t)*i))
        ++*i;
    if (*i >= g->gguf->n_kv)
        return 0;
    const struct gguf_kv *kv = &g->gguf->kv[*i];
    (void)name_encode(gguf_key(g->gguf, kv), kv->key_len, name);
    ret->number = (uint32_t)*i;
    return 1;
}

int keys_list_at(struct tree *t, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct live_attr a = {0};
    const struct gen *g = t->live ? NULL : t->newest.view.gen;
    int r = g ? list_fixed(g, i, name, &a) : live_list_at(t->live, list, i, attrs, name, &a);
    if (r <= 0)
        return r;
    if (g && attrs)
        attr_fixed(g, a.number, &a);
    if (attrs)
        r = keys_entry(t, &a, ret);
    else
        brief_entry(ino_key(a.number), ino_key(a.number), a.link ? S_IFLNK : S_IFREG, ret);
    return r < 0 ? r : 1;
}

/* ---- files and facts ---- */

static int open_fixed(struct gen *g, uint32_t kv, int flags, struct live_text *text)
{
    if (check_fixed(g, kv) < 0)
        return -ENOENT;
    if ((flags & O_ACCMODE) != O_RDONLY)
        return -EROFS;
    *text = (struct live_text){.fixed = true, .value = {gen_ref(g), NULL, kv}};
    return 0;
}

/* A large text takes a while: it is rendered without a lock. */
int keys_open(struct tree *t, struct tree_file *f, int flags)
{
    struct live_text text = {0};
    int r = t->live ? live_open_file(t->live, f->node.number, flags, &f->live, &text)
                    : open_fixed(t->newest.view.gen, f->node.number, flags, &text);
    f->rendered = text.fixed;
    f->text = text.bytes;
    if (r == 0 && text.value.gen)
        r = render_key(t, &text.value, f);
    shown_free(&text.value);
    return r;
}

static int facts_fixed(const struct gen *g, uint32_t number, struct live_facts *ret)
{
    char name[GGUF_TYPE_NAME_MAX];
    if (check_fixed(g, number) < 0)
        return -ENOENT;
    const struct gguf_kv *kv = &g->gguf->kv[number];
    struct gguf_value v = gguf_value(g->gguf, kv);
    *ret = (struct live_facts){0};
    buf_add(&ret->key, gguf_key(g->gguf, kv), kv->key_len);
    buf_str(&ret->type, gguf_type_name(&v, name));
    return 0;
}

int keys_facts(struct tree *t, uint32_t number, struct live_facts *ret)
{
    return t->live ? live_facts(t->live, number, ret)
                   : facts_fixed(t->newest.view.gen, number, ret);
}
