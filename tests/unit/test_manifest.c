/* SPDX-License-Identifier: MIT */
/* shelf/manifest: manifests that are accepted, and their limits. tests/fuzz/fuzz_store.c tries
 * random bytes. */
#include "cu_main.h"

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
static void test_manifests(void)
{
    static const struct {
        const char *text, *error; /* NULL: the manifest is accepted */
    } rows[] = {
        {MANIFEST(LAYER("model", A64)), NULL},
        {MANIFEST(""), NULL},
        {"", "is not a manifest: no JSON object"},
        {"[]", "is not a manifest: no JSON object"},
        {"{\"schemaVersion\":1,\"layers\":[]}", "schemaVersion is not 2"},
        {"{\"layers\":[]}", "schemaVersion is not 2"},
        {"{\"schemaVersion\":2}", "has no layers"},
        {"{\"schemaVersion\":2,\"layers\":{}}", "has no layers"},
        {"{\"schemaVersion\":2,\"layers\":[1,null,\"x\",{},{\"mediaType\":3}]}", NULL},
        {MANIFEST(LAYER("model", "../../../etc/passwd")),
         "layer 0: the digest is not sha256:<64 hex digits>"},
        {MANIFEST(LAYER("model", "/etc/passwd")),
         "layer 0: the digest is not sha256:<64 hex digits>"},
        {MANIFEST(LAYER("model", A64 "a")), "layer 0: the digest is not sha256:<64 hex digits>"},
        {MANIFEST(LAYER("model", "")), "layer 0: the digest is not sha256:<64 hex digits>"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct manifest m;
        struct err e = {0};
        int r = manifest_parse(rows[i].text, strlen(rows[i].text), &m, &e);
        CU_ASSERT_EQUAL(r == 0, rows[i].error == NULL);
        if (rows[i].error)
            CU_ASSERT_STRING_EQUAL(e.msg, rows[i].error);
        if (r == 0)
            manifest_free(&m);
    }
}

static void test_manifest_limits(void)
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
    CU_ASSERT_STRING_EQUAL(e.msg, "has 4097 layers, more than 4096");
    text.len = 0;
    for (size_t i = 0; i < MANIFEST_MAX; i++)
        buf_char(&text, '[');
    CU_ASSERT_EQUAL(manifest_parse(text.data, text.len, &m, &e), -EBADMSG);
    buf_char(&text, '[');
    CU_ASSERT_EQUAL(manifest_parse(text.data, text.len, &m, &e), -EFBIG);
}

static CU_TestInfo tests[] = {
    {"no accepted manifest leads out of the store", test_manifests},
    {"manifests have at most the maximum number of layers", test_manifest_limits},
    CU_TEST_INFO_NULL,
};

CU_MAIN("manifest", tests)
