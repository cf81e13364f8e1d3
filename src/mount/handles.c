/* SPDX-License-Identifier: MIT */
/* Open files and folders: see handles.h. */
#include "mount/handles.h"

#include <stdlib.h>

#include "base/lock.h"

static void close_it(struct reader *reader, struct shelf_dir *dir)
{
    if (reader)
        reader_close(reader);
    if (dir)
        shelf_closedir(dir);
}

bool handles_edit(struct handles *l)
{
    LOCKED(&l->lock);
    l->edits += !l->closed;
    return !l->closed;
}

void handles_edited(struct handles *l)
{
    LOCKED(&l->lock);
    l->edits--;
}

bool handles_no_edits(struct handles *l)
{
    LOCKED(&l->lock);
    l->closed |= l->edits == 0;
    return l->closed;
}

struct handle *handle_open(struct handles *l, struct reader *reader, struct shelf_dir *dir,
                           bool writes)
{
    struct handle *h = malloc(sizeof(*h));
    if (!h) {
        close_it(reader, dir);
        if (writes)
            handles_edited(l);
        return NULL;
    }
    lock_take(&l->lock);
    *h = (struct handle){.reader = reader, .dir = dir, .writes = writes, .next = l->first};
    if (l->first)
        l->first->prev = h;
    l->first = h;
    l->changes++;
    lock_drop(&l->lock);
    return h;
}

void handle_close(struct handles *l, struct handle *h)
{
    lock_take(&l->lock);
    if (h->prev)
        h->prev->next = h->next;
    else
        l->first = h->next;
    if (h->next)
        h->next->prev = h->prev;
    l->changes++;
    lock_drop(&l->lock);
    close_it(h->reader, h->dir);
    if (h->writes)
        handles_edited(l);
    free(h);
}

bool handles_idle(struct handles *l, unsigned long *seen)
{
    lock_take(&l->lock);
    bool idle = !l->first && l->changes == *seen;
    *seen = l->changes;
    lock_drop(&l->lock);
    return idle;
}

void handles_end(struct handles *l)
{
    while (l->first)
        handle_close(l, l->first);
}
