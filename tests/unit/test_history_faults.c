/* SPDX-License-Identifier: MIT */
/* Edits and undos with a history, while each system call fails in turn, or the
 * process dies or the power fails at each call. Afterwards, an undo reverts the last edit in the
 * file or is refused, and what was recorded before comes back. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edit/history.h"
#include "edit/journal.h"
#include "edit/change.h"
#include "faultsys.h"
#include "history_dir.h"
#include "model_dir.h"
#include "soak.h"

/* What the edit under test does to the history. An earlier edit was recorded without faults. */
enum kind { NEW_STATE, JOINED, UNDO, KINDS };

struct way {
    enum edit_strategy s;
    bool clone;
};

static const struct way ways[] = {{EDIT_COPY, false}, {EDIT_INPLACE, false}, {EDIT_AUTO, true}};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* ---- a model and its history ---- */

struct world {
    struct fixture x;
    struct home home;
    struct gguf *keys[3]; /* keys at first, after the first edit, and after the second */
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
    static uint8_t none[1 << 16]; /* an image that is never read */
    make_edit(d, g, none, sizeof(none), s, letter, 50);
}

static void plan_undo(const struct gguf *g, const struct gguf *keys, enum edit_strategy s,
                      struct edit *d)
{
    CLEANUP(edit_change_free) struct edit_change c;
    edit_change_init(&c, &(struct edit_base){.g = g});
    *d = (struct edit){.o = {.strategy = s, .reserve = EDIT_RESERVE_AUTO}};
    CU_ASSERT_EQUAL_FATAL(edit_restore(&c, keys, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &d->o, &d->p, NULL), 0);
}

/* Make an edit with its history, and return the commit's result. If it cannot be recorded, it is
 * made all the same, as in the daemon. */
static int record(struct history *h, struct edit_file *f, struct edit *d, const struct gguf *g,
                  int64_t now, bool undo)
{
    CLEANUP(edit_change_free) struct edit_change c;
    struct edit_result res;
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL_FATAL(edit_restore(&c, d->p.next, NULL), 0);
    const struct history_edit edit = {&c, d->p.next, undo, now};
    (void)history_append(h, &edit, NULL);
    int done = commit(f, d, &res, NULL);
    history_end(h, done == 0 || res.unfinished, now);
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
    w->keys[0] = present(w);
    plan_text(w->keys[0], way->s, 'a', &d);
    struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = way->clone;
    struct edit_file f = open_model(&w->x, &fs.sys);
    CU_ASSERT_EQUAL_FATAL(record(&w->home.h, &f, &d, w->keys[0], 1000, false), 0);
    edit_file_close(&f);
    edit_done(&d);
    w->keys[1] = present(w);
    second(w, way, kind, &d);
    w->keys[2] = gguf_ref(d.p.next);
    edit_done(&d);
}

static void world_free(struct world *w)
{
    for (int i = 0; i < 3; i++)
        gguf_free(w->keys[i]);
    home_teardown(&w->home);
    teardown(&w->x);
}

/* Make the edit under test with the given system calls. */
static int run(struct world *w, const struct way *way, enum kind kind, const struct sys *sys)
{
    struct edit d;
    w->home.h.sys = sys;
    second(w, way, kind, &d);
    struct edit_file f = open_model(&w->x, sys);
    int done = record(&w->home.h, &f, &d, w->keys[1], kind == JOINED ? 1005 : 1100, kind == UNDO);
    edit_file_close(&f);
    edit_done(&d);
    w->home.h.sys = calm();
    return done;
}

/* Return what an undo of these keys would restore (by index), or -errno. */
static int undoes(const struct world *w, uint64_t number, const struct gguf *now)
{
    struct history_pick p;
    int r = history_pick(&w->home.h, number, now, &p, NULL);
    for (int i = 0; r == 0 && i < 3; i++)
        if (same_keys(p.keys, w->keys[i]))
            r = i + 1;
    history_pick_free(&p);
    return r > 0 ? r - 1 : r;
}

/* Check which edit an undo would now revert: the first, the second, or neither. failed: something
 * failed, so the second edit may have no record, or one that could not join the first. */
static void check(struct world *w, const struct way *way, enum kind kind, bool failed,
                  const char *what)
{
    struct err e = {0};
    struct edit_recovered found;
    struct edit_file f = open_model(&w->x, calm());
    CU_ASSERT_EQUAL(edit_recover(&f, &found, &e), 0);
    edit_file_close(&f);
    struct gguf *now = present(w);
    const bool landed = same_keys(now, w->keys[2]);
    CU_ASSERT_TRUE(landed || same_keys(now, w->keys[1]));
    const int r = undoes(w, 0, now), want = landed && kind != JOINED;
    /* Without the record of an undo, the edit that it took back looks as if it was not done. */
    const int lost = kind == UNDO ? -ENOENT : -ESTALE;
    const bool recorded = r != lost, good = recorded ? r == want : failed && landed;
    if (!good)
        (void)printf("\n%s, way %d, kind %d: %s: %d\n", what, way->s, kind, landed ? "new" : "old",
                     r);
    CU_ASSERT_TRUE(good);
    if (recorded)
        CU_ASSERT_EQUAL(undoes(w, 1, now), 0);
    /* The next edit can be undone, and nothing is left of what went wrong. */
    struct gguf *to = w->keys[same_keys(now, w->keys[0])];
    CU_ASSERT_EQUAL(files(&w->x), 1);
    CU_ASSERT_EQUAL(save(&w->home.h, now, to, 2000, 0, NULL), 0);
    CU_ASSERT_EQUAL(home_files(&w->home), 1);
    CU_ASSERT_EQUAL(undoes(w, 0, to), landed ? (same_keys(w->keys[2], w->keys[0]) ? 0 : 2) : 1);
    gguf_free(now);
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
    check(&w, way, kind, fs.hit, fs.hit ? fs.what : "none");
    world_free(&w);
    return fs.hit;
}

static void test_fail(void)
{
    static const int errors[] = {-EIO, -EINTR};
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
    pid_t child = cu_fork();
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
    check(&w, way, kind, false, mode == FAULT_POWER ? "cut" : "kill");
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
    {"if any call fails, the keys are right or refused", test_fail},
    {"a kill at any call leaves the right keys", test_kill},
    {"a power cut at any call leaves the right keys", test_power},
    CU_TEST_INFO_NULL,
};

CU_MAIN("history_faults", tests)
