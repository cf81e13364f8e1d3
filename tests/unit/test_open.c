/* SPDX-License-Identifier: MIT */
/* Opening a model and beginning to edit it: the reasons why it cannot be edited, the lock, what
 * other programs change meanwhile, and models that no edit could have made. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "build_gguf.h"
#include "model_dir.h"
#include "tree/history.h"
#include "tree_image.h"

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

static char logged[4096];

static void take_line(int priority, const char *line)
{
    size_t at = strlen(logged);
    (void)priority;
    (void)snprintf(logged + at, sizeof(logged) - at, "%s\n", line);
}

static const struct tree_options plain = {
    .strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE, .log = {.line = take_line}};
static const struct tree_options late = {.strategy = EDIT_COPY,
                                         .commit = LIVE_COMMIT_CLOSE,
                                         .late = true,
                                         .log = {.line = take_line, .label = "shelf/a"}};

static void build_model(struct build *b, const char *name)
{
    *b = build_of(3, false);
    build_str(b, "general.architecture", "test");
    build_str(b, "general.name", name);
    build_text(b, "a.b:u32=1|>t F32 5");
}

static struct place new_place(void)
{
    struct build b;
    build_model(&b, "one");
    logged[0] = '\0';
    return place_of(&b);
}

static void end(struct tree *t)
{
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
}

/* ---- why a model cannot be edited ---- */

static void opens_at(const char *path, const struct tree_options *o, const char *why)
{
    struct tree *t = image_tree(path, o);
    CU_ASSERT_EQUAL(tree_writable(t), !why);
    CU_SAYS(!why || strstr(tree_why_not(t), why), "%s", tree_why_not(t));
    CU_ASSERT_STRING_EQUAL(tree_path(t), path);
    end(t);
}

static void opens(const struct place *p, const struct tree_options *o, const char *why)
{
    opens_at(p->model, o, why);
}

#define HASH "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

TEST("the reason why a model cannot be edited is reported")
{
    struct place p = new_place(), old;
    char path[200];
    for (int i = 0; i < 2; i++) {
        struct tree_options o = i ? late : plain;
        opens(&p, &o, NULL);
        o.read_only = true;
        opens(&p, &o, "requested by -o ro");
        o.why = "for a reason";
        opens(&p, &o, "for a reason");
        o.read_only = false;
        o.partial = true;
        opens(&p, &o, "-o partial");
    }
    struct build b = build_of(1, false);
    old = place_of(&b);
    opens(&old, &plain, "version 1");
    drop_place(&old);
    struct tree_options o = plain;
    CU_ASSERT_EQUAL(renameat(p.dir, NAME, p.dir, HASH), 0);
    (void)snprintf(path, sizeof(path), "%s/" HASH, p.folder);
    opens_at(path, &o, "hashnames=edit");
    o.edit_hash_names = true;
    opens_at(path, &o, NULL);
    drop_place(&p);
}

/* Runs as a user other than root, because root may write anywhere. */
TEST("a model whose directory cannot be written or read is not edited")
{
    const uid_t was = geteuid();
    if (was == 0)
        CU_ASSERT_EQUAL_FATAL(seteuid(65534), 0);
    struct place p = new_place();
    for (int i = 0; i < 2; i++) {
        const struct tree_options *o = i ? &late : &plain;
        CU_ASSERT_EQUAL(chmod(p.folder, 0555), 0);
        opens(&p, o, "its directory is not writable");
        CU_ASSERT_EQUAL(chmod(p.folder, 0333), 0);
        opens(&p, o, "its directory is not readable");
        CU_ASSERT_EQUAL(chmod(p.folder, 0755), 0);
        CU_ASSERT_EQUAL(chmod(p.model, 0444), 0);
        opens(&p, o, "Permission denied");
        struct tree *t = image_tree(p.model, o);
        CU_ASSERT_EQUAL(tree_history_clear(t, NULL), -EACCES);
        tree_close(t);
        CU_ASSERT_EQUAL(chmod(p.model, 0644), 0);
    }
    drop_place(&p);
    CU_ASSERT_EQUAL_FATAL(seteuid(was), 0);
}

/* What a crash left is removed; a model with a journal is neither opened nor touched. */
/* Put the journal of an edit beside the model whose writer was killed before it began to write. */
static void interrupt(const struct place *p)
{
    struct build b;
    struct edit_file f;
    struct content new;
    build_model(&b, "two");
    new.bytes = build_finish(&b, &new.n);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, &sys_libc, p->dir, NAME, true, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(put_journal(&f, new.bytes, new.n), 0);
    edit_file_close(&f);
    free(new.bytes);
}

TEST("leftovers of a crash are removed; a half written model is not opened")
{
    CLEANUP(drop_place) struct place p = new_place();
    struct tree *t = NULL;
    struct err e = {0};
    opens(&p, &plain, NULL);
    CU_ASSERT_STRING_EQUAL(logged, "");
    put_file(p.dir, "." NAME ".ggufs-abcdef", "x", 1);
    opens(&p, &plain, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "files left by an interrupted edit were removed"));
    CU_ASSERT_EQUAL(files_in(p.dir), 1);
    struct content old;
    old.bytes = get_file(p.dir, NAME, &old.n);
    interrupt(&p);
    CU_ASSERT_EQUAL(tree_open(p.model, &late, &t, &e), -EUCLEAN);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "--recover"));
    CU_ASSERT_TRUE(file_has(p.dir, NAME, old.bytes, old.n) && files_in(p.dir) == 2);
    free(old.bytes);
}

/* ---- the lock ---- */

static struct tree *holder;
static int asked, gives; /* gives: the request on which the holder releases the lock; 0: never */

static void drop_holder(void)
{
    if (holder)
        end(holder);
    holder = NULL;
}

static bool on_wait(void *arg, int dir, const char *name, struct err *why)
{
    CU_ASSERT_PTR_EQUAL(arg, &asked);
    CU_ASSERT_TRUE(dir >= 0 && strcmp(name, NAME) == 0);
    if (++asked != gives) {
        (void)err_set(why, -EWOULDBLOCK, "it is kept");
        return gives > 0;
    }
    drop_holder();
    return true;
}

TEST("a process that ends releases its lock")
{
    CLEANUP(drop_place) struct place p = new_place();
    struct tree_options o = plain;
    o.wait = on_wait;
    o.wait_arg = &asked;
    for (gives = 0; gives < 3; gives++) {
        holder = image_tree(p.model, &plain);
        asked = 0;
        opens(&p, &o, gives ? NULL : "it is kept");
        CU_ASSERT_EQUAL(asked, gives ? gives : 1);
        drop_holder();
    }
    o.read_only = true; /* needs no lock */
    opens(&p, &o, "requested by");
    CU_ASSERT_EQUAL(asked, 2);
}

static bool locked(const struct place *p)
{
    struct tree *t = image_tree(p->model, &plain);
    bool is = !tree_writable(t);
    tree_close(t);
    return is;
}

/* Check that user.gguf.error of a.b contains these words. */
static void error_has(struct tree *t, const char *words)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    const struct tree_image m = {.t = t};
    int r = tree_getxattr(t, image_node(&m, "metadata/a.b"), "user.gguf.error", &out);
    buf_char(&out, '\0');
    CU_ASSERT_EQUAL(r, words ? 0 : -ENODATA);
    CU_ASSERT_TRUE(!words || strstr(buf_text(&out), words));
}

/* The first edit takes the lock; while another process holds it, edits are refused. */
TEST("the first edit takes the lock, unless another process holds it")
{
    CLEANUP(drop_place) struct place p = new_place();
    struct tree *t = image_tree(p.model, &late), *other = image_tree(p.model, &plain);
    const struct tree_image m = {.t = t};
    uint64_t node = image_node(&m, "metadata/a.b");
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), -EBUSY);
    error_has(t, "another process");
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "shelf/a: cannot be edited: another process"));
    image_shows(&(struct tree_image){.t = t}, "metadata/a.b", "1\n");
    tree_close(other);
    CU_ASSERT_FALSE(locked(&p));
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_EQUAL(do_retype(t, "a.b", "u32"), 0); /* the type that it has */
    CU_ASSERT_FALSE(locked(&p));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    CU_ASSERT_TRUE(locked(&p));
    error_has(t, NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "shelf/a: metadata/a.b: changed"));
    CU_ASSERT_EQUAL(image_node(&m, "metadata/a.b"), node);
    image_shows(&(struct tree_image){.t = t}, "metadata/a.b", "2\n");
    end(t);
    CU_ASSERT_FALSE(locked(&p));
}

/* If another file has replaced the model since it was opened, the new file is not edited, and its
 * lock is neither taken nor waited for. */
TEST("a model that was replaced is not edited")
{
    CLEANUP(drop_place) struct place p = new_place();
    struct tree *t = image_tree(p.model, &late), *other = image_tree(p.model, &plain);
    CU_ASSERT_EQUAL(do_write(other, "a.b", "3\n", 2), 0);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), -ESTALE);
    end(other);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), -ESTALE);
    error_has(t, "changed outside the mount");
    CU_ASSERT_FALSE(locked(&p));
    image_shows(&(struct tree_image){.t = t}, "metadata/a.b", "1\n");
    tree_close(t);
}

/* Another process was killed while it edited the model that is open here: its edit is not lost. */
TEST("an edit that is finished at the first edit is built on by a tree opened anew")
{
    CLEANUP(drop_place) struct place p = new_place();
    struct tree *t = image_tree(p.model, &late);
    interrupt(&p);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), -ESTALE);
        CU_ASSERT_TRUE(tree_changed(t));
        CU_ASSERT_FALSE(locked(&p));
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "an interrupted edit was finished"));
    tree_close(t);
    t = image_tree(p.model, &late);
    CU_ASSERT_FALSE(tree_changed(t));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    image_shows(&(struct tree_image){.t = t}, "metadata/general.name", "two\n");
    end(t);
}

/* ---- idleness, and identity ---- */

/* Return true once the tree is idle: an edit is answered before its thread rests. */
static bool gets_idle(struct tree *t)
{
    unsigned tries = 10000;
    while (!tree_idle(t) && --tries)
        (void)usleep(1000);
    return tries;
}

/* A helper does not count. */
TEST("a tree is not idle while a file is open or an edit is pending")
{
    CLEANUP(drop_place) struct place p = new_place();
    struct tree_options o = late;
    struct tree_dir *d = NULL;
    struct tree_file *f = NULL;
    struct tree_entry e;
    o.commit = LIVE_COMMIT_SYNC;
    o.tensors = true;
    struct tree *t = image_tree(p.model, &o);
    const struct tree_image m = {.t = t};
    CU_ASSERT_TRUE(gets_idle(t));
    CU_ASSERT_EQUAL(tree_open_file(t, image_node(&m, "metadata/a.b"), O_RDONLY, &f), 0);
    CU_ASSERT_FALSE(tree_idle(t));
    tree_release(f);
    CU_ASSERT_EQUAL(tree_opendir(t, INO_ROOT, &d), 0);
    CU_ASSERT_FALSE(tree_idle(t));
    tree_closedir(d);
    CU_ASSERT_TRUE(gets_idle(t));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    CU_ASSERT_FALSE(tree_idle(t));
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_TRUE(gets_idle(t));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "x\n", 2), -EINVAL);
    CU_ASSERT_TRUE(gets_idle(t));
    CU_ASSERT_EQUAL(do_write(t, "4913", "text\n", 5), 0);
    CU_ASSERT_TRUE(gets_idle(t));
    CU_ASSERT_EQUAL(tree_mkdir(t, image_node(&m, "tensors"), "made", &e), 0);
    CU_ASSERT_FALSE(tree_idle(t));
    CU_ASSERT_EQUAL(tree_rmdir(t, image_node(&m, "tensors"), "made"), 0);
    CU_ASSERT_TRUE(gets_idle(t));
    end(t);
}

static void put_shard(const struct place *p, unsigned no, const char *extra)
{
    size_t n;
    char name[64];
    struct build b = build_of(3, false);
    build_num(&b, "split.no", GGUF_U16, no);
    build_text(&b, "split.count:u16=2|split.tensors.count:i32=1");
    build_str(&b, "a.b", extra);
    if (no == 0)
        build_tensor(&b, "t", F32, SHAPE(5), NULL, 20);
    CLEANUP(free_it) uint8_t *bytes = build_finish(&b, &n);
    (void)snprintf(name, sizeof(name), "m-%05u-of-00002.gguf", no + 1);
    put_file(p->dir, name, bytes, n);
}

/* A tree of the same files gives nodes the same numbers; every file counts. */
TEST("a reopened tree has the numbers of its predecessor; every file counts")
{
    char path[128];
    CLEANUP(drop_place) struct place p = new_place();
    put_shard(&p, 0, "1");
    put_shard(&p, 1, "");
    (void)snprintf(path, sizeof(path), "%s/m-00001-of-00002.gguf", p.folder);
    struct tree *t = image_tree(path, &late), *again = image_tree(path, &late);
    const struct tree_image m = {.t = t}, n = {.t = again};
    (void)image_node(&m, "tensors/t/f32");
    CU_ASSERT_EQUAL(tree_identity(t), tree_identity(again));
    CU_ASSERT_EQUAL(image_node(&m, "metadata/a.b"), image_node(&n, "metadata/a.b"));
    CU_ASSERT_EQUAL(image_node(&m, "tensors/t/f32"), image_node(&n, "tensors/t/f32"));
    CU_ASSERT_EQUAL(image_node(&m, "model.gguf"), image_node(&n, "model.gguf"));
    tree_close(again);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2", 1), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    again = image_tree(path, &late);
    CU_ASSERT_NOT_EQUAL(tree_identity(t), tree_identity(again));
    CU_ASSERT_FALSE(tree_changed(t) || tree_changed(again));
    put_shard(&p, 1, "changed");
    CU_ASSERT_TRUE(tree_changed(t) && tree_changed(again));
    tree_close(again);
    tree_close(t);
}

/* ---- while a tree is open ---- */

/* Rights are looked at again after a second, as long as the file exists. */
TEST("rights are at most a second old")
{
    CLEANUP(drop_place) struct place p = new_place();
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
}

/* ---- models that no edit could have made ---- */

/* Make a model with unusual values and this alignment. */
static struct place odd_place(uint32_t alignment, bool big)
{
    struct build b = build_of(3, big);
    b.alignment = alignment;
    build_str(&b, "general.architecture", "test");
    build_u32(&b, "general.alignment", alignment);
    build_text(&b, "odd.bool:bool=7|odd.f32:f32=0x7fc01234|odd.f64:f64=0xfff0000000000001|"
                   "odd.text=\xff\xfe\n\n|odd.bools:array=bool[2,1]|odd.texts:array=string[\x80,]|"
                   ">a F32 5");
    return place_of(&b);
}

/* In a model with the key `some.key\0x`, `some.key` cannot be made; no other edit fails. While the
 * alignment exceeds 1 MiB, every other edit is refused. */
TEST("keys that are equal up to a NUL and large alignments are refused alone")
{
    struct tree_options o = plain;
    o.commit = LIVE_COMMIT_SYNC;
    struct build b = build_of(3, false);
    build_raw(&b, "some.key\0x", 10, GGUF_U32, "abcd", 4);
    build_text(&b, "other.key:u32=1|>a F32 5");
    struct place p = place_of(&b);
    struct tree *t = image_tree(p.model, &o);
    const struct tree_image m = {.t = t};
    CU_ASSERT_EQUAL(do_write(t, "other.key", "2\n", 2), 0);
    CU_ASSERT_EQUAL(do_write(t, "some.key:u32", "3\n", 2), -EINVAL);
    CU_ASSERT_EQUAL(do_rename(t, "other.key", "some.key"), -EINVAL);
    CU_ASSERT_EQUAL(do_write(t, "new.key", "4\n", 2), 0);
    CU_ASSERT_EQUAL(do_sync(t), 0);
    char *names = image_list(&m, "metadata");
    CU_ASSERT_STRING_EQUAL(names, "some.key%00x\nother.key\nnew.key\n");
    free(names);
    end(t);
    drop_place(&p);
    p = odd_place(1U << 21, false);
    t = image_tree(p.model, &o);
    CU_ASSERT_EQUAL(do_write(t, "odd.text", "x\n", 2), -EFBIG);
    CU_ASSERT_EQUAL(do_rename(t, "odd.text", "odd.name"), -EFBIG);
    CU_ASSERT_EQUAL(do_write(t, "general.alignment", "64\n", 3), 0);
    CU_ASSERT_EQUAL(do_write(t, "odd.text", "x\n", 2), 0);
    CU_ASSERT_EQUAL(do_sync(t), 0);
    end(t);
    drop_place(&p);
}

/* A parser counts the zeros before the next tensor as part of it. */
TEST("a tensor of unknown type does not grow when its padding does")
{
    struct tree_options o = plain;
    o.commit = LIVE_COMMIT_SYNC;
    struct build b = build_of(3, false);
    build_tensor(&b, "u", 9999, (uint64_t[]){8}, 1, "0123456789abcdef0123456789abcdef", 32);
    build_text(&b, ">f F32 16");
    CLEANUP(drop_place) struct place p = place_of(&b);
    struct tree_image m = {.t = image_tree(p.model, &o)};
    CU_ASSERT_EQUAL(do_write(m.t, "general.alignment", "4096\n", 5), 0);
    size_t n, on_disk;
    CLEANUP(free_it) char *whole = image_text(&m, "model.gguf", &n);
    for (int i = 0; i < 2; i++) {
        image_shows(&m, "tensors/u/raw", "0123456789abcdef0123456789abcdef");
        CU_ASSERT_EQUAL(do_sync(m.t), 0);
    }
    CLEANUP(free_it) uint8_t *file = get_file(p.dir, NAME, &on_disk);
    CU_ASSERT_TRUE(on_disk == n && n > 8192 && memcmp(file, whole, n) == 0);
    end(m.t);
}
