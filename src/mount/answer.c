/* SPDX-License-Identifier: MIT */
/* Answers to reads: see answer.h. */
#include "mount/answer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/order.h"
#include "mount/stops.h"

enum { PAGE = 4096 };

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
static struct lock scratch_lock = LOCK_INIT;

static void scratch_give(struct scratch *s)
{
    if (!s)
        return;
    lock_take(&scratch_lock);
    s->below = scratch_top;
    scratch_top = s;
    lock_drop(&scratch_lock);
}

/* At least `size` bytes; NULL: no memory. */
static struct scratch *scratch_take(size_t size)
{
    lock_take(&scratch_lock);
    struct scratch *s = scratch_top;
    if (s)
        scratch_top = s->below;
    lock_drop(&scratch_lock);
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
void answer_reply(fuse_req_t req, int err, struct reply *a)
{
    if (err < 0)
        (void)fuse_reply_err(req, -err);
    else
        (void)fuse_reply_buf(req, (const char *)a->bytes, a->len);
    tree_reply_done(a);
}

enum answered answer_read(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size,
                          bool brief, struct live_wait *w)
{
    struct scratch *s = scratch_take(size);
    struct reply a = {.scratch = s ? s->bytes : NULL, .brief = brief, .wait = w};
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

bool answer_stopped(fuse_req_t req)
{
    return fuse_req_interrupted(req) && stops_thread(fuse_req_ctx(req)->pid);
}

static void on_signal(fuse_req_t req, void *shelf)
{
    if (answer_stopped(req))
        shelf_interrupt(shelf, req);
}

void answer_interruptible(fuse_req_t req, struct shelf *s)
{
    fuse_req_interrupt_func(req, on_signal, s);
}

/* Of a read nothing is lost. */
static void on_interrupt(fuse_req_t req, void *shelf)
{
    shelf_interrupt(shelf, req);
}

/* A read that waits for a result. The kernel does not close the file before it has the reply. */
struct computed {
    struct live_wait wait; /* first: done() gets its address */
    struct shelf_file *file;
    fuse_req_t req;
    uint64_t off;
    size_t size;
    bool brief;
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
        how = answer_read(c->file, c->req, c->off, c->size, c->brief, w);
    }
    if (how != ANSWER_PARKED)
        free(c);
}

void answer_computed(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size, bool brief)
{
    struct computed *c = malloc(sizeof(*c));
    if (!c) {
        (void)fuse_reply_err(req, ENOMEM);
        return;
    }
    *c = (struct computed){
        {.done = on_computed, .request = req, .stopped = is_stopped}, f, req, off, size, brief};
    fuse_req_interrupt_func(req, on_interrupt, shelf_of_file(f));
    on_computed(&c->wait, 0);
}
