/* SPDX-License-Identifier: MIT */
/* Where model.gguf is the file on the disk itself, and where an edit may then not be in place. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build_gguf.h"
#include "changes.h"
#include "edit/commit.h"
#include "model_dir.h"
#include "place.h"
#include "tree_edit.h"
#include "tree_image.h"

#define LARGE ((uint64_t)65 << 20) /* edited in place, if nothing speaks against it */

static struct place new_place(uint64_t size)
{
    struct place p;
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "general.name", "one");
    build_tensor(&b, "t", I8, SHAPE(32), NULL, 32);
    if (size)
        build_tensor(&b, "u", I8, SHAPE(size), NULL, 0);
    c.bytes = build_finish(&b, &c.n);
    make_place(&p, &c);
    if (size) /* a hole */
        CU_ASSERT_EQUAL_FATAL(truncate(p.model, (off_t)(c.n + size)), 0);
    free(c.bytes);
    return p;
}

/* The file that a handle of model.gguf, opened now, may be read from: its inode; 0: none. */
static ino_t disk_file(struct tree *t)
{
    const struct tree_image m = {.t = t};
    struct tree_file *f = NULL;
    struct stat st = {0};
    CU_ASSERT_EQUAL_FATAL(tree_open_file(t, image_node(&m, "model.gguf"), O_RDONLY, &f), 0);
    CU_ASSERT_TRUE(tree_is_model(f));
    int fd = tree_disk_file(t, f);
    if (fd >= 0) {
        CU_ASSERT_EQUAL(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        CU_ASSERT_EQUAL(fstat(fd, &st), 0);
        (void)close(fd);
    }
    (void)tree_release(t, f);
    return st.st_ino;
}

static ino_t inode(const struct place *p)
{
    struct stat st;
    CU_ASSERT_EQUAL_FATAL(stat(p->model, &st), 0);
    return st.st_ino;
}

static void test_options(void)
{
    static const struct {
        struct tree_options o;
        bool shown;
    } cases[] = {
        {{.pass = true}, true},
        {{.pass = true, .late = true}, true},
        {{.pass = true, .read_only = true}, true},
        {{.pass = true, .strategy = EDIT_COPY}, true},
        {{.pass = true, .strategy = EDIT_REFLINK}, true},
        {{.pass = true, .strategy = EDIT_INPLACE}, false},
        {{.pass = true, .strategy = EDIT_INPLACE, .read_only = true}, true},
        {{.pass = true, .partial = true}, false},
        {{.pass = false}, false},
    };
    struct place p = new_place(0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tree *t = image_tree(p.model, &cases[i].o);
        CU_ASSERT_EQUAL(disk_file(t), cases[i].shown ? inode(&p) : 0);
        CU_ASSERT_EQUAL(disk_file(t), cases[i].shown ? inode(&p) : 0);
        tree_close(t);
    }
    drop_place(&p);
}

/* From the acceptance of an edit until it is written the new state is in no file. */
static void test_edits(void)
{
    static const struct tree_options all[] = {
        {.pass = true, .commit = LIVE_COMMIT_SYNC, .reserve = EDIT_RESERVE_AUTO},
        {.pass = true, .commit = LIVE_COMMIT_SYNC, .late = true, .reserve = EDIT_RESERVE_AUTO}};
    for (size_t i = 0; i < 2; i++) {
        struct place p = new_place(0);
        struct tree *t = image_tree(p.model, &all[i]);
        const struct tree_image m = {.t = t};
        for (int round = 0; round < 3; round++) {
            ino_t before = inode(&p);
            CU_ASSERT_EQUAL(disk_file(t), before);
            CU_ASSERT_EQUAL(do_write(t, "general.name", &"three"[round], 5 - (size_t)round), 0);
            CU_ASSERT_EQUAL(disk_file(t), 0);
            size_t n;
            char *shown = image_text(&m, "model.gguf", &n);
            CU_ASSERT_EQUAL(do_sync(t), 0);
            CU_ASSERT_NOT_EQUAL(inode(&p), before);
            CU_ASSERT_EQUAL(disk_file(t), inode(&p));
            const struct content want = {(uint8_t *)shown, n};
            CU_ASSERT_TRUE(file_is(&p, &want));
            free(shown);
        }
        CU_ASSERT_EQUAL(tree_finish(t), 0);
        tree_close(t);
        drop_place(&p);
    }
}

static void test_behind(void)
{
    const struct tree_options o = {.pass = true};
    struct place p = new_place(0), other = new_place(0);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    struct tree *t = image_tree(p.model, &o);
    ino_t was = inode(&p);
    CU_ASSERT_EQUAL(rename(other.model, p.model), 0);
    CU_ASSERT_EQUAL(disk_file(t), was);
    tree_close(t);
    t = image_tree(p.model, &o);
    CU_ASSERT_EQUAL(utimensat(AT_FDCWD, p.model, times, 0), 0);
    CU_ASSERT_EQUAL(disk_file(t), 0);
    tree_close(t);
    t = image_tree(p.model, &o);
    struct tree *second = image_tree(p.model, &o); /* the first may edit it in place */
    CU_ASSERT_FALSE(tree_writable(second));
    CU_ASSERT_EQUAL(disk_file(second), 0);
    tree_close(second);
    CU_ASSERT_EQUAL(truncate(p.model, 100), 0);
    CU_ASSERT_EQUAL(disk_file(t), 0);
    tree_close(t);
    drop_place(&p);
    drop_place(&other);
}

/* By the program's own choice a large file is read so, or edited in place, and never both. */
static void test_large(void)
{
    struct tree_options o = {.commit = LIVE_COMMIT_CLOSE, .reserve = EDIT_RESERVE_AUTO};
    for (int late = 0; late < 2; late++) {
        struct place p = new_place(LARGE);
        o.late = late;
        o.pass = true;
        struct tree *t = image_tree(p.model, &o);
        CU_ASSERT_EQUAL(do_write(t, "general.name", "makes the reserve", 17), 0);
        ino_t before = inode(&p), shown = disk_file(t);
        CU_ASSERT_TRUE(shown == 0 || shown == before);
        CU_ASSERT_EQUAL(do_write(t, "general.name", "uses it", 7), 0);
        CU_ASSERT_NOT_EQUAL(shown == before, inode(&p) == before);
        CU_ASSERT_EQUAL(tree_finish(t), 0);
        tree_close(t);
        CU_ASSERT_EQUAL(files_in(&p), 1);
        drop_place(&p);
    }
}

/* How EDIT_AUTO would write an edit of a large file with a reserve. */
static enum edit_strategy strategy(const struct place *p, bool keep_bytes)
{
    CLEANUP(edit_change_free) struct edit_change c;
    CLEANUP(edit_plan_free) struct edit_plan plan = EDIT_PLAN_INIT;
    struct edit_options o = {.reserve = EDIT_RESERVE_AUTO, .keep_bytes = keep_bytes};
    static const uint8_t text[] = {3, 0, 0, 0, 0, 0, 0, 0, 't', 'w', 'o'};
    enum edit_strategy s = EDIT_AUTO;
    struct edit_file f;
    struct source src;
    struct gguf *g = NULL;
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, &sys_libc, p->dir, NAME, true, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(source_fd(f.fd, &src, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, 0, &g, NULL), 0);
    edit_change_init(&c, g, NULL);
    CU_ASSERT_EQUAL_FATAL(
        set_bytes(&c, "general.name", 12, GGUF_STRING, text, sizeof(text), EDIT_LAST, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(edit_plan_make(&c, &o, &plan, NULL), 0);
    f.clone = EDIT_CLONE_NO;
    CU_ASSERT_EQUAL(edit_prepare(&f, &plan, &o, &s, NULL), 0);
    gguf_free(g);
    edit_file_close(&f);
    return s;
}

static void test_keep_bytes(void)
{
    const struct tree_options o = {.strategy = EDIT_COPY, .reserve = EDIT_RESERVE_AUTO};
    struct place p = new_place(LARGE);
    struct tree *t = image_tree(p.model, &o);
    CU_ASSERT_EQUAL(do_write(t, "general.name", "makes the reserve", 17), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    CU_ASSERT_EQUAL(strategy(&p, false), EDIT_INPLACE);
    CU_ASSERT_EQUAL(strategy(&p, true), EDIT_COPY);
    drop_place(&p);
}

static CU_TestInfo tests[] = {
    {"where edits cannot be in place", test_options},
    {"once an edit is written, not before", test_edits},
    {"not a file that was changed behind the tree", test_behind},
    {"a large file is read so or edited in place", test_large},
    {"a file whose bytes are to be kept is not edited in place", test_keep_bytes},
    CU_TEST_INFO_NULL,
};

CU_MAIN("disk_file", tests)
