/* SPDX-License-Identifier: MIT */
/* Directories: see folder.h. */
#include "shelf/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/path.h"
#include "base/when.h"
#include "check/filename.h"
#include "model/split.h"
#include "shelf/ollama.h"

#define SUFFIX ".gguf"
#define REPO_PREFIX "models--"

/* Bytes of a file in refs/: a commit, and any white space around it. */
#define REF_MAX 4096

static bool named_gguf(const char *name)
{
    size_t n = strlen(name), s = strlen(SUFFIX);
    return n > s && strcasecmp(name + n - s, SUFFIX) == 0;
}

/*
 * The name under which a split model is shown, from the name of one of its files; returns the
 * number of files, or 0.
 */
static uint32_t shard_of(const char *name, char shown[TREE_NAME_MAX + 1])
{
    size_t files = split_count(name);
    if (files)
        (void)snprintf(shown, TREE_NAME_MAX + 1, "%.*s" SUFFIX, (int)(strlen(name) - SPLIT_TAIL),
                       name);
    return (uint32_t)files;
}

/* A blob taken out of an ollama store is named by its hash. */
static bool named_blob(const char *name)
{
    return strncmp(name, "sha256-", 7) == 0 && file_name_is_hash(name);
}

/* ---- names of repositories ---- */

bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1])
{
    if (strncmp(folder, REPO_PREFIX, strlen(REPO_PREFIX)) != 0 || strlen(folder) > TREE_NAME_MAX)
        return false;
    const char *rest = folder + strlen(REPO_PREFIX), *end = strstr(rest, "--");
    if (strchr(rest, '@')) /* not in a repository's name: it would read as that of a revision */
        return false;
    (void)snprintf(org, TREE_NAME_MAX + 1, "%.*s", end ? (int)(end - rest) : 0, rest);
    (void)snprintf(name, TREE_NAME_MAX + 1, "%s", end ? end + 2 : rest);
    return name[0] && (!end || end > rest) && org[0] != '.' && name[0] != '.';
}

static bool is_commit(const char *text)
{
    return strlen(text) == COMMIT_DIGITS && strspn(text, "0123456789abcdef") == COMMIT_DIGITS;
}

bool commit_parse(const void *bytes, size_t n, char ret[COMMIT_DIGITS + 1])
{
    const char *p = bytes, *end = p + n;
    while (p < end && isspace((unsigned char)*p))
        p++;
    while (end > p && isspace((unsigned char)end[-1]))
        end--;
    if (end - p != COMMIT_DIGITS)
        return false;
    memcpy(ret, p, COMMIT_DIGITS);
    ret[COMMIT_DIGITS] = '\0';
    return is_commit(ret);
}

/* ---- repositories ---- */

/*
 * Open `path` in the repository `folder` (".": dir itself), or in the one that a link of this name
 * leads to if it was moved. 0, 1 (by a link), -ENOENT (by a link that must not be followed),
 * -errno.
 */
static int open_in(struct reach *r, const struct place *p, const struct found *dir,
                   const char *folder, const char *path, enum reach_flags flags, struct found *ret)
{
    char all[2 * TREE_NAME_MAX];
    CLEANUP(reach_close) struct found repo = FOUND_NONE;
    (void)snprintf(all, sizeof(all), "%s/%s", folder, path);
    const bool own = strcmp(folder, ".") == 0;
    int e = reach_open(r, dir, own ? path : all, own ? flags : REACH_NO_LINKS, ret);
    if (e != -ELOOP || own)
        return e;
    e = reach_open(r, dir, folder, REACH_NO_LINKS, &repo);
    const int linked = e == -ELOOP;
    if (linked)
        e = reach_open(r, dir, folder, REACH_LINKS, &repo);
    if (e == 0 && linked && place_goes_round(r, p, repo.path))
        e = -ENOENT;
    if (e == 0)
        e = reach_open(r, &repo, path, flags, ret);
    return e < 0 ? e : linked;
}

static bool is_repo_in(struct reach *r, const struct place *p, const struct found *dir,
                       const char *folder)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    return repo_name(folder, org, name) &&
           open_in(r, p, dir, folder, "snapshots", REACH_NO_LINKS, &f) >= 0 &&
           S_ISDIR(f.st.st_mode);
}

/* True if one of the directories with this prefix is a repository. */
static bool has_some(struct reach *r, const struct place *p, const struct found *dir,
                     const struct names *names, const char *start)
{
    for (size_t i = names_from(names, start); name_begins(names, i, start); i++)
        if (names->name[i].type != DT_UNKNOWN && is_repo_in(r, p, dir, name_at(names, i)))
            return true;
    return false;
}

/* ---- revisions ---- */

static bool is_revision(const struct names *n, size_t i)
{
    return n->name[i].type == DT_DIR && is_commit(name_at(n, i));
}

/* The newest directory in `snapshots`; of several with the same time, the last by name. SIZE_MAX: none. */
static size_t newest(struct reach *r, const struct found *snapshots, const struct names *names)
{
    struct timespec best = {0};
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < names->n; i++) {
        CLEANUP(reach_close) struct found f = FOUND_NONE;
        if (!is_revision(names, i) ||
            reach_open(r, snapshots, name_at(names, i), REACH_NO_LINKS, &f) < 0)
            continue;
        struct timespec t = f.st.st_mtim;
        if (found == SIZE_MAX || !when_before(&t, &best)) {
            best = t;
            found = i;
        }
    }
    return found;
}

/* The index of the commit that refs/main names, if there is a snapshot of it. */
static size_t named_main(struct reach *r, const struct place *p, const struct found *dir,
                         const char *folder, const struct names *names)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    char commit[COMMIT_DIGITS + 1];
    if (open_in(r, p, dir, folder, "refs/main", REACH_LINKS, &f) < 0 ||
        read_small(&f, REF_MAX, &text) < 0 || !commit_parse(text.data, text.len, commit) ||
        names_type(names, commit) != DT_DIR)
        return SIZE_MAX;
    return names_from(names, commit);
}

static int add_revisions(const struct names *names, size_t main, const char *folder,
                         const char *name, struct listing *ret)
{
    char shown[TREE_NAME_MAX + COMMIT_DIGITS + 2];
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        struct ref ref = {REF_REVISION, 0, folder, name_at(names, i), REF_SURE};
        if (!is_revision(names, i))
            continue;
        (void)snprintf(shown, sizeof(shown), "%s%s%s", name, i == main ? "" : "@",
                       i == main ? "" : ref.b);
        e = listing_add(ret, shown, &ref);
    }
    return e;
}

static int add_repo(struct reach *r, const struct place *p, const struct found *dir,
                    const char *folder, const char *name, struct listing *ret)
{
    CLEANUP(reach_close) struct found snapshots = FOUND_NONE;
    CLEANUP(names_free) const struct names *names = NULL;
    ret->wide = true;
    int e = open_in(r, p, dir, folder, "snapshots", REACH_NO_LINKS, &snapshots);
    if (e >= 0)
        e = names_load(r, &snapshots, &names);
    if (e == 0) {
        size_t main = named_main(r, p, dir, folder, names);
        if (main == SIZE_MAX)
            main = newest(r, &snapshots, names);
        e = add_revisions(names, main, folder, name, ret);
    }
    return is_shortage(e) ? e : 0;
}

/* ---- listing ---- */

/* Add directories and files that keep their names. */
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

/* One of a directory's split models: by name and number of files. */
struct split_group {
    const char *first; /* the first of its files' names */
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

/* Groups are sorted, so that files of one model are adjacent, and so are twins. */
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

static int add_splits(const struct names *names, struct listing *ret)
{
    char shown[TREE_NAME_MAX + 1];
    size_t n = 0, cap = 0;
    struct split_group *g = NULL;
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        const char *name = name_at(names, i);
        uint8_t type = names->name[i].type;
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

/* Organisations, and repositories without one. Those of one organisation are adjacent. */
static int add_repos(struct reach *r, const struct place *p, const struct found *dir,
                     const struct names *names, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], last[TREE_NAME_MAX + 1] = "";
    const struct ref ref = {.kind = REF_ORG, .a = org, .b = ""};
    int e = 0;
    for (size_t i = names_from(names, REPO_PREFIX); e == 0 && name_begins(names, i, REPO_PREFIX);
         i++) {
        const char *folder = name_at(names, i);
        uint8_t type = names->name[i].type;
        if ((type != DT_DIR && type != DT_LNK) || !repo_name(folder, org, name) ||
            (org[0] && strcmp(org, last) == 0))
            continue;
        if (org[0])
            e = listing_add(ret, org, &ref);
        else
            e = add_repo(r, p, dir, folder, name, ret);
        (void)strcpy(last, org);
    }
    return e;
}

static int list_names(struct reach *r, const struct place *p, const struct found *dir,
                      const struct names *names, struct listing *ret)
{
    char shown[TREE_NAME_MAX + 1];
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        uint8_t type = names->name[i].type;
        const char *name = name_at(names, i);
        if (type == DT_DIR || !shard_of(name, shown))
            e = add_single(p, name, type, ret);
    }
    if (e == 0)
        e = add_splits(names, ret);
    return p->store || e < 0 ? e : add_repos(r, p, dir, names, ret);
}

/* True if the directory itself is a repository, of this name. */
static bool is_repo(const struct found *dir, const struct names *names,
                    char name[TREE_NAME_MAX + 1])
{
    char org[TREE_NAME_MAX + 1];
    return repo_name(path_name(dir->path), org, name) && names_type(names, "snapshots") == DT_DIR;
}

int folder_list(struct reach *r, const struct place *p, const struct found *dir,
                struct listing *ret)
{
    char name[TREE_NAME_MAX + 1];
    CLEANUP(names_free) const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e == 0 && !p->store && is_repo(dir, names, name))
        e = add_repo(r, p, dir, ".", name, ret);
    else if (e == 0 && !p->store && ollama_is(r, dir, names))
        e = ollama_list(r, p, dir, ret);
    else if (e == 0 && !listing_kept(names, p, ret)) {
        e = list_names(r, p, dir, names, ret);
        if (e == 0 && !ret->wide)
            listing_keep(names, p, ret);
    }
    return e;
}

/* ---- items ---- */

/* Hidden directories are shown only if they are stores themselves. */
static bool is_store(struct reach *r, const struct found *f)
{
    const struct place own = {.path = f->path};
    CLEANUP(names_free) const struct names *names = NULL;
    bool is = names_load(r, f, &names) == 0 &&
              (ollama_is(r, f, names) || has_some(r, &own, f, names, REPO_PREFIX));
    return is;
}

static int below_item(struct reach *r, const struct place *p, const struct found *dir,
                      const char *name, struct item *ret)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    int e = reach_open(r, dir, name, REACH_NO_LINKS, &f);
    bool linked = e == -ELOOP;
    if (linked)
        e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == -EXDEV || (e == 0 && !S_ISDIR(f.st.st_mode)))
        e = -ENOENT;
    if (e == 0 &&
        ((is_hidden(name) && !is_store(r, &f)) ||
         (!p->store && is_repo_in(r, p, dir, name)))) /* it is shown under its organisation */
        e = -ENOENT;
    if (e == 0)
        return item_below(r, p, &f, linked, false, ret);
    return e;
}

/* True if a file begins with GGUF's magic. */
static bool has_magic(struct reach *r, const struct found *dir, const char *name)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    char magic[4] = "";
    int fd = reach_open(r, dir, name, REACH_LINKS, &f) == 0 && S_ISREG(f.st.st_mode)
                 ? reach_read(&f)
                 : -1;
    bool is = fd >= 0 && pread(fd, magic, 4, 0) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0)
        (void)close(fd);
    return is;
}

/* A split model is represented by its first file, or the first one that exists. */
static int split_item(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    char first[TREE_NAME_MAX + 1];
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    (void)snprintf(first, sizeof(first), "%.*s-00001-of-%05u" SUFFIX,
                   (int)(strlen(ref->a) - SPLIT_TAIL), ref->a, ref->shards);
    int e = reach_open(r, dir, first, REACH_NO_LINKS, &f);
    bool is = e == -ELOOP || (e == 0 && !S_ISDIR(f.st.st_mode));
    return item_model(r, p, dir, is ? first : ref->a, ret);
}

/* A link named like a model may lead to a directory; a blob may be anything. */
static int model_item(struct reach *r, const struct place *p, const struct found *dir,
                      const char *name, struct item *ret)
{
    int e = item_model(r, p, dir, name, ret);
    if (e < 0)
        return e;
    const int code = ret->error.code;
    if (code == -EISDIR) {
        item_free(ret);
        return below_item(r, p, dir, name, ret);
    }
    if (code == -ENOENT) {
        CLEANUP(reach_close) struct found link = FOUND_NONE;
        e = reach_open(r, dir, name, REACH_NO_LINKS, &link) == -ENOENT ? -ENOENT : 0;
    }
    if (e == 0 && !named_gguf(name) && !has_magic(r, dir, name))
        e = -ENOENT;
    if (e < 0)
        item_free(ret);
    return e;
}

int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                const struct ref *ref, struct item *ret)
{
    return ref->kind == REF_FOLDER  ? below_item(r, p, dir, ref->a, ret)
           : ref->kind == REF_MODEL ? model_item(r, p, dir, ref->a, ret)
                                    : split_item(r, p, dir, ref, ret);
}

/* ---- organisations ---- */

int hub_list(struct reach *r, const struct place *p, const struct found *dir, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], start[TREE_NAME_MAX + 16];
    CLEANUP(names_free) const struct names *names = NULL;
    (void)snprintf(start, sizeof(start), REPO_PREFIX "%s--", p->sub);
    int e = names_load(r, dir, &names);
    for (size_t i = e < 0 ? 0 : names_from(names, start); e == 0 && name_begins(names, i, start);
         i++)
        if (names->name[i].type != DT_UNKNOWN && repo_name(name_at(names, i), org, name))
            e = add_repo(r, p, dir, name_at(names, i), name, ret);
    return e;
}

/* An organisation is shown if it has a repository. */
static int org_item(struct reach *r, const struct place *p, const struct found *dir,
                    const char *org, struct item *ret)
{
    char start[TREE_NAME_MAX + 16];
    CLEANUP(names_free) const struct names *names = NULL;
    (void)snprintf(start, sizeof(start), REPO_PREFIX "%s--", org);
    int e = names_load(r, dir, &names);
    if (e == 0 && !has_some(r, p, dir, names, start))
        e = -ENOENT;
    if (e < 0)
        return e;
    *ret = (struct item){.kind = ITEM_FOLDER, .st = dir->st, .store = true};
    ret->real = strdup(dir->path);
    ret->above = dir->linked ? 0 : strlen(dir->path);
    ret->grant = found_grant(r, dir, ret->above);
    e = place_make(p, PLACE_ORG, NULL, org, false, &ret->place);
    if (e < 0 || !ret->real)
        item_free(ret);
    return e < 0 ? e : ret->real ? 0 : -ENOMEM;
}

int hub_item(struct reach *r, const struct place *p, const struct found *dir, const struct ref *ref,
             struct item *ret)
{
    char path[TREE_NAME_MAX];
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    if (ref->kind == REF_ORG)
        return org_item(r, p, dir, ref->a, ret);
    (void)snprintf(path, sizeof(path), "snapshots/%s", ref->b);
    int e = open_in(r, p, dir, ref->a, path, REACH_NO_LINKS, &f);
    return e < 0 ? e : item_below(r, p, &f, e > 0, true, ret);
}
