/* SPDX-License-Identifier: MIT */
/* What identifies an item: see identity.h. */
#include "shelf/identity.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/split.h"
#include "tree/tree.h"

/* ---- rights ---- */

/* Rights of i->real, where it is. False if they cannot be found out: then the owner alone has them. */
static bool grant_at(struct reach *r, const struct item *i, const char *base, struct grant *ret)
{
    struct rights all = RIGHTS_INIT;
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    bool known = reach_again(r, i->real, &f) == 0 &&
                 rights_add_real(&all, f.fd, i->real, base) == 0 &&
                 rights_settle(&all, geteuid(), false) == 0;
    *ret = known ? all.own : (struct grant){.uid = i->st.st_uid, .gid = i->st.st_gid, .bits = 0700};
    rights_free(&all);
    return known;
}

void granted_look(struct reach *r, const struct item *i, struct granted *g)
{
    if (!i->real) { /* nothing is behind it but a link, and a line that says why */
        *g = (struct granted){.grant = {i->st.st_uid, i->st.st_gid, 0777, false, 0}};
        return;
    }
    char *above =
        i->above ? strndup(i->real, i->above) : NULL; /* what leads there is shown itself */
    const char *base = above ? above : r->path;
    const uint64_t stamp = above || !i->above ? rights_stamp(&i->st, i->real, base) : 0;
    if (!stamp || stamp != g->stamp) /* a look that failed is repeated */
        g->stamp = grant_at(r, i, base, &g->grant) ? stamp : 0;
    free(above);
}

/* ---- what is there ---- */

/* One file, with those before it. 0, -ENOMEM. */
static int stamp_file(struct reach *r, const struct found *dir, const char *name, uint64_t *stamp)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    int is = name ? reach_open(r, dir, name, REACH_LINKS, &f) : -ENOMEM;
    if (is == -ENOMEM || is == -EMFILE || is == -ENFILE) /* this says nothing of the file */
        return is;
    *stamp = tree_identity_with(*stamp, is == 0 ? &f.st : &(struct stat){.st_size = is});
    return 0;
}

/* The number of the file of a split model that is `first`, or the next one that the folder has;
 * `shards`: no more of them. Names between them that only look similar are passed over. */
static size_t next_shard(const struct names *names, const char *first, size_t shards)
{
    size_t n = strlen(first) - SPLIT_TAIL;
    for (size_t at = names_from(names, first); at < names->n; at++) {
        const char *name = name_at(names, at);
        if (strncmp(name, first, n + 1) != 0)
            break;
        if (strlen(name) == n + SPLIT_TAIL && split_count(name) == shards)
            return strtoul(name + n + 1, NULL, 10) - 1; /* it has five digits, and is not 0 */
    }
    return shards;
}

/* The files of a split model. Its name may stand for many more files than there are: those are not
 * looked for. */
static int stamp_split(struct reach *r, const struct found *dir, const char *name, size_t shards,
                       uint64_t *stamp)
{
    CLEANUP(names_free) const struct names *names = NULL;
    int e = names_load(r, dir, &names);
    if (e < 0 && e != -ENOMEM)
        e = 0; /* it may be searched, but not read */
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
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    CLEANUP(reach_close) struct found dir = FOUND_NONE;
    int e = folder ? reach_again(r, folder, &dir) : -ENOMEM;
    *ret = 0;
    if (e == 0)
        e = shards ? stamp_split(r, &dir, slash + 1, shards, ret)
                   : stamp_file(r, &dir, slash + 1, ret);
    free(folder);
    return e;
}

int item_stamp(struct reach *r, const struct item *i, uint64_t *ret)
{
    if (i->shards || i->error.code)
        return files_stamp(r, item_files(i), i->shards, ret);
    *ret = i->kind == ITEM_FOLDER ? 0 : tree_identity_with(0, &i->st);
    return 0;
}

bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* ---- where it is ---- */

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
