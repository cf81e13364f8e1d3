/* SPDX-License-Identifier: MIT */
/*
 * Lists of requests that wait for the writer's thread, and what that thread does for them. Private
 * to the files that make the writer: ask.c, writer.c. Lists are protected by the tree's lock.
 */
#ifndef LIVE_WAITS_H
#define LIVE_WAITS_H

#include "live/internal.h"

static inline void waits_push(struct live_wait **list, struct live_wait *w)
{
    w->next = *list;
    *list = w;
}

/* All of `more` are in the list too. */
static inline void waits_join(struct live_wait **list, struct live_wait *more)
{
    while (more) {
        struct live_wait *w = more;
        more = w->next;
        waits_push(list, w);
    }
}

/* Answer a list. Without the lock: done() replies to the kernel. */
static inline void waits_answer(struct live_wait *list, int result)
{
    while (list) {
        struct live_wait *w = list;
        list = w->next;
        w->done(w, result);
    }
}

static inline bool waits_has(const struct live_wait *list, const struct live_wait *w)
{
    while (list && list != w)
        list = list->next;
    return list;
}

/* Take the request of `who` from a list; NULL: it is not in it. */
static inline struct live_wait *waits_take(struct live_wait **list, const void *who)
{
    while (*list && (*list)->who != who)
        list = &(*list)->next;
    struct live_wait *w = *list;
    if (w)
        *list = w->next;
    return w;
}

/* Ask the disk for the requests in next.asking. The thread's; with the lock, given up meanwhile. */
void writer_ask(struct live *l);
/* True if something is to be written. */
bool writer_has_work(const struct live *l);
/* True if the model is so small that it is written at once, whatever the strategy. */
bool writer_is_small(const struct live *l);
/* A failure that was not reported yet. */
int writer_take_failure(struct live *l);

#endif
