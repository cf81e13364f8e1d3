/* SPDX-License-Identifier: MIT */
/* Reads an ollama store: see ollama.h. */
#include "shelf/ollama.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

/* The host and the namespace that shown names omit. */
#define DEFAULT_HOST "registry.ollama.ai"
#define DEFAULT_SPACE DEFAULT_HOST "/library"

/* The size of a buffer for HOST/NAMESPACE/MODEL/TAG. */
#define PATH_ROOM (4 * (TREE_NAME_MAX + 1))

/* Return the number of names in a path below manifests/. */
static unsigned names_in(const char *sub)
{
    unsigned n = *sub != '\0';
    for (; *sub; sub++)
        n += *sub == '/';
    return n;
}

bool ollama_is(struct reach *r, const struct found *dir, const struct names *names)
{
    const uint8_t manifests = names_type(names, "manifests"), blobs = names_type(names, "blobs");
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    /* blobs/ may be a link, as it is often on another disk */
    if (blobs != DT_DIR && blobs != DT_LNK)
        return false;
    return manifests == DT_DIR ||
           (manifests == DT_LNK && reach_open(r, dir, "manifests", REACH_LINKS, &f) == 0 &&
            S_ISDIR(f.st.st_mode));
}

/* Open a path below manifests/, which itself may be a link. */
static int open_below(struct reach *r, const struct found *dir, const char *sub, struct found *ret)
{
    char path[PATH_ROOM + 16];
    CLEANUP(reach_close) struct found top = FOUND_NONE;
    (void)snprintf(path, sizeof(path), "manifests/%s", sub);
    int e = *sub ? reach_open(r, dir, path, REACH_NO_LINKS, ret) : -ELOOP;
    if (e == -ELOOP) {
        e = reach_open(r, dir, "manifests", REACH_LINKS, &top);
        if (e == 0)
            e = reach_open(r, &top, *sub ? sub : ".", REACH_NO_LINKS, ret);
    }
    return e == -ELOOP || e == -ENOTDIR || e == -ENAMETOOLONG ? -ENOENT : e;
}

/* ---- manifests ---- */

#define MEDIA "application/vnd.ollama.image."
#define DIGEST "sha256:"

/* The layers that are shown, identified by the last word of their media type, in the order of a
 * listing. Rows with the same name are adjacent. */
static const struct {
    const char *word, *name;
    bool model;
} kinds[] = {
    {"model", "model", true},        {"projector", "projector", true},
    {"adapter", "adapter", true},    {"draft", "draft", true},
    {"template", "template", false}, {"prompt", "template", false}, /* a former media type */
    {"system", "system", false},     {"params", "params", false},
    {"license", "license", false},   {"messages", "messages", false},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const char *string_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* Return the last word of a layer's media type, or "" if it is not one of ollama's types. */
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
    int r = 0;
    cJSON_ArrayForEach(at, layers)
    {
        const char *word = word_of(at); /* parameters may follow it */
        m->tensors += strcspn(word, "; ") == 6 && strncmp(word, "tensor", 6) == 0;
    }
    for (size_t k = 0; k < KINDS && r == 0; k++)
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

/* Load a manifest from a file that was found. Returns 0, or -errno with a message that says what is
 * wrong with the manifest; -ENOENT if this is not a regular file. */
static int load(const struct found *f, struct manifest *ret, struct err *e)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    int n = read_small(f, MANIFEST_MAX, &text);
    if (n == 0 || n == -EFBIG)
        n = manifest_parse(text.data, text.len, ret, e);
    else
        n = err_set(e, n == -EINVAL ? -ENOENT : n, "%s", strerror(-n));
    if (n == 0 && ret->models == 0 && ret->tensors > 0) {
        manifest_free(ret);
        n = err_set(e, -EBADMSG, "has each tensor in a file of its own, not a GGUF file");
    }
    return n;
}

/* ---- listings ---- */

/* List the tags of a model in `space`, the namespace at `sub`. If they cannot be read, they are
 * left out. */
static int add_tags(struct reach *r, const struct found *space, const char *sub, const char *model,
                    struct listing *ret)
{
    char shown[2 * (TREE_NAME_MAX + 1)], path[PATH_ROOM];
    const struct ref ref = {.kind = REF_OLLAMA, .a = path, .b = ""};
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    CLEANUP(names_free) const struct names *tags = NULL;
    int e = reach_open(r, space, model, REACH_NO_LINKS, &f);
    if (e == 0)
        e = names_load(r, &f, &tags);
    for (size_t i = 0; e == 0 && i < tags->n; i++) {
        const char *tag = name_at(tags, i);
        (void)snprintf(path, sizeof(path), "%s/%s/%s", sub, model, tag);
        (void)snprintf(shown, sizeof(shown), "%s:%s", model, tag);
        if (tags->name[i].type == DT_REG && !strchr(tag, ':'))
            e = listing_add(ret, shown, &ref);
    }
    return is_shortage(e) ? e : 0;
}

/* List the models of the namespace at `sub`. */
static int list_models(struct reach *r, const struct found *dir, const char *sub,
                       struct listing *ret)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    CLEANUP(names_free) const struct names *models = NULL;
    int e = open_below(r, dir, sub, &f);
    if (e == 0)
        e = names_load(r, &f, &models);
    for (size_t i = 0; e == 0 && i < models->n; i++) {
        const char *model = name_at(models, i);
        if (models->name[i].type == DT_DIR && !is_hidden(model) && !strchr(model, ':'))
            e = add_tags(r, &f, sub, model, ret);
    }
    return e;
}

/* List the namespaces of a host, or all hosts if it is "", except the one at `except`. */
static int list_folders(struct reach *r, const struct found *dir, const char *host,
                        const char *except, struct listing *ret)
{
    char path[PATH_ROOM];
    const struct ref ref = {REF_OLLAMA, 0, path, "", REF_SURE};
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    CLEANUP(names_free) const struct names *names = NULL;
    int e = open_below(r, dir, host, &f);
    if (e == 0)
        e = names_load(r, &f, &names);
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        const char *name = name_at(names, i);
        (void)snprintf(path, sizeof(path), "%s%s%s", host, *host ? "/" : "", name);
        if (names->name[i].type == DT_DIR && !is_hidden(name) && strcmp(path, except) != 0)
            e = listing_add(ret, name, &ref);
    }
    return e == -ENOENT ? 0 : e;
}

/* List the layers of a model. A text may be missing; a model is shown even if something is wrong
 * with it. */
static int list_tag(struct reach *r, const struct place *p, const struct found *dir,
                    struct listing *ret)
{
    char name[TREE_NAME_MAX + 1];
    unsigned number = 0;
    struct manifest m = {0};
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    int e = open_below(r, dir, p->sub, &f);
    if (e == 0)
        e = load(&f, &m, NULL);
    for (size_t i = 0; i < m.n && e == 0; i++) {
        const struct layer *l = &m.layer[i];
        const struct ref ref = {l->model ? REF_LAYER : REF_TEXT, 0, l->digest, "",
                                l->model ? REF_SURE : REF_UNSURE};
        number = i && strcmp(l->name, l[-1].name) == 0 ? number + 1 : 1;
        (void)snprintf(name, sizeof(name), "%s~%u", l->name, number);
        e = listing_add(ret, number > 1 ? name : l->name, &ref);
    }
    manifest_free(&m);
    return e == -EBADMSG || e == -EFBIG ? -ENOENT : e;
}

int ollama_list(struct reach *r, const struct place *p, const struct found *dir,
                struct listing *ret)
{
    switch (names_in(p->sub)) {
    case 4:
        return list_tag(r, p, dir, ret);
    case 2:
        return list_models(r, dir, p->sub, ret);
    case 1:
        return list_folders(r, dir, p->sub, "", ret);
    }
    int e = list_models(r, dir, DEFAULT_SPACE, ret);
    if (!is_shortage(e))
        e = list_folders(r, dir, DEFAULT_HOST, DEFAULT_SPACE, ret);
    return is_shortage(e) ? e : list_folders(r, dir, "", DEFAULT_HOST, ret);
}

/* ---- items ---- */

/*
 * Look at a tag in its model's directory, which gets the manifest's time and identity. Returns 0,
 * -ENOENT if the tag must not be shown, or another -errno, with a message if the manifest is
 * broken.
 */
static int look_at_tag(struct reach *r, struct found *folder, const char *tag, struct err *why)
{
    struct manifest m = {0};
    CLEANUP(reach_close) struct found file = FOUND_NONE;
    int e = reach_open(r, folder, tag, REACH_NO_LINKS, &file);
    if (e == 0)
        e = load(&file, &m, why);
    if (e == 0 && m.models == 0)
        e = -ENOENT;
    if (e == -ENOENT)
        why->code = 0;
    folder->st.st_mtim = file.st.st_mtim;
    folder->st.st_ino = file.st.st_ino;
    manifest_free(&m);
    return e;
}

/* Get the item of a host, a namespace or a tag. It is a directory, or a model that cannot be opened
 * if the manifest is broken. */
static int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                       const char *sub, struct item *ret)
{
    char above[PATH_ROOM];
    struct err why = {0};
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    struct place below;
    const bool tag = names_in(sub) == 4;
    const char *name = path_name(sub);
    (void)snprintf(above, sizeof(above), "%.*s", (int)(name - sub - 1), sub);
    int e = open_below(r, dir, tag ? above : sub, &f);
    if (e == 0 && !S_ISDIR(f.st.st_mode))
        e = -ENOENT;
    if (e == 0 && tag)
        e = look_at_tag(r, &f, name, &why);
    if (e == 0)
        e = place_make(p, PLACE_OLLAMA, NULL, sub, false, &below);
    if (e == 0)
        return item_folder(r, p, &f, &below, ret);
    if (why.code && (e = item_file(r, p, &f, name, ITEM_MODEL, ret)) == 0) {
        ret->store = true;
        ret->error = why;
        (void)err_prefix(&ret->error, why.code, "manifest");
    }
    return e;
}

static int layer_item(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    char name[DIGEST_DIGITS + 8];
    CLEANUP(reach_close) struct found blobs = FOUND_NONE, old = FOUND_NONE;
    int e = reach_open(r, dir, "blobs", REACH_LINKS, &blobs);
    if (e < 0)
        return e;
    (void)snprintf(name, sizeof(name), "sha256:%s", ref->a);
    if (reach_open(r, &blobs, name, REACH_NO_LINKS, &old) < 0)
        name[6] = '-';
    e = ref->kind == REF_TEXT ? item_file(r, p, &blobs, name, ITEM_TEXT, ret)
                              : item_model(r, p, &blobs, name, ret);
    if (e == 0 && ref->kind == REF_TEXT && ret->error.code) {
        e = ret->error.code == -ENOMEM ? -ENOMEM : -ENOENT;
        item_free(ret);
    }
    return e;
}

int ollama_item(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret)
{
    return ref->kind == REF_OLLAMA ? folder_item(r, p, dir, ref->a, ret)
                                   : layer_item(r, p, dir, ref, ret);
}
