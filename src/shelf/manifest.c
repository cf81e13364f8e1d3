/* SPDX-License-Identifier: MIT */
/* Manifests of an ollama store: see manifest.h. */
#include "shelf/manifest.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEDIA "application/vnd.ollama.image."
#define DIGEST "sha256:"

/* The layers that are shown, by the last word of their media type; in the order of the listing. Those
 * of one name stand together. */
static const struct {
    const char *word, *name;
    bool model;
} shown[] = {
    {"model", "model", true},        {"projector", "projector", true},
    {"adapter", "adapter", true},    {"draft", "draft", true},
    {"template", "template", false}, {"prompt", "template", false}, /* what it was called before */
    {"system", "system", false},     {"params", "params", false},
    {"license", "license", false},   {"messages", "messages", false},
};

#define SHOWN (sizeof(shown) / sizeof(shown[0]))

static const char *string_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* The last word of a layer's media type; "": it is not one of ollama's. */
static const char *word_of(const cJSON *layer)
{
    const char *type = string_of(layer, "mediaType");
    return type && strncmp(type, MEDIA, strlen(MEDIA)) == 0 ? type + strlen(MEDIA) : "";
}

/* The row of a layer; SHOWN if it is not shown. */
static size_t kind_of(const cJSON *layer)
{
    const char *word = word_of(layer);
    size_t k = 0;
    while (k < SHOWN && strcmp(word, shown[k].word) != 0)
        k++;
    return k;
}

/* True if a layer is one tensor. Parameters may stand behind the type. */
static bool is_tensor(const cJSON *layer)
{
    const char *word = word_of(layer);
    return strcspn(word, "; ") == strlen("tensor") &&
           strncmp(word, "tensor", strlen("tensor")) == 0;
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

/* Layers of one kind, in the order of the manifest. */
static int add_kind(const cJSON *layers, size_t kind, struct manifest *m, struct err *e)
{
    const cJSON *at;
    size_t number = 0;
    cJSON_ArrayForEach(at, layers)
    {
        struct layer *l = &m->layer[m->n];
        number++;
        if (kind_of(at) != kind)
            continue;
        if (!digest_of(at, l->digest))
            return err_set(e, -EBADMSG, "layer %zu: the digest is not sha256:<64 hex digits>",
                           number - 1);
        l->name = shown[kind].name;
        l->model = shown[kind].model;
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
    int r = 0;
    cJSON_ArrayForEach(at, layers) m->tensors += is_tensor(at);
    for (size_t k = 0; k < SHOWN && r == 0; k++)
        r = add_kind(layers, k, m, e);
    return r;
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
