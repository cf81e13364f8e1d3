/* SPDX-License-Identifier: MIT */
/* Restores states from the history (undo.h). */
#include "live/undo.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "live/overlay.h"

static int no_history(struct err *e)
{
    return err_set(e, -EOPNOTSUPP, "no history is kept (-o history=0)");
}

/* Translate an error about the history's directory that would be mistaken for one about the request
 * itself. */
static int of_folder(int r)
{
    return r == -EPERM || r == -EACCES || r == -EROFS ? -EIO : r;
}

/* Note the names of the keys that an undo changes, in q->text. */
static int note_names(struct live *l, struct request *q, struct err *e)
{
    char text[TREE_NAME_MAX + 1], shown[SHOW_MAX];
    for (size_t i = 0; i < l->pending.n; i++) {
        const struct edit_slot *s = l->pending.slot[i];
        if (!s->gone && !s->value) /* it only moves */
            continue;
        (void)name_encode(s->name, s->name_len, text);
        const struct name *x = name_find(l, text);
        if (x && !x->key)
            return err_set(e, -EBUSY, "%s: a helper file has the name of this key",
                           show(shown, s->name, s->name_len));
        buf_add(&q->text, text, strlen(text) + 1);
    }
    return buf_error(&q->text) ? err_set(e, -ENOMEM, "no memory for the keys") : 0;
}

static int restore(struct live *l, struct request *q, const struct history_pick *p, struct err *e)
{
    const size_t mark = edit_mark(&l->pending);
    int r = edit_restore(&l->pending, p->keys, e);
    if (r < 0)
        return r;
    (void)snprintf(l->undo, sizeof(l->undo), "%.*s", (int)p->said.len, buf_text(&p->said));
    if (edit_keys_id(p->keys) == edit_keys_id(l->pending.on.g)) {
        edit_undo(&l->pending, mark);
        return 0;
    }
    r = note_names(l, q, e);
    if (r < 0)
        edit_undo(&l->pending, mark);
    else
        l->restores = p->state;
    return r < 0 ? r : 1;
}

/* Write what is pending, which belongs to the state before, and bring the keys of the state back. */
static int accept_undo(struct live *l, struct request *q, struct err *e)
{
    struct history_pick p = HISTORY_PICK_INIT;
    bool done;
    int r = overlay_accept(l, edit_mark(&l->pending), WHEN_NOW, &done, e);
    if (r < 0)
        return err_prefix(e, r, "edits before it could not be written");
    lock_drop(&l->lock); /* only this thread changes the state on disk */
    overlay_retire(l);
    r = of_folder(history_pick(l->history, q->number, snapshot_own(l->disk.snap), &p, e));
    lock_take(&l->lock);
    if (r == 0)
        r = restore(l, q, &p, e);
    history_pick_free(&p);
    return r;
}

static int undone(struct live *l, struct request *q, int r, const struct err *e)
{
    l->restores = 0;
    if (r < 0)
        (void)snprintf(l->undo, sizeof(l->undo), "%s", e->msg);
    if (r < 0 && !q->done)
        return r;
    const char *at = buf_text(&q->text), *end = buf_text_end(&q->text);
    for (; at && at < end && q->changed; at += strlen(at) + 1) {
        struct name *x = name_find(l, at);
        if (!x)
            continue;
        x->mtime = when_date();
        name_set_error(l, x, NULL);
        if (!x->gone) /* else it was removed meanwhile */
            name_spare(l, x);
        if (x->file)
            file_settle(l, x->file);
    }
    if (q->changed)
        live_log(l, LOG_NOTICE, "undo, %s", l->undo);
    return r;
}

int live_undo(struct live *l, uint64_t number, struct live_wait *w)
{
    struct err e = {0};
    LOCKED(&l->lock);
    if (!l->history) {
        (void)no_history(&e);
        (void)snprintf(l->undo, sizeof(l->undo), "%s", e.msg);
        return e.code;
    }
    struct request *q = request_new(l, NULL, NULL, NULL);
    if (!q)
        return -ENOMEM;
    q->number = number;
    q->when = WHEN_NOW;
    q->apply = accept_undo;
    q->end = undone;
    return queue_add(l, q, w);
}

int live_undo_said(struct live *l, struct buf *out)
{
    LOCKED(&l->lock);
    buf_str(out, l->undo);
    return buf_error(out);
}
