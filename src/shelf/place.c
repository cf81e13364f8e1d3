/* SPDX-License-Identifier: MIT */
/* Makes places, listings and items: see place.h. */
#include "shelf/place.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/count.h"
#include "base/path.h"
#include "base/when.h"
#include "check/filename.h"
#include "model/snapshot.h"
#include "shelf/ollama.h"
#include "tree/tree.h"

#define SUFFIX ".gguf"
#define REPO_PREFIX "models--"

/* Maximum size in bytes of a file in refs/, which has a commit with any white space around it. */
#define REF_MAX 4096

/* ---- places ---- */

int place_make(const struct place *p, enum place_kind kind, const char *path, const char *sub,
               bool linked, struct place *ret)
{
    struct buf b = BUF_INIT;
    path = path ? path : p->path;
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

/* Returns true if a link in p to this real path must not be followed, because a directory on the
 * way would be shown inside itself endlessly, or because there are too many links. */
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
    char *shown = above ? strndup(f->path, above) : NULL; /* the directory that shows it */
    if (shown || !above)
        g = grant_of_real(f->fd, &f->st, f->path, shown ? shown : r->path);
    free(shown);
    return g;
}

int item_folder(const struct reach *r, const struct place *p, struct found *f, struct place *place,
                struct item *ret)
{
    const size_t above = f->linked ? 0 : strlen(p->path);
    *ret = (struct item){.kind = ITEM_FOLDER,
                         .place = *place,
                         .st = f->st,
                         .path = f->path,
                         .above = above,
                         .grant = found_grant(r, f, above),
                         .store = place->store};
    ret->real = strdup(f->path);
    f->path = NULL;
    reach_close(f);
    if (ret->real)
        return 0;
    item_free(ret);
    return -ENOMEM;
}

/*
 * Make an item for a directory below p, which a link leads to if `linked` and which is in a store
 * if `store`. Takes ownership of f in any case. Returns 0, -ENOENT if the link must not be
 * followed, or -ENOMEM.
 */
static int item_below(const struct reach *r, const struct place *p, struct found *f, bool linked,
                      bool store, struct item *ret)
{
    struct place below;
    int e = linked && place_goes_round(r, p, f->path)
                ? -ENOENT
                : place_make(p, PLACE_FOLDER, f->path, "", linked, &below);
    if (e < 0) {
        reach_close(f);
        return e;
    }
    f->linked |= linked;
    below.store |= store;
    return item_folder(r, p, f, &below, ret);
}

int item_file(struct reach *r, const struct place *p, const struct found *dir, const char *name,
              enum item_kind kind, struct item *ret)
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
                      : e == -EXDEV ? "is in a mount of ggufs"
                                    : strerror(-e));
    }
    *ret = i;
    return 0;
}

/* Return 1 if the first of the n files of a split model is beside `path`, even if the rules forbid
 * following a link there; otherwise 0 or -ENOMEM. */
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

int item_model(struct reach *r, const struct place *p, const struct found *dir, const char *name,
               struct item *ret)
{
    int e = item_file(r, p, dir, name, ITEM_MODEL, ret);
    if (e == 0 && (e = find_files(r, ret)) < 0)
        item_free(ret);
    return e;
}

/* ---- listings ---- */

/* Store a text with its terminator. *ret gets its offset. Returns 0 or -ENOMEM. */
static int add_text(struct buf *texts, const char *text, uint32_t *ret)
{
    size_t at = texts->len, n = strlen(text) + 1;
    if (at + n > UINT32_MAX)
        return -ENOMEM;
    buf_add(texts, text, n);
    *ret = (uint32_t)at;
    return buf_error(texts);
}

static uint64_t hash_text(const char *text)
{
    return hash_name(text, strlen(text));
}

/* Make room for one more entry. An index that is full is rebuilt with a larger size. */
static int make_room(struct listing *l)
{
    struct index bigger;
    size_t room = l->room ? 2 * l->room : 64;
    int r = array_grow(&l->entry, &l->cap, l->n, sizeof(*l->entry));
    if (r < 0 || l->n < l->room)
        return r;
    if (l->n >= UINT32_MAX / 4 || index_init(&bigger, room) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < l->n; i++)
        index_insert(&bigger, hash_text(entry_name(l, i)), (uint32_t)i);
    index_free(&l->index);
    l->index = bigger;
    l->room = room;
    return 0;
}

static size_t listing_find(const struct listing *l, const char *name)
{
    uint32_t i;
    if (l->n == 0)
        return SIZE_MAX;
    for (struct probe p = index_probe(&l->index, hash_text(name)); index_next(&l->index, &p, &i);)
        if (strcmp(entry_name(l, i), name) == 0)
            return i;
    return SIZE_MAX;
}

/* Returns true if the listing shows this name, given before encoding. */
static bool listing_has(const struct listing *l, const char *name)
{
    char shown[TREE_NAME_MAX + 1];
    (void)name_encode(name, strlen(name), shown);
    return listing_find(l, shown) != SIZE_MAX;
}

int listing_add(struct listing *l, const char *name, const struct ref *ref)
{
    char shown[TREE_NAME_MAX + 1];
    struct entry e = {.kind = ref->kind, .shards = ref->shards, .sure = ref->sure};
    (void)name_encode(name, strlen(name), shown);
    for (unsigned k = 2; listing_find(l, shown) != SIZE_MAX; k++) {
        char *numbered;
        int n = asprintf(&numbered, "%s~%u", name, k);
        if (n < 0)
            return -ENOMEM;
        (void)name_encode(numbered, (size_t)n, shown);
        free(numbered);
    }
    int r = make_room(l);
    if (r == 0)
        r = add_text(&l->texts, shown, &e.name);
    if (r == 0)
        r = strcmp(shown, ref->a) == 0 ? (int)(e.a = e.name, 0) : add_text(&l->texts, ref->a, &e.a);
    if (r == 0)
        r = add_text(&l->texts, ref->b ? ref->b : "", &e.b);
    if (r < 0)
        return r;
    l->entry[l->n] = e;
    index_insert(&l->index, hash_text(shown), (uint32_t)l->n);
    l->n++;
    return 0;
}

static int by_name(const void *a, const void *b, void *texts)
{
    const struct entry *x = a, *y = b;
    return strcmp((const char *)texts + x->name, (const char *)texts + y->name);
}

/* Sort the listing once all entries are added. */
static void sort(struct listing *l)
{
    if (l->n && !l->of)
        qsort_r(l->entry, l->n, sizeof(*l->entry), by_name, l->texts.data);
    index_free(&l->index);
}

/* Get the listing that is kept with the names in a place's directory. Returns false if there is no
 * such listing. */
static bool listing_kept(const struct names *names, const struct place *p, struct listing *ret)
{
    const struct listing *l = atomic_load(&names->made);
    if (!l || l->store != p->store)
        return false;
    *ret = *l;
    ret->of = names_ref(names);
    return true;
}

/* Keep a complete listing with the names in the place's directory if there is memory for it. */
static void listing_keep(const struct names *names, const struct place *p, struct listing *l)
{
    struct listing *kept = malloc(sizeof(*kept));
    struct listing *none = NULL;
    sort(l);
    if (!kept)
        return;
    *kept = *l;
    kept->store = p->store;
    if (atomic_compare_exchange_strong(&((struct names *)names)->made, &none, kept))
        l->of = names_ref(names);
    else
        free(kept);
}

struct ref entry_ref(const struct listing *l, size_t i)
{
    const struct entry *e = &l->entry[i];
    const char *texts = (const char *)l->texts.data;
    return (struct ref){e->kind, e->shards, texts + e->a, texts + e->b, e->sure};
}

void listing_free(struct listing *l)
{
    if (l->of) {
        names_free(&l->of);
    } else {
        free(l->entry);
        buf_free(&l->texts);
        index_free(&l->index);
    }
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
    /* '@' would make the name look like that of a revision; repositories' names do not have it */
    if (strchr(rest, '@'))
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
 * Open `path` in the repository `folder` (".": dir itself) or, if it was moved, in the one that a
 * link of this name leads to. Returns 0, 1 if a link was followed, -ENOENT if the link must not be
 * followed, or another -errno.
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

/* Returns true if one of the directories with this prefix is a repository. */
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

/* Return the index of the newest revision in `snapshots`, or SIZE_MAX if there is none. If several
 * have the same time, it is the last by name. */
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

/* Return the index of the commit that refs/main names, or SIZE_MAX if it has no snapshot. */
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

/* Add the revisions of a repository. If it cannot be read, they are left out. */
static int add_repo(struct reach *r, const struct place *p, const struct found *dir,
                    const char *folder, const char *name, struct listing *ret)
{
    char shown[TREE_NAME_MAX + COMMIT_DIGITS + 2];
    size_t main = SIZE_MAX;
    CLEANUP(reach_close) struct found snapshots = FOUND_NONE;
    CLEANUP(names_free) const struct names *names = NULL;
    ret->wide = true;
    int e = open_in(r, p, dir, folder, "snapshots", REACH_NO_LINKS, &snapshots);
    if (e >= 0)
        e = names_load(r, &snapshots, &names);
    if (e == 0)
        main = named_main(r, p, dir, folder, names);
    if (e == 0 && main == SIZE_MAX)
        main = newest(r, &snapshots, names);
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        const struct ref ref = {REF_REVISION, 0, folder, name_at(names, i), REF_SURE};
        if (!is_revision(names, i))
            continue;
        (void)snprintf(shown, sizeof(shown), "%s%s%s", name, i == main ? "" : "@",
                       i == main ? "" : ref.b);
        e = listing_add(ret, shown, &ref);
    }
    return is_shortage(e) ? e : 0;
}

/* ---- directories ---- */

/* Add a directory or file that keeps its name. */
static int add_single(const struct place *p, const char *name, uint8_t type, struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], rest[TREE_NAME_MAX + 1];
    const bool hidden = is_hidden(name), repo = !p->store && repo_name(name, org, rest),
               model = named_gguf(name),
               blob = strncmp(name, "sha256-", 7) == 0 && file_name_is_hash(name); /* ollama's */
    struct ref ref = {.a = name, .b = "", .kind = REF_FOLDER};
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

/* A file of a split model; files with the same prefix and number of files belong to the same
 * model. */
struct split_group {
    const char *first; /* the file's name */
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

/* Add the split models. Their files are sorted, so that those of one model are adjacent, as are
 * models of the same name. */
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
        const int len = (int)(strlen(g[i].first) - SPLIT_TAIL);
        (void)snprintf(shown, sizeof(shown), "%.*s" SUFFIX, len, g[i].first);
        if (twin || listing_has(ret, shown))
            (void)snprintf(shown, sizeof(shown), "%.*s-00001-of-%05u" SUFFIX, len, g[i].first,
                           g[i].files);
        e = listing_add(ret, shown, &ref);
    }
    return e;
}

static int add_splits(const struct names *names, struct listing *ret)
{
    size_t n = 0, cap = 0;
    struct split_group *g = NULL;
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        const char *name = name_at(names, i);
        uint8_t type = names->name[i].type;
        bool file = (type == DT_REG || type == DT_LNK) && !is_hidden(name);
        uint32_t files = file ? (uint32_t)split_count(name) : 0;
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

/* Add organisations, and repositories without one. The repositories of an organisation are adjacent
 * in `names`. */
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
    int e = 0;
    for (size_t i = 0; e == 0 && i < names->n; i++) {
        uint8_t type = names->name[i].type;
        const char *name = name_at(names, i);
        if (type == DT_DIR || !split_count(name))
            e = add_single(p, name, type, ret);
    }
    if (e == 0)
        e = add_splits(names, ret);
    return p->store || e < 0 ? e : add_repos(r, p, dir, names, ret);
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

/* ---- the content of a directory ---- */

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
        return item_below(r, p, &f, linked, false, ret);
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

/* Get the item of a split model, which is represented by the first of its files that exists. */
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

/* Get the item of a name that looks like a model's. A link of this name may lead to a directory,
 * and a blob may be anything. */
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

/* Get the item of an organisation. It is shown only if it has a repository. */
static int org_item(struct reach *r, const struct place *p, const struct found *dir,
                    const char *org, struct item *ret)
{
    char start[TREE_NAME_MAX + 16];
    CLEANUP(names_free) const struct names *names = NULL;
    struct found here = *dir;
    struct place below;
    (void)snprintf(start, sizeof(start), REPO_PREFIX "%s--", org);
    int e = names_load(r, dir, &names);
    if (e == 0 && !has_some(r, p, dir, names, start))
        e = -ENOENT;
    if (e == 0)
        e = place_make(p, PLACE_ORG, NULL, org, false, &below);
    if (e < 0)
        return e;
    here.lent = true;
    here.path = strdup(dir->path);
    if (!here.path) {
        place_free(&below);
        return -ENOMEM;
    }
    return item_folder(r, p, &here, &below, ret);
}

static int revision_item(struct reach *r, const struct place *p, const struct found *dir,
                         const struct ref *ref, struct item *ret)
{
    char path[TREE_NAME_MAX];
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    (void)snprintf(path, sizeof(path), "snapshots/%s", ref->b);
    int e = open_in(r, p, dir, ref->a, path, REACH_NO_LINKS, &f);
    return e < 0 ? e : item_below(r, p, &f, e > 0, true, ret);
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

/* Open the directory of a place and get its entries, sorted by name. */
static int list(struct reach *r, const struct place *p, struct found *dir, struct listing *ret)
{
    *ret = LISTING_INIT;
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
    return list(r, p, &dir, ret);
}

bool place_is_store(struct reach *r, const struct place *p)
{
    static const char *const hub[] = {".", "models--", "datasets--", "spaces--"};
    struct listing l = LISTING_INIT;
    bool some = false, others = false;
    if (place_list(r, p, &l) < 0)
        return false;
    for (size_t i = 0; i < l.n; i++) {
        bool own = l.entry[i].kind > REF_SPLIT;
        some |= own;
        for (size_t k = 0; k < COUNT(hub); k++)
            own |= strncmp(entry_name(&l, i), hub[k], strlen(hub[k])) == 0;
        others |= !own;
    }
    listing_free(&l);
    return some && !others;
}

/* Get the item of an entry if the entry is shown. If that was not certain, an error in it means
 * that it is not shown. */
static int item_shown(struct reach *r, const struct place *p, const struct found *dir,
                      const struct ref *ref, struct item *ret)
{
    int e;
    switch (ref->kind) {
    case REF_FOLDER:
        e = below_item(r, p, dir, ref->a, ret);
        break;
    case REF_MODEL:
        e = model_item(r, p, dir, ref->a, ret);
        break;
    case REF_SPLIT:
        e = split_item(r, p, dir, ref, ret);
        break;
    case REF_ORG:
        e = org_item(r, p, dir, ref->a, ret);
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
    int e = list(r, p, &dir, &l);
    size_t low = 0, high = e == 0 ? l.n : 0;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (strcmp(entry_name(&l, mid), name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (e == 0 && (low == l.n || strcmp(entry_name(&l, low), name) != 0))
        e = -ENOENT;
    if (e < 0)
        return e;
    const struct ref ref = entry_ref(&l, low);
    return item_shown(r, p, &dir, &ref, ret);
}

int place_item(struct reach *r, const struct place *p, const struct ref *ref, struct item *ret)
{
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    int e = open_place(r, p, &dir);
    return e < 0 ? (ref->sure == REF_UNSURE && !is_shortage(e) ? -ENOENT : e)
                 : item_shown(r, p, &dir, ref, ret);
}

/* ---- identity ---- */

/* Add one file to the stamp so far. Returns 0, or -errno for lack of memory or descriptors. */
static int stamp_file(struct reach *r, const struct found *dir, const char *name, uint64_t *stamp)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    int is = name ? reach_open(r, dir, name, REACH_LINKS, &f) : -ENOMEM;
    /* these errors say nothing about the file */
    if (is == -ENOMEM || is == -EMFILE || is == -ENFILE)
        return is;
    *stamp = tree_identity_with(*stamp, is == 0 ? &f.st : &(struct stat){.st_size = is});
    return 0;
}

/*
 * Return the number of the file of a split model that is named `first` or, if it does not exist, of
 * the next one in the directory; return `shards` if there are no more. Names in between that only
 * look similar are skipped.
 */
static size_t next_shard(const struct names *names, const char *first, size_t shards)
{
    size_t n = strlen(first) - SPLIT_TAIL;
    for (size_t at = names_from(names, first); at < names->n; at++) {
        const char *name = name_at(names, at);
        if (strncmp(name, first, n + 1) != 0)
            break;
        if (strlen(name) == n + SPLIT_TAIL && split_count(name) == shards)
            /* the number has five digits and is not 0 */
            return strtoul(name + n + 1, NULL, 10) - 1;
    }
    return shards;
}

/* Hash the files of a split model. Its name may claim many more files than exist; the missing files
 * are not searched for. */
static int stamp_split(struct reach *r, const struct found *dir, const char *name, size_t shards,
                       uint64_t *stamp)
{
    CLEANUP(names_free) const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e < 0 && e != -ENOMEM)
        e = 0; /* the directory may be searchable but not readable */
    for (size_t i = 0; e == 0 && i < shards; i++) {
        char *shard = split_sibling(name, i, shards);
        size_t next = names && shard ? next_shard(names, shard, shards) : i;
        for (; i < next; i++)
            *stamp = tree_identity_with(*stamp, &(struct stat){.st_size = -ENOENT});
        if (names && shard && next < shards) {
            free(shard);
            shard = split_sibling(name, i, shards);
        }
        if (i < shards)
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

int item_stamp(struct reach *r, const struct item *i, uint64_t *ret)
{
    if (i->shards || i->error.code)
        return files_stamp(r, item_files(i), i->shards, ret);
    *ret = i->kind == ITEM_FOLDER ? 0 : tree_identity_with(0, &i->st);
    return 0;
}

/* ---- location ---- */

int item_key(const struct item *i, uint64_t *ret)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    buf_char(&b, (char)i->kind);
    buf_char(&b, (char)i->place.kind);
    if (i->kind == ITEM_FOLDER)
        buf_add(&b, i->place.path, (size_t)(i->place.passed - i->place.path));
    else
        buf_str(&b, i->path);
    *ret = hash_name(b.data, b.len);
    return buf_error(&b);
}
