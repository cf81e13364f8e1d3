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
#include <stdatomic.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/order.h"
#include "mount/answer.h"

/* After so many reads in order a program is expected to continue in order. */
enum { RUN_MIN = 2 };

enum { PAGE = 4096 };

enum ahead { AHEAD_NONE, AHEAD_BUSY, AHEAD_READY, AHEAD_TAKEN };

struct reader {
    struct shelf_file *file; /* owned */
    atomic_uint refs;        /* one until it is closed, one for each thread that reads */
    struct lock lock;        /* protects what follows, except from the owner of BUSY and TAKEN */
    uint64_t next;           /* where the last read ended */
    unsigned run;            /* reads in order up to that one */
    bool mapped;             /* the last answer that was not made ahead lay in a mapping */
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

/* ---- life ---- */

struct reader *reader_open(struct shelf_file *file)
{
    struct reader *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->file = file;
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

static void reader_unref(struct reader *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    room_free(r);
    (void)shelf_release(r->file);
    lock_destroy(&r->lock);
    free(r);
}

void reader_close(struct reader *r)
{
    order_after(r->file);
    reader_unref(r);
}

/* ---- ahead ---- */

/* Answer with what is read now. */
static void answer_now(struct reader *r, fuse_req_t req, uint64_t off, size_t size, bool brief)
{
    bool mapped = answer_read(r->file, req, off, size, brief, NULL) == ANSWERED_MAPPED;
    lock_take(&r->lock);
    r->mapped = mapped;
    lock_drop(&r->lock);
}

/* Answer with the stretch that this thread has TAKEN. */
static void answer_taken(struct reader *r, fuse_req_t req, size_t size)
{
    if (r->err < 0) { /* for lack of memory, or it lies in a mapping: read without the stretch */
        answer_now(r, req, r->off, size, false);
    } else {
        if (r->answer.len > size)
            r->answer.len = size;
        order_before(r->file);
        answer_reply(req, 0, &r->answer);
    }
    lock_take(&r->lock);
    r->state = AHEAD_NONE;
    lock_drop(&r->lock);
}

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

/*
 * Call under the lock. True: this thread reads ahead `size` bytes, and the state is BUSY. Not if
 * the last answer lay in a mapping: the next one does, too, as a rule, and is sent from there.
 */
static bool begin(struct reader *r, size_t size)
{
    if (r->run < RUN_MIN || r->mapped || r->state == AHEAD_BUSY || r->state == AHEAD_TAKEN)
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
    if (r->answer.mapped) { /* the model's file would be kept until the program reads on */
        tree_reply_done(&r->answer);
        r->err = -EAGAIN;
    }
    if (r->err < 0 || r->answer.len == 0) /* others can use the room */
        room_free(r);
}

/*
 * The stretch is ready. Returns the request that waits for it, which this thread must answer; or
 * NULL.
 */
static fuse_req_t end(struct reader *r)
{
    lock_take(&r->lock);
    fuse_req_t req = r->waiting;
    r->waiting = NULL;
    r->state = req ? AHEAD_TAKEN : r->err == 0 ? AHEAD_READY : AHEAD_NONE;
    lock_drop(&r->lock);
    return req;
}

static bool begin_locked(struct reader *r, size_t size)
{
    lock_take(&r->lock);
    bool begun = begin(r, size);
    lock_drop(&r->lock);
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

/* Note a read and decide what to do with it. NONE: answer it normally. BUSY: it is parked. */
static enum ahead arrive(struct reader *r, fuse_req_t req, uint64_t off, size_t size)
{
    enum ahead how = AHEAD_NONE;
    lock_take(&r->lock);
    bool same = r->off == off && r->size >= size;
    r->run = off == r->next ? r->run + 1 : 0;
    r->next = off + size;
    if (same && r->state == AHEAD_BUSY && !r->waiting) {
        r->waiting = req;
        r->waiting_size = size;
        how = AHEAD_BUSY;
    } else if (same && r->state == AHEAD_READY) {
        how = r->state = AHEAD_TAKEN;
    }
    lock_drop(&r->lock);
    return how;
}

/* Never read ahead in a file with missing bytes: replies for other files are never short. */
void reader_read(struct reader *r, fuse_req_t req, uint64_t off, size_t size, bool brief)
{
    if (!shelf_ahead(r->file, size)) {
        (void)answer_read(r->file, req, off, size, brief, NULL);
        return;
    }
    (void)atomic_fetch_add(&r->refs, 1);
    enum ahead how = arrive(r, req, off, size);
    if (how == AHEAD_TAKEN)
        answer_taken(r, req, size);
    else if (how == AHEAD_NONE)
        answer_now(r, req, off, size, brief);
    if (how != AHEAD_BUSY)
        go_ahead(r, size);
    reader_unref(r);
}
