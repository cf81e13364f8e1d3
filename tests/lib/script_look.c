/* SPDX-License-Identifier: MIT */
/* Scripts' inspections of the tree: see script.h. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "script_run.h"
#include "tree_image.h"
#include "tree/history.h"

/* ---- files ---- */

static void expect(struct run *r, const char *got, const char *want)
{
    if (strcmp(got, want) != 0)
        script_fail(r, "it is\n      %s\n    and not\n      %s", got, want);
}

/* Read everything from a handle. */
static void read_all(struct run *r, struct tree_file *f, struct buf *out)
{
    struct reply reply = {.scratch = malloc(1 << 16)};
    int got = tree_read(f, 0, 1 << 16, &reply);
    if (got < 0)
        script_fail(r, "cannot be read: %s", strerror(-got));
    else
        buf_add(out, reply.bytes, reply.len);
    buf_char(out, '\0');
    tree_reply_done(&reply);
    free(reply.scratch);
}

static int op_read(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct handle *h = script_handle(r, arg[0]);
    (void)w;
    if (!h->f)
        return 0;
    read_all(r, h->f, &text);
    expect(r, (char *)text.data, arg[1]);
    return 0;
}

static int op_size(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e = {0};
    struct handle *h = script_handle(r, arg[0]);
    (void)w;
    int got = h->f ? tree_getattr(r->t, h->node, h->f, &e) : 0;
    if (got == 0 && (uint64_t)e.attr.st_size != script_number(r, arg[1]))
        script_fail(r, "it is %lld", (long long)e.attr.st_size);
    return got;
}

static int op_text(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct handle h;
    (void)w;
    int got = script_open(r, arg[0], O_RDONLY, &h);
    if (got < 0)
        return got;
    read_all(r, h.f, &text);
    script_release(r, &h);
    expect(r, (char *)text.data, arg[1]);
    return 0;
}

static int op_stat(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    int got = tree_lookup(r->t, script_folder(), arg[0], &e);
    if (got < 0)
        return got;
    if ((uint64_t)e.attr.st_size != script_number(r, arg[1]))
        script_fail(r, "it is %lld", (long long)e.attr.st_size);
    tree_forget(r->t, e.node, 1);
    return 0;
}

static int op_gone(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    for (; *arg; arg++)
        if (tree_lookup(r->t, script_folder(), *arg, &e) != -ENOENT)
            script_fail(r, "%s is there", *arg);
    return 0;
}

static int op_list(struct run *r, char **arg, struct waiter *w)
{
    static const char first[] = "general.architecture\n";
    const struct tree_image m = {.t = r->t};
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    (void)w;
    buf_printf(&want, "%s", first);
    for (; *arg; arg++)
        buf_printf(&want, "%s\n", *arg);
    buf_char(&want, '\0');
    char *got = image_list(&m, "metadata");
    for (char *p = got; *p; p++)
        if (*p == '\n')
            *p = ' ';
    for (size_t i = 0; i < want.len; i++)
        if (want.data[i] == '\n')
            want.data[i] = ' ';
    expect(r, got, (char *)want.data);
    free(got);
    return 0;
}

static int op_files(struct run *r, char **arg, struct waiter *w)
{
    const struct tree_image m = {.t = r->t};
    uint64_t n = 0;
    (void)w;
    char *got = image_list(&m, "metadata");
    for (char *p = got; *p; p++)
        n += *p == '\n';
    if (n != script_number(r, arg[0]))
        script_fail(r, "the folder lists\n%s", got);
    free(got);
    return 0;
}

/* Read an extended attribute, NUL-terminated; empty if it is not set. */
static int attribute(struct run *r, const char *name, const char *which, struct buf *out)
{
    struct tree_entry e;
    int got = tree_lookup(r->t, script_folder(), name, &e);
    if (got < 0)
        return got;
    got = tree_getxattr(r->t, e.node, which, out);
    tree_forget(r->t, e.node, 1);
    buf_char(out, '\0');
    return got == -ENODATA ? 0 : got;
}

static int op_attr(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf value = BUF_INIT;
    (void)w;
    int got = attribute(r, arg[0], arg[1], &value);
    if (got == 0)
        expect(r, (char *)value.data, arg[2]);
    return got;
}

static int op_said(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    (void)w;
    int got = tree_undo_said(r->t, &said);
    buf_char(&said, '\0');
    if (got == 0 && !strstr((char *)said.data, arg[0]))
        script_fail(r, "it said \"%s\"", (char *)said.data);
    return got;
}

static int op_attrs(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf names = BUF_INIT;
    struct tree_entry e;
    (void)w;
    int got = tree_lookup(r->t, script_folder(), arg[0], &e);
    if (got < 0)
        return got;
    got = tree_listxattr(r->t, e.node, &names);
    tree_forget(r->t, e.node, 1);
    for (size_t i = 0; i + 1 < names.len; i++)
        if (!names.data[i])
            names.data[i] = ' ';
    buf_char(&names, '\0');
    if (got == 0)
        expect(r, (char *)names.data, arg[1]);
    return got;
}

/* Compare the time of a file with the noted time. */
static int op_time(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    int got = tree_lookup(r->t, script_folder(), arg[1], &e);
    if (got < 0)
        return got;
    tree_forget(r->t, e.node, 1);
    bool same =
        e.attr.st_mtim.tv_sec == r->noted.tv_sec && e.attr.st_mtim.tv_nsec == r->noted.tv_nsec;
    if (strcmp(arg[0], "noted") == 0)
        r->noted = e.attr.st_mtim;
    else if (same != (strcmp(arg[0], "same") == 0))
        script_fail(r, same ? "it has not moved" : "it has moved");
    return 0;
}

static int op_typed(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf type = BUF_INIT;
    (void)w;
    int got = attribute(r, arg[0], "user.gguf.type", &type);
    if (got == 0)
        expect(r, (char *)type.data, arg[1]);
    return got;
}

static int has_error(struct run *r, const char *name, bool want)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    int got = attribute(r, name, "user.gguf.error", &why);
    if (got == 0 && (why.len > 1) != want)
        script_fail(r, "user.gguf.error is \"%s\"", (char *)why.data);
    return got;
}

static int op_refused(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    return has_error(r, arg[0], true);
}

static int op_good(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    return has_error(r, arg[0], false);
}

static void expect_keys(struct run *r, const struct content *i, const char *want)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT, wanted = BUF_INIT;
    buf_printf(&wanted, "%s%s", want, *want && want[strlen(want) - 1] != ' ' ? " " : "");
    buf_char(&wanted, '\0');
    if (!script_model_keys(i->bytes, i->n, &keys))
        script_fail(r, "it is not a regular model");
    else
        expect(r, (char *)keys.data, (char *)wanted.data);
}

static struct content shown(const struct run *r)
{
    const struct tree_image m = {.t = r->t};
    struct content i;
    i.bytes = (uint8_t *)image_text(&m, "model.gguf", &i.n);
    return i;
}

static int op_shown(struct run *r, char **arg, struct waiter *w)
{
    struct content now = shown(r);
    (void)w;
    expect_keys(r, &now, arg[0]);
    free(now.bytes);
    return 0;
}

static int op_file(struct run *r, char **arg, struct waiter *w)
{
    struct content now = script_model_file(&r->m);
    (void)w;
    expect_keys(r, &now, arg[0]);
    free(now.bytes);
    return 0;
}

static int op_fsync(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf keys = BUF_INIT;
    struct tree_file *f = arg[0] ? script_handle(r, arg[0])->f : NULL;
    if (r->failed)
        return 0;
    if (w >= r->waiter && w < r->waiter + WAITS)
        return f ? tree_fsync(f, &w->wait) : tree_fsyncdir(r->t, &w->wait);
    int got = script_wait_here(w, f ? tree_fsync(f, &w->wait) : tree_fsyncdir(r->t, &w->wait));
    if (got < 0 || r->lenient || f)
        return got;
    struct content now = shown(r);
    if (!script_model_keys(now.bytes, now.n, &keys))
        script_fail(r, "model.gguf is not a regular model");
    free(now.bytes);
    now = script_model_file(&r->m);
    if (!r->failed)
        expect_keys(r, &now, (char *)keys.data);
    free(now.bytes);
    return 0;
}

/* ---- repetition ---- */

static int op_many(struct run *r, char **arg, struct waiter *w)
{
    uint64_t times = script_number(r, arg[1]), bytes = script_number(r, arg[2]);
    char *text = malloc((size_t)bytes + 1);
    int got = text ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < times && got == 0; i++) {
        memset(text, 'a' + (int)(i % 26), (size_t)bytes);
        text[bytes] = '\0';
        got = script_redirect(r, arg[0], O_TRUNC, text, w);
    }
    free(text);
    return got;
}

/* Create the keys n.0, n.1, ... */
static int op_fill(struct run *r, char **arg, struct waiter *w)
{
    uint64_t times = script_number(r, arg[0]);
    char name[32], text[32];
    int got = 0;
    for (uint64_t i = 0; i < times && got == 0; i++) {
        (void)snprintf(name, sizeof(name), "n.%llu", (unsigned long long)i);
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)i);
        got = script_redirect(r, name, O_TRUNC, text, w);
    }
    return got;
}

/* Check the text of each key, then remove it. */
static int op_empty(struct run *r, char **arg, struct waiter *w)
{
    uint64_t times = script_number(r, arg[0]);
    char name[32], text[32];
    int got = 0;
    for (uint64_t i = 0; i < 2 * times && got == 0 && !r->failed; i++) {
        unsigned long long no = i < times ? i : i - times;
        char *args[] = {name, text};
        (void)snprintf(name, sizeof(name), "n.%llu", no);
        (void)snprintf(text, sizeof(text), "%llu\n", no);
        got = i < times ? op_text(r, args, w) : tree_unlink(r->t, script_folder(), name);
    }
    return got;
}

static int op_back(struct run *r, char **arg, struct waiter *w)
{
    uint64_t times = script_number(r, arg[2]), dir = script_folder();
    int got = 0;
    for (uint64_t i = 0; i < 2 * times && got == 0; i++)
        got = script_wait_here(
            w, tree_rename(r->t, dir, arg[i & 1], dir, arg[1 - (i & 1)], 0, &w->wait));
    return got;
}

/* With another allocator (a sanitizer's), this returns 0. */
size_t script_heap(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static int op_heap(struct run *r, char **arg, struct waiter *w)
{
    size_t now = script_heap();
    (void)w;
    if (now > r->heap + script_number(r, arg[0]) * 1024)
        script_fail(r, "it is %zu KiB", (now - r->heap) / 1024);
    return 0;
}

static int op_states(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    (void)w;
    int got = tree_history(r->t, &text, NULL);
    buf_char(&text, '\0');
    if (got == 0 && (arg[0] ? !strstr((char *)text.data, arg[0]) : text.len > 1))
        script_fail(r, "they are '%s'", (char *)text.data);
    return got;
}

static void unsaved(struct tree *t, struct buf *out)
{
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    tree_notes(t, &notes);
    unsaved_lines(&notes, out);
}

static int op_unsaved(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    (void)w;
    unsaved(r->t, &text);
    buf_char(&text, '\0');
    for (size_t i = 0; i + 1 < text.len; i++)
        text.data[i] = text.data[i] == '\n' ? ';' : text.data[i] == '\'' ? '"' : text.data[i];
    expect(r, (char *)text.data, arg[0] ? arg[0] : "");
    return 0;
}

/* Check that a report has a line for each of these names, and no other. */
static int op_owes(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    char line[TREE_NAME_MAX + 4];
    unsigned lines = 0, names = 0;
    (void)w;
    buf_char(&text, '\n');
    unsaved(r->t, &text);
    for (size_t i = 1; i < text.len; i++)
        lines += text.data[i] == '\n';
    buf_char(&text, '\0');
    for (bool all = true; all && arg[names]; names += all) {
        (void)snprintf(line, sizeof(line), "\n%s:", arg[names]);
        all = strstr((char *)text.data, line);
        if (!all)
            script_fail(r, "%s is not in%s", arg[names], (char *)text.data);
    }
    if (!r->failed && lines != names)
        script_fail(r, "it is%s", (char *)text.data);
    return 0;
}

static int op_readlink(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct tree_entry e;
    (void)w;
    int got = tree_lookup(r->t, script_folder(), arg[0], &e);
    if (got < 0)
        return got;
    got = tree_readlink(r->t, e.node, &text);
    tree_forget(r->t, e.node, 1);
    buf_char(&text, '\0');
    if (got == 0)
        expect(r, (char *)text.data, arg[1]);
    return got;
}

const struct script_op script_looks[] = {
    {"read", op_read, 2, 2, false},
    {"size", op_size, 2, 2, false},
    {"fsync", op_fsync, 0, 1, false},
    {"list", op_list, 0, 11, false},
    {"files", op_files, 1, 1, false},
    {"attr", op_attr, 3, 3, false},
    {"said", op_said, 1, 1, false},
    {"states", op_states, 0, 1, false},
    {"unsaved", op_unsaved, 0, 1, false},
    {"readlink", op_readlink, 2, 2, false},
    {"owes", op_owes, 0, 11, false},
    {"attrs", op_attrs, 2, 2, false},
    {"gone", op_gone, 1, 11, false},
    {"text", op_text, 2, 2, false},
    {"stat", op_stat, 2, 2, false},
    {"typed", op_typed, 2, 2, false},
    {"refused", op_refused, 1, 1, false},
    {"good", op_good, 1, 1, false},
    {"shown", op_shown, 1, 1, true},
    {"file", op_file, 1, 1, true},
    {"many", op_many, 3, 3, false},
    {"fill", op_fill, 1, 1, false},
    {"empty", op_empty, 1, 1, false},
    {"back", op_back, 3, 3, false},
    {"heap", op_heap, 1, 1, false},
    {"time", op_time, 2, 2, false},
    {0},
};
