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

/* The kinds of layers that are shown. `word` is the last word of the layer's media type. */
static const struct kind {
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

static const struct kind *kind_of(const char *word)
{
    for (size_t k = 0; k < COUNT(kinds); k++)
        if (strcmp(word, kinds[k].word) == 0)
            return &kinds[k];
    return NULL;
}

static int read_layers(const cJSON *top, struct manifest *m, struct err *e)
{
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(top, "schemaVersion"), *at;
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(top, "layers");
    bool models = false, tensors = false;
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
    cJSON_ArrayForEach(at, layers)
    {
        const char *word = word_of(at); /* parameters may follow the word */
        const struct kind *kind = kind_of(word);
        struct layer *l = &m->layer[m->n];
        tensors |= strcspn(word, "; ") == 6 && strncmp(word, "tensor", 6) == 0;
        if (!kind)
            continue;
        if (!digest_of(at, l->digest))
            return err_set(e, -EBADMSG, "%s: the digest is not sha256:<64 hex digits>", kind->word);
        l->name = kind->name;
        l->model = kind->model;
        models |= kind->model;
        m->n++;
    }
    return tensors && !models
               ? err_set(e, -EBADMSG, "stores each tensor in its own file, not in a GGUF file")
               : 0;
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
