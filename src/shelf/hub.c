/* SPDX-License-Identifier: MIT */
/*
 * A Hugging Face cache: models--ORG--NAME/{blobs,refs/REF,snapshots/COMMIT/PATH}. A snapshot is a
 * folder of links to blobs, or of files. See store.h.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/store.h"

#define PREFIX "models--"

/* Bytes of a file of refs/: a commit, and white space that programs leave. */
#define REF_MAX 4096

/* ---- names ---- */

bool repo_name(const char *folder, char org[TREE_NAME_MAX + 1], char name[TREE_NAME_MAX + 1])
{
    if (strncmp(folder, PREFIX, strlen(PREFIX)) != 0 || strlen(folder) > TREE_NAME_MAX)
        return false;
    const char *rest = folder + strlen(PREFIX), *end = strstr(rest, "--");
    if (strchr(rest, '@')) /* no repository's name has it: it would read as that of a revision */
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

/* The folder of a repository, or what a link of its name leads to: it was moved. */
static int open_repo(struct reach *r, const struct found *dir, const char *folder, bool *linked,
                     struct found *ret)
{
    int e = reach_open(r, dir, folder, REACH_NO_LINKS, ret);
    *linked = e == -ELOOP;
    return *linked ? reach_open(r, dir, folder, REACH_LINKS, ret) : e;
}

/* The name before "/snapshots". */
static void repo_of(const char *snapshots, char folder[TREE_NAME_MAX + 1])
{
    (void)snprintf(folder, TREE_NAME_MAX + 1, "%.*s", (int)strcspn(snapshots, "/"), snapshots);
}

/* A look: 1 if it is a repository; of a link its real path. */
static int look_for_repo(struct reach *r, const struct found *dir, const char *snapshots,
                         struct buf *out)
{
    char folder[TREE_NAME_MAX + 1];
    struct found repo = FOUND_NONE, f = FOUND_NONE;
    bool linked;
    repo_of(snapshots, folder);
    int e = open_repo(r, dir, folder, &linked, &repo);
    if (e == 0)
        e = reach_open(r, &repo, "snapshots", REACH_NO_LINKS, &f);
    bool is = e == 0 && S_ISDIR(f.st.st_mode);
    if (is && linked)
        buf_add(out, repo.path, strlen(repo.path) + 1);
    reach_close(&f);
    reach_close(&repo);
    return is && buf_error(out) == 0;
}

bool has_repo(struct reach *r, const struct place *p, const struct found *dir, const char *folder)
{
    CLEANUP(buf_free) struct buf target = BUF_INIT;
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], path[TREE_NAME_MAX + 16];
    if (!repo_name(folder, org, name))
        return false;
    (void)snprintf(path, sizeof(path), "%s/snapshots", folder);
    int is = look(r, look_for_repo, dir, path, &target);
    return is != 0 && (!target.len || !place_goes_round(r, p, (const char *)target.data));
}

bool is_repo(struct reach *r, const struct found *dir)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    const char *slash = strrchr(dir->path, '/');
    return slash && repo_name(slash + 1, org, name) &&
           has_folder(r, dir, "snapshots", REACH_NO_LINKS) != 0;
}

/* ---- revisions ---- */

/* The commits of a repository: folders of snapshots/, sorted. */
struct commits {
    struct found dir; /* of snapshots/ */
    const struct names *names;
    size_t main; /* the number of the one that is shown by the repository's name; SIZE_MAX: none */
};

static bool is_revision(const struct commits *c, size_t i)
{
    return c->names->name[i].type == DT_DIR && is_commit(name_at(c->names, i));
}

/* A look: when a folder was changed. */
static int look_at_time(struct reach *r, const struct found *dir, const char *name, struct buf *out)
{
    struct found f = FOUND_NONE;
    int e = reach_open(r, dir, name, REACH_NO_LINKS, &f);
    if (e == 0) {
        buf_add(out, &f.st.st_mtim, sizeof(f.st.st_mtim));
        e = buf_error(out);
    }
    reach_close(&f);
    return e;
}

/* The newest folder whose disk answers; of several with one time the last name. */
static size_t newest(struct reach *r, const struct commits *c)
{
    struct timespec best = {0};
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < c->names->n; i++) {
        CLEANUP(buf_free) struct buf time = BUF_INIT;
        struct timespec t;
        if (!is_revision(c, i) || look(r, look_at_time, &c->dir, name_at(c->names, i), &time) < 0)
            continue;
        memcpy(&t, time.data, sizeof(t));
        if (found == SIZE_MAX || t.tv_sec > best.tv_sec ||
            (t.tv_sec == best.tv_sec && t.tv_nsec >= best.tv_nsec)) {
            best = t;
            found = i;
        }
    }
    return found;
}

/* The commit that refs/main names, if there is a snapshot of it. */
static size_t named_main(struct reach *r, const struct found *repo, const struct commits *c)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    char commit[COMMIT_DIGITS + 1];
    if (!reach_is_near(r, repo, "refs/main") ||
        read_small(r, repo, "refs/main", REACH_LINKS, REF_MAX, &text) < 0 ||
        !commit_parse(text.data, text.len, commit))
        return SIZE_MAX;
    for (size_t i = 0; i < c->names->n; i++)
        if (is_revision(c, i) && strcmp(name_at(c->names, i), commit) == 0)
            return i;
    return SIZE_MAX;
}

static void commits_free(struct reach *r, struct commits *c)
{
    reach_close(&c->dir);
    names_free(r, c->names);
}

static int commits_load(struct reach *r, const struct found *dir, const char *folder,
                        struct commits *ret)
{
    struct found repo = FOUND_NONE;
    bool linked;
    *ret = (struct commits){.dir = FOUND_NONE, .main = SIZE_MAX};
    int e = open_repo(r, dir, folder, &linked, &repo);
    if (e == 0)
        e = reach_open(r, &repo, "snapshots", REACH_NO_LINKS, &ret->dir);
    if (e == 0)
        e = names_load(r, &ret->dir, &ret->names);
    if (e == 0) {
        ret->main = named_main(r, &repo, ret);
        if (ret->main == SIZE_MAX)
            ret->main = newest(r, ret);
    }
    reach_close(&repo);
    return e;
}

/* A look: the commits of a repository, each with its end and, before it, '=' for the main one, else '@'. */
static int look_at_commits(struct reach *r, const struct found *dir, const char *snapshots,
                           struct buf *out)
{
    struct commits c;
    char folder[TREE_NAME_MAX + 1];
    repo_of(snapshots, folder);
    int e = commits_load(r, dir, folder, &c);
    for (size_t i = 0; e == 0 && i < c.names->n; i++) {
        if (!is_revision(&c, i))
            continue;
        buf_char(out, i == c.main ? '=' : '@');
        buf_add(out, name_at(c.names, i), COMMIT_DIGITS + 1);
    }
    commits_free(r, &c);
    return e == 0 ? buf_error(out) : e;
}

int repo_list(struct reach *r, const struct found *dir, const char *folder, const char *name,
              struct listing *ret)
{
    CLEANUP(buf_free) struct buf commits = BUF_INIT;
    char path[TREE_NAME_MAX + 16], shown[TREE_NAME_MAX + COMMIT_DIGITS + 2];
    (void)snprintf(path, sizeof(path), "%s/snapshots", folder);
    int e = look(r, look_at_commits, dir, path, &commits);
    for (size_t at = 0; e == 0 && at < commits.len; at += COMMIT_DIGITS + 2) {
        const char *commit = (const char *)commits.data + at;
        struct ref ref = {.kind = REF_REVISION, .a = folder, .b = commit + 1};
        (void)snprintf(shown, sizeof(shown), "%s%s", name, *commit == '=' ? "" : commit);
        e = listing_add(ret, shown, &ref);
    }
    return is_shortage(e) ? e : 0;
}

/* A revision of one repository: of `commit`, or NULL: the main one. Into *ref, by room. */
static int find_revision(struct reach *r, const struct found *dir, const char *folder,
                         const char *commit, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    struct commits c;
    char *second = room + TREE_NAME_MAX + 1;
    int e = commits_load(r, dir, folder, &c);
    size_t found = e == 0 && !commit ? c.main : SIZE_MAX;
    for (size_t i = 0; e == 0 && commit && i < c.names->n; i++)
        if (is_revision(&c, i) && i != c.main && strcmp(name_at(c.names, i), commit) == 0)
            found = i;
    if (e == 0 && found == SIZE_MAX)
        e = -ENOENT;
    if (e == 0) {
        (void)snprintf(room, TREE_NAME_MAX + 1, "%s", folder);
        (void)snprintf(second, TREE_NAME_MAX + 1, "%s", name_at(c.names, found));
        *ref = (struct ref){.kind = REF_REVISION, .a = room, .b = second};
    }
    commits_free(r, &c);
    return e;
}

int repo_find(struct reach *r, const struct found *dir, const char *org, const char *name,
              char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    char folder[2 * TREE_NAME_MAX + 16];
    const char *at = strrchr(name, '@');
    (void)snprintf(folder, sizeof(folder), PREFIX "%s--%s", org, name);
    if (!at)
        return find_revision(r, dir, folder, NULL, room, ref);
    if (!is_commit(at + 1))
        return -ENOENT;
    (void)snprintf(folder, sizeof(folder), PREFIX "%s--%.*s", org, (int)(at - name), name);
    return find_revision(r, dir, folder, at + 1, room, ref);
}

int repo_item(struct reach *r, const struct place *p, const struct found *dir,
              const struct ref *ref, struct item *ret)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    struct found repo = FOUND_NONE, f = FOUND_NONE;
    struct place below;
    bool linked = false;
    buf_printf(&path, "snapshots/%s", ref->b);
    buf_char(&path, '\0');
    int e = buf_error(&path);
    if (e == 0)
        e = open_repo(r, dir, ref->a, &linked, &repo);
    if (e == 0 && linked && place_goes_round(r, p, repo.path))
        e = -ENOENT;
    if (e == 0)
        e = reach_open(r, &repo, (const char *)path.data, REACH_NO_LINKS, &f);
    f.linked |= linked;
    reach_close(&repo);
    if (e == 0)
        e = place_make(p, PLACE_FOLDER, f.path, NULL, NULL, NULL, &below);
    if (e == 0 && linked && (e = place_follow(p, &below)) < 0)
        place_free(&below);
    if (e < 0) {
        reach_close(&f);
        return e;
    }
    below.store = true;
    return item_folder(p, &f, &below, ret);
}

/* ---- an organisation ---- */

static int list_org(struct reach *r, const struct place *p, const struct found *dir,
                    struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    const struct names *names = NULL;
    char start[TREE_NAME_MAX + 16];
    size_t n = (size_t)snprintf(start, sizeof(start), PREFIX "%s--", p->part[0]);
    int e = names_load(r, dir, &names);
    for (size_t i = e == 0 ? names_from(names, start) : 0; e == 0 && i < names->n; i++) {
        const char *folder = name_at(names, i);
        if (strncmp(folder, start, n) != 0)
            break;
        if (names->name[i].type != DT_UNKNOWN && repo_name(folder, org, name) &&
            (names->name[i].type == DT_DIR || has_repo(r, p, dir, folder)))
            e = repo_list(r, dir, folder, name, ret);
    }
    names_free(r, names);
    return e;
}

static int find_org(struct reach *r, const struct place *p, const struct found *dir,
                    const char *name, char room[2 * (TREE_NAME_MAX + 1)], struct ref *ref)
{
    int e = repo_find(r, dir, p->part[0], name, room, ref);
    return e == -ENAMETOOLONG || e == -ENOTDIR || e == -ELOOP ? -ENOENT : e;
}

const struct store_kind store_org = {list_org, find_org, repo_item};

/* ---- a repository by itself ---- */

static int list_repo(struct reach *r, const struct place *p, const struct found *dir,
                     struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    (void)p;
    return repo_name(strrchr(dir->path, '/') + 1, org, name) ? repo_list(r, dir, ".", name, ret)
                                                             : -ENOENT;
}

const struct store_kind store_repo = {list_repo, NULL, repo_item};
