/* SPDX-License-Identifier: MIT */
/*
 * Open files and directories, and reading files with read-ahead: see handle.h.
 *
 *                                no request waits           handle_read() of it
 *     NONE  ----------->  BUSY  ------------------>  READY  -------------------->  TAKEN
 *      ^                  |  ^ |                                                    | ^
 *      +------------------+  | +--------- a request waits --------------------------|-+
 *        it failed           +------------------------ answered --------------------+
 *
 * In BUSY and TAKEN one thread owns `room`: it prepares the next stretch or answers with it. A
 * request for another part that arrives during that time is answered by another thread, and the
 * stretch after that part is prepared next.
 */
#include "mount/handle.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/count.h"
#include "base/order.h"

/* A program that has made this many sequential reads is expected to continue. */
enum { RUN_MIN = 2 };

enum { PAGE = 4096 };

/* ---- scratch ---- */

/* Memory for an answer that is sent immediately. */
struct scratch {
    size_t size; /* of bytes */
    void *bytes; /* owned */
};

/* Memory kept for the next reads. Whichever of libfuse's threads runs takes the first item, because
 * that is still in the processor's cache. Memory for additional concurrent reads is freed. */
static _Atomic(struct scratch *) spare[8];

static void scratch_free(struct scratch *s)
{
    if (s)
        free(s->bytes);
    free(s);
}

static void scratch_give(struct scratch *s)
{
    for (size_t i = 0; s && i < COUNT(spare); i++) {
        struct scratch *none = NULL;
        if (atomic_compare_exchange_strong(&spare[i], &none, s))
            return;
    }
    scratch_free(s);
}

/* Return at least `size` bytes, or NULL if there is no memory. */
static struct scratch *scratch_take(size_t size)
{
    struct scratch *s = NULL;
    for (size_t i = 0; !s && i < COUNT(spare); i++)
        s = atomic_exchange(&spare[i], NULL);
    if (!s)
        s = calloc(1, sizeof(*s));
    if (!s || s->size >= size)
        return s;
    free(s->bytes);
    s->size = posix_memalign(&s->bytes, PAGE, size) == 0 ? size : 0;
    if (s->size > 0)
        return s;
    free(s);
    return NULL;
}

/* ---- answers ---- */

/*
 * Reply. The answer may be in the mapping of the model. If a page of that has disappeared, writing
 * the reply fails with EFAULT and the kernel itself ends the request with EIO, so one reply is
 * always enough.
 */
static void answer_reply(fuse_req_t req, int err, struct reply *a)
{
    if (err < 0)
        (void)fuse_reply_err(req, -err);
    else
        (void)fuse_reply_buf(req, (const char *)a->bytes, a->len);
    tree_reply_done(a);
}

/* The result of a read: answered, answered from a mapping, or not answered yet. */
enum answered { ANSWERED, ANSWERED_MAPPED, ANSWER_PARKED };

/*
 * Read and reply. If the file is one that tree_waits() and its content has not been computed yet,
 * w->done() is called later instead (ANSWER_PARKED). The file is not used after the reply, as it
 * may be closed then.
 */
static enum answered answer_read(struct tree_file *f, fuse_req_t req, uint64_t off, size_t size,
                                 struct live_wait *w)
{
    struct scratch *s = scratch_take(size);
    struct reply a = {.scratch = s ? s->bytes : NULL, .wait = w};
    int r = s ? tree_read(f, off, size, &a) : -ENOMEM;
    enum answered how = r == LIVE_PARKED ? ANSWER_PARKED : a.mapped ? ANSWERED_MAPPED : ANSWERED;
    if (how != ANSWER_PARKED) {
        order_before(f);
        answer_reply(req, r, &a);
    }
    scratch_give(s);
    return how;
}

/* ---- files that are computed first ---- */

/* A read that waits for a result. The kernel does not close the file until it has the reply. */
struct computed {
    struct live_wait wait; /* first member: done() gets its address */
    struct tree_file *file;
    fuse_req_t req;
    uint64_t off;
    size_t size;
};

static bool is_stopped(struct live_wait *w)
{
    return fuse_req_interrupted(((struct computed *)w)->req);
}

static void on_computed(struct live_wait *w, int result)
{
    struct computed *c = (struct computed *)w;
    enum answered how = ANSWERED;
    if (result < 0) {
        order_before(c->file);
        (void)fuse_reply_err(c->req, -result);
    } else {
        how = answer_read(c->file, c->req, c->off, c->size, w);
    }
    if (how != ANSWER_PARKED)
        free(c);
}

/* A signal interrupts the wait, by which a read loses nothing. */
static void on_interrupt(fuse_req_t req, void *tree)
{
    tree_interrupt(tree, req);
}

/* Read a file that tree_waits(), and reply now or when the result is known. */
static void answer_computed(struct tree_file *f, fuse_req_t req, uint64_t off, size_t size)
{
    struct computed *c = malloc(sizeof(*c));
    if (!c) {
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    *c = (struct computed){
        {.done = on_computed, .request = req, .stopped = is_stopped}, f, req, off, size};
    fuse_req_interrupt_func(req, on_interrupt, f->tree);
    on_computed(&c->wait, 0);
}

/* ---- an open file ---- */

enum ahead { AHEAD_NONE, AHEAD_BUSY, AHEAD_READY, AHEAD_TAKEN };

struct handle {
    struct tree_file *file; /* owned; NULL for a directory */
    struct shelf_dir *dir;
    bool writes;
    struct handles *in;
    struct handle *prev, *next; /* protected by the list's lock */
    /* Properties of the file. */
    bool waits, ahead; /* tree_waits(), tree_ahead() */
    atomic_uint refs;  /* one until it is closed, plus one for each reading thread */
    /* The rest is protected by the list's lock, which the owner in TAKEN does not need. */
    atomic_uint_least64_t upto; /* where the last read ended */
    atomic_uint run;            /* number of sequential reads, up to that one */
    _Atomic(enum ahead) state;
    uint64_t off;        /* offset of the stretch in the file */
    size_t size;         /* bytes of it that were requested */
    struct reply answer; /* in READY: lies in `room` */
    uint8_t *room;       /* owned: memory for the answer, or NULL */
    size_t room_size;    /* counted in ahead_used */
    fuse_req_t waiting;  /* parked until the stretch is ready, or NULL */
    size_t waiting_size;
};

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
    if (atomic_fetch_sub(&h->refs, 1) != 1)
        return;
    room_free(h);
    if (h->file)
        (void)shelf_release(h->file);
    if (h->dir)
        shelf_closedir(h->dir);
    free(h);
}

/* ---- ahead ---- */

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

/* Prepare the answer, in BUSY. Returns 0 or -errno. */
static int prepare(struct handle *h, struct reply *ret)
{
    int err = h->room_size >= h->size ? 0 : make_room(h, h->size);
    *ret = (struct reply){.scratch = h->room};
    if (err == 0)
        err = tree_read(h->file, h->off, h->size, ret);
    if (ret->mapped) { /* keeping it would keep the model's file until the next read */
        tree_reply_done(ret);
        err = -EAGAIN;
    }
    if (err < 0 || ret->len == 0) /* let other handles have the room */
        room_free(h);
    return err;
}

/* Let this thread prepare the bytes after the last read. Call with the lock held or in TAKEN. */
static void begin(struct handle *h, size_t size)
{
    h->off = h->upto;
    h->size = size;
    h->state = AHEAD_BUSY;
}

/* Read and answer now. Returns true if this thread must read ahead. It need not if the answer was
 * in a mapping, because the next one usually is as well, and is sent from there. */
static bool answer_now(struct handle *h, fuse_req_t req, uint64_t off, size_t size)
{
    bool mapped = answer_read(h->file, req, off, size, NULL) == ANSWERED_MAPPED;
    if (mapped || atomic_load(&h->run) < RUN_MIN)
        return false;
    LOCKED(&h->in->lock);
    if (h->state == AHEAD_BUSY || h->state == AHEAD_TAKEN ||
        (h->state == AHEAD_READY && h->off == h->upto))
        return false;
    begin(h, size);
    return true;
}

/* Answer, in TAKEN, and return to BUSY. */
static void answer_ready(struct handle *h, fuse_req_t req, size_t size, struct reply *answer)
{
    if (answer->len > size)
        answer->len = size;
    order_before(h->file);
    answer_reply(req, 0, answer);
    begin(h, size);
}

/* Read ahead, in BUSY, for as long as the program asks for each stretch before it is ready. */
static void go_ahead(struct handle *h)
{
    for (;;) {
        struct reply answer;
        int err = prepare(h, &answer);
        lock_take(&h->in->lock);
        const fuse_req_t req = h->waiting;
        const size_t size = h->waiting_size;
        const uint64_t off = h->off;
        h->waiting = NULL;
        h->answer = answer;
        h->state = err < 0 ? AHEAD_NONE : req ? AHEAD_TAKEN : AHEAD_READY;
        lock_drop(&h->in->lock);
        if (req && err == 0)
            answer_ready(h, req, size, &answer);
        else if (!req || !answer_now(h, req, off, size))
            return;
    }
}

/* ---- reads ---- */

/* Register a read and return a state that says what to do. NONE means: answer it now. BUSY: it is
 * parked. READY: reply with *answer, then prepare the next stretch in this thread. */
static enum ahead arrive(struct handle *h, fuse_req_t req, uint64_t off, size_t size,
                         struct reply *answer)
{
    lock_take(&h->in->lock);
    enum ahead how = h->state;
    if (how == AHEAD_TAKEN || h->off != off || h->size < size)
        how = AHEAD_NONE;
    h->run = off == h->upto ? h->run + 1 : 0;
    h->upto = off + size;
    if (how == AHEAD_BUSY && h->waiting) {
        how = AHEAD_NONE;
    } else if (how == AHEAD_BUSY) {
        h->waiting = req;
        h->waiting_size = size;
    } else if (how == AHEAD_READY) {
        *answer = h->answer;
        h->state = AHEAD_TAKEN;
    }
    lock_drop(&h->in->lock);
    return how;
}

void handle_read(struct handle *h, fuse_req_t req, uint64_t off, size_t size)
{
    struct reply answer;
    if (h->waits) {
        answer_computed(h->file, req, off, size);
        return;
    }
    if (!h->ahead || !tree_ahead(h->file)) {
        (void)answer_read(h->file, req, off, size, NULL);
        return;
    }
    (void)atomic_fetch_add(&h->refs, 1);
    enum ahead how = arrive(h, req, off, size, &answer);
    if (how == AHEAD_READY)
        answer_ready(h, req, size, &answer);
    if (how == AHEAD_READY || (how == AHEAD_NONE && answer_now(h, req, off, size)))
        go_ahead(h);
    drop(h);
}

/* ---- the list ---- */

bool handles_edit(struct handles *l)
{
    LOCKED(&l->lock);
    l->edits += !l->closed;
    return !l->closed;
}

void handles_edited(struct handles *l)
{
    LOCKED(&l->lock);
    l->edits--;
}

bool handles_no_edits(struct handles *l)
{
    LOCKED(&l->lock);
    l->closed |= l->edits == 0;
    return l->closed;
}

struct handle *handle_open(struct handles *l, struct tree_file *file, struct shelf_dir *dir,
                           bool writes)
{
    struct handle *h = calloc(1, sizeof(*h));
    if (!h) {
        if (file)
            (void)shelf_release(file);
        if (dir)
            shelf_closedir(dir);
        if (writes)
            handles_edited(l);
        return NULL;
    }
    h->file = file;
    h->dir = dir;
    h->writes = writes;
    h->in = l;
    h->waits = file && tree_waits(file);
    h->ahead = file && tree_ahead(file);
    atomic_init(&h->refs, 1);
    LOCKED(&l->lock);
    h->next = l->first;
    if (l->first)
        l->first->prev = h;
    l->first = h;
    l->changes++;
    return h;
}

void handle_close(struct handles *l, struct handle *h)
{
    const bool writes = h->writes;
    lock_take(&l->lock);
    if (h->prev)
        h->prev->next = h->next;
    else
        l->first = h->next;
    if (h->next)
        h->next->prev = h->prev;
    l->changes++;
    lock_drop(&l->lock);
    if (h->file)
        order_after(h->file);
    drop(h);
    if (writes)
        handles_edited(l);
}

struct tree_file *handle_file(const struct handle *h)
{
    return h->file;
}

struct shelf_dir *handle_dir(const struct handle *h)
{
    return h->dir;
}

bool handles_idle(struct handles *l, unsigned long *seen)
{
    bool idle = !l->first && l->changes == *seen;
    *seen = l->changes;
    return idle;
}

void handles_end(struct handles *l)
{
    while (l->first)
        handle_close(l, l->first);
}
