/* SPDX-License-Identifier: MIT */
/* Handles the calls that change names, and the files in metadata/: see edits.h. */
#include "tree/edits.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tree/attr.h"
#include "tree/begin.h"
#include "tree/tensors.h"

/* ---- the files of metadata/ ---- */

void keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node n = {.kind = NODE_KEY, .number = a->number};
    node_entry_as(t, &v, &n, a, ret);
}

int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret)
{
    struct live_attr a;
    int r = live_attr(t->meta, number, f ? f->live : NULL, &a);
    if (r == 0)
        keys_entry(t, &a, ret);
    return r;
}

/* Open a key for reading. A large text takes a while, so it is rendered without a lock. */
int keys_open(struct tree_file *f, int flags)
{
    struct live_text text = {0};
    int r = sys_open_changes(flags) ? begin_editing(f->tree) : 0;
    if (r < 0)
        return r;
    r = live_open_file(f->tree->meta, f->node.number, flags, &f->live, &text);
    if (f->live)
        f->ops = text.fixed ? &file_key_text : &file_draft;
    f->text = text.bytes;
    if (r == 0 && text.value.snap)
        shown_text(&text.value, &f->text);
    shown_free(&text.value);
    return r;
}

static int create_key(struct tree *t, const char *name, int flags, struct tree_entry *ret,
                      struct tree_file **file)
{
    struct live_attr a;
    struct tree_file *f = tree_file_new(t, ino_key(0));
    if (!f)
        return -ENOMEM;
    int r = live_create(t->meta, name, flags, &a, &f->live);
    if (r < 0) {
        (void)tree_release(f);
        return r;
    }
    f->ops = &file_draft;
    f->node.number = a.number;
    keys_entry(t, &a, ret);
    *file = f;
    return 0;
}

/* ---- names ---- */

/* Return 0 if names in this directory may be changed because it is metadata/ in a writable tree;
 * otherwise return -EROFS, -EACCES, or the reason why editing could not begin. */
static int metadata_folder(struct tree *t, uint64_t parent)
{
    struct node dir = ino_node(parent);
    if (!t->writable)
        return -EROFS;
    bool is = node_is_folder(&dir, ROOT_METADATA);
    return is ? begin_editing(t) : tensors_fixed(t, &dir) ? -EROFS : -EACCES;
}

/* Returns true if a new name would not fit into a listing. */
static bool is_too_long(const char *name)
{
    return strlen(name) > TREE_NAME_MAX;
}

int tree_create(struct tree *t, uint64_t parent, const char *name, int flags,
                struct tree_entry *ret, struct tree_file **file)
{
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir))
        return tensors_create(t, &dir, name, flags, ret, file);
    int r = metadata_folder(t, parent);
    return r < 0 ? r : create_key(t, name, flags, ret, file);
}

int tree_mknod(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct live_attr a;
    struct tree_file *f;
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir)) {
        int r = tensors_create(t, &dir, name, O_EXCL, ret, &f);
        return r < 0 ? r : tree_release(f);
    }
    int r = metadata_folder(t, parent);
    if (r == 0)
        r = live_make(t->meta, name, &a);
    if (r == 0)
        keys_entry(t, &a, ret);
    return r;
}

int tree_fsyncdir(struct tree *t, struct live_wait *w)
{
    return t->live ? live_fsync(t->live, NULL, w) : 0;
}

int tree_unlink(struct tree *t, uint64_t parent, const char *name)
{
    struct node dir = ino_node(parent);
    if (tensors_has(t, &dir))
        return tensors_unlink(t, &dir, name);
    int r = metadata_folder(t, parent);
    return r < 0 ? r : live_unlink(t->meta, name);
}

int tree_rename(struct tree *t, uint64_t parent, const char *name, uint64_t new_parent,
                const char *to, unsigned flags, struct live_wait *w)
{
    struct node dir = ino_node(parent), into = ino_node(new_parent);
    if (is_too_long(to))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir) || tensors_has(t, &into))
        return tensors_rename(t, &dir, name, &into, to, flags, w);
    int r = metadata_folder(t, parent);
    if (r == 0)
        r = metadata_folder(t, new_parent);
    return r < 0 ? r : live_rename(t->meta, name, to, flags, w);
}

int tree_mkdir(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_fixed(t, &dir))
        return -EROFS;
    return node_is_folder(&dir, ROOT_TENSORS) && t->opt.tensors ? tensors_mkdir(t, name, ret)
                                                                : -EPERM;
}

int tree_rmdir(struct tree *t, uint64_t parent, const char *name)
{
    struct node dir = ino_node(parent);
    if (tensors_fixed(t, &dir))
        return -EROFS;
    if (!tensors_has(t, &dir))
        return -EPERM;
    if (dir.kind == NODE_TENSOR)
        return -ENOTDIR;
    int r = begin_editing(t);
    return r < 0 ? r : live_tensor_remove(t->meta, name);
}

int tree_symlink(struct tree *t, uint64_t parent, const char *name, const char *target,
                 struct tree_entry *ret)
{
    struct live_attr a;
    struct node dir = ino_node(parent);
    if (is_too_long(name))
        return -ENAMETOOLONG;
    if (tensors_has(t, &dir))
        return -EPERM;
    int r = metadata_folder(t, parent);
    if (r == 0)
        r = live_symlink(t->meta, name, target, &a);
    if (r == 0)
        keys_entry(t, &a, ret);
    return r;
}

int tree_readlink(struct tree *t, uint64_t node, struct buf *out)
{
    struct node n = tree_node(t, node);
    return n.kind == NODE_KEY ? live_readlink(t->meta, n.number, out) : -EINVAL;
}
