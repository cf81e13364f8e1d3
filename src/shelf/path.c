/* SPDX-License-Identifier: MIT */
/* Opens files and directories below a shelf's directory: see path.h. */
#include "shelf/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"

/* How often to try again while names on the way are being renamed. */
#define TRIES 3
/* Maximum number of links followed one after another. */
#define LINKS_MAX 8

/* ---- one path without links ---- */

bool paths_bar(const struct paths *p, const struct mount *m)
{
    return mount_is_ggufs(m) || (p->own && strcmp(m->at, p->own) == 0);
}

/* Returns true also if the list of mounts cannot be read. */
static bool is_barred(const struct paths *p, const char *path)
{
    CLEANUP(mounts_free) struct mounts ms;
    bool barred = mounts_load(&ms) < 0;
    for (size_t i = 0; i < ms.n && !barred; i++)
        barred = paths_bar(p, &ms.mount[i]) && path_below(path, ms.mount[i].at);
    return barred;
}

static int open_with(int dir, const char *name, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (unsigned)(flags | O_CLOEXEC),
                           .resolve = resolve | RESOLVE_NO_SYMLINKS};
    long fd = -1;
    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));
        if (fd < 0 && errno != EAGAIN)
            break;
    }
    return fd < 0 ? -errno : (int)fd;
}

/* Open an absolute path. Only where a mount lies on the way is the list of mounts read. */
static int open_path(const struct paths *p, const char *path, int flags)
{
    const bool below = path_below(path, p->path);
    const char *name = below ? path + strlen(p->path) : path;
    const uint64_t resolve = below ? RESOLVE_BENEATH : 0;
    const int dir = below ? p->fd : AT_FDCWD;
    if (below) {
        name += strspn(name, "/");
        name = *name ? name : ".";
    }
    int fd = open_with(dir, name, flags, resolve | RESOLVE_NO_XDEV);
    if (fd == -EXDEV && !is_barred(p, path))
        fd = open_with(dir, name, flags, resolve);
    return fd;
}

/* Take ownership of fd, or an error, and of `path`. */
static int make_found(int fd, char *path, struct path_found *ret)
{
    struct path_found f = {.fd = fd, .path = path};
    int e = fd < 0 ? fd : !path ? -ENOMEM : fstat(fd, &f.st) < 0 ? -errno : 0;
    if (e == 0)
        *ret = f;
    else
        found_close(&f);
    return e;
}

int path_open(const struct paths *p, const char *path, struct path_found *ret)
{
    return make_found(open_path(p, path, O_PATH | O_NOFOLLOW), strdup(path), ret);
}

char *path_above(const char *path)
{
    const size_t n = (size_t)(path_name(path) - path);
    return strndup(path, n > 1 ? n - 1 : 1);
}

/* ---- links ---- */

/* Return the absolute path of `name`, which may contain "." and "..", in a directory that is known
 * by its real path. Returns NULL if out of memory. */
static char *path_join(const char *dir, const char *name)
{
    char *all = NULL;
    if (asprintf(&all, "%s/%s", name[0] == '/' ? "" : dir, name) < 0)
        return NULL;
    char *end = all; /* the normalised path is [all, end) */
    for (const char *next = all; *next;) {
        next += strspn(next, "/");
        const size_t n = strcspn(next, "/");
        if (n == 2 && next[0] == '.' && next[1] == '.') {
            while (end > all && *--end != '/')
                ;
        } else if (n && !(n == 1 && next[0] == '.')) {
            *end++ = '/';
            memmove(end, next, n);
            end += n;
        }
        next += n;
    }
    if (end == all)
        *end++ = '/';
    *end = '\0';
    return all;
}

/* Replace a link that was found by what it leads to. */
static int follow(const struct paths *p, struct path_found *f)
{
    char target[PATH_MAX];
    int e = 0;
    for (int i = 0; e == 0 && S_ISLNK(f->st.st_mode); i++) {
        struct path_found next = FOUND_NONE;
        const ssize_t n = readlinkat(f->fd, "", target, sizeof(target) - 1);
        if (n <= 0 || i == LINKS_MAX)
            return n < 0 ? -errno : n == 0 ? -ENOENT : -ELOOP;
        target[n] = '\0';
        char *dir = path_above(f->path), *path = dir ? path_join(dir, target) : NULL;
        free(dir);
        const bool may =
            path && (!p->shared || (f->st.st_uid == geteuid() && path_below(path, p->path)));
        e = may ? path_open(p, path, &next) : path ? -EACCES : -ENOMEM;
        free(path);
        found_close(f);
        *f = next;
    }
    f->linked = true;
    return e;
}

/* ---- the calls ---- */

/* Find a name, or several separated by slashes, in a directory. A link is not followed. */
static int path_step(const struct paths *p, const struct path_found *dir, const char *name,
                     struct path_found *ret)
{
    char *path;
    if (asprintf(&path, "%s/%s", dir->path[1] ? dir->path : "", name) < 0)
        return -ENOMEM;
    int fd = open_with(dir->fd, name, O_PATH | O_NOFOLLOW, RESOLVE_BENEATH | RESOLVE_NO_XDEV);
    if (fd == -EXDEV) /* a mount: its path decides */
        fd = open_path(p, path, O_PATH | O_NOFOLLOW);
    return make_found(fd, path, ret);
}

int path_in(const struct paths *p, const struct path_found *dir, const char *name,
            struct path_found *ret)
{
    CLEANUP(found_close) struct path_found f = FOUND_NONE, rest = FOUND_NONE;
    const size_t n = strcspn(name, "/");
    char *first = strndup(name, n);
    int e = first ? path_step(p, dir, first, &f) : -ENOMEM;
    free(first);
    if (e == 0 && S_ISLNK(f.st.st_mode))
        e = follow(p, &f);
    if (e == 0 && name[n])
        e = path_step(p, &f, name + n + 1, &rest);
    if (e == 0 && S_ISLNK(rest.st.st_mode))
        e = -ELOOP;
    if (e < 0)
        return e;
    struct path_found *last = name[n] ? &rest : &f;
    *ret = *last;
    ret->linked = f.linked;
    *last = FOUND_NONE;
    return 0;
}

int path_parent(const struct paths *p, const char *path)
{
    char *dir = path_above(path);
    int fd = dir ? open_path(p, dir, O_RDONLY | O_DIRECTORY) : -ENOMEM;
    if (fd == -EACCES) /* not listable, but enough for one file */
        fd = open_path(p, dir, O_PATH | O_DIRECTORY);
    free(dir);
    return fd;
}

void found_close(struct path_found *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    free(f->path);
    *f = FOUND_NONE;
}

int found_text(const struct path_found *f, size_t most, struct buf *ret)
{
    char path[64];
    if (!S_ISREG(f->st.st_mode))
        return -EINVAL;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int e = fd < 0 ? -errno : read_all(fd, most, ret);
    return e == 0 && ret->len > most ? -EFBIG : e;
}

int paths_begin(struct paths *p, const char *path, bool shared, struct err *e)
{
    *p = (struct paths){.fd = -1, .shared = shared, .path = realpath(path, NULL)};
    if (!p->path)
        return err_set(e, -errno, "%s", strerror(errno));
    p->fd = open(p->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (p->fd < 0)
        return err_set(e, -errno, "cannot open the directory: %s", strerror(errno));
    if (faccessat(p->fd, ".", R_OK | X_OK, AT_EACCESS) < 0)
        return err_set(e, -errno, "cannot read the directory: %s", strerror(errno));
    return 0;
}

void paths_end(struct paths *p)
{
    if (p->fd >= 0)
        (void)close(p->fd);
    free(p->path);
    *p = PATHS_NONE;
}
