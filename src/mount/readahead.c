/* SPDX-License-Identifier: MIT */
/* The kernel's readahead on a mount: see readahead.h. */
#include "mount/readahead.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct readahead {
    pthread_t thread;
    const char *mountpoint;
    unsigned kib;
};

static void set_bdi(dev_t dev, unsigned kib)
{
    char path[64], value[16];
    (void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev),
                   minor(dev));
    int n = snprintf(value, sizeof(value), "%u", kib);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, value, (size_t)n);
    (void)ignored;
    (void)close(fd);
}

static void *run(void *arg)
{
    const struct readahead *r = arg;
    struct stat st;
    /* Answered by our own loop, after its first exchange with the kernel. */
    if (stat(r->mountpoint, &st) == 0)
        set_bdi(st.st_dev, r->kib);
    return NULL;
}

struct readahead *readahead_begin(const char *mountpoint, unsigned kib)
{
    sigset_t all, old;
    struct readahead *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->kib = kib;
    r->mountpoint = mountpoint;
    /* Signals are for the main thread. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&r->thread, NULL, run, r);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        free(r);
        return NULL;
    }
    return r;
}

void readahead_end(struct readahead *r)
{
    if (!r)
        return;
    (void)pthread_join(r->thread, NULL);
    free(r);
}
