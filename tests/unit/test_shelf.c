/* SPDX-License-Identifier: MIT */
/* shelf: what other programs do to a directory of models while it is looked at; manifests that are
 * accepted, and their limits (tests/fuzz/fuzz_small.c tries random bytes). */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "model_dir.h"
#include "shelf/manifest.h"
#include "shelf/place.h"
#include "shelf/shelf.h"

static char top[64];
static int dir;
static struct shelf *shelf;
static struct tree_entry second;

static void put(const char *name)
{
    size_t n;
    struct build b = build_of(3, false);
    build_str(&b, "general.architecture", "llama");
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    put_file(dir, name, image, n);
}

/* Called once, when the rights of a file are looked at. */
static void (*while_looked_at)(void);

ssize_t __real_getxattr(const char *path, const char *name, void *value, size_t n);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t n);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t n)
{
    void (*const call)(void) = while_looked_at;
    while_looked_at = NULL;
    if (call)
        call();
    return __real_getxattr(path, name, value, n);
}

static void replace_and_look(void)
{
    put("new");
    CU_ASSERT_EQUAL(renameat(dir, "new", dir, "m.gguf"), 0);
    CU_ASSERT_EQUAL(shelf_lookup(shelf, INO_ROOT, "m.gguf", &second), 0);
}

/* A model is replaced and looked up between the moments when another look-up sees the old file and when
 * it ends: both find the new file. */
TEST("a model is replaced while it is looked up")
{
    const struct shelf_options o = {0};
    struct tree_entry first, info;
    make_folder(top, &dir, "/tmp");
    put("m.gguf");
    CU_ASSERT_EQUAL_FATAL(shelf_open(top, &o, &shelf, NULL), 0);
    while_looked_at = replace_and_look;
    CU_ASSERT_EQUAL(shelf_lookup(shelf, INO_ROOT, "m.gguf", &first), 0);
    CU_ASSERT_EQUAL(first.node, second.node);
    CU_ASSERT_EQUAL(shelf_lookup(shelf, second.node, "info", &info), 0);
    shelf_close(shelf);
    (void)close(dir);
    remove_tree(top);
}

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LAYER(word, digest)                                                                \
    "{\"mediaType\":\"application/vnd.ollama.image." word "\",\"digest\":\"sha256:" digest \
    "\",\"size\":4}"
#define MANIFEST(layers) "{\"schemaVersion\":2,\"layers\":[" layers "]}"

/* No path in an accepted manifest leads out of the store. */
TEST("no accepted manifest leads out of the store")
{
    static const struct {
        const char *text;
        int result;
    } rows[] = {
        {MANIFEST(LAYER("model", A64)), 0},
        {MANIFEST(""), 0},
        {"", -EBADMSG},
        {"[]", -EBADMSG},
        {"{\"schemaVersion\":1,\"layers\":[]}", -EBADMSG},
        {"{\"layers\":[]}", -EBADMSG},
        {"{\"schemaVersion\":2}", -EBADMSG},
        {"{\"schemaVersion\":2,\"layers\":{}}", -EBADMSG},
        {"{\"schemaVersion\":2,\"layers\":[1,null,\"x\",{},{\"mediaType\":3}]}", 0},
        {MANIFEST(LAYER("model", "../../../etc/passwd")), -EBADMSG},
        {MANIFEST(LAYER("model", "/etc/passwd")), -EBADMSG},
        {MANIFEST(LAYER("model", A64 "a")), -EBADMSG},
        {MANIFEST(LAYER("model", "")), -EBADMSG},
        {MANIFEST(LAYER("tensor", A64)), -EBADMSG},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CLEANUP(manifest_free) struct manifest m = {0};
        struct err e = {0};
        CU_ASSERT_EQUAL(manifest_parse(rows[i].text, strlen(rows[i].text), &m, &e), rows[i].result);
        CU_ASSERT_EQUAL(e.code, rows[i].result);
    }
}

TEST("manifests have at most the maximum number of layers")
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct manifest m;
    struct err e = {0};
    buf_str(&text, "{\"schemaVersion\":2,\"layers\":[{}");
    for (int i = 1; i < MANIFEST_LAYERS_MAX; i++)
        buf_str(&text, ",{}");
    buf_str(&text, "]}");
    CU_ASSERT_EQUAL(manifest_parse(text.data, text.len, &m, &e), 0);
    manifest_free(&m);
    text.len -= 2;
    buf_str(&text, ",{}]}");
    CU_ASSERT_EQUAL(manifest_parse(text.data, text.len, &m, &e), -EBADMSG);
    text.len = 0;
    for (size_t i = 0; i < MANIFEST_MAX; i++)
        buf_char(&text, '[');
    CU_ASSERT_EQUAL(manifest_parse(text.data, text.len, &m, &e), -EBADMSG);
    buf_char(&text, '[');
    CU_ASSERT_EQUAL(manifest_parse(text.data, text.len, &m, &e), -EFBIG);
}
