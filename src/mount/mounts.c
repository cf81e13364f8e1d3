/* SPDX-License-Identifier: MIT */
/* The list of mounts: see mounts.h. */
#include "mount/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Bytes of the list that are read: some 100,000 mounts. */
#define LIST_MAX ((size_t)16 << 20)

/* The next field, ended by a space or the end of the line, and perhaps empty; NULL: none is left. */
static char *field(char **at)
{
    char *start = *at;
    size_t n = strcspn(start, " ");
    if (!*start)
        return NULL;
    *at = start + n + (start[n] == ' ');
    start[n] = '\0';
    return start;
}

bool mount_parse(char *line, struct mount *ret)
{
    enum { ID, PARENT, DEV, ROOT, AT, FLAGS, BEFORE };
    enum { TYPE, SOURCE, SUPER, BEHIND };
    char *one[BEFORE], *two[BEHIND], *tag;
    unsigned major_no, minor_no;
    for (int i = 0; i < BEFORE; i++)
        if (!(one[i] = field(&line)))
            return false;
    do /* any number of tags, and then a dash */
        tag = field(&line);
    while (tag && strcmp(tag, "-") != 0);
    for (int i = 0; tag && i < BEHIND; i++)
        if (!(two[i] = field(&line)))
            tag = NULL;
    if (!tag || sscanf(one[DEV], "%u:%u", &major_no, &minor_no) != 2)
        return false;
    path_unescape(one[ROOT]);
    path_unescape(one[AT]);
    path_unescape(two[TYPE]);
    path_unescape(two[SOURCE]);
    *ret = (struct mount){.id = strtol(one[ID], NULL, 10),
                          .parent = strtol(one[PARENT], NULL, 10),
                          .dev = makedev(major_no, minor_no),
                          .root = one[ROOT],
                          .at = one[AT],
                          .flags = one[FLAGS],
                          .type = two[TYPE],
                          .source = two[SOURCE],
                          .super = two[SUPER]};
    return true;
}

/* Behind the name of an option in a list, NULL if it is not there. */
static const char *option(const char *options, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = options; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '=' || !p[n]))
            return p + n;
    return NULL;
}

bool mount_has(const char *options, const char *name)
{
    return option(options, name) != NULL;
}

long mount_number(const char *options, const char *name)
{
    const char *p = option(options, name);
    return p && p[0] == '=' && p[1] >= '0' && p[1] <= '9' ? strtol(p + 1, NULL, 10) : -1;
}

bool mount_is_fuse(const struct mount *m)
{
    return strcmp(m->type, "fuse") == 0 || strncmp(m->type, "fuse.", 5) == 0;
}

bool mount_is_ggufs(const struct mount *m)
{
    return strcmp(m->type, "fuse.ggufs") == 0;
}

/* All of a file of /proc, which says nothing of its size. */
static int read_text(const char *path, char **ret)
{
    struct buf b = BUF_INIT;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC), r = fd < 0 ? -errno : 0;
    do {
        char piece[4096];
        n = fd < 0 ? 0 : read(fd, piece, sizeof(piece));
        buf_add(&b, piece, n > 0 ? (size_t)n : 0);
    } while ((n > 0 || (n < 0 && errno == EINTR)) && b.len < LIST_MAX && !buf_error(&b));
    if (n < 0)
        r = -errno;
    if (fd >= 0)
        (void)close(fd);
    buf_char(&b, '\0');
    if (r == 0)
        r = buf_error(&b);
    *ret = r == 0 ? (char *)buf_steal(&b) : NULL;
    buf_free(&b);
    return r;
}

int mounts_load(struct mounts *ms, long pid)
{
    char path[64] = "/proc/self/mountinfo", *line, *end;
    *ms = (struct mounts){0};
    if (pid)
        (void)snprintf(path, sizeof(path), "/proc/%ld/mountinfo", pid);
    int r = read_text(path, &ms->text);
    for (line = ms->text; r == 0 && (end = strchr(line, '\n')); line = end + 1) {
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

const struct mount *mounts_at(const struct mounts *ms, const char *path)
{
    for (size_t i = ms->n; i-- > 0;)
        if (strcmp(ms->mount[i].at, path) == 0)
            return &ms->mount[i];
    return NULL;
}

const struct mount *mounts_of(const struct mounts *ms, dev_t dev)
{
    for (size_t i = ms->n; i-- > 0;)
        if (ms->mount[i].dev == dev)
            return &ms->mount[i];
    return NULL;
}

void path_escape(struct buf *out, const char *path)
{
    for (const char *p = path; *p; p++)
        if (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\\')
            buf_printf(out, "\\%03o", (unsigned)(unsigned char)*p);
        else
            buf_char(out, *p);
}

static bool is_octal(const char *p)
{
    for (int i = 0; i < 3; i++)
        if (p[i] < '0' || p[i] > (i ? '7' : '3'))
            return false;
    return true;
}

void path_unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p; to++)
        if (*p == '\\' && is_octal(p + 1)) {
            *to = (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0'));
            p += 4;
        } else {
            *to = *p++;
        }
    *to = '\0';
}
