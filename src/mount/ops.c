/* SPDX-License-Identifier: MIT */
/* The FUSE callbacks: see ops.h. */
#include "mount/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "mount/log.h"
#include "tree/tree.h"

/* Seconds for which the kernel keeps what never changes: longer than any mount lives. */
#define FOREVER 1e9

static struct tree *tree_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static double timeout(const struct tree_entry *e)
{
    return e->fixed ? FOREVER : 0;
}

static struct fuse_entry_param entry_param(const struct tree_entry *e)
{
    return (struct fuse_entry_param){
        .ino = e->node, .attr = e->attr, .attr_timeout = timeout(e), .entry_timeout = timeout(e)};
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct tree_entry e;
    struct fuse_entry_param none = {.entry_timeout = FOREVER};
    int r = tree_lookup(tree_of(req), parent, name, &e);
    if (r == -ENOENT) { /* nothing ever appears in a read-only tree: that may be kept too */
        (void)fuse_reply_entry(req, &none);
        return;
    }
    if (r < 0) {
        (void)fuse_reply_err(req, -r);
        return;
    }
    struct fuse_entry_param p = entry_param(&e);
    (void)fuse_reply_entry(req, &p);
}

/* Node numbers are arithmetic: there is nothing to forget. */
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    (void)ino;
    (void)nlookup;
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    (void)count;
    (void)forgets;
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct tree_entry e;
    (void)fi;
    int r = tree_getattr(tree_of(req), ino, &e);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_attr(req, &e.attr, timeout(&e));
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct tree_file *f = NULL;
    int r = (fi->flags & O_ACCMODE) == O_RDONLY ? tree_open_file(tree_of(req), ino, &f) : -EROFS;
    if (r < 0) {
        (void)fuse_reply_err(req, -r);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)f;
    fi->keep_cache = 1; /* what a node shows never changes */
    fi->noflush = 1;
    if (fuse_reply_open(req, fi) < 0) /* interrupted: there will be no release */
        tree_release(f);
}

static struct tree_file *file_of(const struct fuse_file_info *fi)
{
    return (struct tree_file *)(uintptr_t)fi->fh;
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    tree_release(file_of(fi));
    (void)fuse_reply_err(req, 0);
}

/* ---- read ---- */

/* Each thread keeps the scratch of its largest read; pages that are not used cost nothing. */
struct scratch {
    void *bytes;
    size_t size;
};

static pthread_key_t scratch_key;

static void scratch_free(void *arg)
{
    struct scratch *s = arg;
    free(s->bytes);
    free(s);
}

static void scratch_make_key(void)
{
    (void)pthread_key_create(&scratch_key, scratch_free);
}

static void *scratch_get(size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, scratch_make_key);
    struct scratch *s = pthread_getspecific(scratch_key);
    if (!s) {
        s = calloc(1, sizeof(*s));
        if (!s || pthread_setspecific(scratch_key, s) != 0) {
            free(s);
            return NULL;
        }
    }
    if (s->size < size) {
        free(s->bytes);
        s->bytes = NULL;
        s->size = posix_memalign(&s->bytes, 4096, size) == 0 ? size : 0;
    }
    return s->bytes;
}

/*
 * Pieces may lie in the mapping of the model. If a page of it is gone, writing the reply fails with
 * EFAULT, and the kernel ends the request with EIO by itself: one reply is enough in any case.
 */
static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    (void)ino;
    struct reply r = {.scratch = scratch_get(REPLY_SCRATCH(size))};
    int err = r.scratch ? tree_read(tree_of(req), file_of(fi), (uint64_t)off, size, &r) : -ENOMEM;
    if (err < 0)
        (void)fuse_reply_err(req, -err);
    else
        (void)fuse_reply_iov(req, r.part, r.parts);
    tree_reply_done(&r);
}

/* ---- folders ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->cache_readdir = 1;
    fi->keep_cache = 1;
    (void)fuse_reply_open(req, fi);
}

/* Entries from `off` on until the buffer is full. Returns bytes used, or -errno. */
static ssize_t fill_dir(fuse_req_t req, fuse_ino_t ino, char *bytes, size_t size, off_t off,
                        bool plus)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    uint64_t cookie = (uint64_t)off;
    size_t used = 0, need;
    int r;
    while ((r = tree_readdir(tree_of(req), ino, &cookie, plus, name, &e)) > 0) {
        struct fuse_entry_param p = entry_param(&e);
        if (plus && (strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
            p.ino = 0; /* not looked up: the kernel knows these already */
        need =
            plus ? fuse_add_direntry_plus(req, bytes + used, size - used, name, &p, (off_t)cookie)
                 : fuse_add_direntry(req, bytes + used, size - used, name, &e.attr, (off_t)cookie);
        if (need > size - used)
            break;
        used += need;
    }
    return r < 0 ? r : (ssize_t)used;
}

static void reply_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
    char *bytes = malloc(size);
    ssize_t r = bytes ? fill_dir(req, ino, bytes, size, off, plus) : -ENOMEM;
    if (r < 0)
        (void)fuse_reply_err(req, (int)-r);
    else
        (void)fuse_reply_buf(req, bytes, (size_t)r);
    free(bytes);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    (void)fi;
    reply_dir(req, ino, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                           struct fuse_file_info *fi)
{
    (void)fi;
    reply_dir(req, ino, size, off, true);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;
    (void)ino;
    int r = tree_statfs(tree_of(req), &st);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_statfs(req, &st);
}

/* ---- extended attributes ---- */

/* Size 0 asks for the size. */
static void reply_xattr(fuse_req_t req, int r, const struct buf *b, size_t size)
{
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else if (size == 0)
        (void)fuse_reply_xattr(req, b->len);
    else if (size < b->len)
        (void)fuse_reply_err(req, ERANGE);
    else
        (void)fuse_reply_buf(req, (const char *)b->data, b->len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    int r = tree_getxattr(tree_of(req), ino, name, &b);
    reply_xattr(req, r, &b, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    int r = tree_listxattr(tree_of(req), ino, &b);
    reply_xattr(req, r, &b, size);
}

const struct fuse_lowlevel_ops mnt_ops = {
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .open = op_open,
    .read = op_read,
    .release = op_release,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .statfs = op_statfs,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
};
