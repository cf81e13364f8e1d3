/* SPDX-License-Identifier: MIT */
/* Plain folders: see plain.h. */
#include "shelf/plain.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/path.h"
#include "check/filename.h"
#include "model/split.h"
#include "shelf/hub.h"
#include "shelf/ollama.h"

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

/* A blob that was taken out of an ollama store is named by its hash. */
static bool named_blob(const char *name)
{
    return strncmp(name, "sha256-", 7) == 0 && file_name_is_hash(name);
}

/* ---- listing ---- */

/* A range of a folder's names, sorted. */
struct range {
    const struct names *names;
    size_t first, end;
};

/* The names that begin so. */
static struct range range_of(const struct names *names, const char *start)
{
    struct range g = {names, names_from(names, start), 0};
    const size_t n = strlen(start);
    for (g.end = g.first; g.end < names->n && strncmp(name_at(names, g.end), start, n) == 0;)
        g.end++;
    return g;
}

/* What all names begin with that may be shown as `wanted`, or take such a name before others; NULL: any. */
static void stem_of(const char *wanted, char stem[TREE_NAME_MAX + 1])
{
    size_t n = wanted ? strcspn(wanted, "%~@") : 0;
    (void)snprintf(stem, TREE_NAME_MAX + 1, "%.*s", (int)n, wanted ? wanted : "");
    if (split_count(stem))
        stem[n - SPLIT_TAIL] = '\0';
    else if (named_gguf(stem))
        stem[n - strlen(SUFFIX)] = '\0';
}

/* Folders and files that keep their names. */
static int add_single(const struct place *p, const char *name, uint8_t type, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], rest[TREE_NAME_MAX + 1];
    const bool hidden = is_hidden(name), repo = !p->store && repo_name(name, org, rest),
               model = named_gguf(name);
    struct ref ref = {.a = name, .b = "", .kind = REF_FOLDER};
    if ((type != DT_REG && type != DT_LNK && type != DT_DIR) || (hidden && p->store))
        return 0;
    if (type != DT_DIR && !hidden && (model || named_blob(name)))
        ref.kind = REF_MODEL;
    else if (type == DT_REG)
        return 0;
    if (!hidden && (model || type == DT_DIR) && (!repo || type == DT_REG))
        ref.sure = type == DT_REG ? REF_HERE : REF_SURE;
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
        struct ref ref = {REF_SPLIT, g[i].files, g[i].first, "", REF_SURE};
        (void)shard_of(g[i].first, shown);
        if (twin || listing_has(ret, shown))
            (void)snprintf(shown, sizeof(shown), "%.*s-00001-of-%05u" SUFFIX,
                           (int)(strlen(g[i].first) - SPLIT_TAIL), g[i].first, g[i].files);
        e = listing_add(ret, shown, &ref);
    }
    return e;
}

static int add_splits(struct range names, struct listing *ret)
{
    char shown[TREE_NAME_MAX + 1];
    size_t n = 0, cap = 0;
    struct split_group *g = NULL;
    int e = 0;
    for (size_t i = names.first; e == 0 && i < names.end; i++) {
        const char *name = name_at(names.names, i);
        uint8_t type = names.names->name[i].type;
        bool file = (type == DT_REG || type == DT_LNK) && !is_hidden(name);
        uint32_t files = file ? shard_of(name, shown) : 0;
        if (files)
            e = array_grow(&g, &cap, n, sizeof(*g));
        if (files && e == 0)
            g[n++] = (struct split_group){name, files};
    }
    if (n)
        qsort(g, n, sizeof(*g), by_group);
    if (e == 0)
        e = add_groups(g, n, ret);
    free(g);
    return e;
}

/* Organisations, and repositories without one. Those of one organisation follow each other. */
static int add_repos(struct reach *r, const struct place *p, const struct found *dir,
                     struct range names, const char *wanted, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], last[TREE_NAME_MAX + 1] = "";
    int e = 0;
    for (size_t i = names.first; e == 0 && i < names.end; i++) {
        const char *folder = name_at(names.names, i);
        uint8_t type = names.names->name[i].type;
        struct ref ref = {.kind = REF_ORG, .a = org, .b = ""};
        if ((type != DT_DIR && type != DT_LNK) || !repo_name(folder, org, name) ||
            (org[0] && strcmp(org, last) == 0))
            continue;
        if (org[0])
            e = listing_add(ret, org, &ref);
        else if (name_leads(name, wanted))
            e = hub_add(r, p, dir, folder, name, ret);
        (void)strcpy(last, org);
    }
    return e;
}

static int list_range(struct reach *r, const struct place *p, const struct found *dir,
                      const struct names *names, const char *wanted, struct listing *ret)
{
    char stem[TREE_NAME_MAX + 16], shown[TREE_NAME_MAX + 1];
    stem_of(wanted, stem);
    const struct range all = range_of(names, stem);
    int e = 0;
    for (size_t i = all.first; e == 0 && i < all.end; i++) {
        uint8_t type = names->name[i].type;
        const char *name = name_at(names, i);
        if (type == DT_DIR || !shard_of(name, shown))
            e = add_single(p, name, type, ret);
    }
    if (e == 0)
        e = add_splits(all, ret);
    if (p->store || e < 0)
        return e;
    char start[TREE_NAME_MAX + 16];
    (void)snprintf(start, sizeof(start), "models--%s", stem);
    return add_repos(r, p, dir, range_of(names, start), wanted, ret);
}

/* The folder is a repository itself, of this name. */
static bool is_repo(const struct found *dir, const struct names *names,
                    char name[TREE_NAME_MAX + 1])
{
    char org[TREE_NAME_MAX + 1];
    return repo_name(path_name(dir->path), org, name) && names_type(names, "snapshots") == DT_DIR;
}

int plain_list(struct reach *r, const struct place *p, const struct found *dir, const char *wanted,
               struct listing *ret)
{
    char name[TREE_NAME_MAX + 1];
    const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e == 0 && !p->store && is_repo(dir, names, name))
        e = hub_add(r, p, dir, ".", name, ret);
    else if (e == 0 && !p->store && ollama_is(r, dir, names))
        e = ollama_list(r, p, dir, wanted, ret);
    else if (e == 0)
        e = list_range(r, p, dir, names, wanted, ret);
    names_free(r, names);
    return e;
}

/* ---- items ---- */

/* Hidden folders are shown only if they are stores themselves. */
static bool is_store(struct reach *r, const struct found *f)
{
    const struct place own = {.path = f->path};
    const struct names *names = NULL;
    bool is =
        names_load(r, f, &names) == 0 && (ollama_is(r, f, names) || hub_is(r, &own, f, names));
    names_free(r, names);
    return is;
}

static int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                       const char *name, struct item *ret)
{
    struct found f = FOUND_NONE;
    int e = reach_open(r, dir, name, REACH_NO_LINKS, &f);
    bool linked = e == -ELOOP;
    if (linked)
        e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == -EXDEV || (e == 0 && !S_ISDIR(f.st.st_mode)))
        e = -ENOENT;
    if (e == 0 && ((is_hidden(name) && !is_store(r, &f)) ||
                   (!p->store && hub_has(r, p, dir, name)))) /* it is shown by its organisation */
        e = -ENOENT;
    if (e == 0)
        return item_below(r, p, &f, linked, false, ret);
    reach_close(&f);
    return e;
}

/* True if a file begins with GGUF's magic. */
static bool has_magic(struct reach *r, const struct found *dir, const char *name)
{
    struct found f = FOUND_NONE;
    char magic[4] = "";
    int fd = reach_open(r, dir, name, REACH_LINKS, &f) == 0 && S_ISREG(f.st.st_mode)
                 ? reach_read(&f)
                 : -1;
    bool is = fd >= 0 && pread(fd, magic, 4, 0) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0)
        (void)close(fd);
    reach_close(&f);
    return is;
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

/* A link that is named as a model may lead to a folder; a blob may be anything. */
static int model_item(struct reach *r, const struct place *p, const struct found *dir,
                      const char *name, struct item *ret)
{
    int e = item_model(r, p, dir, name, ret);
    if (e < 0)
        return e;
    const int code = ret->error.code;
    if (code == -EISDIR) {
        item_free(ret);
        return folder_item(r, p, dir, name, ret);
    }
    if (code == -ENOENT) {
        struct found link = FOUND_NONE;
        e = reach_open(r, dir, name, REACH_NO_LINKS, &link) == -ENOENT ? -ENOENT : 0;
        reach_close(&link);
    }
    if (e == 0 && !named_gguf(name) && !has_magic(r, dir, name))
        e = -ENOENT;
    if (e < 0)
        item_free(ret);
    return e;
}

int plain_item(struct reach *r, const struct place *p, const struct found *dir,
               const struct ref *ref, struct item *ret)
{
    return ref->kind == REF_FOLDER  ? folder_item(r, p, dir, ref->a, ret)
           : ref->kind == REF_MODEL ? model_item(r, p, dir, ref->a, ret)
                                    : split_item(r, p, dir, ref, ret);
}
