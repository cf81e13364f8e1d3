/* SPDX-License-Identifier: MIT */
/* Reads the kernel's list of mounts: see mountinfo.h. */
#include "shelf/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sys.h"

/* Maximum size in bytes of the list of mounts, enough for about 100,000 mounts. */
#define LIST_MAX ((size_t)16 << 20)

int read_all(int fd, size_t most, struct buf *ret)
{
    char piece[4096];
    ssize_t n;
    do {
        n = read(fd, piece, sizeof(piece));
        buf_add(ret, piece, n > 0 ? (size_t)n : 0);
    } while ((n > 0 || (n < 0 && errno == EINTR)) && ret->len <= most);
    int e = n < 0 ? -errno : buf_error(ret);
    (void)close(fd);
    return e;
}

/* Decode the octal escapes (\ooo) of white space and backslashes, in place. */
static void mount_unescape(char *text)
{
    unsigned byte;
    int n;
    char *to = text;
    for (const char *p = text; *p; to++)
        if (*p == '\\' && sscanf(p, "\\%3o%n", &byte, &n) == 1 && n == 4 && byte <= UINT8_MAX) {
            *to = (char)byte;
            p += n;
        } else {
            *to = *p++;
        }
    *to = '\0';
}

bool mount_parse(char *line, struct mount *ret)
{
    unsigned major_no, minor_no;
    int at = 0, end = 0;
    struct mount m;
    /* then any number of tags, and a dash */
    if (sscanf(line, "%ld %*d %u:%u %*s %n%*s%n", &m.id, &major_no, &minor_no, &at, &end) < 3 ||
        !end)
        return false;
    char *rest = strstr(line + end, " - ");
    m.at = line + at;
    line[end] = '\0';
    if (!rest)
        return false;
    rest += strlen(" - ");
    char *type = strsep(&rest, " "), *source = strsep(&rest, " ");
    if (!rest)
        return false;
    mount_unescape(line + at);
    mount_unescape(type);
    mount_unescape(source);
    m.dev = makedev(major_no, minor_no);
    m.type = type;
    m.source = source;
    m.super = rest;
    *ret = m;
    return true;
}

const char *mount_option(const char *options, const char *name)
{
    return hasmntopt(&(struct mntent){.mnt_opts = (char *)options}, name);
}

long mount_number(const char *options, const char *name)
{
    const char *p = mount_option(options, name);
    p = p ? p + strlen(name) : "";
    return p[0] == '=' && p[1] >= '0' && p[1] <= '9' ? strtol(p + 1, NULL, 10) : -1;
}

bool mount_is_ggufs(const struct mount *m)
{
    return strcmp(m->type, "fuse.ggufs") == 0;
}

int mounts_load(struct mounts *ms)
{
    char *line, *end;
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    *ms = (struct mounts){0};
    int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? -errno : read_all(fd, LIST_MAX, &text);
    buf_char(&text, '\0');
    if (r == 0)
        r = buf_error(&text);
    if (r < 0)
        return r;
    ms->text = line = (char *)buf_steal(&text);
    for (; r == 0 && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        r = array_grow(&ms->mount, &ms->cap, ms->n, sizeof(*ms->mount));
        if (r == 0 && mount_parse(line, &ms->mount[ms->n]))
            ms->n++;
    }
    return r;
}

void mounts_free(struct mounts *ms)
{
    free(ms->mount);
    free(ms->text);
}

bool path_of_fd(int fd, char ret[PATH_MAX])
{
    char link[64];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(link, ret, PATH_MAX - 1);
    ret[n > 0 ? n : 0] = '\0';
    return n > 0;
}

char *mounts_path(const char *given)
{
    char path[PATH_MAX];
    int fd = open(given, O_PATH | O_CLOEXEC);
    bool known = path_of_fd(fd, path);
    if (fd >= 0)
        (void)close(fd);
    return known ? strdup(path) : NULL;
}

const struct mount *mounts_around(const struct mounts *ms, const char *path)
{
    struct statx st;
    /* the mask is 0, because a user without access to the mount may not request attributes */
    if (!path || statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, 0, &st) < 0)
        return NULL;
    for (size_t i = ms->n; i-- > 0;)
        if ((uint64_t)ms->mount[i].id == st.stx_mnt_id && mount_is_ggufs(&ms->mount[i]))
            return &ms->mount[i];
    return NULL;
}
