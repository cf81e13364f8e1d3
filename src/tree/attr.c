/* SPDX-License-Identifier: MIT */
/* Attributes: see attr.h. */
#include "tree/attr.h"

#include <errno.h>

#include "tree/tensors.h"

/* The preferred read size: as much as the kernel asks for in one request. */
#define IO_SIZE (128 << 10)

/* A rendered row at the root is measured once per snapshot, except for the state of the mount. 0 or -errno. */
static int node_size(struct tree *t, const struct view *v, const struct node *n, uint64_t *ret)
{
    *ret = 0;
    if (node_is_dir(n))
        return 0;
    const struct about a = node_about(v, n);
    if (a.row->size) {
        *ret = a.row->size(&a);
        return *ret == UINT64_MAX ? -ENOMEM : 0;
    }
    struct buf m = BUF_MEASURE;
    _Atomic(uint64_t) *cache = n->kind == NODE_WHOLE ? &v->snap->row_size[n->row] : NULL;
    const uint64_t known = cache ? atomic_load_explicit(cache, memory_order_relaxed) : 0;
    if (known)
        m.len = known - 1;
    else
        files_text(&a, &m);
    if (buf_error(&m))
        return buf_error(&m);
    if (cache)
        atomic_store_explicit(cache, m.len + 1, memory_order_relaxed);
    node_state(t, n, &m);
    *ret = m.len;
    return 0;
}

/* Links of a directory: itself, its entry above, and ".." of each directory in it. */
static nlink_t node_links(const struct tree *t, const struct snapshot *g, const struct node *n)
{
    if (!node_is_dir(n))
        return 1;
    if (n->kind == NODE_DIR && tensors_has(t, n)) /* not counted: no snapshot is made for it */
        return 1;
    if (n->kind == NODE_ROOT)
        return 2 + 2; /* metadata and tensors */
    return 2 + (node_is_folder(n, ROOT_TENSORS) ? (nlink_t)g->gguf->n_tensors : 0);
}

/* The rights of the files behind a node. *writes: the bits for writing tensors/. */
static struct grant node_grant(struct tree *t, const struct view *v, const struct node *n,
                               mode_t *writes)
{
    const struct rights *r = &t->rights;
    uint32_t shard = 0;
    if (n->kind == NODE_TENSOR || n->kind == NODE_TENSOR_FILE)
        shard = v->store->place[snapshot_tensor_no(v->snap, node_tensor(v->snap, n))].shard;
    LOCKED(&t->newest.lock);
    *writes = r->of[0].shown.bits & 0222;
    return n->kind == NODE_WHOLE             ? r->all
           : node_is_folder(n, ROOT_TENSORS) ? r->names
                                             : r->of[shard].shown;
}

/*
 * Bits derive from those of the files: metadata/ and its files have read and write bits, and so has tensors/ with
 * everything in it if tensors can be edited; everything else has read bits. A user who may read a directory may enter
 * it; more users may enter tensors/ than read it.
 */
static mode_t node_mode(const struct tree *t, const struct grant *g, mode_t writes,
                        const struct node *n)
{
    bool tensors = n->kind == NODE_TENSOR_FILE || tensors_has(t, n);
    bool editable = n->kind == NODE_KEY || node_is_folder(n, ROOT_METADATA) ||
                    (tensors && t->opt.tensors && t->writable);
    mode_t from = t->opt.set_umask ? 0777 & ~t->opt.umask : g->bits;
    mode_t mode = from & (editable ? 0666 : 0444);
    if (editable && node_is_folder(n, ROOT_TENSORS) && !t->opt.set_umask)
        mode |= writes;
    if (!node_is_dir(n))
        return S_IFREG | mode;
    if (node_is_folder(n, ROOT_TENSORS) && !t->opt.set_umask)
        return S_IFDIR | mode | (from & 0111);
    return S_IFDIR | mode | (from & 0444) >> 2;
}

/*
 * A key's time changes only when that key is written; the times of whole-model views, and of anything else that may
 * differ between snapshots, change with each snapshot.
 */
static struct timespec node_mtime(struct tree *t, const struct view *v, const struct node *n,
                                  const struct live_attr *a)
{
    const struct row *row = node_row(n);
    if (a->mtime.tv_sec)
        return a->mtime;
    bool editable = n->kind == NODE_DIR && (n->row == ROOT_METADATA || t->opt.tensors);
    if (editable)
        return newest_changed(&t->newest);
    bool moves = n->kind == NODE_WHOLE || (row && row->flags & ROW_MOVES);
    return moves ? v->snap->mtime : t->st.st_mtim;
}

/*
 * In a writable tree names may change meaning, except for tensors' directories, their contents, and the root: the
 * kernel asks for the attributes of each directory on a path that is not fixed. If tensors can be edited, their
 * directories change only by requests of the kernel, which knows then; a name in such a directory may mean another
 * node at any time.
 */
static bool node_fixed(const struct tree *t, const struct node *n)
{
    const struct row *row = node_row(n);
    if (row && row->flags & ROW_STATE)
        return false;
    if (!t->writable || n->kind == NODE_ROOT || n->kind == NODE_TENSOR ||
        node_is_folder(n, ROOT_TENSORS))
        return true;
    return n->kind == NODE_TENSOR_FILE && !t->opt.tensors && !(row->flags & ROW_MOVES);
}

/*
 * True for directories of tensors that can be edited, since the kernel does not see that a write changes one; and for
 * the directories on every path: when the kernel asks for one, the rights of the file are checked (tree_look()).
 */
static bool node_steady(const struct tree *t, const struct node *n)
{
    bool top = n->kind == NODE_ROOT || n->kind == NODE_DIR;
    return tensors_has(t, n) || (top && node_fixed(t, n));
}

/*
 * True if attributes last as long as the node, or as long as the directory's. A whole-model view has a node for each
 * snapshot, or state. If attributes do not last, the kernel asks for them at each read(2).
 */
static bool node_lasting(const struct tree *t, const struct node *n)
{
    if (node_steady(t, n))
        return false;
    return node_fixed(t, n) || n->kind == NODE_WHOLE ||
           (n->kind == NODE_TENSOR_FILE && !(node_row(n)->flags & ROW_MOVES));
}

int node_entry_as(struct tree *t, const struct view *v, const struct node *n,
                  const struct live_attr *a, struct tree_entry *ret)
{
    if (a->size > INT64_MAX)
        return -EOVERFLOW;
    struct timespec mtime = node_mtime(t, v, n, a);
    mode_t writes;
    const struct grant g = node_grant(t, v, n, &writes);
    *ret =
        (struct tree_entry){.node = n->kind == NODE_KEY ? ino_key(t->keys + n->number) : ino_of(n),
                            .fixed = node_fixed(t, n),
                            .lasting = node_lasting(t, n),
                            .steady = node_steady(t, n)};
    ret->attr = (struct stat){
        .st_ino = n->kind == NODE_KEY ? ino_key(t->keys + a->ino) : node_inode(v->snap, n),
        .st_mode = a->link ? S_IFLNK | 0777 : node_mode(t, &g, writes, n),
        .st_nlink = node_links(t, v->snap, n),
        .st_uid = t->opt.set_uid ? t->opt.uid : g.uid,
        .st_gid = t->opt.set_gid ? t->opt.gid : g.gid,
        .st_blksize = IO_SIZE,
        .st_size = (off_t)a->size,
        .st_blocks = (blkcnt_t)(a->size / 512 + (a->size % 512 ? 1 : 0)),
        .st_atim = mtime,
        .st_mtim = mtime,
        .st_ctim = mtime,
    };
    return 0;
}

int node_entry(struct tree *t, const struct view *v, const struct node *n, struct tree_entry *ret)
{
    struct live_attr a = {0};
    struct live_folder folder;
    int r = node_check(t, v->snap, n);
    if (r == 0)
        r = node_size(t, v, n, &a.size);
    if (r == 0)
        r = tensors_facts(t, v->snap, n, false, &folder);
    if (r == 0) {
        a.mtime = folder.mtime;
        r = node_entry_as(t, v, n, &a, ret);
    }
    if (r == 0 && n->kind == NODE_TENSOR)
        ret->generation = folder.generation;
    return r;
}

void brief_entry(uint64_t ino, uint64_t inode, mode_t type, struct tree_entry *ret)
{
    *ret = (struct tree_entry){.node = ino, .attr = {.st_ino = inode, .st_mode = type}};
}
