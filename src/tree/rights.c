/* SPDX-License-Identifier: MIT */
/* Computes the access rights of the files in the tree: see rights.h. */
#include "tree/rights.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"

#define READ 4U
#define WRITE 2U
#define ALL 7U

/* ---- the rights of a file ---- */

/* The extended attribute that holds an ACL (linux/posix_acl_xattr.h): a version, then entries, all
 * little-endian. */
#define ACL_NAME "system.posix_acl_access"
#define ACL_HEAD 4
#define ACL_ENTRY 8 /* u16 tag, u16 permissions, u32 id */
#define ACL_LARGEST (64 << 10)
enum { ACL_USER = 0x02, ACL_GROUP_OBJ = 0x04, ACL_GROUP = 0x08, ACL_MASK = 0x10 };

/* Return the bits of a file with this ACL. The mode has the mask in place of the group's bits, and
 * a user named in the ACL may be in the group or among all others. */
static mode_t acl_bits(const uint8_t *acl, size_t n, mode_t mode)
{
    mode_t mask = ALL, group = mode >> 3 & ALL, named = ALL;
    for (size_t at = ACL_HEAD; at + ACL_ENTRY <= n; at += ACL_ENTRY) {
        unsigned tag = get_u16(acl + at, false), perm = get_u16(acl + at + 2, false) & ALL;
        if (tag == ACL_USER || tag == ACL_GROUP)
            named &= perm;
        else if (tag == ACL_GROUP_OBJ)
            group = perm;
        else if (tag == ACL_MASK)
            mask = perm;
    }
    named &= mask;
    return (mode & 0700) | (group & named) << 3 | (mode & named);
}

/* Return the bits of a file given by descriptor or, if not NULL, by path. If the file has no ACL,
 * they are those of the mode. */
static mode_t bits_of(int fd, const char *path, mode_t mode)
{
    uint8_t *acl = malloc(ACL_LARGEST);
    if (!acl)
        return mode & 0700;
    char by_fd[64]; /* attributes cannot be read from an O_PATH descriptor itself */
    (void)snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
    ssize_t n = getxattr(path ? path : by_fd, ACL_NAME, acl, ACL_LARGEST);
    mode_t bits = n > 0 ? acl_bits(acl, (size_t)n, mode) : mode & 0777;
    free(acl);
    return bits;
}

static mode_t everyone(mode_t bits)
{
    return bits >> 6 & bits >> 3 & bits & ALL;
}

static bool is_same(const struct grant *a, const struct grant *b)
{
    return a->uid == b->uid && a->gid == b->gid;
}

struct grant grant_both(const struct grant *a, const struct grant *b, uid_t self, mode_t known)
{
    const mode_t all = everyone(a->bits) & everyone(b->bits);
    if (is_same(a, b))
        return (struct grant){a->uid, a->gid, a->bits & b->bits};
    if (everyone(b->bits) == ALL)
        return *a;
    return (struct grant){self, a->gid, (all | known) << 6 | all << 3 | all};
}

/* Returns true if the directory named by the first n bytes is `base` or leads to it. */
static bool leads_to(const char *folder, size_t n, const char *base)
{
    return strncmp(folder, base, n) == 0 && (base[n] == '/' || base[n] == '\0');
}

/* Return the slash after the next directory above a real path, skipping those that lead to base
 * (the root always does). Returns NULL if there are no more. */
static char *next_folder(const char *real, const char *slash, const char *base)
{
    do
        slash = strchr(slash + 1, '/');
    while (slash && leads_to(real, (size_t)(slash - real), base));
    return (char *)slash;
}

/*
 * Restrict *way, the rights that the directories above a file grant, by one more directory. A class
 * that may search it has all bits. If `path` does not exist, the directory was removed or moved,
 * and only the file's owner has bits.
 */
static void add_folder(struct grant *way, const char *path, const struct stat *file)
{
    struct stat st;
    struct grant g = {file->st_uid, file->st_gid, 0700};
    if (stat(path, &st) == 0) {
        mode_t x = bits_of(-1, path, st.st_mode) & 0111;
        g = (struct grant){st.st_uid, st.st_gid, x | x << 1 | x << 2};
    }
    *way = grant_both(way, &g, geteuid(), ALL);
}

/* Return the rights that the directories above a file grant; `real` is NULL if its path is unknown.
 * If the path is too long, its last directory is not found. */
static struct grant grant_of_way(const char *real, const char *base, const struct stat *file)
{
    char path[PATH_MAX];
    struct grant way = {file->st_uid, file->st_gid, 0777};
    if (!real)
        add_folder(&way, "", file);
    (void)snprintf(path, sizeof(path), "%s", real ? real : "");
    for (char *slash = path; *slash && (slash = next_folder(path, slash, base));) {
        *slash = '\0';
        add_folder(&way, path, file);
        *slash = '/';
    }
    return way;
}

static struct grant grant_of(int fd, const struct stat *st, const struct grant *way, mode_t known)
{
    const struct grant g = {st->st_uid, st->st_gid, bits_of(fd, NULL, st->st_mode)};
    return grant_both(&g, way, geteuid(), known);
}

struct grant grant_of_real(int fd, const struct stat *st, const char *real, const char *base)
{
    const struct grant way = grant_of_way(real, base, st);
    return grant_of(fd, st, &way, READ);
}

/* ---- the shown rights ---- */

static mode_t known_of(const struct rights *r, size_t i)
{
    return i == 0 && r->writable ? READ | WRITE : READ;
}

static void note(struct rights *r, size_t i, int fd, const struct stat *st)
{
    struct right *x = &r->of[i];
    x->id = (struct right_id){st->st_dev, st->st_ino, st->st_ctim.tv_sec, st->st_ctim.tv_nsec};
    x->shown = grant_of(fd, st, &x->way, known_of(r, i));
}

int rights_add(struct rights *r, int fd, const char *path, const char *base, bool writable)
{
    struct stat st, there = {0};
    if (fstat(fd, &st) < 0)
        return -errno;
    int e = array_grow(&r->of, &r->cap, r->n, sizeof(*r->of));
    if (e < 0)
        return e;
    char *real = realpath(path, NULL);
    (void)stat(path, &there);
    const bool same = there.st_dev == st.st_dev && there.st_ino == st.st_ino;
    r->writable |= writable;
    r->of[r->n].way = grant_of_way(same ? real : NULL, base, &st);
    note(r, r->n++, fd, &st);
    free(real);
    return 0;
}

static uint64_t hash_grant(uint64_t before, const struct grant *g)
{
    const uint64_t all[] = {before, g->uid, g->gid, g->bits};
    return hash_name((const void *)all, sizeof(all));
}

void rights_settle(struct rights *r)
{
    const struct grant *own = &r->of[0].shown;
    r->all = *own;
    r->hash = 0;
    for (size_t i = 0; i < r->n; i++) {
        r->all = i ? grant_both(&r->all, &r->of[i].shown, geteuid(), READ) : r->all;
        r->hash = hash_grant(r->hash, &r->of[i].shown);
    }
    const mode_t search = is_same(own, &r->all) ? own->bits : READ << 6 | everyone(own->bits) * 011;
    r->names = r->all;
    r->names.bits = (r->all.bits & 0444) | (search & 0444) >> 2;
    r->hash = hash_grant(hash_grant(r->hash, &r->all), &r->names);
}

/* ---- the current rights ---- */

/* Returns true if the file was not changed or no longer has a name; its rights are then the same as
 * before. */
static bool is_as_before(const struct right *was, int fd, struct stat *st)
{
    if (fstat(fd, st) < 0 || st->st_nlink == 0)
        return true;
    const struct right_id now = {st->st_dev, st->st_ino, st->st_ctim.tv_sec, st->st_ctim.tv_nsec};
    return memcmp(&was->id, &now, sizeof(now)) == 0;
}

bool rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file), const void *arg,
                  struct lock *lock)
{
    struct stat st;
    const uint64_t before = r->hash;
    bool changed = false;
    for (size_t i = 0; i < r->n; i++) {
        const int file = fd(arg, (uint32_t)i);
        if (is_as_before(&r->of[i], file, &st))
            continue;
        struct rights one = {
            .of = &(struct right){.way = r->of[i].way}, .n = 1, .writable = i == 0 && r->writable};
        note(&one, 0, file, &st); /* this accesses the disk */
        LOCKED(lock);
        r->of[i] = one.of[0];
        changed = true;
    }
    if (!changed)
        return false;
    LOCKED(lock);
    rights_settle(r);
    return r->hash != before;
}

void rights_free(struct rights *r)
{
    free(r->of);
    *r = RIGHTS_INIT;
}
