/* SPDX-License-Identifier: MIT */
/* Reads /proc: see proc.h. */
#include "mount/proc.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/buf.h"
#include "base/lock.h"
#include "base/sys.h"
#include "mount/log.h"

/* ---- mounts ---- */

const struct mount *mounts_at(const struct mounts *ms, const char *path)
{
    for (size_t i = ms->n; i-- > 0;)
        if (strcmp(ms->mount[i].at, path) == 0)
            return &ms->mount[i];
    return NULL;
}

const struct mount *mounts_editing(const struct mounts *ms, const char *path)
{
    for (size_t i = ms->n; i-- > 0;) {
        const struct mount *m = &ms->mount[i];
        if (mount_is_ggufs(m) && mount_option(m->super, "rw") &&
            (strcmp(m->source, path) == 0 || path_below(path, m->source)))
            return m;
    }
    return NULL;
}

long mount_user(const struct mount *m)
{
    return mount_number(m->super, "user_id");
}

/* ---- pending signals ---- */

#define BIT(signal) ((uint64_t)1 << ((signal)-1))

/* Signals that should stop a program even if it has a handler for them. */
#define ASKS (BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGTERM))
/* Signals that do not end a program. Any other signal ends a program that has no handler for it. */
#define HARMLESS                                                                               \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGSTOP) | BIT(SIGTSTP) | \
     BIT(SIGTTIN) | BIT(SIGTTOU))

bool stops_by_status(const char *status)
{
    enum { OWN, SHARED, BLOCKED, IGNORED, CAUGHT, SETS };
    static const char *const lines[] = {
        "\nSigPnd:", "\nShdPnd:", "\nSigBlk:", "\nSigIgn:", "\nSigCgt:"};
    uint64_t set[SETS];
    for (size_t i = 0; i < SETS; i++) {
        const char *at = strstr(status, lines[i]);
        if (!at)
            return true;
        set[i] = strtoull(at + strlen(lines[i]), NULL, 16);
    }
    const uint64_t pending = (set[OWN] | set[SHARED]) & ~set[BLOCKED] & ~set[IGNORED];
    return pending & (ASKS | ~(set[CAUGHT] | HARMLESS));
}

bool stops_thread(pid_t thread)
{
    char path[64], *status = NULL;
    size_t cap = 0;
    if (thread <= 0) /* the thread is in another container */
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)thread);
    FILE *f = fopen(path, "re");
    const bool stops = !f || getdelim(&status, &cap, '\0', f) < 0 || stops_by_status(status);
    if (f)
        (void)fclose(f);
    free(status);
    return stops;
}

/* ---- the holder of a lock ---- */

/* Seconds to wait for a lock, and seconds after which the wait is logged. */
#define PATIENCE 10
#define LINE_AFTER 1
/* Milliseconds between attempts. */
#define TRY_AGAIN 20

bool holder_wait(void *arg, int dir, const char *name, struct err *why)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    struct holder *h = arg;
    char path[PATH_MAX], shown[SHOW_MAX];
    const bool known = mounts_load(&ms) == 0 && path_of_fd(dir, path) &&
                       strlen(path) + strlen(name) + 2 <= sizeof(path);
    const struct mount *m =
        known ? mounts_editing(&ms, strcat(strcat(path, path[1] ? "/" : ""), name)) : NULL;
    if (m) {
        (void)err_set(why, -EBUSY, "another ggufs has it mounted on %s",
                      show(shown, m->at, strlen(m->at)));
        return false;
    }
    if (!h->since.tv_sec)
        h->since = when_now();
    h->late = when_past(&h->since, PATIENCE);
    if (h->late) {
        (void)err_set(why, -EBUSY, "is still being written; -o ro shows it as it is now");
        return false;
    }
    if (!h->said && when_past(&h->since, LINE_AFTER)) {
        log_line(LOG_NOTICE, "%s: waiting: another process is still writing it",
                 show(shown, h->model, strlen(h->model)));
        h->said = true;
    }
    when_sleep(TRY_AGAIN);
    return true;
}
