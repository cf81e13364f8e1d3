/* SPDX-License-Identifier: MIT */
/* model/shards, edit/open: finding, opening, checking and merging the files of a
 * split model. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_gguf.h"
#include "cu_main.h"
#include "edit/open.h"
#include "model/shards.h"
#include "parsed.h"
#include "put_journal.h"

enum { F32 = 0, UNKNOWN = 200 };

#define SHAPE(...) (uint64_t[]){__VA_ARGS__}, (uint32_t)(sizeof(uint64_t[]){__VA_ARGS__} / 8)

/* ---- a directory ---- */

static char folder[64];

static void make_folder(void)
{
    (void)strcpy(folder, "/tmp/ggufs-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
}

static void drop_folder(void)
{
    char command[96];
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* Return the path of a name in the directory, valid until the next call but one. */
static const char *in(const char *name)
{
    static char path[2][512];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
    return path[turn];
}

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(in(name), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, n, f), n);
    CU_ASSERT_EQUAL(fclose(f), 0);
}

/* ---- names ---- */

static size_t found(const char *path)
{
    struct shards s;
    CU_ASSERT_EQUAL(shards_find(&s, path), 0);
    size_t n = s.n;
    CU_ASSERT_TRUE(n || strcmp(s.path, path) == 0);
    shards_free(&s);
    CU_ASSERT_TRUE(s.n == 0 && s.path == NULL);
    return n;
}

static void test_names(void)
{
    static const struct {
        const char *path;
        size_t n;
    } rows[] = {
        {"x-00001-of-00002.gguf", 2},
        {"x-00002-of-00002.gguf", 2},
        {"/no/x-00001-of-12345.gguf", 12345},
        {"x-00001-of-00001.gguf", 0},
        {"x-00003-of-00002.gguf", 0},
        {"x-00000-of-00002.gguf", 0},
        {"x-00001-of-00000.gguf", 0},
        {"x-0001-of-00002.gguf", 0},
        {"x-00001-of-0002.gguf", 0},
        {"x-00001-of-000002.gguf", 0},
        {"x-0000a-of-00002.gguf", 0},
        {"x-00001-of-0000a.gguf", 0},
        {"x-00001_of-00002.gguf", 0},
        {"x_00001-of-00002.gguf", 0},
        {"x-00001-of-00002.ggu", 0},
        {"x-00001-of-00002.gguf2", 0},
        {"x-00001-of-00002.ggml", 0},
        {"-00001-of-00002.gguf", 0},
        {"dir/-00001-of-00002.gguf", 0},
        {"x.gguf", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CU_ASSERT_EQUAL(found(rows[i].path), rows[i].n);
    struct shards s;
    CU_ASSERT_EQUAL(shards_find(&s, "/no/such/x-00002-of-00003.gguf"), 0);
    for (size_t i = 0; i < 4; i++) {
        char want[64];
        (void)snprintf(want, sizeof(want), "/no/such/x-%05zu-of-00003.gguf", i + 1);
        char *path = shards_path(&s, i);
        CU_ASSERT_STRING_EQUAL(path, want);
        free(path);
    }
    char *sibling = split_sibling("x-00002-of-00003.gguf", 2, 3);
    CU_ASSERT_STRING_EQUAL(sibling, "x-00003-of-00003.gguf");
    free(sibling);
    sibling = split_sibling("-00002-of-00003.gguf", 0, 3);
    CU_ASSERT_STRING_EQUAL(sibling, "-00001-of-00003.gguf");
    free(sibling);
    shards_free(&s);
}

/* Siblings are looked for beside the path or, if the first shard is not there, beside the link's
 * target. */
static void test_links(void)
{
    struct shards s;
    make_folder();
    put("a-00001-of-00002.gguf", "", 0);
    CU_ASSERT_EQUAL(symlink("a-00001-of-00002.gguf", in("b-00001-of-00003.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("b-00001-of-00003.gguf")), 3);
    CU_ASSERT_EQUAL(symlink("a-00001-of-00002.gguf", in("whole.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("whole.gguf")), 2);
    CU_ASSERT_EQUAL(symlink("a-00001-of-00002.gguf", in("c-00002-of-00004.gguf")), 0);
    CU_ASSERT_EQUAL(shards_find(&s, in("c-00002-of-00004.gguf")), 0);
    CU_ASSERT_EQUAL(s.n, 2);
    CU_ASSERT_STRING_EQUAL(s.path, in("a"));
    shards_free(&s);
    put("d-00002-of-00002.gguf", "", 0); /* both places lack the first shard */
    CU_ASSERT_EQUAL(symlink("d-00002-of-00002.gguf", in("e-00002-of-00005.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("e-00002-of-00005.gguf")), 5);
    CU_ASSERT_EQUAL(symlink("d-00002-of-00002.gguf", in("f.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("f.gguf")), 2);
    drop_folder();
}

/* ---- shards ---- */

/* Properties of a shard that is otherwise valid. */
struct shard {
    int no, count, total; /* -1: no such key; total -2: not a number */
    uint8_t version;
    bool big;
    const char *tensor; /* NULL: none */
    bool unknown;       /* the tensor's type is unknown */
};

static const struct shard good = {0, 2, 2, 3, false, "t", false};

static void build_shard(struct build *b, const struct shard *s)
{
    build_init(b, s->version, s->big);
    build_str(b, "general.architecture", "llama");
    if (s->no >= 0)
        build_num(b, "split.no", GGUF_U16, (uint64_t)s->no);
    if (s->count >= 0)
        build_num(b, "split.count", GGUF_U32, (uint64_t)s->count);
    if (s->total >= 0)
        build_num(b, "split.tensors.count", GGUF_I32, (uint64_t)s->total);
    else if (s->total == -2)
        build_str(b, "split.tensors.count", "two");
    build_u32(b, "llama.block_count", 1);
    if (s->tensor)
        build_tensor(b, s->tensor, s->unknown ? UNKNOWN : F32, SHAPE(3), NULL, 12);
}

static struct parsed parse_shard(struct shard s)
{
    struct build b;
    build_shard(&b, &s);
    return parse_build(&b, 0);
}

static int checked(struct shard s, char line[512])
{
    struct err e = {0};
    struct parsed first = parse_shard(good), p = parse_shard(s);
    int r = merge_check(first.g, p.g, 1, 2, &e);
    if (r == 0)
        r = merge_check_total(p.g, 2, &e);
    (void)strcpy(line, e.msg);
    parsed_free(&first);
    parsed_free(&p);
    return r;
}

static void test_check(void)
{
    static const struct {
        struct shard s;
        const char *line; /* beginning of the message; NULL: the shard is valid */
    } rows[] = {
        {{1, 2, 2, 3, false, "u", false}, NULL},
        {{1, 2, -1, 3, false, "u", false}, NULL},
        {{0, 2, 2, 3, false, "u", false}, "split.no: is 0, "},
        {{-1, 2, 2, 3, false, "u", false}, "split.no: the key is missing"},
        {{1, 3, 2, 3, false, "u", false}, "split.count: is 3, "},
        {{1, -1, 2, 3, false, "u", false}, "split.count: the key is missing"},
        {{1, 2, 2, 2, false, "u", false}, "its version or byte order differs"},
        {{1, 2, 2, 3, true, "u", false}, "its version or byte order differs"},
        {{1, 2, 3, 3, false, "u", false}, "split.tensors.count is 3, "},
        {{1, 2, -2, 3, false, "u", false}, "split.tensors.count: is not a number"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[512];
        CU_ASSERT_EQUAL(checked(rows[i].s, line), rows[i].line ? -EBADMSG : 0);
        CU_ASSERT_TRUE(!rows[i].line || strncmp(line, rows[i].line, strlen(rows[i].line)) == 0);
    }
}

/* A file that is a shard by its keys but not by its name is refused, and the message suggests the
 * right name. */
static void test_single(void)
{
    struct err e = {0};
    struct parsed p = parse_shard((struct shard){1, 3, 2, 3, false, "t", false});
    CU_ASSERT_EQUAL(merge_check_single(p.g, &e), -EBADMSG);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "this is file 2 of a split model"));
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "-00002-of-00003.gguf"));
    parsed_free(&p);
    p = parse_shard((struct shard){-1, -1, -1, 3, false, "t", false});
    CU_ASSERT_EQUAL(merge_check_single(p.g, &e), 0);
    parsed_free(&p);
}

/* Merge two shards and return the error; `merged` may be NULL. */
static int merge(struct shard a, struct shard b, struct gguf **merged, char line[512])
{
    struct err e = {0};
    struct gguf *made = NULL;
    struct parsed p[2] = {parse_shard(a), parse_shard(b)};
    const struct gguf *g[] = {p[0].g, p[1].g};
    int r = merge_shards(g, 2, &made, &e);
    CU_ASSERT_EQUAL(r == 0, made != NULL);
    (void)strcpy(line, e.msg);
    parsed_free(&p[0]);
    parsed_free(&p[1]);
    if (merged)
        *merged = made;
    else
        gguf_free(made);
    return r;
}

static void test_merge(void)
{
    char line[512];
    struct gguf *g;
    struct shard second = {1, 2, 2, 3, false, "u", false};
    CU_ASSERT_EQUAL_FATAL(merge(good, second, &g, line), 0);
    CU_ASSERT_EQUAL(g->n_kv, 2); /* without split.* */
    CU_ASSERT_EQUAL(gguf_find_key(g, "llama.block_count", 17), 1);
    CU_ASSERT_EQUAL_FATAL(g->n_tensors, 2);
    CU_ASSERT_TRUE(gguf_find_tensor(g, "t", 1) == 0 && gguf_find_tensor(g, "u", 1) == 1);
    CU_ASSERT_TRUE(g->tensor[0].nbytes == 12 && g->tensor[1].nbytes == 12);
    CU_ASSERT_EQUAL(g->tensor[0].off, g->data_off);
    CU_ASSERT_EQUAL(g->tensor[1].off, g->data_off + 32);
    gguf_free(g);
    /* A tensor of unknown type extends as far as possible, but not beyond its own file. */
    second.unknown = true;
    CU_ASSERT_EQUAL_FATAL(merge(good, second, &g, line), 0);
    CU_ASSERT_EQUAL(g->tensor[0].nbytes, 12);
    CU_ASSERT_EQUAL(g->tensor[1].nbytes, 32);
    gguf_free(g);
    /* Without tensors, there is no data section. */
    struct shard empty = {0, 2, 0, 3, false, NULL, false}, other = {1, 2, 0, 3, false, NULL, false};
    CU_ASSERT_EQUAL_FATAL(merge(empty, other, &g, line), 0);
    CU_ASSERT_TRUE(g->n_tensors == 0 && g->file_size == g->head_len);
    gguf_free(g);
}

static void test_merge_refused(void)
{
    char line[512];
    struct shard second = {1, 2, 2, 3, false, "t", false};
    CU_ASSERT_EQUAL(merge(good, second, NULL, line), -EBADMSG);
    CU_ASSERT_STRING_EQUAL(line, "shard 2: tensor 't' has the same name as one of shard 1");
}

/* Any other fault of a merged model is reported by the parser. */
static void test_merge_large(void)
{
    const uint64_t large = (uint64_t)1 << 60;
    static const char *const lines[] = {"shard 3: tensor 'v' has the same name as one of shard 2",
                                        "the merged model is too large",
                                        "the same name as tensor 1 up to a NUL"};
    for (int i = 0; i < 3; i++) {
        struct parsed p[3];
        struct gguf *made = NULL;
        struct err e = {0};
        for (size_t k = 0; k < 3; k++) {
            struct build b;
            build_init(&b, 3, false);
            const char *name = k == 0 ? "u" : i < 2 ? "v" : k == 1 ? "wX2" : "wX3";
            build_tensor(&b, name, F32, SHAPE(i == 1 ? large : 1), NULL, 4);
            uint8_t *x = memchr(b.infos.data, 'X', b.infos.len);
            if (x)
                *x = 0;
            p[k] = parse_build(&b, i == 1 ? GGUF_PARTIAL : 0);
        }
        const struct gguf *g[] = {p[0].g, p[1].g, p[2].g};
        CU_ASSERT_EQUAL(merge_shards(g, 3, &made, &e), -EBADMSG);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, lines[i]));
        for (size_t k = 0; k < 3; k++)
            parsed_free(&p[k]);
    }
}

/* ---- files ---- */

static void put_shard(const char *name, struct shard s)
{
    struct build b;
    size_t n;
    build_shard(&b, &s);
    uint8_t *image = build_finish(&b, &n);
    put(name, image, n);
    free(image);
}

/* Open all shards x-*-of-0000N.gguf in the directory. */
static int open_all(int n, struct shard first, char line[512])
{
    struct err e = {0};
    struct shards s;
    char name[64];
    (void)snprintf(name, sizeof(name), "x-00001-of-%05d.gguf", n);
    CU_ASSERT_EQUAL_FATAL(shards_find(&s, in(name)), 0);
    CU_ASSERT_EQUAL_FATAL(s.n, (size_t)n);
    struct parsed p = parse_shard(first);
    int r = model_open_shards(&s, p.g, 0, NULL, &e);
    (void)strcpy(line, e.msg);
    CU_ASSERT_STRING_EQUAL(s.name[0], name);
    if (r == 0) {
        CU_ASSERT_TRUE(s.g[0] == p.g && !s.file[0]);
        CU_ASSERT_TRUE(s.g[1] && s.file[1]);
    }
    shards_free(&s);
    CU_ASSERT_EQUAL(s.n, 0);
    parsed_free(&p);
    return r;
}

static void test_open(void)
{
    static const struct shard first = {0, 3, 3, 3, false, "t", false},
                              second = {1, 3, 3, 3, false, "u", false},
                              third = {2, 3, 3, 3, false, "v", false};
    char line[512];
    make_folder();
    put_shard("x-00002-of-00003.gguf", second);
    CU_ASSERT_EQUAL(open_all(3, first, line), -ENOENT);
    CU_ASSERT_STRING_EQUAL(
        line,
        "shard x-00003-of-00003.gguf: No such file or directory (-o partial mounts what is there)");
    put_shard("x-00003-of-00003.gguf", third);
    CU_ASSERT_EQUAL(open_all(3, first, line), 0);
    put("x-00004-of-00003.gguf", "", 0);
    CU_ASSERT_EQUAL(open_all(3, first, line), -EBADMSG);
    CU_ASSERT_EQUAL(unlink(in("x-00004-of-00003.gguf")), 0);
    /* The count is wrong, first in the first file, then in the last one. */
    struct shard wrong = first;
    wrong.total = 4;
    CU_ASSERT_EQUAL(open_all(3, wrong, line), -EBADMSG);
    CU_ASSERT_EQUAL(strncmp(line, "shard x-00001-of-00003.gguf: split.tensors.count is 4", 53), 0);
    wrong = third;
    wrong.total = 2;
    put_shard("x-00003-of-00003.gguf", wrong);
    CU_ASSERT_EQUAL(open_all(3, first, line), -EBADMSG);
    CU_ASSERT_EQUAL(strncmp(line, "shard x-00003-of-00003.gguf: split.tensors.count is 2", 53), 0);
    /* One model does not match its name, and one file is not a model. */
    put_shard("x-00003-of-00003.gguf", second);
    CU_ASSERT_EQUAL(open_all(3, first, line), -EBADMSG);
    CU_ASSERT_EQUAL(strncmp(line, "shard x-00003-of-00003.gguf: split.no: is 1", 43), 0);
    put("x-00002-of-00003.gguf", "text", 4);
    CU_ASSERT_EQUAL(open_all(3, first, line), -EBADMSG);
    CU_ASSERT_EQUAL(strncmp(line, "shard x-00002-of-00003.gguf: ", 29), 0);
    drop_folder();
}

/* A model is not read while an edit of any of its files is interrupted; --recover finishes it. */
static void test_journal(void)
{
    struct build b;
    struct err e = {0};
    size_t n;
    char line[512];
    static const struct shard first = {0, 2, 2, 3, false, "t", false},
                              wrong = {1, 2, 3, 3, false, "u", false},
                              second = {1, 2, 2, 3, false, "u", false};
    make_folder();
    put_shard("x-00002-of-00002.gguf", wrong);
    CU_ASSERT_EQUAL(open_all(2, first, line), -EBADMSG);
    struct model_file m;
    CU_ASSERT_EQUAL_FATAL(model_find(in("x-00002-of-00002.gguf"), &m, &e), 0);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&m.file, &sys_libc, m.dir, m.name, true, &e), 0);
    build_shard(&b, &second);
    uint8_t *new = build_finish(&b, &n);
    CU_ASSERT_EQUAL(put_journal(&m.file, new, n), 0);
    model_free(&m);
    CU_ASSERT_EQUAL(open_all(2, first, line), -EUCLEAN);
    CU_ASSERT_PTR_NOT_NULL(strstr(line, "--recover"));
    struct edit_recovered found;
    CU_ASSERT_EQUAL_FATAL(model_find(in("x-00002-of-00002.gguf"), &m, &e), 0);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&m.file, &sys_libc, m.dir, m.name, true, &e), 0);
    CU_ASSERT_EQUAL(edit_recover(&m.file, &found, &e), 0);
    CU_ASSERT_TRUE(found.finished);
    model_free(&m);
    CU_ASSERT_EQUAL(open_all(2, first, line), 0);
    free(new);
    drop_folder();
}

static CU_TestInfo tests[] = {
    {"shards are recognised by their names", test_names},
    {"the shards of a link are found beside it or its target", test_links},
    {"a shard is checked against its name and the first one", test_check},
    {"a shard without a shard's name is refused, with a suggestion", test_single},
    {"shards are merged", test_merge},
    {"shards with equal tensor names cannot be merged", test_merge_refused},
    {"shards that are too large together cannot be merged", test_merge_large},
    {"all shards are opened, or the bad one is named", test_open},
    {"a shard with a journal is not read", test_journal},
    CU_TEST_INFO_NULL,
};

CU_MAIN("model/shards", tests)
