/* SPDX-License-Identifier: MIT */
/* Extended attributes of a shelf: see shelf.h. */
#include <errno.h>
#include <string.h>

#include "shelf/internal.h"

/* Why a model, or all of it, is not edited. Listed; it does not exist where it can be. */
#define READ_ONLY "user.gguf.readonly"

static int read_only_text(struct shelf *s, struct at *at, struct buf *out)
{
    struct use u;
    if (at->own) {
        if (at->local != INO_ROOT || shelf_writable(s))
            return -ENODATA;
        buf_str(out, shelf_why_not(s));
        return buf_error(out);
    }
    int r = at_enter(s, at, &u);
    if (r < 0)
        return r == -ESTALE || r == -ENOMEM ? r : -ENODATA;
    if (tree_writable(tree_in(&u)))
        r = -ENODATA;
    else
        buf_str(out, tree_why_not(tree_in(&u)));
    at_leave(s, &u);
    return r < 0 ? r : buf_error(out);
}

int shelf_getxattr(struct shelf *s, uint64_t node, const char *name, struct buf *out)
{
    struct at at = at_node(s, node);
    struct use u;
    bool top = at.own ? at.local == INO_ROOT : at.local == INO_ROOT;
    if (top && strcmp(name, READ_ONLY) == 0)
        return read_only_text(s, &at, out);
    if (at.own || at.extra || (at.model && strncmp(name, "user.gguf.", 10) != 0))
        return -ENODATA; /* not asked for: ls asks for others */
    int r = at_enter(s, &at, &u);
    if (r < 0)
        return r == -ESTALE || r == -ENOMEM ? r : -ENODATA;
    return at_left(s, &u, tree_getxattr(tree_in(&u), at.local, name, out));
}

int shelf_listxattr(struct shelf *s, uint64_t node, struct buf *out)
{
    struct at at = at_node(s, node);
    struct use u;
    if (s->one || (!at.own && !at.model && !at.extra)) {
        int r = at_enter(s, &at, &u);
        if (r < 0)
            return r;
        r = tree_listxattr(tree_in(&u), at.local, out);
        if (at.local == INO_ROOT && !tree_writable(tree_in(&u)))
            buf_add(out, READ_ONLY, sizeof(READ_ONLY)); /* with its NUL */
        at_leave(s, &u);
        return r < 0 ? r : buf_error(out);
    }
    if (s->opt.tree.read_only && at.local == INO_ROOT)
        buf_add(out, READ_ONLY, sizeof(READ_ONLY));
    return buf_error(out);
}
