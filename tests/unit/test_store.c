/* SPDX-License-Identifier: MIT */
/* model/store.h: mapped files, what is frozen of them, and where tensors are in several. */
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

static uint8_t byte_at(uint64_t off)
{
    return (uint8_t)(1 + off / 7 + off / PAGE * 31);
}

static void fill_file(int fd, size_t n, uint8_t flip)
{
    uint8_t *bytes = malloc(n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(i) ^ flip;
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, bytes, n, 0), (ssize_t)n);
    free(bytes);
}

static struct mapped *made(size_t n)
{
    struct mapped *m = NULL;
    struct err e = {0};
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    if (n)
        fill_file(fd, n, 0);
    CU_ASSERT_EQUAL_FATAL(mapped_open(fd, n, &m, &e), 0);
    return m;
}

/* Bytes [first, last) are those that the file had, and none before and after them. */
static void check_frozen(struct mapped *m, size_t n, size_t first, size_t last)
{
    uint8_t *now = malloc(n);
    size_t wrong = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(now);
    CU_ASSERT_EQUAL(mapped_copy(m, 0, now, n), 0);
    for (size_t i = 0; i < n; i++)
        wrong += now[i] != (byte_at(i) ^ (i >= first && i < last ? 0 : 0xff));
    CU_ASSERT_EQUAL(wrong, 0);
    free(now);
}

/* A file of n bytes; bytes [off, off + len) are frozen at `at`, then all of it is changed. */
static void freeze(size_t n, uint64_t off, uint64_t len, uint64_t at, size_t first, size_t last)
{
    struct mapped *m = made(n);
    struct stat st;
    uint8_t byte;
    uint64_t copied = 99, whole = (last - first + PAGE - 1) / PAGE * PAGE;
    int fd = memfd_create("frozen", MFD_CLOEXEC);
    CU_ASSERT_EQUAL(mapped_freeze(m, off, len, fd, at, &copied), 0);
    CU_ASSERT_EQUAL(copied, whole);
    CU_ASSERT_EQUAL(atomic_load(&m->frozen), whole > 0);
    CU_ASSERT_EQUAL_FATAL(fstat(fd, &st), 0);
    CU_ASSERT_EQUAL((uint64_t)st.st_size, whole ? at + whole : 0);
    if (whole) {
        CU_ASSERT_EQUAL(pread(fd, &byte, 1, (off_t)at), 1);
        CU_ASSERT_EQUAL(byte, byte_at(first));
    }
    fill_file(m->fd, n, 0xff);
    check_frozen(m, n, first, last);
    mapped_unref(m);
    (void)close(fd);
}

static void test_freeze(void)
{
    const size_t n = 3 * PAGE + 100;
    freeze(n, PAGE + 10, 20, 0, PAGE, 2 * PAGE);
    freeze(n, PAGE, PAGE, 2 * PAGE, PAGE, 2 * PAGE);
    freeze(n, PAGE - 1, 2, 0, 0, 2 * PAGE);
    freeze(n, PAGE, PAGE + 1, 0, PAGE, 3 * PAGE);
    freeze(n, 3 * PAGE, 1, PAGE, 3 * PAGE, n); /* up to the end of the file */
    freeze(n, 0, n, 0, 0, n);
    freeze(n, 2 * PAGE, 100 * PAGE, 0, 2 * PAGE, n);
    freeze(n, PAGE, 0, 0, 0, 0); /* nothing */
    freeze(n, 4 * PAGE, 1, 0, 0, 0);
    freeze(3 * PAGE, 3 * PAGE, 1, 0, 0, 0); /* behind the end */
    freeze(LARGE + 3 * PAGE, PAGE, LARGE + PAGE, 0, PAGE, LARGE + 2 * PAGE);
}

/* What the file holds elsewhere does not matter once its pages are not the file's. */
static void test_frozen_source(void)
{
    struct mapped *m = made(2 * PAGE);
    const struct source s = mapped_source(m), other = {.read = NULL};
    uint8_t got[2];
    uint64_t copied;
    int fd = memfd_create("frozen", MFD_CLOEXEC);
    CU_ASSERT_EQUAL(s.size, 2 * PAGE);
    CU_ASSERT_PTR_EQUAL(mapped_of(&s), m);
    CU_ASSERT_PTR_NULL(mapped_of(&other));
    CU_ASSERT_EQUAL(mapped_freeze(m, 0, 1, fd, 0, &copied), 0);
    fill_file(m->fd, 2 * PAGE, 0xff);
    CU_ASSERT_EQUAL(s.read(&s, PAGE - 1, got, 2), 0);
    CU_ASSERT_EQUAL(got[0], byte_at(PAGE - 1));
    CU_ASSERT_EQUAL(got[1], byte_at(PAGE) ^ 0xff);
    CU_ASSERT_EQUAL(s.read(&s, 2 * PAGE - 1, got, 2), -EIO);
    mapped_unref(m);
    (void)close(fd);
}

/* A hole is zeros, with data behind it; and no bytes at all once the file is cut. */
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
    mapped_unref(m);
    free(bytes);
}

/* A copy that cannot be written or mapped leaves all as it was. */
static void test_freeze_fails(void)
{
    struct mapped *m = made(2 * PAGE);
    uint64_t copied = 99;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL(mapped_freeze(m, 0, PAGE, fd, 0, &copied), -EBADF);
    (void)close(fd);
    fd = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CU_ASSERT_EQUAL(ftruncate(fd, PAGE), 0);
    CU_ASSERT_EQUAL(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    CU_ASSERT_EQUAL(mapped_freeze(m, 0, 2 * PAGE, fd, 0, &copied), -EPERM);
    CU_ASSERT_EQUAL(copied, 0);
    CU_ASSERT_FALSE(atomic_load(&m->frozen));
    fill_file(m->fd, 2 * PAGE, 0xff);
    check_frozen(m, 2 * PAGE, 0, 0);
    (void)close(fd);
    /* written, but not mapped: from a file that is open for writing only */
    char path[] = "/tmp/ggufs-store-XXXXXX";
    int made_fd = mkstemp(path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL(mapped_freeze(m, 0, PAGE, fd, 0, &copied), -EACCES);
    CU_ASSERT_FALSE(atomic_load(&m->frozen));
    CU_ASSERT_EQUAL(copied, 0);
    (void)unlink(path);
    (void)close(made_fd);
    (void)close(fd);
    mapped_unref(m);
}

/* Pages that are those of a file from some place on. */
static void test_pages(void)
{
    int fd = memfd_create("pages", MFD_CLOEXEC), to = memfd_create("frozen", MFD_CLOEXEC);
    uint64_t copied;
    uint8_t got;
    fill_file(fd, 4 * PAGE, 0);
    void *pages = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 2 * PAGE);
    CU_ASSERT_TRUE_FATAL(pages != MAP_FAILED);
    struct mapped *m = mapped_of_pages(fd, 2 * PAGE, pages, 2 * PAGE, 2 * PAGE);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_TRUE(atomic_load(&m->frozen));
    CU_ASSERT_EQUAL(mapped_freeze(m, 0, 2 * PAGE, to, 0, &copied), 0);
    CU_ASSERT_EQUAL(copied, 0); /* all before them */
    CU_ASSERT_EQUAL(mapped_freeze(m, PAGE, PAGE + 1, to, 0, &copied), 0);
    CU_ASSERT_EQUAL(copied, PAGE);
    fill_file(fd, 4 * PAGE, 0xff);
    CU_ASSERT_EQUAL(mapped_copy(m, PAGE - 1, &got, 1), 0);
    CU_ASSERT_EQUAL(got, byte_at(3 * PAGE - 1));
    CU_ASSERT_EQUAL(mapped_copy(m, PAGE, &got, 1), 0);
    CU_ASSERT_EQUAL(got, byte_at(3 * PAGE) ^ 0xff);
    CU_ASSERT_EQUAL(ftruncate(fd, 3 * PAGE + 1), 0);
    CU_ASSERT_EQUAL(mapped_check(m, PAGE + 1), 0);
    CU_ASSERT_EQUAL(mapped_copy(m, PAGE, &got, 1), 0);
    CU_ASSERT_FALSE(atomic_load(&m->cut));
    CU_ASSERT_EQUAL(mapped_copy(m, PAGE + 1, &got, 1), -EIO); /* in the same page */
    CU_ASSERT_TRUE(atomic_load(&m->cut));
    CU_ASSERT_EQUAL(ftruncate(fd, PAGE), 0);
    CU_ASSERT_EQUAL(mapped_check(m, 0), 0);
    CU_ASSERT_EQUAL(mapped_check(m, 1), -EIO);
    mapped_unref(m);
    (void)close(to);
}

static void test_copy(void)
{
    struct mapped *m = made(100), *none = made(0);
    uint8_t got[100];
    CU_ASSERT_EQUAL(mapped_copy(m, 0, got, 100), 0);
    CU_ASSERT_EQUAL(got[99], byte_at(99));
    CU_ASSERT_EQUAL(mapped_copy(m, 99, got, 1), 0);
    CU_ASSERT_EQUAL(mapped_copy(m, 100, got, 0), 0);
    CU_ASSERT_EQUAL(mapped_copy(m, 99, got, 2), -EIO);
    CU_ASSERT_EQUAL(mapped_copy(m, 100, got, 1), -EIO);
    CU_ASSERT_EQUAL(mapped_copy(m, 101, got, 0), -EIO);
    CU_ASSERT_EQUAL(mapped_copy(none, 0, got, 1), -EIO);
    CU_ASSERT_EQUAL(ftruncate(m->fd, 99), 0);
    CU_ASSERT_EQUAL(mapped_copy(m, 0, got, 99), 0);
    CU_ASSERT_FALSE(atomic_load(&m->cut));
    CU_ASSERT_EQUAL(mapped_copy(m, 0, got, 100), -EIO);
    CU_ASSERT_TRUE(atomic_load(&m->cut));
    mapped_unref(m);
    mapped_unref(none);
    mapped_unref(NULL);
    CU_ASSERT_EQUAL(mapped_open(-1, 1, &m, &(struct err){0}), -EBADF);
}

/* Two files of tensors: 3 and 5 bytes in the first, 7 in the second. */
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

static void check_store(const struct two *t, const struct store *s)
{
    CU_ASSERT_EQUAL(s->n, 3);
    CU_ASSERT_EQUAL(s->files, 2);
    CU_ASSERT_EQUAL(memcmp(store_data(s, 0, 0, 3), "abc", 3), 0);
    CU_ASSERT_EQUAL(memcmp(store_data(s, 1, 1, 5), "efgh", 4), 0);
    CU_ASSERT_EQUAL(memcmp(store_data(s, 2, 6, 7), "o", 1), 0);
    CU_ASSERT_PTR_NULL(store_data(s, 1, 0, 6)); /* behind the end of its file */
    CU_ASSERT_PTR_NULL(store_data(s, 2, 0, 8));
    CU_ASSERT_PTR_NULL(store_data(s, 2, 0, UINT64_MAX));
    CU_ASSERT_PTR_NULL(store_data(s, 3, 0, 0));
    CU_ASSERT_EQUAL(store_there(s, 1, 5), 5);
    CU_ASSERT_EQUAL(store_there(s, 1, 6), 5);
    CU_ASSERT_EQUAL(store_there(s, 2, 100), 7);
    CU_ASSERT_EQUAL(s->place[0].file, 0);
    CU_ASSERT_EQUAL(s->place[1].shard, 0);
    CU_ASSERT_EQUAL(s->place[2].file, 1);
    CU_ASSERT_EQUAL(s->place[2].shard, 1);
    CU_ASSERT_EQUAL(s->place[2].off, t->p[1].g->tensor[0].off);
    CU_ASSERT_EQUAL(store_check(s, 2, 7), 0);
    CU_ASSERT_FALSE(store_cut(s));
}

static void test_store(void)
{
    struct two t = make_two();
    struct store *s = NULL;
    check_store(&t, t.s);
    CU_ASSERT_EQUAL_FATAL(store_of(t.s->file, 2, t.s->place, 3, &s), 0);
    CU_ASSERT_EQUAL(atomic_load(&t.file[0]->refs), 3);
    check_store(&t, s);
    struct store *again = store_ref(s);
    store_unref(s);
    check_store(&t, again);
    /* The second file ends a byte earlier: only what has that byte has gone. */
    CU_ASSERT_EQUAL(ftruncate(t.file[1]->fd, (off_t)t.p[1].size - 1), 0);
    CU_ASSERT_EQUAL(store_check(again, 2, 6), 0);
    CU_ASSERT_EQUAL(store_check(again, 1, 5), 0);
    CU_ASSERT_FALSE(store_cut(again));
    CU_ASSERT_EQUAL(store_check(again, 2, 7), -EIO);
    CU_ASSERT_TRUE(store_cut(again));
    store_unref(again);
    CU_ASSERT_EQUAL(atomic_load(&t.file[0]->refs), 2);
    store_unref(NULL);
    free_two(&t);
}

/* The file ends before the padded place of a tensor without elements: nothing of it is missing. */
static void test_empty_behind(void)
{
    struct build b;
    struct mapped *m = NULL;
    struct store *s = NULL;
    build_init(&b, 3, false);
    build_tensor(&b, "a", I8, (uint64_t[]){3}, 1, "abc", 3);
    build_tensor(&b, "none", I8, (uint64_t[]){0}, 1, "", 0);
    b.no_tail = true;
    struct parsed p = parse_build(&b, 0);
    uint64_t size = p.g->tensor[0].off + 3;
    CU_ASSERT_TRUE(p.g->tensor[1].off > size);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, p.image, size, 0), (ssize_t)size);
    CU_ASSERT_EQUAL_FATAL(mapped_open(fd, size, &m, &(struct err){0}), 0);
    CU_ASSERT_EQUAL_FATAL(store_make(&m, (const struct gguf *const *)&p.g, 1, &s), 0);
    CU_ASSERT_PTR_EQUAL(store_data(s, 1, 0, 0), m->map.data + size);
    CU_ASSERT_PTR_NULL(store_data(s, 1, 0, 1));
    CU_ASSERT_EQUAL(store_there(s, 1, 0), 0);
    CU_ASSERT_EQUAL(store_check(s, 1, 0), 0);
    CU_ASSERT_FALSE(store_cut(s));
    store_unref(s);
    mapped_unref(m);
    parsed_free(&p);
}

/* One file of several is another one now; a later version of the other has one more, for bytes to come. */
static void test_with(void)
{
    struct two t = make_two();
    struct store *to = NULL, *both = NULL;
    struct mapped *now[2] = {made(PAGE), made(PAGE)}, *more = made(PAGE);
    struct mapped *files[3] = {now[0], now[1], more};
    const struct place_in_store places[3] = {{10, 0, 0}, {20, 2, 0}, {30, 1, 1}};
    CU_ASSERT_EQUAL_FATAL(store_of(files, 3, places, 3, &to), 0);
    CU_ASSERT_EQUAL_FATAL(store_with(t.s, to, 0, 2, &both), 0);
    CU_ASSERT_EQUAL(both->files, 3);
    CU_ASSERT_EQUAL(both->n, 3);
    CU_ASSERT_PTR_EQUAL(both->file[0], now[0]);
    CU_ASSERT_PTR_EQUAL(both->file[1], t.file[1]);
    CU_ASSERT_PTR_EQUAL(both->file[2], more);
    CU_ASSERT(both->place[0].off == 10 && both->place[0].file == 0 && both->place[0].shard == 0);
    CU_ASSERT(both->place[1].off == 20 && both->place[1].file == 2 && both->place[1].shard == 0);
    CU_ASSERT_EQUAL(memcmp(&both->place[2], &t.s->place[2], sizeof(both->place[2])), 0);
    store_unref(both);
    /* Over a store that has one more of its own: those of the other come behind it. */
    struct store *base = to;
    CU_ASSERT_EQUAL_FATAL(store_with(base, to, 0, 2, &both), 0);
    CU_ASSERT_EQUAL(both->files, 4);
    CU_ASSERT_EQUAL(both->place[0].file, 0);
    CU_ASSERT_EQUAL(both->place[1].file, 3);
    CU_ASSERT_EQUAL(both->place[2].file, 1);
    CU_ASSERT_PTR_EQUAL(both->file[3], more);
    store_unref(both);
    store_unref(to);
    CU_ASSERT_EQUAL(atomic_load(&more->refs), 1);
    mapped_unref(now[0]);
    mapped_unref(now[1]);
    mapped_unref(more);
    free_two(&t);
}

/* Pages of another file are laid over those of a mapping, as far as it goes. */
static void test_lay(void)
{
    struct mapped *m = made(2 * PAGE + 100);
    int fd = memfd_create("laid", MFD_CLOEXEC);
    fill_file(fd, 3 * PAGE, 0x55);
    CU_ASSERT_EQUAL(mapped_lay(m, 3 * PAGE, PAGE, fd, 0), 0); /* behind its end */
    CU_ASSERT_EQUAL(mapped_lay(m, 2 * PAGE + 100, PAGE, fd, 0), 0);
    CU_ASSERT_FALSE(atomic_load(&m->frozen));
    CU_ASSERT_EQUAL(mapped_lay(m, PAGE, PAGE, -1, 0), -EBADF);
    CU_ASSERT_FALSE(atomic_load(&m->frozen));
    CU_ASSERT_EQUAL(mapped_lay(m, PAGE, 10 * PAGE, fd, PAGE), 0);
    CU_ASSERT_TRUE(atomic_load(&m->frozen));
    for (size_t i = 0; i < 2 * PAGE + 100; i++)
        CU_ASSERT_EQUAL(m->map.data[i], byte_at(i) ^ (i < PAGE ? 0 : 0x55));
    mapped_unref(m);
    (void)close(fd);
}

static CU_TestInfo tests[] = {
    {"a hole is read without its pages", test_hole},
    {"what is frozen stays", test_freeze},
    {"a source of frozen pages", test_frozen_source},
    {"pages that cannot be frozen", test_freeze_fails},
    {"pages from the middle of a file", test_pages},
    {"copies of what is mapped", test_copy},
    {"pages that are laid over others", test_lay},
    {"tensors in two files", test_store},
    {"no bytes are in any file", test_empty_behind},
    {"tensors in two files, where one file is replaced", test_with},
    CU_TEST_INFO_NULL,
};

CU_MAIN("model/store", tests)
