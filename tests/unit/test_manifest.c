/* SPDX-License-Identifier: MIT */
/* shelf/manifest: manifests that are accepted, and their limits. tests/fuzz/fuzz_small.c tries
 * random bytes. */
#include "cu_test.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "shelf/manifest.h"
#include "shelf/place.h"

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
