/* SPDX-License-Identifier: MIT */
/*
 * Reads of open files, and working ahead: see reader.h.
 *
 *              begin()          end(), no request waits     reader_read() of it
 *     NONE  ------------>  BUSY  --------------->  READY  ---------------------->  TAKEN
 *      ^                    |  end(), a request waits                               |
 *      |                    +---------------------------->  TAKEN                   |
 *      +---------------------------- answered <------------------------------------+
 *
 * In BUSY and TAKEN one thread owns the stretch, and only that thread uses `answer` and `room`.
 */
#include "mount/reader.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* After so many reads in order a program is expected to continue in order. */
enum { RUN_MIN = 2 };

enum { PAGE = 4096 };

enum ahead { AHEAD_NONE, AHEAD_BUSY, AHEAD_READY, AHEAD_TAKEN };

struct reader {
    struct shelf_file *file; /* owned */
    atomic_uint refs;        /* one until it is closed, one for each thread that reads */
    pthread_mutex_t lock;    /* protects what follows, except from the owner of BUSY and TAKEN */
    uint64_t next;           /* where the last read ended */
    unsigned run;            /* reads in order up to that one */
    enum ahead state;
    uint64_t off;        /* of the stretch in the file */
    size_t size;         /* bytes of it that were asked for */
    int err;             /* of the answer: 0 or -errno */
    struct reply answer; /* in `room` */
    uint8_t *room;       /* owned: scratch of the answer, or NULL */
    size_t room_size;    /* counted in ahead_used */
    fuse_req_t waiting;  /* parked until the stretch is ready, or NULL */
    size_t waiting_size;
};

/* room_size of all readers. */
static atomic_size_t ahead_used;

/* ---- scratch ---- */

/*
 * Memory for answers that are sent at once. The last one released is used first: it is still in the
 * processor's cache, whichever of libfuse's threads runs. There are as many as there were reads at
 * the same time, each as large as the largest read that used it.
 */
struct scratch {
    struct scratch *below;
    size_t size; /* of bytes */
    void *bytes; /* owned */
};

static struct scratch *scratch_top; /* protected by scratch_lock */
static pthread_mutex_t scratch_lock = PTHREAD_MUTEX_INITIALIZER;

static void scratch_give(struct scratch *s)
{
    if (!s)
        return;
    (void)pthread_mutex_lock(&scratch_lock);
    s->below = scratch_top;
    scratch_top = s;
    (void)pthread_mutex_unlock(&scratch_lock);
}

static struct scratch *scratch_pop(void)
{
    (void)pthread_mutex_lock(&scratch_lock);
    struct scratch *s = scratch_top;
    if (s)
        scratch_top = s->below;
    (void)pthread_mutex_unlock(&scratch_lock);
    return s ? s : calloc(1, sizeof(*s));
}

/* At least `size` bytes; NULL: no memory. */
static struct scratch *scratch_take(size_t size)
{
    struct scratch *s = scratch_pop();
    if (!s || s->size >= size)
        return s;
    free(s->bytes);
    s->size = posix_memalign(&s->bytes, PAGE, size) == 0 ? size : 0;
    if (s->size > 0)
        return s;
    free(s);
    return NULL;
}

/* ---- life ---- */

struct reader *reader_open(struct shelf_file *file)
{
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->file = file;
    atomic_init(&r->refs, 1);
    (void)pthread_mutex_init(&r->lock, NULL);
    return r;
}

struct shelf_file *reader_file(const struct reader *r)
{
    return r->file;
}

static void room_free(struct reader *r)
{
    free(r->room);
    r->room = NULL;
    (void)atomic_fetch_sub(&ahead_used, r->room_size);
    r->room_size = 0;
}

static void reader_unref(struct reader *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    room_free(r);
    (void)shelf_release(r->file);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
}

void reader_close(struct reader *r)
{
    reader_unref(r);
}

/* ---- answers ---- */

/*
 * The answer may lie in the mapping of the model. If a page of it has disappeared, writing the
 * reply fails with EFAULT, and the kernel itself ends the request with EIO: one reply is always
 * enough.
 */
static void reply(fuse_req_t req, int err, struct reply *a)
{
    if (err < 0)
        (void)fuse_reply_err(req, -err);
    else
        (void)fuse_reply_buf(req, (const char *)a->bytes, a->len);
    tree_reply_done(a);
}

/* Does not use the reader after the reply: it may be closed then. */
static void answer_now(struct reader *r, fuse_req_t req, uint64_t off, size_t size, bool brief)
{
    struct scratch *s = scratch_take(size);
    struct reply a = {.scratch = s ? s->bytes : NULL, .brief = brief};
    reply(req, s ? shelf_read(r->file, off, size, &a) : -ENOMEM, &a);
    scratch_give(s);
}

/* Answer with the stretch that this thread has TAKEN. */
static void answer_taken(struct reader *r, fuse_req_t req, size_t size)
{
    if (r->err < 0) { /* perhaps for lack of memory: read without the stretch */
        answer_now(r, req, r->off, size, false);
    } else {
        if (r->answer.len > size)
            r->answer.len = size;
        reply(req, 0, &r->answer);
    }
    (void)pthread_mutex_lock(&r->lock);
    r->state = AHEAD_NONE;
    (void)pthread_mutex_unlock(&r->lock);
}

/* ---- ahead ---- */

static int make_room(struct reader *r, size_t size)
{
    void *room;
    if (r->room_size >= size)
        return 0;
    room_free(r);
    r->room_size = size;
    if (atomic_fetch_add(&ahead_used, size) + size <= AHEAD_TOTAL &&
        posix_memalign(&room, PAGE, size) == 0) {
        r->room = room;
        return 0;
    }
    room_free(r);
    return -ENOMEM;
}

/* Call under the lock. True: this thread reads ahead `size` bytes, and the state is BUSY. */
static bool begin(struct reader *r, size_t size)
{
    if (r->run < RUN_MIN || r->state == AHEAD_BUSY || r->state == AHEAD_TAKEN)
        return false;
    if (r->state == AHEAD_READY && r->off == r->next)
        return false;
    r->state = AHEAD_BUSY;
    r->off = r->next;
    r->size = size;
    return true;
}

/* BUSY: make the answer. */
static void prepare(struct reader *r)
{
    r->err = make_room(r, r->size);
    if (r->err < 0)
        return;
    r->answer = (struct reply){.scratch = r->room};
    r->err = shelf_read(r->file, r->off, r->size, &r->answer);
    if (r->err == 0 && r->answer.len == 0) /* end of file: others can use the room */
        room_free(r);
}

/*
 * The stretch is ready. Returns the request that waits for it, which this thread must answer; or
 * NULL.
 */
static fuse_req_t end(struct reader *r)
{
    (void)pthread_mutex_lock(&r->lock);
    fuse_req_t req = r->waiting;
    r->waiting = NULL;
    r->state = req ? AHEAD_TAKEN : r->err == 0 ? AHEAD_READY : AHEAD_NONE;
    (void)pthread_mutex_unlock(&r->lock);
    return req;
}

static bool begin_locked(struct reader *r, size_t size)
{
    (void)pthread_mutex_lock(&r->lock);
    bool begun = begin(r, size);
    (void)pthread_mutex_unlock(&r->lock);
    return begun;
}

/* Continue as long as the program asks for each stretch before it is ready. */
static void go_ahead(struct reader *r, size_t size)
{
    while (begin_locked(r, size)) {
        prepare(r);
        fuse_req_t req = end(r);
        if (!req)
            return;
        size = r->waiting_size;
        answer_taken(r, req, size);
    }
}

/* ---- reads ---- */

/* Call under the lock. Note a read and decide what to do with it. NONE: answer it normally. */
static enum ahead arrive(struct reader *r, fuse_req_t req, uint64_t off, size_t size)
{
    bool same = r->off == off && r->size >= size;
    r->run = off == r->next ? r->run + 1 : 0;
    r->next = off + size;
    if (same && r->state == AHEAD_BUSY && !r->waiting) {
        r->waiting = req;
        r->waiting_size = size;
        return AHEAD_BUSY;
    }
    if (same && r->state == AHEAD_READY) {
        r->state = AHEAD_TAKEN;
        return AHEAD_TAKEN;
    }
    return AHEAD_NONE;
}

static void read_ahead(struct reader *r, fuse_req_t req, uint64_t off, size_t size)
{
    (void)pthread_mutex_lock(&r->lock);
    enum ahead how = arrive(r, req, off, size);
    (void)pthread_mutex_unlock(&r->lock);
    if (how == AHEAD_BUSY)
        return;
    if (how == AHEAD_TAKEN)
        answer_taken(r, req, size);
    else
        answer_now(r, req, off, size, false);
    go_ahead(r, size);
}

/* ---- what is computed first ---- */

/* A read that waits for its result. */
struct computed {
    struct live_wait wait; /* first: done() gets its address */
    struct reader *r;      /* a reference */
    fuse_req_t req;
    uint64_t off;
    size_t size;
    bool brief;
};

static void compute(struct computed *c);

/* Where many results are read at a time, one may have been dropped again: then once more. */
static void on_computed(struct live_wait *w, int result)
{
    struct computed *c = (struct computed *)w;
    struct scratch *s = result < 0 ? NULL : scratch_take(c->size);
    struct reply a = {.scratch = s ? s->bytes : NULL, .brief = c->brief};
    if (result == 0)
        result = s ? shelf_read(c->r->file, c->off, c->size, &a) : -ENOMEM;
    if (result == -EAGAIN) {
        scratch_give(s);
        compute(c);
        return;
    }
    reply(c->req, result, &a);
    scratch_give(s);
    reader_unref(c->r);
    free(c);
}

static void compute(struct computed *c)
{
    int r = shelf_prepare(c->r->file, c->off, c->size, c->brief, &c->wait);
    if (r != LIVE_PARKED)
        on_computed(&c->wait, r);
}

static void on_interrupt(fuse_req_t req, void *data)
{
    shelf_interrupt(data, req);
}

/* Holds no thread: another one replies when the result is known. */
static void read_computed(struct reader *r, fuse_req_t req, uint64_t off, size_t size, bool brief)
{
    struct computed *c = calloc(1, sizeof(*c));
    if (!c) {
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    (void)atomic_fetch_add(&r->refs, 1);
    *c = (struct computed){{.done = on_computed, .who = req}, r, req, off, size, brief};
    fuse_req_interrupt_func(req, on_interrupt, shelf_of_file(r->file));
    compute(c);
}

/* Never read ahead in a file with missing bytes: replies for other files are never short. */
void reader_read(struct reader *r, fuse_req_t req, uint64_t off, size_t size, bool brief)
{
    if (shelf_waits(r->file)) {
        read_computed(r, req, off, size, brief);
        return;
    }
    if (!shelf_ahead(r->file, size)) {
        answer_now(r, req, off, size, brief);
        return;
    }
    (void)atomic_fetch_add(&r->refs, 1);
    read_ahead(r, req, off, size);
    reader_unref(r);
}
