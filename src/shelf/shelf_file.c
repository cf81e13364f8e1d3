/* SPDX-License-Identifier: MIT */
/* Open files of a shelf, and the calls that edit: see shelf_file.h. */
#include "shelf/shelf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "shelf/at.h"

/* ---- open ---- */

/* A text of a store: the file itself. */
static int open_own(struct shelf_file *f, uint64_t node, int flags)
{
    CLEANUP(reach_close) struct found found = FOUND_NONE;
    CLEANUP(slot_leave) struct use u = {0};
    int r = slot_hold(&f->shelf->slots, node, &u);
    if (r < 0)
        return r;
    r = u.slot->kind != ITEM_TEXT ? -EISDIR : sys_open_changes(flags) ? -EPERM : 0;
    if (r == 0)
        r = reach_again(&f->shelf->reach, u.slot->real, &found);
    if (r == 0 && (found.st.st_ino != u.slot->st.st_ino || found.st.st_dev != u.slot->st.st_dev))
        r = -ESTALE;
    if (r == 0)
        r = f->fd = reach_read(&found);
    return r < 0 ? r : 0;
}

static int open_in_slot(struct shelf_file *f, struct at *at, int flags)
{
    struct shelf *s = f->shelf;
    if (at->extra == EXTRA_ERROR) {
        int r = sys_open_changes(flags) ? -EPERM : model_error(s, at->node, &f->text);
        return r == 1 ? 0 : r == 0 ? -ESTALE : r;
    }
    if (!at->in_tree)
        return -EISDIR;
    int r = at_enter(s, at);
    f->use = at->use; /* it passes in any case */
    return r < 0 ? r : tree_open_file(f->use.tree, at->local, flags, &f->file);
}

int shelf_open_file(struct shelf *s, uint64_t node, int flags, struct shelf_file **ret)
{
    struct at at = at_node(s, node);
    struct shelf_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    f->shelf = s;
    f->fd = -1;
    int r = at.own ? open_own(f, node, flags) : open_in_slot(f, &at, flags);
    if (r < 0)
        (void)shelf_release(f);
    else
        *ret = f;
    return r;
}

struct shelf *shelf_of_file(const struct shelf_file *f)
{
    return f->shelf;
}

int shelf_release(struct shelf_file *f)
{
    int r = f->file ? tree_release(f->use.tree, f->file) : 0;
    slot_leave(&f->use);
    if (f->fd >= 0)
        (void)close(f->fd);
    buf_free(&f->text);
    free(f);
    return r;
}

/* ---- read ---- */

bool shelf_cacheable(const struct shelf_file *f)
{
    return f->file ? tree_cacheable(f->file) : f->fd >= 0;
}

bool shelf_cached_right(const struct shelf_file *f)
{
    return f->file && tree_cached_right(f->file);
}

bool shelf_ahead(const struct shelf_file *f)
{
    return f->file && tree_ahead(f->file);
}

bool shelf_waits(const struct shelf_file *f)
{
    return f->file && tree_waits(f->file);
}

int shelf_read(struct shelf_file *f, uint64_t off, size_t n, struct reply *r)
{
    if (f->file)
        return tree_read(f->use.tree, f->file, off, n, r);
    ssize_t got = 0;
    if (f->fd >= 0)
        got = pread(f->fd, r->scratch, n, (off_t)off);
    else if ((got = (ssize_t)within_u64(off, n, f->text.len)) > 0)
        memcpy(r->scratch, f->text.data + off, (size_t)got);
    if (got < 0)
        return -errno;
    r->bytes = r->scratch;
    r->len = (size_t)got;
    return 0;
}

/* ---- edit ---- */

/* Enter a node in whose model something is to be edited. */
static int at_edit(struct shelf *s, struct at *at)
{
    return at->in_tree ? at_enter(s, at) : -EPERM;
}

/* *at: the node, in the tree that the file holds. */
static int unopened_file(struct shelf *s, struct at *at, struct shelf_file **ret)
{
    struct shelf_file *f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    int r = at_edit(s, at);
    *f = (struct shelf_file){.shelf = s, .use = at->use, .fd = -1};
    if (r < 0)
        (void)shelf_release(f);
    else
        *ret = f;
    return r;
}

int shelf_unopened_file(struct shelf *s, uint64_t node, struct shelf_file **ret)
{
    struct at at = at_node(s, node);
    return unopened_file(s, &at, ret);
}

int shelf_create(struct shelf *s, uint64_t parent, const char *name, int flags,
                 struct tree_entry *ret, struct shelf_file **file)
{
    struct at at = at_node(s, parent);
    struct shelf_file *f;
    int r = unopened_file(s, &at, &f);
    if (r < 0)
        return r;
    r = tree_create(f->use.tree, at.local, name, flags, ret, &f->file);
    if (r < 0) {
        (void)shelf_release(f);
        return r;
    }
    *file = f;
    return at_given(&f->use, 0, ret);
}

/* A file or folder without a handle. */
static int make(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret,
                int (*make_in)(struct tree *t, uint64_t parent, const char *name,
                               struct tree_entry *ret))
{
    CLEANUP(at_leave) struct at at = at_node(s, parent);
    int r = at_edit(s, &at);
    return r < 0 ? r : at_given(&at.use, make_in(at.use.tree, at.local, name, ret), ret);
}

int shelf_mknod(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret)
{
    return make(s, parent, name, ret, tree_mknod);
}

int shelf_write(struct shelf_file *f, uint64_t off, const void *bytes, size_t n,
                struct live_wait *w)
{
    return f->file ? tree_write(f->use.tree, f->file, off, bytes, n, w) : -EBADF;
}

bool shelf_converts(const struct shelf_file *f)
{
    return f->file && tree_converts(f->file);
}

int shelf_allocate(struct shelf_file *f, int mode, uint64_t off, uint64_t n)
{
    return f->file ? tree_allocate(f->use.tree, f->file, mode, off, n) : -EOPNOTSUPP;
}

int shelf_truncate(struct shelf_file *f, uint64_t node, uint64_t size, struct live_wait *w)
{
    node = at_node(f->shelf, node).local;
    return f->use.tree ? tree_truncate(f->use.tree, node, f->file, size, w) : -EPERM;
}

int shelf_flush(struct shelf_file *f, struct live_wait *w)
{
    return f->file ? tree_flush(f->use.tree, f->file, w) : 0;
}

int shelf_fsync(struct shelf_file *f, struct live_wait *w)
{
    return f->file ? tree_fsync(f->use.tree, f->file, w) : 0;
}

int shelf_fsyncdir(struct shelf *s, uint64_t node, struct live_wait *w)
{
    CLEANUP(at_leave) struct at at = at_node(s, node);
    if (!at.in_tree)
        return 0;
    int r = at_enter(s, &at);
    return r < 0 ? r : tree_fsync(at.use.tree, NULL, w);
}

int shelf_unlink(struct shelf *s, uint64_t parent, const char *name)
{
    CLEANUP(at_leave) struct at at = at_node(s, parent);
    int r = at_edit(s, &at);
    return r < 0 ? r : tree_unlink(at.use.tree, at.local, name);
}

int shelf_rmdir(struct shelf *s, uint64_t parent, const char *name)
{
    CLEANUP(at_leave) struct at at = at_node(s, parent);
    int r = at_edit(s, &at);
    return r < 0 ? r : tree_rmdir(at.use.tree, at.local, name);
}

int shelf_mkdir(struct shelf *s, uint64_t parent, const char *name, struct tree_entry *ret)
{
    return make(s, parent, name, ret, tree_mkdir);
}

int shelf_rename(struct shelf *s, uint64_t parent, const char *name, uint64_t new_parent,
                 const char *new_name, unsigned flags, struct live_wait *w)
{
    CLEANUP(at_leave) struct at at = at_node(s, parent);
    struct at to = at_node(s, new_parent);
    if (!at.in_tree || to.own || (!to.in_tree && to.node == at.node))
        return -EPERM;
    if (to.node != at.node && !s->one)
        return -EXDEV;
    int r = at_enter(s, &at);
    return r < 0 ? r : tree_rename(at.use.tree, at.local, name, to.local, new_name, flags, w);
}

int shelf_symlink(struct shelf *s, uint64_t parent, const char *name, const char *target,
                  struct tree_entry *ret)
{
    CLEANUP(at_leave) struct at at = at_node(s, parent);
    int r = at_edit(s, &at);
    return r < 0 ? r
                 : at_given(&at.use, tree_symlink(at.use.tree, at.local, name, target, ret), ret);
}

int shelf_setxattr(struct shelf *s, uint64_t node, const char *name, const void *value, size_t n,
                   struct live_wait *w)
{
    CLEANUP(at_leave) struct at at = at_node(s, node);
    if (!at.in_tree)
        return -EOPNOTSUPP;
    int r = at_enter(s, &at);
    return r < 0 ? r : tree_setxattr(at.use.tree, at.local, name, value, n, w);
}

int shelf_removexattr(struct shelf *s, uint64_t node, const char *name)
{
    CLEANUP(at_leave) struct at at = at_node(s, node);
    if (!at.in_tree)
        return -ENODATA;
    int r = at_enter(s, &at);
    return r < 0 ? r : tree_removexattr(at.use.tree, at.local, name);
}

static void interrupt(const struct use *u, void *request)
{
    tree_interrupt(u->tree, request);
}

void shelf_interrupt(struct shelf *s, const void *request)
{
    if (s->one)
        tree_interrupt(s->one, request);
    else
        (void)slots_each(&s->slots, interrupt, (void *)request);
}
