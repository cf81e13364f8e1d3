/* SPDX-License-Identifier: MIT */
/* Calls on nodes that were removed, replaced or never issued; first edits that are refused; large
 * replies. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build_gguf.h"
#include "model_dir.h"
#include "tree/history.h"
#include "tree/nodes.h"
#include "tree_edit.h"
#include "tree_image.h"
#include "viewfile.h"

enum { F16 = 1, LARGE = 100000 };

static struct place new_place(uint32_t values)
{
    struct place p;
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_u32(&b, "a.b", 1);
    build_tensor(&b, "t", F32, SHAPE(values), NULL, 4 * (size_t)values);
    build_tensor(&b, "h", F16, SHAPE(4), NULL, 8);
    build_tensor(&b, "unknown", 9999, SHAPE(4), NULL, 32);
    c.bytes = build_finish(&b, &c.n);
    make_place(&p, &c);
    free(c.bytes);
    return p;
}

static const struct tree_options tensors = {
    .strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE, .tensors = true};

static void end(struct tree *t, struct place *p)
{
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(p);
}

static uint64_t at(struct tree *t, const char *path)
{
    const struct tree_image m = {.t = t};
    return image_node(&m, path);
}

/* ---- first edits ---- */

/* Each call that would begin editing reports that another process holds the lock, and changes
 * nothing. */
static void test_busy(void)
{
    struct place p = new_place(5);
    struct tree_options o = tensors;
    o.late = true;
    struct tree *t = image_tree(p.model, &o), *other = image_tree(p.model, &tensors);
    struct tree_file *f = NULL;
    struct tree_entry e;
    struct tree_wait w;
    struct err why = {0};
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    const uint64_t dir = at(t, "tensors/t"), raw = at(t, "tensors/t/raw"), top = at(t, "tensors"),
                   key = at(t, "metadata/a.b");
    CU_ASSERT_EQUAL(do_retype(t, "a.b", "u64"), -EBUSY);
    CU_ASSERT_EQUAL(truncate_node(t, key, 0, tree_wait(&w)), -EBUSY);
    CU_ASSERT_EQUAL(truncate_node(t, raw, 0, tree_wait(&w)), -EBUSY);
    CU_ASSERT_EQUAL(tree_open_file(t, raw, O_WRONLY, &f), -EBUSY);
    CU_ASSERT_EQUAL(tree_create(t, dir, "raw", 0, &e, &f), -EBUSY);
    CU_ASSERT_EQUAL(tree_unlink(t, dir, "raw"), -EBUSY);
    CU_ASSERT_EQUAL(tree_rename(t, top, "t", top, "s", 0, tree_wait(&w)), -EBUSY);
    CU_ASSERT_EQUAL(tree_mkdir(t, top, "new", &e), -EBUSY);
    CU_ASSERT_EQUAL(tree_rmdir(t, top, "t"), -EBUSY);
    CU_ASSERT_EQUAL(tree_undo(t, 0, &said, &why), -EBUSY);
    CU_ASSERT_PTR_NOT_NULL(strstr(why.msg, "another process"));
    CU_ASSERT_PTR_NULL(f);
    CU_ASSERT_FALSE(tree_edited(t));
    tree_close(other);
    CU_ASSERT_EQUAL(do_retype(t, "a.b", "u64"), 0);
    CU_ASSERT_TRUE(tree_edited(t));
    end(t, &p);
}

/* With -o ro, tensors/ is not editable either. */
static void test_read_only(void)
{
    struct place p = new_place(5);
    struct tree_options o = tensors;
    struct tree_entry e;
    o.read_only = true;
    struct tree *t = image_tree(p.model, &o);
    const struct tree_image m = {.t = t};
    CU_ASSERT_EQUAL(tree_mkdir(t, at(t, "tensors"), "new", &e), -EPERM);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors").st_mode & 0222, 0);
    end(t, &p);
}

/* Version 1 is never written. */
static void test_version_1(void)
{
    struct content c;
    struct build b;
    struct place p;
    build_init(&b, 1, false);
    build_str(&b, "general.architecture", "test");
    c.bytes = build_finish(&b, &c.n);
    make_place(&p, &c);
    free(c.bytes);
    struct tree *t = image_tree(p.model, &tensors);
    CU_ASSERT_FALSE(tree_writable(t));
    CU_ASSERT_PTR_NOT_NULL(strstr(tree_why_not(t), "version 1"));
    end(t, &p);
}

/* ---- nodes ---- */

static void test_outside(void)
{
    struct tree_wait w;
    struct tree_file *f = tree_file_new(NULL, 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_FALSE(tree_cached_right(f));
    CU_ASSERT_EQUAL(tree_write(f, 0, "x", 1, tree_wait(&w)), -EBADF);
    CU_ASSERT_EQUAL(tree_truncate(f, 0, tree_wait(&w)), -EPERM);
    CU_ASSERT_EQUAL(tree_allocate(f, 0, 0, 1), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(tree_flush(f, tree_wait(&w)), 0);
    CU_ASSERT_EQUAL(tree_fsync(f, tree_wait(&w)), 0);
    CU_ASSERT_EQUAL(tree_release(f), 0);
}

static void test_never_issued(void)
{
    struct place p = new_place(5);
    struct tree *t = image_tree(p.model, &tensors);
    struct tree_entry e;
    struct tree_file *f = NULL;
    const uint64_t info = ino_whole(99, 4), model = ino_whole(99, 5);
    CU_ASSERT_EQUAL(tree_getattr(t, info, NULL, &e), -ESTALE);
    CU_ASSERT_EQUAL(tree_open_file(t, info, O_RDONLY, &f), -ESTALE);
    CU_ASSERT_EQUAL(tree_open_file(t, model, O_RDONLY, &f), -ESTALE);
    CU_ASSERT_EQUAL(tree_open_file(t, ino_tensor_file(0, 20), O_WRONLY, &f), -ENOENT);
    CU_ASSERT_EQUAL(tree_open_file(t, ino_tensor_file(99, 0), O_WRONLY, &f), -ESTALE);
    tree_forget(t, model, 1);
    CU_ASSERT_PTR_NULL(f);
    end(t, &p);
}

/* The file of the first state disappears with the first edit. */
static void test_replaced_model(void)
{
    struct place p = new_place(5);
    for (int late = 0; late < 2; late++) {
        struct tree_options o = tensors;
        struct tree_file *f = NULL;
        struct tree_entry e;
        o.tensors = late;
        struct tree *t = image_tree(p.model, &o);
        CU_ASSERT_EQUAL(tree_lookup(t, INO_ROOT, "model.gguf", &e), 0);
        CU_ASSERT_EQUAL(do_write(t, "a.b", late ? "3" : "2", 1), 0);
        CU_ASSERT_EQUAL(do_sync(t), 0);
        CU_ASSERT_EQUAL(tree_open_file(t, e.node, O_RDONLY, &f), -ESTALE);
        CU_ASSERT_PTR_NULL(f);
        CU_ASSERT_NOT_EQUAL(at(t, "model.gguf"), e.node);
        tree_forget(t, e.node, 1);
        CU_ASSERT_EQUAL(tree_finish(t), 0);
        tree_close(t);
    }
    drop_place(&p);
}

/* A tensor is removed while its directory and files are open. */
static void test_removed(void)
{
    struct place p = new_place(5);
    struct tree *t = image_tree(p.model, &tensors);
    const uint64_t dir = at(t, "tensors/t"), raw = at(t, "tensors/t/raw");
    char name[TREE_NAME_MAX + 1];
    struct viewfile writer, again;
    struct tree_entry e;
    struct tree_dir *d = NULL;
    struct tree_file *reader = NULL, *f = NULL;
    uint64_t cookie = 0;
    CU_ASSERT_EQUAL(tree_open_file(t, raw, O_RDONLY, &reader), 0);
    CU_ASSERT_EQUAL(tree_opendir(t, dir, &d), 0);
    CU_ASSERT_EQUAL(viewfile_open(t, "t", "f32", O_RDWR, &writer), 0);
    CU_ASSERT_EQUAL(do_rmdir_tensor(t, "t"), 0);
    CU_ASSERT_EQUAL(tree_lookup(t, dir, "raw", &e), -ENOENT);
    CU_ASSERT_EQUAL(tree_create(t, dir, "raw", 0, &e, &f), -ENOENT);
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_EQUAL(tree_getattr(t, writer.node, NULL, &e), 0);
    CU_ASSERT_EQUAL(tree_readdir(t, d, &cookie, true, name, &e), -ESTALE);
    CU_ASSERT_EQUAL(tree_readdir(t, d, &cookie, true, name, &e), 1); /* ".." */
    CU_ASSERT_EQUAL(tree_readdir(t, d, &cookie, true, name, &e), 0);
    again = (struct viewfile){.t = t, .node = raw};
    CU_ASSERT_EQUAL(tree_open_file(t, raw, O_RDONLY, &again.f), 0); /* kept for its reader */
    viewfile_release(&again);
    viewfile_release(&writer);
    CU_ASSERT_EQUAL(tree_release(reader), 0);
    CU_ASSERT_EQUAL(tree_getattr(t, raw, NULL, &e), -ESTALE);
    CU_ASSERT_EQUAL(tree_open_file(t, raw, O_RDONLY, &f), -ESTALE);
    tree_closedir(d);
    end(t, &p);
}

/* A view is ignored because another one provides the bytes. Once the tensor is removed, the node of
 * the ignored view is stale. */
static void test_ignored(void)
{
    struct place p = new_place(5);
    struct tree *t = image_tree(p.model, &tensors);
    struct tree_entry e, dir;
    struct tree_file *f = NULL;
    struct tree_wait w;
    CU_ASSERT_EQUAL(tree_mkdir(t, at(t, "tensors"), "new", &dir), 0);
    CU_ASSERT_EQUAL(viewfile_put_with(t, "new", "raw", O_CREAT, "0123", 4), 0);
    CU_ASSERT_EQUAL(tree_create(t, dir.node, "f32", 0, &e, &f), 0);
    CU_ASSERT_EQUAL(tree_write(f, 0, "x", 1, tree_wait(&w)), 0);
    CU_ASSERT_EQUAL(tree_release(f), 0);
    static const int flags[] = {O_RDONLY, O_WRONLY};
    for (size_t i = 0; i < 2; i++) {
        f = NULL;
        CU_ASSERT_EQUAL(tree_open_file(t, e.node, flags[i], &f), 0);
        CU_ASSERT_FALSE(f->cacheable);
        if (flags[i] == O_WRONLY)
            CU_ASSERT_EQUAL(tree_write(f, 0, "x", 1, tree_wait(&w)), 0);
        CU_ASSERT_EQUAL(tree_release(f), 0);
    }
    CU_ASSERT_EQUAL(do_rmdir_tensor(t, "new"), 0);
    f = NULL;
    CU_ASSERT_EQUAL(tree_open_file(t, e.node, O_WRONLY, &f), -ESTALE);
    CU_ASSERT_PTR_NULL(f);
    end(t, &p);
}

/* Only certain names can be created, unlinked and read in the directory of a tensor. */
static void test_names(void)
{
    struct place p = new_place(5);
    struct tree *t = image_tree(p.model, &tensors);
    const uint64_t dir = at(t, "tensors/t");
    struct tree_file *f = NULL;
    struct tree_entry e;
    CU_ASSERT_EQUAL(tree_create(t, dir, "raw", O_EXCL, &e, &f), -EEXIST);
    CU_ASSERT_EQUAL(tree_create(t, dir, "shard", 0, &e, &f), -EPERM);
    CU_ASSERT_EQUAL(tree_unlink(t, dir, "shard"), -ENOENT);
    CU_ASSERT_EQUAL(tree_readlink(t, dir, &(struct buf){0}), -EINVAL);
    CU_ASSERT_PTR_NULL(f);
    CU_ASSERT_EQUAL(tree_unlink(t, dir, "raw"), 0);
    CU_ASSERT_EQUAL(tree_create(t, dir, "raw", O_RDWR | O_EXCL, &e, &f), 0);
    CU_ASSERT_EQUAL(tree_release(f), 0);
    end(t, &p);
}

/* ---- open files ---- */

static void test_open_files(void)
{
    struct place p = new_place(5);
    struct tree *t = image_tree(p.model, &tensors);
    struct tree_file *f = NULL, *info = NULL;
    struct viewfile v;
    struct tree_wait w;
    CU_ASSERT_EQUAL(tree_open_file(t, at(t, "tensors/h/f32"), O_RDONLY, &f), 0);
    CU_ASSERT_EQUAL(tree_open_file(t, at(t, "info"), O_RDONLY, &info), 0);
    CU_ASSERT_TRUE(tree_ahead(f));
    CU_ASSERT_FALSE(tree_ahead(info));
    CU_ASSERT_EQUAL(viewfile_open(t, "h", "f32", O_RDWR, &v), 0);
    CU_ASSERT_FALSE(tree_ahead(f)); /* the draft is shown */
    CU_ASSERT_EQUAL(tree_allocate(v.f, FALLOC_FL_PUNCH_HOLE, 0, 4), -EOPNOTSUPP);
    CU_ASSERT_EQUAL(tree_allocate(v.f, FALLOC_FL_KEEP_SIZE, 0, 4), 0);
    CU_ASSERT_EQUAL(tree_fsync(f, tree_wait(&w)), 0);
    CU_ASSERT_EQUAL(tree_fsync(info, tree_wait(&w)), 0);
    viewfile_release(&v);
    CU_ASSERT_EQUAL(tree_release(f) + tree_release(info), 0);
    end(t, &p);
}

static bool stopped; /* the program was signalled */

static bool is_stopped(struct live_wait *w)
{
    (void)w;
    return stopped;
}

/* A read does not wait if its program has already been signalled. */
static void test_stopped(void)
{
    struct place p = new_place(5);
    struct tree *t = image_tree(p.model, &tensors);
    struct tree_file *f = NULL;
    struct tree_wait w;
    uint8_t scratch[16];
    CU_ASSERT_EQUAL(tree_open_file(t, at(t, "tensors/t/stats"), O_RDONLY, &f), 0);
    CU_ASSERT_FALSE(tree_cached_right(f));
    struct reply r = {.scratch = scratch, .wait = tree_wait(&w)};
    w.wait.stopped = is_stopped;
    stopped = true;
    CU_ASSERT_EQUAL(tree_read(f, 0, sizeof(scratch), &r), -EINTR);
    stopped = false;
    CU_ASSERT_EQUAL(tree_waited(&w, tree_read(f, 0, sizeof(scratch), &r)), 0);
    tree_reply_done(&r);
    CU_ASSERT_EQUAL(tree_release(f), 0);
    end(t, &p);
}

/* A tensor without values also has a line in stats.tsv. */
static void test_lines(void)
{
    struct place p = new_place(5);
    struct tree *t = image_tree(p.model, &tensors);
    const struct tree_image m = {.t = t};
    size_t n;
    char *lines = image_text(&m, "stats.tsv", &n);
    CU_ASSERT_PTR_NOT_NULL(strstr(lines, "\nunknown\tunknown:9999\t4\t4\t\t\t\t\t\t\t\t\n"));
    free(lines);
    end(t, &p);
}

/* Replies of this size are not copied, except after a header. Reading missing bytes fails with
 * EIO. */
static void test_large(void)
{
    enum { N = 300000, HEADER = 128 };
    struct place p = new_place(LARGE);
    struct tree *t = image_tree(p.model, &tensors);
    const struct tree_image m = {.t = t};
    uint8_t *npy = malloc(N), *raw = malloc(N);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/t/f32.npy", 0, N, npy), N);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/t/raw", 0, N, raw), N);
    CU_ASSERT_EQUAL(memcmp(npy, "\x93NUMPY", 6), 0);
    CU_ASSERT_EQUAL(memcmp(npy + HEADER, raw, N - HEADER), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    CU_ASSERT_EQUAL(truncate(p.model, 4 * LARGE - 1000), 0);
    t = image_tree(p.model, &(struct tree_options){.partial = true});
    const struct tree_image cut = {.t = t};
    CU_ASSERT_EQUAL(image_bytes(&cut, "tensors/t/raw", 4 * LARGE - N, N, raw), -EIO);
    CU_ASSERT_EQUAL(image_bytes(&cut, "model.gguf", 4 * LARGE - N, N, raw), -EIO);
    free(npy);
    free(raw);
    end(t, &p);
}

/* ---- attributes, and the state of the mount ---- */

static void test_attributes(void)
{
    struct place p = new_place(5);
    struct tree_options o = tensors;
    struct tree_entry e;
    struct tree_wait w;
    char name[TREE_NAME_MAX + 1];
    unsigned links = 0;
    o.set_umask = true;
    o.umask = 027;
    struct tree *t = image_tree(p.model, &o);
    const struct tree_image m = {.t = t};
    CU_ASSERT_EQUAL(image_stat(&m, "tensors").st_mode, S_IFDIR | 0750);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors/t/raw").st_mode, S_IFREG | 0640);
    /* a helper gets the name of the key it copies */
    CU_ASSERT_EQUAL(do_write(t, ".helper", "text", 4), 0);
    int r = tree_setxattr(t, at(t, "metadata/.helper"), "user.gguf.name", "a.b", 3, tree_wait(&w));
    CU_ASSERT_EQUAL(tree_waited(&w, r), 0);
    CU_ASSERT_EQUAL(tree_symlink(t, at(t, "metadata"), ".#lock", "nowhere", &e), 0);
    uint64_t cookie = 0;
    struct tree_dir *d = NULL;
    CU_ASSERT_EQUAL(tree_opendir(t, at(t, "metadata"), &d), 0);
    while (tree_readdir(t, d, &cookie, false, name, &e) > 0)
        links += S_ISLNK(e.attr.st_mode) && strcmp(name, ".#lock") == 0;
    CU_ASSERT_EQUAL(links, 1);
    tree_closedir(d);
    (void)tree_finish(t);
    tree_close(t);
    drop_place(&p);
}

/* Each state has its own number, and numbers can run out. */
static void test_states(void)
{
    struct place p = new_place(5);
    struct tree_options o = tensors;
    struct tree_entry e;
    o.late = true;
    struct tree *t = image_tree(p.model, &o);
    CU_ASSERT_EQUAL(utimensat(p.dir, NAME, (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
    /* The model was changed from outside. */
    CU_ASSERT_EQUAL(tree_lookup(t, INO_ROOT, "info", &e), 0);
    tree_forget(t, e.node, 1);
    t->states = UINT32_MAX;
    CU_ASSERT_EQUAL(utimensat(p.dir, NAME, (struct timespec[2]){{1, 0}, {2, 0}}, 0), 0);
    CU_ASSERT_EQUAL(tree_lookup(t, INO_ROOT, "info", &e), 0); /* still the same state */
    tree_forget(t, e.node, 1);
    free(t->state);
    t->state = NULL;
    CU_ASSERT_EQUAL(tree_lookup(t, INO_ROOT, "info", &e), -EOVERFLOW);
    end(t, &p);
}

/* The file's reserve for keys is never shown. */
static void test_reserve(void)
{
    struct place p = new_place(5);
    struct tree_options o = tensors;
    size_t n;
    o.reserve = 4096;
    struct tree *t = image_tree(p.model, &o);
    char text[200];
    memset(text, 't', sizeof(text)); /* moves the data */
    CU_ASSERT_EQUAL(do_write(t, "a.text", text, sizeof(text)), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    struct content file = file_now(&p), want = as_shown(&file), got;
    t = image_tree(p.model, &tensors);
    const struct tree_image m = {.t = t};
    got.bytes = (uint8_t *)image_text(&m, "model.gguf", &got.n);
    CU_ASSERT_TRUE(got.n < file.n && same(&got, &want));
    char *json = image_text(&m, "metadata.json", &n);
    CU_ASSERT_PTR_NULL(strstr(json, "reserve"));
    free(json);
    free(got.bytes);
    free(want.bytes);
    free(file.bytes);
    end(t, &p);
}

static CU_TestInfo tests[] = {
    {"edits are refused while another process has the lock", test_busy},
    {"with -o ro, nothing can be edited", test_read_only},
    {"a file of version 1 cannot be edited", test_version_1},
    {"a file without a tree refuses all calls", test_outside},
    {"nodes that were never issued are stale", test_never_issued},
    {"the node of a replaced file is stale", test_replaced_model},
    {"a tensor is removed while its files are open", test_removed},
    {"the node of an ignored view becomes stale", test_ignored},
    {"only certain names can be made in a tensor's directory", test_names},
    {"calls on open files depend on the kind of file", test_open_files},
    {"a read does not wait once its program was signalled", test_stopped},
    {"a tensor without values has a line as well", test_lines},
    {"large replies are not copied", test_large},
    {"attributes follow the options", test_attributes},
    {"each state of the mount has numbers of its own", test_states},
    {"the reserve is never shown", test_reserve},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tree_calls", tests)
