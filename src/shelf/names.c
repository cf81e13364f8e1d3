/* SPDX-License-Identifier: MIT */
/* The names of folders, and small files in them: see store.h. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/when.h"
#include "base/lock.h"
#include "base/far.h"
#include "shelf/store.h"

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
    struct found f = FOUND_NONE;
    if (!reach_is_near(r, dir, name))
        return DT_LNK; /* it may be, or a mount point */
    int e = reach_open(r, dir, name, REACH_NO_LINKS, &f);
    uint8_t type = e == -ELOOP ? DT_LNK : e < 0 ? DT_UNKNOWN : (uint8_t)IFTODT(f.st.st_mode);
    reach_close(&f);
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

/* Names under which a ggufs is mounted are of no type, and a file that is a mount point is looked at as
 * if it were a link: it is on another disk. */
static int bar_mounts(struct reach *r, const struct found *dir, struct names *n)
{
    CLEANUP(buf_free) struct buf barred = BUF_INIT;
    int e = reach_mounts_in(r, dir->path, &barred);
    const char *p = buf_text(&barred), *end = buf_text_end(&barred);
    for (; e == 0 && p && p < end; p += strlen(p) + 1) {
        size_t i = names_from(n, p + 1);
        if (i == n->n || strcmp(name_at(n, i), p + 1) != 0)
            continue;
        if (*p == '!')
            n->name[i].type = DT_UNKNOWN;
        else if (n->name[i].type == DT_REG)
            n->name[i].type = DT_LNK;
    }
    return e;
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
    return e == 0 ? bar_mounts(r, dir, n) : e;
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

void names_free(struct reach *r, const struct names *n)
{
    lock_take(&r->lock);
    names_unref((struct names *)n);
    lock_drop(&r->lock);
}

/* A reference to what is kept of a folder, if that is of now. */
static struct names *find_kept(struct reach *r, const struct stat *st)
{
    struct names *found = NULL;
    lock_take(&r->lock);
    for (size_t i = 0; i < KEPT_MAX && !found; i++) {
        struct kept_names *k = &r->kept[i];
        if (!k->names || k->dev != st->st_dev || k->ino != st->st_ino || k->looks != r->looks ||
            !same_time(k->mtime, st->st_mtim) || !same_time(k->ctime, st->st_ctim))
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
static bool is_settled(int fd, const struct stat *st)
{
    struct timespec now = when_date();
    return st->st_ctim.tv_sec <= now.tv_sec - SETTLED &&
           st->st_mtim.tv_sec <= now.tv_sec - SETTLED && !far_file(fd);
}

static void keep(struct reach *r, const struct stat *st, unsigned looks, struct names *n)
{
    lock_take(&r->lock);
    struct kept_names *k = make_room(r, st, n->texts.cap);
    if (k) {
        n->refs++;
        *k = (struct kept_names){n,           st->st_dev, st->st_ino, st->st_mtim,
                                 st->st_ctim, looks,      ++r->uses};
    }
    lock_drop(&r->lock);
}

int names_load(struct reach *r, const struct found *dir, const struct names **ret)
{
    struct stat st;
    int fd = reach_read(dir), e = fd < 0 ? fd : fstat(fd, &st) < 0 ? -errno : 0;
    unsigned looks = 0;
    *ret = NULL;
    if (e == 0)
        e = reach_see_mounts(r, &looks);
    struct names *n = e == 0 ? find_kept(r, &st) : NULL;
    if (n || e < 0) {
        if (fd >= 0)
            (void)close(fd);
        *ret = n;
        return e;
    }
    n = calloc(1, sizeof(*n));
    if (!n) {
        (void)close(fd);
        return -ENOMEM;
    }
    n->refs = 1;
    bool settled = is_settled(fd, &st); /* before it is read */
    e = read_names(r, dir, fd, n);
    if (e == 0 && settled)
        keep(r, &st, looks, n);
    if (e == 0)
        *ret = n;
    else
        names_free(r, n);
    return e;
}

/* ---- single files ---- */

static int is_folder_there(struct reach *r, const struct found *dir, const char *name,
                           enum reach_flags flags)
{
    struct found f = FOUND_NONE;
    bool is = reach_open(r, dir, name, flags, &f) == 0 && S_ISDIR(f.st.st_mode);
    reach_close(&f);
    return is;
}

static int folder_with_links(struct reach *r, const struct found *dir, const char *name,
                             struct buf *out)
{
    (void)out;
    return is_folder_there(r, dir, name, REACH_LINKS);
}

static int folder_itself(struct reach *r, const struct found *dir, const char *name,
                         struct buf *out)
{
    (void)out;
    return is_folder_there(r, dir, name, REACH_NO_LINKS);
}

int has_folder(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags)
{
    struct buf none = BUF_INIT;
    return look(r, flags == REACH_LINKS ? folder_with_links : folder_itself, dir, name, &none);
}

bool is_shortage(int e)
{
    return e == -ENOMEM || e == -EMFILE || e == -ENFILE;
}

int read_small(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags,
               size_t most, struct buf *ret)
{
    struct found f = FOUND_NONE;
    char piece[4096];
    ssize_t n = 0;
    int e = reach_open(r, dir, name, flags, &f);
    int fd = e < 0 ? e : !S_ISREG(f.st.st_mode) ? -EINVAL : reach_read(&f);
    reach_close(&f);
    if (fd < 0)
        return fd;
    do {
        n = read(fd, piece, sizeof(piece));
        buf_add(ret, piece, n > 0 ? (size_t)n : 0);
    } while ((n > 0 || (n < 0 && errno == EINTR)) && ret->len <= most);
    e = n < 0 ? -errno : buf_error(ret);
    (void)close(fd);
    return e == 0 && ret->len > most ? -EFBIG : e;
}
