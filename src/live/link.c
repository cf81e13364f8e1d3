/* SPDX-License-Identifier: MIT */
/* Symbolic links in metadata/, which live in memory as all helpers do. See tree.h, keys.h. */
#include "live/internal.h"

#include <errno.h>
#include <string.h>

/* emacs locks a file by a link .#NAME. A key cannot be a link. */
static int make_link(struct live *l, const char *name, const char *target, struct live_attr *ret)
{
    if (keys_find(&l->keys, l->newest->view.gen, name) != KV_NONE)
        return -EEXIST;
    if (classify(l, name) != NAME_HELPER)
        return -EPERM;
    if (!keys_have_room(&l->keys, 0, strlen(target)))
        return -ENOSPC;
    keys_clear(&l->keys, name);
    struct kfile *f = keys_add(&l->keys, name, KFILE_LINK);
    if (!f)
        return -ENOMEM;
    buf_str(&f->content, target);
    l->keys.helper_bytes += f->content.len;
    int r = buf_error(&f->content);
    if (r < 0) {
        keys_kill(&l->keys, f);
        return r;
    }
    (void)attr_of(l, f->id, ret); /* a link's size is known */
    f->lookups++;
    return 0;
}

int live_symlink(struct live *l, const char *name, const char *target, struct live_attr *ret)
{
    (void)pthread_mutex_lock(&l->lock);
    int r = make_link(l, name, target, ret);
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}

int live_readlink(struct live *l, uint32_t number, struct buf *out)
{
    int r = -EINVAL;
    (void)pthread_mutex_lock(&l->lock);
    const struct kfile *f = number < l->keys.n ? l->keys.file[number] : NULL;
    if (f && f->state == KFILE_LINK) {
        buf_add(out, f->content.data, f->content.len);
        r = buf_error(out);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return r;
}
