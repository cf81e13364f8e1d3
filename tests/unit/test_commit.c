/* SPDX-License-Identifier: MIT */
/* edit/commit: which strategy is chosen for a file, what an edit does to the rest of the file, and
 * changes that other programs make meanwhile. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "faultsys.h"
#include "model_dir.h"

/* C5, T2. Another program changes the model at the start, or just before a call. */

enum { REPLACED, REMOVED, TOUCHED, CUT };

struct intruder {
    int does;
    const char *before; /* NULL: at the start */
    bool no_exchange;
    bool back_fails; /* the second exchange, which would restore the displaced file, fails */
    const struct fixture *x;
    struct faultsys *fs;
    int fd; /* the model's descriptor */
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
    {.does = REPLACED, .before = "rename", .back_fails = true},
};

static const char foreign[] = "another file";

static void intrude(void *arg)
{
    const struct intruder *in = arg;
    /* The next calls are the exchange, the check of its result, and the exchange back. */
    if (in->back_fails) {
        in->fs->mode = FAULT_FAIL;
        in->fs->n = in->fs->calls + 3;
        in->fs->error = -EIO;
    }
    if (in->does == REMOVED)
        (void)unlinkat(in->x->dir, NAME, 0);
    if (in->does == TOUCHED) /* the bytes stay the same, but the time changes */
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
    in.fs = &fs;
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
    CU_ASSERT_EQUAL(fs.hit, kind->back_fails);
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
        for (enum edit_strategy s = EDIT_INPLACE; s <= EDIT_COPY; s++) {
            bool renames = intruders[i].before && strcmp(intruders[i].before, "rename") == 0;
            if (s != EDIT_INPLACE || !renames)
                check_stale(&intruders[i], s);
        }
}

/* T3. Another program replaces the model just before a failed edit restores the old file. */
static void replace_after(void *arg)
{
    struct intruder *in = arg;
    intrude(in);
    in->fs->mode = FAULT_FAIL; /* syncing the directory fails */
    in->fs->n = in->fs->calls + 1;
    in->fs->error = -EIO;
}

static void wait_for_sync(void *arg)
{
    struct intruder *in = arg;
    in->fs->before = "fsync";
    in->fs->hook = replace_after;
}

static void test_replaced_between(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    setup_with(&x, 0);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 10);
    struct edit_file f = open_model(&x, &fs.sys);
    struct intruder in = {.does = REPLACED, .x = &x, .fs = &fs, .fd = f.fd};
    fs.hook = wait_for_sync;
    fs.arg = &in;
    fs.before = "rename";
    CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), -EIO);
    CU_ASSERT_TRUE(fs.hit);
    CU_ASSERT_EQUAL(files(&x), 1);
    CU_ASSERT_TRUE(model_is(&x, (const uint8_t *)foreign, sizeof(foreign)));
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

/* Whichever call fails, a complete backup exists, either the old or the new one. */
static bool check_backup(unsigned n, enum edit_strategy s, bool clones)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    size_t len = 0;
    setup_with(&x, 0);
    faultsys_init(&fs, FAULT_FAIL, n, -EIO);
    fs.clone = clones;
    put_file(x.dir, NAME "~", "older", 5);
    make_edit(&d, x.g, x.old, x.old_n, s, 'n', 10);
    d.o.backup = "~";
    struct edit_file f = open_model(&x, &fs.sys);
    int r = commit(&f, &d, &res, NULL);
    uint8_t *kept = get_file(x.dir, NAME "~", &len);
    bool whole = kept && len == x.old_n && memcmp(kept, x.old, len) == 0;
    CU_ASSERT_TRUE(r == 0 ? is_new(&x, &d) : fs.hit && is_old(&x));
    CU_ASSERT_TRUE(whole || (r < 0 && kept && len == 5));
    CU_ASSERT_EQUAL(files(&x), 2);
    CU_ASSERT_TRUE(whole || !f.backed);
    free(kept);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
    return fs.hit;
}

/* Only the first edit makes a backup and needs space for it. */
static void backup_once(void)
{
    struct fixture x;
    struct edit d;
    struct edit_result res;
    struct edit_disk disk;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 10);
    d.o.backup = "~";
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(edit_look(&f, &d.o, &disk, NULL), 0);
    CU_ASSERT_TRUE(disk.backup);
    CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), 0);
    CU_ASSERT_EQUAL(edit_look(&f, &d.o, &disk, NULL), 0);
    CU_ASSERT_FALSE(disk.backup);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static void test_backup(void)
{
    backup_once();
    for (enum edit_strategy s = EDIT_INPLACE; s <= EDIT_COPY; s++)
        for (int clones = 0; clones < 2; clones++)
            for (unsigned n = 1; check_backup(n, s, clones); n++)
                ;
}

/* Obstacles are reported before any file is changed. */
static void test_backup_refused(void)
{
    static const struct {
        const char *suffix;
        bool full;
        int code;
    } all[] = {{".d", false, -EISDIR}, {"~", true, -ENOSPC}, {NULL, false, -ENAMETOOLONG}};
    char longest[NAME_MAX + 1];
    memset(longest, 'x', NAME_MAX);
    longest[NAME_MAX] = '\0';
    for (size_t i = 0; i < COUNT(all); i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        struct edit_disk disk = {0};
        struct err e = {0};
        setup(&x);
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.full = all[i].full;
        CU_ASSERT_EQUAL(mkdirat(x.dir, NAME ".d", 0700), 0);
        make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 10);
        d.o.backup = all[i].suffix ? all[i].suffix : longest;
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL(edit_look(&f, &d.o, &disk, NULL), all[i].full ? 0 : all[i].code);
        CU_ASSERT_EQUAL(disk.known, all[i].full);
        CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), all[i].code);
        CU_ASSERT_EQUAL(e.code, all[i].code);
        CU_ASSERT_TRUE(is_old(&x));
        CU_ASSERT_EQUAL(files(&x), 2);
        edit_file_close(&f);
        edit_done(&d);
        CU_ASSERT_EQUAL(unlinkat(x.dir, NAME ".d", AT_REMOVEDIR), 0);
        teardown(&x);
    }
}

/* C6. What a hook sees just before the new file takes the model's name. */
struct guard {
    const struct fixture *x;
    unsigned files, locked; /* files beside the model, and how many of them are locked */
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
    for (int i = 0; i < 2; i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        struct guard w = {.x = &x};
        setup_with(&x, 0);
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.no_exchange = i & 1;
        fs.hook = look_at_locks;
        fs.arg = &w;
        fs.before = "rename";
        make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 10);
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
        struct err e = {0};
        setup(&x);
        CU_ASSERT_EQUAL(linkat(x.dir, NAME, x.dir, "other", 0), 0);
        make_edit(&d, x.g, x.old, x.old_n, all[i], 'n', 10);
        struct edit_file f = open_model(&x, calm());
        CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EMLINK);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "cp --reflink=auto"));
        CU_ASSERT_TRUE(is_old(&x));
        CU_ASSERT_EQUAL(files(&x), 2);
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

/* Each strategy reports why it cannot be used. */
static void test_refused(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_result res;
    struct err e = {0};
    setup(&x);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    struct edit_file f = open_model(&x, &fs.sys);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 9000); /* the data would move */
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(fs.created, 0);
    d.o.strategy = EDIT_COPY;
    fs.full = true;
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -ENOSPC);
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(files(&x), 1);
    fs.full = false;
    /* A plan for a different file is refused. */
    d.p.old_size++;
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -ESTALE);
    CU_ASSERT_TRUE(is_old(&x));
    edit_done(&d);
    edit_file_close(&f);
    teardown(&x);
}

/* On a full disk, an edit that fits is made in place, also in a small model. */
static void test_full(void)
{
    struct fixture x;
    struct edit fits, moves;
    struct faultsys fs;
    struct edit_result res;
    struct err e = {0};
    setup(&x);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.full = true;
    struct edit_file f = open_model(&x, &fs.sys);
    make_edit(&moves, x.g, x.old, x.old_n, EDIT_AUTO, 'n', 9000);
    CU_ASSERT_EQUAL(commit(&f, &moves, &res, &e), -ENOSPC);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "in place"));
    CU_ASSERT_TRUE(is_old(&x));
    make_edit(&fits, x.g, x.old, x.old_n, EDIT_AUTO, 'n', 2900);
    CU_ASSERT_EQUAL(commit(&f, &fits, &res, &e), 0);
    CU_ASSERT_EQUAL(res.strategy, EDIT_INPLACE);
    CU_ASSERT_TRUE(is_new(&x, &fits));
    CU_ASSERT_EQUAL(files(&x), 1);
    edit_file_close(&f);
    edit_done(&fits);
    edit_done(&moves);
    teardown(&x);
}

/* ---- owner, mode and attributes ---- */

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

/* Attributes that a new file inherits from the directory are removed, because a default ACL must
 * not widen access. */
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

#define KEPT "user.kept"
#define ADDED "user.added"

enum what { MODE, OWNER, GROUP, ADD, REMOVE, LINK };
enum where { FILLED, SYNCED, EXCHANGED, RENAMED };

static const char *const calls[] = {
    [FILLED] = "copy_file_range",
    [SYNCED] = "fsync",
    [EXCHANGED] = "rename",
    [RENAMED] = "rename",
};

struct visitor {
    enum what does;
    struct faultsys *fs;
    const struct fixture *x;
    const char *again; /* visit again before this call, each time with another mode */
    unsigned visits;
    int fd; /* the model's descriptor */
};

static bool no_attributes; /* the file system has no user attributes */

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Repeat the change until it shows, because file times may be coarse. */
static void change_attribute(int fd, bool add)
{
    struct stat before, now;
    CU_ASSERT_EQUAL(fstat(fd, &before), 0);
    do {
        CU_ASSERT_EQUAL(fsetxattr(fd, add ? ADDED : KEPT, "new", 3, 0), 0);
        CU_ASSERT_EQUAL(add ? 0 : fremovexattr(fd, KEPT), 0);
        CU_ASSERT_EQUAL(fstat(fd, &now), 0);
    } while (same_time(&before.st_ctim, &now.st_ctim));
}

static void visit(void *arg)
{
    struct visitor *v = arg;
    v->visits++;
    if (v->does == MODE)
        CU_ASSERT_EQUAL(fchmod(v->fd, v->visits & 1 ? 0600 : 0604), 0);
    if (v->does == OWNER)
        CU_ASSERT_EQUAL(fchown(v->fd, 12345, 54321), 0);
    if (v->does == GROUP)
        CU_ASSERT_EQUAL(fchown(v->fd, (uid_t)-1, 54321), 0);
    if (v->does == ADD || v->does == REMOVE)
        change_attribute(v->fd, v->does == ADD);
    if (v->does == LINK)
        CU_ASSERT_EQUAL(linkat(v->x->dir, NAME, v->x->dir, "other", 0), 0);
    v->fs->before = v->again;
}

static bool has_new_group(enum what does)
{
    return does == OWNER || does == GROUP;
}

/* Check that the model, whether old or new, has the attributes set by the visitor. */
static void check_attributes(const struct visitor *v)
{
    struct stat st;
    char value[16];
    int fd = openat(v->x->dir, NAME, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(fstat(fd, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, v->does == MODE ? v->visits & 1 ? 0600 : 0604 : 0640);
    CU_ASSERT_EQUAL(st.st_uid, v->does == OWNER ? 12345 : geteuid());
    CU_ASSERT_EQUAL(st.st_gid, has_new_group(v->does) ? 54321 : getegid());
    bool kept = v->does != REMOVE && !no_attributes;
    CU_ASSERT_EQUAL(fgetxattr(fd, KEPT, value, sizeof(value)), kept ? 3 : -1);
    CU_ASSERT_EQUAL(fgetxattr(fd, ADDED, value, sizeof(value)), v->does == ADD ? 3 : -1);
    (void)close(fd);
}

struct scene {
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_file f;
    struct visitor v;
};

static void visit_begin(struct scene *s, enum what does, const char *before)
{
    setup_with(&s->x, 0);
    faultsys_init(&s->fs, FAULT_NONE, 0, 0);
    make_edit(&s->d, s->x.g, s->x.old, s->x.old_n, EDIT_COPY, 'n', 10);
    s->f = open_model(&s->x, &s->fs.sys);
    no_attributes = fsetxattr(s->f.fd, KEPT, "old", 3, 0) < 0;
    CU_ASSERT_EQUAL(fchmod(s->f.fd, 0640), 0);
    s->v = (struct visitor){.does = does, .fs = &s->fs, .x = &s->x, .fd = s->f.fd};
    s->fs.before = before;
    s->fs.hook = visit;
    s->fs.arg = &s->v;
}

static void visit_end(struct scene *s)
{
    edit_file_close(&s->f);
    edit_done(&s->d);
    teardown(&s->x);
}

static int expected(enum what does, enum where where)
{
    if (where == RENAMED) /* too late to prevent the edit */
        return 0;
    if (does == LINK)
        return -EMLINK;
    return where == EXCHANGED && (does == MODE || has_new_group(does)) ? -EBUSY : 0;
}

static void check_one(enum what does, enum where where)
{
    struct scene s;
    struct edit_result res;
    struct err e = {0};
    visit_begin(&s, does, calls[where]);
    s.fs.no_exchange = where == RENAMED;
    int r = commit(&s.f, &s.d, &res, &e), want = expected(does, where);
    if (r != want)
        (void)printf("\n%d, %d: %d %s\n", does, where, r, e.msg);
    CU_ASSERT_EQUAL(r, want);
    CU_ASSERT_EQUAL(e.code, want);
    CU_ASSERT_EQUAL(s.v.visits, 1);
    CU_ASSERT_TRUE(r < 0 ? is_old(&s.x) : is_new(&s.x, &s.d));
    CU_ASSERT_EQUAL(files(&s.x), does == LINK ? 2 : 1);
    if (where == FILLED || where == SYNCED || r < 0)
        check_attributes(&s.v);
    if (r == -EBUSY) /* the next edit succeeds */
        CU_ASSERT_EQUAL(commit(&s.f, &s.d, &res, &e), 0);
    visit_end(&s);
}

static bool can_do(enum what does)
{
    return has_new_group(does) ? geteuid() == 0 : !no_attributes || (does != ADD && does != REMOVE);
}

static void test_all(void)
{
    for (enum what does = MODE; does <= LINK; does++)
        for (enum where where = FILLED; where <= RENAMED; where++)
            if (can_do(does))
                check_one(does, where);
}

static CU_TestInfo tests[] = {
    {"a file that changed is not replaced, even at the last moment", test_stale},
    {"a file that appears after a failed edit stays", test_replaced_between},
    {"a backup is complete or absent", test_backup},
    {"a backup that cannot be made is refused before any change", test_backup_refused},
    {"the new file is locked before it gets the name", test_lock},
    {"a model with other hard links is not edited", test_links},
    {"a strategy that does not apply changes nothing", test_refused},
    {"a full disk does not prevent an edit in place", test_full},
    {"owner, mode and attributes are kept, or the edit is refused", test_attributes},
    {"the new file does not inherit an ACL of the directory", test_inherited_acl},
    {"changes made during a copy are not undone", test_all},
    CU_TEST_INFO_NULL,
};

CU_MAIN("commit", tests)
