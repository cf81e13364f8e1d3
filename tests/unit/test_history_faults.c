/* SPDX-License-Identifier: MIT */
/* Edits and undos with a history, while each system call and allocation fails in turn, or the
 * process dies or the power fails at each call. Afterwards, an undo reverts the last edit in the
 * file or is refused, and all states are complete. Each case runs on a single thread and then, as
 * in a daemon, with a history job beside the writing thread. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "alloc.h"
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
    bool job;
};

static const struct way ways[] = {{EDIT_COPY, false, false},
                                  {EDIT_INPLACE, false, false},
                                  {EDIT_REFLINK, true, false},
                                  {EDIT_COPY, false, true},
                                  {EDIT_INPLACE, false, true}};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

/* ---- calls of two threads, one at a time ---- */

static pthread_mutex_t one_call = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* recursive for list() */
static const struct sys *behind;

#define IN_TURN(type, name, params, ...)                 \
    static type turn_##name params                       \
    {                                                    \
        (void)s;                                         \
        (void)pthread_mutex_lock(&one_call);             \
        type turn_r = behind->name(behind, __VA_ARGS__); \
        (void)pthread_mutex_unlock(&one_call);           \
        return turn_r;                                   \
    }

#define SYS const struct sys *s
IN_TURN(int, openat, (SYS, int dir, const char *name, int flags, mode_t mode), dir, name, flags,
        mode)
IN_TURN(int, close, (SYS, int fd), fd)
IN_TURN(ssize_t, pread, (SYS, int fd, void *p, size_t n, uint64_t off), fd, p, n, off)
IN_TURN(ssize_t, pwrite, (SYS, int fd, const void *p, size_t n, uint64_t off), fd, p, n, off)
IN_TURN(int, ftruncate, (SYS, int fd, uint64_t size), fd, size)
IN_TURN(int, fsync, (SYS, int fd), fd)
IN_TURN(int, flock, (SYS, int fd, int how), fd, how)
IN_TURN(int, seek, (SYS, int fd, uint64_t off, int from, uint64_t *ret), fd, off, from, ret)
IN_TURN(ssize_t, copy_range, (SYS, int from, uint64_t a, int to, uint64_t b, size_t n), from, a, to,
        b, n)
IN_TURN(int, fstat, (SYS, int fd, struct stat *ret), fd, ret)
IN_TURN(int, fstatat, (SYS, int dir, const char *name, struct stat *ret), dir, name, ret)
IN_TURN(int, fstatvfs, (SYS, int fd, struct statvfs *ret), fd, ret)
IN_TURN(int, fchmod, (SYS, int fd, mode_t mode), fd, mode)
IN_TURN(int, fchown, (SYS, int fd, uid_t uid, gid_t gid), fd, uid, gid)
IN_TURN(ssize_t, flistxattr, (SYS, int fd, char *dst, size_t n), fd, dst, n)
IN_TURN(ssize_t, fgetxattr, (SYS, int fd, const char *name, void *p, size_t n), fd, name, p, n)
IN_TURN(int, fremovexattr, (SYS, int fd, const char *name), fd, name)
IN_TURN(int, rename, (SYS, int dir, const char *a, const char *b, unsigned flags), dir, a, b, flags)
IN_TURN(int, unlinkat, (SYS, int dir, const char *name), dir, name)
IN_TURN(int, mkdirat, (SYS, int dir, const char *name, mode_t mode), dir, name, mode)
IN_TURN(int, list, (SYS, int dir, int (*fn)(void *, const char *), void *arg), dir, fn, arg)

/* Only calls made by the edit are wrapped. */
static const struct sys in_turn = {.openat = turn_openat,
                                   .close = turn_close,
                                   .pread = turn_pread,
                                   .pwrite = turn_pwrite,
                                   .ftruncate = turn_ftruncate,
                                   .fsync = turn_fsync,
                                   .flock = turn_flock,
                                   .seek = turn_seek,
                                   .copy_range = turn_copy_range,
                                   .fstat = turn_fstat,
                                   .fstatat = turn_fstatat,
                                   .fstatvfs = turn_fstatvfs,
                                   .fchmod = turn_fchmod,
                                   .fchown = turn_fchown,
                                   .flistxattr = turn_flistxattr,
                                   .fgetxattr = turn_fgetxattr,
                                   .fremovexattr = turn_fremovexattr,
                                   .rename = turn_rename,
                                   .unlinkat = turn_unlinkat,
                                   .mkdirat = turn_mkdirat,
                                   .list = turn_list};

/* ---- a model and its history ---- */

struct world {
    struct fixture x;
    struct home home;
    struct gguf *keys[3]; /* keys at first, after the first edit, and after the second */
    int64_t begin;        /* time of the first edit */
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

/* Number of the allocation that must fail (0: none), and whether it has failed. */
static unsigned alloc_fails;
static bool alloc_failed;

/* Make an edit with its history, and return the commit's result. If no state can be recorded, the
 * edit continues, as in the daemon. */
static int record(struct history *h, struct edit_file *f, struct edit *d, struct gguf *g,
                  int64_t now, bool undo)
{
    struct edit_result res;
    struct recorded_edit edit = {g, d->p.next, undo, now, 0};
    alloc_arm(alloc_fails, false);
    (void)history_record(h, &edit, NULL);
    int done = commit(f, d, &res, NULL);
    if (done == 0)
        (void)history_end(h, edit_keys_id(d->p.next), now, NULL);
    alloc_failed = alloc_disarm();
    return done;
}

static void on_ready(void *job)
{
    history_job_wait(job);
}

/* Make an edit whose history is recorded by a job, which uses the real clock. */
static int record_beside(struct edit_file *f, struct edit *d, struct gguf *before, bool undo)
{
    const struct logger log = {0};
    struct edit_result res;
    struct history_job *k = NULL;
    alloc_arm(alloc_fails, false);
    int r = history_job_make("/models/m.gguf", HISTORY_KEEP, f->sys, &log, &k);
    const struct edit_hooks hooks = {.ready = r == 0 ? on_ready : NULL, .arg = k};
    if (r == 0)
        history_job_begin(k, before, d->p.next, undo);
    r = edit_commit(f, &d->p, &d->o, &hooks, &res, NULL);
    if (res.old_fd >= 0)
        (void)close(res.old_fd);
    if (k)
        history_job_end(k, r == 0);
    history_job_close(k);
    alloc_failed = alloc_disarm();
    return r;
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
    w->begin = time(NULL) - (kind == JOINED ? 0 : 100);
    w->keys[0] = present(w);
    plan_text(w->keys[0], way->s, 'a', &d);
    struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = way->clone;
    struct edit_file f = open_model(&w->x, &fs.sys);
    CU_ASSERT_EQUAL_FATAL(record(&w->home.h, &f, &d, w->keys[0], w->begin, false), 0);
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
    char state[80];
    struct edit d;
    struct gguf *before;
    int done;
    (void)snprintf(state, sizeof(state), "%s/state", w->home.path);
    (void)setenv("XDG_STATE_HOME", state, 1);
    behind = sys;
    sys = way->job ? &in_turn : sys;
    w->home.h.sys = sys;
    before = present(w);
    second(w, way, kind, &d);
    struct edit_file f = open_model(&w->x, sys);
    if (way->job)
        done = record_beside(&f, &d, before, kind == UNDO);
    else
        done = record(&w->home.h, &f, &d, w->keys[1], w->begin + (kind == JOINED ? 5 : 100),
                      kind == UNDO);
    edit_file_close(&f);
    edit_done(&d);
    gguf_free(before);
    w->home.h.sys = calm();
    return done;
}

/* Check that another edit succeeds and that earlier edits have left no file, either beside the
 * model or in the history. */
static void check_rest(struct world *w, struct gguf *now)
{
    CU_ASSERT_EQUAL(files(&w->x), 1);
    struct gguf *to = w->keys[same_keys(now, w->keys[0])];
    CU_ASSERT_TRUE(save(&w->home.h, now, to, time(NULL) + 100, 0, NULL) > 0);
    struct history_states f;
    CU_ASSERT_EQUAL(history_load(&w->home.h, &f, NULL), 0);
    CU_ASSERT_TRUE(f.n >= 2 && f.n <= 3 && f.damaged == 0);
    CU_ASSERT_EQUAL(home_files(&w->home), f.n);
    history_states_free(&f);
}

/* Check which edit an undo would now revert: the first, the second, or neither. */
static void check(struct world *w, const struct way *way, enum kind kind, bool may_refuse,
                  const char *what)
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
    /* The edit starts a new state if the state to join could not be read or, with the real clock,
     * if the test was delayed. */
    bool own = (may_refuse || way->job) && kind == JOINED && landed;
    bool good = r == 0
                    ? p.fits && (same_keys(p.keys, want) || (own && same_keys(p.keys, w->keys[1])))
                    : may_refuse && r == -ESTALE && landed;
    if (!good)
        (void)printf("\n%s, kind %d: %s: %d %s\n", what, kind, landed ? "new" : "old", r, e.msg);
    CU_ASSERT_TRUE(good);
    history_pick_free(&p);
    /* An undo by number always works. */
    CU_ASSERT_EQUAL(history_pick(&w->home.h, 1, now, &p, &e), 0);
    CU_ASSERT_TRUE(same_keys(p.keys, w->keys[0]));
    history_pick_free(&p);
    check_rest(w, now);
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
        CU_ASSERT_TRUE(numbers_are(&w.home.h, 1, i % KINDS == JOINED ? 1 : 2));
        check(&w, &ways[i / KINDS], i % KINDS, false, "calm");
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
    check(&w, way, kind, fs.hit, fs.hit ? fs.what : "none");
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

static bool no_memory_at(const struct way *way, enum kind kind, unsigned n)
{
    struct world w;
    struct faultsys fs;
    world_make(&w, way, kind);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = way->clone;
    alloc_fails = n;
    (void)run(&w, way, kind, &fs.sys);
    alloc_fails = 0;
    check(&w, way, kind, alloc_failed, "no memory");
    world_free(&w);
    return alloc_failed;
}

static void test_memory(void)
{
    for (size_t i = 0; i < WAYS * KINDS; i++) {
        unsigned n = 1;
        while (no_memory_at(&ways[i / KINDS], i % KINDS, n))
            n++;
        CU_ASSERT_TRUE(n > 3);
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
    {"an edit, a joined edit and an undo are recorded", test_calm},
    {"if any call fails, the keys are right or refused", test_fail},
    {"if any allocation fails, the keys are right or refused", test_memory},
    {"a kill at any call leaves the right keys", test_kill},
    {"a power cut at any call leaves the right keys", test_power},
    CU_TEST_INFO_NULL,
};

CU_MAIN("history_faults", tests)
