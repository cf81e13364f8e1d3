/* SPDX-License-Identifier: MIT */
/* Tensors that were removed, added, renamed, moved or changed, so that their numbers no longer
 * give their positions. They are looked up, listed, opened and read in a tree whose state is
 * replaced. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tree/nodes.h"
#include "tree_image.h"

enum { F32 = 0, Q8_0 = 8 };

static const struct tree_options read_only = {.read_only = true};

/* Add a tensor that consists of one repeated letter. */
static void put(struct build *b, const char *name, uint32_t type, uint64_t n, size_t bytes, char c)
{
    char data[256];
    memset(data, c, sizeof(data));
    build_tensor(b, name, type, &n, 1, data, bytes);
}

static void put_first(struct build *b)
{
    build_init(b, 3, false);
    build_str(b, "general.name", "first");
    put(b, "kept", F32, 4, 16, 'k');
    put(b, "gone", F32, 8, 32, 'g');
    put(b, "changed", F32, 12, 48, 'o');
    put(b, "name", F32, 2, 8, 'm');
}

/* "gone" is removed, "changed" gets a different type, "name" is renamed and moved, "added" is
 * new. */
static void put_second(struct build *b)
{
    build_init(b, 3, false);
    build_str(b, "general.name", "second");
    put(b, "renamed", F32, 2, 8, 'm');
    put(b, "kept", F32, 4, 16, 'k');
    put(b, "changed", Q8_0, 32, 34, 'n');
    put(b, "added", F32, 3, 12, 'a');
}

/* Where a tensor of a new state comes from. */
struct tensor_from {
    uint32_t old; /* position in the old list; IDS_NONE: a new tensor */
    bool changed; /* its bytes, type or shape changed */
};

static const struct tensor_from second_from[] = {
    {3, false}, {0, false}, {2, true}, {IDS_NONE, false}};

/* Make a model the newest state of a tree, as an edit of tensors does. */
static void set_state(struct tree_image *m, struct build *b, const struct tensor_from *from)
{
    struct tree *t = m->t;
    struct err e = {0};
    struct source src;
    struct gguf *g = NULL;
    struct snapshot *snap = NULL;
    struct tree_image other = image_open(b, &read_only);
    const struct snapshot *now = t->newest.view.snap;
    uint32_t given = atomic_load(&t->newest.numbers);
    CU_ASSERT_EQUAL_FATAL(source_fd(other.fd, &src, &e), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, 0, &g, &e), 0);
    uint32_t n = g->n_tensors;
    CU_ASSERT_EQUAL_FATAL(newest_make(&t->newest, g, NULL, now->number + 1, &now->mtime, &snap, &e),
                          0);
    ids_unref(snap->ids);
    struct tensor_id of[4];
    CU_ASSERT_TRUE_FATAL(n <= 4);
    for (uint32_t i = 0; i < n; i++) {
        bool new = from[i].old == IDS_NONE;
        of[i] = new ? (struct tensor_id){given, given} : ids_of(now->ids, from[i].old);
        if (new || from[i].changed)
            of[i].version = given++;
    }
    CU_ASSERT_EQUAL_FATAL(ids_make(of, n, &snap->ids), 0);
    atomic_store(&t->newest.numbers, given);
    struct view old = newest_put_view(&t->newest, snap, store_ref(other.t->newest.view.store));
    view_free(&old);
    image_close(&other);
}

static struct tree_image first(void)
{
    struct build b;
    put_first(&b);
    return image_open(&b, &read_only);
}

static void to_second(struct tree_image *m)
{
    struct build b;
    put_second(&b);
    set_state(m, &b, second_from);
}

static struct tree_file *open_node(const struct tree_image *m, uint64_t node)
{
    struct tree_file *f = NULL;
    CU_ASSERT_EQUAL_FATAL(tree_open_file(m->t, node, O_RDONLY, &f), 0);
    return f;
}

/* Check that a file has `size` bytes, all of them c. */
static void reads(struct tree_file *f, size_t size, char c)
{
    uint8_t scratch[4096], want[4096];
    struct reply r = {.scratch = scratch};
    CU_ASSERT_EQUAL(tree_read(f, 0, sizeof(scratch), &r), 0);
    CU_ASSERT_EQUAL(r.len, size);
    memset(want, c, size);
    CU_ASSERT_TRUE(r.len == size && memcmp(r.bytes, want, size) == 0);
    tree_reply_done(&r);
}

static void path_reads(const struct tree_image *m, const char *path, size_t size, char c)
{
    struct tree_file *f = open_node(m, image_node(m, path));
    reads(f, size, c);
    (void)tree_release(f);
}

static ino_t inode(const struct tree_image *m, const char *path)
{
    return image_stat(m, path).st_ino;
}

/* Get the current attributes of an earlier node. */
static int getattr(const struct tree_image *m, uint64_t node)
{
    struct tree_entry e;
    return tree_getattr(m->t, node, NULL, &e);
}

static void test_names_and_nodes(void)
{
    struct tree_image m = first();
    uint64_t kept = image_node(&m, "tensors/kept"), gone = image_node(&m, "tensors/gone"),
             changed = image_node(&m, "tensors/changed"), name = image_node(&m, "tensors/name"),
             kept_raw = image_node(&m, "tensors/kept/raw"),
             changed_raw = image_node(&m, "tensors/changed/raw"),
             gone_raw = image_node(&m, "tensors/gone/raw");
    ino_t changed_ino = inode(&m, "tensors/changed/raw");
    CU_ASSERT_EQUAL(getattr(&m, ino_tensor(5)), -ENOENT);
    to_second(&m);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/kept"), kept);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/kept/raw"), kept_raw);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/renamed"), name);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/name"), 0);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/gone"), 0);
    /* A changed tensor keeps its directory. Its files are new to the kernel, but users see the same
     * files. */
    CU_ASSERT_EQUAL(image_node(&m, "tensors/changed"), changed);
    CU_ASSERT_NOT_EQUAL(image_node(&m, "tensors/changed/raw"), changed_raw);
    CU_ASSERT_EQUAL(inode(&m, "tensors/changed/raw"), changed_ino);
    CU_ASSERT_EQUAL(inode(&m, "tensors/kept/raw"), kept_raw);
    CU_ASSERT_EQUAL(getattr(&m, changed_raw), -ESTALE);
    CU_ASSERT_EQUAL(getattr(&m, gone), -ESTALE);
    CU_ASSERT_EQUAL(getattr(&m, gone_raw), -ESTALE);
    CU_ASSERT_EQUAL(getattr(&m, ino_tensor(6)), -ENOENT);
    /* The new version of a changed tensor has no directory of its own. */
    CU_ASSERT_EQUAL(getattr(&m, ino_tensor(4)), -ESTALE);
    struct tree_file *f = NULL;
    struct tree_entry e;
    CU_ASSERT_EQUAL(tree_open_file(m.t, changed_raw, O_RDONLY, &f), -ESTALE);
    CU_ASSERT_EQUAL(tree_lookup(m.t, gone, "raw", &e), -ESTALE);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/changed/raw").st_size, 34);
    path_reads(&m, "tensors/renamed/raw", 8, 'm');
    path_reads(&m, "tensors/kept/raw", 16, 'k');
    path_reads(&m, "tensors/changed/raw", 34, 'n');
    path_reads(&m, "tensors/added/raw", 12, 'a');
    image_close(&m);
}

/* Open files keep the bytes that they had when they were opened, and nothing else keeps the model's
 * old file open. */
static void test_open_files(void)
{
    struct tree_image m = first();
    uint64_t old_node = image_node(&m, "tensors/changed/raw");
    struct tree_file *kept = open_node(&m, image_node(&m, "tensors/kept/raw")),
                     *gone = open_node(&m, image_node(&m, "tensors/gone/raw")),
                     *old = open_node(&m, old_node);
    struct mapped *file = mapped_ref(m.t->newest.view.store->file[0]);
    struct tree_entry e;
    to_second(&m);
    CU_ASSERT_TRUE(atomic_load(&file->refs) > 1);
    reads(kept, 16, 'k');
    reads(gone, 32, 'g');
    reads(old, 48, 'o');
    /* The kernel turns fstat(2) on an open file into a request about its node. */
    CU_ASSERT_EQUAL(tree_getattr(m.t, old_node, NULL, &e), 0);
    CU_ASSERT_EQUAL(e.attr.st_size, 48);
    CU_ASSERT_EQUAL(e.attr.st_ino, inode(&m, "tensors/changed/raw"));
    struct tree_file *new = open_node(&m, image_node(&m, "tensors/changed/raw")),
                     *again = open_node(&m, old_node); /* /proc/self/fd opens the node itself */
    reads(new, 34, 'n');
    reads(again, 48, 'o');
    (void)tree_release(gone);
    (void)tree_release(old);
    reads(again, 48, 'o');
    (void)tree_release(again);
    CU_ASSERT_EQUAL(getattr(&m, old_node), -ESTALE);
    reads(kept, 16, 'k');
    /* Replace the view, as an edit that replaces the first file does. */
    struct view was = newest_put_view(&m.t->newest, snapshot_ref(m.t->newest.view.snap),
                                      store_ref(m.t->newest.view.store));
    newest_drop_file(&m.t->newest);
    view_free(&was);
    /* One reference is the test's, the other belongs to the file on disk. */
    CU_ASSERT_EQUAL(atomic_load(&file->refs), 2);
    mapped_unref(file);
    (void)tree_release(kept);
    (void)tree_release(new);
    image_close(&m);
}

/* If the whole model was opened in the second of three states, it is unchanged in the third. */
static void test_whole(void)
{
    uint8_t before[4096], after[4096];
    struct tree_image m = first();
    to_second(&m);
    uint64_t node = image_node(&m, "model.gguf");
    struct tree_file *f = open_node(&m, node);
    struct reply r = {.scratch = before};
    CU_ASSERT_EQUAL(tree_read(f, 0, sizeof(before), &r), 0);
    size_t n = r.len;
    struct build b;
    put_first(&b);
    static const struct tensor_from from[] = {{1, false}, {IDS_NONE, false}, {2, true}, {0, false}};
    set_state(&m, &b, from);
    r = (struct reply){.scratch = after};
    CU_ASSERT_EQUAL(tree_read(f, 0, sizeof(after), &r), 0);
    CU_ASSERT_EQUAL(r.len, n);
    CU_ASSERT_TRUE(n > 0 && memcmp(before, after, n) == 0);
    CU_ASSERT_EQUAL(getattr(&m, node), 0);
    CU_ASSERT_NOT_EQUAL(image_node(&m, "model.gguf"), node);
    (void)tree_release(f);
    CU_ASSERT_EQUAL(tree_open_file(m.t, node, O_RDONLY, &f), -ESTALE); /* must be looked up again */
    path_reads(&m, "tensors/changed/raw", 48, 'o');
    image_close(&m);
}

/* A listing continues to show the state in which it began. */
static void test_listing(void)
{
    char name[TREE_NAME_MAX + 1], *names;
    struct tree_entry e;
    struct tree_dir *d = NULL, *dead = NULL;
    uint64_t cookie = 0, none = 2;
    struct tree_image m = first();
    CU_ASSERT_EQUAL_FATAL(tree_opendir(m.t, image_node(&m, "tensors"), &d), 0);
    CU_ASSERT_EQUAL_FATAL(tree_opendir(m.t, image_node(&m, "tensors/gone"), &dead), 0);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(tree_readdir(m.t, d, &cookie, true, name, &e), 1);
    CU_ASSERT_STRING_EQUAL(name, "kept");
    to_second(&m);
    CU_ASSERT_EQUAL(tree_readdir(m.t, d, &cookie, true, name, &e), 1); /* not the removed tensor */
    CU_ASSERT_STRING_EQUAL(name, "changed");
    CU_ASSERT_EQUAL(e.node, image_node(&m, "tensors/changed"));
    CU_ASSERT_EQUAL(tree_readdir(m.t, d, &cookie, true, name, &e), 1);
    CU_ASSERT_STRING_EQUAL(name, "name");
    CU_ASSERT_EQUAL(tree_readdir(m.t, d, &cookie, true, name, &e), 0);
    CU_ASSERT_EQUAL(tree_readdir(m.t, dead, &none, false, name, &e), 0);
    names = image_list(&m, "tensors");
    CU_ASSERT_STRING_EQUAL(names, "renamed\nkept\nchanged\nadded\n");
    free(names);
    names = image_list(&m, "tensors/changed");
    CU_ASSERT_STRING_EQUAL(names, "type\nshape\nraw\nf32\nf32.npy\noffset\n");
    free(names);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors").st_nlink, 2 + 4);
    tree_closedir(d);
    tree_closedir(dead);
    image_close(&m);
}

static CU_TestInfo tests[] = {
    {"names and nodes follow their tensors", test_names_and_nodes},
    {"open files keep the bytes with which they were opened", test_open_files},
    {"the whole model keeps the bytes with which it was opened", test_whole},
    {"a listing stays in the state in which it began", test_listing},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_ids", tests)
