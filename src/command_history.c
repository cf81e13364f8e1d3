/* SPDX-License-Identifier: MIT */
/* --history and --undo: see command.h. Of a mounted model the daemon does what is asked. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/lock.h"
#include "command.h"
#include "edit/history.h"
#include "mount/channel.h"
#include "mount/holder.h"
#include "tree/tree.h"

static int failed(const char *operand, const struct err *e)
{
    char shown[SHOW_MAX];
    (void)fprintf(stderr, "ggufs: %s: %s\n", show(shown, operand, strlen(operand)), e->msg);
    return 1;
}

static void done(const char *operand, const char *what, size_t n)
{
    char shown[SHOW_MAX], line[1024];
    (void)printf("%s: %s\n", show(shown, operand, strlen(operand)),
                 show_in(line, sizeof(line), what, n));
}

/* What a person has to know; what is done is printed at the end. */
static void print_warning(int priority, const char *line)
{
    if (priority <= LOG_WARNING)
        (void)fprintf(stderr, "ggufs: %s\n", line);
}

/* ---- a model that is not mounted ---- */

/* A call that waits for another thread. */
struct waiting {
    struct live_wait wait; /* first */
    struct lock lock;
    struct cond over;
    bool answered;
    int result;
};

static void on_done(struct live_wait *w, int result)
{
    struct waiting *x = (struct waiting *)w;
    lock_take(&x->lock);
    x->answered = true;
    x->result = result;
    cond_signal(&x->over);
    lock_drop(&x->lock);
}

static int set_and_wait(struct tree *t, uint64_t node, const char *number)
{
    struct waiting x = {.wait = {.done = on_done}};
    lock_init(&x.lock);
    cond_init(&x.over);
    int r = tree_setxattr(t, node, TREE_XATTR_UNDO, number, strlen(number), &x.wait);
    if (r == LIVE_PARKED) {
        lock_take(&x.lock);
        while (!x.answered)
            (void)lock_wait(&x.lock, &x.over, NULL);
        lock_drop(&x.lock);
        r = x.result;
    }
    cond_destroy(&x.over);
    lock_destroy(&x.lock);
    return r;
}

static int undo_tree(struct tree *t, const char *number, struct buf *said, struct err *e)
{
    struct tree_entry folder;
    if (!tree_writable(t))
        return err_set(e, -EROFS, "it cannot be edited: %s", tree_why_not(t));
    int r = tree_lookup(t, INO_ROOT, "metadata", &folder);
    if (r == 0)
        r = set_and_wait(t, folder.node, number);
    size_t begin = said->len;
    if (tree_getxattr(t, folder.node, TREE_XATTR_UNDO, said) < 0 || said->len == begin)
        buf_str(said, strerror(r < 0 ? -r : ENODATA));
    return r < 0 ? err_set(e, r, "%.*s", (int)said->len, (const char *)said->data) : 0;
}

static int undo_file(const char *operand, const char *number, struct buf *said, struct err *e)
{
    struct tree *t = NULL;
    char name[SHOW_MAX];
    (void)show(name, operand, strlen(operand));
    const struct tree_options o = {.commit = LIVE_COMMIT_CLOSE,
                                   .reserve = EDIT_RESERVE_AUTO,
                                   .history = HISTORY_KEEP_SAME,
                                   .wait = holder_wait,
                                   .wait_arg = name,
                                   .log = {.line = print_warning}};
    int r = tree_open(operand, &o, &t, e);
    if (r < 0)
        return r;
    r = undo_tree(t, number, said, e);
    (void)tree_finish(t);
    tree_close(t);
    return r;
}

int command_undo(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    struct err e = {0};
    char *folder = NULL;
    const char *number = a->value ? a->value : "";
    int r = channel_find(a->operand[0], &folder, &e);
    if (r == 0)
        r = folder ? channel_undo(folder, number, &said, &e)
                   : undo_file(a->operand[0], number, &said, &e);
    free(folder);
    if (r < 0)
        return failed(a->operand[0], &e);
    done(a->operand[0], (const char *)said.data, said.len);
    return 0;
}

/* ---- the states ---- */

static int open_to_look(const char *operand, struct tree **ret, struct err *e)
{
    const struct tree_options o = {.read_only = true, .partial = true};
    return tree_open(operand, &o, ret, e);
}

static int list_file(const char *operand, struct buf *out, struct err *e)
{
    struct tree *t = NULL;
    int r = open_to_look(operand, &t, e);
    if (r == 0)
        r = tree_history(t, out, e);
    tree_close(t);
    return r;
}

static int list(const char *operand, const char *folder)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    int r = folder ? channel_history(folder, &text, &e) : list_file(operand, &text, &e);
    if (r < 0)
        return failed(operand, &e);
    command_print(&text);
    if (fflush(stdout) != 0)
        return failed(operand, &(struct err){.msg = "cannot write the list"});
    return 0;
}

static int clear_file(const char *operand, struct err *e)
{
    struct tree *t = NULL;
    size_t n;
    int r = open_to_look(operand, &t, e);
    if (r == 0)
        r = tree_history_clear(t, &n, e);
    tree_close(t);
    return r;
}

static int clear(const char *operand, const char *folder)
{
    static const char line[] = "the history is forgotten";
    struct err e = {0};
    int r = folder ? channel_clear(folder, &e) : clear_file(operand, &e);
    if (r < 0)
        return failed(operand, &e);
    done(operand, line, sizeof(line) - 1);
    return 0;
}

int command_history(const struct command_args *a)
{
    struct err e = {0};
    char *folder = NULL;
    if (channel_find(a->operand[0], &folder, &e) < 0)
        return failed(a->operand[0], &e);
    int status = a->value ? clear(a->operand[0], folder) : list(a->operand[0], folder);
    free(folder);
    return status;
}
