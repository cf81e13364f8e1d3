/* SPDX-License-Identifier: MIT */
/* Reads scripts, and runs them in each commit mode: see script.h. */
#include "script.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu_main.h"
#include "live/tensors.h"
#include "base/bytes.h"
#include "script_run.h"

void script_fail(struct run *r, const char *fmt, ...)
{
    va_list ap;
    r->failed = true;
    (void)printf("\n  %s (%s)\n    %s: ", r->s->name, r->mode, r->op);
    va_start(ap, fmt);
    (void)vprintf(fmt, ap);
    va_end(ap);
    CU_FAIL("a script");
}

/* ---- the mount ---- */

static enum live_commit mode_of(const char *name)
{
    return strcmp(name, "auto") == 0    ? LIVE_COMMIT_AUTO
           : strcmp(name, "close") == 0 ? LIVE_COMMIT_CLOSE
                                        : LIVE_COMMIT_SYNC;
}

void script_start(struct run *r)
{
    struct err e = {0};
    if (tree_open(r->place.model, &r->opt, &r->t, &e) < 0)
        script_fail(r, "does not open: %s", e.msg);
    else if (!tree_writable(r->t))
        script_fail(r, "is read-only: %s", tree_why_not(r->t));
}

/* End as a daemon does while programs still have files open: drafts that were not closed are
 * dropped. */
int script_finish(struct run *r)
{
    if (!r->t)
        return r->finished;
    live_abandon(tree_live(r->t));
    for (int i = 0; i < HANDLES; i++)
        if (r->handle[i].f)
            script_release(r, &r->handle[i]);
    r->finished = tree_finish(r->t);
    tree_close(r->t);
    r->t = NULL;
    return r->finished;
}

/* ---- one operation ---- */

int script_errno(const char *name)
{
    const char *known;
    int code = 1;
    while (code < 200 && (!(known = strerrorname_np(code)) || strcmp(known, name) != 0))
        code++;
    return code < 200 ? code : 0;
}

static const struct script_op *find_op(const char *name)
{
    const struct script_op *op = script_ops;
    while (op && strcmp(op->name, name) != 0)
        op = op->next;
    return op;
}

/* Split an operation into its words, in place. Returns their number, or UINT_MAX for too many words
 * or an unterminated quote. */
static unsigned split_words(char *text, char *word[ARGS])
{
    unsigned n = 0;
    for (char *p = text; *p;) {
        p += strspn(p, " ");
        if (!*p)
            break;
        bool quoted = *p == '\'';
        p += quoted;
        if (n == ARGS)
            return UINT_MAX;
        word[n++] = p;
        p += strcspn(p, quoted ? "'" : " ");
        if (quoted && !*p)
            return UINT_MAX;
        if (*p)
            *p++ = '\0';
    }
    return n;
}

/* If the last word is =ERRNO, remove it and return -ERRNO; otherwise return 0. */
static int expected(struct run *r, char *word[ARGS], unsigned *n)
{
    if (*n < 2 || word[*n - 1][0] != '=')
        return 0;
    int code = script_errno(word[--*n] + 1);
    if (!code)
        script_fail(r, "no such error");
    return -code;
}

static void check_result(struct run *r, int got, int want)
{
    if (!r->failed && got != want)
        script_fail(r, "%s instead of %s", got ? strerror(-got) : "success",
                    want ? strerror(-want) : "success");
}

/* Run an operation. If it was marked with &, a later operation waits for it. */
static void run_op(struct run *r, const struct script_op *op, char **arg, int want, bool later)
{
    struct tree_wait own, *w = &own;
    if (later && r->started == WAITS) {
        script_fail(r, "too many operations with &");
        return;
    }
    if (later)
        w = &r->waiter[r->started++];
    (void)tree_wait(w);
    int got = op->run(r, arg, w);
    if (!later)
        check_result(r, tree_waited(w, got), want);
    else if (got != LIVE_PARKED)
        w->wait.done(&w->wait, got);
}

static void do_op(struct run *r, const char *text, size_t n)
{
    char copy[sizeof(r->op)], *word[ARGS + 1] = {0};
    size_t blank = strspn(text, " ");
    (void)snprintf(r->op, sizeof(r->op), "%.*s", (int)(n - blank), text + blank);
    (void)strcpy(copy, r->op);
    bool later = copy[0] == '&';
    char *first = copy + (later ? 2 : 0);
    size_t name = strcspn(first, " ");
    char kept = first[name];
    first[name] = '\0';
    const struct script_op *op = find_op(first);
    first[name] = kept;
    if (!op || (!r->t && strcmp(op->name, "file") != 0 && strcmp(op->name, "logged") != 0)) {
        script_fail(r, op ? "the mount has ended" : "no such operation");
        return;
    }
    if (op->rest) {
        word[1] = first + name + (kept == ' ');
        run_op(r, op, word + 1, 0, later);
        return;
    }
    unsigned words = split_words(first, word);
    int want = words == UINT_MAX ? 0 : expected(r, word, &words);
    if (words == UINT_MAX || words - 1 < op->least || words - 1 > op->most)
        script_fail(r, "wrong arguments");
    for (unsigned i = words; i < ARGS; i++)
        word[i] = NULL;
    if (!r->failed)
        run_op(r, op, word + 1, want, later);
}

/* ---- a script ---- */

/* Return the length up to the next ';' that is not quoted. */
static size_t op_length(const char *p)
{
    size_t n = 0;
    for (bool quoted = false; p[n] && (quoted || p[n] != ';'); n++)
        quoted ^= p[n] == '\'';
    return n;
}

static void check_end(struct run *r)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT, before = BUF_INIT;
    (void)strcpy(r->op, "at the end");
    script_model_before(r, &before);
    const char *want = r->s->saved ? r->s->saved : buf_text(&before);
    if (r->started != r->waited)
        script_fail(r, "an operation with & is not waited for");
    int ended = r->t ? script_finish(r) : 0;
    struct content now = script_model_file(r);
    if (!r->failed && ended < 0)
        script_fail(r, "%s", strerror(-ended));
    else if (!r->failed && !(r->opt.tensors ? script_model_tensors(r, &keys)
                                            : script_model_keys(now.bytes, now.n, &keys)))
        script_fail(r, "the file is not a regular model");
    else if (!r->failed && strcmp(buf_text(&keys), want) != 0)
        script_fail(r, "the file has\n      %s\n    and not\n      %s", buf_text(&keys), want);
    else if (!r->failed && !script_model_whole(r))
        script_fail(r, "tensors were changed, or a file was left");
    free(now.bytes);
}

static void run_in(const struct script *s, const char *mode)
{
    char state[] = "/tmp/ggufs-script-XXXXXX"; /* directory of histories */
    struct run r = {
        .s = s,
        .mode = mode,
        .opt = {.strategy = EDIT_COPY, .commit = mode_of(mode), .log = {.line = script_log}},
        .op = "at the beginning"};
    if (s->how && strstr(s->how, "history")) {
        r.opt.history = 20;
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(state));
        (void)setenv("XDG_STATE_HOME", state, 1);
    }
    static const char *const words[] = {"split", "tensors", "large", "deep"};
    unsigned how = 0;
    for (size_t i = 0; i < COUNT(words); i++)
        how |= s->how && strstr(s->how, words[i]) ? 1U << i : 0;
    r.opt.tensors = how & SCRIPT_TENSORS;
    if (s->how && strstr(s->how, "inplace"))
        r.opt.strategy = EDIT_INPLACE;
    if (s->how && strstr(s->how, "choose"))
        r.opt.strategy = EDIT_AUTO;
    script_model_make(&r, how);
    script_calm();
    script_start(&r);
    for (const char *p = s->ops; *p && !r.failed;) {
        size_t n = op_length(p);
        do_op(&r, p, n);
        p += n + (p[n] == ';');
    }
    struct script_gate *g = script_gate_open();
    *g = (struct script_gate){.held = g->held};
    script_gate_close();
    if (r.failed)
        (void)script_finish(&r);
    else
        check_end(&r);
    script_calm();
    script_model_drop(&r);
    if (r.opt.history)
        remove_tree(state);
}

static void run_in_modes(const struct script *s)
{
    static const char *const modes[] = {"auto", "close", "sync"};
    bool some = false;
    for (int only = 1; only >= 0 && !some; only--)
        for (size_t i = 0; i < COUNT(modes); i++)
            if (!only || (s->how && strstr(s->how, modes[i]))) {
                run_in(s, modes[i]);
                some = true;
            }
}

/* Write a text with this word for each @. */
static const char *with_word(struct buf *out, const char *text, const char *word, size_t n)
{
    for (; text && *text; text++)
        buf_add(out, *text == '@' ? word : text, *text == '@' ? n : 1);
    buf_char(out, '\0');
    return text ? buf_text(out) : NULL;
}

static void run_script(const struct script *s)
{
    for (const char *word = s->each, *end; word; word = *end ? end + 1 : NULL) {
        CLEANUP(buf_free) struct buf ops = BUF_INIT, saved = BUF_INIT;
        struct script one = *s;
        end = strchrnul(word, '|');
        one.ops = with_word(&ops, s->ops, word, (size_t)(end - word));
        one.saved = with_word(&saved, s->saved, word, (size_t)(end - word));
        run_in_modes(&one);
    }
    if (!s->each)
        run_in_modes(s);
}

/* ---- a test for each script ---- */

static const struct script *scripts;

/* Run the script with the current test's name. cu_run() may skip tests. */
static void test_script(void)
{
    const struct script *s = scripts;
    while (strcmp(s->name, CU_get_current_test()->pName) != 0)
        s++;
    run_script(s);
}

int scripts_run(const char *suite, const struct script *s, size_t n)
{
    CU_TestInfo *tests = calloc(n + 1, sizeof(*tests));
    for (size_t i = 0; tests && i < n; i++) {
        tests[i] = (CU_TestInfo){s[i].name, test_script};
        for (size_t k = 0; k < i; k++)
            if (strcmp(s[i].name, s[k].name) == 0) {
                (void)fprintf(stderr, "two scripts are called '%s'\n", s[i].name);
                return 1;
            }
    }
    scripts = s;
    int r = tests ? cu_run(suite, tests) : 1;
    free(tests);
    return r;
}
