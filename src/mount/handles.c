/* SPDX-License-Identifier: MIT */
/* Open files and folders: see handles.h. */
#include "mount/handles.h"

#include <stdlib.h>

static void close_it(struct reader *reader, struct shelf_dir *dir)
{
    if (reader)
        reader_close(reader);
    if (dir)
        shelf_closedir(dir);
}

struct handle *handle_open(struct handles *l, struct reader *reader, struct shelf_dir *dir,
                           struct passed *passed)
{
    struct handle *h = calloc(1, sizeof(*h));
    if (!h) {
        close_it(reader, dir);
        return NULL;
    }
    h->reader = reader;
    h->dir = dir;
    h->passed = passed;
    h->uses = 1;
    lock_init(&h->listing);
    (void)pthread_mutex_lock(&l->lock);
    h->next = l->first;
    if (l->first)
        l->first->prev = h;
    l->first = h;
    l->changes++;
    (void)pthread_mutex_unlock(&l->lock);
    return h;
}

void handle_use(struct handles *l, struct handle *h)
{
    (void)pthread_mutex_lock(&l->lock);
    h->uses++;
    (void)pthread_mutex_unlock(&l->lock);
}

/* Under the lock. */
static void take_out(struct handles *l, struct handle *h)
{
    if (h->prev)
        h->prev->next = h->next;
    else
        l->first = h->next;
    if (h->next)
        h->next->prev = h->prev;
    l->changes++;
}

static void end(struct handle *h)
{
    close_it(h->reader, h->dir);
    lock_destroy(&h->listing);
    free(h);
}

struct passed *handle_drop(struct handles *l, struct handle *h)
{
    (void)pthread_mutex_lock(&l->lock);
    bool last = --h->uses == 0;
    if (last)
        take_out(l, h);
    (void)pthread_mutex_unlock(&l->lock);
    if (!last)
        return NULL;
    struct passed *passed = h->passed;
    end(h);
    return passed;
}

bool handles_idle(struct handles *l, unsigned long *seen)
{
    (void)pthread_mutex_lock(&l->lock);
    bool idle = !l->first && l->changes == *seen;
    *seen = l->changes;
    (void)pthread_mutex_unlock(&l->lock);
    return idle;
}

void handles_end(struct handles *l)
{
    for (struct handle *h; (h = l->first);) {
        take_out(l, h);
        end(h);
    }
}
