/* SPDX-License-Identifier: MIT */
/*
 * edit/patch: the journal of bytes of tensors. Torn models are finished, journals that were not
 * written to their end are dropped, what does not fit is left alone, and when an edit goes that way.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/count.h"
#include "base/hash.h"
#include "build_gguf.h"
#include "cu_main.h"
#include "edit/journal.h"
#include "edit/patch_units.h"
#include "edit/recover.h"
#include "edit/temp.h"
#include "faultsys.h"
#include "model_dir.h"

/* A model, an edit of it in place that is in the journal, and nothing of it in the model. */
struct work {
    struct fixture x;
    struct edit d;
    uint8_t *journal;
    size_t n, rest, table; /* bytes of it, and where the rest of its head and its table begin */
};

/* A journal in a file of its own, or of the draft that lends itself. */
static int make_journal(const struct edit_file *f, const struct edit_plan *p)
{
    return p->lender ? journal_adopt(f, p->lender) : journal_create(f, NULL);
}

static void begin(struct work *w, unsigned what)
{
    struct patch p;
    setup_tensors(&w->x, what, 0);
    make_tensor_edit(&w->d, w->x.g, w->x.old, w->x.old_n, EDIT_INPLACE, what);
    CU_ASSERT_TRUE_FATAL(w->d.p.patch);
    struct edit_file f = open_model(&w->x, calm());
    CU_ASSERT_EQUAL(w->d.p.lender != NULL, (what & EDIT_LENT) != 0);
    int fd = make_journal(&f, &w->d.p), undo = temp_unnamed(&f, NULL);
    CU_ASSERT_EQUAL_FATAL(patch_write(&f, &w->d.p, NULL, w->d.p.lender, fd, undo, &p, NULL), 0);
    w->rest = (size_t)p.rest;
    w->table = (size_t)p.table;
    patch_free(&p);
    (void)close(undo);
    edit_file_close(&f);
    w->journal = get_file(w->x.dir, JOURNAL, &w->n);
}

static void end(struct work *w)
{
    free(w->journal);
    edit_done(&w->d);
    teardown(&w->x);
}

static void seal(struct work *w)
{
    uint64_t sum = xxh64(0, w->journal, 56);
    put_u64(w->journal + 56, sum, false);
    sum = xxh64(sum, w->journal + w->rest, w->table - 8 - w->rest);
    put_u64(w->journal + w->table - 8, sum, false);
}

/* What edit_recover() makes of the journal. */
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

static uint32_t draw(void)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* ---- what fits ---- */

/* Each sector old or new, by lot; what was not there before is zero, new or missing. */
static void tear(const struct work *w)
{
    size_t new_n = (size_t)w->d.p.image->size, n = w->x.old_n + draw() % (new_n - w->x.old_n + 1);
    uint8_t *torn = malloc(n + 1);
    for (size_t at = 0; at < n; at += 512) {
        size_t len = (size_t)min_u64(512, n - at), old = at < w->x.old_n ? w->x.old_n - at : 0;
        bool new = draw() & 1;
        memset(torn + at, 0, len);
        memcpy(torn + at, new ? w->d.image + at : w->x.old + at,
               (size_t)min_u64(len, new ? len : old));
    }
    put_file(w->x.dir, NAME, torn, n);
    free(torn);
}

static void test_torn(void)
{
    static const unsigned edits[] = {EDIT_BYTES,
                                     EDIT_BYTES | EDIT_RENAMED,
                                     EDIT_ADDED | EDIT_RENAMED,
                                     EDIT_LENT,
                                     EDIT_LENT | EDIT_ADDED | EDIT_RENAMED,
                                     EDIT_APART,
                                     EDIT_LENT | EDIT_APART};
    for (size_t i = 0; i < 20 * COUNT(edits); i++) {
        struct work w;
        struct edit_recovered found;
        begin(&w, edits[i % COUNT(edits)]);
        if (i >= COUNT(edits))
            tear(&w);
        check_read_through(&w.x, &w.d);
        CU_ASSERT_EQUAL(recover(&w, &found), 0);
        CU_ASSERT_TRUE(found.finished);
        CU_ASSERT_TRUE(is_new(&w.x, &w.d));
        CU_ASSERT_EQUAL(files(&w.x), 1);
        /* Once more, although all is done: the journal is dropped. */
        put_file(w.x.dir, JOURNAL, w.journal, w.n);
        CU_ASSERT_EQUAL(recover(&w, &found), 0);
        CU_ASSERT_FALSE(found.finished);
        CU_ASSERT_TRUE(is_new(&w.x, &w.d));
        CU_ASSERT_EQUAL(files(&w.x), 1);
        end(&w);
    }
}

/* ---- what was not written to its end ---- */

static void damage(unsigned what)
{
    struct work w;
    struct edit_recovered found;
    begin(&w, what);
    for (size_t i = 0; i < 300; i++) {
        size_t n = i < 100 ? draw() % w.n : w.n, at = draw() % w.n;
        if (i >= 100 && i % 4) /* in its head and the table's beginning */
            at = i % 2 ? w.rest + draw() % (w.table + 4096 - w.rest) : draw() % PATCH_FIXED;
        at %= w.n; /* the table may be the end of it */
        uint8_t was = w.journal[at];
        w.journal[at] ^= (uint8_t)(i < 100 ? 0 : 1 << draw() % 8);
        put_file(w.x.dir, JOURNAL, w.journal, n);
        w.journal[at] = was;
        put_file(w.x.dir, NAME, w.x.old, w.x.old_n);
        int r = recover(&w, &found);
        CU_ASSERT_TRUE(r == 0 || r == -ESTALE);
        CU_ASSERT_TRUE(is_old(&w.x) || (r == 0 && found.finished && is_new(&w.x, &w.d)));
        CU_ASSERT_TRUE(i >= 100 || is_old(&w.x));
        CU_ASSERT_EQUAL(files(&w.x), r == 0 ? 1 : 2);
    }
    end(&w);
}

static void test_void(void)
{
    damage(EDIT_BYTES | EDIT_ADDED);
    damage(EDIT_LENT);
}

/* ---- the draft that becomes the journal ---- */

/* Whole units stay where they are in the draft; the journal has new bytes of its own for the others. */
static void test_lent(void)
{
    struct work w;
    struct patch p;
    struct stat draft, journal;
    bool whole;
    const char *foreign;
    begin(&w, EDIT_LENT);
    CU_ASSERT_EQUAL(fstat(w.d.p.lender->src.fd, &draft), 0);
    CU_ASSERT_EQUAL(fstatat(w.x.dir, JOURNAL, &journal, AT_SYMLINK_NOFOLLOW), 0);
    CU_ASSERT_EQUAL(draft.st_ino, journal.st_ino);
    CU_ASSERT_EQUAL(journal.st_nlink, 1);
    int fd = openat(w.x.dir, JOURNAL, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(patch_load(calm(), fd, NAME, w.x.old_n, &p, &whole, &foreign), 0);
    CU_ASSERT_EQUAL_FATAL(p.n_range, 3);
    CU_ASSERT_EQUAL(p.range[1].lo, PATCH_UNIT);
    CU_ASSERT_EQUAL(p.range[1].n, 2 * PATCH_UNIT);
    CU_ASSERT_TRUE(p.range[1].src + p.range[1].n <= w.d.p.lender->src.size);
    CU_ASSERT_TRUE(p.range[0].src >= w.d.p.lender->src.size);
    CU_ASSERT_EQUAL(p.range[2].src, p.range[0].src + PATCH_UNIT);
    patch_free(&p);
    /* It is lent once. */
    struct edit_file f = open_model(&w.x, calm());
    CU_ASSERT_EQUAL(unlinkat(w.x.dir, JOURNAL, 0), 0);
    CU_ASSERT_EQUAL(journal_adopt(&f, w.d.p.lender), -EBUSY);
    edit_file_close(&f);
    end(&w);
}

/* Where a file without a name cannot get one, and where the draft was a journal before. */
static void test_not_lent(void)
{
    for (int i = 0; i < 2; i++) {
        struct fixture x;
        struct edit d;
        struct faultsys fs;
        struct edit_result res;
        setup_tensors(&x, EDIT_LENT, 0);
        uint64_t end;
        make_tensor_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, EDIT_LENT | EDIT_RENAMED);
        if (i == 1)
            CU_ASSERT_TRUE(log_close(d.p.lender, &end));
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.no_link = -ENOENT;
        struct edit_file f = open_model(&x, &fs.sys);
        CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), 0);
        CU_ASSERT_EQUAL(res.strategy, EDIT_INPLACE);
        CU_ASSERT_EQUAL(fs.created, 1);
        CU_ASSERT_TRUE(is_new(&x, &d));
        CU_ASSERT_EQUAL(files(&x), 1);
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

/* ---- what does not fit ---- */

/* A field of the head, with a sum that is right. `at` from REST on: of the rest. */
enum { REST = 1000 };
struct field {
    size_t at, width;
    uint64_t value;
    const char *line;
};

static void test_foreign(void)
{
    static const char range[] = "its ranges lie outside";
    static const struct field fields[] = {
        {16, 8, 1, "neither the old nor the new"},
        {16, 8, UINT64_MAX, range},
        {24, 8, 0, range},
        {24, 8, UINT64_MAX, range},
        {REST, 8, 1, range},
        {REST, 8, 1 << 16, range},
        {REST, 8, (uint64_t)-65536, range},
        {REST + 8, 8, 0, range},
        {REST + 8, 8, UINT64_MAX, range},
        {REST + 8, 8, 65537, range},
        {REST + 16, 8, 0, range},
        {REST + 16, 8, 65537, range},
        {REST + 16, 8, 1 << 20, range},
        {REST + 16, 8, (uint64_t)-65536, range},
        {7, 1, '3', "later version"},
        {7, 1, '9', "later version"},
    };
    struct work w;
    struct edit_recovered found;
    begin(&w, EDIT_BYTES);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *t = &fields[i];
        uint8_t *at = w.journal + (t->at < REST ? t->at : w.rest + t->at - REST);
        uint64_t was = get_uint(at, t->width, false);
        put_uint(at, t->value, t->width, false);
        seal(&w);
        put_file(w.x.dir, JOURNAL, w.journal, w.n);
        struct err e = {0};
        struct edit_file f = open_model(&w.x, calm());
        CU_ASSERT_EQUAL(edit_recover(&f, &found, &e), -ESTALE);
        if (!strstr(e.msg, t->line))
            (void)printf("\n%zu: %s\n", i, e.msg);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, t->line));
        edit_file_close(&f);
        CU_ASSERT_TRUE(is_old(&w.x));
        CU_ASSERT_EQUAL(files(&w.x), 2);
        put_uint(at, was, t->width, false);
    }
    /* Another name. */
    w.journal[w.table - 9] ^= 1;
    seal(&w);
    put_file(w.x.dir, JOURNAL, w.journal, w.n);
    CU_ASSERT_EQUAL(recover(&w, &found), -ESTALE);
    w.journal[w.table - 9] ^= 1;
    seal(&w);
    put_file(w.x.dir, JOURNAL, w.journal, w.n);
    /* A model with a sector that is neither. */
    w.x.old[20000] ^= 1;
    put_file(w.x.dir, NAME, w.x.old, w.x.old_n);
    CU_ASSERT_EQUAL(recover(&w, &found), -ESTALE);
    CU_ASSERT_TRUE(is_old(&w.x));
    end(&w);
}

/* Numbers that would make it allocate or read far more than there is. */
static void test_huge(void)
{
    static const struct field fields[] = {
        {12, 4, UINT32_MAX, ""}, {32, 8, UINT64_MAX, ""},        {32, 8, (uint64_t)1 << 60, ""},
        {40, 8, UINT64_MAX, ""}, {40, 8, (uint64_t)1 << 61, ""}, {8, 4, 512, ""},
        {48, 8, UINT64_MAX, ""}, {48, 8, (uint64_t)1 << 40, ""}, {48, 8, 0, ""},
    };
    struct work w;
    struct edit_recovered found;
    begin(&w, EDIT_BYTES);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *t = &fields[i];
        uint64_t was = get_uint(w.journal + t->at, t->width, false);
        put_uint(w.journal + t->at, t->value, t->width, false);
        seal(&w);
        put_file(w.x.dir, JOURNAL, w.journal, w.n);
        CU_ASSERT_EQUAL(recover(&w, &found), 0);
        CU_ASSERT_TRUE(found.dropped);
        CU_ASSERT_TRUE(is_old(&w.x));
        put_uint(w.journal + t->at, was, t->width, false);
    }
    end(&w);
}

/* ---- when it is done in place ---- */

/* A sparse model with one tensor of I8. */
static struct gguf *make_large(struct fixture *x, uint64_t size, struct edit_file *f)
{
    struct build b;
    size_t n;
    build_init(&b, 3, false);
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

/* A change of n bytes of a tensor, and its plan. */
static void begin_bytes(const struct gguf *g, const struct edit_options *o, uint64_t n,
                        struct edit_change *c, struct edit_plan *p)
{
    char name[] = "/tmp/ggufs-draft-XXXXXX";
    int fd = mkstemp(name);
    struct log *d;
    CU_ASSERT_EQUAL(unlink(name), 0);
    CU_ASSERT_EQUAL(ftruncate(fd, (off_t)n), 0);
    CU_ASSERT_EQUAL_FATAL(log_make(fd, &d, NULL), 0);
    struct tensor_piece piece = {77, n, 0, d};
    edit_change_init(c, g, NULL);
    CU_ASSERT_EQUAL(edit_tensor_write(c, "w", 1, &piece, 1, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(c, o, p, NULL), 0);
    CU_ASSERT_TRUE(p->patch);
    CU_ASSERT_FALSE(p->inplace);
    log_unref(d);
}

/* How it is to be written, and for how many bytes there must be room. */
static void estimated(enum edit_clone clone, const struct gguf *g, enum edit_strategy s, uint64_t n,
                      enum edit_strategy want, uint64_t needed)
{
    struct edit_change c;
    struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_options o = {.strategy = s, .reserve = EDIT_RESERVE_AUTO};
    enum edit_strategy got = EDIT_AUTO;
    struct edit_disk disk = {.clone = clone, .used = g->file_size};
    begin_bytes(g, &o, n, &c, &p);
    CU_ASSERT_EQUAL(edit_estimate(&c, &o, &disk, &got, NULL), 0); /* it was not asked yet */
    CU_ASSERT_EQUAL(got, want);
    disk.known = true;
    disk.free = needed + ((uint64_t)1 << 20);
    CU_ASSERT_EQUAL(edit_estimate(&c, &o, &disk, &got, NULL), 0);
    disk.free--;
    CU_ASSERT_EQUAL(edit_estimate(&c, &o, &disk, &got, NULL), -ENOSPC);
    edit_plan_free(&p);
    edit_change_free(&c);
}

static void test_bounds(void)
{
    struct fixture x;
    struct edit_file f;
    struct edit_change c;
    struct edit_plan p = EDIT_PLAN_INIT;
    struct edit_result res;
    const struct edit_options in_place = {.strategy = EDIT_INPLACE};
    const uint64_t mib = 1 << 20;
    setup(&x);
    struct gguf *g = make_large(&x, 100 * mib, &f);
    estimated(EDIT_CLONE_NO, g, EDIT_AUTO, 1, EDIT_INPLACE, 2);
    estimated(EDIT_CLONE_NO, g, EDIT_AUTO, 25 * mib, EDIT_INPLACE, 50 * mib);
    estimated(EDIT_CLONE_NO, g, EDIT_AUTO, 26 * mib, EDIT_COPY,
              g->head_len - 24 + g->file_size - g->data_off); /* without counts and padding */
    estimated(EDIT_CLONE_NO, g, EDIT_INPLACE, 26 * mib, EDIT_INPLACE, 52 * mib);
    estimated(EDIT_CLONE_YES, g, EDIT_AUTO, 26 * mib, EDIT_REFLINK, 26 * mib);
    edit_file_close(&f);
    gguf_free(g);
    g = make_large(&x, (uint64_t)300 << 30, &f);
    begin_bytes(g, &in_place, (uint64_t)256 << 30, &c, &p);
    CU_ASSERT_EQUAL(edit_commit(&f, &p, &in_place, NULL, &res, NULL), -EOPNOTSUPP);
    edit_plan_free(&p);
    edit_change_free(&c);
    edit_file_close(&f);
    gguf_free(g);
    teardown(&x);
}

/* An edit that is given up while its journal is written leaves nothing. */
static void test_interrupted(void)
{
    struct work w;
    struct edit_result res = {0};
    struct err e = {0};
    atomic_bool cancel = true;
    const struct edit_hooks hooks = {.cancel = &cancel};
    begin(&w, EDIT_BYTES);
    CU_ASSERT_EQUAL(unlinkat(w.x.dir, JOURNAL, 0), 0);
    struct edit_file f = open_model(&w.x, calm());
    CU_ASSERT_EQUAL(edit_commit(&f, &w.d.p, &w.d.o, &hooks, &res, &e), -EINTR);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "the edit was interrupted"));
    CU_ASSERT_EQUAL(files(&w.x), 1);
    CU_ASSERT_TRUE(is_old(&w.x));
    atomic_store(&cancel, false);
    CU_ASSERT_EQUAL(edit_commit(&f, &w.d.p, &w.d.o, &hooks, &res, &e), 0);
    CU_ASSERT_TRUE(is_new(&w.x, &w.d));
    edit_file_close(&f);
    end(&w);
}

/* The journal's bytes are laid over a mapping as far as that goes, and nothing behind it. */
static void test_mapped(void)
{
    enum { SIZE = 2 * PATCH_UNIT };
    struct patch_range range[] = {{.lo = PATCH_UNIT, .n = 3 * PATCH_UNIT, .src = 0},
                                  {.lo = SIZE, .n = PATCH_UNIT, .src = 3 * PATCH_UNIT}};
    struct patch p = PATCH_INIT;
    static uint8_t bytes[4 * PATCH_UNIT];
    uint8_t *pages =
        mmap(NULL, 4 * PATCH_UNIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = memfd_create("journal", MFD_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(pages != MAP_FAILED && fd >= 0);
    memset(pages, 'm', 4 * PATCH_UNIT);
    memset(bytes, 'j', sizeof(bytes));
    CU_ASSERT_EQUAL(pwrite(fd, bytes, sizeof(bytes), 0), (ssize_t)sizeof(bytes));
    p.range = range;
    p.n_range = 2;
    p.before = PATCH_UNIT + 7;
    struct map m = {.fd = -1, .data = pages, .size = SIZE};
    p.fd = -1;
    CU_ASSERT_EQUAL(patch_map(&p, &m), -EBADF);
    p.fd = fd;
    CU_ASSERT_EQUAL(patch_map(&p, &m), 0);
    CU_ASSERT_EQUAL(m.own, PATCH_UNIT + 7);
    for (size_t i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(pages[i * PATCH_UNIT], i == 1 ? 'j' : 'm');
    p.before = SIZE + 1;
    CU_ASSERT_EQUAL(patch_map(&p, &m), 0);
    CU_ASSERT_EQUAL(m.own, SIZE);
    CU_ASSERT_EQUAL(munmap(pages, 4 * PATCH_UNIT), 0);
    (void)close(fd);
}

static unsigned reads;

/* The second read finds the rest of another head, whose own sum is right. */
static ssize_t read_other(const struct sys *s, int fd, void *dst, size_t n, uint64_t off)
{
    (void)s;
    uint8_t *p = dst;
    ssize_t r = sys_libc.pread(&sys_libc, fd, dst, n, off);
    if (++reads == 2 && r == (ssize_t)n)
        put_u64(p + n - 8, xxh64(7, p, n - 8), false);
    return r;
}

/* A journal that is changed while it is read is not one. */
static void test_changed(void)
{
    struct work w;
    struct faultsys fs;
    const char *foreign = "?";
    bool whole = true;
    begin(&w, EDIT_BYTES);
    faultsys_init(&fs, FAULT_NONE, 0, 0);
    fs.sys.pread = read_other;
    reads = 0;
    struct patch p = PATCH_INIT;
    int fd = openat(w.x.dir, JOURNAL, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL(patch_load(&fs.sys, fd, NAME, w.x.old_n, &p, &whole, &foreign), 0);
    CU_ASSERT_EQUAL(reads, 2);
    CU_ASSERT_FALSE(whole);
    CU_ASSERT_PTR_NULL(foreign);
    CU_ASSERT_EQUAL(patch_load(calm(), fd, NAME, w.x.old_n, &p, &whole, &foreign), 0);
    CU_ASSERT_TRUE(whole);
    patch_free(&p);
    (void)close(fd);
    end(&w);
}

static CU_TestInfo tests[] = {
    {"an edit that is given up", test_interrupted},
    {"a torn model is finished, and read as finished", test_torn},
    {"a journal that is cut or damaged", test_void},
    {"a draft that becomes the journal", test_lent},
    {"a draft that cannot", test_not_lent},
    {"a journal that does not fit is left alone", test_foreign},
    {"numbers over all bounds", test_huge},
    {"how much is changed in place", test_bounds},
    {"a journal over a mapping", test_mapped},
    {"a journal that is changed while it is read", test_changed},
    CU_TEST_INFO_NULL,
};

CU_MAIN("patch", tests)
