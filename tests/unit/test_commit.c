/* SPDX-License-Identifier: MIT */
/* edit/commit: which strategy, on which files, and what becomes of the rest of the file. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "faultsys.h"
#include "model_dir.h"

/* C5, T2: another program comes between, at the start or before the first call of a name. */

enum { REPLACED, REMOVED, TOUCHED, CUT };

struct intruder {
    int does;
    const char *before; /* NULL: at the start */
    bool no_exchange;
    const struct fixture *x;
    int fd; /* the model */
};

static const struct intruder intruders[] = {
    {.does = REPLACED},
    {.does = REMOVED},
    {.does = TOUCHED},
    {.does = CUT},
    {.does = REPLACED, .before = "fsync"},
    {.does = REMOVED, .before = "fsync"},
    {.does = TOUCHED, .before = "fsync"},
    {.does = REPLACED, .before = "fsync", .no_exchange = true},
    {.does = TOUCHED, .before = "fsync", .no_exchange = true},
    {.does = REPLACED, .before = "rename"},
    {.does = TOUCHED, .before = "rename"},
};

static const char foreign[] = "another file";

static void intrude(void *arg)
{
    const struct intruder *in = arg;
    if (in->does == REMOVED)
        (void)unlinkat(in->x->dir, NAME, 0);
    if (in->does == TOUCHED) /* the same bytes at another time */
        (void)futimens(in->fd, (struct timespec[2]){{1, 0}, {1, 0}});
    if (in->does == CUT)
        (void)!ftruncate(in->fd, 100);
    if (in->does != REPLACED)
        return;
    put_file(in->x->dir, "other", foreign, sizeof(foreign));
    (void)renameat(in->x->dir, "other", in->x->dir, NAME);
}

static void check_stale(const struct intruder *kind, enum edit_strategy s)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    struct err e = {0};
    setup_with(&x, 0);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.clone = true;
    fs.no_exchange = kind->no_exchange;
    make_edit(&d, x.g, x.old, x.old_n, s, 'n', 10);
    struct edit_file f = open_model(&x, &fs.sys);
    struct intruder in = *kind;
    in.x = &x;
    in.fd = f.fd;
    fs.hook = intrude;
    fs.arg = &in;
    fs.before = kind->before;
    if (!kind->before)
        intrude(&in);
    int r = commit(&f, &d, &res, &e);
    if (r != -ESTALE)
        (void)printf("\n%s, %d, before %s: %d %s\n", edit_strategy_name(s), kind->does,
                     kind->before ? kind->before : "-", r, e.msg);
    CU_ASSERT_EQUAL(r, -ESTALE);
    CU_ASSERT_EQUAL(e.code, -ESTALE);
    CU_ASSERT_EQUAL(res.old_fd, -1);
    CU_ASSERT_EQUAL(files(&x), kind->does == REMOVED ? 0 : 1);
    if (kind->does == REPLACED)
        CU_ASSERT_TRUE(model_is(&x, (const uint8_t *)foreign, sizeof(foreign)));
    if (kind->does == TOUCHED)
        CU_ASSERT_TRUE(is_old(&x));
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static void test_stale(void)
{
    for (size_t i = 0; i < sizeof(intruders) / sizeof(intruders[0]); i++)
        for (enum edit_strategy s = EDIT_REFLINK; s <= EDIT_COPY; s++) {
            bool renames = intruders[i].before && strcmp(intruders[i].before, "rename") == 0;
            if (s != EDIT_INPLACE || !renames)
                check_stale(&intruders[i], s);
        }
}

/* C6. What a hook finds when the new file is about to take the name. */
struct guard {
    const struct fixture *x;
    unsigned files, locked; /* beside the model */
};

static int guard_one(void *arg, const char *name)
{
    struct guard *w = arg;
    if (strcmp(name, NAME) == 0)
        return 0;
    w->files++;
    int fd = openat(w->x->dir, name, O_RDONLY | O_CLOEXEC);
    w->locked += flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return 0;
}

static void look_at_locks(void *arg)
{
    struct guard *w = arg;
    (void)sys_libc.list(&sys_libc, w->x->dir, guard_one, w);
}

static void test_lock(void)
{
    for (int i = 0; i < 4; i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        struct guard w = {.x = &x};
        setup_with(&x, 0);
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.clone = true;
        fs.no_exchange = i & 1;
        fs.hook = look_at_locks;
        fs.arg = &w;
        fs.before = "rename";
        make_edit(&d, x.g, x.old, x.old_n, i & 2 ? EDIT_REFLINK : EDIT_COPY, 'n', 10);
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), 0);
        CU_ASSERT_EQUAL(w.files, 1);
        CU_ASSERT_EQUAL(w.locked, 1);
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
    /* A plan for another file. */
    d.p.old_size++;
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -ESTALE);
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

/* Each clone in turn is refused, also one after the probe: then the data is copied. */
static void test_clone_refused(void)
{
    unsigned refused = 0;
    struct faultsys fs = {.hit = true};
    for (unsigned n = 1; fs.hit; n++) {
        struct fixture x;
        struct edit d;
        struct edit_result res;
        setup_with(&x, 0);
        faultsys_init(&fs, FAULT_FAIL, n, -EOPNOTSUPP);
        fs.clone = true;
        make_edit(&d, x.g, x.old, x.old_n, EDIT_AUTO, 'n', 10);
        struct edit_file f = open_model(&x, &fs.sys);
        int r = commit(&f, &d, &res, NULL);
        if (fs.hit && strcmp(fs.what, "clone") == 0) {
            refused++;
            CU_ASSERT_EQUAL(r, 0);
            CU_ASSERT_NOT_EQUAL(res.strategy, EDIT_REFLINK);
        }
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
    CU_ASSERT_TRUE(refused >= 2);
}

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
#define ISLAND ((uint64_t)32 << 20) /* more data, behind a hole */

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
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, "island", 6, (off_t)(data_off + ISLAND)), 6);
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
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    CLEANUP(buf_free) struct buf v = BUF_INIT;
    struct edit_options o = {.strategy = s, .reserve = EDIT_RESERVE_AUTO};
    buf_uint(&v, text, 8, false);
    buf_zero(&v, text);
    edit_change_init(&c, x->g, NULL);
    CU_ASSERT_EQUAL_FATAL(set_bytes(&c, "text", 4, GGUF_STRING, v.data, v.len, EDIT_LAST, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
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
    CU_ASSERT_EQUAL(pread(f.fd, data, 8, st.st_size - (off_t)(LARGE - ISLAND) - 1), 8);
    CU_ASSERT_EQUAL(memcmp(data, "\0island", 8), 0);
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

/* edit_hooks.ready comes once, when nothing of the edit can be seen yet. */

struct readiness {
    const struct fixture *x;
    unsigned calls;
    bool old, journal;
};

static void on_ready(void *arg)
{
    struct readiness *seen = arg;
    struct stat st;
    seen->calls++;
    seen->old = is_old(seen->x);
    seen->journal = fstatat(seen->x->dir, JOURNAL, &st, 0) == 0;
}

static void test_ready(void)
{
    static const enum edit_strategy all[] = {EDIT_COPY, EDIT_REFLINK, EDIT_INPLACE};
    for (size_t i = 0; i < 3; i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        setup(&x);
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.clone = true;
        make_edit(&d, x.g, x.old, x.old_n, all[i], 'n', 100);
        struct edit_file f = open_model(&x, &fs.sys);
        struct readiness seen = {.x = &x};
        struct edit_hooks hooks = {.ready = on_ready, .arg = &seen};
        CU_ASSERT_EQUAL(edit_commit(&f, &d.p, &d.o, &hooks, &res, NULL), 0);
        CU_ASSERT_EQUAL(seen.calls, 1);
        CU_ASSERT_TRUE(seen.old);
        CU_ASSERT_FALSE(seen.journal);
        CU_ASSERT_TRUE(is_new(&x, &d));
        if (res.old_fd >= 0)
            (void)close(res.old_fd);
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

static CU_TestInfo tests[] = {
    {"a file that changed is not replaced, up to the last moment", test_stale},
    {"the new file has the lock before it has the name", test_lock},
    {"hard links are not broken unless asked", test_links},
    {"strategies that do not apply touch nothing", test_refused},
    {"data is cloned where the file system can", test_real_clone},
    {"what cannot be cloned after all is copied", test_clone_refused},
    {"owner, mode and attributes are kept, or it is refused", test_attributes},
    {"an ACL of the folder does not come with the new file", test_inherited_acl},
    {"holes stay holes, a copy reports and can be stopped", test_holes},
    {"a large model is edited in place", test_large},
    {"ready is called once, before anything of the edit can be seen", test_ready},
    CU_TEST_INFO_NULL,
};

CU_MAIN("commit", tests)
