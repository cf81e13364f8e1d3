/* SPDX-License-Identifier: MIT */
/* The FUSE callbacks: see ops.h. */
#include "mount/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/lock.h"
#include "mount/proc.h"
#include "shelf/shelf.h"
#include "tree/folder.h"
#include "tree/attr.h"

/* Seconds for which the kernel caches attributes and names that never change: longer than any mount
 * exists. */
#define FOREVER 1e9

/* ---- requests ---- */

static struct mnt *mnt_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static struct shelf *shelf_of(fuse_req_t req)
{
    return mnt_of(req)->shelf;
}

/* Return the handle of a request. The handle was initialized before the reply to the open. */
static struct handle *handle_of(const struct fuse_file_info *fi)
{
    struct handle *h = (struct handle *)(uintptr_t)fi->fh;
    order_after(h);
    return h;
}

/* Return how long the kernel caches the attributes, in seconds. */
static double timeout_of(const struct tree_entry *e)
{
    return e->lasting ? FOREVER : e->steady ? 1 : 0;
}

static struct fuse_entry_param entry_param(const struct tree_entry *e)
{
    return (struct fuse_entry_param){.ino = e->node,
                                     .generation = e->generation,
                                     .attr = e->attr,
                                     .attr_timeout = timeout_of(e),
                                     .entry_timeout = e->fixed  ? FOREVER
                                                      : e->slow ? 1
                                                                : 0};
}

/* Reply with an entry or, if r is negative, with the error -r. */
static void reply_entry(fuse_req_t req, int r, const struct tree_entry *e)
{
    if (r < 0) {
        (void)fuse_reply_err(req, -r);
        return;
    }
    struct fuse_entry_param p = entry_param(e);
    struct shelf *s = shelf_of(req); /* the reply frees req, even if it fails */
    /* the request was interrupted: the kernel did not get the entry */
    if (fuse_reply_entry(req, &p) < 0)
        shelf_forget(s, e->node, 1);
}

/* ---- requests that wait ---- */

/* A request whose reply must wait. The tree takes ownership of this struct, and another thread
 * replies. A signal that should stop the waiting program ends only the wait, not the edit. */
struct parked {
    struct live_wait wait; /* must come first: done() gets its address */
    fuse_req_t req;
    struct tree_file *file; /* the file of the request's handle, or NULL */
    size_t written;         /* for a write: number of bytes written */
    uint64_t off;           /* for a read */
    size_t size;
    fuse_ino_t ino;             /* for a setattr: the node whose attributes the reply contains */
    struct tree_file *unopened; /* owned; for a truncation without a handle, otherwise NULL */
};

static void on_done(struct live_wait *w, int result)
{
    struct parked *p = (struct parked *)w;
    const fuse_req_t req = p->req;
    const size_t written = p->written;
    const bool attributes = p->ino;
    struct tree_entry e;
    if (result == 0 && attributes)
        result = shelf_getattr(shelf_of(req), p->ino, p->unopened, &e);
    order_before(p->file);
    if (p->unopened)
        (void)shelf_release(p->unopened);
    free(p);
    if (result < 0 || !(attributes || written))
        (void)fuse_reply_err(req, -result);
    else if (attributes)
        (void)fuse_reply_attr(req, &e.attr, timeout_of(&e));
    else
        (void)fuse_reply_write(req, written);
}

/* Return true if a signal should stop the program that made the request. */
static bool is_to_stop(fuse_req_t req)
{
    return fuse_req_interrupted(req) && stops_thread(fuse_req_ctx(req)->pid);
}

static bool is_stopped(struct live_wait *w)
{
    return is_to_stop(((struct parked *)w)->req);
}

/* The end of the mount also ends a conversion. */
static bool is_cut_short(struct live_wait *w)
{
    return is_stopped(w) || atomic_load(&mnt_of(((struct parked *)w)->req)->ending);
}

/* Only the first signal arrives here; is_stopped() finds later ones. */
static void on_signal(fuse_req_t req, void *shelf)
{
    if (is_to_stop(req))
        shelf_interrupt(shelf, req);
}

/* Prepare a wait for this request. `file` is the open file that the request is about, or NULL. If
 * memory runs out, answers the request and returns NULL. */
static struct parked *park(fuse_req_t req, struct tree_file *file)
{
    struct parked *p = calloc(1, sizeof(*p));
    if (!p) {
        (void)fuse_reply_err(req, ENOMEM);
        return NULL;
    }
    *p = (struct parked){.wait = {.done = on_done,
                                  .request = req,
                                  .stopped = file && file->converts ? is_cut_short : is_stopped},
                         .req = req,
                         .file = file};
    fuse_req_interrupt_func(req, on_signal, shelf_of(req));
    return p;
}

/* ---- reads ---- */

/* A program that has made this many sequential reads is expected to continue reading. */
enum { RUN_MIN = 2 };

enum { PAGE = 4096 };

/* Bytes that most requests ask for at most. */
#define SCRATCH ((size_t)1 << 20)

/* Memory for answers that are sent at once, kept for later reads: memory that is new from the system
 * costs about as much as copying it. */
static _Atomic(void *) spare[4];

/* Return memory for `size` bytes, or NULL. */
static void *scratch_take(size_t size)
{
    void *p = NULL;
    for (size_t i = 0; !p && size <= SCRATCH && i < COUNT(spare); i++)
        p = atomic_exchange(&spare[i], NULL);
    if (!p && posix_memalign(&p, PAGE, size > SCRATCH ? size : SCRATCH) != 0)
        return NULL;
    return p;
}

static void scratch_give(void *p, size_t size)
{
    for (size_t i = 0; p && size <= SCRATCH && i < COUNT(spare); i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&spare[i], &none, p))
            return;
    }
    free(p);
}

/* Reply. If the answer is in the model's mapping and one of its pages has disappeared, writing the
 * reply fails with EFAULT, and the kernel itself ends the request with EIO. */
static void answer_reply(fuse_req_t req, int err, struct reply *a)
{
    if (err < 0)
        (void)fuse_reply_err(req, -err);
    else
        (void)fuse_reply_buf(req, (const char *)a->bytes, a->len);
    tree_reply_done(a);
}

/* The outcome of a read: it was answered, answered from a mapping, or parked. */
enum answered { ANSWERED, ANSWERED_MAPPED, ANSWER_PARKED };

/* Read and reply. If the content has not been computed yet, w->done() is called later instead. The
 * file is not used after the reply, because it may have been closed by then. */
static enum answered answer_read(struct tree_file *f, fuse_req_t req, uint64_t off, size_t size,
                                 struct live_wait *w)
{
    void *scratch = scratch_take(size);
    struct reply a = {.scratch = scratch, .wait = w};
    int r = scratch ? tree_read(f, off, size, &a) : -ENOMEM;
    enum answered how = r == LIVE_PARKED ? ANSWER_PARKED : a.mapped ? ANSWERED_MAPPED : ANSWERED;
    if (how != ANSWER_PARKED) {
        order_before(f);
        answer_reply(req, r, &a);
    }
    scratch_give(scratch, size);
    return how;
}

/* ---- files whose content is computed first ---- */

static bool is_interrupted(struct live_wait *w)
{
    return fuse_req_interrupted(((struct parked *)w)->req);
}

static void on_computed(struct live_wait *w, int result)
{
    struct parked *p = (struct parked *)w;
    enum answered how = ANSWERED;
    if (result < 0) {
        order_before(p->file);
        (void)fuse_reply_err(p->req, -result);
    } else {
        how = answer_read(p->file, p->req, p->off, p->size, w);
    }
    if (how != ANSWER_PARKED)
        free(p);
}

/* Any signal may interrupt the wait, because an interrupted read loses nothing. */
static void on_interrupt(fuse_req_t req, void *tree)
{
    tree_interrupt(tree, req);
}

/* Read a computed file, and reply now or when its content has been computed. */
static void answer_computed(struct tree_file *f, fuse_req_t req, uint64_t off, size_t size)
{
    struct parked *p = park(req, f);
    if (!p)
        return;
    p->wait.done = on_computed;
    p->wait.stopped = is_interrupted;
    p->off = off;
    p->size = size;
    fuse_req_interrupt_func(req, on_interrupt, f->tree);
    on_computed(&p->wait, 0);
}

/*
 * ---- an open file ----
 *
 * The stretch ahead is NONE; BUSY while one thread prepares or sends it; or READY, until a read
 * takes it. While it is sent, no read matches it.
 */

enum ahead { AHEAD_NONE, AHEAD_BUSY, AHEAD_READY };

/* The offset of a stretch that is being sent. */
#define NOWHERE UINT64_MAX

struct handle {
    struct tree_file *file; /* owned; NULL for a directory */
    struct shelf_dir *dir;  /* owned; NULL for a file */
    struct handles *in;
    /* The remaining members are protected by the lock of `in`. In BUSY, the thread that prepares the
     * stretch accesses `room` without the lock. */
    struct handle *prev, *next;
    unsigned refs; /* one of the open handle, one of each thread that reads ahead */
    uint64_t upto; /* where the last read ended */
    unsigned run;  /* number of reads in a row that each began where the previous one ended */
    enum ahead state;
    uint64_t off;        /* the stretch's offset in the file */
    size_t size;         /* number of bytes requested for the stretch */
    struct reply answer; /* in READY: the answer, in `room` */
    uint8_t *room;       /* owned: memory for the answer, or NULL */
    size_t room_size;    /* size of `room`, counted in ahead_used */
    fuse_req_t waiting;  /* parked until the stretch is ready, or NULL */
    size_t waiting_size;
};

static struct tree_file *file_of(const struct fuse_file_info *fi)
{
    return handle_of(fi)->file;
}

/* The sum of room_size of all handles. */
static atomic_size_t ahead_used;

static void room_free(struct handle *h)
{
    free(h->room);
    h->room = NULL;
    (void)atomic_fetch_sub(&ahead_used, h->room_size);
    h->room_size = 0;
}

static void drop(struct handle *h)
{
    lock_take(&h->in->lock);
    const bool last = --h->refs == 0;
    lock_drop(&h->in->lock);
    if (!last)
        return;
    room_free(h);
    if (h->file)
        (void)shelf_release(h->file);
    if (h->dir)
        shelf_closedir(h->dir);
    free(h);
}

/* ---- reading ahead ---- */

static int make_room(struct handle *h, size_t size)
{
    void *room;
    room_free(h);
    h->room_size = size;
    if (atomic_fetch_add(&ahead_used, size) + size <= AHEAD_TOTAL &&
        posix_memalign(&room, PAGE, size) == 0) {
        h->room = room;
        return 0;
    }
    room_free(h);
    return -ENOMEM;
}

/* Prepare the answer. Call in BUSY. Returns 0 or -errno. */
static int prepare(struct handle *h, uint64_t off, size_t size, struct reply *ret)
{
    int err = h->room_size >= size ? 0 : make_room(h, size);
    *ret = (struct reply){.scratch = h->room};
    if (err == 0)
        err = tree_read(h->file, off, size, ret);
    if (ret->mapped) { /* keeping the answer would pin the model's snapshot until the next read */
        tree_reply_done(ret);
        err = -EAGAIN;
    }
    if (err < 0 || ret->len == 0) /* leave the memory for other handles */
        room_free(h);
    return err;
}

/* Begin to prepare the bytes that follow the last read, if the file is read in order. Returns true
 * if this thread must then call go_ahead(). */
static bool begin_ahead(struct handle *h, size_t size)
{
    LOCKED(&h->in->lock);
    if (h->run < RUN_MIN || h->state == AHEAD_BUSY ||
        (h->state == AHEAD_READY && h->off == h->upto))
        return false;
    h->off = h->upto;
    h->size = size;
    h->state = AHEAD_BUSY;
    return true;
}

/* Reply with the stretch in BUSY, and go on to the next one. */
static void answer_ready(struct handle *h, fuse_req_t req, size_t size, struct reply *answer)
{
    if (answer->len > size)
        answer->len = size;
    order_before(h->file);
    answer_reply(req, 0, answer);
    LOCKED(&h->in->lock);
    h->off = h->upto;
    h->size = size;
}

/* Read and answer now. Returns true if this thread must then read ahead: not after an answer from a
 * mapping, because the next answer usually also comes from one. */
static bool answer_now(struct handle *h, fuse_req_t req, uint64_t off, size_t size)
{
    return answer_read(h->file, req, off, size, NULL) != ANSWERED_MAPPED && begin_ahead(h, size);
}

/* Starting in BUSY, read ahead as long as the program asks for each stretch before it is ready. */
static void go_ahead(struct handle *h)
{
    for (bool more = true; more;) {
        struct reply answer;
        const uint64_t off = h->off;
        int err = prepare(h, off, h->size, &answer);
        lock_take(&h->in->lock);
        const fuse_req_t req = h->waiting;
        const size_t size = h->waiting_size;
        more = req && err == 0;
        h->waiting = NULL;
        h->answer = answer;
        h->state = err < 0 ? AHEAD_NONE : more ? AHEAD_BUSY : AHEAD_READY;
        h->off = more ? NOWHERE : off;
        lock_drop(&h->in->lock);
        if (more)
            answer_ready(h, req, size, &answer);
        else if (req)
            more = answer_now(h, req, off, size);
    }
}

/* Register a read and return what to do with it. AHEAD_NONE: answer it now. AHEAD_BUSY: do nothing,
 * because the read is parked. AHEAD_READY: reply with *answer, then go ahead. */
static enum ahead arrive(struct handle *h, fuse_req_t req, uint64_t off, size_t size,
                         struct reply *answer)
{
    LOCKED(&h->in->lock);
    h->run = off == h->upto ? h->run + 1 : 0;
    h->upto = off + size;
    if (h->state == AHEAD_NONE || h->off != off || h->size < size || h->waiting)
        return AHEAD_NONE;
    if (h->state == AHEAD_READY) {
        *answer = h->answer;
        h->state = AHEAD_BUSY;
        h->off = NOWHERE;
        return AHEAD_READY;
    }
    h->waiting = req;
    h->waiting_size = size;
    return AHEAD_BUSY;
}

/* Answer a read of a file. This thread replies, unless another thread prepares these bytes. */
static void handle_read(struct handle *h, fuse_req_t req, uint64_t off, size_t size)
{
    struct reply answer;
    if (h->file->computed) {
        answer_computed(h->file, req, off, size);
        return;
    }
    if (!tree_ahead(h->file)) {
        (void)answer_read(h->file, req, off, size, NULL);
        return;
    }
    lock_take(&h->in->lock);
    h->refs++;
    lock_drop(&h->in->lock);
    enum ahead how = arrive(h, req, off, size, &answer);
    if (how == AHEAD_READY)
        answer_ready(h, req, size, &answer);
    if (how == AHEAD_READY || (how == AHEAD_NONE && answer_now(h, req, off, size)))
        go_ahead(h);
    drop(h);
}

/* ---- the list of handles ---- */

/* Make a handle that owns an open file or directory. If memory runs out, closes it and returns
 * NULL. */
static struct handle *handle_open(struct handles *l, struct tree_file *file, struct shelf_dir *dir)
{
    struct handle *h = calloc(1, sizeof(*h));
    if (!h) {
        if (file)
            (void)shelf_release(file);
        if (dir)
            shelf_closedir(dir);
        return NULL;
    }
    *h = (struct handle){.file = file, .dir = dir, .in = l, .refs = 1};
    LOCKED(&l->lock);
    h->next = l->first;
    if (l->first)
        l->first->prev = h;
    l->first = h;
    l->changes++;
    return h;
}

/* Call once for each handle, after its last request has been answered. */
static void handle_close(struct handles *l, struct handle *h)
{
    lock_take(&l->lock);
    *(h->prev ? &h->prev->next : &l->first) = h->next;
    if (h->next)
        h->next->prev = h->prev;
    l->changes++;
    lock_drop(&l->lock);
    if (h->file)
        order_after(h->file);
    drop(h);
}

bool handles_idle(struct handles *l, unsigned long *seen)
{
    LOCKED(&l->lock);
    bool idle = !l->first && l->changes == *seen;
    *seen = l->changes;
    return idle;
}

void handles_end(struct handles *l)
{
    while (l->first)
        handle_close(l, l->first);
}

/* Make a handle for an open file, and store in `fi` the handle and how the kernel should read the
 * file. Takes ownership of `f`. Returns 0 or -ENOMEM. */
static int fill_open(struct mnt *m, struct fuse_file_info *fi, struct tree_file *f)
{
    bool cacheable = f->cacheable, keep = tree_cached_right(f);
    struct handle *h = handle_open(&m->handles, f, NULL);
    if (!h)
        return -ENOMEM;
    fi->fh = (uint64_t)(uintptr_t)h;
    fi->keep_cache = keep;      /* the kernel's cached pages are still valid */
    fi->direct_io = !cacheable; /* each reader sees the content that it opened */
    fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
    order_before(h);
    return 0;
}

/* ---- opening for writing ---- */

static bool is_in_group(fuse_req_t req, gid_t gid)
{
    if (fuse_req_ctx(req)->gid == gid)
        return true;
    int n = fuse_req_getgroups(req, 0, NULL), got = 0;
    gid_t *group = n > 0 ? calloc((size_t)n, sizeof(*group)) : NULL;
    if (group)
        got = fuse_req_getgroups(req, n, group);
    bool in = false;
    for (int i = 0; i < got && i < n && !in; i++)
        in = group[i] == gid;
    free(group);
    return in;
}

/* Check the right to write a node, because the attributes that the kernel checks may be old. Returns
 * 0 or -EACCES. */
static int check_write(fuse_req_t req, uint64_t node)
{
    struct tree_entry e;
    const uid_t uid = fuse_req_ctx(req)->uid;
    if (uid == 0 || shelf_getattr(shelf_of(req), node, NULL, &e) < 0)
        return 0;
    const mode_t bits = uid == e.attr.st_uid              ? e.attr.st_mode >> 6
                        : is_in_group(req, e.attr.st_gid) ? e.attr.st_mode >> 3
                                                          : e.attr.st_mode;
    return bits & 2 ? 0 : -EACCES;
}

/* Reply to an open: with the handle in `fi`, or with the error -r. */
static void reply_open(fuse_req_t req, int r, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req); /* the reply frees req, even if it fails */
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else if (fuse_reply_open(req, fi) < 0) /* the open was interrupted: no release will follow */
        handle_close(&m->handles, handle_of(fi));
}

/* ---- files ---- */

static void op_init(void *m, struct fuse_conn_info *conn)
{
    if (!shelf_is_folder(((struct mnt *)m)->shelf))
        return;
    conn->max_background = MNT_FOLDER_REQUESTS;
    conn->congestion_threshold = MNT_FOLDER_REQUESTS / 4 * 3;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct tree_entry e;
    struct fuse_entry_param none = {.entry_timeout = FOREVER};
    int r = shelf_lookup(shelf_of(req), parent, name, &e);
    const bool model = !shelf_is_folder(shelf_of(req));
    /* no new names can appear, so the kernel may cache this reply */
    if (r == -ENOENT && model && !shelf_writable(shelf_of(req)))
        (void)fuse_reply_entry(req, &none);
    else
        reply_entry(req, r, &e);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    shelf_forget(shelf_of(req), ino, nlookup);
    fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct tree_entry e;
    /* Linux passes the handle for lseek(SEEK_END), but not for fstat(2). */
    struct tree_file *f = fi ? file_of(fi) : NULL;
    int r = shelf_getattr(shelf_of(req), ino, f, &e);
    order_before(f);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_attr(req, &e.attr, timeout_of(&e));
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req);
    struct tree_file *f = NULL;
    int r = 0;
    if (sys_open_changes(fi->flags))
        r = atomic_load(&m->ending) ? -EROFS : check_write(req, ino);
    if (r == 0)
        r = shelf_open_file(m->shelf, ino, fi->flags, &f);
    if (r == 0)
        r = fill_open(m, fi, f);
    reply_open(req, r, fi);
}

/* Release a file or a directory. */
static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    handle_close(&mnt_of(req)->handles, handle_of(fi));
    (void)fuse_reply_err(req, 0);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    (void)ino;
    handle_read(handle_of(fi), req, (uint64_t)off, size);
}

/* ---- directories ---- */

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct mnt *m = mnt_of(req);
    struct shelf_dir *d = NULL;
    int r = shelf_opendir(m->shelf, ino, &d);
    if (r == 0) {
        fi->cache_readdir = shelf_dir_cacheable(d);
        fi->keep_cache = fi->cache_readdir;
        fi->fh = (uint64_t)(uintptr_t)handle_open(&m->handles, NULL, d);
        order_before(handle_of(fi));
        r = fi->fh ? 0 : -ENOMEM;
    }
    reply_open(req, r, fi);
}

/* Fill the buffer with entries, beginning at `cookie`. Returns the number of bytes used, or
 * -errno. */
static ssize_t fill_dir(fuse_req_t req, struct shelf_dir *d, char *bytes, size_t size,
                        uint64_t cookie, bool plus)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    size_t used = 0, need;
    int r;
    while ((r = shelf_readdir(d, &cookie, plus, name, &e)) > 0) {
        struct fuse_entry_param p = entry_param(&e);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            p.ino = 0; /* not counted as a lookup: the kernel already has these two entries */
        need =
            plus ? fuse_add_direntry_plus(req, bytes + used, size - used, name, &p, (off_t)cookie)
                 : fuse_add_direntry(req, bytes + used, size - used, name, &e.attr, (off_t)cookie);
        if (need > size - used) {
            /* undo the lookup that was counted: the entry will be listed again */
            if (plus && cookie > 2)
                shelf_forget(shelf_of(req), e.node, 1);
            break;
        }
        used += need;
    }
    return r < 0 && used == 0 ? r : (ssize_t)used;
}

static void reply_dir(fuse_req_t req, struct handle *h, size_t size, off_t off, bool plus)
{
    char *bytes = malloc(size);
    ssize_t r = bytes ? fill_dir(req, h->dir, bytes, size, (uint64_t)off, plus) : -ENOMEM;
    order_before(h);
    if (r < 0)
        (void)fuse_reply_err(req, (int)-r);
    else
        (void)fuse_reply_buf(req, bytes, (size_t)r);
    free(bytes);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    (void)ino;
    reply_dir(req, handle_of(fi), size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                           struct fuse_file_info *fi)
{
    (void)ino;
    reply_dir(req, handle_of(fi), size, off, true);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;
    (void)ino;
    int r = shelf_statfs(shelf_of(req), &st);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_statfs(req, &st);
}

/* ---- extended attributes ---- */

/* Reply with the value or, if `size` is 0, with only the size of the value. */
static void reply_xattr(fuse_req_t req, int r, const struct buf *b, size_t size)
{
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else if (size == 0)
        (void)fuse_reply_xattr(req, b->len);
    else if (size < b->len)
        (void)fuse_reply_err(req, ERANGE);
    else
        (void)fuse_reply_buf(req, (const char *)b->data, b->len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    int r = shelf_getxattr(shelf_of(req), ino, name, &b);
    reply_xattr(req, r, &b, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT;
    int r = shelf_listxattr(shelf_of(req), ino, &b);
    if (r == 0)
        r = buf_error(&b);
    reply_xattr(req, r, &b, size);
}

/* ---- edits ---- */

/* Answer an edit with EROFS if the mount is ending. Returns true if it was answered. */
static bool refused(fuse_req_t req)
{
    if (!atomic_load(&mnt_of(req)->ending))
        return false;
    (void)fuse_reply_err(req, EROFS);
    return true;
}

static bool enter(fuse_req_t req, fuse_ino_t ino, int otherwise, struct at *ret)
{
    *ret = (struct at){0};
    if (refused(req))
        return false;
    int r = shelf_enter(shelf_of(req), ino, otherwise, ret);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    return r == 0;
}

/* Edit in the tree of a node until the block ends. If that cannot be, answers the request and
 * returns. */
#define ENTER(req, node, otherwise, name)      \
    CLEANUP(shelf_leave) struct at name;       \
    if (!enter(req, node, otherwise, &(name))) \
    return

/* Finish a call that may wait: either the request is parked and the tree owns `p`, or it is
 * answered now. */
static void finish(struct parked *p, int r)
{
    if (r != LIVE_PARKED)
        on_done(&p->wait, r);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    struct tree_entry e;
    struct tree_file *f;
    /* permissions come from the model, but the mode tells who creates the file */
    const bool mkstemp = fi->flags & O_EXCL && (mode & 07777) == 0600;
    if (refused(req))
        return;
    int r =
        shelf_create(shelf_of(req), parent, name, fi->flags | (mkstemp ? LIVE_MKSTEMP : 0), &e, &f);
    if (r < 0) {
        (void)fuse_reply_err(req, -r);
        return;
    }
    struct fuse_entry_param p = entry_param(&e);
    struct mnt *m = mnt_of(req); /* the reply frees req, even if it fails */
    r = fill_open(m, fi, f);
    if (r == 0 && fuse_reply_create(req, &p, fi) == 0)
        return;
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        handle_close(&m->handles, handle_of(fi));
    shelf_forget(m->shelf, e.node, 1);
}

/* A write to a file of text lines is answered only after its line has been accepted or refused. */
static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t n, off_t off,
                     struct fuse_file_info *fi)
{
    struct tree_file *f = file_of(fi);
    (void)ino;
    struct parked *p = refused(req) ? NULL : park(req, f);
    if (!p)
        return;
    p->written = n;
    finish(p, tree_write(f, (uint64_t)off, bytes, n, f->converts ? &p->wait : NULL));
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t n,
                         struct fuse_file_info *fi)
{
    struct tree_file *f = file_of(fi);
    (void)ino;
    int r = tree_allocate(f, mode, (uint64_t)off, (uint64_t)n);
    order_before(f);
    (void)fuse_reply_err(req, -r);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    struct parked *p = park(req, file_of(fi));
    if (p)
        finish(p, tree_flush(p->file, &p->wait));
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    struct parked *p = park(req, file_of(fi));
    if (p)
        finish(p, tree_fsync(p->file, &p->wait));
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    struct parked *p = park(req, NULL);
    if (p)
        finish(p, shelf_fsyncdir(shelf_of(req), ino, &p->wait));
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    ENTER(req, parent, -EPERM, at);
    (void)fuse_reply_err(req, -tree_unlink(at.use.tree, at.local, name));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                      const char *new_name, unsigned flags)
{
    struct parked *p = refused(req) ? NULL : park(req, NULL);
    if (p)
        finish(p, shelf_rename(shelf_of(req), parent, name, new_parent, new_name, flags, &p->wait));
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct tree_entry e;
    ENTER(req, parent, -EPERM, at);
    int r = tree_symlink(at.use.tree, at.local, name, target, &e);
    reply_entry(req, shelf_given(&at.use, r, &e), &e);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    CLEANUP(buf_free) struct buf target = BUF_INIT;
    int r = shelf_readlink(shelf_of(req), ino, &target);
    buf_char(&target, '\0');
    if (r == 0)
        r = buf_error(&target);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_readlink(req, (const char *)target.data);
}

/* ---- attributes ---- */

/* chmod, chown and utimens succeed but have no effect, because cp -p, rsync and install call
 * them. */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
{
    struct parked *p = refused(req) ? NULL : park(req, fi ? file_of(fi) : NULL);
    if (!p)
        return;
    p->ino = ino;
    int r = 0;
    if (to_set & FUSE_SET_ATTR_SIZE) {
        r = p->file ? 0 : shelf_unopened_file(shelf_of(req), ino, &p->unopened);
        if (r == 0)
            r = tree_truncate(p->file ? p->file : p->unopened, (uint64_t)attr->st_size, &p->wait);
    }
    finish(p, r);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t n, int flags)
{
    (void)flags;
    ENTER(req, ino, -EOPNOTSUPP, at);
    struct parked *p = park(req, NULL);
    if (p)
        finish(p, tree_setxattr(at.use.tree, at.local, name, value, n, &p->wait));
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    ENTER(req, ino, -ENODATA, at);
    (void)fuse_reply_err(req, -tree_removexattr(at.use.tree, at.local, name));
}

/* ---- not supported in metadata/ ---- */

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct tree_entry e;
    (void)mode;
    ENTER(req, parent, -EPERM, at);
    reply_entry(req, shelf_given(&at.use, tree_mkdir(at.use.tree, at.local, name, &e), &e), &e);
}

/* tar calls mknod(2) to set attributes before it writes the content. */
static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
    struct tree_entry e;
    (void)dev;
    ENTER(req, parent, -EPERM, at);
    int r = S_ISREG(mode) ? tree_mknod(at.use.tree, at.local, name, &e) : -EPERM;
    reply_entry(req, shelf_given(&at.use, r, &e), &e);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
    (void)ino;
    (void)new_parent;
    (void)new_name;
    (void)fuse_reply_err(req, EPERM);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    ENTER(req, parent, -EPERM, at);
    (void)fuse_reply_err(req, -tree_rmdir(at.use.tree, at.local, name));
}

const struct fuse_lowlevel_ops mnt_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .getattr = op_getattr,
    .open = op_open,
    .read = op_read,
    .release = op_release,
    .opendir = op_opendir,
    .releasedir = op_release,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .statfs = op_statfs,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .setattr = op_setattr,
    .create = op_create,
    .write = op_write,
    .fallocate = op_fallocate,
    .flush = op_flush,
    .fsync = op_fsync,
    .fsyncdir = op_fsyncdir,
    .unlink = op_unlink,
    .rename = op_rename,
    .symlink = op_symlink,
    .readlink = op_readlink,
    .setxattr = op_setxattr,
    .removexattr = op_removexattr,
    .mkdir = op_mkdir,
    .mknod = op_mknod,
    .link = op_link,
    .rmdir = op_rmdir,
};
