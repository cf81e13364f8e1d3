/* SPDX-License-Identifier: MIT */
/* Drafts and their states: see draft.h. */
#include "live/draft.h"

#include <assert.h>
#include <stdlib.h>

struct draft *draft_new(void)
{
    struct draft *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    lock_init(&d->io);
    lock_init(&d->lock);
    return d;
}

void draft_free(struct draft *d)
{
    if (!d)
        return;
    buf_free(&d->text);
    shown_free(&d->before);
    free(d->helper);
    extents_free(&d->written);
    log_unref(d->room.log);
    tensor_base_unref(d->base);
    free(d->judging.of);
    lock_destroy(&d->io);
    lock_destroy(&d->lock);
    free(d);
}

/* An event that cannot happen in this state. */
#define NEVER DRAFT_STATES

#define CLEAN DRAFT_CLEAN
#define EMPTIED DRAFT_EMPTIED
#define WRITTEN DRAFT_WRITTEN
#define JUDGED DRAFT_JUDGED
#define MORE DRAFT_MORE
#define SHORT DRAFT_SHORT
#define ACCEPTED DRAFT_ACCEPTED
#define REFUSED DRAFT_REFUSED
#define DROPPED DRAFT_DROPPED

// clang-format off
static const enum draft_state table[DRAFT_STATES][DRAFT_EVENTS] = {
    /*            WRITE    CUT      EMPTY    JUDGE   PASS      LEAVE    LACK   REFUSE   TAKE_BACK REOPEN DROP */
    [CLEAN]    = {WRITTEN, CLEAN,   EMPTIED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   CLEAN,   CLEAN,  CLEAN},
    [EMPTIED]  = {WRITTEN, EMPTIED, EMPTIED, NEVER,  EMPTIED,  NEVER,   NEVER, EMPTIED, EMPTIED, NEVER,  EMPTIED},
    [WRITTEN]  = {WRITTEN, WRITTEN, EMPTIED, JUDGED, ACCEPTED, NEVER,   SHORT, REFUSED, WRITTEN, CLEAN,  DROPPED},
    [JUDGED]   = {MORE,    JUDGED,  JUDGED,  NEVER,  CLEAN,    WRITTEN, NEVER, REFUSED, JUDGED,  NEVER,  NEVER},
    [MORE]     = {MORE,    MORE,    JUDGED,  NEVER,  WRITTEN,  WRITTEN, NEVER, WRITTEN, MORE,    NEVER,  NEVER},
    [SHORT]    = {WRITTEN, NEVER,   EMPTIED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   NEVER,   CLEAN,  NEVER},
    [ACCEPTED] = {WRITTEN, NEVER,   EMPTIED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   NEVER,   CLEAN,  NEVER},
    [REFUSED]  = {WRITTEN, WRITTEN, EMPTIED, JUDGED, NEVER,    NEVER,   NEVER, NEVER,   CLEAN,   CLEAN,  DROPPED},
    [DROPPED]  = {DROPPED, DROPPED, DROPPED, NEVER,  NEVER,    NEVER,   NEVER, NEVER,   DROPPED, NEVER,  DROPPED},
};
// clang-format on

void draft_event(struct draft *d, enum draft_event event)
{
    const enum draft_state to = table[atomic_load(&d->state)][event];
    assert(to != NEVER);
    atomic_store(&d->state, to);
}

bool draft_is_due(enum draft_state state)
{
    return state == WRITTEN || state == REFUSED;
}

bool draft_is_unaccepted(enum draft_state state)
{
    return draft_is_due(state) || state == JUDGED || state == MORE;
}
