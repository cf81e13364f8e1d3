/* SPDX-License-Identifier: MIT */
/* edit/journal: what a journal may hold. Each is written byte for byte, with a sum that is right. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "cu_main.h"
#include "edit/journal.h"
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
    CU_ASSERT_EQUAL(journal_load(&f, &state, &got, &e), want);
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
    CU_ASSERT_EQUAL(journal_load(&f, &state, &got, NULL), 0);
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

static CU_TestInfo tests[] = {
    {"whole journals", test_whole},
    {"journals that were not written to their end", test_void},
    {"journals of another model", test_foreign},
    CU_TEST_INFO_NULL,
};

CU_MAIN("edit/journal", tests)
