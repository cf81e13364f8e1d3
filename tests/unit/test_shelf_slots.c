/* SPDX-License-Identifier: MIT */
/* shelf/slots: models that are opened, kept open and closed. */
#include "cu_main.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build_gguf.h"
#include "shelf/slots.h"
#include "shelf/shelf.h"
#include "tree_edit.h"

/* Exceeds the number of unused models that are kept open. */
#define MANY (SLOTS_IDLE_MAX + 6)
/* Milliseconds or seconds; longer than any test takes. */
#define NEVER 1000000
#define KEY "metadata/general.name"

static char top[64];
static struct shelf *shelf;

static const char *path_of(unsigned model)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/m%u.gguf", top, model);
    return path;
}

/* Make a model that contains this name. The caller frees it. */
static uint8_t *image(const char *name, size_t *n)
{
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "llama");
    build_str(&b, "general.name", name);
    build_tensor(&b, "t", 0, (uint64_t[]){8}, 1, NULL, 32);
    build_tensor(&b, "u", 0, (uint64_t[]){8}, 1, NULL, 32);
    return build_finish(&b, n);
}

static void setup_with(const struct tree_options *tree)
{
    struct shelf_options o = {.tree = *tree};
    size_t n;
    uint8_t *bytes = image("Old name", &n);
    (void)strcpy(top, "/tmp/ggufs-slots-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(top));
    for (unsigned i = 0; i < MANY; i++) {
        int fd = open(path_of(i), O_WRONLY | O_CREAT | O_EXCL, 0600);
        CU_ASSERT_EQUAL_FATAL(write(fd, bytes, n), (ssize_t)n);
        (void)close(fd);
    }
    free(bytes);
    CU_ASSERT_EQUAL_FATAL(shelf_open(top, &o, &shelf, NULL), 0);
}

static void setup(void)
{
    setup_with(&(struct tree_options){.commit = LIVE_COMMIT_SYNC});
}

static void teardown(void)
{
    shelf_close(shelf);
    for (unsigned i = 0; i < MANY; i++)
        CU_ASSERT_EQUAL(unlink(path_of(i)), 0);
    CU_ASSERT_EQUAL(rmdir(top), 0);
}

/* Open a model, and return the node at a path in it. From then on, the kernel knows the node. */
static uint64_t node_of(unsigned model, const char *path)
{
    char name[128];
    struct tree_entry e = {0};
    (void)snprintf(name, sizeof(name), "m%u.gguf", model);
    CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, INO_ROOT, name, &e), 0);
    for (const char *p = path, *end; *p; p = *end ? end + 1 : end) {
        end = strchrnul(p, '/');
        (void)snprintf(name, sizeof(name), "%.*s", (int)(end - p), p);
        CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, e.node, name, &e), 0);
    }
    return e.node;
}

static void look_at(unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        (void)node_of(i, "info");
}

static const struct slot *slot_of_node(uint64_t node)
{
    return slots_at(&shelf->slots, ino_in_slot(ino_slot(node), INO_ROOT));
}

/* A truncation by path keeps the model open until the attributes have been read. */
static void test_unopened_file(void)
{
    struct tree_wait w;
    struct tree_entry e;
    struct tree_file *f;
    setup();
    uint64_t node = node_of(0, KEY);
    const struct slot *slot = slot_of_node(node);
    CU_ASSERT_EQUAL_FATAL(shelf_unopened_file(shelf, node, &f), 0);
    CU_ASSERT_EQUAL(tree_waited(&w, tree_truncate(f, 3, tree_wait(&w))), 0);
    const struct tree *t = slot->tree;
    look_at(1, MANY);
    CU_ASSERT_PTR_EQUAL(slot->tree, t);
    CU_ASSERT_EQUAL(shelf_getattr(shelf, node, f, &e), 0);
    CU_ASSERT_EQUAL(e.node, node);
    CU_ASSERT_EQUAL(e.attr.st_size, 4); /* with the newline */
    CU_ASSERT_EQUAL(slot->uses, 1);
    CU_ASSERT_EQUAL(shelf_release(f), 0);
    CU_ASSERT_EQUAL(slot->uses, 0);
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    teardown();
}

/* ---- closed after edits ---- */

static void wait_until_closed(void)
{
    struct slots *s = &shelf->slots;
    lock_take(&mount_lock);
    while (slots_opened(s).closing)
        (void)lock_wait(&mount_lock, &s->done, NULL);
    lock_drop(&mount_lock);
}

/* Pretend that a minute has passed, so that opening another model closes all unused ones. */
static void grow_old(uint64_t node)
{
    lock_take(&mount_lock);
    const struct slot *slot = slot_of_node(node);
    for (struct slot *each = shelf->slots.first; each; each = each->next)
        each->used -= 2 * SLOT_IDLE;
    lock_drop(&mount_lock);
    (void)node_of(MANY - 1, "info");
    wait_until_closed();
    CU_ASSERT_PTR_NULL(slot->tree);
    lock_take(&mount_lock);
    slots_opened(&shelf->slots).oldest->used -= 2 * SLOT_IDLE;
    lock_drop(&mount_lock);
    /* Close model MANY - 1, so that the next call opens it again. */
    (void)node_of(MANY - 2, "info");
    wait_until_closed();
}

static int write_text(uint64_t node, const char *text)
{
    struct tree_wait w;
    struct tree_file *f;
    int r = shelf_open_file(shelf, node, O_WRONLY | O_TRUNC, &f);
    if (r < 0)
        return r;
    r = tree_write(f, 0, text, strlen(text), NULL);
    int closed = tree_waited(&w, tree_flush(f, tree_wait(&w)));
    (void)shelf_release(f);
    return r < 0 ? r : closed;
}

static int sync_folder(uint64_t node)
{
    struct tree_wait w;
    CLEANUP(shelf_leave) struct at at;
    int r = shelf_enter(shelf, node, -EPERM, &at);
    return r < 0 ? r : tree_waited(&w, tree_fsyncdir(at.use.tree, tree_wait(&w)));
}

static int remove_folder(uint64_t node, const char *name)
{
    CLEANUP(shelf_leave) struct at at;
    int r = shelf_enter(shelf, node, -EPERM, &at);
    return r < 0 ? r : tree_rmdir(at.use.tree, at.local, name);
}

static int forget_error(uint64_t node)
{
    CLEANUP(shelf_leave) struct at at;
    int r = shelf_enter(shelf, node, -EPERM, &at);
    return r < 0 ? r : tree_removexattr(at.use.tree, at.local, "user.gguf.error");
}

static int make_folder(uint64_t node, const char *name, struct tree_entry *ret)
{
    CLEANUP(shelf_leave) struct at at;
    int r = shelf_enter(shelf, node, -EPERM, &at);
    return r < 0 ? r : shelf_given(&at.use, tree_mkdir(at.use.tree, at.local, name, ret), ret);
}

static uint64_t child(uint64_t dir, const char *name)
{
    struct tree_entry e = {0};
    CU_ASSERT_EQUAL(shelf_lookup(shelf, dir, name, &e), 0);
    return e.node;
}

/* The kernel keeps nodes of directories, because a process may be working in one. A number is never
 * reused for another node. */
static void test_numbers_stay(void)
{
    struct tree_entry e;
    setup_with(&(struct tree_options){.commit = LIVE_COMMIT_SYNC, .tensors = true});
    uint64_t model = node_of(0, ""), keys = node_of(0, "metadata"), tensors = node_of(0, "tensors"),
             t = node_of(0, "tensors/t"), u = node_of(0, "tensors/u"),
             raw = node_of(0, "tensors/u/raw");
    for (unsigned round = 0; round < 3; round++) {
        uint64_t name = child(keys, "general.name"), info = child(model, "info");
        CU_ASSERT_EQUAL(write_text(name, round % 2 ? "1\n" : "2\n"), 0);
        if (round < 2)
            CU_ASSERT_EQUAL(remove_folder(tensors, round ? "new" : "t"), 0);
        if (round == 0)
            CU_ASSERT_EQUAL(shelf_rename(shelf, tensors, "u", tensors, "v", 0, NULL), 0);
        CU_ASSERT_EQUAL(sync_folder(keys), 0);
        grow_old(model);
        CU_ASSERT_EQUAL(shelf_getattr(shelf, keys, NULL, &e), 0);
        CU_ASSERT_EQUAL(child(tensors, "v"), u);
        CU_ASSERT_EQUAL(child(u, "raw"), raw);
        CU_ASSERT_EQUAL(shelf_getattr(shelf, t, NULL, &e), -ESTALE);
        CU_ASSERT_EQUAL(shelf_getattr(shelf, name, NULL, &e), -ESTALE);
        CU_ASSERT_NOT_EQUAL(child(keys, "general.name"), name);
        CU_ASSERT_NOT_EQUAL(child(model, "info"), info);
        CU_ASSERT_EQUAL(node_of(0, ""), model); /* the path gives the same node */
        if (round == 0) {
            CU_ASSERT_EQUAL(make_folder(tensors, "new", &e), 0);
            CU_ASSERT_NOT_EQUAL(e.node, t);
        }
    }
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    teardown();
}

static bool error_is(uint64_t node, const char *words)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    int r = shelf_getxattr(shelf, node, "user.gguf.error", &out);
    buf_char(&out, '\0');
    return words ? r == 0 && strstr((char *)out.data, words) : r == -ENODATA;
}

static bool is_unsaved(const char *words)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    shelf_unsaved(shelf, &out);
    buf_char(&out, '\0');
    return words ? strstr((char *)out.data, words) != NULL : out.len == 1;
}

/* A refused write does not keep its model open, and is listed until it is corrected. */
static void test_refused(void)
{
    setup();
    for (unsigned i = 0; i < 3; i++) {
        uint64_t keys = node_of(i, "metadata");
        CU_ASSERT_EQUAL(write_text(child(keys, "general.name"), "\xff\n"), -EILSEQ);
        grow_old(keys);
        CU_ASSERT_TRUE(error_is(child(keys, "general.name"), "UTF-8"));
        CU_ASSERT_TRUE(error_is(child(keys, "general.architecture"), NULL));
        grow_old(keys); /* opened but not edited */
    }
    CU_ASSERT_EQUAL(write_text(node_of(0, KEY), "Good\n"), 0);
    CU_ASSERT_TRUE(error_is(node_of(0, KEY), NULL));
    CU_ASSERT_EQUAL(forget_error(node_of(1, KEY)), 0);
    CU_ASSERT_EQUAL(write_text(node_of(2, "metadata/general.architecture"), "x\n"), 0);
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    CU_ASSERT_FALSE(is_unsaved("m0.gguf"));
    CU_ASSERT_FALSE(is_unsaved("m1.gguf"));
    CU_ASSERT_TRUE(is_unsaved("m2.gguf: general.name: "));
    teardown();
}

/* A helper keeps its model open for a minute. */
static void test_helper(void)
{
    struct tree_entry e;
    struct tree_file *f;
    setup();
    uint64_t keys = node_of(0, "metadata");
    CU_ASSERT_EQUAL(shelf_create(shelf, keys, "4913", O_WRONLY, &e, &f), 0);
    CU_ASSERT_EQUAL(shelf_release(f), 0);
    look_at(1, MANY - 2);
    wait_until_closed();
    CU_ASSERT_EQUAL(child(keys, "4913"), e.node);
    grow_old(keys);
    CU_ASSERT_EQUAL(shelf_lookup(shelf, keys, "4913", &e), -ENOENT);
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    teardown();
}

/* No replaced file stays open, and the last refusal for each path is listed. */
static void test_replaced(void)
{
    char new[128];
    size_t n;
    setup();
    (void)snprintf(new, sizeof(new), "%s/new", top);
    for (unsigned i = 0; i < 5; i++) {
        CU_ASSERT_EQUAL(write_text(node_of(0, KEY), "\xff\n"), -EILSEQ);
        uint8_t *bytes = image("Their name", &n);
        int fd = open(new, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CU_ASSERT_EQUAL_FATAL(write(fd, bytes, n), (ssize_t)n);
        (void)close(fd);
        free(bytes);
        CU_ASSERT_EQUAL(rename(new, path_of(0)), 0);
        (void)node_of(0, KEY);
        lock_take(&mount_lock);
        while (slots_opened(&shelf->slots).n > 1)
            (void)lock_wait(&mount_lock, &shelf->slots.done, NULL);
        lock_drop(&mount_lock);
    }
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    CU_ASSERT_TRUE(is_unsaved("m0.gguf: general.name: "));
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    shelf_unsaved(shelf, &out);
    CU_ASSERT_PTR_EQUAL(memchr(out.data, '\n', out.len), out.data + out.len - 1);
    teardown();
}

/* When other files use up the descriptors, unused models are closed to make room. */
static void test_few_descriptors(void)
{
    struct rlimit files, few;
    struct tree_entry e;
    enum { FEW = 64 };
    int taken[FEW], n = 0;
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &files), 0);
    few = files;
    few.rlim_cur = FEW;
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    setup();
    look_at(0, MANY - 1);
    wait_until_closed();
    CU_ASSERT_TRUE(slots_opened(&shelf->slots).rest > 1);
    uint64_t last = node_of(MANY - 1, "");
    while (n < FEW && (taken[n] = dup(0)) >= 0)
        n++;
    CU_ASSERT_EQUAL(shelf_lookup(shelf, last, "info", &e), 0);
    while (n > 0)
        (void)close(taken[--n]);
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    (void)setrlimit(RLIMIT_NOFILE, &files);
    teardown();
}

static CU_TestInfo tests[] = {
    {"unused models are closed when descriptors run out", test_few_descriptors},
    {"node numbers stay when a model is closed", test_numbers_stay},
    {"a refused write does not keep its model open", test_refused},
    {"a helper keeps its model open for a while", test_helper},
    {"replaced files do not stay open", test_replaced},
    {"truncating a file by path keeps its model open for its attributes", test_unopened_file},
    CU_TEST_INFO_NULL,
};

CU_MAIN("shelf slots", tests)
