/* SPDX-License-Identifier: MIT */
/* gguf/source: headers read from files, failing media, limits, and error messages. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"

/* A file of 2^40 bytes, all zero after the beginning of its header. Reads beyond `fails_at`
 * fail. */
struct medium {
    struct source s;
    const uint8_t *head;
    size_t n;
    uint64_t fails_at;
};

static int read_medium(const struct source *s, uint64_t off, void *dst, size_t n)
{
    const struct medium *m = s->mem;
    if (off + n > m->fails_at)
        return -EIO;
    memset(dst, 0, n);
    if (off < m->n)
        memcpy(dst, m->head + off, min_u64(n, m->n - off));
    return 0;
}

static int parse_medium(struct build *b, uint64_t fails_at, struct err *e)
{
    struct medium m = {.fails_at = fails_at};
    struct gguf *g = NULL;
    uint8_t *image = build_finish(b, &m.n);
    m.head = image;
    m.s = (struct source){.size = 1ull << 40, .read = read_medium, .mem = &m};
    int r = gguf_parse(&m.s, 0, &g, e);
    CU_ASSERT_PTR_NULL(g);
    free(image);
    return r;
}

/* Headers are checked against the limit before memory is allocated for them. */
TEST("a header over the limit is refused without being read")
{
    struct err e = {0};
    struct build b = build_of(3, false);
    build_array(&b, "k", GGUF_U64, 1 << 30);
    CU_ASSERT_EQUAL(parse_medium(&b, UINT64_MAX, &e), -EFBIG);
    CU_ASSERT_STRING_EQUAL(e.msg, "key 0 'k': array elements at byte 49: the header is over "
                                  "4294967296 bytes");
}

TEST("a medium that fails gives EIO")
{
    struct err e = {0};
    struct build b = build_of(3, false);
    build_u32(&b, "k", 1);
    CU_ASSERT_EQUAL(parse_medium(&b, 0, &e), -EIO);
    CU_ASSERT_STRING_EQUAL(e.msg, "magic at byte 0: Input/output error");
    b = build_of(3, false);
    build_array(&b, "k", GGUF_U8, 1 << 20);
    CU_ASSERT_EQUAL(parse_medium(&b, 1 << 20, &e), -EIO);
    CU_ASSERT_STRING_EQUAL(e.msg, "key 0 'k': array elements at byte 49: Input/output error");
}

/* A message is one line without control bytes, whatever names it contains. */
TEST("names in messages are escaped and shortened")
{
    char name[2000];
    struct err e;
    struct gguf *g = NULL;
    size_t n;
    memset(name, '\n', sizeof(name));
    struct build b = build_of(3, false);
    build_raw(&b, name, sizeof(name), 99, NULL, 0);
    build_u32(&b, "room", 0);
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
    CU_ASSERT_PTR_NULL(strchr(e.msg, '\n'));
    CU_ASSERT_EQUAL(strncmp(e.msg, "key 0 '\\x0a\\x0a", 15), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "...': value type at byte 2032: 99 is not a value type"));
}

/* A model whose header is read from a file in several steps equals the same model in memory. */
TEST("a file is read, even if it is truncated meanwhile")
{
    struct gguf *g = NULL;
    struct source s;
    struct build b = build_of(3, false);
    build_array(&b, "k", GGUF_U8, 1 << 20);
    buf_zero(&b.keys, 1 << 20);
    build_str(&b, "last", "one");
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    int fd = memfd_create("model", 0);
    CU_ASSERT_EQUAL_FATAL(write(fd, p.image, p.size), (ssize_t)p.size);
    CU_ASSERT_EQUAL(source_fd(fd, &s, NULL), 0);
    CU_ASSERT_EQUAL(s.size, p.size);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    CU_ASSERT_EQUAL(g->head_len, p.g->head_len);
    CU_ASSERT_EQUAL(memcmp(g->head, p.g->head, (size_t)g->head_len), 0);
    CU_ASSERT_EQUAL(gguf_find_key(g, "last", 4), 1);
    gguf_free(g);
    /* The file was truncated after it was examined. */
    g = NULL;
    CU_ASSERT_EQUAL(ftruncate(fd, 100000), 0);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, NULL), -EIO);
    CU_ASSERT_PTR_NULL(g);
    (void)close(fd);
}

TEST("only regular files can be sources")
{
    struct source s = {.size = 777};
    struct err e = {0};
    int fd = open("/", O_RDONLY | O_DIRECTORY), pipes[2];
    CU_ASSERT_EQUAL(source_fd(fd, &s, &e), -EISDIR);
    (void)close(fd);
    CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
    CU_ASSERT_EQUAL(source_fd(pipes[0], &s, &e), -EINVAL);
    CU_ASSERT_STRING_EQUAL(e.msg, "is not a regular file");
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    CU_ASSERT_EQUAL(source_fd(-1, &s, &e), -EBADF);
    CU_ASSERT_EQUAL(s.size, 777);
}

TEST("200,000 keys are found, and duplicate names are refused")
{
    enum { N = 200000 };
    struct gguf *g;
    size_t n;
    char key[16];
    struct build b = build_of(3, false);
    for (uint32_t i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "key.%u", i);
        build_u32(&b, key, i);
    }
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    g = gguf_in(image, n);
    CU_ASSERT_EQUAL(g->n_kv, N);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < N; i++) {
        (void)snprintf(key, sizeof(key), "key.%u", i);
        wrong += gguf_find_key(g, key, strlen(key)) != i;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    gguf_free(g);
    /* If the first and the last key have the same name, the message names both. */
    uint8_t *last = image + n - 4 - 4 - strlen("key.199999");
    memcpy(last, "key.199998", 10);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, NULL), -EBADMSG);
}

/* Blanks alone are not JSON. */
TEST("a file of blanks is not taken for JSON")
{
    const struct source s = source_mem("    ", 4);
    struct gguf *g = NULL;
    struct err e = {0};
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
    CU_ASSERT_PTR_NULL(strstr(e.msg, "JSON"));
}

TEST("more keys or tensors than the limit are refused")
{
    for (size_t at = 8; at <= 16; at += 8) {
        uint8_t head[24] = "GGUF\3";
        const struct medium m = {.head = head, .n = sizeof(head), .fails_at = UINT64_MAX};
        struct source s = {.size = (uint64_t)1 << 40, .read = read_medium, .mem = &m, .fd = -1};
        struct gguf *g = NULL;
        struct err e = {0};
        put_u64(head + at, GGUF_MAX_ITEMS + 1, false);
        CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EFBIG);
        CU_ASSERT_STRING_EQUAL(e.msg, at == 8 ? "number of tensors at byte 8: 16777217 is over the "
                                                "limit of 16777216"
                                              : "number of keys at byte 16: 16777217 is over the "
                                                "limit of 16777216");
        /* The limit itself is accepted; parsing then fails at the second entry. */
        put_u64(head + at, GGUF_MAX_ITEMS, false);
        CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, at == 8 ? "tensor 1" : "key 0"));
        CU_ASSERT_PTR_NULL(g);
    }
}
