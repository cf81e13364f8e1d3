/* SPDX-License-Identifier: MIT */
/*
 * Reads of open files, and working ahead: see reader.h.
 *
 *                                no request waits           reader_read() of it
 *     NONE  ----------->  BUSY  ------------------>  READY  -------------------->  TAKEN
 *      ^                  |  ^ |                                                    | ^
 *      +------------------+  | +--------- a request waits --------------------------|-+
 *        it failed           +------------------------ answered --------------------+
 *
 * In BUSY and TAKEN one thread owns `room`: it prepares the stretch that follows, or answers with it. What
 * arrives while it answers is answered by another thread, and the stretch behind that is prepared.
 */
#include "mount/reader.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/count.h"
#include "base/lock.h"
#include "base/order.h"

/* After so many reads in order a program is expected to continue in order. */
enum { RUN_MIN = 2 };

enum { PAGE = 4096 };

/* ---- scratch ---- */

/* Memory for answers that are sent at once. */
struct scratch {
    size_t size; /* of bytes */
    void *bytes; /* owned */
};

/*
 * Kept for the next reads, which take the first: it is still in the processor's cache, whichever of libfuse's
 * threads runs. What more reads needed at one time is given back.
 */
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

/* At least `size` bytes; NULL: no memory. */
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
 * The answer may lie in the mapping of the model. If a page of it has disappeared, writing the
 * reply fails with EFAULT, and the kernel itself ends the request with EIO: one reply is always
 * enough.
 */
static void answer_reply(fuse_req_t req, int err, struct reply *a)
{
    if (err < 0)
        (void)fuse_reply_err(req, -err);
    else
        (void)fuse_reply_buf(req, (const char *)a->bytes, a->len);
    tree_reply_done(a);
}

/* What became of a read: replied to, with the bytes of a mapping, or not yet. */
enum answered { ANSWERED, ANSWERED_MAPPED, ANSWER_PARKED };

/*
 * Read and reply, but for a file that shelf_waits(): if what it shows is not computed yet, nothing is
 * replied and w->done() is called later (ANSWER_PARKED). The file is not used
 * after the reply: it may be closed then.
 */
static enum answered answer_read(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size,
                                 struct live_wait *w)
{
    struct scratch *s = scratch_take(size);
    struct reply a = {.scratch = s ? s->bytes : NULL, .wait = w};
    int r = s ? shelf_read(f, off, size, &a) : -ENOMEM;
    enum answered how = r == LIVE_PARKED ? ANSWER_PARKED : a.mapped ? ANSWERED_MAPPED : ANSWERED;
    if (how != ANSWER_PARKED) {
        order_before(f);
        answer_reply(req, r, &a);
    }
    scratch_give(s);
    return how;
}

/* ---- what is computed first ---- */

/* A read that waits for a result. The kernel does not close the file before it has the reply. */
struct computed {
    struct live_wait wait; /* first: done() gets its address */
    struct shelf_file *file;
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

/* Of a read nothing is lost. */
static void on_interrupt(fuse_req_t req, void *shelf)
{
    shelf_interrupt(shelf, req);
}

/* Read a file that shelf_waits(), and reply: now, or when the result is known. */
static void answer_computed(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size)
{
    struct computed *c = malloc(sizeof(*c));
    if (!c) {
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    *c = (struct computed){
        {.done = on_computed, .request = req, .stopped = is_stopped}, f, req, off, size};
    fuse_req_interrupt_func(req, on_interrupt, shelf_of_file(f));
    on_computed(&c->wait, 0);
}

/* ---- an open file ---- */

enum ahead { AHEAD_NONE, AHEAD_BUSY, AHEAD_READY, AHEAD_TAKEN };

struct reader {
    struct shelf_file *file;    /* owned */
    bool waits, ahead;          /* shelf_waits(), shelf_ahead() */
    atomic_uint refs;           /* one until it is closed, one for each thread that reads */
    struct lock lock;           /* protects what follows, but from the owner of TAKEN */
    atomic_uint_least64_t next; /* where the last read ended */
    unsigned run;               /* reads in order up to that one */
    _Atomic(enum ahead) state;
    uint64_t off;        /* of the stretch in the file */
    size_t size;         /* bytes of it that were asked for */
    struct reply answer; /* READY: in `room` */
    uint8_t *room;       /* owned: scratch of the answer, or NULL */
    size_t room_size;    /* counted in ahead_used */
    fuse_req_t waiting;  /* parked until the stretch is ready, or NULL */
    size_t waiting_size;
};

/* room_size of all readers. */
static atomic_size_t ahead_used;

struct reader *reader_open(struct shelf_file *file)
{
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->file = file;
    r->waits = shelf_waits(file);
    r->ahead = shelf_ahead(file);
    atomic_init(&r->refs, 1);
    lock_init(&r->lock);
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

static void reader_free(struct reader *r)
{
    room_free(r);
    (void)shelf_release(r->file);
    lock_destroy(&r->lock);
    free(r);
}

void reader_close(struct reader *r)
{
    order_after(r->file);
    if (atomic_fetch_sub(&r->refs, 1) == 1)
        reader_free(r);
}

/* ---- ahead ---- */

static int make_room(struct reader *r, size_t size)
{
    void *room;
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

/* BUSY: make the answer. 0, -errno. */
static int prepare(struct reader *r, struct reply *ret)
{
    int err = r->room_size >= r->size ? 0 : make_room(r, r->size);
    *ret = (struct reply){.scratch = r->room};
    if (err == 0)
        err = shelf_read(r->file, r->off, r->size, ret);
    if (ret->mapped) { /* the model's file would be kept until the program reads on */
        tree_reply_done(ret);
        err = -EAGAIN;
    }
    if (err < 0 || ret->len == 0) /* others can use the room */
        room_free(r);
    return err;
}

/* Under the lock, or TAKEN: this thread prepares what follows the last read. */
static void begin(struct reader *r, size_t size)
{
    r->off = r->next;
    r->size = size;
    r->state = AHEAD_BUSY;
}

/*
 * Answer with what is read now. True: this thread reads ahead. Not if the answer lay in a mapping: the next
 * one does, too, as a rule, and is sent from there.
 */
static bool answer_now(struct reader *r, fuse_req_t req, uint64_t off, size_t size)
{
    bool mapped = answer_read(r->file, req, off, size, NULL) == ANSWERED_MAPPED;
    LOCKED(&r->lock);
    if (mapped || r->run < RUN_MIN || r->state == AHEAD_BUSY || r->state == AHEAD_TAKEN ||
        (r->state == AHEAD_READY && r->off == r->next))
        return false;
    begin(r, size);
    return true;
}

/* TAKEN: answer, and go on to BUSY. */
static void answer_ready(struct reader *r, fuse_req_t req, size_t size, struct reply *answer)
{
    if (answer->len > size)
        answer->len = size;
    order_before(r->file);
    answer_reply(req, 0, answer);
    begin(r, size);
}

/* BUSY. Continue as long as the program asks for each stretch before it is ready. */
static void go_ahead(struct reader *r)
{
    for (;;) {
        struct reply answer;
        int err = prepare(r, &answer);
        lock_take(&r->lock);
        const fuse_req_t req = r->waiting;
        const size_t size = r->waiting_size;
        const uint64_t off = r->off;
        r->waiting = NULL;
        r->answer = answer;
        r->state = err < 0 ? AHEAD_NONE : req ? AHEAD_TAKEN : AHEAD_READY;
        lock_drop(&r->lock);
        if (req && err == 0)
            answer_ready(r, req, size, &answer);
        else if (!req || !answer_now(r, req, off, size))
            return;
    }
}

/* ---- reads ---- */

/* Note a read. NONE: it is to be answered now. BUSY: it is parked. READY: *answer is its answer, and this thread
 * is to prepare what follows. */
static enum ahead arrive(struct reader *r, fuse_req_t req, uint64_t off, size_t size,
                         struct reply *answer)
{
    lock_take(&r->lock);
    enum ahead how = r->state;
    if (how == AHEAD_TAKEN || r->off != off || r->size < size)
        how = AHEAD_NONE;
    r->run = off == r->next ? r->run + 1 : 0;
    r->next = off + size;
    if (how == AHEAD_BUSY && r->waiting) {
        how = AHEAD_NONE;
    } else if (how == AHEAD_BUSY) {
        r->waiting = req;
        r->waiting_size = size;
    } else if (how == AHEAD_READY) {
        *answer = r->answer;
        r->state = AHEAD_TAKEN;
    }
    lock_drop(&r->lock);
    return how;
}

void reader_read(struct reader *r, fuse_req_t req, uint64_t off, size_t size)
{
    struct reply answer;
    if (r->waits) {
        answer_computed(r->file, req, off, size);
        return;
    }
    if (!r->ahead || !shelf_ahead(r->file)) {
        (void)answer_read(r->file, req, off, size, NULL);
        return;
    }
    (void)atomic_fetch_add(&r->refs, 1);
    enum ahead how = arrive(r, req, off, size, &answer);
    if (how == AHEAD_READY)
        answer_ready(r, req, size, &answer);
    if (how == AHEAD_READY || (how == AHEAD_NONE && answer_now(r, req, off, size)))
        go_ahead(r);
    if (atomic_fetch_sub(&r->refs, 1) == 1)
        reader_free(r);
}
