/* SPDX-License-Identifier: MIT */
/* The operations of scripts: see script.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "live/queue.h"
#include "live/views.h"
#include "script_run.h"
#include "tree/history.h"
#include "tree/nodes.h"
#include "tree/tensors.h"
#include "quant/f16.h"

struct script_op *script_ops;

/* Begin an operation with at least, and at most so many arguments; with one, the rest of the line.
 * Not all of them need all of this. */
#define OP(name, least, most) OP_ROW(name, least, most, false)
#define REST(name) OP_ROW(name, 1, 1, true)
#define OP_ROW(name, least, most, rest)                                            \
    static int op_##name(struct run *r, char **arg, struct tree_wait *w);          \
    __attribute__((constructor)) static void add_##name(void)                      \
    {                                                                              \
        static struct script_op row = {#name, op_##name, least, most, rest, NULL}; \
        row.next = script_ops;                                                     \
        script_ops = &row;                                                         \
    }                                                                              \
    static int op_##name(__attribute__((unused)) struct run *r,                    \
                         __attribute__((unused)) char **arg,                       \
                         __attribute__((unused)) struct tree_wait *w)

static uint64_t number(struct run *r, const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (*end || end == text)
        script_fail(r, "%s is not a number", text);
    return n;
}

static void expect(struct run *r, const char *got, const char *want)
{
    if (strcmp(got, want) != 0)
        script_fail(r, "it is\n      %s\n    and not\n      %s", got, want);
}

/* Wait for a part of an operation, after which w can be used again. */
static int wait_here(struct tree_wait *w, int result)
{
    result = tree_waited(w, result);
    (void)tree_wait(w);
    return result;
}

/* ---- paths: in metadata/ or, if they begin with a slash, in tensors/ ---- */

/* Find the directory and the last name of a path; "/" is tensors/ itself, with an empty name. */
static int parent_of(struct run *r, const char *path, uint64_t *dir, const char **name)
{
    struct tree_entry e;
    char folder[TREE_NAME_MAX + 1];
    *dir = ino_row(0);
    *name = path;
    if (*path != '/')
        return 0;
    const char *slash = strchr(path + 1, '/');
    int got = tree_lookup(r->t, INO_ROOT, "tensors", &e);
    if (got == 0 && slash) {
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path - 1), path + 1);
        got = tree_lookup(r->t, e.node, folder, &e);
    }
    *dir = e.node;
    *name = slash ? slash + 1 : path + 1;
    return got;
}

/* Look up a path; if a node on the way is stale, look the path up again, as the kernel does. The
 * caller calls forget(). */
static int find(struct run *r, const char *path, struct tree_entry *e)
{
    uint64_t dir;
    const char *name;
    int got = -ESTALE;
    for (int tries = 0; got == -ESTALE && tries < 2; tries++) {
        got = parent_of(r, path, &dir, &name);
        if (got == 0 && !*name)
            got = tree_getattr(r->t, dir, NULL, e);
        else if (got == 0)
            got = tree_lookup(r->t, dir, name, e);
    }
    return got;
}

/* Begin a block that uses the entry `e` of a path, until forget(). */
#define FIND(path)                 \
    struct tree_entry e = {0};     \
    int got = find(r, (path), &e); \
    if (got < 0)                   \
    return got

static void forget(struct run *r, const struct tree_entry *e)
{
    tree_forget(r->t, e->node, 1);
}

/* Drop the reference of a lookup after a call on its node; at once if the script goes on. */
static int forget_then(struct run *r, const struct tree_entry *e, struct tree_wait *w, int got)
{
    if (w < r->waiter || w >= r->waiter + WAITS)
        got = wait_here(w, got);
    forget(r, e);
    return got;
}

/* ---- handles ---- */

static struct handle *handle(struct run *r, const char *name)
{
    static struct handle none;
    struct handle *h =
        name[0] >= 'A' && name[0] <= 'Z' && !name[1] ? &r->handle[name[0] - 'A'] : NULL;
    if (h && h->f)
        return h;
    script_fail(r, "handle %s is not open", name);
    return &none;
}

static int flags_of(struct run *r, char **word)
{
    static const struct {
        const char *name;
        int flag;
    } rows[] = {{"r", O_RDONLY},      {"w", O_WRONLY},
                {"rw", O_RDWR},       {"trunc", O_TRUNC},
                {"append", O_APPEND}, {"creat", O_CREAT},
                {"excl", O_EXCL},     {"mkstemp", O_CREAT | O_EXCL | LIVE_MKSTEMP}};
    int flags = 0;
    for (; *word; word++) {
        size_t i = 0;
        while (i < COUNT(rows) && strcmp(rows[i].name, *word) != 0)
            i++;
        if (i == COUNT(rows))
            script_fail(r, "open has no %s", *word);
        else
            flags |= rows[i].flag;
    }
    return flags;
}

/* Open a path as the kernel does: look it up, then open or create it; if the node is stale, once
 * more. */
static int open_path(struct run *r, const char *path, int flags, struct handle *h)
{
    struct tree_entry e;
    uint64_t dir;
    const char *name;
    int got = -ESTALE;
    *h = (struct handle){0};
    for (int tries = 0; got == -ESTALE && tries < 2; tries++) {
        int found = got = parent_of(r, path, &dir, &name);
        if (got < 0)
            return got;
        found = got = tree_lookup(r->t, dir, name, &e);
        if (found == 0 && flags & O_EXCL)
            got = -EEXIST;
        else if (found == 0)
            got = tree_open_file(r->t, e.node, flags & ~O_CREAT, &h->f);
        else if (found == -ENOENT && flags & O_CREAT)
            got = found = tree_create(r->t, dir, name, flags, &e, &h->f);
        if (got == 0)
            h->node = e.node;
        else if (found == 0)
            forget(r, &e);
    }
    return got;
}

static bool is_free(struct run *r, const char *name)
{
    bool is = name[0] >= 'A' && name[0] <= 'Z' && !name[1] && !r->handle[name[0] - 'A'].f;
    if (!is)
        script_fail(r, "%s is not a handle, or is open", name);
    return is;
}

OP(open, 3, 8)
{
    if (!is_free(r, arg[0]))
        return 0;
    return open_path(r, arg[1], flags_of(r, arg + 2), &r->handle[arg[0][0] - 'A']);
}

OP(pages, 2, 2)
{
    const struct handle *h = handle(r, arg[0]);
    if (h->f)
        expect(r, h->f->cold ? "dropped" : "kept", arg[1]);
    return 0;
}

OP(note, 1, 1)
{
    r->node = handle(r, arg[0])->node;
    return 0;
}

/* Open by node, as through /proc/self/fd, for which the kernel looks up no name. */
OP(node, 2, 8)
{
    struct handle *h = &r->handle[(arg[0][0] - 'A') % HANDLES];
    if (!is_free(r, arg[0]))
        return 0;
    *h = (struct handle){.node = r->node};
    int got = tree_open_file(r->t, r->node, flags_of(r, arg + 1), &h->f);
    if (got < 0)
        *h = (struct handle){0};
    return got;
}

static int put_bytes(struct handle *h, const void *bytes, size_t n, uint64_t at,
                     struct tree_wait *w)
{
    int got = wait_here(w, tree_write(h->f, at, bytes, n, &w->wait));
    if (got == 0)
        h->at = at + n;
    return got;
}

OP(write, 2, 3)
{
    struct handle *h = handle(r, arg[0]);
    return h->f ? put_bytes(h, arg[1], strlen(arg[1]), arg[2] ? number(r, arg[2]) : h->at, w) : 0;
}

OP(flush, 1, 1)
{
    struct handle *h = handle(r, arg[0]);
    return h->f ? tree_flush(h->f, &w->wait) : 0;
}

/* A release is answered before what it leaves behind is judged: wait for that. */
static void settle(const struct run *r)
{
    struct live *l = atomic_load(&r->t->live);
    for (bool idle = !l; !idle; (void)usleep(100)) {
        lock_take(&l->lock);
        idle = !l->queue.working;
        lock_drop(&l->lock);
        idle |= script_gate_open()->hold;
        script_gate_close();
    }
}

/* What is due by now has been asked for and, unless copies are held, has ended. */
OP(due, 0, 0)
{
    struct live *l = atomic_load(&r->t->live);
    for (bool rests = !l; !rests; (void)usleep(100)) {
        lock_take(&l->lock);
        rests = !l->queue.due.tv_sec || !when_past(&l->queue.due, 0);
        lock_drop(&l->lock);
    }
    settle(r);
    return 0;
}

void script_release(struct run *r, struct handle *h)
{
    tree_release(h->f);
    settle(r);
    tree_forget(r->t, h->node, 1);
    *h = (struct handle){0};
}

OP(release, 1, 1)
{
    struct handle *h = handle(r, arg[0]);
    if (h->f)
        script_release(r, h);
    return 0;
}

OP(killed, 1, 1)
{
    struct handle *h = handle(r, arg[0]);
    if (h->f) {
        h->f->cold = 0;
        script_release(r, h);
    }
    return 0;
}

/* The kernel releases the file whatever the flush returns. */
static int close_handle(struct run *r, struct handle *h, struct tree_wait *w)
{
    int got = wait_here(w, tree_flush(h->f, &w->wait));
    script_release(r, h);
    return got;
}

OP(close, 1, 1)
{
    struct handle *h = handle(r, arg[0]);
    return h->f ? close_handle(r, h, w) : 0;
}

OP(trunc, 2, 2)
{
    struct handle *h = handle(r, arg[0]);
    return h->f ? tree_truncate(h->f, number(r, arg[1]), &w->wait) : 0;
}

OP(allocate, 3, 4)
{
    struct handle *h = handle(r, arg[0]);
    return h->f ? tree_allocate(h->f, arg[3] ? FALLOC_FL_KEEP_SIZE : 0, number(r, arg[1]),
                                number(r, arg[2]))
                : 0;
}

/* ---- floats ---- */

enum { FLOATS = 64 };

/* Write numbers, separated by spaces, as little-endian floats. Returns their size in bytes. */
static size_t floats_of(const char *text, uint8_t bytes[4 * FLOATS])
{
    size_t n = 0;
    for (char *end; *text && n < FLOATS; text = end + strspn(end, " "), n++)
        put_u32(bytes + 4 * n, f32_bits(strtof(text, &end)), false);
    return 4 * n;
}

/* Write over existing bytes; the header of an .npy stays. */
OP(poke, 3, 3)
{
    uint8_t bytes[4 * FLOATS];
    size_t n = floats_of(arg[2], bytes);
    struct handle *h = handle(r, arg[0]);
    return h->f ? tree_write(h->f, number(r, arg[1]), bytes, n, &w->wait) : 0;
}

/* Write X's at multiples of a step. */
OP(dots, 3, 3)
{
    struct handle *h = handle(r, arg[0]);
    uint64_t n = number(r, arg[1]), step = number(r, arg[2]);
    int got = 0;
    for (uint64_t i = 0; h->f && got == 0 && i < n; i++)
        got = wait_here(w, tree_write(h->f, i * step, "X", 1, &w->wait));
    return got;
}

/* Write a whole .npy of float32 with this shape, in C order unless a further argument is given. */
OP(npy, 3, 4)
{
    uint8_t bytes[128 + 4 * FLOATS] = "\x93NUMPY\x01\x00\x76";
    size_t n = floats_of(arg[2], bytes + 128);
    struct handle *h = handle(r, arg[0]);
    int len =
        snprintf((char *)bytes + 10, 118, "{'descr': '<f4', 'fortran_order': %s, 'shape': (%s), }",
                 arg[3] ? "True" : "False", arg[1]);
    memset(bytes + 10 + len, ' ', 118 - (size_t)len);
    bytes[127] = '\n';
    return h->f ? tree_write(h->f, 0, bytes, 128 + n, &w->wait) : 0;
}

/* ---- names ---- */

/* Write as a shell does: open the file, make it the output (which closes the first descriptor),
 * write, close. */
static int redirect(struct run *r, const char *path, int flags, const void *bytes, size_t n,
                    struct tree_wait *w)
{
    struct handle h;
    int got = open_path(r, path, O_WRONLY | O_CREAT | flags, &h);
    if (got < 0)
        return got;
    got = wait_here(w, tree_flush(h.f, &w->wait));
    if (got == 0 && n)
        got = put_bytes(&h, bytes, n, 0, w);
    int closed = close_handle(r, &h, w);
    return got ? got : closed;
}

OP(put, 2, 2)
{
    return redirect(r, arg[0], O_TRUNC, arg[1], strlen(arg[1]), w);
}

OP(add, 2, 2)
{
    return redirect(r, arg[0], O_APPEND, arg[1], strlen(arg[1]), w);
}

OP(floats, 2, 2)
{
    uint8_t bytes[4 * FLOATS];
    size_t n = floats_of(arg[1], bytes);
    return redirect(r, arg[0], O_TRUNC, bytes, n, w);
}

OP(truncate, 2, 2)
{
    FIND(arg[0]);
    return forget_then(r, &e, w, tree_truncate_unopened(r->t, e.node, number(r, arg[1]), &w->wait));
}

/* A call on a name in its directory. */
#define NAME_OP(op, call)                            \
    OP(op, 1, 1)                                     \
    {                                                \
        uint64_t dir;                                \
        const char *name;                            \
        int got = parent_of(r, arg[0], &dir, &name); \
        return got < 0 ? got : (call);               \
    }
NAME_OP(rm, tree_unlink(r->t, dir, name))
NAME_OP(rmdir, tree_rmdir(r->t, dir, name))
NAME_OP(mkdir, tree_mkdir(r->t, dir, name, &(struct tree_entry){0}))

static int rename_path(struct run *r, char **arg, unsigned flags, struct tree_wait *w)
{
    uint64_t from, to;
    const char *name, *new_name;
    int got = parent_of(r, arg[0], &from, &name);
    if (got == 0)
        got = parent_of(r, arg[1], &to, &new_name);
    return got < 0 ? got : tree_rename(r->t, from, name, to, new_name, flags, &w->wait);
}

OP(mv, 2, 2)
{
    return rename_path(r, arg, 0, w);
}

OP(mvnew, 2, 2)
{
    return rename_path(r, arg, RENAME_NOREPLACE, w);
}

/* The kernel does not forget the file soon. */
OP(mknod, 1, 1)
{
    struct tree_entry e;
    return tree_mknod(r->t, ino_row(0), arg[0], &e);
}

OP(type, 2, 2)
{
    FIND(arg[0]);
    got = tree_setxattr(r->t, e.node, "user.gguf.type", arg[1], strlen(arg[1]), &w->wait);
    return forget_then(r, &e, w, got);
}

OP(forgive, 1, 2)
{
    FIND(arg[0]);
    got = tree_removexattr(r->t, e.node, arg[1] ? arg[1] : "user.gguf.error");
    forget(r, &e);
    return got;
}

OP(undo, 0, 1)
{
    const char *number = arg[0] ? arg[0] : "0";
    return tree_setxattr(r->t, ino_row(ROOT_METADATA), "user.gguf.undo", number, strlen(number),
                         &w->wait);
}

OP(clear, 0, 0)
{
    return tree_history_clear(r->t, NULL);
}

/* ---- looking at files ---- */

/* Read everything from a handle, NUL-terminated; brief: with long runs made short. Returns 0 or
 * -errno, with nothing read. */
static int read_all(struct run *r, const struct handle *h, bool brief, struct buf *out)
{
    struct tree_entry e = {0};
    int got = tree_getattr(r->t, h->node, h->f, &e);
    const size_t room = got < 0 || e.attr.st_size < 1 << 16 ? 1 << 16 : (size_t)e.attr.st_size + 1;
    struct reply reply = {.scratch = malloc(room)};
    got = tree_read(h->f, 0, room, &reply);
    if (got == 0 && brief)
        script_model_brief(out, reply.bytes, reply.len);
    else if (got == 0)
        buf_add(out, reply.bytes, reply.len);
    buf_char(out, '\0');
    tree_reply_done(&reply);
    free(reply.scratch);
    return got;
}

OP(read, 2, 2)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct handle *h = handle(r, arg[0]);
    int got = h->f ? read_all(r, h, false, &text) : 0;
    if (h->f && got == 0)
        expect(r, buf_text(&text), arg[1]);
    return got;
}

/* A call that found the tensor as it is on the disk reads a draft that has begun since. */
OP(early, 2, 2)
{
    char bytes[64] = "";
    struct live *l = tree_live(r->t);
    struct handle *h = handle(r, arg[0]);
    const struct node at = ino_node(h->node);
    int got =
        live_view_read(l, at.number, at.row, &l->disk, 0, bytes, sizeof(bytes) - 1, &(size_t){0});
    if (got == 0)
        expect(r, bytes, arg[1]);
    return got;
}

OP(text, 2, 2)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct handle h;
    int got = open_path(r, arg[0], O_RDONLY, &h);
    if (got < 0)
        return got;
    read_all(r, &h, *arg[0] == '/', &text);
    script_release(r, &h);
    expect(r, buf_text(&text), arg[1]);
    return 0;
}

static char *whole(struct run *r, const char *path, size_t *n)
{
    const struct tree_image m = {.t = r->t};
    char full[TREE_NAME_MAX + 10];
    (void)snprintf(full, sizeof(full), "tensors%s", path);
    return image_text(&m, full, n);
}

OP(dotted, 3, 3)
{
    size_t size, n = (size_t)number(r, arg[1]), step = (size_t)number(r, arg[2]);
    char *text = whole(r, arg[0], &size);
    for (size_t i = 0; !r->failed && i < size; i++)
        if (text[i] != (i % step == 0 && i / step < n ? 'X' : '.'))
            script_fail(r, "byte %zu is %c", i, text[i]);
    free(text);
    return 0;
}

OP(values, 2, 2)
{
    uint8_t want[4 * FLOATS];
    size_t n, size = floats_of(arg[1], want);
    char *text = whole(r, arg[0], &n);
    if (n < size || memcmp(text + n - size, want, size) != 0)
        script_fail(r, "other values");
    free(text);
    return 0;
}

static void size_is(struct run *r, const struct tree_entry *e, const char *want)
{
    if ((uint64_t)e->attr.st_size != number(r, want))
        script_fail(r, "it is %lld", (long long)e->attr.st_size);
}

OP(size, 2, 2)
{
    struct tree_entry e = {0};
    struct handle *h = handle(r, arg[0]);
    int got = h->f ? tree_getattr(r->t, h->node, h->f, &e) : 0;
    if (h->f && got == 0)
        size_is(r, &e, arg[1]);
    return got;
}

OP(stat, 2, 2)
{
    FIND(arg[0]);
    size_is(r, &e, arg[1]);
    forget(r, &e);
    return 0;
}

OP(gone, 1, 11)
{
    struct tree_entry e;
    for (; *arg; arg++)
        if (find(r, *arg, &e) != -ENOENT)
            script_fail(r, "%s is there", *arg);
    return 0;
}

OP(list, 0, 11)
{
    const struct tree_image m = {.t = r->t};
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    char path[TREE_NAME_MAX + 10] = "metadata";
    const bool keys = !*arg || **arg != '/';
    if (!keys) {
        (void)snprintf(path, sizeof(path), "tensors%s", strcmp(*arg, "/") == 0 ? "" : *arg);
        arg++;
    }
    buf_str(&want, keys ? "general.architecture " : "");
    for (; *arg; arg++)
        buf_printf(&want, "%s%s", *arg, **arg ? " " : "");
    buf_char(&want, '\0');
    char *got = image_list(&m, path);
    for (char *p = got; *p; p++)
        *p = (char)(*p == '\n' ? ' ' : *p);
    expect(r, got, buf_text(&want));
    free(got);
    return 0;
}

/* Read an extended attribute, NUL-terminated; empty if it is not set. */
static int attribute(struct run *r, const char *path, const char *which, struct buf *out)
{
    FIND(path);
    got = tree_getxattr(r->t, e.node, which, out);
    forget(r, &e);
    buf_char(out, '\0');
    return got == -ENODATA ? 0 : got;
}

OP(attr, 3, 3)
{
    CLEANUP(buf_free) struct buf value = BUF_INIT;
    int got = attribute(r, arg[0], arg[1], &value);
    if (got == 0)
        expect(r, buf_text(&value), arg[2]);
    return got;
}

OP(typed, 2, 2)
{
    char *args[] = {arg[0], (char[]){"user.gguf.type"}, arg[1]};
    return op_attr(r, args, w);
}

OP(attrs, 2, 2)
{
    CLEANUP(buf_free) struct buf names = BUF_INIT;
    FIND(arg[0]);
    got = tree_listxattr(r->t, e.node, &names);
    forget(r, &e);
    for (size_t i = 0; i + 1 < names.len; i++)
        if (!names.data[i])
            names.data[i] = ' ';
    buf_char(&names, '\0');
    if (got == 0)
        expect(r, buf_text(&names), arg[1]);
    return got;
}

/* Compare the time of a file with the noted time. */
OP(time, 2, 2)
{
    FIND(arg[1]);
    forget(r, &e);
    bool same =
        e.attr.st_mtim.tv_sec == r->noted.tv_sec && e.attr.st_mtim.tv_nsec == r->noted.tv_nsec;
    if (strcmp(arg[0], "noted") == 0)
        r->noted = e.attr.st_mtim;
    else if (same != (strcmp(arg[0], "same") == 0))
        script_fail(r, same ? "it has not moved" : "it has moved");
    return 0;
}

OP(refused, 1, 2)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    int got = attribute(r, arg[0], "user.gguf.error", &why);
    if (got == 0 && (why.len <= 1 || !strstr(buf_text(&why), arg[1] ? arg[1] : "")))
        script_fail(r, "user.gguf.error is \"%s\"", buf_text(&why));
    return got;
}

OP(good, 1, 1)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    int got = attribute(r, arg[0], "user.gguf.error", &why);
    if (got == 0 && why.len > 1)
        script_fail(r, "user.gguf.error is \"%s\"", buf_text(&why));
    return got;
}

/* ---- looking at the model ---- */

static void expect_keys(struct run *r, struct content now, const char *want)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT, wanted = BUF_INIT;
    buf_printf(&wanted, "%s%s", want, *want && want[strlen(want) - 1] != ' ' ? " " : "");
    buf_char(&wanted, '\0');
    if (!script_model_keys(now.bytes, now.n, &keys))
        script_fail(r, "it is not a regular model");
    else
        expect(r, buf_text(&keys), buf_text(&wanted));
    free(now.bytes);
}

static struct content shown(const struct run *r)
{
    const struct tree_image m = {.t = r->t};
    struct content i;
    i.bytes = (uint8_t *)image_text(&m, "model.gguf", &i.n);
    return i;
}

REST(shown)
{
    expect_keys(r, shown(r), arg[0]);
    return 0;
}

REST(file)
{
    expect_keys(r, script_model_file(r), arg[0]);
    return 0;
}

/* Compare the tensors of the files on the disk. */
REST(tfile)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    if (!script_model_tensors(r, &text))
        script_fail(r, "the file is not a regular model");
    else
        expect(r, buf_text(&text), arg[0]);
    return 0;
}

OP(fsync, 0, 1)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT;
    struct tree_file *f = arg[0] ? handle(r, arg[0])->f : NULL;
    if (r->failed)
        return 0;
    int got = f ? tree_fsync(f, &w->wait) : tree_fsyncdir(r->t, &w->wait);
    if (w >= r->waiter && w < r->waiter + WAITS)
        return got;
    got = wait_here(w, got);
    if (got < 0 || f)
        return got;
    struct content now = shown(r);
    if (!script_model_keys(now.bytes, now.n, &keys))
        script_fail(r, "model.gguf is not a regular model");
    free(now.bytes);
    if (!r->failed)
        expect_keys(r, script_model_file(r), buf_text(&keys));
    return 0;
}

OP(said, 1, 1)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    int got = live_undo_said(tree_live(r->t), &said);
    buf_char(&said, '\0');
    if (got == 0 && !strstr(buf_text(&said), arg[0]))
        script_fail(r, "it said \"%s\"", buf_text(&said));
    return got;
}

OP(states, 0, 1)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    int got = tree_history(r->t, &text, NULL);
    buf_char(&text, '\0');
    if (got == 0 && (arg[0] ? !strstr(buf_text(&text), arg[0]) : text.len > 1))
        script_fail(r, "they are '%s'", buf_text(&text));
    return got;
}

static void unsaved(struct tree *t, struct buf *out)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    live_notes(tree_live(t), true, "", &notes);
    buf_char(&notes, '\0');
    for (char *at = (char *)notes.data, *line; (line = strsep(&at, "\n")) && *line;)
        buf_printf(out, "%s\n", line + (strncmp(line, "metadata/", 9) == 0 ? 9 : 0));
    buf_char(out, '\0');
}

OP(unsaved, 0, 1)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    unsaved(r->t, &text);
    for (size_t i = 0; i + 1 < text.len; i++)
        text.data[i] = text.data[i] == '\n' ? ';' : text.data[i] == '\'' ? '"' : text.data[i];
    expect(r, buf_text(&text), arg[0] ? arg[0] : "");
    return 0;
}

/* Check that the report has a line for each of these names, and no other. */
OP(owes, 0, 11)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    char line[TREE_NAME_MAX + 4];
    unsigned lines = 0, names = 0;
    buf_char(&text, '\n');
    unsaved(r->t, &text);
    for (size_t i = 1; i < text.len; i++)
        lines += text.data[i] == '\n';
    for (; arg[names] && !r->failed; names++) {
        (void)snprintf(line, sizeof(line), "\n%s:", arg[names]);
        if (!strstr(buf_text(&text), line))
            script_fail(r, "%s is not in%s", arg[names], buf_text(&text));
    }
    if (!r->failed && lines != names)
        script_fail(r, "it is%s", buf_text(&text));
    return 0;
}

OP(logged, 1, 1)
{
    script_logged(r, arg[0]);
    return 0;
}

OP(quiet, 0, 0)
{
    script_logged(r, NULL);
    return 0;
}

/* Check that the tree edits the model, and whether another program has changed the model. */
OP(edits, 1, 1)
{
    if (!tree_edited(r->t))
        script_fail(r, "it does not edit the model");
    if (tree_changed(r->t) != (strcmp(arg[0], "changed") == 0))
        script_fail(r, "it is not %s", arg[0]);
    return 0;
}

/* Create, or check and remove, the keys n.0, n.1, ... */
OP(fill, 1, 1)
{
    const bool make = !arg[1];
    char name[32], text[32], *args[] = {name, text};
    int got = 0;
    for (uint64_t i = 0; i < number(r, arg[0]) && got == 0 && !r->failed; i++) {
        (void)snprintf(name, sizeof(name), "n.%llu", (unsigned long long)i);
        (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)i);
        got = make ? op_put(r, args, w) : op_text(r, args, w);
        if (!make && got == 0)
            got = op_rm(r, args, w);
    }
    return got;
}

OP(empty, 1, 1)
{
    char *args[] = {arg[0], (char[]){"empty"}};
    return op_fill(r, args, w);
}

/* ---- waiting, time and faults ---- */

OP(wait, 0, 0)
{
    if (r->waited < r->started)
        return tree_waited(&r->waiter[r->waited++], LIVE_PARKED);
    script_fail(r, "there is nothing to wait for");
    return 0;
}

OP(interrupt, 0, 1)
{
    if (r->waited == r->started)
        script_fail(r, "nothing waits");
    else
        tree_interrupt(r->t, &r->waiter[arg[0] ? r->waited : r->started - 1]);
    return 0;
}

OP(later, 1, 1)
{
    atomic_fetch_add(&script_ahead, (long)number(r, arg[0]));
    return 0;
}

/* Timed waits then wake at once, and end when `later` advances the clock. */
OP(behind, 1, 1)
{
    atomic_fetch_sub(&script_ahead, (long)number(r, arg[0]));
    return 0;
}

OP(still, 0, 0)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&script_still, now.tv_sec);
    return 0;
}

/* Return the code of the named error, or 0 if name is NULL. */
static int named(struct run *r, const char *name)
{
    int code = name ? script_errno(name) : 0;
    if (name && !code)
        script_fail(r, "no such error");
    return code;
}

OP(hold, 0, 0)
{
    script_gate_open()->hold = true;
    script_gate_close();
    return 0;
}

OP(held, 0, 0)
{
    if (!script_copies_held())
        script_fail(r, "no copy has begun");
    return 0;
}

OP(go, 0, 1)
{
    const int error = named(r, arg[0]);
    struct script_gate *g = script_gate_open();
    g->hold = false;
    g->spoilt = error;
    script_gate_close();
    return 0;
}

OP(fail, 0, 1)
{
    const int error = named(r, arg[0]);
    struct script_gate *g = script_gate_open();
    g->error = error;
    g->torn = 0;
    script_gate_close();
    return 0;
}

OP(torn, 0, 0)
{
    script_gate_open()->torn = 1;
    script_gate_close();
    return 0;
}

OP(full, 0, 1)
{
    script_gate_open()->full = !arg[0];
    script_gate_close();
    return 0;
}

/* Shift the model's modification time. */
static int touch(const struct run *r, int seconds)
{
    struct stat st;
    if (stat(r->place.model, &st) < 0)
        return -errno;
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    times[1].tv_sec += seconds;
    return utimensat(AT_FDCWD, r->place.model, times, 0) < 0 ? -errno : 0;
}

OP(alter, 0, 0)
{
    return touch(r, 1000);
}

OP(restore, 0, 0)
{
    return touch(r, -1000);
}

OP(finish, 0, 0)
{
    return script_finish(r);
}

OP(reopen, 0, 0)
{
    int got = script_finish(r);
    script_start(r);
    return got;
}

OP(hurry, 0, 0)
{
    live_abandon(tree_live(r->t));
    live_hurry(tree_live(r->t));
    return 0;
}
