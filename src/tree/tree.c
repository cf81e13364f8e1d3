/* SPDX-License-Identifier: MIT */
/* The model as a tree: finding and listing what is in it. See tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tree/helper.h"
#include "tree/state.h"

struct tree_dir {
    uint64_t node;
    bool keys;    /* metadata/ of a writable tree: what it held when it was opened */
    uint32_t *id; /* owned: numbers in keys */
    size_t n;
};

/* ---- generations that the kernel knows ---- */

static struct held *find_held(struct tree *t, uint64_t number)
{
    for (size_t i = 0; i < t->n_held; i++)
        if (t->held[i].gen->number == number)
            return &t->held[i];
    return NULL;
}

/* The kernel got one more reference to a node of this generation. 0, -ENOMEM. */
static int hold(struct tree *t, struct gen *g)
{
    struct held *h = find_held(t, g->number);
    if (!h) {
        if (array_grow(&t->held, &t->cap_held, t->n_held, sizeof(*t->held)) < 0)
            return -ENOMEM;
        h = &t->held[t->n_held++];
        *h = (struct held){gen_ref(g), 0};
    }
    h->lookups++;
    return 0;
}

static void let_go(struct tree *t, uint64_t number, uint64_t n)
{
    struct held *h = find_held(t, number);
    if (!h || h->lookups > n) {
        if (h)
            h->lookups -= n;
        return;
    }
    gen_unref(h->gen);
    *h = t->held[--t->n_held];
}

int tree_view_of(struct tree *t, const struct node *n, struct view *ret)
{
    int r = 0;
    (void)pthread_mutex_lock(&t->lock);
    struct held *h = n->kind == NODE_WHOLE ? find_held(t, n->gen) : NULL;
    if (h)
        *ret = (struct view){gen_ref(h->gen), store_ref(t->now.store), NULL};
    else if (n->kind == NODE_WHOLE && n->gen != t->now.gen->number)
        r = -ESTALE;
    else
        *ret = view_ref(&t->now);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

void tree_forget(struct tree *t, uint64_t node, uint64_t n)
{
    struct node at = ino_node(node);
    (void)pthread_mutex_lock(&t->lock);
    if (at.kind == NODE_WHOLE)
        let_go(t, at.gen, n);
    if (at.kind == NODE_KEY && t->writable && at.number < t->keys.n && t->keys.file[at.number]) {
        struct kfile *f = t->keys.file[at.number];
        f->lookups -= min_u64(f->lookups, n);
        keys_reap(&t->keys, f);
    }
    (void)pthread_mutex_unlock(&t->lock);
}

/* The kernel gets a reference to what it was told. Under the lock. */
static int known(struct tree *t, const struct view *v, uint64_t ino)
{
    struct node n = ino_node(ino);
    if (n.kind == NODE_WHOLE)
        return hold(t, v->gen);
    if (n.kind == NODE_KEY && t->writable && t->keys.file[n.number])
        t->keys.file[n.number]->lookups++;
    return 0;
}

/* The node number of row i at the root, or of a tensor's row. */
static uint64_t root_ino(const struct gen *g, uint32_t i)
{
    return files_root[i].flags & ROW_DIR ? ino_row(i) : ino_whole(g->number, i);
}

static bool key_has_type(const struct tree *t, const struct gen *g, uint32_t number, uint32_t type,
                         uint32_t elem)
{
    uint32_t kv = t->keys.kv[number];
    uint32_t told, told_elem;
    if (kv == KV_NONE)
        return kfile_type(t->keys.file[number], &told, &told_elem) && told == type;
    struct gguf_value v = gguf_value(g->gguf, &g->gguf->kv[kv]);
    return v.type == type && (type != GGUF_ARRAY || v.elem == elem);
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
    return found != KV_NONE && key_has_type(t, g, found, type, elem) ? found : KV_NONE;
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

/*
 * A view of the whole is measured, and the state of the mount taken, before the lock is: both may
 * take a while. 1: the name is not a view's.
 */
static int lookup_whole(struct tree *t, const char *name, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = tree_view(t);
    int row = files_find(v.gen, FILES_ROOT, NULL, name);
    if (row < 0 || files_root[row].flags & ROW_DIR)
        return 1;
    uint32_t state = files_root[row].flags & ROW_STATE ? state_now(t) : 0;
    uint64_t ino = ino_state(ino_whole(v.gen->number, (uint32_t)row), state);
    int r = node_entry(t, &v, ino, ret);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&t->lock);
    r = known(t, &v, ino);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* Under the lock. */
static int lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    struct node dir = ino_node(parent);
    int r = check_dir(t, t->now.gen, &dir);
    if (r < 0)
        return r;
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    uint64_t ino = find_child(t, t->now.gen, &dir, name);
    r = ino ? node_entry(t, &t->now, ino, ret) : -ENOENT;
    return r < 0 ? r : known(t, &t->now, ino);
}

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    int r = parent == INO_ROOT ? lookup_whole(t, name, ret) : 1;
    if (r <= 0)
        return r;
    (void)pthread_mutex_lock(&t->lock);
    r = lookup(t, parent, name, ret);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

int tree_getattr(struct tree *t, uint64_t node, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct node n = ino_node(node);
    int r = tree_view_of(t, &n, &v);
    if (r < 0)
        return r;
    bool locked = n.kind == NODE_KEY && t->writable;
    if (locked)
        (void)pthread_mutex_lock(&t->lock);
    r = node_entry(t, locked ? &t->now : &v, node, ret);
    if (locked)
        (void)pthread_mutex_unlock(&t->lock);
    return r;
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

int tree_opendir(struct tree *t, uint64_t node, struct tree_dir **ret)
{
    struct node n = ino_node(node);
    struct tree_dir *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->node = node;
    (void)pthread_mutex_lock(&t->lock);
    int r = check_dir(t, t->now.gen, &n);
    d->keys = t->writable && n.kind == NODE_DIR && n.row == ROOT_METADATA;
    if (r == 0 && d->keys)
        r = list_keys(t, d);
    (void)pthread_mutex_unlock(&t->lock);
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

/* Under the lock. Cookies 0 and 1 are "." and "..", from 2 on entries in order. */
static int next_entry(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                      char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    struct node n = ino_node(d->node);
    uint64_t at = *cookie, i = at - 2, ino;
    int r = 0;
    if (at < 2) {
        (void)strcpy(name, at ? ".." : ".");
        ino = at ? parent_of(&n) : d->node;
        if (at == 0 && d->keys) /* rewound: look anew */
            r = list_keys(t, d);
    } else {
        ino = child_at(t, t->now.gen, &n, d, &i, name);
        at = i + 2;
    }
    if (!ino || r < 0)
        return r;
    bool whole = ino_node(ino).kind == NODE_WHOLE;
    if (attrs && !whole)
        r = node_entry(t, &t->now, ino, ret);
    else
        brief_entry(t, ino, ret);
    if (attrs && whole) /* not measured for a listing: the kernel looks it up when asked */
        ret->node = 0;
    if (r == 0 && attrs && !whole && at >= 2)
        r = known(t, &t->now, ino);
    *cookie = at + 1;
    return r < 0 ? r : 1;
}

int tree_readdir(struct tree *t, struct tree_dir *d, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    (void)pthread_mutex_lock(&t->lock);
    int r = next_entry(t, d, cookie, attrs, name, ret);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}
