/* SPDX-License-Identifier: MIT */
/* Random operations on keys, helpers and open files, in random commit modes. The content of the
 * tree after each operation, and of the file after each fsync, is compared with a simple model.
 * Each run is generated from a seed. A run that fails prints its seed, and its operations as a
 * script (see script.h); GGUFS_SEED=N in the environment repeats just that run. Each value is a
 * number of one or two digits, which fits all types, so that any text fits any key. Operations
 * whose result the simple model does not determine are not drawn; the word `skip` marks them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu_main.h"
#include "plain.h"
#include "script_run.h"
#include "soak.h"

enum { MOUNTS = 2, OPS = 60 };

struct random {
    struct run r;
    struct script s;
    char name[48];
    uint64_t state; /* state of the random number generator */
    struct plain p;
    struct buf log;
};

static unsigned draw(struct random *x, unsigned n)
{
    return soak_draw(&x->state, n);
}

#define run(x, ...) script_noted(&(x)->r, &(x)->log, __VA_ARGS__)

/* ---- operations ---- */

/* Return the name under which to create or open a file. A new file is usually named KEY:TYPE. */
static const char *typed_name(struct random *x, int name, struct file *f, bool made, char dst[32])
{
    bool typed = made && plain_is_key(name) && draw(x, 5) > 0;
    if (typed)
        f->type = draw(x, PLAIN_TYPES);
    f->typed |= typed;
    (void)snprintf(dst, 32, typed ? "%s:%s" : "%s", plain_names[name],
                   typed ? plain_types[f->type] : "");
    return dst;
}

static char digit(struct random *x)
{
    return (char)('1' + draw(x, 9));
}

static void op_put(struct random *x, int name)
{
    char typed[32], value = digit(x);
    bool made = !x->p.at[name];
    struct file *f = made ? plain_create(&x->p, name) : x->p.at[name];
    (void)typed_name(x, name, f, made, typed);
    plain_join(&x->p, f, true);
    plain_write(f, 0, value);
    run(x, "put %s '%c'", typed, value);
    plain_accept(&x->p, f);
    plain_leave(&x->p, f);
}

static void op_open(struct random *x, int name)
{
    char typed[32], value = digit(x);
    int h = 0;
    while (h < OPEN && x->p.handle[h])
        h++;
    if (h == OPEN)
        return;
    bool made = !x->p.at[name], truncate = made || draw(x, 2);
    struct file *f = made ? plain_create(&x->p, name) : x->p.at[name];
    (void)typed_name(x, name, f, made, typed);
    plain_join(&x->p, f, truncate);
    x->p.handle[h] = f;
    run(x, "open %c %s rw%s%s", 'A' + h, typed, made ? " creat" : "", truncate ? " trunc" : "");
    if (!truncate)
        return;
    plain_write(f, 0, value); /* a mere truncation: skip */
    x->p.wrote[h] = true;
    run(x, "write %c '%c' 0", 'A' + h, value);
}

static void op_write(struct random *x, int h)
{
    struct file *f = x->p.handle[h];
    unsigned off = draw(x, 2);
    char value = digit(x);
    run(x, "write %c '%c' %u", 'A' + h, value, off);
    plain_write(f, off, value);
    x->p.wrote[h] = true;
}

/* A handle that has not written is closed while another one has: skip. */
static void op_flush(struct random *x, int h)
{
    if (plain_is_of_others(&x->p, h))
        return;
    run(x, "flush %c", 'A' + h);
    plain_accept(&x->p, x->p.handle[h]);
}

static void op_close(struct random *x, int h)
{
    struct file *f = x->p.handle[h];
    if (plain_is_of_others(&x->p, h))
        return;
    run(x, "close %c", 'A' + h);
    plain_accept(&x->p, f);
    x->p.handle[h] = NULL;
    x->p.wrote[h] = false;
    plain_leave(&x->p, f);
}

static void op_remove(struct random *x, int name)
{
    const struct file *f = x->p.at[name];
    run(x, "rm %s%s", plain_names[name], f ? "" : " =ENOENT");
    if (!f)
        return;
    if (plain_is_key(name))
        plain_drop(&x->p, name);
    else if (plain_is_parked(&x->p, f))
        plain_drop(&x->p, f->backup);
    plain_orphan(&x->p, name);
}

static void op_retype(struct random *x, int name)
{
    unsigned type = draw(x, PLAIN_TYPES);
    if (!plain_is_key(name) || !x->p.at[name] || x->p.at[name]->dirty)
        return;
    run(x, "type %s %s", plain_names[name], plain_types[type]);
    x->p.slot[name].type = type;
}

static void op_refused(struct random *x, int name)
{
    if (plain_is_key(name) && x->p.at[name] && !x->p.at[name]->writers &&
        x->p.slot[name].type != PLAIN_STRING)
        run(x, "put %s 'nonsense' =EINVAL", plain_names[name]);
}

static void op_sync(struct random *x)
{
    run(x, "fsync");
    for (int i = 0; i < KEYS; i++)
        x->p.slot[i].removed = false;
}

/* ---- renames ---- */

static void key_to_key(struct random *x, int from, int to)
{
    struct slot *a = &x->p.slot[from], *b = &x->p.slot[to];
    /* A key without a value, renamed over another file: skip. */
    if (!a->stored && (b->stored || x->p.at[to]))
        return;
    /* Until the renamed key has a value, the target would show its old one: skip. */
    if (b->removed && !a->stored)
        op_sync(x);
    run(x, "mv %s %s", plain_names[from], plain_names[to]);
    if (a->stored) {
        const bool over = b->stored || b->gone;
        if (!over)
            b->type = a->type;
        (void)strcpy(b->text, a->text);
        b->stored = b->known = true;
        b->parked = b->anew = b->removed = b->gone = false;
        plain_drop(&x->p, from);
        a->gone = over; /* otherwise the new name keeps the old position */
    }
    plain_move(&x->p, from, to);
}

static void key_to_helper(struct random *x, int from, int to)
{
    char text[8];
    struct file *f = x->p.at[from];
    run(x, "mv %s %s", plain_names[from], plain_names[to]);
    if (!f->dirty)
        (void)strcpy(f->text, plain_text(&x->p, from, text));
    for (int i = 0; i < NAMES; i++)
        if (x->p.at[i] && x->p.at[i]->backup == from)
            x->p.at[i]->backup = -1;
    f->backup = from;
    f->dirty = f->typed = false;
    x->p.slot[from].parked = x->p.slot[from].stored;
    plain_move(&x->p, from, to);
}

static void helper_to_key(struct random *x, int from, int to)
{
    struct file *f = x->p.at[from];
    /* Whether this backup's key will return is unknown: skip. */
    if (plain_is_parked(&x->p, f) && f->backup != to)
        return;
    if (f->backup >= 0 && !x->p.slot[to].stored) /* the type of the new key is unknown: skip */
        return;
    run(x, "mv %s %s", plain_names[from], plain_names[to]);
    plain_store(&x->p, to, f->text, NULL);
    f->backup = -1;
    f->written = true;
    plain_move(&x->p, from, to);
}

static void op_rename(struct random *x, int from)
{
    int to = (int)draw(x, NAMES);
    const struct file *a = x->p.at[from], *b = x->p.at[to];
    if (from == to)
        return;
    if (!a) {
        run(x, "mv %s %s =ENOENT", plain_names[from], plain_names[to]);
        return;
    }
    /* Skip three cases: keys that were created again; drafts with a type, if another file replaces
     * them; and backups, if another file replaces them while their keys are gone. */
    if ((plain_is_key(from) && x->p.slot[from].anew) || (plain_is_key(to) && x->p.slot[to].anew) ||
        (b && (b->typed || plain_is_parked(&x->p, b))) ||
        (b && plain_is_key(to) && !x->p.slot[to].stored))
        return;
    if (plain_is_key(from) && plain_is_key(to)) {
        key_to_key(x, from, to);
    } else if (plain_is_key(from)) {
        key_to_helper(x, from, to);
    } else if (plain_is_key(to)) {
        helper_to_key(x, from, to);
    } else {
        run(x, "mv %s %s", plain_names[from], plain_names[to]);
        plain_move(&x->p, from, to);
    }
}

/* ---- comparison ---- */

static void check_shown(struct random *x)
{
    char text[8];
    unsigned n = 5; /* the model's original keys */
    for (int i = 0; i < NAMES; i++) {
        n += x->p.at[i] != NULL;
        if (x->p.at[i])
            run(x, "text %s '%s'", plain_names[i], plain_text(&x->p, i, text));
        else
            run(x, "gone %s", plain_names[i]);
    }
    for (int i = 0; i < OPEN; i++)
        if (x->p.handle[i])
            run(x, "read %c '%s'", 'A' + i, x->p.handle[i]->text);
    run(x, "files %u", n);
}

/* Check that the file has exactly these keys, in any order. */
static void check_file(struct random *x)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT;
    char want[64];
    struct content now = script_model_file(&x->r.m);
    size_t n = strlen(UNCHANGED);
    if (x->r.failed || !script_model_keys(now.bytes, now.n, &keys)) {
        free(now.bytes);
        if (!x->r.failed)
            script_fail(&x->r, "the file is not a regular model");
        return;
    }
    free(now.bytes);
    const char *got = (const char *)keys.data;
    bool good = strncmp(got, UNCHANGED, n) == 0;
    for (int i = 0; i < KEYS; i++) {
        const struct slot *s = &x->p.slot[i];
        (void)snprintf(want, sizeof(want), " %s:%s=%s ", plain_names[i], plain_types[s->type],
                       s->text);
        bool there = strstr(got, want) != NULL;
        good &= there == s->stored || s->anew;
        n += there ? strlen(want) - 1 : 0;
    }
    if (!good || strlen(got) != n)
        script_fail(&x->r, "the file has\n      %s", got);
    else if (!script_model_whole(&x->r.m))
        script_fail(&x->r, "tensors were changed, or a file was left");
}

static void step(struct random *x)
{
    static void (*const ops[])(struct random * x,
                               int name) = {op_put,    op_put,    op_open,   op_open,   op_remove,
                                            op_rename, op_rename, op_rename, op_retype, op_refused};
    static void (*const on_handles[])(struct random * x, int h) = {op_write, op_write, op_flush,
                                                                   op_close};
    int h = (int)draw(x, OPEN), name = (int)draw(x, NAMES);
    if (x->p.handle[h] && draw(x, 2))
        on_handles[draw(x, 4)](x, h);
    else
        ops[draw(x, 10)](x, name);
    size_t log = x->log.len;
    check_shown(x);
    if (!x->r.failed)
        x->log.len = log; /* successful checks are not part of the script */
    if (draw(x, 6) == 0) {
        op_sync(x);
        check_file(x);
    }
}

static void end_mount(struct random *x)
{
    for (int turn = 0; turn < 2; turn++) /* first the handles that have written */
        for (int h = 0; h < OPEN; h++)
            if (x->p.handle[h])
                op_close(x, h);
    for (int i = 0; i < NAMES; i++)
        plain_orphan(&x->p, i);
    run(x, "reopen");
    for (int i = 0; i < KEYS; i++) {
        struct slot *s = &x->p.slot[i];
        s->known = s->stored;
        s->parked = s->removed = s->anew = s->gone = false;
        if (s->stored)
            (void)plain_show(&x->p, i);
    }
}

static void run_seed(uint64_t seed)
{
    static const enum edit_strategy ways[] = {EDIT_AUTO, EDIT_COPY};
    static const enum live_commit modes[] = {LIVE_COMMIT_AUTO, LIVE_COMMIT_CLOSE, LIVE_COMMIT_SYNC};
    static const char *const mode_names[] = {"auto", "close", "sync"};
    struct random x = {.state = seed * 0x9e3779b97f4a7c15 + 1};
    unsigned mode = draw(&x, 3);
    (void)snprintf(x.name, sizeof(x.name), "seed %llu", (unsigned long long)seed);
    plain_init(&x.p);
    x.s.name = x.name;
    x.r.s = &x.s;
    x.r.mode = mode_names[mode];
    x.r.opt = (struct tree_options){.strategy = ways[draw(&x, 2)],
                                    .commit = modes[mode],
                                    .reserve = draw(&x, 2) ? draw(&x, 5000) : EDIT_RESERVE_AUTO};
    script_model_make(&x.r.m, draw(&x, 2) ? SCRIPT_BIG : 0);
    script_start(&x.r);
    for (int mount = 0; mount < MOUNTS && !x.r.failed; mount++) {
        for (int i = 0; i < OPS && !x.r.failed; i++)
            step(&x);
        end_mount(&x);
        check_file(&x);
    }
    if (x.r.failed)
        (void)printf("\n    %.*s\n", (int)x.log.len, (const char *)x.log.data);
    CU_ASSERT_EQUAL(script_finish(&x.r), 0);
    script_model_drop(&x.r.m);
    buf_free(&x.log);
}

static void test_random(void)
{
    soak_count("operations compared", soak_seeds(100, run_seed) * MOUNTS * OPS);
}

static CU_TestInfo tests[] = {
    {"random operations agree with a simple model", test_random},
    CU_TEST_INFO_NULL,
};

CU_MAIN("random", tests)
