/* SPDX-License-Identifier: MIT */
/* Waits, faults and log of scripts: see script.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "live/state.h"
#include "alloc.h"
#include "tree/nodes.h"
#include "script_run.h"

/* ---- the time ---- */

static atomic_long ahead; /* seconds by which the clock runs ahead */
static atomic_bool hasty; /* each reading of the clock advances it by a second */
static atomic_long still; /* the second at which the clock is stopped; 0: running */

/* Replaces the C library's function. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = (int)syscall(SYS_clock_gettime, clock, ret);
    if (r < 0 || clock != CLOCK_MONOTONIC)
        return r;
    if (atomic_load(&still))
        *ret = (struct timespec){atomic_load(&still), 0};
    ret->tv_sec += atomic_load(&hasty) ? atomic_fetch_add(&ahead, 1) : atomic_load(&ahead);
    return 0;
}

void script_time_runs(void)
{
    atomic_store(&hasty, false);
    atomic_store(&still, 0);
    atomic_store(&ahead, 0);
}

static int op_later(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    atomic_fetch_add(&ahead, (long)script_number(r, arg[0]));
    return 0;
}

/* Give timed waits, except those for conversions, time to end. */
static int op_converts(struct run *r, char **arg, struct waiter *w)
{
    return op_later(r, arg, w); /* nothing is converted yet */
}

/* Timed waits then wake at once, and end when `later` advances the clock. */
static int op_behind(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    atomic_fetch_sub(&ahead, (long)script_number(r, arg[0]));
    return 0;
}

static int op_hasty(struct run *r, char **arg, struct waiter *w)
{
    (void)r;
    (void)arg;
    (void)w;
    atomic_store(&hasty, true);
    return 0;
}

static int op_still(struct run *r, char **arg, struct waiter *w)
{
    struct timespec now;
    (void)r;
    (void)arg;
    (void)w;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&still, now.tv_sec);
    return 0;
}

/* ---- the log ---- */

static struct {
    pthread_mutex_t lock;
    char lines[16384]; /* the newest lines that fit */
    size_t n;
    bool warned;
} logged = {.lock = PTHREAD_MUTEX_INITIALIZER};

void script_log(int priority, const char *line)
{
    (void)pthread_mutex_lock(&logged.lock);
    size_t n = strlen(line);
    if (n >= sizeof(logged.lines) - logged.n)
        logged.n = 0;
    if (n < sizeof(logged.lines)) {
        memcpy(logged.lines + logged.n, line, n);
        logged.n += n;
    }
    logged.lines[logged.n] = '\0';
    logged.warned |= priority <= LOG_WARNING;
    (void)pthread_mutex_unlock(&logged.lock);
}

void script_log_clear(void)
{
    (void)pthread_mutex_lock(&logged.lock);
    logged.n = 0;
    logged.lines[0] = '\0';
    logged.warned = false;
    (void)pthread_mutex_unlock(&logged.lock);
}

static int op_logged(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    (void)pthread_mutex_lock(&logged.lock);
    if (!strstr(logged.lines, arg[0]))
        script_fail(r, "the log has only \"%s\"", logged.lines);
    (void)pthread_mutex_unlock(&logged.lock);
    script_log_clear();
    return 0;
}

static int op_quiet(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    (void)pthread_mutex_lock(&logged.lock);
    if (logged.warned)
        script_fail(r, "the log has \"%s\"", logged.lines);
    (void)pthread_mutex_unlock(&logged.lock);
    return 0;
}

/* ---- waiting and faults ---- */

static int op_wait(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    if (r->waited == r->started) {
        script_fail(r, "there is nothing to wait for");
        return 0;
    }
    return script_wait(&r->waiter[r->waited++], LIVE_PARKED);
}

static int op_interrupt(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    if (r->waited == r->started)
        script_fail(r, "nothing waits");
    else
        tree_interrupt(r->t, &r->waiter[arg[0] ? r->waited : r->started - 1]);
    return 0;
}

static int op_hold(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    (void)r;
    (void)arg;
    script_copies_hold();
    return 0;
}

static int op_full(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    (void)r;
    script_disk_full(!arg[0]);
    return 0;
}

static int op_held(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    if (!script_copies_held())
        script_fail(r, "no copy has begun");
    return 0;
}

/* Return the code of the named error, or 0 if name is NULL. */
static int named(struct run *r, const char *name)
{
    int code = name ? script_errno(name) : 0;
    if (name && !code)
        script_fail(r, "no such error");
    return code;
}

static int op_go(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    script_copies_go(named(r, arg[0]));
    return 0;
}

static int op_fail(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    script_copies_fail(named(r, arg[0]));
    return 0;
}

/* ---- faults ---- */

/* Shift the model's modification time. */
static int touch(const struct run *r, int seconds)
{
    struct stat st;
    if (stat(r->m.place.model, &st) < 0)
        return -errno;
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    times[1].tv_sec += seconds;
    return utimensat(AT_FDCWD, r->m.place.model, times, 0) < 0 ? -errno : 0;
}

static int op_alter(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    return touch(r, 1000);
}

static int op_restore(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    return touch(r, -1000);
}

static int op_finish(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    return script_finish(r);
}

static int op_reopen(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    int got = script_finish(r);
    script_start(r);
    return got;
}

/* Check that the tree edits the model, and whether another program has changed the model. */
static int op_edits(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    if (!tree_edited(r->t))
        script_fail(r, "it does not edit the model");
    if (tree_changed(r->t) != (strcmp(arg[0], "changed") == 0))
        script_fail(r, "it is not %s", arg[0]);
    return 0;
}

/* Check how many bytes helpers hold. Text that has become a key's value also counts as long as it
 * can return to a helper. */
static int op_helpers(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    struct live *l = atomic_load(&r->t->live);
    uint64_t n = l->helper_bytes;
    if (n != strtoull(arg[0], NULL, 10))
        script_fail(r, "helpers hold %" PRIu64 " bytes, not %s", n, arg[0]);
    return 0;
}

static int op_hurry(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    if (arg[0])
        alloc_arm(1, true);
    tree_hurry(r->t);
    (void)alloc_disarm();
    return 0;
}

const struct script_op script_faults[] = {
    {"wait", op_wait, 0, 0, false},
    {"later", op_later, 1, 1, false},
    {"converts", op_converts, 1, 1, false},
    {"hasty", op_hasty, 0, 0, false},
    {"behind", op_behind, 1, 1, false},
    {"still", op_still, 0, 0, false},
    {"interrupt", op_interrupt, 0, 1, false},
    {"hold", op_hold, 0, 0, false},
    {"full", op_full, 0, 1, false},
    {"held", op_held, 0, 0, false},
    {"go", op_go, 0, 1, false},
    {"fail", op_fail, 0, 1, false},
    {"alter", op_alter, 0, 0, false},
    {"restore", op_restore, 0, 0, false},
    {"edits", op_edits, 1, 1, false},
    {"hurry", op_hurry, 0, 1, false},
    {"finish", op_finish, 0, 0, false},
    {"reopen", op_reopen, 0, 0, false},
    {"logged", op_logged, 1, 1, false},
    {"helpers", op_helpers, 1, 1, false},
    {"quiet", op_quiet, 0, 0, false},
    {0},
};
