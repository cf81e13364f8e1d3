/* SPDX-License-Identifier: MIT */
/* Makes edits to a tree with faults: see edit_case.h. */
#include "edit_case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "cu_main.h"
#include "faultsys.h"
#include "gguf/value.h"
#include "model_dir.h"
#include "place.h"
#include "quant/types.h"
#include "soak.h"
#include "tree/nodes.h"
#include "tree_edit.h"
#include "tree_image.h"

/* ---- a model in a directory ---- */

struct way {
    const char *name;
    enum edit_strategy strategy;
    bool clone;
};

static const struct way ways[] = {
    {"copy", EDIT_COPY, false},
    {"clone", EDIT_COPY, true},
    {"inplace", EDIT_INPLACE, false},
    {"auto", EDIT_AUTO, false},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* A kind of edit, a strategy, and the file before and after the edit. */
struct edit_case {
    const struct edit_kind *kind;
    const struct way *way;
    struct content old, new;
};

static struct content make_model(void)
{
    struct build b;
    struct content i;
    static const uint8_t zeros[4096];
    char spaces[6000];
    memset(spaces, ' ', sizeof(spaces));
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "general.name", "name");
    build_u32(&b, "my.number", 7);
    build_u32(&b, "my.other", 8);
    build_array(&b, "my.list", GGUF_I32, 3);
    for (uint32_t k = 1; k <= 3; k++)
        build_item_num(&b, GGUF_I32, k);
    build_str_n(&b, KEY_RESERVE, spaces, sizeof(spaces));
    build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    build_tensor(&b, "b", I8, SHAPE(20001), NULL, 20001);
    build_tensor(&b, "c", F16_ID, SHAPE(1024, 2), zeros, sizeof(zeros));
    i.bytes = build_finish(&b, &i.n);
    return i;
}

/* ---- a tree on it ---- */

static void arm(struct faultsys *fs, const struct edit_case *c, enum fault_mode mode, unsigned n,
                int error)
{
    faultsys_init(fs, mode, n, error);
    fs->clone = c->way->clone;
}

/* Open the tree, whose edits make their system calls through fs. */
static struct tree *start(const struct place *p, const struct edit_case *c, struct faultsys *fs)
{
    struct tree_options o = {.strategy = c->way->strategy,
                             .reserve = EDIT_RESERVE_AUTO,
                             .commit = LIVE_COMMIT_CLOSE,
                             .tensors = edit_suite.tensors};
    struct tree *t = image_tree(p->model, &o);
    if (!tree_writable(t))
        (void)printf("\n%s\n", tree_why_not(t));
    CU_ASSERT_TRUE_FATAL(tree_writable(t));
    t->model.file.sys = &fs->sys;
    return t;
}

/* Return the content of model.gguf. */
static struct content shown(struct tree *t)
{
    const struct tree_image m = {.t = t};
    struct content i;
    i.bytes = (uint8_t *)image_text(&m, "model.gguf", &i.n);
    return i;
}

/* Check that model.gguf shows the current file. */
static bool shows_file(const struct place *p, struct tree *t)
{
    struct content file = file_now(p), want = as_shown(&file), view = shown(t);
    bool fits = same(&want, &view);
    free(file.bytes);
    free(want.bytes);
    free(view.bytes);
    return fits;
}

/* Check that the tree shows the current file, and can be edited. */
static void check_goes_on(const struct place *p, struct tree *t, struct faultsys *fs,
                          const struct edit_case *c, const char *when)
{
    bool fits = shows_file(p, t);
    if (!fits)
        (void)printf("\n%s, %s, %s: the tree shows another file\n", c->kind->name, c->way->name,
                     when);
    CU_ASSERT_TRUE(fits);
    arm(fs, c, FAULT_NONE, 0, 0);
    int r = edit_suite.next ? edit_suite.next(t) : 0;
    if (r == 0)
        r = do_write(t, "general.name", "next", 4);
    if (r < 0)
        (void)printf("\n%s, %s, %s: the next edit fails: %d\n", c->kind->name, c->way->name, when,
                     r);
    CU_ASSERT_EQUAL(r, 0);
    CU_ASSERT_TRUE(shows_file(p, t));
    struct content file = file_now(p);
    CU_ASSERT_PTR_NOT_NULL(
        memmem(file.bytes, file.n, "general.name\x08\0\0\0\x04\0\0\0\0\0\0\0next", 28));
    free(file.bytes);
}

static void stop(const struct place *p, struct tree *t)
{
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    CU_ASSERT_EQUAL(files_in(p), 1);
}

/* Make the edit without faults, to determine what the file becomes. Returns false if the strategy
 * does not apply to this kind. */
static bool try_case(struct edit_case *c)
{
    struct place p;
    struct faultsys fs;
    c->old = make_model();
    make_place(&p, &c->old);
    arm(&fs, c, FAULT_NONE, 0, 0);
    struct tree *t = start(&p, c, &fs);
    int r = c->kind->run(t);
    if (r != 0 && r != -EOPNOTSUPP)
        (void)printf("\n%s, %s: %d\n", c->kind->name, c->way->name, r);
    CU_ASSERT_TRUE(r == 0 || r == -EOPNOTSUPP);
    c->new = file_now(&p);
    CU_ASSERT_EQUAL(same(&c->old, &c->new), r < 0);
    stop(&p, t);
    drop_place(&p);
    return r == 0;
}

static void each_case(void (*test)(const struct edit_case *c))
{
    unsigned n = 0;
    for (size_t k = 0; k < edit_suite.n; k++)
        for (size_t w = 0; w < WAYS; w++) {
            struct edit_case c = {.kind = &edit_suite.kinds[k], .way = &ways[w]};
            if (try_case(&c)) {
                test(&c);
                n++;
            }
            free(c.old.bytes);
            free(c.new.bytes);
        }
    CU_ASSERT_TRUE(n > 3 * edit_suite.n);
}

/* ---- failing calls ---- */

/* Check the state after an edit in which a call failed and which returned r. */
static void check_failed(const struct place *p, struct tree *t, struct faultsys *fs,
                         const struct edit_case *c, const char *when, int r)
{
    if (r < 0 && c->kind->waits) { /* it was refused, or the next sync writes it */
        CU_ASSERT_TRUE(file_is(p, &c->old));
        arm(fs, c, FAULT_NONE, 0, 0);
        CU_ASSERT_EQUAL(do_sync(t), 0);
        r = file_is(p, &c->new) ? 0 : r;
    }
    bool good = file_is(p, r == 0 ? &c->new : &c->old);
    if (!good)
        (void)printf("\n%s, %s, %s: returned %d\n", c->kind->name, c->way->name, when, r);
    CU_ASSERT_TRUE(good);
    check_goes_on(p, t, fs, c, when);
}

static bool fail_at(const struct edit_case *c, unsigned n, int error)
{
    struct place p;
    struct faultsys fs;
    char when[64];
    make_place(&p, &c->old);
    arm(&fs, c, FAULT_NONE, 0, 0);
    struct tree *t = start(&p, c, &fs);
    arm(&fs, c, FAULT_FAIL, n, error);
    int r = c->kind->run(t);
    bool hit = fs.hit;
    (void)snprintf(when, sizeof(when), "call %u (%s) fails with %d", n, hit ? fs.what : "-", error);
    check_failed(&p, t, &fs, c, when, r);
    stop(&p, t);
    drop_place(&p);
    return hit;
}

/* Each call fails with EIO, and with another error. */
static void fail_each(const struct edit_case *c)
{
    static const int others[] = {-ENOSPC, -EDQUOT, -EINTR};
    for (unsigned i = 0; i < 2; i++) {
        unsigned n = 1;
        while (fail_at(c, n, i ? others[(n + (unsigned)(c->way - ways)) % COUNT(others)] : -EIO))
            n++;
        CU_ASSERT_TRUE(n > 10);
        soak_count("faults injected", n - 1);
    }
}

void test_fail(void)
{
    each_case(fail_each);
}

/* ---- kills and power cuts ---- */

static int die(const struct place *p, const struct edit_case *c, enum fault_mode mode, unsigned n,
               uint64_t seed)
{
    int status = 0;
    pid_t child = cu_fork();
    CU_ASSERT_TRUE_FATAL(child >= 0);
    if (child == 0) {
        struct faultsys fs;
        arm(&fs, c, FAULT_NONE, 0, 0);
        struct tree *t = start(p, c, &fs);
        arm(&fs, c, mode, n, 0);
        fs.seed = seed;
        int r = c->kind->run(t);
        if (mode == FAULT_POWER)
            faultsys_power_cut(&fs);
        _exit(r == 0 ? 0 : 1);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE_FATAL(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Check that a read-only mount shows the old or the new file, or names --recover if there is a
 * journal, and that it leaves everything unchanged. */
static void check_read_only(const struct place *p, const struct edit_case *c)
{
    struct tree_options o = {.read_only = true};
    struct tree *t = NULL;
    struct err e = {0};
    struct content file = file_now(p);
    int files = files_in(p);
    int r = tree_open(p->model, &o, &t, &e);
    if (r == 0) {
        CU_ASSERT_TRUE(file_is(p, &c->old) || file_is(p, &c->new));
        CU_ASSERT_TRUE(shows_file(p, t));
        tree_close(t);
    } else {
        CU_ASSERT_EQUAL(r, -EUCLEAN);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "--recover"));
        CU_ASSERT_EQUAL(files, 2);
    }
    CU_ASSERT_TRUE(file_is(p, &file));
    CU_ASSERT_EQUAL(files_in(p), files);
    free(file.bytes);
}

static bool die_at(const struct edit_case *c, enum fault_mode mode, unsigned n, uint64_t seed)
{
    struct place p;
    struct faultsys fs;
    struct edit_recovered found;
    struct err e = {0};
    make_place(&p, &c->old);
    int status = die(&p, c, mode, n, seed);
    CU_ASSERT_TRUE(status == 0 || status == FAULT_EXIT);
    check_read_only(&p, c);
    /* recover with --recover, or by the next mount */
    if (n & 1) {
        int r = model_recover(p.model, &found, &e);
        CU_ASSERT_EQUAL(r, 0);
        CU_ASSERT_EQUAL(files_in(&p), 1);
    }
    arm(&fs, c, FAULT_NONE, 0, 0);
    struct tree *t = start(&p, c, &fs);
    bool done = file_is(&p, &c->new), good = done || file_is(&p, &c->old);
    if (!good || (status == 0 && !done))
        (void)printf("\n%s, %s: cut at call %u, seed %llu: %s\n", c->kind->name, c->way->name, n,
                     (unsigned long long)seed, e.msg);
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(status == FAULT_EXIT || done);
    check_goes_on(&p, t, &fs, c, "after a cut");
    stop(&p, t);
    drop_place(&p);
    return status == FAULT_EXIT;
}

static void kill_each(const struct edit_case *c)
{
    unsigned n = 1;
    while (die_at(c, FAULT_KILL, n, 0))
        n++;
    CU_ASSERT_TRUE(n > 10);
    soak_count("kills", n - 1);
}

void test_kill(void)
{
    each_case(kill_each);
}

static void cut_each(const struct edit_case *c)
{
    for (uint64_t seed = 1; seed <= soak_size(1); seed++) {
        unsigned n = 1;
        while (die_at(c, FAULT_POWER, n, seed * 1000003))
            n++;
        soak_count("disk states replayed", n);
    }
}

void test_power(void)
{
    each_case(cut_each);
}
