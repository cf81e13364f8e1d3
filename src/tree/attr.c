/* SPDX-License-Identifier: MIT */
/* Computes access rights, attributes and extended attributes: see attr.h. */
#include "tree/attr.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "model/facts.h"
#include "tree/history.h"
#include "tree/nodes.h"
#include "tree/tensors.h"

/* ---- the rights of files ---- */

struct grant grant_of(int fd, const struct stat *st)
{
    char path[64]; /* attributes cannot be read from an O_PATH descriptor itself */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    /* Where that is not known, the group bits may be an ACL's mask. */
    const ssize_t n = getxattr(path, "system.posix_acl_access", NULL, 0);
    const bool acl = n > 0 || (n < 0 && errno != ENODATA && errno != EOPNOTSUPP);
    return (struct grant){st->st_uid, st->st_gid, st->st_mode & (acl ? 0700 : 0777)};
}

struct grant grant_both(const struct grant *a, const struct grant *b)
{
    const mode_t bits = a->bits & b->bits;
    if (a->uid != b->uid)
        return (struct grant){geteuid(), a->gid, 0400};
    return (struct grant){a->uid, a->gid, a->gid == b->gid ? bits : bits & 0700};
}

struct grant grant_below(const struct grant *g, const struct grant *dir)
{
    const mode_t search = dir->bits & 0011, kept = dir->gid == g->gid ? search * 7 : 0;
    if (search == 0011)
        return *g;
    if (dir->uid != g->uid)
        return (struct grant){geteuid(), g->gid, 0500 | (g->bits & kept)};
    return (struct grant){g->uid, g->gid, g->bits & (0700 | kept)};
}

/* How old the rights that nodes show may be, in milliseconds. */
#define RIGHTS_FRESH 1000

struct grant tree_grant(struct tree *t, const struct view *v)
{
    struct grant all = {0};
    struct stat st;
    lock_take(&t->newest.lock);
    const struct grant before = t->grant;
    const bool first = !t->looked, due = first || when_ms() - t->looked >= RIGHTS_FRESH;
    t->looked = due ? when_ms() : t->looked;
    lock_drop(&t->newest.lock);
    if (!due)
        return before;
    for (size_t i = 0; i < (t->shards.n ? t->shards.n : 1); i++) {
        const int fd = v->store->file[i]->fd;
        if (fstat(fd, &st) < 0 || (st.st_nlink == 0 && !first)) /* it was removed: no change */
            return before;
        const struct grant g = grant_of(fd, &st);
        all = i ? grant_both(&all, &g) : g;
    }
    LOCKED(&t->newest.lock);
    return t->grant = all;
}

/* ---- attributes ---- */

/* The preferred read size, which is the most that the kernel requests at once. */
#define IO_SIZE (128 << 10)

/* Compute the size of a node. A rendered row at the root is measured once per snapshot, except for
 * the state of the mount. */
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

/* Return the number of links to a node. Those to a directory are its own ".", its entry in the
 * parent, and the ".." of each directory in it. */
static nlink_t node_links(const struct tree *t, const struct snapshot *g, const struct node *n)
{
    if (!node_is_dir(n))
        return 1;
    /* Counting new tensors would need a new snapshot, so 1 (unknown) is reported. */
    if (n->kind == NODE_DIR && tensors_has(t, n))
        return 1;
    if (n->kind == NODE_ROOT)
        return 2 + 2; /* metadata/ and tensors/ */
    return 2 + (node_is_folder(n, ROOT_TENSORS) ? (nlink_t)g->gguf->n_tensors : 0);
}

/*
 * Return the mode of a node. Its bits derive from those of the files: metadata/ and its files have
 * read and write bits, as do tensors/ and its contents if tensors can be edited; all other nodes
 * have read but no write bits. A user who may read a directory may enter it.
 */
static mode_t node_mode(const struct tree *t, const struct grant *g, const struct node *n)
{
    const bool editable = n->kind == NODE_KEY || node_is_folder(n, ROOT_METADATA) ||
                          (t->opt.tensors && tensors_in(n));
    const mode_t from = t->opt.set_umask ? 0777 & ~t->opt.umask : g->bits;
    const mode_t mode = from & (editable ? 0666 : 0444);
    if (!node_is_dir(n))
        return S_IFREG | mode;
    return S_IFDIR | mode | (from & 0444) >> 2;
}

/* A key's time changes only when that key is written. If a node's content may differ between
 * snapshots, its time changes with each snapshot. */
static struct timespec node_mtime(struct tree *t, const struct view *v, const struct node *n,
                                  const struct live_attr *a)
{
    if (a->mtime.tv_sec)
        return a->mtime;
    if (n->kind == NODE_DIR && (n->row == ROOT_METADATA || t->opt.tensors))
        return newest_changed(&t->newest);
    return node_has(n, ROW_WHOLE | ROW_MOVES) ? v->snap->mtime : t->st.st_mtim;
}

/* Return true for a file of something that can be edited by itself: a key or a tensor. */
static bool is_edited(const struct tree *t, const struct node *n)
{
    return t->writable && (n->kind == NODE_KEY || (n->kind == NODE_TENSOR_FILE && t->opt.tensors));
}

/* Return how long the name refers to this node. A view of the whole has a node for each state. The
 * name of a file that can be edited may change its meaning at any time. */
static double name_for(const struct tree *t, const struct node *n)
{
    const bool moves = is_edited(t, n) || (t->writable && n->kind == NODE_WHOLE);
    return moves ? 0 : TREE_FOREVER;
}

/* Return how long the node's attributes are valid. The directories on every path have rights that
 * gate what lies below. Where it is 0, the kernel requests them at each read(2). */
static double attr_for(const struct tree *t, const struct node *n)
{
    if (n->kind == NODE_ROOT || n->kind == NODE_DIR || tensors_has(t, n))
        return 1;
    const bool moves = is_edited(t, n) || (t->writable && node_has(n, ROW_MOVES));
    return moves || node_has(n, ROW_STATE) ? 0 : TREE_FOREVER;
}

/* Get the entry for any node, given its facts in `a`. */
static void node_entry_as(struct tree *t, const struct view *v, const struct node *n,
                          const struct live_attr *a, struct tree_entry *ret)
{
    assert(a->size <= INT64_MAX); /* ensured by GGUF_MAX_ELEMENTS */
    struct timespec mtime = node_mtime(t, v, n, a);
    const struct grant g = tree_grant(t, v);
    *ret = (struct tree_entry){.node = n->kind == NODE_KEY ? ino_key(n->number) : ino_of(n),
                               .name_for = name_for(t, n),
                               .attr_for = attr_for(t, n)};
    ret->attr = (struct stat){
        .st_ino = n->kind == NODE_KEY ? ino_key(a->ino) : node_inode(n),
        .st_mode = a->link ? S_IFLNK | 0777 : node_mode(t, &g, n),
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
}

int node_entry(struct tree *t, const struct view *v, const struct node *n, struct tree_entry *ret)
{
    struct live_attr a = {0};
    int r = node_check(t, v->snap, n);
    if (r == 0)
        r = node_size(t, v, n, &a.size);
    if (r < 0)
        return r;
    const struct live_folder folder = tensors_facts(t, n);
    a.mtime = folder.mtime;
    node_entry_as(t, v, n, &a, ret);
    if (n->kind == NODE_TENSOR)
        ret->generation = folder.generation;
    return 0;
}

void key_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node n = {.kind = NODE_KEY, .number = a->number};
    node_entry_as(t, &v, &n, a, ret);
}

int key_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret)
{
    struct live_attr a;
    int r = live_attr(t->meta, number, f ? f->live : NULL, &a);
    if (r == 0)
        key_entry(t, &a, ret);
    return r;
}

void brief_entry(uint64_t ino, uint64_t inode, mode_t type, struct tree_entry *ret)
{
    *ret = (struct tree_entry){.node = ino, .attr = {.st_ino = inode, .st_mode = type}};
}

/* ---- extended attributes ---- */

/* The shelf handles this attribute of the root. */
#define READ_ONLY "user.gguf.readonly"

/* Setting this attribute of metadata/ restores a state of the keys; reading it tells what the last
 * undo did. It is in no list, because cp -a would set it. */
#define UNDO "user.gguf.undo"
/* Length of the longest number of a state. */
#define STATE_MAX 18

/* The kinds of nodes that have extended attributes: files in metadata/, directories of tensors and
 * of new tensors, and the root, whose errors are what is not in the model's file. */
enum { OF_KEY = 1, OF_TENSOR = 2, OF_NEW_TENSOR = 4, OF_ROOT = 8 };

struct subject {
    struct node n;
    unsigned of; /* one of the kinds above, or 0 */
    struct view v;
    const struct gguf_tensor *tensor; /* for OF_TENSOR */
    struct live_facts key;            /* for a tensor: only the error is set */
};

enum xattr_value { X_NAME, X_TYPE, X_SHAPE, X_OFFSET, X_ERROR, X_BACKUP };

static const struct xattr {
    const char *name;
    enum xattr_value value;
    unsigned of;
} xattrs[] = {
    {"user.gguf.name", X_NAME, OF_KEY | OF_TENSOR},
    {"user.gguf.type", X_TYPE, OF_KEY | OF_TENSOR},
    {"user.gguf.shape", X_SHAPE, OF_TENSOR},
    {"user.gguf.offset", X_OFFSET, OF_TENSOR},
    {"user.gguf.error", X_ERROR, OF_KEY | OF_TENSOR | OF_NEW_TENSOR | OF_ROOT},
    {"user.gguf.backup", X_BACKUP, OF_ROOT},
};

static const struct xattr *find_xattr(const struct subject *s, const char *name)
{
    for (size_t i = 0; i < COUNT(xattrs); i++)
        if (xattrs[i].of & s->of && strcmp(xattrs[i].name, name) == 0)
            return &xattrs[i];
    return NULL;
}

static void subject_free(struct subject *s)
{
    live_facts_free(&s->key);
    view_free(&s->v);
}

/* Get the facts about a key. If the first edit could not begin, each key reports the reason. */
static int key_facts(struct tree *t, uint32_t number, struct live_facts *ret)
{
    int r = live_facts(t->meta, number, ret);
    if (r < 0 || atomic_load(&t->live))
        return r;
    LOCKED(&t->newest.lock);
    if (t->refusal[0])
        ret->error.len = 0;
    buf_str(&ret->error, t->refusal);
    return 0;
}

/* Find the subject of a node's attributes; free it even on failure. A tensor needs a fresh
 * snapshot, because edits that are not in a snapshot yet may have changed user.gguf.offset. */
static int subject_of(struct tree *t, uint64_t node, struct subject *s)
{
    *s = (struct subject){.n = ino_node(node)};
    if (s->n.kind == NODE_KEY) {
        s->of = OF_KEY;
        return key_facts(t, s->n.number, &s->key);
    }
    if (s->n.kind == NODE_ROOT) {
        CLEANUP(buf_free) struct buf notes = BUF_INIT;
        s->of = OF_ROOT;
        live_refused(t->meta, &notes);
        live_trouble(t->meta, &notes);
        unsaved_lines(&notes, &s->key.error);
        s->key.error.len -= s->key.error.len > 0; /* without the last newline */
        tree_backup(t, &s->key.type);
        return buf_error(&notes);
    }
    const bool tensor = s->n.kind == NODE_TENSOR;
    int r = tensor ? live_freshen(t->meta, NULL) : 0;
    if (r < 0)
        return r;
    s->v = newest_view(&t->newest);
    const bool making = tensors_facts(t, &s->n).making;
    r = making ? 0 : node_check(t, s->v.snap, &s->n);
    if (!tensor || r < 0)
        return !tensor && r == -ESTALE ? 0 /* a draft */ : r;
    s->of = making ? OF_NEW_TENSOR : OF_TENSOR;
    s->tensor = node_tensor(s->v.snap, &s->n);
    if (t->merge_first)
        buf_str(&s->key.error, MERGE_FIRST);
    return t->opt.tensors ? live_tensor_error(t->meta, s->n.number, &s->key.error) : 0;
}

/* Append an attribute's value to `out`. Returns 0, -ENODATA (the value is empty; only a shape may
 * be) or -ENOMEM. */
static int value_of(const struct subject *s, const struct xattr *x, struct buf *out)
{
    const struct snapshot *g = s->v.snap;
    const struct buf *text = x->value == X_NAME    ? &s->key.key
                             : x->value == X_ERROR ? &s->key.error
                                                   : &s->key.type;
    if (!s->tensor || x->value == X_ERROR)
        buf_add(out, text->data, text->len);
    else if (x->value == X_NAME)
        buf_add(out, gguf_name(g->gguf, s->tensor), s->tensor->name_len);
    else if (x->value == X_TYPE)
        fact_type_name(s->tensor, out);
    else if (x->value == X_SHAPE)
        fact_shape(g->gguf, s->tensor, " ", out);
    else
        buf_printf(out, "%" PRIu64,
                   snapshot_offset(g, snapshot_tensor_no(g, s->tensor), &(size_t){0}));
    int r = buf_error(out);
    return r < 0 ? r : out->len == 0 && x->value != X_SHAPE ? -ENODATA : 0;
}

int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(subject_free) struct subject s = {0};
    struct node at = ino_node(node);
    if (at.kind == NODE_DIR && tensors_fixed(t, &at) && strcmp(name, READ_ONLY) == 0) {
        buf_str(out, t->merge_first ? MERGE_FIRST : TENSORS_FIXED);
        return buf_error(out);
    }
    if (node_is_folder(&at, ROOT_METADATA) && strcmp(name, UNDO) == 0) {
        int r = live_undo_said(t->meta, out);
        LOCKED(&t->newest.lock);
        if (!out->len) /* editing could not begin */
            buf_str(out, t->refusal);
        return r < 0 || out->len ? r : -ENODATA;
    }
    int r = subject_of(t, node, &s);
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    return r < 0 ? r : x ? value_of(&s, x, out) : -ENODATA;
}

int tree_listxattr(struct tree *t, uint64_t node, struct buf *out)
{
    CLEANUP(subject_free) struct subject s = {0};
    int r = subject_of(t, node, &s);
    for (size_t i = 0; i < COUNT(xattrs) && r == 0; i++) {
        CLEANUP(buf_free) struct buf value = BUF_INIT;
        if (find_xattr(&s, xattrs[i].name) && value_of(&s, &xattrs[i], &value) == 0)
            buf_add(out, xattrs[i].name, strlen(xattrs[i].name) + 1);
    }
    if (s.n.kind == NODE_DIR && tensors_fixed(t, &s.n))
        buf_add(out, READ_ONLY, sizeof(READ_ONLY)); /* with its NUL */
    return r < 0 ? r : buf_error(out);
}

/* Restore the state whose number is `text`. */
static int undo(struct tree *t, const char *text, size_t n, struct live_wait *w)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || i == STATE_MAX)
            return -EINVAL;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    return tree_begin_undo(t, number, w);
}

/* Set an attribute. Setting one to its current value always succeeds, because cp -a and rsync -X do
 * that. For tensors that can be edited, these programs set the source's attributes, which are
 * ignored. */
int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct live_wait *w)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    CLEANUP(subject_free) struct subject s = {0};
    struct node at = ino_node(node);
    if (t->opt.tensors && tensors_in(&at))
        return strncmp(name, "user.gguf.", 10) == 0 ? 0 : -EOPNOTSUPP;
    if (node_is_folder(&at, ROOT_METADATA) && strcmp(name, UNDO) == 0)
        return undo(t, value, n, w);
    int r = t->writable ? subject_of(t, node, &s) : -EROFS;
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (!x)
        return r < 0 ? r : -EOPNOTSUPP;
    if (value_of(&s, x, &is) == 0 && is.len == n && memcmp(is.data, value, n) == 0)
        return 0;
    if (s.key.helper && x->value == X_NAME) /* the name of the key that the helper copies */
        return 0;
    if (s.tensor || x->value != X_TYPE)
        return -EPERM;
    r = begin_editing(t);
    return r < 0 ? r : live_retype(t->meta, s.n.number, value, n, w);
}

/* Remove an attribute. Only the reason for a refusal can be removed, for rsync -X, which removes
 * attributes that its source lacks. */
int tree_removexattr(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    CLEANUP(subject_free) struct subject s = {0};
    struct node at = ino_node(node);
    if (t->opt.tensors && tensors_in(&at)) {
        if (at.kind == NODE_TENSOR && strcmp(name, "user.gguf.error") == 0)
            live_tensor_forgive(t->meta, at.number);
        return 0;
    }
    int r = t->writable ? subject_of(t, node, &s) : -EROFS;
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (r == 0)
        r = x ? value_of(&s, x, &is) : -ENODATA;
    if (r < 0 || x->value != X_ERROR)
        return r < 0 ? r : -EPERM;
    if (s.tensor) /* a tensor of a split model always has this attribute */
        return 0;
    lock_take(&t->newest.lock);
    t->refusal[0] = '\0';
    lock_drop(&t->newest.lock);
    return live_forgive(t->meta, s.n.number);
}
