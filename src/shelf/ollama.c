/* SPDX-License-Identifier: MIT */
/*
 * An ollama store: manifests/HOST/NAMESPACE/MODEL/TAG name the layers, which are blobs/sha256-<hex>
 * (before: sha256:<hex>). See store.h.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/manifest.h"
#include "shelf/store.h"

#define DEFAULT_SPACE "library"

/* Room for manifests/HOST/NAMESPACE/MODEL/TAG. */
#define PATH_ROOM (5 * (TREE_NAME_MAX + 1))

bool is_ollama(struct reach *r, const struct found *dir)
{
    return has_folder(r, dir, "manifests", REACH_LINKS) > 0 &&
           has_folder(r, dir, "blobs", REACH_LINKS) != 0; /* often on another disk */
}

/* A folder of manifests/, by up to three names; no links below manifests/ itself. */
static int open_below(struct reach *r, const struct found *dir, const char *path, struct found *ret)
{
    struct found top = FOUND_NONE;
    int e = reach_open(r, dir, "manifests", REACH_LINKS, &top);
    if (e == 0)
        e = reach_open(r, &top, *path ? path : ".", REACH_NO_LINKS, ret);
    reach_close(&top);
    return e == -ELOOP || e == -ENOTDIR || e == -ENAMETOOLONG ? -ENOENT : e;
}

/* ---- manifests ---- */

/* The manifest `name` in a folder; what is not a regular file is -ENOENT. Reads and parses; the line says
 * what is wrong with it. */
static int load_in(struct reach *r, const struct found *folder, const char *name,
                   struct manifest *ret, struct err *e)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    int n = read_small(r, folder, name, REACH_NO_LINKS, MANIFEST_MAX, &text);
    if (n == 0 || n == -EFBIG)
        return manifest_parse(text.data, text.len, ret, e);
    if (n == -ELOOP || n == -EINVAL)
        n = -ENOENT;
    return err_set(e, n, "%s", strerror(-n));
}

/* tag: "MODEL/TAG". */
static int load(struct reach *r, const struct found *dir, const char *host, const char *space,
                const char *tag, struct manifest *ret, struct err *e)
{
    char path[PATH_ROOM];
    struct found f = FOUND_NONE;
    (void)snprintf(path, sizeof(path), "%s/%s/%.*s", host, space, (int)strcspn(tag, "/"), tag);
    int n = open_below(r, dir, path, &f);
    n = n < 0 ? err_set(e, n, "%s", strerror(-n)) : load_in(r, &f, strchr(tag, '/') + 1, ret, e);
    reach_close(&f);
    return n;
}

/* True if it is to be shown: a manifest with a model, or one that cannot be read. A model of tensors in
 * files of their own is shown as one that cannot. */
static bool is_model(int loaded, struct manifest *m)
{
    bool is = loaded < 0 ? loaded != -ENOENT : m->models > 0 || m->tensors > 0;
    manifest_free(m);
    return is;
}

/* ---- a namespace: MODEL:TAG ---- */

/* A look: the tags of a model to be shown, each with its end. */
static int look_at_tags(struct reach *r, const struct found *space, const char *model,
                        struct buf *out)
{
    struct found f = FOUND_NONE;
    const struct names *tags = NULL;
    int e = reach_open(r, space, model, REACH_NO_LINKS, &f);
    if (e == 0)
        e = names_load(r, &f, &tags);
    for (size_t i = 0; e == 0 && i < tags->n; i++) {
        struct manifest m = {0};
        const char *tag = name_at(tags, i);
        if (tags->name[i].type == DT_REG && !strchr(tag, ':') &&
            is_model(load_in(r, &f, tag, &m, NULL), &m))
            buf_add(out, tag, strlen(tag) + 1);
    }
    names_free(r, tags);
    reach_close(&f);
    return e == 0 ? buf_error(out) : e;
}

/* space: its folder, open. A model whose disk does not answer is left out. */
static int list_tags(struct reach *r, const struct found *space, const char *model,
                     struct listing *ret)
{
    CLEANUP(buf_free) struct buf tags = BUF_INIT;
    int e = look(r, look_at_tags, space, model, &tags);
    for (size_t at = 0; e == 0 && at < tags.len;) {
        char tag[2 * (TREE_NAME_MAX + 1)], shown[2 * (TREE_NAME_MAX + 1)];
        struct ref ref = {.kind = REF_TAG, .a = tag, .b = ""};
        const char *name = (const char *)tags.data + at;
        (void)snprintf(tag, sizeof(tag), "%s/%s", model, name);
        (void)snprintf(shown, sizeof(shown), "%s:%s", model, name);
        e = listing_add(ret, shown, &ref);
        at += strlen(name) + 1;
    }
    return is_shortage(e) ? e : 0;
}

static int list_space(struct reach *r, const struct found *dir, const char *host, const char *space,
                      struct listing *ret)
{
    char path[PATH_ROOM];
    struct found f = FOUND_NONE;
    const struct names *models = NULL;
    (void)snprintf(path, sizeof(path), "%s/%s", host, space);
    int e = open_below(r, dir, path, &f);
    if (e == 0)
        e = names_load(r, &f, &models);
    for (size_t i = 0; e == 0 && i < models->n; i++)
        if (models->name[i].type == DT_DIR && !is_hidden(name_at(models, i)) &&
            !strchr(name_at(models, i), ':'))
            e = list_tags(r, &f, name_at(models, i), ret);
    names_free(r, models);
    reach_close(&f);
    return e;
}

/* "MODEL:TAG" as "MODEL/TAG" in room. */
static int find_tag(struct reach *r, const struct found *dir, const char *host, const char *space,
                    const char *name, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    const char *colon = strchr(name, ':');
    if (!colon || colon == name || !colon[1] || colon[1] == '.' || strchr(colon + 1, ':'))
        return -ENOENT;
    (void)snprintf(room, (size_t)TREE_NAME_MAX + 1, "%s", name);
    room[colon - name] = '/';
    *ref = (struct ref){.kind = REF_TAG, .a = room, .b = ""};
    struct manifest m = {0};
    return is_model(load(r, dir, host, space, room, &m, NULL), &m) ? 0 : -ENOENT;
}

static int load_model(struct reach *r, const struct found *dir, const char *host, const char *space,
                      const char *tag, struct err *e)
{
    struct manifest m = {0};
    int n = load(r, dir, host, space, tag, &m, e);
    if (n == 0 && m.models == 0 && m.tensors > 0)
        n = err_set(e, -EBADMSG, "has each tensor in a file of its own, not a GGUF file");
    manifest_free(&m);
    return n;
}

/* A tag is a folder, or a model that cannot be shown if its manifest is broken. */
static int tag_item(struct reach *r, const struct place *p, const struct found *dir,
                    const char *host, const char *space, const char *tag, struct item *ret)
{
    struct err why = {0};
    char path[PATH_ROOM];
    struct found folder = FOUND_NONE, file = FOUND_NONE;
    struct place below;
    (void)snprintf(path, sizeof(path), "%s/%s/%.*s", host, space, (int)strcspn(tag, "/"), tag);
    int e = open_below(r, dir, path, &folder);
    if (e == 0)
        e = reach_open(r, &folder, strchr(tag, '/') + 1, REACH_NO_LINKS, &file);
    if (e == 0 && load_model(r, dir, host, space, tag, &why) < 0) {
        e = item_file(r, p, &folder, strchr(tag, '/') + 1, ITEM_MODEL, ret);
        if (e == 0) {
            ret->store = true;
            ret->error = why;
            (void)err_prefix(&ret->error, why.code, "manifest");
        }
    } else if (e == 0) {
        e = place_make(p, PLACE_OLLAMA_MODEL, NULL, host, space, tag, &below);
        if (e == 0) {
            folder.st.st_mtim = file.st.st_mtim;
            folder.st.st_ino = file.st.st_ino;
            e = item_folder(p, &folder, &below, ret);
        }
    }
    reach_close(&file);
    reach_close(&folder);
    return e;
}

/* ---- what is in a host or a namespace, as folders ---- */

static int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                       enum place_kind kind, const char *host, const char *space, struct item *ret)
{
    char path[PATH_ROOM];
    struct found f = FOUND_NONE;
    struct place below;
    (void)snprintf(path, sizeof(path), "%s%s%s", host, space ? "/" : "", space ? space : "");
    int e = open_below(r, dir, path, &f);
    if (e == 0 && !S_ISDIR(f.st.st_mode))
        e = -ENOENT;
    if (e == 0)
        e = place_make(p, kind, NULL, host, space, NULL, &below);
    if (e < 0) {
        reach_close(&f);
        return e;
    }
    return item_folder(p, &f, &below, ret);
}

/* Folders of manifests/PATH but `except`. */
static int list_folders(struct reach *r, const struct found *dir, const char *path,
                        const char *except, enum ref_kind kind, struct listing *ret)
{
    struct found f = FOUND_NONE;
    const struct names *names = NULL;
    int e = open_below(r, dir, path, &f);
    if (e == 0)
        e = names_load(r, &f, &names);
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        struct ref ref = {.kind = kind, .a = name_at(names, i), .b = ""};
        if (names->name[i].type == DT_DIR && !is_hidden(ref.a) && strcmp(ref.a, except) != 0)
            e = listing_add(ret, ref.a, &ref);
    }
    names_free(r, names);
    reach_close(&f);
    return e == -ENOENT ? 0 : e;
}

/* A look: a folder can be read. */
static int look_at_names(struct reach *r, const struct found *dir, const char *name,
                         struct buf *out)
{
    struct found f = FOUND_NONE;
    const struct names *names = NULL;
    (void)out;
    int e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == 0)
        e = names_load(r, &f, &names);
    names_free(r, names);
    reach_close(&f);
    return e;
}

/* False: manifests/PATH is on another disk, which does not answer. */
static bool answers(struct reach *r, const struct found *dir, const char *path)
{
    struct buf none = BUF_INIT;
    char below[PATH_ROOM];
    (void)snprintf(below, sizeof(below), "manifests/%s", path);
    return look(r, look_at_names, dir, below, &none) != -ETIMEDOUT;
}

static bool is_folder_below(struct reach *r, const struct found *dir, const char *host,
                            const char *space)
{
    char path[PATH_ROOM];
    struct found f = FOUND_NONE;
    (void)snprintf(path, sizeof(path), "%s%s%s", host, space ? "/" : "", space ? space : "");
    bool is = open_below(r, dir, path, &f) == 0 && S_ISDIR(f.st.st_mode);
    reach_close(&f);
    return is;
}

/* ---- the store ---- */

static int list_store(struct reach *r, const struct place *p, const struct found *dir,
                      struct listing *ret)
{
    (void)p;
    bool host = answers(r, dir, OLLAMA_HOST);
    int e = host && answers(r, dir, OLLAMA_HOST "/" DEFAULT_SPACE)
                ? list_space(r, dir, OLLAMA_HOST, DEFAULT_SPACE, ret)
                : 0;
    if (host && !is_shortage(e))
        e = list_folders(r, dir, OLLAMA_HOST, DEFAULT_SPACE, REF_SPACE, ret);
    return is_shortage(e) ? e : list_folders(r, dir, "", OLLAMA_HOST, REF_HOST, ret);
}

static int find_in_store(struct reach *r, const struct place *p, const struct found *dir,
                         const char *name, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    (void)p;
    if (strchr(name, ':'))
        return find_tag(r, dir, OLLAMA_HOST, DEFAULT_SPACE, name, room, ref);
    (void)snprintf(room, TREE_NAME_MAX + 1, "%s", name);
    *ref = (struct ref){.kind = REF_SPACE, .a = room, .b = ""};
    if (strcmp(name, DEFAULT_SPACE) != 0 && answers(r, dir, OLLAMA_HOST) &&
        is_folder_below(r, dir, OLLAMA_HOST, name))
        return 0;
    ref->kind = REF_HOST;
    if (strcmp(name, OLLAMA_HOST) != 0 && is_folder_below(r, dir, name, NULL))
        return 0;
    return strchr(name, '~') ? -EAGAIN : -ENOENT;
}

static int item_in_store(struct reach *r, const struct place *p, const struct found *dir,
                         const struct ref *ref, struct item *ret)
{
    if (ref->kind == REF_TAG)
        return tag_item(r, p, dir, OLLAMA_HOST, DEFAULT_SPACE, ref->a, ret);
    if (ref->kind == REF_SPACE)
        return folder_item(r, p, dir, PLACE_OLLAMA_SPACE, OLLAMA_HOST, ref->a, ret);
    return folder_item(r, p, dir, PLACE_OLLAMA_HOST, ref->a, NULL, ret);
}

const struct store_kind store_ollama = {list_store, find_in_store, item_in_store};

/* ---- a host ---- */

static int list_host(struct reach *r, const struct place *p, const struct found *dir,
                     struct listing *ret)
{
    return list_folders(r, dir, p->part[0], "", REF_SPACE, ret);
}

static int find_in_host(struct reach *r, const struct place *p, const struct found *dir,
                        const char *name, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    (void)snprintf(room, TREE_NAME_MAX + 1, "%s", name);
    *ref = (struct ref){.kind = REF_SPACE, .a = room, .b = ""};
    return is_folder_below(r, dir, p->part[0], name) ? 0 : -ENOENT;
}

static int item_in_host(struct reach *r, const struct place *p, const struct found *dir,
                        const struct ref *ref, struct item *ret)
{
    return folder_item(r, p, dir, PLACE_OLLAMA_SPACE, p->part[0], ref->a, ret);
}

const struct store_kind store_ollama_host = {list_host, find_in_host, item_in_host};

/* ---- a namespace ---- */

static int list_in_space(struct reach *r, const struct place *p, const struct found *dir,
                         struct listing *ret)
{
    return list_space(r, dir, p->part[0], p->part[1], ret);
}

static int find_in_space(struct reach *r, const struct place *p, const struct found *dir,
                         const char *name, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    return find_tag(r, dir, p->part[0], p->part[1], name, room, ref);
}

static int item_in_space(struct reach *r, const struct place *p, const struct found *dir,
                         const struct ref *ref, struct item *ret)
{
    return tag_item(r, p, dir, p->part[0], p->part[1], ref->a, ret);
}

const struct store_kind store_ollama_space = {list_in_space, find_in_space, item_in_space};

/* ---- a model ---- */

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

static struct ref layer_ref(const struct layer *l)
{
    return (struct ref){.kind = l->model ? REF_LAYER : REF_TEXT, .a = l->digest, .b = ""};
}

/* A text that is missing is left out; a model is shown with what is wrong. */
static int list_layers(struct reach *r, const struct place *p, const struct found *dir,
                       struct listing *ret)
{
    struct manifest m = {0};
    char name[TREE_NAME_MAX + 1];
    unsigned number = 0;
    int e = load(r, dir, p->part[0], p->part[1], p->part[2], &m, NULL);
    for (size_t i = 0; i < m.n && e == 0; i++) {
        const struct layer *l = &m.layer[i];
        struct ref ref = layer_ref(l);
        struct item text;
        int gone = l->model ? 0 : layer_item(r, p, dir, &ref, &text);
        if (!l->model && gone == 0)
            item_free(&text);
        number = i && strcmp(l->name, l[-1].name) == 0 ? number + 1 : 1;
        (void)snprintf(name, sizeof(name), "%s~%u", l->name, number);
        if (gone == 0)
            e = listing_add(ret, number > 1 ? name : l->name, &ref);
        else
            e = gone == -ENOMEM ? gone : 0;
    }
    manifest_free(&m);
    return e == -EBADMSG || e == -EFBIG ? -ENOENT : e;
}

/* 1 for WORD, 2 for WORD~2 ...; 0: no layer is shown by such a name. */
static size_t layer_number(const char *name, char word[TREE_NAME_MAX + 1])
{
    size_t n = strcspn(name, "~");
    (void)snprintf(word, TREE_NAME_MAX + 1, "%.*s", (int)n, name);
    if (!name[n])
        return 1;
    const char *digits = name + n + 1;
    if (*digits == '0' || !*digits || digits[strspn(digits, "0123456789")])
        return 0;
    size_t number = strtoul(digits, NULL, 10);
    return number > 1 ? number : 0;
}

/* A layer has its number whether those before it are missing or not. */
static int find_layer(struct reach *r, const struct place *p, const struct found *dir,
                      const char *name, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    struct manifest m = {0};
    char word[TREE_NAME_MAX + 1];
    size_t number = layer_number(name, word);
    int e = load(r, dir, p->part[0], p->part[1], p->part[2], &m, NULL);
    const struct layer *l = e == 0 ? manifest_layer(&m, word, number) : NULL;
    if (l) {
        *ref = layer_ref(l);
        ref->a = strcpy(room, l->digest);
    }
    manifest_free(&m);
    return e == -ENOMEM ? e : l ? 0 : -ENOENT;
}

const struct store_kind store_ollama_model = {list_layers, find_layer, layer_item};
