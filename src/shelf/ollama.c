/* SPDX-License-Identifier: MIT */
/* An ollama store: see ollama.h. */
#include "shelf/ollama.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/manifest.h"

/* A host of manifests that is not shown, and its namespace that is not. */
#define OLLAMA_HOST "registry.ollama.ai"
#define DEFAULT_SPACE "library"

/* Room for manifests/HOST/NAMESPACE/MODEL/TAG. */
#define PATH_ROOM (5 * (TREE_NAME_MAX + 1))

static const char *host_of(const struct place *p)
{
    return p->part[0] ? p->part[0] : OLLAMA_HOST;
}

static const char *space_of(const struct place *p)
{
    return p->part[1] ? p->part[1] : DEFAULT_SPACE;
}

bool ollama_is(struct reach *r, const struct found *dir, const struct names *names)
{
    const uint8_t manifests = names_type(names, "manifests"), blobs = names_type(names, "blobs");
    return (blobs == DT_DIR || blobs == DT_LNK) && /* often on another disk */
           (manifests == DT_DIR ||
            (manifests == DT_LNK && has_folder(r, dir, "manifests", REACH_LINKS)));
}

/* manifests/HOST/SPACE/MODEL: what is NULL is left out. No links below manifests/ itself. */
static int open_below(struct reach *r, const struct found *dir, const char *host, const char *space,
                      const char *model, struct found *ret)
{
    char path[PATH_ROOM];
    struct found top = FOUND_NONE;
    (void)snprintf(path, sizeof(path), "manifests/%s%s%s%s%s", host ? host : ".", space ? "/" : "",
                   space ? space : "", model ? "/" : "", model ? model : "");
    int e = host ? reach_open(r, dir, path, REACH_NO_LINKS, ret) : -ELOOP;
    if (e == -ELOOP) {
        e = reach_open(r, dir, "manifests", REACH_LINKS, &top);
        if (e == 0)
            e = reach_open(r, &top, strchr(path, '/') + 1, REACH_NO_LINKS, ret);
        reach_close(&top);
    }
    return e == -ELOOP || e == -ENOTDIR || e == -ENAMETOOLONG ? -ENOENT : e;
}

/* ---- manifests ---- */

/* Of a file that was found; what is not a regular one is -ENOENT. The line says what is wrong with it. */
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

/* The tags of a model. space: its folder. One that cannot be read is left out. */
static int add_tags(struct reach *r, const struct found *space, const char *model,
                    struct listing *ret)
{
    char shown[2 * (TREE_NAME_MAX + 1)], path[2 * (TREE_NAME_MAX + 1)];
    const struct ref ref = {.kind = REF_TAG, .a = path, .b = ""};
    struct found f = FOUND_NONE;
    const struct names *tags = NULL;
    int e = reach_open(r, space, model, REACH_NO_LINKS, &f);
    if (e == 0)
        e = names_load(r, &f, &tags);
    for (size_t i = 0; e == 0 && i < tags->n; i++) {
        const char *tag = name_at(tags, i);
        (void)snprintf(path, sizeof(path), "%s/%s", model, tag);
        (void)snprintf(shown, sizeof(shown), "%s:%s", model, tag);
        if (tags->name[i].type == DT_REG && !strchr(tag, ':'))
            e = listing_add(ret, shown, &ref);
    }
    names_free(r, tags);
    reach_close(&f);
    return is_shortage(e) ? e : 0;
}

static int list_space(struct reach *r, const struct found *dir, const char *host, const char *space,
                      const char *wanted, struct listing *ret)
{
    struct found f = FOUND_NONE;
    const struct names *models = NULL;
    int e = open_below(r, dir, host, space, NULL, &f);
    if (e == 0)
        e = names_load(r, &f, &models);
    for (size_t i = 0; e == 0 && i < models->n; i++) {
        const char *model = name_at(models, i);
        if (models->name[i].type == DT_DIR && !is_hidden(model) && !strchr(model, ':') &&
            name_leads(model, wanted))
            e = add_tags(r, &f, model, ret);
    }
    names_free(r, models);
    reach_close(&f);
    return e;
}

/* The namespaces of a host, or the hosts (NULL), but `except`. */
static int list_folders(struct reach *r, const struct found *dir, const char *host,
                        const char *except, struct listing *ret)
{
    struct found f = FOUND_NONE;
    const struct names *names = NULL;
    int e = open_below(r, dir, host, NULL, NULL, &f);
    if (e == 0)
        e = names_load(r, &f, &names);
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        const char *name = name_at(names, i);
        const struct ref ref = {host ? REF_SPACE : REF_HOST, 0, name, "", REF_SURE};
        if (names->name[i].type == DT_DIR && !is_hidden(name) && strcmp(name, except) != 0)
            e = listing_add(ret, name, &ref);
    }
    names_free(r, names);
    reach_close(&f);
    return e == -ENOENT ? 0 : e;
}

/* A text may be missing; a model is shown with what is wrong. */
static int list_layers(const struct manifest *m, struct listing *ret)
{
    char name[TREE_NAME_MAX + 1];
    unsigned number = 0;
    int e = 0;
    for (size_t i = 0; i < m->n && e == 0; i++) {
        const struct layer *l = &m->layer[i];
        const struct ref ref = {l->model ? REF_LAYER : REF_TEXT, 0, l->digest, "",
                                l->model ? REF_SURE : REF_UNSURE};
        number = i && strcmp(l->name, l[-1].name) == 0 ? number + 1 : 1;
        (void)snprintf(name, sizeof(name), "%s~%u", l->name, number);
        e = listing_add(ret, number > 1 ? name : l->name, &ref);
    }
    return e;
}

static int list_model(struct reach *r, const struct place *p, const struct found *dir,
                      struct listing *ret)
{
    struct manifest m = {0};
    struct found f = FOUND_NONE;
    int e = open_below(r, dir, p->part[0], p->part[1], p->part[2], &f);
    if (e == 0)
        e = load(&f, &m, NULL);
    reach_close(&f);
    if (e == 0)
        e = list_layers(&m, ret);
    manifest_free(&m);
    return e == -EBADMSG || e == -EFBIG ? -ENOENT : e;
}

int ollama_list(struct reach *r, const struct place *p, const struct found *dir, const char *wanted,
                struct listing *ret)
{
    if (p->kind == PLACE_OLLAMA_MODEL)
        return list_model(r, p, dir, ret);
    if (p->kind == PLACE_OLLAMA_SPACE)
        return list_space(r, dir, p->part[0], p->part[1], wanted, ret);
    if (p->kind == PLACE_OLLAMA_HOST)
        return list_folders(r, dir, p->part[0], "", ret);
    int e = list_space(r, dir, OLLAMA_HOST, DEFAULT_SPACE, wanted, ret);
    if (!is_shortage(e))
        e = list_folders(r, dir, OLLAMA_HOST, DEFAULT_SPACE, ret);
    return is_shortage(e) ? e : list_folders(r, dir, NULL, OLLAMA_HOST, ret);
}

/* ---- items ---- */

/* A tag is a folder, or a model that cannot be shown if its manifest is broken. */
static int tag_item(struct reach *r, const struct place *p, const struct found *dir,
                    const char *tag, struct item *ret)
{
    struct err why = {0};
    struct manifest m = {0};
    char model[TREE_NAME_MAX + 1];
    const char *name = strchr(tag, '/') + 1;
    struct found folder = FOUND_NONE, file = FOUND_NONE;
    struct place below;
    (void)snprintf(model, sizeof(model), "%.*s", (int)strcspn(tag, "/"), tag);
    int e = open_below(r, dir, host_of(p), space_of(p), model, &folder);
    if (e == 0)
        e = reach_open(r, &folder, name, REACH_NO_LINKS, &file);
    const int loaded = e == 0 ? load(&file, &m, &why) : 0;
    if (loaded == -ENOENT || (e == 0 && loaded == 0 && m.models == 0))
        e = -ENOENT;
    if (e == 0 && loaded < 0) {
        e = item_file(r, p, &folder, name, ITEM_MODEL, ret);
        if (e == 0) {
            ret->store = true;
            ret->error = why;
            (void)err_prefix(&ret->error, why.code, "manifest");
        }
    } else if (e == 0 && (e = place_make(p, PLACE_OLLAMA_MODEL, NULL, host_of(p), space_of(p), tag,
                                         &below)) == 0) {
        folder.st.st_mtim = file.st.st_mtim;
        folder.st.st_ino = file.st.st_ino;
        e = item_folder(p, &folder, &below, ret);
    }
    manifest_free(&m);
    reach_close(&file);
    reach_close(&folder);
    return e;
}

/* A host or a namespace. */
static int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                       enum place_kind kind, const char *host, const char *space, struct item *ret)
{
    struct found f = FOUND_NONE;
    struct place below;
    int e = open_below(r, dir, host, space, NULL, &f);
    if (e == 0 && !S_ISDIR(f.st.st_mode))
        e = -ENOENT;
    if (e == 0)
        e = place_make(p, kind, NULL, host, space, NULL, &below);
    if (e == 0)
        return item_folder(p, &f, &below, ret);
    reach_close(&f);
    return e;
}

static int layer_item(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    char name[DIGEST_DIGITS + 8];
    struct found blobs = FOUND_NONE, old = FOUND_NONE;
    int e = reach_open(r, dir, "blobs", REACH_LINKS, &blobs);
    if (e < 0)
        return e;
    (void)snprintf(name, sizeof(name), "sha256:%s", ref->a);
    if (reach_open(r, &blobs, name, REACH_NO_LINKS, &old) < 0)
        name[6] = '-';
    reach_close(&old);
    e = ref->kind == REF_TEXT ? item_file(r, p, &blobs, name, ITEM_TEXT, ret)
                              : item_model(r, p, &blobs, name, ret);
    reach_close(&blobs);
    if (e == 0 && ref->kind == REF_TEXT && ret->error.code) {
        e = ret->error.code == -ENOMEM ? -ENOMEM : -ENOENT;
        item_free(ret);
    }
    return e;
}

int ollama_item(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret)
{
    switch (ref->kind) {
    case REF_HOST:
        return folder_item(r, p, dir, PLACE_OLLAMA_HOST, ref->a, NULL, ret);
    case REF_SPACE:
        return folder_item(r, p, dir, PLACE_OLLAMA_SPACE, host_of(p), ref->a, ret);
    case REF_TAG:
        return tag_item(r, p, dir, ref->a, ret);
    default:
        return layer_item(r, p, dir, ref, ret);
    }
}
