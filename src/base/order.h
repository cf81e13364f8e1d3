/* SPDX-License-Identifier: MIT */
/*
 * Shows the thread sanitizer the order that the kernel imposes between threads. The kernel sends
 * the release of an open file after it has the replies to all other requests for the file, and any
 * of those after the reply to the open. So everything that a thread did with the file before its
 * reply happened before another thread handles the next request. The thread sanitizer sees locks
 * and atomics, but not requests and replies. These two calls show it the order for one object, or
 * for none (NULL). In other builds they do nothing.
 *
 *     order_before(f);                 the last that this thread does with it before it replies
 *     fuse_reply_buf(req, ...);
 *                                      order_after(f);        another thread: at its release
 *                                      free(f);
 *
 * Use them only for requests that the kernel orders: calls on an open file may arrive at the same
 * time, in no particular order; calls on an open directory arrive one at a time.
 */
#ifndef BASE_ORDER_H
#define BASE_ORDER_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ORDER_SHOWN
#endif
#elif defined(__SANITIZE_THREAD__)
#define ORDER_SHOWN
#endif

#ifdef ORDER_SHOWN

#include <sanitizer/tsan_interface.h>

static inline void order_before(void *object)
{
    if (object)
        __tsan_release(object);
}

static inline void order_after(void *object)
{
    if (object)
        __tsan_acquire(object);
}

#else

#define order_before(object) ((void)(object))
#define order_after(object) ((void)(object))

#endif

#endif
