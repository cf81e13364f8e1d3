/* SPDX-License-Identifier: MIT */
/* Open files and directories, and reads: see handle.h. */
#include "mount/handle.h"

#include <errno.h>
#include <stdlib.h>

/* A program that has made this many sequential reads is expected to continue reading. */
enum { RUN_MIN = 2 };

/* Bytes of a stretch at most, and number of stretches of all open files together. */
#define STRETCH ((size_t)1 << 20)
#define STRETCHES 64

enum { PAGE = 4096 };

/* The offset of a stretch that is being sent. */
#define NOWHERE UINT64_MAX

/* ---- reads ---- */

/* Reply. If the answer is in the model's mapping and one of its pages has disappeared, writing the
 * reply fails with EFAULT, and the kernel itself ends the request with EIO. */
static void answer_reply(fuse_req_t req, int r, struct reply *a)
{
    (void)(r < 0 ? fuse_reply_err(req, -r) : fuse_reply_buf(req, (const char *)a->bytes, a->len));
    tree_reply_done(a);
}

int answer_read(struct tree_file *f, fuse_req_t req, uint64_t off, size_t size, struct live_wait *w,
                bool *mapped)
{
    struct reply a = {.scratch = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE), .wait = w};
    void *const scratch = a.scratch;
    int r = scratch ? tree_read(f, off, size, &a) : -ENOMEM;
    *mapped = a.mapped != NULL;
    if (r != LIVE_PARKED)
        answer_reply(req, r, &a);
    free(scratch);
    return r == LIVE_PARKED ? r : 0;
}

/* ---- reading ahead ---- */

/* Number of handles that have a room. */
static atomic_uint rooms;

static void room_free(struct handle *h)
{
    if (h->room)
        (void)atomic_fetch_sub(&rooms, 1);
    free(h->room);
    h->room = NULL;
}

static int room_make(struct handle *h)
{
    if (h->room)
        return 0;
    if (atomic_fetch_add(&rooms, 1) < STRETCHES && (h->room = aligned_alloc(PAGE, STRETCH)))
        return 0;
    (void)atomic_fetch_sub(&rooms, 1);
    return -ENOMEM;
}

static void handle_unref(struct handle *h)
{
    if (!REF_DROP(h))
        return;
    room_free(h);
    if (h->file)
        shelf_release(h->file);
    if (h->dir)
        shelf_closedir(h->dir);
    free(h);
}

/* Prepare the answer. Call in BUSY. Returns 0 or -errno. */
static int prepare_stretch(struct handle *h, uint64_t off, size_t size, struct reply *ret)
{
    int r = room_make(h);
    *ret = (struct reply){.scratch = h->room};
    if (r == 0)
        r = tree_read(h->file, off, size, ret);
    if (ret->mapped) { /* keeping the answer would pin the model's snapshot until the next read */
        tree_reply_done(ret);
        r = -EAGAIN;
    }
    if (r < 0 || ret->len == 0) /* leave the memory for other handles */
        room_free(h);
    return r;
}

/* Begin to prepare the bytes that follow the last read, if the file is read in order. Returns true
 * if this thread must then call go_ahead(). */
static bool begin_ahead(struct handle *h, size_t size)
{
    LOCKED(&h->in->lock);
    if (h->run < RUN_MIN || size > STRETCH || h->state == AHEAD_BUSY ||
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
    answer->len = answer->len < size ? answer->len : size;
    answer_reply(req, 0, answer);
    LOCKED(&h->in->lock);
    h->off = h->upto;
    h->size = size;
}

/* Read and answer now. Returns true if this thread must then read ahead: not after an answer from a
 * mapping, because the next answer usually also comes from one. */
static bool answer_now(struct handle *h, fuse_req_t req, uint64_t off, size_t size)
{
    bool mapped;
    (void)answer_read(h->file, req, off, size, NULL, &mapped);
    return !mapped && begin_ahead(h, size);
}

/* Starting in BUSY, read ahead as long as the program asks for each stretch before it is ready. */
static void go_ahead(struct handle *h)
{
    for (bool more = true; more;) {
        struct reply answer;
        const uint64_t off = h->off;
        int r = prepare_stretch(h, off, h->size, &answer);
        lock_take(&h->in->lock);
        const fuse_req_t req = h->waiting;
        const size_t size = h->waiting_size;
        more = req && r == 0;
        h->waiting = NULL;
        h->answer = answer;
        h->state = r < 0 ? AHEAD_NONE : more ? AHEAD_BUSY : AHEAD_READY;
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

void handle_read(struct handle *h, fuse_req_t req, uint64_t off, size_t size)
{
    struct reply answer;
    if (!tree_ahead(h->file)) {
        (void)answer_read(h->file, req, off, size, NULL, &(bool){false});
        return;
    }
    (void)REF(h);
    const enum ahead how = arrive(h, req, off, size, &answer);
    if (how == AHEAD_READY)
        answer_ready(h, req, size, &answer);
    if (how == AHEAD_READY || (how == AHEAD_NONE && answer_now(h, req, off, size)))
        go_ahead(h);
    handle_unref(h);
}

/* ---- the list of handles ---- */

struct handle *handle_open(struct handles *l, struct tree_file *file, struct shelf_dir *dir)
{
    struct handle *h = calloc(1, sizeof(*h));
    if (!h) {
        if (file)
            shelf_release(file);
        if (dir)
            shelf_closedir(dir);
        return NULL;
    }
    *h = (struct handle){.file = file, .dir = dir, .in = l, .refs = 1};
    LOCKED(&l->lock);
    LIST_INSERT_HEAD(&l->list, h, in_list);
    l->changes++;
    return h;
}

void handle_close(struct handles *l, struct handle *h)
{
    lock_take(&l->lock);
    LIST_REMOVE(h, in_list);
    l->changes++;
    lock_drop(&l->lock);
    handle_unref(h);
}

bool handles_idle(struct handles *l, unsigned long *seen)
{
    LOCKED(&l->lock);
    bool idle = LIST_EMPTY(&l->list) && l->changes == *seen;
    *seen = l->changes;
    return idle;
}

void handles_end(struct handles *l)
{
    while (!LIST_EMPTY(&l->list))
        handle_close(l, LIST_FIRST(&l->list));
}
