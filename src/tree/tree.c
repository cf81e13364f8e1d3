/* SPDX-License-Identifier: MIT */
/* The model as a tree: finding and listing what is in it. See tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/helper.h"

struct tree_dir {
    uint64_t node;
    bool keys;    /* metadata/ of a writable tree: what it held when it was opened */
    uint32_t *id; /* owned: numbers in keys */
    size_t n;
};

/* The node number of row i at the root, or of a tensor's row. */
static uint64_t root_ino(const struct gen *g, uint32_t i)
{
    return files_root[i].flags & ROW_DIR ? ino_row(i) : ino_whole(g->number, i);
}

static bool key_has_type(const struct tree *t, uint32_t number, uint32_t type, uint32_t elem)
{
    struct gguf_value v;
    CLEANUP(shown_free) struct shown s = edits_shown(t, number);
    if (shown_value(&s, &v))
        return v.type == type && (type != GGUF_ARRAY || v.elem == elem);
    struct typed known = kfile_type(t->keys.file[number]);
    return known.set && known.type == type;
}

/* The number of a key's file. KEY:TYPE, by which a key was created, is its name too. */
static uint32_t find_key(const struct tree *t, const struct gen *g, const char *name)
{
    char key[TREE_NAME_MAX + 1];
    uint32_t type, elem, found;
    if (!t->writable) {
        found = gen_find_key(g, name);
        return found == UINT32_MAX || !gen_shows_key(g, found) ? UINT32_MAX : found;
    }
    found = keys_find(&t->keys, g, name);
    size_t n = found == KV_NONE ? name_typed(name, &type, &elem) : 0;
    if (n == 0)
        return found;
    memcpy(key, name, n);
    key[n] = '\0';
    found = keys_find(&t->keys, g, key);
    return found != KV_NONE && key_has_type(t, found, type, elem) ? found : KV_NONE;
}

/* The node number of `name` in a folder, 0 if there is none. */
static uint64_t find_child(const struct tree *t, const struct gen *g, const struct node *dir,
                           const char *name)
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
        return row < 0 ? 0 : ino_tensor_file(dir->number, (uint32_t)row);
    }
    if (dir->row == ROOT_METADATA) {
        found = find_key(t, g, name);
        return found == UINT32_MAX ? 0 : ino_key(found);
    }
    found = gen_find_tensor(g, name);
    return found == UINT32_MAX ? 0 : ino_tensor(found);
}

/* The folder that a folder is in. */
static uint64_t parent_of(const struct node *dir)
{
    return dir->kind == NODE_TENSOR ? ino_row(ROOT_TENSORS) : INO_ROOT;
}

static int check_dir(const struct tree *t, const struct gen *g, const struct node *n)
{
    int r = node_check(t, g, n);
    return r < 0 ? r : node_is_dir(n) ? 0 : -ENOTDIR;
}

/* A folder whose names and entries are looked at under the lock. */
static bool is_edited_folder(const struct tree *t, const struct node *n)
{
    return t->writable && n->kind == NODE_DIR && n->row == ROOT_METADATA;
}

/* Whether what a row shows moves with each edit, so that it is to be of the newest one. */
static bool moves(const struct row *row)
{
    return row->flags & (ROW_WHOLE | ROW_MOVES);
}

/* The newest generation, with all edits in it if that makes a difference to `name`. */
static int view_for(struct tree *t, const struct node *dir, const char *name, struct view *ret)
{
    *ret = tree_view(t);
    int r = check_dir(t, ret->gen, dir);
    if (r < 0 || dir->kind == NODE_DIR)
        return r;
    enum files_where where = dir->kind == NODE_ROOT ? FILES_ROOT : FILES_TENSOR;
    int row = files_find(ret->gen, where, node_tensor(ret->gen, dir), name);
    if (row < 0 || !moves(files_row(where, (size_t)row)) || !atomic_load(&t->stale))
        return 0;
    r = tree_freshen(t);
    view_free(ret);
    *ret = tree_view(t);
    return r;
}

/* Something else than a key: no lock is held while it is measured. */
static int lookup_row(struct tree *t, const struct node *dir, const char *name,
                      struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    int r = view_for(t, dir, name, &v);
    if (r < 0)
        return r;
    uint64_t ino = find_child(t, v.gen, dir, name);
    if (!ino)
        return -ENOENT;
    struct node n = ino_node(ino);
    if (n.kind == NODE_WHOLE && node_row(&n)->flags & ROW_STATE)
        r = node_number_state(t, v.gen, &n);
    if (r == 0)
        r = node_entry(t, &v, &n, ret);
    return r < 0 ? r : node_known(t, &v, &n);
}

/* A key's entry, but for its size, and a reference for the kernel. Under the lock. */
static int key_entry(struct tree *t, uint64_t ino, struct tree_entry *ret, struct key_size *size)
{
    struct node n = ino_node(ino);
    int r = node_entry(t, &t->now, &n, ret);
    if (r < 0)
        return r;
    *size = key_size_of(t, n.number);
    if (t->keys.file[n.number])
        t->keys.file[n.number]->lookups++;
    return 0;
}

static int lookup_key(struct tree *t, const char *name, struct tree_entry *ret)
{
    struct key_size size;
    (void)pthread_mutex_lock(&t->lock);
    uint32_t found = find_key(t, t->now.gen, name);
    int r = found == KV_NONE ? -ENOENT : key_entry(t, ino_key(found), ret, &size);
    (void)pthread_mutex_unlock(&t->lock);
    if (r == 0)
        key_size_set(&size, ret);
    return r;
}

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct node dir = ino_node(parent);
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    return is_edited_folder(t, &dir) ? lookup_key(t, name, ret) : lookup_row(t, &dir, name, ret);
}

static int getattr_key(struct tree *t, const struct node *n, struct tree_entry *ret)
{
    struct key_size size;
    (void)pthread_mutex_lock(&t->lock);
    int r = node_entry(t, &t->now, n, ret);
    if (r == 0)
        size = key_size_of(t, n->number);
    (void)pthread_mutex_unlock(&t->lock);
    if (r == 0)
        key_size_set(&size, ret);
    return r;
}

int tree_getattr(struct tree *t, uint64_t node, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct node n = ino_node(node);
    if (n.kind == NODE_KEY && t->writable)
        return getattr_key(t, &n, ret);
    const struct row *row = n.kind == NODE_TENSOR_FILE ? node_row(&n) : NULL;
    int r = row && moves(row) ? tree_freshen(t) : 0;
    if (r == 0)
        r = tree_view_of(t, &n, &v);
    return r < 0 ? r : node_entry(t, &v, &n, ret);
}

int tree_fgetattr(struct tree *t, uint64_t node, const struct tree_file *f, struct tree_entry *ret)
{
    int r = tree_getattr(t, node, ret);
    if (r < 0 || !f || !f->draft)
        return r;
    (void)pthread_mutex_lock(&t->lock);
    entry_size(ret, f->draft->text.len);
    (void)pthread_mutex_unlock(&t->lock);
    return 0;
}

/* ---- listing ---- */

/* From row *i on, the first that is listed; false if there is none. */
static bool next_row(const struct tree *t, const struct gen *g, enum files_where where,
                     const struct gguf_tensor *tensor, uint64_t *i)
{
    while (*i < files_count(where) &&
           !files_listed(g, files_row(where, (size_t)*i), tensor, t->opt.views))
        ++*i;
    return *i < files_count(where);
}

/* The same for metadata/. */
static uint64_t key_at(const struct tree *t, const struct gen *g, const struct tree_dir *list,
                       uint64_t *i, char name[TREE_NAME_MAX + 1])
{
    const struct gguf *m = g->gguf;
    uint32_t kv;
    if (t->writable) {
        while (*i < list->n && !keys_visible(&t->keys, list->id[*i]))
            ++*i;
        if (*i >= list->n)
            return 0;
        const struct kfile *f = t->keys.file[list->id[*i]];
        kv = t->keys.kv[list->id[*i]];
        if (f)
            (void)strcpy(name, f->file);
        else
            (void)name_encode(gguf_key(m, &m->kv[kv]), m->kv[kv].key_len, name);
        return ino_key(list->id[*i]);
    }
    while (*i < m->n_kv && !gen_shows_key(g, (uint32_t)*i))
        ++*i;
    if (*i >= m->n_kv)
        return 0;
    (void)name_encode(gguf_key(m, &m->kv[*i]), m->kv[*i].key_len, name);
    return ino_key((uint32_t)*i);
}

/* Entry *i of a folder, or the next that is listed: name and node number, 0 if there are no more.
 * *i is then the number of that entry. */
static uint64_t child_at(const struct tree *t, const struct gen *g, const struct node *dir,
                         const struct tree_dir *list, uint64_t *i, char name[TREE_NAME_MAX + 1])
{
    const struct gguf *m = g->gguf;
    if (dir->kind == NODE_ROOT || dir->kind == NODE_TENSOR) {
        enum files_where where = dir->kind == NODE_ROOT ? FILES_ROOT : FILES_TENSOR;
        if (!next_row(t, g, where, node_tensor(g, dir), i))
            return 0;
        uint32_t row = (uint32_t)*i;
        (void)strcpy(name, files_row(where, row)->name);
        return where == FILES_ROOT ? root_ino(g, row) : ino_tensor_file(dir->number, row);
    }
    if (dir->row == ROOT_METADATA)
        return key_at(t, g, list, i, name);
    if (*i >= m->n_tensors)
        return 0;
    (void)name_encode(gguf_name(m, &m->tensor[*i]), m->tensor[*i].name_len, name);
    return ino_tensor((uint32_t)*i);
}

/* What metadata/ lists: the keys in the order of the file, then what is in no generation yet. */
static int list_keys(struct tree *t, struct tree_dir *d)
{
    const struct keys *k = &t->keys;
    struct err e = {0};
    int r = tree_freshen_locked(t, &e);
    if (r < 0)
        return r;
    uint32_t *id = malloc(((size_t)k->n + 1) * sizeof(*id));
    size_t n = 0;
    if (!id)
        return -ENOMEM;
    for (uint32_t kv = 0; kv < t->now.gen->gguf->n_kv; kv++)
        if (k->id[kv] != KV_NONE && gen_shows_key(t->now.gen, kv))
            id[n++] = k->id[kv];
    for (uint32_t i = 0; i < k->n; i++)
        if (k->kv[i] == KV_NONE && k->file[i])
            id[n++] = i;
    free(d->id);
    d->id = id;
    d->n = n;
    return 0;
}

/* Of metadata/ what it holds now. */
static int open_keys(struct tree *t, struct tree_dir *d)
{
    if (!d->keys)
        return 0;
    (void)pthread_mutex_lock(&t->lock);
    int r = list_keys(t, d);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

int tree_opendir(struct tree *t, uint64_t node, struct tree_dir **ret)
{
    CLEANUP(view_free) struct view v = tree_view(t);
    struct node n = ino_node(node);
    int r = check_dir(t, v.gen, &n);
    if (r < 0)
        return r;
    struct tree_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->node = node;
    d->keys = is_edited_folder(t, &n);
    r = open_keys(t, d);
    if (r < 0)
        tree_closedir(d);
    else
        *ret = d;
    return r;
}

void tree_closedir(struct tree_dir *d)
{
    free(d->id);
    free(d);
}

bool tree_dir_cacheable(const struct tree *t, const struct tree_dir *d)
{
    /* The root's views of the whole get new nodes; all else but metadata/ stays. */
    return !t->writable || (!d->keys && d->node != INO_ROOT);
}

/* Number and type, which is all that a plain listing tells. */
static void brief_entry(const struct tree *t, uint64_t ino, struct tree_entry *ret)
{
    struct node n = ino_node(ino);
    *ret = (struct tree_entry){.node = ino};
    ret->attr.st_ino = n.kind == NODE_WHOLE ? ino_row(n.row) : ino;
    ret->attr.st_mode = node_is_dir(&n) ? S_IFDIR : S_IFREG;
    if (n.kind == NODE_KEY && t->writable && t->keys.file[n.number] &&
        t->keys.file[n.number]->state == KFILE_LINK)
        ret->attr.st_mode = S_IFLNK;
}

/* "." and "..": cookies 0 and 1. */
static int next_dot(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                    char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct node n = ino_node(d->node);
    uint64_t at = (*cookie)++;
    uint64_t ino = at ? parent_of(&n) : d->node;
    (void)strcpy(name, at ? ".." : ".");
    if (at == 0 && open_keys(t, d) < 0) /* rewound: look anew */
        return -ENOMEM;
    if (!attrs) {
        brief_entry(t, ino, ret);
        return 1;
    }
    CLEANUP(view_free) struct view v = tree_view(t);
    n = ino_node(ino);
    int r = node_entry(t, &v, &n, ret);
    return r < 0 ? r : 1;
}

/* Of metadata/ in a writable tree. */
static int next_key(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                    char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct key_size size;
    uint64_t i = *cookie - 2;
    int r = 0;
    (void)pthread_mutex_lock(&t->lock);
    uint64_t ino = key_at(t, t->now.gen, d, &i, name);
    if (ino && attrs)
        r = key_entry(t, ino, ret, &size);
    else if (ino)
        brief_entry(t, ino, ret);
    (void)pthread_mutex_unlock(&t->lock);
    if (!ino || r < 0)
        return r;
    if (attrs)
        key_size_set(&size, ret);
    *cookie = i + 3;
    return 1;
}

static int next_row_entry(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                          char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct node n = ino_node(d->node);
    uint64_t i = *cookie - 2;
    int r = attrs && n.kind == NODE_TENSOR ? tree_freshen(t) : 0; /* `offset` */
    CLEANUP(view_free) struct view v = tree_view(t);
    uint64_t ino = r == 0 ? child_at(t, v.gen, &n, d, &i, name) : 0;
    if (!ino)
        return r;
    struct node child = ino_node(ino);
    bool whole = child.kind == NODE_WHOLE;
    if (attrs && !whole)
        r = node_entry(t, &v, &child, ret);
    else
        brief_entry(t, ino, ret);
    if (whole) /* not measured for a listing: the kernel looks it up when asked */
        ret->node = 0;
    *cookie = i + 3;
    return r < 0 ? r : 1;
}

int tree_readdir(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    if (*cookie < 2)
        return next_dot(t, d, cookie, attrs, name, ret);
    return d->keys ? next_key(t, d, cookie, attrs, name, ret)
                   : next_row_entry(t, d, cookie, attrs, name, ret);
}
