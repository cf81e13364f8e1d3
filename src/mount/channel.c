/* SPDX-License-Identifier: MIT */
/* What commands ask of a daemon: see channel.h. */
#include "mount/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "model/split.h"
#include "mount/aside.h"
#include "mount/processes.h"
#include "mount/seek.h"
#include "mount/takedown.h"
#include "tree/tree.h"

/* The most bytes of an attribute that the kernel passes. */
#define XATTR_MOST 65536
/* How often an undo waits for edits that other programs make meanwhile. */
#define UNDO_TRIES 20
/* Milliseconds in which a mount has to answer that is looked at only because it may have the model. */
#define ANSWER_MS 2000
/* The same for one that was named, or that has a request. */
#define LIMIT_MS 10000

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

/* ---- calls that the daemon may not answer ---- */

enum { NO_FOLDER = 0, OFFERED = 1, ERRNO = 2 }; /* what look() returns; ERRNO: added to a number */

/* What an operand is: a folder that offers a history, no folder, or why it is neither. */
static int look(const void *arg, int out)
{
    struct stat st;
    (void)out;
    if (stat(arg, &st) < 0 || !S_ISDIR(st.st_mode))
        return NO_FOLDER;
    char *folder = metadata_of(arg);
    int r = !folder ? ENOMEM : getxattr(folder, TREE_XATTR_HISTORY, NULL, 0) >= 0 ? 0 : errno;
    free(folder);
    return r && r != EIO ? ERRNO + r
                         : OFFERED; /* EIO: it cannot be read; what is asked for says why */
}

static int not_answered(struct err *e)
{
    return err_set(e, -ETIMEDOUT, "its mount does not answer");
}

static int not_offered(const char *operand, int r, struct err *e)
{
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
    int is = aside(look, operand, LIMIT_MS, NULL), r = 0;
    *folder = NULL;
    if (is == -ETIMEDOUT)
        return not_answered(e);
    if (is < 0)
        return err_set(e, is, "%s", strerror(-is));
    if (is > OFFERED)
        return not_offered(operand, ERRNO - is, e);
    if (is == OFFERED) {
        *folder = metadata_of(operand);
        return *folder ? 0 : err_set(e, -ENOMEM, "no memory");
    }
    char *model = real_model(operand);
    if (model)
        r = find_daemon(model, folder, e);
    free(model);
    return r;
}

/* A request. What the daemon says about it goes to `out`. 0, or an errno that is not negative. */
struct request {
    const char *folder;
    const char *set, *value; /* the attribute that is set; NULL: `get` alone */
    const char *get;         /* the one that is read; NULL: none */
    bool settled;            /* all edits are to be written before */
};

static int write_out(int out, const char *at, ssize_t n)
{
    while (n > 0) {
        ssize_t done = write(out, at, (size_t)n);
        if (done < 0 && errno != EINTR)
            return errno;
        at += done > 0 ? done : 0;
        n -= done > 0 ? done : 0;
    }
    return 0;
}

/* Wait until everything is written. */
static int sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int r = fsync(fd) < 0 ? errno : 0;
    (void)close(fd);
    return r;
}

/* Other programs may make edits meanwhile. *said: a line was written. */
static int set_attribute(const struct request *q, int out, bool *said)
{
    int r = EBUSY;
    for (int i = 0; i < UNDO_TRIES && r == EBUSY; i++) {
        char line[128];
        r = q->settled ? sync_folder(q->folder) : 0;
        if (r) {
            *said = true;
            int n = snprintf(line, sizeof(line), "edits before it could not be written: %s",
                             strerror(r));
            (void)write_out(out, line, n);
            return r;
        }
        r = setxattr(q->folder, q->set, q->value, strlen(q->value), 0) < 0 ? errno : 0;
    }
    /* The kernel refused it: the daemon does not know of this request. */
    *said = r == EACCES || r == EPERM || r == EROFS;
    return r;
}

static int make_request(const void *arg, int out)
{
    const struct request *q = arg;
    bool said = false;
    int r = q->set ? set_attribute(q, out, &said) : 0;
    if (!q->get || said)
        return r;
    char *at = malloc(XATTR_MOST);
    ssize_t n = at ? getxattr(q->folder, q->get, at, XATTR_MOST) : -1;
    if (n < 0 && !q->set)
        r = at ? errno : ENOMEM;
    int wrote = write_out(out, at, n);
    free(at);
    return r ? r : wrote;
}

/* The daemon answers what is quick: then it is only the request that takes long. */
static bool still_alive(const void *arg)
{
    const struct request *q = arg;
    return mount_life(q->folder, LIMIT_MS) == MOUNT_ALIVE;
}

/* -ETIMEDOUT: the daemon answers nothing any more. */
static int request(const struct request *q, struct buf *said)
{
    int r = aside_watched(make_request, q, LIMIT_MS, still_alive, said);
    return r > 0 ? -r : r;
}

/* ---- what ---- */

static int refused(int r, struct err *e)
{
    if (r == -EACCES || r == -EPERM)
        return err_set(e, r, "it takes the right to write the model: %s", strerror(-r));
    return err_set(e, r, "%s", strerror(-r));
}

int channel_undo(const char *folder, const char *number, struct buf *said, struct err *e)
{
    char shown[512];
    size_t begin = said->len;
    int r = request(&(struct request){.folder = folder,
                                      .set = TREE_XATTR_UNDO,
                                      .value = number,
                                      .get = TREE_XATTR_UNDO,
                                      .settled = true},
                    said);
    if (r == 0)
        return 0;
    if (r == -ETIMEDOUT)
        return err_set(e, r,
                       "its mount does not answer any more; if the daemon goes on, the undo may "
                       "still be done (ggufs --history shows it)");
    if (said->len == begin)
        return refused(r, e);
    (void)show_in(shown, sizeof(shown), said->data + begin, said->len - begin);
    said->len = begin;
    return err_set(e, r, "%s", shown);
}

/* The states cannot be read: the daemon's reason. */
static int not_read(const char *folder, int r, struct err *e)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    char shown[512];
    int asked = request(&(struct request){.folder = folder, .get = TREE_XATTR_HISTORY_ERROR}, &why);
    if (asked < 0 || why.len == 0)
        return err_set(e, r, "cannot read the history: %s", strerror(-r));
    return err_set(e, r, "%s", show_in(shown, sizeof(shown), (const char *)why.data, why.len));
}

int channel_history(const char *folder, struct buf *out, struct err *e)
{
    int r = request(&(struct request){.folder = folder, .get = TREE_XATTR_HISTORY}, out);
    if (r == -ETIMEDOUT)
        return not_answered(e);
    return r < 0 ? not_read(folder, r, e) : 0;
}

int channel_clear(const char *folder, struct err *e)
{
    int r = request(
        &(struct request){.folder = folder, .set = TREE_XATTR_HISTORY, .value = "clear"}, NULL);
    if (r == -ETIMEDOUT)
        return not_answered(e);
    return r < 0 ? refused(r, e) : 0;
}
