/* SPDX-License-Identifier: MIT */
/*
 * Random operations on the keys of a tree, by random strategies and commit modes, compared with a
 * plain list: after each, what the tree shows; after each sync, what the file holds.
 */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "model_dir.h"
#include "build_gguf.h"
#include "soak.h"
#include "tree/internal.h"
#include "tree/text.h"
#include "tree_edit.h"
#include "tree_image.h"

enum { KEYS = 12, OPS_PER_MOUNT = 60 };

/* Every value is a small number, which each of the types can hold: a rename over another key fits. */
static const enum gguf_value_type types[] = {GGUF_U8,  GGUF_U32, GGUF_I32,   GGUF_U64,
                                             GGUF_I64, GGUF_F32, GGUF_STRING};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

struct key {
    bool there;
    bool removed; /* since the last sync */
    enum gguf_value_type type;
    unsigned value;
};

struct run {
    char folder[64], path[96];
    struct image {
        uint8_t *bytes;
        size_t n;
    } first;
    uint64_t state; /* of the draw */
    struct key key[KEYS];
    struct tree *t;
    unsigned long ops;
};

static unsigned draw(struct run *r, unsigned n)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (unsigned)(r->state >> 33) % n;
}

static const char *name_of(unsigned i, char dst[32])
{
    (void)snprintf(dst, 32, "random.key_%c", 'a' + (int)i);
    return dst;
}

static void make_first(struct run *r)
{
    struct build b;
    build_init(&b, 3, draw(r, 2));
    build_str(&b, "general.architecture", "test");
    build_f32(&b, "other.before", 0.1f);
    build_array(&b, "other.list", GGUF_STRING, 2);
    build_item_str(&b, "one");
    build_item_str(&b, "two\n");
    build_tensor(&b, "a", F32, SHAPE(5), NULL, 20);
    build_tensor(&b, "b", I8, SHAPE(9001), NULL, 9001);
    r->first.bytes = build_finish(&b, &r->first.n);
}

static const char *type_name(enum gguf_value_type t)
{
    return gguf_types[t].name;
}

/* ---- mounts ---- */

static void open_tree(struct run *r)
{
    static const enum edit_strategy ways[] = {EDIT_AUTO, EDIT_COPY};
    static const enum tree_commit modes[] = {TREE_COMMIT_AUTO, TREE_COMMIT_CLOSE, TREE_COMMIT_SYNC};
    struct tree_options o = {.strategy = ways[draw(r, 2)],
                             .commit = modes[draw(r, 3)],
                             .reserve = draw(r, 2) ? draw(r, 5000) : EDIT_RESERVE_AUTO};
    CU_ASSERT_EQUAL_FATAL(tree_open(r->path, &o, &r->t, NULL), 0);
    r->t->file.sys = calm(); /* waiting for the disk tells nothing here */
    CU_ASSERT_EQUAL_FATAL(tree_start(r->t, NULL), 0);
}

static void close_tree(struct run *r)
{
    CU_ASSERT_EQUAL(tree_finish(r->t), 0);
    tree_close(r->t);
    for (unsigned i = 0; i < KEYS; i++)
        r->key[i].removed = false;
}

/* ---- what has to be there ---- */

/* Right after an operation, whether it is on the disk already or not. */
static void check_shown(struct run *r, unsigned i)
{
    const struct tree_image m = {.t = r->t};
    char name[32], path[64], want[16];
    size_t n;
    (void)snprintf(path, sizeof(path), "metadata/%s", name_of(i, name));
    (void)snprintf(want, sizeof(want), "%u\n", r->key[i].value);
    CU_ASSERT_EQUAL(image_node(&m, path) != 0, r->key[i].there);
    if (!r->key[i].there || !image_node(&m, path))
        return;
    char *text = image_text(&m, path, &n);
    if (strcmp(text, want) != 0)
        (void)printf("\n  %s is %s after %lu operations", name, text, r->ops);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

static bool same_entry(const struct gguf *a, const struct gguf *b, const char *key)
{
    uint32_t i = gguf_find_key(a, key, strlen(key)), k = gguf_find_key(b, key, strlen(key));
    if (i == UINT32_MAX || k == UINT32_MAX)
        return i == k;
    size_t n = (size_t)(a->kv[i].end - a->kv[i].off);
    return b->kv[k].end - b->kv[k].off == n &&
           memcmp(a->head + a->kv[i].off, b->head + b->kv[k].off, n) == 0;
}

static void check_key(const struct run *r, const struct gguf *g, unsigned i)
{
    char name[32], want[16];
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    (void)name_of(i, name);
    uint32_t kv = gguf_find_key(g, name, strlen(name));
    CU_ASSERT_EQUAL(kv != UINT32_MAX, r->key[i].there);
    if (kv == UINT32_MAX)
        return;
    struct gguf_value v = gguf_value(g, &g->kv[kv]);
    if (v.type != r->key[i].type)
        (void)printf("\n  %s is %s, not %s, after %lu operations", name, gguf_types[v.type].name,
                     type_name(r->key[i].type), r->ops);
    CU_ASSERT_EQUAL(v.type, r->key[i].type);
    (void)snprintf(want, sizeof(want), "%u\n", r->key[i].value);
    text_value(&text, &v);
    CU_ASSERT_TRUE(text.len == strlen(want) && memcmp(text.data, want, text.len) == 0);
}

/* The file: every key, nothing else, and the tensors. */
static void check_file(struct run *r)
{
    static const char *const others[] = {"general.architecture", "other.before", "other.list"};
    const struct tree_image m = {.t = r->t};
    size_t n, shown_n;
    struct gguf *g = NULL, *first = NULL;
    int dir = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint8_t *file = get_file(dir, NAME, &n);
    struct source s = source_mem(file, n), before = source_mem(r->first.bytes, r->first.n);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&s, 0, &g, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&before, 0, &first, NULL), 0);
    uint32_t keys = 3 + (gguf_find_key(g, EDIT_RESERVE_KEY, 13) != UINT32_MAX);
    for (unsigned i = 0; i < KEYS; i++) {
        check_key(r, g, i);
        keys += r->key[i].there;
    }
    CU_ASSERT_EQUAL(g->n_kv, keys);
    for (size_t i = 0; i < 3; i++)
        CU_ASSERT_TRUE(same_entry(first, g, others[i]));
    for (uint32_t i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(memcmp(file + g->tensor[i].off, r->first.bytes + first->tensor[i].off,
                               (size_t)first->tensor[i].nbytes),
                        0);
    CU_ASSERT_EQUAL(g->odd, 0);
    char *shown = image_text(&m, "model.gguf", &shown_n);
    CU_ASSERT_TRUE(shown_n == n && memcmp(shown, file, n) == 0);
    free(shown);
    gguf_free(first);
    gguf_free(g);
    free(file);
    (void)close(dir);
}

static void sync_and_check(struct run *r)
{
    CU_ASSERT_EQUAL(do_sync(r->t), 0);
    for (unsigned i = 0; i < KEYS; i++)
        r->key[i].removed = false;
    check_file(r);
}

/* ---- operations ---- */

static void op_write(struct run *r, unsigned i)
{
    char name[32], typed[48], text[16];
    struct key *k = &r->key[i];
    unsigned value = draw(r, 128);
    enum gguf_value_type type = types[draw(r, TYPES)];
    (void)snprintf(text, sizeof(text), "%u\n", value);
    (void)snprintf(typed, sizeof(typed), "%s:%s", name_of(i, name), type_name(type));
    CU_ASSERT_EQUAL(do_write(r->t, k->there ? name : typed, text, strlen(text)), 0);
    *k = (struct key){true, false, k->there ? k->type : type, value};
}

static void op_refused(struct run *r, unsigned i)
{
    char name[32];
    const struct key *k = &r->key[i];
    if (k->there && k->type != GGUF_STRING)
        CU_ASSERT_TRUE(do_write(r->t, name_of(i, name), "nonsense", 8) < 0);
}

static void op_remove(struct run *r, unsigned i)
{
    char name[32];
    struct key *k = &r->key[i];
    CU_ASSERT_EQUAL(do_unlink(r->t, name_of(i, name)), k->there ? 0 : -ENOENT);
    k->removed |= k->there;
    k->there = false;
}

static void op_rename(struct run *r, unsigned i)
{
    char name[32], other[32];
    unsigned to = draw(r, KEYS);
    struct key *a = &r->key[i], *b = &r->key[to];
    if (to == i || !a->there)
        return;
    if (b->removed) /* it would come back, with its type */
        sync_and_check(r);
    CU_ASSERT_EQUAL(do_rename(r->t, name_of(i, name), name_of(to, other)), 0);
    enum gguf_value_type type = b->there ? b->type : a->type;
    *b = (struct key){true, false, type, a->value};
    *a = (struct key){.removed = true};
    check_shown(r, to);
}

static void op_retype(struct run *r, unsigned i)
{
    char name[32];
    struct key *k = &r->key[i];
    enum gguf_value_type type = types[draw(r, TYPES)];
    if (!k->there)
        return;
    CU_ASSERT_EQUAL(do_retype(r->t, name_of(i, name), type_name(type)), 0);
    k->type = type;
}

static void step(struct run *r)
{
    static void (*const ops[])(struct run * r, unsigned i) = {
        op_write, op_write, op_write, op_refused, op_remove, op_rename, op_rename, op_retype};
    unsigned i = draw(r, KEYS);
    ops[draw(r, sizeof(ops) / sizeof(ops[0]))](r, i);
    r->ops++;
    check_shown(r, i);
    if (draw(r, 5) == 0)
        sync_and_check(r);
}

static void test_random(void)
{
    struct run r = {.state = 88172645463325252};
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(r.folder, sizeof(r.folder), "%s/ggufs-test-XXXXXX", root);
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(r.folder));
    (void)snprintf(r.path, sizeof(r.path), "%s/" NAME, r.folder);
    int dir = open(r.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_first(&r);
    put_file(dir, NAME, r.first.bytes, r.first.n);
    while (r.ops < soak_size(6000)) {
        open_tree(&r);
        for (unsigned k = 0; k < OPS_PER_MOUNT; k++)
            step(&r);
        close_tree(&r);
        open_tree(&r);
        check_file(&r);
        close_tree(&r);
    }
    soak_count("operations compared", r.ops);
    CU_ASSERT_EQUAL(unlinkat(dir, NAME, 0), 0);
    CU_ASSERT_EQUAL(rmdir(r.folder), 0); /* nothing else is left */
    (void)close(dir);
    free(r.first.bytes);
}

static CU_TestInfo tests[] = {
    {"random operations do what a list does", test_random},
    CU_TEST_INFO_NULL,
};

CU_MAIN("random", tests)
