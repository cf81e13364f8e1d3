/* SPDX-License-Identifier: MIT */
/*
 * Edits and undos with their history while every system call fails in turn, and while the process or
 * the power goes away at each of them: an undo is of the last edit that is in the file, or it is
 * refused.
 */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edit/history_look.h"
#include "edit/recorder.h"
#include "edit/recover.h"
#include "edit/restore.h"
#include "faultsys.h"
#include "history_dir.h"
#include "model_dir.h"
#include "soak.h"

/* What the edit under test is, after one that was made and recorded without faults. */
enum kind { NEW_STATE, JOINED, UNDO, KINDS };

struct way {
    enum edit_strategy s;
    bool clone;
};

static const struct way ways[] = {{EDIT_COPY, false}, {EDIT_INPLACE, false}, {EDIT_REFLINK, true}};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

#define BEGIN 1000 /* when the first edit was made */

/* A model and its history; the keys at first, after the first edit, and after the second. */
struct world {
    struct fixture x;
    struct home home;
    struct gguf *keys[3];
};

static struct gguf *present(const struct world *w)
{
    size_t n;
    struct gguf *g = NULL;
    uint8_t *now = get_file(w->x.dir, NAME, &n);
    struct source s = source_mem(now, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    free(now);
    return g;
}

static void plan_text(const struct gguf *g, enum edit_strategy s, char letter, struct edit *d)
{
    static uint8_t none[1 << 16]; /* the image is not asked for */
    make_edit(d, g, none, sizeof(none), s, letter, 50);
}

static void plan_undo(const struct gguf *g, const struct gguf *keys, enum edit_strategy s,
                      struct edit *d)
{
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, g, NULL);
    *d = (struct edit){.o = {.strategy = s, .reserve = EDIT_RESERVE_AUTO}};
    CU_ASSERT_EQUAL_FATAL(edit_restore(&c, keys, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &d->o, &d->p, NULL), 0);
}

/* One edit with its history; the commit's result. It goes on without a state, as the daemon does. */
static int record(struct recorder *r, struct edit_file *f, struct edit *d, const struct gguf *g,
                  int64_t now, bool undo)
{
    struct edit_result res;
    struct recorded_edit edit = {.keys = g,
                                 .before = edit_keys_id(g),
                                 .after = edit_keys_id(d->p.next),
                                 .undo = undo,
                                 .restored = undo,
                                 .now = now};
    (void)recorder_begin(r, &edit, NULL);
    int done = commit(f, d, &res, NULL);
    (void)recorder_end(r, done == 0, now, NULL);
    return done;
}

static void second(const struct world *w, const struct way *way, enum kind kind, struct edit *d)
{
    if (kind == UNDO)
        plan_undo(w->keys[1], w->keys[0], way->s, d);
    else
        plan_text(w->keys[1], way->s, 'b', d);
}

static void world_make(struct world *w, const struct way *way, enum kind kind)
{
    struct edit d;
    setup_with(&w->x, 0);
    home_setup(&w->home);
    struct recorder r = {.h = &w->home.h};
    w->keys[0] = present(w);
    plan_text(w->keys[0], way->s, 'a', &d);
    struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = way->clone;
    struct edit_file f = open_model(&w->x, &fs.sys);
    CU_ASSERT_EQUAL_FATAL(record(&r, &f, &d, w->keys[0], BEGIN, false), 0);
    edit_file_close(&f);
    edit_done(&d);
    w->keys[1] = present(w);
    second(w, way, kind, &d);
    w->keys[2] = edit_plan_steal(&d.p);
    /* Its head is the plan's no more. */
    edit_done(&d);
}

static void world_free(struct world *w)
{
    for (int i = 0; i < 3; i++)
        gguf_free(w->keys[i]);
    home_teardown(&w->home);
    teardown(&w->x);
}

/* The edit under test, by other calls than the world's. */
static int run(struct world *w, const struct way *way, enum kind kind, const struct sys *sys)
{
    struct edit d;
    struct recorder r = {.h = &w->home.h};
    w->home.h.sys = sys;
    second(w, way, kind, &d);
    struct edit_file f = open_model(&w->x, sys);
    int done = record(&r, &f, &d, w->keys[1], BEGIN + (kind == JOINED ? 5 : 100), kind == UNDO);
    edit_file_close(&f);
    edit_done(&d);
    w->home.h.sys = calm();
    return done;
}

/* What an undo of what is there now would restore: of the first edit, of the second, or neither. */
static void check(struct world *w, enum kind kind, bool may_refuse, const char *what)
{
    struct history_pick p;
    struct err e = {0};
    struct edit_recovered found;
    struct edit_file f = open_model(&w->x, calm());
    CU_ASSERT_EQUAL(edit_recover(&f, &found, &e), 0);
    edit_file_close(&f);
    struct gguf *now = present(w);
    bool landed = same_keys(now, w->keys[2]);
    CU_ASSERT_TRUE(landed || same_keys(now, w->keys[1]));
    int r = history_pick(&w->home.h, 0, now, &p, &e);
    const struct gguf *want = landed && kind != JOINED ? w->keys[1] : w->keys[0];
    /* Where the state to join could not be looked at, the edit got one of its own. */
    bool own = may_refuse && kind == JOINED && landed;
    bool good = r == 0
                    ? p.fits && (same_keys(p.keys, want) || (own && same_keys(p.keys, w->keys[1])))
                    : may_refuse && r == -ESTALE && landed;
    if (!good)
        (void)printf("\n%s, kind %d: %s: %d %s\n", what, kind, landed ? "new" : "old", r, e.msg);
    CU_ASSERT_TRUE(good);
    history_pick_free(&p);
    /* By number it works in any case. */
    CU_ASSERT_EQUAL(history_pick(&w->home.h, 1, now, &p, &e), 0);
    CU_ASSERT_TRUE(same_keys(p.keys, w->keys[0]));
    history_pick_free(&p);
    gguf_free(now);
}

static void test_calm(void)
{
    for (size_t i = 0; i < WAYS * KINDS; i++) {
        struct world w;
        struct faultsys fs;
        world_make(&w, &ways[i / KINDS], i % KINDS);
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.clone = ways[i / KINDS].clone;
        CU_ASSERT_EQUAL(run(&w, &ways[i / KINDS], i % KINDS, &fs.sys), 0);
        CU_ASSERT_FALSE(fs.loose);
        CU_ASSERT_EQUAL(home_files(&w.home), i % KINDS == JOINED ? 1 : 2);
        check(&w, i % KINDS, false, "calm");
        world_free(&w);
    }
}

static bool fail_at(const struct way *way, enum kind kind, enum fault_mode mode, unsigned n,
                    int error)
{
    struct world w;
    struct faultsys fs;
    world_make(&w, way, kind);
    faultsys_init(&fs, mode, n, error);
    fs.clone = way->clone;
    (void)run(&w, way, kind, &fs.sys);
    check(&w, kind, fs.hit, fs.hit ? fs.what : "none");
    world_free(&w);
    return fs.hit;
}

static void test_fail(void)
{
    static const int errors[] = {-EIO, -ENOSPC, -EROFS, -EINTR};
    for (size_t i = 0; i < WAYS * KINDS; i++)
        for (size_t k = 0; k < sizeof(errors) / sizeof(errors[0]); k++) {
            unsigned n = 1;
            while (fail_at(&ways[i / KINDS], i % KINDS, FAULT_FAIL, n, errors[k]))
                n++;
            CU_ASSERT_TRUE(n > 20);
            soak_count("faults injected", n - 1);
        }
}

static bool die_at(const struct way *way, enum kind kind, enum fault_mode mode, unsigned n,
                   uint64_t seed)
{
    struct world w;
    int status = 0;
    world_make(&w, way, kind);
    pid_t child = fork();
    CU_ASSERT_TRUE_FATAL(child >= 0);
    if (child == 0) {
        struct faultsys fs;
        faultsys_init(&fs, mode, n, 0);
        fs.clone = way->clone;
        fs.seed = seed;
        (void)run(&w, way, kind, &fs.sys);
        if (mode == FAULT_POWER)
            faultsys_power_cut(&fs);
        _exit(0);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE_FATAL(WIFEXITED(status));
    /* What an edit adds to a state that is there is synced beside the edit, not before it. */
    check(&w, kind, mode == FAULT_POWER && kind == JOINED, mode == FAULT_POWER ? "cut" : "kill");
    world_free(&w);
    return WEXITSTATUS(status) == FAULT_EXIT;
}

static void test_kill(void)
{
    for (size_t i = 0; i < WAYS * KINDS; i++) {
        unsigned n = 1;
        while (die_at(&ways[i / KINDS], i % KINDS, FAULT_KILL, n, 0))
            n++;
        CU_ASSERT_TRUE(n > 20);
        soak_count("kills", n - 1);
    }
}

static void test_power(void)
{
    for (size_t i = 0; i < WAYS * KINDS; i++)
        for (uint64_t seed = 1; seed <= soak_size(2); seed++) {
            unsigned n = 1;
            while (die_at(&ways[i / KINDS], i % KINDS, FAULT_POWER, n, seed * 1000003))
                n++;
            CU_ASSERT_TRUE(n > 20);
            soak_count("disk states replayed", n);
        }
}

static CU_TestInfo tests[] = {
    {"an edit, a joined edit and an undo are recorded", test_calm},
    {"any call that fails: the right keys, or a refusal", test_fail},
    {"a kill at any call: the right keys", test_kill},
    {"a power cut at any call: the right keys", test_power},
    CU_TEST_INFO_NULL,
};

CU_MAIN("history_faults", tests)
