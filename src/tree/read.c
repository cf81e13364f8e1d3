/* SPDX-License-Identifier: MIT */
/* Open files of the tree, their contents, and extended attributes: see tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct tree_file {
    uint64_t ino;
    struct node node;
    const struct row *row; /* NULL for a key */
    /*
     * What is rendered as a whole is rendered when it is opened and does not change from then on.
     * A view of the whole keeps its generation; tensor data comes from the newest one at each
     * read, so that no deleted file is kept alive.
     */
    struct buf text;
    bool rendered;
    struct gen *gen; /* NODE_WHOLE: a reference */
};

static void render(const struct gen *g, struct tree_file *f)
{
    f->rendered = true;
    if (f->node.kind == NODE_KEY)
        key_text(g, f->node.number, &f->text);
    else
        f->row->text(g, node_tensor(g, &f->node), &f->text);
}

int tree_open_file(struct tree *t, uint64_t node, struct tree_file **ret)
{
    CLEANUP(gen_unrefp) struct gen *g = tree_gen(t);
    struct node n = ino_node(node);
    int r = node_check(g, &n);
    if (r < 0)
        return r;
    if (node_is_dir(&n))
        return -EISDIR;
    struct tree_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    *f = (struct tree_file){.ino = node, .node = n, .row = node_row(&n)};
    if (n.kind == NODE_WHOLE)
        f->gen = gen_ref(g);
    if (!f->row || f->row->text)
        render(g, f);
    if (buf_error(&f->text)) {
        r = buf_error(&f->text);
        tree_release(f);
        return r;
    }
    *ret = f;
    return 0;
}

void tree_release(struct tree_file *f)
{
    if (!f)
        return;
    gen_unref(f->gen);
    buf_free(&f->text);
    free(f);
}

int tree_read(struct tree *t, struct tree_file *f, uint64_t off, size_t n, struct reply *r)
{
    if (f->rendered) {
        if (off < f->text.len)
            reply_add(r, f->text.data + off, (size_t)min_u64(n, f->text.len - off));
        return 0;
    }
    r->gen = f->gen ? gen_ref(f->gen) : tree_gen(t);
    const struct gguf_tensor *tensor = node_tensor(r->gen, &f->node);
    uint64_t size = f->row->size(r->gen, f->row, tensor);
    if (off >= size || n == 0)
        return 0;
    return f->row->read(r->gen, f->row, tensor, off, (size_t)min_u64(n, size - off), r);
}

void tree_reply_done(struct reply *r)
{
    gen_unref(r->gen);
    r->gen = NULL;
}

/* ---- extended attributes ---- */

static void xattr_name(const struct gen *g, const struct node *n, struct buf *out)
{
    const struct gguf *m = g->gguf;
    if (n->kind == NODE_KEY)
        buf_add(out, gguf_key(m, &m->kv[n->number]), m->kv[n->number].key_len);
    else
        buf_add(out, gguf_name(m, node_tensor(g, n)), node_tensor(g, n)->name_len);
}

static void xattr_type(const struct gen *g, const struct node *n, struct buf *out)
{
    char name[GGUF_TYPE_NAME_MAX];
    if (n->kind == NODE_KEY) {
        struct gguf_value v = gguf_value(g->gguf, &g->gguf->kv[n->number]);
        buf_str(out, gguf_type_name(&v, name));
    } else {
        type_name(node_tensor(g, n), out);
    }
}

static void xattr_shape(const struct gen *g, const struct node *n, struct buf *out)
{
    shape_numpy(g, node_tensor(g, n), " ", out);
}

static void xattr_offset(const struct gen *g, const struct node *n, struct buf *out)
{
    buf_printf(out, "%llu", (unsigned long long)node_tensor(g, n)->off);
}

static const struct {
    const char *name;
    bool keys; /* of metadata files too, not of tensors' folders only */
    void (*value)(const struct gen *g, const struct node *n, struct buf *out);
} xattrs[] = {
    {"user.gguf.name", true, xattr_name},
    {"user.gguf.type", true, xattr_type},
    {"user.gguf.shape", false, xattr_shape},
    {"user.gguf.offset", false, xattr_offset},
};

static bool has_xattr(const struct node *n, size_t i)
{
    return n->kind == NODE_TENSOR || (n->kind == NODE_KEY && xattrs[i].keys);
}

int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(gen_unrefp) struct gen *g = tree_gen(t);
    struct node n = ino_node(node);
    int r = node_check(g, &n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof(xattrs) / sizeof(xattrs[0]); i++) {
        if (!has_xattr(&n, i) || strcmp(xattrs[i].name, name) != 0)
            continue;
        xattrs[i].value(g, &n, out);
        return buf_error(out);
    }
    return -ENODATA;
}

int tree_listxattr(struct tree *t, uint64_t node, struct buf *out)
{
    CLEANUP(gen_unrefp) struct gen *g = tree_gen(t);
    struct node n = ino_node(node);
    int r = node_check(g, &n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof(xattrs) / sizeof(xattrs[0]); i++)
        if (has_xattr(&n, i))
            buf_add(out, xattrs[i].name, strlen(xattrs[i].name) + 1);
    return buf_error(out);
}
