/* SPDX-License-Identifier: MIT */
/* Computes access rights, attributes and extended attributes: see attr.h. */
#include "tree/attr.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "model/facts.h"
#include "text/number.h"
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

struct grant grant_shown(const struct tree_options *o, struct grant g)
{
    return (struct grant){o->set_uid ? o->uid : g.uid, o->set_gid ? o->gid : g.gid,
                          o->set_umask ? 0777 & ~o->umask : g.bits};
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
    else if (a.row->text)
        a.row->text(&a, &m);
    if (buf_error(&m))
        return buf_error(&m);
    if (cache)
        atomic_store_explicit(cache, m.len + 1, memory_order_relaxed);
    node_state(t, n, &m);
    *ret = m.len;
    return 0;
}

void entry_fill(struct tree_entry *e, mode_t mode, const struct grant *shown, uint64_t size,
                struct timespec mtime)
{
    e->attr = (struct stat){
        .st_ino = e->attr.st_ino,
        .st_mode = mode,
        .st_nlink = 1, /* of a directory: unknown */
        .st_uid = shown->uid,
        .st_gid = shown->gid,
        .st_blksize = IO_SIZE,
        .st_size = (off_t)size,
        .st_blocks = (blkcnt_t)(size / 512 + (size % 512 ? 1 : 0)),
        .st_atim = mtime,
        .st_mtim = mtime,
        .st_ctim = mtime,
    };
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
    const mode_t mode = g->bits & (editable ? 0666 : 0444);
    if (!node_is_dir(n))
        return S_IFREG | mode;
    return S_IFDIR | mode | (g->bits & 0444) >> 2;
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
static bool may_be_edited(const struct tree *t, const struct node *n)
{
    return t->writable && (n->kind == NODE_KEY || (n->kind == NODE_TENSOR_FILE && t->opt.tensors));
}

/* Return how long the name refers to this node. A view of the whole has a node for each state. The
 * name of a file that can be edited may change its meaning at any time. */
static double name_for(const struct tree *t, const struct node *n)
{
    const bool moves = may_be_edited(t, n) || (t->writable && n->kind == NODE_WHOLE);
    return moves ? 0 : TREE_FOREVER;
}

/* Return how long the node's attributes are valid. The directories on every path have rights that
 * gate what lies below. Where it is 0, the kernel requests them at each read(2). */
static double attr_for(const struct tree *t, const struct node *n)
{
    if (n->kind == NODE_ROOT || n->kind == NODE_DIR || tensors_has(t, n))
        return 1;
    const bool moves = may_be_edited(t, n) || (t->writable && node_has(n, ROW_MOVES));
    return moves || node_has(n, ROW_STATE) ? 0 : TREE_FOREVER;
}

/* Get the entry for any node, given its facts in `a`. */
static void node_entry_as(struct tree *t, const struct view *v, const struct node *n,
                          const struct live_attr *a, struct tree_entry *ret)
{
    assert(a->size <= INT64_MAX); /* ensured by GGUF_MAX_ELEMENTS */
    const struct grant g = grant_shown(&t->opt, tree_grant(t, v));
    brief_entry(t, ino_of(n), n->kind == NODE_KEY ? ino_key(a->ino) : node_inode(n), 0, ret);
    ret->name_for = name_for(t, n);
    ret->attr_for = attr_for(t, n);
    entry_fill(ret, node_mode(t, &g, n), &g, a->size, node_mtime(t, v, n, a));
}

int node_entry(struct tree *t, const struct node *n, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    struct live_attr a = {0};
    const struct live_folder folder = tensors_facts(t, n);
    /* what no view need have: a new tensor, and what is being written */
    const bool draft = tensors_draft_size(t, n, &a.size);
    int r = tree_view_of(t, n, &v); /* only now: what was pending a moment ago is in it */
    const bool pending = draft || (folder.making && r == 0 && !node_tensor(v.snap, n));
    if (r == 0 && !pending)
        r = node_check(t, v.snap, n);
    if (r == 0 && !pending)
        r = node_size(t, &v, n, &a.size);
    if (r < 0)
        return r;
    a.mtime = folder.mtime;
    node_entry_as(t, &v, n, &a, ret);
    if (n->kind == NODE_TENSOR)
        ret->generation = folder.generation;
    if (folder.making)
        ret->name_for = ret->attr_for = 0;
    return 0;
}

void key_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret)
{
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    struct node n = {.kind = NODE_KEY, .number = a->number};
    node_entry_as(t, &v, &n, a, ret);
}

void brief_entry(const struct tree *t, uint64_t ino, uint64_t inode, mode_t type,
                 struct tree_entry *ret)
{
    *ret =
        (struct tree_entry){.node = ino_in_slot(t->opt.slot, ino),
                            .attr = {.st_ino = ino_in_slot(t->opt.slot, inode), .st_mode = type}};
}

/* ---- extended attributes ---- */

/* The last two are for commands, and in no list, because cp -a would set them: the path of the model,
 * and `undo` of metadata/, which restores a state of the keys, and then tells what it did. */
enum {
    X_NAME,
    X_TYPE,
    X_SHAPE,
    X_OFFSET,
    X_ERROR,
    X_READ_ONLY,
    X_BACKUP,
    X_SOURCE,
    X_UNDO,
    X_COUNT
};

static const char *const xattr_names[X_COUNT] = {
    "user.gguf.name",   "user.gguf.type",   "user.gguf.shape",
    "user.gguf.offset", "user.gguf.error",  "user.gguf.readonly",
    "user.gguf.backup", "user.gguf.source", "user.gguf.undo"};

/* A node with its attributes as they are now. */
struct subject {
    struct node n;
    struct buf text[X_COUNT]; /* empty: the node does not have the attribute */
    bool helper;              /* an editor's helper in metadata/ */
};

static void subject_free(struct subject *s)
{
    for (size_t i = 0; i < X_COUNT; i++)
        buf_free(&s->text[i]);
}

/* Return the attribute with this name, or -1. */
static int find_xattr(const char *name)
{
    for (int i = 0; i < X_COUNT; i++)
        if (strcmp(xattr_names[i], name) == 0)
            return i;
    return -1;
}

/* Only a shape may be empty. */
static bool has_xattr(const struct subject *s, int x)
{
    return x >= 0 && (s->text[x].len > 0 || (x == X_SHAPE && s->text[X_OFFSET].len > 0));
}

/* Write why editing could not begin, if it could not, in place of the text. */
static void put_refusal(struct tree *t, struct buf *out)
{
    LOCKED(&t->newest.lock);
    if (t->refusal[0])
        out->len = 0;
    buf_str(out, t->refusal);
}

static int key_xattrs(struct tree *t, struct subject *s)
{
    const struct live_facts to = {&s->text[X_NAME], &s->text[X_TYPE], &s->text[X_ERROR],
                                  &s->helper};
    int r = live_facts(t->meta, s->n.number, &to);
    if (r == 0 && !atomic_load(&t->live))
        put_refusal(t, &s->text[X_ERROR]);
    return r;
}

/* The root's error is the text of `errors`. */
static int root_xattrs(struct tree *t, struct subject *s)
{
    struct buf *error = &s->text[X_ERROR];
    errors_text(t, error);
    error->len -= error->len > 0; /* without the last newline */
    if (!t->writable)
        buf_str(&s->text[X_READ_ONLY], t->why);
    tree_backup(t, &s->text[X_BACKUP]);
    buf_str(&s->text[X_SOURCE], t->model.real);
    return 0;
}

/* Edits that are not in a snapshot yet may have moved a tensor, so a fresh one is needed. */
static int tensor_xattrs(struct tree *t, struct subject *s)
{
    CLEANUP(view_free) struct view v = VIEW_INIT;
    const struct live_folder f = tensors_facts(t, &s->n);
    int r = live_freshen(t->meta, &v);
    if (r < 0)
        return r;
    const struct gguf_tensor *tensor = node_tensor(v.snap, &s->n);
    if (!tensor && !f.making)
        return node_check(t, v.snap, &s->n);
    if (tensor) {
        const uint32_t no = snapshot_tensor_no(v.snap, tensor);
        buf_add(&s->text[X_NAME], gguf_name(v.snap->gguf, tensor), tensor->name_len);
        fact_type_name(tensor, &s->text[X_TYPE]);
        fact_shape(v.snap->gguf, tensor, " ", &s->text[X_SHAPE]);
        buf_printf(&s->text[X_OFFSET], "%" PRIu64, snapshot_offset(v.snap, no, &(size_t){0}));
    }
    if (t->merge_first)
        buf_str(&s->text[X_ERROR], MERGE_FIRST);
    return t->opt.tensors ? live_tensor_error(t->meta, s->n.number, &s->text[X_ERROR]) : 0;
}

static int folder_xattrs(struct tree *t, struct subject *s)
{
    if (s->n.row == ROOT_METADATA) {
        int r = live_undo_said(t->meta, &s->text[X_UNDO]);
        if (!s->text[X_UNDO].len)
            put_refusal(t, &s->text[X_UNDO]);
        return r;
    }
    if (tensors_fixed(t, &s->n))
        buf_str(&s->text[X_READ_ONLY], t->merge_first ? MERGE_FIRST : TENSORS_FIXED);
    return 0;
}

/* Find the attributes of a node; free *s even on failure. */
static int subject_of(struct tree *t, uint64_t node, struct subject *s)
{
    *s = (struct subject){.n = ino_node(node)};
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    int r = s->n.kind == NODE_KEY      ? key_xattrs(t, s)
            : s->n.kind == NODE_ROOT   ? root_xattrs(t, s)
            : s->n.kind == NODE_TENSOR ? tensor_xattrs(t, s)
                                       : node_check(t, v.snap, &s->n);
    if (r == 0 && s->n.kind == NODE_DIR)
        r = folder_xattrs(t, s);
    for (size_t i = 0; i < X_COUNT && r == 0; i++)
        r = buf_error(&s->text[i]);
    return r == -ESTALE && s->n.kind == NODE_TENSOR_FILE ? 0 /* a draft */ : r;
}

int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(subject_free) struct subject s;
    int r = subject_of(t, node, &s);
    const int x = find_xattr(name);
    if (r < 0 || !has_xattr(&s, x))
        return r < 0 ? r : -ENODATA;
    buf_add(out, s.text[x].data, s.text[x].len);
    return buf_error(out);
}

int tree_listxattr(struct tree *t, uint64_t node, struct buf *out)
{
    CLEANUP(subject_free) struct subject s;
    int r = subject_of(t, node, &s);
    for (int i = 0; i < X_SOURCE && r == 0; i++)
        if (has_xattr(&s, i))
            buf_add(out, xattr_names[i], strlen(xattr_names[i]) + 1);
    return r < 0 ? r : buf_error(out);
}

/* Restore the state whose number is `text`. */
static int undo(struct tree *t, const void *text, size_t n, struct live_wait *w)
{
    struct integer number;
    if (scan_integer(text, n, &number) < 0 || number.minus)
        return -EINVAL;
    const int r = begin_editing(t);
    return r < 0 ? r : live_undo(t->meta, number.magnitude, w);
}

/* Set an attribute. Setting one to its current value always succeeds, because cp -a and rsync -X do
 * that. For tensors that can be edited, these programs set the source's attributes, which are
 * ignored. */
int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct live_wait *w)
{
    CLEANUP(subject_free) struct subject s = {0};
    const struct node at = ino_node(node);
    if (t->opt.tensors && tensors_in(&at))
        return strncmp(name, "user.gguf.", 10) == 0 ? 0 : -EOPNOTSUPP;
    int r = t->writable ? subject_of(t, node, &s) : -EROFS;
    const int x = find_xattr(name);
    if (r < 0)
        return r;
    if (x == X_UNDO && node_is_folder(&at, ROOT_METADATA))
        return undo(t, value, n, w);
    const bool has = has_xattr(&s, x);
    if (has && s.text[x].len == n && memcmp(s.text[x].data, value, n) == 0)
        return 0;
    if (s.helper && x == X_NAME) /* the name of the key that the helper copies */
        return 0;
    if (at.kind != NODE_KEY || x != X_TYPE)
        return has ? -EPERM : -EOPNOTSUPP;
    r = begin_editing(t);
    return r < 0 ? r : live_retype(t->meta, at.number, value, n, w);
}

/* Remove an attribute, for rsync -X, which removes those that its source lacks: without effect. */
int tree_removexattr(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(subject_free) struct subject s = {0};
    const struct node at = ino_node(node);
    if (t->opt.tensors && tensors_in(&at))
        return 0;
    int r = t->writable ? subject_of(t, node, &s) : -EROFS;
    const int x = find_xattr(name);
    if (r < 0 || !has_xattr(&s, x))
        return r < 0 ? r : -ENODATA;
    return x != X_ERROR || at.kind == NODE_ROOT ? -EPERM : 0;
}
