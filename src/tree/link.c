/* SPDX-License-Identifier: MIT */
/* Symbolic links in metadata/, which live in memory as all helpers do. See tree.h, keys.h. */
#include "tree/internal.h"

#include <errno.h>
#include <string.h>

/* emacs locks a file by a link .#NAME. A key cannot be a link. */
static int make_link(struct tree *t, const char *name, const char *target, struct tree_entry *ret)
{
    if (keys_find(&t->keys, t->now.gen, name) != KV_NONE)
        return -EEXIST;
    if (tree_classify(t, name) != NAME_HELPER)
        return -EPERM;
    if (!keys_have_room(&t->keys, 0, strlen(target)))
        return -ENOSPC;
    keys_clear(&t->keys, name);
    struct kfile *f = keys_add(&t->keys, name, KFILE_LINK);
    if (!f)
        return -ENOMEM;
    buf_str(&f->content, target);
    t->keys.helper_bytes += f->content.len;
    int r = buf_error(&f->content);
    if (r == 0)
        r = node_entry(t, &t->now, &(struct node){.kind = NODE_KEY, .number = f->id}, ret);
    if (r < 0) {
        keys_kill(&t->keys, f);
        return r;
    }
    entry_size(ret, f->content.len);
    f->lookups++;
    return 0;
}

int tree_symlink(struct tree *t, uint64_t parent, const char *name, const char *target,
                 struct tree_entry *ret)
{
    int r = metadata_folder(t, parent);
    if (r < 0)
        return r;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    (void)pthread_mutex_lock(&t->lock);
    r = make_link(t, name, target, ret);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

int tree_readlink(struct tree *t, uint64_t node, struct buf *out)
{
    struct node n = ino_node(node);
    int r = -EINVAL;
    (void)pthread_mutex_lock(&t->lock);
    const struct kfile *f =
        n.kind == NODE_KEY && t->writable && n.number < t->keys.n ? t->keys.file[n.number] : NULL;
    if (f && f->state == KFILE_LINK) {
        buf_add(out, f->content.data, f->content.len);
        r = buf_error(out);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}
