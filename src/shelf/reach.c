/* SPDX-License-Identifier: MIT */
/* Finds the files below a shelf's directory: see reach.h. */
#include "shelf/reach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/map.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/path.h"
#include "base/when.h"
#include "shelf/place.h"

/* Maximum number of links followed in a walk, as in the kernel. */
#define LINKS_MAX 40
/* The kernel appends this to the former path of a file that no longer has one. */
#define DELETED " (deleted)"

/* ---- other mounts ---- */

/* Read the list of mounts if it may have changed. If it cannot be read, the old list is kept, and
 * reading is tried again at the next check. Call with the lock held. Returns 0 or -errno. */
static int see_mounts(struct reach *r)
{
    struct pollfd p = {.fd = r->mounts, .events = POLLPRI};
    struct mounts now;
    if (r->mounts >= 0 && !r->stale && poll(&p, 1, 0) == 0)
        return 0;
    int e = mounts_load(&now, 0);
    r->stale = e < 0;
    mounts_free(e < 0 ? &now : &r->seen);
    if (e == 0)
        r->seen = now;
    return e;
}

static bool is_ours(const struct reach *r, const struct mount *m)
{
    return mount_is_ggufs(m) || (r->own && m->dev == r->own);
}

bool reach_barred(struct reach *r, dev_t dev)
{
    LOCKED(&r->lock);
    bool is = (r->own && dev == r->own) || see_mounts(r) < 0;
    for (size_t i = 0; i < r->seen.n && !is; i++)
        is = r->seen.mount[i].dev == dev && is_ours(r, &r->seen.mount[i]);
    return is;
}

int reach_mounts_in(struct reach *r, const char *path, struct buf *names)
{
    size_t n = strlen(path) - (path[1] == '\0'); /* only "/" ends in a slash */
    LOCKED(&r->lock);
    int e = see_mounts(r);
    for (size_t i = 0; i < r->seen.n && e == 0; i++) {
        const char *at = r->seen.mount[i].at;
        if (strncmp(at, path, n) != 0 || at[n] != '/' || !at[n + 1] || strchr(at + n + 1, '/'))
            continue;
        buf_char(names, is_ours(r, &r->seen.mount[i]) ? '!' : ' ');
        buf_add(names, at + n + 1, strlen(at + n + 1) + 1);
    }
    return e < 0 ? e : buf_error(names);
}

/* ---- a walk ---- */

/* The state of a walk: the current directory and the remaining names. */
struct walk {
    struct reach *reach;
    int fd; /* owned; O_PATH; the current directory */
    dev_t dev;
    char *path;   /* owned; the directory's real path */
    char *rest;   /* owned; the remaining names */
    bool foreign; /* a link was followed that does not belong to the daemon's user */
    unsigned links;
};

static int stat_path_fd(int fd, struct stat *ret)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS,
              &st) < 0)
        return -errno;
    ret->st_dev = makedev(st.stx_dev_major, st.stx_dev_minor);
    ret->st_uid = st.stx_uid;
    ret->st_mode = st.stx_mode;
    return 0;
}

/* Return the real path of `name` in the directory with the real path `path`, or NULL with errno.
 * The caller frees it. */
static char *path_in(const char *path, const char *name)
{
    char *all;
    size_t n = strlen(path);
    if (n + strlen(name) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    errno = ENOMEM;
    if (strcmp(name, "..") == 0) {
        const char *slash = strrchr(path, '/');
        return slash && slash != path ? strndup(path, (size_t)(slash - path)) : strdup("/");
    }
    return asprintf(&all, "%s/%s", n == 1 ? "" : path, name) < 0 ? NULL : all;
}

/* Continue in another directory. On success, takes ownership of the descriptor and the path. */
static int step_into(struct walk *w, int fd, char *path, dev_t dev)
{
    if (!path)
        return -ENOMEM;
    (void)close(w->fd);
    free(w->path);
    w->fd = fd;
    w->path = path;
    w->dev = dev;
    return 0;
}

/* Replace a link by the names of its target. */
static int follow(struct walk *w, int fd, const char *rest, uid_t owner)
{
    char target[PATH_MAX], *all;
    ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);
    if (n <= 0)
        return n < 0 ? -errno : -ENOENT;
    target[n] = '\0';
    w->foreign |= owner != geteuid();
    if (++w->links > LINKS_MAX)
        return -ELOOP;
    if (asprintf(&all, "%s/%s", target, rest) < 0)
        return -ENOMEM;
    free(w->rest);
    w->rest = all;
    if (target[0] != '/')
        return 0;
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st = {0};
    int r = root < 0 ? -errno : stat_path_fd(root, &st);
    if (r == 0)
        r = step_into(w, root, strdup("/"), st.st_dev);
    if (r < 0 && root >= 0)
        (void)close(root);
    return r;
}

/* Take the next name from the rest of the walk. *name and *rest point into w->rest. Returns false
 * if there are no more names. */
static bool next_name(const struct walk *w, char **name, char **rest)
{
    char *p = w->rest + strspn(w->rest, "/");
    size_t n = strcspn(p, "/");
    *name = p;
    *rest = p + n + (p[n] == '/');
    if (p[n])
        p[n] = '\0';
    return n > 0;
}

/* Walk one name. Returns 1 to continue, 0 if it was the last, or -errno. Unless the result is 1,
 * *ret may be set and must be closed. */
static int step(struct walk *w, enum reach_flags flags, struct found *ret)
{
    char *name, *rest, *path;
    struct stat st = {0};
    bool more = next_name(w, &name, &rest), last = rest[strspn(rest, "/")] == '\0';
    if (!more)
        return -ENOENT; /* "" */
    int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? -errno : stat_path_fd(fd, &st);
    if (r == 0 && st.st_dev != w->dev && reach_barred(w->reach, st.st_dev))
        r = -EXDEV;
    if (r == 0 && S_ISLNK(st.st_mode)) {
        r = flags == REACH_LINKS ? follow(w, fd, rest, st.st_uid) : -ELOOP;
        (void)close(fd);
        return r < 0 ? r : 1;
    }
    if (r == 0 && !last && !S_ISDIR(st.st_mode))
        r = -ENOTDIR;
    path = r == 0 && strcmp(name, ".") != 0 ? path_in(w->path, name)
           : r == 0                         ? strdup(w->path)
                                            : NULL;
    if (r == 0 && !path)
        r = -errno;
    if (r == 0 && last) {
        *ret = (struct found){.fd = fd, .path = path, .linked = w->links > 0};
        if (fstat(fd, &ret->st) < 0)
            return -errno;
        const bool out = w->links && !reach_holds(w->reach, path);
        return out && w->reach->strict && w->foreign ? -EACCES : 0;
    }
    if (r == 0)
        r = step_into(w, fd, path, st.st_dev);
    if (r < 0) {
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    memmove(w->rest, rest, strlen(rest) + 1);
    return 1;
}

/* Pass the file that was found to the caller, or close it if e is an error. Returns e. */
static int give(int e, struct found *f, struct found *ret)
{
    if (e == 0)
        *ret = *f;
    else
        reach_close(f);
    return e;
}

static int walk_from(struct reach *r, int fd, const char *path, const char *names,
                     enum reach_flags flags, struct found *ret)
{
    struct stat st = {0};
    struct walk w = {.reach = r,
                     .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
                     .path = strdup(path),
                     .rest = strdup(names)};
    struct found f = FOUND_NONE;
    int e = w.fd < 0 ? -errno : !w.path || !w.rest ? -ENOMEM : stat_path_fd(w.fd, &st);
    w.dev = st.st_dev;
    if (e == 0)
        do
            e = step(&w, flags, &f);
        while (e > 0);
    if (w.fd >= 0)
        (void)close(w.fd);
    free(w.path);
    free(w.rest);
    return give(e, &f, ret);
}

/* ---- the calls ---- */

/*
 * Find a file `below` the directory `from` with one call that enters no mount, which works for most
 * files. With RESOLVE_NO_SYMLINKS, a link at the end is itself found, otherwise its target. Returns
 * 0 with ret->fd and ret->st set, or -errno.
 */
static int find_at_once(int from, const char *below, uint64_t resolve, struct found *ret)
{
    const bool links = !(resolve & RESOLVE_NO_SYMLINKS);
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | (links ? 0 : O_NOFOLLOW),
                           .resolve =
                               resolve | RESOLVE_NO_XDEV | RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    struct found f = {.fd = (int)syscall(SYS_openat2, from, below, &how, sizeof(how))};
    return give(f.fd < 0 || fstat(f.fd, &f.st) < 0 ? -errno : 0, &f, ret);
}

/* Return the real path of a file that was found through links, or NULL if the kernel knows none. */
static char *path_of(const struct found *f)
{
    char link[64], path[PATH_MAX];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", f->fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    const size_t end = strlen(DELETED);
    if (n < 0 || ((size_t)n > end && memcmp(path + n - end, DELETED, end) == 0))
        return NULL;
    path[n] = '\0';
    return strdup(path);
}

/* Find a file through links that stay in the shelf's directory and on its disk. Returns 0, or
 * -errno, in which case a walk is needed. */
static int open_linked(struct reach *r, const char *path, struct found *ret)
{
    struct found f = FOUND_NONE;
    const char *below = path + strlen(r->path);
    int e = find_at_once(r->fd, below + strspn(below, "/"), 0, &f);
    f.path = e == 0 ? path_of(&f) : NULL;
    if (e == 0 && !(f.path && reach_holds(r, f.path)))
        e = -EXDEV;
    f.linked = true;
    return give(e, &f, ret);
}

/* Find a file without a walk. Returns 1 if found, 0 if a walk is needed, or -errno. */
static int open_at_once(struct reach *r, const struct found *dir, const char *name,
                        enum reach_flags flags, struct found *ret)
{
    const char *base = dir ? dir->path : r->path;
    struct found f = FOUND_NONE;
    if (strcmp(name, ".") == 0 || strstr(name, "..") || strstr(name, "//") || name[0] == '/')
        return 0;
    int e = find_at_once(dir ? dir->fd : r->fd, name, RESOLVE_NO_SYMLINKS, &f);
    bool link = e == 0 && S_ISLNK(f.st.st_mode);
    if (e < 0) /* with these errors, a walk would fail as well */
        return e == -ENOENT || e == -ENOTDIR || e == -EACCES || e == -ENOMEM || e == -EMFILE ? e
                                                                                             : 0;
    f.path = path_in(base, name);
    if (!link && f.path) {
        *ret = f;
        return 1;
    }
    e = !f.path ? -errno : flags == REACH_NO_LINKS ? -ELOOP : 0;
    if (e == 0 && reach_holds(r, f.path))
        e = open_linked(r, f.path, ret) == 0;
    reach_close(&f);
    return e;
}

int reach_open(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags,
               struct found *ret)
{
    int e = open_at_once(r, dir, name, flags, ret);
    e = e > 0   ? 0
        : e < 0 ? e
                : walk_from(r, dir ? dir->fd : r->fd, dir ? dir->path : r->path, name, flags, ret);
    if (e == 0 && dir && dir->linked)
        ret->linked = true;
    return e;
}

bool reach_holds(const struct reach *r, const char *path)
{
    return path_below(path, r->path);
}

int reach_again(struct reach *r, const char *path, struct found *ret)
{
    struct found f = FOUND_NONE;
    if (strcmp(path, r->path) == 0) { /* the shelf's directory, which is open */
        f = (struct found){.fd = r->fd, .path = strdup(path), .lent = true};
        return give(!f.path ? -ENOMEM : fstat(f.fd, &f.st) < 0 ? -errno : 0, &f, ret);
    }
    if (reach_holds(r, path)) {
        const char *below = path + strlen(r->path);
        below += strspn(below, "/");
        if (find_at_once(r->fd, below, RESOLVE_NO_SYMLINKS, &f) == 0 && !S_ISLNK(f.st.st_mode) &&
            (f.path = strdup(path)))
            return give(0, &f, ret);
        reach_close(&f);
        return walk_from(r, r->fd, r->path, below, REACH_NO_LINKS, ret);
    }
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    int e = walk_from(r, root, "/", path[1] ? path + 1 : ".", REACH_NO_LINKS, ret);
    (void)close(root);
    if (e == 0)
        ret->linked = true;
    return e;
}

int reach_around(struct reach *r, const char *path, struct found *ret)
{
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    int e = folder ? reach_again(r, folder, ret) : -ENOMEM;
    free(folder);
    return e;
}

int reach_read(const struct found *f)
{
    char path[64];
    bool folder = S_ISDIR(f->st.st_mode);
    if (!folder && !S_ISREG(f->st.st_mode))
        return -EINVAL;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
    int fd = folder ? openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                    : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

void reach_close(struct found *f)
{
    if (f->fd >= 0 && !f->lent)
        (void)close(f->fd);
    free(f->path);
    *f = FOUND_NONE;
}

/* ---- the beginning ---- */

int reach_begin(struct reach *r, const char *path, bool strict, struct err *e)
{
    struct stat st;
    *r = (struct reach){.fd = -1, .strict = strict, .mounts = -1, .stale = true};
    lock_init(&r->lock);
    r->path = realpath(path, NULL);
    if (!r->path)
        return err_set(e, -errno, "%s", strerror(errno));
    r->fd = open(r->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &st) < 0)
        return err_set(e, -errno, "cannot open the directory: %s", strerror(errno));
    if (faccessat(r->fd, ".", R_OK | X_OK, AT_EACCESS) < 0)
        return err_set(e, -errno, "cannot read the directory: %s", strerror(errno));
    r->mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    return see_mounts(r) < 0 ? err_set(e, -EIO, "cannot read the list of mounts") : 0;
}

void reach_end(struct reach *r)
{
    if (r->fd >= 0)
        (void)close(r->fd);
    if (r->mounts >= 0)
        (void)close(r->mounts);
    free(r->path);
    mounts_free(&r->seen);
    for (size_t i = 0; i < KEPT_MAX; i++)
        names_free(&(const struct names *){r->kept[i]});
    lock_destroy(&r->lock);
}

/* ---- names in directories ---- */

/* A directory changed less than this many seconds ago may change again within one tick of its
 * timestamps, so its names are not cached. */
#define SETTLED 2

static int by_bytes(const void *a, const void *b, void *texts)
{
    const struct name *x = a, *y = b;
    return strcmp((const char *)texts + x->text, (const char *)texts + y->text);
}

size_t names_from(const struct names *n, const char *text)
{
    size_t low = 0, high = n->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(name_at(n, mid), text) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint8_t names_type(const struct names *n, const char *text)
{
    size_t i = names_from(n, text);
    return i < n->n && strcmp(name_at(n, i), text) == 0 ? n->name[i].type : DT_UNKNOWN;
}

/* Mark mount points among the names: one of a ggufs loses its type, and a file that is a mount
 * point is treated like a link, because it is on another disk. */
static void bar_mounts(const struct buf *mounts, struct names *n)
{
    const char *p = buf_text(mounts), *end = buf_text_end(mounts);
    for (; p && p < end; p += strlen(p) + 1) {
        size_t i = names_from(n, p + 1);
        if (i == n->n || strcmp(name_at(n, i), p + 1) != 0)
            continue;
        if (*p == '!')
            n->name[i].type = DT_UNKNOWN;
        else if (n->name[i].type == DT_REG)
            n->name[i].type = DT_LNK;
    }
}

static int add_name(struct reach *r, const struct found *dir, const struct dirent *d,
                    struct names *n)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    size_t len = strlen(d->d_name) + 1;
    uint8_t type = d->d_type;
    if (type == DT_UNKNOWN) { /* the directory does not report the type */
        int found = reach_open(r, dir, d->d_name, REACH_NO_LINKS, &f);
        type = found == -ELOOP ? DT_LNK : found < 0 ? DT_UNKNOWN : (uint8_t)IFTODT(f.st.st_mode);
    }
    if (is_hidden(d->d_name) && type != DT_DIR && type != DT_LNK)
        return 0;
    int e = array_grow(&n->name, &n->cap, n->n, sizeof(*n->name));
    if (e == 0 && n->texts.len + len > UINT32_MAX)
        e = -ENOMEM;
    if (e < 0)
        return e;
    n->name[n->n++] = (struct name){(uint32_t)n->texts.len, type};
    buf_add(&n->texts, d->d_name, len);
    return buf_error(&n->texts);
}

static int read_names(struct reach *r, const struct found *dir, int fd, struct names *n)
{
    const struct dirent *d;
    DIR *list = fdopendir(fd);
    int e = list ? 0 : -errno;
    if (!list) {
        (void)close(fd);
        return e;
    }
    while (e == 0 && (errno = 0, d = readdir(list)))
        e = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ? 0
                                                                        : add_name(r, dir, d, n);
    if (e == 0)
        e = -errno; /* errno from readdir(), which is 0 at the end */
    (void)closedir(list);
    if (n->n)
        qsort_r(n->name, n->n, sizeof(*n->name), by_bytes, n->texts.data);
    return e;
}

/* ---- cached names ---- */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static void names_unref(struct names *n)
{
    if (!n || --n->refs)
        return;
    struct listing *made = atomic_load(&n->made);
    if (made)
        listing_free(made);
    free(made);
    free(n->name);
    buf_free(&n->texts);
    free(n);
}

const struct names *names_ref(const struct names *n)
{
    LOCKED(&n->reach->lock);
    ((struct names *)n)->refs++;
    return n;
}

void names_free(const struct names *const *n)
{
    if (!*n)
        return;
    LOCKED(&(*n)->reach->lock);
    names_unref((struct names *)*n);
}

/*
 * Get a reference to the cached names of a directory if they are current, and make them the most
 * recently used. `mounts` is a hash of the mount points in the directory. Returns NULL if there are
 * none.
 */
static struct names *find_kept(struct reach *r, const struct stat *st, uint64_t mounts)
{
    LOCKED(&r->lock);
    for (size_t i = 0; i < KEPT_MAX && r->kept[i]; i++) {
        struct names *n = r->kept[i];
        if (n->dev != st->st_dev || n->ino != st->st_ino || n->mounts != mounts ||
            !same_time(n->mtime, st->st_mtim) || !same_time(n->ctime, st->st_ctim) ||
            (n->far && when_past(&n->read, 1)))
            continue;
        memmove(&r->kept[1], &r->kept[0], i * sizeof(r->kept[0]));
        r->kept[0] = n;
        n->refs++;
        return n;
    }
    return NULL;
}

/* Cache names as the most recently used. They replace earlier names of their directory, and those
 * beyond the limits. */
static void keep(struct reach *r, struct names *n)
{
    struct names *before[KEPT_MAX];
    size_t kept = 1, bytes = n->texts.cap;
    if (bytes > KEPT_BYTES)
        return;
    LOCKED(&r->lock);
    memcpy(before, r->kept, sizeof(before));
    memset(r->kept, 0, sizeof(r->kept));
    r->kept[0] = n;
    n->refs++;
    for (size_t i = 0; i < KEPT_MAX && before[i]; i++) {
        struct names *old = before[i];
        if (kept == KEPT_MAX || bytes + old->texts.cap > KEPT_BYTES ||
            (old->dev == n->dev && old->ino == n->ino)) {
            names_unref(old);
            continue;
        }
        r->kept[kept++] = old;
        bytes += old->texts.cap;
    }
}

/* Load the names; `mounts` comes from reach_mounts_in(). */
static int load(struct reach *r, const struct found *dir, const struct buf *mounts, struct names *n)
{
    const struct stat *st = &dir->st;
    const struct timespec now = when_date();
    /* If true, the times will reveal any change from now on. They must be checked before the names
     * are read. */
    const bool settled =
        st->st_ctim.tv_sec <= now.tv_sec - SETTLED && st->st_mtim.tv_sec <= now.tv_sec - SETTLED;
    int fd = reach_read(dir);
    if (fd < 0)
        return fd;
    n->dev = st->st_dev;
    n->ino = st->st_ino;
    n->mtime = st->st_mtim;
    n->ctime = st->st_ctim;
    n->mounts = hash_name(mounts->data, mounts->len);
    n->far = far_file(fd);
    n->read = when_now();
    int e = read_names(r, dir, fd, n);
    if (e < 0)
        return e;
    bar_mounts(mounts, n);
    if (settled || n->far)
        keep(r, n);
    return 0;
}

int names_load(struct reach *r, const struct found *dir, const struct names **ret)
{
    CLEANUP(buf_free) struct buf mounts = BUF_INIT;
    *ret = NULL;
    int e = reach_mounts_in(r, dir->path, &mounts);
    if (e < 0 || (*ret = find_kept(r, &dir->st, hash_name(mounts.data, mounts.len))))
        return e;
    struct names *n = calloc(1, sizeof(*n));
    if (!n)
        return -ENOMEM;
    n->refs = 1;
    n->reach = r;
    *ret = n;
    e = load(r, dir, &mounts, n);
    if (e < 0) {
        names_free(ret);
        *ret = NULL;
    }
    return e;
}

/* ---- single files ---- */

bool is_shortage(int e)
{
    return e == -ENOMEM || e == -EMFILE || e == -ENFILE;
}

int read_small(const struct found *f, size_t most, struct buf *ret)
{
    char piece[4096];
    ssize_t n = 0;
    int fd = S_ISREG(f->st.st_mode) ? reach_read(f) : -EINVAL;
    if (fd < 0)
        return fd;
    do {
        n = read(fd, piece, sizeof(piece));
        buf_add(ret, piece, n > 0 ? (size_t)n : 0);
    } while ((n > 0 || (n < 0 && errno == EINTR)) && ret->len <= most &&
             ret->len != (size_t)f->st.st_size);
    int e = n < 0 ? -errno : buf_error(ret);
    (void)close(fd);
    return e == 0 && ret->len > most ? -EFBIG : e;
}
