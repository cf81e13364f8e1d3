/* SPDX-License-Identifier: MIT */
/* edit/journal: what a journal may hold. Each is written byte for byte, with a sum that is right. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "cu_main.h"
#include "edit/journal.h"
#include "edit/temp.h"
#include "faultsys.h"
#include "model_dir.h"

enum { SECTOR = 512 };

/* The fields of a journal, as they stand in the file. */
struct raw {
    const char *magic, *name;
    uint32_t sector, name_len;
    uint64_t size, lo, n;
    uint64_t short_by; /* bytes left out before the sum */
    bool bad_sum;
};

static uint64_t sum_of(const void *p, size_t n)
{
    static const uint64_t key[2] = {0x6a6f75726e616c20, 0x6f66206767756673};
    return siphash(key, p, n);
}

/* New bytes are the old ones but for the last of each sector. */
static void put_raw(const struct fixture *x, const struct raw *j)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    uint64_t n = j->n > 4 * SECTOR ? 0 : j->n;
    buf_str(&b, j->magic);
    buf_uint(&b, j->sector, 4, false);
    buf_uint(&b, j->name_len, 4, false);
    buf_uint(&b, j->size, 8, false);
    buf_uint(&b, j->lo, 8, false);
    buf_uint(&b, j->n, 8, false);
    buf_str(&b, j->name);
    const uint8_t *old = x->old + (j->lo < x->old_n ? j->lo : 0);
    for (uint64_t at = 0; at < n; at += SECTOR)
        buf_uint(&b, sum_of(old + at, (size_t)min_u64(SECTOR, n - at)), 8, false);
    size_t new = b.len;
    buf_add(&b, old, (size_t)n);
    for (uint64_t at = SECTOR - 1; at < n; at += SECTOR)
        b.data[new + at] ^= 0xff;
    b.len -= (size_t)j->short_by;
    buf_uint(&b, sum_of(b.data, b.len) ^ j->bad_sum, 8, false);
    CU_ASSERT_EQUAL_FATAL(buf_error(&b), 0);
    put_file(x->dir, JOURNAL, b.data, b.len);
}

static enum journal_state loaded(const struct fixture *x, const struct raw *j, int want,
                                 const char *line)
{
    CLEANUP(journal_free) struct journal got = JOURNAL_INIT;
    enum journal_state state = JOURNAL_NONE;
    struct err e = {0};
    put_raw(x, j);
    struct edit_file f = open_model(x, calm());
    CU_ASSERT_EQUAL(journal_load(&f, &state, &got, NULL, &e), want);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, line));
    if (state == JOURNAL_REDO) {
        CU_ASSERT_TRUE(got.lo == j->lo && got.n == j->n);
        CU_ASSERT_EQUAL(got.new[SECTOR - 1], x->old[j->lo + SECTOR - 1] ^ 0xff);
    }
    edit_file_close(&f);
    return state;
}

/* A journal of the model for one sector at SECTOR. */
static struct raw whole(const struct fixture *x)
{
    return (struct raw){.magic = "GGUFSJN1",
                        .name = NAME,
                        .sector = SECTOR,
                        .name_len = sizeof(NAME) - 1,
                        .size = x->old_n,
                        .lo = SECTOR,
                        .n = SECTOR};
}

static void test_whole(void)
{
    struct fixture x;
    setup(&x);
    struct raw j = whole(&x);
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_REDO);
    j.n = 2 * SECTOR;
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_REDO);
    j.n = SECTOR + 1; /* of the second sector a byte, which is as it was */
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_REDO);
    j.n = 0;
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_DONE);
    /* up to the last byte of the model */
    j.lo = (x.old_n - 1) / SECTOR * SECTOR;
    j.n = x.old_n - j.lo;
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), j.n == SECTOR ? JOURNAL_REDO : JOURNAL_DONE);
    teardown(&x);
}

/* A journal that was not written to its end is void, whichever field shows it. */
static void test_void(void)
{
    struct fixture x;
    setup(&x);
    struct raw j = whole(&x);
    j.magic = "GGUFSJN2";
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_VOID);
    j = whole(&x);
    j.sector = SECTOR + 1;
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_VOID);
    j = whole(&x);
    j.bad_sum = true;
    CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_VOID);
    for (uint64_t n = 1; n < SECTOR; n += 100) {
        j = whole(&x);
        j.short_by = n;
        CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_VOID);
    }
    static const uint64_t lengths[] = {SECTOR - 1, SECTOR + 1, 8 * SECTOR, UINT64_MAX,
                                       UINT64_MAX - SECTOR};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        j = whole(&x);
        j.name_len += (uint32_t)(lengths[i] - SECTOR); /* the name would be longer */
        CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_VOID);
        j = whole(&x);
        j.n = lengths[i];
        j.short_by = j.n < 4 * SECTOR ? 2 : 0;
        CU_ASSERT_EQUAL(loaded(&x, &j, 0, ""), JOURNAL_VOID);
    }
    /* shorter than its own fixed part */
    put_file(x.dir, JOURNAL, "GGUFSJN1", 8);
    struct edit_file f = open_model(&x, calm());
    CLEANUP(journal_free) struct journal got = JOURNAL_INIT;
    enum journal_state state;
    CU_ASSERT_EQUAL(journal_load(&f, &state, &got, NULL, NULL), 0);
    CU_ASSERT_EQUAL(state, JOURNAL_VOID);
    edit_file_close(&f);
    teardown(&x);
}

/* A whole journal of another model is not applied, and not removed. */
static void test_foreign(void)
{
    struct fixture x;
    setup(&x);
    struct raw j = whole(&x);
    j.name = "model.gguF";
    CU_ASSERT_EQUAL_FATAL(strlen(j.name), strlen(NAME));
    (void)loaded(&x, &j, -ESTALE, "it names another file");
    j = whole(&x);
    j.name = NAME "x";
    j.name_len++;
    (void)loaded(&x, &j, -ESTALE, "it names another file");
    j = whole(&x);
    j.size++;
    (void)loaded(&x, &j, -ESTALE, "another size");
    j = whole(&x);
    j.lo = 1;
    (void)loaded(&x, &j, -ESTALE, "lies outside");
    j = whole(&x);
    j.lo = (x.old_n / SECTOR + 1) * SECTOR; /* behind the end */
    (void)loaded(&x, &j, -ESTALE, "lies outside");
    j = whole(&x);
    j.lo = (x.old_n - 1) / SECTOR * SECTOR; /* a byte too many */
    j.n = x.old_n - j.lo + 1;
    (void)loaded(&x, &j, -ESTALE, "lies outside");
    teardown(&x);
}

/* A file that is no journal, or not one that this program knows. */
static void loads(const struct fixture *x, const char *head, size_t n, off_t size, int want,
                  enum journal_state state, const char *line)
{
    CLEANUP(journal_free) struct journal got = JOURNAL_INIT;
    enum journal_state now = JOURNAL_NONE;
    struct err e = {0};
    put_file(x->dir, JOURNAL, head, n);
    int fd = openat(x->dir, JOURNAL, O_RDWR | O_CLOEXEC);
    CU_ASSERT_EQUAL(ftruncate(fd, size), 0);
    (void)close(fd);
    struct edit_file f = open_model(x, calm());
    CU_ASSERT_EQUAL(journal_load(&f, &now, &got, NULL, &e), want);
    if (want == 0)
        CU_ASSERT_EQUAL(now, state);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, line));
    edit_file_close(&f);
}

static void test_others(void)
{
    struct fixture x;
    setup(&x);
    loads(&x, "", 0, 0, 0, JOURNAL_VOID, "");
    loads(&x, "GGU", 3, 3, 0, JOURNAL_VOID, "");
    loads(&x, "\0\0\0\0\0\0\0\0x", 9, 1000, 0, JOURNAL_VOID, "");
    loads(&x, "\0\0\0\0\0\0\0x", 8, 1000, 0, JOURNAL_VOID, "");
    loads(&x, "GGUFSJN0", 8, 1000, 0, JOURNAL_VOID, "");
    loads(&x, "GGUFSJN3", 8, 1000, -ESTALE, 0, "by a later version");
    loads(&x, "GGUFSJN9", 8, 1000, -ESTALE, 0, "by a later version");
    loads(&x, "GGUFSJN:", 8, 1000, 0, JOURNAL_VOID, "");
    loads(&x, "GGUFSJX3", 8, 1000, 0, JOURNAL_VOID, "");
    /* two of the model and 8 KiB, and no byte more, even where the head has no bytes */
    off_t most = 2 * ((off_t)x.old_n + 4096) + 1;
    loads(&x, "GGUFSJN1", 8, most, 0, JOURNAL_VOID, "");
    loads(&x, "GGUFSJN1", 8, most + 1, -ESTALE, 0, "it is too large");
    loads(&x, "", 0, most + 1, 0, JOURNAL_VOID, "");
    /* Both may be sparse: a header has at most 4 GiB, and sums a 64th of that. */
    int fd = openat(x.dir, NAME, O_RDWR | O_CLOEXEC);
    CU_ASSERT_EQUAL(ftruncate(fd, (off_t)1 << 40), 0);
    (void)close(fd);
    loads(&x, "GGUFSJN1", 8, ((off_t)65 << 26) + 4097, -ESTALE, 0, "it is too large");
    loads(&x, "GGUFSJN1", 8, (off_t)1 << 40, -ESTALE, 0, "it is too large");
    teardown(&x);
}

/* Who may read the model may read the journal; its owner alone may write it. */
static void test_mode(void)
{
    static const mode_t modes[][2] = {{0644, 0644}, {0777, 0644},  {0400, 0600},
                                      {0464, 0644}, {06777, 0644}, {0660, 0640}};
    struct fixture x;
    setup(&x);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct edit_file f = open_model(&x, calm());
        struct stat st;
        struct err e = {0};
        CU_ASSERT_EQUAL(fchmod(f.fd, modes[i][0]), 0);
        CU_ASSERT_EQUAL(journal_write(&f, 0, x.old, x.old, SECTOR, &e), 0);
        CU_ASSERT_EQUAL_FATAL(fstatat(x.dir, JOURNAL, &st, 0), 0);
        CU_ASSERT_EQUAL(st.st_mode & 07777, modes[i][1]);
        CU_ASSERT_EQUAL(journal_write(&f, 0, x.old, x.old, SECTOR, &e), -EEXIST);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "cannot create the journal"));
        journal_remove(&f);
        CU_ASSERT_EQUAL(fstatat(x.dir, JOURNAL, &st, 0), -1);
        CU_ASSERT_EQUAL(fchmod(f.fd, 0600), 0);
        edit_file_close(&f);
    }
    teardown(&x);
}

static const char acl_access[] = "system.posix_acl_access";

/* An ACL: user rw, user 1 rw, group r, mask rw, other r (version 2; tag, permissions, id). */
static void put_acl(int fd, const char *name)
{
    static const uint8_t acl[] = {2,    0,    0,    0,    0x01, 0,    6,    0,    0xff, 0xff, 0xff,
                                  0xff, 0x02, 0,    6,    0,    1,    0,    0,    0,    4,    0,
                                  4,    0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,    6,    0,    0xff,
                                  0xff, 0xff, 0xff, 0x20, 0,    4,    0,    0xff, 0xff, 0xff, 0xff};
    if (fsetxattr(fd, name, acl, sizeof(acl), 0) < 0)
        (void)printf("(no ACLs here) ");
}

/* A journal of its own, or a draft that becomes it: open, with its stat. */
static int made(const struct edit_file *f, bool adopted, struct stat *st)
{
    struct log *d = NULL;
    int fd = -1;
    if (adopted) {
        CU_ASSERT_EQUAL_FATAL(log_make(temp_unnamed(f, NULL), &d, NULL), 0);
        fd = journal_adopt(f, d);
        log_unref(d);
    } else {
        fd = journal_create(f, NULL);
    }
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(fstat(fd, st), 0);
    return fd;
}

/* No ACL gives access to a journal, neither the folder's nor, in part, that of the model. */
static void test_acl(void)
{
    for (int i = 0; i < 4; i++) {
        const bool adopted = i & 1, of_model = i & 2;
        struct fixture x;
        struct stat st;
        setup(&x);
        put_acl(x.dir, "system.posix_acl_default");
        struct edit_file f = open_model(&x, calm());
        CU_ASSERT_EQUAL(fchmod(f.fd, 0664), 0);
        if (of_model)
            put_acl(f.fd, acl_access);
        bool has = fgetxattr(f.fd, acl_access, NULL, 0) > 0;
        int fd = made(&f, adopted, &st);
        CU_ASSERT_EQUAL(st.st_mode & 07777, has ? 0600 : 0644); /* group bits: the mask */
        CU_ASSERT_TRUE(has || fgetxattr(fd, acl_access, NULL, 0) < 0);
        (void)close(fd);
        journal_remove(&f);
        edit_file_close(&f);
        teardown(&x);
    }
}

/* Where a call fails that access depends on, only the journal's owner has any. */
static void test_cannot_be_given(void)
{
    static const mode_t modes[] = {0644, 0640, 0604};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        for (unsigned n = 1, hit = 1; hit; n++) {
            struct fixture x;
            struct stat st;
            struct faultsys fs;
            setup_with(&x, 0);
            faultsys_init(&fs, FAULT_FAIL, n, -EPERM);
            struct edit_file f = open_model(&x, &fs.sys);
            CU_ASSERT_EQUAL(fchmod(f.fd, modes[i]), 0);
            int fd = journal_create(&f, NULL);
            hit = fs.hit;
            bool harmless = !hit || (fd >= 0 && strcmp(fs.what, "fchown") == 0 && modes[i] == 0644);
            CU_ASSERT_EQUAL(fd < 0, hit && strcmp(fs.what, "openat") == 0);
            if (fd >= 0) {
                CU_ASSERT_EQUAL(fstat(fd, &st), 0);
                CU_ASSERT_EQUAL(st.st_mode & 07777, harmless ? modes[i] : 0600);
                (void)close(fd);
            }
            edit_file_close(&f);
            teardown(&x);
        }
}

/* A range begins and ends with the sectors that differ; the last one may be a part. */
static void test_range(void)
{
    uint8_t old[3 * SECTOR + 10] = {0}, new[sizeof(old)] = {0};
    static const struct {
        size_t first, last;
        uint64_t lo, len;
    } rows[] = {
        {0, 0, 0, SECTOR},
        {SECTOR - 1, SECTOR - 1, 0, SECTOR},
        {SECTOR - 1, SECTOR, 0, 2 * SECTOR},
        {SECTOR, 2 * SECTOR - 1, SECTOR, SECTOR},
        {3 * SECTOR, 3 * SECTOR, 3 * SECTOR, 10},
        {2 * SECTOR, 3 * SECTOR + 9, 2 * SECTOR, SECTOR + 10},
        {0, 3 * SECTOR + 9, 0, sizeof(old)},
    };
    uint64_t lo = 7, len = 7;
    journal_range(old, new, sizeof(old), &lo, &len);
    CU_ASSERT_EQUAL(len, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        new[rows[i].first] = new[rows[i].last] = 1;
        journal_range(old, new, sizeof(old), &lo, &len);
        CU_ASSERT_EQUAL(lo, rows[i].lo);
        CU_ASSERT_EQUAL(len, rows[i].len);
        new[rows[i].first] = new[rows[i].last] = 0;
    }
}

/* C1: an edit of a model that has a journal. */
static void test_commit(void)
{
    struct fixture x;
    struct edit d;
    struct err e = {0};
    setup(&x);
    make_edit(&d, x.g, x.old, x.old_n, EDIT_INPLACE, 'n', 10);
    /* One that is not done. */
    struct raw j = whole(&x);
    put_raw(&x, &j);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(commit(&f, &d, &(struct edit_result){0}, &e), -ESTALE);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "an interrupted edit must be recovered first"));
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(files(&x), 2);
    /* One that a backup by hard links has, too. */
    CU_ASSERT_EQUAL(linkat(x.dir, JOURNAL, x.dir, "other", 0), 0);
    CU_ASSERT_EQUAL(commit(&f, &d, &(struct edit_result){0}, &e), -ESTALE);
    CU_ASSERT_STRING_EQUAL(e.msg,
                           JOURNAL " beside the model has other hard links and is left alone "
                                   "(remove those, not the journal: the model may be "
                                   "unfinished without it)");
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(unlinkat(x.dir, "other", 0), 0);
    /* One that is not ours. */
    CU_ASSERT_EQUAL(renameat(x.dir, JOURNAL, x.dir, "away"), 0);
    CU_ASSERT_EQUAL(symlinkat("away", x.dir, JOURNAL), 0);
    CU_ASSERT_EQUAL(commit(&f, &d, &(struct edit_result){0}, &e), -ESTALE);
    CU_ASSERT_STRING_EQUAL(e.msg, JOURNAL " beside the model belongs neither to the model's owner "
                                          "nor to this user; it is left alone (if the model is "
                                          "whole, remove it to edit the model)");
    CU_ASSERT_TRUE(is_old(&x));
    CU_ASSERT_EQUAL(unlinkat(x.dir, JOURNAL, 0), 0);
    CU_ASSERT_EQUAL(unlinkat(x.dir, "away", 0), 0);
    /* One that was not written to its end is removed. */
    j.bad_sum = true;
    put_raw(&x, &j);
    CU_ASSERT_EQUAL(commit(&f, &d, &(struct edit_result){0}, &e), 0);
    CU_ASSERT_TRUE(is_new(&x, &d));
    CU_ASSERT_EQUAL(files(&x), 1);
    edit_file_close(&f);
    edit_done(&d);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"whole journals", test_whole},
    {"journals that were not written to their end", test_void},
    {"journals of another model", test_foreign},
    {"files that are no journals", test_others},
    {"the mode of a journal", test_mode},
    {"ACLs give no access to a journal", test_acl},
    {"access to a journal that cannot be given", test_cannot_be_given},
    {"the range of a journal", test_range},
    {"an edit of a model that has a journal", test_commit},
    CU_TEST_INFO_NULL,
};

CU_MAIN("edit/journal", tests)
