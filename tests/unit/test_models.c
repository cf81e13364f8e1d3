/* SPDX-License-Identifier: MIT */
/*
 * shelf, check/summary: failing allocations. tests/mount/check.py tests which models are found.
 */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cJSON.h>

#include "alloc.h"
#include "build_gguf.h"
#include "check/summary.h"
#include "shelf/models.h"
#include "shelf/shelf.h"

static char top[] = "/tmp/ggufs-models-XXXXXX";

static void put(int dir, const char *name, bool shard, uint64_t no)
{
    struct build b;
    size_t n;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "llama");
    if (shard) {
        build_num(&b, "split.no", GGUF_U16, no);
        build_num(&b, "split.count", GGUF_U16, 2);
        build_num(&b, "split.tensors.count", GGUF_I32, 2);
    }
    build_tensor(&b, no ? "u" : "t", 0, (uint64_t[]){8}, 1, NULL, 32);
    uint8_t *image = build_finish(&b, &n);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CU_ASSERT_EQUAL_FATAL(write(fd, image, n), (ssize_t)n);
    (void)close(fd);
    free(image);
}

/* a.gguf, a split model, a directory with another model, and a link to that directory. */
static const char *const names[] = {"a.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf",
                                    "sub/b.gguf", "link"};

static int setup(void)
{
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(top));
    int dir = open(top, O_RDONLY | O_DIRECTORY);
    CU_ASSERT_EQUAL(mkdirat(dir, "sub", 0700), 0);
    put(dir, names[0], false, 0);
    put(dir, names[1], true, 0);
    put(dir, names[2], true, 1);
    put(dir, names[3], false, 0);
    CU_ASSERT_EQUAL(symlinkat("sub", dir, names[4]), 0);
    return dir;
}

static void teardown(int dir)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CU_ASSERT_EQUAL(unlinkat(dir, names[i], 0), 0);
    CU_ASSERT_EQUAL(unlinkat(dir, "sub", AT_REMOVEDIR), 0);
    (void)close(dir);
    CU_ASSERT_EQUAL(rmdir(top), 0);
    (void)strcpy(top + strlen(top) - 6, "XXXXXX");
}

/* If an allocation fails, the call either fails without a leak or finds all models. */
static void test_models(void)
{
    int dir = setup();
    for (unsigned at = 1, hit = 1; hit; at++) {
        struct models m = MODELS_INIT;
        alloc_count();
        alloc_arm(at, false);
        int r = models_add(&m, top);
        hit = alloc_disarm();
        CU_ASSERT_TRUE(r == 0 || (hit && r == -ENOMEM));
        if (!hit) {
            CU_ASSERT_EQUAL_FATAL(m.n, 4);
            CU_ASSERT_TRUE(m.folders);
            CU_ASSERT_PTR_NOT_NULL(strstr(m.model[0].path, "/a.gguf"));
            CU_ASSERT_PTR_NOT_NULL(strstr(m.model[1].path, "/link/b.gguf"));
            CU_ASSERT_EQUAL(m.model[2].shards, 2);
            CU_ASSERT_PTR_NOT_NULL(strstr(m.model[3].path, "/sub/b.gguf"));
        }
        models_free(&m);
        CU_ASSERT_TRUE(alloc_live() <= 0); /* libc's own allocations do not count */
    }
    teardown(dir);
}

static uint64_t node_of(struct shelf *s, char *path)
{
    uint64_t node = INO_ROOT;
    for (char *name = strtok(path, "/"); name; name = strtok(NULL, "/")) {
        struct tree_entry e = {0};
        CU_ASSERT_EQUAL_FATAL(shelf_lookup(s, node, name, &e), 0);
        node = e.node;
    }
    return node;
}

static void set_architecture(struct shelf *s, const char *model)
{
    char path[128];
    struct tree_file *f = NULL;
    struct tree_call c = TREE_CALL;
    (void)snprintf(path, sizeof(path), "%s/metadata/general.architecture", model);
    CU_ASSERT_EQUAL_FATAL(shelf_open_file(s, node_of(s, path), O_WRONLY | O_TRUNC, &f), 0);
    CU_ASSERT_EQUAL(tree_write(f, 0, "edited\n", 7, NULL), 0);
    CU_ASSERT_EQUAL(tree_call_end(&c, tree_flush(f, &c.wait)), 0);
    (void)shelf_release(f);
}

static bool is_edited(int dir, const char *name)
{
    char bytes[128] = "";
    int fd = openat(dir, name, O_RDONLY);
    const ssize_t n = read(fd, bytes, sizeof(bytes));
    (void)close(fd);
    return n > 0 && memmem(bytes, (size_t)n, "edited", 6);
}

/* Edits of three models are collected. If an allocation fails at the end, at most one of them is
 * lost, and shelf_finish() says so. */
static void test_finish(void)
{
    static const char *const model[] = {"a.gguf", "sub/b.gguf", "link/b.gguf"};
    const struct shelf_options o = {.tree = {.commit = LIVE_COMMIT_SYNC}};
    for (unsigned at = 1, hit = 1; hit; at++) {
        struct shelf *s = NULL;
        int dir = setup(), edited = 0;
        CU_ASSERT_EQUAL_FATAL(unlinkat(dir, "link", 0), 0);
        CU_ASSERT_EQUAL_FATAL(mkdirat(dir, "link", 0700), 0);
        put(dir, model[2], false, 0);
        CU_ASSERT_EQUAL_FATAL(shelf_open(top, &o, &s, NULL), 0);
        for (size_t i = 0; i < 3; i++)
            set_architecture(s, model[i]);
        alloc_arm(at, false);
        int r = shelf_finish(s);
        hit = alloc_disarm();
        shelf_close(s);
        for (size_t i = 0; i < 3; i++)
            edited += is_edited(dir, model[i]);
        CU_ASSERT_TRUE(r == 0 ? edited == 3 : hit && edited >= 2);
        CU_ASSERT_EQUAL(unlinkat(dir, model[2], 0), 0);
        CU_ASSERT_EQUAL(unlinkat(dir, "link", AT_REMOVEDIR), 0);
        CU_ASSERT_EQUAL(symlinkat("sub", dir, "link"), 0);
        teardown(dir);
    }
}

static void test_header(void)
{
    int dir = setup();
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", top, names[2]);
    for (unsigned at = 1, hit = 1; hit; at++) {
        struct summary s = {0};
        struct err e = {0};
        alloc_count();
        alloc_arm(at, false);
        int r = summary_open(path, &s, &e);
        hit = alloc_disarm();
        CU_ASSERT_TRUE(r == 0 || hit);
        CU_ASSERT_EQUAL(e.code, r);
        if (r == 0) {
            CU_ASSERT_EQUAL(s.shards, 2);
            CU_ASSERT_EQUAL(s.missing, 0);
            CU_ASSERT_EQUAL(s.g->n_tensors, 2);
        }
        gguf_free(s.g);
        CU_ASSERT_TRUE(alloc_live() <= 0); /* libc's own allocations do not count */
    }
    teardown(dir);
}

/* The text has the measured size, and the JSON is complete unless an allocation fails. */
static void test_summary(void)
{
    int dir = setup();
    char path[128];
    struct summary s;
    (void)snprintf(path, sizeof(path), "%s/%s", top, names[1]);
    CU_ASSERT_EQUAL_FATAL(summary_open(path, &s, NULL), 0);
    s.file = "Tiny-1K-v1.0.gguf";
    s.missing = 5;
    struct buf size = BUF_MEASURE, text = BUF_INIT;
    summary_text(&s, &size);
    summary_text(&s, &text);
    CU_ASSERT_EQUAL(size.len, text.len);
    buf_char(&text, '\0');
    CU_ASSERT_PTR_NOT_NULL(strstr((const char *)text.data, "missing:         5 bytes of data"));
    CU_ASSERT_PTR_NULL(strstr((const char *)text.data, "layers"));
    buf_free(&text);
    for (unsigned at = 1, hit = 1; hit; at++) {
        struct buf out = BUF_INIT;
        struct json j = {.out = &out};
        alloc_arm(at, false);
        json_begin(&j, NULL, "{");
        summary_json(&s, &j);
        json_end(&j);
        hit = alloc_disarm();
        CU_ASSERT_EQUAL(buf_error(&out), hit ? -ENOMEM : 0);
        cJSON *object = hit ? NULL : cJSON_ParseWithLength((const char *)out.data, out.len);
        CU_ASSERT_EQUAL(cJSON_GetObjectItem(object, "size") != NULL || hit, true);
        cJSON_Delete(object);
        buf_free(&out);
    }
    gguf_free(s.g);
    teardown(dir);
}

static CU_TestInfo tests[] = {
    {"an allocation fails while the models of a directory are listed", test_models},
    {"an allocation fails while the edits of many models are written", test_finish},
    {"an allocation fails while a header is read without a mount", test_header},
    {"a summary is printed as text and as JSON", test_summary},
    CU_TEST_INFO_NULL,
};

CU_MAIN("models", tests)
