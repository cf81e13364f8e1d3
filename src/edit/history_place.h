/* SPDX-License-Identifier: MIT */
/*
 * The folder in which histories are kept: $XDG_STATE_HOME/ggufs/history.
 *
 *     r = history_home(&home, &e);              the state folder of this process's user
 *     r = history_place_find(&p, home, &e);     before anything is mounted over it
 *     r = history_place_open(&p, sys, true, &e);
 *
 * What is above the state folder is the user's; links are followed. Below it nothing is followed,
 * and `ggufs` and `history` are used only if they are folders of this process's user that nobody
 * else can write, `history` also one that nobody else can read. What is missing is made, 0700.
 *
 * Threads: one at a time.
 */
#ifndef EDIT_HISTORY_PLACE_H
#define EDIT_HISTORY_PLACE_H

#include <stdbool.h>

#include "base/err.h"
#include "base/sys.h"

struct history_place {
    char *path; /* owned: of the folder `history`, for messages */
    char *rest; /* owned: the part of it that is below `base` */
    int base;   /* the deepest folder that existed up to the state folder, owned */
    int dir;    /* the folder `history`, owned; -1: not open. It can be locked and synced */
};

#define HISTORY_PLACE_INIT ((struct history_place){.base = -1, .dir = -1})

/*
 * $XDG_STATE_HOME if it is an absolute path, else $HOME/.local/state, else for root /var/lib. free()
 * it. 0; -ENOENT (a user without a home), -ENOMEM.
 */
int history_home(char **ret, struct err *e);

/* Finds the part that exists, and makes nothing. 0, -errno. Free `ret` in any case. */
int history_place_find(struct history_place *ret, const char *home, struct err *e);
/*
 * Opens the folder; once it is open there is nothing to do. 0; -ENOENT (it does not exist, and is
 * not to be made), -EPERM (not this user's alone), -ELOOP, -ENOTDIR, -errno.
 */
int history_place_open(struct history_place *p, const struct sys *sys, bool make, struct err *e);
void history_place_free(struct history_place *p);

#endif
