/* SPDX-License-Identifier: MIT */
/* The calls that edit: see edits.h. */
#include "tree/edits.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tree/begin.h"
#include "tree/keys.h"
#include "tree/tensors.h"

/*
 * 0 if names in this directory may be changed: it is metadata/ of a writable tree, and *l is what is edited. -EROFS,
 * -EACCES.
 */
static int metadata_folder(struct tree *t, uint64_t parent, struct live **l)
{
    struct node dir = ino_node(parent);
    if (!t->writable)
        return -EROFS;
    bool is = node_is_folder(&dir, ROOT_METADATA);
    return is ? begin_editing(t, l) : tensors_fixed(t, &dir) ? -EROFS : -EACCES;
}

/* The longest new name: longer ones do not fit into a listing. */
static bool is_too_long(const char *name)
{
    return strlen(name) > TREE_NAME_MAX;
}

int tree_create(struct tree *t, uint64_t parent, const char *name, int flags,
                struct tree_entry *ret, struct tree_file **file)
{
    struct live *l;
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir))
        return tensors_create(t, &dir, name, flags, ret, file);
    int r = metadata_folder(t, parent, &l);
    return r < 0 ? r : keys_create(t, l, name, flags, ret, file);
}

int tree_mknod(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct live_attr a;
    struct live *l;
    struct tree_file *f;
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir)) {
        int r = tensors_create(t, &dir, name, O_EXCL, ret, &f);
        return r < 0 ? r : tree_release(f);
    }
    int r = metadata_folder(t, parent, &l);
    if (r == 0)
        r = live_make(l, name, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

int tree_fsyncdir(struct tree *t, struct live_wait *w)
{
    return t->live ? live_fsync(t->live, NULL, w) : 0;
}

int tree_unlink(struct tree *t, uint64_t parent, const char *name)
{
    struct live *l;
    struct node dir = ino_node(parent);
    if (tensors_has(t, &dir))
        return tensors_unlink(t, &dir, name);
    int r = metadata_folder(t, parent, &l);
    return r < 0 ? r : live_unlink(l, name);
}

int tree_rename(struct tree *t, uint64_t parent, const char *name, uint64_t new_parent,
                const char *to, unsigned flags, struct live_wait *w)
{
    struct live *l;
    struct node dir = ino_node(parent), into = ino_node(new_parent);
    if (is_too_long(to))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir) || tensors_has(t, &into))
        return tensors_rename(t, &dir, name, &into, to, flags, w);
    int r = metadata_folder(t, parent, &l);
    if (r == 0)
        r = metadata_folder(t, new_parent, &l);
    return r < 0 ? r : live_rename(l, name, to, flags, w);
}

int tree_mkdir(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_fixed(t, &dir))
        return -EROFS;
    return tensors_has(t, &dir) ? tensors_mkdir(t, &dir, name, ret) : -EPERM;
}

int tree_rmdir(struct tree *t, uint64_t parent, const char *name)
{
    struct node dir = ino_node(parent);
    if (tensors_fixed(t, &dir))
        return -EROFS;
    return tensors_has(t, &dir) ? tensors_rmdir(t, &dir, name) : -EPERM;
}

int tree_symlink(struct tree *t, uint64_t parent, const char *name, const char *target,
                 struct tree_entry *ret)
{
    struct live_attr a;
    struct live *l;
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir))
        return -EPERM;
    int r = metadata_folder(t, parent, &l);
    if (r == 0)
        r = live_symlink(l, name, target, &a);
    return r < 0 ? r : keys_entry(t, &a, ret);
}

int tree_readlink(struct tree *t, uint64_t node, struct buf *out)
{
    struct node n = tree_node(t, node);
    return t->live && n.kind == NODE_KEY ? live_readlink(t->live, n.number, out) : -EINVAL;
}
