/* SPDX-License-Identifier: MIT */
/*
 * edit/commit, edit/recover: plans carried out on real files, with every system call failing in
 * turn, and with the process or the power going away at each of them. The commit's invariants (C1
 * to C6 of commit.h, T1 to T4, J1 to J3) are what is checked.
 */
#include "cu_main.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "edit/commit.h"
#include "edit/journal.h"
#include "edit/recover.h"
#include "faultsys.h"

enum { F32 = 0, I8 = 24 };
#define NAME "model.gguf"
#define JOURNAL "." NAME ".ggufs-journal"
#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* A folder with a model in it. */
struct fixture {
    char path[64];
    int dir;
    uint8_t *old; /* the model's bytes */
    size_t old_n;
    struct gguf *g;
};

static void put_file(int dir, const char *name, const void *bytes, size_t n)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(sys_write_all(&sys_libc, fd, bytes, n, 0), 0);
    (void)close(fd);
}

static uint8_t *get_file(int dir, const char *name, size_t *n)
{
    struct stat st;
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(fstat(fd, &st), 0);
    *n = (size_t)st.st_size;
    uint8_t *bytes = malloc(*n + 1);
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, fd, bytes, *n, 0), 0);
    (void)close(fd);
    return bytes;
}

/* Tensors large enough to have whole blocks, at no block's beginning; room in the header. */
static uint8_t *make_model(uint8_t pad_byte, size_t *n)
{
    struct build b;
    build_init(&b, 3, false);
    b.pad_byte = pad_byte;
    build_str(&b, "general.architecture", "test");
    build_str(&b, "text", "old");
    build_u32(&b, "filler", 7);
    char spaces[3001];
    memset(spaces, ' ', sizeof(spaces));
    build_str_n(&b, EDIT_RESERVE_KEY, spaces, 3000);
    build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    build_tensor(&b, "b", I8, SHAPE(20001), NULL, 20001);
    build_tensor(&b, "c", I8, SHAPE(7003), NULL, 7003);
    return build_finish(&b, n);
}

static void parse_old(struct fixture *x)
{
    struct source s = source_mem(x->old, x->old_n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &x->g, NULL), 0);
}

/* What is done thousands of times is done in memory, where that can be. */
static const char *memory(void)
{
    return access("/dev/shm", R_OK | W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

static void setup_at(struct fixture *x, const char *root, uint8_t pad_byte)
{
    (void)snprintf(x->path, sizeof(x->path), "%s/ggufs-test-XXXXXX", root);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(x->path));
    x->dir = open(x->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    x->old = make_model(pad_byte, &x->old_n);
    put_file(x->dir, NAME, x->old, x->old_n);
    parse_old(x);
}

static void setup_with(struct fixture *x, uint8_t pad_byte)
{
    setup_at(x, memory(), pad_byte);
}

static void setup(struct fixture *x)
{
    setup_at(x, "/tmp", 0);
}

static int remove_one(void *arg, const char *name)
{
    return unlinkat(*(int *)arg, name, 0);
}

static void teardown(struct fixture *x)
{
    (void)sys_libc.list(&sys_libc, x->dir, remove_one, &x->dir);
    CU_ASSERT_EQUAL(rmdir(x->path), 0);
    (void)close(x->dir);
    gguf_free(x->g);
    free(x->old);
}

static int count_one(void *arg, const char *name)
{
    (void)name;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned files(const struct fixture *x)
{
    unsigned n = 0;
    (void)sys_libc.list(&sys_libc, x->dir, count_one, &n);
    return n;
}

/* An edit of the model: `text` becomes n times a letter. */
struct edit {
    struct edit_options o;
    struct edit_plan p;
    uint8_t *image; /* the new file as it must be */
};

static void make_edit(struct edit *d, const struct gguf *g, const uint8_t *old, size_t old_n,
                      enum edit_strategy s, char letter, size_t n)
{
    CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
    CLEANUP(buf_free) struct buf v = BUF_INIT;
    struct err e = {0};
    buf_uint(&v, n, 8, false);
    for (size_t i = 0; i < n; i++)
        buf_char(&v, letter);
    CU_ASSERT_EQUAL_FATAL(edit_set(&c, "text", 4, GGUF_STRING, v.data, v.len), 0);
    d->o = (struct edit_options){.strategy = s, .reserve = EDIT_RESERVE_AUTO};
    d->p = EDIT_PLAN_INIT;
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(g, &c, &d->o, &d->p, &e), 0);
    struct edit_image image = {.plan = &d->p, .old = source_mem(old, old_n)};
    struct source src = edit_plan_source(&image);
    d->image = malloc((size_t)src.size + 1);
    CU_ASSERT_EQUAL_FATAL(src.read(&src, 0, d->image, (size_t)src.size), 0);
}

static void edit_done(struct edit *d)
{
    edit_plan_free(&d->p);
    free(d->image);
}

static struct edit_file open_model(const struct fixture *x, const struct sys *sys)
{
    struct edit_file f;
    struct err e = {0};
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, &sys_libc, x->dir, NAME, true, &e), 0);
    f.sys = sys;
    return f;
}

static bool model_is(const struct fixture *x, const uint8_t *bytes, size_t n)
{
    size_t got_n;
    uint8_t *got = get_file(x->dir, NAME, &got_n);
    bool same = got_n == n && memcmp(got, bytes, n) == 0;
    free(got);
    return same;
}

static bool is_old(const struct fixture *x)
{
    return model_is(x, x->old, x->old_n);
}

static bool is_new(const struct fixture *x, const struct edit *d)
{
    return model_is(x, d->image, (size_t)d->p.size);
}

/* The strategies and the ways in which they run. */
struct way {
    const char *name;
    enum edit_strategy s;
    size_t len; /* of the new text */
    bool clone; /* cloning emulated */
    bool no_exchange;
    int no_range;
    uint8_t pad_byte;
};

static const struct way ways[] = {
    {"copy", EDIT_COPY, 100, false, false, 0, 0},
    {"copy, longer", EDIT_COPY, 9000, false, false, 0, 0xee},
    {"copy by hand", EDIT_COPY, 100, false, false, -EXDEV, 0},
    {"copy, plain rename", EDIT_COPY, 100, false, true, 0, 0},
    {"reflink", EDIT_REFLINK, 100, true, false, 0, 0},
    {"reflink, wiping", EDIT_REFLINK, 9000, true, false, 0, 0xee},
    {"inplace", EDIT_INPLACE, 100, false, false, 0, 0},
    {"inplace, many sectors", EDIT_INPLACE, 2900, false, false, 0, 0},
    {"auto", EDIT_AUTO, 100, false, false, 0, 0},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void arm(struct faultsys *fs, const struct way *w, enum fault_mode mode, unsigned n, int err)
{
    faultsys_init(fs, mode, n, err);
    fs->clone = w->clone;
    fs->no_exchange = w->no_exchange;
    fs->no_range = w->no_range;
}

static int commit(struct edit_file *f, const struct edit *d, struct edit_result *ret, struct err *e)
{
    int r = edit_commit(f, &d->p, &d->o, NULL, ret, e);
    if (ret->old_fd >= 0)
        (void)close(ret->old_fd);
    return r;
}

/* Is the model's lock held by somebody? */
static bool is_locked(const struct fixture *x)
{
    struct edit_file f;
    int r = edit_file_open(&f, &sys_libc, x->dir, NAME, true, NULL);
    if (r == 0)
        edit_file_close(&f);
    return r == -EWOULDBLOCK;
}

/* System calls without faults. */
static const struct sys *calm(void)
{
    static struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    return &fs.sys;
}

/* Another edit, without faults, on what is there now. */
static void check_next(struct fixture *x, struct edit_file *f)
{
    size_t n;
    struct edit d;
    struct edit_result res;
    struct err e = {0};
    struct gguf *g = NULL;
    uint8_t *now = get_file(x->dir, NAME, &n);
    struct source s = source_mem(now, n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    make_edit(&d, g, now, n, EDIT_COPY, 'z', 55);
    f->sys = calm();
    int r = commit(f, &d, &res, &e);
    if (r < 0)
        (void)printf("\nnext edit: %s\n", e.msg);
    CU_ASSERT_EQUAL(r, 0);
    CU_ASSERT_TRUE(is_new(x, &d));
    CU_ASSERT_TRUE(is_locked(x));
    CU_ASSERT_EQUAL(files(x), 1);
    edit_done(&d);
    gguf_free(g);
    free(now);
}

static void test_ways(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        struct err e = {0};
        struct stat before, after;
        setup_with(&x, ways[i].pad_byte);
        arm(&fs, &ways[i], FAULT_NONE, 0, 0);
        make_edit(&d, x.g, x.old, x.old_n, ways[i].s, 'n', ways[i].len);
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL(fstat(f.fd, &before), 0);
        int r = commit(&f, &d, &res, &e);
        if (r < 0)
            (void)printf("\n%s: %s\n", ways[i].name, e.msg);
        CU_ASSERT_EQUAL(r, 0);
        CU_ASSERT_EQUAL(e.code, 0);
        CU_ASSERT_TRUE(is_new(&x, &d));
        CU_ASSERT_EQUAL(files(&x), 1);
        CU_ASSERT_TRUE(is_locked(&x));
        CU_ASSERT_EQUAL(fstat(f.fd, &after), 0);
        CU_ASSERT_EQUAL(after.st_ino == before.st_ino, ways[i].s == EDIT_INPLACE);
        CU_ASSERT_EQUAL(res.old_fd >= 0, ways[i].s != EDIT_INPLACE);
        CU_ASSERT_EQUAL(res.strategy, ways[i].s == EDIT_AUTO ? EDIT_COPY : ways[i].s);
        CU_ASSERT_EQUAL(edit_file_fresh(&f, NULL), 0);
        check_next(&x, &f);
        edit_file_close(&f);
        CU_ASSERT_FALSE(is_locked(&x));
        edit_done(&d);
        teardown(&x);
    }
}

/* C4. */
static bool fail_at(const struct way *w, unsigned n, int error)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    struct err e = {0};
    setup_with(&x, w->pad_byte);
    arm(&fs, w, FAULT_FAIL, n, error);
    make_edit(&d, x.g, x.old, x.old_n, w->s, 'n', w->len);
    struct edit_file f = open_model(&x, &fs.sys);
    int r = commit(&f, &d, &res, &e);
    /* A plain rename cannot be taken back: the new file is there, and f has it. */
    bool kept = w->no_exchange && r < 0 && res.old_fd >= 0;
    bool good = r == 0 || kept ? is_new(&x, &d) : is_old(&x);
    if (!good || e.code != r || (r < 0 && !e.msg[0]))
        (void)printf("\n%s: call %u (%s) fails with %d: returns %d, %s\n", w->name, n, fs.what,
                     error, r, e.msg);
    CU_ASSERT_TRUE(good);
    CU_ASSERT_EQUAL(e.code, r);
    CU_ASSERT_TRUE(files(&x) == 1 || r == 0);
    CU_ASSERT_TRUE(is_locked(&x));
    check_next(&x, &f);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
    return fs.hit;
}

static void test_fail(void)
{
    static const int errors[] = {-EIO, -ENOSPC, -EINTR, -EOPNOTSUPP};
    for (size_t i = 0; i < WAYS; i++)
        for (size_t k = 0; k < sizeof(errors) / sizeof(errors[0]); k++) {
            unsigned n = 1;
            while (fail_at(&ways[i], n, errors[k]))
                n++;
            CU_ASSERT_TRUE(n > 10);
        }
}

static void test_short(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        setup_with(&x, ways[i].pad_byte);
        arm(&fs, &ways[i], FAULT_SHORT, 0, 0);
        make_edit(&d, x.g, x.old, x.old_n, ways[i].s, 'n', ways[i].len);
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), 0);
        CU_ASSERT_TRUE(is_new(&x, &d));
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

/* C1: the process ends at call n. What is there after the recovery is the old or the new file. */
static bool die_at(const struct way *w, enum fault_mode mode, unsigned n, uint64_t seed)
{
    struct fixture x;
    struct edit d;
    struct err e = {0};
    int status = 0;
    setup_with(&x, w->pad_byte);
    make_edit(&d, x.g, x.old, x.old_n, w->s, 'n', w->len);
    pid_t child = fork();
    CU_ASSERT_TRUE_FATAL(child >= 0);
    if (child == 0) {
        struct faultsys fs;
        struct edit_result res;
        arm(&fs, w, mode, n, 0);
        fs.seed = seed;
        struct edit_file f = open_model(&x, &fs.sys);
        int r = edit_commit(&f, &d.p, &d.o, NULL, &res, NULL);
        /* C3: what was told to be done stays done. */
        if (mode == FAULT_POWER)
            faultsys_power_cut(&fs);
        _exit(r == 0 ? 0 : 1);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE_FATAL(WIFEXITED(status));
    CU_ASSERT_NOT_EQUAL(WEXITSTATUS(status), 1);
    bool old_before = is_old(&x), new_before = is_new(&x, &d);
    /* C1: without the recovery, only inplace may show something else. */
    CU_ASSERT_TRUE(old_before || new_before || w->s == EDIT_INPLACE);
    struct edit_file f = open_model(&x, calm());
    struct edit_recovered found;
    int r = edit_recover(&f, &found, &e);
    bool good = is_old(&x) || is_new(&x, &d);
    if (r < 0 || !good)
        (void)printf("\n%s: cut at call %u, seed %llu: %s\n", w->name, n, (unsigned long long)seed,
                     e.msg);
    CU_ASSERT_EQUAL(r, 0);
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(WEXITSTATUS(status) == FAULT_EXIT || is_new(&x, &d));
    /* What was not finished was not changed; and nothing is left. */
    CU_ASSERT_TRUE(found.finished || is_old(&x) == old_before);
    CU_ASSERT_EQUAL(files(&x), 1);
    check_next(&x, &f);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
    return WEXITSTATUS(status) == FAULT_EXIT;
}

static void test_kill(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        unsigned n = 1;
        while (die_at(&ways[i], FAULT_KILL, n, 0))
            n++;
        CU_ASSERT_TRUE(n > 10);
    }
}

static void test_power(void)
{
    for (size_t i = 0; i < WAYS; i++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            unsigned n = 1;
            while (die_at(&ways[i], FAULT_POWER, n, seed * 1000003))
                n++;
            CU_ASSERT_TRUE(n > 10);
        }
}

/* The recovery, too, can be cut off at any call, and repeated. */
static void test_recover_again(void)
{
    for (unsigned n = 1, hit = 1; hit; n++) {
        struct fixture x;
        struct edit d;
        struct edit_recovered found;
        setup_with(&x, 0);
        make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
        struct edit_file f = open_model(&x, calm());
        uint64_t lo, len;
        journal_range(x.old, d.p.head.data, d.p.head.len, &lo, &len);
        CU_ASSERT_EQUAL(journal_write(&f, lo, x.old + lo, d.p.head.data + lo, len, NULL), 0);
        /* Torn: every other sector is there. */
        for (uint64_t at = lo; at < lo + len; at += 1024)
            CU_ASSERT_EQUAL(sys_write_all(&sys_libc, f.fd, d.p.head.data + at,
                                          (size_t)min_u64(512, lo + len - at), at),
                            0);
        CU_ASSERT_FALSE(is_old(&x) || is_new(&x, &d));
        struct faultsys fs;
        faultsys_init(&fs, FAULT_FAIL, n, -EIO);
        f.sys = &fs.sys;
        int r = edit_recover(&f, &found, NULL);
        hit = fs.hit;
        CU_ASSERT_TRUE(r == 0 || r == -EIO);
        CU_ASSERT_TRUE(hit || (r == 0 && found.finished));
        f.sys = calm();
        CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), 0);
        CU_ASSERT_TRUE(is_new(&x, &d));
        CU_ASSERT_EQUAL(files(&x), 1);
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

/* C5, T2. */

struct intruder {
    const struct fixture *x;
    bool gone;
};

static void intrude(void *arg)
{
    const struct intruder *in = arg;
    if (in->gone) {
        (void)unlinkat(in->x->dir, NAME, 0);
        return;
    }
    put_file(in->x->dir, "other", "another file", 12);
    (void)renameat(in->x->dir, "other", in->x->dir, NAME);
}

static void check_stale(const struct fixture *x, struct edit_file *f, const struct edit *d)
{
    struct edit_result res;
    struct err e = {0};
    CU_ASSERT_EQUAL(commit(f, d, &res, &e), -ESTALE);
    CU_ASSERT_EQUAL(res.old_fd, -1);
    CU_ASSERT_TRUE(e.msg[0] != '\0');
    CU_ASSERT_TRUE(files(x) <= 1);
}

static void test_stale(void)
{
    static const enum edit_strategy all[] = {EDIT_COPY, EDIT_REFLINK, EDIT_INPLACE};
    for (size_t i = 0; i < 3; i++)
        for (int kind = 0; kind < 5; kind++) {
            struct fixture x;
            struct edit d;
            struct faultsys fs;
            setup(&x);
            faultsys_init(&fs, FAULT_NONE, 0, 0);
            fs.clone = true;
            make_edit(&d, x.g, x.old, x.old_n, all[i], 'n', 10);
            struct edit_file f = open_model(&x, &fs.sys);
            struct intruder in = {&x, kind == 1};
            if (kind < 2) {
                intrude(&in);
            } else if (kind == 2) { /* the same bytes, later */
                CU_ASSERT_EQUAL(futimens(f.fd, (struct timespec[2]){{1, 0}, {1, 0}}), 0);
            } else if (kind == 3) {
                CU_ASSERT_EQUAL(ftruncate(f.fd, 100), 0);
            } else {
                fs.before_rename = intrude;
            }
            fs.arg = &in;
            if (kind < 4 || all[i] != EDIT_INPLACE)
                check_stale(&x, &f, &d);
            if (kind == 0 || (kind == 4 && all[i] != EDIT_INPLACE))
                CU_ASSERT_TRUE(model_is(&x, (const uint8_t *)"another file", 12));
            edit_file_close(&f);
            edit_done(&d);
            teardown(&x);
        }
}

static void test_links(void)
{
    static const enum edit_strategy all[] = {EDIT_COPY, EDIT_INPLACE, EDIT_AUTO};
    for (size_t i = 0; i < 3; i++) {
        struct fixture x;
        struct edit d;
        struct edit_result res;
        size_t n;
        setup(&x);
        CU_ASSERT_EQUAL(linkat(x.dir, NAME, x.dir, "other", 0), 0);
        make_edit(&d, x.g, x.old, x.old_n, all[i], 'n', 10);
        struct edit_file f = open_model(&x, calm());
        CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), -EMLINK);
        CU_ASSERT_TRUE(is_old(&x));
        d.o.break_hardlinks = true;
        CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), all[i] == EDIT_INPLACE ? -EOPNOTSUPP : 0);
        uint8_t *other = get_file(x.dir, "other", &n);
        CU_ASSERT_TRUE(n == x.old_n && memcmp(other, x.old, n) == 0);
        free(other);
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

/* Why a strategy does not apply. */
static void test_refused(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    enum edit_strategy s = EDIT_AUTO;
    struct err e = {0};
    setup(&x);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    struct edit_file f = open_model(&x, &fs.sys);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 9000); /* the data moves */
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(edit_prepare(&f, &d.p, &d.o, &s, &e), -EOPNOTSUPP);
    d.o.strategy = EDIT_REFLINK;
    d.p.clonable = false;
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(fs.created, 0);
    /* No room: known before anything is made. */
    d.o.strategy = EDIT_COPY;
    fs.full = true;
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -ENOSPC);
    CU_ASSERT_EQUAL(edit_prepare(&f, &d.p, &d.o, &s, &e), -ENOSPC);
    CU_ASSERT_EQUAL(fs.created, 0);
    fs.full = false;
    CU_ASSERT_EQUAL(edit_prepare(&f, &d.p, &d.o, &s, &e), 0);
    CU_ASSERT_EQUAL(s, EDIT_COPY);
    CU_ASSERT_EQUAL(fs.created, 0);
    CU_ASSERT_TRUE(is_old(&x));
    edit_done(&d);
    edit_file_close(&f);
    teardown(&x);
    /* Old padding that is not zero is not left in place. */
    setup_with(&x, 0xee);
    f = open_model(&x, &fs.sys);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 10);
    CU_ASSERT_TRUE(d.p.inplace);
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EOPNOTSUPP);
    CU_ASSERT_TRUE(is_old(&x));
    edit_done(&d);
    edit_file_close(&f);
    teardown(&x);
}

/* The real call, where the file system of /tmp has it. */
static void test_real_clone(void)
{
    struct fixture x;
    struct edit d;
    struct edit_result res;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_REFLINK, 'n', 9000);
    struct edit_file f = open_model(&x, &sys_libc);
    int r = commit(&f, &d, &res, NULL);
    if (f.clone == EDIT_CLONE_NO) {
        (void)printf("(not cloned: the file system of /tmp does not) ");
        CU_ASSERT_EQUAL(r, -EOPNOTSUPP);
        CU_ASSERT_TRUE(is_old(&x));
    } else {
        CU_ASSERT_EQUAL(r, 0);
        CU_ASSERT_TRUE(is_new(&x, &d));
    }
    CU_ASSERT_EQUAL(files(&x), 1);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

/* Owner, mode and attributes. */

static void test_attributes(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    struct stat st;
    char value[16];
    setup(&x);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    struct edit_file f = open_model(&x, &fs.sys);
    bool has_xattr = fsetxattr(f.fd, "user.test", "value", 5, 0) == 0;
    bool root = geteuid() == 0 && fchown(f.fd, 12345, 54321) == 0;
    CU_ASSERT_EQUAL(fchmod(f.fd, 0604), 0);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 10);
    if (has_xattr) {
        struct err e = {0};
        fs.no_xattr = -EOPNOTSUPP;
        CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EPERM);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "user.test"));
        CU_ASSERT_TRUE(is_old(&x));
        fs.no_xattr = 0;
    } else {
        (void)printf("(no extended attributes here) ");
    }
    CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), 0);
    CU_ASSERT_TRUE(is_new(&x, &d));
    CU_ASSERT_EQUAL(fstatat(x.dir, NAME, &st, 0), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0604);
    CU_ASSERT_TRUE(!root || (st.st_uid == 12345 && st.st_gid == 54321));
    CU_ASSERT_TRUE(!has_xattr || fgetxattr(f.fd, "user.test", value, sizeof(value)) == 5);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

/* What the folder gives to new files is taken away: a default ACL must not widen access. */
static void test_inherited_acl(void)
{
    /* version 2; user rwx, user 1 rwx, group r-x, mask rwx, other r-- (tag, permissions, id) */
    static const uint8_t acl[] = {2,    0,    0,    0,    0x01, 0,    7,    0,    0xff, 0xff, 0xff,
                                  0xff, 0x02, 0,    7,    0,    1,    0,    0,    0,    4,    0,
                                  5,    0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,    7,    0,    0xff,
                                  0xff, 0xff, 0xff, 0x20, 0,    4,    0,    0xff, 0xff, 0xff, 0xff};
    struct fixture x;
    struct edit d;
    struct edit_result res;
    struct stat st;
    char value[128];
    setup(&x);
    if (fsetxattr(x.dir, "system.posix_acl_default", acl, sizeof(acl), 0) < 0)
        (void)printf("(no ACLs here) ");
    struct edit_file f = open_model(&x, calm());
    make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 10);
    CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), 0);
    CU_ASSERT_EQUAL(fgetxattr(f.fd, "system.posix_acl_access", value, sizeof(value)), -1);
    CU_ASSERT_EQUAL(fstat(f.fd, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0640);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

/* A large model, most of which is a hole. */

#define LARGE ((uint64_t)66 << 20)
#define LARGE_DATA 100000

static void setup_large(struct fixture *x)
{
    struct build b;
    setup(x);
    free(x->old);
    gguf_free(x->g);
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "text", "0123456789");
    build_tensor(&b, "large", I8, SHAPE(LARGE), NULL, LARGE_DATA);
    b.no_tail = true;
    x->old = build_finish(&b, &x->old_n);
    put_file(x->dir, NAME, x->old, x->old_n);
    uint64_t data_off = x->old_n - LARGE_DATA;
    int fd = openat(x->dir, NAME, O_RDWR | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, (off_t)(data_off + LARGE)), 0);
    struct source s;
    CU_ASSERT_EQUAL_FATAL(source_fd(fd, &s, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &x->g, NULL), 0);
    (void)close(fd);
}

struct watch {
    uint64_t last, total;
    bool monotonic;
};

static void watch_progress(uint64_t done, uint64_t total, void *arg)
{
    struct watch *w = arg;
    w->monotonic &= done >= w->last;
    w->last = done;
    w->total = total;
}

static int commit_large(const struct fixture *x, struct edit_file *f, size_t text,
                        enum edit_strategy s, const struct edit_hooks *h, struct edit_result *res)
{
    CLEANUP(edit_change_free) struct edit_change c = EDIT_CHANGE_INIT;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    CLEANUP(buf_free) struct buf v = BUF_INIT;
    struct edit_options o = {.strategy = s, .reserve = EDIT_RESERVE_AUTO};
    buf_uint(&v, text, 8, false);
    buf_zero(&v, text);
    CU_ASSERT_EQUAL_FATAL(edit_set(&c, "text", 4, GGUF_STRING, v.data, v.len), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(x->g, &c, &o, &p, NULL), 0);
    int r = edit_commit(f, &p, &o, h, res, NULL);
    if (res->old_fd >= 0)
        (void)close(res->old_fd);
    return r;
}

static void test_holes(void)
{
    struct fixture x;
    struct edit_result res;
    struct stat st;
    struct watch w = {.monotonic = true};
    atomic_bool cancel = true;
    struct edit_hooks h = {.cancel = &cancel, .progress = watch_progress, .arg = &w};
    setup_large(&x);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(commit_large(&x, &f, 5000, EDIT_COPY, &h, &res), -EINTR);
    CU_ASSERT_EQUAL(files(&x), 1);
    CU_ASSERT_EQUAL(edit_file_fresh(&f, NULL), 0);
    cancel = false;
    CU_ASSERT_EQUAL(commit_large(&x, &f, 5000, EDIT_COPY, &h, &res), 0);
    CU_ASSERT_TRUE(w.monotonic);
    CU_ASSERT_EQUAL(w.last, LARGE);
    CU_ASSERT_EQUAL(w.total, LARGE);
    CU_ASSERT_EQUAL(fstat(f.fd, &st), 0);
    CU_ASSERT_TRUE((uint64_t)st.st_size > LARGE);
    CU_ASSERT_TRUE((uint64_t)st.st_blocks * 512 < LARGE / 8);
    uint8_t data[LARGE_DATA];
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, f.fd, data, LARGE_DATA, (uint64_t)st.st_size - LARGE),
                    0);
    CU_ASSERT_EQUAL(memcmp(data, x.old + x.old_n - LARGE_DATA, LARGE_DATA), 0);
    edit_file_close(&f);
    teardown(&x);
}

/* What EDIT_AUTO takes for a large model. */
static void test_large(void)
{
    struct fixture x;
    struct edit_result res;
    struct stat before, after;
    struct faultsys fs;
    setup_large(&x);
    faultsys_init(&fs, FAULT_FAIL, 0, 0);
    struct edit_file f = open_model(&x, &fs.sys);
    f.clone = EDIT_CLONE_NO;
    CU_ASSERT_EQUAL(fstat(f.fd, &before), 0);
    CU_ASSERT_EQUAL(commit_large(&x, &f, 10, EDIT_AUTO, NULL, &res), 0);
    CU_ASSERT_EQUAL(res.strategy, EDIT_INPLACE);
    CU_ASSERT_EQUAL(fstat(f.fd, &after), 0);
    CU_ASSERT_EQUAL(before.st_ino, after.st_ino);
    CU_ASSERT_EQUAL(before.st_blocks, after.st_blocks);
    CU_ASSERT_EQUAL(files(&x), 1);
    CU_ASSERT_EQUAL(commit_large(&x, &f, 10000, EDIT_AUTO, NULL, &res), 0);
    CU_ASSERT_EQUAL(res.strategy, EDIT_COPY);
    edit_file_close(&f);
    teardown(&x);
}

/* The journal. */

static void test_journal_range(void)
{
    uint8_t a[2000] = {0}, b[2000] = {0};
    uint64_t lo, n;
    journal_range(a, b, 2000, &lo, &n);
    CU_ASSERT_EQUAL(n, 0);
    b[600] = 1;
    journal_range(a, b, 2000, &lo, &n);
    CU_ASSERT_TRUE(lo == 512 && n == 512);
    b[1023] = 1;
    journal_range(a, b, 2000, &lo, &n);
    CU_ASSERT_TRUE(lo == 512 && n == 512);
    b[1024] = 1;
    journal_range(a, b, 2000, &lo, &n);
    CU_ASSERT_TRUE(lo == 512 && n == 1024);
    b[1999] = 1;
    journal_range(a, b, 2000, &lo, &n);
    CU_ASSERT_TRUE(lo == 512 && n == 2000 - 512);
    b[0] = 1;
    journal_range(a, b, 2000, &lo, &n);
    CU_ASSERT_TRUE(lo == 0 && n == 2000);
}

/* What happens to the journal of an edit, and to the files, before it is found. */
struct tamper {
    const char *name;
    void (*do_it)(const struct fixture *x, struct edit_file *f);
    int code;     /* of the recovery */
    bool applied; /* the model then is the new one, else it is as it was */
    bool stays;   /* the journal is still there */
};

static void tamper_nothing(const struct fixture *x, struct edit_file *f)
{
    (void)x;
    (void)f;
}

static void cut_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    int fd = openat(x->dir, JOURNAL, O_RDWR | O_CLOEXEC);
    struct stat st;
    CU_ASSERT_TRUE(fstat(fd, &st) == 0 && ftruncate(fd, st.st_size - 1) == 0);
    (void)close(fd);
}

static void empty_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    put_file(x->dir, JOURNAL, "", 0);
}

static void flip_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    int fd = openat(x->dir, JOURNAL, O_RDWR | O_CLOEXEC);
    CU_ASSERT_EQUAL(pwrite(fd, "?", 1, 200), 1);
    (void)close(fd);
}

static void change_model(const struct fixture *x, struct edit_file *f)
{
    (void)x;
    CU_ASSERT_EQUAL(pwrite(f->fd, "?", 1, 700), 1);
}

static void lengthen_model(const struct fixture *x, struct edit_file *f)
{
    CU_ASSERT_EQUAL(ftruncate(f->fd, (off_t)x->old_n + 1), 0);
}

static void link_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    CU_ASSERT_EQUAL(linkat(x->dir, JOURNAL, x->dir, "x", 0), 0);
}

static void symlink_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    CU_ASSERT_EQUAL(renameat(x->dir, JOURNAL, x->dir, "x"), 0);
    CU_ASSERT_EQUAL(symlinkat("x", x->dir, JOURNAL), 0);
}

static void give_journal_away(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    CU_ASSERT_EQUAL(fchownat(x->dir, JOURNAL, 12345, 12345, 0), 0);
}

/* The journal of another model of the same size, moved here. */
static void rename_model(const struct fixture *x, struct edit_file *f)
{
    edit_file_close(f);
    CU_ASSERT_EQUAL(renameat(x->dir, NAME, x->dir, "x.gguf"), 0);
    CU_ASSERT_EQUAL(renameat(x->dir, JOURNAL, x->dir, ".x.gguf.ggufs-journal"), 0);
    CU_ASSERT_EQUAL(edit_file_open(f, &sys_libc, x->dir, "x.gguf", true, NULL), 0);
}

static const struct tamper tampers[] = {
    {"nothing", tamper_nothing, 0, true, false},
    {"journal cut", cut_journal, 0, false, false},
    {"journal empty", empty_journal, 0, false, false},
    {"journal damaged", flip_journal, 0, false, false},
    {"header written", change_model, -ESTALE, false, true},
    {"size changed", lengthen_model, -ESTALE, false, true},
    {"journal linked", link_journal, -ESTALE, false, true},
    {"journal a symbolic link", symlink_journal, -ELOOP, false, true},
    {"model renamed", rename_model, -ESTALE, false, true},
    {"journal of another user", give_journal_away, -ESTALE, false, true},
};

static void check_tamper(const struct tamper *t)
{
    struct fixture x;
    struct edit d;
    struct edit_recovered found;
    struct edit_overlay o = EDIT_OVERLAY_INIT;
    struct err e = {0};
    uint64_t lo, n;
    size_t before_n, after_n;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    struct edit_file f = open_model(&x, calm());
    journal_range(x.old, d.p.head.data, d.p.head.len, &lo, &n);
    CU_ASSERT_EQUAL(journal_write(&f, lo, x.old + lo, d.p.head.data + lo, n, NULL), 0);
    t->do_it(&x, &f);
    uint8_t *before = get_file(x.dir, f.name, &before_n);
    unsigned had = files(&x);
    CU_ASSERT_EQUAL(edit_overlay(&f, &o, NULL), t->code);
    CU_ASSERT_EQUAL(o.bytes.len, t->applied ? n : 0);
    int r = edit_recover(&f, &found, &e);
    if (r != t->code)
        (void)printf("\n%s: %d, %s\n", t->name, r, e.msg);
    CU_ASSERT_EQUAL(r, t->code);
    CU_ASSERT_EQUAL(e.code, t->code);
    CU_ASSERT_EQUAL(found.finished, t->applied);
    CU_ASSERT_EQUAL(found.dropped, !t->applied && !t->stays);
    CU_ASSERT_EQUAL(files(&x), had - (t->stays ? 0 : 1));
    uint8_t *after = get_file(x.dir, f.name, &after_n);
    const uint8_t *want = t->applied ? d.image : before;
    CU_ASSERT_TRUE(after_n == before_n && memcmp(after, want, after_n) == 0);
    free(before);
    free(after);
    edit_overlay_free(&o);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static void test_tampered(void)
{
    size_t n = sizeof(tampers) / sizeof(tampers[0]);
    for (size_t i = 0; i < n; i++)
        if (tampers[i].do_it != give_journal_away || geteuid() == 0)
            check_tamper(&tampers[i]);
}

/* A torn header read through the journal is the new one, and the file is not touched. */
static void test_overlay(void)
{
    struct fixture x;
    struct edit d;
    struct edit_overlay o = EDIT_OVERLAY_INIT;
    struct source s;
    struct edit_file f, reader;
    uint64_t lo, n;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    f = open_model(&x, calm());
    journal_range(x.old, d.p.head.data, d.p.head.len, &lo, &n);
    CU_ASSERT_EQUAL(journal_write(&f, lo, x.old + lo, d.p.head.data + lo, n, NULL), 0);
    CU_ASSERT_EQUAL(sys_write_all(&sys_libc, f.fd, d.p.head.data + 512, 512, 512), 0);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&reader, &sys_libc, x.dir, NAME, false, NULL), 0);
    CU_ASSERT_EQUAL(edit_overlay(&reader, &o, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_overlay_source(&o, &reader, &s, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(s.size, d.p.size);
    uint8_t *got = malloc((size_t)s.size);
    for (uint64_t at = 0; at < s.size; at += 700)
        CU_ASSERT_EQUAL(s.read(&s, at, got + at, (size_t)min_u64(700, s.size - at)), 0);
    CU_ASSERT_EQUAL(memcmp(got, d.image, (size_t)s.size), 0);
    CU_ASSERT_FALSE(is_new(&x, &d) || is_old(&x));
    CU_ASSERT_EQUAL(files(&x), 2);
    free(got);
    edit_overlay_free(&o);
    edit_file_close(&reader);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

/* T4: only files of ours that nobody has locked are removed. */
static void test_sweep(void)
{
    static const char *const keep[] = {
        "." NAME ".ggufs-abc12",  "." NAME ".ggufs-abc1234", "." NAME ".ggufs-ABCDEF",
        "." NAME ".ggufs-abc12.", NAME ".ggufs-abc123",      ".other.gguf.ggufs-abc123",
        "." NAME ".ggufs-locked",
    };
    enum { KEEP = sizeof(keep) / sizeof(keep[0]) };
    struct fixture x;
    struct edit_recovered found;
    setup(&x);
    for (size_t i = 0; i < KEEP; i++)
        put_file(x.dir, keep[i], "x", 1);
    put_file(x.dir, "." NAME ".ggufs-abc123", "x", 1);
    put_file(x.dir, "." NAME ".ggufs-zzzzzz", "x", 1);
    CU_ASSERT_EQUAL(symlinkat(NAME, x.dir, "." NAME ".ggufs-symlin"), 0);
    CU_ASSERT_EQUAL(linkat(x.dir, keep[0], x.dir, "." NAME ".ggufs-hardli", 0), 0);
    int fd = openat(x.dir, keep[KEEP - 1], O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), 0);
    CU_ASSERT_EQUAL(found.removed, 2);
    CU_ASSERT_FALSE(found.finished || found.dropped);
    CU_ASSERT_EQUAL(files(&x), 1 + KEEP + 2);
    CU_ASSERT_TRUE(is_old(&x));
    (void)close(fd);
    edit_file_close(&f);
    teardown(&x);
}

/* Opening. */

static void test_open(void)
{
    struct fixture x;
    struct edit_file f, second;
    setup(&x);
    CU_ASSERT_EQUAL(symlinkat(NAME, x.dir, "link"), 0);
    CU_ASSERT_EQUAL(edit_file_open(&f, &sys_libc, x.dir, "link", true, NULL), -ELOOP);
    CU_ASSERT_EQUAL(edit_file_open(&f, &sys_libc, x.dir, "none", true, NULL), -ENOENT);
    CU_ASSERT_EQUAL(edit_file_open(&f, &sys_libc, x.dir, ".", false, NULL), -EINVAL);
    f = open_model(&x, calm());
    CU_ASSERT_EQUAL(edit_file_open(&second, &sys_libc, x.dir, NAME, true, NULL), -EWOULDBLOCK);
    CU_ASSERT_EQUAL(edit_file_open(&second, &sys_libc, x.dir, NAME, false, NULL), 0);
    edit_file_close(&second);
    edit_file_close(&f);
    teardown(&x);
}

/* Names of any length have names of ours beside them, different for each model. */
static void test_names(void)
{
    char name[NAME_MAX + 1], other[NAME_MAX + 1], a[NAME_MAX + 1], b[NAME_MAX + 1];
    for (size_t n = 1; n <= NAME_MAX; n++) {
        memset(name, 'm', n);
        name[n] = '\0';
        memcpy(other, name, n + 1);
        other[n - 1] = 'x';
        edit_side_name(a, name, EDIT_JOURNAL_SUFFIX);
        edit_side_name(b, other, EDIT_JOURNAL_SUFFIX);
        CU_ASSERT_TRUE(strcmp(a, b) != 0);
        CU_ASSERT_STRING_EQUAL(a + strlen(a) - 14, ".ggufs-journal");
        CU_ASSERT_EQUAL(a[0], '.');
    }
    edit_side_name(a, NAME, EDIT_JOURNAL_SUFFIX);
    CU_ASSERT_STRING_EQUAL(a, JOURNAL);
}

static CU_TestInfo tests[] = {
    {"each strategy makes the planned file", test_ways},
    {"any call that fails leaves the old file and nothing else", test_fail},
    {"reads and writes may be short", test_short},
    {"a kill at any call leaves the old or the new file", test_kill},
    {"a power cut at any call leaves the old or the new file", test_power},
    {"a recovery that fails can be repeated", test_recover_again},
    {"a file that changed is not replaced, up to the last moment", test_stale},
    {"hard links are not broken unless asked", test_links},
    {"strategies that do not apply touch nothing", test_refused},
    {"data is cloned where the file system can", test_real_clone},
    {"owner, mode and attributes are kept, or it is refused", test_attributes},
    {"an ACL of the folder does not come with the new file", test_inherited_acl},
    {"holes stay holes, a copy reports and can be stopped", test_holes},
    {"a large model is edited in place", test_large},
    {"the journal holds the sectors that differ", test_journal_range},
    {"only a journal that fits is applied", test_tampered},
    {"a torn header reads as the new one through the journal", test_overlay},
    {"only files of ours are swept", test_sweep},
    {"one process writes", test_open},
    {"names beside the model fit and differ", test_names},
    CU_TEST_INFO_NULL,
};

CU_MAIN("commit", tests)
