/* SPDX-License-Identifier: MIT */
/* Finds, lists and changes the names in directories: see folder.h. */
#include "tree/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "tree/attr.h"
#include "tree/tensors.h"

/* An entry of a directory other than metadata/. */
struct child {
    uint64_t node;
    size_t name; /* offset in the names */
};

/* An open directory, with its entries when it was opened or rewound. */
struct tree_dir {
    struct tree *t;
    uint64_t node;
    bool keys;           /* the directory is metadata/, with all its entries in `names` */
    struct buf children; /* of struct child */
    struct buf names;    /* each NUL-terminated */
    bool listed;         /* these are filled */
};

/* Return the node number of row i of the root or of a tensor's directory. */
static uint64_t row_ino(const struct snapshot *g, const struct node *dir, uint32_t i)
{
    return dir->kind == NODE_TENSOR        ? ino_make(NODE_TENSOR_FILE, dir->number, i)
           : files_root[i].flags & ROW_DIR ? ino_row(i)
                                           : ino_make(NODE_WHOLE, g->number, i);
}

/* f: what was known before the view was taken, which has a tensor that was added meanwhile. */
static int check_dir(const struct tree *t, const struct live_folder *f, const struct snapshot *g,
                     const struct node *n)
{
    int r = f->making ? 0 : node_check(t, g, n);
    return r < 0 ? r : node_is_dir(n) ? 0 : -ENOTDIR;
}

/* Get the newest view; if the content of `name` changes with each edit, the view includes all
 * edits. */
static int view_for(struct tree *t, const struct node *dir, const char *name, struct view *ret)
{
    const enum files_where where = dir->kind == NODE_ROOT ? FILES_ROOT : FILES_TENSOR;
    const int row = files_named(where, name);
    if (row >= 0 && files_row(where, (size_t)row)->flags & (ROW_WHOLE | ROW_MOVES))
        return live_freshen(t->meta, ret);
    *ret = newest_view(&t->newest);
    return 0;
}

/* Look up a tensor. */
static int lookup_tensor(struct tree *t, const char *name, struct tree_entry *ret)
{
    struct node n = {.kind = NODE_TENSOR};
    int r = live_tensor_find(t->meta, name, &n.number);
    return r < 0 ? r : node_entry(t, &n, ret);
}

/* Look up any other file except a key. No lock is held while the file is measured. */
static int lookup_row(struct tree *t, const struct node *dir, const char *name,
                      struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    const struct live_folder f = tensors_facts(t, dir);
    int r = view_for(t, dir, name, &v);
    if (r == 0)
        r = check_dir(t, &f, v.snap, dir);
    if (r < 0)
        return r;
    const enum files_where where = dir->kind == NODE_ROOT ? FILES_ROOT : FILES_TENSOR;
    const int row = f.making ? files_named(where, name)
                             : files_find(v.snap, where, node_tensor(v.snap, dir), name);
    if (row < 0 || f.removed || f.hidden >> row & 1)
        return -ENOENT;
    const struct node n = ino_node(row_ino(v.snap, dir, (uint32_t)row));
    r = node_known(t, &v, &n);
    if (r < 0)
        return r;
    r = node_entry(t, &n, ret);
    if (r < 0)
        node_forget(t, &n, 1);
    return r;
}

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct node dir = ino_node(parent);
    struct live_attr key;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    if (node_is_folder(&dir, ROOT_TENSORS))
        return lookup_tensor(t, name, ret);
    if (!node_is_folder(&dir, ROOT_METADATA))
        return lookup_row(t, &dir, name, ret);
    int r = live_lookup(t->meta, name, &key);
    if (r == 0)
        key_entry(t, &key, ret);
    return r;
}

int tree_getattr(struct tree *t, uint64_t node, const struct tree_file *f, struct tree_entry *ret)
{
    struct node n = ino_node(node);
    if (n.kind == NODE_KEY) {
        struct live_attr a;
        const int r = live_attr(t->meta, n.number, f ? f->live : NULL, &a);
        if (r == 0)
            key_entry(t, &a, ret);
        return r;
    }
    int r = node_has(&n, ROW_MOVES) ? live_freshen(t->meta, NULL) : 0;
    return r < 0 ? r : node_entry(t, &n, ret);
}

void tree_forget(struct tree *t, uint64_t node, uint64_t n)
{
    struct node at = ino_node(node);
    node_forget(t, &at, n);
    if (at.kind == NODE_KEY)
        live_forget(t->meta, at.number, n);
}

/* ---- listing ---- */

/* Return the row at place i of a listing. In a tensor's directory, type, shape and raw come first,
 * so that a program that copies the directory writes its files in the order in which they are
 * accepted. */
static size_t row_at(enum files_where where, uint64_t i)
{
    static const uint8_t first[] = {4, 3, 0, 1, 2};
    return where == FILES_TENSOR && i < sizeof(first) ? first[i] : (size_t)i;
}

static void add_child(struct tree_dir *d, uint64_t node, const char *name)
{
    const struct child c = {node, d->names.len};
    buf_add(&d->children, &c, sizeof(c));
    buf_add(&d->names, name, strlen(name) + 1);
}

/* List new tensors. */
static void list_making(struct tree_dir *d)
{
    struct live *l = tensors_live(d->t);
    char name[TREE_NAME_MAX + 1];
    struct node n = {.kind = NODE_TENSOR};
    for (uint64_t i = 0; l && live_making_at(l, &i, name, &n.number); i++)
        add_child(d, ino_of(&n), name);
}

/* List the tensors of the model, except removed ones, and then the children in `making`, unless they
 * were added meanwhile. */
static void list_tensors(struct tree_dir *d, const struct snapshot *g, const struct buf *making)
{
    const struct gguf *m = g->gguf;
    const struct child *made = (const struct child *)(const void *)making->data;
    char name[TREE_NAME_MAX + 1];
    struct node n = {.kind = NODE_TENSOR};
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        n.number = ids_of(g->ids, i).number;
        (void)name_encode(gguf_name(m, &m->tensor[i]), m->tensor[i].name_len, name);
        if (!tensors_facts(d->t, &n).removed)
            add_child(d, ino_of(&n), name);
    }
    for (size_t i = 0; i < making->len / sizeof(*made); i++)
        if (ids_find(g->ids, m->n_tensors, ino_node(made[i].node).number) == IDS_NONE)
            buf_add(&d->children, &made[i], sizeof(made[i]));
}

/* List the files of the root or of a tensor; of a new one, those that were written. */
static void list_rows(struct tree_dir *d, const struct live_folder *f, struct snapshot *g,
                      const struct node *n)
{
    const enum files_where where = n->kind == NODE_ROOT ? FILES_ROOT : FILES_TENSOR;
    const struct gguf_tensor *tensor = node_tensor(g, n);
    if (where == FILES_TENSOR && !f->making && (!tensor || f->removed))
        return;
    for (size_t i = 0; i < files_count(where); i++) {
        const uint32_t no = (uint32_t)row_at(where, i);
        const struct row *row = files_row(where, no);
        if (!(f->hidden >> no & 1) && (f->making || files_listed(g, row, tensor, d->t->opt.views)))
            add_child(d, row_ino(g, n, no), row->name);
    }
}

/* Record the current entries of a directory. */
static int open_list(struct tree_dir *d)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    CLEANUP(buf_free) struct buf making = BUF_INIT;
    const struct node n = ino_node(d->node);
    if (d->keys)
        return live_list(d->t->meta, &d->names);
    d->children.len = d->names.len = 0;
    const struct live_folder f = tensors_facts(d->t, &n);
    if (n.kind == NODE_DIR)
        list_making(d);
    making = d->children;
    d->children = BUF_INIT;
    int r = buf_error(&making) ? buf_error(&making) : live_freshen(d->t->meta, &v);
    if (r < 0)
        return r;
    if (n.kind == NODE_DIR)
        list_tensors(d, v.snap, &making);
    else
        list_rows(d, &f, v.snap, &n);
    return buf_error(&d->children) ? buf_error(&d->children) : buf_error(&d->names);
}

int tree_opendir(struct tree *t, uint64_t node, struct tree_dir **ret)
{
    const struct node n = ino_node(node);
    const struct live_folder f = tensors_facts(t, &n);
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    int r = check_dir(t, &f, v.snap, &n);
    if (r < 0)
        return r;
    struct tree_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->t = t;
    atomic_fetch_add(&t->open, 1);
    d->node = node;
    d->keys = node_is_folder(&n, ROOT_METADATA);
    *ret = d;
    return 0;
}

void tree_closedir(struct tree_dir *d)
{
    buf_free(&d->children);
    buf_free(&d->names);
    atomic_fetch_sub(&d->t->open, 1);
    free(d);
}

bool tree_dir_cacheable(const struct tree *t, const struct tree_dir *d)
{
    /* The root's whole-model views get new nodes; all other entries stay, except those in
     * metadata/. */
    return !t->writable || (!d->keys && ino_node(d->node).kind != NODE_ROOT && !t->opt.tensors);
}

/* List "." and "..", which have cookies 0 and 1. The kernel uses only their type. */
static int next_dot(struct tree *t, struct tree_dir *d, uint64_t *cookie,
                    char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    const uint64_t above = ino_node(d->node).kind == NODE_TENSOR ? ino_row(ROOT_TENSORS) : INO_ROOT;
    const uint64_t at = (*cookie)++, ino = at ? above : d->node;
    (void)strcpy(name, at ? ".." : ".");
    brief_entry(t, ino, ino, S_IFDIR, ret);
    return 1;
}

static int next_key(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                    char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    uint64_t i = *cookie - 2;
    struct live_attr a;
    int r = live_list_at(t->meta, &d->names, &i, attrs, name, &a);
    if (r <= 0)
        return r;
    if (attrs)
        key_entry(t, &a, ret);
    else
        brief_entry(t, ino_key(a.number), ino_key(a.ino), S_IFREG, ret);
    *cookie = i + 3;
    return 1;
}

/* Get the next entry of a directory other than metadata/ that is still there. */
static int next_child(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    const struct child *all = (const struct child *)(const void *)d->children.data;
    int r = -ENOENT;
    while (r == -ENOENT || r == -ESTALE) {
        const uint64_t i = *cookie - 2;
        if (i >= d->children.len / sizeof(*all))
            return 0;
        const struct node n = ino_node(all[i].node);
        ++*cookie;
        (void)strcpy(name, (const char *)d->names.data + all[i].name);
        brief_entry(t, all[i].node, node_inode(&n), node_is_dir(&n) ? S_IFDIR : S_IFREG, ret);
        r = attrs ? live_freshen(t->meta, NULL) : 0;
        if (n.kind == NODE_WHOLE) /* not measured; the kernel looks the view up when needed */
            ret->node = 0;
        else if (attrs && r == 0)
            r = node_entry(t, &n, ret);
    }
    return r < 0 ? r : 1;
}

int tree_readdir(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    /* At the first read, which may follow a part that the kernel knew, and after a rewind. */
    const int r = d->listed && *cookie > 0 ? 0 : open_list(d);
    d->listed = r == 0;
    return r < 0         ? r
           : *cookie < 2 ? next_dot(t, d, cookie, name, ret)
           : d->keys     ? next_key(t, d, cookie, attrs, name, ret)
                         : next_child(t, d, cookie, attrs, name, ret);
}

/* ---- names that change ---- */

static int create_key(struct tree *t, const char *name, int flags, struct tree_entry *ret,
                      struct tree_file **file)
{
    struct live_attr a;
    struct tree_file *f = tree_file_new(t, ino_key(0));
    if (!f)
        return -ENOMEM;
    int r = live_create(t->meta, name, flags, &a, &f->live);
    if (r < 0) {
        tree_release(f);
        return r;
    }
    f->node.number = a.number;
    key_entry(t, &a, ret);
    *file = f;
    return 0;
}

enum { NAMES_KEYS, NAMES_TENSORS };

/* Begin to change a name in a directory. Returns which names those are, or -errno. */
static int begin_names(struct tree *t, const struct node *dir, const char *new_name)
{
    if (new_name && strlen(new_name) > TREE_NAME_MAX) /* it would not fit into a listing */
        return -ENAMETOOLONG;
    if (!t->writable || tensors_fixed(t, dir))
        return -EROFS;
    const bool tensors = tensors_has(t, dir);
    if (!tensors && !node_is_folder(dir, ROOT_METADATA))
        return -EACCES;
    int r = begin_editing(t);
    return r < 0 ? r : tensors ? NAMES_TENSORS : NAMES_KEYS;
}

int tree_create(struct tree *t, uint64_t parent, const char *name, int flags,
                struct tree_entry *ret, struct tree_file **file)
{
    const struct node dir = ino_node(parent);
    int r = begin_names(t, &dir, name);
    return r < 0                ? r
           : r == NAMES_TENSORS ? tensors_create(t, &dir, name, flags, ret, file)
                                : create_key(t, name, flags, ret, file);
}

int tree_mknod(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct live_attr a;
    struct tree_file *f;
    const struct node dir = ino_node(parent);
    int r = begin_names(t, &dir, name);
    if (r == NAMES_TENSORS) {
        r = tensors_create(t, &dir, name, O_EXCL, ret, &f);
        if (r == 0)
            tree_release(f);
        return r;
    }
    if (r == 0)
        r = live_make(t->meta, name, &a);
    if (r == 0)
        key_entry(t, &a, ret);
    return r;
}

int tree_fsyncdir(struct tree *t, struct live_wait *w)
{
    return t->live ? live_fsync(t->live, w) : 0;
}

int tree_unlink(struct tree *t, uint64_t parent, const char *name)
{
    const struct node dir = ino_node(parent);
    int r = begin_names(t, &dir, NULL);
    return r < 0                ? r
           : r == NAMES_TENSORS ? tensors_unlink(t, &dir, name)
                                : live_unlink(t->meta, name);
}

int tree_rename(struct tree *t, uint64_t parent, const char *name, uint64_t new_parent,
                const char *to, unsigned flags, struct live_wait *w)
{
    const struct node dir = ino_node(parent), into = ino_node(new_parent);
    int r = begin_names(t, &dir, to), r2 = begin_names(t, &into, to);
    if (r < 0 || r2 < 0)
        return r < 0 ? r : r2;
    if (r != r2 || dir.kind != NODE_DIR || into.kind != NODE_DIR)
        return -EPERM;
    return r == NAMES_TENSORS ? live_tensor_rename(t->meta, name, to, flags, w)
                              : live_rename(t->meta, name, to, flags, w);
}

int tree_mkdir(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    const struct node dir = ino_node(parent);
    int r = begin_names(t, &dir, name);
    return r < 0                                        ? r
           : r == NAMES_TENSORS && dir.kind == NODE_DIR ? tensors_mkdir(t, name, ret)
                                                        : -EPERM;
}

int tree_rmdir(struct tree *t, uint64_t parent, const char *name)
{
    const struct node dir = ino_node(parent);
    int r = begin_names(t, &dir, NULL);
    return r < 0                     ? r
           : r == NAMES_KEYS         ? -EPERM
           : dir.kind == NODE_TENSOR ? -ENOTDIR
                                     : live_tensor_remove(t->meta, name);
}
