/* SPDX-License-Identifier: MIT */
/* metadata/: see keys.h. */
#include "tree/keys.h"

#include <errno.h>

#include "tree/attr.h"
#include "tree/begin.h"

int keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node n = {.kind = NODE_KEY, .number = a->number};
    return node_entry_as(t, &v, &n, a, ret);
}

int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret)
{
    struct live_attr a;
    int r = live_attr(t->meta, number, f ? f->live : NULL, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

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
        f->ops = text.fixed ? &file_key_text : &file_draft;
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
        f->ops = &file_draft;
        f->node.number = a.number;
        r = keys_entry(t, &a, ret);
    }
    if (r < 0)
        (void)tree_release(f);
    else
        *file = f;
    return r;
}
