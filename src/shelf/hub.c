/* SPDX-License-Identifier: MIT */
/* A Hugging Face cache: see hub.h. */
#include "shelf/hub.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/when.h"

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

/* ---- repositories ---- */

/*
 * What is at `path` in the repository `folder` (".": dir itself), or in the one that a link of this name leads to: it
 * was moved. 0, 1 (by a link), -ENOENT (by one that is not to be followed), -errno.
 */
static int open_in(struct reach *r, const struct place *p, const struct found *dir,
                   const char *folder, const char *path, enum reach_flags flags, struct found *ret)
{
    char all[2 * TREE_NAME_MAX];
    struct found repo = FOUND_NONE;
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
    reach_close(&repo);
    return e < 0 ? e : linked;
}

bool hub_has(struct reach *r, const struct place *p, const struct found *dir, const char *folder)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1];
    struct found f = FOUND_NONE;
    bool has = repo_name(folder, org, name) &&
               open_in(r, p, dir, folder, "snapshots", REACH_NO_LINKS, &f) >= 0 &&
               S_ISDIR(f.st.st_mode);
    reach_close(&f);
    return has;
}

/* True if one of the folders that begin so is a repository. */
static bool has_some(struct reach *r, const struct place *p, const struct found *dir,
                     const struct names *names, const char *start)
{
    const size_t n = strlen(start);
    for (size_t i = names_from(names, start); i < names->n; i++) {
        const char *folder = name_at(names, i);
        if (strncmp(folder, start, n) != 0)
            break;
        if (names->name[i].type != DT_UNKNOWN && hub_has(r, p, dir, folder))
            return true;
    }
    return false;
}

bool hub_is(struct reach *r, const struct place *p, const struct found *dir,
            const struct names *names)
{
    return has_some(r, p, dir, names, PREFIX);
}

/* ---- revisions ---- */

static bool is_revision(const struct names *n, size_t i)
{
    return n->name[i].type == DT_DIR && is_commit(name_at(n, i));
}

/* The newest folder of `snapshots`; of several with one time the last name. SIZE_MAX: none. */
static size_t newest(struct reach *r, const struct found *snapshots, const struct names *names)
{
    struct timespec best = {0};
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < names->n; i++) {
        struct found f = FOUND_NONE;
        if (!is_revision(names, i) ||
            reach_open(r, snapshots, name_at(names, i), REACH_NO_LINKS, &f) < 0)
            continue;
        struct timespec t = f.st.st_mtim;
        reach_close(&f);
        if (found == SIZE_MAX || !when_before(&t, &best)) {
            best = t;
            found = i;
        }
    }
    return found;
}

/* The number of the commit that refs/main names, if there is a snapshot of it. */
static size_t named_main(struct reach *r, const struct place *p, const struct found *dir,
                         const char *folder, const struct names *names)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    char commit[COMMIT_DIGITS + 1];
    struct found f = FOUND_NONE;
    size_t i = SIZE_MAX;
    if (open_in(r, p, dir, folder, "refs/main", REACH_LINKS, &f) >= 0 &&
        read_small(&f, REF_MAX, &text) == 0 && commit_parse(text.data, text.len, commit) &&
        names_type(names, commit) == DT_DIR)
        i = names_from(names, commit);
    reach_close(&f);
    return i;
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

int hub_add(struct reach *r, const struct place *p, const struct found *dir, const char *folder,
            const char *name, struct listing *ret)
{
    struct found snapshots = FOUND_NONE;
    const struct names *names = NULL;
    int e = open_in(r, p, dir, folder, "snapshots", REACH_NO_LINKS, &snapshots);
    if (e >= 0)
        e = names_load(r, &snapshots, &names);
    if (e == 0) {
        size_t main = named_main(r, p, dir, folder, names);
        if (main == SIZE_MAX)
            main = newest(r, &snapshots, names);
        e = add_revisions(names, main, folder, name, ret);
    }
    names_free(r, names);
    reach_close(&snapshots);
    return is_shortage(e) ? e : 0;
}

/* ---- the calls ---- */

int hub_list(struct reach *r, const struct place *p, const struct found *dir, const char *wanted,
             struct listing *ret)
{
    char org[TREE_NAME_MAX + 1], name[TREE_NAME_MAX + 1], start[TREE_NAME_MAX + 16];
    const struct names *names = NULL;
    size_t n = (size_t)snprintf(start, sizeof(start), PREFIX "%s--", p->sub);
    int e = names_load(r, dir, &names);
    for (size_t i = e == 0 ? names_from(names, start) : 0; e == 0 && i < names->n; i++) {
        const char *folder = name_at(names, i);
        if (strncmp(folder, start, n) != 0)
            break;
        if (names->name[i].type != DT_UNKNOWN && repo_name(folder, org, name) &&
            name_leads(name, wanted))
            e = hub_add(r, p, dir, folder, name, ret);
    }
    names_free(r, names);
    return e;
}

/* An organisation is shown if it has a repository. */
static int org_item(struct reach *r, const struct place *p, const struct found *dir,
                    const char *org, struct item *ret)
{
    char start[TREE_NAME_MAX + 16];
    const struct names *names = NULL;
    (void)snprintf(start, sizeof(start), PREFIX "%s--", org);
    int e = names_load(r, dir, &names);
    if (e == 0 && !has_some(r, p, dir, names, start))
        e = -ENOENT;
    names_free(r, names);
    if (e < 0)
        return e;
    *ret = (struct item){.kind = ITEM_FOLDER, .st = dir->st, .store = true};
    ret->real = strdup(dir->path);
    ret->above = dir->linked ? 0 : strlen(dir->path);
    e = place_make(p, PLACE_ORG, NULL, org, false, &ret->place);
    if (e < 0 || !ret->real)
        item_free(ret);
    return e < 0 ? e : ret->real ? 0 : -ENOMEM;
}

int hub_item(struct reach *r, const struct place *p, const struct found *dir, const struct ref *ref,
             struct item *ret)
{
    char path[TREE_NAME_MAX];
    struct found f = FOUND_NONE;
    if (ref->kind == REF_ORG)
        return org_item(r, p, dir, ref->a, ret);
    (void)snprintf(path, sizeof(path), "snapshots/%s", ref->b);
    int e = open_in(r, p, dir, ref->a, path, REACH_NO_LINKS, &f);
    if (e >= 0)
        return item_below(r, p, &f, e > 0, true, ret);
    reach_close(&f);
    return e;
}
