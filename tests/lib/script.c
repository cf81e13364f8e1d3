/* SPDX-License-Identifier: MIT */
/* Reads scripts, and runs them in each commit mode: see script.h. */
#include "script.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu_main.h"
#include "live/tensors.h"
#include "script_run.h"
#include "tree_image.h"

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
    if (tree_open(r->m.place.model, &r->opt, &r->t, &e) < 0)
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
    tree_abandon(r->t);
    for (int i = 0; i < HANDLES; i++)
        if (r->handle[i].f)
            script_release(r, &r->handle[i]);
    r->finished = tree_finish(r->t);
    tree_close(r->t);
    r->t = NULL;
    return r->finished;
}

int script_wait(struct waiter *w, int result)
{
    if (result == LIVE_PARKED) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += WAIT_MOST;
        if (sem_timedwait(&w->answered, &until) < 0) { /* a wait that only this thread could end */
            CU_FAIL("an operation waits for what comes after it");
            script_copies_go(0);
            (void)sem_wait(&w->answered);
        }
        result = w->result;
    }
    (void)sem_destroy(&w->answered);
    return result;
}

int script_wait_here(struct waiter *w, int result)
{
    result = script_wait(w, result);
    (void)sem_init(&w->answered, 0, 0);
    return result;
}

static void answer(struct live_wait *w, int result)
{
    struct waiter *me = (struct waiter *)w;
    me->result = result;
    (void)sem_post(&me->answered);
}

/* ---- one operation ---- */

int script_errno(const char *name)
{
    static const struct {
        const char *name;
        int code;
    } rows[] = {
        {"EACCES", EACCES},
        {"EBADF", EBADF},
        {"EBUSY", EBUSY},
        {"EEXIST", EEXIST},
        {"EDQUOT", EDQUOT},
        {"EFBIG", EFBIG},
        {"EILSEQ", EILSEQ},
        {"EINTR", EINTR},
        {"EINVAL", EINVAL},
        {"EIO", EIO},
        {"ENODATA", ENODATA},
        {"ENOENT", ENOENT},
        {"ENOSPC", ENOSPC},
        {"EPERM", EPERM},
        {"ERANGE", ERANGE},
        {"ESTALE", ESTALE},
        {"EOPNOTSUPP", EOPNOTSUPP},
        {"EROFS", EROFS},
        {"ENAMETOOLONG", ENAMETOOLONG},
        {"EDOM", EDOM},
        {"EISDIR", EISDIR},
        {"ENOTDIR", ENOTDIR},
        {"ENOTEMPTY", ENOTEMPTY},
        {"ELOOP", ELOOP},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].code;
    return 0;
}

static const struct script_op *find_op(const char *name)
{
    const struct script_op *const tables[] = {script_edits, script_looks, script_faults,
                                              script_tensors};
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        for (const struct script_op *op = tables[i]; op->name; op++)
            if (strcmp(op->name, name) == 0)
                return op;
    return NULL;
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
    if (r->lenient && got <= 0)
        return;
    if (!r->failed && got != want)
        script_fail(r, "%s instead of %s", got ? strerror(-got) : "success",
                    want ? strerror(-want) : "success");
}

/* Run an operation. If it was marked with &, a later operation waits for it. */
static void run_op(struct run *r, const struct script_op *op, char **arg, int want, bool later)
{
    struct waiter own, *w = &own;
    if (later && r->started == WAITS) {
        script_fail(r, "too many operations with &");
        return;
    }
    if (later)
        w = &r->waiter[r->started++];
    *w = (struct waiter){.wait = {.done = answer, .request = w}};
    (void)sem_init(&w->answered, 0, 0);
    int got = op->run(r, arg, w);
    if (!later)
        check_result(r, script_wait(w, got), want);
    else if (got != LIVE_PARKED)
        answer(&w->wait, got);
}

void script_noted(struct run *r, struct buf *log, const char *fmt, ...)
{
    char op[160];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(op, sizeof(op), fmt, ap);
    va_end(ap);
    buf_printf(log, "%s; ", op);
    if (!r->failed)
        script_do(r, op, strlen(op));
}

void script_do(struct run *r, const char *text, size_t n)
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
    CLEANUP(buf_free) struct buf keys = BUF_INIT;
    (void)strcpy(r->op, "at the end");
    if (r->started != r->waited)
        script_fail(r, "an operation with & is not waited for");
    int ended = r->t ? script_finish(r) : 0;
    struct content now = script_model_file(&r->m);
    if (!r->failed && ended < 0)
        script_fail(r, "%s", strerror(-ended));
    else if (!r->failed && !(r->opt.tensors ? script_model_tensors(&r->m, &keys)
                                            : script_model_keys(now.bytes, now.n, &keys)))
        script_fail(r, "the file is not a regular model");
    else if (!r->failed && strcmp((char *)keys.data, r->s->saved) != 0)
        script_fail(r, "the file has\n      %s\n    and not\n      %s", (char *)keys.data,
                    r->s->saved);
    else if (!r->failed &&
             !(r->opt.tensors ? script_model_alone(&r->m) : script_model_whole(&r->m)))
        script_fail(r, "tensors were changed, or a file was left");
    free(now.bytes);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
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
    bool split = s->how && strstr(s->how, "split");
    r.opt.tensors = s->how && strstr(s->how, "tensors");
    if (s->how && strstr(s->how, "inplace"))
        r.opt.strategy = EDIT_INPLACE;
    unsigned how = (split ? SCRIPT_SPLIT : 0) | (r.opt.tensors ? SCRIPT_TENSORS : 0);
    how |= s->how && strstr(s->how, "large") ? SCRIPT_LARGE : 0;
    how |= s->how && strstr(s->how, "deep") ? SCRIPT_DEEP : 0;
    script_model_make(&r.m, how);
    script_log_clear();
    script_start(&r);
    r.heap = script_heap();
    for (const char *p = s->ops; *p && !r.failed;) {
        size_t n = op_length(p);
        script_do(&r, p, n);
        p += n + (p[n] == ';');
    }
    script_copies_go(0);
    script_copies_fail(0);
    script_disk_full(false);
    if (r.failed)
        (void)script_finish(&r);
    else
        check_end(&r);
    script_time_runs();
    script_model_drop(&r.m);
    if (r.opt.history)
        CU_ASSERT_EQUAL(nftw(state, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void run_script(const struct script *s)
{
    static const char *const modes[] = {"auto", "close", "sync"};
    bool some = false;
    for (int only = 1; only >= 0 && !some; only--)
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
            if (!only || (s->how && strstr(s->how, modes[i]))) {
                run_in(s, modes[i]);
                some = true;
            }
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
    for (size_t i = 0; tests && i < n; i++)
        tests[i] = (CU_TestInfo){s[i].name, test_script};
    scripts = s;
    int r = tests ? cu_run(suite, tests) : 1;
    free(tests);
    return r;
}
