/* SPDX-License-Identifier: MIT */
/* shelf: what other programs do to a directory of models while it is looked at. */
#include "cu_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build_gguf.h"
#include "shelf/shelf.h"

static char top[] = "/tmp/ggufs-shelf-XXXXXX";
static int dir;
static struct shelf *shelf;
static struct tree_entry second;

static void put(const char *name)
{
    size_t n;
    struct build b = build_of(3, false);
    build_str(&b, "general.architecture", "llama");
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CU_ASSERT_EQUAL_FATAL(write(fd, image, n), (ssize_t)n);
    (void)close(fd);
}

/* Called once, when the rights of a file are looked at. */
static void (*while_looked_at)(void);

ssize_t __real_getxattr(const char *path, const char *name, void *value, size_t n);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t n);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t n)
{
    void (*const call)(void) = while_looked_at;
    while_looked_at = NULL;
    if (call)
        call();
    return __real_getxattr(path, name, value, n);
}

static void replace_and_look(void)
{
    put("new");
    CU_ASSERT_EQUAL(renameat(dir, "new", dir, "m.gguf"), 0);
    CU_ASSERT_EQUAL(shelf_lookup(shelf, INO_ROOT, "m.gguf", &second), 0);
}

/* A model is replaced and looked up between the moments when another look-up sees the old file and when
 * it ends: both find the new file. */
TEST("a model is replaced while it is looked up")
{
    const struct shelf_options o = {0};
    struct tree_entry first, info;
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(top));
    dir = open(top, O_RDONLY | O_DIRECTORY);
    put("m.gguf");
    CU_ASSERT_EQUAL_FATAL(shelf_open(top, &o, &shelf, NULL), 0);
    while_looked_at = replace_and_look;
    CU_ASSERT_EQUAL(shelf_lookup(shelf, INO_ROOT, "m.gguf", &first), 0);
    CU_ASSERT_EQUAL(first.node, second.node);
    CU_ASSERT_EQUAL(shelf_lookup(shelf, second.node, "info", &info), 0);
    shelf_close(shelf);
    CU_ASSERT_EQUAL(unlinkat(dir, "m.gguf", 0), 0);
    (void)close(dir);
    CU_ASSERT_EQUAL(rmdir(top), 0);
}
