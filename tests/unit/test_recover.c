/* SPDX-License-Identifier: MIT */
/* edit/journal and edit/commit: files left behind by a crash, and the names and locks of files. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/bytes.h"
#include "edit/journal.h"
#include "edit/open.h"
#include "faultsys.h"
#include "model_dir.h"
#include "put_journal.h"

static void test_recover_again(void)
{
    for (unsigned n = 1, hit = 1; hit; n++) {
        struct fixture x;
        struct edit d;
        struct edit_recovered found;
        setup_with(&x, 0);
        make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
        struct edit_file f = open_model(&x, calm());
        const uint64_t len = d.p.head.len;
        CU_ASSERT_EQUAL(put_journal_of(&f, &d.p), 0);
        /* Tear the header: write every other sector. */
        for (uint64_t at = 0; at < len; at += 1024)
            CU_ASSERT_EQUAL(sys_write_all(&sys_libc, f.fd, d.p.head.data + at,
                                          (size_t)min_u64(512, len - at), at),
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

/* ---- the journal ---- */

/* Changes made to an edit's journal and to other files before the journal is found. */
struct tamper {
    const char *name;
    void (*do_it)(const struct fixture *x, struct edit_file *f);
    int code;     /* result of the recovery */
    bool read;    /* the journal is not ours, so it does not prevent reading */
    bool applied; /* true: the model then has the new content; false: the old content */
    bool stays;   /* the journal still exists afterwards */
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
    CU_ASSERT_EQUAL(pwrite(fd, "?", 1, JOURNAL_SECTOR + 200), 1);
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

/* Replace the journal with a pipe, which a mount must neither use nor wait for. */
static void pipe_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    CU_ASSERT_EQUAL(unlinkat(x->dir, JOURNAL, 0), 0);
    CU_ASSERT_EQUAL(mkfifoat(x->dir, JOURNAL, 0666), 0);
}

static void folder_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    CU_ASSERT_EQUAL(unlinkat(x->dir, JOURNAL, 0), 0);
    CU_ASSERT_EQUAL(mkdirat(x->dir, JOURNAL, 0777), 0);
}

/* Replace the journal with a device without a driver, so that opening it fails. */
static void device_journal(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    CU_ASSERT_EQUAL(unlinkat(x->dir, JOURNAL, 0), 0);
    CU_ASSERT_EQUAL(mknodat(x->dir, JOURNAL, S_IFCHR | 0666, makedev(240, 4242)), 0);
}

static void give_journal_away(const struct fixture *x, struct edit_file *f)
{
    (void)f;
    CU_ASSERT_EQUAL(fchownat(x->dir, JOURNAL, 12345, 12345, 0), 0);
}

/* Put the journal beside another model of the same size. */
static void rename_model(const struct fixture *x, struct edit_file *f)
{
    edit_file_close(f);
    CU_ASSERT_EQUAL(renameat(x->dir, NAME, x->dir, "x.gguf"), 0);
    CU_ASSERT_EQUAL(renameat(x->dir, JOURNAL, x->dir, ".x.gguf.ggufs-journal"), 0);
    CU_ASSERT_EQUAL(edit_file_open(f, &sys_libc, x->dir, "x.gguf", true, NULL), 0);
}

static const struct tamper tampers[] = {
    {"nothing", tamper_nothing, 0, false, true, false},
    {"journal cut", cut_journal, 0, false, false, false},
    {"journal empty", empty_journal, 0, false, false, false},
    {"journal damaged", flip_journal, 0, false, false, false},
    {"header written", change_model, -ESTALE, false, false, true},
    {"size changed", lengthen_model, -ESTALE, false, false, true},
    {"model renamed", rename_model, -ESTALE, false, false, true},
    {"journal linked", link_journal, -ESTALE, true, false, true},
    {"journal a symbolic link", symlink_journal, -ESTALE, true, false, true},
    {"journal a pipe", pipe_journal, -ESTALE, true, false, true},
    {"journal a directory", folder_journal, -ESTALE, true, false, true},
    {"journal a device", device_journal, -ESTALE, true, false, true},
    {"journal of another user", give_journal_away, -ESTALE, true, false, true},
};

static void check_tamper(const struct tamper *t)
{
    struct fixture x;
    struct edit d;
    struct edit_recovered found;
    const struct timespec until = {0};
    struct edit_file reader;
    struct edit_id id;
    struct err e = {0}, planted;
    size_t before_n, after_n;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(put_journal_of(&f, &d.p), 0);
    t->do_it(&x, &f);
    uint8_t *before = get_file(x.dir, f.name, &before_n);
    unsigned had = files(&x);
    (void)flock(f.fd, LOCK_UN);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&reader, &sys_libc, x.dir, f.name, false, NULL), 0);
    CU_ASSERT_EQUAL(edit_at_rest(&reader, &until, &id, &planted, &e), t->read ? 0 : -EUCLEAN);
    CU_ASSERT_EQUAL(planted.code, t->read ? -ESTALE : 0);
    edit_file_close(&reader);
    e = (struct err){0};
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
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static void test_tampered(void)
{
    size_t n = sizeof(tampers) / sizeof(tampers[0]);
    for (size_t i = 0; i < n; i++) {
        bool for_root = tampers[i].do_it == give_journal_away || tampers[i].do_it == device_journal;
        if (!for_root || geteuid() == 0)
            check_tamper(&tampers[i]);
    }
}

/* ---- readers beside an editor ---- */

static void begin_edit(const struct edit_file *f, const struct edit *d)
{
    CU_ASSERT_EQUAL(put_journal_of(f, &d->p), 0);
    CU_ASSERT_EQUAL(sys_write_all(&sys_libc, f->fd, d->p.head.data, 512, 0), 0);
}

/* An editor that goes on while another process reads. */
struct editor {
    struct edit_file f;
    const struct edit *d;
    bool begins, came; /* it begins its edit only then */
};

static void go_on(void *arg)
{
    struct editor *w = arg;
    enum journal_state found;
    w->came = true;
    if (w->begins)
        begin_edit(&w->f, w->d);
    CU_ASSERT_EQUAL(journal_settle(&w->f, false, &found, NULL), 0);
    (void)flock(w->f.fd, LOCK_UN);
}

/* The editor continues just before call n of the reader. Returns false if there are fewer calls. */
static bool read_beside(unsigned n, bool begins)
{
    struct fixture x;
    struct edit d;
    struct model_file m;
    struct faultsys fs;
    struct gguf *g = NULL;
    struct err e = {0};
    char path[128];
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    struct editor w = {open_model(&x, calm()), &d, begins, false};
    if (!begins)
        begin_edit(&w.f, &d);
    (void)snprintf(path, sizeof(path), "%s/%s", x.path, NAME);
    CU_ASSERT_EQUAL_FATAL(model_find(path, &m, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&m.file, &sys_libc, m.dir, NAME, false, NULL), 0);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.hook = go_on;
    fs.arg = &w;
    fs.at = n;
    m.file.sys = &fs.sys;
    int r = model_parse(&m, 0, &g, &e);
    if (r < 0)
        (void)printf("\nbefore call %u: %d, %s\n", n, r, e.msg);
    CU_ASSERT_EQUAL_FATAL(r, 0);
    /* Call 3 is the first after parsing. */
    const bool old = edit_keys_id(g) == edit_keys_id(x.g);
    CU_ASSERT_TRUE(edit_keys_id(g) == edit_keys_id(d.p.next) || (old && (n > 3 || !w.came)));
    gguf_free(g);
    model_free(&m);
    edit_file_close(&w.f);
    edit_done(&d);
    teardown(&x);
    return w.came;
}

/* A reader waits until the editor has ended its edit, and reads again what was torn. */
static void test_read_beside_editor(void)
{
    unsigned n = 1;
    for (; n <= 10; n++)
        CU_ASSERT_TRUE(read_beside(n, false));
    for (n = 1; read_beside(n, true); n++)
        ;
    CU_ASSERT_TRUE(n > 2);
}

static void test_held_by_editor(void)
{
    const struct timespec until = {0};
    struct fixture x;
    struct edit d;
    struct edit_id id;
    struct edit_file reader;
    struct err e = {0}, planted;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    struct edit_file f = open_model(&x, calm());
    begin_edit(&f, &d);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&reader, &sys_libc, x.dir, NAME, false, NULL), 0);
    CU_ASSERT_EQUAL(edit_at_rest(&reader, &until, &id, &planted, &e), -EBUSY);
    CU_ASSERT_PTR_NULL(strstr(e.msg, "recover"));
    edit_file_close(&f);
    CU_ASSERT_EQUAL(edit_at_rest(&reader, &until, &id, &planted, &e), -EUCLEAN);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "--recover"));
    edit_file_close(&reader);
    edit_done(&d);
    teardown(&x);
}

/* T4: our files are removed only if they are not locked. */
static void test_sweep(void)
{
    static const char *const keep[] = {
        "." NAME ".ggufs-abc12",  "." NAME ".ggufs-abc1234", "." NAME ".ggufs-ABCDEF",
        "." NAME ".ggufs-abc12.", NAME ".ggufs-abc123",      ".other.gguf.ggufs-abc123",
        "." NAME ".ggufs-locked",
    };
    static const char model[] = "." NAME ".ggufs-mymode"; /* another name of the model itself */
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
    CU_ASSERT_EQUAL(mkfifoat(x.dir, "." NAME ".ggufs-apipe1", 0666), 0);
    int fd = openat(x.dir, keep[KEEP - 1], O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
    CU_ASSERT_EQUAL(linkat(x.dir, NAME, x.dir, model, 0), 0);
    struct edit_file f = open_model(&x, calm());
    (void)flock(f.fd, LOCK_UN);
    bool root = geteuid() == 0;
    if (root) { /* files of a user that is neither this process's user nor the model's owner */
        put_file(x.dir, "." NAME ".ggufs-others", "x", 1);
        CU_ASSERT_EQUAL(fchownat(x.dir, "." NAME ".ggufs-others", 12345, 12345, 0), 0);
    }
    CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), 0);
    /* The hard link is also removed; its file keeps its other name. */
    CU_ASSERT_EQUAL(found.removed, 3);
    CU_ASSERT_FALSE(found.finished || found.dropped);
    CU_ASSERT_EQUAL(files(&x), 1 + KEEP + 3 + root);
    CU_ASSERT_EQUAL(faccessat(x.dir, model, F_OK, 0), 0);
    CU_ASSERT_TRUE(is_old(&x));
    (void)close(fd);
    edit_file_close(&f);
    teardown(&x);
}

static void link_too(void *arg)
{
    link_journal(arg, NULL);
}

/* A journal that gets another name just before it is opened is not applied. */
static void test_linked_meanwhile(void)
{
    struct fixture x;
    struct edit d;
    struct faultsys fs;
    struct edit_recovered found;
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 2900);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    struct edit_file f = open_model(&x, &fs.sys);
    CU_ASSERT_EQUAL(put_journal_of(&f, &d.p), 0);
    fs.before = "openat";
    fs.hook = link_too;
    fs.arg = &x;
    CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), -ESTALE);
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(files(&x), 3);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"a recovery that fails can be repeated", test_recover_again},
    {"only a journal that fits is applied", test_tampered},
    {"a model is read while another process edits it in place", test_read_beside_editor},
    {"a half edited model is not read: its editor is waited for, or --recover is named",
     test_held_by_editor},
    {"a journal that gets another name just before it is opened is not applied",
     test_linked_meanwhile},
    {"only files that ggufs made are swept", test_sweep},
    CU_TEST_INFO_NULL,
};

CU_MAIN("recover", tests)
