/* SPDX-License-Identifier: MIT */
/* Directories of new tensors are changed while they are being judged: no call waits for the judge,
 * and a changed directory is judged again. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "faultsys.h"
#include "live/batch.h"
#include "live/tensors.h"
#include "model_dir.h"
#include "place.h"
#include "quant/types.h"
#include "tree/nodes.h"
#include "tree_image.h"
#include "viewfile.h"

/* ---- replacements for C library functions ---- */

static atomic_long seconds; /* the monotonic time in seconds; 0: the real time */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = __real_clock_gettime(clock, ret);
    if (clock == CLOCK_MONOTONIC && atomic_load(&seconds))
        *ret = (struct timespec){atomic_load(&seconds), 0};
    return r;
}

/* Called after a view is opened and before it is truncated; acts as another program. */
static void (*before_truncate)(void);

int __real_tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e);
int __wrap_tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e);
int __wrap_tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e)
{
    void (*hook)(void) = before_truncate;
    before_truncate = NULL;
    if (hook)
        hook();
    return __real_tensor_draft_truncate(d, size, e);
}

/* Called once a lookup has found that the tensor is new; acts as the writer. */
static void (*before_lookup)(void);

int __real_live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
int __wrap_live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
int __wrap_live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node)
{
    void (*hook)(void) = before_lookup;
    before_lookup = NULL;
    if (hook)
        hook();
    return __real_live_making_view(l, number, row, node);
}

/* ---- a tree ---- */

struct room {
    struct place p;
    struct faultsys fs;
    struct tree *t;
    int (*call)(struct tree *t); /* the call to make during the judgement */
    int result;
    struct tree_wait wait; /* for a sync whose result tree_waited() collects */
    struct viewfile open;
};

/* Write the text, a hole and a zero, so that the judge makes system calls. */
static void put_raw(struct viewfile *v, const char *text)
{
    CU_ASSERT_EQUAL(viewfile_pwrite(v, 0, text, strlen(text)), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(v, 5, "", 1), 0);
}

static void put(struct tree *t, const char *tensor, const char *view, const char *text)
{
    struct viewfile v;
    if (strcmp(view, "raw") != 0) {
        CU_ASSERT_EQUAL(viewfile_put_with(t, tensor, view, O_CREAT, text, strlen(text)), 0);
        return;
    }
    CU_ASSERT_EQUAL_FATAL(viewfile_open(t, tensor, view, O_RDWR | O_CREAT | O_TRUNC, &v), 0);
    put_raw(&v, text);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
}

/* Make a new tensor whose data is incomplete. */
static void make(struct tree *t, const char *tensor)
{
    CU_ASSERT_EQUAL(do_mkdir_tensor(t, tensor), 0);
    put(t, tensor, "type", "I8");
    put(t, tensor, "shape", "6");
    put(t, tensor, "raw", "123");
}

/* Make a tree with a tensor "b" and a new tensor "n" that begins with 123. */
static void begin(struct room *x)
{
    const struct tree_options o = {
        .tensors = true, .strategy = EDIT_COPY, .reserve = EDIT_RESERVE_AUTO};
    struct timespec now;
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_tensor(&b, "b", I8, SHAPE(8), "abcdefgh", 8);
    c.bytes = build_finish(&b, &c.n);
    make_place(&x->p, &c);
    free(c.bytes);
    x->t = image_tree(x->p.model, &o);
    make(x->t, "n");
    put(x->t, "n", ".helper", "456");
    (void)__real_clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&seconds, now.tv_sec + 1); /* all changes are now in the past */
}

/* Judge n; `hook` is called during the judgement. */
static void judged(struct room *x, void (*hook)(void *))
{
    faultsys_init(&x->fs, FAULT_NONE, 0, 0);
    x->fs.before = "pwrite";
    x->fs.hook = hook;
    x->fs.arg = x;
    x->t->model.file.sys = &x->fs.sys;
    CU_ASSERT_EQUAL(do_sync(x->t), 0);
    CU_ASSERT_PTR_NULL_FATAL(x->fs.before);
}

static void make_call(void *arg)
{
    struct room *x = arg;
    x->result = x->call(x->t);
}

/* Judge n and make `call` during the judgement. */
static void meanwhile(struct room *x, int (*call)(struct tree *t))
{
    x->call = call;
    judged(x, make_call);
    CU_ASSERT_EQUAL(x->result, 0);
}

static void end(struct room *x)
{
    atomic_store(&seconds, 0);
    CU_ASSERT_EQUAL(tree_finish(x->t), 0);
    tree_close(x->t);
    CU_ASSERT_EQUAL(files_in(&x->p), 1);
    drop_place(&x->p);
}

static int lookup(struct tree *t, const char *folder, const char *name)
{
    const struct tree_image m = {.t = t};
    struct tree_entry e;
    return tree_lookup(t, image_node(&m, folder), name, &e);
}

static void shows(struct tree *t, const char *want)
{
    const struct tree_image m = {.t = t};
    size_t n;
    char *text = image_text(&m, "tensors/n/raw", &n);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

static bool in_file(const struct room *x, const char *name)
{
    struct content c = file_now(&x->p);
    uint8_t text[64] = {(uint8_t)strlen(name)}; /* length in 8 bytes, then the name */
    memcpy(text + 8, name, strlen(name));
    bool found = memmem(c.bytes, c.n, text, 8 + strlen(name));
    free(c.bytes);
    return found;
}

/* ---- calls ---- */

static int unlink_view(struct tree *t)
{
    return viewfile_unlink(t, "n", "raw");
}

/* Without `raw`, the directory is not a tensor. */
static void test_unlink(void)
{
    struct room x;
    begin(&x);
    meanwhile(&x, unlink_view);
    CU_ASSERT_FALSE(in_file(&x, "n"));
    CU_ASSERT_EQUAL(lookup(x.t, "tensors/n", "raw"), -ENOENT);
    CU_ASSERT_EQUAL(lookup(x.t, "tensors/n", "type"), 0);
    put(x.t, "n", "raw", "456");
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_TRUE(in_file(&x, "n"));
    shows(x.t, "456");
    end(&x);
}

static int create_view(struct tree *t)
{
    const struct tree_image m = {.t = t};
    struct tree_entry e;
    struct viewfile v = {.t = t};
    int r = tree_create(t, image_node(&m, "tensors/n"), "raw", O_RDWR, &e, &v.f);
    if (r < 0)
        return r;
    v.node = e.node;
    put_raw(&v, "789");
    return viewfile_close(&v);
}

static void test_create(void)
{
    struct room x;
    begin(&x);
    meanwhile(&x, create_view);
    shows(x.t, "789");
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_TRUE(in_file(&x, "n"));
    shows(x.t, "789");
    end(&x);
}

static int rename_helper(struct tree *t)
{
    return viewfile_rename(t, "n", ".helper", "raw");
}

static void test_rename(void)
{
    struct room x;
    begin(&x);
    meanwhile(&x, rename_helper);
    shows(x.t, "456");
    CU_ASSERT_EQUAL(lookup(x.t, "tensors/n", ".helper"), -ENOENT);
    end(&x);
}

static struct tree *renames_in;

static void rename_opened(void)
{
    CU_ASSERT_EQUAL(rename_helper(renames_in), 0);
}

/* A helper becomes a view while a program opens it with O_RDONLY | O_TRUNC. The tensor is added
 * once it is complete. */
static void test_emptied(void)
{
    struct room x;
    struct viewfile v;
    begin(&x);
    renames_in = x.t;
    before_truncate = rename_opened;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "n", ".helper", O_RDONLY | O_TRUNC, &v), 0);
    CU_ASSERT_PTR_NULL(before_truncate);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    put(x.t, "n", "raw", "789");
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_TRUE(in_file(&x, "n"));
    shows(x.t, "789");
    end(&x);
}

static void remove_tensor(void *arg)
{
    struct room *x = arg;
    CU_ASSERT_EQUAL(do_rmdir_tensor(x->t, "n"), 0);
    CU_ASSERT_EQUAL(lookup(x->t, "tensors", "n"), -ENOENT);
    CU_ASSERT_EQUAL(viewfile_close(&x->open), 0); /* the judge still has the bytes it read */
}

static void test_remove(void)
{
    struct room x;
    begin(&x);
    CU_ASSERT_EQUAL(viewfile_open(x.t, "n", "raw", O_RDONLY, &x.open), 0);
    judged(&x, remove_tensor);
    CU_ASSERT_EQUAL(lookup(x.t, "tensors", "n"), -ENOENT);
    make(x.t, "n");
    put(x.t, "n", "raw", "456");
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    shows(x.t, "456");
    CU_ASSERT_TRUE(in_file(&x, "n"));
    end(&x);
}

static struct viewfile held;

static int open_view(struct tree *t)
{
    return viewfile_open(t, "n", "raw", O_WRONLY, &held);
}

/* A program keeps using its open file; the tensor is not added until the file is closed. */
static void test_open(void)
{
    struct room x;
    begin(&x);
    meanwhile(&x, open_view);
    CU_ASSERT_FALSE(in_file(&x, "n"));
    CU_ASSERT_EQUAL(viewfile_pwrite(&held, 1, "9", 1), 0);
    CU_ASSERT_EQUAL(viewfile_close(&held), 0);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_TRUE(in_file(&x, "n"));
    shows(x.t, "193");
    end(&x);
}

static void read_and_look(void *arg)
{
    const struct room *x = arg;
    shows(x->t, "123");
    CU_ASSERT_EQUAL(lookup(x->t, "tensors/n", "type"), 0);
}

static void test_read(void)
{
    struct room x;
    begin(&x);
    judged(&x, read_and_look);
    end(&x);
}

/* ---- the directory is synced ---- */

static void sync_folder(void *arg)
{
    struct room *x = arg;
    x->result = tree_fsyncdir(x->t, tree_wait(&x->wait));
}

static void test_synced(void)
{
    struct room x;
    begin(&x);
    judged(&x, sync_folder);
    CU_ASSERT_EQUAL(x.result, LIVE_PARKED);
    CU_ASSERT_EQUAL(tree_waited(&x.wait, x.result), 0);
    CU_ASSERT_TRUE(in_file(&x, "n"));
    end(&x);
}

static void make_another(void *arg)
{
    struct room *x = arg;
    atomic_fetch_add(&seconds, 1);
    make(x->t, "another");
    sync_folder(x);
}

static void test_synced_with_another(void)
{
    struct room x;
    begin(&x);
    judged(&x, make_another);
    CU_ASSERT_EQUAL(tree_waited(&x.wait, x.result), 0);
    CU_ASSERT_TRUE(in_file(&x, "n") && in_file(&x, "another"));
    end(&x);
}

static struct tree *added_in;

static void add_it(void)
{
    put(added_in, "n", "raw", "123");
    CU_ASSERT_EQUAL(do_sync(added_in), 0);
}

static void test_looked_up(void)
{
    struct room x;
    begin(&x);
    added_in = x.t;
    before_lookup = add_it;
    CU_ASSERT_EQUAL(lookup(x.t, "tensors/n", "raw"), 0);
    CU_ASSERT_PTR_NULL(before_lookup);
    CU_ASSERT_TRUE(in_file(&x, "n"));
    shows(x.t, "123");
    end(&x);
}

/* ---- added, but not written ---- */

static void look_for_first(void *arg)
{
    const struct room *x = arg;
    CU_ASSERT_EQUAL(lookup(x->t, "tensors", "first"), 0);
    CU_ASSERT_EQUAL(lookup(x->t, "tensors/first", "raw"), 0);
}

static void test_beside_others(void)
{
    struct room x;
    begin(&x);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "n"), 0);
    CU_ASSERT_EQUAL(do_mkdir_tensor(x.t, "first"), 0);
    put(x.t, "first", "type", "I8");
    put(x.t, "first", "shape", "6");
    CU_ASSERT_EQUAL(viewfile_put_with(x.t, "first", "raw", O_CREAT, "123456", 6), 0);
    atomic_fetch_add(&seconds, 1);
    make(x.t, "second");
    judged(&x, look_for_first);
    CU_ASSERT_TRUE(in_file(&x, "first") && in_file(&x, "second"));
    end(&x);
}

/* ---- after the write ---- */

/* Return the number of nameless files that this process has open. */
static unsigned unnamed(void)
{
    unsigned n = 0;
    char path[64], name[4096];
    for (int fd = 0; fd < 1024; fd++) {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, name, sizeof(name) - 1);
        name[len > 0 ? len : 0] = '\0';
        n += strstr(name, " (deleted)") != NULL;
    }
    return n;
}

static void test_released(void)
{
    struct room x;
    unsigned before = unnamed();
    begin(&x);
    CU_ASSERT_EQUAL(viewfile_unlink(x.t, "n", ".helper"), 0);
    CU_ASSERT_TRUE(unnamed() > before);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    /* The writing thread answers before it closes the nameless files. */
    CU_ASSERT_EQUAL(tree_finish(x.t), 0);
    CU_ASSERT_EQUAL(unnamed(), before);
    shows(x.t, "123");
    end(&x);
}

/* A helper disappears with its directory: at once if the tensor is new, otherwise once the removal
 * is final. */
static void test_helpers(void)
{
    unsigned before = unnamed();
    for (int made = 0; made < 2; made++) {
        struct room x;
        begin(&x);
        if (made)
            CU_ASSERT_EQUAL(do_sync(x.t), 0);
        CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "n"), 0);
        if (!made)
            CU_ASSERT_EQUAL(unnamed(), before);
        CU_ASSERT_EQUAL(tree_finish(x.t), 0);
        CU_ASSERT_EQUAL(unnamed(), before);
        end(&x);
    }
}

static unsigned objects_known(struct tree *t)
{
    struct live *l = t->live;
    unsigned n = 0;
    lock_take(&l->lock);
    for (const struct object *o = object_from(&l->objects, 0); o;
         o = object_from(&l->objects, o->number + 1ull))
        n++;
    lock_drop(&l->lock);
    return n;
}

/* A directory that was made and removed leaves nothing behind once all its files are closed. */
static void test_forgotten(void)
{
    struct room x;
    struct viewfile v[2];
    begin(&x);
    const unsigned before = objects_known(x.t);
    for (int i = 0; i < 10; i++) {
        make(x.t, "another");
        CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "another", "raw", O_RDWR, &v[0]), 0);
        CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "another", ".helper", O_RDWR | O_CREAT, &v[1]), 0);
        CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "another"), 0);
        CU_ASSERT_EQUAL(viewfile_pwrite(&v[0], 0, "789", 3), 0);
        viewfile_release(&v[i % 2]);
        CU_ASSERT_TRUE(objects_known(x.t) > before);
        viewfile_release(&v[!(i % 2)]);
        CU_ASSERT_EQUAL(objects_known(x.t), before);
    }
    CU_ASSERT_EQUAL(do_mkdir_tensor(x.t, "another"), 0);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "another"), 0);
    CU_ASSERT_EQUAL(objects_known(x.t), before);
    end(&x);
}

static CU_TestInfo tests[] = {
    {"removed directories are forgotten", test_forgotten},
    {"helpers disappear with their directory", test_helpers},
    {"a tensor already added is shown while others are judged", test_beside_others},
    {"a view is opened for writing while its tensor is judged", test_open},
    {"a view is read while its tensor is judged", test_read},
    {"drafts of a new tensor are released once it is written", test_released},
    {"fsync of the directory waits for a tensor that is judged", test_synced},
    {"fsync of the directory also waits for a tensor made meanwhile", test_synced_with_another},
    {"a view is looked up as its directory becomes a tensor", test_looked_up},
    {"a view is unlinked while its tensor is judged", test_unlink},
    {"a view is created while its tensor is judged", test_create},
    {"a helper is renamed over a view while its tensor is judged", test_rename},
    {"a helper becomes a view while it is truncated", test_emptied},
    {"the directory is removed while its tensor is judged", test_remove},
    CU_TEST_INFO_NULL,
};

CU_MAIN("makings", tests)
