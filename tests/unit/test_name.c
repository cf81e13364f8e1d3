/* SPDX-License-Identifier: MIT */
/* text/name: conversion between names and file names. */
#include "cu_test.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "text/name.h"

static void encodes(const void *name, size_t n, const char *file)
{
    char got[TREE_NAME_MAX + 1], back[TREE_NAME_MAX + 1];
    size_t len = 12345;
    CU_ASSERT_EQUAL(name_encode(name, n, got), strlen(file));
    CU_ASSERT_STRING_EQUAL(got, file);
    CU_ASSERT_EQUAL_FATAL(name_decode(file, back, &len), 0);
    CU_ASSERT_EQUAL(len, n);
    CU_ASSERT_EQUAL(memcmp(back, name, n), 0);
}

TEST("examples are encoded and decoded")
{
    encodes("general.architecture", 20, "general.architecture");
    encodes("blk.0.attn_q.weight", 19, "blk.0.attn_q.weight");
    encodes("a%b", 3, "a%25b");
    encodes("a/b", 3, "a%2Fb");
    encodes("\0", 1, "%00");
    encodes("a\0", 2, "a%00");
    encodes("\x01\x1f \x7f\x80\xff", 6, "%01%1F %7F\x80\xff");
    encodes("\n", 1, "%0A");
    encodes(".", 1, "%2E");
    encodes("..", 2, "%2E%2E");
    encodes("...", 3, "...");
    encodes(".a", 2, ".a");
    encodes("a.", 2, "a.");
    encodes("", 0, "%");
    encodes("%", 1, "%25");
    encodes("%~", 2, "%25~");
    encodes("%41", 3, "%2541");
    encodes("h\xc3\xa9llo \xe4\xb8\xad", 10, "h\xc3\xa9llo \xe4\xb8\xad");
    encodes("\xff\xfe", 2, "\xff\xfe");
    encodes("\\ ~'\"$*?:;|<>", 13, "\\ ~'\"$*?:;|<>");
}

/* Set a name to n bytes: c at `at`, 'a' elsewhere. */
static void fill(char *name, size_t n, size_t at, char c)
{
    memset(name, 'a', n);
    if (at < n)
        name[at] = c;
}

static bool is_cut(const char *file, size_t keep)
{
    char back[TREE_NAME_MAX + 1];
    size_t n = strlen(file), len = 12345;
    bool cut = n == keep + 18 && memcmp(file + keep, "%~", 2) == 0 &&
               strspn(file + keep + 2, "0123456789abcdef") == 16;
    return cut && name_decode(file, back, &len) == -ENAMETOOLONG && len == 12345;
}

TEST("a name over 255 bytes is truncated and hashed")
{
    char name[400], file[TREE_NAME_MAX + 1];
    fill(name, 255, SIZE_MAX, 0);
    CU_ASSERT_EQUAL(name_encode(name, 255, file), 255);
    CU_ASSERT_EQUAL(memcmp(file, name, 255), 0);
    fill(name, 256, SIZE_MAX, 0);
    CU_ASSERT_EQUAL(name_encode(name, 256, file), 255);
    CU_ASSERT_TRUE(is_cut(file, 237));
    CU_ASSERT_EQUAL(memcmp(file, name, 237), 0);
    /* 253 bytes, one of them escaped, make 255; 254 would be too many. */
    fill(name, 254, 100, '/');
    CU_ASSERT_EQUAL(name_encode(name, 253, file), 255);
    CU_ASSERT_FALSE(is_cut(file, 237));
    CU_ASSERT_EQUAL(name_encode(name, 254, file), 255);
    CU_ASSERT_TRUE(is_cut(file, 237));
    CU_ASSERT_EQUAL(memcmp(file + 100, "%2Faa", 5), 0);
}

/* An escape that does not fit before the mark is omitted entirely. */
TEST("an escape is never split")
{
    char name[400], file[TREE_NAME_MAX + 1];
    for (size_t at = 230; at < 240; at++) {
        fill(name, 300, at, '%');
        size_t keep = at <= 234 ? 237 : at < 237 ? at : 237;
        CU_ASSERT_EQUAL(name_encode(name, 300, file), keep + 18);
        CU_ASSERT_TRUE(is_cut(file, keep));
        CU_ASSERT_EQUAL(memchr(file, '%', keep) != NULL, at <= 234);
    }
    memset(name, 1, sizeof(name)); /* every byte is escaped: 79 escapes take 237 bytes */
    CU_ASSERT_EQUAL(name_encode(name, 85, file), 255);
    CU_ASSERT_FALSE(is_cut(file, 237));
    CU_ASSERT_EQUAL(name_encode(name, 86, file), 255);
    CU_ASSERT_TRUE(is_cut(file, 237));
}

TEST("the hash covers the whole name and is fixed")
{
    char name[400], a[TREE_NAME_MAX + 1], b[TREE_NAME_MAX + 1];
    fill(name, 300, SIZE_MAX, 0);
    (void)name_encode(name, 300, a);
    CU_ASSERT_STRING_EQUAL(a + 237, "%~96f84d96b9cfcfc7");
    name[299] = 'b';
    (void)name_encode(name, 300, b);
    CU_ASSERT_STRING_NOT_EQUAL(a, b);
    name[299] = 'a';
    (void)name_encode(name, 301, b);
    CU_ASSERT_STRING_NOT_EQUAL(a, b);
    CU_ASSERT_EQUAL(memcmp(a, b, 237), 0);
}

/* An xorshift generator, which returns the same bytes in every run. */
static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

TEST("all bytes survive a round trip")
{
    /* bytes drawn often */
    static const char special[] = {'%', '/', '.', '\0', '~', '2', 'E', 0x7f, 0x1f, (char)0xff};
    uint64_t state = 88172645463325252;
    char name[64], file[TREE_NAME_MAX + 1], back[TREE_NAME_MAX + 1];
    for (int i = 0; i < 50000; i++) {
        size_t n = next(&state) % 20, len = 12345;
        for (size_t k = 0; k < n; k++)
            name[k] =
                next(&state) & 1 ? special[next(&state) % sizeof(special)] : (char)next(&state);
        size_t made = name_encode(name, n, file);
        bool ok = made == strlen(file) && made > 0 && !strchr(file, '/') &&
                  strcmp(file, ".") != 0 && strcmp(file, "..") != 0 &&
                  name_decode(file, back, &len) == 0 && len == n && memcmp(back, name, n) == 0;
        CU_ASSERT_TRUE_FATAL(ok);
    }
}

/* A file name with a needless escape, or that cannot be a file's, is not the name of anything. */
TEST("a name with a needless escape is not found")
{
    static const char *const files[] = {"%41", "%2e", "%2Ea", ".%2E", "..",  "a/b", "\x7f",
                                        "%FF", "",    "%%",   "a%",   "%G0", "%~"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char back[TREE_NAME_MAX + 1];
        size_t len = 12345;
        CU_ASSERT_EQUAL(name_decode(files[i], back, &len), -ENOENT);
        CU_ASSERT_EQUAL(len, 12345);
    }
}
