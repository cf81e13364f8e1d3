/* SPDX-License-Identifier: MIT */
/* Mappings and copies of changed tensors, made without the lock: see preview_copy.h. */
#include "live/preview_copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/bytes.h"

/* Bytes that are copied at a time. */
#define COPY_ROOM ((size_t)1 << 20)

void preview_copies_free(struct preview_copies *c)
{
    for (size_t i = 0; i < c->n; i++) {
        edit_content_unref(c->of[i].content);
        mapped_unref(c->of[i].below.m);
        mapped_unref(c->of[i].bytes.m);
    }
    free(c->of);
    index_free(&c->find);
    *c = (struct preview_copies){0};
}

/* ---- one copy, without the lock ---- */

static int copy_base(const struct preview_copy *c, int fd, uint8_t *room)
{
    const struct sys *sys = c->below.f->sys;
    int r = 0;
    for (uint64_t at = 0, n = c->content->nbytes; at < n && r == 0; at += COPY_ROOM) {
        size_t k = (size_t)min_u64(COPY_ROOM, n - at);
        r = mapped_copy(c->below.m, c->below.off + at, room, k);
        if (r == 0)
            r = sys_write_all(sys, fd, room, k, at);
    }
    return r;
}

static int copy_pieces(const struct preview_copy *c, int fd, uint8_t *room)
{
    int r = 0;
    for (size_t i = 0; i < c->content->n && r == 0; i++) {
        const struct edit_piece *p = &c->content->piece[i];
        for (uint64_t at = 0; at < p->len && r == 0; at += COPY_ROOM) {
            size_t n = (size_t)min_u64(COPY_ROOM, p->len - at);
            r = preview_read(c->below.f, p->draft, p->src + at, room, n);
            if (r == 0)
                r = sys_write_all(c->below.f->sys, fd, room, n, p->at + at);
        }
    }
    return r;
}

static int copy(struct preview_copy *c, struct err *e)
{
    int fd = edit_draft_open(c->below.f, e);
    if (fd < 0)
        return fd;
    uint8_t *room = malloc(COPY_ROOM);
    int r = room ? 0 : -ENOMEM;
    if (r == 0 && c->below.m)
        r = copy_base(c, fd, room);
    if (r == 0)
        r = copy_pieces(c, fd, room);
    free(room);
    if (r < 0)
        (void)err_set(e, r, "cannot keep changed bytes: %s", strerror(-r));
    else
        r = mapped_open(fd, c->content->nbytes, &c->bytes.m, e);
    if (r < 0)
        sys_close(c->below.f->sys, &fd);
    return r;
}

static int make(struct preview_copy *c, struct err *e)
{
    int r = preview_bytes_map(c->content, &c->below, &c->bytes, e);
    return r == 1 ? copy(c, e) : r;
}

static uint64_t hash_content(const struct edit_content *k)
{
    return hash_name((const void *)&k, sizeof(k));
}

/* All that are not made yet. */
static int copy_all(struct preview_copies *c, struct err *e)
{
    index_free(&c->find);
    int r = index_init(&c->find, c->n);
    if (r < 0)
        return err_set(e, r, "no memory");
    for (size_t i = 0; i < c->n && r == 0; i++) {
        r = c->of[i].bytes.m ? 0 : make(&c->of[i], e);
        index_insert(&c->find, hash_content(c->of[i].content), (uint32_t)i);
    }
    return r;
}

/* Behind those that were made already, which may be needed as well. They pass. */
static int append(struct preview_copies *c, struct preview_copies *more)
{
    int r = array_grow(&c->of, &c->cap, c->n + more->n, sizeof(*c->of));
    if (r < 0)
        return r;
    memcpy(c->of + c->n, more->of, more->n * sizeof(*c->of));
    c->n += more->n;
    more->n = 0;
    preview_copies_free(more);
    return 0;
}

/* ---- with it ---- */

/* True: there they are. */
static bool find(const struct preview_copies *c, const struct edit_content *k,
                 const struct below *b, struct shown_bytes *ret)
{
    uint32_t i;
    if (c->n == 0)
        return false;
    for (struct probe p = index_probe(&c->find, hash_content(k)); index_next(&c->find, &p, &i);)
        if (c->of[i].content == k && c->of[i].below.m == b->m && c->of[i].below.off == b->off) {
            *ret = c->of[i].bytes;
            (void)mapped_ref(ret->m);
            return true;
        }
    return false;
}

/* To be made. */
static int note(struct preview_copies *c, struct edit_content *k, const struct below *b,
                struct err *e)
{
    if (array_grow(&c->of, &c->cap, c->n + 1, sizeof(*c->of)) < 0)
        return err_set(e, -ENOMEM, "no memory");
    if (b->m)
        (void)mapped_ref(b->m);
    c->of[c->n++] = (struct preview_copy){edit_content_ref(k), *b, {0}};
    return -EAGAIN;
}

int preview_map(struct live *l, struct edit_content *k, const struct below *below,
                struct shown_bytes *ret, struct err *e)
{
    struct below b = *below;
    assert(lock_held(&l->lock));
    if (k->n == 0) { /* another shape for the bytes that there are */
        *ret = (struct shown_bytes){mapped_ref(b.m), b.off, true};
        return 0;
    }
    if (edit_content_covers(k)) {
        b.m = NULL;
        b.off = 0;
    }
    if (preview_bytes_at_hand(k, &b)) {
        int r = preview_bytes_map(k, &b, ret, e);
        if (r <= 0)
            return r;
    }
    return find(&l->copies, k, &b, ret) ? 0 : note(&l->missing, k, &b, e);
}

void preview_copies_begin(struct live *l)
{
    assert(lock_held(&l->lock));
    preview_copies_free(&l->missing);
}

bool preview_again(struct live *l, int *r, struct err *e)
{
    assert(lock_held(&l->lock));
    if (*r != -EAGAIN || l->missing.n == 0) {
        preview_copies_free(&l->copies);
        return false;
    }
    *r = 0;
    if (l->copying) { /* another request makes some, maybe the same */
        while (l->copying)
            lock_wait(&l->lock, &l->made, NULL);
        return true;
    }
    *r = append(&l->copies, &l->missing);
    if (*r < 0) {
        (void)err_set(e, *r, "no memory");
        return false;
    }
    struct preview_copies now = l->copies;
    l->copies = (struct preview_copies){0};
    l->copying = true;
    lock_drop(&l->lock);
    *r = copy_all(&now, e);
    if (*r < 0)
        preview_copies_free(&now);
    lock_take(&l->lock);
    l->copies = now;
    l->copying = false;
    cond_broadcast(&l->made);
    return *r == 0;
}
