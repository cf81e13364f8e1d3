/* SPDX-License-Identifier: MIT */
/* The names of folders, and small files in them: see names.h. */
#include "shelf/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/when.h"
#include "base/lock.h"
#include "base/far.h"
#include "base/hash.h"

/* A folder that was changed this many seconds ago or less may change again within one tick of its
 * times: what was read of it is used once. */
#define SETTLED 2

static int by_bytes(const void *a, const void *b, void *texts)
{
    const struct name *x = a, *y = b;
    return strcmp((const char *)texts + x->text, (const char *)texts + y->text);
}

/* The type of a name that the folder does not give it. */
static uint8_t look_up_type(struct reach *r, const struct found *dir, const char *name)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    int e = reach_open(r, dir, name, REACH_NO_LINKS, &f);
    uint8_t type = e == -ELOOP ? DT_LNK : e < 0 ? DT_UNKNOWN : (uint8_t)IFTODT(f.st.st_mode);
    return type;
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

/* Names under which a ggufs is mounted are of no type, and a file that is a mount point is looked at as
 * if it were a link: it is on another disk. */
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
    size_t len = strlen(d->d_name) + 1;
    uint8_t type = d->d_type == DT_UNKNOWN ? look_up_type(r, dir, d->d_name) : d->d_type;
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
        e = -errno; /* of readdir(): 0 at the end */
    (void)closedir(list);
    if (n->n)
        qsort_r(n->name, n->n, sizeof(*n->name), by_bytes, n->texts.data);
    return e;
}

/* ---- names that are kept ---- */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static void names_unref(struct names *n)
{
    if (!n || --n->refs)
        return;
    free(n->name);
    buf_free(&n->texts);
    free(n);
}

void names_free(const struct names *const *n)
{
    if (!*n)
        return;
    LOCKED(&(*n)->reach->lock);
    names_unref((struct names *)*n);
}

/* A reference to what is kept of a folder, if that is of now. `mounts`: a hash of those in it. */
static struct names *find_kept(struct reach *r, const struct stat *st, uint64_t mounts)
{
    struct names *found = NULL;
    lock_take(&r->lock);
    for (size_t i = 0; i < KEPT_MAX && !found; i++) {
        struct kept_names *k = &r->kept[i];
        if (!k->names || k->dev != st->st_dev || k->ino != st->st_ino || k->mounts != mounts ||
            !same_time(k->mtime, st->st_mtim) || !same_time(k->ctime, st->st_ctim) ||
            (k->far && when_past(&k->read, 1)))
            continue;
        found = k->names;
        found->refs++;
        k->used = ++r->uses;
    }
    lock_drop(&r->lock);
    return found;
}

/* Let go of what was used least lately, until there is room for one more. Under the lock. */
static struct kept_names *make_room(struct reach *r, const struct stat *st, size_t bytes)
{
    for (;;) {
        struct kept_names *oldest = NULL, *room = NULL;
        size_t total = bytes;
        for (struct kept_names *k = r->kept; k < r->kept + KEPT_MAX; k++) {
            if (k->names && k->dev == st->st_dev && k->ino == st->st_ino) {
                names_unref(k->names);
                k->names = NULL;
            }
            if (!k->names)
                room = k;
            else if (!oldest || k->used < oldest->used)
                oldest = k;
            total += k->names ? k->names->texts.cap : 0;
        }
        if (room && total <= KEPT_BYTES)
            return room;
        if (!oldest)
            return NULL;
        names_unref(oldest->names);
        oldest->names = NULL;
    }
}

/* True if a folder's times will show any change from now on. Those of a disk elsewhere, or of a
 * file system that is a program, may never change, or arrive late. */
static bool is_settled(const struct stat *st)
{
    struct timespec now = when_date();
    return st->st_ctim.tv_sec <= now.tv_sec - SETTLED && st->st_mtim.tv_sec <= now.tv_sec - SETTLED;
}

static void keep(struct reach *r, const struct kept_names *kept)
{
    lock_take(&r->lock);
    const struct stat st = {.st_dev = kept->dev, .st_ino = kept->ino};
    struct kept_names *k = make_room(r, &st, kept->names->texts.cap);
    if (k) {
        *k = *kept;
        k->names->refs++;
        k->used = ++r->uses;
    }
    lock_drop(&r->lock);
}

/* `mounts`: as reach_mounts_in() has them. */
static int load(struct reach *r, const struct found *dir, const struct buf *mounts, struct names *n)
{
    const struct stat *st = &dir->st;
    int fd = reach_read(dir);
    if (fd < 0)
        return fd;
    struct kept_names k = {.names = n,
                           .dev = st->st_dev,
                           .ino = st->st_ino,
                           .mtime = st->st_mtim,
                           .ctime = st->st_ctim,
                           .mounts = hash_name(mounts->data, mounts->len),
                           .far = far_file(fd),
                           .read = when_now()};
    bool settled = is_settled(st); /* before it is read */
    int e = read_names(r, dir, fd, n);
    if (e < 0)
        return e;
    bar_mounts(mounts, n);
    if (settled || k.far)
        keep(r, &k);
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

bool has_folder(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags)
{
    CLEANUP(reach_close) struct found f = FOUND_NONE;
    bool is = reach_open(r, dir, name, flags, &f) == 0 && S_ISDIR(f.st.st_mode);
    return is;
}

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
