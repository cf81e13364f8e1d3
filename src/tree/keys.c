/* SPDX-License-Identifier: MIT */
/*
 * metadata/: what is being edited of a model that can be (live/live.h), else what its one
 * snapshot holds. The only functions that do either.
 */
#include "base/lock.h"
#include "text/type_name.h"
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node n = {.kind = NODE_KEY, .number = a->number};
    return node_entry_as(t, &v, &n, a, ret);
}

/* Of the one snapshot. */
static void attr_fixed(const struct snapshot *g, uint32_t kv, struct live_attr *ret)
{
    *ret = (struct live_attr){
        .number = kv,
        .ino = kv,
        .size = shown_size(&(struct shown){.snap = (struct snapshot *)g, .kv = kv})};
}

static int lookup_fixed(const struct snapshot *g, const char *name, struct live_attr *ret)
{
    uint32_t kv = snapshot_find_key(g, name);
    if (kv == UINT32_MAX || !snapshot_shows_key(g, kv))
        return -ENOENT;
    attr_fixed(g, kv, ret);
    return 0;
}

/* What is edited; or NULL, and the one snapshot that there is so far: to be freed in either case. */
static struct live *live_or_view(struct tree *t, struct view *v)
{
    *v = newest_view(&t->newest);
    return atomic_load(&t->live);
}

int keys_lookup(struct tree *t, const char *name, struct tree_entry *ret)
{
    struct live_attr a;
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live *l = live_or_view(t, &v);
    int r = l ? live_lookup(l, name, &a) : lookup_fixed(v.snap, name, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

static int check_fixed(const struct snapshot *g, uint32_t kv)
{
    return kv < g->gguf->n_kv ? 0 : -ENOENT;
}

int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret)
{
    struct live_attr a;
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live *l = live_or_view(t, &v);
    int r = l ? live_attr(l, number, f ? f->live : NULL, &a) : check_fixed(v.snap, number);
    if (r == 0 && !l)
        attr_fixed(v.snap, number, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

void keys_forget(struct tree *t, uint32_t number, uint64_t n)
{
    if (t->live)
        live_forget(t->live, number, n);
}

/* ---- listing ---- */

/* Of the one snapshot: the inos that its keys have when editing begins, too. */
static int list_all(const struct snapshot *g, struct live_list *list)
{
    uint32_t *ino = malloc(((size_t)g->gguf->n_kv + 1) * sizeof(*ino));
    if (!ino)
        return -ENOMEM;
    live_list_free(list);
    list->ino = ino;
    for (uint32_t i = 0; i < g->gguf->n_kv; i++)
        if (snapshot_shows_key(g, i))
            ino[list->n++] = i;
    return 0;
}

int keys_list(struct tree *t, struct live_list *list)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live *l = live_or_view(t, &v);
    return l ? live_list(l, list) : list_all(v.snap, list);
}

static int list_fixed(const struct snapshot *g, const struct live_list *list, uint64_t i,
                      char name[TREE_NAME_MAX + 1], struct live_attr *ret)
{
    if (i >= list->n)
        return 0;
    const struct gguf_kv *kv = &g->gguf->kv[list->ino[i]];
    (void)name_encode(gguf_key(g->gguf, kv), kv->key_len, name);
    ret->number = ret->ino = list->ino[i];
    return 1;
}

int keys_list_at(struct tree *t, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct live_attr a = {0};
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live *l = live_or_view(t, &v);
    int r = l ? live_list_at(l, list, i, attrs, name, &a) : list_fixed(v.snap, list, *i, name, &a);
    if (r <= 0)
        return r;
    if (!l && attrs)
        attr_fixed(v.snap, a.number, &a);
    if (attrs)
        r = keys_entry(t, &a, ret);
    else
        brief_entry(ino_key(t->keys + a.number), ino_key(t->keys + a.ino),
                    a.link ? S_IFLNK : S_IFREG, ret);
    return r < 0 ? r : 1;
}

/* ---- files and facts ---- */

static int open_fixed(struct snapshot *g, uint32_t kv, int flags, struct live_text *text)
{
    if (check_fixed(g, kv) < 0)
        return -ENOENT;
    if (sys_open_changes(flags))
        return -EROFS;
    *text = (struct live_text){.fixed = true, .value = {snapshot_ref(g), NULL, kv}};
    return 0;
}

static int read_key(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    r->bytes = r->scratch;
    r->len = live_read(f->tree->live, f->live, off, n, r->scratch);
    return 0;
}

static int write_key(struct tree_file *f, uint64_t off, const void *bytes, size_t n,
                     struct live_wait *w)
{
    (void)w;
    return live_write(f->tree->live, f->live, off, bytes, n);
}

static int truncate_key(struct tree_file *f, uint64_t size, struct live_wait *w)
{
    return live_truncate(f->tree->live, f->node.number, f->live, size, w);
}

static int flush_key(struct tree_file *f, struct live_wait *w)
{
    return live_flush(f->tree->live, f->live, w);
}

static int fsync_key(struct tree_file *f, struct live_wait *w)
{
    return live_fsync(f->tree->live, f->live, w);
}

static void release_key(struct tree_file *f)
{
    live_release(f->tree->live, f->live);
}

static const struct file_ops file_key = {.read = read_key,
                                         .write = write_key,
                                         .truncate = truncate_key,
                                         .flush = flush_key,
                                         .fsync = fsync_key,
                                         .release = release_key};
static const struct file_ops file_key_text = {
    .read = file_read_text, .fsync = fsync_key, .release = release_key};

/* A large text takes a while: it is rendered without a lock. */
int keys_open(struct tree *t, struct tree_file *f, int flags)
{
    struct live_text text = {0};
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live *l = live_or_view(t, &v);
    bool writes = sys_open_changes(flags);
    int r = writes && t->writable ? begin_editing(t, &l) : 0;
    if (r < 0)
        return r;
    r = l ? live_open_file(l, f->node.number, flags, &f->live, &text)
          : open_fixed(v.snap, f->node.number, flags, &text);
    if (f->live)
        f->ops = text.fixed ? &file_key_text : &file_key;
    f->text = text.bytes;
    if (r == 0 && text.value.snap)
        r = render_key(t, &text.value, f);
    shown_free(&text.value);
    return r;
}

int keys_create(struct tree *t, struct live *l, const char *name, int flags, struct tree_entry *ret,
                struct tree_file **file)
{
    struct live_attr a;
    struct tree_file *f = tree_file_new(t, ino_key(0));
    if (!f)
        return -ENOMEM;
    int r = live_create(l, name, flags, &a, &f->live);
    if (r == 0) {
        f->ops = &file_key;
        f->node.number = a.number;
        r = keys_entry(t, &a, ret);
    }
    if (r < 0)
        (void)tree_release(f);
    else
        *file = f;
    return r;
}

static int facts_fixed(const struct snapshot *g, uint32_t number, struct live_facts *ret)
{
    if (check_fixed(g, number) < 0)
        return -ENOENT;
    const struct gguf_kv *kv = &g->gguf->kv[number];
    struct gguf_value v = gguf_value(g->gguf, kv);
    *ret = (struct live_facts){0};
    buf_add(&ret->key, gguf_key(g->gguf, kv), kv->key_len);
    type_name_put(&v, &ret->type);
    return 0;
}

/* Why the first edit could not be begun is said of each key; and what an edit of before was refused for. */
static void add_refusal(struct tree *t, struct live_facts *ret)
{
    char name[TREE_NAME_MAX + 1];
    lock_take(&t->newest.lock);
    buf_str(&ret->error, t->refusal);
    lock_drop(&t->newest.lock);
    (void)name_encode(buf_text(&ret->key), ret->key.len, name);
    if (!ret->error.len)
        note_of(t, "", name, &ret->error);
}

int keys_forgive(struct tree *t, uint32_t number)
{
    struct live *l = atomic_load(&t->live);
    if (l)
        return live_forgive(l, number);
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    lock_take(&t->newest.lock);
    t->refusal[0] = '\0';
    lock_drop(&t->newest.lock);
    if (check_fixed(v.snap, number) == 0) {
        const struct gguf_kv *kv = &v.snap->gguf->kv[number];
        char name[TREE_NAME_MAX + 1];
        (void)name_encode(gguf_key(v.snap->gguf, kv), kv->key_len, name);
        note_forget(t, "", name);
    }
    return 0;
}

int keys_facts(struct tree *t, uint32_t number, struct live_facts *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live *l = live_or_view(t, &v);
    int r = l ? live_facts(l, number, ret) : facts_fixed(v.snap, number, ret);
    if (r == 0 && !l)
        add_refusal(t, ret);
    return r;
}
