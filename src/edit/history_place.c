/* SPDX-License-Identifier: MIT */
/* The folder of histories: see history_place.h. */
#include "edit/history_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OURS "/ggufs/history"

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "no memory");
}

/* "a" "b" together; free() it. */
static char *join(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    char *both = malloc(n + m + 1);
    if (!both)
        return NULL;
    memcpy(both, a, n);
    memcpy(both + n, b, m + 1);
    return both;
}

int history_home(char **ret, struct err *e)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && state[0] == '/')
        *ret = join(state, "");
    else if (home && home[0] == '/')
        *ret = join(home, "/.local/state");
    else if (geteuid() == 0)
        *ret = join("/var/lib", "");
    else
        return err_set(e, -ENOENT, "neither XDG_STATE_HOME nor HOME is set");
    return *ret ? 0 : no_memory(e);
}

static int refuse(const struct history_place *p, int r, const char *why, struct err *e)
{
    char shown[SHOW_MAX];
    return err_set(e, r, "%s: %s", show(shown, p->path, strlen(p->path)), why);
}

/* The deepest part of `path` up to the byte `end` that exists; *end is where that ends. */
static int open_deepest(char *path, size_t *end)
{
    for (;;) {
        char kept = path[*end];
        path[*end] = '\0';
        int fd = open(*end ? path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int r = fd < 0 ? -errno : fd;
        path[*end] = kept;
        if (r != -ENOENT || *end == 0)
            return r;
        while (*end > 0 && path[*end - 1] != '/')
            --*end;
        while (*end > 0 && path[*end - 1] == '/')
            --*end;
    }
}

int history_place_find(struct history_place *ret, const char *home, struct err *e)
{
    size_t end = strlen(home);
    *ret = HISTORY_PLACE_INIT;
    while (end > 0 && home[end - 1] == '/')
        end--;
    ret->path = join(home, OURS);
    if (!ret->path)
        return no_memory(e);
    memmove(ret->path + end, OURS, sizeof(OURS));
    ret->base = open_deepest(ret->path, &end);
    if (ret->base < 0)
        return refuse(ret, ret->base, strerror(-ret->base), e);
    ret->rest = join(ret->path + end, "");
    return ret->rest ? 0 : no_memory(e);
}

/* The folder above the first of ours that is made belongs to this user, or to root. */
static int check_base(const struct history_place *p, const struct sys *sys, int dir, struct err *e)
{
    struct stat st;
    int r = sys->fstat(sys, dir, &st);
    if (r < 0)
        return refuse(p, r, strerror(-r), e);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return refuse(p, -EPERM, "the folder above it belongs to another user", e);
    return 0;
}

/* One of our folders: of this user, and written by nobody else; the last one nobody else enters. */
static int check_ours(const struct history_place *p, const struct sys *sys, int dir, bool last,
                      struct err *e)
{
    struct stat st;
    int r = sys->fstat(sys, dir, &st);
    if (r < 0)
        return refuse(p, r, strerror(-r), e);
    if (st.st_uid != geteuid())
        return refuse(p, -EPERM, "it, or the folder above it, belongs to another user", e);
    if (st.st_mode & (last ? 077 : 022))
        return refuse(p, -EPERM, "other users may enter or write it (chmod 700 allows its use)", e);
    return 0;
}

/* The folder `name` in `dir`, which is closed. */
static int step(const struct history_place *p, const struct sys *sys, int dir, const char *name,
                bool make, struct err *e)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = sys->openat(sys, dir, name, flags, 0);
    if (fd == -ENOENT && make) {
        int r = check_base(p, sys, dir, e);
        if (r < 0) {
            sys_close(sys, &dir);
            return r;
        }
        r = sys->mkdirat(sys, dir, name, 0700);
        if (r == 0)
            r = sys_sync_dir(sys, dir);
        fd = r < 0 && r != -EEXIST ? r : sys->openat(sys, dir, name, flags, 0);
    }
    sys_close(sys, &dir);
    if (fd == -ELOOP || fd == -ENOTDIR)
        return refuse(p, fd, "it, or a folder above it, is not a folder", e);
    return fd < 0 ? refuse(p, fd, strerror(-fd), e) : fd;
}

static int walk(const struct history_place *p, const struct sys *sys, char *rest, bool make,
                struct err *e)
{
    char *save = NULL;
    int dir = sys->openat(sys, p->base, ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (dir < 0)
        return refuse(p, dir, strerror(-dir), e);
    const char *name = strtok_r(rest, "/", &save);
    for (; name && dir >= 0; name = strtok_r(NULL, "/", &save)) {
        const char *left = p->rest + (name - rest);
        bool last = strchr(left, '/') == NULL, ours = last || strcmp(left, &OURS[1]) == 0;
        dir = step(p, sys, dir, name, make, e);
        int r = dir < 0 || !ours ? 0 : check_ours(p, sys, dir, last, e);
        if (r < 0) {
            sys_close(sys, &dir);
            return r;
        }
    }
    return dir;
}

int history_place_open(struct history_place *p, const struct sys *sys, bool make, struct err *e)
{
    if (p->dir >= 0)
        return 0;
    char *rest = join(p->rest, "");
    if (!rest)
        return no_memory(e);
    int dir = walk(p, sys, rest, make, e);
    free(rest);
    if (dir < 0)
        return dir;
    p->dir = dir;
    return 0;
}

void history_place_free(struct history_place *p)
{
    free(p->path);
    free(p->rest);
    if (p->base >= 0)
        (void)close(p->base);
    if (p->dir >= 0)
        (void)close(p->dir);
    *p = HISTORY_PLACE_INIT;
}
