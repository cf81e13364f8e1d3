/* SPDX-License-Identifier: MIT */
/* Answers to reads: see answer.h. */
#include "mount/answer.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/count.h"
#include "base/order.h"
#include "mount/processes.h"

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
void answer_reply(fuse_req_t req, int err, struct reply *a)
{
    if (err < 0)
        (void)fuse_reply_err(req, -err);
    else
        (void)fuse_reply_buf(req, (const char *)a->bytes, a->len);
    tree_reply_done(a);
}

enum answered answer_read(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size,
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

void answer_computed(struct shelf_file *f, fuse_req_t req, uint64_t off, size_t size)
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
