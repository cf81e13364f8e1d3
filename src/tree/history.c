/* SPDX-License-Identifier: MIT */
/* The history of the keys, by attributes of metadata/: see tree.h. */
#include "tree/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edit/history_look.h"

/* An attribute is at most 64 KiB: of a longer text the newest lines. */
#define TEXT_MOST ((size_t)60000)

bool is_history_xattr(const struct node *n, const char *name)
{
    return n->kind == NODE_DIR && n->row == ROOT_METADATA &&
           (strcmp(name, TREE_XATTR_HISTORY) == 0 || strcmp(name, TREE_XATTR_UNDO) == 0);
}

static int states(struct tree *t, struct live *l, struct buf *out)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    int r = l ? live_history(l, &text) : tree_history(t, &text, NULL);
    if (r < 0)
        return r;
    const char *at = (const char *)text.data, *end = at + text.len;
    while (end - at > (ptrdiff_t)TEXT_MOST)
        at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
    if (text.len)
        buf_add(out, at, (size_t)(end - at));
    return buf_error(out);
}

int history_getxattr(struct tree *t, const char *name, struct buf *out)
{
    struct live *l = atomic_load(&t->live);
    if (!t->writable)
        return -EROFS;
    if (strcmp(name, TREE_XATTR_HISTORY) == 0)
        return states(t, l, out);
    int r = l ? live_undo_said(l, out) : 0;
    return r == 0 && out->len == 0 ? -ENODATA : r;
}

/* Digits alone, at most 18: they fit. */
static bool number_of(const char *text, size_t n, uint64_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || n > 18)
            return false;
        *ret = *ret * 10 + (uint64_t)(text[i] - '0');
    }
    return n == 0 || *ret > 0;
}

int history_setxattr(struct tree *t, const char *name, const void *value, size_t n,
                     struct live_wait *w)
{
    uint64_t number;
    struct live *l;
    int r = begin_editing(t, &l);
    if (r < 0)
        return r;
    if (strcmp(name, TREE_XATTR_HISTORY) == 0)
        return n == 5 && memcmp(value, "clear", 5) == 0 ? live_history_clear(l) : -EINVAL;
    return number_of(value, n, &number) ? live_undo(l, number, w) : -EINVAL;
}

/* ---- without a daemon ---- */

static int open_history(const struct tree *t, struct history *ret, struct err *e)
{
    char *home = NULL;
    *ret = (struct history){.place = HISTORY_PLACE_INIT};
    int r = history_home(&home, e);
    if (r == 0)
        r = history_open(ret, &sys_libc, home, t->model.real, HISTORY_KEEP, e);
    free(home);
    return r;
}

int tree_history(struct tree *t, struct buf *out, struct err *e)
{
    struct history h;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    int r = open_history(t, &h, e);
    if (r == 0)
        r = history_text(&h, gen_own(v.gen), out, e);
    history_close(&h);
    return r;
}

int tree_history_clear(struct tree *t, size_t *n, struct err *e)
{
    struct history h;
    if (faccessat(AT_FDCWD, t->model.real, W_OK, AT_EACCESS) < 0)
        return err_set(e, -errno, "the model cannot be written: %s", strerror(errno));
    int r = open_history(t, &h, e);
    if (r == 0)
        r = history_clear(&h, n, e);
    history_close(&h);
    return r;
}
