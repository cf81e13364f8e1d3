/* SPDX-License-Identifier: MIT */
/* edit/commit with each system call failing in turn, and with the process dying or the power
 * failing at each call. Checks the invariants in commit.c, commit.h and journal.h. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "edit/journal.h"
#include "faultsys.h"
#include "model_dir.h"
#include "soak.h"

/* A strategy, or a variant of one. */
struct way {
    const char *name;
    enum edit_strategy s, does; /* strategy requested, and strategy used */
    size_t len;                 /* length of the new text */
    bool clone;                 /* cloning is emulated */
    bool no_exchange;
    int no_range;
    uint8_t pad_byte;
    unsigned tensors; /* tensors to edit instead of the text (make_tensor_edit()) */
};

static const struct way ways[] = {
    {"copy", EDIT_COPY, EDIT_COPY, 100, false, false, 0, 0, 0},
    {"copy, longer", EDIT_COPY, EDIT_COPY, 9000, false, false, 0, 0xee, 0},
    {"copy by hand", EDIT_COPY, EDIT_COPY, 100, false, false, -EXDEV, 0, 0},
    {"copy, plain rename", EDIT_COPY, EDIT_COPY, 100, false, true, 0, 0, 0},
    {"inplace", EDIT_INPLACE, EDIT_INPLACE, 100, false, false, 0, 0, 0},
    {"inplace, many sectors, wiping", EDIT_INPLACE, EDIT_INPLACE, 2900, false, false, 0, 0xee, 0},
    {"auto", EDIT_AUTO, EDIT_COPY, 100, false, false, 0, 0, 0},
    {"auto, cloning", EDIT_AUTO, EDIT_COPY, 100, true, false, 0, 0xee, 0},
    {"copy, tensors", EDIT_COPY, EDIT_COPY, 0, false, false, 0, 0, EDIT_BYTES | EDIT_RENAMED},
    {"copy, a tensor made", EDIT_COPY, EDIT_COPY, 0, false, false, 0, 0, EDIT_MADE | EDIT_ADDED},
    {"auto, cloning, one removed, one added", EDIT_AUTO, EDIT_COPY, 0, true, false, 0, 0xee,
     EDIT_REMOVED | EDIT_ADDED},
    {"inplace, a name", EDIT_INPLACE, EDIT_INPLACE, 0, false, false, 0, 0, EDIT_RENAMED},
    {"inplace, bytes", EDIT_INPLACE, EDIT_INPLACE, 0, false, false, 0, 0, EDIT_BYTES},
    {"inplace, added", EDIT_INPLACE, EDIT_INPLACE, 0, false, false, 0, 0,
     EDIT_BYTES | EDIT_RENAMED | EDIT_ADDED},
    {"inplace, added far apart", EDIT_INPLACE, EDIT_INPLACE, 0, false, false, 0, 0, EDIT_APART},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void arm(struct faultsys *fs, const struct way *w, enum fault_mode mode, unsigned n, int err)
{
    faultsys_init(fs, mode, n, err);
    fs->clone = w->clone;
    fs->no_exchange = w->no_exchange;
    fs->no_range = w->no_range;
}

static void setup_way(struct fixture *x, const struct way *w)
{
    setup_tensors(x, w->tensors, w->pad_byte);
}

static void make_way(struct edit *d, const struct way *w, const struct gguf *g, const uint8_t *old,
                     size_t old_n, char letter)
{
    if (w->tensors)
        make_tensor_edit(d, g, old, old_n, w->s, w->tensors);
    else
        make_edit(d, g, old, old_n, w->s, letter, w->len);
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
        setup_way(&x, &ways[i]);
        arm(&fs, &ways[i], FAULT_NONE, 0, 0);
        make_way(&d, &ways[i], x.g, x.old, x.old_n, 'n');
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
        CU_ASSERT_EQUAL(after.st_ino == before.st_ino, ways[i].does == EDIT_INPLACE);
        CU_ASSERT_EQUAL(res.old_fd >= 0, ways[i].does != EDIT_INPLACE);
        CU_ASSERT_EQUAL(res.strategy, ways[i].does);
        CU_ASSERT_EQUAL(edit_file_fresh(&f, NULL), 0);
        CU_ASSERT_FALSE(fs.loose);
        check_next(&x, &f);
        edit_file_close(&f);
        CU_ASSERT_FALSE(is_locked(&x));
        edit_done(&d);
        teardown(&x);
    }
}

/* Make call n fail, and check invariant C4 (edit/commit.h). */
static bool fail_at(const struct way *w, unsigned n, int error, bool brief)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    struct err e = {0};
    setup_way(&x, w);
    arm(&fs, w, FAULT_FAIL, n, error);
    fs.brief = brief;
    make_way(&d, w, x.g, x.old, x.old_n, 'n');
    struct edit_file f = open_model(&x, &fs.sys);
    int r = commit(&f, &d, &res, &e);
    /* A plain rename cannot be undone, so the new file keeps the name while f still refers to the
     * old file. */
    bool kept = w->no_exchange && r < 0 && is_new(&x, &d);
    bool good = r == 0 ? is_new(&x, &d) : kept || is_old(&x);
    if (!good || e.code != r || (r < 0 && !e.msg[0]))
        (void)printf("\n%s: call %u (%s) fails with %d: returns %d, %s\n", w->name, n, fs.what,
                     error, r, e.msg);
    CU_ASSERT_TRUE(good);
    CU_ASSERT_EQUAL(e.code, r);
    CU_ASSERT_TRUE(files(&x) == 1 || r == 0);
    CU_ASSERT_TRUE(!kept || strcmp(fs.what, "fsync") == 0);
    if (kept) {
        f.sys = calm();
        CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -ESTALE);
    } else {
        CU_ASSERT_TRUE(is_locked(&x));
        check_next(&x, &f);
    }
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
    return fs.hit;
}

/* Each call fails with EIO, and once more with another error while reads and writes are short. */
static void test_fail(void)
{
    static const int others[] = {-ENOSPC, -EDQUOT, -EINTR, -EOPNOTSUPP};
    for (size_t i = 0; i < 2 * WAYS; i++) {
        const bool brief = i & 1;
        unsigned n = 1;
        if (brief && ways[i / 2].tensors)
            continue; /* this would be thousands of calls */
        while (fail_at(&ways[i / 2], n, brief ? others[n % COUNT(others)] : -EIO, brief))
            n++;
        CU_ASSERT_TRUE(n > 10);
        soak_count("faults injected", n - 1);
    }
}

/* C4: the next edit, planned on top of an unfinished edit, completes it. */
static void edit_unfinished(struct fixture *x, struct edit_file *f, const struct edit *d)
{
    struct edit next;
    struct edit_result res;
    struct gguf *g = NULL;
    struct source s = source_mem(d->image, (size_t)d->p.image->size);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    make_edit(&next, g, d->image, (size_t)d->p.image->size, EDIT_COPY, 'm', 70);
    CU_ASSERT_EQUAL(commit(f, &next, &res, NULL), 0);
    CU_ASSERT_FALSE(f->unfinished);
    CU_ASSERT_TRUE(is_new(x, &next));
    CU_ASSERT_EQUAL(files(x), 1);
    edit_done(&next);
    gguf_free(g);
}

static unsigned seen_unfinished;

/* Make call n and all later calls fail, and check the exceptions in C4. The file is complete once
 * reopened. */
static bool break_at(const struct way *w, unsigned n, bool anew)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    struct edit_recovered found;
    struct err e = {0};
    setup_way(&x, w);
    arm(&fs, w, FAULT_BROKEN, n, -EIO);
    make_way(&d, w, x.g, x.old, x.old_n, 'n');
    struct edit_file f = open_model(&x, &fs.sys);
    int r = commit(&f, &d, &res, &e);
    CU_ASSERT_TRUE(r < 0 ? e.msg[0] != '\0' : is_new(&x, &d));
    /* If an edit could not be undone, later edits are refused even once calls work again. */
    bool known = r == 0 || is_old(&x);
    f.sys = calm();
    CU_ASSERT_TRUE(!res.unfinished || (r == -EIO && w->does == EDIT_INPLACE && f.unfinished));
    seen_unfinished += res.unfinished;
    if (res.unfinished && !anew) {
        edit_unfinished(&x, &f, &d);
    } else {
        CU_ASSERT_TRUE(known || res.unfinished || commit(&f, &d, &res, &e) == -ESTALE);
        edit_file_close(&f);
        f = open_model(&x, calm());
        CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), 0);
        CU_ASSERT_TRUE(res.unfinished ? is_new(&x, &d) : is_old(&x) || is_new(&x, &d));
        CU_ASSERT_EQUAL(files(&x), 1);
        check_next(&x, &f);
    }
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
    return fs.hit;
}

static void test_broken(void)
{
    for (size_t i = 0; i < 2 * WAYS; i++) {
        unsigned n = 1;
        while (break_at(&ways[i / 2], n, i & 1))
            n++;
        CU_ASSERT_TRUE(n > 10);
        soak_count("faults injected", n - 1);
    }
    CU_ASSERT_TRUE(seen_unfinished > 20);
}

/* C4: if a header could never be written, recovery must not complete the edit. */
static void test_frozen(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    setup_with(&x, 0);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 100);
    struct edit_file f = open_model(&x, &fs.sys);
    fs.frozen = f.fd;
    CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), -EPERM);
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(files(&x), 1);
    check_next(&x, &f);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static void test_short(void)
{
    for (size_t i = 0; i < WAYS; i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        setup_way(&x, &ways[i]);
        arm(&fs, &ways[i], FAULT_SHORT, 0, 0);
        make_way(&d, &ways[i], x.g, x.old, x.old_n, 'n');
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), 0);
        CU_ASSERT_TRUE(is_new(&x, &d));
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

/* C1: the process dies at call n. After recovery, the file is either the old or the new one. */
static bool die_at(const struct way *w, enum fault_mode mode, unsigned n, uint64_t seed)
{
    struct fixture x;
    struct edit d;
    struct err e = {0};
    int status = 0;
    setup_way(&x, w);
    make_way(&d, w, x.g, x.old, x.old_n, 'n');
    pid_t child = cu_fork();
    CU_ASSERT_TRUE_FATAL(child >= 0);
    if (child == 0) {
        struct faultsys fs;
        struct edit_result res;
        arm(&fs, w, mode, n, 0);
        fs.seed = seed;
        struct edit_file f = open_model(&x, &fs.sys);
        int r = edit_commit(&f, &d.p, &d.o, NULL, &res, NULL);
        /* C3: an edit that was reported as successful is not lost. */
        if (mode == FAULT_POWER)
            faultsys_power_cut(&fs);
        _exit(r == 0 ? 0 : 1);
    }
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE_FATAL(WIFEXITED(status));
    CU_ASSERT_NOT_EQUAL(WEXITSTATUS(status), 1);
    bool old_before = is_old(&x), new_before = is_new(&x, &d);
    /* C1: without recovery, only an edit in place may leave any other content. */
    CU_ASSERT_TRUE(old_before || new_before || w->s == EDIT_INPLACE);
    check_readers(&x, &d);
    struct faultsys fs;
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    struct edit_file f = open_model(&x, &fs.sys);
    struct edit_recovered found;
    int r = edit_recover(&f, &found, &e);
    CU_ASSERT_FALSE(fs.loose);
    bool good = is_old(&x) || is_new(&x, &d);
    if (r < 0 || !good)
        (void)printf("\n%s: cut at call %u, seed %llu: %s\n", w->name, n, (unsigned long long)seed,
                     e.msg);
    CU_ASSERT_EQUAL(r, 0);
    CU_ASSERT_TRUE(good);
    CU_ASSERT_TRUE(WEXITSTATUS(status) == FAULT_EXIT || is_new(&x, &d));
    /* If there was nothing to finish, recovery changed nothing; no other file is left. */
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
        soak_count("kills", n - 1);
    }
}

static void test_power(void)
{
    for (size_t i = 0; i < WAYS; i++)
        for (uint64_t seed = 1; seed <= soak_size(2); seed++) {
            unsigned n = 1;
            while (die_at(&ways[i], FAULT_POWER, n, seed * 1000003))
                n++;
            CU_ASSERT_TRUE(n > 10);
            soak_count("disk states replayed", n);
        }
}

/* Two edits in a row. The second one starts with whatever the first one left unsynced. */

struct pair {
    struct fixture x;
    const struct way *way[2];
    struct edit d[2];
    struct gguf *mid; /* keys after the first edit */
};

static void make_pair(struct pair *p, const struct way *first, const struct way *second)
{
    struct fixture *x = &p->x;
    setup_with(x, 0);
    p->way[0] = first;
    p->way[1] = second;
    make_way(&p->d[0], first, x->g, x->old, x->old_n, 'n');
    struct source s = source_mem(p->d[0].image, (size_t)p->d[0].p.image->size);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &p->mid, NULL), 0);
    make_way(&p->d[1], second, p->mid, p->d[0].image, (size_t)p->d[0].p.image->size, 'm');
}

static void free_pair(struct pair *p)
{
    gguf_free(p->mid);
    edit_done(&p->d[0]);
    edit_done(&p->d[1]);
    teardown(&p->x);
}

/* Runs in the child process. *acked: number of edits that returned 0; -1: one failed. */
static void run_pair(struct pair *p, unsigned n, uint64_t seed, int *acked)
{
    struct faultsys fs;
    arm(&fs, p->way[0], FAULT_POWER, n, 0);
    fs.seed = seed;
    struct edit_file f = open_model(&p->x, &fs.sys);
    for (int i = 0; i < 2; i++) {
        struct edit_result res;
        fs.clone = p->way[i]->clone;
        fs.no_exchange = p->way[i]->no_exchange;
        f.clone = EDIT_CLONE_UNKNOWN;
        *acked = commit(&f, &p->d[i], &res, NULL) == 0 ? i + 1 : -1;
        if (*acked < 0)
            _exit(0);
    }
    faultsys_power_cut(&fs);
    _exit(0);
}

static bool check_pair(struct pair *p, int acked)
{
    struct edit_recovered found;
    struct err e = {0};
    struct edit_file f = open_model(&p->x, calm());
    int r = edit_recover(&f, &found, &e);
    bool good = r == 0 && ((acked == 0 && is_old(&p->x)) ||
                           (acked <= 1 && is_new(&p->x, &p->d[0])) || is_new(&p->x, &p->d[1]));
    if (!good)
        (void)printf("\n%s, %s, %d done: %d, %s\n", p->way[0]->name, p->way[1]->name, acked, r,
                     e.msg);
    CU_ASSERT_EQUAL(files(&p->x), 1);
    check_next(&p->x, &f);
    edit_file_close(&f);
    return good;
}

static bool cut_pair(const struct way *first, const struct way *second, unsigned n, uint64_t seed)
{
    struct pair p;
    int status = 0;
    make_pair(&p, first, second);
    int *acked = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = cu_fork();
    CU_ASSERT_TRUE_FATAL(child >= 0);
    if (child == 0)
        run_pair(&p, n, seed, acked);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE_FATAL(WIFEXITED(status));
    CU_ASSERT_TRUE(*acked >= 0);
    CU_ASSERT_TRUE(check_pair(&p, *acked));
    (void)munmap(acked, sizeof(int));
    free_pair(&p);
    return WEXITSTATUS(status) == FAULT_EXIT;
}

static void test_pairs(void)
{
    /* Copy, copy with a plain rename, and two variants of in-place edits. */
    static const size_t used[] = {0, 3, 4, 12};
    for (uint64_t seed = 1; seed <= soak_size(2); seed++)
        for (size_t i = 0; i < 16; i++) {
            unsigned n = 1;
            while (cut_pair(&ways[used[i / 4]], &ways[used[i % 4]], n, seed * 1000003 + i))
                n++;
            CU_ASSERT_TRUE(n > 20);
            soak_count("disk states replayed", n);
        }
}

static CU_TestInfo tests[] = {
    {"each strategy makes the planned file", test_ways},
    {"if any call fails, only the old file remains", test_fail},
    {"a medium that stays broken leaves a recoverable file", test_broken},
    {"an edit whose header could never be written is not recovered", test_frozen},
    {"reads and writes may be short", test_short},
    {"a kill at any call leaves the old or the new file", test_kill},
    {"a power cut at any call leaves the old or the new file", test_power},
    {"a power cut during a second edit keeps the finished first one", test_pairs},
    CU_TEST_INFO_NULL,
};

CU_MAIN("faults", tests)
