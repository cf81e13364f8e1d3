/* SPDX-License-Identifier: MIT */
/* The reasons why a model cannot be edited, requests to other processes to release its lock, and
 * the states and commands of trees. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "build_gguf.h"
#include "edit/history.h"
#include "history_dir.h"
#include "model_dir.h"
#include "tree/history.h"
#include "tree/nodes.h"
#include "tree_edit.h"
#include "tree_image.h"
#include "viewfile.h"

/* ---- clocks ---- */

static long later; /* seconds by which the clock has jumped */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = __real_clock_gettime(clock, ret);
    ret->tv_sec += later;
    return r;
}

/* ---- models ---- */

static struct content model_of(bool split, unsigned no, const char *extra)
{
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    if (split) {
        build_num(&b, "split.no", GGUF_U16, no);
        build_num(&b, "split.count", GGUF_U16, 2);
        build_num(&b, "split.tensors.count", GGUF_I32, 1);
    }
    build_u32(&b, "a.b", 1);
    if (extra)
        build_str(&b, "extra", extra);
    if (no == 0)
        build_tensor(&b, "t", F32, SHAPE(5), NULL, 20);
    c.bytes = build_finish(&b, &c.n);
    return c;
}

static void put_model(const struct place *p, const char *name, bool split, unsigned no,
                      const char *extra)
{
    struct content c = model_of(split, no, extra);
    put_file(p->dir, name, c.bytes, c.n);
    free(c.bytes);
}

static struct place new_place(void)
{
    struct place p;
    struct content c = model_of(false, 0, NULL);
    make_place(&p, &c);
    free(c.bytes);
    return p;
}

static const struct tree_options plain = {.strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE};

/* ---- why a model cannot be edited ---- */

static void opens(const struct place *p, const struct tree_options *o, const char *why)
{
    struct tree *t = image_tree(p->model, o);
    CU_ASSERT_EQUAL(tree_writable(t), !why);
    if (why && !strstr(tree_why_not(t), why))
        (void)printf("\n%s\n", tree_why_not(t));
    CU_ASSERT_TRUE(!why || strstr(tree_why_not(t), why));
    CU_ASSERT_TRUE(strcmp(tree_path(t), p->model) == 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
}

static void test_reasons(void)
{
    struct place p = new_place();
    struct tree_options o = plain;
    for (int late = 0; late < 2; late++) {
        o = plain;
        o.late = late;
        opens(&p, &o, NULL);
        o.read_only = true;
        opens(&p, &o, "requested by -o ro");
        o.why = "for a reason";
        opens(&p, &o, "for a reason");
        o.read_only = false;
        o.partial = true;
        opens(&p, &o, "-o partial");
    }
    tree_close(NULL);
    drop_place(&p);
}

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_hash_name(void)
{
    struct place p = new_place();
    struct tree_options o = plain;
    CU_ASSERT_EQUAL(renameat(p.dir, NAME, p.dir, "sha256-" HASH), 0);
    /* The new path does not fit in p.model. */
    (void)snprintf(p.model, sizeof(p.model), "%.20s", "");
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/sha256-" HASH, p.folder);
    struct tree *t = image_tree(path, &o);
    CU_ASSERT_FALSE(tree_writable(t));
    CU_ASSERT_PTR_NOT_NULL(strstr(tree_why_not(t), "hashnames=edit"));
    tree_close(t);
    o.edit_hash_names = true;
    t = image_tree(path, &o);
    CU_ASSERT_TRUE(tree_writable(t));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2", 1), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

/* Runs as a user other than root, because root may write anywhere. */
static void test_folder(void)
{
    const uid_t was = geteuid();
    if (was == 0)
        CU_ASSERT_EQUAL_FATAL(seteuid(65534), 0);
    struct place p = new_place();
    struct tree_options o = plain;
    for (int late = 0; late < 2; late++) {
        o.late = late;
        CU_ASSERT_EQUAL(chmod(p.folder, 0555), 0);
        opens(&p, &o, "its directory is not writable");
        CU_ASSERT_EQUAL(chmod(p.folder, 0333), 0);
        opens(&p, &o, "its directory is not readable");
        CU_ASSERT_EQUAL(chmod(p.folder, 0755), 0);
        CU_ASSERT_EQUAL(chmod(p.model, 0444), 0);
        opens(&p, &o, "Permission denied");
        CU_ASSERT_EQUAL(chmod(p.model, 0644), 0);
    }
    drop_place(&p);
    CU_ASSERT_EQUAL_FATAL(seteuid(was), 0);
}

static char logged[512];

static void take_line(int priority, const char *line)
{
    (void)priority;
    (void)snprintf(logged, sizeof(logged), "%s", line);
}

static void test_leftovers(void)
{
    struct place p = new_place();
    struct tree_options o = plain;
    o.log.line = take_line;
    opens(&p, &o, NULL);
    CU_ASSERT_STRING_EQUAL(logged, "");
    put_model(&p, "." NAME ".ggufs-abcdef", false, 0, NULL);
    opens(&p, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "files left by an interrupted edit were removed"));
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "may not be in the file"));
    CU_ASSERT_EQUAL(files_in(&p), 1);
    drop_place(&p);
}

/* ---- the holder of the lock ---- */

static struct tree *holder;
static unsigned asked, asked_busy;
static int gives; /* number of the request on which the holder releases the lock; 0: never */

static void drop_holder(void)
{
    if (holder)
        CU_ASSERT_EQUAL(tree_finish(holder), 0);
    tree_close(holder);
    holder = NULL;
}

static bool give_up(struct err *why)
{
    if (asked_busy != (unsigned)gives) {
        (void)err_set(why, -EWOULDBLOCK, "it is kept");
        return gives > 0;
    }
    drop_holder();
    return true;
}

static bool on_wait(void *arg, int dir, const char *name, struct err *why)
{
    CU_ASSERT_PTR_EQUAL(arg, &asked);
    CU_ASSERT_TRUE(dir >= 0 && strcmp(name, NAME) == 0);
    asked++;
    asked_busy++;
    return give_up(why);
}

static struct tree *hold(const struct place *p)
{
    struct tree *t = image_tree(p->model, &plain);
    CU_ASSERT_TRUE(tree_writable(t));
    /* Writing an unchanged value also begins editing. */
    CU_ASSERT_EQUAL(do_write(t, "a.b", "1", 1), 0);
    CU_ASSERT_TRUE(tree_edited(t));
    asked = asked_busy = 0;
    return t;
}

static void test_waits(void)
{
    struct place p = new_place();
    struct tree_options o = plain;
    o.wait = on_wait;
    o.wait_arg = &asked;
    for (gives = 0; gives < 3; gives++) {
        holder = hold(&p);
        opens(&p, &o, gives ? NULL : "it is kept");
        CU_ASSERT_EQUAL(asked, gives ? gives : 1);
        drop_holder();
    }
    o.read_only = true; /* needs no lock */
    asked = 0;
    opens(&p, &o, "requested by");
    CU_ASSERT_EQUAL(asked, 0);
    drop_place(&p);
}

/* ---- the history ---- */

static void said_is(struct tree *t, const char *words)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    CU_ASSERT_EQUAL(tree_undo_said(t, &out), 0);
    buf_char(&out, '\0');
    if (!strstr(buf_text(&out), words))
        (void)printf("\n%s\n", buf_text(&out));
    CU_ASSERT_PTR_NOT_NULL(strstr(buf_text(&out), words));
}

static void undoes(struct tree *t, uint64_t number, int want, const char *words)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    struct err e = {0};
    CU_ASSERT_EQUAL(tree_undo(t, number, &said, &e), want);
    buf_char(&said, '\0');
    const char *line = want < 0 ? e.msg : buf_text(&said);
    if (!strstr(line, words))
        (void)printf("\n%s\n", line);
    CU_ASSERT_PTR_NOT_NULL(strstr(line, words));
}

static void states_are(struct tree *t, int want, const char *words)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    struct err e = {0};
    CU_ASSERT_EQUAL(tree_history(t, &out, &e), want);
    buf_char(&out, '\0');
    const char *text = want < 0 ? e.msg : buf_text(&out);
    if (!strstr(text, words))
        (void)printf("\n%s\n", text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, words));
}

static void test_history(void)
{
    struct home x;
    struct err e = {0};
    struct place p = new_place();
    struct tree_options o = plain;
    home_setup(&x);
    (void)setenv("XDG_STATE_HOME", x.path, 1);
    o.history = 20;
    struct tree *t = image_tree(p.model, &o);
    said_is(t, "");
    states_are(t, 0, "");
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2", 1), 0);
    states_are(t, 0, "a.b");
    undoes(t, 0, 0, "a.b");
    said_is(t, "a.b");
    undoes(t, 77, -ENOENT, "77");
    CU_ASSERT_EQUAL(do_write(t, "a.b", "3", 1), 0);
    CU_ASSERT_EQUAL(tree_history_clear(t, &e), 0);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "4", 1), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    o.read_only = true;
    t = image_tree(p.model, &o);
    undoes(t, 0, -EROFS, "read-only");
    CU_ASSERT_EQUAL(tree_begin_undo(t, 0, NULL), -EROFS);
    CU_ASSERT_EQUAL(tree_history_clear(t, &e), 0);
    CU_ASSERT_EQUAL(unlink(p.model), 0);
    CU_ASSERT_EQUAL(tree_history_clear(t, &e), -ENOENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "cannot be written"));
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
    home_teardown(&x);
}

/* Return a tree that keeps its history in x, with an edit that is waiting for a sync. */
static struct tree *edited(struct home *x, const struct place *p)
{
    struct tree_options o = plain;
    home_setup(x);
    (void)setenv("XDG_STATE_HOME", x->path, 1);
    o.history = 20;
    o.commit = LIVE_COMMIT_SYNC;
    struct tree *t = image_tree(p->model, &o);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2", 1), 0);
    return t;
}

/* If accepted edits cannot be written, nothing is undone. */
static void test_undo_unsaved(void)
{
    struct home x;
    struct place p = new_place();
    struct tree *t = edited(&x, &p);
    CU_ASSERT_EQUAL(utimensat(p.dir, NAME, (struct timespec[2]){{5, 6}, {7, 8}}, 0), 0);
    undoes(t, 0, -ESTALE, "edits before it could not be written");
    CU_ASSERT_EQUAL(tree_finish(t), -ESTALE); /* it still waits, and is dropped now */
    tree_close(t);
    drop_place(&p);
    home_teardown(&x);
}

/* An undo also reports why editing cannot begin, or that the model has no history. */
static void test_no_history(void)
{
    struct place p = new_place();
    struct tree_options o = plain;
    o.late = true;
    struct tree *t = image_tree(p.model, &o);
    holder = hold(&p);
    undoes(t, 0, -EBUSY, "another process");
    drop_holder();
    undoes(t, 0, -EOPNOTSUPP, "");
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

/* ---- leftovers ---- */

static void backups_are(struct tree *t, const char *words)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    tree_backup(t, &out);
    buf_char(&out, '\0');
    CU_ASSERT_TRUE(words ? strstr(buf_text(&out), words) != NULL : out.len == 1);
}

static void test_backups(void)
{
    struct place p = new_place();
    struct tree_options o = plain;
    o.backup = ".bak";
    struct tree *t = image_tree(p.model, &o);
    backups_are(t, NULL);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2", 1), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    backups_are(t, NAME ".bak: the model as it was before the first edit, ");
    CU_ASSERT_EQUAL(unlinkat(p.dir, NAME ".bak", 0), 0);
    backups_are(t, NULL);
    tree_close(t);
    drop_place(&p);
}

/* ---- split models ---- */

static void make_split(struct place *p, char path[128])
{
    *p = new_place();
    CU_ASSERT_EQUAL(unlinkat(p->dir, NAME, 0), 0);
    put_model(p, "m-00001-of-00002.gguf", true, 0, NULL);
    put_model(p, "m-00002-of-00002.gguf", true, 1, NULL);
    (void)snprintf(path, 128, "%s/m-00001-of-00002.gguf", p->folder);
}

/* Every file contributes to the model's identity, and a change to any file is noticed. */
static void test_split(void)
{
    char path[128];
    struct place p;
    make_split(&p, path);
    struct tree *t = image_tree(path, &plain);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2", 1), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    struct tree *again = image_tree(path, &(struct tree_options){.read_only = true});
    CU_ASSERT_NOT_EQUAL(tree_identity(t), tree_identity(again));
    CU_ASSERT_FALSE(tree_changed(t));
    CU_ASSERT_FALSE(tree_changed(again));
    put_model(&p, "m-00002-of-00002.gguf", true, 1, "changed");
    CU_ASSERT_TRUE(tree_changed(t));
    CU_ASSERT_TRUE(tree_changed(again));
    tree_close(again);
    tree_close(t);
    drop_place(&p);
}

/* ---- rights that change while a tree is open ---- */

/* They are looked at again after a second, as long as the file exists. */
static void test_rights(void)
{
    struct place p = new_place();
    CU_ASSERT_EQUAL(chmod(p.model, 0644), 0);
    struct tree *t = image_tree(p.model, &plain);
    const struct tree_image m = {.t = t};
    CU_ASSERT_EQUAL(image_stat(&m, "metadata/a.b").st_mode & 0777, 0644);
    CU_ASSERT_EQUAL(chmod(p.model, 0600), 0);
    later += 2;
    CU_ASSERT_EQUAL(image_stat(&m, "metadata/a.b").st_mode & 0777, 0600);
    CU_ASSERT_EQUAL(image_stat(&m, "metadata").st_mode & 0777, 0700);
    CU_ASSERT_EQUAL(image_stat(&m, "tensors").st_mode & 0777, 0500);
    CU_ASSERT_EQUAL(chmod(p.model, 0644), 0);
    CU_ASSERT_EQUAL(unlink(p.model), 0);
    later += 2;
    CU_ASSERT_EQUAL(image_stat(&m, "metadata/a.b").st_mode & 0777, 0600);
    tree_close(t);
    drop_place(&p);
}

/* ---- nodes of views ---- */

/* A view keeps its node when the tensor is edited, and moves its times. */
static void test_replaced(void)
{
    struct tree_entry e;
    struct place p = new_place();
    struct tree_options o = plain;
    o.tensors = true;
    struct tree *t = image_tree(p.model, &o);
    const struct tree_image m = {.t = t};
    const uint64_t raw = image_node(&m, "tensors/t/raw");
    const struct timespec before = image_stat(&m, "tensors/t/raw").st_mtim;
    CU_ASSERT_EQUAL(viewfile_put(t, "t", "raw", "01234567890123456789", 20), 0);
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/t/raw"), raw);
    CU_ASSERT_EQUAL(tree_getattr(t, raw, NULL, &e), 0);
    CU_ASSERT_TRUE(e.node == raw && e.attr.st_size == 20);
    CU_ASSERT_TRUE(e.attr.st_mtim.tv_sec != before.tv_sec ||
                   e.attr.st_mtim.tv_nsec != before.tv_nsec);
    CU_ASSERT_EQUAL(tree_getattr(t, ino_tensor_file(99, 0), NULL, &e), -ENOENT);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

/* ---- results ---- */

static void test_stop(void)
{
    char bytes[10];
    struct place p = new_place();
    struct tree *t = image_tree(p.model, &plain);
    const struct tree_image m = {.t = t};
    tree_interrupt(t, &p);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/t/stats", 0, 10, bytes), 10);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/t/stats", 1 << 20, 10, bytes), 0);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2", 1), 0);
    tree_interrupt(t, &p);
    tree_stop(t);
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/t/stats", 0, 10, bytes), -EINTR);
    CU_ASSERT_EQUAL(image_bytes(&m, "hashes", 0, 10, bytes), -EINTR);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

static CU_TestInfo tests[] = {
    {"the reason why a model cannot be edited is reported", test_reasons},
    {"a model whose name is a hash is edited only with hashnames=edit", test_hash_name},
    {"a model whose directory cannot be written or read is not edited", test_folder},
    {"leftovers of a crash are removed", test_leftovers},
    {"a process that ends releases its lock", test_waits},
    {"the history is shown, cleared and used by undo", test_history},
    {"nothing is undone after edits that cannot be written", test_undo_unsaved},
    {"an undo reports why there is no history", test_no_history},
    {"a backup is listed", test_backups},
    {"every file of a split model counts for its identity", test_split},
    {"rights are at most a second old", test_rights},
    {"a view keeps its node", test_replaced},
    {"a tree that is ending computes nothing", test_stop},
    CU_TEST_INFO_NULL,
};

CU_MAIN("begin", tests)
