/* SPDX-License-Identifier: MIT */
/* Renames whose edit is not on disk: see internal.h. */
#include "live/internal.h"

#include <assert.h>
#include <errno.h>

int moves_room(struct keys *k)
{
    return array_grow(&k->moved, &k->cap_moved, k->n_moved, sizeof(*k->moved));
}

void moves_add(struct keys *k, struct kfile *from, struct kfile *to)
{
    assert(k->n_moved < k->cap_moved);
    from->pins++;
    to->pins++;
    k->moved[k->n_moved++] = (struct moved){STAGE_NEW, from, to};
}

void moves_stage(struct keys *k, enum stage from, enum stage to)
{
    for (size_t i = 0; i < k->n_moved; i++)
        if (k->moved[i].stage == from)
            k->moved[i].stage = to;
}

/* The draft of `to` goes back to the file that it came from, if that can be seen again. */
static void go_back(struct live *l, struct kfile *to)
{
    struct keys *k = &l->keys;
    struct draft *d = to->draft;
    struct kfile *was = d && d->was != KV_NONE ? k->file[d->was] : NULL;
    if (d)
        d->was = KV_NONE;
    if (!was || was == to || !keys_visible(k, was->id))
        return;
    to->draft = NULL;
    draft_no_value(l, to);
    if (was->draft)
        was->draft->of = NULL;
    if (was->state == KFILE_HELPER)
        k->helper_bytes += d->text.len - was->content.len;
    buf_free(&was->content);
    was->draft = d;
    d->of = was;
}

static void land(struct live *l, const struct moved *m, bool written)
{
    if (m->from->state == KFILE_ASIDE && written)
        keys_kill(&l->keys, m->from);
    else if (m->from->state == KFILE_ASIDE)
        kfile_set_state(&l->keys, m->from, KFILE_HELPER);
    if (!written)
        go_back(l, m->to);
    else if (m->to->draft)
        m->to->draft->was = KV_NONE;
    m->from->pins--;
    m->to->pins--;
    keys_reap(&l->keys, m->from);
    keys_reap(&l->keys, m->to);
}

void moves_land(struct live *l, enum stage stage, bool written)
{
    struct keys *k = &l->keys;
    size_t kept = 0;
    for (size_t i = 0; i < k->n_moved; i++) {
        if (k->moved[i].stage == stage)
            land(l, &k->moved[i], written);
        else
            k->moved[kept++] = k->moved[i];
    }
    k->n_moved = kept;
}
