/* SPDX-License-Identifier: MIT */
/* Owner, group and mode of files that represent several files, checked for all possible callers. No
 * user may read more than the files allow; the daemon's user may read everything. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "tree/attr.h"

#define IDS 3    /* users and groups are 1 to 3; root always has access */
#define GROUPS 8 /* sets of groups, one bit per group */

/* Return whether the kernel's rules grant access. */
static bool may(const struct grant *g, mode_t want, uid_t uid, unsigned groups)
{
    unsigned shift = uid == g->uid ? 6 : groups & 1U << (g->gid - 1) ? 3 : 0;
    return (g->bits >> shift & want) == want;
}

struct caller {
    uid_t uid;
    unsigned groups;
};

static unsigned leaks, shut_out, cases;

/* Check the combined grant of two files served by `self`. */
static void check_pair(const struct grant *a, const struct grant *b, const struct caller *self)
{
    if (self->uid && !(may(a, 4, self->uid, self->groups) && may(b, 4, self->uid, self->groups)))
        return; /* the daemon could not have opened both files */
    const struct grant all = grant_both(a, b, self->uid, 4);
    for (uid_t uid = 1; uid <= IDS; uid++)
        for (unsigned groups = 0; groups < GROUPS; groups++) {
            if (uid == self->uid && groups != self->groups)
                continue;
            cases++;
            leaks += may(&all, 4, uid, groups) &&
                     !(may(a, 4, uid, groups) && may(b, 4, uid, groups)) && uid != self->uid;
            shut_out += uid == self->uid && !may(&all, 4, uid, groups);
        }
}

/* Return combination i of read bits, owner and group. */
static struct grant nth(unsigned i)
{
    mode_t bits = (i & 4) << 6 | (i & 2) << 4 | (i & 1) << 2;
    return (struct grant){.uid = 1 + i / 8 % IDS, .gid = 1 + i / 8 / IDS, .bits = bits};
}
#define NTHS (8 * IDS * IDS)

/* Two files, or a file and its directory, in which each class has all permission bits or none. */
static void test_two(void)
{
    leaks = shut_out = cases = 0;
    for (unsigned i = 0; i < NTHS; i++)
        for (unsigned k = 0; k < NTHS; k++)
            for (struct caller self = {0}; self.uid <= 2; self.uid++)
                for (self.groups = 0; self.groups < GROUPS; self.groups++) {
                    struct grant a = nth(i), b = nth(k);
                    check_pair(&a, &b, &self);
                    b.bits |= b.bits >> 1 | b.bits >> 2;
                    check_pair(&a, &b, &self);
                }
    CU_ASSERT_EQUAL(leaks, 0);
    CU_ASSERT_EQUAL(shut_out, 0);
    CU_ASSERT_TRUE(cases > 200000);
}

static void test_plain(void)
{
    struct right of[] = {{.shown = {7, 8, 0664}}, {.shown = {7, 8, 0644}}, {.shown = {7, 8, 0600}}};
    struct rights r = {.of = of, .n = 2};
    rights_settle(&r);
    CU_ASSERT_EQUAL(r.all.bits, 0644);
    CU_ASSERT_EQUAL(r.names.bits, 0555);
    CU_ASSERT_TRUE(r.all.uid == 7 && r.all.gid == 8);
    const uint64_t hash = r.hash;
    r.n = 3;
    rights_settle(&r);
    CU_ASSERT_EQUAL(r.all.bits, 0600);
    CU_ASSERT_EQUAL(r.names.bits, 0511);
    CU_ASSERT_NOT_EQUAL(r.hash, hash);
    /* Another user's file, which only the daemon may read. */
    of[2].shown = (struct grant){9, 8, 0640};
    rights_settle(&r);
    CU_ASSERT_EQUAL(r.all.uid, geteuid());
    CU_ASSERT_EQUAL(r.all.bits, 0400);
    CU_ASSERT_EQUAL(r.names.bits, 0511);
    of[2].shown.bits = 0644;
    rights_settle(&r);
    CU_ASSERT_EQUAL(r.all.bits, 0444);
}

/* A user that may write through a link keeps write access. */
static void test_writer(void)
{
    const struct grant file = {7, 8, 0660}, folder = {7, 9, 0770};
    const struct grant g = grant_both(&file, &folder, 6, 6);
    CU_ASSERT_EQUAL(g.uid, 6);
    CU_ASSERT_EQUAL(g.bits & 0600, 0600);
    CU_ASSERT_EQUAL(g.bits & 0077, 0);
}

/* ---- files ---- */

/* Write an ACL with entries "tag, permissions, id" as stored in the attribute. */
static size_t acl(uint8_t *dst, const unsigned (*entry)[3], size_t n)
{
    put_u32(dst, 2, false);
    for (size_t i = 0; i < n; i++) {
        put_u16(dst + 4 + 8 * i, (uint16_t)entry[i][0], false);
        put_u16(dst + 6 + 8 * i, (uint16_t)entry[i][1], false);
        put_u32(dst + 8 + 8 * i, entry[i][2], false);
    }
    return 4 + 8 * n;
}

static mode_t bits_of_file(const char *path)
{
    struct rights r = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(rights_add(&r, fd, path, "/tmp", true), 0);
    rights_settle(&r);
    mode_t bits = r.of[0].shown.bits;
    (void)close(fd);
    free(r.of);
    return bits;
}

static void test_acl(void)
{
    static const unsigned entries[][3] = {{1, 6, ~0U},  {2, 0, 4242}, {4, 4, ~0U},
                                          {8, 4, 4343}, {16, 4, ~0U}, {32, 4, ~0U}};
    uint8_t bytes[64];
    char path[] = "/tmp/ggufs-rights-XXXXXX";
    int fd = mkstemp(path);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL(fchmod(fd, 0644), 0);
    CU_ASSERT_EQUAL(bits_of_file(path), 0644);
    size_t n = acl(bytes, entries, 6);
    if (fsetxattr(fd, "system.posix_acl_access", bytes, n, 0) == 0) {
        /* User 4242 has no access, even as a group member. */
        CU_ASSERT_EQUAL(bits_of_file(path), 0600);
        bytes[4 + 8 + 2] = 4;
        CU_ASSERT_EQUAL(fsetxattr(fd, "system.posix_acl_access", bytes, n, 0), 0);
        CU_ASSERT_EQUAL(bits_of_file(path), 0644);
        bytes[4 + 16 + 2] = 0;
        CU_ASSERT_EQUAL(fsetxattr(fd, "system.posix_acl_access", bytes, n, 0), 0);
        CU_ASSERT_EQUAL(bits_of_file(path), 0604);
    }
    (void)close(fd);
    (void)unlink(path);
}

/* Links into a closed directory, to the directory itself, to a missing file and to another file. */
static void test_links(void)
{
    char base[] = "/tmp/ggufs-rights-XXXXXX", inner[64], file[80], link[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(base));
    (void)snprintf(inner, sizeof(inner), "%s/inner", base);
    (void)snprintf(file, sizeof(file), "%s/file", inner);
    (void)snprintf(link, sizeof(link), "%s/link", base);
    CU_ASSERT_EQUAL(mkdir(inner, 0700), 0);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CU_ASSERT_EQUAL(fchmod(fd, 0644), 0);
    CU_ASSERT_EQUAL(symlink("inner/file", link), 0);
    static const struct {
        mode_t folder;
        const char *base; /* relative to the directory of the link */
        mode_t bits;
    } rows[] = {{0700, "", 0600},
                {0711, "", 0644},
                {0710, "", 0640},
                {0700, "/inner", 0644},
                {0700, "/inner/most", 0644},
                {0700, "/innermost", 0600}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rights r = {0};
        char from[64];
        (void)snprintf(from, sizeof(from), "%s%s", base, rows[i].base);
        CU_ASSERT_EQUAL(chmod(inner, rows[i].folder), 0);
        CU_ASSERT_EQUAL(rights_add(&r, fd, link, from, false), 0);
        rights_settle(&r);
        CU_ASSERT_EQUAL(r.of[0].shown.bits, rows[i].bits);
        free(r.of);
    }
    CU_ASSERT_EQUAL(unlink(file), 0);
    const char *const others[] = {link, base, "/proc/version"}; /* paths of another file */
    for (size_t i = 0; i < 3; i++) {
        struct rights r = {0};
        CU_ASSERT_EQUAL(rights_add(&r, fd, others[i], base, false), 0);
        rights_settle(&r);
        CU_ASSERT_EQUAL(r.of[0].shown.bits & 0077, 0);
        free(r.of);
    }
    (void)close(fd);
    (void)unlink(link);
    (void)rmdir(inner);
    (void)rmdir(base);
}

static int file_of(const void *arg, uint32_t i)
{
    return ((const int *)arg)[i];
}

/* Backdate the recorded change times, because two changes within one tick of the file system's
 * clock have the same time. */
static void tick(struct rights *r)
{
    for (size_t i = 0; i < r->n; i++)
        r->of[i].st.st_ctim.tv_sec--;
}

/* One of three files is not open, one has lost its name, and one changes. */
static void test_again(void)
{
    char path[3][32];
    int fd[3];
    struct lock lock;
    struct rights r = {0};
    lock_init(&lock);
    for (int i = 0; i < 3; i++) {
        (void)strcpy(path[i], "/tmp/ggufs-rights-XXXXXX");
        fd[i] = mkstemp(path[i]);
        CU_ASSERT_TRUE_FATAL(fd[i] >= 0);
        CU_ASSERT_EQUAL(fchmod(fd[i], 0644), 0);
        CU_ASSERT_EQUAL(rights_add(&r, fd[i], path[i], "/tmp", i == 0), 0);
    }
    rights_settle(&r);
    CU_ASSERT_FALSE(rights_again(&r, file_of, fd, &lock));
    const int first = fd[0];
    fd[0] = -1;
    CU_ASSERT_EQUAL(chmod(path[0], 0600), 0);
    CU_ASSERT_EQUAL(unlink(path[1]), 0);
    CU_ASSERT_EQUAL(fchmod(fd[1], 0600), 0);
    tick(&r);
    CU_ASSERT_FALSE(rights_again(&r, file_of, fd, &lock));
    CU_ASSERT_EQUAL(chmod(path[2], 0640), 0);
    tick(&r);
    CU_ASSERT_TRUE(rights_again(&r, file_of, fd, &lock));
    CU_ASSERT_EQUAL(r.all.bits, 0640);
    r.of[2].st.st_ino++; /* as if it had been another file with the same rights */
    CU_ASSERT_FALSE(rights_again(&r, file_of, fd, &lock));
    tick(&r); /* no change since the last call */
    CU_ASSERT_FALSE(rights_again(&r, file_of, fd, &lock));
    fd[0] = first;
    tick(&r);
    CU_ASSERT_TRUE(rights_again(&r, file_of, fd, &lock));
    CU_ASSERT_EQUAL(r.all.bits, 0600);
    for (int i = 0; i < 3; i++) {
        (void)close(fd[i]);
        (void)unlink(path[i]);
    }
    CU_ASSERT_EQUAL(rights_add(&r, -1, "/tmp", "/tmp", false), -EBADF);
    free(r.of);
    lock_destroy(&lock);
}

static CU_TestInfo tests[] = {
    {"two files of any owners, groups and modes give the rights of both", test_two},
    {"files of one owner give the common mode", test_plain},
    {"a writer keeps write permission", test_writer},
    {"an ACL grants no more than it states", test_acl},
    {"rights are limited by the directories that links lead through", test_links},
    {"changed rights are noticed", test_again},
    CU_TEST_INFO_NULL,
};

CU_MAIN("rights", tests)
