/* SPDX-License-Identifier: MIT */
/* The FUSE callbacks: see ops.h. */
#include "mount/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "mount/proc.h"
#include "tree/attr.h"
#include "tree/folder.h"
#include "tree/tensors.h"

/* For parameters of callbacks. */
#define UNUSED __attribute__((unused))

/* ---- requests and replies ---- */

static struct mnt *mnt_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static struct shelf *shelf_of(fuse_req_t req)
{
    return mnt_of(req)->shelf;
}

/* Return the handle of a request. */
static struct handle *handle_of(const struct fuse_file_info *fi)
{
    return (struct handle *)(uintptr_t)fi->fh;
}

static struct tree_file *file_of(const struct fuse_file_info *fi)
{
    return handle_of(fi)->file;
}

/* Reply without a result: 0 or -errno. */
static void reply(fuse_req_t req, int r)
{
    (void)fuse_reply_err(req, -r);
}

/* Reply with an error if r is negative, otherwise by this call of libfuse's. */
#define ANSWER(req, r, call) ((void)((r) < 0 ? fuse_reply_err(req, -(r)) : (call)))

static struct fuse_entry_param entry_param(const struct tree_entry *e)
{
    return (struct fuse_entry_param){.ino = e->node,
                                     .generation = e->generation,
                                     .attr = e->attr,
                                     .attr_timeout = e->attr_for,
                                     .entry_timeout = e->name_for};
}

/* Reply with an entry or, if r is negative, with the error -r. */
static void reply_entry(fuse_req_t req, int r, const struct tree_entry *e)
{
    if (r < 0) {
        reply(req, r);
        return;
    }
    struct fuse_entry_param p = entry_param(e);
    struct shelf *s = shelf_of(req); /* the reply frees req, even if it fails */
    /* the request was interrupted: the kernel did not get the entry */
    if (fuse_reply_entry(req, &p) < 0)
        shelf_forget(s, e->node, 1);
}

/* The open was interrupted: no release will follow. */
static void undo_open(struct mnt *m, struct handle *h)
{
    if (h->file)
        h->file->cold = 0;
    handle_close(&m->handles, h);
}

/* Reply to an open: with the handle in `fi`, or with the error -r. */
static void reply_open(fuse_req_t req, int r, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req); /* the reply frees req, even if it fails */
    if (r < 0)
        reply(req, r);
    else if (fuse_reply_open(req, fi) < 0)
        undo_open(m, handle_of(fi));
}

/* ---- requests that wait ---- */

/* A request whose reply must wait. The tree takes ownership of this struct, and another thread
 * replies. A signal that should stop the waiting program ends only the wait, not the edit. */
struct parked {
    struct live_wait wait; /* must come first: done() gets its address */
    fuse_req_t req;
    struct tree_file *file; /* the file of the request's handle, or NULL; may be closed meanwhile */
    bool converts;          /* the file's */
    size_t size;            /* for a write: number of bytes written; for a read: requested */
    uint64_t off;           /* for a read */
    fuse_ino_t ino;         /* for a setattr: the node whose attributes the reply contains */
};

static void on_done(struct live_wait *w, int result)
{
    const struct parked p = *(struct parked *)w;
    struct tree_entry e;
    free(w);
    if (result == 0 && p.ino)
        result = shelf_getattr(shelf_of(p.req), p.ino, NULL, &e);
    if (p.ino)
        ANSWER(p.req, result, fuse_reply_attr(p.req, &e.attr, e.attr_for));
    else if (p.size)
        ANSWER(p.req, result, fuse_reply_write(p.req, p.size));
    else
        reply(p.req, result);
}

/* Return true if a signal should stop the program that made the request. */
static bool is_to_stop(fuse_req_t req)
{
    return fuse_req_interrupted(req) && stops_thread(fuse_req_ctx(req)->pid);
}

/* The end of the mount also ends a conversion. */
static bool is_request_stopped(struct live_wait *w)
{
    const struct parked *p = (struct parked *)w;
    return is_to_stop(p->req) || (p->converts && atomic_load(&mnt_of(p->req)->ending));
}

/* Only the first signal arrives here; is_request_stopped() finds later ones. */
static void on_signal(fuse_req_t req, void *shelf)
{
    if (is_to_stop(req))
        shelf_interrupt(shelf, req);
}

/* Prepare a wait for this request. `file` is the open file that the request is about, or NULL. If
 * memory runs out, answers the request and returns NULL. */
static struct parked *park(fuse_req_t req, struct tree_file *file)
{
    struct parked *p = calloc(1, sizeof(*p));
    if (!p) {
        reply(req, -ENOMEM);
        return NULL;
    }
    *p = (struct parked){.wait = {.done = on_done, .request = req, .stopped = is_request_stopped},
                         .req = req,
                         .file = file,
                         .converts = file && file->converts};
    fuse_req_interrupt_func(req, on_signal, shelf_of(req));
    return p;
}

/* Finish a call that may wait: either the request is parked and the tree owns `p`, or it is
 * answered now. */
static void answer_unless_parked(struct parked *p, int r)
{
    if (r != LIVE_PARKED)
        on_done(&p->wait, r);
}

/* Answer an edit with EROFS if the mount is ending. Returns true if it was answered. */
static bool refused_at_end(fuse_req_t req)
{
    if (!atomic_load(&mnt_of(req)->ending))
        return false;
    reply(req, -EROFS);
    return true;
}

/* Prepare a wait for an edit. Returns NULL if it was answered. */
static struct parked *park_edit(fuse_req_t req, struct tree_file *file)
{
    return refused_at_end(req) ? NULL : park(req, file);
}

static bool enter_tree(fuse_req_t req, fuse_ino_t ino, int otherwise, struct use *ret)
{
    *ret = (struct use){0};
    if (refused_at_end(req))
        return false;
    int r = shelf_enter(shelf_of(req), ino, otherwise, ret);
    if (r < 0)
        reply(req, r);
    return r == 0;
}

/* Edit in the tree of a node until the block ends. If that cannot be, answers the request and
 * returns. */
#define ENTER(req, node, otherwise, name)           \
    CLEANUP(shelf_leave) struct use name;           \
    if (!enter_tree(req, node, otherwise, &(name))) \
    return

/* ---- files whose content is computed first ---- */

static void on_computed(struct live_wait *w, int result)
{
    struct parked *p = (struct parked *)w;
    if (result < 0)
        reply(p->req, result);
    else
        result = answer_read(p->file, p->req, p->off, p->size, w, &(bool){false});
    if (result != LIVE_PARKED)
        free(p);
}

/* Read a computed file, and reply now or when its content has been computed. */
static void answer_computed(struct tree_file *f, fuse_req_t req, uint64_t off, size_t size)
{
    struct parked *p = park(req, f);
    if (!p)
        return;
    p->wait.done = on_computed;
    p->off = off;
    p->size = size;
    on_computed(&p->wait, 0);
}

/* ---- nodes ---- */

static void op_init(UNUSED void *m, struct fuse_conn_info *conn)
{
    conn->max_background = MNT_REQUESTS;
    conn->congestion_threshold = MNT_REQUESTS / 4 * 3;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct tree_entry e;
    int r = shelf_lookup(shelf_of(req), parent, name, &e);
    reply_entry(req, r, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    shelf_forget(shelf_of(req), ino, nlookup);
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct tree_entry e;
    /* Linux passes the handle for lseek(SEEK_END), but not for fstat(2). */
    int r = shelf_getattr(shelf_of(req), ino, fi ? file_of(fi) : NULL, &e);
    ANSWER(req, r, fuse_reply_attr(req, &e.attr, e.attr_for));
}

/* chmod, chown and utimens succeed but have no effect, because cp -p, rsync and install call
 * them. */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    struct parked *p = park_edit(req, fi ? file_of(fi) : NULL);
    if (!p)
        return;
    p->ino = ino;
    CLEANUP(shelf_leave) struct use u = {0};
    const uint64_t size = (uint64_t)attr->st_size;
    int r =
        !(to_set & FUSE_SET_ATTR_SIZE) || p->file ? 0 : shelf_enter(shelf_of(req), ino, -EPERM, &u);
    if (r == 0 && to_set & FUSE_SET_ATTR_SIZE)
        r = p->file ? tree_truncate(p->file, size, &p->wait)
                    : tree_truncate_unopened(u.tree, ino, size, &p->wait);
    answer_unless_parked(p, r);
}

static void op_statfs(fuse_req_t req, UNUSED fuse_ino_t ino)
{
    struct statvfs st;
    int r = shelf_statfs(shelf_of(req), &st);
    ANSWER(req, r, fuse_reply_statfs(req, &st));
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    CLEANUP(buf_free) struct buf target = BUF_INIT;
    int r = shelf_readlink(shelf_of(req), ino, &target);
    buf_char(&target, '\0');
    if (r == 0)
        r = buf_error(&target);
    ANSWER(req, r, fuse_reply_readlink(req, (const char *)target.data));
}

/* ---- extended attributes ---- */

/* Reply with the value or, if `size` is 0, with only the size of the value. */
static void reply_xattr(fuse_req_t req, int r, const struct buf *b, size_t size)
{
    if (r == 0 && size && size < b->len)
        r = -ERANGE;
    ANSWER(req, r,
           size ? fuse_reply_buf(req, (const char *)b->data, b->len)
                : fuse_reply_xattr(req, b->len));
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
    reply_xattr(req, r, &b, size);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t n, UNUSED int flags)
{
    ENTER(req, ino, -EOPNOTSUPP, use);
    struct parked *p = park(req, NULL);
    if (p)
        answer_unless_parked(p, tree_setxattr(use.tree, ino, name, value, n, &p->wait));
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    ENTER(req, ino, -ENODATA, use);
    reply(req, tree_removexattr(use.tree, ino, name));
}

/* ---- open files ---- */

/* Make a handle for an open file, and store in `fi` the handle and how the kernel should read the
 * file. Takes ownership of `f`. Returns 0 or -ENOMEM. */
static int fill_open(struct mnt *m, struct fuse_file_info *fi, struct tree_file *f)
{
    fi->keep_cache = f->cacheable && !f->cold;
    fi->direct_io = !f->cacheable; /* each reader sees the content that it opened */
    fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
    fi->fh = (uint64_t)(uintptr_t)handle_open(&m->handles, f, NULL);
    return fi->fh ? 0 : -ENOMEM;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req);
    struct tree_file *f;
    if (sys_open_changes(fi->flags) && refused_at_end(req))
        return;
    int r = shelf_open_file(m->shelf, ino, fi->flags, &f);
    reply_open(req, r < 0 ? r : fill_open(m, fi, f), fi);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req); /* the reply frees req, even if it fails */
    struct tree_entry e;
    struct tree_file *f;
    /* permissions come from the model, but the mode tells who creates the file */
    const bool mkstemp = fi->flags & O_EXCL && (mode & 07777) == 0600;
    if (refused_at_end(req))
        return;
    int r = shelf_create(m->shelf, parent, name, fi->flags | (mkstemp ? LIVE_MKSTEMP : 0), &e, &f);
    if (r < 0) {
        reply(req, r);
        return;
    }
    struct fuse_entry_param p = entry_param(&e);
    r = fill_open(m, fi, f);
    if (r == 0 && fuse_reply_create(req, &p, fi) == 0)
        return;
    if (r < 0)
        reply(req, r);
    else
        undo_open(m, handle_of(fi));
    shelf_forget(m->shelf, e.node, 1);
}

static void op_read(fuse_req_t req, UNUSED fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    if (h->file->computed)
        answer_computed(h->file, req, (uint64_t)off, size);
    else
        handle_read(h, req, (uint64_t)off, size);
}

/* A write to a file of text lines is answered only after its line has been accepted or refused. */
static void op_write(fuse_req_t req, UNUSED fuse_ino_t ino, const char *bytes, size_t n, off_t off,
                     struct fuse_file_info *fi)
{
    struct parked *p = park_edit(req, file_of(fi));
    if (!p)
        return;
    p->size = n;
    answer_unless_parked(p, tree_write(p->file, (uint64_t)off, bytes, n, &p->wait));
}

static void op_fallocate(fuse_req_t req, UNUSED fuse_ino_t ino, int mode, off_t off, off_t n,
                         struct fuse_file_info *fi)
{
    reply(req, tree_allocate(file_of(fi), mode, (uint64_t)off, (uint64_t)n));
}

static void op_flush(fuse_req_t req, UNUSED fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct parked *p = park(req, file_of(fi));
    if (p)
        answer_unless_parked(p, tree_flush(p->file, &p->wait));
}

static void op_fsync(fuse_req_t req, UNUSED fuse_ino_t ino, UNUSED int datasync,
                     struct fuse_file_info *fi)
{
    struct parked *p = park(req, file_of(fi));
    if (p)
        answer_unless_parked(p, tree_fsync(p->file, &p->wait));
}

/* Release a file or a directory. */
static void op_release(fuse_req_t req, UNUSED fuse_ino_t ino, struct fuse_file_info *fi)
{
    handle_close(&mnt_of(req)->handles, handle_of(fi));
    reply(req, 0);
}

/* ---- directories ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req);
    struct shelf_dir *d = NULL;
    int r = shelf_opendir(m->shelf, ino, &d);
    if (r == 0) {
        fi->cache_readdir = fi->keep_cache = shelf_dir_cacheable(d);
        fi->fh = (uint64_t)(uintptr_t)handle_open(&m->handles, NULL, d);
        r = fi->fh ? 0 : -ENOMEM;
    }
    reply_open(req, r, fi);
}

/* Fill the buffer with entries, beginning at `cookie`. Returns the number of bytes used, or
 * -errno. */
static ssize_t fill_dir(fuse_req_t req, struct shelf_dir *d, char *bytes, size_t size,
                        uint64_t cookie, bool plus)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    size_t used = 0, need;
    int r;
    while ((r = shelf_readdir(d, &cookie, plus, name, &e)) > 0) {
        struct fuse_entry_param p = entry_param(&e);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            p.ino = 0; /* not counted as a lookup: the kernel already has these two entries */
        need =
            plus ? fuse_add_direntry_plus(req, bytes + used, size - used, name, &p, (off_t)cookie)
                 : fuse_add_direntry(req, bytes + used, size - used, name, &e.attr, (off_t)cookie);
        if (need > size - used) {
            /* undo the lookup that was counted: the entry will be listed again */
            if (plus && cookie > 2)
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
    ANSWER(req, (int)r, fuse_reply_buf(req, bytes, (size_t)r));
    free(bytes);
}

static void op_readdir(fuse_req_t req, UNUSED fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    reply_dir(req, handle_of(fi), size, off, false);
}

static void op_readdirplus(fuse_req_t req, UNUSED fuse_ino_t ino, size_t size, off_t off,
                           struct fuse_file_info *fi)
{
    reply_dir(req, handle_of(fi), size, off, true);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, UNUSED int datasync,
                        UNUSED struct fuse_file_info *fi)
{
    struct parked *p = park(req, NULL);
    if (p)
        answer_unless_parked(p, shelf_fsyncdir(shelf_of(req), ino, &p->wait));
}

/* ---- names ---- */

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    ENTER(req, parent, -EPERM, use);
    reply(req, tree_unlink(use.tree, parent, name));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    ENTER(req, parent, -EPERM, use);
    reply(req, tree_rmdir(use.tree, parent, name));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned flags)
{
    struct parked *p = park_edit(req, NULL);
    if (p)
        answer_unless_parked(
            p, shelf_rename(shelf_of(req), parent, name, new_parent, new_name, flags, &p->wait));
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, UNUSED mode_t mode)
{
    struct tree_entry e;
    ENTER(req, parent, -EPERM, use);
    int r = tree_mkdir(use.tree, parent, name, &e);
    reply_entry(req, r, &e);
}

/* What symlink(2) says of a file system that makes none; emacs then locks with a file. */
static void op_symlink(fuse_req_t req, UNUSED const char *target, UNUSED fuse_ino_t parent,
                       UNUSED const char *name)
{
    (void)fuse_reply_err(req, EPERM);
}

/* tar calls mknod(2) to set attributes before it writes the content. */
static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                     UNUSED dev_t dev)
{
    struct tree_entry e;
    ENTER(req, parent, -EPERM, use);
    int r = S_ISREG(mode) ? tree_mknod(use.tree, parent, name, &e) : -EPERM;
    reply_entry(req, r, &e);
}

const struct fuse_lowlevel_ops mnt_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .statfs = op_statfs,
    .readlink = op_readlink,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .setxattr = op_setxattr,
    .removexattr = op_removexattr,
    .open = op_open,
    .create = op_create,
    .read = op_read,
    .write = op_write,
    .fallocate = op_fallocate,
    .flush = op_flush,
    .fsync = op_fsync,
    .release = op_release,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .fsyncdir = op_fsyncdir,
    .releasedir = op_release,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .rename = op_rename,
    .mkdir = op_mkdir,
    .symlink = op_symlink,
    .mknod = op_mknod,
};
