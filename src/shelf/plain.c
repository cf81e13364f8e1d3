/* SPDX-License-Identifier: MIT */
/*
 * Plain folders: models by their names, split models once, folders, repositories of a Hugging Face
 * cache by organisation and name. See store.h.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "check/filename.h"
#include "model/split.h"
#include "shelf/store.h"

#define SUFFIX ".gguf"

static bool named_gguf(const char *name)
{
    size_t n = strlen(name), s = strlen(SUFFIX);
    return n > s && strcasecmp(name + n - s, SUFFIX) == 0;
}

/* The name under which a split model is shown, from that of one of its files; files, or 0. */
static uint32_t shard_of(const char *name, char shown[TREE_NAME_MAX + 1])
{
    size_t files = split_count(name);
    if (files)
        (void)snprintf(shown, TREE_NAME_MAX + 1, "%.*s" SUFFIX, (int)(strlen(name) - SPLIT_TAIL),
                       name);
    return (uint32_t)files;
}

/* A look: 1 if a file begins with GGUF's magic. */
static int has_magic(struct reach *r, const struct found *dir, const char *name, struct buf *out)
{
    struct found f = FOUND_NONE;
    char magic[4] = "";
    (void)out;
    int fd = reach_open(r, dir, name, REACH_LINKS, &f) == 0 && S_ISREG(f.st.st_mode)
                 ? reach_read(&f)
                 : -1;
    bool is = fd >= 0 && pread(fd, magic, 4, 0) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0)
        (void)close(fd);
    reach_close(&f);
    return is;
}

/* A blob that was taken out of an ollama store: named by its hash, and a model by its first bytes; or
 * on a disk that does not answer. */
static bool is_blob(struct reach *r, const struct found *dir, const char *name)
{
    struct buf none = BUF_INIT;
    return strncmp(name, "sha256-", 7) == 0 && file_name_is_hash(name) &&
           look(r, has_magic, dir, name, &none) != 0;
}

/* ---- folders ---- */

static int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                       const char *name, struct item *ret)
{
    struct found f = FOUND_NONE;
    struct place below;
    int e = reach_open(r, dir, name, REACH_NO_LINKS, &f);
    bool linked = e == -ELOOP;
    if (linked)
        e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == -EXDEV || (e == 0 && !S_ISDIR(f.st.st_mode)))
        e = -ENOENT;
    if (e == 0 && linked && place_goes_round(r, p, f.path))
        e = -ENOENT;
    if (e == 0)
        e = place_make(p, PLACE_FOLDER, f.path, NULL, NULL, NULL, &below);
    if (e == 0 && linked && (e = place_follow(p, &below)) < 0)
        place_free(&below);
    if (e < 0) {
        reach_close(&f);
        return e;
    }
    return item_folder(p, &f, &below, ret);
}

/* A look: 1 and the real path if a link leads to a folder. */
static int look_for_folder(struct reach *r, const struct found *dir, const char *name,
                           struct buf *out)
{
    struct found f = FOUND_NONE;
    int e = reach_open(r, dir, name, REACH_LINKS, &f);
    bool is = e == 0 && S_ISDIR(f.st.st_mode);
    if (is)
        buf_add(out, f.path, strlen(f.path) + 1);
    reach_close(&f);
    return is ? buf_error(out) < 0 ? -ENOMEM : 1 : e;
}

/* True if a link is to be listed as a folder; also if its disk does not answer. */
static bool is_shown_folder(struct reach *r, const struct place *p, const struct found *dir,
                            const char *name)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    int is = look(r, look_for_folder, dir, name, &path);
    return is == -ETIMEDOUT || (is > 0 && !place_goes_round(r, p, (const char *)path.data));
}

/* A look: 1 if a folder is an ollama store, or holds repositories of a Hugging Face cache. */
static int look_for_store(struct reach *r, const struct found *dir, const char *name,
                          struct buf *out)
{
    struct found f = FOUND_NONE;
    struct place own = {.path = (char *)dir->path};
    const struct names *names = NULL;
    (void)out;
    bool is = reach_open(r, dir, name, REACH_LINKS, &f) == 0 && S_ISDIR(f.st.st_mode);
    bool store = is && is_ollama(r, &f);
    if (is && !store && names_load(r, &f, &names) == 0)
        for (size_t i = names_from(names, "models--"); i < names->n && !store; i++) {
            if (strncmp(name_at(names, i), "models--", 8) != 0)
                break;
            store = has_repo(r, &own, &f, name_at(names, i));
        }
    names_free(r, names);
    reach_close(&f);
    return store;
}

/* Hidden folders are shown only if they are stores themselves. */
static bool is_left_out(struct reach *r, const struct place *p, const struct found *dir,
                        const char *name)
{
    struct buf none = BUF_INIT;
    return is_hidden(name) && (p->store || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
                               look(r, look_for_store, dir, name, &none) <= 0);
}

/* ---- listing ---- */

/* Folders and files that keep their names. */
static int add_single(struct reach *r, const struct place *p, const struct found *dir,
                      const char *name, uint8_t type, struct listing *ret)
{
    struct ref ref = {.a = name, .b = "", .kind = REF_MODEL, .here = type == DT_REG};
    bool file = type == DT_REG || type == DT_LNK, folder = type == DT_DIR || type == DT_LNK;
    if (is_left_out(r, p, dir, name) || (folder && !p->store && has_repo(r, p, dir, name)))
        return 0;
    if (type == DT_DIR)
        ref.kind = REF_FOLDER;
    else if (file && named_gguf(name))
        ref.kind = REF_MODEL;
    else if (type == DT_LNK && is_shown_folder(r, p, dir, name))
        ref.kind = REF_FOLDER;
    else if (!file || !is_blob(r, dir, name))
        return 0;
    return listing_add(ret, name, &ref);
}

/* One of a folder's split models: by name and number of files. */
struct split_group {
    const char *first; /* the lowest of its files' names */
    uint32_t files;
};

static int by_group(const void *a, const void *b)
{
    const struct split_group *x = a, *y = b;
    size_t n = strlen(x->first) - SPLIT_TAIL, m = strlen(y->first) - SPLIT_TAIL;
    int c = memcmp(x->first, y->first, n < m ? n : m);
    if (c == 0 && n != m)
        c = n < m ? -1 : 1;
    if (c == 0 && x->files != y->files)
        c = x->files < y->files ? -1 : 1;
    return c ? c : strcmp(x->first, y->first);
}

static bool same_prefix(const struct split_group *a, const struct split_group *b)
{
    size_t n = strlen(a->first);
    return n == strlen(b->first) && memcmp(a->first, b->first, n - SPLIT_TAIL) == 0;
}

/* Groups are sorted, so that files of one model follow each other, and twins too. */
static int add_groups(struct split_group *g, size_t n, struct listing *ret)
{
    char shown[TREE_NAME_MAX + 1];
    int e = 0;
    for (size_t i = 0, next; i < n && e == 0; i = next) {
        for (next = i + 1; next < n && same_prefix(&g[i], &g[next]) && g[next].files == g[i].files;)
            next++;
        bool twin =
            (i && same_prefix(&g[i - 1], &g[i])) || (next < n && same_prefix(&g[i], &g[next]));
        struct ref ref = {REF_SPLIT, g[i].files, g[i].first, "", false};
        (void)shard_of(g[i].first, shown);
        if (twin || listing_has(ret, shown))
            (void)snprintf(shown, sizeof(shown), "%.*s-00001-of-%05u" SUFFIX,
                           (int)(strlen(g[i].first) - SPLIT_TAIL), g[i].first, g[i].files);
        e = listing_add(ret, shown, &ref);
    }
    return e;
}

static int add_splits(const struct names *names, struct listing *ret)
{
    char shown[TREE_NAME_MAX + 1];
    size_t n = 0, cap = 0;
    struct split_group *g = NULL;
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        uint8_t type = names->name[i].type;
        uint32_t files = type == DT_REG || type == DT_LNK ? shard_of(name_at(names, i), shown) : 0;
        if (is_hidden(name_at(names, i)))
            files = 0;
        if (files)
            e = array_grow(&g, &cap, n, sizeof(*g));
        if (files && e == 0)
            g[n++] = (struct split_group){name_at(names, i), files};
    }
    if (n)
        qsort(g, n, sizeof(*g), by_group);
    if (e == 0)
        e = add_groups(g, n, ret);
    free(g);
    return e;
}

/* Organisations, and repositories without one. Names are sorted: those of one follow each other. */
static int add_repos(struct reach *r, const struct place *p, const struct found *dir,
                     const struct names *names, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], last[TREE_NAME_MAX + 1] = "";
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        const char *folder = name_at(names, i);
        if (!repo_name(folder, org, name) || (org[0] && strcmp(org, last) == 0) ||
            names->name[i].type == DT_UNKNOWN || !has_repo(r, p, dir, folder))
            continue;
        struct ref ref = {.kind = REF_ORG, .a = org, .b = ""};
        e = org[0] ? listing_add(ret, org, &ref) : repo_list(r, dir, folder, name, ret);
        if (org[0])
            (void)strcpy(last, org);
    }
    return e;
}

static int list(struct reach *r, const struct place *p, const struct found *dir,
                struct listing *ret)
{
    char shown[TREE_NAME_MAX + 1];
    const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        uint8_t type = names->name[i].type;
        const char *name = name_at(names, i);
        if (type == DT_DIR || !shard_of(name, shown))
            e = add_single(r, p, dir, name, type, ret);
    }
    if (e == 0)
        e = add_splits(names, ret);
    if (e == 0 && !p->store)
        e = add_repos(r, p, dir, names, ret);
    names_free(r, names);
    return e;
}

/* ---- one name ---- */

/* The split model that is shown by this name; -EAGAIN if two would be. */
static int find_split(const struct names *names, const char *name,
                      char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    char start[TREE_NAME_MAX + 1], shown[TREE_NAME_MAX + 1];
    size_t n = strlen(name) - strlen(SUFFIX);
    (void)snprintf(start, sizeof(start), "%.*s-", (int)n, name);
    int e = -ENOENT;
    for (size_t i = names_from(names, start); i < names->n; i++) {
        const char *file = name_at(names, i);
        uint32_t files = strncmp(file, start, n + 1) == 0 ? shard_of(file, shown) : 0;
        uint8_t type = names->name[i].type;
        if (strncmp(file, start, n + 1) != 0 || file[n + 1] > '9')
            break;
        if (!files || strcmp(shown, name) != 0 || (type != DT_REG && type != DT_LNK))
            continue;
        if (e == 0 && files != ref->shards)
            return -EAGAIN; /* two of one name */
        if (e != 0)
            (void)snprintf(room, TREE_NAME_MAX + 1, "%s", file);
        *ref = (struct ref){REF_SPLIT, files, room, "", false};
        e = 0;
    }
    return e;
}

/* The organisation that is shown by this name; -EAGAIN if a repository without one may be. */
static int find_org(struct reach *r, const struct place *p, const struct found *dir,
                    const struct names *names, const char *name, struct ref *ref)
{
    char start[TREE_NAME_MAX + 16], org[TREE_NAME_MAX + 1], rest[TREE_NAME_MAX + 1];
    size_t n = (size_t)snprintf(start, sizeof(start), "models--%s", name),
           i = names_from(names, start);
    if (strchr(name, '@') || (i < names->n && strcmp(name_at(names, i), start) == 0 &&
                              repo_name(start, org, rest) && !org[0]))
        return -EAGAIN;
    (void)strcpy(start + n, "--");
    for (i = names_from(names, start); i < names->n; i++) {
        const char *folder = name_at(names, i);
        if (strncmp(folder, start, n + 2) != 0)
            break;
        if (names->name[i].type != DT_UNKNOWN && repo_name(folder, org, rest) &&
            strcmp(org, name) == 0 && has_repo(r, p, dir, folder)) {
            ref->kind = REF_ORG;
            return 0;
        }
    }
    return -ENOENT;
}

/* What is shown by another name than its own, which is in ref->a; -EAGAIN: only a listing can show
 * that. */
static int find_in_names(struct reach *r, const struct place *p, const struct found *dir,
                         const char *name, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    char shown[TREE_NAME_MAX + 1];
    const struct names *names;
    size_t n = strlen(name), s = strlen(SUFFIX);
    bool model = n > s && strcmp(name + n - s, SUFFIX) == 0;
    int e = names_load(r, dir, &names);
    if (e < 0)
        return e;
    if (strchr(name, '~') || (model && shard_of(name, shown)))
        e = -EAGAIN;
    else
        e = model ? find_split(names, name, room, ref) : -ENOENT;
    if (e == -ENOENT && !p->store)
        e = find_org(r, p, dir, names, name, ref);
    names_free(r, names);
    return e;
}

static int find(struct reach *r, const struct place *p, const struct found *dir, const char *name,
                char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    char shown[TREE_NAME_MAX + 1];
    struct found f = FOUND_NONE;
    (void)snprintf(room, TREE_NAME_MAX + 1, "%s", name);
    *ref = (struct ref){.a = room, .b = ""};
    int e = reach_open(r, dir, name, REACH_NO_LINKS, &f);
    mode_t type = e == 0 ? f.st.st_mode & S_IFMT : e == -ELOOP ? S_IFLNK : 0;
    reach_close(&f);
    if (is_left_out(r, p, dir, name))
        return -ENOENT;
    bool repo = !p->store && (type == S_IFDIR || type == S_IFLNK) && has_repo(r, p, dir, name);
    if (type == S_IFDIR && !repo) {
        ref->kind = REF_FOLDER;
        return 0;
    }
    if (!repo && (type == S_IFREG || type == S_IFLNK)) {
        ref->kind = REF_MODEL;
        if (named_gguf(name) && !shard_of(name, shown))
            return 0;
        if (!named_gguf(name) && is_blob(r, dir, name))
            return 0;
        ref->kind = REF_FOLDER;
        if (type == S_IFLNK && !named_gguf(name) && has_folder(r, dir, name, REACH_LINKS) != 0)
            return 0;
    }
    return e == -ENAMETOOLONG ? -ENOENT : find_in_names(r, p, dir, name, room, ref);
}

/* A split model is given by its first file, or the first of those that exist. */
static int split_item(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    char first[TREE_NAME_MAX + 1];
    struct found f = FOUND_NONE;
    (void)snprintf(first, sizeof(first), "%.*s-00001-of-%05u" SUFFIX,
                   (int)(strlen(ref->a) - SPLIT_TAIL), ref->a, ref->shards);
    int e = reach_open(r, dir, first, REACH_NO_LINKS, &f);
    bool is = e == -ELOOP || (e == 0 && !S_ISDIR(f.st.st_mode));
    reach_close(&f);
    return item_model(r, p, dir, is ? first : ref->a, ret);
}

static int item(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret)
{
    int e;
    switch (ref->kind) {
    case REF_FOLDER:
        return folder_item(r, p, dir, ref->a, ret);
    case REF_MODEL:
        e = item_model(r, p, dir, ref->a, ret);
        break;
    case REF_SPLIT:
        e = split_item(r, p, dir, ref, ret);
        break;
    case REF_ORG:
        *ret = (struct item){.kind = ITEM_FOLDER, .st = dir->st, .store = true};
        ret->real = strdup(dir->path);
        ret->above = dir->linked ? 0 : strlen(dir->path);
        e = place_make(p, PLACE_ORG, NULL, ref->a, NULL, NULL, &ret->place);
        return e < 0 || ret->real ? e : -ENOMEM;
    default:
        return repo_item(r, p, dir, ref, ret);
    }
    /* A link that is named as a model may lead to a folder. */
    if (e == 0 && ref->kind == REF_MODEL && ret->error.code == -EISDIR) {
        item_free(ret);
        e = folder_item(r, p, dir, ref->a, ret);
    } else if (e == 0 && ret->error.code == -ENOENT && ref->kind == REF_MODEL) {
        struct found link = FOUND_NONE;
        e = reach_open(r, dir, ref->a, REACH_NO_LINKS, &link) == -ENOENT ? -ENOENT : 0;
        reach_close(&link);
        if (e < 0)
            item_free(ret);
    }
    return e;
}

const struct store_kind store_plain = {list, find, item};
