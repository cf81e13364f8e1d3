/* SPDX-License-Identifier: MIT */
/* model/shards, edit/open: finding, opening, checking and merging the files of a
 * split model. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cu_test.h"
#include "edit/open.h"
#include "model/shards.h"
#include "model_dir.h"
#include "quant/types.h"

/* ---- a directory ---- */

static struct place place;

static void begin(void)
{
    make_place(&place, &(struct content){0});
}

/* Return the path of a name in the directory, valid until the next call but one. */
static const char *in(const char *name)
{
    static char path[2][512];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", place.folder, name);
    return path[turn];
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

TEST("shards are recognised by their names")
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
    for (size_t i = 0; i < COUNT(rows); i++)
        CU_ASSERT_EQUAL(found(rows[i].path), rows[i].n);
    CLEANUP(shards_free) struct shards s;
    CU_ASSERT_EQUAL(shards_find(&s, "/no/such/x-00002-of-00003.gguf"), 0);
    for (size_t i = 0; i < 4; i++) {
        char want[64];
        (void)snprintf(want, sizeof(want), "/no/such/x-%05zu-of-00003.gguf", i + 1);
        CLEANUP(free_it) char *path = shards_path(&s, i);
        CU_ASSERT_STRING_EQUAL(path, want);
    }
    char *sibling = split_sibling("x-00002-of-00003.gguf", 2, 3);
    CU_ASSERT_STRING_EQUAL(sibling, "x-00003-of-00003.gguf");
    free(sibling);
    sibling = split_sibling("-00002-of-00003.gguf", 0, 3);
    CU_ASSERT_STRING_EQUAL(sibling, "-00001-of-00003.gguf");
    free(sibling);
}

/* Siblings are looked for beside the path or, if the first shard is not there, beside the link's
 * target. */
TEST("the shards of a link are found beside it or its target")
{
    struct shards s;
    begin();
    put_file(place.dir, "a-00001-of-00002.gguf", "", 0);
    CU_ASSERT_EQUAL(symlink("a-00001-of-00002.gguf", in("b-00001-of-00003.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("b-00001-of-00003.gguf")), 3);
    CU_ASSERT_EQUAL(symlink("a-00001-of-00002.gguf", in("whole.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("whole.gguf")), 2);
    CU_ASSERT_EQUAL(symlink("a-00001-of-00002.gguf", in("c-00002-of-00004.gguf")), 0);
    CU_ASSERT_EQUAL(shards_find(&s, in("c-00002-of-00004.gguf")), 0);
    CU_ASSERT_EQUAL(s.n, 2);
    CU_ASSERT_STRING_EQUAL(s.path, in("a"));
    shards_free(&s);
    put_file(place.dir, "d-00002-of-00002.gguf", "", 0); /* both places lack the first shard */
    CU_ASSERT_EQUAL(symlink("d-00002-of-00002.gguf", in("e-00002-of-00005.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("e-00002-of-00005.gguf")), 5);
    CU_ASSERT_EQUAL(symlink("d-00002-of-00002.gguf", in("f.gguf")), 0);
    CU_ASSERT_EQUAL(found(in("f.gguf")), 2);
    drop_place(&place);
}

/* ---- shards ---- */

/* A file of a split model. */
struct shard {
    int no, count, total; /* -1: no such key; total -2: not a number */
    const char *tensor;   /* NULL: none */
    uint32_t type;
    bool old, big;
};

static const struct shard first = {.count = 2, .total = 2, .tensor = "t"},
                          second = {.no = 1, .count = 2, .total = 2, .tensor = "u"};

static void build_shard(struct build *b, const struct shard *s)
{
    *b = build_of(s->old ? 2 : 3, s->big);
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
        build_tensor(b, s->tensor, s->type, SHAPE(3), NULL, 12);
}

static void put_shard(const char *name, const struct shard *s)
{
    struct build b;
    size_t n;
    build_shard(&b, s);
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    put_file(place.dir, name, image, n);
}

/* Open and merge x-*-of-0000N.gguf in the directory; the first of them is given. Returns the merged
 * model, or NULL and an error. */
static struct gguf *opened(int n, const struct shard *one, struct err *e)
{
    struct shards s;
    struct build b;
    struct gguf *g = NULL;
    char name[64];
    *e = (struct err){0};
    (void)snprintf(name, sizeof(name), "x-00001-of-%05d.gguf", n);
    CU_ASSERT_EQUAL_FATAL(shards_find(&s, in(name)), 0);
    CU_ASSERT_EQUAL_FATAL(s.n, (size_t)n);
    build_shard(&b, one);
    struct gguf *own = gguf_of(&b);
    int r = model_open_shards(&s, own, 0, NULL, e);
    if (r == 0)
        r = merge_shards((const struct gguf *const *)s.g, s.n, &g, e);
    CU_ASSERT_TRUE(r == e->code && (r == 0) == (g != NULL));
    shards_free(&s);
    gguf_free(own);
    return g;
}

static void refused(int n, const struct shard *one, int code, const char *line)
{
    struct err e;
    CU_ASSERT_PTR_NULL(opened(n, one, &e));
    CU_ASSERT_EQUAL(e.code, code);
    CU_SAYS(strstr(e.msg, line), "%s: %s\n", line, e.msg);
}

TEST("a shard that does not fit is refused and named")
{
    static const struct {
        bool is_first; /* the first file is wrong, else the second */
        struct shard s;
        const char *line;
    } rows[] = {
        {false, {0, 2, 2, "u", F32, false, false}, "00002-of-00002.gguf: split.no: is 0, "},
        {false, {-1, 2, 2, "u", F32, false, false}, "00002.gguf: split.no: the key is missing"},
        {false, {1, 3, 2, "u", F32, false, false}, "00002.gguf: split.count: is 3, "},
        {false, {1, -1, 2, "u", F32, false, false}, "00002.gguf: split.count: the key is missing"},
        {false, {1, 2, 2, "u", F32, true, false}, "its version or byte order differs"},
        {false, {1, 2, 2, "u", F32, false, true}, "its version or byte order differs"},
        {false, {1, 2, 3, "u", F32, false, false}, "00002-of-00002.gguf: split.tensors.count is 3"},
        {true, {0, 2, 3, "t", F32, false, false}, "00001-of-00002.gguf: split.tensors.count is 3"},
        {false, {1, 2, -2, "u", F32, false, false}, "split.tensors.count: is not a number"},
        {false, {1, 2, 2, "t", F32, false, false}, "'t': name at byte "},
    };
    begin();
    for (size_t i = 0; i < COUNT(rows); i++) {
        put_shard("x-00002-of-00002.gguf", rows[i].is_first ? &second : &rows[i].s);
        refused(2, rows[i].is_first ? &rows[i].s : &first, -EBADMSG, rows[i].line);
    }
    put_file(place.dir, "x-00002-of-00002.gguf", "text", 4);
    refused(2, &first, -EBADMSG, "shard x-00002-of-00002.gguf: ");
    CU_ASSERT_EQUAL(unlink(in("x-00002-of-00002.gguf")), 0);
    refused(2, &first, -ENOENT,
            "shard x-00002-of-00002.gguf: No such file or directory (-o partial");
    drop_place(&place);
}

/* A file that is a shard by its keys but not by its name is refused, and the message suggests the
 * right name. */
TEST("a shard without a shard's name is refused, with a suggestion")
{
    struct err e = {0};
    struct build b;
    build_shard(&b, &(struct shard){.no = 1, .count = 3, .total = -1});
    struct gguf *g = gguf_of(&b);
    CU_ASSERT_EQUAL(merge_check_single(g, &e), -EBADMSG);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "-00002-of-00003.gguf"));
    gguf_free(g);
    build_shard(&b, &(struct shard){.no = -1, .count = -1, .total = -1});
    g = gguf_of(&b);
    CU_ASSERT_EQUAL(merge_check_single(g, &e), 0);
    gguf_free(g);
}

TEST("shards are merged")
{
    struct err e;
    struct shard other = second;
    begin();
    put_shard("x-00002-of-00002.gguf", &second);
    struct gguf *g = opened(2, &first, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    CU_ASSERT_EQUAL(g->n_kv, 2); /* without split.* */
    CU_ASSERT_EQUAL(gguf_find_key(g, "llama.block_count", 17), 1);
    CU_ASSERT_EQUAL_FATAL(g->n_tensors, 2);
    CU_ASSERT_TRUE(gguf_find_tensor(g, "t", 1) == 0 && gguf_find_tensor(g, "u", 1) == 1);
    CU_ASSERT_TRUE(g->tensor[0].nbytes == 12 && g->tensor[1].nbytes == 12);
    CU_ASSERT_EQUAL(g->tensor[0].off, g->data_off);
    CU_ASSERT_EQUAL(g->tensor[1].off, g->data_off + 32);
    gguf_free(g);
    /* A tensor of unknown type extends as far as possible, but not beyond its own file. Not each
     * file has the number of all tensors. */
    other.type = QUANT_N_TYPES;
    other.total = -1;
    put_shard("x-00002-of-00002.gguf", &other);
    g = opened(2, &first, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    CU_ASSERT_EQUAL(g->tensor[0].nbytes, 12);
    CU_ASSERT_EQUAL(g->tensor[1].nbytes, 32);
    gguf_free(g);
    /* Without tensors, there is no data section. */
    put_shard("x-00002-of-00002.gguf", &(struct shard){.no = 1, .count = 2});
    g = opened(2, &(struct shard){.count = 2}, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g);
    CU_ASSERT_TRUE(g->n_tensors == 0 && g->file_size == g->head_len);
    gguf_free(g);
    drop_place(&place);
}

/* Any other fault of a merged model is reported by the parser. */
TEST("shards that are too large together cannot be merged")
{
    struct parsed p[2];
    struct gguf *made = NULL;
    struct err e = {0};
    for (size_t k = 0; k < 2; k++) {
        struct build b = build_of(3, false);
        build_tensor(&b, k ? "v" : "u", F32, SHAPE(GGUF_MAX_ELEMENTS), NULL, 4);
        p[k] = parse_build(&b, GGUF_PARTIAL);
    }
    const struct gguf *g[] = {p[0].g, p[1].g};
    CU_ASSERT_EQUAL(merge_shards(g, 2, &made, &e), -EBADMSG);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "the merged model is too large"));
    parsed_free(&p[0]);
    parsed_free(&p[1]);
}
