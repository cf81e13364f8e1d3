/* SPDX-License-Identifier: MIT */
/* edit/commit.h: copying attributes between files, with a table of simulated system calls. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "cu_main.h"
#include "edit/commit.h"

enum { FROM, TO, FILES, MOST = 4 };

/* The attributes of two files, and the errors that failing calls return. */
static struct {
    struct {
        const char *name[MOST], *value[MOST]; /* NULL: a free slot */
        uid_t uid;
        gid_t gid;
        mode_t mode;
        bool owned; /* the file's owner was changed */
    } file[FILES];
    int no_list[FILES], no_get, no_set, no_remove, no_own, no_mode, no_stat;
    unsigned sets;
    bool grows; /* a list or value grows between being measured and being read */
    bool grown;
} now;

static int my_stat(const struct sys *s, int fd, struct stat *ret)
{
    (void)s;
    *ret = (struct stat){.st_uid = now.file[fd].uid, .st_gid = now.file[fd].gid};
    return now.no_stat;
}

static int my_chown(const struct sys *s, int fd, uid_t uid, gid_t gid)
{
    (void)s;
    now.file[fd].owned = true;
    now.file[fd].uid = uid;
    now.file[fd].gid = gid;
    return now.no_own;
}

static int my_chmod(const struct sys *s, int fd, mode_t mode)
{
    (void)s;
    now.file[fd].mode = mode;
    return now.no_mode;
}

static ssize_t answer(const char *text, size_t len, void *dst, size_t n)
{
    if (!dst)
        return (ssize_t)(now.grows && !now.grown ? 0 : len);
    if (now.grows && !now.grown) { /* longer than measured, but only once */
        now.grown = true;
        return -ERANGE;
    }
    if (n < len)
        return -ERANGE;
    memcpy(dst, text, len);
    return (ssize_t)len;
}

static ssize_t my_list(const struct sys *s, int fd, char *dst, size_t n)
{
    char names[64] = "";
    size_t len = 0;
    (void)s;
    for (int i = 0; i < MOST; i++)
        if (now.file[fd].name[i])
            len +=
                (size_t)snprintf(names + len, sizeof(names) - len, "%s", now.file[fd].name[i]) + 1;
    return now.no_list[fd] ? now.no_list[fd] : answer(names, len, dst, n);
}

static int place_of(int fd, const char *name)
{
    for (int i = 0; i < MOST; i++)
        if (now.file[fd].name[i] && strcmp(now.file[fd].name[i], name) == 0)
            return i;
    return -1;
}

static ssize_t my_get(const struct sys *s, int fd, const char *name, void *dst, size_t n)
{
    int i = place_of(fd, name);
    (void)s;
    if (now.no_get && fd == FROM)
        return now.no_get;
    return i < 0 ? -ENODATA : answer(now.file[fd].value[i], strlen(now.file[fd].value[i]), dst, n);
}

static int my_set(const struct sys *s, int fd, const char *name, const void *value, size_t n)
{
    static char kept[MOST][2][16];
    int i = place_of(fd, name);
    (void)s;
    now.sets++;
    if (now.no_set)
        return now.no_set;
    for (int k = 0; i < 0 && k < MOST; k++)
        i = now.file[fd].name[k] ? -1 : k;
    (void)snprintf(kept[i][0], 16, "%s", name);
    (void)snprintf(kept[i][1], 16, "%.*s", (int)n, (const char *)value);
    now.file[fd].name[i] = kept[i][0];
    now.file[fd].value[i] = kept[i][1];
    return 0;
}

static int my_remove(const struct sys *s, int fd, const char *name)
{
    (void)s;
    if (now.no_remove)
        return now.no_remove;
    now.file[fd].name[place_of(fd, name)] = NULL;
    return 0;
}

static const struct sys calls = {.fstat = my_stat,
                                 .fchown = my_chown,
                                 .fchmod = my_chmod,
                                 .flistxattr = my_list,
                                 .fgetxattr = my_get,
                                 .fsetxattr = my_set,
                                 .fremovexattr = my_remove};

static void begin(void)
{
    memset(&now, 0, sizeof(now));
    now.file[FROM].name[0] = "user.a";
    now.file[FROM].value[0] = "one";
    now.file[FROM].name[1] = "user.ab";
    now.file[FROM].value[1] = "";
    now.file[TO].name[0] = "user.b";
    now.file[TO].value[0] = "x";
    now.file[TO].uid = 7;
    now.file[TO].gid = 8;
}

static int copy(struct err *e)
{
    const struct stat st = {.st_uid = 7, .st_gid = 8, .st_mode = S_IFREG | 06640};
    *e = (struct err){0};
    return attr_copy(&calls, FROM, &st, TO, e);
}

static bool has(const char *name, const char *value)
{
    int i = place_of(TO, name);
    return i >= 0 && strcmp(now.file[TO].value[i], value) == 0;
}

static void test_copy(void)
{
    struct err e;
    begin();
    CU_ASSERT_EQUAL(copy(&e), 0);
    CU_ASSERT_TRUE(has("user.a", "one") && has("user.ab", ""));
    CU_ASSERT_EQUAL(place_of(TO, "user.b"), -1);
    CU_ASSERT_EQUAL(now.sets, 2);
    CU_ASSERT_FALSE(now.file[TO].owned); /* the owner was already correct */
    CU_ASSERT_EQUAL(now.file[TO].mode, 06640);
    CU_ASSERT_EQUAL(copy(&e), 0); /* all attributes already exist, so none is set */
    CU_ASSERT_EQUAL(now.sets, 2);
    /* One new value has the same length, the other is longer. */
    now.file[FROM].value[0] = "two";
    now.file[FROM].value[1] = "+";
    CU_ASSERT_EQUAL(copy(&e), 0);
    CU_ASSERT_EQUAL(now.sets, 4);
    CU_ASSERT_TRUE(has("user.a", "two") && has("user.ab", "+"));
    begin();
    now.file[TO].gid = 9;
    CU_ASSERT_EQUAL(copy(&e), 0);
    CU_ASSERT_TRUE(now.file[TO].owned && now.file[TO].gid == 8);
    begin();
    now.file[TO].uid = 9;
    CU_ASSERT_EQUAL(copy(&e), 0);
    CU_ASSERT_TRUE(now.file[TO].owned && now.file[TO].uid == 7);
    /* A list or value that has grown since it was measured is read again. */
    begin();
    now.grows = true;
    CU_ASSERT_EQUAL(copy(&e), 0);
    CU_ASSERT_TRUE(now.grown && has("user.a", "one"));
}

static void refused(int r, int want, const struct err *e, const char *line)
{
    CU_ASSERT_EQUAL(r, want);
    CU_ASSERT_PTR_NOT_NULL(strstr(e->msg, line));
    now.no_get = now.no_set = now.no_remove = now.no_own = now.no_mode = now.no_stat = 0;
    now.no_list[FROM] = now.no_list[TO] = 0;
}

static void test_refused(void)
{
    struct err e;
    begin();
    now.no_own = -EPERM;
    now.file[TO].uid = 1;
    refused(copy(&e), -EPERM, &e, "the model's owner and group cannot be reproduced: ");
    begin();
    now.no_stat = -EIO;
    refused(copy(&e), -EIO, &e, "owner and group");
    now.no_list[FROM] = -EACCES;
    refused(copy(&e), -EPERM, &e, "list of extended attributes cannot be reproduced: Permission");
    now.no_list[TO] = -EACCES;
    refused(copy(&e), -EPERM, &e, "list of extended attributes");
    now.no_remove = -EPERM;
    refused(copy(&e), -EPERM, &e, "absence of the attribute user.b");
    now.no_get = -EACCES;
    refused(copy(&e), -EPERM, &e, "extended attribute user.a");
    static const int codes[][2] = {{-ENOSPC, -ENOSPC}, {-EDQUOT, -EDQUOT}, {-EIO, -EIO},
                                   {-ENOMEM, -ENOMEM}, {-E2BIG, -EPERM},   {-EACCES, -EPERM}};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        begin();
        now.no_set = codes[i][0];
        refused(copy(&e), codes[i][1], &e, "extended attribute user.a");
    }
    begin();
    now.no_mode = -EPERM;
    refused(copy(&e), -EPERM, &e, "the model's mode cannot be reproduced");
    /* If attributes are not supported, the file counts as having none, and no further calls are
     * made. */
    static const int none[] = {-EOPNOTSUPP, -ENOSYS};
    for (size_t i = 0; i < 2; i++) {
        begin();
        now.no_list[FROM] = now.no_list[TO] = none[i];
        refused(copy(&e), 0, &e, "");
        CU_ASSERT_EQUAL(now.sets, 0);
    }
}

static void test_check(void)
{
    struct err e = {0};
    begin();
    CU_ASSERT_EQUAL(attr_check(&calls, FROM, &e), 0);
    now.no_list[FROM] = -EACCES;
    refused(attr_check(&calls, FROM, &e), -EPERM, &e, "list of extended attributes");
    now.no_get = -ENOMEM;
    refused(attr_check(&calls, FROM, &e), -ENOMEM, &e, "extended attribute user.a");
    CU_ASSERT_EQUAL(attr_check(&calls, FROM, &e), 0);
}

static CU_TestInfo tests[] = {
    {"attributes are copied", test_copy},
    {"attributes that cannot be set fail the copy", test_refused},
    {"attributes that cannot be read prevent an edit", test_check},
    CU_TEST_INFO_NULL,
};

CU_MAIN("edit/attr", tests)
