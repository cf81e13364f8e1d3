/* SPDX-License-Identifier: MIT */
/* Creates places, listings and items: see place.h. */
#include "shelf/place.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/sys.h"
#include "base/lock.h"
#include "check/filename.h"
#include "model/snapshot.h"
#include "tree/tree.h"

#define SUFFIX ".gguf"
#define REPO_PREFIX "models--"

/* Maximum size in bytes of a file in refs/, which contains a commit, perhaps surrounded by white
 * space. */
#define REF_MAX 4096

/* Number of leading bytes of a shown name that are never replaced by "%~" and a hash. */
#define CERTAIN (TREE_NAME_MAX - 20)

/* ---- places ---- */

/* Make a place below p for a directory or store with this real path. `linked` is true if a link led
 * there. Returns 0 or -ENOMEM. */
static int place_make(const struct place *p, enum place_kind kind, const char *path,
                      const char *sub, bool linked, struct place *ret)
{
    struct buf b = BUF_INIT;
    buf_add(&b, path, strlen(path) + 1);
    buf_add(&b, sub, strlen(sub) + 1);
    const size_t passed = b.len;
    if (p->links)
        buf_add(&b, p->passed, p->len - (size_t)(p->passed - p->path));
    if (linked)
        buf_add(&b, p->path, strlen(p->path) + 1);
    if (buf_error(&b)) {
        buf_free(&b);
        return -ENOMEM;
    }
    *ret = (struct place){.kind = kind,
                          .store = p->store || kind != PLACE_FOLDER,
                          .len = b.len,
                          .links = p->links + linked};
    ret->path = (char *)buf_steal(&b);
    ret->sub = ret->path + strlen(ret->path) + 1;
    ret->passed = ret->path + passed;
    return 0;
}

int place_top(const struct reach *r, struct place *ret)
{
    return place_make(&(struct place){0}, PLACE_FOLDER, r->path, "", false, ret);
}

void place_free(struct place *p)
{
    free(p->path);
    *p = (struct place){0};
}

bool place_same(const struct place *a, const struct place *b)
{
    return a->kind == b->kind && a->store == b->store && a->len == b->len &&
           memcmp(a->path, b->path, a->len) == 0;
}

/* Returns true if a link in p to this real path must not be followed, either because a directory on
 * the way would be shown inside itself endlessly or because too many links have been followed. */
static bool place_goes_round(const struct reach *r, const struct place *p, const char *path)
{
    bool round =
        p->links == PLACE_LINKS_MAX || path_below(p->path, path) || path_below(r->path, path);
    const char *passed = p->passed;
    for (unsigned i = 0; i < p->links && !round; i++, passed += strlen(passed) + 1)
        round = path_below(passed, path);
    return round;
}

/* ---- items ---- */

void item_free(struct item *i)
{
    place_free(&i->place);
    free(i->path);
    free(i->real);
    *i = (struct item){0};
}

struct grant found_grant(const struct reach *r, const struct found *f, size_t above)
{
    struct grant g = {f->st.st_uid, f->st.st_gid, 0700};
    char *shown = above ? strndup(f->path, above) : NULL; /* path of the directory that shows it */
    if (shown || !above)
        g = grant_of_real(f->fd, &f->st, f->path, shown ? shown : r->path);
    free(shown);
    return g;
}

int item_folder(const struct reach *r, const struct place *p, enum place_kind kind, const char *sub,
                bool linked, struct found *f, struct item *ret)
{
    struct place place;
    if (linked && place_goes_round(r, p, f->path))
        return -ENOENT;
    int e = place_make(p, kind, kind == PLACE_FOLDER ? f->path : p->path, sub, linked, &place);
    if (e < 0)
        return e;
    f->linked |= linked;
    const size_t above = f->linked ? 0 : strlen(p->path);
    *ret = (struct item){.kind = ITEM_FOLDER,
                         .place = place,
                         .st = f->st,
                         .real = f->path,
                         .above = above,
                         .grant = found_grant(r, f, above),
                         .store = place.store};
    f->path = NULL;
    return 0;
}

/* Make an item for the file `name`, a model or a text file, in the directory `dir`. The file need
 * not exist. Returns 0 or -ENOMEM. */
static int item_file(struct reach *r, const struct place *p, const struct found *dir,
                     const char *name, enum item_kind kind, struct item *ret)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    struct item i = {
        .kind = kind, .above = strlen(p->path), .store = p->store, .grant = {.bits = 0777}};
    if (asprintf(&i.path, "%s/%s", dir->path[1] ? dir->path : "", name) < 0)
        return -ENOMEM;
    int e = reach_open(r, dir, name, REACH_LINKS, &f);
    if (e == 0 && !S_ISREG(f.st.st_mode))
        e = S_ISDIR(f.st.st_mode) ? -EISDIR : -EINVAL;
    if (e == 0) {
        i.above = f.linked ? 0 : i.above;
        i.st = f.st;
        i.grant = found_grant(r, &f, i.above);
        i.real = f.path;
        f.path = NULL;
    } else {
        (void)err_set(&i.error, e, "%s",
                      e == -EINVAL  ? "is not a regular file"
                      : e == -EXDEV ? "is in a ggufs mount"
                                    : strerror(-e));
    }
    *ret = i;
    return 0;
}

/* Return 1 if the first of a split model's n files exists beside `path`, even if it is a link that
 * must not be followed; otherwise 0 or -ENOMEM. */
static int has_first(struct reach *r, const char *path, size_t n)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE, f = FOUND_NONE;
    char *first = split_sibling(path_name(path), 0, n);
    int e = first ? reach_around(r, path, &dir) : -ENOMEM;
    if (e == 0)
        e = reach_open(r, &dir, first, REACH_LINKS, &f);
    free(first);
    return e == -ENOMEM ? e : e != -ENOENT;
}

static int find_files(struct reach *r, struct item *i)
{
    size_t behind = i->real ? split_count(i->real) : 0;
    i->shards = split_count(i->path);
    if (behind == 0 || strcmp(i->path, i->real) == 0)
        return 0;
    int here = i->shards ? has_first(r, i->path, i->shards) : 0;
    int there = here == 0 && i->shards ? has_first(r, i->real, behind) : here == 0;
    if (here < 0 || there < 0)
        return -ENOMEM;
    i->behind = there;
    i->shards = there ? behind : i->shards;
    return 0;
}

/* Make an item for a model that may be split. Its files are those that shards_find() returns for
 * this name. Returns 0 or -ENOMEM. */
static int item_model(struct reach *r, const struct place *p, const struct found *dir,
                      const char *name, struct item *ret)
{
    int e = item_file(r, p, dir, name, ITEM_MODEL, ret);
    if (e == 0 && (e = find_files(r, ret)) < 0)
        item_free(ret);
    return e;
}

/* ---- listings ---- */

static uint64_t hash_text(const char *text)
{
    return hash_name(text, strlen(text));
}

/* Returns true if an entry has already been added under this name. */
static bool is_taken(const struct listing *l, const char *shown)
{
    uint32_t i;
    for (struct probe p = index_probe(&l->taken, hash_text(shown)); index_next(&l->taken, &p, &i);)
        if (strcmp(l->entry[i].name, shown) == 0)
            return true;
    return false;
}

/* Make room for another entry. Returns 0 or -ENOMEM. */
static int make_room(struct listing *l)
{
    const size_t cap = l->cap;
    int e = array_grow(&l->entry, &l->cap, l->n, sizeof(*l->entry));
    if (e < 0 || l->cap == cap)
        return e;
    index_free(&l->taken);
    e = index_init(&l->taken, l->cap);
    for (size_t i = 0; e == 0 && i < l->n; i++)
        index_insert(&l->taken, hash_text(l->entry[i].name), (uint32_t)i);
    return e;
}

/* Return false if entries named `start`, perhaps with a number or a revision, can be left out
 * because the wanted entry has been found or has another name. If `more` is true, anything may
 * follow `start`. Only the first CERTAIN bytes are compared, because a hash may replace the rest. */
static bool is_wanted(const struct listing *l, const char *start, bool more)
{
    char shown[TREE_NAME_MAX + 1];
    if (!l->want)
        return true;
    const size_t n = name_encode(start, strlen(start), shown);
    return !l->found && strncmp(l->want, shown, n < CERTAIN ? n : CERTAIN) == 0 &&
           (more || n >= CERTAIN || l->want[n] == '\0' || strchr("~@", l->want[n]));
}

/* Add an entry under the encoded `name`, appending ~2, ~3 and so on if that name is taken. Returns
 * 0 or -errno. */
static int listing_add(struct listing *l, const char *name, const struct ref *ref)
{
    char shown[TREE_NAME_MAX + 1];
    (void)name_encode(name, strlen(name), shown);
    /* the names of a directory's own files and of a model's layers are already unique */
    const bool unique = ref->kind < REF_SPLIT || ref->kind >= REF_LAYER;
    for (unsigned k = 2; !unique && is_taken(l, shown); k++) {
        char *numbered;
        int n = asprintf(&numbered, "%s~%u", name, k);
        if (n < 0)
            return -ENOMEM;
        (void)name_encode(numbered, (size_t)n, shown);
        free(numbered);
    }
    const size_t n = strlen(shown) + 1, all = n + strlen(ref->at) + 1;
    char *text = make_room(l) == 0 ? malloc(all) : NULL;
    if (!text)
        return -ENOMEM;
    index_insert(&l->taken, hash_text(shown), (uint32_t)l->n);
    l->found |= l->want && strcmp(l->want, shown) == 0;
    l->entry[l->n] = (struct entry){.name = strcpy(text, shown), .ref = *ref};
    l->entry[l->n++].ref.at = strcpy(text + n, ref->at);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* Sort the listing once all entries are added. */
static void sort(struct listing *l)
{
    index_free(&l->taken);
    if (l->n && !l->of)
        qsort(l->entry, l->n, sizeof(*l->entry), by_name);
}

/* Get the listing cached with the names in a place's directory. Returns false if there is none. */
static bool listing_kept(const struct names *names, const struct place *p, struct listing *ret)
{
    const struct listing *l = atomic_load(&names->made);
    if (!l || l->store != p->store)
        return false;
    *ret = *l;
    ret->of = names_ref(names);
    return true;
}

/* Cache a complete listing with the names in the place's directory, if memory allows. */
static void listing_keep(const struct names *names, const struct place *p, struct listing *l)
{
    struct listing *kept = malloc(sizeof(*kept));
    struct listing *none = NULL;
    sort(l);
    if (!kept)
        return;
    *kept = *l;
    kept->want = NULL;
    kept->store = p->store;
    if (atomic_compare_exchange_strong(&((struct names *)names)->made, &none, kept))
        l->of = names_ref(names);
    else
        free(kept);
}

void listing_free(struct listing *l)
{
    names_free(&l->of);
    index_free(&l->taken);
    for (size_t i = 0; i < l->n && !l->of; i++)
        free(l->entry[i].name);
    if (!l->of)
        free(l->entry);
    *l = LISTING_INIT;
}

static bool named_gguf(const char *name)
{
    size_t n = strlen(name), s = strlen(SUFFIX);
    return n > s && strcasecmp(name + n - s, SUFFIX) == 0;
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

/* Open `path` in the repository `folder` (".": `dir` itself), which may be a link. Returns 0, 1 if
 * that link was followed, -ENOENT if it must not be followed, or another -errno. */
static int open_in(struct reach *r, const struct place *p, const struct found *dir,
                   const char *folder, const char *path, enum reach_flags flags, struct found *ret)
{
    char all[2 * TREE_NAME_MAX + 16];
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

/* Returns true if any directory whose name begins with `start` is a repository. Those that may be on
 * another disk, which may hang, are examined last. */
static bool has_some(struct reach *r, const struct place *p, const struct found *dir,
                     const struct names *names, const char *start)
{
    for (int far = 0; far < 2; far++)
        for (size_t i = names_from(names, start); name_begins(names, i, start); i++) {
            const char *name = name_at(names, i);
            const uint8_t type = names->name[i].type;
            if (type != DT_UNKNOWN &&
                far == (type != DT_DIR || reach_mounted(r, dir->path, name)) &&
                is_repo_in(r, p, dir, name))
                return true;
        }
    return false;
}

/* ---- revisions ---- */

static bool is_revision(const struct names *n, size_t i)
{
    return n->name[i].type == DT_DIR && !is_hidden(name_at(n, i));
}

/* Return the index of the newest revision in `snapshots`, or SIZE_MAX if there is none. If several
 * have the same time, returns the one whose name sorts last. */
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

/* Return the index of the revision that refs/main names, or SIZE_MAX if it has no snapshot. */
static size_t named_main(struct reach *r, const struct place *p, const struct found *dir,
                         const char *folder, const struct names *names)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    char revision[TREE_NAME_MAX + 1];
    if (open_in(r, p, dir, folder, "refs/main", REACH_LINKS, &f) < 0 ||
        read_small(&f, REF_MAX, &text) < 0 || !revision_parse(text.data, text.len, revision) ||
        names_type(names, revision) != DT_DIR)
        return SIZE_MAX;
    return names_from(names, revision);
}

/* Add the revisions of a repository. If the repository cannot be read, its revisions are left
 * out. */
static int add_repo(struct reach *r, const struct place *p, const struct found *dir,
                    const char *folder, const char *name, struct listing *ret)
{
    char shown[2 * (TREE_NAME_MAX + 1)], at[2 * (TREE_NAME_MAX + 1)];
    size_t main = SIZE_MAX;
    CLEANUP(reach_close) struct found snapshots = FOUND_NONE;
    CLEANUP(names_free) const struct names *names = NULL;
    ret->wide = true;
    if (!is_wanted(ret, name, false))
        return 0;
    int e = open_in(r, p, dir, folder, "snapshots", REACH_NO_LINKS, &snapshots);
    if (e >= 0)
        e = names_load(r, &snapshots, &names);
    if (e == 0)
        main = named_main(r, p, dir, folder, names);
    if (e == 0 && main == SIZE_MAX)
        main = newest(r, &snapshots, names);
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        const char *revision = name_at(names, i);
        const struct ref ref = {REF_REVISION, 0, at, REF_SURE};
        if (!is_revision(names, i))
            continue;
        (void)snprintf(at, sizeof(at), "%s/%s", folder, revision);
        (void)snprintf(shown, sizeof(shown), "%s%s%s", name, i == main ? "" : "@",
                       i == main ? "" : revision);
        e = listing_add(ret, shown, &ref);
    }
    return is_shortage(e) ? e : 0;
}

/* ---- directories ---- */

/* Add a directory or file that is shown under its own name. */
static int add_single(const struct place *p, const char *name, uint8_t type, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], rest[TREE_NAME_MAX + 1];
    const bool hidden = is_hidden(name), repo = !p->store && repo_name(name, org, rest),
               model = named_gguf(name),
               blob = strncmp(name, "sha256-", 7) == 0 && file_name_is_hash(name); /* ollama's */
    struct ref ref = {.at = name, .kind = REF_FOLDER};
    if ((type != DT_REG && type != DT_LNK && type != DT_DIR) || (hidden && p->store))
        return 0;
    if (type != DT_DIR && !hidden && (model || blob))
        ref.kind = REF_MODEL;
    else if (type == DT_REG)
        return 0;
    if (!hidden && (model || type == DT_DIR) && (!repo || type == DT_REG))
        ref.sure = type == DT_REG ? REF_HERE : REF_SURE;
    return listing_add(ret, name, &ref);
}

/* Return the number of files of the split model that this name belongs to, or 0 if there is no such
 * model. */
static size_t shards_of(const struct names *names, size_t i)
{
    const uint8_t type = names->name[i].type;
    const bool file = (type == DT_REG || type == DT_LNK) && !is_hidden(name_at(names, i));
    return file ? split_count(name_at(names, i)) : 0;
}

/* Add a split model if this is the first of its file names in the directory. */
static int add_split(const struct names *names, size_t i, struct listing *ret)
{
    char shown[TREE_NAME_MAX + 1];
    const char *name = name_at(names, i);
    const size_t shards = shards_of(names, i), all = strlen(name);
    const int len = (int)(all - SPLIT_TAIL);
    /* another split model has the same base name but a different number of files */
    bool twin = false;
    (void)snprintf(shown, sizeof(shown), "%.*s-", len, name);
    for (size_t k = names_from(names, shown); name_begins(names, k, shown); k++) {
        const size_t others = strlen(name_at(names, k)) == all ? shards_of(names, k) : 0;
        if (others == shards && k < i)
            return 0;
        twin |= others && others != shards;
    }
    const struct ref ref = {REF_SPLIT, (uint32_t)shards, name, REF_SURE};
    (void)snprintf(shown, sizeof(shown), "%.*s" SUFFIX, len, name);
    if (twin || names_type(names, shown) != DT_UNKNOWN)
        (void)snprintf(shown, sizeof(shown), "%.*s-00001-of-%05u" SUFFIX, len, name, ref.shards);
    return listing_add(ret, shown, &ref);
}

/* Add organisations, and repositories that belong to no organisation. The repositories of an
 * organisation are adjacent in `names`. */
static int add_repos(struct reach *r, const struct place *p, const struct found *dir,
                     const struct names *names, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], last[TREE_NAME_MAX + 1] = "";
    const struct ref ref = {.kind = REF_ORG, .at = org};
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
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++)
        if (names->name[i].type == DT_DIR || !split_count(name_at(names, i)))
            e = add_single(p, name_at(names, i), names->name[i].type, ret);
    for (size_t i = 0; e == 0 && i < names->n; i++)
        if (shards_of(names, i))
            e = add_split(names, i, ret);
    return p->store || e < 0 ? e : add_repos(r, p, dir, names, ret);
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

static bool ollama_is(struct reach *r, const struct found *dir, const struct names *names)
{
    const uint8_t manifests = names_type(names, "manifests"), blobs = names_type(names, "blobs");
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    /* blobs/ may be a link, because it is often on another disk */
    if (blobs != DT_DIR && blobs != DT_LNK)
        return false;
    return manifests == DT_DIR ||
           (manifests == DT_LNK && reach_open(r, dir, "manifests", REACH_LINKS, &f) == 0 &&
            S_ISDIR(f.st.st_mode));
}

/* Open a path below manifests/. The directory manifests/ itself may be a link. */
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

/* The kinds of layers that are shown, in the order of struct manifest. `word` is the last word of
 * the layer's media type. Rows with the same name are adjacent. */
static const struct {
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
        const char *word = word_of(at); /* parameters may follow the word */
        m->tensors += strcspn(word, "; ") == 6 && strncmp(word, "tensor", 6) == 0;
    }
    for (size_t k = 0; k < COUNT(kinds) && r == 0; k++)
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

/* Load a manifest from a file that was found. Returns 0, -ENOENT if this is not a regular file, or
 * another -errno. If the manifest is broken, *e gives the reason. */
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
        n = err_set(e, -EBADMSG, "stores each tensor in its own file, not in a GGUF file");
    }
    return n;
}

/* ---- listings ---- */

/* List the tags of a model in `space`, which is the namespace at `sub`. If the tags cannot be read,
 * they are left out. */
static int add_tags(struct reach *r, const struct found *space, const char *sub, const char *model,
                    struct listing *ret)
{
    char shown[2 * (TREE_NAME_MAX + 1)], path[PATH_ROOM];
    const struct ref ref = {.kind = REF_OLLAMA, .at = path};
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    CLEANUP(names_free) const struct names *tags = NULL;
    (void)snprintf(shown, sizeof(shown), "%s:", model);
    if (!is_wanted(ret, shown, true))
        return 0;
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
    int e = ret->found ? -ENOENT : open_below(r, dir, sub, &f);
    if (e == 0)
        e = names_load(r, &f, &models);
    for (size_t i = 0; e == 0 && i < models->n; i++) {
        const char *model = name_at(models, i);
        if (models->name[i].type == DT_DIR && !is_hidden(model) && !strchr(model, ':'))
            e = add_tags(r, &f, sub, model, ret);
    }
    return e;
}

/* List the namespaces of a host or, if `host` is "", of all hosts. Leaves out the namespace at
 * `except`. */
static int list_folders(struct reach *r, const struct found *dir, const char *host,
                        const char *except, struct listing *ret)
{
    char path[PATH_ROOM];
    const struct ref ref = {REF_OLLAMA, 0, path, REF_SURE};
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    CLEANUP(names_free) const struct names *names = NULL;
    int e = ret->found ? -ENOENT : open_below(r, dir, host, &f);
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

/* List the layers of a model. A text file is shown only if it exists; a model is shown even if it
 * cannot be opened. */
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
        const struct ref ref = {l->model ? REF_LAYER : REF_TEXT, 0, l->digest,
                                l->model ? REF_SURE : REF_UNSURE};
        number = i && strcmp(l->name, l[-1].name) == 0 ? number + 1 : 1;
        (void)snprintf(name, sizeof(name), "%s~%u", l->name, number);
        e = listing_add(ret, number > 1 ? name : l->name, &ref);
    }
    manifest_free(&m);
    return e == -EBADMSG || e == -EFBIG ? -ENOENT : e;
}

static int ollama_list(struct reach *r, const struct place *p, const struct found *dir,
                       struct listing *ret)
{
    ret->wide = true;
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

/* Examine a tag in its model's directory, and copy the manifest's time and inode number to
 * `folder->st`. Returns 0, -ENOENT if the tag is not shown, or another -errno, with a message if
 * the manifest is broken. */
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

/* Get the item for a host, a namespace or a tag: a directory or, for a tag whose manifest is
 * broken, a model that cannot be opened. */
static int folder_item(struct reach *r, const struct place *p, const struct found *dir,
                       const char *sub, struct item *ret)
{
    char above[PATH_ROOM];
    struct err why = {0};
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    const bool tag = names_in(sub) == 4;
    const char *name = path_name(sub);
    (void)snprintf(above, sizeof(above), "%.*s", (int)(name - sub - 1), sub);
    int e = open_below(r, dir, tag ? above : sub, &f);
    if (e == 0 && !S_ISDIR(f.st.st_mode))
        e = -ENOENT;
    if (e == 0 && tag)
        e = look_at_tag(r, &f, name, &why);
    if (e == 0)
        return item_folder(r, p, PLACE_OLLAMA, sub, false, &f, ret);
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
    (void)snprintf(name, sizeof(name), "sha256:%s", ref->at);
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

static int ollama_item(struct reach *r, const struct place *p, const struct found *dir,
                       const struct ref *ref, struct item *ret)
{
    return ref->kind == REF_OLLAMA ? folder_item(r, p, dir, ref->at, ret)
                                   : layer_item(r, p, dir, ref, ret);
}

static int folder_list(struct reach *r, const struct place *p, const struct found *dir,
                       struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    CLEANUP(names_free) const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e == 0 && !p->store && repo_name(path_name(dir->path), org, name) &&
        names_type(names, "snapshots") == DT_DIR) /* the place's directory itself is a repository */
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

/* ---- the entries of a directory ---- */

/* Returns true if a hidden directory is a store. Other hidden directories are not shown. */
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
    if (e == 0 && ((is_hidden(name) && !is_store(r, &f)) ||
                   (!p->store && is_repo_in(r, p, dir, name)))) /* shown under its organisation */
        e = -ENOENT;
    if (e == 0)
        e = item_folder(r, p, PLACE_FOLDER, "", linked, &f, ret);
    return e;
}

/* Returns true if a file begins with GGUF's magic. */
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

/* Get the item for a split model. The first of its files that exists represents the model. */
static int split_item(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    char first[TREE_NAME_MAX + 1];
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    (void)snprintf(first, sizeof(first), "%.*s-00001-of-%05u" SUFFIX,
                   (int)(strlen(ref->at) - SPLIT_TAIL), ref->at, ref->shards);
    int e = reach_open(r, dir, first, REACH_NO_LINKS, &f);
    bool is = e == -ELOOP || (e == 0 && !S_ISDIR(f.st.st_mode));
    return item_model(r, p, dir, is ? first : ref->at, ret);
}

/* Get the item for a name that looks like a model's. A link with such a name may lead to a
 * directory, and a blob may be anything. */
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

/* ---- organisations ---- */

static int hub_list(struct reach *r, const struct place *p, const struct found *dir,
                    struct listing *ret)
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

/* Get the item for an organisation, which is shown only if it has a repository. */
static int org_item(struct reach *r, const struct place *p, const struct found *dir,
                    const char *org, struct item *ret)
{
    char start[TREE_NAME_MAX + 16];
    CLEANUP(names_free) const struct names *names = NULL;
    CLEANUP(reach_close) struct found here = FOUND_NONE;
    (void)snprintf(start, sizeof(start), REPO_PREFIX "%s--", org);
    int e = names_load(r, dir, &names);
    if (e == 0 && !has_some(r, p, dir, names, start))
        e = -ENOENT;
    if (e == 0)
        e = reach_open(r, dir, ".", REACH_NO_LINKS, &here);
    return e < 0 ? e : item_folder(r, p, PLACE_ORG, org, false, &here, ret);
}

static int revision_item(struct reach *r, const struct place *p, const struct found *dir,
                         const struct ref *ref, struct item *ret)
{
    char folder[TREE_NAME_MAX + 1], path[TREE_NAME_MAX + 16];
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(ref->at, "/"), ref->at);
    (void)snprintf(path, sizeof(path), "snapshots/%s", path_name(ref->at));
    int e = open_in(r, p, dir, folder, path, REACH_NO_LINKS, &f);
    if (e >= 0)
        e = item_folder(r, p, PLACE_FOLDER, "", e > 0, &f, ret);
    if (e == 0)
        ret->store = ret->place.store = true;
    return e;
}

/* ---- the calls ---- */

/* Open the directory of a place. Returns 0, -ENOENT if it was removed or replaced, or another
 * -errno. */
static int open_place(struct reach *r, const struct place *p, struct found *dir)
{
    int e = reach_again(r, p->path, dir);
    if (e == 0 && !S_ISDIR(dir->st.st_mode))
        e = -ENOTDIR;
    if (e < 0)
        reach_close(dir);
    return e == -ELOOP || e == -ENOTDIR ? -ENOENT : e;
}

/* Open the directory of a place and get its entries, sorted by name. If `want` is not NULL, entries
 * with other names may be missing if they depend on other directories; if `want` is "", no other
 * directory is examined. */
static int list(struct reach *r, const struct place *p, const char *want, struct found *dir,
                struct listing *ret)
{
    *ret = LISTING_INIT;
    ret->want = want;
    ret->found = want && !*want;
    int e = open_place(r, p, dir);
    if (e == 0)
        e = p->kind == PLACE_ORG      ? hub_list(r, p, dir, ret)
            : p->kind == PLACE_OLLAMA ? ollama_list(r, p, dir, ret)
                                      : folder_list(r, p, dir, ret);
    if (e < 0)
        listing_free(ret);
    else
        sort(ret);
    return e;
}

int place_list(struct reach *r, const struct place *p, struct listing *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    return list(r, p, NULL, &dir, ret);
}

bool place_is_store(struct reach *r, const struct place *p)
{
    static const char *const hub[] = {".", "models--", "datasets--", "spaces--"};
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    CLEANUP(listing_free) struct listing l = LISTING_INIT;
    if (list(r, p, "", &dir, &l) < 0)
        return false;
    bool some = l.wide, others = false; /* `wide` is set only in stores */
    for (size_t i = 0; i < l.n; i++) {
        bool own = l.entry[i].ref.kind > REF_SPLIT;
        some |= own;
        for (size_t k = 0; k < COUNT(hub); k++)
            own |= strncmp(l.entry[i].name, hub[k], strlen(hub[k])) == 0;
        others |= !own;
    }
    return some && !others;
}

/* Get the item for an entry if the entry is shown. For a REF_UNSURE entry, an error means that the
 * entry is not shown. */
static int item_shown(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    int e;
    switch (ref->kind) {
    case REF_FOLDER:
        e = below_item(r, p, dir, ref->at, ret);
        break;
    case REF_MODEL:
        e = model_item(r, p, dir, ref->at, ret);
        break;
    case REF_SPLIT:
        e = split_item(r, p, dir, ref, ret);
        break;
    case REF_ORG:
        e = org_item(r, p, dir, ref->at, ret);
        break;
    case REF_REVISION:
        e = revision_item(r, p, dir, ref, ret);
        break;
    default:
        e = ollama_item(r, p, dir, ref, ret);
    }
    return e < 0 && ref->sure == REF_UNSURE && !is_shortage(e) ? -ENOENT : e;
}

int place_find(struct reach *r, const struct place *p, const char *name, struct item *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    CLEANUP(listing_free) struct listing l = LISTING_INIT;
    const struct entry key = {.name = (char *)name}, *found = NULL;
    int e = list(r, p, name, &dir, &l);
    if (e == 0 && l.n)
        found = bsearch(&key, l.entry, l.n, sizeof(key), by_name);
    return e < 0 ? e : found ? item_shown(r, p, &dir, &found->ref, ret) : -ENOENT;
}

int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    int e = open_place(r, p, &dir);
    return e < 0 ? (ref->sure == REF_UNSURE && !is_shortage(e) ? -ENOENT : e)
                 : item_shown(r, p, &dir, ref, ret);
}

/* ---- identity ---- */

/* Add one file to the stamp. Returns 0, or -errno if the process runs out of memory or
 * descriptors. */
static int stamp_file(struct reach *r, const struct found *dir, const char *name, uint64_t *stamp)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    int is = name ? reach_open(r, dir, name, REACH_LINKS, &f) : -ENOMEM;
    /* these errors say nothing about the file */
    if (is_shortage(is))
        return is;
    *stamp = tree_identity_with(*stamp, is == 0 ? &f.st : &(struct stat){.st_size = is});
    return 0;
}

/* Hash the files of a split model. The model's name may claim many more files than exist, so files
 * missing from the directory's list of names are skipped. */
static int stamp_split(struct reach *r, const struct found *dir, const char *name, size_t shards,
                       uint64_t *stamp)
{
    CLEANUP(names_free) const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e < 0 && e != -ENOMEM)
        e = 0; /* the directory may be searchable but not readable */
    for (size_t i = 0; e == 0 && i < shards; i++) {
        char *shard = split_sibling(name, i, shards);
        if (shard && names && !is_hidden(name) && names_type(names, shard) == DT_UNKNOWN)
            *stamp = tree_identity_with(*stamp, &(struct stat){.st_size = -ENOENT});
        else
            e = stamp_file(r, dir, shard, stamp);
        free(shard);
    }
    return e;
}

int files_stamp(struct reach *r, const char *path, size_t shards, uint64_t *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    int e = reach_around(r, path, &dir);
    *ret = 0;
    if (e < 0)
        return e;
    return shards ? stamp_split(r, &dir, path_name(path), shards, ret)
                  : stamp_file(r, &dir, path_name(path), ret);
}

uint64_t item_key(const struct item *i)
{
    const struct place *p = &i->place;
    const uint64_t hash = i->kind == ITEM_FOLDER ? hash_name(p->path, (size_t)(p->passed - p->path))
                                                 : hash_name(i->path, strlen(i->path));
    return hash ^ ((uint64_t)i->kind << 4 | p->kind);
}
