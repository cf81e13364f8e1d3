/* SPDX-License-Identifier: MIT */
/* Applies commands to a tree and writes reports about it: see history.h. */
#include "tree/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "check/summary.h"
#include "edit/history.h"
#include "tree/folder.h"
#include "tree/nodes.h"

/* ---- the state of the mount ---- */

/* Higher counts are shown as "more than 100". */
enum { COUNT_MAX = 101 };
/* Maximum number of names shown from a list. */
enum { NAMES_MOST = 3 };

/* Add " (metadata/a.b, tensors/x, tensors/y and 3 more)", the paths of these notes. */
static void add_names(const struct buf *notes, struct buf *out)
{
    char shown[SHOW_MAX];
    unsigned n = 0;
    for (struct note note = {0}; unsaved_next(notes, &note); n++)
        if (n < NAMES_MOST)
            buf_printf(out, "%s%s", n ? ", " : " (", show(shown, note.path, strlen(note.path)));
    if (n > NAMES_MOST)
        buf_printf(out, " and %u more", n - NAMES_MOST);
    buf_str(out, n ? ")" : "");
}

static void put_count(size_t n, const char *one, const char *many, struct buf *out)
{
    if (n >= COUNT_MAX)
        buf_printf(out, "more than %d %s", COUNT_MAX - 1, many);
    else
        buf_printf(out, "%zu %s", n, n == 1 ? one : many);
}

static void add_count(size_t n, const char *one, const char *many, struct buf *out)
{
    if (n == 0)
        return;
    buf_str(out, "; ");
    put_count(n, one, many, out);
}

void state_text(const char *why_not, const char *tensors, const struct imatrix *im,
                const struct live_counts *c, const struct buf *notes, struct buf *out)
{
    if (im) {
        buf_printf(out, "%-*s", SUMMARY_LABEL, "importances:");
        buf_add(out, im->path.data, im->path.len);
        buf_printf(out, ", of %zu tensor%s\n", im->n, im->n == 1 ? "" : "s");
    }
    if (tensors)
        buf_printf(out, "%-*s%s\n", SUMMARY_LABEL, "tensors=edit:", tensors);
    buf_printf(out, "%-*s%s%s", SUMMARY_LABEL, "mount:", why_not ? "read-only: " : "read-write",
               why_not ? why_not : "");
    add_count(c->pending, "edit is not written yet", "edits are not written yet", out);
    add_count(c->refused, "write was refused", "writes were refused", out);
    add_names(notes, out);
    if (c->changed)
        buf_str(out, "; the model's file was changed outside the mount");
    buf_char(out, '\n');
}

void errors_text(const struct buf *notes, const struct buf *trouble, struct buf *out)
{
    const struct buf *of[] = {notes, trouble};
    for (size_t i = 0; i < COUNT(of); i++)
        for (struct note n = {0}; unsaved_next(of[i], &n);) {
            const bool tensor = strncmp(n.path, UNSAVED_TENSOR, strlen(UNSAVED_TENSOR)) == 0;
            buf_str(out, tensor ? "" : "metadata/");
            show_all(out, n.path, strlen(n.path));
            buf_printf(out, ": %s%s\n", of[i] == trouble ? "not written: " : "", n.why);
        }
}

/* ---- the history ---- */

int tree_begin_undo(struct tree *t, uint64_t number, struct live_wait *w)
{
    int r = begin_editing(t);
    return r < 0 ? r : live_undo(t->meta, number, w);
}

int tree_undo_said(struct tree *t, struct buf *out)
{
    return live_undo_said(t->meta, out);
}

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
    (void)tree_undo_said(t, &line);
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
