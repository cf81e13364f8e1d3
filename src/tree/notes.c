/* SPDX-License-Identifier: MIT */
/* What is not in the file, from one tree to the next: see tree.h. */
#include "live/unsaved.h"
#include "tree/internal.h"

#include <string.h>

/* Of a tree before, or of this one; of a new tensor that was lost not if there is one of its name by now. */
void tree_notes(struct tree *t, struct buf *out)
{
    const size_t tensors = strlen(UNSAVED_TENSOR);
    struct live *l = atomic_load(&t->live);
    if (l)
        live_unsaved(l, out);
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    LOCKED(&t->newest.lock);
    for (struct note n = {0}; unsaved_next(&t->notes, &n);)
        if (!l || strncmp(n.path, UNSAVED_TENSOR, tensors) != 0 ||
            snapshot_find_tensor(v.snap, n.path + tensors) == UINT32_MAX)
            unsaved_add(out, "", n.path, n.why);
}

void tree_recall(struct tree *t, struct buf *notes)
{
    t->notes = *notes;
    *notes = BUF_INIT;
}

void tree_unsaved(struct tree *t, struct buf *out)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    tree_notes(t, &notes);
    unsaved_lines(&notes, out);
}

static void with_path(const char *folder, const char *name, struct buf *ret)
{
    buf_str(ret, folder);
    buf_add(ret, name, strlen(name) + 1);
}

void note_of(struct tree *t, const char *folder, const char *name, struct buf *out)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    struct note n;
    with_path(folder, name, &path);
    LOCKED(&t->newest.lock);
    if (!buf_error(&path) && unsaved_find(&t->notes, buf_text(&path), &n))
        buf_str(out, n.why);
}

void note_forget(struct tree *t, const char *folder, const char *name)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    with_path(folder, name, &path);
    LOCKED(&t->newest.lock);
    if (!buf_error(&path))
        unsaved_drop(&t->notes, buf_text(&path));
}
