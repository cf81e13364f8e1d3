/* SPDX-License-Identifier: MIT */
/* The states of a model's keys in files: see history.h, whose invariants are named here. */
#include "edit/history.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/when.h"
#include "edit/history_names.h"

#define TICK_MS 10      /* between two tries to lock it */
#define LOCK_TRIES 10   /* how often the folder may be removed meanwhile */
#define NEW_NAME ".new" /* of a state while it is written: one at a time has the lock */

/* ---- open, close ---- */

int history_open(struct history *h, const struct sys *sys, const char *home, const char *model,
                 unsigned keep, struct err *e)
{
    static const uint64_t key[2] = {0x67677566732d6869, 0x73746f72792d2121}; /* any, but fixed */
    uint64_t hash = siphash(key, model, strlen(model));
    *h = (struct history){
        .sys = sys, .place = HISTORY_PLACE_INIT, .hash = hash ? hash : 1, .keep = keep, .fd = -1};
    h->model = strdup(model);
    if (!h->model)
        return err_set(e, -ENOMEM, "no memory");
    return history_place_find(&h->place, home, e);
}

void history_close(struct history *h)
{
    history_drop(h);
    history_place_free(&h->place);
    free(h->model);
    h->model = NULL;
}

/* -EWOULDBLOCK: another process has it for too long. */
static int lock_soon(const struct history *h)
{
    int r;
    for (unsigned ms = 0; (r = h->sys->flock(h->sys, h->place.dir, LOCK_EX | LOCK_NB)) != 0 &&
                          (r == -EINTR || r == -EWOULDBLOCK) && ms < h->patience;
         ms += TICK_MS)
        when_sleep(TICK_MS);
    return r == -EINTR ? -EWOULDBLOCK : r;
}

static int lock_open(struct history *h, bool make, struct err *e)
{
    int r = history_place_open(&h->place, h->sys, make, e);
    if (r < 0)
        return r;
    r = h->patience ? lock_soon(h) : h->sys->flock(h->sys, h->place.dir, LOCK_EX);
    while (r == -EINTR)
        r = h->sys->flock(h->sys, h->place.dir, LOCK_EX);
    if (r == -EWOULDBLOCK)
        return err_set(e, -EAGAIN, "%s: another process has locked it", h->place.path);
    return r < 0 ? err_set(e, r, "%s: cannot lock it: %s", h->place.path, strerror(-r)) : 0;
}

static bool is_removed(const struct history *h)
{
    struct stat st;
    return h->sys->fstat(h->sys, h->place.dir, &st) == 0 && st.st_nlink == 0;
}

/* A folder that was removed while it was open is left for the one that now has its name. */
static int lock(struct history *h, bool make, struct err *e)
{
    int r = lock_open(h, make, e);
    for (int i = 0; i < LOCK_TRIES && r == 0 && is_removed(h); i++) {
        sys_close(h->sys, &h->place.dir);
        r = lock_open(h, make, e);
    }
    return r;
}

static void unlock(struct history *h)
{
    (void)h->sys->flock(h->sys, h->place.dir, LOCK_UN);
}

/* ---- a state's file ---- */

static struct history_name name_of(const struct history *h, const struct history_record *r)
{
    return (struct history_name){.hash = h->hash,
                                 .number = r->number,
                                 .time = (uint64_t)r->begin,
                                 .size = HISTORY_RECORD + r->path_len + r->image_len};
}

static int failed(const struct history *h, uint64_t number, int r, const char *what, struct err *e)
{
    return err_set(e, r, "state %llu in %s: cannot %s: %s", (unsigned long long)number,
                   h->place.path, what, strerror(-r));
}

/* H4. Nothing but a file is opened: to open a device is to use it. */
static int open_state(struct history *h, const struct history_name *n, bool write, struct stat *st,
                      struct err *e)
{
    char name[HISTORY_NAME_MAX];
    int flags = (write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    history_name_put(n, name);
    int r = h->sys->fstatat(h->sys, h->place.dir, name, st);
    if (r < 0)
        return failed(h, n->number, r, "find it", e);
    if (!S_ISREG(st->st_mode) || st->st_uid != geteuid() || st->st_nlink != 1)
        return err_set(e, -EPERM, "state %llu in %s: it is not a file that this program made",
                       (unsigned long long)n->number, h->place.path);
    int fd = h->sys->openat(h->sys, h->place.dir, name, flags, 0);
    return fd < 0 ? failed(h, n->number, fd, "open it", e) : fd;
}

/* ---- keeping ---- */

/* What the file of a state has but for its record, written once from begin to end. */
static int fill(struct history *h, const struct buf *head, const struct gguf *keys)
{
    const uint8_t *bytes;
    size_t n;
    uint32_t at = 0;
    uint64_t end = head->len;
    int done = sys_write_all(h->sys, h->fd, head->data, head->len, 0);
    while (done == 0 && history_run(keys, &at, &bytes, &n)) {
        done = sys_write_all(h->sys, h->fd, bytes, n, end);
        end += n;
    }
    return done;
}

static int begin_locked(struct history *h, struct history_record *r, const struct buf *head,
                        const struct gguf *keys, struct err *e)
{
    CLEANUP(history_names_free) struct history_names l = HISTORY_NAMES_INIT;
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, dir = h->place.dir;
    int done = history_names_read(h, &l, e);
    if (done < 0)
        return done;
    r->number = history_names_next(&l, h->hash);
    (void)h->sys->unlinkat(h->sys, dir, NEW_NAME); /* of a process that has ended */
    h->fd = h->sys->openat(h->sys, dir, NEW_NAME, flags, 0600);
    if (h->fd < 0)
        return failed(h, r->number, h->fd, "make a file for it", e);
    done = fill(h, head, keys);
    if (done < 0)
        return failed(h, r->number, done, "write it", e);
    sys_begin_sync(h->sys, h->fd, 0, 0);
    return 0;
}

int history_begin(struct history *h, struct history_record *r, const struct gguf *keys,
                  struct err *e)
{
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    if (history_head(r, h->model, keys, &head) < 0)
        return err_set(e, -ENOMEM, "no memory");
    uint64_t size = HISTORY_RECORD + r->path_len + r->image_len;
    if (size > HISTORY_BYTES_MAX - HISTORY_BLOCK)
        return err_set(e, -EFBIG, "the keys take %llu bytes: %llu are kept of all models together",
                       (unsigned long long)size, (unsigned long long)HISTORY_BYTES_MAX);
    int done = lock(h, true, e);
    if (done < 0)
        return done;
    h->begun = true;
    done = begin_locked(h, r, &head, keys, e);
    if (done < 0)
        history_drop(h);
    return done;
}

void history_drop(struct history *h)
{
    if (!h->begun)
        return;
    if (h->fd >= 0) {
        sys_close(h->sys, &h->fd);
        (void)h->sys->unlinkat(h->sys, h->place.dir, NEW_NAME);
    }
    h->fd = -1;
    h->begun = false;
    unlock(h);
}

/* H1. */
static int publish(struct history *h, const struct history_record *r, struct err *e)
{
    uint8_t record[HISTORY_RECORD];
    char name[HISTORY_NAME_MAX];
    const struct history_name n = name_of(h, r);
    history_name_put(&n, name);
    history_record_put(r, record);
    int done = sys_write_all(h->sys, h->fd, record, sizeof(record), 0);
    if (done == 0)
        done = sys_sync(h->sys, h->fd);
    if (done == 0)
        done = h->sys->rename(h->sys, h->place.dir, NEW_NAME, name, 0);
    if (done < 0)
        return failed(h, r->number, done, "write it", e);
    sys_close(h->sys, &h->fd); /* it has its name: not to be dropped */
    return sys_sync_dir(h->sys, h->place.dir) < 0 ? failed(h, r->number, -EIO, "sync the folder", e)
                                                  : 0;
}

int history_finish(struct history *h, const struct history_record *r, struct err *e)
{
    int done = publish(h, r, e);
    history_drop(h);
    return done;
}

int history_save(struct history *h, struct history_record *r, const struct gguf *keys,
                 struct err *e)
{
    int done = history_begin(h, r, keys, e);
    return done < 0 ? done : history_finish(h, r, e);
}

int history_prune(struct history *h, const struct history_record *r, struct err *e)
{
    CLEANUP(history_names_free) struct history_names l = HISTORY_NAMES_INIT;
    const struct history_name kept = name_of(h, r);
    assert(!h->begun); /* its lock is the same */
    int done = lock(h, false, e);
    if (done < 0)
        return done;
    done = history_names_read(h, &l, e);
    if (done == 0)
        done = history_names_prune(h, &l, &kept, e);
    unlock(h);
    return done;
}

int history_update(struct history *h, const struct history_record *r, struct err *e)
{
    uint8_t record[HISTORY_RECORD];
    struct stat st;
    const struct history_name n = name_of(h, r);
    int done = history_place_open(&h->place, h->sys, false, e);
    if (done < 0)
        return done;
    int fd = open_state(h, &n, true, &st, e);
    if (fd < 0)
        return fd;
    history_record_put(r, record);
    done = sys_write_all(h->sys, fd, record, sizeof(record), 0);
    sys_close(h->sys, &fd);
    return done < 0 ? failed(h, r->number, done, "write it", e) : 0;
}

int history_sync(struct history *h, const struct history_record *r, struct err *e)
{
    struct stat st;
    const struct history_name n = name_of(h, r);
    int done = history_place_open(&h->place, h->sys, false, e);
    int fd = done < 0 ? done : open_state(h, &n, true, &st, e);
    if (fd < 0)
        return fd;
    done = sys_sync(h->sys, fd);
    sys_close(h->sys, &fd);
    return done < 0 ? failed(h, r->number, done, "sync it", e) : 0;
}

/* ---- looking ---- */

void history_list_free(struct history_list *l)
{
    free(l->name);
    *l = HISTORY_LIST_INIT;
}

static int by_number(const void *a, const void *b)
{
    const struct history_name *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* The names, if the folder exists; else *exists is false. */
static int read_names(struct history *h, struct history_names *l, struct err *e)
{
    struct err why = {0};
    int r = history_place_open(&h->place, h->sys, false, &why);
    if (r == -ENOENT)
        return 0;
    return r < 0 ? err_set(e, r, "%s", why.msg) : history_names_read(h, l, e);
}

int history_list(struct history *h, struct history_list *ret, struct err *e)
{
    CLEANUP(history_names_free) struct history_names l = HISTORY_NAMES_INIT;
    struct history_list list = HISTORY_LIST_INIT;
    int r = read_names(h, &l, e);
    for (size_t i = 0; i < l.n && r == 0; i++) {
        if (l.name[i].hash != h->hash)
            continue;
        r = array_grow(&list.name, &list.cap, list.n, sizeof(*list.name));
        if (r == 0)
            list.name[list.n++] = l.name[i];
        else
            (void)err_set(e, r, "no memory");
    }
    if (list.n)
        qsort(list.name, list.n, sizeof(*list.name), by_number);
    if (r < 0)
        history_list_free(&list);
    *ret = list;
    return r;
}

/* The file of a state in memory, as far as it is wanted. */
static int load(struct history *h, const struct history_name *n, bool whole, struct buf *ret,
                struct err *e)
{
    struct stat st;
    int fd = open_state(h, n, false, &st, e);
    if (fd < 0)
        return fd;
    size_t size = whole ? (size_t)n->size : HISTORY_RECORD;
    uint8_t *bytes = NULL;
    int r = 0;
    if (st.st_size < 0 || (uint64_t)st.st_size != n->size || n->size < HISTORY_RECORD)
        r = err_set(e, -EBADMSG, "state %llu in %s: it is damaged: %lld bytes, its name says %llu",
                    (unsigned long long)n->number, h->place.path, (long long)st.st_size,
                    (unsigned long long)n->size);
    else if (!(bytes = buf_extend(ret, size)))
        r = err_set(e, -ENOMEM, "no memory for state %llu", (unsigned long long)n->number);
    else if ((r = sys_read_all(h->sys, fd, bytes, size, 0)) < 0)
        r = failed(h, n->number, r, "read it", e);
    sys_close(h->sys, &fd);
    return r;
}

int history_read_listed(struct history *h, const struct history_name *n, struct history_record *ret,
                        struct gguf **keys, struct err *e)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    int r = load(h, n, keys != NULL, &b, e);
    if (r < 0)
        return r;
    struct gguf *g = NULL;
    r = keys ? history_parse(b.data, b.len, h->model, ret, &g, e)
             : history_record_get(b.data, ret, e);
    if (r == 0 && ret->number != n->number)
        r = err_set(e, -EBADMSG, "it is damaged: its number is another");
    if (r < 0) {
        gguf_free(g);
        return err_prefix(e, r, "state %llu in %s", (unsigned long long)n->number, h->place.path);
    }
    if (keys)
        *keys = g;
    return 0;
}

int history_read(struct history *h, uint64_t number, struct history_record *ret, struct gguf **keys,
                 struct err *e)
{
    CLEANUP(history_names_free) struct history_names l = HISTORY_NAMES_INIT;
    int r = read_names(h, &l, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < l.n; i++)
        if (l.name[i].hash == h->hash && l.name[i].number == number)
            return history_read_listed(h, &l.name[i], ret, keys, e);
    return err_set(e, -ENOENT, "there is no state %llu (ggufs --history shows those that exist)",
                   (unsigned long long)number);
}

int history_clear(struct history *h, size_t *n, struct err *e)
{
    CLEANUP(history_names_free) struct history_names l = HISTORY_NAMES_INIT;
    *n = 0;
    struct err why = {0};
    assert(!h->begun);
    h->patience = HISTORY_PATIENCE;
    int r = lock(h, false, &why);
    h->patience = 0;
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return err_set(e, r, "%s", why.msg);
    r = history_names_read(h, &l, e);
    if (r == 0)
        r = history_names_drop(h, &l, n, e);
    if (r == 0 && *n && (r = sys_sync_dir(h->sys, h->place.dir)) < 0)
        (void)err_set(e, r, "%s: cannot sync it: %s", h->place.path, strerror(-r));
    unlock(h);
    return r;
}
