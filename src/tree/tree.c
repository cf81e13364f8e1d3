/* SPDX-License-Identifier: MIT */
/* The model as a tree: opening it, finding and listing what is in it. See tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gen *tree_gen(struct tree *t)
{
    (void)pthread_mutex_lock(&t->lock);
    struct gen *g = gen_ref(t->gen);
    (void)pthread_mutex_unlock(&t->lock);
    return g;
}

static int open_model(struct tree *t, const char *path, struct err *e)
{
    t->path = realpath(path, NULL);
    if (!t->path)
        return err_set(e, -errno, "%s", strerror(errno));
    /* O_NONBLOCK: a named pipe must not hang; it has no meaning for regular files. */
    int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(e, -errno, "cannot open: %s", strerror(errno));
    int r = gen_open(fd, t->opt.partial ? GGUF_PARTIAL : 0, 0, &t->gen, e);
    if (r < 0)
        (void)close(fd);
    else
        t->odd = t->gen->gguf->odd;
    return r;
}

int tree_open(const char *path, const struct tree_options *o, struct tree **ret, struct err *e)
{
    struct tree *t = calloc(1, sizeof(*t));
    if (!t)
        return err_set(e, -ENOMEM, "no memory");
    t->opt = *o;
    (void)pthread_mutex_init(&t->lock, NULL);
    int r = map_guard_init();
    r = r < 0 ? err_set(e, r, "cannot handle SIGBUS: %s", strerror(-r)) : open_model(t, path, e);
    if (r < 0) {
        tree_close(t);
        return r;
    }
    quant_init();
    *ret = t;
    return 0;
}

void tree_close(struct tree *t)
{
    if (!t)
        return;
    gen_unref(t->gen);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->path);
    free(t);
}

const char *tree_path(const struct tree *t)
{
    return t->path;
}

const char *tree_warning(const struct tree *t, unsigned i)
{
    static const struct {
        enum gguf_odd odd;
        const char *line;
    } lines[] = {
        {GGUF_ODD_ORDER, "tensor data lies in another order than tensors are listed"},
        {GGUF_ODD_GAPS, "there are gaps between tensors, or before the first"},
        {GGUF_ODD_NO_TAIL, "the padding after the last tensor is missing"},
        {GGUF_ODD_TRAILING, "there are bytes behind the data"},
        {GGUF_ODD_UNKNOWN, "some tensors are of a type that is not known: no f32 for them"},
        {GGUF_ODD_PARTIAL, "the file is incomplete: reads of what is missing give EIO"},
    };
    for (size_t k = 0; k < sizeof(lines) / sizeof(lines[0]); k++)
        if (t->odd & lines[k].odd && i-- == 0)
            return lines[k].line;
    return NULL;
}

int tree_statfs(struct tree *t, struct statvfs *ret)
{
    CLEANUP(gen_unrefp) struct gen *g = tree_gen(t);
    if (fstatvfs(g->fd, ret) < 0)
        return -errno;
    ret->f_namemax = TREE_NAME_MAX;
    return 0;
}

/* The node number of row i at the root, or of a tensor's row. */
static uint64_t root_ino(const struct gen *g, uint32_t i)
{
    return files_root[i].flags & ROW_DIR ? ino_row(i) : ino_whole(g->number, i);
}

/* The node number of `name` in a folder, 0 if there is none. */
static uint64_t find_child(const struct gen *g, const struct node *dir, const char *name)
{
    const struct gguf_tensor *t = node_tensor(g, dir);
    uint32_t found;
    int row;
    if (dir->kind == NODE_ROOT) {
        row = files_find(g, FILES_ROOT, NULL, name);
        return row < 0 ? 0 : root_ino(g, (uint32_t)row);
    }
    if (dir->kind == NODE_TENSOR) {
        row = files_find(g, FILES_TENSOR, t, name);
        return row < 0 ? 0 : ino_tensor_file(dir->number, (uint32_t)row);
    }
    if (dir->row == ROOT_METADATA) {
        found = gen_find_key(g, name);
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

static int check_dir(const struct gen *g, const struct node *n)
{
    int r = node_check(g, n);
    return r < 0 ? r : node_is_dir(n) ? 0 : -ENOTDIR;
}

int tree_lookup(struct tree *t, uint64_t parent, const char *name, struct tree_entry *ret)
{
    CLEANUP(gen_unrefp) struct gen *g = tree_gen(t);
    struct node dir = ino_node(parent);
    int r = check_dir(g, &dir);
    if (r < 0)
        return r;
    uint64_t ino = find_child(g, &dir, name);
    if (strlen(name) > TREE_NAME_MAX)
        return -ENAMETOOLONG;
    return ino ? node_entry(t, g, ino, ret) : -ENOENT;
}

int tree_getattr(struct tree *t, uint64_t node, struct tree_entry *ret)
{
    CLEANUP(gen_unrefp) struct gen *g = tree_gen(t);
    return node_entry(t, g, node, ret);
}

/* ---- listing ---- */

static bool listed(const struct tree *t, const struct gen *g, const struct row *row,
                   const struct gguf_tensor *tensor)
{
    return files_exists(g, row, tensor) && (!(row->flags & ROW_HIDDEN) || t->opt.views_all);
}

/* From row *i on, the first that is listed; false if there is none. */
static bool next_row(const struct tree *t, const struct gen *g, enum files_where where,
                     const struct gguf_tensor *tensor, uint64_t *i)
{
    while (*i < files_count(where) && !listed(t, g, files_row(where, (size_t)*i), tensor))
        ++*i;
    return *i < files_count(where);
}

/* Entry *i of a folder, or the next that is listed: name and node number, 0 if there are no more.
 * *i is then the number of that entry. */
static uint64_t child_at(const struct tree *t, const struct gen *g, const struct node *dir,
                         uint64_t *i, char name[TREE_NAME_MAX + 1])
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
    if (dir->row == ROOT_METADATA) {
        if (*i >= m->n_kv)
            return 0;
        (void)name_encode(gguf_key(m, &m->kv[*i]), m->kv[*i].key_len, name);
        return ino_key((uint32_t)*i);
    }
    if (*i >= m->n_tensors)
        return 0;
    (void)name_encode(gguf_name(m, &m->tensor[*i]), m->tensor[*i].name_len, name);
    return ino_tensor((uint32_t)*i);
}

/* Cookies 0 and 1 are "." and "..", from 2 on entries in order. */
int tree_readdir(struct tree *t, uint64_t dir, uint64_t *cookie, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret)
{
    CLEANUP(gen_unrefp) struct gen *g = tree_gen(t);
    struct node n = ino_node(dir);
    uint64_t at = *cookie, i, ino;
    int r = check_dir(g, &n);
    if (r < 0)
        return r;
    if (at < 2) {
        (void)strcpy(name, at ? ".." : ".");
        ino = at ? parent_of(&n) : dir;
    } else {
        i = at - 2;
        ino = child_at(t, g, &n, &i, name);
        at = i + 2;
    }
    if (!ino)
        return 0;
    if (attrs) {
        r = node_entry(t, g, ino, ret);
    } else {
        struct node child = ino_node(ino);
        *ret = (struct tree_entry){.node = ino};
        ret->attr.st_ino = child.kind == NODE_WHOLE ? ino_row(child.row) : ino;
        ret->attr.st_mode = node_is_dir(&child) ? S_IFDIR : S_IFREG;
    }
    *cookie = at + 1;
    return r < 0 ? r : 1;
}
