/* SPDX-License-Identifier: MIT */
/* Finds the files below a shelf's directory, and reads the list of mounts: see reach.h. */
#include "shelf/reach.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/sys.h"
#include "base/lock.h"
#include "shelf/place.h"
#include "shelf/shelf.h"

/* Maximum number of links followed in a walk, as in the kernel. */
#define LINKS_MAX 40
/* ---- ggufs mounts ---- */

/* Read the list of mounts if it may have changed. On failure, the old list is kept, and the next
 * check tries again. Call with the lock held. Returns 0 or -errno. */
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
    LOCKED(&mount_lock);
    bool is = (r->own && dev == r->own) || see_mounts(r) < 0;
    for (size_t i = 0; i < r->seen.n && !is; i++)
        is = r->seen.mount[i].dev == dev && is_ours(r, &r->seen.mount[i]);
    return is;
}

/* Return the name of a mount's mount point, or NULL if the mount point is not in the directory
 * `path`. */
static const char *name_in(const struct mount *m, const char *path)
{
    const size_t n = strlen(path) - (path[1] == '\0'); /* only "/" ends in a slash */
    const bool in = strncmp(m->at, path, n) == 0 && m->at[n] == '/' && !strchr(m->at + n + 1, '/');
    return in ? m->at + n + 1 : NULL;
}

int reach_mounts_in(struct reach *r, const char *path, struct buf *names)
{
    LOCKED(&mount_lock);
    int e = see_mounts(r);
    for (size_t i = 0; i < r->seen.n && e == 0; i++) {
        const char *name = name_in(&r->seen.mount[i], path);
        if (name && is_ours(r, &r->seen.mount[i]))
            buf_add(names, name, strlen(name) + 1);
    }
    return e < 0 ? e : buf_error(names);
}

bool reach_mounted(struct reach *r, const char *path, const char *name)
{
    LOCKED(&mount_lock);
    bool is = see_mounts(r) < 0;
    for (size_t i = 0; i < r->seen.n && !is; i++) {
        const char *in = name_in(&r->seen.mount[i], path);
        is = in && strcmp(in, name) == 0;
    }
    return is;
}

/* ---- a walk ---- */

struct walk {
    struct reach *reach;
    struct found at; /* the current directory */
    char *rest;      /* owned; the remaining names */
    bool foreign;    /* a followed link belongs to a user other than the daemon's */
    unsigned links;
};

/* Get the attributes that a walk needs, without contacting a file server. */
static int look_at(struct found *f)
{
    struct statx st;
    if (f->fd < 0 || statx(f->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW,
                           STATX_BASIC_STATS, &st) < 0)
        return -errno;
    f->st.st_dev = makedev(st.stx_dev_major, st.stx_dev_minor);
    f->st.st_uid = st.stx_uid;
    f->st.st_mode = st.stx_mode;
    return 0;
}

/* Begin at the open directory fd or, if fd is -1, at "/". */
static int begin_at(struct walk *w, int fd, const char *path)
{
    reach_close(&w->at);
    w->at.fd = fd < 0 ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int e = look_at(&w->at);
    return e == 0 && !(w->at.path = strdup(path)) ? -ENOMEM : e;
}

/* Set the real path of `name`, which is in the directory with the real path `dir`. */
static int set_path(struct found *f, const char *dir, const char *name)
{
    const int up = (int)(strrchr(dir, '/') - dir);
    if (strlen(dir) + strlen(name) >= PATH_MAX)
        return -ENAMETOOLONG;
    int n = strcmp(name, ".") == 0    ? asprintf(&f->path, "%s", dir)
            : strcmp(name, "..") == 0 ? asprintf(&f->path, "%.*s", up ? up : 1, dir)
                                      : asprintf(&f->path, "%s/%s", dir[1] ? dir : "", name);
    f->path = n < 0 ? NULL : f->path;
    return n < 0 ? -ENOMEM : 0;
}

/* Prepend the target of a link to the remaining names. Returns 1 or -errno. */
static int follow(struct walk *w, const struct found *link, const char *rest)
{
    char target[PATH_MAX], *all;
    ssize_t n = readlinkat(link->fd, "", target, sizeof(target) - 1);
    if (n <= 0)
        return n < 0 ? -errno : -ENOENT;
    target[n] = '\0';
    w->foreign |= link->st.st_uid != geteuid();
    if (++w->links > LINKS_MAX)
        return -ELOOP;
    if (asprintf(&all, "%s/%s", target, rest) < 0)
        return -ENOMEM;
    free(w->rest);
    w->rest = all;
    int e = target[0] == '/' ? begin_at(w, -1, "/") : 0;
    return e < 0 ? e : 1;
}

/* Walk one name. Returns 1 to continue, 0 if that was the last name, or -errno. */
static int step(struct walk *w, enum reach_flags flags)
{
    char *name = w->rest + strspn(w->rest, "/"), *rest = name + strcspn(name, "/");
    CLEANUP(reach_close) struct found next = FOUND_NONE;
    if (*rest)
        *rest++ = '\0';
    const bool last = rest[strspn(rest, "/")] == '\0';
    if (!*name)
        return -ENOENT;
    next.fd = openat(w->at.fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    int e = look_at(&next);
    if (e == 0 && next.st.st_dev != w->at.st.st_dev && reach_barred(w->reach, next.st.st_dev))
        e = -EXDEV;
    if (e == 0 && S_ISLNK(next.st.st_mode))
        return flags == REACH_LINKS ? follow(w, &next, rest) : -ELOOP;
    if (e == 0 && !last && !S_ISDIR(next.st.st_mode))
        e = -ENOTDIR;
    if (e == 0)
        e = set_path(&next, w->at.path, name);
    if (e == 0 && last && fstat(next.fd, &next.st) < 0)
        e = -errno;
    if (e < 0)
        return e;
    const struct found before = w->at;
    w->at = next;
    next = before;
    memmove(w->rest, rest, strlen(rest) + 1);
    return !last;
}

static int walk_from(struct reach *r, int fd, const char *path, const char *names,
                     enum reach_flags flags, struct found *ret)
{
    struct walk w = {.reach = r, .at = FOUND_NONE, .rest = strdup(names)};
    int e = w.rest ? begin_at(&w, fd, path) : -ENOMEM;
    if (e == 0)
        do
            e = step(&w, flags);
        while (e > 0);
    if (e == 0 && r->strict && w.foreign && !path_below(w.at.path, r->path))
        e = -EACCES;
    free(w.rest);
    w.at.linked = w.links > 0;
    if (e == 0)
        *ret = w.at;
    else
        reach_close(&w.at);
    return e;
}

int reach_open(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags,
               struct found *ret)
{
    int e = walk_from(r, dir ? dir->fd : r->fd, dir ? dir->path : r->path, name, flags, ret);
    if (e == 0 && dir && dir->linked)
        ret->linked = true;
    return e;
}

int reach_again(struct reach *r, const char *path, struct found *ret)
{
    const bool here = path_below(path, r->path);
    const char *names = here ? path + strlen(r->path) : path;
    names += strspn(names, "/");
    int e = walk_from(r, here ? r->fd : -1, here ? r->path : "/", *names ? names : ".",
                      REACH_NO_LINKS, ret);
    if (e == 0)
        ret->linked = !here;
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
    if (f->fd >= 0)
        (void)close(f->fd);
    free(f->path);
    *f = FOUND_NONE;
}

/* ---- beginning and end ---- */

int reach_begin(struct reach *r, const char *path, bool strict, struct err *e)
{
    struct stat st;
    *r = (struct reach){.fd = -1, .strict = strict, .mounts = -1, .stale = true};
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
        names_free(&r->kept[i]);
}

/* ---- names in directories ---- */

/* The names of a directory are not cached if the directory was changed less than this many seconds
 * ago, because a second change might not alter the timestamps. */
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

static int add_name(const struct found *dir, const struct dirent *d, struct names *n)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    size_t len = strlen(d->d_name) + 1;
    uint8_t type = d->d_type;
    if (type == DT_UNKNOWN) { /* the file system does not report types */
        f.fd = openat(dir->fd, d->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        type = look_at(&f) < 0 ? DT_UNKNOWN : (uint8_t)IFTODT(f.st.st_mode);
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

static int read_names(const struct found *dir, int fd, struct names *n)
{
    const struct dirent *d;
    DIR *list = fdopendir(fd);
    int e = list ? 0 : -errno;
    if (!list) {
        (void)close(fd);
        return e;
    }
    while (e == 0 && (errno = 0, d = readdir(list)))
        e = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ? 0 : add_name(dir, d, n);
    if (e == 0)
        e = -errno; /* errno from readdir(); 0 at the end of the directory */
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

const struct names *names_ref(const struct names *n)
{
    (void)atomic_fetch_add(&((struct names *)n)->refs, 1);
    return n;
}

void names_free(const struct names *const *p)
{
    struct names *n = (struct names *)*p;
    if (!n || atomic_fetch_sub(&n->refs, 1) != 1)
        return;
    struct listing *made = atomic_load(&n->made);
    if (made)
        listing_free(made);
    free(made);
    free(n->name);
    buf_free(&n->texts);
    free(n);
}

/* Get a reference to the cached names of a directory, and mark them as the most recently used.
 * Returns NULL if they are not cached or not current. `mounts` is a hash of the mount points in the
 * directory. */
static const struct names *find_kept(struct reach *r, const struct stat *st, uint64_t mounts)
{
    LOCKED(&mount_lock);
    for (size_t i = 0; i < KEPT_MAX && r->kept[i]; i++) {
        const struct names *n = r->kept[i];
        if (n->dev != st->st_dev || n->ino != st->st_ino || n->mounts != mounts ||
            !same_time(n->mtime, st->st_mtim) || !same_time(n->ctime, st->st_ctim) ||
            (n->far && when_past(&n->read, 1)))
            continue;
        memmove(&r->kept[1], &r->kept[0], i * sizeof(r->kept[0]));
        r->kept[0] = n;
        return names_ref(n);
    }
    return NULL;
}

/* Cache names as the most recently used. Drops earlier names of the same directory, and the least
 * recently used names beyond the limits. */
static void keep(struct reach *r, const struct names *n)
{
    const struct names *kept[KEPT_MAX] = {n};
    size_t count = 1, bytes = n->texts.cap;
    if (bytes > KEPT_BYTES)
        return;
    (void)names_ref(n);
    LOCKED(&mount_lock);
    for (size_t i = 0; i < KEPT_MAX && r->kept[i]; i++) {
        const struct names *old = r->kept[i];
        if (count == KEPT_MAX || bytes + old->texts.cap > KEPT_BYTES ||
            (old->dev == n->dev && old->ino == n->ino)) {
            names_free(&old);
            continue;
        }
        kept[count++] = old;
        bytes += old->texts.cap;
    }
    memcpy(r->kept, kept, sizeof(kept));
}

/* Load the names in a directory. `mounts` comes from reach_mounts_in(). */
static int load(struct reach *r, const struct found *dir, const struct buf *mounts, struct names *n)
{
    const struct stat *st = &dir->st;
    const struct timespec now = when_date();
    /* If true, any later change to the directory will alter its timestamps. Must be determined
     * before the names are read. */
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
    int e = read_names(dir, fd, n);
    if (e < 0)
        return e;
    /* Set the type of ggufs mount points to DT_UNKNOWN. */
    const char *p = buf_text(mounts), *end = buf_text_end(mounts);
    for (size_t i; p < end; p += strlen(p) + 1)
        if ((i = names_from(n, p)) < n->n && strcmp(name_at(n, i), p) == 0)
            n->name[i].type = DT_UNKNOWN;
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
    int fd = S_ISREG(f->st.st_mode) ? reach_read(f) : -EINVAL;
    int e = fd < 0 ? fd : read_all(fd, most, ret);
    return e == 0 && ret->len > most ? -EFBIG : e;
}
