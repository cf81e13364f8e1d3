/* SPDX-License-Identifier: MIT */
/* edit/journal: torn models are completed, incomplete journals are dropped, and journals that do
 * not fit are left alone; which edits are made in place; what a crash leaves behind. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "build_gguf.h"
#include "changes.h"
#include "cu_test.h"
#include "edit/open.h"
#include "model_dir.h"
#include "soak.h"

#define U ((uint64_t)64 << 10)
enum { NAME_SUM = 8, BEFORE = 16, AFTER = 24, SUM = 32, ROW_HEAD = 16 };

/* A model, and an edit in place that is in the journal but not yet in the model. */
struct work {
    struct fixture x;
    struct edit d;
    uint8_t *journal;
    size_t n; /* size of the journal */
};

static void begin(struct work *w, unsigned what)
{
    w->x = setup_tensors(what, 0);
    make_tensor_edit(&w->d, w->x.g, w->x.old, w->x.old_n, EDIT_INPLACE, what);
    CU_ASSERT_TRUE_FATAL(w->d.p.inplace && w->d.p.changed);
    struct edit_file f = open_model(&w->x, calm());
    CU_ASSERT_EQUAL_FATAL(put_journal_of(&f, &w->d.p), 0);
    edit_file_close(&f);
    w->journal = get_file(w->x.dir, JOURNAL, &w->n);
}

static void end(struct work *w)
{
    free(w->journal);
    edit_done(&w->d);
    teardown(&w->x);
}

/* Make the sum of a journal's head and rows valid. */
static void seal(uint8_t *journal, size_t n)
{
    uint64_t sum = xxh64(0, journal, SUM);
    for (size_t at = JOURNAL_HEAD, len; at + ROW_HEAD <= n; at += len) {
        const uint64_t bytes = get_u64(journal + at + 8, false);
        const uint64_t sectors = (bytes + JOURNAL_SECTOR - 1) / JOURNAL_SECTOR;
        len = (size_t)min_u64(ROW_HEAD + 8 * sectors + bytes, n - at);
        sum = xxh64(sum, journal + at, len);
    }
    put_u64(journal + SUM, sum, false);
}

/* Recover the model from its journal, and return the result of edit_recover(). */
static int recover(const struct work *w, struct edit_recovered *found)
{
    struct err e = {0};
    struct edit_file f = open_model(&w->x, calm());
    int r = edit_recover(&f, found, &e);
    CU_ASSERT_EQUAL(e.code, r);
    CU_ASSERT_TRUE(r == 0 || e.msg[0]);
    edit_file_close(&f);
    return r;
}

/* ---- incomplete journals ---- */

TEST("a truncated or damaged journal is not applied")
{
    struct work w;
    struct edit_recovered found;
    uint64_t state = 7;
    begin(&w, EDIT_BYTES | EDIT_ADDED);
    for (size_t i = 0; i < 300; i++) {
        size_t n = i < 100 ? soak_draw(&state, (unsigned)w.n) : w.n,
               at = soak_draw(&state, (unsigned)w.n);
        if (i >= 100 && i % 4) /* in the journal's head, or at the beginning of its first row */
            at = soak_draw(&state, i % 2 ? JOURNAL_HEAD + 100 : JOURNAL_HEAD);
        uint8_t was = w.journal[at];
        w.journal[at] ^= (uint8_t)(i < 100 ? 0 : 1 << soak_draw(&state, 8));
        put_file(w.x.dir, JOURNAL, w.journal, n);
        w.journal[at] = was;
        put_file(w.x.dir, NAME, w.x.old, w.x.old_n);
        int r = recover(&w, &found);
        CU_ASSERT_TRUE(r == 0 || r == -ESTALE);
        CU_ASSERT_TRUE(is_old(&w.x) || (r == 0 && found.finished && is_new(&w.x, &w.d)));
        CU_ASSERT_TRUE(i >= 100 || is_old(&w.x));
        CU_ASSERT_EQUAL(files_in(w.x.dir), r == 0 ? 1 : 2);
    }
    end(&w);
}

/* ---- edits that fail ---- */

static int no_unlink(const struct sys *s, int dir, const char *name)
{
    (void)s;
    (void)dir;
    (void)name;
    return -EIO;
}

static ssize_t no_wipe(const struct sys *s, int fd, const void *p, size_t n, uint64_t off)
{
    static const uint8_t nothing[JOURNAL_HEAD];
    (void)s;
    if (n == JOURNAL_HEAD && off == 0 && memcmp(p, nothing, n) == 0)
        return -EIO;
    return sys_libc.pwrite(&sys_libc, fd, p, n, off);
}

/* Make the edit that follows `last`. */
static void make_next(struct edit *d, const struct edit *last, enum edit_strategy how, char letter,
                      size_t n)
{
    make_edit(d, last->p.next, last->image, (size_t)last->p.image->size, how, letter, n);
}

/*
 * A journal that cannot be removed is never applied after a later edit, even if that edit restores
 * every sector: that edit is refused, also if the head could be wiped.
 */
TEST("a journal that cannot be removed is not applied after a later edit")
{
    for (int i = 0; i < 4; i++) {
        const bool wiped = i % 2;
        CLEANUP(teardown) struct fixture x = setup();
        struct edit first, d, back;
        struct edit_result res;
        struct faultsys fs;
        struct edit_recovered found;
        struct err e = {0};
        make_edit(&first, x.g, x.old, x.old_n, EDIT_COPY, 'o', 10);
        make_next(&d, &first, EDIT_INPLACE, 'n', 10);
        make_next(&back, &d, EDIT_COPY, 'o', i < 2 ? 10 : 70000);
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL(commit(&f, &first, &res, NULL), 0);
        fs.sys.unlinkat = no_unlink;
        fs.sys.pwrite = wiped ? fs.sys.pwrite : no_wipe;
        CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), 0);
        CU_ASSERT_EQUAL(files_in(x.dir), 2);
        CU_ASSERT_EQUAL(commit(&f, &back, &res, &e), -EIO);
        CU_ASSERT_STRING_EQUAL(e.msg, "cannot remove the journal beside the model: "
                                      "Input/output error");
        CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), wiped ? 0 : -EIO);
        CU_ASSERT_TRUE(is_new(&x, &d));
        fs.sys.unlinkat = sys_libc.unlinkat;
        CU_ASSERT_EQUAL(commit(&f, &back, &res, &e), 0);
        edit_file_close(&f);
        f = open_model(&x, calm());
        CU_ASSERT_EQUAL(edit_recover(&f, &found, NULL), 0);
        CU_ASSERT_FALSE(found.finished);
        CU_ASSERT_TRUE(is_new(&x, &back));
        CU_ASSERT_EQUAL(files_in(x.dir), 1);
        edit_file_close(&f);
        edit_done(&back);
        edit_done(&d);
        edit_done(&first);
    }
}

static ssize_t no_write(const struct sys *s, int fd, const void *p, size_t n, uint64_t off)
{
    struct stat st;
    const bool journal = fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600;
    return journal ? no_wipe(s, fd, p, n, off) : -EIO;
}

/* The disk fails while the model is written, and the journal cannot go either: what will be applied is
 * not reported as taken back. */
TEST("an edit whose journal stays is done, although none of it could be written")
{
    CLEANUP(teardown) struct fixture x = setup();
    struct edit first, d, next;
    struct edit_result res;
    struct faultsys fs;
    struct err e = {0};
    make_edit(&first, x.g, x.old, x.old_n, EDIT_COPY, 'o', 10);
    make_next(&d, &first, EDIT_INPLACE, 'n', 10);
    make_next(&next, &d, EDIT_INPLACE, 'm', 10);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    struct edit_file f = open_model(&x, &fs.sys);
    CU_ASSERT_EQUAL(commit(&f, &first, &res, NULL), 0);
    CU_ASSERT_EQUAL(fchmod(f.fd, 0644), 0);
    CU_ASSERT_EQUAL(edit_file_note(&f, NULL), 0);
    fs.sys.unlinkat = no_unlink;
    fs.sys.pwrite = no_write;
    CU_ASSERT_EQUAL(commit(&f, &d, &res, &e), -EIO);
    CU_ASSERT_TRUE(res.unfinished);
    fs.sys.unlinkat = sys_libc.unlinkat;
    fs.sys.pwrite = sys_libc.pwrite;
    CU_ASSERT_EQUAL(commit(&f, &next, &res, &e), 0);
    CU_ASSERT_TRUE(is_new(&x, &next));
    edit_file_close(&f);
    edit_done(&next);
    edit_done(&d);
    edit_done(&first);
}

/* ---- journals that do not fit ---- */

/* Check the result of loading the journal: either 0 and this state, or -ESTALE and this message. */
static void loads(const struct fixture *x, int want, enum journal_state state, const char *line)
{
    CLEANUP(journal_free) struct journal j = JOURNAL_INIT;
    struct err e = {0};
    CLEANUP(edit_file_close) struct edit_file f = open_model(x, calm());
    int r = journal_load(&f, &j, &e);
    CU_SAYS(r == want && (r < 0 || j.state == state) && strstr(e.msg, line), "%d, state %d: %s", r,
            (int)j.state, e.msg);
}

static const char outside[] = "its ranges lie outside",
                  sized[] = "it is for a file of another size", named[] = "it is for another file";

/* A field to change in the journal. The sum is then made valid again. line NULL: the journal
 * becomes void. */
static const struct field {
    size_t at, width;
    uint64_t value;
    const char *line;
} fields[] = {
    {JOURNAL_HEAD, 8, 1, outside},
    {JOURNAL_HEAD, 8, (uint64_t)-512, outside}, /* the end overflows 64 bits */
    {JOURNAL_HEAD + 8, 8, 0, NULL},
    {JOURNAL_HEAD + 8, 8, JOURNAL_ROW, NULL},
    {JOURNAL_HEAD + 8, 8, (uint64_t)-65536, NULL},
    {NAME_SUM, 8, 1, named},
    {BEFORE, 8, UINT64_MAX, outside},
    {AFTER, 8, 0, outside},
    {6, 1, 'X', NULL},
    {7, 1, '0', NULL},
    {7, 1, ':', NULL},
    {7, 1, '1', "that predates its first release"},
    {7, 1, '3', "that predates its first release"},
    {7, 1, '5', "later version"},
    {7, 1, '9', "later version"},
};

TEST("journals with invalid contents are refused")
{
    struct work w;
    struct edit_recovered found;
    begin(&w, EDIT_BYTES);
    for (size_t i = 0; i < COUNT(fields); i++) {
        const struct field *t = &fields[i];
        uint8_t *at = w.journal + t->at;
        uint64_t was = get_uint(at, t->width, false);
        put_uint(at, t->value, t->width, false);
        seal(w.journal, w.n);
        put_file(w.x.dir, JOURNAL, w.journal, w.n);
        loads(&w.x, t->line ? -ESTALE : 0, JOURNAL_VOID, t->line ? t->line : "");
        CU_ASSERT_EQUAL(recover(&w, &found), t->line ? -ESTALE : 0);
        CU_ASSERT_TRUE(is_old(&w.x));
        CU_ASSERT_EQUAL(files_in(w.x.dir), t->line ? 2 : 1);
        put_uint(at, was, t->width, false);
    }
    seal(w.journal, w.n);
    put_file(w.x.dir, JOURNAL, w.journal, w.n);
    loads(&w.x, 0, JOURNAL_REDO, "");
    /* A sector of the model is neither old nor new. */
    w.x.old[w.x.g->tensor[1].off + 6000] ^= 1;
    put_file(w.x.dir, NAME, w.x.old, w.x.old_n);
    loads(&w.x, -ESTALE, 0, "matches neither the old content nor the new");
    CU_ASSERT_TRUE(is_old(&w.x));
    end(&w);
}

/* A complete journal: the model's size before the edit, after the edit and now, and the rows. The
 * journal's file is `longer` bytes too long. */
struct head {
    uint64_t before, after, size;
    struct {
        uint64_t at, n;
    } row[4];
    int longer;
    const char *line; /* "": the journal fits; NULL: it is void */
};

static const struct head heads[] = {
    /* Rows are in order, may have gaps, and hold whole units except at the end of the model. */
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{0, U}}, 0, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{0, 3 * U + 100}}, 0, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{2 * U, U + 100}}, 0, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{U, U}, {3 * U, 100}}, 0, ""},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{0, U}, {U, U}}, 0, ""},
    {4 * U, 4 * U, 4 * U, {{3 * U, U}}, 0, ""},
    {20 * U, 20 * U, 20 * U, {{U, 16 * U}}, 0, ""},
    {20 * U, 20 * U, 20 * U, {{U, 17 * U}}, 0, NULL},
    {3 * U, 3 * U, 3 * U, {{1, U}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{U / 2, U}}, 0, ""},
    {3 * U, 3 * U, 3 * U, {{512, 512}}, 0, ""},
    {3 * U, 3 * U, 3 * U, {{512, 511}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{513, 512}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{U, U}, {2 * U, 0}}, 0, NULL},
    {3 * U, 3 * U, 3 * U, {{0, 2 * U}, {U, U}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{2 * U, U}, {0, U}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{0, 100}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{U, U + 1}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{3 * U, U}}, 0, outside},
    {3 * U + 100, 3 * U + 100, 3 * U + 100, {{3 * U, 101}}, 0, outside},
    {3 * U, 3 * U, 3 * U, {{-U, U}}, 0, outside},
    /* The journal holds all bytes beyond the old end of the model. The row that contains the first
     * of these bytes begins at or before the old end. */
    {U + 10, 2 * U + 20, U + 10, {{U, U + 20}}, 0, ""},
    {U + 10, 2 * U + 20, U + 10, {{0, 2 * U + 20}}, 0, ""},
    {U + 10, 2 * U + 20, U + 10, {{0, U}, {U, U + 20}}, 0, ""},
    {U + 10, 2 * U + 20, U + 10, {{U, U}, {2 * U, 20}}, 0, ""},
    {2 * U, 2 * U + 20, 2 * U, {{2 * U, 20}}, 0, ""},
    {2 * U, 3 * U, 2 * U, {{0, U}, {2 * U, U}}, 0, ""},
    {U + 10, 2 * U + 20, U + 10, {{0, U}}, 0, outside},
    {U + 10, 2 * U + 20, U + 10, {{2 * U, 20}}, 0, outside},
    {U + 10, 2 * U + 20, U + 10, {{0, U}, {2 * U, 20}}, 0, outside},
    {U + 10, 4 * U, U + 10, {{U, U}, {3 * U, U}}, 0, outside},
    {2 * U + 1, 2 * U, 2 * U, {{0, U}}, 0, outside},
    {INT64_MAX, INT64_MAX, U, {{0, U}}, 0, sized},
    {UINT64_MAX / 2 + 1, UINT64_MAX / 2 + 1, U, {{0, U}}, 0, outside},
    /* The model's current size must lie between the old and the new size. */
    {2 * U, 2 * U + 20, 2 * U + 20, {{2 * U, 20}}, 0, ""},
    {2 * U, 2 * U + 20, 2 * U + 7, {{2 * U, 20}}, 0, ""},
    {2 * U, 2 * U + 20, 2 * U - 1, {{2 * U, 20}}, 0, sized},
    {2 * U, 2 * U + 20, 2 * U + 21, {{2 * U, 20}}, 0, sized},
    /* The last row must end at the end of the file. */
    {2 * U, 2 * U, 2 * U, {{0, U}}, -1, NULL},
    {2 * U, 2 * U, 2 * U, {{0, U}}, 1, NULL},
    {U + 10, U + 10, U + 10, {{U, 10}}, -1, NULL},
};

/* Beside a model of zeros, write a journal whose new bytes are all ones. */
static void put_head(const struct fixture *x, const struct head *h)
{
    static uint8_t ones[U * 17];
    uint8_t zeros[JOURNAL_SECTOR] = {0};
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    memset(ones, 1, sizeof(ones));
    buf_str(&b, "GGUFSJN4");
    buf_uint(&b, xxh64(0, NAME, strlen(NAME)), 8, false);
    buf_uint(&b, h->before, 8, false);
    buf_uint(&b, h->after, 8, false);
    buf_zero(&b, 8);
    for (size_t k = 0; k < 4 && (h->row[k].at || h->row[k].n); k++) {
        const uint64_t at = h->row[k].at, n = min_u64(h->row[k].n, sizeof(ones));
        buf_uint(&b, at, 8, false);
        buf_uint(&b, h->row[k].n, 8, false);
        for (uint64_t i = 0; i < n; i += JOURNAL_SECTOR) {
            size_t had = (size_t)within_u64(at + i, min_u64(JOURNAL_SECTOR, n - i), h->before);
            buf_uint(&b, had ? xxh64(0, zeros, had) : 0, 8, false);
        }
        buf_add(&b, ones, (size_t)n);
    }
    seal(b.data, b.len);
    buf_zero(&b, 1);
    put_file(x->dir, JOURNAL, b.data, b.len - 1 + (size_t)h->longer);
}

TEST("valid rows are accepted, and others are refused")
{
    CLEANUP(teardown) struct fixture x = setup();
    for (size_t i = 0; i < COUNT(heads); i++) {
        const struct head *h = &heads[i];
        put_file(x.dir, NAME, "", 0);
        int fd = openat(x.dir, NAME, O_RDWR | O_CLOEXEC);
        CU_ASSERT_EQUAL(ftruncate(fd, (off_t)h->size), 0);
        (void)close(fd);
        put_head(&x, h);
        loads(&x, h->line && *h->line ? -ESTALE : 0, h->line ? JOURNAL_REDO : JOURNAL_VOID,
              h->line ? h->line : "");
    }
}

/* ---- which edits are made in place ---- */

/* Make a sparse model with one tensor of type I8. */
static struct gguf *make_large(struct fixture *x, uint64_t size, struct edit_file *f)
{
    size_t n;
    struct build b = build_of(3, false);
    build_str(&b, "general.architecture", "test");
    build_tensor(&b, "w", I8, (uint64_t[]){size}, 1, NULL, 0);
    uint8_t *head = build_finish(&b, &n);
    put_file(x->dir, NAME, head, n);
    free(head);
    *f = open_model(x, calm());
    CU_ASSERT_EQUAL(ftruncate(f->fd, (off_t)(n + size)), 0);
    CU_ASSERT_EQUAL(edit_file_note(f, NULL), 0);
    struct source s;
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL(source_fd(f->fd, &s, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    return g;
}

/* Begin and plan a change to n bytes of a tensor. */
static void begin_bytes(const struct gguf *g, const struct edit_options *o, uint64_t n,
                        struct edit_change *c, struct edit_plan *p)
{
    int fd = memfd_create("draft", MFD_CLOEXEC);
    CLEANUP(log_drop) struct log *d;
    CU_ASSERT_EQUAL(ftruncate(fd, (off_t)n), 0);
    CU_ASSERT_EQUAL_FATAL(log_make(fd, &d, NULL), 0);
    struct tensor_piece piece = {77, n, 0, d};
    edit_change_init(c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(edit_tensor_set(c, "w", 1, NULL, &piece, 1, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(c, o, p, NULL), 0);
    CU_ASSERT_TRUE(p->inplace);
    CU_ASSERT_EQUAL(p->changed, n);
}

static const uint64_t mib = 1 << 20;

/* How an edit of n bytes of a model of 100 MiB is written, on a disk with this much room. */
static const struct choice {
    enum edit_clone clone;
    enum edit_strategy asked;
    uint64_t n, free, used; /* n and free: bytes; used: MiB */
    bool backup;
    int code;
    enum edit_strategy want;
    uint64_t copies; /* at most so many MiB are copied; over 64 is not cheap */
} choices[] = {
    {EDIT_CLONE_NO, EDIT_AUTO, 1, UINT64_MAX, 100, false, 0, EDIT_INPLACE, 0},
    {EDIT_CLONE_NO, EDIT_AUTO, 25 << 20, UINT64_MAX, 100, false, 0, EDIT_INPLACE, 0},
    /* too much changes, unless there is no room for a copy or the way is named */
    {EDIT_CLONE_NO, EDIT_AUTO, 26 << 20, UINT64_MAX, 100, false, 0, EDIT_COPY, 101},
    {EDIT_CLONE_NO, EDIT_AUTO, 26 << 20, 60 << 20, 100, false, 0, EDIT_INPLACE, 0},
    {EDIT_CLONE_NO, EDIT_INPLACE, 26 << 20, UINT64_MAX, 100, false, 0, EDIT_INPLACE, 0},
    {EDIT_CLONE_NO, EDIT_AUTO, 26 << 20, 10 << 20, 100, false, -ENOSPC, EDIT_AUTO, 0},
    {EDIT_CLONE_NO, EDIT_INPLACE, 26 << 20, 40 << 20, 101, false, 0, EDIT_INPLACE, 0},
    {EDIT_CLONE_NO, EDIT_INPLACE, 26 << 20, 40 << 20, 9, false, -ENOSPC, EDIT_AUTO, 0}, /* sparse */
    {EDIT_CLONE_NO, EDIT_COPY, 1, 10 << 20, 100, false, -ENOSPC, EDIT_AUTO, 0},
    {EDIT_CLONE_NO, EDIT_COPY, 1, 11 << 20, 9, false, 0, EDIT_COPY, 10}, /* sparse */
    {EDIT_CLONE_YES, EDIT_AUTO, 26 << 20, 30 << 20, 100, false, 0, EDIT_COPY, 1},
    {EDIT_CLONE_YES, EDIT_AUTO, 26 << 20, 10 << 20, 100, false, -ENOSPC, EDIT_AUTO, 0},
    /* the header alone */
    {EDIT_CLONE_NO, EDIT_AUTO, 0, 0, 100, false, 0, EDIT_INPLACE, 0},
    {EDIT_CLONE_YES, EDIT_AUTO, 0, 0, 100, false, -ENOSPC, EDIT_AUTO, 0},
    {EDIT_CLONE_YES, EDIT_AUTO, 0, 2 << 20, 100, false, 0, EDIT_COPY, 1},
    {EDIT_CLONE_NO, EDIT_COPY, 0, 0, 100, false, -ENOSPC, EDIT_AUTO, 0},
    /* the model must be backed up first */
    {EDIT_CLONE_NO, EDIT_AUTO, 0, 50 << 20, 100, true, -ENOSPC, EDIT_AUTO, 0},
    {EDIT_CLONE_NO, EDIT_AUTO, 0, 102 << 20, 100, true, 0, EDIT_INPLACE, 100},
    {EDIT_CLONE_YES, EDIT_AUTO, 0, 2 << 20, 100, true, 0, EDIT_COPY, 1},
};

static void chooses(const struct gguf *g, const struct choice *t)
{
    struct edit_change c;
    struct edit_plan p = EDIT_PLAN_INIT;
    const struct edit_options o = {.strategy = t->asked, .reserve = EDIT_RESERVE_AUTO};
    struct edit_disk disk = {true, t->backup, t->clone, t->free, t->used * mib};
    enum edit_strategy got = EDIT_AUTO;
    uint64_t copies = 0;
    struct err e = {0};
    if (t->n) {
        begin_bytes(g, &o, t->n, &c, &p);
    } else {
        edit_change_init(&c, &(struct edit_base){.g = g});
        CU_ASSERT_EQUAL(edit_tensor_rename(&c, "w", 1, "x", 1, NULL), 0);
        CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
    }
    int r = edit_plan_way(&p, &o, &disk, &got, &copies, &e);
    CU_SAYS(r == t->code && (r < 0 || (got == t->want && copies <= t->copies * mib)),
            "%zu: %d, %s, %llu, %s", (size_t)(t - choices), r, edit_strategy_name(got),
            (unsigned long long)copies, e.msg);
    CU_ASSERT_EQUAL(e.code, t->code);
    CU_ASSERT_TRUE(r < 0 || t->copies <= 64 || copies > EDIT_CHEAP);
    disk.known = false; /* then there is room for anything */
    CU_ASSERT_EQUAL(edit_plan_way(&p, &o, &disk, &got, &copies, NULL), 0);
    edit_plan_free(&p);
    edit_change_free(&c);
}

/* An edit that moves data must be copied, and says so if there is no room. */
static void check_moved(const struct gguf *g)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = EDIT_OPTIONS_INIT;
    struct edit_disk disk = {true, false, EDIT_CLONE_NO, 10 * mib, 100 * mib};
    enum edit_strategy got = EDIT_AUTO;
    uint64_t copies = 0;
    struct err e = {0};
    uint8_t alignment[4];
    put_u32(alignment, 64, false);
    edit_change_init(&c, &(struct edit_base){.g = g});
    CU_ASSERT_EQUAL(set_bytes(&c, "general.alignment", 17, GGUF_U32, alignment, 4, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
    CU_ASSERT_EQUAL(edit_plan_way(&p, &o, &disk, &got, &copies, &e), -ENOSPC);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "in place"));
    disk.free = UINT64_MAX;
    CU_ASSERT_EQUAL(edit_plan_way(&p, &o, &disk, &got, &copies, &e), 0);
    CU_ASSERT_EQUAL(got, EDIT_COPY);
    CU_ASSERT_TRUE(copies > EDIT_CHEAP);
    o.strategy = EDIT_INPLACE;
    CU_ASSERT_EQUAL(edit_plan_way(&p, &o, &disk, &got, &copies, &e), -EOPNOTSUPP);
}

TEST("the cheaper way is taken, and one for which there is room")
{
    CLEANUP(teardown) struct fixture x = setup();
    CLEANUP(edit_file_close) struct edit_file f;
    CLEANUP(gguf_drop) struct gguf *g = make_large(&x, 100 * mib, &f);
    for (size_t i = 0; i < COUNT(choices); i++)
        chooses(g, &choices[i]);
    check_moved(g);
}

/* ---- changed or planted journals ---- */

/* What happens to an edit's journal and to other files before the journal is found. */
enum deed {
    NOTHING,
    TEARS_MODEL, /* every other sector of the header is written */
    CUTS,
    EMPTIES,
    DAMAGES,
    WRITES_MODEL,
    LENGTHENS_MODEL,
    RENAMES_MODEL, /* the journal is then beside another model of the same size */
    LINKS,
    LINKS_LATE, /* just before it is opened */
    SYMLINKS,
    PIPES,
    FOLDERS,
    GIVES_AWAY,
    DEVICES, /* without a driver, so that opening it fails */
};

static const struct tamper {
    const char *name;
    enum deed deed;
    int code;     /* result of the recovery */
    bool read;    /* the journal is not ours, so it does not prevent reading */
    bool applied; /* true: the model then has the new content; false: what it had */
    bool stays;   /* the journal still exists afterwards */
} tampers[] = {
    {"nothing", NOTHING, 0, false, true, false},
    {"model torn", TEARS_MODEL, 0, false, true, false},
    {"journal cut", CUTS, 0, false, false, false},
    {"journal empty", EMPTIES, 0, false, false, false},
    {"journal damaged", DAMAGES, 0, false, false, false},
    {"header written", WRITES_MODEL, -ESTALE, false, false, true},
    {"size changed", LENGTHENS_MODEL, -ESTALE, false, false, true},
    {"model renamed", RENAMES_MODEL, -ESTALE, false, false, true},
    {"journal linked", LINKS, -ESTALE, true, false, true},
    {"journal linked meanwhile", LINKS_LATE, -ESTALE, false, false, true},
    {"journal a symbolic link", SYMLINKS, -ESTALE, true, false, true},
    {"journal a pipe", PIPES, -ESTALE, true, false, true},
    {"journal a directory", FOLDERS, -ESTALE, true, false, true},
    {"journal of another user", GIVES_AWAY, -ESTALE, true, false, true},
    {"journal a device", DEVICES, -ESTALE, true, false, true},
};

static void tear(const struct edit_file *f, const struct edit_plan *p)
{
    for (uint64_t at = 0; at < p->head.len; at += 1024)
        CU_ASSERT_EQUAL(sys_write_all(&sys_libc, f->fd, p->head.data + at,
                                      (size_t)min_u64(512, p->head.len - at), at),
                        0);
}

static void link_journal(void *x)
{
    const int dir = ((struct fixture *)x)->dir;
    CU_ASSERT_EQUAL(linkat(dir, JOURNAL, dir, "x", 0), 0);
}

static void tamper(struct scene *s, enum deed deed)
{
    const int dir = s->x.dir;
    int fd = openat(dir, JOURNAL, O_RDWR | O_CLOEXEC);
    if (deed == TEARS_MODEL)
        tear(&s->f, &s->d.p);
    if (deed == CUTS || deed == EMPTIES)
        CU_ASSERT_EQUAL(ftruncate(fd, deed == EMPTIES ? 0 : lseek(fd, 0, SEEK_END) - 1), 0);
    if (deed == DAMAGES)
        CU_ASSERT_EQUAL(pwrite(fd, "?", 1, JOURNAL_SECTOR + 200), 1);
    if (deed == WRITES_MODEL)
        CU_ASSERT_EQUAL(pwrite(s->f.fd, "?", 1, 700), 1);
    if (deed == LENGTHENS_MODEL)
        CU_ASSERT_EQUAL(ftruncate(s->f.fd, (off_t)s->x.old_n + 1), 0);
    if (deed == RENAMES_MODEL) {
        edit_file_close(&s->f);
        CU_ASSERT_EQUAL(renameat(dir, NAME, dir, "x.gguf"), 0);
        CU_ASSERT_EQUAL(renameat(dir, JOURNAL, dir, ".x.gguf.ggufs-journal"), 0);
        CU_ASSERT_EQUAL(edit_file_open(&s->f, &sys_libc, dir, "x.gguf", true, NULL), 0);
    }
    if (deed == LINKS)
        link_journal(&s->x);
    if (deed >= SYMLINKS && deed <= FOLDERS)
        CU_ASSERT_EQUAL(renameat(dir, JOURNAL, dir, "x"), 0);
    if (deed == SYMLINKS)
        CU_ASSERT_EQUAL(symlinkat("x", dir, JOURNAL), 0);
    if (deed == PIPES)
        CU_ASSERT_EQUAL(mkfifoat(dir, JOURNAL, 0666), 0);
    if (deed == FOLDERS)
        CU_ASSERT_EQUAL(mkdirat(dir, JOURNAL, 0777), 0);
    if (deed == GIVES_AWAY)
        CU_ASSERT_EQUAL(fchown(fd, 12345, 12345), 0);
    if (deed == DEVICES) {
        CU_ASSERT_EQUAL(unlinkat(dir, JOURNAL, 0), 0);
        CU_ASSERT_EQUAL(mknodat(dir, JOURNAL, S_IFCHR | 0666, makedev(240, 4242)), 0);
    }
    (void)close(fd);
}

/* A reader may read the model only if the journal is not ours. No edit is made before the journal
 * was applied or dropped; and it is applied, dropped or left alone. */
static void check_tamper(const struct tamper *t)
{
    CLEANUP(scene_end) struct scene s;
    struct edit_recovered found;
    struct edit_file reader;
    struct edit_id id;
    struct err planted;
    size_t before_n, after_n;
    scene_begin(&s, EDIT_INPLACE, 2900);
    CU_ASSERT_EQUAL(put_journal_of(&s.f, &s.d.p), 0);
    tamper(&s, t->deed);
    CLEANUP(free_it) uint8_t *before = get_file(s.x.dir, s.f.name, &before_n);
    unsigned had = files_in(s.x.dir);
    (void)flock(s.f.fd, LOCK_UN);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&reader, &sys_libc, s.x.dir, s.f.name, false, NULL), 0);
    CU_ASSERT_EQUAL(edit_at_rest(&reader, &(struct timespec){0}, &id, &planted, &s.e),
                    t->read ? 0 : -EUCLEAN);
    CU_ASSERT_TRUE(t->read || strstr(s.e.msg, "--recover"));
    CU_ASSERT_EQUAL(planted.code, t->read ? -ESTALE : 0);
    edit_file_close(&reader);
    if (t->deed == LINKS_LATE) {
        s.fs.before = "openat";
        s.fs.hook = link_journal;
        s.fs.arg = &s.x;
        had++;
    }
    s.e = (struct err){0};
    int r = edit_recover(&s.f, &found, &s.e);
    CU_SAYS(r == t->code, "%s: %d, %s\n", t->name, r, s.e.msg);
    CU_ASSERT_EQUAL(s.e.code, t->code);
    CU_ASSERT_EQUAL(found.finished, t->applied);
    CU_ASSERT_EQUAL(found.dropped, !t->applied && !t->stays);
    CU_ASSERT_EQUAL(files_in(s.x.dir), had - (t->stays ? 0 : 1));
    if (r < 0)
        CU_ASSERT_EQUAL(scene_commit(&s), -ESTALE);
    CLEANUP(free_it) uint8_t *after = get_file(s.x.dir, s.f.name, &after_n);
    const uint8_t *want = t->applied ? s.d.image : before;
    CU_ASSERT_TRUE(after_n == before_n && memcmp(after, want, after_n) == 0);
}

TEST("only a journal that fits is applied")
{
    for (size_t i = 0; i < COUNT(tampers); i++)
        if (tampers[i].deed < GIVES_AWAY || geteuid() == 0)
            check_tamper(&tampers[i]);
}

/* C4: it is an earlier edit's that was cancelled. */
TEST("an edit drops a journal that has taken no effect")
{
    CLEANUP(scene_end) struct scene s;
    scene_begin(&s, EDIT_INPLACE, 10);
    CU_ASSERT_EQUAL(put_journal_of(&s.f, &s.d.p), 0);
    s.d.p.same = true;
    CU_ASSERT_EQUAL(scene_commit(&s), 0);
    CU_ASSERT_TRUE(is_old(&s.x) && files_in(s.x.dir) == 1);
    s.d.p.same = false;
    CU_ASSERT_EQUAL(scene_commit(&s), 0);
    /* Another program has removed the journal of this file's own unfinished edit. */
    s.f.unfinished = true;
    CU_ASSERT_EQUAL(scene_commit(&s), -ESTALE);
    CU_ASSERT_TRUE(is_new(&s.x, &s.d));
}

TEST("a recovery that fails can be repeated")
{
    for (unsigned n = 1, hit = 1; hit; n++) {
        CLEANUP(scene_end) struct scene s;
        struct edit_recovered found;
        scene_begin(&s, EDIT_INPLACE, 2900);
        CU_ASSERT_EQUAL(put_journal_of(&s.f, &s.d.p), 0);
        tear(&s.f, &s.d.p);
        CU_ASSERT_FALSE(is_old(&s.x) || is_new(&s.x, &s.d));
        faultsys_init(&s.fs, FAULT_FAIL, n, -EIO);
        int r = edit_recover(&s.f, &found, NULL);
        hit = s.fs.hit;
        CU_ASSERT_TRUE(r == (hit ? -EIO : 0) || (r == 0 && found.finished));
        CU_ASSERT_EQUAL(scene_recover(&s, &found), 0);
        CU_ASSERT_TRUE(is_new(&s.x, &s.d) && files_in(s.x.dir) == 1);
    }
}

/* ---- readers beside an editor ---- */

static void begin_edit(struct scene *s)
{
    CU_ASSERT_EQUAL(put_journal_of(&s->f, &s->d.p), 0);
    CU_ASSERT_EQUAL(sys_write_all(&sys_libc, s->f.fd, s->d.p.head.data, 512, 0), 0);
}

/* An editor that goes on while another process reads. */
struct editor {
    struct scene s;
    bool begins, came; /* it begins its edit only then */
};

static void go_on(void *arg)
{
    struct editor *w = arg;
    enum journal_state found;
    w->came = true;
    if (w->begins)
        begin_edit(&w->s);
    CU_ASSERT_EQUAL(journal_settle(&w->s.f, false, &found, NULL), 0);
    (void)flock(w->s.f.fd, LOCK_UN);
}

/* The editor continues just before call n of the reader. Returns false if there are fewer calls. */
static bool read_beside(unsigned n, bool begins)
{
    struct editor w = {.begins = begins};
    struct model_file m;
    struct faultsys fs;
    struct gguf *g = NULL;
    struct err e = {0};
    char path[128];
    scene_begin(&w.s, EDIT_INPLACE, 2900);
    if (!begins)
        begin_edit(&w.s);
    (void)snprintf(path, sizeof(path), "%s/%s", w.s.x.path, NAME);
    CU_ASSERT_EQUAL_FATAL(model_find(path, &m, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&m.file, &sys_libc, m.dir, NAME, false, NULL), 0);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.hook = go_on;
    fs.arg = &w;
    fs.at = n;
    m.file.sys = &fs.sys;
    int r = model_parse(&m, 0, &g, &e);
    CU_SAYS(r == 0, "before call %u: %d, %s", n, r, e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    /* Call 3 is the first after parsing. */
    const bool old = edit_keys_id(g) == edit_keys_id(w.s.x.g);
    CU_ASSERT_TRUE(edit_keys_id(g) == edit_keys_id(w.s.d.p.next) || (old && (n > 3 || !w.came)));
    gguf_free(g);
    model_free(&m);
    scene_end(&w.s);
    return w.came;
}

/* A reader waits until the editor has ended its edit, and reads again what was torn. */
TEST("a model is read while another process edits it in place")
{
    unsigned n = 1;
    for (; n <= 10; n++)
        CU_ASSERT_TRUE(read_beside(n, false));
    for (n = 1; read_beside(n, true); n++)
        ;
    CU_ASSERT_TRUE(n > 2);
}

TEST("a half edited model is not read while its editor has it open")
{
    CLEANUP(scene_end) struct scene s;
    struct edit_id id;
    CLEANUP(edit_file_close) struct edit_file reader;
    struct err planted;
    scene_begin(&s, EDIT_INPLACE, 2900);
    begin_edit(&s);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&reader, &sys_libc, s.x.dir, NAME, false, NULL), 0);
    int r = edit_at_rest(&reader, &(struct timespec){0}, &id, &planted, &s.e);
    CU_ASSERT_EQUAL(r, -EBUSY);
    CU_ASSERT_PTR_NULL(strstr(s.e.msg, "recover"));
}

/* ---- leftovers, and files of a split model ---- */

/* T4: our files are removed only if they are not locked. */
TEST("only files that ggufs made are swept")
{
    static const char *const keep[] = {
        "." NAME ".ggufs-abc12",  "." NAME ".ggufs-abc1234", "." NAME ".ggufs-ABCDEF",
        "." NAME ".ggufs-abc12.", NAME ".ggufs-abc123",      ".other.gguf.ggufs-abc123",
        "." NAME ".ggufs-locked",
    };
    static const char model[] = "." NAME ".ggufs-mymode"; /* another name of the model itself */
    enum { KEEP = COUNT(keep) };
    CLEANUP(teardown) struct fixture x = setup();
    struct edit_recovered found;
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
    CLEANUP(edit_file_close) struct edit_file f = open_model(&x, calm());
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
    CU_ASSERT_EQUAL(files_in(x.dir), 1 + KEEP + 3 + root);
    CU_ASSERT_EQUAL(faccessat(x.dir, model, F_OK, 0), 0);
    CU_ASSERT_TRUE(is_old(&x));
    (void)close(fd);
}

static const char *const shards[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                     "m-00003-of-00003.gguf"};
static const char *const journals[] = {".m-00001-of-00003.gguf.ggufs-journal",
                                       ".m-00002-of-00003.gguf.ggufs-journal",
                                       ".m-00003-of-00003.gguf.ggufs-journal"};

/* Interrupt an edit that replaces the first of 2000 o's with an n. The file is never parsed. */
static void interrupt(const struct fixture *x, const char *name)
{
    char text[2000];
    uint8_t new[512];
    CLEANUP(edit_file_close) struct edit_file f;
    memset(text, 'o', sizeof(text));
    memset(new, 'n', sizeof(new));
    put_file(x->dir, name, text, sizeof(text));
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, calm(), x->dir, name, true, NULL), 0);
    CU_ASSERT_EQUAL(put_journal(&f, new, sizeof(new)), 0);
}

/* Only the first file is ever edited. */
TEST("the first file of a split model is recovered")
{
    CLEANUP(teardown) struct fixture x = setup();
    struct edit_recovered got;
    struct err e = {0};
    char path[128];
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/%s", x.path, shards[1]); /* any shard names the model */
    for (size_t i = 0; i < 3; i++)
        interrupt(&x, shards[i]);
    put_file(x.dir, ".m-00001-of-00003.gguf.ggufs-abcdef", "x", 1);
    CU_ASSERT_EQUAL(model_recover(path, &got, &e), 0);
    CU_ASSERT_TRUE(got.finished && !got.dropped && got.removed == 1);
    for (size_t i = 0; i < 3; i++) {
        CLEANUP(free_it) uint8_t *bytes = get_file(x.dir, shards[i], &n);
        CU_ASSERT_TRUE(n == 2000 && bytes[0] == (i ? 'o' : 'n') && bytes[512] == 'o');
    }
    CU_ASSERT_EQUAL(files_in(x.dir), 1 + 3 + 2);
    CU_ASSERT_EQUAL(model_recover(path, &got, &e), 0);
    CU_ASSERT_FALSE(got.finished || got.dropped || got.removed);
    /* The journal is another shard's. */
    CU_ASSERT_EQUAL(renameat(x.dir, journals[1], x.dir, journals[0]), 0);
    CU_ASSERT_EQUAL(model_recover(path, &got, &e), -ESTALE);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "shard m-00001-of-00003.gguf"));
    CU_ASSERT_EQUAL(unlinkat(x.dir, shards[0], 0), 0);
    CU_ASSERT_EQUAL(model_recover(path, &got, &e), -ENOENT);
}
