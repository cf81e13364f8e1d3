/* SPDX-License-Identifier: MIT */
/* What commands do to a tree: see history.h. */
#include "tree/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "edit/history.h"
#include "tree/begin.h"
#include "tree/edits.h"
#include "tree/state.h"

/* How often an undo waits for edits that other programs make meanwhile. */
#define UNDO_TRIES 20

/* A call that another thread answers. */
struct waiting {
    struct live_wait wait; /* first */
    atomic_bool answered;
    int result;
};

static void on_done(struct live_wait *w, int result)
{
    struct waiting *x = (struct waiting *)w;
    x->result = result;
    pool_tell(&x->answered);
}

/* The final result of a call that returned r. */
static int wait_end(struct waiting *x, int r)
{
    if (r != LIVE_PARKED)
        return r;
    pool_wait(&x->answered);
    return x->result;
}

int tree_sync(struct tree *t)
{
    struct waiting x = {.wait = {.done = on_done}};
    return wait_end(&x, tree_fsyncdir(t, &x.wait));
}

int tree_retire(struct tree *t)
{
    int r = tree_finish(t);
    struct history h;
    if (t->history) { /* it is complete, so that the next writer finds it that way */
        (void)history_job_look(t->history, &h, NULL);
        history_close(&h);
    }
    LOCKED(&t->beginning);
    edit_file_unlock(&t->model.file);
    return r;
}

/* ---- the history ---- */

int tree_begin_undo(struct tree *t, uint64_t number, struct live_wait *w)
{
    struct live *l;
    int r = begin_editing(t, &l);
    return r < 0 ? r : live_undo(l, number, w);
}

int tree_undo_said(struct tree *t, struct buf *out)
{
    struct live *l = atomic_load(&t->live);
    return l ? live_undo_said(l, out) : 0;
}

static int undo_once(struct tree *t, uint64_t number)
{
    struct waiting x = {.wait = {.done = on_done}};
    return wait_end(&x, tree_begin_undo(t, number, &x.wait));
}

int tree_undo(struct tree *t, uint64_t number, struct buf *said, struct err *e)
{
    CLEANUP(buf_free) struct buf line = BUF_INIT;
    int r = -EBUSY;
    /* other programs may make edits meanwhile */
    for (int i = 0; i < UNDO_TRIES && r == -EBUSY; i++) {
        r = tree_sync(t);
        if (r < 0)
            return err_sys(e, r, "edits before it could not be written");
        r = undo_once(t, number);
    }
    (void)tree_undo_said(t, &line);
    if (r == -EROFS && !line.len)
        buf_str(&line, "it is mounted read-only");
    if (r < 0 && !line.len) { /* it could not be started */
        LOCKED(&t->newest.lock);
        buf_str(&line, t->refusal);
    }
    if (r < 0)
        return err_set(e, r, "%.*s", (int)line.len, line.len ? buf_text(&line) : strerror(-r));
    buf_add(said, line.data, line.len);
    return buf_error(said);
}

int tree_states(struct tree *t, struct buf *out, struct err *e)
{
    struct live *l = atomic_load(&t->live);
    /* taken first: what is written meanwhile is shown twice */
    size_t waiting = l ? live_accepted(l) : 0;
    if (!t->writable)
        return err_set(e, -EROFS, "it is mounted read-only");
    int r = l ? live_history(l, out, e) : tree_history(t, out, e);
    if (r == 0 && waiting) { /* what is accepted but not written is in no state yet */
        buf_str(out, "-\tnot written yet\t");
        state_count(waiting, "edit", "edits", out);
        buf_char(out, '\n');
    }
    return r < 0 ? r : buf_error(out);
}

int tree_forget_states(struct tree *t)
{
    struct live *l;
    int r = begin_editing(t, &l);
    return r < 0 ? r : live_history_clear(l);
}

/* ---- without a daemon ---- */

static int open_history(const struct tree *t, struct history *ret, struct err *e)
{
    char *home = NULL;
    *ret = HISTORY_INIT;
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
        r = history_text(&h, snapshot_own(v.snap), out, e);
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
