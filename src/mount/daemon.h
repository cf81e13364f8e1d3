/* SPDX-License-Identifier: MIT */
/*
 * Finds ggufs daemons by their control sockets (control.h), which the kernel lists, and queries
 * them.
 *
 *     r = daemons_find(&ds, NULL);
 *     d = daemons_of(&ds, mount);
 *     r = daemon_ask(d, "sync", &said, say_that_it_waits, arg, &e);
 *     while (daemon_hear(d, 100)) ...                    until the model is closed
 *     daemons_free(&ds);
 *
 * Only daemons of this user are visible; root sees all daemons. Daemons in another pid or network
 * namespace are not visible. Any thread may call these functions; they keep no state.
 */
#ifndef MOUNT_DAEMON_H
#define MOUNT_DAEMON_H

#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "shelf/mountinfo.h"

/* ---- processes and locks, as far as /proc shows them; no other file system is accessed ---- */

/* Read the beginning of a short file in /proc as text. Returns its length, or 0 if it cannot be
 * read. */
size_t proc_read(const char *path, char *dst, size_t size);
/* Bytes to read from /proc/PID/fdinfo/N: enough for a dozen locks. */
#define PROC_INFO_MAX 2048
/* Call fn with each numeric name in a directory of /proc until fn returns false. Returns true if fn
 * returned false. */
bool proc_each(const char *folder, bool (*fn)(void *arg, long number), void *arg);

/* Wait up to `ms` milliseconds (-1: forever) for a process to end. Returns true if it has ended. */
bool process_wait(long pid, int ms);
/* Return true if the process is stopped (by SIGSTOP or a debugger) and so cannot answer. */
bool process_stopped(long pid);
/* Write the name of a process or user to dst; if a user has no name, the number. Returns dst. */
#define PROCESS_NAME_MAX 64
const char *process_name(char dst[PROCESS_NAME_MAX], long pid);
const char *user_name(char dst[PROCESS_NAME_MAX], long uid);

/* A locked file, as /proc/PID/fdinfo and /proc/locks identify it. */
struct file_id {
    unsigned major, minor;
    uint64_t ino;
};

/* Return true if this process holds an exclusive flock(2) on the file. */
bool file_is_locked_here(const struct file_id *id);

/*
 * Return true if a pending signal should stop the thread, which may belong to any process, or if
 * this cannot be determined. While a program waits for a request, the kernel reports only the first
 * signal, even if that signal does not stop the program (such as SIGCHLD for a shell).
 */
bool stops_thread(pid_t thread);
/* Like stops_thread(), but takes the content of /proc/TID/status, NUL-terminated. */
bool stops_by_status(const char *status);

/* ---- a daemon ---- */

/* The states of a daemon, in the order in which it passes through them. */
enum daemon_state {
    DAEMON_SILENT = -1, /* does not answer */
    DAEMON_STARTING,
    DAEMON_SERVING,
    DAEMON_GONE, /* unmounted in its own mount namespace */
    DAEMON_LEAVING,
    DAEMON_ENDED,
    DAEMON_CLOSED
};

/* The status as received. Its strings are not trusted and must be escaped before they are
 * printed. */
struct daemon_status {
    enum daemon_state state;
    bool holds; /* the daemon has locked the file passed to daemons_find() */
    /* in DAEMON_GONE: files are still open for writing; the lock has been released */
    bool held, free;
    dev_t dev;       /* 0: unknown */
    char *at;        /* mount point; this and the next three are owned and may be NULL */
    char *model;     /* the real path */
    char *read_only; /* the reason */
    char *failed;    /* why the daemon failed, known in DAEMON_ENDED; NULL: success */
    /* lines about lost edits; complete once `free` is set or DAEMON_ENDED is reached */
    struct buf lost;
    struct buf backups;
};

struct daemon {
    long pid;
    uid_t uid;
    char name[64];   /* name of the daemon's socket */
    int fd;          /* owned: socket on which the status arrives */
    bool now;        /* "now" has arrived: the status is up to date as of the request */
    size_t heard;    /* bytes received */
    struct buf part; /* received text not yet processed */
    struct daemon_status status;
};

struct daemons {
    struct daemon *daemon; /* owned */
    size_t n, cap;
};

/* ---- all daemons ---- */

/* Find all visible daemons except this process. If `locked` is not NULL, also find out which of
 * them have locked that file. Returns 0 or -errno. Free ds in both cases. */
int daemons_find(struct daemons *ds, const struct file_id *locked);
void daemons_free(struct daemons *ds);
/*
 * Return the daemon that serves a mount, or NULL if it is not visible. A daemon that does not
 * answer is returned if its socket's name matches the mount point and no other daemon serves the
 * mount. Only processes of the mount's owner and of root are trusted. Waits for a daemon that is
 * starting.
 */
struct daemon *daemons_of(struct daemons *ds, const struct mount *m);
/* Set e to a message saying that the daemon does not answer. Returns -ETIMEDOUT. */
int daemon_no_answer(const struct daemon *d, struct err *e);
/* Set e to a message about a mount whose daemon is not visible. Returns -EPERM if the mount is
 * another user's, else -ESRCH. */
int daemon_unseen(const struct mount *m, const char *advice, struct err *e);
/* Return the daemon's mount, or NULL if it is not in the list. */
const struct mount *daemon_mount(const struct mounts *ms, const struct daemon *d);
/* Wait up to `ms` milliseconds for more of the daemon's status. Returns false if no more will
 * come. */
bool daemon_hear(struct daemon *d, int ms);
/* Send a request to the daemon, and add its answer to `said`. Until the answer is complete, `wait`
 * (which may be NULL) is called ten times a second. Returns 0, -ETIMEDOUT if the daemon is stopped,
 * -EPIPE if it has ended, or the daemon's -errno, with a message that is safe to print. */
int daemon_ask(const struct daemon *d, const char *request, struct buf *said,
               void (*wait)(void *arg), void *arg, struct err *e);

/* Process all complete lines in d->part (described in control.h). */
void daemon_take(struct daemon *d);

/* ---- the daemon of a model ---- */

/*
 *     r = channel_open("m.gguf", &c, &e);          c.daemon is NULL if no daemon edits the model
 *     r = channel_ask(&c, "undo 12", &said, &e);
 *     channel_close(&c);
 */
struct channel {
    struct daemons daemons;
    const struct daemon *daemon;
    char *place; /* owned: the model's place, in the form that shelf_ask() expects */
};

/*
 * Find the daemon of a model. The operand is the model's file, one of its shards, or a link to
 * either; a mount point; or the model's directory in a mount. Returns 0, -ETIMEDOUT (the mount's
 * daemon is stopped), or another -errno. On success, c->daemon is NULL if no visible, responding
 * daemon is editing the file. Always call channel_close().
 */
int channel_open(const char *operand, struct channel *c, struct err *e);
/* Send the daemon a request about the model ("undo 12", control.h), and add its answer to `said`.
 * Returns 0 or -errno. */
int channel_ask(const struct channel *c, const char *verb, struct buf *said, struct err *e);
void channel_close(struct channel *c);

/* ---- the holder of a model's lock, before mounting ---- */

/* For struct tree_options.wait: wait for a ggufs process that will end once it has written its last
 * edits. Wait only a few seconds if that process is still mounting, if its mount is gone, or if it
 * belongs to another user. `arg` is the model's name, for a message on standard error after a
 * second. Call before threads are started. */
bool holder_wait(void *arg, int dir, const char *name, bool busy, struct err *why);

#endif
