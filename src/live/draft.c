/* SPDX-License-Identifier: MIT */
/* Drafts: see draft.h. */
#include "live/draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* An event that cannot come in this state. */
#define NEVER DRAFT_STATES

// clang-format off
static const enum draft_state draft_table[DRAFT_STATES][DRAFT_EVENTS] = {
    /*                  WRITE          EMPTY          PASSED          TOO_SHORT    FAILED         REOPENED */
    [DRAFT_CLEAN]    = {DRAFT_DIRTY,   DRAFT_EMPTIED, NEVER,          NEVER,       NEVER,         DRAFT_CLEAN},
    [DRAFT_EMPTIED]  = {DRAFT_DIRTY,   DRAFT_EMPTIED, DRAFT_EMPTIED,  NEVER,       DRAFT_EMPTIED, DRAFT_EMPTIED},
    [DRAFT_DIRTY]    = {DRAFT_DIRTY,   DRAFT_EMPTIED, DRAFT_ACCEPTED, DRAFT_SHORT, DRAFT_REFUSED, DRAFT_DIRTY},
    [DRAFT_SHORT]    = {DRAFT_DIRTY,   DRAFT_EMPTIED, NEVER,          NEVER,       NEVER,         DRAFT_CLEAN},
    [DRAFT_ACCEPTED] = {DRAFT_DIRTY,   DRAFT_EMPTIED, NEVER,          NEVER,       NEVER,         DRAFT_CLEAN},
    [DRAFT_REFUSED]  = {DRAFT_REFUSED, DRAFT_EMPTIED, NEVER,          NEVER,       DRAFT_REFUSED, DRAFT_CLEAN},
};
// clang-format on

void draft_event(struct draft *d, enum draft_event event)
{
    enum draft_state to = draft_table[d->state][event];
    assert(to != NEVER);
    d->state = to;
}

bool draft_is_shown(const struct draft *d)
{
    return d->state == DRAFT_EMPTIED || d->state == DRAFT_DIRTY;
}

bool draft_is_unjudged(const struct draft *d)
{
    return d->state == DRAFT_DIRTY || d->state == DRAFT_SHORT || d->state == DRAFT_REFUSED;
}

static bool is_accepted(const struct draft *d)
{
    return d->state == DRAFT_ACCEPTED;
}

struct buf *file_bytes(struct file *f)
{
    bool in_memory = f->kind != FILE_KEY || (!f->name && f->draft);
    if (f->draft && (in_memory || draft_is_shown(f->draft)))
        return &f->draft->text;
    return in_memory ? &f->content : NULL;
}

void draft_free(struct draft *d)
{
    if (!d)
        return;
    buf_free(&d->text);
    shown_free(&d->before);
    free(d);
}

void file_set_kind(struct live *l, struct file *f, enum file_kind kind)
{
    size_t n = f->draft ? f->draft->text.len : 0;
    if (f->kind == FILE_HELPER && kind == FILE_KEY)
        l->names.helper_bytes -= n;
    if (f->kind == FILE_KEY && kind == FILE_HELPER)
        l->names.helper_bytes += n;
    f->kind = kind;
}

static const struct judge *judge_of(const struct live *l, const struct file *f)
{
    return l->judge[f->kind == FILE_HELPER ? JUDGE_HELPER : f->name ? JUDGE_KEY : JUDGE_ORPHAN];
}

/* ---- content ---- */

/* Make the content `len` bytes long; what is new is zero. All helpers together are counted. */
static int set_length(struct live *l, const struct file *f, uint64_t len)
{
    struct buf *b = &f->draft->text;
    size_t was = b->len;
    if (len > was)
        buf_zero(b, (size_t)len - was);
    else
        b->len = (size_t)len;
    if (f->kind == FILE_HELPER)
        l->names.helper_bytes += b->len - was;
    int r = buf_error(b);
    b->err = 0;
    return r;
}

static void empty(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    (void)set_length(l, f, 0);
    d->whole = true;
    d->refused = 0;
    draft_event(d, DRAFT_EMPTY);
}

/* ---- begin ---- */

static int begin(struct live *l, struct file *f, bool truncate, bool made,
                 const struct err *unready)
{
    const struct judge *judge = judge_of(l, f);
    if (judge->refuse && unready->code)
        return judge->refuse(l, f->name, NULL, unready);
    struct draft *d = calloc(1, sizeof(*d));
    int r = !d ? -ENOMEM : judge->fill ? judge->fill(l, f, truncate || made, d) : 0;
    if (r < 0) {
        draft_free(d);
        return r;
    }
    d->whole = d->text.len == 0;
    d->anew = made;
    if (made)
        draft_event(d, DRAFT_EMPTY);
    f->draft = d;
    f->drafts++;
    return 0;
}

/* Begin anew from what is stored. */
static int restart(struct live *l, struct file *f, bool truncate)
{
    struct draft *d = f->draft, now = {.writers = d->writers, .state = d->state};
    int r = judge_of(l, f)->fill(l, f, truncate, &now);
    if (r < 0) {
        buf_free(&now.text);
        shown_free(&now.before);
        return r;
    }
    buf_free(&d->text);
    shown_free(&d->before);
    now.whole = now.text.len == 0;
    *d = now;
    draft_event(d, DRAFT_REOPENED);
    return 0;
}

/*
 * A program that opens a file begins with what it shows: not with the draft that was accepted, or
 * refused by a close, whose last release the kernel has perhaps not reported yet.
 */
static bool is_over(const struct draft *d)
{
    bool refused = d->state == DRAFT_REFUSED || d->state == DRAFT_SHORT;
    return refused ? d->closed : is_accepted(d);
}

int draft_join(struct live *l, struct file *f, bool truncate, bool made, const struct err *unready)
{
    assert(lock_held(&l->lock));
    int r = 0;
    if (!f->draft)
        r = begin(l, f, truncate, made, unready);
    else if (judge_of(l, f)->accept && is_over(f->draft))
        r = restart(l, f, truncate);
    if (r < 0)
        return r;
    if (truncate)
        empty(l, f);
    f->draft->writers++;
    return 0;
}

/* Before a draft is written at `off`, or made `off` bytes long: a program that goes beyond the end
 * of what was accepted has seen the stored text, and means that. */
static int reach(struct live *l, struct file *f, uint64_t off)
{
    bool beyond = is_accepted(f->draft) && off > f->draft->text.len;
    return beyond && judge_of(l, f)->accept ? restart(l, f, false) : 0;
}

/* ---- write ---- */

static int refuse(struct live *l, struct file *f, const struct err *e)
{
    const struct judge *judge = judge_of(l, f);
    if (!judge->refuse)
        return e->code;
    draft_event(f->draft, DRAFT_FAILED);
    f->draft->refused = judge->refuse(l, f->name, f->draft, e);
    return f->draft->refused;
}

/* A text that is written in part is not a value: any failure refuses the whole draft. */
int draft_write(struct live *l, struct file *f, bool append, uint64_t off, const void *bytes,
                size_t n)
{
    struct draft *d = f->draft;
    const struct judge *judge = judge_of(l, f);
    struct err e = {0};
    uint64_t end = UINT64_MAX;
    assert(lock_held(&l->lock));
    d->closed = false;
    if (append)
        off = d->text.len;
    (void)add_u64(off, n, &end);
    int r = reach(l, f, off);
    d->whole &= off <= d->text.len;
    draft_event(d, DRAFT_WRITE);
    if (r == 0)
        r = judge->room(l, f, end);
    if (r == 0 && end > d->text.len)
        r = set_length(l, f, end);
    if (r == 0 && n)
        memcpy(d->text.data + off, bytes, n);
    if (r < 0)
        (void)err_set(&e, r, "cannot be written: %s", strerror(-r));
    else if (judge->written && (d->whole || append)) /* an append keeps the rest */
        r = judge->written(l, f->name, d, d->text.len == n, &e);
    return r < 0 ? refuse(l, f, &e) : 0;
}

int draft_truncate(struct live *l, struct file *f, uint64_t size)
{
    struct draft *d = f->draft;
    assert(lock_held(&l->lock));
    int r = judge_of(l, f)->room(l, f, size);
    if (r == 0)
        r = reach(l, f, size);
    if (r == 0 && size == 0)
        empty(l, f);
    if (r < 0 || size == 0)
        return r;
    size_t was = d->text.len;
    r = set_length(l, f, size);
    if (r == 0 && size != was)
        draft_event(d, DRAFT_WRITE);
    d->whole &= size <= was;
    return r;
}

/* ---- from draft to value ---- */

/* A close may come from a fork of another thread, while the text is half written: what may still
 * become a value is refused to that close only, and dropped by the last one. */
static int judge_now(struct live *l, struct file *f)
{
    const struct judge *judge = judge_of(l, f);
    struct draft *d = f->draft;
    struct err e = {0};
    int r = judge->accept(l, f->name, &d->text, &e);
    if (r == -EINVAL && judge->may_go_on(l, f->name, &d->text)) {
        draft_event(d, DRAFT_TOO_SHORT);
        return judge->refuse(l, f->name, d, &e);
    }
    if (r < 0)
        return refuse(l, f, &e);
    draft_event(d, DRAFT_PASSED);
    d->accepted |= r > 0;
    d->anew = false;
    d->typed.set = false; /* the key has the type now */
    promise_make(&f->promise, f->name->edit);
    return r;
}

int draft_settle(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    assert(lock_held(&l->lock));
    if (!judge_of(l, f)->accept)
        return 0;
    if (d->state == DRAFT_SHORT) /* nothing was written since */
        return -EINVAL;
    return d->state == DRAFT_DIRTY ? judge_now(l, f) : d->refused;
}

/* ---- end, and from file to file ---- */

void draft_leave(struct live *l, struct file *f)
{
    assert(lock_held(&l->lock));
    struct draft *d = f->draft;
    if (--d->writers > 0)
        return;
    if (judge_of(l, f)->end)
        judge_of(l, f)->end(l, f);
    f->draft = NULL;
    draft_free(d);
}

void draft_to_key(struct draft *d, struct shown *before, bool emptied)
{
    shown_free(&d->before);
    d->before = *before;
    *before = SHOWN_NONE;
    d->accepted = false;
    d->refused = 0;
    draft_event(d, DRAFT_EMPTY);
    if (emptied)
        return;
    d->anew = false;
    draft_event(d, DRAFT_WRITE);
    draft_event(d, DRAFT_PASSED);
}

void draft_to_helper(struct draft *d, struct buf *text)
{
    buf_free(&d->text);
    d->text = *text;
    *text = BUF_INIT;
    d->whole = d->text.len == 0;
    d->typed.set = false;
    d->anew = false;
    d->refused = 0;
    draft_event(d, DRAFT_EMPTY);
}
