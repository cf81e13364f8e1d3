/* SPDX-License-Identifier: MIT */
/* edit/commit: another program changes the model's owner, mode, attributes or links during an
 * edit (T5). */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "faultsys.h"
#include "model_dir.h"

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

static void begin(struct scene *s, enum what does, const char *before)
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

static void end(struct scene *s)
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
    begin(&s, does, calls[where]);
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
    end(&s);
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
    {"changes made during a copy are not undone", test_all},
    CU_TEST_INFO_NULL,
};

CU_MAIN("edit/commit meanwhile", tests)
