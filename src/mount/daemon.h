/* SPDX-License-Identifier: MIT */
/*
 * Finds daemons of ggufs by their control sockets (control.h), which the kernel lists, and queries
 * them.
 *
 *     r = daemons_find(&ds, NULL);
 *     d = daemons_of(&ds, mount);
 *     r = daemon_ask(d, "sync", &said, say_that_it_waits, arg, &e);
 *     while (daemon_hear(d, 100)) ...                    until the model is closed
 *     daemons_free(&ds);
 *
 * Only daemons of this user are visible; root sees all. Daemons in another pid or network namespace
 * are not visible.
 *
 * Any thread may call these functions; they keep no state.
 */
#ifndef MOUNT_DAEMON_H
#define MOUNT_DAEMON_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "mount/processes.h"
#include "shelf/mounts.h"

/* In the order in which a daemon passes through them, except for the state of a daemon that does
 * not answer. */
enum daemon_state {
    DAEMON_SILENT = -1,
    DAEMON_STARTING,
    DAEMON_SERVING,
    DAEMON_GONE, /* unmounted in its own mount namespace */
    DAEMON_LEAVING,
    DAEMON_ENDED,
    DAEMON_CLOSED
};

/* The status as received. It is not trusted, and must be escaped before printing. */
struct daemon_status {
    enum daemon_state state;
    bool holds;      /* the daemon has locked the file in question */
    bool held, free; /* GONE: files are still open for writing; no file is locked any longer */
    dev_t dev;       /* 0: unknown */
    char *at;        /* mount point; this and the next three are owned and may be NULL */
    char *model;     /* */
    char *read_only; /* the reason */
    char *failed;    /* from DAEMON_ENDED on: why it failed; NULL: success */
    struct buf lost; /* from DAEMON_ENDED on: lines about lost edits */
    struct buf backups;
};

struct daemon {
    long pid;
    uid_t uid;
    char name[64];   /* name of its socket */
    int fd;          /* owned: socket on which its status arrives */
    bool now;        /* the state at the time of the request has arrived */
    size_t heard;    /* bytes received */
    struct buf part; /* an incomplete line */
    struct daemon_status status;
};

struct daemons {
    struct daemon *daemon; /* owned */
    size_t n, cap;
};

/* ---- all daemons ---- */

/* Find all visible daemons, except this process, and whether they have locked the file *locked
 * (unless that is NULL). Returns 0 or -errno. Free ds in both cases. */
int daemons_find(struct daemons *ds, const struct file_id *locked);
void daemons_free(struct daemons *ds);
/*
 * Return the daemon that serves a mount, or NULL if it is not visible. A process that claims to
 * serve the mount must belong to the mount's owner, or to root. Waits for a daemon that is
 * starting.
 */
struct daemon *daemons_of(struct daemons *ds, const struct mount *m);
/* Return a daemon that does not answer and, by the name of its socket, seems to serve the mount. */
struct daemon *daemons_silent(const struct daemons *ds, const struct mount *m);
/* Set e to a message saying that the daemon does not answer. Returns -ETIMEDOUT. */
int daemon_no_answer(const struct daemon *d, struct err *e);
/* Return the daemon's mount, or NULL if it is not in the list. */
const struct mount *daemon_mount(const struct mounts *ms, const struct daemon *d);
/* Wait up to `ms` milliseconds for more of its status. Returns false if no more will come. */
bool daemon_hear(struct daemon *d, int ms);
/*
 * Send a request to the daemon, and add its answer to `said`. Until then `wait` is called ten times
 * a second. Returns 0, -ETIMEDOUT if the daemon is stopped, -EPIPE if it has ended, or -errno with
 * a message from the daemon that is safe to print.
 */
int daemon_ask(const struct daemon *d, const char *request, struct buf *said,
               void (*wait)(void *arg), void *arg, struct err *e);

/* Process all complete lines in d->part, which a daemon writes as "WORD VALUE\n". */
void daemon_take(struct daemon *d);

/* ---- the daemon of a model ---- */

/*
 *     r = channel_open("m.gguf", &c, &e);          c.daemon is NULL if it is not mounted read-write
 *     r = channel_ask(&c, "undo 12", &said, &e);
 *     channel_close(&c);
 */
struct channel {
    struct daemons daemons;
    const struct daemon *daemon;
    char *place; /* owned: result of shelf_ask() */
};

/*
 * Find the daemon of a model. The operand is the model's file, one of its shards, or a link to
 * either; a mount point; or the model's directory in a mount. Returns 0, -EINVAL (the directory is
 * not a mount of a model), -ETIMEDOUT (the mount's daemon is stopped), or another -errno. On
 * success c->daemon is NULL if no daemon that is visible and answers has mounted the file
 * read-write or edits it in a mount of a directory of models. Always call channel_close().
 */
int channel_open(const char *operand, struct channel *c, struct err *e);
/* Send the daemon a request about the model ("undo 12", control.h), and add its answer to `said`.
 * Returns 0 or -errno. */
int channel_ask(const struct channel *c, const char *verb, struct buf *said, struct err *e);
void channel_close(struct channel *c);

/* ---- the holder of a model's lock, before mounting ---- */

/*
 * Decide whether to wait for the lock's holder; call before threads are started.
 *
 *   a ggufs whose session has ended   wait: it writes pending edits and ends
 *   one that is still being mounted, wait a moment: it will serve, fail, or end
 *   whose mount cannot be seen, or
 *   of another user (except root)
 *   one that serves a mount           do not wait
 *   anything else                     do not wait: another program, another user's process,
 *                                     another machine
 *
 * For struct tree_options.wait. `arg` is the model's name, which a line on standard error gives if
 * this takes longer than a second.
 */
bool holder_wait(void *arg, int dir, const char *name, bool busy, struct err *why);

#endif
