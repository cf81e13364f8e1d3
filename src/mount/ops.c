/* SPDX-License-Identifier: MIT */
/* The FUSE callbacks: see ops.h. */
#include "mount/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/order.h"
#include "mount/answer.h"
#include "mount/log.h"
#include "mount/ops_edit.h"
#include "shelf/shelf.h"

static void op_init(void *m, struct fuse_conn_info *conn)
{
    if (!shelf_is_folder(((struct mnt *)m)->shelf))
        return;
    conn->max_background = MNT_FOLDER_REQUESTS;
    conn->congestion_threshold = MNT_FOLDER_REQUESTS / 4 * 3;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct tree_entry e;
    struct fuse_entry_param none = {.entry_timeout = FOREVER};
    teller_look(&mnt_of(req)->teller, parent);
    int r = shelf_lookup(shelf_of(req), parent, name, &e);
    if (r == -ENOENT && shelf_never(shelf_of(req), parent)) /* a read-only tree gets no new names */
        (void)fuse_reply_entry(req, &none);
    else
        mnt_reply_entry(req, r, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    shelf_forget(shelf_of(req), ino, nlookup);
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        shelf_forget(shelf_of(req), forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct tree_entry e;
    /* Linux passes the handle for lseek(SEEK_END), but not for fstat(2). */
    struct shelf_file *f = fi ? file_of(fi) : NULL;
    teller_look(&mnt_of(req)->teller, ino);
    int r = shelf_getattr(shelf_of(req), ino, f, &e);
    order_before(f);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_attr(req, &e.attr, mnt_timeout(&e));
}

/* The permission bits that an open needs. */
static mode_t wanted_by(int flags)
{
    const mode_t reads = (flags & O_ACCMODE) == O_WRONLY ? 0 : 4;
    return reads | (sys_open_changes(flags) ? 2 : 0);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req);
    struct shelf_file *f = NULL;
    teller_look(&m->teller, ino);
    bool writes = sys_open_changes(fi->flags);
    int r = teller_check(&m->teller, req, ino, wanted_by(fi->flags));
    if (r == 0 && writes && !handles_edit(&m->handles))
        r = -EROFS;
    else if (r == 0 && (r = shelf_open_file(m->shelf, ino, fi->flags, &f)) < 0 && writes)
        handles_edited(&m->handles);
    if (r == 0)
        r = mnt_fill_open(m, fi, f, writes);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else if (fuse_reply_open(req, fi) < 0) /* interrupted: there will be no release */
        handle_close(&m->handles, handle_of(fi));
}

/* Of a file or a folder. */
static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    handle_close(&mnt_of(req)->handles, handle_of(fi));
    (void)fuse_reply_err(req, 0);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    (void)ino;
    reader_read(handle_of(fi)->reader, req, (uint64_t)off, size);
}

/* ---- folders ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req);
    struct shelf_dir *d = NULL;
    teller_look(&m->teller, ino);
    int r = teller_check(&m->teller, req, ino, 4);
    if (r == 0)
        r = shelf_opendir(m->shelf, ino, &d);
    if (r == 0) {
        fi->cache_readdir = shelf_dir_cacheable(d);
        fi->keep_cache = fi->cache_readdir;
        fi->fh = (uint64_t)(uintptr_t)handle_open(&m->handles, NULL, d, false);
        order_before(handle_of(fi));
        r = fi->fh ? 0 : -ENOMEM;
    }
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else if (fuse_reply_open(req, fi) < 0)
        handle_close(&m->handles, handle_of(fi));
}

/* Add an entry to a listing if it fits. Returns the bytes that it needs in either case. */
static size_t add_entry(fuse_req_t req, char *at, size_t size, const char *name,
                        const struct tree_entry *e, uint64_t cookie, bool plus)
{
    struct fuse_entry_param p = mnt_entry(e);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        p.ino = 0; /* not looked up: the kernel has these already */
    if (plus)
        return fuse_add_direntry_plus(req, at, size, name, &p, (off_t)cookie);
    return fuse_add_direntry(req, at, size, name, &e->attr, (off_t)cookie);
}

/* Entries from `cookie` on until the buffer is full. Returns bytes used, or -errno. */
static ssize_t fill_dir(fuse_req_t req, struct shelf_dir *d, char *bytes, size_t size,
                        uint64_t cookie, bool plus)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    size_t used = 0, need;
    int r;
    while ((r = shelf_readdir(d, &cookie, plus, name, &e)) > 0) {
        need = add_entry(req, bytes + used, size - used, name, &e, cookie, plus);
        if (need > size - used) {
            if (plus && cookie > 2) /* its lookup was counted, and the entry comes again */
                shelf_forget(shelf_of(req), e.node, 1);
            break;
        }
        used += need;
    }
    return r < 0 && used == 0 ? r : (ssize_t)used;
}

static void reply_dir(fuse_req_t req, struct handle *h, size_t size, off_t off, bool plus)
{
    char *bytes = malloc(size);
    ssize_t r = bytes ? fill_dir(req, h->dir, bytes, size, (uint64_t)off, plus) : -ENOMEM;
    order_before(h);
    if (r < 0)
        (void)fuse_reply_err(req, (int)-r);
    else
        (void)fuse_reply_buf(req, bytes, (size_t)r);
    free(bytes);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    (void)ino;
    reply_dir(req, handle_of(fi), size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                           struct fuse_file_info *fi)
{
    (void)ino;
    reply_dir(req, handle_of(fi), size, off, true);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;
    (void)ino;
    int r = shelf_statfs(shelf_of(req), &st);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_statfs(req, &st);
}

/* ---- extended attributes ---- */

/* Size 0 means that the caller wants the size. */
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
    int r = shelf_getxattr(shelf_of(req), ino, name, &b);
    reply_xattr(req, r, &b, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    int r = shelf_listxattr(shelf_of(req), ino, &b);
    if (r == 0)
        r = buf_error(&b);
    reply_xattr(req, r, &b, size);
}

const struct fuse_lowlevel_ops mnt_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .open = op_open,
    .read = op_read,
    .release = op_release,
    .opendir = op_opendir,
    .releasedir = op_release,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .statfs = op_statfs,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .setattr = op_setattr,
    .create = op_create,
    .write = op_write,
    .fallocate = op_fallocate,
    .flush = op_flush,
    .fsync = op_fsync,
    .fsyncdir = op_fsyncdir,
    .unlink = op_unlink,
    .rename = op_rename,
    .symlink = op_symlink,
    .readlink = op_readlink,
    .setxattr = op_setxattr,
    .removexattr = op_removexattr,
    .mkdir = op_mkdir,
    .mknod = op_mknod,
    .link = op_link,
    .rmdir = op_rmdir,
};
