/* SPDX-License-Identifier: MIT */
/* Creates places, listings and items: see place.h. */
#include "shelf/place.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/sys.h"
#include "model/snapshot.h"
#include "shelf/manifest.h"
#include "tree/tree.h"

#define SUFFIX ".gguf"
#define REPO_PREFIX "models--"

/* Maximum size in bytes of a file in refs/, which contains a commit, perhaps surrounded by white
 * space. */
#define REF_MAX 4096

/* ---- places ---- */

static int place_make(const struct place *above, enum place_kind kind, const char *path,
                      const char *sub, struct place *ret)
{
    const size_t n = strlen(path) + 1;
    char *text = malloc(n + strlen(sub) + 1);
    if (!text)
        return -ENOMEM;
    *ret = (struct place){.kind = kind,
                          .store = above->store || kind != PLACE_FOLDER,
                          .linked = above->linked,
                          .path = strcpy(text, path),
                          .sub = strcpy(text + n, sub)};
    return 0;
}

int place_top(const struct paths *p, struct place *ret)
{
    return place_make(&(struct place){0}, PLACE_FOLDER, p->path, "", ret);
}

void place_free(struct place *p)
{
    free(p->path);
    *p = (struct place){0};
}

uint64_t place_hash(const struct place *p)
{
    const size_t n = (size_t)(p->sub - p->path) + strlen(p->sub);
    return hash_name(p->path, n) ^
           hash_number((uint64_t)p->kind << 2 | (unsigned)p->store << 1 | p->linked);
}

/* ---- the names in a directory ---- */

/* The names in a directory, sorted, and their types. */
struct names {
    struct buf texts; /* the names, each with its NUL */
    struct name {
        uint32_t text;
        uint8_t type;
    } * name; /* owned */
    size_t n, cap;
};

static bool is_hidden(const char *name)
{
    return name[0] == '.';
}

static const char *name_at(const struct names *n, size_t i)
{
    return buf_text(&n->texts) + n->name[i].text;
}

static void names_free(struct names *n)
{
    free(n->name);
    buf_free(&n->texts);
}

static int by_bytes(const void *a, const void *b, void *texts)
{
    const struct name *x = a, *y = b;
    return strcmp((const char *)texts + x->text, (const char *)texts + y->text);
}

static int add_name(struct names *n, const char *name, uint8_t type)
{
    const size_t len = strlen(name) + 1;
    if (n->texts.len + len > UINT32_MAX ||
        array_grow(&n->name, &n->cap, n->n, sizeof(*n->name)) < 0)
        return -ENOMEM;
    n->name[n->n++] = (struct name){(uint32_t)n->texts.len, type};
    buf_add(&n->texts, name, len);
    return buf_error(&n->texts);
}

static void sort_names(struct names *n)
{
    if (n->n)
        qsort_r(n->name, n->n, sizeof(*n->name), by_bytes, n->texts.data);
}

/* Add a directory, a file or a link; leave out anything else. */
static int add_entry(int fd, const struct dirent *d, struct names *n)
{
    struct stat st;
    uint8_t type = d->d_type;
    if (type == DT_UNKNOWN) /* the file system does not report types */
        type = fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? DT_UNKNOWN
                                                                    : (uint8_t)IFTODT(st.st_mode);
    const bool shown = type == DT_DIR || type == DT_LNK || type == DT_REG,
               dots = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0;
    return shown && !dots ? add_name(n, d->d_name, type) : 0;
}

/* Read the names in a directory; free them even on failure. Returns 0 or -errno. */
static int names_read(const struct found *dir, struct names *n)
{
    const struct dirent *d;
    *n = (struct names){0};
    int fd = S_ISDIR(dir->st.st_mode) ? found_read(dir) : -ENOTDIR;
    if (fd < 0)
        return fd;
    DIR *list = fdopendir(fd);
    int e = list ? 0 : -errno;
    if (!list) {
        (void)close(fd);
        return e;
    }
    while (e == 0 && (errno = 0, d = readdir(list)))
        e = add_entry(fd, d, n);
    if (e == 0)
        e = -errno; /* errno from readdir(); 0 at the end of the directory */
    (void)closedir(list);
    sort_names(n);
    return e;
}

/* Return the index of the first name that does not sort before `text`. */
static size_t names_from(const struct names *n, const char *text)
{
    size_t low = 0, high = n->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (strcmp(name_at(n, mid), text) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Returns true if the index is valid and the name has this prefix. */
static bool name_begins(const struct names *n, size_t i, const char *start)
{
    return i < n->n && strncmp(name_at(n, i), start, strlen(start)) == 0;
}

/* Return the type of a name, or DT_UNKNOWN if it is not found. */
static uint8_t names_type(const struct names *n, const char *text)
{
    const size_t i = names_from(n, text);
    return i < n->n && strcmp(name_at(n, i), text) == 0 ? n->name[i].type : DT_UNKNOWN;
}

static bool is_folder(const struct found *f)
{
    return S_ISDIR(f->st.st_mode);
}

/* ---- making listings ---- */

/* A directory whose entries are being listed. */
struct lister {
    const struct paths *paths;
    const struct place *place;
    const struct found *dir; /* the directory of the place */
    struct listing *l;
};

/* Add an entry. Returns 0 or -ENOMEM. */
static int add(const struct lister *x, enum entry_kind kind, const char *name, const char *at)
{
    struct listing *l = x->l;
    char shown[TREE_NAME_MAX + 1];
    const size_t n = name_encode(name, strlen(name), shown) + 1;
    if (array_grow(&l->entry, &l->cap, l->n, sizeof(*l->entry)) < 0)
        return -ENOMEM;
    char *text = malloc(n + strlen(at) + 1);
    if (!text)
        return -ENOMEM;
    l->entry[l->n++] = (struct entry){strcpy(text, shown), strcpy(text + n, at), kind};
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    /* of equal names the first keeps it */
    if (order || x->kind == y->kind)
        return order ? order : strcmp(x->at, y->at);
    return x->kind < y->kind ? -1 : 1;
}

/* Rename an entry to NAME~k. Returns 0 or -ENOMEM. */
static int number_entry(struct entry *e, size_t k)
{
    char shown[TREE_NAME_MAX + 1];
    (void)snprintf(shown, sizeof(shown), "%.*s~%zu", TREE_NAME_MAX - 8, e->name, k);
    const size_t n = strlen(shown) + 1;
    char *text = malloc(n + strlen(e->at) + 1);
    if (!text)
        return -ENOMEM;
    e->at = strcpy(text + n, e->at);
    free(e->name);
    e->name = strcpy(text, shown);
    return 0;
}

/* Sort the entries, and number those whose names are equal: ~2, ~3 and so on. Where such a name
 * exists, or was cut, use numbers that were not used before. */
static int settle(struct listing *l)
{
    size_t unused = 0;
    bool equal = true;
    while (equal) {
        equal = false;
        if (l->n)
            qsort(l->entry, l->n, sizeof(*l->entry), by_name);
        for (size_t i = 1, first = 0; i < l->n; i++) {
            if (strcmp(l->entry[i].name, l->entry[first].name) != 0)
                first = i;
            else if (number_entry(&l->entry[i], unused ? unused++ : i - first + 1) < 0)
                return -ENOMEM;
            else
                equal = true;
        }
        unused = unused ? unused : l->n + 1;
    }
    return 0;
}

/* ---- names of repositories ---- */

bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1])
{
    if (strncmp(folder, REPO_PREFIX, strlen(REPO_PREFIX)) != 0 || strlen(folder) > TREE_NAME_MAX)
        return false;
    const char *rest = folder + strlen(REPO_PREFIX), *end = strstr(rest, "--");
    /* '@' would make the name look like a revision's; repository names never contain '@' */
    if (strchr(rest, '@'))
        return false;
    (void)snprintf(org, TREE_NAME_MAX + 1, "%.*s", end ? (int)(end - rest) : 0, rest);
    (void)snprintf(name, TREE_NAME_MAX + 1, "%s", end ? end + 2 : rest);
    return name[0] && (!end || end > rest) && org[0] != '.' && name[0] != '.';
}

bool revision_parse(const void *bytes, size_t n, char ret[TREE_NAME_MAX + 1])
{
    const char *p = bytes, *end = p + n;
    while (p < end && isspace((unsigned char)*p))
        p++;
    while (end > p && isspace((unsigned char)end[-1]))
        end--;
    n = (size_t)(end - p);
    if (n == 0 || n > TREE_NAME_MAX || memchr(p, '\0', n) || memchr(p, '/', n) || is_hidden(p))
        return false;
    *(char *)mempcpy(ret, p, n) = '\0';
    return true;
}

/* ---- repositories ---- */

static bool is_repo(const struct paths *p, const struct found *dir, const char *folder)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    CLEANUP(found_close) struct found f = FOUND_NONE;
    return repo_name(folder, org, name) && path_via(p, dir, folder, "snapshots", &f) == 0 &&
           is_folder(&f);
}

/* Return the name of the newest of the directories in `snapshots`, or "". If several have the same
 * time, returns the one whose name sorts last. */
static const char *newest(const struct paths *p, const struct found *snapshots,
                          const struct names *names)
{
    struct timespec best = {0};
    const char *found = "";
    for (size_t i = 0; i < names->n; i++) {
        CLEANUP(found_close) struct found f = FOUND_NONE;
        const char *name = name_at(names, i);
        if (names->name[i].type == DT_DIR && !is_hidden(name) &&
            path_in(p, snapshots, name, false, &f) == 0 && !when_before(&f.st.st_mtim, &best)) {
            best = f.st.st_mtim;
            found = name;
        }
    }
    return found;
}

/* Add the revisions of the repository `folder` (".": the place's directory itself). A repository
 * that cannot be read is left out. */
static int add_repo(const struct lister *x, const char *folder, const char *name)
{
    char shown[2 * (TREE_NAME_MAX + 1)], at[2 * (TREE_NAME_MAX + 1)], main[TREE_NAME_MAX + 1];
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(found_close) struct found snapshots = FOUND_NONE, ref = FOUND_NONE;
    CLEANUP(names_free) struct names names = {0};
    x->l->wide = true;
    int e = path_via(x->paths, x->dir, folder, "snapshots", &snapshots);
    if (e == 0)
        e = names_read(&snapshots, &names);
    const bool known = e == 0 && path_via(x->paths, x->dir, folder, "refs/main", &ref) == 0 &&
                       found_text(&ref, REF_MAX, &text) == 0 &&
                       revision_parse(text.data, text.len, main) &&
                       names_type(&names, main) == DT_DIR;
    const char *first = known ? main : e == 0 ? newest(x->paths, &snapshots, &names) : "";
    for (size_t i = 0; e == 0 && i < names.n; i++) {
        const char *revision = name_at(&names, i);
        if (names.name[i].type != DT_DIR || is_hidden(revision))
            continue;
        const bool is_first = strcmp(revision, first) == 0;
        (void)snprintf(at, sizeof(at), "%s/%s", folder, revision);
        (void)snprintf(shown, sizeof(shown), "%s%s%s", name, is_first ? "" : "@",
                       is_first ? "" : revision);
        e = add(x, ENTRY_REVISION, shown, at);
    }
    return is_shortage(e) ? e : 0;
}

/* List the repositories of an organisation. */
static int list_org(const struct lister *x, const struct names *names)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], start[TREE_NAME_MAX + 16];
    int e = 0;
    (void)snprintf(start, sizeof(start), REPO_PREFIX "%s--", x->place->sub);
    for (size_t i = names_from(names, start); e == 0 && name_begins(names, i, start); i++)
        if (repo_name(name_at(names, i), org, name))
            e = add_repo(x, name_at(names, i), name);
    return e;
}

/* ---- directories ---- */

static bool ollama_has(uint8_t type)
{
    return type == DT_DIR || type == DT_LNK; /* both are often on another disk */
}

static bool is_ollama(const struct names *names)
{
    return ollama_has(names_type(names, "manifests")) && ollama_has(names_type(names, "blobs"));
}

/* Returns true if a hidden directory is a store. Other hidden directories are not shown. */
static bool is_store(const struct paths *p, const struct found *f)
{
    CLEANUP(names_free) struct names names = {0};
    bool is = names_read(f, &names) == 0 && is_ollama(&names);
    for (size_t i = names_from(&names, REPO_PREFIX); !is && name_begins(&names, i, REPO_PREFIX);
         i++)
        is = is_repo(p, f, name_at(&names, i));
    return is;
}

static bool named_gguf(const char *name)
{
    const size_t n = strlen(name), s = strlen(SUFFIX);
    return n > s && strcasecmp(name + n - s, SUFFIX) == 0;
}

/* Returns true if a link in a place to this real path would show a directory inside itself. */
static bool goes_round(const struct paths *p, const struct place *place, const char *path)
{
    return place->linked || path_below(place->path, path) || path_below(p->path, path);
}

/* Find the directory `name`, which may be a link and is shown only under certain conditions.
 * Returns 0, -ENOENT or another -errno. */
static int find_folder(const struct paths *p, const struct place *place, const struct found *dir,
                       const char *name, struct found *ret)
{
    int e = path_in(p, dir, name, true, ret);
    if (e == 0 && (!is_folder(ret) || (ret->linked && goes_round(p, place, ret->path)) ||
                   (is_hidden(name) && (place->store || !is_store(p, ret))))) {
        found_close(ret);
        e = -ENOENT;
    }
    return e == -EXDEV ? -ENOENT : e;
}

/* Add an organisation once, or the repositories that belong to none; those of an organisation are
 * adjacent. Returns 1 if `name` is no repository. */
static int add_repo_folder(const struct lister *x, const char *folder, char last[TREE_NAME_MAX + 1])
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    if (x->place->store || !repo_name(folder, org, name))
        return 1;
    x->l->wide = true;
    if (!is_repo(x->paths, x->dir, folder))
        return 1;
    if (!org[0])
        return add_repo(x, folder, name);
    if (strcmp(org, last) == 0)
        return 0;
    (void)strcpy(last, org);
    return add(x, ENTRY_ORG, org, org);
}

/* Add a directory or file that is shown under its own name. */
static int add_single(const struct lister *x, const char *name, uint8_t type)
{
    CLEANUP(found_close) struct found f = FOUND_NONE;
    if (!is_hidden(name) && named_gguf(name) && type != DT_DIR)
        return add(x, ENTRY_MODEL, name, name);
    if (type == DT_REG)
        return 0;
    if (is_hidden(name) || type == DT_LNK) {
        x->l->wide = true;
        const int e = find_folder(x->paths, x->place, x->dir, name, &f);
        if (e < 0)
            return is_shortage(e) ? e : 0;
    }
    return add(x, ENTRY_FOLDER, name, name);
}

/* Return the number of files of the split model that this name belongs to, or 0. */
static size_t shards_of(const struct names *names, size_t i)
{
    const char *name = name_at(names, i);
    return names->name[i].type == DT_DIR || is_hidden(name) ? 0 : split_count(name);
}

/* Returns true if name i exists and is that of a file of a split model of this base name. */
static bool is_of_base(const struct names *firsts, size_t i, const char *name)
{
    return i < firsts->n && strlen(name_at(firsts, i)) == strlen(name) &&
           strncmp(name_at(firsts, i), name, strlen(name) - SPLIT_TAIL) == 0;
}

/* Add each split model once: under its base name, or under the name of its first file if the base
 * name is taken, or if there is another split model with that base name. */
static int add_splits(const struct lister *x, const struct names *names)
{
    char shown[TREE_NAME_MAX + 1];
    CLEANUP(names_free) struct names firsts = {0};
    int e = 0;
    for (size_t i = 0; i < names->n && e == 0; i++) {
        const size_t shards = shards_of(names, i);
        char *first = shards ? split_sibling(name_at(names, i), 0, shards) : NULL;
        if (shards)
            e = first ? add_name(&firsts, first, DT_REG) : -ENOMEM;
        free(first);
    }
    sort_names(&firsts);
    for (size_t i = 0, next; i < firsts.n && e == 0; i = next) {
        const char *name = name_at(&firsts, i);
        for (next = i + 1; next < firsts.n && strcmp(name_at(&firsts, next), name) == 0;)
            next++;
        (void)snprintf(shown, sizeof(shown), "%.*s" SUFFIX, (int)(strlen(name) - SPLIT_TAIL), name);
        const bool taken = is_of_base(&firsts, next, name) ||
                           (i > 0 && is_of_base(&firsts, i - 1, name)) ||
                           names_type(names, shown) != DT_UNKNOWN;
        e = add(x, ENTRY_SPLIT, taken ? name : shown, name);
    }
    return e;
}

static int list_names(const struct lister *x, const struct names *names)
{
    char last[TREE_NAME_MAX + 1] = "";
    int e = 0;
    for (size_t i = 0; e >= 0 && i < names->n; i++) {
        const char *name = name_at(names, i);
        const uint8_t type = names->name[i].type;
        if (shards_of(names, i))
            continue;
        e = type == DT_REG ? 1 : add_repo_folder(x, name, last);
        if (e == 1)
            e = add_single(x, name, type);
    }
    return e < 0 ? e : add_splits(x, names);
}

/* ---- an ollama store ---- */

/* The host and the namespace omitted from shown names. */
#define DEFAULT_HOST "registry.ollama.ai"
#define DEFAULT_SPACE DEFAULT_HOST "/library"

/* Size of a buffer for HOST/NAMESPACE/MODEL/TAG. */
#define PATH_ROOM (4 * (TREE_NAME_MAX + 1))

/* Return the number of components in a path below manifests/. */
static unsigned names_in(const char *sub)
{
    unsigned n = *sub != '\0';
    for (; *sub; sub++)
        n += *sub == '/';
    return n;
}

/* Open a path below manifests/, which may be a link. */
static int open_below(const struct paths *p, const struct found *dir, const char *sub,
                      struct found *ret)
{
    int e = path_via(p, dir, "manifests", *sub ? sub : ".", ret);
    return e == -ELOOP || e == -ENOTDIR || e == -ENAMETOOLONG ? -ENOENT : e;
}

/* Load a manifest from a file that was found. Returns 0, -ENOENT if this is not a regular file, or
 * another -errno. If the manifest is broken, *e gives the reason. */
static int load(const struct found *f, struct manifest *ret, struct err *e)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    int r = found_text(f, MANIFEST_MAX, &text);
    if (r == 0 || r == -EFBIG)
        r = manifest_parse(text.data, text.len, ret, e);
    else
        r = err_set(e, r == -EINVAL ? -ENOENT : r, "%s", strerror(-r));
    if (r == 0 && ret->models == 0 && ret->tensors > 0) {
        manifest_free(ret);
        r = err_set(e, -EBADMSG, "stores each tensor in its own file, not in a GGUF file");
    }
    return r;
}

/* ---- listings of a store ---- */

/* Read the names in a directory below manifests/. One that is not there has none. */
static int names_below(const struct lister *x, const char *sub, struct names *names)
{
    CLEANUP(found_close) struct found f = FOUND_NONE;
    *names = (struct names){0};
    int e = open_below(x->paths, x->dir, sub, &f);
    if (e == 0)
        e = names_read(&f, names);
    return is_shortage(e) ? e : 0;
}

/* List the tags of a model in the namespace `sub`. */
static int add_tags(const struct lister *x, const char *sub, const char *model)
{
    char shown[2 * (TREE_NAME_MAX + 1)], path[PATH_ROOM];
    CLEANUP(names_free) struct names tags;
    (void)snprintf(path, sizeof(path), "%s/%s", sub, model);
    int e = names_below(x, path, &tags);
    for (size_t i = 0; e == 0 && i < tags.n; i++) {
        const char *tag = name_at(&tags, i);
        (void)snprintf(path, sizeof(path), "%s/%s/%s", sub, model, tag);
        (void)snprintf(shown, sizeof(shown), "%s:%s", model, tag);
        if (tags.name[i].type == DT_REG && !is_hidden(tag) && !strchr(tag, ':'))
            e = add(x, ENTRY_OLLAMA, shown, path);
    }
    return e;
}

/* List the directories below manifests/ at `sub`, except one: namespaces, hosts or, with their
 * tags, models. */
static int add_below(const struct lister *x, const char *sub, const char *except)
{
    char path[PATH_ROOM];
    CLEANUP(names_free) struct names names;
    int e = names_below(x, sub, &names);
    for (size_t i = 0; e == 0 && i < names.n; i++) {
        const char *name = name_at(&names, i);
        if (names.name[i].type != DT_DIR || is_hidden(name) || strcmp(name, except) == 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s%s%s", sub, *sub ? "/" : "", name);
        if (names_in(sub) != 2)
            e = add(x, ENTRY_OLLAMA, name, path);
        else if (!strchr(name, ':'))
            e = add_tags(x, sub, name);
    }
    return e;
}

/* List the layers of a model. */
static int list_tag(const struct lister *x)
{
    char name[TREE_NAME_MAX + 1];
    unsigned number = 0;
    struct manifest m = {0};
    CLEANUP(found_close) struct found f = FOUND_NONE;
    int e = open_below(x->paths, x->dir, x->place->sub, &f);
    if (e == 0)
        e = load(&f, &m, NULL);
    for (size_t i = 0; i < m.n && e == 0; i++) {
        const struct layer *l = &m.layer[i];
        number = i && strcmp(l->name, l[-1].name) == 0 ? number + 1 : 1;
        (void)snprintf(name, sizeof(name), number > 1 ? "%s~%u" : "%s", l->name, number);
        e = add(x, l->model ? ENTRY_LAYER : ENTRY_TEXT, name, l->digest);
    }
    manifest_free(&m);
    return e == -EBADMSG || e == -EFBIG ? -ENOENT : e;
}

static int list_ollama(const struct lister *x)
{
    const char *sub = x->place->sub;
    x->l->wide = true;
    if (names_in(sub) == 4)
        return list_tag(x);
    if (*sub)
        return add_below(x, sub, "");
    int e = add_below(x, DEFAULT_SPACE, "");
    if (e == 0)
        e = add_below(x, DEFAULT_HOST, path_name(DEFAULT_SPACE));
    return e == 0 ? add_below(x, "", DEFAULT_HOST) : e;
}

/* ---- listings ---- */

/* Open the directory of a place. Returns 0, -ENOENT if it was removed or replaced, or another
 * -errno. */
static int open_place(const struct paths *p, const struct place *place, struct found *dir)
{
    int e = path_open(p, place->path, dir);
    if (e == 0 && !is_folder(dir)) {
        found_close(dir);
        e = -ENOENT;
    }
    return e == -ELOOP || e == -ENOTDIR ? -ENOENT : e;
}

/* Returns true if everything that is listed comes from a store. */
static bool all_stored(const struct listing *l)
{
    static const char *const hub[] = {".", REPO_PREFIX, "datasets--", "spaces--"};
    bool some = false, others = false;
    for (size_t i = 0; i < l->n; i++) {
        bool own = l->entry[i].kind > ENTRY_SPLIT;
        some |= own;
        for (size_t k = 0; k < COUNT(hub); k++)
            own |= strncmp(l->entry[i].name, hub[k], strlen(hub[k])) == 0;
        others |= !own;
    }
    return some && !others;
}

static int make_listing(const struct lister *x)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    const struct place *p = x->place;
    CLEANUP(names_free) struct names names = {0};
    if (p->kind == PLACE_OLLAMA)
        return list_ollama(x);
    int e = names_read(x->dir, &names);
    if (e < 0)
        return e;
    if (p->kind == PLACE_ORG)
        return list_org(x, &names);
    if (!p->store && repo_name(path_name(p->path), org, name) &&
        names_type(&names, "snapshots") == DT_DIR) /* the directory itself is a repository */
        return add_repo(x, ".", name);
    if (!p->store && is_ollama(&names))
        return list_ollama(x);
    return list_names(x, &names);
}

void listing_unref(struct listing *l)
{
    if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
        return;
    for (size_t i = 0; i < l->n; i++)
        free(l->entry[i].name);
    free(l->entry);
    free(l);
}

static void drop_listing(struct listing **l)
{
    listing_unref(*l);
}

static int new_listing(const struct paths *p, const struct place *place, const struct found *dir,
                       struct listing **ret)
{
    struct listing *l = calloc(1, sizeof(*l));
    const struct lister x = {p, place, dir, l};
    if (!l)
        return -ENOMEM;
    *l = (struct listing){.place = place_hash(place), .st = dir->st, .made = when_now(), .refs = 1};
    int e = make_listing(&x);
    if (e == 0)
        e = settle(l);
    l->store = e == 0 && all_stored(l);
    if (e == 0)
        *ret = l;
    else
        listing_unref(l);
    return e;
}

/* The names of a directory that was changed less than this many seconds before they were read may
 * change again without altering its times. */
#define SETTLED 2

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_current(const struct listing *l, const struct stat *st)
{
    return l->st.st_dev == st->st_dev && l->st.st_ino == st->st_ino &&
           same_time(l->st.st_mtim, st->st_mtim) && same_time(l->st.st_ctim, st->st_ctim) &&
           !(l->wide && when_past(&l->made, 1));
}

/* Get a reference to the current listing of a place, if it is kept. */
static struct listing *find_kept(struct listings *k, uint64_t place, const struct stat *st)
{
    LOCKED(&k->lock);
    for (size_t i = 0; i < LISTINGS_KEPT && k->kept[i]; i++) {
        struct listing *l = k->kept[i];
        if (l->place != place || !is_current(l, st))
            continue;
        memmove(&k->kept[1], &k->kept[0], i * sizeof(k->kept[0]));
        k->kept[0] = l;
        (void)atomic_fetch_add(&l->refs, 1);
        return l;
    }
    return NULL;
}

/* Keep a listing as the most recently used, in place of an earlier one of the same place or of the
 * least recently used one. */
static void keep(struct listings *k, struct listing *l)
{
    (void)atomic_fetch_add(&l->refs, 1);
    lock_take(&k->lock);
    size_t i = 0;
    while (i < LISTINGS_KEPT - 1 && k->kept[i] && k->kept[i]->place != l->place)
        i++;
    struct listing *old = k->kept[i];
    memmove(&k->kept[1], &k->kept[0], i * sizeof(k->kept[0]));
    k->kept[0] = l;
    lock_drop(&k->lock);
    listing_unref(old);
}

static int get_listing(struct listings *k, const struct place *place, const struct found *dir,
                       struct listing **ret)
{
    *ret = find_kept(k, place_hash(place), &dir->st);
    if (*ret)
        return 0;
    const time_t now = when_date().tv_sec;
    int e = new_listing(k->paths, place, dir, ret);
    if (e < 0)
        return e;
    const bool settled =
        dir->st.st_ctim.tv_sec <= now - SETTLED && dir->st.st_mtim.tv_sec <= now - SETTLED;
    (*ret)->wide |= !settled || far_file(dir->fd);
    keep(k, *ret);
    return 0;
}

void listings_init(struct listings *l, const struct paths *p)
{
    *l = (struct listings){.paths = p};
    lock_init(&l->lock);
}

void listings_free(struct listings *l)
{
    for (size_t i = 0; i < LISTINGS_KEPT; i++)
        listing_unref(l->kept[i]);
    lock_destroy(&l->lock);
}

/* ---- items ---- */

void item_free(struct item *i)
{
    place_free(&i->place);
    free(i->path);
    free(i->real);
    *i = (struct item){0};
}

/* Make an item for a directory that was found. Takes ownership of f->path. */
static int folder_item(const struct place *p, enum place_kind kind, const char *sub,
                       struct found *f, struct item *ret)
{
    struct item i = {.kind = ITEM_FOLDER, .st = f->st, .grant = grant_of(f->fd, &f->st)};
    int e = place_make(p, kind, kind == PLACE_FOLDER ? f->path : p->path, sub, &i.place);
    if (e < 0)
        return e;
    i.place.linked |= f->linked;
    i.store = i.place.store;
    i.real = f->path;
    f->path = NULL;
    *ret = i;
    return 0;
}

/* Make an item for the file `name`, a model or a text file, in the directory `dir`. The file need
 * not exist. */
static int file_item(const struct paths *p, bool store, const struct found *dir, const char *name,
                     enum item_kind kind, struct item *ret)
{
    CLEANUP(found_close) struct found f = FOUND_NONE;
    struct item i = {.kind = kind, .store = store, .grant = {.bits = 0777}};
    if (asprintf(&i.path, "%s/%s", dir->path[1] ? dir->path : "", name) < 0)
        return -ENOMEM;
    int e = path_in(p, dir, name, true, &f);
    if (e == 0 && !S_ISREG(f.st.st_mode))
        e = is_folder(&f) ? -EISDIR : -EINVAL;
    i.shards = split_count(name);
    if (e == 0) {
        i.st = f.st;
        i.grant = grant_of(f.fd, &f.st);
        i.real = f.path;
        f.path = NULL;
        i.behind = !i.shards && (i.shards = split_count(i.real)) > 0;
    } else {
        (void)err_set(&i.error, e, "%s",
                      e == -EINVAL  ? "is not a regular file"
                      : e == -EXDEV ? "is in a ggufs mount"
                      : e == -ELOOP ? "a link on the way: link to the real path"
                                    : strerror(-e));
    }
    *ret = i;
    return is_shortage(e) ? (item_free(ret), e) : 0;
}

static int below_item(const struct paths *p, const struct place *place, const struct found *dir,
                      const char *name, struct item *ret)
{
    CLEANUP(found_close) struct found f = FOUND_NONE;
    int e = find_folder(p, place, dir, name, &f);
    return e < 0 ? e : folder_item(place, PLACE_FOLDER, "", &f, ret);
}

/* Get the item for a name that looks like a model's. A link with such a name may lead to a
 * directory. */
static int model_item(const struct paths *p, const struct place *place, const struct found *dir,
                      const char *name, struct item *ret)
{
    CLEANUP(found_close) struct found f = FOUND_NONE;
    int e = file_item(p, place->store, dir, name, ITEM_MODEL, ret);
    if (e < 0 || (ret->error.code != -EISDIR && ret->error.code != -ENOENT))
        return e;
    if (ret->error.code == -ENOENT) {
        e = path_in(p, dir, name, false, &f);
        if (e == -ELOOP) /* a dangling link */
            return 0;
        if (e < 0)
            item_free(ret);
        return e;
    }
    item_free(ret);
    return below_item(p, place, dir, name, ret);
}

static int revision_item(const struct paths *p, const struct place *place, const struct found *dir,
                         const char *at, struct item *ret)
{
    char folder[TREE_NAME_MAX + 1], path[TREE_NAME_MAX + 16];
    CLEANUP(found_close) struct found f = FOUND_NONE;
    struct place above = *place;
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(at, "/"), at);
    (void)snprintf(path, sizeof(path), "snapshots/%s", path_name(at));
    int e = path_via(p, dir, folder, path, &f);
    if (e == 0 && !is_folder(&f))
        e = -ENOENT;
    above.store = true;
    return e < 0 ? e : folder_item(&above, PLACE_FOLDER, "", &f, ret);
}

static int org_item(const struct place *place, const struct found *dir, const char *org,
                    struct item *ret)
{
    struct found here = {.fd = dir->fd, .path = strdup(dir->path), .st = dir->st};
    int e = here.path ? folder_item(place, PLACE_ORG, org, &here, ret) : -ENOMEM;
    free(here.path);
    return e;
}

/* Get the item for a host, a namespace or a tag: a directory or, for a tag whose manifest is
 * broken, a model that cannot be opened. */
static int ollama_item(const struct paths *p, const struct place *place, const struct found *dir,
                       const char *sub, struct item *ret)
{
    char above[PATH_ROOM];
    struct err why = {0};
    struct manifest m = {0};
    CLEANUP(found_close) struct found f = FOUND_NONE, file = FOUND_NONE;
    const bool tag = names_in(sub) == 4;
    const char *name = path_name(sub);
    (void)snprintf(above, sizeof(above), "%.*s", (int)(name - sub - 1), sub);
    int e = open_below(p, dir, tag ? above : sub, &f);
    if (e == 0 && !is_folder(&f))
        e = -ENOENT;
    if (e == 0 && tag)
        e = path_in(p, &f, name, false, &file);
    if (e == 0 && tag)
        e = load(&file, &m, &why);
    manifest_free(&m);
    if (tag && e < 0 && why.code && e != -ENOENT && !is_shortage(e)) {
        e = file_item(p, true, &f, name, ITEM_MODEL, ret);
        if (e == 0) {
            ret->error = why;
            (void)err_prefix(&ret->error, why.code, "manifest");
        }
        return e;
    }
    if (e == 0 && tag)
        f.st.st_mtim = file.st.st_mtim;
    return e < 0 ? e : folder_item(place, PLACE_OLLAMA, sub, &f, ret);
}

static int layer_item(const struct paths *p, const struct found *dir, const struct entry *entry,
                      struct item *ret)
{
    const bool text = entry->kind == ENTRY_TEXT;
    char name[DIGEST_DIGITS + 8];
    CLEANUP(found_close) struct found blobs = FOUND_NONE, old = FOUND_NONE;
    int e = path_in(p, dir, "blobs", true, &blobs);
    if (e < 0)
        return e;
    (void)snprintf(name, sizeof(name), "sha256:%s", entry->at);
    if (path_in(p, &blobs, name, false, &old) < 0)
        name[6] = '-';
    e = file_item(p, true, &blobs, name, text ? ITEM_TEXT : ITEM_MODEL, ret);
    if (e == 0 && text && ret->error.code) {
        item_free(ret);
        e = -ENOENT;
    }
    return e;
}

static int item_as(const struct paths *p, const struct place *place, const struct found *dir,
                   const struct entry *e, struct item *ret)
{
    switch (e->kind) {
    case ENTRY_FOLDER:
        return below_item(p, place, dir, e->at, ret);
    case ENTRY_MODEL:
        return model_item(p, place, dir, e->at, ret);
    case ENTRY_SPLIT:
        return file_item(p, place->store, dir, e->at, ITEM_MODEL, ret);
    case ENTRY_ORG:
        return org_item(place, dir, e->at, ret);
    case ENTRY_REVISION:
        return revision_item(p, place, dir, e->at, ret);
    case ENTRY_OLLAMA:
        return ollama_item(p, place, dir, e->at, ret);
    default:
        return layer_item(p, dir, e, ret);
    }
}

static int item_of(const struct paths *p, const struct place *place, const struct found *dir,
                   const struct entry *entry, struct item *ret)
{
    int e = item_as(p, place, dir, entry, ret);
    if (e == 0)
        ret->key = hash_number(place_hash(place)) ^ hash_name(entry->name, strlen(entry->name));
    return e;
}

/* ---- the calls ---- */

int place_list(struct listings *k, const struct place *p, struct listing **ret)
{
    CLEANUP(found_close) struct found dir = FOUND_NONE;
    int e = open_place(k->paths, p, &dir);
    return e < 0 ? e : get_listing(k, p, &dir, ret);
}

int place_find(struct listings *k, const struct place *p, const char *name, struct item *ret)
{
    CLEANUP(found_close) struct found dir = FOUND_NONE;
    CLEANUP(drop_listing) struct listing *l = NULL;
    int e = open_place(k->paths, p, &dir);
    if (e == 0)
        e = get_listing(k, p, &dir, &l);
    size_t low = 0, high = e < 0 ? 0 : l->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int order = strcmp(l->entry[mid].name, name);
        if (order == 0)
            return item_of(k->paths, p, &dir, &l->entry[mid], ret);
        low = order < 0 ? mid + 1 : low;
        high = order < 0 ? high : mid;
    }
    return e < 0 ? e : -ENOENT;
}

int place_item(struct listings *k, const struct place *p, const struct entry *entry,
               struct item *ret)
{
    CLEANUP(found_close) struct found dir = FOUND_NONE;
    int e = open_place(k->paths, p, &dir);
    if (e < 0)
        return e;
    return entry ? item_of(k->paths, p, &dir, entry, ret)
                 : folder_item(p, p->kind, p->sub, &dir, ret);
}

/* The files of a split model after the first that is missing do not count. */
int item_stamp(const struct paths *p, const struct item *i, uint64_t *ret)
{
    const char *path = i->behind ? i->real : i->path;
    CLEANUP(found_close) struct found dir = FOUND_NONE;
    if (i->kind == ITEM_FOLDER) {
        *ret = place_hash(&i->place);
        return 0;
    }
    *ret = tree_identity_with(hash_name(path, strlen(path)) ^ (uint64_t)i->error.code, &i->st);
    if (!i->shards)
        return 0;
    const size_t n = (size_t)(path_name(path) - path);
    char *folder = strndup(path, n > 1 ? n - 1 : 1);
    int e = folder ? path_open(p, folder, &dir) : -ENOMEM;
    free(folder);
    for (size_t k = 0; e == 0 && k < i->shards; k++) {
        CLEANUP(found_close) struct found f = FOUND_NONE;
        char *name = split_sibling(path_name(path), k, i->shards);
        e = name ? path_in(p, &dir, name, true, &f) : -ENOMEM;
        free(name);
        *ret = tree_identity_with(*ret, &f.st);
    }
    return is_shortage(e) ? e : 0;
}
