/* SPDX-License-Identifier: MIT */
/* metadata/, as what is edited of a model has it (live/live.h), whether or not it can be. */
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

int keys_lookup(struct tree *t, const char *name, struct tree_entry *ret)
{
    struct live_attr a;
    int r = live_lookup(t->meta, name, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret)
{
    struct live_attr a;
    int r = live_attr(t->meta, number, f ? f->live : NULL, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

void keys_forget(struct tree *t, uint32_t number, uint64_t n)
{
    live_forget(t->meta, number, n);
}

int keys_list(struct tree *t, struct live_list *list)
{
    return live_list(t->meta, list);
}

int keys_list_at(struct tree *t, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct live_attr a;
    int r = live_list_at(t->meta, list, i, attrs, name, &a);
    if (r <= 0)
        return r;
    if (attrs)
        r = keys_entry(t, &a, ret);
    else
        brief_entry(ino_key(t->keys + a.number), ino_key(t->keys + a.ino),
                    a.link ? S_IFLNK : S_IFREG, ret);
    return r < 0 ? r : 1;
}

/* ---- files and facts ---- */

static int read_key(struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    r->bytes = r->scratch;
    r->len = live_read(f->tree->meta, f->live, off, n, r->scratch);
    return 0;
}

static int write_key(struct tree_file *f, uint64_t off, const void *bytes, size_t n,
                     struct live_wait *w)
{
    (void)w;
    return live_write(f->tree->meta, f->live, off, bytes, n);
}

static int truncate_key(struct tree_file *f, uint64_t size, struct live_wait *w)
{
    return live_truncate(f->tree->meta, f->node.number, f->live, size, w);
}

static int flush_key(struct tree_file *f, struct live_wait *w)
{
    return live_flush(f->tree->meta, f->live, w);
}

static int fsync_key(struct tree_file *f, struct live_wait *w)
{
    return live_fsync(f->tree->meta, f->live, w);
}

static void release_key(struct tree_file *f)
{
    live_release(f->tree->meta, f->live);
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
    struct live *l;
    int r = sys_open_changes(flags) ? begin_editing(t, &l) : 0;
    if (r < 0)
        return r;
    r = live_open_file(t->meta, f->node.number, flags, &f->live, &text);
    if (f->live)
        f->ops = text.fixed ? &file_key_text : &file_key;
    f->text = text.bytes;
    if (r == 0 && text.value.snap)
        shown_text(&text.value, &f->text);
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

int keys_forgive(struct tree *t, uint32_t number)
{
    lock_take(&t->newest.lock);
    t->refusal[0] = '\0';
    lock_drop(&t->newest.lock);
    return live_forgive(t->meta, number);
}

/* Why the first edit could not be begun is said of each key. */
int keys_facts(struct tree *t, uint32_t number, struct live_facts *ret)
{
    int r = live_facts(t->meta, number, ret);
    if (r < 0 || atomic_load(&t->live))
        return r;
    LOCKED(&t->newest.lock);
    if (t->refusal[0])
        ret->error.len = 0;
    buf_str(&ret->error, t->refusal);
    return 0;
}
