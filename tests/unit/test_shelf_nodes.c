/* SPDX-License-Identifier: MIT */
/* shelf: nodes are freed when the kernel has forgotten them; what is found again is the same to users. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shelf/internal.h"

#define MANY 1000

static char top[64];
static struct shelf *shelf;

static void setup(void)
{
    struct shelf_options o = {.strict = false};
    (void)strcpy(top, "/tmp/ggufs-nodes-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(top));
    CU_ASSERT_EQUAL_FATAL(shelf_open(top, &o, &shelf, NULL), 0);
}

static void teardown(void)
{
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    shelf_close(shelf);
    CU_ASSERT_EQUAL(rmdir(top), 0);
}

static const char *path_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

static void put(const char *name, const char *text)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CU_ASSERT_EQUAL_FATAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static struct tree_entry found(const char *name)
{
    struct tree_entry e = {0};
    CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, INO_ROOT, name, &e), 0);
    return e;
}

static void test_folders(void)
{
    struct shelf_dir *d;
    struct tree_entry again;
    setup();
    CU_ASSERT_EQUAL_FATAL(mkdir(path_of("sub"), 0755), 0);
    struct tree_entry e = found("sub");
    (void)found("sub");
    CU_ASSERT_EQUAL(shelf_opendir(shelf, e.node, &d), 0);
    shelf_forget(shelf, e.node, 1);
    CU_ASSERT_EQUAL(shelf->owns.by_number.n, 2);
    shelf_forget(shelf, e.node, 1); /* it is still open */
    CU_ASSERT_EQUAL(shelf->owns.by_number.n, 2);
    shelf_closedir(d);
    CU_ASSERT_EQUAL(shelf->owns.by_number.n, 1);
    CU_ASSERT_EQUAL(shelf_getattr(shelf, e.node, NULL, &again), -ESTALE);
    again = found("sub");
    CU_ASSERT_NOT_EQUAL(again.node, e.node); /* numbers are not used again */
    CU_ASSERT_EQUAL(again.attr.st_ino, e.attr.st_ino);
    shelf_forget(shelf, INO_ROOT, 100);
    CU_ASSERT_EQUAL(shelf_getattr(shelf, INO_ROOT, NULL, &again), 0);
    CU_ASSERT_EQUAL(again.attr.st_ino, INO_ROOT);
    CU_ASSERT_EQUAL(rmdir(path_of("sub")), 0);
    teardown();
}

static void test_models(void)
{
    setup();
    put("m.gguf", "first");
    struct tree_entry e = found("m.gguf");
    shelf_forget(shelf, e.node, 1);
    CU_ASSERT_EQUAL(shelf->slots.by_number.n, 0);
    struct tree_entry again = found("m.gguf");
    CU_ASSERT_EQUAL(again.node, e.node);
    CU_ASSERT_EQUAL(again.attr.st_ino, e.attr.st_ino);
    shelf_forget(shelf, e.node, 1);
    put("m.gguf", "another size");
    again = found("m.gguf");
    CU_ASSERT_NOT_EQUAL(again.node, e.node);
    CU_ASSERT_EQUAL(unlink(path_of("m.gguf")), 0);
    teardown();
}

/* Models that come, are looked at and go. */
static void test_many(void)
{
    char name[32];
    setup();
    for (unsigned i = 0; i < MANY; i++) {
        struct tree_entry source, e;
        (void)snprintf(name, sizeof(name), "m%u.gguf", i);
        put(name, "x");
        e = found(name);
        CU_ASSERT_EQUAL(shelf_lookup(shelf, e.node, "source", &source), 0);
        CU_ASSERT_EQUAL(unlink(path_of(name)), 0);
        shelf_forget(shelf, source.node, 1);
        CU_ASSERT_EQUAL(shelf->slots.by_number.n, 1);
        shelf_forget(shelf, e.node, 1);
    }
    CU_ASSERT_EQUAL(shelf->slots.by_number.n, 0);
    CU_ASSERT_EQUAL(shelf->slots.by_path.n, 0);
    teardown();
}

static void test_numbers(void)
{
    struct numbers s = {0};
    CU_ASSERT_EQUAL(numbers_take(&s, 5), 0);
    for (uint32_t i = 1; i <= 2 * NUMBERS_KEPT; i++)
        numbers_keep(&s, i * 0x9e3779b97f4a7c15U, i);
    uint32_t kept = 0;
    for (uint32_t i = 1; i <= 2 * NUMBERS_KEPT; i++) {
        uint32_t number = numbers_take(&s, i * 0x9e3779b97f4a7c15U);
        if (number != 0 && number != i)
            CU_FAIL("another number");
        kept += number == i;
        if (i + NUMBERS_KEPT > 2 * NUMBERS_KEPT && number == 0)
            CU_FAIL("one of the last is missing");
    }
    CU_ASSERT_TRUE(kept >= NUMBERS_KEPT);
    CU_ASSERT_EQUAL(numbers_take(&s, 0x9e3779b97f4a7c15U), 0);
    numbers_free(&s);
}

static CU_TestInfo tests[] = {
    {"folders", test_folders},
    {"models", test_models},
    {"models that come and go", test_many},
    {"numbers of what is gone", test_numbers},
    CU_TEST_INFO_NULL,
};

CU_MAIN("shelf nodes", tests)
