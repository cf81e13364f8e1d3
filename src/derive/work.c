/* SPDX-License-Identifier: MIT */
/* Computing what is wanted: see work.h; how it is done: work_run.h. */
#include "derive/work.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lock.h"
#include "derive/work_run.h"

/* Threads of a machine with more processors are limited by its memory, not by them. */
enum { THREADS_MOST = 64 };

struct work *work_new(void)
{
    struct work *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    lock_init(&w->lock);
    cond_init(&w->idle);
    cond_init(&w->more);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    w->threads_most = n < 1 ? 1 : n > THREADS_MOST ? THREADS_MOST : (unsigned)n;
    return w;
}

/* ---- what is wanted ---- */

/* Take a wish off the list; NULL: `request` has none. */
static struct want *pull_want(struct work *w, const void *request)
{
    struct want **at = &w->wants;
    while (*at && (*at)->waiter.request != request)
        at = &(*at)->next;
    struct want *want = *at;
    if (want) {
        *at = want->next;
        want->next = NULL;
    }
    return want;
}

/* Add a wish, which passes to the list, and see to it that a thread looks for it. 1, or -errno. */
static int park(struct work *w, struct want *want)
{
    work_push_want(&w->wants, want);
    work_take_up(w, want);
    int r = 0;
    if (w->lingering > 0)
        cond_broadcast(&w->more);
    else if (w->threads < w->threads_most)
        r = work_start_thread(w);
    if (r == 0 || w->threads > 0)
        return WORK_PARKED;
    (void)pull_want(w, want->waiter.request);
    return -ENOMEM;
}

/* As work_want(). */
static int want_now(struct work *w, struct want *want)
{
    const struct work_waiter *waiter = &want->waiter;
    if (w->ending)
        return -EINTR;
    if (work_is_ready(w, want))
        return 0;
    return waiter->stopped && waiter->stopped(waiter->arg) ? -EINTR : park(w, want);
}

int work_want(struct work *w, const struct view *v, enum derived what, uint32_t first,
              uint32_t last, const struct work_waiter *waiter)
{
    struct want *want = calloc(1, sizeof(*want));
    if (!want)
        return -ENOMEM;
    *want = (struct want){.view = work_same_view(v),
                          .what = what,
                          .first = first,
                          .ready = first,
                          .start = first,
                          .last = last,
                          .waiter = *waiter};
    lock_take(&w->lock);
    int r = want_now(w, want);
    if (r != WORK_PARKED)
        work_let_go(w, want);
    lock_drop(&w->lock);
    if (r == WORK_PARKED)
        return r;
    view_free(&want->view);
    free(want);
    return r;
}

bool work_interrupt(struct work *w, const void *request)
{
    lock_take(&w->lock);
    struct want *want = pull_want(w, request);
    if (want) {
        want->err = -EINTR;
        work_let_go(w, want);
        work_put_aside(w);
        cond_broadcast(&w->more);
    }
    lock_drop(&w->lock);
    work_answer(want);
    return want;
}

void work_stop(struct work *w)
{
    lock_take(&w->lock);
    struct want *all = w->wants;
    w->wants = NULL;
    w->ending = true;
    for (struct want *want = all; want; want = want->next) {
        want->err = -EINTR;
        work_let_go(w, want);
    }
    work_give_up(w);
    cond_broadcast(&w->more);
    lock_drop(&w->lock);
    work_answer(all);
    lock_take(&w->lock);
    while (w->threads > 0)
        (void)lock_wait(&w->lock, &w->idle, NULL);
    lock_drop(&w->lock);
}

void work_free(struct work *w)
{
    if (!w)
        return;
    work_stop(w);
    kept_free(&w->kept);
    cond_destroy(&w->idle);
    cond_destroy(&w->more);
    lock_destroy(&w->lock);
    free(w);
}

/* ---- what is kept ---- */

bool work_sha256(struct work *w, const struct view *v, uint32_t i, uint8_t dst[DIGEST_BYTES])
{
    lock_take(&w->lock);
    bool ret = kept_sha256(&w->kept, work_key(v, i), dst);
    lock_drop(&w->lock);
    return ret;
}

bool work_moments(struct work *w, const struct view *v, uint32_t i, struct moments *dst)
{
    lock_take(&w->lock);
    bool ret = kept_moments(&w->kept, work_key(v, i), dst);
    lock_drop(&w->lock);
    return ret;
}

struct blob *work_blob(struct work *w, const struct view *v, uint32_t i, enum derived what)
{
    lock_take(&w->lock);
    struct blob *b = kept_blob(&w->kept, work_key(v, i), what);
    lock_drop(&w->lock);
    return b;
}

uint64_t work_count(struct work *w)
{
    lock_take(&w->lock);
    uint64_t n = w->computed;
    lock_drop(&w->lock);
    return n;
}

unsigned work_threads(struct work *w)
{
    lock_take(&w->lock);
    unsigned n = w->threads;
    lock_drop(&w->lock);
    return n;
}

bool work_applies(const struct snapshot *g, const struct gguf_tensor *t, enum derived what)
{
    return what == DERIVED_SHA256 || quant_has_values(gguf_type(t), g->gguf->fmt.big);
}
