/* SPDX-License-Identifier: MIT */
/* Extended attributes: see xattr.h. */
#include "tree/xattr.h"

#include <errno.h>
#include <string.h>

#include "base/count.h"
#include "model/facts.h"
#include "tree/begin.h"
#include "tree/tensors.h"

/* For the root the shelf has this attribute. */
#define READ_ONLY "user.gguf.readonly"

/* Files in metadata/ and tensors' directories have attributes. */
struct subject {
    struct node n;
    struct view v;
    const struct gguf_tensor *tensor; /* or NULL, and: */
    bool making;                      /* a tensor being made: only the error */
    struct live_facts key;            /* for a tensor: only the error */
};

static void x_name(const struct subject *s, struct buf *out)
{
    if (s->tensor)
        buf_add(out, gguf_name(s->v.snap->gguf, s->tensor), s->tensor->name_len);
    else
        buf_add(out, s->key.key.data, s->key.key.len);
}

static void x_type(const struct subject *s, struct buf *out)
{
    if (s->tensor)
        fact_type_name(s->tensor, out);
    else
        buf_add(out, s->key.type.data, s->key.type.len);
}

static void x_shape(const struct subject *s, struct buf *out)
{
    fact_shape(s->v.snap->gguf, s->tensor, " ", out);
}

static void x_offset(const struct subject *s, struct buf *out)
{
    size_t shard;
    buf_printf(out, "%llu",
               (unsigned long long)snapshot_offset(
                   s->v.snap, snapshot_tensor_no(s->v.snap, s->tensor), &shard));
}

static void x_error(const struct subject *s, struct buf *out)
{
    buf_add(out, s->key.error.data, s->key.error.len);
}

static const struct xattr {
    const char *name;
    bool keys, tensors;
    /* writes nothing if it does not apply; but: */
    void (*value)(const struct subject *s, struct buf *out);
    bool empty; /* it may be empty */
} xattrs[] = {
    {"user.gguf.name", true, true, x_name, false},
    {"user.gguf.type", true, true, x_type, false},
    {"user.gguf.shape", false, true, x_shape, true},
    {"user.gguf.offset", false, true, x_offset, false},
    {"user.gguf.error", true, true, x_error, false},
};

static const struct xattr *find_xattr(const struct subject *s, const char *name)
{
    for (size_t i = 0; i < COUNT(xattrs); i++)
        if (strcmp(xattrs[i].name, name) == 0 && (!s->making || xattrs[i].value == x_error) &&
            (s->making || (s->tensor && xattrs[i].tensors) ||
             (s->n.kind == NODE_KEY && xattrs[i].keys)))
            return &xattrs[i];
    return NULL;
}

static void subject_free(struct subject *s)
{
    live_facts_free(&s->key);
    view_free(&s->v);
}

/* If the first edit could not begin, each key reports why. */
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

/* Always free it. user.gguf.offset changes with edits that are not in a snapshot yet. */
static int subject_of(struct tree *t, uint64_t node, struct subject *s)
{
    uint32_t views;
    *s = (struct subject){.n = tree_node(t, node)};
    if (s->n.kind == NODE_TENSOR_FILE && tensors_live(t))
        return 0; /* also for its draft */
    if (s->n.kind == NODE_KEY)
        return key_facts(t, s->n.number, &s->key);
    int r = s->n.kind == NODE_TENSOR ? live_freshen(t->meta, false, NULL) : 0;
    if (r < 0)
        return r;
    s->v = newest_view(&t->newest);
    s->making = tensors_is_making(t, &s->n, &views);
    if (s->making) /* there is only what it lacks */
        return live_tensor_error(t->meta, s->n.number, &s->key.error);
    r = s->n.kind == NODE_WHOLE ? 0 /* has none */ : node_check(t, s->v.snap, &s->n);
    if (r == 0 && s->n.kind == NODE_TENSOR)
        s->tensor = node_tensor(s->v.snap, &s->n);
    if (s->tensor && t->opt.tensors)
        r = live_tensor_error(t->meta, s->n.number, &s->key.error);
    else if (s->tensor && t->merge_first)
        buf_str(&s->key.error, MERGE_FIRST);
    return r;
}

/* 0, -ENODATA, -ENOMEM. */
static int value_of(const struct subject *s, const struct xattr *x, struct buf *out)
{
    x->value(s, out);
    return buf_error(out) < 0 ? buf_error(out) : out->len == 0 && !x->empty ? -ENODATA : 0;
}

int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(subject_free) struct subject s = {0};
    struct node at = ino_node(node);
    if (at.kind == NODE_DIR && tensors_fixed(t, &at) && strcmp(name, READ_ONLY) == 0) {
        buf_str(out, t->merge_first ? MERGE_FIRST : TENSORS_FIXED);
        return buf_error(out);
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

/* ---- edit ---- */

/* tensors/ and its contents, if tensors can be edited. */
static bool is_in_tensors(const struct tree *t, const struct node *n)
{
    return tensors_has(t, n) || (n->kind == NODE_TENSOR_FILE && t->opt.tensors && t->writable);
}

/*
 * Setting an attribute to its present value always succeeds, since cp -a and rsync -X do that. On tensors they set
 * those of the source, which are ignored.
 */
int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct live_wait *w)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    CLEANUP(subject_free) struct subject s = {0};
    struct live *l;
    struct node at = ino_node(node);
    if (is_in_tensors(t, &at))
        return strncmp(name, "user.gguf.", 10) == 0 ? 0 : -EOPNOTSUPP;
    int r = t->writable ? subject_of(t, node, &s) : -EROFS;
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (!x)
        return r < 0 ? r : -EOPNOTSUPP;
    if (value_of(&s, x, &is) == 0 && is.len == n && memcmp(is.data, value, n) == 0)
        return 0;
    if (s.key.helper && x->value == x_name) /* that of the key it copies */
        return 0;
    if (s.tensor || x->value != x_type)
        return -EPERM;
    r = begin_editing(t, &l);
    return r < 0 ? r : live_retype(l, s.n.number, value, n, w);
}

/* Only the reason why a value was refused can be removed: rsync -X removes what its source lacks. */
int tree_removexattr(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    CLEANUP(subject_free) struct subject s = {0};
    struct node at = ino_node(node);
    if (is_in_tensors(t, &at)) {
        if (at.kind == NODE_TENSOR && strcmp(name, "user.gguf.error") == 0)
            live_tensor_forgive(t->meta, at.number);
        return 0;
    }
    int r = t->writable ? subject_of(t, node, &s) : -EROFS;
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (r == 0)
        r = x ? value_of(&s, x, &is) : -ENODATA;
    if (r < 0 || x->value != x_error)
        return r < 0 ? r : -EPERM;
    lock_take(&t->newest.lock);
    t->refusal[0] = '\0';
    lock_drop(&t->newest.lock);
    return live_forgive(t->meta, s.n.number);
}
