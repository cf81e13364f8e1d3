/* SPDX-License-Identifier: MIT */
/* Access rights of the files of the tree: see rights.h. */
#include "tree/rights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/when.h"

#define READ 4U
#define WRITE 2U
#define ALL 7U

/* Seconds after which a change is known to have another time than the next one. */
#define SETTLED 2

/* ---- what a file gives ---- */

/* The attribute of an ACL (linux/posix_acl_xattr.h): a version, then entries; little-endian. */
#define ACL_NAME "system.posix_acl_access"
#define ACL_HEAD 4
#define ACL_ENTRY 8 /* u16 tag, u16 permissions, u32 id */
#define ACL_LARGEST (64 << 10)
enum { ACL_USER = 0x02, ACL_GROUP_OBJ = 0x04, ACL_GROUP = 0x08, ACL_MASK = 0x10 };

/*
 * The bits of a file with this ACL. Its mode has the mask in the place of the group's bits; and one
 * that is named in it may be in the group, or among all others.
 */
static mode_t acl_bits(const uint8_t *acl, size_t n, mode_t mode)
{
    mode_t mask = ALL, group = mode >> 3 & ALL, named = ALL;
    for (size_t at = ACL_HEAD; n >= ACL_ENTRY && at <= n - ACL_ENTRY; at += ACL_ENTRY) {
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

/* An ACL is read by descriptor or by path. Without one, the mode decides. */
static mode_t bits_of(int fd, const char *path, mode_t mode)
{
    uint8_t *acl = malloc(ACL_LARGEST);
    if (!acl)
        return mode & 0700;
    char by_fd[64]; /* a descriptor that is O_PATH has no attributes itself */
    (void)snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
    ssize_t n = getxattr(path ? path : by_fd, ACL_NAME, acl, ACL_LARGEST);
    mode_t bits = n > 0 ? acl_bits(acl, (size_t)n, mode) : mode & 0777;
    free(acl);
    return bits;
}

static int add(struct rights *r, const struct grant *g)
{
    int e = array_grow(&r->grant, &r->cap, r->n, sizeof(*r->grant));
    if (e == 0)
        r->grant[r->n++] = *g;
    return e;
}

/* Every class that may search has all bits, to be folded with what a file gives. */
static mode_t search_bits(mode_t bits)
{
    mode_t x = bits & 0111;
    return x | x << 1 | x << 2;
}

static int add_folder(struct rights *r, const char *path, const struct stat *file)
{
    struct stat st;
    struct grant g = {.folder = true, .file = r->files};
    if (stat(path, &st) == 0) {
        g.uid = st.st_uid;
        g.gid = st.st_gid;
        g.bits = search_bits(bits_of(-1, path, st.st_mode));
    } else { /* gone, or moved: only the file's owner may */
        g.uid = file->st_uid;
        g.gid = file->st_gid;
        g.bits = 0700;
    }
    return add(r, &g);
}

/* True if the folder of n bytes is `base`, or one that leads there. */
static bool leads_to(const char *folder, size_t n, const char *base)
{
    return strncmp(folder, base, n) == 0 && (base[n] == '/' || base[n] == '\0');
}

/* The slash behind the next folder above a real path, but those that lead to base; the root leads everywhere.
 * NULL: no more. */
static char *next_folder(const char *real, const char *slash, const char *base)
{
    do
        slash = strchr(slash + 1, '/');
    while (slash && leads_to(real, (size_t)(slash - real), base));
    return (char *)slash;
}

static int add_folders(struct rights *r, char *real, const char *base, const struct stat *file)
{
    int e = 0;
    for (char *slash = real; e == 0 && (slash = next_folder(real, slash, base));) {
        *slash = '\0';
        e = add_folder(r, real, file);
        *slash = '/';
    }
    return e;
}

static struct rights_of of_stat(const struct stat *st)
{
    return (struct rights_of){st->st_dev, st->st_ino, st->st_ctim};
}

static struct grant grant_of(int fd, const struct stat *st, uint32_t file)
{
    return (struct grant){
        .uid = st->st_uid, .gid = st->st_gid, .bits = bits_of(fd, NULL, st->st_mode), .file = file};
}

/* Room for one more. */
static int add_of(struct rights *r, const struct stat *st)
{
    struct rights_of *of = realloc(r->of, (r->files + (size_t)1) * sizeof(*of));
    if (!of)
        return -ENOMEM;
    r->of = of;
    of[r->files] = of_stat(st);
    return 0;
}

/* real NULL: nobody knows where it is. */
static int add_file(struct rights *r, int fd, const struct stat *st, char *real, const char *base)
{
    const struct grant g = grant_of(fd, st, r->files);
    int e = add_of(r, st);
    if (e == 0)
        e = add(r, &g);
    if (e == 0)
        e = real ? add_folders(r, real, base, st) : add_folder(r, "", st);
    if (e == 0)
        r->files++;
    return e;
}

int rights_add(struct rights *r, int fd, const char *path, const char *base)
{
    struct stat st, there;
    if (fstat(fd, &st) < 0)
        return -errno;
    char *real = realpath(path, NULL);
    bool same =
        real && stat(real, &there) == 0 && there.st_dev == st.st_dev && there.st_ino == st.st_ino;
    int e = add_file(r, fd, &st, same ? real : NULL, base);
    free(real);
    return e;
}

int rights_add_real(struct rights *r, int fd, const char *real, const char *base)
{
    struct stat st;
    char *path = strdup(real);
    int e = !path ? -ENOMEM : fstat(fd, &st) < 0 ? -errno : add_file(r, fd, &st, path, base);
    free(path);
    return e;
}

/* With what was hashed before. 0: it was changed so lately that the next change may have the same time. */
static uint64_t stamp(uint64_t before, const struct stat *st)
{
    const uint64_t all[] = {before, st->st_dev, st->st_ino, (uint64_t)st->st_ctim.tv_sec,
                            (uint64_t)st->st_ctim.tv_nsec};
    return st->st_ctim.tv_sec + SETTLED >= when_date().tv_sec
               ? 0
               : hash_name((const void *)all, sizeof(all));
}

uint64_t rights_stamp(const struct stat *file, const char *real, const char *base)
{
    struct stat st;
    uint64_t all = stamp(1, file);
    char *path = all ? strdup(real) : NULL;
    for (char *slash = path; all && path && (slash = next_folder(path, slash, base));) {
        *slash = '\0';
        all = stat(path, &st) == 0 ? stamp(all, &st) : 0;
        *slash = '/';
    }
    all = path ? all : 0;
    free(path);
    return all;
}

void rights_free(struct rights *r)
{
    free(r->of);
    free(r->grant);
    free(r->file);
    *r = RIGHTS_INIT;
}

/* ---- what is shown ---- */

/* What one grant gives to the classes of a tree of this owner and group. */
static mode_t give(const struct grant *g, uid_t uid, gid_t gid, uid_t self, mode_t known)
{
    mode_t owner = g->bits >> 6 & ALL, group = g->bits >> 3 & ALL, other = g->bits & ALL;
    mode_t either = group & other; /* of a caller who may be in the group, or not */
    mode_t first = uid == g->uid ? owner : uid == self ? either | known : either;
    mode_t second = gid == g->gid ? group : either;
    mode_t third = gid == g->gid ? other : either;
    if (uid != g->uid) { /* among these may be the file's owner */
        second &= owner;
        third &= owner;
    }
    return first << 6 | second << 3 | third;
}

/* Bits for these owner and group that no grant of the list denies. */
static mode_t fold(const struct grant *list, size_t n, uid_t uid, gid_t gid, uid_t self,
                   mode_t known)
{
    mode_t bits = 0777;
    for (size_t i = 0; i < n; i++)
        bits &= give(&list[i], uid, gid, self, list[i].folder ? ALL : known);
    return bits;
}

/* Whether all files of a list, which begins with one, have one owner. */
static bool one_owner(const struct grant *list, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (!list[i].folder && list[i].uid != list[0].uid)
            return false;
    return true;
}

/*
 * The owner is that of the files. It is the daemon's user where they have several, or where that
 * user's right to read would not be certain otherwise.
 */
static struct grant shown(const struct grant *list, size_t n, uid_t self, mode_t known)
{
    struct grant g = list[0];
    if (n == 1)
        return g;
    g.uid = one_owner(list, n) ? g.uid : self;
    g.bits = fold(list, n, g.uid, g.gid, self, known);
    bool certain = g.uid == self || self == 0 || (g.bits & 0044) == 0044;
    if (!certain) {
        g.uid = self;
        g.bits = fold(list, n, g.uid, g.gid, self, known);
    }
    return g;
}

/* The grants of file number i: [*first, *end). */
static void range_of(const struct rights *r, uint32_t i, size_t *first, size_t *end)
{
    while (*first < r->n && r->grant[*first].file < i)
        ++*first;
    *end = *first;
    while (*end < r->n && r->grant[*end].file == i)
        ++*end;
}

static uint64_t hash_grant(uint64_t before, const struct grant *g)
{
    const uint64_t all[] = {before, g->uid, g->gid, g->bits};
    return hash_name((const void *)all, sizeof(all));
}

int rights_settle(struct rights *r, uid_t self, bool writable)
{
    mode_t known = READ | (writable ? WRITE : 0);
    size_t first = 0, end = 0;
    r->self = self;
    r->writable = writable;
    r->file = calloc(r->files, sizeof(*r->file));
    if (!r->file)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->files; i++, first = end) {
        range_of(r, i, &first, &end);
        r->file[i] = shown(r->grant + first, end - first, self, i == 0 ? known : READ);
    }
    first = 0;
    range_of(r, 0, &first, &end);
    r->own = r->file[0];
    r->all = shown(r->grant, r->n, self, READ);
    r->names = r->all;
    mode_t search = fold(r->grant, end, r->all.uid, r->all.gid, self, READ);
    r->names.bits = (r->all.bits & 0444) | (search & 0444) >> 2;
    r->hash = hash_grant(hash_grant(hash_grant(0, &r->own), &r->all), &r->names);
    for (uint32_t i = 0; i < r->files; i++)
        r->hash = hash_grant(r->hash, &r->file[i]);
    return 0;
}

/* ---- as they are now ---- */

static int copy_of(const struct rights *r, struct rights *ret)
{
    *ret = RIGHTS_INIT;
    ret->grant = malloc(r->n * sizeof(*ret->grant));
    if (!ret->grant)
        return -ENOMEM;
    memcpy(ret->grant, r->grant, r->n * sizeof(*ret->grant));
    ret->n = ret->cap = r->n;
    ret->files = r->files;
    return 0;
}

/* True if nobody changed this file, or it has no name any more: then its rights are those of before. */
static bool is_as_before(const struct rights_of *was, int fd, struct stat *st)
{
    if (fd < 0 || fstat(fd, st) < 0 || st->st_nlink == 0)
        return true;
    return was->dev == st->st_dev && was->ino == st->st_ino &&
           was->ctime.tv_sec == st->st_ctim.tv_sec && was->ctime.tv_nsec == st->st_ctim.tv_nsec;
}

int rights_again(struct rights *r, int (*fd)(const void *arg, uint32_t file), const void *arg,
                 struct rights *ret)
{
    struct rights now = RIGHTS_INIT;
    struct stat st;
    int e = 0;
    for (size_t i = 0, g = 0; i < r->files && e == 0; i++) {
        while (r->grant[g].file < i)
            g++;
        int file = fd(arg, (uint32_t)i);
        if (is_as_before(&r->of[i], file, &st))
            continue;
        if (!now.grant)
            e = copy_of(r, &now);
        if (e == 0)
            now.grant[g] = grant_of(file, &st, (uint32_t)i);
        if (e == 0)
            r->of[i] = of_stat(&st);
    }
    if (e == 0 && now.grant)
        e = rights_settle(&now, r->self, r->writable);
    if (e == 0 && now.grant && now.hash != r->hash) {
        now.of = r->of;
        r->of = NULL;
        *ret = now;
        return 1;
    }
    rights_free(&now);
    *ret = RIGHTS_INIT;
    return e;
}
