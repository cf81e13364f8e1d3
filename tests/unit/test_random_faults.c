/* SPDX-License-Identifier: MIT */
/* Random operations on keys, helpers and open files, in random commit modes, while writes are held,
 * fail, or are interrupted. The invariants of names (objects.h) hold after each operation. After
 * each write, successful or not, the tree is compared with a simple model: keys not touched since
 * the write began are as in the file, and no other file is left beside the model. Each run is
 * generated from a seed. A run that fails prints its seed, and its operations as a script (see
 * script.h); GGUFS_SEED=N in the environment repeats just that run. Values are numbers that fit any
 * type, and each is used only once. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu_main.h"
#include "live/batch.h"
#include "live/edits.h"
#include "script_run.h"
#include "soak.h"
#include "tree/nodes.h"

enum { WRITES = 6, OPEN = 4 };

static const char *const names[] = {"a.name", "a.count", "a.other", "a.list",   "b.new",
                                    ".h",     ".i",      "a.name~", "a.count~", "b.new~"};
enum { NAMES = sizeof(names) / sizeof(names[0]), KEYS = 5 };

struct random {
    struct run r;
    struct script s;
    char name[48];
    uint64_t state; /* state of the random number generator */
    unsigned value; /* last value drawn */
    bool sync;      /* true: commit=sync; false: commit=close */
    bool touched[NAMES];
    struct buf log;
};

static unsigned draw(struct random *x, unsigned n)
{
    return soak_draw(&x->state, n);
}

/* ---- invariants ---- */

static void check(struct random *x, bool good, const char *what, const struct name *name)
{
    if (!good && !x->r.failed)
        script_fail(&x->r, "%s: %s", name->text, what);
}

static void check_file_of(struct random *x, const struct live *l, const struct name *name,
                          const struct file *f)
{
    check(x, file_name(f) == name, "its file has another name", name);
    check(x, name->key || f->kind != FILE_KEY, "a helper's name has the file of a key", name);
    check(x, f->kind != FILE_HELPER || f->draft || f->content.len, "an empty helper", name);
    check(x, !f->parked || f->parked->backup == f, "is not a backup", name);
    if (f->kind == FILE_KEY)
        check(x, stored_has(l, name) || f->draft, "is shown, and has no value", name);
}

static void check_name(struct random *x, const struct live *l, const struct name *name)
{
    bool gone = name->doomed || name->backup;
    if (name->file)
        check_file_of(x, l, name, name->file);
    check(x, !gone || (stored_has(l, name) && !name->file), "is hidden, and is not stored", name);
    check(x, !name->doomed || !name->backup, "is removed, and has a backup", name);
    check(x, !name->backup || name->backup->parked == name, "its backup is another's", name);
}

/* Return the size of all helpers, named or not, plus the bytes that keys still hold from when they
 * were helpers. */
static uint64_t helper_bytes(const struct names *n)
{
    uint64_t sum = 0;
    for (const struct link *i = table_each(&n->by_number, NULL); i;
         i = table_each(&n->by_number, i)) {
        const struct file *f = (const struct file *)i;
        sum += f->content.len;
        sum += f->kind == FILE_HELPER && f->draft ? f->draft->text.len : 0;
    }
    return sum;
}

static struct live *live_of(const struct random *x)
{
    return x->r.t ? atomic_load(&x->r.t->live) : NULL;
}

static void check_names(struct random *x)
{
    struct live *l = live_of(x);
    size_t doomed = 0;
    if (!l)
        return;
    lock_take(&l->lock);
    for (const struct name *name = l->names.oldest; name; name = name->newer) {
        check_name(x, l, name);
        doomed += name->doomed;
    }
    check(x, doomed == l->names.n_doomed, "so many are not removed", l->names.oldest);
    check(x, helper_bytes(&l->names) == l->names.helper_bytes, "so much room is not taken",
          l->names.oldest);
    lock_drop(&l->lock);
}

__attribute__((format(printf, 2, 3))) static void run(struct random *x, const char *fmt, ...)
{
    char op[160];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(op, sizeof(op), fmt, ap);
    va_end(ap);
    if (x->r.failed)
        return;
    buf_printf(&x->log, "%s; ", op);
    script_do(&x->r, op, strlen(op));
    check_names(x);
}

/* ---- the simple model ---- */

static int number_of(const struct name *name)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(names[i], name->text) == 0)
            return i;
    return -1;
}

static void touch_name(struct random *x, const struct name *name)
{
    int i = name ? number_of(name) : -1;
    if (i >= 0)
        x->touched[i] = true;
}

/* Mark a name as touched and, if it is a backup, its key too. */
static void touch(struct random *x, int i)
{
    struct live *l = live_of(x);
    x->touched[i] = true;
    if (!l)
        return;
    lock_take(&l->lock);
    const struct name *name = names_find(&l->names, names[i]);
    if (name && name->file)
        touch_name(x, name->file->parked);
    lock_drop(&l->lock);
}

/* An operation on a handle may touch any file with a draft. */
static void touch_open(struct random *x)
{
    struct live *l = live_of(x);
    if (!l)
        return;
    lock_take(&l->lock);
    for (const struct name *name = l->names.oldest; name; name = name->newer)
        if (name->file && name->file->draft)
            touch_name(x, name);
    lock_drop(&l->lock);
}

/* Returns true if the key shows exactly its stored value. *shown: whether the key can be opened. */
static bool is_plain(const struct random *x, int i, bool *shown)
{
    struct live *l = live_of(x);
    lock_take(&l->lock);
    const struct file *f = look_find(l, names[i]);
    const struct name *name = names_find(&l->names, names[i]);
    *shown = f;
    bool plain = !name || (!name->backup && !(*shown && f->draft));
    lock_drop(&l->lock);
    return plain;
}

/* Check that keys not touched since the write began are as in the file. */
static void check_untouched(struct random *x)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT;
    char want[32], text[32];
    struct content now = script_model_file(&x->r.m);
    buf_char(&keys, ' ');
    if (!script_model_keys(now.bytes, now.n, &keys) || !script_model_whole(&x->r.m))
        script_fail(&x->r, "the file is not a regular model, or another one was left");
    free(now.bytes);
    for (int i = 0; i < KEYS && !x->r.failed && live_of(x); i++) {
        bool shown;
        if (!is_plain(x, i, &shown) || x->touched[i])
            continue;
        (void)snprintf(want, sizeof(want), " %s:", names[i]);
        const char *at = strstr((const char *)keys.data, want);
        if (shown != (at != NULL))
            script_fail(&x->r, "%s is %s", names[i], shown ? "shown" : "not shown");
        if (!at || strchr(at + 1, ',') < strchr(at + 1, ' ')) /* absent, or the initial list */
            continue;
        at = strchr(at, '=') + 1;
        (void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(at, " "), at);
        run(x, "text %s '%s\n'", names[i], text);
    }
}

/* ---- operations ---- */

/* Returns true for a key without a stored value. */
static bool is_unfinished(const struct random *x, int i)
{
    struct live *l = live_of(x);
    if (!l)
        return false;
    lock_take(&l->lock);
    const struct name *name = names_find(&l->names, names[i]);
    bool unfinished = name && name->key && name->file && !stored_has(l, name);
    lock_drop(&l->lock);
    return unfinished;
}

static int any(struct random *x)
{
    int i = (int)draw(x, NAMES);
    touch(x, i);
    return i;
}

static unsigned value(struct random *x)
{
    return x->value += 1 + draw(x, 9);
}

static void op_open(struct random *x, int h)
{
    static const char *const how[] = {"rw trunc creat", "rw creat", "r"};
    unsigned way = draw(x, 3);
    run(x, "open %c %s %s", 'A' + h, names[any(x)], how[way]);
    if (x->r.handle[h].f && way < 2)
        run(x, "write %c '%u' 0", 'A' + h, value(x));
}

static void op_handle(struct random *x, int h)
{
    static const char *const how[] = {"flush", "close", "close", "release"};
    touch_open(x);
    if (draw(x, 2))
        run(x, "%s %c", how[draw(x, 4)], 'A' + h);
    else
        run(x, "write %c '%u' %u", 'A' + h, value(x), draw(x, 2));
}

static void step(struct random *x)
{
    int h = (int)draw(x, OPEN), name;
    switch (draw(x, 10)) {
    case 0:
    case 1:
        name = any(x);
        run(x, "put %s '%u'", names[name], value(x));
        break;
    case 2:
    case 3:
        run(x, "rm %s", names[any(x)]);
        break;
    case 4:
    case 5:
    case 6:
        name = any(x);
        if (!is_unfinished(x, name))
            run(x, "mv %s %s", names[name], names[any(x)]);
        break;
    case 7:
        name = any(x);
        run(x, "type %s %s", names[name], draw(x, 2) ? "u64" : "string");
        break;
    default:
        (x->r.handle[h].f ? op_handle : op_open)(x, h);
    }
}

/* ---- writes ---- */

static void steps(struct random *x, unsigned n)
{
    for (unsigned i = 0; i < n && !x->r.failed; i++)
        step(x);
}

/* While a write is held, other writers wait for the next write. */
static void step_and_wait(struct random *x)
{
    int name = any(x), h = (int)draw(x, OPEN);
    if (draw(x, 2) && !is_unfinished(x, name))
        run(x, "& mv %s %s", names[name], names[any(x)]);
    else if (x->r.handle[h].f)
        run(x, "& flush %c", 'A' + h);
    else
        return;
    touch_open(x);
    if (draw(x, 3) == 0)
        run(x, "interrupt");
}

static void begin_write(struct random *x)
{
    run(x, "hold");
    if (x->sync) {
        run(x, "put a.other '%u'", value(x));
        memset(x->touched, 0, sizeof(x->touched));
        run(x, "& fsync");
    } else {
        run(x, "put .w '%u'", value(x));
        memset(x->touched, 0, sizeof(x->touched));
        touch(x, 2);
        run(x, "& mv .w a.other");
    }
    run(x, "held");
}

static void end_write(struct random *x)
{
    bool all = draw(x, 5) == 0;
    if (all)
        run(x, "fail EIO");
    run(x, draw(x, 3) ? "go EIO" : "go");
    while (x->r.waited < x->r.started && !x->r.failed)
        run(x, "wait");
    x->r.waited = x->r.started = 0;
    run(x, "fail");
}

static void one_write(struct random *x)
{
    steps(x, draw(x, 8));
    begin_write(x);
    for (unsigned n = draw(x, 4); n > 0 && !x->r.failed; n--) {
        steps(x, x->sync ? draw(x, 4) : 0);
        if (x->sync && draw(x, 4))
            continue;
        step_and_wait(x);
    }
    end_write(x);
    check_untouched(x);
}

/* ---- runs ---- */

static void run_seed(uint64_t seed)
{
    struct random x = {.state = seed * 0x9e3779b97f4a7c15 + 1, .value = 10};
    x.sync = draw(&x, 2);
    (void)snprintf(x.name, sizeof(x.name), "seed %llu", (unsigned long long)seed);
    x.s.name = x.name;
    x.r = (struct run){.s = &x.s, .mode = x.sync ? "sync" : "close", .lenient = true};
    x.r.opt = (struct tree_options){.strategy = EDIT_COPY,
                                    .commit = x.sync ? LIVE_COMMIT_SYNC : LIVE_COMMIT_CLOSE,
                                    .log = {.line = script_log}};
    script_model_make(&x.r.m, 0);
    script_start(&x.r);
    for (int i = 0; i < WRITES && !x.r.failed; i++)
        one_write(&x);
    for (int h = 0; h < OPEN && !x.r.failed; h++)
        if (x.r.handle[h].f)
            run(&x, "close %c", 'A' + h);
    memset(x.touched, 0, sizeof(x.touched));
    run(&x, "fsync");
    check_untouched(&x);
    if (x.r.failed)
        (void)printf("\n    %.*s\n", (int)x.log.len, (const char *)x.log.data);
    CU_ASSERT_EQUAL(script_finish(&x.r), 0);
    script_model_drop(&x.r.m);
    buf_free(&x.log);
}

static void test_random(void)
{
    soak_count("writes held, failed or interrupted", soak_seeds(400, run_seed) * WRITES);
}

static CU_TestInfo tests[] = {
    {"names stay consistent whether writes succeed or fail", test_random},
    CU_TEST_INFO_NULL,
};

CU_MAIN("random faults", tests)
