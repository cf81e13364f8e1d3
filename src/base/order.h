/* SPDX-License-Identifier: MIT */
/*
 * Shows the thread sanitizer the order that the kernel imposes on threads. The kernel sends
 * requests for an open file after the reply to its open, and its release after the replies to all
 * of those. So everything that a thread did with the file before its reply happened before another
 * thread handles the next request. The thread sanitizer sees locks and atomics, but not requests
 * and replies. These two calls show it the order for one object (NULL: no object). In other builds
 * they do nothing.
 *
 *     order_before(f);                 this thread's last access to it before the reply
 *     fuse_reply_buf(req, ...);
 *                                      order_after(f);        another thread: at its release
 *                                      free(f);
 *
 * Use them only for requests that the kernel orders. Calls on an open file may arrive at the same
 * time and in any order; calls on an open directory arrive one at a time.
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
