/* SPDX-License-Identifier: MIT */
/* Extended attributes: see tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <string.h>

#include "model/facts.h"
#include "tree/helper.h"

/* Attributes are of metadata files and of tensors' folders. */
struct subject {
    struct tree *t;
    struct view v;
    struct node n;
    const struct gguf_tensor *tensor; /* or: */
    const struct kfile *f;            /* of a writable tree's file, if it was touched */
    struct shown shown;               /* the key's value, if it has one */
};

static int x_name(const struct subject *s, struct buf *out)
{
    const struct gguf *m = s->v.gen->gguf;
    if (s->tensor)
        buf_add(out, gguf_name(m, s->tensor), s->tensor->name_len);
    else if (s->f && s->f->key)
        buf_add(out, s->f->key, s->f->key_len);
    else if (s->shown.gen) /* untouched */
        buf_add(out, gguf_key(m, &m->kv[s->shown.kv]), m->kv[s->shown.kv].key_len);
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
    struct typed type = s->f ? kfile_type(s->f) : (struct typed){0};
    if (!shown_value(&s->shown, &v)) {
        if (!type.set || (s->f && s->f->inherited))
            return -ENODATA;
        v.type = (uint8_t)type.type;
        v.elem = (uint8_t)type.elem;
    }
    buf_str(out, gguf_type_name(&v, name));
    return 0;
}

static int x_shape(const struct subject *s, struct buf *out)
{
    shape_numpy(s->v.gen, s->tensor, " ", out);
    return 0;
}

static int x_offset(const struct subject *s, struct buf *out)
{
    size_t shard;
    buf_printf(
        out, "%llu",
        (unsigned long long)gen_offset(s->v.gen, gen_tensor_no(s->v.gen, s->tensor), &shard));
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

/* A key's file: under the lock, if the tree is writable. */
static int subject_key(struct tree *t, struct subject *s)
{
    int r = node_check(t, s->v.gen, &s->n);
    if (r < 0)
        return r;
    if (t->writable) {
        s->f = t->keys.file[s->n.number];
        s->shown = edits_shown(t, s->n.number);
    } else {
        s->shown = (struct shown){gen_ref(s->v.gen), NULL, s->n.number};
    }
    return 0;
}

static void subject_free(struct subject *s)
{
    shown_free(&s->shown);
    view_free(&s->v);
}

/* True if all of the subject is looked at under the lock. */
static bool is_edited(const struct tree *t, const struct node *n)
{
    return t->writable && n->kind == NODE_KEY;
}

static void lock_for(struct tree *t, const struct node *n)
{
    if (is_edited(t, n))
        (void)pthread_mutex_lock(&t->lock);
}

static void unlock_for(struct tree *t, const struct node *n)
{
    if (is_edited(t, n))
        (void)pthread_mutex_unlock(&t->lock);
}

/* Free it in any case. */
static int subject_of(struct tree *t, const struct node *n, struct subject *s)
{
    *s = (struct subject){.t = t, .n = *n, .v = tree_view(t)};
    if (n->kind == NODE_KEY)
        return subject_key(t, s);
    int r = n->kind == NODE_WHOLE ? 0 : node_check(t, s->v.gen, n);
    if (r == 0 && n->kind == NODE_TENSOR)
        s->tensor = node_tensor(s->v.gen, n);
    return r;
}

/* user.gguf.offset moves with edits that are in no generation yet. */
static int freshen_for(struct tree *t, const struct node *n)
{
    return n->kind == NODE_TENSOR ? tree_freshen(t) : 0;
}

int tree_getxattr(struct tree *t, uint64_t node, const char *name, struct buf *out)
{
    CLEANUP(subject_free) struct subject s = {0};
    struct node n = ino_node(node);
    int r = freshen_for(t, &n);
    if (r < 0)
        return r;
    lock_for(t, &n);
    r = subject_of(t, &n, &s);
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (r == 0)
        r = x ? x->value(&s, out) : -ENODATA;
    unlock_for(t, &n);
    return r < 0 ? r : buf_error(out);
}

int tree_listxattr(struct tree *t, uint64_t node, struct buf *out)
{
    CLEANUP(subject_free) struct subject s = {0};
    struct node n = ino_node(node);
    lock_for(t, &n);
    int r = subject_of(t, &n, &s);
    for (size_t i = 0; i < XATTRS && r == 0; i++) {
        CLEANUP(buf_free) struct buf value = BUF_INIT;
        if (find_xattr(&s, xattrs[i].name) && xattrs[i].value(&s, &value) == 0)
            buf_add(out, xattrs[i].name, strlen(xattrs[i].name) + 1);
    }
    unlock_for(t, &n);
    return r < 0 ? r : buf_error(out);
}

/*
 * What is being written has its type from then on, when it is accepted (cp -a); a helper keeps it
 * for the key that it is renamed to (rsync -X). False: it is neither.
 */
static bool type_to_come(struct kfile *f, struct typed type)
{
    if (f->state == KFILE_HELPER) {
        f->typed = type;
        f->inherited = false;
        return true;
    }
    if (!f->draft || !(f->draft->dirty || f->state == KFILE_NEW))
        return false;
    f->draft->typed = type;
    return true;
}

/* Another type for a key. Under the lock. */
static int retype(struct tree *t, uint32_t number, const char *value, size_t n, struct tree_wait *w)
{
    struct err e = {0};
    struct typed type = {.set = true};
    struct kfile *f = keys_touch(&t->keys, t->now.gen, number);
    if (!f)
        return -ENOMEM;
    if (!type_by_name(value, n, &type.type, &type.elem))
        return -EINVAL;
    if (type_to_come(f, type))
        return 0;
    int r = edits_retype(t, f, type, &e);
    if (r < 0)
        return edits_refused(t, f, &e);
    return r > 0 ? writer_accepted(t, w) : 0;
}

/* What an attribute is already can always be set: cp -a and rsync -X do. */
static int set_xattr(struct tree *t, const struct subject *s, const char *name, const void *value,
                     size_t n, struct tree_wait *w)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    const struct xattr *x = find_xattr(s, name);
    if (!x)
        return -EOPNOTSUPP;
    if (x->value(s, &is) == 0 && is.len == n && memcmp(is.data, value, n) == 0)
        return 0;
    bool helper = s->f && s->f->state == KFILE_HELPER;
    if (helper && x->value == x_name) /* that of the key whose copy it is */
        return 0;
    if (x->value != x_type || s->n.kind != NODE_KEY)
        return -EPERM;
    return retype(t, s->n.number, value, n, w);
}

int tree_setxattr(struct tree *t, uint64_t node, const char *name, const void *value, size_t n,
                  struct tree_wait *w)
{
    CLEANUP(subject_free) struct subject s = {0};
    struct node at = ino_node(node);
    if (!t->writable)
        return -EROFS;
    int r = freshen_for(t, &at);
    if (r < 0)
        return r;
    lock_for(t, &at);
    r = subject_of(t, &at, &s);
    if (r == 0)
        r = set_xattr(t, &s, name, value, n, w);
    unlock_for(t, &at);
    return r;
}

/* Only why a value was refused can be forgotten: rsync -X removes what its source has not. */
int tree_removexattr(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    CLEANUP(subject_free) struct subject s = {0};
    struct node n = ino_node(node);
    if (!t->writable)
        return -EROFS;
    lock_for(t, &n);
    int r = subject_of(t, &n, &s);
    const struct xattr *x = r == 0 ? find_xattr(&s, name) : NULL;
    if (r == 0)
        r = x ? x->value(&s, &is) : -ENODATA;
    if (r == 0 && x->value == x_error)
        kfile_set_error(t->keys.file[n.number], NULL);
    else if (r == 0)
        r = -EPERM;
    unlock_for(t, &n);
    return r;
}
