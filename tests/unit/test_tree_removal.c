/* SPDX-License-Identifier: MIT */
/* A removal that cannot be planned along with other edits: the others are written, the key
 * reappears, and the waiting request fails. Also the removal of a file that is still open. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "build_gguf.h"
#include "model_dir.h"
#include "tree/folder.h"
#include "tree/attr.h"
#include "tree_edit.h"
#include "tree_image.h"

struct place {
    char folder[64], model[96];
    int dir;
};

static void make_place(struct place *p)
{
    struct build b;
    size_t n;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "general.name", "name");
    build_u32(&b, "my.number", 7);
    build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    uint8_t *bytes = build_finish(&b, &n);
    (void)strcpy(p->folder, "/tmp/ggufs-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(p->folder));
    (void)snprintf(p->model, sizeof(p->model), "%s/" NAME, p->folder);
    p->dir = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_file(p->dir, NAME, bytes, n);
    free(bytes);
}

static void drop_place(struct place *p)
{
    CU_ASSERT_EQUAL(unlinkat(p->dir, NAME, 0), 0);
    CU_ASSERT_EQUAL(rmdir(p->folder), 0);
    (void)close(p->dir);
}

static struct tree *start(const struct place *p)
{
    struct tree_options o = {.strategy = EDIT_COPY, .commit = LIVE_COMMIT_SYNC};
    struct tree *t = NULL;
    CU_ASSERT_EQUAL_FATAL(tree_open(p->model, &o, &t, NULL), 0);
    return t;
}

static bool file_has(const struct place *p, const char *text)
{
    size_t n;
    uint8_t *bytes = get_file(p->dir, NAME, &n);
    bool has = memmem(bytes, n, text, strlen(text)) != NULL;
    free(bytes);
    return has;
}

static bool is_shown(struct tree *t, const char *path)
{
    const struct tree_image m = {.t = t};
    return image_node(&m, path) != 0;
}

struct outcome {
    bool hit;     /* an allocation failed */
    bool partial; /* the value was written, but not the removal */
};

/* Make allocation n of a sync fail while a value and a removal are pending. */
static struct outcome fail_at(unsigned n)
{
    struct place p;
    struct outcome o;
    make_place(&p);
    struct tree *t = start(&p);
    CU_ASSERT_EQUAL(do_write(t, "general.name", "changed", 7), 0);
    CU_ASSERT_EQUAL(do_unlink(t, "my.number"), 0);
    CU_ASSERT_FALSE(is_shown(t, "metadata/my.number"));
    alloc_arm(n, false);
    int r = do_sync(t);
    o.hit = alloc_disarm();
    bool removed = !file_has(&p, "my.number");
    o.partial = file_has(&p, "changed") && !removed;
    CU_ASSERT_TRUE(r == 0 || r == -ENOMEM);
    CU_ASSERT_TRUE(removed || r == -ENOMEM);
    CU_ASSERT_TRUE(r == -ENOMEM || file_has(&p, "changed"));
    CU_ASSERT_EQUAL(is_shown(t, "metadata/my.number"), !removed);
    /* The failure was reported, and nothing is left to write. */
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
    return o;
}

static void test_told(void)
{
    struct outcome o = {.hit = true};
    unsigned partial = 0;
    for (unsigned n = 1; o.hit; n++) {
        o = fail_at(n);
        partial += o.partial;
    }
    CU_ASSERT_TRUE(partial > 0);
}

/* The kernel may forget a file before it sends the last release, because the two come from
 * different queues. AddressSanitizer catches a file that is freed too early. */
static void test_forgotten(void)
{
    struct place p;
    struct tree_entry e;
    struct tree_file *f = NULL;
    make_place(&p);
    struct tree *t = start(&p);
    CU_ASSERT_EQUAL_FATAL(tree_create(t, ino_row(0), ".helper", O_CREAT, &e, &f), 0);
    CU_ASSERT_EQUAL(tree_write(f, 0, "text", 4, NULL), 0);
    CU_ASSERT_EQUAL(do_unlink(t, ".helper"), 0);
    tree_forget(t, e.node, 1);
    CU_ASSERT_EQUAL(tree_write(f, 4, "more", 4, NULL), 0);
    (void)tree_release(f);
    CU_ASSERT_FALSE(is_shown(t, "metadata/.helper"));
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

static CU_TestInfo tests[] = {
    {"an open helper that is removed and forgotten stays until its release", test_forgotten},
    {"a request that waits for a removal fails if that cannot be planned", test_told},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tree_removal", tests)
