/* SPDX-License-Identifier: MIT */
/* Simulates what a power cut destroys: see faultlog.h. */
#include "faultlog.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTOR 512

static const struct sys *real = &sys_libc;

/* Return the next number from splitmix64. */
static uint64_t lot(struct faultsys *fs)
{
    uint64_t z = fs->seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

void fault_log_write(struct faultsys *fs, int fd, uint64_t off, size_t n)
{
    struct stat st;
    if (fs->mode != FAULT_POWER || real->fstat(real, fd, &st) < 0)
        return;
    struct fault_write *w = calloc(1, sizeof(*w) + n);
    if (!w)
        abort();
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    w->fd = open(path, O_RDWR | O_CLOEXEC); /* fd itself may be write-only */
    w->ino = st.st_ino;
    w->off = off;
    w->size = (uint64_t)st.st_size;
    w->n = n;
    if (w->fd < 0 || (n && pread(w->fd, w->was, n, (off_t)off) < 0))
        abort();
    w->next = fs->writes;
    fs->writes = w;
}

struct fault_entry *fault_log_entry(struct faultsys *fs, int dir, const char *from, const char *to)
{
    struct fault_entry *e = calloc(1, sizeof(*e));
    if (!e)
        abort();
    e->dir = dir;
    (void)snprintf(e->from, sizeof(e->from), "%s", from);
    (void)snprintf(e->to, sizeof(e->to), "%s", to);
    e->next = fs->entries;
    fs->entries = e;
    return e;
}

static void forget_write(struct fault_write *w)
{
    (void)close(w->fd);
    free(w->written);
    free(w);
}

/* After a write has been synced, mark its sectors as written in the writes that a failed fsync
 * dropped. */
static void write_anew(struct faultsys *fs, const struct fault_write *now)
{
    for (struct fault_write *w = fs->writes; w; w = w->next)
        for (size_t i = 0; i < w->n && w->dropped && w->ino == now->ino; i += SECTOR)
            w->written[i / SECTOR] |=
                w->off + i < now->off + now->n && now->off < w->off + i + SECTOR;
}

void fault_synced(struct faultsys *fs, uint64_t ino)
{
    for (struct fault_write **at = &fs->writes; *at;) {
        struct fault_write *w = *at;
        if (w->ino != ino || w->dropped) {
            at = &w->next;
            continue;
        }
        write_anew(fs, w);
        *at = w->next;
        forget_write(w);
    }
}

void fault_not_synced(struct faultsys *fs, uint64_t ino)
{
    for (struct fault_write *w = fs->writes; w; w = w->next) {
        if (w->ino != ino || w->dropped || w->n == 0)
            continue;
        w->dropped = true;
        w->written = calloc(w->n / SECTOR + 1, 1);
        if (!w->written)
            abort();
    }
}

static void forget_entry(struct fault_entry *e)
{
    if (e->kept[0])
        (void)unlinkat(e->dir, e->kept, 0);
    free(e);
}

static void forget_entries(struct faultsys *fs)
{
    while (fs->entries) {
        struct fault_entry *e = fs->entries;
        fs->entries = e->next;
        forget_entry(e);
    }
}

/* Record that the directory was synced. */
void fault_synced_folder(struct faultsys *fs, const struct stat *synced)
{
    for (struct fault_entry **at = &fs->entries; *at;) {
        struct fault_entry *e = *at;
        struct stat st;
        if (fstat(e->dir, &st) == 0 &&
            (st.st_dev != synced->st_dev || st.st_ino != synced->st_ino)) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        forget_entry(e);
    }
}

static void undo_entry(const struct fault_entry *e)
{
    if (e->to[0])
        (void)renameat2(e->dir, e->from, e->dir, e->to, e->flags);
    else if (!e->kept[0])
        (void)unlinkat(e->dir, e->from, 0);
    if (e->kept[0])
        (void)renameat(e->dir, e->kept, e->dir, e->from);
}

static void lose_write(struct faultsys *fs, const struct fault_write *w)
{
    for (size_t i = 0; i < w->n; i += SECTOR)
        if ((lot(fs) & 1) && !(w->written && w->written[i / SECTOR])) {
            size_t n = w->n - i < SECTOR ? w->n - i : SECTOR;
            if (pwrite(w->fd, w->was + i, n, (off_t)(w->off + i)) < 0)
                abort();
        }
    if (w->n == 0 && (lot(fs) & 1) && ftruncate(w->fd, (off_t)w->size) < 0)
        abort();
}

static bool names(const struct fault_entry *e, const char *name)
{
    return strcmp(e->from, name) == 0 || (name[0] && strcmp(e->to, name) == 0);
}

/* True if an earlier change to one of e's names has been lost. */
static bool lost_before(const struct fault_entry *e)
{
    for (const struct fault_entry *p = e->next; p; p = p->next)
        if (p->lost && (names(p, e->from) || names(p, e->to)))
            return true;
    return false;
}

/* Choose which changes are lost, starting with the oldest, which is the last in the list. */
static void choose_lost(struct faultsys *fs, struct fault_entry *e)
{
    if (!e)
        return;
    choose_lost(fs, e->next);
    bool unlucky = lot(fs) & 1;
    e->lost = unlucky || lost_before(e);
}

void faultsys_power_cut(struct faultsys *fs)
{
    for (struct fault_write *w = fs->writes; w; w = w->next)
        lose_write(fs, w);
    choose_lost(fs, fs->entries);
    /* Undo the newest change first. A change is kept only if it shares no name with an earlier lost
     * one. */
    for (struct fault_entry *e = fs->entries; e; e = e->next)
        if (e->lost) {
            undo_entry(e);
            e->kept[0] = '\0';
        }
    forget_entries(fs);
}
