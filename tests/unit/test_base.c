/* SPDX-License-Identifier: MIT */
/* base: bytes, buf, err, far, hash, map. */
#include "cu_test.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/map.h"

TEST("unaligned bytes are read and written in both orders")
{
    const uint8_t b[9] = {0xff, 1, 2, 3, 4, 5, 6, 7, 8};
    CU_ASSERT_EQUAL(get_u16(b + 1, false), 0x0201);
    CU_ASSERT_EQUAL(get_u16(b + 1, true), 0x0102);
    CU_ASSERT_EQUAL(get_u32(b + 1, false), 0x04030201);
    CU_ASSERT_EQUAL(get_u64(b + 1, false), 0x0807060504030201);
    CU_ASSERT_EQUAL(get_uint(b + 1, 8, true), 0x0102030405060708);
    uint8_t out[8];
    for (size_t w = 1; w <= 8; w *= 2)
        for (int big = 0; big < 2; big++) {
            put_uint(out, 0x1122334455667788, w, big);
            uint64_t want =
                w == 8 ? 0x1122334455667788 : 0x1122334455667788 & ((1ull << 8 * w) - 1);
            CU_ASSERT_EQUAL(get_uint(out, w, big), want);
        }
}

TEST("arithmetic that overflows is refused")
{
    uint64_t r = 7;
    CU_ASSERT_FALSE(add_u64(UINT64_MAX, 1, &r));
    CU_ASSERT_FALSE(mul_u64(1ull << 32, 1ull << 32, &r));
    CU_ASSERT_TRUE(mul_u64(1ull << 32, 1ull << 31, &r));
    CU_ASSERT_EQUAL(r, 1ull << 63);
    CU_ASSERT_FALSE(align_u64(UINT64_MAX - 3, 8, &r));
    CU_ASSERT_TRUE(align_u64(33, 32, &r) && r == 64);
    CU_ASSERT_TRUE(align_u64(64, 32, &r) && r == 64);
    CU_ASSERT_TRUE(is_pow2(1) && is_pow2(1ull << 63) && !is_pow2(0) && !is_pow2(24));
}

TEST("names are printed without control bytes")
{
    char dst[SHOW_MAX];
    CU_ASSERT_STRING_EQUAL(show(dst, "a.b", 3), "a.b");
    CU_ASSERT_STRING_EQUAL(show(dst, "\x1b[31m\n", 6), "\\x1b[31m\\x0a");
    CU_ASSERT_STRING_EQUAL(show(dst, "\xc3\xbc\xc2\x9b\xff", 5), "\xc3\xbc\\xc2\\x9b\\xff");
    CU_ASSERT_STRING_EQUAL(show(dst, "\xe2\x80\xae!\xe2\x81\xa6\x7f\xe2\x80\x8d", 11),
                           "\\xe2\\x80\\xae!\\xe2\\x81\\xa6\\x7f\xe2\x80\x8d");
    char longname[1000];
    memset(longname, 1, sizeof(longname));
    CU_ASSERT_TRUE(strlen(show(dst, longname, sizeof(longname))) < SHOW_MAX);
    CU_ASSERT_PTR_NOT_NULL(strstr(dst, "..."));
}

/* Values from the reference implementation, one for each length of the tail. */
TEST("xxh64 equals its reference")
{
    static const char text[] =
        "Keys of a model, kept as they were before they were changed by anyone.";
    CU_ASSERT_EQUAL(xxh64(0, text, 0), 0xef46db3751d8e999);
    CU_ASSERT_EQUAL(xxh64(23, text, 23), 0xee08e43b2457af8d);
    CU_ASSERT_EQUAL(xxh64(46, text, 46), 0xce94781c617fb0ab);
    CU_ASSERT_EQUAL(xxh64(69, text, 69), 0xf44a71009b5dc029);
}

static int touch(void *arg)
{
    const volatile uint8_t *p = arg;
    return p[0];
}

TEST("a page that is gone gives EIO every time")
{
    int fd = memfd_create("map", 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 3 * 4096), 0);
    struct map m;
    CU_ASSERT_EQUAL_FATAL(map_open(&m, fd, 3 * 4096), 0);
    CU_ASSERT_EQUAL_FATAL(map_guard_init(), 0);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)(m.data + 8192)), 0);
    CU_ASSERT_EQUAL(map_check(&m, 3 * 4096), 0);
    CU_ASSERT_EQUAL(ftruncate(fd, 4096), 0);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)(m.data + 8192)), -EIO);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)(m.data + 8192)), -EIO);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)m.data), 0);
    sigset_t mask;
    CU_ASSERT_EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    CU_ASSERT_EQUAL(sigismember(&mask, SIGBUS), 0);
    CU_ASSERT_EQUAL(map_check(&m, 4097), -EIO);
    map_close(&m);
    (void)close(fd);
}

TEST("lines with tabs become aligned columns")
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT, out = BUF_INIT;
    buf_str(&lines, "a\tbcd\t1\n\xc3\xa9\xc3\xa9\t\t22\nlonger than most\tx\t3\nend\n");
    buf_table(&lines, "lrr", 5, &out);
    buf_char(&out, '\0');
    CU_ASSERT_STRING_EQUAL(buf_text(&out), "a   bcd   1\n\xc3\xa9\xc3\xa9       22\n"
                                           "longer than most    x   3\nend\n");
    /* If memory ran out while a line was being written, the incomplete line is not read. */
    lines.len -= 3;
    lines.err = -ENOMEM;
    out.len = 0;
    buf_table(&lines, "lrr", 5, &out);
    CU_ASSERT_EQUAL(buf_error(&out), -ENOMEM);
    CU_ASSERT_EQUAL(out.len, 0);
}

static const char *const words[] = {"ro",      "rw",    "commit", "relayout",
                                    "reserve", "views", "uid",    "gid"};

static const char *meant(const char *word)
{
    struct nearest n = nearest_to(word, strlen(word));
    for (size_t i = 0; i < COUNT(words); i++)
        nearest_offer(&n, words[i], strlen(words[i]), i);
    return n.found ? words[n.which] : "";
}

TEST("the intended word is suggested")
{
    static const struct {
        const char *word, *meant;
    } rows[] = {
        {"comit", "commit"},
        {"commmit", "commit"},
        {"cmomit", "commit"},
        {"Commit", "commit"},
        {"kommit", "commit"},
        {"relayuot", "relayout"},
        {"resreve", "reserve"},
        {"view", "views"},
        {"rx", "ro"},
        {"uid", "uid"},
        {"guid", "uid"},
        {"nonsense", ""},
        {"", ""},
        {"x", ""},
        {"commitcommit", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        CU_ASSERT_STRING_EQUAL(meant(rows[i].word), rows[i].meant);
}
