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

#include "base/hash.h"
#include "base/lock.h"
#include "base/sys.h"
#include "model/snapshot.h"
#include "shelf/manifest.h"
#include "tree/tree.h"

#define SUFFIX ".gguf"
#define REPO_PREFIX "models--"

/* Maximum size in bytes of a file in refs/, which contains a commit, perhaps surrounded by white
 * space. */
#define REF_MAX 4096

/* How often entries are renamed until all names differ. */
#define ROUNDS 3

/* Size of a buffer for a path below a store, of at most five names. */
#define PATH_ROOM (5 * (TREE_NAME_MAX + 1))

/* A directory that is shown, and is open: of an organisation or in an ollama store, that of the
 * store. */
struct here {
    const struct paths *paths;
    const struct shelf_item *folder;
    struct path_found dir;
};

/* `dir` is the directory at the item's path. */
static uint64_t folder_stamp(const struct shelf_item *i, const struct stat *dir)
{
    const uint64_t file[] = {dir->st_dev, dir->st_ino};
    return hash_name(i->path, strlen(i->path)) ^ hash_name(i->sub, strlen(i->sub)) ^
           hash_name(file, sizeof(file)) ^
           hash_number((uint64_t)i->kind << 2 | (unsigned)i->store << 1 | i->linked);
}

/* What is no longer at its path, or must not be shown, is not there. */
static int as_gone(int e)
{
    return e == -ELOOP || e == -ENOTDIR || e == -ENAMETOOLONG || e == -EXDEV ? -ENOENT : e;
}

/* Open the directory. Returns 0, -ENOENT if it was removed, -ESTALE if another one is at its path, or
 * another -errno. */
static int open_here(const struct paths *p, const struct shelf_item *folder, struct here *ret)
{
    *ret = (struct here){p, folder, FOUND_NONE};
    const int e = path_open(p, folder->path, &ret->dir);
    if (e < 0)
        return as_gone(e);
    if (!S_ISDIR(ret->dir.st.st_mode))
        return -ENOENT;
    return folder_stamp(folder, &ret->dir.st) == folder->stamp ? 0 : -ESTALE;
}

/* Find the directory at a path in this one, whose first name may be a link. Returns 0, -ENOENT or
 * another -errno. */
static int find_folder(const struct here *h, const char *at, struct path_found *ret)
{
    const int e = path_in(h->paths, &h->dir, at, ret);
    if (e < 0)
        return as_gone(e);
    if (S_ISDIR(ret->st.st_mode))
        return 0;
    found_close(ret);
    return -ENOENT;
}

/* ---- the names in a directory ---- */

/* The names in a directory, sorted bytewise (as alphasort(3) does without setlocale(3)), and their types. */
struct names {
    struct dirent **at; /* owned, like what they point to */
    size_t n;
};

static bool named_gguf(const char *name)
{
    const size_t n = strlen(name), s = strlen(SUFFIX);
    return n > s && strcasecmp(name + n - s, SUFFIX) == 0;
}

static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

/* Other files take no memory. */
static int model_or_folder(const struct dirent *d)
{
    return not_hidden(d) && (d->d_type != DT_REG || named_gguf(d->d_name));
}

static void names_free(struct names *n)
{
    while (n->n)
        free(n->at[--n->n]);
    free(n->at);
}

/* Read the names for which `which` returns true. Returns 0 or -errno. */
static int names_read(const struct path_found *dir, int (*which)(const struct dirent *),
                      struct names *ret)
{
    struct stat st;
    *ret = (struct names){0};
    const int n = scandirat(dir->fd, ".", &ret->at, which, alphasort);
    if (n < 0)
        return -errno;
    ret->n = (size_t)n;
    for (size_t i = 0; i < ret->n; i++) {
        struct dirent *d = ret->at[i]; /* some file systems do not report types */
        if (d->d_type == DT_UNKNOWN && fstatat(dir->fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            d->d_type = (uint8_t)IFTODT(st.st_mode);
    }
    return 0;
}

/* Return the type of a name, or NULL if it is not there. */
static unsigned char *names_type(const struct names *n, const char *name)
{
    for (size_t i = 0; i < n->n; i++)
        if (strcmp(n->at[i]->d_name, name) == 0)
            return &n->at[i]->d_type;
    return NULL;
}

static bool has_folder(const struct names *n, const char *name, bool links)
{
    const unsigned char *type = names_type(n, name);
    return type && (*type == DT_DIR || (links && *type == DT_LNK));
}

/* ---- making listings ---- */

/* Add an entry. Returns 0 or -ENOMEM. */
static int add(struct listing *l, enum place_kind kind, const char *name, const char *at)
{
    char shown[TREE_NAME_MAX + 1];
    (void)name_encode(name, strlen(name), shown);
    if (array_grow(&l->entry, &l->cap, l->n, sizeof(*l->entry)) < 0)
        return -ENOMEM;
    struct entry *e = &l->entry[l->n++];
    *e = (struct entry){strdup(shown), strdup(at), kind};
    return e->name && e->at ? 0 : -ENOMEM;
}

static void entry_free(struct entry *e)
{
    free(e->name);
    free(e->at);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int by_all(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const int order = by_name(a, b);
    return order ? order : x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : strcmp(x->at, y->at);
}

/* Sort the entries, and let those that are equal be one. */
static void sort(struct listing *l, int (*equal)(const void *a, const void *b))
{
    size_t n = 0;
    if (l->n)
        qsort(l->entry, l->n, sizeof(*l->entry), by_all);
    for (size_t i = 0; i < l->n; i++)
        if (n && equal(&l->entry[n - 1], &l->entry[i]) == 0)
            entry_free(&l->entry[i]);
        else
            l->entry[n++] = l->entry[i];
    l->n = n;
}

/* Give the entries [i, end), which have the same name, different ones: a split model gets the name of its
 * first file, of others the first keeps its name, and the rest become NAME~2, NAME~3 and so on. */
static int rename_equal(struct listing *l, size_t i, size_t end)
{
    char shown[TREE_NAME_MAX + 1];
    for (size_t k = i; k < end; k++) {
        struct entry *e = &l->entry[k];
        if (e->kind == PLACE_SPLIT)
            (void)name_encode(e->at, strlen(e->at), shown);
        else if (k > i)
            (void)snprintf(shown, sizeof(shown), "%.*s~%zu", TREE_NAME_MAX - 8, e->name, k - i + 1);
        else
            continue;
        free(e->name);
        if (!(e->name = strdup(shown)))
            return -ENOMEM;
    }
    return 0;
}

/* Sort the entries and give them different names. A name that is given may be equal to another one, so
 * this is repeated; what is still equal then is left out. */
static int settle_names(struct listing *l)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        sort(l, by_all); /* the files of a split model, and the repositories of an organisation */
        for (size_t i = 0, end; i < l->n; i = end) {
            for (end = i + 1; end < l->n && by_name(&l->entry[i], &l->entry[end]) == 0;)
                end++;
            if (end > i + 1 && rename_equal(l, i, end) < 0)
                return -ENOMEM;
        }
    }
    sort(l, by_name);
    return 0;
}

/* ---- repositories ---- */

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
    if (n == 0 || n > TREE_NAME_MAX || memchr(p, '\0', n) || memchr(p, '/', n) || *p == '.')
        return false;
    *(char *)mempcpy(ret, p, n) = '\0';
    return true;
}

/* Read the revision that refs/main of a repository names. */
static bool read_main(const struct here *h, const char *repo, char ret[TREE_NAME_MAX + 1])
{
    char path[PATH_ROOM];
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(found_close) struct path_found ref = FOUND_NONE;
    (void)snprintf(path, sizeof(path), "%s/refs/main", repo);
    return path_in(h->paths, &h->dir, path, &ref) == 0 && found_text(&ref, REF_MAX, &text) == 0 &&
           revision_parse(text.data, text.len, ret);
}

/* Return the name of the newest of the directories in `snapshots`, or "". If several have the same
 * time, returns the one whose name sorts last. */
static const char *newest(const struct path_found *snapshots, const struct names *names)
{
    struct timespec best = {0};
    const char *found = "";
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->at[i]->d_name;
        struct stat st;
        if (names->at[i]->d_type == DT_DIR &&
            fstatat(snapshots->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            !when_before(&st.st_mtim, &best)) {
            best = st.st_mtim;
            found = name;
        }
    }
    return found;
}

/* Add the revisions of the repository in the directory `repo`. One that cannot be read is left out. */
static int add_repo(const struct here *h, const char *repo, const char *name, struct listing *l)
{
    char shown[2 * (TREE_NAME_MAX + 1)], at[PATH_ROOM], main[TREE_NAME_MAX + 1];
    CLEANUP(found_close) struct path_found snapshots = FOUND_NONE;
    CLEANUP(names_free) struct names names = {0};
    (void)snprintf(at, sizeof(at), "%s/snapshots", repo);
    int e = path_in(h->paths, &h->dir, at, &snapshots);
    if (e == 0)
        e = names_read(&snapshots, not_hidden, &names);
    const char *first = read_main(h, repo, main) && has_folder(&names, main, false)
                            ? main
                            : newest(&snapshots, &names);
    for (size_t i = 0; e == 0 && i < names.n; i++) {
        const char *revision = names.at[i]->d_name;
        (void)snprintf(at, sizeof(at), "%s/snapshots/%s", repo, revision);
        (void)snprintf(shown, sizeof(shown), strcmp(revision, first) == 0 ? "%s" : "%s@%s", name,
                       revision);
        if (names.at[i]->d_type == DT_DIR)
            e = add(l, PLACE_REVISION, shown, at);
    }
    return is_shortage(e) ? e : 0;
}

/* ---- directories ---- */

static bool is_ollama(const struct names *names)
{
    return has_folder(names, "manifests", true) && has_folder(names, "blobs", true);
}

/* Returns true if a link leads to a directory that it must not show: one that it lies in, or any if a
 * link has led here. */
static bool is_around(const struct here *h, const struct path_found *f)
{
    return f->linked && (h->folder->linked || path_below(h->folder->path, f->path) ||
                         path_below(h->paths->path, f->path));
}

/* Add what a name in a directory stands for. */
static int add_name(const struct here *h, const char *name, uint8_t type, struct listing *l)
{
    char org[TREE_NAME_MAX + 1], repo[TREE_NAME_MAX + 1];
    const bool folder = type == DT_DIR, is_repo = repo_name(name, org, repo);
    const size_t shards = folder ? 0 : split_count(name);
    if (h->folder->kind == PLACE_ORG)
        return is_repo && strcmp(org, h->folder->sub) == 0 ? add_repo(h, name, repo, l) : 0;
    if (!folder && type != DT_LNK && type != DT_REG)
        return 0;
    if (shards) {
        char *first = split_sibling(name, 0, shards);
        (void)snprintf(org, sizeof(org), "%.*s" SUFFIX, (int)(strlen(name) - SPLIT_TAIL), name);
        const int e = first ? add(l, PLACE_SPLIT, org, first) : -ENOMEM;
        free(first);
        return e;
    }
    if (!folder && named_gguf(name))
        return add(l, PLACE_MODEL, name, name);
    if (is_repo && !h->folder->store)
        return *org ? add(l, PLACE_ORG, org, org) : add_repo(h, name, repo, l);
    if (!folder) {
        CLEANUP(found_close) struct path_found f = FOUND_NONE;
        const int e = find_folder(h, name, &f);
        if (e < 0 || is_around(h, &f))
            return is_shortage(e) ? e : 0;
    }
    return add(l, PLACE_FOLDER, name, name);
}

/* Leave out directories on which a ggufs is mounted. */
static int drop_mounts(const struct here *h, const struct names *names)
{
    CLEANUP(mounts_free) struct mounts ms;
    const char *path = h->dir.path;
    int e = mounts_load(&ms);
    for (size_t i = 0; e == 0 && i < ms.n; i++) {
        const char *at = ms.mount[i].at, *name = path_name(at);
        const bool here = paths_bar(h->paths, &ms.mount[i]) && path_below(at, path) &&
                          name == at + strlen(path) + (path[1] != '\0');
        unsigned char *type = here ? names_type(names, name) : NULL;
        if (type)
            *type = DT_UNKNOWN;
    }
    return e;
}

/* ---- an ollama store ---- */

#define MANIFESTS "manifests"
/* The host and the namespace omitted from shown names. */
#define DEFAULT_HOST MANIFESTS "/registry.ollama.ai"
#define DEFAULT_SPACE DEFAULT_HOST "/library"

/* What a path manifests/HOST/NAMESPACE/MODEL/TAG names, by the number of its slashes. */
enum { OF_NAMESPACE = 2, OF_MODEL, OF_TAG };

static unsigned slashes(const char *path)
{
    unsigned n = 0;
    for (; *path; path++)
        n += *path == '/';
    return n;
}

/* Load a manifest. Returns 0, -ENOENT if it is not a regular file, or another -errno. If the
 * manifest is broken, *e gives the reason. */
static int load_manifest(const struct here *h, const char *sub, struct manifest *ret, struct err *e)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    int r = path_in(h->paths, &h->dir, sub, &f);
    if (r < 0)
        return as_gone(r);
    r = found_text(&f, MANIFEST_MAX, &text);
    if (r == 0 || r == -EFBIG)
        return manifest_parse(text.data, text.len, ret, e);
    return r == -EINVAL ? -ENOENT : err_set(e, r, "%s", strerror(-r));
}

/* List what lies below manifests/ at `sub`, except one name: hosts, namespaces or models with their
 * tags. A directory that is not there has none. */
static int add_below(const struct here *h, const char *sub, const char *except, struct listing *l)
{
    char path[PATH_ROOM], shown[2 * (TREE_NAME_MAX + 1)];
    const unsigned of = slashes(sub);
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    CLEANUP(names_free) struct names names = {0};
    int e = path_in(h->paths, &h->dir, sub, &f);
    if (e == 0)
        e = names_read(&f, not_hidden, &names);
    for (size_t i = 0; e == 0 && i < names.n; i++) {
        const char *name = names.at[i]->d_name;
        if (names.at[i]->d_type != (of == OF_MODEL ? DT_REG : DT_DIR) ||
            strcmp(name, except) == 0 || (of >= OF_NAMESPACE && strchr(name, ':')))
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", sub, name);
        (void)snprintf(shown, sizeof(shown), "%s:%s", path_name(sub), name);
        e = of == OF_NAMESPACE ? add_below(h, path, "", l)
                               : add(l, PLACE_OLLAMA, of == OF_MODEL ? shown : name, path);
    }
    return is_shortage(e) ? e : 0;
}

/* List the layers of a model. */
static int list_tag(const struct here *h, struct listing *l)
{
    char at[DIGEST_DIGITS + 16];
    CLEANUP(manifest_free) struct manifest m = {0};
    int e = load_manifest(h, h->folder->sub, &m, NULL);
    for (size_t i = 0; i < m.n && e == 0; i++) {
        const struct layer *layer = &m.layer[i];
        (void)snprintf(at, sizeof(at), "blobs/sha256-%s", layer->digest);
        e = add(l, layer->model ? PLACE_LAYER : PLACE_TEXT, layer->name, at);
    }
    return e == -EBADMSG || e == -EFBIG ? -ENOENT : e;
}

static int list_ollama(const struct here *h, struct listing *l)
{
    const char *sub = h->folder->sub;
    if (*sub)
        return slashes(sub) == OF_TAG ? list_tag(h, l) : add_below(h, sub, "", l);
    int e = add_below(h, DEFAULT_SPACE, "", l);
    if (e == 0)
        e = add_below(h, DEFAULT_HOST, path_name(DEFAULT_SPACE), l);
    return e == 0 ? add_below(h, MANIFESTS, path_name(DEFAULT_HOST), l) : e;
}

/* ---- what a model's directory has besides its tree ---- */

static bool has_extras(const struct shelf_item *i)
{
    return place_is_model(i->kind) || i->kind == PLACE_LINKS;
}

static int list_extras(const struct shelf_item *of, struct listing *l)
{
    const bool links = of->kind == PLACE_LINKS;
    int e = links ? 0 : add(l, PLACE_ERROR, "error", "");
    for (size_t i = 0; links && e == 0 && i < of->shards; i++) {
        char *name = split_sibling(path_name(of->path), i, of->shards);
        e = name ? add(l, PLACE_LINK, name, name) : -ENOMEM;
        free(name);
    }
    return links || e < 0 ? e : add(l, of->shards ? PLACE_LINKS : PLACE_LINK, "source", "");
}

/* Make an item, whose owned members the caller frees even on failure. */
static int set_extra(const struct shelf_item *of, const struct entry *entry, struct shelf_item *i)
{
    const bool beside = *entry->at; /* a link to one of several files, which is not looked at */
    const size_t n = beside ? (size_t)(path_name(of->path) - of->path) : strlen(of->path);
    *i = *of;
    i->kind = entry->kind;
    i->sub = NULL;
    i->why = of->why ? strdup(of->why) : NULL;
    i->real = of->real && !beside ? strdup(of->real) : NULL;
    if (asprintf(&i->path, "%.*s%s", (int)n, of->path, entry->at) < 0)
        i->path = NULL;
    return i->path && !i->why == !of->why && (beside || !i->real == !of->real) ? 0 : -ENOMEM;
}

/* ---- listings ---- */

/* Returns true if all entries come from a store. A Hugging Face cache also has directories
 * datasets--ORG--NAME and spaces--ORG--NAME. */
static bool all_stored(const struct listing *l)
{
    bool some = false, others = false;
    for (size_t i = 0; i < l->n; i++) {
        const bool own = l->entry[i].kind > PLACE_SPLIT;
        some |= own;
        others |= !own && !strstr(l->entry[i].name, "--");
    }
    return some && !others;
}

static int make_listing(const struct here *h, struct listing *l)
{
    CLEANUP(names_free) struct names names = {0};
    if (has_extras(h->folder))
        return list_extras(h->folder, l);
    if (h->folder->kind == PLACE_OLLAMA)
        return list_ollama(h, l);
    int e = names_read(&h->dir, model_or_folder, &names);
    if (e == 0 && h->folder->kind == PLACE_FOLDER && !h->folder->store && is_ollama(&names))
        return list_ollama(h, l);
    if (e == 0)
        e = drop_mounts(h, &names);
    for (size_t i = 0; e == 0 && i < names.n; i++)
        e = add_name(h, names.at[i]->d_name, names.at[i]->d_type, l);
    return e;
}

void listing_unref(struct listing *l)
{
    if (!REF_DROP(l))
        return;
    for (size_t i = 0; i < l->n; i++)
        entry_free(&l->entry[i]);
    free(l->entry);
    free(l);
}

static int new_listing(const struct here *h, struct listing **ret)
{
    struct listing *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    *l = (struct listing){.st = h->dir.st, .made = when_now(), .refs = 1};
    int e = make_listing(h, l);
    if (e == 0)
        e = settle_names(l);
    l->store = e == 0 && all_stored(l);
    if (e == 0)
        *ret = l;
    else
        listing_unref(l);
    return e;
}

static bool is_current(const struct listing *l, const struct stat *st)
{
    return tree_identity_with(0, &l->st) == tree_identity_with(0, st) && !when_past(&l->made, 1);
}

int place_list(const struct paths *p, const struct shelf_item *folder, struct listing *kept,
               struct listing **ret)
{
    struct here h = {p, folder, FOUND_NONE};
    const bool extras = has_extras(folder);
    int e = extras ? 0 : open_here(p, folder, &h);
    if (e == 0 && kept && (extras || is_current(kept, &h.dir.st)))
        *ret = REF(kept);
    else if (e == 0)
        e = new_listing(&h, ret);
    found_close(&h.dir);
    return e;
}

const struct entry *listing_find(const struct listing *l, const char *name)
{
    const struct entry key = {.name = (char *)name};
    return l->n ? bsearch(&key, l->entry, l->n, sizeof(key), by_name) : NULL;
}

/* ---- items ---- */

void item_free(struct shelf_item *i)
{
    free(i->path);
    free(i->sub);
    free(i->real);
    free(i->why);
    *i = (struct shelf_item){0};
}

/* Return the rights of an item that is the file or directory f or, for a split model, one of its
 * files. Where directories on the way are not shown, those who may not search them get none. */
static struct grant rights(const struct paths *p, const struct shelf_item *i,
                           const struct path_found *f)
{
    struct grant g = grant_of(f->fd, &f->st);
    const size_t top = p->path[1] ? strlen(p->path) + 1 : 1;
    const bool shown = !i->store && !i->linked && !f->linked;
    if (shown || !path_below(f->path, p->path) || strlen(f->path) <= top)
        return g;
    for (char *end = f->path + top; (end = strchr(end, '/')); end++) {
        CLEANUP(found_close) struct path_found dir = FOUND_NONE;
        *end = '\0';
        const int e = path_open(p, f->path, &dir);
        *end = '/';
        const struct grant way = e < 0 ? (struct grant){0} : grant_of(dir.fd, &dir.st);
        g = grant_below(&g, &way);
    }
    return g;
}

/* Set what depends on the file or directory f, and on the other files of a split model. Those after the
 * first that is missing do not count. */
static int set_facts(const struct paths *p, const struct path_found *f, struct shelf_item *i)
{
    CLEANUP(found_close) struct path_found dir = FOUND_NONE;
    struct grant all = rights(p, i, f);
    uint64_t stamp = tree_identity_with(0, &f->st);
    char *above = i->shards ? path_above(i->path) : NULL;
    int e = !i->shards ? 0 : above ? path_open(p, above, &dir) : -ENOMEM;
    free(above);
    for (size_t k = 1; e == 0 && k < i->shards; k++) {
        CLEANUP(found_close) struct path_found more = FOUND_NONE;
        char *name = split_sibling(path_name(i->path), k, i->shards);
        e = name ? path_in(p, &dir, name, &more) : -ENOMEM;
        free(name);
        if (e < 0)
            break;
        const struct grant g = rights(p, i, &more);
        all = grant_both(&all, &g);
        stamp = tree_identity_with(stamp, &more.st);
    }
    i->st = f->st;
    i->grant = all;
    i->stamp = stamp;
    return is_shortage(e) ? e : 0;
}

int item_look(const struct paths *p, struct shelf_item *i)
{
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    if (!i->real || path_open(p, i->real, &f) < 0)
        return 0;
    if (f.st.st_dev != i->st.st_dev || f.st.st_ino != i->st.st_ino)
        return S_ISDIR(i->st.st_mode) ? -ESTALE : 0;
    return i->kind == PLACE_TEXT && tree_identity_with(0, &f.st) != i->stamp ? 0
                                                                             : set_facts(p, &f, i);
}

/* The following functions make items, whose owned members the caller frees even on failure. */

/* Make an item for a directory that was found; `sub` tells what it shows, unless it shows itself. */
static int set_folder(const struct here *h, const struct path_found *f, const char *sub,
                      struct shelf_item *i)
{
    const bool itself = i->kind == PLACE_FOLDER;
    i->linked = h->folder->linked || f->linked;
    i->path = strdup(itself ? f->path : h->folder->path);
    i->sub = strdup(itself ? "" : sub);
    i->real = strdup(f->path);
    if (!i->path || !i->sub || !i->real)
        return -ENOMEM;
    const int e = set_facts(h->paths, f, i);
    i->stamp = folder_stamp(i, itself ? &f->st : &h->dir.st);
    return e;
}

int item_top(const struct paths *p, struct shelf_item *ret)
{
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    const struct here h = {p, ret, FOUND_NONE};
    const int e = path_open(p, p->path, &f);
    *ret = (struct shelf_item){.kind = PLACE_FOLDER};
    return e < 0 ? e : set_folder(&h, &f, "", ret);
}

/* Set the reason why a model cannot be opened. Returns 0 or -ENOMEM. */
static int refuse_item(struct shelf_item *i, int error, const char *why)
{
    i->error = error;
    i->stamp = tree_identity_with((uint64_t)error, &i->st);
    free(i->why);
    i->why = strdup(why);
    return i->why ? 0 : -ENOMEM;
}

/* Make an item for a model or a text. The file need not exist. */
static int set_file(const struct here *h, const char *at, struct shelf_item *i)
{
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    i->shards = split_count(at);
    i->grant.bits = 0777;
    if (asprintf(&i->path, "%s/%s", h->dir.path[1] ? h->dir.path : "", at) < 0) {
        i->path = NULL;
        return -ENOMEM;
    }
    int e = path_in(h->paths, &h->dir, at, &f);
    if (e == 0 && !S_ISREG(f.st.st_mode))
        e = S_ISDIR(f.st.st_mode) ? -EISDIR : -EINVAL;
    if (is_shortage(e))
        return e;
    if (e < 0)
        return refuse_item(i, e,
                           e == -EINVAL  ? "is not a regular file"
                           : e == -EXDEV ? "is in a ggufs mount"
                           : e == -ELOOP ? "a link on the way: link to the real path"
                                         : strerror(-e));
    i->linked = h->folder->linked || f.linked;
    i->real = strdup(f.path);
    /* The other files of a split model lie beside the real one. Links on the way to a file in a store
     * are not followed again. */
    const size_t beside = i->shards ? 0 : split_count(f.path);
    if (beside || strchr(at, '/')) {
        i->shards += beside;
        free(i->path);
        i->path = strdup(f.path);
    }
    return i->path && i->real ? set_facts(h->paths, &f, i) : -ENOMEM;
}

/* Make an item for a model with its tag in an ollama store: a directory or, if its manifest is broken,
 * a model that cannot be opened. */
static int set_tag(const struct here *h, const char *at, struct shelf_item *i)
{
    char above[PATH_ROOM];
    struct err why = {0};
    CLEANUP(manifest_free) struct manifest m = {0};
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    (void)snprintf(above, sizeof(above), "%.*s", (int)(path_name(at) - at - 1), at);
    int e = find_folder(h, above, &f);
    if (e == 0)
        e = load_manifest(h, at, &m, &why);
    if (e == 0)
        return set_folder(h, &f, at, i);
    if (!why.code || is_shortage(e))
        return e;
    (void)err_prefix(&why, e, "manifest");
    i->kind = PLACE_LAYER;
    e = set_file(h, at, i);
    return e < 0 ? e : refuse_item(i, why.code, why.msg);
}

/* Make an item for a directory. */
static int set_found_folder(const struct here *h, const struct entry *entry, struct shelf_item *i)
{
    CLEANUP(found_close) struct path_found f = FOUND_NONE;
    const char *at = entry->at;
    if (i->kind == PLACE_OLLAMA && slashes(at) == OF_TAG)
        return set_tag(h, at, i);
    const int e =
        i->kind == PLACE_ORG ? path_open(h->paths, h->dir.path, &f) : find_folder(h, at, &f);
    if (e < 0 || (i->kind == PLACE_FOLDER && is_around(h, &f)))
        return e < 0 ? e : -ENOENT;
    i->kind = i->kind == PLACE_REVISION ? PLACE_FOLDER : i->kind;
    return set_folder(h, &f, at, i);
}

static int set_item(const struct here *h, const struct entry *entry, struct shelf_item *i)
{
    struct stat st;
    *i = (struct shelf_item){.kind = entry->kind,
                             .store = h->folder->store || entry->kind > PLACE_SPLIT};
    if (!place_is_model(i->kind) && i->kind != PLACE_TEXT)
        return set_found_folder(h, entry, i);
    if (i->kind == PLACE_MODEL && fstatat(h->dir.fd, entry->at, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    const int e = set_file(h, entry->at, i);
    if (e == 0 && i->kind == PLACE_TEXT && i->error)
        return -ENOENT;
    if (e < 0 || i->kind != PLACE_MODEL || i->error != -EISDIR)
        return e;
    item_free(i); /* a link to a directory */
    return set_item(h, &(struct entry){.at = entry->at, .kind = PLACE_FOLDER}, i);
}

int place_item(const struct paths *p, const struct shelf_item *folder, const struct entry *entry,
               struct shelf_item *ret)
{
    struct here h = {p, folder, FOUND_NONE};
    struct shelf_item i = {0};
    int e = has_extras(folder) ? set_extra(folder, entry, &i) : open_here(p, folder, &h);
    if (e == 0 && !has_extras(folder))
        e = set_item(&h, entry, &i);
    i.key = hash_number(folder->key) ^ hash_name(entry->name, strlen(entry->name));
    if (e == 0)
        *ret = i;
    else
        item_free(&i);
    found_close(&h.dir);
    return e;
}
