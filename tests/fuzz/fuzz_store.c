/* SPDX-License-Identifier: MIT */
/*
 * Treats arbitrary bytes as files that a store keeps beside its models: an Ollama manifest, and a
 * commit and a directory name from a Hugging Face cache. Accepted files cannot refer to a file
 * outside their store.
 */
#include "fuzz.h"

#include <string.h>

#include "shelf/manifest.h"
#include "shelf/place.h"

static void check_manifest(const uint8_t *data, size_t size)
{
    struct manifest m;
    struct err e = {0};
    size_t models = 0;
    int r = manifest_parse(data, size, &m, &e);
    FUZZ_CHECK(r == e.code);
    if (r < 0)
        return;
    FUZZ_CHECK(m.n <= MANIFEST_LAYERS_MAX);
    for (size_t i = 0; i < m.n; i++) {
        const char *digest = m.layer[i].digest;
        FUZZ_CHECK(strspn(digest, "0123456789abcdef") == DIGEST_DIGITS && !digest[DIGEST_DIGITS]);
        FUZZ_CHECK(!strchr(m.layer[i].name, '/'));
        models += m.layer[i].model;
    }
    FUZZ_CHECK(models == m.models);
    manifest_free(&m);
}

static void check_hub(const uint8_t *data, size_t size)
{
    char revision[TREE_NAME_MAX + 1], org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    char *folder = malloc(size + 1);
    if (revision_parse(data, size, revision))
        FUZZ_CHECK(revision[0] && revision[0] != '.' && !strchr(revision, '/'));
    if (!folder)
        return;
    if (size)
        memcpy(folder, data, size);
    folder[size] = '\0';
    if (repo_name(folder, org, name))
        FUZZ_CHECK(name[0] && name[0] != '.' && org[0] != '.' && !strstr(org, "--"));
    free(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_manifest(data, size);
    check_hub(data, size);
    return 0;
}
