/* SPDX-License-Identifier: MIT */
/* Two or three programs write, close, fsync and rename their own keys and tensors, in random commit
 * modes, while writes are held or fail at random. "0 is a promise": if a call that makes an edit
 * durable returned 0, the edit is in the file. If a call that makes the edit returned an error, it
 * is not in the file. What was accepted and is still waiting at the end is written then. A program
 * that waits does nothing else. No text is written twice. Each run is generated from a seed. A run that
 * fails prints its seed and its operations; GGUFS_SEED=N in the environment repeats just that
 * run. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu_main.h"
#include "script_run.h"
#include "soak.h"

enum { PROGRAMS = 3, OPS = 40 };
enum { TENSORS = false };

/* The files that programs edit. */
static const struct {
    const char *path,
        /* path: of the file; before: what precedes the program's text in a listing of the model's
         * content */
        *before;
    bool tensor;
    unsigned digits;
} things[] = {
    {"a.name", " a.name:string=", false, 8}, {"a.count", " a.count:u32=", false, 8},
    {"a.other", " a.other:u32=", false, 8},  {"a.list", " a.list:array[i32]=", false, 8},
    {"a/raw", " a:I8:8=", true, 8},          {"c/raw", " c:I8:4=", true, 4},
};
enum { THINGS = TENSORS ? sizeof(things) / sizeof(things[0]) : 4 };

enum call { FLUSH, FSYNC, RENAME, FOLDER };

struct program {
    int thing;
    char name; /* name of its handle */
    bool open;
    char text[12]; /* last text written; empty: none since the open */
    bool accepted; /* the text was written, and the file closed */
    bool told;     /* a call has failed since */
    enum call in;  /* last call that could wait */
    bool waits;
    struct waiter w;
};

struct random {
    struct run r;
    struct script s;
    char name[48];
    uint64_t state; /* state of the random number generator */
    unsigned value;
    bool durable; /* in this commit mode, each close makes its edit durable */
    bool failing, held;
    unsigned n;
    struct program p[PROGRAMS];
    struct buf log;
};

static unsigned draw(struct random *x, unsigned n)
{
    return soak_draw(&x->state, n);
}

#define run(x, ...) script_noted(&(x)->r, &(x)->log, __VA_ARGS__)

/* ---- the content of the file ---- */

static bool is_in_file(struct random *x, const struct program *p)
{
    CLEANUP(buf_free) struct buf has = BUF_INIT;
    char want[64];
    struct content now = script_model_file(&x->r.m);
    buf_char(&has, ' ');
    if (!(TENSORS && things[p->thing].tensor ? script_model_tensors(&x->r.m, &has)
                                             : script_model_keys(now.bytes, now.n, &has)))
        script_fail(&x->r, "the file is not a regular model");
    free(now.bytes);
    (void)snprintf(want, sizeof(want), "%s%s ", things[p->thing].before, p->text);
    return strstr((const char *)has.data, want) != NULL;
}

static bool is_promise(const struct random *x, const struct program *p)
{
    /* A sync of the directory returns an error only if no other call has returned it. */
    if (p->in == FOLDER)
        return p->accepted && !(TENSORS && p->told);
    return p->in == FSYNC || x->durable;
}

/* Check the result of a call. A sync of the directory may report edits of other programs. */
static void check(struct random *x, struct program *p, int result)
{
    buf_printf(&x->log, "[%c: %s] ", p->name, result ? strerror(-result) : "0");
    if (x->r.failed || !p->text[0])
        return;
    const bool waited = !TENSORS && p->in == FSYNC && p->accepted;
    p->accepted |= p->in != FOLDER && result == 0;
    p->told |= result < 0;
    bool promise = is_promise(x, p), there = is_in_file(x, p);
    if (result < 0 && there && p->in != FOLDER && !waited)
        script_fail(&x->r, "%s has %s, and its program was told: %s", things[p->thing].path,
                    p->text, strerror(-result));
    if (result == 0 && promise && !there)
        script_fail(&x->r, "%s has not %s, and its program was told nothing", things[p->thing].path,
                    p->text);
}

/* ---- calls that may wait ---- */

static void end_wait(struct random *x, struct program *p)
{
    p->waits = false;
    check(x, p, script_wait(&p->w, LIVE_PARKED));
}

static void on_done(struct live_wait *w, int result)
{
    struct waiter *me = (struct waiter *)w;
    me->result = result;
    (void)sem_post(&me->answered);
}

static int begin(struct random *x, struct program *p)
{
    static const char *const words[] = {"flush", "fsync", "mv", "fsync of the folder by"};
    const char helper[] = {'.', p->name, '\0'};
    struct tree_file *f = x->r.handle[p->name - 'A'].f;
    const uint64_t dir = script_folder();
    buf_printf(&x->log, "%s %c; ", words[p->in], p->name);
    switch (p->in) {
    case FLUSH:
        return tree_flush(f, &p->w.wait);
    case RENAME:
        return tree_rename(x->r.t, dir, helper, dir, things[p->thing].path, 0, &p->w.wait);
    default:
        return p->in == FSYNC ? tree_fsync(f, &p->w.wait) : tree_fsyncdir(x->r.t, &p->w.wait);
    }
}

/* Make a call. Only this test releases held writes, so the result of a call that waits for a write
 * is collected later. */
static void call(struct random *x, struct program *p, enum call in)
{
    p->in = in;
    p->w = (struct waiter){.wait = {.done = on_done}};
    (void)sem_init(&p->w.answered, 0, 0);
    int r = begin(x, p);
    p->waits = r == LIVE_PARKED;
    if (!p->waits) {
        (void)sem_destroy(&p->w.answered);
        check(x, p, r);
    } else if (!x->held) {
        end_wait(x, p);
    }
}

/* ---- operations of programs ---- */

static void op_open(struct random *x, struct program *p)
{
    const bool tensor = things[p->thing].tensor;
    run(x, "%s %c %s rw", tensor ? "topen" : "open", p->name, things[p->thing].path);
    p->open = x->r.handle[p->name - 'A'].f != NULL;
    p->text[0] = '\0';
}

static void new_text(struct random *x, struct program *p)
{
    const unsigned digits = things[p->thing].digits;
    x->value += 1 + draw(x, 9);
    (void)snprintf(p->text, sizeof(p->text), "%u", (digits == 4 ? 1000 : 10000000) + x->value);
    p->accepted = p->told = false;
}

/* Write a new text, which contains no earlier text. */
static void op_write(struct random *x, struct program *p)
{
    new_text(x, p);
    if (!things[p->thing].tensor)
        run(x, "trunc %c 0", p->name);
    run(x, "write %c '%s' 0", p->name, p->text);
}

static void op_close(struct random *x, struct program *p)
{
    call(x, p, FLUSH);
    if (p->waits)
        return;
    run(x, "release %c", p->name);
    p->open = false;
}

/* Rename as editors do. */
static void op_rename(struct random *x, struct program *p)
{
    new_text(x, p);
    run(x, "put .%c '%s'", p->name, p->text);
    call(x, p, RENAME);
}

static void step(struct random *x, struct program *p)
{
    const unsigned what = draw(x, 9);
    if (p->waits)
        return;
    if (p == x->p && draw(x, 6) == 0)
        call(x, p, FOLDER);
    else if (!p->open && !things[p->thing].tensor && draw(x, 2))
        op_rename(x, p);
    else if (!p->open)
        op_open(x, p);
    else if (what < 3)
        op_write(x, p);
    else if (what < 5)
        call(x, p, FLUSH);
    else if (what < 8)
        call(x, p, FSYNC);
    else
        op_close(x, p);
}

/* ---- writes ---- */

static void let_go(struct random *x)
{
    run(x, draw(x, 2) ? "go EIO" : "go");
    x->held = false;
    for (unsigned i = 0; i < x->n; i++)
        if (x->p[i].waits)
            end_wait(x, &x->p[i]);
}

/* Returns true if a program is waiting for the write that is held or about to begin. */
static bool is_waited_for(const struct random *x)
{
    bool waits = false;
    for (unsigned i = 0; i < x->n; i++)
        waits |= x->p[i].waits && (x->p[i].in == FSYNC || x->durable);
    return waits;
}

static void disk(struct random *x)
{
    switch (draw(x, 8)) {
    case 0:
        x->failing = !x->failing;
        run(x, x->failing ? "fail EIO" : "fail");
        break;
    case 1:
        if (!x->held)
            run(x, "hold");
        x->held = true;
        break;
    case 2:
        if (TENSORS && x->held && is_waited_for(x) && !x->failing)
            run(x, "held");
        break;
    case 3:
        if (x->held)
            let_go(x);
        break;
    default:
        break;
    }
}

/* ---- runs ---- */

static void choose(struct random *x)
{
    bool taken[THINGS] = {false};
    x->n = 2 + draw(x, PROGRAMS - 1);
    for (unsigned i = 0; i < x->n; i++) {
        int thing = (int)draw(x, THINGS);
        while (taken[thing])
            thing = (thing + 1) % THINGS;
        taken[thing] = true;
        x->p[i] = (struct program){.thing = thing, .name = (char)('A' + i)};
    }
}

static void run_seed(uint64_t seed)
{
    static const enum live_commit modes[] = {LIVE_COMMIT_AUTO, LIVE_COMMIT_CLOSE, LIVE_COMMIT_SYNC};
    static const char *const mode_names[] = {"auto", "close", "sync"};
    struct random x = {.state = seed * 0x9e3779b97f4a7c15 + 1};
    unsigned mode = draw(&x, 3);
    (void)snprintf(x.name, sizeof(x.name), "seed %llu", (unsigned long long)seed);
    x.s.name = x.name;
    x.durable = modes[mode] != LIVE_COMMIT_SYNC; /* including auto, because the model is small */
    x.r = (struct run){.s = &x.s, .mode = mode_names[mode], .lenient = true};
    x.r.opt = (struct tree_options){.strategy = EDIT_COPY,
                                    .commit = modes[mode],
                                    .tensors = TENSORS,
                                    .log = {.line = script_log}};
    script_model_make(&x.r.m, TENSORS ? SCRIPT_TENSORS : 0);
    script_start(&x.r);
    choose(&x);
    for (int i = 0; i < OPS && !x.r.failed; i++) {
        disk(&x);
        step(&x, &x.p[draw(&x, x.n)]);
    }
    if (x.held)
        let_go(&x);
    run(&x, "fail");
    for (unsigned i = 0; i < x.n; i++)
        if (x.p[i].open)
            op_close(&x, &x.p[i]);
    (void)script_finish(&x.r);
    for (unsigned i = 0; i < x.n && !TENSORS && !x.r.failed; i++)
        if (x.p[i].accepted && x.p[i].text[0] && !is_in_file(&x, &x.p[i]))
            script_fail(&x.r, "%s has not %s at the end", things[x.p[i].thing].path, x.p[i].text);
    if (x.r.failed)
        (void)printf("\n    %.*s\n", (int)x.log.len, (const char *)x.log.data);
    CU_ASSERT_FALSE(x.r.failed);
    script_model_drop(&x.r.m);
    buf_free(&x.log);
}

static void test_random(void)
{
    soak_count("operations of programs, whose results were compared with the file",
               soak_seeds(300, run_seed) * OPS);
}

static CU_TestInfo tests[] = {
    {"0 means that the edit is in the file; an error means that it is not", test_random},
    CU_TEST_INFO_NULL,
};

CU_MAIN("random promises", tests)
