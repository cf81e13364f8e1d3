/* SPDX-License-Identifier: MIT */
/* States of drafts of tensors' views: see view_state.h. */
#include "live/view_state.h"

#include <assert.h>

/* An event that cannot come in this state. */
#define NEVER VIEW_STATES

#define CLEAN VIEW_CLEAN
#define WRITTEN VIEW_WRITTEN
#define JUDGED VIEW_JUDGED
#define MORE VIEW_MORE
#define REFUSED VIEW_REFUSED
#define DROPPED VIEW_DROPPED

// clang-format off
static const enum view_state table[VIEW_STATES][VIEW_EVENTS] = {
    /*             WRITE      CUT        EMPTY      JUDGE      PASS       LEAVE      REFUSE     TAKE_BACK  DROP */
    [VIEW_CLEAN]    = {WRITTEN,   CLEAN,     CLEAN,     NEVER,     NEVER,     NEVER,     NEVER,     CLEAN,     CLEAN},
    [VIEW_WRITTEN]  = {WRITTEN,   WRITTEN,   CLEAN,     JUDGED,    NEVER,     NEVER,     NEVER,     WRITTEN,   DROPPED},
    [VIEW_JUDGED]   = {MORE,      JUDGED,    JUDGED,    NEVER,     CLEAN,     WRITTEN,   REFUSED,   JUDGED,    NEVER},
    [VIEW_MORE]     = {MORE,      MORE,      JUDGED,    NEVER,     WRITTEN,   WRITTEN,   WRITTEN,   MORE,      NEVER},
    [VIEW_REFUSED]  = {WRITTEN,   WRITTEN,   CLEAN,     JUDGED,    NEVER,     NEVER,     NEVER,     CLEAN,     DROPPED},
    [VIEW_DROPPED]  = {DROPPED,   DROPPED,   DROPPED,   NEVER,     NEVER,     NEVER,     NEVER,     DROPPED,   DROPPED},
};
// clang-format on

void view_event(_Atomic enum view_state *state, enum view_event event)
{
    enum view_state to = table[atomic_load(state)][event];
    assert(to != NEVER);
    atomic_store(state, to);
}

bool view_is_due(enum view_state state)
{
    return state == VIEW_WRITTEN || state == VIEW_REFUSED;
}

bool view_is_unaccepted(enum view_state state)
{
    return state != VIEW_CLEAN && state != VIEW_DROPPED;
}
