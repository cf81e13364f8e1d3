/* SPDX-License-Identifier: MIT */
/* Applies commands to a tree and writes reports about it: see history.h. */
#include "tree/history.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "check/summary.h"
#include "edit/history.h"
#include "tree/nodes.h"

/* ---- the state of the mount ---- */

void state_text(struct tree *t, struct buf *out)
{
    const struct imatrix *im = t->opt.imatrix;
    const struct live_counts c = live_count(t->meta);
    if (im) {
        buf_printf(out, "%-*s", SUMMARY_LABEL, "importances:");
        buf_add(out, im->path.data, im->path.len);
        buf_printf(out, ", of %zu tensor%s\n", im->n, im->n == 1 ? "" : "s");
    }
    if (t->merge_first)
        buf_printf(out, "%-*s%s\n", SUMMARY_LABEL, "tensors=edit:", MERGE_FIRST);
    buf_printf(out, "%-*s%s%s", SUMMARY_LABEL,
               "mount:", t->writable ? "read-write" : "read-only: ", t->why);
    if (c.pending)
        buf_printf(out, "; edits not written yet: %zu", c.pending);
    if (c.refused)
        buf_printf(out, "; writes refused (see errors): %zu", c.refused);
    if (tree_changed(t))
        buf_str(out, "; the model's file was changed outside the mount");
    buf_char(out, '\n');
}

void errors_text(struct tree *t, struct buf *out)
{
    live_notes(t->meta, false, "", out);
}

/* ---- the history ---- */

int tree_undo(struct tree *t, uint64_t number, struct buf *said, struct err *e)
{
    CLEANUP(buf_free) struct buf line = BUF_INIT;
    struct tree_call call = TREE_CALL;
    int r = begin_editing(t);
    if (r < 0) {
        LOCKED(&t->newest.lock);
        return err_set(e, r, "%s", t->writable ? t->refusal : "it is mounted read-only");
    }
    r = tree_call_end(&call, live_undo(t->meta, number, &call.wait));
    (void)live_undo_said(t->meta, &line);
    if (r < 0)
        return err_set(e, r, "%.*s", (int)line.len, buf_text(&line));
    buf_add(said, line.data, line.len);
    return buf_error(said);
}

/* ---- without a daemon ---- */

int tree_history(struct tree *t, struct buf *out, struct err *e)
{
    struct history h;
    CLEANUP(view_free) struct view v = newest_view(&t->newest);
    int r = history_open(&h, &sys_libc, NULL, t->model.real, HISTORY_KEEP, e);
    if (r == 0)
        r = history_text(&h, edit_keys_id(snapshot_own(v.snap)), out, e);
    history_close(&h);
    return r;
}

int tree_history_clear(struct tree *t, struct err *e)
{
    struct history h;
    if (faccessat(AT_FDCWD, t->model.real, W_OK, AT_EACCESS) < 0)
        return err_set(e, -errno, "the model cannot be written: %s", strerror(errno));
    int r = history_open(&h, &sys_libc, NULL, t->model.real, HISTORY_KEEP, e);
    if (r == 0)
        r = history_clear(&h, e);
    history_close(&h);
    return r;
}
