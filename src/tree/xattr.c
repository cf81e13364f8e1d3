/* SPDX-License-Identifier: MIT */
/* Extended attributes: see tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <string.h>

#include "check/facts.h"
#include "tree/helper.h"

/* Attributes are of metadata files and of tensors' folders. */
struct subject {
    struct tree *t;
    const struct gen *g;
    struct node n;
    const struct gguf_tensor *tensor; /* or: */
    const struct kfile *f;            /* of a writable tree's file, if it was touched */
    uint32_t kv;                      /* KV_NONE: in no generation */
};

static int x_name(const struct subject *s, struct buf *out)
{
    const struct gguf *m = s->g->gguf;
    if (s->tensor)
        buf_add(out, gguf_name(m, s->tensor), s->tensor->name_len);
    else if (s->kv != KV_NONE)
        buf_add(out, gguf_key(m, &m->kv[s->kv]), m->kv[s->kv].key_len);
    else if (s->f && s->f->key)
        buf_add(out, s->f->key, s->f->key_len);
    else
        return -ENODATA;
    return 0;
}

static int x_type(const struct subject *s, struct buf *out)
{
    char name[GGUF_TYPE_NAME_MAX];
    if (s->tensor) {
        fact_type_name(s->tensor, out);
        return 0;
    }
    struct gguf_value v = {.type = GGUF_STRING};
    uint32_t type, elem;
    if (s->kv != KV_NONE) {
        v = gguf_value(s->g->gguf, &s->g->gguf->kv[s->kv]);
    } else if (s->f && kfile_type(s->f, &type, &elem)) {
        v.type = (uint8_t)type;
        v.elem = (uint8_t)elem;
    } else {
        return -ENODATA;
    }
    buf_str(out, gguf_type_name(&v, name));
    return 0;
}

static int x_shape(const struct subject *s, struct buf *out)
{
    shape_numpy(s->g, s->tensor, " ", out);
    return 0;
}

static int x_offset(const struct subject *s, struct buf *out)
{
    size_t shard;
    buf_printf(out, "%llu",
               (unsigned long long)gen_offset(s->g, gen_tensor_no(s->g, s->tensor), &shard));
    return 0;
}

static int x_error(const struct subject *s, struct buf *out)
{
    if (!s->f || !s->f->error)
        return -ENODATA;
    buf_str(out, s->f->error);
    return 0;
}

static const struct xattr {
    const char *name;
    bool keys, tensors;
    int (*value)(const struct subject *s, struct buf *out); /* 0, -ENODATA */
} xattrs[] = {
    {"user.gguf.name", true, true, x_name},    {"user.gguf.type", true, true, x_type},
    {"user.gguf.shape", false, true, x_shape}, {"user.gguf.offset", false, true, x_offset},
    {"user.gguf.error", true, false, x_error},
};

#define XATTRS (sizeof(xattrs) / sizeof(xattrs[0]))

static const struct xattr *find_xattr(const struct subject *s, const char *name)
{
    for (size_t i = 0; i < XATTRS; i++)
        if (strcmp(xattrs[i].name, name) == 0 &&
            ((s->tensor && xattrs[i].tensors) || (s->n.kind == NODE_KEY && xattrs[i].keys)))
            return &xattrs[i];
    return NULL;
}

/* Under the lock. */
static int subject_of(struct tree *t, uint64_t node, struct subject *ret)
{
    struct node n = ino_node(node);
    const struct gen *g = t->now.gen;
    int r = n.kind == NODE_WHOLE ? 0 : node_check(t, g, &n);
    if (r < 0)
        return r;
    *ret = (struct subject){.t = t, .g = g, .n = n, .kv = KV_NONE};
    if (n.kind == NODE_TENSOR)
        ret->tensor = node_tensor(g, &n);
    if (n.kind == NODE_KEY) {
        ret->f = t->writable ? t->keys.file[n.number] : NULL;
        ret->kv = t->writable ? t->keys.kv[n.number] : n.number;
    }
    return 0;
}

int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out)
{
    struct subject s;
    (void)pthread_mutex_lock(&t->lock);
    int r = subject_of(t, node, &s);
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (r == 0)
        r = x ? x->value(&s, out) : -ENODATA;
    (void)pthread_mutex_unlock(&t->lock);
    return r < 0 ? r : buf_error(out);
}

int tree_listxattr(struct tree *t, uint64_t node, struct buf *out)
{
    struct subject s;
    (void)pthread_mutex_lock(&t->lock);
    int r = subject_of(t, node, &s);
    for (size_t i = 0; i < XATTRS && r == 0; i++) {
        CLEANUP(buf_free) struct buf value = BUF_INIT;
        if (find_xattr(&s, xattrs[i].name) && xattrs[i].value(&s, &value) == 0)
            buf_add(out, xattrs[i].name, strlen(xattrs[i].name) + 1);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return r < 0 ? r : buf_error(out);
}

/*
 * What is being written has its type from then on, when it is accepted (cp -a); a helper keeps it
 * for the key that it is renamed to (rsync -X). False: it is neither.
 */
static bool type_to_come(struct kfile *f, uint32_t type, uint32_t elem)
{
    if (f->state == KFILE_HELPER) {
        f->typed = true;
        f->type = type;
        f->elem = elem;
        return true;
    }
    if (!f->draft || !(f->draft->dirty || f->state == KFILE_NEW))
        return false;
    f->draft->typed = true;
    f->draft->type = type;
    f->draft->elem = elem;
    return true;
}

/* Another type for a key. Under the lock. */
static int retype(struct tree *t, uint32_t number, const char *value, size_t n, struct tree_wait *w)
{
    struct err e = {0};
    uint32_t type, elem;
    struct kfile *f = keys_touch(&t->keys, t->now.gen, number);
    if (!f)
        return -ENOMEM;
    if (!type_by_name(value, n, &type, &elem))
        return -EINVAL;
    if (type_to_come(f, type, elem))
        return 0;
    int r = edits_retype(t, f, type, elem, &e);
    if (r > 0)
        r = writer_accepted(t, w, &e);
    return r < 0 ? edits_refused(t, f, &e) : r;
}

/* Under the lock. What an attribute is already can always be set: cp -a and rsync -X do. */
static int set_xattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                     struct tree_wait *w)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    struct subject s;
    int r = subject_of(t, node, &s);
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (r < 0)
        return r;
    if (!x)
        return -EOPNOTSUPP;
    if (x->value(&s, &is) == 0 && is.len == n && memcmp(is.data, value, n) == 0)
        return 0;
    bool helper = s.f && s.f->state == KFILE_HELPER;
    if (helper && x->value == x_name) /* that of the key whose copy it is: it tells nothing */
        return 0;
    if (x->value != x_type || s.n.kind != NODE_KEY)
        return -EPERM;
    return retype(t, s.n.number, value, n, w);
}

int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct tree_wait *w)
{
    if (!t->writable)
        return -EROFS;
    (void)pthread_mutex_lock(&t->lock);
    int r = set_xattr(t, node, name, value, n, w);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

/* Only why a value was refused can be forgotten: rsync -X removes what its source has not. */
int tree_removexattr(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    struct subject s;
    if (!t->writable)
        return -EROFS;
    (void)pthread_mutex_lock(&t->lock);
    int r = subject_of(t, node, &s);
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (r == 0)
        r = x ? x->value(&s, &is) : -ENODATA;
    if (r == 0 && x->value == x_error)
        kfile_set_error(t->keys.file[s.n.number], NULL);
    else if (r == 0)
        r = -EPERM;
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}
