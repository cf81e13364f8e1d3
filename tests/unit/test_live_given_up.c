/* SPDX-License-Identifier: MIT */
/* Accepted edits that are dropped because a write failed, although their names are already in use
 * again. See script.h for scripts. */
#include "script.h"

static const struct script scripts[] = {
    /* ---- a name that a later edit stores ---- */
    /* ---- a name that has since been removed or parked ---- */
    /* ---- a file with two possible names ---- */
    /* ---- the bytes of a helper ---- */
    {"an editor's backup keeps a value whose write fails", "sync",
     "put .c 12; mv .c a.name; hold; & fsync; held; mv a.name a.name~; go EIO; wait =EIO;"
     "text a.name~ '12\n'; mv a.name~ a.name; fsync",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},
    /* ---- bytes written to a file whose name another file has taken ---- */
    {"a close waits for the rename that took its name, and its text is dropped", "close",
     "put .c 12; open A a.name rw; hold; & mv .c a.name; held; write A x; & flush A; go;"
     "wait; wait; text a.name '12\n'; close A",
     "a.name:string=12 " A_COUNT A_OTHER A_LIST},
};

SCRIPTS_MAIN("live_given_up", scripts)
