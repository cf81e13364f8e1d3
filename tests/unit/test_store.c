/* SPDX-License-Identifier: MIT */
/* model/store.h: mapped files, tensors spread over several files, and overlays. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cu_main.h"
#include "model/store.h"
#include "parsed.h"

enum { PAGE = 4096, LARGE = 1 << 20, I8 = 24 };

/* A hole before data reads as zeros. Once the file is truncated, the hole is gone too. */
static void test_hole(void)
{
    enum { HOLE = 3 * (64 << 10) };
    struct mapped *m = NULL;
    uint8_t *bytes = malloc(HOLE + 1);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(pwrite(fd, "x", 1, HOLE), 1);
    CU_ASSERT_EQUAL_FATAL(mapped_open(fd, HOLE + 1, &m, NULL), 0);
    const struct source s = mapped_source(m);
    memset(bytes, 1, HOLE + 1);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE), 0);
    CU_ASSERT_TRUE(bytes[0] == 0 && memcmp(bytes, bytes + 1, HOLE - 1) == 0);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE + 1), 0);
    CU_ASSERT_EQUAL(bytes[HOLE], 'x');
    CU_ASSERT_EQUAL(ftruncate(fd, PAGE), 0);
    CU_ASSERT_EQUAL(s.read(&s, 0, bytes, HOLE), -EIO);
    (void)close(fd);
    mapped_unref(m);
    free(bytes);
}

/* Two files. The first has tensors of 3 and 5 bytes, the second has one of 7 bytes. */
struct two {
    struct parsed p[2];
    struct mapped *file[2];
    struct store *s;
};

static struct two make_two(void)
{
    struct two t;
    struct build b;
    build_init(&b, 3, false);
    build_tensor(&b, "a", I8, (uint64_t[]){3}, 1, "abc", 3);
    build_tensor(&b, "b", I8, (uint64_t[]){5}, 1, "defgh", 5);
    b.no_tail = true;
    t.p[0] = parse_build(&b, 0);
    build_init(&b, 3, false);
    build_tensor(&b, "c", I8, (uint64_t[]){7}, 1, "ijklmno", 7);
    b.no_tail = true;
    t.p[1] = parse_build(&b, 0);
    for (int k = 0; k < 2; k++) {
        int fd = memfd_create("model", MFD_CLOEXEC);
        CU_ASSERT_EQUAL_FATAL(pwrite(fd, t.p[k].image, t.p[k].size, 0), (ssize_t)t.p[k].size);
        CU_ASSERT_EQUAL_FATAL(mapped_open(fd, t.p[k].size, &t.file[k], &(struct err){0}), 0);
        (void)close(fd);
    }
    const struct gguf *g[2] = {t.p[0].g, t.p[1].g};
    CU_ASSERT_EQUAL_FATAL(store_make(t.file, g, 2, &t.s), 0);
    return t;
}

static void free_two(struct two *t)
{
    store_unref(t->s);
    for (int k = 0; k < 2; k++) {
        mapped_unref(t->file[k]);
        parsed_free(&t->p[k]);
    }
}

/* Check that both ways of reading return these bytes. */
static void check_bytes(const struct store *s, uint32_t i, uint64_t off, const char *want, size_t n)
{
    char got[64];
    uint8_t *room;
    const uint8_t *bytes;
    CU_ASSERT_EQUAL(store_read(s, i, off, got, n, off + n), 0);
    CU_ASSERT_EQUAL(memcmp(got, want, n), 0);
    CU_ASSERT_EQUAL_FATAL(store_bytes(s, i, off, off + n, off + n, &room, &bytes), 0);
    CU_ASSERT_EQUAL(memcmp(bytes, want, n), 0);
    CU_ASSERT_EQUAL(store_check(s, i, off, off + n), 0);
    free(room);
}

/* Return the error, which must be the same for both ways of reading. */
static int read_error(const struct store *s, uint32_t i, uint64_t off, size_t n)
{
    char got[64];
    uint8_t *room = NULL;
    const uint8_t *bytes;
    int r = store_bytes(s, i, off, off + n, off + n, &room, &bytes);
    CU_ASSERT_EQUAL(store_read(s, i, off, got, n, off + n), r);
    CU_ASSERT_PTR_NULL(room);
    return r;
}

static void check_store(const struct store *s)
{
    check_bytes(s, 0, 0, "abc", 3);
    check_bytes(s, 1, 1, "efgh", 4);
    check_bytes(s, 2, 6, "o", 1);
    CU_ASSERT_EQUAL(read_error(s, 1, 0, 6), -EIO); /* beyond the end of the file */
    CU_ASSERT_EQUAL(read_error(s, 2, 0, 8), -EIO);
    CU_ASSERT_EQUAL(store_there(s, 1, 5), 5);
    CU_ASSERT_EQUAL(store_there(s, 1, 6), 5);
    CU_ASSERT_EQUAL(store_there(s, 2, 100), 7);
    CU_ASSERT_EQUAL(store_check(s, 2, 0, 7), 0);
    CU_ASSERT_FALSE(store_cut(s));
}

static void test_store(void)
{
    struct two t = make_two();
    struct store *s = NULL;
    check_store(t.s);
    CU_ASSERT_EQUAL_FATAL(store_of(t.s->file, 2, t.s->place, 3, &s), 0);
    check_store(s);
    struct store *again = store_ref(s);
    store_unref(s);
    check_store(again);
    /* Cutting off the last byte of the second file affects only the tensor that contained it. */
    CU_ASSERT_EQUAL(ftruncate(t.file[1]->fd, (off_t)t.p[1].size - 1), 0);
    CU_ASSERT_EQUAL(store_check(again, 2, 0, 6), 0);
    CU_ASSERT_EQUAL(store_check(again, 1, 0, 5), 0);
    CU_ASSERT_FALSE(store_cut(again));
    CU_ASSERT_EQUAL(store_check(again, 2, 0, 7), -EIO);
    CU_ASSERT_TRUE(store_cut(again));
    store_unref(again);
    store_unref(NULL);
    free_two(&t);
}

/* Bytes of drafts overlay those in the file, even for a tensor that has no bytes in the file. */
static void test_over(void)
{
    struct two t = make_two();
    struct log *d = NULL;
    int fd = memfd_create("log", MFD_CLOEXEC);
    struct tensor_content *part, *all;
    struct store *s = NULL;
    uint64_t at;
    CU_ASSERT_EQUAL(pwrite(fd, "STUVWXY", 7, 0), 7);
    CU_ASSERT_EQUAL_FATAL(log_make(fd, &d, NULL), 0);
    const struct tensor_piece piece[] = {{1, 2, 0, d}, {4, 1, 6, d}}, whole = {0, 7, 0, d};
    CU_ASSERT_EQUAL_FATAL(tensor_content_make(NULL, 5, NULL, piece, 2, &part), 0);
    CU_ASSERT_EQUAL_FATAL(tensor_content_make(NULL, 7, NULL, &whole, 1, &all), 0);
    log_unref(d);
    const struct place_in_store place[] = {
        t.s->place[0], {t.s->place[1].off, 0, 0, part}, {(uint64_t)1 << 40, 0, 0, all}};
    CU_ASSERT_EQUAL_FATAL(store_of(t.s->file, 2, place, 3, &s), 0);
    tensor_content_unref(part);
    tensor_content_unref(all);
    check_bytes(s, 0, 0, "abc", 3);
    check_bytes(s, 1, 0, "dSTgY", 5);
    check_bytes(s, 1, 1, "ST", 2);
    check_bytes(s, 1, 2, "Tg", 2);
    check_bytes(s, 1, 3, "g", 1);
    check_bytes(s, 2, 0, "STUVWXY", 7);
    CU_ASSERT_PTR_EQUAL(store_mapped(s, 1, 3, 1, &at), t.file[0]);
    CU_ASSERT_EQUAL(at, t.s->place[1].off + 3);
    CU_ASSERT_PTR_EQUAL(store_mapped(s, 1, 1, 0, &at), t.file[0]); /* an empty range */
    CU_ASSERT_PTR_NULL(store_mapped(s, 1, 3, 2, &at));
    CU_ASSERT_PTR_NULL(store_mapped(s, 1, 0, 2, &at));
    CU_ASSERT_PTR_NULL(store_mapped(s, 1, 4, 1, &at));
    CU_ASSERT_EQUAL(store_there(s, 2, 7), 7);
    /* The bytes that were cut off are missing, except where a draft overlays them. */
    CU_ASSERT_EQUAL(ftruncate(t.file[0]->fd, (off_t)t.s->place[1].off), 0);
    check_bytes(s, 1, 1, "ST", 2);
    check_bytes(s, 2, 0, "STUVWXY", 7);
    CU_ASSERT_EQUAL(read_error(s, 1, 0, 5), -EIO);
    CU_ASSERT_TRUE(store_cut(s));
    store_unref(s);
    free_two(&t);
}

static CU_TestInfo tests[] = {
    {"a hole reads as zeros without touching its pages", test_hole},
    {"tensors are stored in two files", test_store},
    {"drafts overlay the bytes of a file", test_over},
    CU_TEST_INFO_NULL,
};

CU_MAIN("model/store", tests)
