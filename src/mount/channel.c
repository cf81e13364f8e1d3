/* SPDX-License-Identifier: MIT */
/* What commands ask of a daemon: see channel.h. */
#include "mount/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "model/split.h"
#include "mount/processes.h"
#include "mount/seek.h"
#include "mount/takedown.h"
#include "tree/tree.h"

/* The most bytes of an attribute that the kernel passes. */
#define XATTR_MOST 65536
/* How often an undo waits for edits that other programs make meanwhile. */
#define UNDO_TRIES 20
/* Milliseconds in which a mount has to answer. */
#define ANSWER_MS 2000

/* ---- where ---- */

static char *metadata_of(const char *folder)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT;
    buf_printf(&path, "%s/metadata", folder);
    buf_char(&path, '\0');
    return buf_error(&path) ? NULL : (char *)buf_steal(&path);
}

/* The first file of a split model, given any of its files; NULL: it is not split. free() it. */
static char *first_shard(const char *path)
{
    struct split s;
    char *first = NULL;
    if (split_find(path, &s) == 0) {
        first = s.n ? split_path(&s, 0) : NULL;
        split_free(&s);
    }
    return first;
}

/* The real path of a model: of a split one, of its first shard. A link to one shard may be beside no
 * others. free() it. */
static char *real_model(const char *operand)
{
    char *first = first_shard(operand);
    char *real = realpath(first ? first : operand, NULL);
    if (real && !first && (first = first_shard(real))) {
        free(real);
        real = realpath(first, NULL);
    }
    free(first);
    return real;
}

/* The mount of a daemon that serves read-write; NULL: it cannot be seen. */
static const struct mount *editor(const struct mounts *ms, const struct process *p)
{
    const struct daemon_status *s = &p->status;
    return s->state == DAEMON_SERVING && !s->read_only && s->model ? process_mount(ms, p) : NULL;
}

/* The mount point of the daemon that serves this model read-write; NULL: no such daemon can be seen. */
static const char *served_at(const struct mounts *ms, const struct processes *ps, const char *model)
{
    for (size_t i = 0; i < ps->n; i++) {
        const struct mount *m = editor(ms, &ps->process[i]);
        if (m && strcmp(ps->process[i].status.model, model) == 0)
            return m->at;
    }
    return NULL;
}

/* The model's folder in a mount of a folder of models whose daemon edits it; NULL: not found. free() it. */
static char *edited_at(const struct mounts *ms, const struct processes *ps, const char *model)
{
    struct file_id id;
    char *found = NULL;
    int fd = open(model, O_PATH | O_CLOEXEC);
    bool known = fd >= 0 && file_id_of(fd, &id);
    for (size_t i = 0; known && !found && i < ps->n; i++) {
        const struct mount *m = editor(ms, &ps->process[i]);
        if (!m || !process_locks(ps->process[i].pid, &id) ||
            mount_life(m->at, ANSWER_MS) != MOUNT_ALIVE)
            continue;
        (void)seek_model(&(struct seek){m->at, ps->process[i].status.model, model}, &found);
    }
    if (fd >= 0)
        (void)close(fd);
    return found;
}

/* A mount that does not answer is left alone: the command then says which process has the lock. */
static int find_daemon(const char *model, char **folder, struct err *e)
{
    struct mounts ms;
    struct processes ps = {0};
    int r = mounts_load(&ms, 0);
    if (r == 0)
        r = processes_find(&ps);
    const char *at = r == 0 ? served_at(&ms, &ps, model) : NULL;
    char *place = r == 0 && !at ? edited_at(&ms, &ps, model) : NULL;
    if (at && mount_life(at, ANSWER_MS) != MOUNT_ALIVE)
        at = NULL;
    at = at ? at : place;
    *folder = at ? metadata_of(at) : NULL;
    if (at && !*folder)
        r = -ENOMEM;
    free(place);
    processes_free(&ps);
    mounts_free(&ms);
    return r < 0 ? err_set(e, r, "cannot list mounts: %s", strerror(-r)) : 0;
}

static int find_folder(const char *operand, char **folder, struct err *e)
{
    *folder = metadata_of(operand);
    if (!*folder)
        return err_set(e, -ENOMEM, "no memory");
    if (getxattr(*folder, TREE_XATTR_HISTORY, NULL, 0) >= 0)
        return 0;
    int r = -errno;
    free(*folder);
    *folder = NULL;
    if (r == -EROFS)
        return err_set(e, r, "it is mounted read-only");
    if (r == -EOPNOTSUPP && faccessat(AT_FDCWD, operand, F_OK, 0) == 0)
        return err_set(e, r, "no history is kept (-o history=0), or it is not a mount of a model");
    if (r == -ENODATA || r == -ENOENT)
        return err_set(e, -EINVAL, "it is a folder, and not a mount of a model");
    return err_set(e, r, "%s", strerror(-r));
}

int channel_find(const char *operand, char **folder, struct err *e)
{
    struct stat st;
    *folder = NULL;
    if (stat(operand, &st) == 0 && S_ISDIR(st.st_mode))
        return find_folder(operand, folder, e);
    char *model = real_model(operand);
    int r = model ? find_daemon(model, folder, e) : 0;
    free(model);
    return r;
}

/* ---- what ---- */

static int get(const char *folder, const char *name, struct buf *out)
{
    uint8_t *at = buf_extend(out, XATTR_MOST);
    ssize_t n = at ? getxattr(folder, name, at, XATTR_MOST) : -1;
    int r = !at ? -ENOMEM : n < 0 ? -errno : 0;
    if (at)
        out->len -= XATTR_MOST - (n > 0 ? (size_t)n : 0);
    return r;
}

/* Wait until everything is written. */
static int sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = fsync(fd) < 0 ? -errno : 0;
    (void)close(fd);
    return r;
}

static int refused(int r, struct err *e)
{
    if (r == -EACCES || r == -EPERM)
        return err_set(e, r, "it takes the right to write the model: %s", strerror(-r));
    return err_set(e, r, "%s", strerror(-r));
}

int channel_undo(const char *folder, const char *number, struct buf *said, struct err *e)
{
    char shown[512];
    int r = -EBUSY;
    for (int i = 0; i < UNDO_TRIES && r == -EBUSY; i++) {
        r = sync_folder(folder);
        if (r < 0)
            return err_set(e, r, "edits before it could not be written: %s", strerror(-r));
        r = setxattr(folder, TREE_XATTR_UNDO, number, strlen(number), 0) < 0 ? -errno : 0;
    }
    if (r == -EACCES || r == -EPERM || r == -EROFS)
        return refused(r, e);
    size_t begin = said->len;
    if (get(folder, TREE_XATTR_UNDO, said) < 0 || said->len == begin)
        return r < 0 ? refused(r, e) : 0;
    if (r == 0)
        return 0;
    (void)show_in(shown, sizeof(shown), said->data + begin, said->len - begin);
    said->len = begin;
    return err_set(e, r, "%s", shown);
}

int channel_history(const char *folder, struct buf *out, struct err *e)
{
    int r = get(folder, TREE_XATTR_HISTORY, out);
    return r < 0 ? err_set(e, r, "cannot read the history: %s", strerror(-r)) : 0;
}

int channel_clear(const char *folder, struct err *e)
{
    int r = setxattr(folder, TREE_XATTR_HISTORY, "clear", 5, 0) < 0 ? -errno : 0;
    return r < 0 ? refused(r, e) : 0;
}
