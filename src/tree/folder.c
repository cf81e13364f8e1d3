/* SPDX-License-Identifier: MIT */
/* Finding and listing what is in the tree. See folder.h. */
#include "tree/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/attr.h"
#include "tree/keys.h"
#include "tree/tensors.h"

struct tree_dir {
    struct tree *t;
    uint64_t node;
    bool keys;             /* it is metadata/, with this content when opened: */
    struct live_list list; /* of a writable tree */
    struct snapshot *snap; /* tensors/: a reference, whose tensors are listed; otherwise NULL */
};

/* The node number of row i at the root, or of a tensor's row. */
static uint64_t root_ino(const struct snapshot *g, uint32_t i)
{
    return files_root[i].flags & ROW_DIR ? ino_row(i) : ino_whole(g->number, i);
}

/* A tensor's file gets a new node when the tensor's bytes, type or shape change. */
static uint64_t tensor_file(const struct snapshot *g, const struct gguf_tensor *tensor,
                            uint32_t row)
{
    return ino_tensor_file(ids_of(g->ids, snapshot_tensor_no(g, tensor)).version, row);
}

/* The node number of `name` in a directory other than metadata/, 0 if it does not exist. */
static uint64_t find_child(struct snapshot *g, const struct node *dir, const char *name)
{
    const struct gguf_tensor *tensor = node_tensor(g, dir);
    uint32_t found;
    int row;
    if (dir->kind == NODE_ROOT) {
        row = files_find(g, FILES_ROOT, NULL, name);
        return row < 0 ? 0 : root_ino(g, (uint32_t)row);
    }
    if (dir->kind == NODE_TENSOR) {
        row = files_find(g, FILES_TENSOR, tensor, name);
        return row < 0 ? 0 : tensor_file(g, tensor, (uint32_t)row);
    }
    found = snapshot_find_tensor(g, name);
    return found == UINT32_MAX ? 0 : ino_tensor(ids_of(g->ids, found).number);
}

/* The parent directory of a directory. */
static uint64_t parent_of(const struct node *dir)
{
    return dir->kind == NODE_TENSOR ? ino_row(ROOT_TENSORS) : INO_ROOT;
}

static int check_dir(struct tree *t, const struct snapshot *g, const struct node *n)
{
    struct tree_entry e;
    uint32_t views;
    if (tensors_is_making(t, n, &views))
        return 0;
    int r = n->kind == NODE_KEY ? keys_attr(t, n->number, NULL, &e) : node_check(t, g, n);
    return r < 0 ? r : node_is_dir(n) ? 0 : -ENOTDIR;
}

/* True if what a row shows changes with each edit, so that it must be the newest. */
static bool moves(const struct row *row)
{
    return row->flags & (ROW_WHOLE | ROW_MOVES);
}

/* True for an unlinked view, or anything in a removed directory. */
static bool is_hidden(struct snapshot *g, const struct node *dir, const char *name,
                      const struct live_folder *folder)
{
    if (!folder->hidden)
        return folder->removed;
    int row = files_find(g, FILES_TENSOR, node_tensor(g, dir), name);
    return folder->removed || (row >= 0 && folder->hidden >> row & 1);
}

/* The newest snapshot, with all edits in it if that affects `name`. */
static int view_for(struct tree *t, const struct node *dir, const char *name, struct view *ret)
{
    *ret = newest_view(&t->newest);
    int r = check_dir(t, ret->snap, dir);
    if (r < 0 || dir->kind == NODE_DIR)
        return r;
    enum files_where where = dir->kind == NODE_ROOT ? FILES_ROOT : FILES_TENSOR;
    int row = files_find(ret->snap, where, node_tensor(ret->snap, dir), name);
    if (row < 0 || !moves(files_row(where, (size_t)row)) || !t->live)
        return 0;
    view_free(ret);
    *ret = VIEW_INIT;
    r = live_freshen(t->meta, where == FILES_ROOT, ret);
    return r < 0 ? r : check_dir(t, ret->snap, dir);
}

/* Look up anything but a key: no lock is held while it is measured. */
static int lookup_row(struct tree *t, const struct node *dir, const char *name,
                      struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live_folder folder;
    struct live *l = tensors_live(t);
    uint32_t views;
    if (l && dir->kind == NODE_DIR) {
        struct node n = {.kind = NODE_TENSOR};
        int found = live_tensor_find(l, name, &n.number);
        v = newest_view(&t->newest);
        return found < 0 ? found : tensors_entry(t, &v, &n, ret);
    }
    int r = tensors_helper(t, dir, name, ret);
    if (r != 0)
        return r < 0 ? r : 0;
    if (tensors_is_making(t, dir, &views))
        return tensors_making_lookup(t, dir, name, ret);
    r = tensors_facts(t, NULL, dir, true, &folder);
    if (r == 0)
        r = view_for(t, dir, name, &v);
    if (r < 0)
        return r;
    if (is_hidden(v.snap, dir, name, &folder))
        return -ENOENT;
    uint64_t ino = find_child(v.snap, dir, name);
    if (!ino)
        return -ENOENT;
    struct node n = ino_node(ino);
    r = tensors_look(t, dir, &n, ret);
    if (r != 0)
        return r < 0 ? r : 0;
    r = node_known(t, &v, &n);
    if (r < 0)
        return r;
    r = node_entry(t, &v, &n, ret);
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
    if (!node_is_folder(&dir, ROOT_METADATA))
        return lookup_row(t, &dir, name, ret);
    int r = live_lookup(t->meta, name, &key);
    return r < 0 ? r : keys_entry(t, &key, ret);
}

int tree_getattr(struct tree *t, uint64_t node, const struct tree_file *f, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct node n = tree_node(t, node);
    if (n.kind == NODE_KEY)
        return keys_attr(t, n.number, f, ret);
    int draft = tensors_draft(t, &n, ret);
    if (!draft)
        draft = tensors_making(t, &n, ret);
    if (draft)
        return draft < 0 ? draft : 0;
    const struct row *row = n.kind == NODE_TENSOR_FILE ? node_row(&n) : NULL;
    int r = row && moves(row) ? live_freshen(t->meta, false, NULL) : 0;
    if (r == 0)
        r = tree_view_of(t, &n, &v);
    if (r == 0)
        r = node_entry(t, &v, &n, ret);
    return r == -ESTALE ? tensors_replaced(t, &n, ret) : r;
}

void tree_forget(struct tree *t, uint64_t node, uint64_t n)
{
    struct node at = tree_node(t, node);
    node_forget(t, &at, n);
    if (at.kind == NODE_KEY)
        live_forget(t->meta, at.number, n);
}

/* ---- listing ---- */

/*
 * The row at place i of a listing. For a tensor type, shape and raw come first: copies of the directory are then made
 * in the order in which they are accepted.
 */
static size_t row_at(enum files_where where, uint64_t i)
{
    static const uint8_t first[] = {4, 3, 0, 1, 2};
    return where == FILES_TENSOR && i < sizeof(first) ? first[i] : (size_t)i;
}

/* The first listed row from place *i on; false: no more rows. */
static bool next_row(const struct tree *t, struct snapshot *g, enum files_where where,
                     const struct gguf_tensor *tensor, uint32_t hidden, uint64_t *i)
{
    for (; *i < files_count(where); ++*i) {
        size_t row = row_at(where, *i);
        if (files_listed(g, files_row(where, row), tensor, t->opt.views) && !(hidden >> row & 1))
            return true;
    }
    return false;
}

/* The next listed tensor, skipping removed ones. */
static uint64_t next_tensor(struct tree *t, const struct snapshot *g, uint64_t *i,
                            char name[TREE_NAME_MAX + 1])
{
    const struct gguf *m = g->gguf;
    struct live_folder folder = {.removed = true};
    struct node n = {.kind = NODE_TENSOR};
    for (; *i < m->n_tensors; ++*i) {
        n.number = ids_of(g->ids, (uint32_t)*i).number;
        if (tensors_facts(t, g, &n, false, &folder) == 0 && !folder.removed)
            break;
    }
    struct live *l = *i >= m->n_tensors ? tensors_live(t) : NULL;
    if (*i >= m->n_tensors) {
        uint64_t at = *i - m->n_tensors;
        bool made = l && live_making_at(l, &at, name, &n.number);
        *i = m->n_tensors + at;
        return made ? ino_of(&n) : 0;
    }
    (void)name_encode(gguf_name(m, &m->tensor[*i]), m->tensor[*i].name_len, name);
    return ino_of(&n);
}

/*
 * Entry *i of a directory other than metadata/, or the next listed one: name and node number, 0 if there are no more.
 * Sets *i to the number of that entry.
 */
static uint64_t child_at(struct tree *t, struct snapshot *g, const struct node *dir, uint64_t *i,
                         char name[TREE_NAME_MAX + 1])
{
    struct live_folder folder = {0};
    if (dir->kind == NODE_ROOT || dir->kind == NODE_TENSOR) {
        enum files_where where = dir->kind == NODE_ROOT ? FILES_ROOT : FILES_TENSOR;
        bool gone = where == FILES_TENSOR && !node_tensor(g, dir);
        (void)tensors_facts(t, g, dir, false, &folder);
        if (gone || folder.removed || !next_row(t, g, where, node_tensor(g, dir), folder.hidden, i))
            return 0;
        uint32_t row = (uint32_t)row_at(where, *i);
        (void)strcpy(name, files_row(where, row)->name);
        return where == FILES_ROOT ? root_ino(g, row) : tensor_file(g, node_tensor(g, dir), row);
    }
    return next_tensor(t, g, i, name);
}

/* Record what a directory holds now, if an edit may change the list. */
static int open_list(struct tree *t, struct tree_dir *d)
{
    struct node n = ino_node(d->node);
    if (node_is_folder(&n, ROOT_TENSORS)) {
        int r = t->opt.tensors ? live_freshen(t->meta, false, NULL) : 0;
        CLEANUP(view_free) struct view v = newest_view(&t->newest);
        if (r < 0)
            return r;
        snapshot_unref(d->snap);
        d->snap = snapshot_ref(v.snap);
    }
    return d->keys ? live_list(t->meta, &d->list) : 0;
}

int tree_opendir(struct tree *t, uint64_t node, struct tree_dir **ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node n = tree_node(t, node);
    int r = check_dir(t, v.snap, &n);
    if (r < 0)
        return r;
    struct tree_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->t = t;
    atomic_fetch_add(&t->open, 1);
    d->node = node;
    d->keys = node_is_folder(&n, ROOT_METADATA);
    r = open_list(t, d);
    if (r < 0)
        tree_closedir(d);
    else
        *ret = d;
    return r;
}

void tree_closedir(struct tree_dir *d)
{
    live_list_free(&d->list);
    snapshot_unref(d->snap);
    atomic_fetch_sub(&d->t->open, 1);
    free(d);
}

bool tree_dir_cacheable(const struct tree *t, const struct tree_dir *d)
{
    /* The root's whole-model views get new nodes; everything else but metadata/ stays. */
    return !t->writable || (!d->keys && d->node != INO_ROOT && !t->opt.tensors);
}

/* "." and "..": cookies 0 and 1. */
static int next_dot(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                    char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct node n = ino_node(d->node);
    uint64_t at = (*cookie)++;
    uint64_t ino = at ? parent_of(&n) : d->node;
    (void)strcpy(name, at ? ".." : ".");
    if (at == 0 && open_list(t, d) < 0) /* rewound: look again */
        return -ENOMEM;
    if (!attrs) {
        brief_entry(ino, ino, S_IFDIR, ret);
        return 1;
    }
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    n = ino_node(ino);
    int r = tensors_entry(t, &v, &n, ret);
    return r < 0 ? r : 1;
}

static int next_key(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                    char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    uint64_t i = *cookie - 2;
    struct live_attr a;
    int r = live_list_at(t->meta, &d->list, &i, attrs, name, &a);
    if (r <= 0)
        return r;
    if (attrs)
        r = keys_entry(t, &a, ret);
    else
        brief_entry(ino_key(t->keys + a.number), ino_key(t->keys + a.ino),
                    a.link ? S_IFLNK : S_IFREG, ret);
    *cookie = i + 3;
    return r < 0 ? r : 1;
}

/* A written view of a tensor being made. */
static int next_written(struct tree *t, const struct node *dir, uint32_t views, uint64_t *cookie,
                        bool attrs, char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    uint64_t i = *cookie - 2;
    while (i < files_count(FILES_TENSOR) && !(views >> row_at(FILES_TENSOR, i) & 1))
        i++;
    *cookie = i + 3;
    if (i >= files_count(FILES_TENSOR))
        return tensors_helper_at(t, dir, i - files_count(FILES_TENSOR), attrs, name, ret);
    uint32_t row = (uint32_t)row_at(FILES_TENSOR, i);
    uint64_t ino = ino_tensor_file(dir->number, row);
    (void)strcpy(name, files_row(FILES_TENSOR, row)->name);
    brief_entry(ino, ino, S_IFREG, ret);
    int r = attrs ? tensors_making_lookup(t, dir, name, ret) : 0;
    return r == -ENOENT ? -ESTALE : r < 0 ? r : 1;
}

/* -ESTALE: the entry was removed meanwhile; *cookie is that of the next. */
static int next_row_entry(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                          char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct node n = ino_node(d->node);
    uint64_t i = *cookie - 2;
    uint32_t views;
    if (tensors_is_making(t, &n, &views))
        return next_written(t, &n, views, cookie, attrs, name, ret);
    int r = attrs && n.kind == NODE_TENSOR ? live_freshen(t->meta, false, NULL) : 0; /* `offset` */
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    uint64_t ino = r == 0 ? child_at(t, d->snap ? d->snap : v.snap, &n, &i, name) : 0;
    if (!ino && r == 0 && n.kind == NODE_TENSOR) {
        *cookie = i + 3;
        return tensors_helper_at(t, &n, i - files_count(FILES_TENSOR), attrs, name, ret);
    }
    if (!ino)
        return r;
    struct node child = ino_node(ino);
    bool whole = child.kind == NODE_WHOLE;
    if (attrs && !whole)
        r = tensors_entry(t, &v, &child, ret);
    else
        brief_entry(ino, node_inode(v.snap, &child), node_is_dir(&child) ? S_IFDIR : S_IFREG, ret);
    if (whole) /* not measured for a listing: the kernel looks it up when needed */
        ret->node = 0;
    *cookie = i + 3;
    return r < 0 ? r : 1;
}

int tree_readdir(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    if (*cookie < 2)
        return next_dot(t, d, cookie, attrs, name, ret);
    if (d->keys)
        return next_key(t, d, cookie, attrs, name, ret);
    int r;
    do
        r = next_row_entry(t, d, cookie, attrs, name, ret);
    while (r == -ESTALE);
    return r;
}
