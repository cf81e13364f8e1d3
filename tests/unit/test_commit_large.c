/* SPDX-License-Identifier: MIT */
/* edit/commit: a large model that is mostly a hole. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build_gguf.h"
#include "changes.h"
#include "edit/change.h"
#include "faultsys.h"
#include "model_dir.h"

#define LARGE ((uint64_t)66 << 20)
#define LARGE_DATA 100000
#define ISLAND ((uint64_t)32 << 20) /* offset of more data, after a hole */

static void setup_large(struct fixture *x)
{
    struct build b;
    setup(x);
    free(x->old);
    gguf_free(x->g);
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "text", "0123456789");
    build_tensor(&b, "large", I8, SHAPE(LARGE), NULL, LARGE_DATA);
    b.no_tail = true;
    x->old = build_finish(&b, &x->old_n);
    put_file(x->dir, NAME, x->old, x->old_n);
    uint64_t data_off = x->old_n - LARGE_DATA;
    int fd = openat(x->dir, NAME, O_RDWR | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, (off_t)(data_off + LARGE)), 0);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, "island", 6, (off_t)(data_off + ISLAND)), 6);
    struct source s;
    CU_ASSERT_EQUAL_FATAL(source_fd(fd, &s, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &x->g, NULL), 0);
    (void)close(fd);
}

struct watch {
    uint64_t last, total;
    bool monotonic;
};

static void watch_progress(uint64_t done, uint64_t total, void *arg)
{
    struct watch *w = arg;
    w->monotonic &= done >= w->last;
    w->last = done;
    w->total = total;
}

static int commit_large(const struct fixture *x, struct edit_file *f, size_t text,
                        enum edit_strategy s, const struct edit_hooks *h, struct edit_result *res)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    CLEANUP(buf_free) struct buf v = BUF_INIT;
    struct edit_options o = {.strategy = s, .reserve = EDIT_RESERVE_AUTO};
    buf_uint(&v, text, 8, false);
    buf_zero(&v, text);
    edit_change_init(&c, &(struct edit_base){.g = x->g});
    CU_ASSERT_EQUAL_FATAL(set_bytes(&c, "text", 4, GGUF_STRING, v.data, v.len, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
    int r = edit_commit(f, &p, &o, h, res, NULL);
    if (res->old_fd >= 0)
        (void)close(res->old_fd);
    return r;
}

static void test_holes(void)
{
    struct fixture x;
    struct edit_result res;
    struct stat st;
    struct watch w = {.monotonic = true};
    struct edit_hooks h = {.progress = watch_progress, .arg = &w};
    setup_large(&x);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(commit_large(&x, &f, 5000, EDIT_COPY, &h, &res), 0);
    CU_ASSERT_TRUE(w.monotonic);
    CU_ASSERT_EQUAL(w.last, LARGE);
    CU_ASSERT_EQUAL(w.total, LARGE);
    CU_ASSERT_EQUAL(fstat(f.fd, &st), 0);
    CU_ASSERT_TRUE((uint64_t)st.st_size > LARGE);
    CU_ASSERT_TRUE((uint64_t)st.st_blocks * 512 < LARGE / 8);
    uint8_t data[LARGE_DATA];
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, f.fd, data, LARGE_DATA, (uint64_t)st.st_size - LARGE),
                    0);
    CU_ASSERT_EQUAL(memcmp(data, x.old + x.old_n - LARGE_DATA, LARGE_DATA), 0);
    CU_ASSERT_EQUAL(pread(f.fd, data, 8, st.st_size - (off_t)(LARGE - ISLAND) - 1), 8);
    CU_ASSERT_EQUAL(memcmp(data, "\0island", 8), 0);
    edit_file_close(&f);
    teardown(&x);
}

/* A tensor that ends in a hole is followed by one that is removed and one that stays. */
static void test_hole_at_end(void)
{
    enum { BLOCK = 4096 };
    static uint8_t data[3 * BLOCK];
    struct fixture x;
    struct build b;
    struct source s;
    struct stat st;
    struct edit_result res;
    const struct edit_options o = {.strategy = EDIT_COPY};
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    setup(&x);
    gguf_free(x.g);
    build_init(&b, 3, false);
    b.alignment = BLOCK;
    build_u32(&b, "general.alignment", BLOCK);
    memset(data, 'd', sizeof(data));
    memset(data + BLOCK, 0, BLOCK);
    build_tensor(&b, "a", I8, SHAPE(2 * BLOCK), data, 2 * BLOCK);
    build_tensor(&b, "b", I8, SHAPE(BLOCK), data, BLOCK);
    build_tensor(&b, "c", I8, SHAPE(BLOCK), data, BLOCK);
    free(x.old);
    x.old = build_finish(&b, &x.old_n);
    put_file(x.dir, NAME, x.old, x.old_n);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL_FATAL(source_fd(f.fd, &s, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &x.g, NULL), 0);
    CU_ASSERT_EQUAL(fallocate(f.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              (off_t)x.g->data_off + BLOCK, BLOCK),
                    0);
    CU_ASSERT_EQUAL(edit_file_note(&f, NULL), 0);
    edit_change_init(&c, &(struct edit_base){.g = x.g});
    CU_ASSERT_EQUAL(edit_tensor_remove(&c, "b", 1, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &p, NULL), 0);
    CU_ASSERT_EQUAL(edit_commit(&f, &p, &o, NULL, &res, NULL), 0);
    (void)close(res.old_fd);
    uint8_t got[sizeof(data)];
    CU_ASSERT_EQUAL(fstat(f.fd, &st), 0);
    CU_ASSERT_EQUAL((uint64_t)st.st_size, p.next->data_off + sizeof(data));
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, f.fd, got, sizeof(got), p.next->data_off), 0);
    CU_ASSERT_EQUAL(memcmp(got, data, sizeof(got)), 0);
    CU_ASSERT_TRUE((uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size);
    edit_file_close(&f);
    teardown(&x);
}

/* Error returned by the first search for data in the file; later searches succeed. */
static int data_error;

static int no_data(const struct sys *s, int fd, uint64_t off, int from, uint64_t *ret)
{
    (void)s;
    int r = data_error;
    data_error = from == SEEK_DATA ? 0 : r;
    return r ? r : sys_libc.seek(&sys_libc, fd, off, from, ret);
}

/* EIO makes the copy fail. If searching for data is not supported (EINVAL, EOPNOTSUPP), all bytes
 * count as data. */
static void test_no_data(void)
{
    static const int errors[] = {-EIO, -EINVAL, -EOPNOTSUPP};
    for (size_t i = 0; i < 3; i++) {
        struct fixture x;
        struct edit d;
        struct edit_result res;
        setup(&x);
        struct faultsys fs;
        faultsys_init(&fs, FAULT_NONE, 0, 0);
        fs.sys.seek = no_data;
        struct edit_file f = open_model(&x, &fs.sys);
        make_edit(&d, x.g, x.old, x.old_n, EDIT_COPY, 'n', 10);
        data_error = errors[i];
        CU_ASSERT_EQUAL(commit(&f, &d, &res, NULL), i ? 0 : -EIO);
        CU_ASSERT_TRUE(i ? is_new(&x, &d) : is_old(&x));
        CU_ASSERT_EQUAL(files(&x), 1);
        edit_file_close(&f);
        edit_done(&d);
        teardown(&x);
    }
}

/* Number of bytes to write, starting at byte 5 of the tensor; all processors write in parallel. */
#define WRITTEN ((uint64_t)9 << 20)

static uint8_t written_at(uint64_t i)
{
    return (uint8_t)(i * 7 + i / 256 + 1);
}

static void plan_write(const struct fixture *x, const struct edit_options *o, struct edit_plan *p)
{
    CLEANUP(edit_change_free) struct edit_change c;
    uint8_t *bytes = malloc(WRITTEN);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (uint64_t i = 0; i < WRITTEN; i++)
        bytes[i] = written_at(i);
    struct log *d = memory_draft(bytes, WRITTEN);
    free(bytes);
    const struct tensor_piece piece = {5, WRITTEN, 0, d};
    edit_change_init(&c, &(struct edit_base){.g = x->g});
    CU_ASSERT_EQUAL(edit_tensor_set(&c, "large", 5, NULL, &piece, 1, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, o, p, NULL), 0);
    log_unref(d);
}

/* Check the tensor's first bytes and the disk space it takes. */
static void check_written(const struct fixture *x, const struct edit_file *f)
{
    struct stat st;
    size_t n = (size_t)WRITTEN + 10, data_off = x->old_n - LARGE_DATA;
    uint8_t *got = malloc(n);
    CU_ASSERT_EQUAL(sys_read_all(&sys_libc, f->fd, got, n, data_off), 0);
    bool same = memcmp(got, x->old + data_off, 5) == 0;
    for (uint64_t i = 0; i < WRITTEN + 5 && same; i++) {
        uint8_t old = 5 + i < LARGE_DATA ? x->old[data_off + 5 + i] : 0;
        same = got[5 + i] == (i < WRITTEN ? written_at(i) : old);
    }
    CU_ASSERT_TRUE(same);
    free(got);
    CU_ASSERT_EQUAL(fstat(f->fd, &st), 0);
    CU_ASSERT_EQUAL((uint64_t)st.st_size, data_off + LARGE);
    CU_ASSERT_TRUE((uint64_t)st.st_blocks * 512 < WRITTEN + ((uint64_t)2 << 20));
    CU_ASSERT_EQUAL(files(x), 1);
}

/* A long edit in place reports its progress and succeeds. */
static void test_much_in_place(void)
{
    struct fixture x;
    struct edit_result res;
    struct watch w = {.monotonic = true};
    struct edit_hooks h = {.progress = watch_progress, .arg = &w};
    CLEANUP(edit_plan_free) struct edit_plan p = EDIT_PLAN_INIT;
    const struct edit_options o = {.strategy = EDIT_INPLACE, .reserve = EDIT_RESERVE_AUTO};
    setup_large(&x);
    plan_write(&x, &o, &p);
    struct edit_file f = open_model(&x, calm());
    CU_ASSERT_EQUAL(edit_commit(&f, &p, &o, &h, &res, NULL), 0);
    CU_ASSERT_TRUE(res.strategy == EDIT_INPLACE && res.old_fd == -1);
    CU_ASSERT_TRUE(w.monotonic && w.last == w.total && w.total >= WRITTEN);
    check_written(&x, &f);
    h = (struct edit_hooks){0}; /* write the same bytes again, without hooks */
    CU_ASSERT_EQUAL(edit_commit(&f, &p, &o, &h, &res, NULL), 0);
    CU_ASSERT_EQUAL(edit_commit(&f, &p, &o, NULL, &res, NULL), 0);
    check_written(&x, &f);
    edit_file_close(&f);
    teardown(&x);
}

static CU_TestInfo tests[] = {
    {"holes are kept, and a copy reports its progress", test_holes},
    {"a hole at the end of a tensor is kept", test_hole_at_end},
    {"a file system that cannot search for data is copied whole", test_no_data},
    {"many bytes of a tensor are replaced in place", test_much_in_place},
    CU_TEST_INFO_NULL,
};

CU_MAIN("commit large", tests)
