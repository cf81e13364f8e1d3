/* SPDX-License-Identifier: MIT */
/*
 * The FUSE callbacks that edit: see ops_edit.h.
 *
 * A request whose reply must wait for the disk is parked: the tree takes its struct parked, and the
 * writer's thread replies. A signal that is to stop the waiting program ends the wait, not the edit.
 */
#include "mount/ops_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/order.h"
#include "mount/answer.h"

struct parked {
    struct live_wait wait; /* first: done() gets its address */
    fuse_req_t req;
    struct shelf_file *file; /* of its handle, or NULL */
    size_t written;          /* of a write */
};

static void on_done(struct live_wait *w, int result)
{
    struct parked *p = (struct parked *)w;
    fuse_req_t req = p->req;
    const size_t written = p->written;
    order_before(p->file);
    free(p);
    if (result == 0 && written)
        (void)fuse_reply_write(req, written);
    else
        (void)fuse_reply_err(req, -result);
}

static bool is_stopped(struct live_wait *w)
{
    return answer_stopped(((struct parked *)w)->req);
}

/* A wait for this request, of an open file or NULL; NULL: no memory, and it was replied to. */
static struct parked *park(fuse_req_t req, struct shelf_file *file)
{
    struct parked *p = calloc(1, sizeof(*p));
    if (!p) {
        (void)fuse_reply_err(req, ENOMEM);
        return NULL;
    }
    *p = (struct parked){
        .wait = {.done = on_done, .request = req, .stopped = is_stopped}, .req = req, .file = file};
    answer_interruptible(req, shelf_of(req));
    return p;
}

/* An edit that has begun; NULL: there are to be none any more, and that was replied. */
static struct handles *begin_edit(fuse_req_t req)
{
    struct handles *l = &mnt_of(req)->handles;
    if (handles_edit(l))
        return l;
    (void)fuse_reply_err(req, EROFS);
    return NULL;
}

static void end_edit(struct handles **l)
{
    if (*l)
        handles_edited(*l);
}

/* It ends with the block: what waits to be written is written before the model is let go of. */
#define EDIT(req, name)                                       \
    CLEANUP(end_edit) struct handles *name = begin_edit(req); \
    if (!name)                                                \
    return

/* After a call with a wait: the request is parked (and the tree owns p), or is answered now. */
static void finish(struct parked *p, int r)
{
    if (r != LIVE_PARKED)
        on_done(&p->wait, r);
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi)
{
    struct tree_entry e;
    struct shelf_file *f;
    (void)mode; /* permissions come from the model */
    struct handles *edit = begin_edit(req);
    if (!edit)
        return;
    int r = shelf_create(shelf_of(req), parent, name, fi->flags, &e, &f);
    if (r < 0) {
        handles_edited(edit);
        (void)fuse_reply_err(req, -r);
        return;
    }
    struct fuse_entry_param p = mnt_entry(&e);
    r = mnt_fill_open(mnt_of(req), fi, f, true);
    if (r == 0 && fuse_reply_create(req, &p, fi) == 0)
        return;
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        handle_close(&mnt_of(req)->handles, handle_of(fi));
    shelf_forget(shelf_of(req), e.node, 1);
}

/* A line of a text, which is judged before it is answered. */
static void write_line(fuse_req_t req, const char *bytes, size_t n, off_t off, struct shelf_file *f)
{
    struct parked *p = park(req, f);
    if (!p)
        return;
    p->written = n;
    finish(p, shelf_write(f, (uint64_t)off, bytes, n, &p->wait));
}

void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t n, off_t off,
              struct fuse_file_info *fi)
{
    struct shelf_file *f = file_of(fi);
    (void)ino;
    if (shelf_converts(f)) {
        write_line(req, bytes, n, off, f);
        return;
    }
    int r = shelf_write(f, (uint64_t)off, bytes, n, NULL);
    order_before(f);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_write(req, n);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t n,
                  struct fuse_file_info *fi)
{
    struct shelf_file *f = file_of(fi);
    (void)ino;
    int r = shelf_allocate(f, mode, (uint64_t)off, (uint64_t)n);
    order_before(f);
    (void)fuse_reply_err(req, -r);
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    struct parked *p = park(req, file_of(fi));
    if (p)
        finish(p, shelf_flush(p->file, &p->wait));
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    struct parked *p = park(req, file_of(fi));
    if (p)
        finish(p, shelf_fsync(p->file, &p->wait));
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    struct parked *p = park(req, NULL);
    if (p)
        finish(p, shelf_fsyncdir(shelf_of(req), ino, &p->wait));
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    EDIT(req, edit);
    (void)fuse_reply_err(req, -shelf_unlink(shelf_of(req), parent, name));
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
               const char *new_name, unsigned flags)
{
    EDIT(req, edit);
    struct parked *p = park(req, NULL);
    if (p)
        finish(p, shelf_rename(shelf_of(req), parent, name, new_parent, new_name, flags, &p->wait));
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    EDIT(req, edit);
    struct tree_entry e;
    mnt_reply_entry(req, shelf_symlink(shelf_of(req), parent, name, target, &e), &e);
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    CLEANUP(buf_free) struct buf target = BUF_INIT;
    int r = shelf_readlink(shelf_of(req), ino, &target);
    buf_char(&target, '\0');
    if (r == 0)
        r = buf_error(&target);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_readlink(req, (const char *)target.data);
}

/* ---- attributes ---- */

/*
 * The reply to a truncation that waited has the file's attributes. They are asked for by the writer's
 * thread, which waits for nothing that waits for it: the model stays open until then.
 */
struct parked_attr {
    struct live_wait wait; /* first */
    fuse_req_t req;
    fuse_ino_t ino;
    struct shelf_file *file;     /* of its handle, or NULL */
    struct shelf_file *unopened; /* owned: of a truncation without a handle, or NULL */
};

static bool is_stopped_truncation(struct live_wait *w)
{
    return answer_stopped(((struct parked_attr *)w)->req);
}

static void on_truncated(struct live_wait *w, int result)
{
    struct parked_attr *p = (struct parked_attr *)w;
    struct tree_entry e;
    fuse_req_t req = p->req;
    int r = result < 0 ? result : shelf_getattr(shelf_of(req), p->ino, p->unopened, &e);
    order_before(p->file);
    if (p->unopened)
        (void)shelf_release(p->unopened);
    free(p);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_attr(req, &e.attr, mnt_timeout(&e));
}

static int begin_truncate(struct parked_attr *p, uint64_t size)
{
    int r = p->file ? 0 : shelf_unopened_file(shelf_of(p->req), p->ino, &p->unopened);
    return r < 0 ? r : shelf_truncate(p->file ? p->file : p->unopened, p->ino, size, &p->wait);
}

/* chmod, chown and utimens succeed without effect: cp -p, rsync and install call them. */
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                struct fuse_file_info *fi)
{
    EDIT(req, edit);
    struct parked_attr *p = calloc(1, sizeof(*p));
    if (!p) {
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    *p = (struct parked_attr){
        .wait = {.done = on_truncated, .request = req, .stopped = is_stopped_truncation},
        .req = req,
        .ino = ino,
        .file = fi ? file_of(fi) : NULL};
    answer_interruptible(req, shelf_of(req));
    int r = to_set & FUSE_SET_ATTR_SIZE ? begin_truncate(p, (uint64_t)attr->st_size) : 0;
    if (r != LIVE_PARKED)
        on_truncated(&p->wait, r);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t n,
                 int flags)
{
    EDIT(req, edit);
    (void)flags;
    struct parked *p = park(req, NULL);
    if (p)
        finish(p, shelf_setxattr(shelf_of(req), ino, name, value, n, &p->wait));
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    EDIT(req, edit);
    (void)fuse_reply_err(req, -shelf_removexattr(shelf_of(req), ino, name));
}

/* ---- not supported in metadata/ ---- */

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    EDIT(req, edit);
    struct tree_entry e;
    (void)mode;
    mnt_reply_entry(req, shelf_mkdir(shelf_of(req), parent, name, &e), &e);
}

/* tar makes files this way, to set attributes before it writes the content. */
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
    EDIT(req, edit);
    struct tree_entry e;
    (void)dev;
    int r = S_ISREG(mode) ? shelf_mknod(shelf_of(req), parent, name, &e) : -EPERM;
    mnt_reply_entry(req, r, &e);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    (void)ino;
    (void)new_parent;
    (void)new_name;
    (void)fuse_reply_err(req, EPERM);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    EDIT(req, edit);
    (void)fuse_reply_err(req, -shelf_rmdir(shelf_of(req), parent, name));
}
