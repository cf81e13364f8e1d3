/* SPDX-License-Identifier: MIT */
/* Drafts of tensor views: a write that a close reported as failed is not accepted later; texts as
 * their writers see them; interrupted writes. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "faultsys.h"
#include "model_dir.h"
#include "place.h"
#include "quant/types.h"
#include "tree/nodes.h"
#include "tree_image.h"
#include "viewfile.h"

enum { BYTES = 40000, VALUES = 4096 };

/* A tree whose system calls go through fs, with tensors "b" (I8) and "q" (F16, all zeros). */
struct room {
    struct place p;
    struct faultsys fs;
    struct tree *t;
};

static void begin(struct room *x, enum live_commit commit)
{
    const struct tree_options o = {
        .tensors = true, .strategy = EDIT_COPY, .reserve = EDIT_RESERVE_AUTO, .commit = commit};
    static const uint8_t zeros[2 * VALUES];
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_tensor(&b, "b", I8, SHAPE(BYTES), NULL, BYTES);
    build_tensor(&b, "q", F16_ID, SHAPE(VALUES / 2, 2), zeros, sizeof(zeros));
    c.bytes = build_finish(&b, &c.n);
    make_place(&x->p, &c);
    free(c.bytes);
    x->t = image_tree(x->p.model, &o);
    faultsys_init(&x->fs, FAULT_NONE, 0, 0);
    x->t->model.file.sys = &x->fs.sys;
}

static void end(struct room *x)
{
    CU_ASSERT_EQUAL(tree_finish(x->t), 0);
    tree_close(x->t);
    CU_ASSERT_EQUAL(files_in(&x->p), 1);
    drop_place(&x->p);
}

static void arm(struct room *x, enum fault_mode mode, unsigned n, int error)
{
    faultsys_init(&x->fs, mode, n, error);
}

static void disarm(struct room *x)
{
    arm(x, FAULT_NONE, 0, 0);
}

/* Return the content that a program sees if it opens the view now. */
static char *text_of(struct room *x, const char *path, size_t *n)
{
    const struct tree_image m = {.t = x->t};
    return image_text(&m, path, n);
}

/* Return the byte at `off` of b/raw. */
static uint8_t byte_at(struct room *x, size_t off)
{
    size_t n;
    char *text = text_of(x, "tensors/b/raw", &n);
    CU_ASSERT_EQUAL(n, BYTES);
    uint8_t ret = (uint8_t)text[off];
    free(text);
    return ret;
}

static void content_is(struct room *x, const char *path, const char *want)
{
    size_t n;
    char *text = text_of(x, path, &n);
    if (strcmp(text, want) != 0)
        (void)printf("\n%s: %s", path, text);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

/* Return the size of a view of q. */
static uint64_t size_of(struct room *x, const char *view)
{
    struct viewfile v;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "q", view, O_RDONLY, &v), 0);
    const uint64_t size = viewfile_size(&v);
    viewfile_release(&v);
    return size;
}

/* Return whether a tensor's directory has user.gguf.error. */
static bool has_error(struct room *x, const char *path)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    const struct tree_image m = {.t = x->t};
    return tree_getxattr(x->t, image_node(&m, path), "user.gguf.error", &out) == 0;
}

/* ---- a judgement that fails ---- */

/* Change a byte of b through its value, because the judge makes system calls to encode values. */
static void poke(struct viewfile *v, uint64_t at, uint8_t byte)
{
    const float value = (float)(int8_t)byte;
    uint8_t bytes[4];
    uint32_t bits;
    memcpy(&bits, &value, 4);
    put_u32(bytes, bits, false);
    CU_ASSERT_EQUAL(viewfile_pwrite(v, 4 * at, bytes, 4), 0);
}

/* Return the same byte from an open file of b/f32. */
static uint8_t value_at(struct viewfile *v, uint64_t at)
{
    uint8_t bytes[4];
    float value;
    CU_ASSERT_EQUAL(viewfile_pread(v, 4 * at, bytes, 4), 0);
    const uint32_t bits = get_u32(bytes, false);
    memcpy(&value, &bits, 4);
    return (uint8_t)(int8_t)value;
}

/* Change byte 5 through b/f32, let a close fail, and return the view, which is still open. *old:
 * the original byte. */
static struct viewfile failed_close(struct room *x, uint8_t *old)
{
    struct viewfile v;
    *old = byte_at(x, 5);
    const uint8_t new = (uint8_t)(*old + 1);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "f32", O_RDWR, &v), 0);
    poke(&v, 5, new);
    arm(x, FAULT_BROKEN, 1, -EIO);
    CU_ASSERT_EQUAL(viewfile_flush(&v), -EIO);
    disarm(x);
    CU_ASSERT_EQUAL(byte_at(x, 5), *old);
    CU_ASSERT_TRUE(has_error(x, "tensors/b"));
    return v;
}

/* Check that the write had no effect, and that the next edit succeeds. */
static void check_not_accepted(struct room *x, uint8_t old)
{
    struct viewfile v;
    CU_ASSERT_EQUAL(byte_at(x, 5), old);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 9, "x", 1), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL(byte_at(x, 5), old);
    CU_ASSERT_EQUAL(byte_at(x, 9), 'x');
    CU_ASSERT_FALSE(has_error(x, "tensors/b"));
}

/* Each system call of a close fails once. A write that the close reported as failed is not accepted
 * by the release. */
static void test_release(void)
{
    static const int errors[] = {-EIO, -ENOSPC, -ENOMEM};
    bool hit = true;
    for (unsigned n = 1; hit; n++) {
        struct room x;
        struct viewfile v;
        begin(&x, LIVE_COMMIT_CLOSE);
        uint8_t old = byte_at(&x, 5), new = (uint8_t)(old + 1);
        CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDWR, &v), 0);
        CU_ASSERT_EQUAL(viewfile_pwrite(&v, 5, &new, 1), 0);
        arm(&x, FAULT_FAIL, n, errors[n % 3]);
        int r = viewfile_flush(&v);
        hit = x.fs.hit;
        disarm(&x);
        CU_ASSERT_TRUE(r == 0 || (hit && r == errors[n % 3]));
        CU_ASSERT_EQUAL(byte_at(&x, 5), r == 0 ? new : old);
        viewfile_release(&v);
        CU_ASSERT_EQUAL(byte_at(&x, 5), r == 0 ? new : old);
        CU_ASSERT_EQUAL(has_error(&x, "tensors/b"), r < 0);
        if (r < 0)
            check_not_accepted(&x, old);
        end(&x);
    }
}

static void test_again(void)
{
    for (int sync = 0; sync < 2; sync++) {
        struct room x;
        uint8_t old;
        begin(&x, LIVE_COMMIT_CLOSE);
        struct viewfile v = failed_close(&x, &old);
        arm(&x, FAULT_BROKEN, 1, -ENOSPC);
        CU_ASSERT_EQUAL(sync ? viewfile_sync(&v) : viewfile_flush(&v), -ENOSPC);
        disarm(&x);
        CU_ASSERT_EQUAL(byte_at(&x, 5), old);
        CU_ASSERT_EQUAL(sync ? viewfile_sync(&v) : viewfile_flush(&v), 0);
        CU_ASSERT_EQUAL(byte_at(&x, 5), (uint8_t)(old + 1));
        viewfile_release(&v);
        CU_ASSERT_EQUAL(byte_at(&x, 5), (uint8_t)(old + 1));
        CU_ASSERT_FALSE(has_error(&x, "tensors/b"));
        end(&x);
    }
}

/* If bytes are written after a failed close, as through a mapping, the release judges the whole
 * draft. */
static void test_written_on(void)
{
    struct room x;
    uint8_t old;
    begin(&x, LIVE_COMMIT_CLOSE);
    struct viewfile v = failed_close(&x, &old);
    poke(&v, 6, 'y');
    viewfile_release(&v);
    CU_ASSERT_EQUAL(byte_at(&x, 5), (uint8_t)(old + 1));
    CU_ASSERT_EQUAL(byte_at(&x, 6), 'y');
    end(&x);
}

/* If two programs write to a view and one of them closes it, the close judges the writes of
 * both. */
static void test_two_writers(void)
{
    for (int closes = 0; closes < 2; closes++) {
        struct room x;
        uint8_t old;
        struct viewfile other;
        begin(&x, LIVE_COMMIT_CLOSE);
        struct viewfile v = failed_close(&x, &old);
        CU_ASSERT_EQUAL_FATAL(viewfile_open_again(&v, O_RDWR, &other), 0);
        viewfile_release(&v);
        CU_ASSERT_EQUAL(byte_at(&x, 5), old);
        if (closes)
            CU_ASSERT_EQUAL(viewfile_flush(&other), 0);
        viewfile_release(&other);
        CU_ASSERT_EQUAL(byte_at(&x, 5), (uint8_t)(old + (closes ? 1 : 0)));
        if (!closes)
            check_not_accepted(&x, old);
        end(&x);
    }
}

/* A program that has kept the view open sees the model's content. Later writers get a new draft. */
static void test_reader_stays(void)
{
    struct room x;
    uint8_t old;
    struct viewfile reader, late;
    begin(&x, LIVE_COMMIT_CLOSE);
    struct viewfile v = failed_close(&x, &old);
    CU_ASSERT_EQUAL_FATAL(viewfile_open_again(&v, O_RDONLY, &reader), 0);
    viewfile_release(&v);
    check_not_accepted(&x, old);
    CU_ASSERT_EQUAL(value_at(&reader, 5), old);
    CU_ASSERT_EQUAL_FATAL(viewfile_open_again(&reader, O_RDWR, &late), 0);
    CU_ASSERT_FALSE(tree_cached_right(late.f));
    poke(&late, 5, (uint8_t)(old + 2));
    CU_ASSERT_EQUAL(value_at(&reader, 5), (uint8_t)(old + 2));
    poke(&late, 5, old);
    viewfile_release(&late);
    viewfile_release(&reader);
    check_not_accepted(&x, old);
    end(&x);
}

/* Content that is too short at the close is dropped, even if a reader keeps the view open. */
static void test_short_reader_stays(void)
{
    struct room x;
    struct viewfile v, reader;
    begin(&x, LIVE_COMMIT_CLOSE);
    uint8_t old = byte_at(&x, 5);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDWR | O_TRUNC, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "123456789", 9), 0);
    CU_ASSERT_EQUAL_FATAL(viewfile_open_again(&v, O_RDONLY, &reader), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), -EINVAL);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDONLY, &v), 0);
    CU_ASSERT_FALSE(tree_cached_right(v.f)); /* the kernel still caches the dropped bytes */
    viewfile_release(&v);
    check_not_accepted(&x, old);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDONLY, &v), 0);
    CU_ASSERT_TRUE(tree_cached_right(v.f));
    viewfile_release(&v);
    viewfile_release(&reader);
    end(&x);
}

/* Writes that were accepted earlier are kept. */
static void test_part_stays(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_CLOSE);
    uint8_t old = byte_at(&x, 5);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 7, "z", 1), 0);
    CU_ASSERT_EQUAL(viewfile_flush(&v), 0);
    CU_ASSERT_EQUAL(byte_at(&x, 7), 'z');
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 5, "z", 1), 0);
    arm(&x, FAULT_BROKEN, 1, -EIO);
    CU_ASSERT_EQUAL(viewfile_flush(&v), -EIO);
    disarm(&x);
    viewfile_release(&v);
    CU_ASSERT_EQUAL(byte_at(&x, 7), 'z');
    check_not_accepted(&x, old);
    end(&x);
}

/* ---- NumPy arrays ---- */

/* Make a header of 128 bytes for an array of 4 rows of 1024 values. */
static void make_header(uint8_t head[128])
{
    static const char text[] = "{'descr':'<f4','fortran_order':False,'shape':(4,1024)}";
    memset(head, ' ', 128);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(head + 10, text, sizeof(text) - 1);
    head[127] = '\n';
}

/* Write like open_memmap(path, 'w+'): the header, a close, and the last byte through another
 * handle. */
static void test_header_first(void)
{
    struct room x;
    struct viewfile v;
    uint8_t head[128], seen[128];
    begin(&x, LIVE_COMMIT_CLOSE);
    make_header(head);
    CU_ASSERT_EQUAL(viewfile_put(x.t, "q", "f32.npy", head, sizeof(head)), 0);
    CU_ASSERT_TRUE(has_error(&x, "tensors/q"));
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "f32.npy", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_size(&v), 128);
    CU_ASSERT_EQUAL(viewfile_pread(&v, 0, seen, 128), 0);
    CU_ASSERT_EQUAL(memcmp(head, seen, 128), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 127 + 4 * 4096, "", 1), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    content_is(&x, "tensors/q/shape", "4 1024\n");
    CU_ASSERT_FALSE(has_error(&x, "tensors/q"));
    end(&x);
}

/* A header alone is not an edit, and does not keep other programs from editing the tensor. */
static void test_header_alone(void)
{
    struct room x;
    uint8_t head[128];
    CLEANUP(buf_free) struct buf lost = BUF_INIT;
    begin(&x, LIVE_COMMIT_CLOSE);
    make_header(head);
    CU_ASSERT_EQUAL(viewfile_put(x.t, "q", "f32.npy", head, sizeof(head)), 0);
    content_is(&x, "tensors/q/shape", "2 2048\n");
    CU_ASSERT_EQUAL(viewfile_put(x.t, "q", "type", "BF16\n", 5), 0);
    CU_ASSERT_EQUAL(viewfile_put(x.t, "q", "f32.npy", head, sizeof(head)), 0);
    CU_ASSERT_EQUAL(tree_finish(x.t), 0);
    tree_unsaved(x.t, &lost);
    buf_char(&lost, '\0');
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)lost.data, "only the header"));
    content_is(&x, "tensors/q/type", "BF16\n");
    tree_close(x.t);
    drop_place(&x.p);
}

/* ---- texts ---- */

/* A text opened without truncation shows its old content, even to its writer. */
static void test_text_shown(void)
{
    struct room x;
    struct viewfile v;
    char text[16] = "";
    begin(&x, LIVE_COMMIT_CLOSE);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "type", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_size(&v), 4);
    CU_ASSERT_EQUAL(viewfile_pread(&v, 0, text, 4), 0);
    CU_ASSERT_EQUAL(memcmp(text, "F16\n", 4), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "shape", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pread(&v, 0, text, 7), 0);
    CU_ASSERT_EQUAL(memcmp(text, "2 2048\n", 7), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    content_is(&x, "tensors/q/type", "F16\n");
    CU_ASSERT_FALSE(has_error(&x, "tensors/q"));
    end(&x);
}

/* A shorter text written over the old one is judged once the rest of the old one is cut off. */
static void test_text_over(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_CLOSE);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "shape", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "4096\n", 5), 0);
    content_is(&x, "tensors/q/shape", "4096\n8\n"); /* as written */
    CU_ASSERT_EQUAL(viewfile_cut(&v, 5), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    content_is(&x, "tensors/q/shape", "4096\n");
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "shape", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "4 1024\n", 7), 0); /* judged at once */
    content_is(&x, "tensors/q/shape", "4 1024\n");
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "shape", O_RDWR, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "4096\n", 5), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), -EINVAL); /* "4096\n4\n" */
    content_is(&x, "tensors/q/shape", "4 1024\n");
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "shape", O_WRONLY | O_TRUNC, &v), 0);
    CU_ASSERT_EQUAL(viewfile_size(&v), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0); /* just truncated */
    content_is(&x, "tensors/q/shape", "4 1024\n");
    end(&x);
}

struct signalled {
    struct room *x;
    const void *request;
};

static void send_signal(void *arg)
{
    const struct signalled *s = arg;
    tree_interrupt(s->x->t, s->request);
}

/* If a signal arrives during a conversion, the write has no effect, and no later close converts the
 * tensor. */
static void test_text_interrupted(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_CLOSE);
    struct signalled s = {&x, &v};
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "type", O_WRONLY | O_TRUNC, &v), 0);
    arm(&x, FAULT_NONE, 0, 0);
    x.fs.before = "pwrite";
    x.fs.skip = 1; /* skips the write of the line itself */
    x.fs.hook = send_signal;
    x.fs.arg = &s;
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "Q8_0\n", 5), -EINTR);
    CU_ASSERT_PTR_NULL(x.fs.before);
    CU_ASSERT_EQUAL(viewfile_flush(&v), 0);
    CU_ASSERT_EQUAL(viewfile_sync(&v), 0);
    CU_ASSERT_EQUAL(size_of(&x, "raw"), 2 * VALUES);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "Q8_0\n", 5), 0); /* the program repeats the write */
    content_is(&x, "tensors/q/type", "Q8_0\n");
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    content_is(&x, "tensors/q/type", "Q8_0\n");
    end(&x);
}

/* ---- during a judgement ---- */

struct others {
    struct room *x;
    struct viewfile v[4];
    struct tree_wait flush, line, helper;
    int result[2];
    bool replaces, looked;
};

static int rename_later(struct tree *t, const char *from, const char *to, struct tree_wait *w)
{
    const struct tree_image m = {.t = t};
    const uint64_t dir = image_node(&m, "tensors/q");
    return tree_rename(t, dir, from, dir, to, 0, tree_wait(w));
}

/* Called while a line is judged: other programs close the view and write to it. Their calls are
 * parked, and a signal ends one of them at once. A rename of a helper over the view takes effect
 * first. */
static void ask_others(void *arg)
{
    struct others *o = arg;
    struct tree *t = o->x->t;
    o->result[0] = tree_flush(o->v[0].f, tree_wait(&o->flush));
    o->result[1] = tree_write(o->v[1].f, 0, "Q4_0\n", 5, tree_wait(&o->line));
    CU_ASSERT_EQUAL(o->result[0], LIVE_PARKED);
    CU_ASSERT_EQUAL(o->result[1], LIVE_PARKED);
    viewfile_release(&o->v[2]);
    content_is(o->x, "tensors/q/shape", "2 2048\n");
    tree_interrupt(t, &o->line);
    CU_ASSERT_EQUAL(tree_waited(&o->line, o->result[1]), -EINTR);
    if (o->replaces)
        CU_ASSERT_EQUAL(tree_waited(&o->helper, rename_later(t, ".helper", "type", &o->helper)), 0);
    o->looked = true;
}

static void ask(bool replaces, const char *type)
{
    static struct others o;
    struct room x;
    struct viewfile v;
    const int r = replaces ? -ESTALE : 0;
    begin(&x, LIVE_COMMIT_CLOSE);
    o = (struct others){.x = &x, .replaces = replaces};
    CU_ASSERT_EQUAL(viewfile_put_with(x.t, "q", ".helper", O_CREAT, "F32\n", 4), 0);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "type", O_WRONLY | O_TRUNC, &v), 0);
    for (size_t i = 0; i < 3; i++)
        CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "type", O_WRONLY, &o.v[i]), 0);
    arm(&x, FAULT_NONE, 0, 0);
    x.fs.before = "pwrite";
    x.fs.skip = 1;
    x.fs.hook = ask_others;
    x.fs.arg = &o;
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "Q8_0\n", 5), r);
    CU_ASSERT_TRUE(o.looked);
    CU_ASSERT_EQUAL(tree_waited(&o.flush, o.result[0]), r);
    CU_ASSERT_EQUAL(viewfile_close(&v), r);
    CU_ASSERT_EQUAL(viewfile_close(&o.v[0]), r);
    CU_ASSERT_EQUAL(viewfile_close(&o.v[1]), r);
    content_is(&x, "tensors/q/type", type); /* the interrupted write had no effect */
    end(&x);
}

static void test_asked(void)
{
    ask(false, "Q8_0\n");
    ask(true, "F32\n");
}

/* The mount ends while requests are parked. All of them are still handled. */
static void leave_others(void *arg)
{
    struct others *o = arg;
    o->result[0] = tree_flush(o->v[0].f, tree_wait(&o->flush));
    o->result[1] = tree_write(o->v[1].f, 0, "Q4_0\n", 5, tree_wait(&o->line));
    tree_abandon(o->x->t);
    for (size_t i = 0; i < 3; i++)
        viewfile_release(&o->v[i]);
    o->looked = true;
}

static void test_asked_at_the_end(void)
{
    static struct others o;
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_SYNC);
    o = (struct others){.x = &x};
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "type", O_WRONLY | O_TRUNC, &v), 0);
    for (size_t i = 0; i < 3; i++)
        CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "q", "type", O_WRONLY, &o.v[i]), 0);
    arm(&x, FAULT_NONE, 0, 0);
    x.fs.before = "pwrite";
    x.fs.skip = 1; /* skips the write of the line itself */
    x.fs.hook = leave_others;
    x.fs.arg = &o;
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "Q8_0\n", 5), 0);
    CU_ASSERT_TRUE(o.looked);
    viewfile_release(&v);
    CU_ASSERT_EQUAL(tree_finish(x.t), 0);
    CU_ASSERT_EQUAL(tree_waited(&o.flush, o.result[0]), 0);
    CU_ASSERT_EQUAL(tree_waited(&o.line, o.result[1]), 0);
    content_is(&x, "tensors/q/type", "Q4_0\n");
    end(&x);
}

/* Thread function that closes a view. Returns NULL on success. */
static void *close_one(void *v)
{
    return viewfile_flush(v) == 0 ? NULL : v;
}

/* Several owners share an open file, as after fork(2). Some close it while another writes. */
static void test_owners_at_a_time(void)
{
    static uint8_t bytes[BYTES], got[BYTES];
    struct room x;
    struct viewfile v;
    pthread_t thread[4];
    void *failed;
    memset(bytes, 5, sizeof(bytes));
    begin(&x, LIVE_COMMIT_CLOSE);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDWR, &v), 0);
    for (size_t i = 0; i < COUNT(thread); i++) {
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, close_one, &v), 0);
        CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, bytes, sizeof(bytes)), 0);
    }
    for (size_t i = 0; i < COUNT(thread); i++) {
        (void)pthread_join(thread[i], &failed);
        CU_ASSERT_PTR_NULL(failed);
    }
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDONLY, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pread(&v, 0, got, sizeof(got)), 0);
    CU_ASSERT_EQUAL(memcmp(got, bytes, sizeof(bytes)), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    end(&x);
}

static CU_TestInfo tests[] = {
    {"other programs close, write and replace a view while it is judged", test_asked},
    {"requests that wait are answered when the mount ends", test_asked_at_the_end},
    {"a write whose close failed is not accepted by the release", test_release},
    {"a later close or fsync judges a failed write again", test_again},
    {"bytes written after a failed close are judged by the release", test_written_on},
    {"a close reports a result for both writers of a view", test_two_writers},
    {"a reader of a draft refused in the end sees the model again", test_reader_stays},
    {"a draft too short in the end is dropped, even if a reader stays", test_short_reader_stays},
    {"parts accepted earlier stay after a refusal", test_part_stays},
    {"a NumPy header is written first, and then the values", test_header_first},
    {"a NumPy header alone is not an edit", test_header_alone},
    {"an open text shows its old content to its writer", test_text_shown},
    {"a text is written over", test_text_over},
    {"a signal interrupts a conversion", test_text_interrupted},
    {"owners of an open file close it while another one writes", test_owners_at_a_time},
    CU_TEST_INFO_NULL,
};

CU_MAIN("views", tests)
