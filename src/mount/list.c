/* SPDX-License-Identifier: MIT */
/* The mounts of ggufs on this machine: see list.h. */
#include "mount/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/when.h"
#include "shelf/mounts.h"
#include "mount/daemon.h"
#include "mount/takedown.h"
#include "text/json.h"

/* A mount, or a daemon whose mount cannot be seen. */
struct entry {
    const char *at, *model, *reason; /* reason: NULL if it is read-write, or unknown */
    bool read_only;
    long pid, user; /* 0, -1: not known */
    const char *state;
};

static const char *state_of(const struct mount *m, const struct daemon *d, long long until)
{
    static const char *const names[] = {
        [MOUNT_ALIVE] = "alive", [MOUNT_DEAD] = "dead", [MOUNT_UNKNOWN] = "unknown"};
    long long left = until - when_ms();
    if (d)
        return d->status.state >= DAEMON_LEAVING  ? "ending"
               : d->status.state != DAEMON_SILENT ? "alive"
               : process_stopped(d->pid)          ? "stopped"
                                                  : "unknown";
    return names[left > 0 ? mount_life(m->at, (int)left) : MOUNT_UNKNOWN];
}

static struct entry entry_of(const struct mount *m, const struct daemon *d, long long until)
{
    bool known = d && d->status.model;
    return (struct entry){.at = m->at,
                          .model = known ? d->status.model : m->source,
                          .reason = known ? d->status.read_only : NULL,
                          .read_only = mount_has(m->super, "ro"),
                          .pid = d ? d->pid : 0,
                          .user = mount_number(m->super, "user_id"),
                          .state = state_of(m, d, until)};
}

static struct entry entry_without_mount(const struct daemon *d)
{
    const struct daemon_status *s = &d->status;
    return (struct entry){.at = s->at,
                          .model = s->model,
                          .reason = s->read_only,
                          .read_only = s->read_only != NULL,
                          .pid = d->pid,
                          .user = -1,
                          .state = s->state >= DAEMON_LEAVING ? "ending" : "hidden"};
}

static void add_shown(struct buf *out, const char *text)
{
    show_all(out, text, strlen(text));
}

static void add_line(struct buf *out, const struct entry *x)
{
    char name[PROCESS_NAME_MAX];
    add_shown(out, x->model);
    buf_str(out, " on ");
    add_shown(out, x->at);
    buf_str(out, x->read_only ? ", read-only" : ", read-write");
    if (x->reason) {
        buf_str(out, " (");
        add_shown(out, x->reason);
        buf_char(out, ')');
    }
    if (x->pid)
        buf_printf(out, ", process %ld", x->pid);
    else if (x->user >= 0)
        buf_printf(out, ", user %s", user_name(name, x->user));
    if (strcmp(x->state, "alive") != 0)
        buf_printf(out, ", %s", x->state);
    buf_char(out, '\n');
}

static void add_number(struct json *j, const char *name, long n, bool known)
{
    if (known)
        buf_printf(json_item(j, name), "%ld", n);
    else
        json_text(j, name, NULL);
}

static void add_object(struct json *j, const struct entry *x)
{
    json_begin(j, NULL, "{");
    json_text(j, "mountpoint", x->at);
    json_text(j, "model", x->model);
    json_text(j, "mode", x->read_only ? "ro" : "rw");
    json_text(j, "reason", x->reason);
    add_number(j, "pid", x->pid, x->pid > 0);
    add_number(j, "user", x->user, x->user >= 0);
    json_text(j, "state", x->state);
    json_end(j);
}

/* j NULL: as lines. */
static void add_entry(const struct entry *x, struct json *j, struct buf *out)
{
    if (j)
        add_object(j, x);
    else
        add_line(out, x);
}

static void add_all(const struct mounts *ms, struct daemons *ds, struct json *j, struct buf *out)
{
    long long until = when_ms() + LIST_ANSWER_MS;
    for (size_t i = 0; i < ms->n; i++) {
        const struct mount *m = &ms->mount[i];
        const struct daemon *d = mount_is_fuse(m) ? daemons_of(ds, m) : NULL;
        if (!d && !mount_is_ggufs(m))
            continue;
        struct entry x = entry_of(m, d ? d : daemons_silent(ds, m), until);
        add_entry(&x, j, out);
    }
    for (size_t i = 0; i < ds->n; i++) {
        const struct daemon_status *s = &ds->daemon[i].status;
        if (s->state <= DAEMON_STARTING || !s->model || daemon_mount(ms, &ds->daemon[i]))
            continue;
        struct entry x = entry_without_mount(&ds->daemon[i]);
        add_entry(&x, j, out);
    }
}

int mnt_list(bool json, struct buf *out, struct err *e)
{
    struct mounts ms;
    struct daemons ds = {0};
    int r = mounts_load(&ms, 0);
    if (r == 0)
        r = daemons_find(&ds, NULL);
    struct json j = {.out = out};
    if (r == 0 && json) {
        json_begin(&j, NULL, "[\n");
        add_all(&ms, &ds, &j, out);
        json_end(&j);
        buf_char(out, '\n');
    } else if (r == 0) {
        add_all(&ms, &ds, NULL, out);
    }
    daemons_free(&ds);
    mounts_free(&ms);
    if (r == 0)
        r = buf_error(out);
    return r < 0 ? err_set(e, r, "cannot list mounts: %s", strerror(-r)) : 0;
}
