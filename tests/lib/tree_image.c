/* SPDX-License-Identifier: MIT */
/* Opens images as trees: see tree_image.h. */
#include "tree_image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

/* ---- waits ---- */

static void answer(struct live_wait *w, int result)
{
    struct tree_wait *me = (struct tree_wait *)w;
    me->result = result;
    (void)sem_post(&me->answered);
}

struct live_wait *tree_wait(struct tree_wait *w)
{
    *w = (struct tree_wait){.wait = {.done = answer, .request = w}};
    (void)sem_init(&w->answered, 0, 0);
    return &w->wait;
}

int tree_waited(struct tree_wait *w, int r)
{
    if (r == LIVE_PARKED) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += WAIT_MOST;
        if (sem_timedwait(&w->answered, &until) < 0) {
            (void)puts("\na call waits for what comes after it");
            abort();
        }
        r = w->result;
    }
    (void)sem_destroy(&w->answered);
    return r;
}

/* ---- images ---- */

/* Make a file with these bytes, and store its name in path. */
static int make_file(const void *bytes, size_t n, char path[64])
{
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(path, 64, "%s/ggufs-test-XXXXXX", where);
    int fd = mkstemp(path);
    if (fd < 0 || fchmod(fd, IMAGE_MODE) < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    return fd;
}

int image_try(const void *bytes, size_t n, const struct tree_options *o, struct tree_image *m,
              struct err *e)
{
    char path[64];
    struct tree *t = NULL;
    int fd = make_file(bytes, n, path);
    int r = tree_open(path, o, &t, e);
    (void)unlink(path);
    if (r < 0) {
        CU_ASSERT_PTR_NULL(t);
        (void)close(fd);
        return r;
    }
    *m = (struct tree_image){.t = t, .size = n, .fd = fd};
    return 0;
}

struct tree_image image_open(struct build *b, const struct tree_options *o)
{
    struct tree_image m = {0};
    struct err e = {0};
    size_t n;
    uint8_t *image = build_finish(b, &n);
    if (image_try(image, n, o, &m, &e) < 0)
        (void)puts(e.msg);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m.t);
    m.image = image;
    return m;
}

void image_close(struct tree_image *m)
{
    tree_close(m->t);
    (void)close(m->fd);
    free(m->image);
    *m = (struct tree_image){.fd = -1};
}

struct tree *image_tree(const char *path, const struct tree_options *o)
{
    struct tree *t = NULL;
    struct err e = {0};
    int r = tree_open(path, o, &t, &e);
    if (r < 0)
        (void)puts(e.msg);
    CU_ASSERT_EQUAL_FATAL(r, 0);
    return t;
}

uint64_t image_node(const struct tree_image *m, const char *path)
{
    uint64_t node = INO_ROOT;
    char name[TREE_NAME_MAX + 1];
    while (*path && node) {
        size_t n = strcspn(path, "/");
        struct tree_entry e;
        if (n > TREE_NAME_MAX)
            abort();
        memcpy(name, path, n);
        name[n] = '\0';
        node = tree_lookup(m->t, node, name, &e) == 0 ? e.node : 0;
        path += n + (path[n] == '/');
    }
    return node;
}

struct stat image_stat(const struct tree_image *m, const char *path)
{
    struct tree_entry e = {0};
    int r = tree_getattr(m->t, image_node(m, path), NULL, &e);
    if (r == -ESTALE) /* like the kernel, look the name up again */
        r = tree_getattr(m->t, image_node(m, path), NULL, &e);
    CU_ASSERT_EQUAL(r, 0);
    return e.attr;
}

static ssize_t take(const struct reply *r, size_t most, void *dst)
{
    if (r->len > most)
        abort();
    if (r->len)
        memcpy(dst, r->bytes, r->len);
    return (ssize_t)r->len;
}

/* Read, and repeat the read whenever a result had to be computed first. */
static int read_computed(struct tree_file *f, uint64_t off, size_t n, struct reply *reply)
{
    struct tree_wait w;
    int got = LIVE_PARKED, r;
    do {
        reply->wait = tree_wait(&w);
        got = tree_read(f, off, n, reply);
        r = tree_waited(&w, got);
    } while (got == LIVE_PARKED && r == 0);
    return r;
}

ssize_t image_bytes(const struct tree_image *m, const char *path, uint64_t off, size_t n, void *dst)
{
    struct tree_file *f = NULL;
    struct reply r = {.scratch = malloc(n)};
    ssize_t got = -ESTALE;
    for (int tries = 0; got == -ESTALE && tries < 2;
         tries++) { /* like the kernel, look the name up again */
        uint64_t node = image_node(m, path);
        got = node ? tree_open_file(m->t, node, O_RDONLY, &f) : -ENOENT;
    }
    if (got == 0)
        got = read_computed(f, off, n, &r);
    if (got == 0)
        got = take(&r, n, dst);
    tree_reply_done(&r);
    tree_release(f);
    free(r.scratch);
    return got;
}

int image_readdir(const struct tree_image *m, uint64_t dir, uint64_t *cookie, bool attrs,
                  char name[TREE_NAME_MAX + 1], struct tree_entry *e)
{
    struct tree_dir *d = NULL;
    int r = tree_opendir(m->t, dir, &d);
    if (r == 0) {
        r = tree_readdir(m->t, d, cookie, attrs, name, e);
        tree_closedir(d);
    }
    return r;
}

char *image_list(const struct tree_image *m, const char *path)
{
    struct buf out = BUF_INIT;
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    uint64_t node = image_node(m, path), cookie = 0;
    int r;
    while ((r = image_readdir(m, node, &cookie, false, name, &e)) > 0)
        if (cookie > 2)
            buf_printf(&out, "%s\n", name);
    CU_ASSERT_EQUAL(r, 0);
    buf_char(&out, '\0');
    return (char *)buf_steal(&out);
}

char *image_text(const struct tree_image *m, const char *path, size_t *n)
{
    size_t size = (size_t)image_stat(m, path).st_size;
    char *text = malloc(size + 2);
    if (!text)
        abort();
    /* Read one byte more than the size: the file must end there. */
    CU_ASSERT_EQUAL(image_bytes(m, path, 0, size + 1, text), (ssize_t)size);
    text[size] = '\0';
    *n = size;
    return text;
}

void image_shows(const struct tree_image *m, const char *path, const char *want)
{
    size_t n;
    char *text = image_text(m, path, &n);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

/* ---- edits ---- */

int do_write(struct tree *t, const char *name, const void *text, size_t n)
{
    struct tree_file *f = NULL;
    struct tree_entry e = {.node = 0};
    struct tree_wait w;
    int r = tree_lookup(t, ino_row(0), name, &e);
    if (r == 0)
        r = tree_open_file(t, e.node, O_WRONLY | O_TRUNC, &f);
    else if (r == -ENOENT)
        r = tree_create(t, ino_row(0), name, O_WRONLY | O_TRUNC | O_CREAT, &e, &f);
    if (r == 0 && n)
        r = tree_write(f, 0, text, n, NULL);
    if (f) { /* the kernel flushes and releases even after a failed write */
        int flushed = tree_waited(&w, tree_flush(f, tree_wait(&w)));
        tree_release(f);
        r = r ? r : flushed;
    }
    if (e.node)
        tree_forget(t, e.node, 1);
    return r;
}

int do_unlink(struct tree *t, const char *name)
{
    return tree_unlink(t, ino_row(0), name);
}

int do_rename(struct tree *t, const char *from, const char *to)
{
    struct tree_wait w;
    return tree_waited(&w, tree_rename(t, ino_row(0), from, ino_row(0), to, 0, tree_wait(&w)));
}

int do_retype(struct tree *t, const char *name, const char *type)
{
    struct tree_wait w;
    struct tree_entry e;
    int r = tree_lookup(t, ino_row(0), name, &e);
    if (r < 0)
        return r;
    r = tree_waited(&w,
                    tree_setxattr(t, e.node, "user.gguf.type", type, strlen(type), tree_wait(&w)));
    tree_forget(t, e.node, 1);
    return r;
}

int do_sync(struct tree *t)
{
    struct tree_wait w;
    return tree_waited(&w, tree_fsyncdir(t, tree_wait(&w)));
}
