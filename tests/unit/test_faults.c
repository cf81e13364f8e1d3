/* SPDX-License-Identifier: MIT */
/*
 * The matrix of edits: each way of writing, with each system call failing in turn, and with the
 * process dying or the power failing at each call. Edits of keys are recorded in the history, as
 * the daemon does. Checks the invariants in commit.c, commit.h, journal.h and history.h.
 */
#include "cu_test.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "model_dir.h"
#include "soak.h"

/* A strategy, or a variant of one. */
static const struct way {
    const char *name;
    enum edit_strategy s;
    size_t len; /* length of the new text */
    bool clone; /* cloning is emulated */
    bool no_exchange;
    int no_range;
    uint8_t pad_byte;
    unsigned tensors; /* tensors to edit instead of the text (make_tensor_edit()) */
} ways[] = {
    {"copy", EDIT_COPY, 100, false, false, 0, 0, 0},
    {"copy, longer", EDIT_COPY, 9000, false, false, 0, 0xee, 0},
    {"copy by hand", EDIT_COPY, 100, false, false, -EXDEV, 0, 0},
    {"copy, plain rename", EDIT_COPY, 100, false, true, 0, 0, 0},
    {"inplace", EDIT_INPLACE, 100, false, false, 0, 0, 0},
    {"inplace, many sectors, padding", EDIT_INPLACE, 2900, false, false, 0, 0xee, 0},
    {"auto", EDIT_AUTO, 100, false, false, 0, 0, 0},
    {"auto, cloning", EDIT_AUTO, 100, true, false, 0, 0xee, 0},
    {"copy, tensors", EDIT_COPY, 0, false, false, 0, 0, EDIT_BYTES | EDIT_RENAMED},
    {"copy, a tensor made", EDIT_COPY, 0, false, false, 0, 0, EDIT_MADE | EDIT_ADDED},
    {"auto, cloning, one removed, one added", EDIT_AUTO, 0, true, false, 0, 0xee,
     EDIT_REMOVED | EDIT_ADDED},
    {"inplace, a name", EDIT_INPLACE, 0, false, false, 0, 0, EDIT_RENAMED},
    {"inplace, bytes", EDIT_INPLACE, 0, false, false, 0, 0, EDIT_BYTES},
    {"inplace, added", EDIT_INPLACE, 0, false, false, 0, 0, EDIT_BYTES | EDIT_RENAMED | EDIT_ADDED},
    {"inplace, added far apart", EDIT_INPLACE, 0, false, false, 0, 0, EDIT_APART},
};

/* ---- one edit ---- */

struct trial {
    const struct way *w;
    struct fixture x;
    struct edit d;
    struct home home; /* of edits of keys: the history, with one earlier edit */
    struct gguf *first;
    bool joins; /* the edit follows the earlier one at once, so an undo takes both back */
};

static void begin(struct trial *t, const struct way *w)
{
    *t = (struct trial){.w = w, .joins = (w - ways) % 2};
    t->x = setup_tensors(w->tensors, w->pad_byte);
    if (w->tensors) {
        make_tensor_edit(&t->d, t->x.g, t->x.old, t->x.old_n, w->s, w->tensors);
        return;
    }
    make_edit(&t->d, t->x.g, t->x.old, t->x.old_n, w->s, 'n', w->len);
    home_setup(&t->home);
    t->first = keys_of("first");
    CU_ASSERT_EQUAL_FATAL(save(&t->home.h, t->first, t->x.g, 1000, 0, NULL), 0);
}

static void end(struct trial *t)
{
    if (t->first)
        home_teardown(&t->home);
    gguf_free(t->first);
    edit_done(&t->d);
    teardown(&t->x);
}

static void arm(struct faultsys *fs, const struct way *w, enum fault_mode mode, unsigned n, int err)
{
    faultsys_init(fs, mode, n, err);
    fs->clone = w->clone;
    fs->no_exchange = w->no_exchange;
    fs->no_range = w->no_range;
}

/* Record the edit and make it. If it cannot be recorded, it is made all the same. */
static int run(struct trial *t, struct faultsys *fs, struct edit_file *f, struct edit_result *res,
               struct err *e)
{
    CLEANUP(edit_change_free) struct edit_change c;
    const int64_t now = t->joins ? 1005 : 1100;
    edit_change_init(&c, &(struct edit_base){.g = t->x.g});
    *f = open_model(&t->x, &fs->sys);
    if (t->w->tensors)
        return commit(f, &t->d, res, e);
    CU_ASSERT_EQUAL_FATAL(edit_restore(&c, t->d.p.next, NULL), 0);
    t->home.h.sys = &fs->sys;
    (void)history_append(&t->home.h, &(struct history_edit){&c, t->d.p.next, 0, now, false}, NULL);
    int r = commit(f, &t->d, res, e);
    t->home.h.ended = r == 0 || res->unfinished ? now : t->home.h.ended;
    t->home.h.sys = calm();
    return r;
}

/* An undo takes back the last edit that is in the file; if a call failed, the edit may have no
 * record, and the undo is refused. The next edit can be undone. */
static void check_history(struct trial *t, bool landed, bool failed)
{
    struct history_pick p;
    if (t->w->tensors)
        return;
    struct history *h = &t->home.h;
    struct gguf *now = landed ? t->d.p.next : t->x.g, *next = landed ? t->x.g : t->d.p.next;
    const struct gguf *want = landed && !t->joins ? t->x.g : t->first;
    int r = history_pick(h, 0, now, &p, NULL);
    bool good = r == 0 ? same_keys(p.keys, want) : r == -ESTALE && landed && failed;
    CU_SAYS(good, "%s: an undo of the %s file: %d\n", t->w->name, landed ? "new" : "old", r);
    history_pick_free(&p);
    CU_ASSERT_EQUAL(save(h, now, next, 2000, 0, NULL), 0);
    CU_ASSERT_EQUAL(history_pick(h, 0, next, &p, NULL), 0);
    CU_ASSERT_TRUE(same_keys(p.keys, now));
    history_pick_free(&p);
    CU_ASSERT_EQUAL(home_files(&t->home), 1);
}

/* ---- failing calls ---- */

static void check_way(const struct trial *t, const struct edit_file *f, uint64_t ino,
                      const struct edit_result *res)
{
    struct stat st;
    const bool inplace = t->w->s == EDIT_INPLACE;
    CU_ASSERT_EQUAL(fstat(f->fd, &st), 0);
    CU_ASSERT_EQUAL(st.st_ino == ino, inplace);
    CU_ASSERT_EQUAL(res->old_fd < 0, inplace);
    CU_ASSERT_EQUAL(res->strategy, inplace ? EDIT_INPLACE : EDIT_COPY);
    CU_ASSERT_EQUAL(edit_file_fresh(f, NULL), 0);
}

static unsigned seen_lost, seen_quota;

/* The kernel has dropped bytes of a draft that could not be written to the disk: no later try
 * writes what it finds in their place either. */
static void check_lost(struct trial *t, struct edit_file *f, int r)
{
    struct edit_result res;
    seen_lost++;
    CU_ASSERT_EQUAL(r, -EIO);
    CU_ASSERT_EQUAL(commit(f, &t->d, &res, NULL), -EIO);
    CU_ASSERT_TRUE(is_old(&t->x));
}

/* Make call n fail, and check invariant C4 (edit/commit.h). brief: reads and writes are short; a
 * rename that fails is done, and later ones fail as well. */
static bool fail_at(const struct way *w, unsigned n, int error, bool brief)
{
    CLEANUP(end) struct trial t;
    struct faultsys fs;
    struct edit_result res;
    struct edit_file f;
    struct stat st;
    struct err e = {0};
    begin(&t, w);
    CU_ASSERT_EQUAL(fstatat(t.x.dir, NAME, &st, 0), 0);
    arm(&fs, w, FAULT_FAIL, n, error);
    fs.brief = fs.done = brief;
    int r = run(&t, &fs, &f, &res, &e);
    /* A plain rename cannot be undone, so the new file keeps the name while f still refers to the
     * old file. */
    bool kept = w->no_exchange && r < 0 && is_new(&t.x, &t.d);
    bool good = r == 0 ? is_new(&t.x, &t.d) : fs.hit && (kept || is_old(&t.x));
    CU_SAYS(good && e.code == r && (r == 0 || e.msg[0]), "%s: call %u (%s) fails: %d, %s", w->name,
            n, fs.what, r, e.msg);
    CU_ASSERT_FALSE(fs.loose);
    CU_ASSERT_TRUE(files_in(t.x.dir) == 1 || (r == 0 && fs.hit));
    CU_ASSERT_TRUE(!kept || strcmp(fs.what, "fsync") == 0);
    const bool hit = fs.hit;
    seen_quota += r == 0 && w->s == EDIT_AUTO && res.strategy == EDIT_INPLACE;
    fs.mode = FAULT_NONE;
    if (hit && strcmp(fs.what, "settled") == 0)
        check_lost(&t, &f, r);
    if (!kept)
        check_history(&t, r == 0, hit);
    if (!hit)
        check_way(&t, &f, st.st_ino, &res);
    if (kept) {
        f.sys = calm();
        CU_ASSERT_EQUAL(commit(&f, &t.d, &res, &e), -ESTALE);
        CU_ASSERT_TRUE(f.unsynced); /* an fsync that brings nothing fails, too */
    } else {
        CU_ASSERT_TRUE(is_locked(&t.x));
        check_next(&t.x, &f);
    }
    edit_file_close(&f);
    CU_ASSERT_FALSE(is_locked(&t.x));
    return hit;
}

/* Each call fails with EIO, and once more with another error while reads and writes are short, and
 * renames are done. */
TEST("each way makes the planned file; if a call fails, the old file remains")
{
    static const int others[] = {-ENOSPC, -EDQUOT, -EINTR, -EOPNOTSUPP};
    for (size_t i = 0; i < 2 * COUNT(ways); i++) {
        const bool brief = i & 1;
        unsigned n = 1;
        if (brief && ways[i / 2].tensors) { /* no fault: this would be thousands of calls */
            CU_ASSERT_FALSE(fail_at(&ways[i / 2], UINT32_MAX, 0, true));
            continue;
        }
        while (fail_at(&ways[i / 2], n, brief ? others[n % COUNT(others)] : -EIO, brief))
            n++;
        CU_ASSERT_TRUE(n > 10);
        soak_count("faults injected", n - 1);
    }
    CU_ASSERT_TRUE(seen_lost > 0);
    CU_ASSERT_TRUE(seen_quota > 0); /* a copy met it, so the edit was made in place */
}

/* C4: the next edit, planned on top of an unfinished edit, completes it. */
static void edit_unfinished(struct fixture *x, struct edit_file *f, const struct edit *d)
{
    CLEANUP(edit_done) struct edit next;
    struct edit_result res;
    make_edit(&next, d->p.next, d->image, (size_t)d->p.image->size, EDIT_COPY, 'm', 70);
    CU_ASSERT_EQUAL(commit(f, &next, &res, NULL), 0);
    CU_ASSERT_FALSE(f->unfinished);
    CU_ASSERT_TRUE(is_new(x, &next));
    CU_ASSERT_EQUAL(files_in(x->dir), 1);
}

static unsigned seen_unfinished;

/* Make call n and all later calls fail, and check the exceptions in C4. The file is complete once
 * reopened. */
static bool break_at(const struct way *w, unsigned n, bool anew)
{
    CLEANUP(end) struct trial t;
    struct faultsys fs;
    struct edit_result res;
    struct edit_recovered found;
    struct edit_file f;
    struct err e = {0};
    begin(&t, w);
    arm(&fs, w, FAULT_BROKEN, n, -EIO);
    int r = run(&t, &fs, &f, &res, &e);
    CU_ASSERT_TRUE(r < 0 ? e.msg[0] != '\0' : is_new(&t.x, &t.d));
    /* If an edit could not be undone, later edits are refused even once calls work again. */
    bool known = r == 0 || is_old(&t.x);
    f.sys = calm();
    CU_ASSERT_TRUE(!res.unfinished || (r == -EIO && w->s == EDIT_INPLACE && f.unfinished));
    seen_unfinished += res.unfinished;
    if (res.unfinished && !anew) {
        edit_unfinished(&t.x, &f, &t.d);
    } else {
        CU_ASSERT_TRUE(known || res.unfinished || commit(&f, &t.d, &res, &e) == -ESTALE);
        edit_file_close(&f);
        f = open_model(&t.x, calm());
        CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), 0);
        const bool lost = fs.hit && strcmp(fs.what, "settled") == 0; /* bytes of a draft */
        CU_ASSERT_TRUE((is_new(&t.x, &t.d) && !lost) || (is_old(&t.x) && !res.unfinished));
        CU_ASSERT_EQUAL(files_in(t.x.dir), 1);
        check_next(&t.x, &f);
    }
    edit_file_close(&f);
    return fs.hit;
}

TEST("a medium that stays broken leaves a recoverable file")
{
    for (size_t i = 0; i < 2 * COUNT(ways); i++) {
        unsigned n = 1;
        while (break_at(&ways[i / 2], n, i & 1))
            n++;
        CU_ASSERT_TRUE(n > 10);
        soak_count("faults injected", n - 1);
    }
    CU_ASSERT_TRUE(seen_unfinished > 20);
}

/* C4: if a header could never be written, recovery must not complete the edit. */
TEST("an edit whose header could never be written is not recovered")
{
    CLEANUP(scene_end) struct scene s;
    scene_begin(&s, EDIT_INPLACE, 100);
    s.fs.frozen = s.f.fd;
    CU_ASSERT_EQUAL(scene_commit(&s), -EPERM);
    CU_ASSERT_TRUE(is_old(&s.x));
    CU_ASSERT_EQUAL(files_in(s.x.dir), 1);
    check_next(&s.x, &s.f);
}

/* ---- kills and power cuts ---- */

static int status_of(pid_t child)
{
    int status = 0;
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    CU_ASSERT_TRUE_FATAL(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* C1: the process dies at call n. After recovery, the file is either the old or the new one. */
static bool die_at(const struct way *w, enum fault_mode mode, unsigned n, uint64_t seed)
{
    CLEANUP(end) struct trial t;
    struct faultsys fs;
    struct edit_recovered found;
    struct edit_file f;
    struct err e = {0};
    begin(&t, w);
    pid_t child = cu_fork();
    CU_ASSERT_TRUE_FATAL(child >= 0);
    if (child == 0) {
        struct edit_result res;
        arm(&fs, w, mode, n, 0);
        fs.seed = seed;
        int r = run(&t, &fs, &f, &res, NULL);
        /* C3: an edit that was reported as successful is not lost. */
        if (mode == FAULT_POWER)
            faultsys_power_cut(&fs);
        _exit(r == 0 ? 0 : 1);
    }
    const int status = status_of(child);
    CU_ASSERT_TRUE(status == 0 || status == FAULT_EXIT);
    bool old_before = is_old(&t.x), new_before = is_new(&t.x, &t.d);
    /* C1: without recovery, only an edit in place may leave any other content. */
    CU_ASSERT_TRUE(old_before || new_before || w->s == EDIT_INPLACE);
    check_readers(&t.x, &t.d);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    f = open_model(&t.x, &fs.sys);
    int r = edit_recover(&f, &found, &e);
    CU_ASSERT_FALSE(fs.loose);
    bool landed = is_new(&t.x, &t.d), good = landed || is_old(&t.x);
    CU_SAYS(r == 0 && good, "%s: cut at call %u, seed %llu: %s", w->name, n,
            (unsigned long long)seed, e.msg);
    CU_ASSERT_TRUE(status == FAULT_EXIT || landed);
    /* If there was nothing to finish, recovery changed nothing; no other file is left. */
    CU_ASSERT_TRUE(found.finished || landed != old_before);
    CU_ASSERT_EQUAL(files_in(t.x.dir), 1);
    check_history(&t, landed, false);
    check_next(&t.x, &f);
    edit_file_close(&f);
    return status == FAULT_EXIT;
}

TEST("a kill at any call leaves the old or the new file")
{
    for (size_t i = 0; i < COUNT(ways); i++) {
        unsigned n = 1;
        while (die_at(&ways[i], FAULT_KILL, n, 0))
            n++;
        CU_ASSERT_TRUE(n > 10);
        soak_count("kills", n - 1);
    }
}

TEST("a power cut at any call leaves the old or the new file")
{
    for (size_t i = 0; i < COUNT(ways); i++)
        for (uint64_t seed = 1; seed <= soak_size(2); seed++) {
            unsigned n = 1;
            while (die_at(&ways[i], FAULT_POWER, n, seed * 1000003))
                n++;
            CU_ASSERT_TRUE(n > 10);
            soak_count("disk states replayed", n);
        }
}

/* Two edits in a row: the second one starts with whatever the first one left unsynced. *acked:
 * number of edits that returned 0; -1: one failed. Runs in the child process. */
static void run_pair(const struct fixture *x, const struct way *const way[2],
                     const struct edit d[2], unsigned n, uint64_t seed, int *acked)
{
    struct faultsys fs;
    arm(&fs, way[0], FAULT_POWER, n, 0);
    fs.seed = seed;
    struct edit_file f = open_model(x, &fs.sys);
    for (int i = 0; i < 2 && *acked == i; i++) {
        struct edit_result res;
        fs.no_exchange = way[i]->no_exchange;
        f.clone = EDIT_CLONE_UNKNOWN;
        *acked = commit(&f, &d[i], &res, NULL) == 0 ? i + 1 : -1;
    }
    if (*acked == 2)
        faultsys_power_cut(&fs);
    _exit(0);
}

static bool cut_pair(const struct way *const way[2], unsigned n, uint64_t seed)
{
    struct edit d[2];
    struct edit_recovered found;
    struct err e = {0};
    CLEANUP(teardown) struct fixture x = setup_tensors(0, 0);
    make_edit(&d[0], x.g, x.old, x.old_n, way[0]->s, 'n', 100);
    make_edit(&d[1], d[0].p.next, d[0].image, (size_t)d[0].p.image->size, way[1]->s, 'm', 100);
    int *acked = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = cu_fork();
    CU_ASSERT_TRUE_FATAL(child >= 0);
    if (child == 0)
        run_pair(&x, way, d, n, seed, acked);
    const int status = status_of(child);
    struct edit_file f = open_model(&x, calm());
    int r = edit_recover(&f, &found, &e);
    bool good =
        r == 0 && *acked >= 0 &&
        ((*acked == 0 && is_old(&x)) || (*acked <= 1 && is_new(&x, &d[0])) || is_new(&x, &d[1]));
    CU_SAYS(good, "%s, %s, %d done: %d, %s\n", way[0]->name, way[1]->name, *acked, r, e.msg);
    CU_ASSERT_EQUAL(files_in(x.dir), 1);
    check_next(&x, &f);
    edit_file_close(&f);
    (void)munmap(acked, sizeof(int));
    edit_done(&d[0]);
    edit_done(&d[1]);
    return status == FAULT_EXIT;
}

TEST("a power cut during a second edit keeps the finished first one")
{
    static const size_t used[] = {0, 3, 4}; /* copy, copy with a plain rename, in place */
    for (uint64_t seed = 1; seed <= soak_size(2); seed++)
        for (size_t i = 0; i < 9; i++) {
            const struct way *const way[2] = {&ways[used[i / 3]], &ways[used[i % 3]]};
            unsigned n = 1;
            while (cut_pair(way, n, seed * 1000003 + i))
                n++;
            CU_ASSERT_TRUE(n > 20);
            soak_count("disk states replayed", n);
        }
}
