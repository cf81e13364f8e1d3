/* SPDX-License-Identifier: MIT */
/* Parses ollama's manifests: see manifest.h. */
#include "shelf/manifest.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define MEDIA "application/vnd.ollama.image."
#define DIGEST "sha256:"

/* The kinds of layers that are shown, in the order of struct manifest. `word` is the last word of
 * the layer's media type. Rows with the same name are adjacent. */
static const struct {
    const char *word, *name;
    bool model;
} kinds[] = {
    {"model", "model", true},        {"projector", "projector", true},
    {"adapter", "adapter", true},    {"draft", "draft", true},
    {"template", "template", false}, {"prompt", "template", false}, /* an old media type */
    {"system", "system", false},     {"params", "params", false},
    {"license", "license", false},   {"messages", "messages", false},
};

static const char *string_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* Return the last word of a layer's media type, or "" if the type is not one of ollama's. */
static const char *word_of(const cJSON *layer)
{
    const char *type = string_of(layer, "mediaType");
    return type && strncmp(type, MEDIA, strlen(MEDIA)) == 0 ? type + strlen(MEDIA) : "";
}

static bool digest_of(const cJSON *layer, char ret[DIGEST_DIGITS + 1])
{
    const char *text = string_of(layer, "digest");
    if (!text || strncmp(text, DIGEST, strlen(DIGEST)) != 0)
        return false;
    text += strlen(DIGEST);
    if (strlen(text) != DIGEST_DIGITS || strspn(text, "0123456789abcdef") != DIGEST_DIGITS)
        return false;
    memcpy(ret, text, DIGEST_DIGITS + 1);
    return true;
}

/* Add the layers of one kind, in the order of the manifest. */
static int add_kind(const cJSON *layers, size_t kind, struct manifest *m, struct err *e)
{
    const cJSON *at;
    size_t number = 0;
    cJSON_ArrayForEach(at, layers)
    {
        struct layer *l = &m->layer[m->n];
        number++;
        if (strcmp(word_of(at), kinds[kind].word) != 0)
            continue;
        if (!digest_of(at, l->digest))
            return err_set(e, -EBADMSG, "layer %zu: the digest is not sha256:<64 hex digits>",
                           number - 1);
        l->name = kinds[kind].name;
        l->model = kinds[kind].model;
        m->models += l->model;
        m->n++;
    }
    return 0;
}

static int read_layers(const cJSON *top, struct manifest *m, struct err *e)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(top, "schemaVersion");
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(top, "layers");
    if (!cJSON_IsNumber(version) || version->valuedouble != 2)
        return err_set(e, -EBADMSG, "schemaVersion is not 2");
    if (!cJSON_IsArray(layers))
        return err_set(e, -EBADMSG, "has no layers");
    int n = cJSON_GetArraySize(layers);
    if (n > MANIFEST_LAYERS_MAX)
        return err_set(e, -EBADMSG, "has %d layers, more than %d", n, MANIFEST_LAYERS_MAX);
    m->layer = calloc((size_t)n + 1, sizeof(*m->layer));
    if (!m->layer)
        return err_set(e, -ENOMEM, "no memory");
    const cJSON *at;
    bool tensors = false;
    int r = 0;
    for (size_t k = 0; k < COUNT(kinds) && r == 0; k++)
        r = add_kind(layers, k, m, e);
    cJSON_ArrayForEach(at, layers)
    {
        const char *word = word_of(at); /* parameters may follow the word */
        tensors |= strcspn(word, "; ") == 6 && strncmp(word, "tensor", 6) == 0;
    }
    return r == 0 && tensors && !m->models
               ? err_set(e, -EBADMSG, "stores each tensor in its own file, not in a GGUF file")
               : r;
}

int manifest_parse(const void *bytes, size_t n, struct manifest *ret, struct err *e)
{
    struct manifest m = {0};
    if (n > MANIFEST_MAX)
        return err_set(e, -EFBIG, "is larger than %zu bytes", MANIFEST_MAX);
    cJSON *top = n ? cJSON_ParseWithLength(bytes, n) : NULL;
    int r = cJSON_IsObject(top) ? read_layers(top, &m, e)
                                : err_set(e, -EBADMSG, "is not a manifest: no JSON object");
    cJSON_Delete(top);
    if (r == 0)
        *ret = m;
    else
        manifest_free(&m);
    return r;
}

void manifest_free(struct manifest *m)
{
    free(m->layer);
    *m = (struct manifest){0};
}
