/* SPDX-License-Identifier: MIT */
/* Finds the processes that use a mount: see users.h. */
#include "mount/users.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "base/path.h"
#include "mount/processes.h"

/* /proc/PID/comm of a process of ggufs. */
#define OUR_NAME "ggufs"

/* At most so many users are named. */
#define NAMED_MAX 8

/* Of a device number within the kernel. */
#define KERNEL_MINOR_BITS 20

struct users {
    const struct mount *m;
    struct buf *out;
    unsigned n;
    long pid;    /* of the process that is being checked */
    bool others; /* a use by anything but this program */
};

static bool link_is_below(const struct users *u, const char *name)
{
    char path[64], target[PATH_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%ld/%s", u->pid, name);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    return n > 0 && path_below(target, u->m->at);
}

/* Checks the mount through which a file was opened. */
static bool try_file(void *arg, long number)
{
    const struct users *u = arg;
    char path[64], line[128];
    long id = -1;
    (void)snprintf(path, sizeof(path), "/proc/%ld/fdinfo/%ld", u->pid, number);
    FILE *f = fopen(path, "re");
    while (f && id < 0 && fgets(line, sizeof(line), f))
        (void)sscanf(line, "mnt_id: %ld", &id);
    if (f)
        (void)fclose(f);
    return id != u->m->id;
}

/* "START-END rwxp OFFSET 00:4d INODE PATH": a mapping keeps its mount busy, too. */
static bool has_mapping(const struct users *u)
{
    char path[64], dev[32], want[32], *line = NULL;
    size_t room = 0;
    bool found = false;
    (void)snprintf(want, sizeof(want), "%02x:%02x", major(u->m->dev), minor(u->m->dev));
    (void)snprintf(path, sizeof(path), "/proc/%ld/maps", u->pid);
    FILE *f = fopen(path, "re");
    while (f && !found && getline(&line, &room, f) > 0)
        found = sscanf(line, "%*s %*s %*s %31s", dev) == 1 && strcmp(dev, want) == 0;
    if (f)
        (void)fclose(f);
    free(line);
    return found;
}

/* A copy of the mount in another mount namespace keeps nothing busy here. */
static bool is_elsewhere(const struct users *u)
{
    char path[64], here[64] = "", there[64] = "";
    (void)snprintf(path, sizeof(path), "/proc/%ld/ns/mnt", u->pid);
    return readlink(path, there, sizeof(there) - 1) > 0 &&
           readlink("/proc/self/ns/mnt", here, sizeof(here) - 1) > 0 && strcmp(here, there) != 0;
}

static bool uses(struct users *u)
{
    char folder[64];
    if (is_elsewhere(u))
        return false;
    (void)snprintf(folder, sizeof(folder), "/proc/%ld/fdinfo", u->pid);
    return link_is_below(u, "cwd") || link_is_below(u, "root") || link_is_below(u, "exe") ||
           processes_each(folder, try_file, u) > 0 || has_mapping(u);
}

static void add(struct users *u, const char *text)
{
    if (u->n < NAMED_MAX) {
        buf_str(u->out, u->n ? ", " : "");
        buf_str(u->out, text);
    }
    u->n++;
}

static void add_process(struct users *u)
{
    char name[PROCESS_NAME_MAX], text[PROCESS_NAME_MAX + 64];
    (void)snprintf(text, sizeof(text), "process %ld (%s)", u->pid, process_name(name, u->pid));
    add(u, text);
    u->others |= strcmp(name, OUR_NAME) != 0;
}

static void add_more(const struct users *u)
{
    if (u->n > NAMED_MAX)
        buf_printf(u->out, " and %u more", u->n - NAMED_MAX);
}

static bool try_process(void *arg, long pid)
{
    struct users *u = arg;
    u->pid = pid;
    if (pid != getpid() && uses(u))
        add_process(u);
    return true;
}

/* ---- other mount namespaces ---- */

static bool try_namespace(void *arg, long pid)
{
    struct users *u = arg;
    struct mounts ms;
    bool found = false;
    u->pid = pid;
    if (!is_elsewhere(u))
        return true;
    if (mounts_load(&ms, pid) == 0)
        for (size_t i = 0; i < ms.n && !found; i++)
            found = ms.mount[i].dev == u->m->dev;
    mounts_free(&ms);
    if (found)
        add_process(u);
    return true;
}

/* A folder that the kernel makes for each connection, by the device as the kernel writes it. */
static bool is_connected(dev_t dev)
{
    char path[64];
    unsigned number = major(dev) << KERNEL_MINOR_BITS | minor(dev);
    (void)snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u", number);
    return access(path, F_OK) == 0;
}

bool mount_lives_on(dev_t dev, struct buf *out)
{
    const struct mount gone = {.dev = dev};
    struct users u = {.m = &gone, .out = out};
    (void)processes_each("/proc", try_namespace, &u);
    add_more(&u);
    return u.n > 0 || is_connected(dev);
}

bool mount_users(const struct mounts *ms, const struct mount *m, struct buf *out)
{
    struct users u = {.m = m, .out = out};
    for (size_t i = 0; i < ms->n; i++)
        if (ms->mount[i].parent == m->id) {
            char at[SHOW_MAX], text[SHOW_MAX + 32];
            (void)snprintf(text, sizeof(text), "the mount on %s",
                           show(at, ms->mount[i].at, strlen(ms->mount[i].at)));
            add(&u, text);
            u.others = true;
        }
    (void)processes_each("/proc", try_process, &u);
    add_more(&u);
    return u.others;
}
