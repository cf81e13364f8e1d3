/* SPDX-License-Identifier: MIT */
/* edit/commit: which files are opened, which way of writing is taken, what an edit does to the rest
 * of the file, and changes that other programs make meanwhile. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "changes.h"
#include "model_dir.h"

/* ---- opening ---- */

static void open_is(const struct fixture *x, const char *name, bool write, int want)
{
    struct edit_file f;
    struct err e = {0};
    int r = edit_file_open(&f, calm(), x->dir, name, write, &e);
    CU_ASSERT_EQUAL(r, want);
    CU_ASSERT_EQUAL(e.code, want);
    if (r == 0)
        edit_file_close(&f);
}

TEST("regular files are opened, and others are refused")
{
    CLEANUP(teardown) struct fixture x = setup();
    char name[NAME_MAX + 2];
    CU_ASSERT_EQUAL(mkfifoat(x.dir, "fifo", 0600), 0);
    CU_ASSERT_EQUAL(symlinkat(NAME, x.dir, "link"), 0);
    memset(name, 'n', sizeof(name));
    name[NAME_MAX + 1] = '\0';
    put_file(x.dir, name + 1, "x", 1);
    open_is(&x, "fifo", false, -EINVAL);
    open_is(&x, "fifo", true, -EINVAL);
    open_is(&x, ".", false, -EINVAL);
    open_is(&x, "link", true, -ELOOP);
    open_is(&x, "none", false, -ENOENT);
    open_is(&x, name, false, -ENAMETOOLONG);
    open_is(&x, name + 1, false, 0);
    /* A file can have one writer and any number of readers. */
    CLEANUP(edit_file_close) struct edit_file f = open_model(&x, calm());
    open_is(&x, NAME, true, -EWOULDBLOCK);
    open_is(&x, NAME, false, 0);
}

/* Names of 240 bytes are kept whole in the journal's name; longer ones are cut, and hashed. */
TEST("names beside the model are built from its name")
{
    char got[NAME_MAX + 1], other[NAME_MAX + 1], name[NAME_MAX + 1];
    edit_side_name(got, "m.gguf", "journal");
    CU_ASSERT_STRING_EQUAL(got, ".m.gguf.ggufs-journal");
    memset(name, 'n', sizeof(name));
    for (size_t n = 240; n <= NAME_MAX; n += 15) {
        name[n] = '\0';
        edit_side_name(got, name, "journal");
        CU_ASSERT_EQUAL(strlen(got), NAME_MAX);
        CU_ASSERT_EQUAL(strspn(got + 1, "n"), n == 240 ? 240 : 223);
        CU_ASSERT_STRING_EQUAL(got + NAME_MAX - 14, ".ggufs-journal");
        name[n - 1] = 'm';
        edit_side_name(other, name, "journal");
        CU_ASSERT_STRING_NOT_EQUAL(got, other);
        name[n - 1] = name[n] = 'n';
    }
}

/* ---- another program changes the model ---- */

enum { REPLACED, REMOVED, PIPED, TOUCHED, CUT };

static void meddle(const struct fixture *x, int fd, int how)
{
    if (how == REMOVED || how == PIPED)
        CU_ASSERT_EQUAL(unlinkat(x->dir, NAME, 0), 0);
    if (how == PIPED)
        CU_ASSERT_EQUAL(mkfifoat(x->dir, NAME, 0600), 0);
    if (how == TOUCHED) /* the bytes stay the same, but the time changes */
        CU_ASSERT_EQUAL(futimens(fd, (struct timespec[2]){{1, 0}, {1, 0}}), 0);
    if (how == CUT)
        CU_ASSERT_EQUAL(ftruncate(fd, 100), 0);
    if (how != REPLACED)
        return;
    put_file(x->dir, "other", x->old, x->old_n);
    CU_ASSERT_EQUAL(renameat(x->dir, "other", x->dir, NAME), 0);
}

struct meddler {
    const struct fixture *x;
    int how;
};

static void meddle_now(void *arg)
{
    meddle(((struct meddler *)arg)->x, -1, ((struct meddler *)arg)->how);
}

/* The model is replaced while it is opened: the file that then has the name is opened. */
TEST("a model is replaced while it is opened")
{
    static const struct {
        const char *before;
        int how, want;
    } rows[] = {{"flock", REPLACED, 0}, {"flock", REMOVED, -ENOENT}, {"openat", PIPED, -EINVAL}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        CLEANUP(teardown) struct fixture x = setup();
        struct faultsys fs;
        struct edit_file f;
        struct stat st;
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.before = rows[i].before;
        fs.hook = meddle_now;
        fs.arg = &(struct meddler){&x, rows[i].how};
        int r = edit_file_open(&f, &fs.sys, x.dir, NAME, true, NULL);
        CU_ASSERT_EQUAL(r, rows[i].want);
        if (r == 0) {
            CU_ASSERT_EQUAL(fstatat(x.dir, NAME, &st, 0), 0);
            CU_ASSERT_EQUAL(f.id.ino, st.st_ino);
            edit_file_close(&f);
        }
    }
}

/* C5, T2. Another program changes the model at the start, or just before a call. */
struct intruder {
    int does;
    const char *before; /* NULL: at the start */
    bool no_exchange;
    bool back_fails; /* the second exchange, which would restore the displaced file, fails */
    struct scene *s;
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

static void intrude(void *arg)
{
    const struct intruder *in = arg;
    struct faultsys *fs = &in->s->fs;
    /* The next calls are the exchange, the check of its result, and the exchange back. */
    if (in->back_fails) {
        fs->mode = FAULT_FAIL;
        fs->n = fs->calls + 3;
        fs->error = -EIO;
    }
    meddle(&in->s->x, in->s->f.fd, in->does);
}

static void check_stale(const struct intruder *kind, enum edit_strategy how)
{
    CLEANUP(scene_end) struct scene s;
    struct stat st;
    scene_begin(&s, how, 10);
    struct intruder in = *kind;
    in.s = &s;
    s.fs.clone = true;
    s.fs.no_exchange = kind->no_exchange;
    s.fs.hook = intrude;
    s.fs.arg = &in;
    s.fs.before = kind->before;
    if (!kind->before)
        intrude(&in);
    CU_ASSERT_EQUAL(scene_commit(&s), -ESTALE);
    CU_ASSERT_EQUAL(s.fs.hit, kind->back_fails);
    CU_ASSERT_EQUAL(files_in(s.x.dir), kind->does == REMOVED ? 0 : 1);
    CU_ASSERT_TRUE(kind->does == REMOVED || kind->does == CUT || is_old(&s.x));
    if (kind->does == REPLACED) { /* the other program's file stays */
        CU_ASSERT_EQUAL(fstatat(s.x.dir, NAME, &st, 0), 0);
        CU_ASSERT_NOT_EQUAL(st.st_ino, s.f.id.ino);
    }
}

TEST("a file that changed is not replaced, even at the last moment")
{
    for (size_t i = 0; i < COUNT(intruders); i++)
        for (enum edit_strategy how = EDIT_INPLACE; how <= EDIT_COPY; how++) {
            bool renames = intruders[i].before && strcmp(intruders[i].before, "rename") == 0;
            if (how != EDIT_INPLACE || !renames)
                check_stale(&intruders[i], how);
        }
}

/* ---- obstacles ---- */

/* What stands in the way of an edit, and its result: then nothing changes, and no file is left. */
static const struct obstacle {
    enum edit_strategy how;
    size_t len; /* of the new text; 9000: the data moves */
    struct fault_lacks lacks;
    int no_seek;
    bool full, clone, link, other_plan;
    const char *backup; /* LONG: a name that is too long */
    int want;
    const char *says;
} obstacles[] = {
    {EDIT_COPY, 10, .want = 0},
    {EDIT_INPLACE, 9000, .want = -EOPNOTSUPP},
    {EDIT_INPLACE, 10, .other_plan = true, .want = -ESTALE},
    {EDIT_COPY, 10, .link = true, .want = -EMLINK, .says = "cp --reflink=auto"},
    {EDIT_INPLACE, 10, .link = true, .want = -EMLINK},
    {EDIT_AUTO, 10, .link = true, .want = -EMLINK},
    /* a full disk: what fits is written in place */
    {EDIT_COPY, 10, .full = true, .want = -ENOSPC},
    {EDIT_AUTO, 9000, .full = true, .want = -ENOSPC, .says = "in place"},
    {EDIT_AUTO, 2900, .full = true, .want = 0},
    {EDIT_INPLACE, 10, .full = true, .want = 0},
    {EDIT_INPLACE, 10, .full = true, .clone = true, .want = -ENOSPC},
    /* names cannot be removed; a rename over the model removes it */
    {EDIT_COPY, 10, .lacks.sticky = true, .lacks.no_rename = -EIO, .want = -EIO},
    {EDIT_COPY, 10, .lacks.no_replace = -EACCES, .want = -EACCES, .says = "the new file is ."},
    /* holes cannot be searched for */
    {EDIT_COPY, 10, .no_seek = -EIO, .want = -EIO},
    {EDIT_COPY, 10, .no_seek = -EINVAL, .want = 0},
    {EDIT_COPY, 10, .no_seek = -EOPNOTSUPP, .want = 0},
    /* backups */
    {EDIT_INPLACE, 10, .backup = ".d", .want = -EISDIR},
    {EDIT_INPLACE, 10, .backup = "~", .full = true, .want = -ENOSPC},
    {EDIT_INPLACE, 10, .backup = "LONG", .want = -ENAMETOOLONG},
};

static int seek_error; /* of the first search for data; later ones succeed */

static int weak_seek(const struct sys *s, int fd, uint64_t off, int from, uint64_t *ret)
{
    (void)s;
    int r = seek_error;
    seek_error = from == SEEK_DATA ? 0 : r;
    return r ? r : sys_libc.seek(&sys_libc, fd, off, from, ret);
}

static void check_obstacle(const struct obstacle *o)
{
    CLEANUP(scene_end) struct scene s;
    char longest[NAME_MAX + 1];
    memset(longest, 'x', NAME_MAX);
    longest[NAME_MAX] = '\0';
    scene_begin(&s, o->how, o->len);
    s.fs.full = o->full;
    s.fs.clone = o->clone;
    s.fs.lacks = o->lacks;
    seek_error = o->no_seek;
    if (o->no_seek)
        s.fs.sys.seek = weak_seek;
    if (o->link)
        CU_ASSERT_EQUAL(linkat(s.x.dir, NAME, s.x.dir, "other", 0), 0);
    s.d.p.old_size += o->other_plan;
    CU_ASSERT_EQUAL(mkdirat(s.x.dir, NAME ".d", 0700), 0);
    s.d.o.backup = o->backup && *o->backup == 'L' ? longest : o->backup;
    int r = scene_commit(&s);
    CU_SAYS(r == o->want, "%zu: %d, %s\n", (size_t)(o - obstacles), r, s.e.msg);
    CU_ASSERT_TRUE(!o->says || strstr(s.e.msg, o->says));
    if (!o->lacks.no_replace) /* else the new file stays under its own name */
        CU_ASSERT_TRUE(r == 0 ? is_new(&s.x, &s.d) : is_old(&s.x));
    CU_ASSERT_EQUAL(files_in(s.x.dir), 2 + o->link);
    CU_ASSERT_TRUE(!o->full || r < 0 || s.res.strategy == EDIT_INPLACE);
}

TEST("an edit that cannot be made changes nothing")
{
    for (size_t i = 0; i < COUNT(obstacles); i++)
        check_obstacle(&obstacles[i]);
}

/* Whichever call fails, a complete backup exists, either the old or the new one. */
static bool check_backup(unsigned n, int error, enum edit_strategy how, bool clones)
{
    struct scene s;
    size_t len = 0;
    scene_begin(&s, how, 10);
    s.d.o.backup = "~";
    put_file(s.x.dir, NAME "~", "older", 5);
    s.fs.mode = FAULT_FAIL;
    s.fs.n = n;
    s.fs.error = error;
    s.fs.clone = clones;
    int r = scene_commit(&s);
    uint8_t *kept = get_file(s.x.dir, NAME "~", &len);
    bool whole = len == s.x.old_n && memcmp(kept, s.x.old, len) == 0;
    CU_ASSERT_TRUE(r == 0 ? is_new(&s.x, &s.d) : s.fs.hit && is_old(&s.x));
    CU_ASSERT_TRUE(whole || (r < 0 && len == 5 && !s.f.backed));
    CU_ASSERT_EQUAL(files_in(s.x.dir), 2);
    /* Only the first edit makes a backup, and needs room for it. */
    if (!s.fs.hit) {
        struct edit_disk disk;
        s.fs.mode = FAULT_NONE;
        CU_ASSERT_EQUAL(edit_look(&s.f, &s.d.o, &disk, NULL), 0);
        CU_ASSERT_FALSE(disk.backup);
    }
    const bool hit = s.fs.hit;
    free(kept);
    scene_end(&s);
    return hit;
}

TEST("a backup is complete or absent")
{
    for (enum edit_strategy how = EDIT_AUTO; how <= EDIT_COPY; how++)
        for (int i = 0; i < 4; i++)
            for (unsigned n = 1; check_backup(n, i & 1 ? -ENOSPC : -EIO, how, i & 2); n++)
                ;
}

/* ---- probes ---- */

/* A store and the results of its probes, in order. Probing ends at the first failure. */
static const struct weak_store {
    const char *name;
    struct fault_lacks lacks;
    int result;       /* 0 for any error that may be temporary */
    unsigned created; /* files created */
} stores[] = {
    {"a disk", {0, 0, 0, 0, 0, 0, false}, 0, 0},
    {"no attributes", {0, 0, -EOPNOTSUPP, 0, 0, 0, false}, 0, 0},
    {"no files without a name", {-EOPNOTSUPP, 0, 0, 0, 0, 0, false}, 0, 2},
    {"an old kernel", {-EISDIR, 0, 0, 0, 0, 0, false}, 0, 2},
    {"names that stay", {-EOPNOTSUPP, 0, 0, 0, 0, 0, true}, 0, 2},
    {"reading fails", {-EOPNOTSUPP, 0, 0, -EPERM, 0, 0, true}, -EPERM, 0},
    {"listing fails", {-EOPNOTSUPP, 0, -EIO, 0, 0, 0, true}, -EIO, 0},
    {"no new files", {-EOPNOTSUPP, -EROFS, 0, 0, 0, 0, false}, -EROFS, 0},
    {"no room", {-ENOSPC, -ENOSPC, 0, 0, 0, 0, false}, 0, 0},
    {"no renaming", {-EOPNOTSUPP, 0, 0, 0, -ENOSYS, 0, true}, -ENOSYS, 2},
    {"SMB", {-EOPNOTSUPP, 0, 0, 0, 0, -EACCES, false}, -EACCES, 2},
};

TEST("missing features of a store are found, and no file is left")
{
    for (size_t i = 0; i < COUNT(stores); i++) {
        const struct weak_store *w = &stores[i];
        CLEANUP(scene_end) struct scene s;
        scene_begin(&s, EDIT_COPY, 10);
        s.fs.lacks = w->lacks;
        int r = edit_try(&s.f, true, &s.e);
        CU_SAYS(r == w->result, "%s: %d, %s\n", w->name, r, s.e.msg);
        CU_ASSERT_TRUE(r == 0 || s.e.code == r);
        CU_ASSERT_EQUAL(s.fs.created, w->created);
        CU_ASSERT_TRUE(files_in(s.x.dir) == 1 && is_old(&s.x) && is_locked(&s.x));
    }
}

/* If call n fails, no file is left. */
static bool try_at(unsigned n, int error, int no_tmpfile)
{
    struct scene s;
    scene_begin(&s, EDIT_COPY, 10);
    faultsys_init(&s.fs, FAULT_FAIL, n, error);
    s.fs.lacks.no_tmpfile = no_tmpfile;
    (void)edit_try(&s.f, true, NULL);
    const bool hit = s.fs.hit;
    CU_ASSERT_TRUE(files_in(s.x.dir) == 1 && is_old(&s.x));
    scene_end(&s);
    return hit;
}

TEST("if a probe's call fails, no file is left")
{
    static const int errors[] = {-EIO, -ENOSPC, -EINTR, -EPERM};
    for (size_t i = 0; i < 2 * COUNT(errors); i++) {
        unsigned n = 1;
        while (try_at(n, errors[i / 2], i & 1 ? -EOPNOTSUPP : 0))
            n++;
        CU_ASSERT_TRUE(n > 5);
    }
}

/* ---- the new file's lock, owner, mode and attributes ---- */

#define KEPT "user.kept"
#define ADDED "user.added"

static bool no_attributes; /* the file system has no user attributes */

/* If an attribute cannot be set, the edit is refused. */
TEST("an edit is refused if an attribute cannot be kept")
{
    static const int codes[][2] = {{-EOPNOTSUPP, -EPERM}, {-E2BIG, -EPERM},   {-EACCES, -EPERM},
                                   {-ENOSPC, -ENOSPC},    {-EDQUOT, -EDQUOT}, {-EIO, -EIO}};
    for (size_t i = 0; i < COUNT(codes); i++) {
        CLEANUP(scene_end) struct scene s;
        scene_begin_at(&s, "/tmp", EDIT_COPY, 10);
        no_attributes = fsetxattr(s.f.fd, KEPT, "old", 3, 0) < 0;
        s.fs.no_xattr = codes[i][0];
        if (no_attributes)
            (void)printf("(no extended attributes here) ");
        else
            CU_ASSERT_EQUAL(scene_commit(&s), codes[i][1]);
        CU_ASSERT_TRUE(is_old(&s.x) && files_in(s.x.dir) == 1);
    }
}

/* Attributes that a new file inherits from the directory are removed, because a default ACL must
 * not widen access. */
TEST("neither a new file nor a journal inherits an ACL of the directory")
{
    /* version 2; user rwx, user 1 rwx, group r-x, mask rwx, other r-- (tag, permissions, id) */
    static const uint8_t acl[] = {2,    0,    0,    0,    0x01, 0,    7,    0,    0xff, 0xff, 0xff,
                                  0xff, 0x02, 0,    7,    0,    1,    0,    0,    0,    4,    0,
                                  5,    0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,    7,    0,    0xff,
                                  0xff, 0xff, 0xff, 0x20, 0,    4,    0,    0xff, 0xff, 0xff, 0xff};
    CLEANUP(scene_end) struct scene s;
    struct stat st, model;
    char value[128];
    scene_begin_at(&s, "/tmp", EDIT_COPY, 10);
    if (fsetxattr(s.x.dir, "system.posix_acl_default", acl, sizeof(acl), 0) < 0)
        (void)printf("(no ACLs here) ");
    CU_ASSERT_EQUAL(scene_commit(&s), 0);
    CU_ASSERT_EQUAL(fgetxattr(s.f.fd, "system.posix_acl_access", value, sizeof(value)), -1);
    CU_ASSERT_EQUAL(fstat(s.f.fd, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0640);
    /* Nor can anybody but the model's owner read a journal. */
    CU_ASSERT_EQUAL(fchmod(s.f.fd, 0666), 0);
    (void)!fchown(s.f.fd, 12345, 12345); /* if root runs this */
    CU_ASSERT_EQUAL(fstat(s.f.fd, &model), 0);
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    CU_ASSERT_EQUAL(journal_write(&s.f, &s.d.p, NULL, &j, &s.e), 0);
    CU_ASSERT_EQUAL_FATAL(fstatat(s.x.dir, JOURNAL, &st, 0), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, 0600);
    CU_ASSERT_EQUAL(st.st_uid, model.st_uid);
}

enum what { NOTHING, MODE, OWNER, GROUP, ADD, REMOVE, LINK };
enum where { FILLED, SYNCED, EXCHANGED, RENAMED };

static const char *const calls[] = {
    [FILLED] = "copy_file_range",
    [SYNCED] = "fsync",
    [EXCHANGED] = "rename",
    [RENAMED] = "rename",
};

struct visitor {
    enum what does;
    struct scene *s;
    unsigned visits;
};

/* Repeat the change until it shows, because file times may be coarse. */
static void change_attribute(int fd, bool add)
{
    struct stat before, now;
    CU_ASSERT_EQUAL(fstat(fd, &before), 0);
    do {
        CU_ASSERT_EQUAL(fsetxattr(fd, add ? ADDED : KEPT, "new", 3, 0), 0);
        CU_ASSERT_EQUAL(add ? 0 : fremovexattr(fd, KEPT), 0);
        CU_ASSERT_EQUAL(fstat(fd, &now), 0);
    } while (memcmp(&before.st_ctim, &now.st_ctim, sizeof(now.st_ctim)) == 0);
}

static void visit(void *arg)
{
    struct visitor *v = arg;
    const int fd = v->s->f.fd;
    v->visits++;
    if (v->does == MODE)
        CU_ASSERT_EQUAL(fchmod(fd, 0600), 0);
    if (v->does == OWNER || v->does == GROUP)
        CU_ASSERT_EQUAL(fchown(fd, v->does == OWNER ? 12345 : (uid_t)-1, 54321), 0);
    if (v->does == ADD || v->does == REMOVE)
        change_attribute(fd, v->does == ADD);
    if (v->does == LINK)
        CU_ASSERT_EQUAL(linkat(v->s->x.dir, NAME, v->s->x.dir, "other", 0), 0);
}

/* Check that the model, whether old or new, has the attributes set by the visitor. */
static void check_attributes(const struct visitor *v)
{
    struct stat st;
    char value[16];
    int fd = openat(v->s->x.dir, NAME, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(fstat(fd, &st), 0);
    CU_ASSERT_EQUAL(st.st_mode & 07777, v->does == MODE ? 0600 : 0604);
    CU_ASSERT_EQUAL(st.st_uid, v->does == OWNER ? 12345 : geteuid());
    CU_ASSERT_EQUAL(st.st_gid, v->does == OWNER || v->does == GROUP ? 54321 : getegid());
    bool kept = v->does != REMOVE && !no_attributes;
    CU_ASSERT_EQUAL(fgetxattr(fd, KEPT, value, sizeof(value)), kept ? 3 : -1);
    CU_ASSERT_EQUAL(fgetxattr(fd, ADDED, value, sizeof(value)), v->does == ADD ? 3 : -1);
    (void)close(fd);
}

static int expected(enum what does, enum where where)
{
    if (where == RENAMED) /* too late to prevent the edit */
        return 0;
    if (does == LINK)
        return -EMLINK;
    return where == EXCHANGED && (does == MODE || does == OWNER || does == GROUP) ? -EBUSY : 0;
}

/* T5. Owner, mode and attributes are those that the model has when it is displaced. */
static void check_visit(enum what does, enum where where)
{
    CLEANUP(scene_end) struct scene s;
    scene_begin_at(&s, "/tmp", EDIT_COPY, 10);
    struct visitor v = {.does = does, .s = &s};
    no_attributes = fsetxattr(s.f.fd, KEPT, "old", 3, 0) < 0;
    CU_ASSERT_EQUAL(fchmod(s.f.fd, 0604), 0);
    s.fs.before = calls[where];
    s.fs.hook = visit;
    s.fs.arg = &v;
    s.fs.no_exchange = where == RENAMED;
    int r = scene_commit(&s), want = expected(does, where);
    CU_SAYS(r == want, "%d, %d: %d %s\n", does, where, r, s.e.msg);
    CU_ASSERT_EQUAL(v.visits, 1);
    CU_ASSERT_TRUE(r < 0 ? is_old(&s.x) : is_new(&s.x, &s.d));
    CU_ASSERT_EQUAL(files_in(s.x.dir), does == LINK ? 2 : 1);
    if (where == FILLED || where == SYNCED || r < 0)
        check_attributes(&v);
    if (r == -EBUSY) /* the next edit succeeds */
        CU_ASSERT_EQUAL(scene_commit(&s), 0);
}

TEST("owner, mode and attributes are kept, also if they change during a copy")
{
    for (enum what does = NOTHING; does <= LINK; does++)
        for (enum where where = FILLED; where <= RENAMED; where++)
            if (does == OWNER || does == GROUP ? geteuid() == 0
                                               : !no_attributes || (does != ADD && does != REMOVE))
                check_visit(does, where);
}

/* ---- a large model that is mostly a hole ---- */

#define LARGE ((uint64_t)66 << 20)
#define LARGE_DATA 100000
#define ISLAND ((uint64_t)32 << 20) /* offset of more data, after a hole */
/* Number of bytes to write, starting at byte 5 of the tensor; all processors write in parallel. */
#define WRITTEN ((uint64_t)9 << 20)

static void large_begin(struct scene *s, enum edit_strategy how)
{
    scene_begin_at(s, "/tmp", how, 10);
    free(s->x.old);
    gguf_free(s->x.g);
    struct build b = build_of(3, false);
    build_text(&b, "general.architecture=test|text=0123456789");
    build_tensor(&b, "large", I8, SHAPE(LARGE), NULL, LARGE_DATA);
    build_tensor_at(&b, "gone", I8, SHAPE(4096), LARGE, NULL, 4096);
    build_tensor_at(&b, "last", I8, SHAPE(4096), LARGE + 4096, NULL, 4096);
    b.no_tail = true;
    s->x.old = build_finish(&b, &s->x.old_n);
    struct source src = source_mem(s->x.old, s->x.old_n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, 0, &s->x.g, NULL), 0);
    const uint64_t data_off = s->x.g->data_off;
    const int fd = s->f.fd;
    put_file(s->x.dir, NAME, s->x.old, data_off + LARGE_DATA);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, "island", 6, (off_t)(data_off + ISLAND)), 6);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, "last", 4, (off_t)(data_off + LARGE + 4096)), 4);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, (off_t)(data_off + LARGE + 8192)), 0);
    CU_ASSERT_EQUAL(edit_file_note(&s->f, NULL), 0);
    gguf_free(s->x.g);
    CU_ASSERT_EQUAL_FATAL(source_fd(fd, &src, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, 0, &s->x.g, NULL), 0);
}

struct watch {
    uint64_t last, total;
    bool falls;
};

static void watch_progress(uint64_t done, uint64_t total, void *arg)
{
    struct watch *w = arg;
    w->falls |= done < w->last;
    w->last = done;
    w->total = total;
}

/* Commit the change, and check that its progress was reported and that holes are kept. */
static void large_commit(struct scene *s, const struct edit_change *c, uint64_t least)
{
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct watch w = {0};
    struct edit_hooks h = {.progress = watch_progress, .arg = &w};
    struct stat st;
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(c, &s->d.o, &p, NULL), 0);
    CU_ASSERT_EQUAL(edit_commit(&s->f, &p, &s->d.o, &h, &s->res, NULL), 0);
    if (s->res.old_fd >= 0)
        (void)close(s->res.old_fd);
    CU_ASSERT_TRUE(!w.falls && w.last == w.total && w.total >= least);
    CU_ASSERT_EQUAL(s->res.strategy, s->d.o.strategy);
    CU_ASSERT_EQUAL(fstat(s->f.fd, &st), 0);
    CU_ASSERT_EQUAL((uint64_t)st.st_size, p.image->size);
    CU_ASSERT_TRUE((uint64_t)st.st_blocks * 512 < LARGE / 4);
    CU_ASSERT_EQUAL(files_in(s->x.dir), 1);
}

/* The tensor `large` ends in a hole; the one after it is removed. */
TEST("holes are kept, and a copy reports its progress")
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(scene_end) struct scene s;
    uint8_t text[8 + 5000] = {0}, data[LARGE_DATA];
    struct stat st;
    large_begin(&s, EDIT_COPY);
    put_u64(text, 5000, false);
    edit_change_init(&c, &(struct edit_base){.g = s.x.g});
    CU_ASSERT_EQUAL(set_bytes(&c, "text", 4, GGUF_STRING, text, sizeof(text), NULL), 0);
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "gone", 4, NULL), 0);
    large_commit(&s, &c, LARGE);
    CU_ASSERT_EQUAL(fstat(s.f.fd, &st), 0);
    const uint64_t at = (uint64_t)st.st_size - LARGE - 4096;
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, s.f.fd, data, LARGE_DATA, at), 0);
    CU_ASSERT_EQUAL(memcmp(data, s.x.old + s.x.g->data_off, LARGE_DATA), 0);
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, s.f.fd, data, 8, at + ISLAND - 1), 0);
    CU_ASSERT_EQUAL(memcmp(data, "\0island", 8), 0);
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, s.f.fd, data, 8, at + LARGE - 2), 0);
    CU_ASSERT_EQUAL(memcmp(data, "\0\0last\0", 8), 0);
}

/* A long edit in place reports its progress and succeeds. */
TEST("many bytes of a tensor are replaced in place")
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(scene_end) struct scene s;
    large_begin(&s, EDIT_INPLACE);
    const size_t n = WRITTEN + 10, data_off = s.x.g->data_off;
    uint8_t *bytes = calloc(n, 1), *got = malloc(n);
    memcpy(bytes, s.x.old + data_off, LARGE_DATA);
    for (size_t i = 0; i < WRITTEN; i++)
        bytes[5 + i] = (uint8_t)(i * 7 + i / 256 + 1);
    struct log *d = memory_draft(bytes, n);
    const struct tensor_piece piece = {5, WRITTEN, 5, d};
    edit_change_init(&c, &(struct edit_base){.g = s.x.g});
    CU_ASSERT_EQUAL(edit_tensor_set(&c, "large", 5, NULL, &piece, 1, NULL), 0);
    log_unref(d);
    large_commit(&s, &c, WRITTEN);
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, s.f.fd, got, n, data_off), 0);
    CU_ASSERT_EQUAL(memcmp(got, bytes, n), 0);
    free(bytes);
    free(got);
}
