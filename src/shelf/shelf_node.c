/* SPDX-License-Identifier: MIT */
/* Entries of a shelf's own nodes, of models' folders, and of what is extra in them: see internal.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "model/split.h"
#include "shelf/internal.h"

/* Owner, group and bits, if options do not give others. */
static void set_rights(const struct shelf *s, const struct grant *g, mode_t mask,
                       struct tree_entry *e)
{
    const struct tree_options *o = &s->opt.tree;
    mode_t from = o->set_umask ? 0777 & ~o->umask : g->bits;
    if (mask == 0444 && !o->set_umask && g->uid == geteuid())
        from |= 0400; /* why the user's own model cannot be read, is to be read */
    e->attr.st_uid = o->set_uid ? o->uid : g->uid;
    e->attr.st_gid = o->set_gid ? o->gid : g->gid;
    e->attr.st_mode |= from & mask;
    if (S_ISDIR(e->attr.st_mode) && mask == 0444)
        e->attr.st_mode |= (from & 0444) >> 2;
}

static struct tree_entry plain_entry(uint64_t node, mode_t type, const struct stat *st,
                                     uint64_t size)
{
    return (struct tree_entry){.node = node,
                               .attr = {.st_ino = node,
                                        .st_mode = type,
                                        .st_nlink = type == S_IFDIR ? 2 : 1,
                                        .st_size = (off_t)size,
                                        .st_blocks = (blkcnt_t)((size + 511) / 512),
                                        .st_blksize = 4096,
                                        .st_atim = st->st_mtim,
                                        .st_mtim = st->st_mtim,
                                        .st_ctim = st->st_mtim}};
}

int own_entry(struct shelf *s, uint32_t number, struct tree_entry *ret)
{
    struct stat st;
    struct grant g;
    struct own *n = own_use(&s->owns, number);
    if (!n)
        return -ESTALE;
    own_facts(&s->owns, &s->reach, n, &st, &g);
    bool folder = n->kind == ITEM_FOLDER;
    *ret = plain_entry(number, folder ? S_IFDIR : S_IFREG, &st, folder ? 0 : (uint64_t)st.st_size);
    ret->attr.st_ino = n->ino;
    ret->steady = ret->slow = folder;
    set_rights(s, &g, folder ? 0777 : 0444, ret);
    own_leave(&s->owns, n);
    return 0;
}

/* What is known of a slot without opening it. */
static int facts_of(struct shelf *s, uint32_t number, struct use *u, struct stat *st,
                    struct grant *g)
{
    int r = slot_hold(&s->slots, number, u);
    if (r == 0)
        slot_facts(&s->slots, u, st, g);
    return r;
}

int model_entry(struct shelf *s, uint32_t slot, struct tree_entry *ret)
{
    struct use u;
    struct stat st;
    struct grant g;
    int r = facts_of(s, slot, &u, &st, &g);
    if (r < 0)
        return r;
    *ret = plain_entry(ino_in_slot(slot, INO_ROOT), S_IFDIR, &st, 0);
    ret->attr.st_nlink += u.slot->shards ? 3 : 2; /* metadata, tensors, source */
    set_rights(s, &g, 0444, ret);
    ret->steady = true;
    at_leave(s, &u);
    return 0;
}

/* ---- source and error ---- */

static char *shard_name(const struct slot *slot, size_t i)
{
    return split_sibling(strrchr(slot_files(slot), '/') + 1, i, slot->shards);
}

/* Where source, or one of the links in it, leads. */
int source_target(struct shelf *s, const struct slot *slot, uint32_t extra, struct buf *out)
{
    struct found dir = FOUND_NONE, f = FOUND_NONE;
    if (!slot->shards) {
        buf_str(out, slot->real ? slot->real : slot->path);
        return buf_error(out);
    }
    const char *path = slot_files(slot), *slash = strrchr(path, '/');
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    char *name = shard_name(slot, extra - EXTRA_SHARDS);
    int r = !folder || !name ? -ENOMEM : reach_again(&s->reach, folder, &dir);
    if (r == 0)
        r = reach_open(&s->reach, &dir, name, REACH_LINKS, &f);
    if (r == 0)
        buf_str(out, f.path);
    else if (r != -ENOMEM)
        buf_printf(out, "%s/%s", slash == path ? "" : folder, name);
    reach_close(&f);
    reach_close(&dir);
    free(folder);
    free(name);
    return r == -ENOMEM ? r : buf_error(out);
}

int model_error(struct shelf *s, uint32_t slot, struct buf *out)
{
    struct use u;
    struct err e = {0};
    int r = slot_use(&s->slots, slot, &u, &e);
    if (r == 0)
        at_leave(s, &u);
    if (r == 0 || r == -ESTALE || r == -ENOMEM)
        return r;
    buf_printf(out, "%s\n", e.msg);
    return buf_error(out) ? buf_error(out) : 1;
}

int extra_entry(struct shelf *s, uint32_t slot, uint32_t extra, struct tree_entry *ret)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct use u;
    struct stat st;
    struct grant g;
    int r = facts_of(s, slot, &u, &st, &g);
    if (r < 0)
        return r;
    bool folder = extra == EXTRA_SOURCE && u.slot->shards;
    if (extra == EXTRA_ERROR)
        r = model_error(s, slot, &text);
    else if (!folder)
        r = extra >= EXTRA_SHARDS && extra - EXTRA_SHARDS >= u.slot->shards
                ? -ESTALE
                : source_target(s, u.slot, extra, &text);
    if (extra == EXTRA_ERROR)
        r = r == 1 ? 0 : r == 0 ? -ENOENT : r;
    mode_t type = folder ? S_IFDIR : extra == EXTRA_ERROR ? S_IFREG : S_IFLNK | 0777;
    *ret = plain_entry(ino_in_slot(slot, extra_ino(extra)), type, &st, text.len);
    if (folder || extra == EXTRA_ERROR)
        set_rights(s, &g, 0444, ret);
    at_leave(s, &u);
    return r;
}

uint32_t extra_at(const struct slot *slot, uint32_t extra, bool broken, size_t i,
                  char name[TREE_NAME_MAX + 1])
{
    if (extra != EXTRA_SOURCE) {
        (void)strcpy(name, i ? "error" : "source");
        return i == 0 ? EXTRA_SOURCE : i == 1 && broken ? EXTRA_ERROR : 0;
    }
    char *shard = i < slot->shards ? shard_name(slot, i) : NULL;
    if (!shard)
        return 0;
    (void)name_encode(shard, strlen(shard), name);
    free(shard);
    return EXTRA_SHARDS + (uint32_t)i;
}

/* The number of the shard that a name in `source` is of; the number of shards: of none. */
size_t extra_shard(const struct slot *slot, const char *name)
{
    char shown[TREE_NAME_MAX + 1];
    size_t n = strlen(name), i = slot->shards;
    if (n > SPLIT_TAIL)
        i = strtoul(name + n - SPLIT_TAIL + 1, NULL, 10) - 1;
    char *shard = i < slot->shards ? shard_name(slot, i) : NULL;
    if (shard)
        (void)name_encode(shard, strlen(shard), shown);
    bool is = shard && strcmp(shown, name) == 0;
    free(shard);
    return is ? i : slot->shards;
}

int item_entry(struct shelf *s, struct item *i, struct tree_entry *ret)
{
    uint32_t number;
    int r;
    if (i->kind == ITEM_MODEL) {
        r = slot_of(&s->slots, i, &number);
        if (r == 0)
            r = model_entry(s, number, ret);
    } else {
        r = own_of(&s->owns, &s->reach, i, &number);
        if (r == 0)
            r = own_entry(s, number, ret);
    }
    item_free(i);
    return r;
}
