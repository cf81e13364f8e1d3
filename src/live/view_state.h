/* SPDX-License-Identifier: MIT */
/*
 * Whether what was written to a draft of a tensor's view is judged: the states of such a draft, of
 * data (tensor_draft.h) and of a text (view.h).
 *
 * A draft may be written while it is judged: that is part of the next judgement. What was refused with
 * an error, and was not written since, is judged again by a flush or fsync, which reports the result.
 * The release of the last writer does not judge it again: a close has reported that it failed, and
 * nothing would report that it did not.
 *
 * Threads: events come under the lock of what holds the state. It is read without it, because that of
 * data is held while the disk writes.
 */
#ifndef LIVE_VIEW_STATE_H
#define LIVE_VIEW_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

enum view_state {
    VIEW_CLEAN,   /* nothing was written since it was begun or passed */
    VIEW_WRITTEN, /* something was, and is to be judged */
    VIEW_JUDGED,  /* it is being judged */
    VIEW_MORE,    /* it is being judged, and more was written meanwhile */
    VIEW_REFUSED, /* it was judged, and is an error; nothing was written since */
    VIEW_DROPPED, /* its last writer is gone, and it was not accepted: it never is */
    VIEW_STATES
};

enum view_event {
    VIEW_WRITE,     /* bytes, or zeros by which it grew */
    VIEW_CUT,       /* it was made shorter: not a write by itself */
    VIEW_EMPTY,     /* a text was made empty: what was written to it is gone */
    VIEW_JUDGE,     /* a judgement begins; if view_is_due() */
    VIEW_PASS,      /* it was accepted, or nothing of it differs */
    VIEW_LEAVE,     /* no verdict: too short so far, or to be judged again */
    VIEW_REFUSE,    /* an error */
    VIEW_TAKE_BACK, /* what was refused is reported as a write that did not happen */
    VIEW_DROP,      /* the last writer is gone */
    VIEW_EVENTS
};

/* The one place where a state changes. */
void view_event(_Atomic enum view_state *state, enum view_event event);

/* Something is to be judged. */
bool view_is_due(enum view_state state);
/* Something was written and is not accepted. */
bool view_is_unaccepted(enum view_state state);

#endif
