/* SPDX-License-Identifier: MIT */
/* shelf: nodes are freed once the kernel has forgotten them, and look the same to users when found
 * again. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shelf/slots.h"
#include "shelf_top.h"

#define MANY 1000
#define A40 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LAYER(word, digest) \
    "{\"mediaType\":\"application/vnd.ollama.image." word "\",\"digest\":\"sha256:" digest "\"}"

static const char manifest[] =
    "{\"schemaVersion\":2,\"layers\":[" LAYER("model", A64) "," LAYER("system", B64) "]}";

static struct shelf *shelf;

static void setup(void)
{
    struct shelf_options o = {.strict = false};
    shelf_top_make();
    CU_ASSERT_EQUAL_FATAL(shelf_open(shelf_top, &o, &shelf, NULL), 0);
}

static void teardown(void)
{
    CU_ASSERT_EQUAL(shelf_finish(shelf), 0);
    shelf_close(shelf);
    shelf_top_remove();
}

static const char *path_of(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", shelf_top, name);
    return path;
}

static void put(const char *name, const char *text)
{
    shelf_top_add("file", name, text);
}

/* Look up each name of a path in turn, so that the kernel knows each node. */
static struct tree_entry found(const char *path)
{
    struct tree_entry e = {.node = INO_ROOT};
    char name[TREE_NAME_MAX + 1];
    for (const char *p = path, *end; *p; p = *end ? end + 1 : end) {
        end = strchrnul(p, '/');
        (void)snprintf(name, sizeof(name), "%.*s", (int)(end - p), p);
        CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, e.node, name, &e), 0);
    }
    return e;
}

/* Return the permissions for others as the kernel would see them now. */
static mode_t of_others(const struct tree_entry *e)
{
    struct tree_entry now = {0};
    CU_ASSERT_EQUAL(shelf_getattr(shelf, e->node, NULL, &now), 0);
    return now.attr.st_mode & 07;
}

/* Let the cached rights of a model or directory expire. */
static void a_second_later(const struct tree_entry *e)
{
    lock_take(&mount_lock);
    struct slot *slot = slots_at(&shelf->slots, e->node);
    if (slot)
        slot->looked = (struct timespec){0};
    lock_drop(&mount_lock);
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
    CU_ASSERT_EQUAL(shelf->slots.by_node.n, 2);
    shelf_forget(shelf, e.node, 1); /* the directory is still open */
    CU_ASSERT_EQUAL(shelf->slots.by_node.n, 2);
    shelf_closedir(d);
    CU_ASSERT_EQUAL(shelf->slots.by_node.n, 1);
    CU_ASSERT_EQUAL(shelf_getattr(shelf, e.node, NULL, &again), -ESTALE);
    again = found("sub");
    CU_ASSERT_NOT_EQUAL(again.node, e.node); /* numbers are not reused */
    CU_ASSERT_EQUAL(again.attr.st_ino, e.attr.st_ino);
    shelf_forget(shelf, INO_ROOT, 100);
    CU_ASSERT_EQUAL(shelf_getattr(shelf, INO_ROOT, NULL, &again), 0);
    CU_ASSERT_EQUAL(again.attr.st_ino, INO_ROOT);
    teardown();
}

static void test_models(void)
{
    setup();
    put("m.gguf", "first");
    struct tree_entry e = found("m.gguf");
    shelf_forget(shelf, e.node, 1);
    CU_ASSERT_EQUAL(shelf->slots.by_node.n, 1); /* the root */
    struct tree_entry again = found("m.gguf");
    CU_ASSERT_NOT_EQUAL(again.node, e.node); /* numbers are not reused soon */
    CU_ASSERT_EQUAL(again.attr.st_ino, e.attr.st_ino);
    put("m.gguf", "another size");
    struct tree_entry other = found("m.gguf");
    CU_ASSERT_NOT_EQUAL(other.node, again.node);
    CU_ASSERT_NOT_EQUAL(other.attr.st_ino, e.attr.st_ino);
    shelf_forget(shelf, other.node, 1);
    shelf->slots.last = INO_MAX_SLOTS - 2;
    CU_ASSERT_EQUAL(ino_slot(found("m.gguf").node), INO_MAX_SLOTS - 1);
    put("n.gguf", "first");
    CU_ASSERT_EQUAL(ino_slot(found("n.gguf").node), 1);
    teardown();
}

/* Files of a split model whose names are too long are found in `source` under the names shown. */
static void test_cut_shards(void)
{
    enum { ESCAPED = 70, PLAIN = 160, SHARDS = 3 };
    CLEANUP(buf_free) struct buf target = BUF_INIT;
    char file[256], shown[TREE_NAME_MAX + 1];
    struct tree_entry e, source;
    setup();
    memset(file, '%', ESCAPED);
    memset(file + ESCAPED, 'x', PLAIN);
    char *const end = file + ESCAPED + PLAIN;
    for (unsigned i = 1; i <= SHARDS; i++) {
        (void)snprintf(end, sizeof(file) - ESCAPED - PLAIN, "-%05u-of-%05u.gguf", i, SHARDS);
        put(file, "GGUF");
    }
    (void)strcpy(end, ".gguf");
    (void)name_encode(file, strlen(file), shown);
    e = found(shown);
    CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, e.node, "source", &source), 0);
    for (unsigned i = 1; i <= SHARDS; i++) {
        (void)snprintf(end, sizeof(file) - ESCAPED - PLAIN, "-%05u-of-%05u.gguf", i, SHARDS);
        (void)name_encode(file, strlen(file), shown);
        CU_ASSERT_PTR_NOT_NULL(strstr(shown, "%~"));
        CU_ASSERT_EQUAL_FATAL(shelf_lookup(shelf, source.node, shown, &e), 0);
        target.len = 0;
        CU_ASSERT_EQUAL_FATAL(shelf_readlink(shelf, e.node, &target), 0);
        buf_char(&target, '\0');
        CU_ASSERT_STRING_EQUAL((const char *)target.data, path_of(file));
    }
    shown[strlen(shown) - 1] ^= 1;
    CU_ASSERT_EQUAL(shelf_lookup(shelf, source.node, shown, &e), -ENOENT);
    teardown();
}

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
        CU_ASSERT_EQUAL(shelf->slots.by_node.n, 2);
        shelf_forget(shelf, e.node, 1);
    }
    CU_ASSERT_EQUAL(shelf->slots.by_node.n, 1);
    CU_ASSERT_EQUAL(shelf->slots.by_key.n, 1);
    teardown();
}

/* ---- places with several names ---- */

/* A directory reached through a link keeps the restrictions of the directories that contain it,
 * whichever of its paths is looked up first. It has the same entries under both names. */
static void check_linked_folder(bool linked_first)
{
    static const char *const names[] = {"secret/sub", "open/l"};
    struct tree_entry e[2], model[2];
    setup();
    put("secret/sub/m.gguf", "x");
    shelf_top_add("link", "open/l", "../secret/sub");
    CU_ASSERT_EQUAL_FATAL(chmod(path_of("secret"), 0700), 0);
    for (int i = 0; i < 2; i++)
        e[linked_first ^ i] = found(names[linked_first ^ i]);
    CU_ASSERT_NOT_EQUAL(e[0].node, e[1].node);
    CU_ASSERT_EQUAL(e[0].attr.st_ino, e[1].attr.st_ino);
    CU_ASSERT_EQUAL(of_others(&e[0]), 5);
    CU_ASSERT_EQUAL(of_others(&e[1]), 0);
    model[0] = found("secret/sub/m.gguf");
    model[1] = found("open/l/m.gguf");
    CU_ASSERT_EQUAL(model[0].node, model[1].node);
    CU_ASSERT_EQUAL(of_others(&model[0]), 5);
    teardown();
}

static void test_linked_folder(void)
{
    check_linked_folder(false);
    check_linked_folder(true);
}

/* Blobs are reached through a link to their directory and through their own store. Each has two
 * nodes, whether it is a model or a text file. */
static void test_linked_blobs(void)
{
    static const char *const words[] = {"model", "system"};
    char path[64];
    setup();
    put("a/in/manifests/registry.ollama.ai/library/m/1", manifest);
    put("b/manifests/registry.ollama.ai/library/m/1", manifest);
    put("a/in/blobs/sha256-" A64, "GGUF");
    put("a/in/blobs/sha256-" B64, "text");
    shelf_top_add("link", "b/blobs", "../a/in/blobs");
    CU_ASSERT_EQUAL_FATAL(chmod(path_of("a"), 0700), 0);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "b/m:1/%s", words[i]);
        struct tree_entry linked = found(path);
        (void)snprintf(path, sizeof(path), "a/in/m:1/%s", words[i]);
        struct tree_entry own = found(path);
        CU_ASSERT_NOT_EQUAL(linked.node, own.node);
        CU_ASSERT_EQUAL(of_others(&linked), 0);
        CU_ASSERT_EQUAL(of_others(&own), i ? 4 : 5);
    }
    teardown();
}

/* Directories that a store does not show still restrict access. */
static void test_not_shown_folders(void)
{
    static const char *const rows[][2] = {
        /* the directory, and a name found through it */
        {"o/manifests/registry.ollama.ai", "o/m:1"},
        {"o/manifests/registry.ollama.ai/library", "o/m:1"},
        {"o/manifests/registry.ollama.ai/library/m", "o/m:1"},
        {"o/blobs", "o/m:1/model"},
        {"o/blobs", "o/m:1/system"},
        {"h/models--org--name", "h/org/name"},
        {"h/models--org--name/snapshots", "h/org/name"},
    };
    setup();
    put("o/manifests/registry.ollama.ai/library/m/1", manifest);
    put("o/blobs/sha256-" A64, "GGUF");
    put("o/blobs/sha256-" B64, "text");
    put("h/models--org--name/snapshots/" A40 "/m.gguf", "GGUF");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tree_entry e = found(rows[i][1]);
        CU_ASSERT_TRUE(of_others(&e) >= 4);
        CU_ASSERT_EQUAL_FATAL(chmod(path_of(rows[i][0]), 0700), 0);
        a_second_later(&e);
        e = found(rows[i][1]);
        CU_ASSERT_EQUAL(of_others(&e), 0);
        CU_ASSERT_EQUAL_FATAL(chmod(path_of(rows[i][0]), 0755), 0);
    }
    teardown();
}

/* Two directories link to each other. Whichever comes first, a link is followed unless it leads
 * back to a directory on the path. */
static void test_links_in_turn(void)
{
    setup();
    put("b/m.gguf", "x");
    shelf_top_add("link", "a/to", "../b");
    shelf_top_add("link", "b/to", "../a");
    struct tree_entry e = {0}, last = found("a/to");
    CU_ASSERT_EQUAL(shelf_lookup(shelf, last.node, "to", &e), -ENOENT);
    (void)found("b/to");
    (void)found("a/to/m.gguf");
    CU_ASSERT_EQUAL(shelf_lookup(shelf, last.node, "to", &e), -ENOENT);
    CU_ASSERT_EQUAL(shelf_lookup(shelf, found("b/to").node, "to", &e), -ENOENT);
    teardown();
}

/* A file is moved, and the link to it is updated. */
static void test_turned(void)
{
    CLEANUP(buf_free) struct buf source = BUF_INIT;
    char x[128];
    setup();
    put("x/f.gguf", "x");
    shelf_top_add("link", "m.gguf", "x/f.gguf");
    struct tree_entry before = found("m.gguf");
    (void)strcpy(x, path_of("x"));
    CU_ASSERT_EQUAL(rename(x, path_of("y")), 0);
    CU_ASSERT_EQUAL(unlink(path_of("m.gguf")), 0);
    shelf_top_add("link", "m.gguf", "y/f.gguf");
    struct tree_entry after = found("m.gguf"), e = found("m.gguf/source");
    CU_ASSERT_NOT_EQUAL(after.node, before.node);
    CU_ASSERT_EQUAL(shelf_readlink(shelf, e.node, &source), 0);
    buf_char(&source, '\0');
    CU_ASSERT_STRING_EQUAL((const char *)source.data, path_of("y/f.gguf"));
    teardown();
}

/* For a second, the kernel may cache attributes and the names of directories, but not the names of
 * models. */
static void test_kept_by_kernel(void)
{
    setup();
    put("sub/m.gguf", "GGUF");
    struct tree_entry folder = found("sub"), model = found("sub/m.gguf");
    CU_ASSERT_TRUE(folder.slow && folder.steady && !folder.fixed && !folder.lasting);
    CU_ASSERT_TRUE(!model.slow && model.steady && !model.fixed && !model.lasting);
    teardown();
}

/* The rights of a directory follow changes to the directories on its path even if it is not looked
 * up again because a process is working in it. */
static void test_folders_that_change(void)
{
    static const char *const rows[][2] = {
        {"sub", "sub"}, {"a", "l"}, {"a/b", "l"}, {"h/models--o--n", "h/o/n"}};
    setup();
    put("sub/m.gguf", "GGUF");
    put("a/b/m.gguf", "GGUF");
    shelf_top_add("link", "l", "a/b");
    put("h/models--o--n/snapshots/" A40 "/m.gguf", "GGUF");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tree_entry e = found(rows[i][1]);
        CU_ASSERT_EQUAL(of_others(&e), 5);
        for (unsigned bits = 0700; bits <= 0755; bits += 0055) {
            CU_ASSERT_EQUAL_FATAL(chmod(path_of(rows[i][0]), bits), 0);
            a_second_later(&e);
            CU_ASSERT_EQUAL(of_others(&e), bits & 05);
        }
    }
    teardown();
}

static CU_TestInfo tests[] = {
    {"changed directories are noticed", test_folders_that_change},
    {"the kernel caches a directory's name but not a model's", test_kept_by_kernel},
    {"directories get nodes, and lose them when forgotten", test_folders},
    {"models get nodes, which are not soon used again", test_models},
    {"models appear and disappear", test_many},
    {"shards with names that are too long are found", test_cut_shards},
    {"a directory is reached through a link", test_linked_folder},
    {"a blob reached by two paths has two nodes", test_linked_blobs},
    {"directories that are not shown still restrict access", test_not_shown_folders},
    {"links are followed unless they lead back", test_links_in_turn},
    {"a link changes its target", test_turned},
    CU_TEST_INFO_NULL,
};

CU_MAIN("shelf nodes", tests)
