/* SPDX-License-Identifier: MIT */
/* See command_history.h. */
#include "command_history.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "edit/history.h"
#include "mount/daemon.h"
#include "tree/history.h"

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
    r = tree_writable(t) ? tree_undo(t, strtoull(number, NULL, 10), said, e)
                         : err_set(e, -EROFS, "it cannot be edited: %s", tree_why_not(t));
    (void)tree_finish(t);
    tree_close(t);
    return r;
}

int command_undo(const struct command_args *a)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    CLEANUP(channel_close) struct channel c;
    struct err e = {0};
    char verb[64];
    const char *number = a->value ? a->value : "0";
    (void)snprintf(verb, sizeof(verb), "undo %s", number);
    int r = channel_open(a->operand[0], &c, &e);
    if (r == 0)
        r = c.daemon ? channel_ask(&c, verb, &said, &e)
                     : undo_file(a->operand[0], number, &said, &e);
    if (r == -ETIMEDOUT && c.daemon)
        (void)strncat(e.msg,
                      "; if it goes on, the undo may still be done (ggufs --history shows it)",
                      sizeof(e.msg) - strlen(e.msg) - 1);
    if (r < 0)
        return failed(a->operand[0], &e);
    done(a->operand[0], buf_text(&said), said.len - (said.len && buf_text_end(&said)[-1] == '\n'));
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

static int list(const char *operand, const struct channel *c)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct err e = {0};
    int r = c->daemon ? channel_ask(c, "history", &text, &e) : list_file(operand, &text, &e);
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

static int clear(const char *operand, const struct channel *c)
{
    static const char line[] = "the history is forgotten";
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    struct err e = {0};
    int r = c->daemon ? channel_ask(c, "clear", &said, &e) : clear_file(operand, &e);
    if (r < 0)
        return failed(operand, &e);
    done(operand, line, sizeof(line) - 1);
    return 0;
}

int command_history(const struct command_args *a)
{
    CLEANUP(channel_close) struct channel c;
    struct err e = {0};
    if (channel_open(a->operand[0], &c, &e) < 0)
        return failed(a->operand[0], &e);
    return a->value ? clear(a->operand[0], &c) : list(a->operand[0], &c);
}
