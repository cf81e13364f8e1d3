/* SPDX-License-Identifier: MIT */
/* The model file as an edit sees it: see file.h. */
#include "edit/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/hash.h"

/*
 * How often a model may be replaced while it is being opened. Without a limit this would not end
 * where inode numbers change by themselves, because the model always seems to be replaced.
 */
#define OPEN_TRIES 100

struct edit_id edit_id_of(const struct stat *st)
{
    return (struct edit_id){st->st_dev, st->st_ino, (uint64_t)st->st_size, st->st_mtim};
}

bool edit_id_equal(const struct edit_id *a, const struct edit_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/*
 * Takes the lock, and checks that the path still names this file, because a writer may just have
 * replaced it.
 */
static int lock(const struct edit_file *f, bool *replaced, struct err *e)
{
    struct stat st;
    int r = f->sys->flock(f->sys, f->fd, LOCK_EX | LOCK_NB);
    if (r == -EWOULDBLOCK)
        return err_set(e, r, "another process has the model open for writing");
    if (r < 0)
        return err_sys(e, r, "cannot lock the model");
    r = f->sys->fstatat(f->sys, f->dir, f->name, &st);
    *replaced = r == -ENOENT || (r == 0 && (st.st_dev != f->id.dev || st.st_ino != f->id.ino));
    return *replaced || r == 0 ? 0 : err_sys(e, r, "cannot stat the model");
}

int edit_file_stat(const struct edit_file *f, struct stat *ret, struct err *e)
{
    int r = f->sys->fstat(f->sys, f->fd, ret);
    return err_sys(e, r, "cannot stat the model");
}

static int not_regular(struct err *e)
{
    return err_set(e, -EINVAL, "is not a regular file");
}

/*
 * Returns true if the file is read-only for its own user, as is a copy that cp(1) made of the view
 * model.gguf.
 */
static bool is_own_copy(const struct stat *st, int error)
{
    return error == -EACCES && st->st_uid == geteuid() && !(st->st_mode & S_IWUSR);
}

/* Opens the model if it is a regular file, because opening a device might have side effects. */
static int open_once(struct edit_file *f, bool write, bool *replaced, struct err *e)
{
    int flags = (write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    struct stat st;
    *replaced = false;
    int r = f->sys->fstatat(f->sys, f->dir, f->name, &st);
    if (r == 0 && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return not_regular(e);
    f->fd = f->sys->openat(f->sys, f->dir, f->name, flags, 0);
    if (f->fd < 0)
        return err_set(e, f->fd, "cannot open the model%s: %s%s", write ? " for writing" : "",
                       strerror(-f->fd),
                       write && r == 0 && is_own_copy(&st, f->fd) ? " (chmod u+w)" : "");
    r = edit_file_stat(f, &st, e);
    if (r < 0)
        return r;
    if (!S_ISREG(st.st_mode))
        return not_regular(e);
    f->id = edit_id_of(&st);
    return write ? lock(f, replaced, e) : 0;
}

int edit_file_open(struct edit_file *f, const struct sys *sys, int dir, const char *name,
                   bool write, struct err *e)
{
    struct edit_file file = {.sys = sys, .dir = dir, .fd = -1, .locked = write};
    if (strlen(name) > NAME_MAX)
        return err_set(e, -ENAMETOOLONG, "the model's name is over %d bytes", NAME_MAX);
    memcpy(file.name, name, strlen(name) + 1);
    for (int i = 0; i < OPEN_TRIES; i++) {
        bool replaced;
        int r = open_once(&file, write, &replaced, e);
        if (r == 0 && !replaced) {
            *f = file;
            return 0;
        }
        sys_close(sys, &file.fd);
        if (r < 0)
            return r;
    }
    return err_set(e, -ESTALE, "the model's file was replaced each time it was opened");
}

void edit_file_unlock(const struct edit_file *f)
{
    if (f->fd >= 0)
        (void)f->sys->flock(f->sys, f->fd, LOCK_UN);
}

void edit_file_close(struct edit_file *f)
{
    sys_close(f->sys, &f->fd);
}

int edit_file_fresh(const struct edit_file *f, struct err *e)
{
    struct stat st;
    int r = f->sys->fstatat(f->sys, f->dir, f->name, &st);
    if (r < 0 && r != -ENOENT)
        return err_sys(e, r, "cannot stat the model");
    struct edit_id now = r < 0 ? (struct edit_id){0} : edit_id_of(&st);
    if (r == 0 && (f->unfinished ? now.dev == f->id.dev && now.ino == f->id.ino
                                 : edit_id_equal(&now, &f->id)))
        return 0;
    const char *what = r < 0                    ? "is gone"
                       : now.ino != f->id.ino   ? "is another file now"
                       : now.size != f->id.size ? "has another size now"
                                                : "was written by another program";
    return err_set(e, -ESTALE, "the model changed behind the mount: it %s", what);
}

int edit_file_links(const struct stat *st, bool may_break, struct err *e)
{
    if (may_break || st->st_nlink <= 1)
        return 0;
    return err_set(e, -EMLINK,
                   "the model has other names (%lu hard links in all), which would keep "
                   "the old content (-o hardlinks=break)",
                   (unsigned long)st->st_nlink);
}

int edit_file_note(struct edit_file *f, struct err *e)
{
    struct stat st;
    int r = edit_file_stat(f, &st, e);
    if (r == 0)
        f->id = edit_id_of(&st);
    return r;
}

void edit_side_name(char dst[NAME_MAX + 1], const char *name, const char *suffix)
{
    /* arbitrary, but fixed */
    static const uint64_t key[2] = {0x67677566732d7369, 0x64652d6e616d6521};
    static const char mark[] = ".ggufs-";
    size_t n = strlen(name), around = 1 + sizeof(mark) - 1 + sizeof(EDIT_JOURNAL_SUFFIX) - 1;
    char cut[32] = "";
    if (n + around > NAME_MAX) {
        (void)snprintf(cut, sizeof(cut), "~%016" PRIx64, siphash(key, name, n));
        n = NAME_MAX - around - strlen(cut);
    }
    (void)snprintf(dst, NAME_MAX + 1, ".%.*s%s%s%s", (int)n, name, cut, mark, suffix);
}

bool edit_is_owned(const struct stat *st, const struct stat *model)
{
    return S_ISREG(st->st_mode) &&
           (st->st_uid == geteuid() || st->st_uid == model->st_uid || st->st_uid == 0);
}

bool edit_is_ours(const struct stat *st, const struct stat *model)
{
    return edit_is_owned(st, model) && st->st_nlink == 1;
}
