/* SPDX-License-Identifier: MIT */
/*
 * Drafts: the texts of files that are open for writing. See keys.h for what they are, write.c for
 * the calls that write.
 *
 * A draft becomes the key's value at each flush or fsync after something was written. One that was
 * only truncated is no edit before its last writer is gone: shells close the truncated file once
 * before they write. It is shown from when it is written or truncated until it is accepted or
 * refused; from then on the file shows what is stored, and the draft is what its writers go on with.
 */
#include "live/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <syslog.h>

#include "gguf/keys.h"

static bool only_truncated(const struct draft *d)
{
    return d->whole && !d->written && d->refused == 0;
}

/* It holds what the key does not, and may become its value. */
static bool is_pending(const struct draft *d)
{
    return d->refused == 0 && !d->unfinished && (d->dirty || only_truncated(d));
}

/* All that was written is the key's value, or was. */
static bool is_accepted(const struct draft *d)
{
    return d->refused == 0 && d->written && !d->dirty;
}

bool kfile_is_helper(const struct kfile *f)
{
    return f->state == KFILE_HELPER || f->state == KFILE_ASIDE || f->state == KFILE_DEAD;
}

struct buf *kfile_bytes(struct kfile *f)
{
    if (f->draft && (kfile_is_helper(f) || is_pending(f->draft)))
        return &f->draft->text;
    return f->state >= KFILE_HELPER ? &f->content : NULL;
}

/* ---- begin ---- */

/* The key's value as text; nothing if it has none. */
static int stored_text(const struct live *l, const struct kfile *f, struct buf *out)
{
    CLEANUP(shown_free) struct shown s = edits_shown(l, f->id);
    shown_text(&s, out);
    int r = buf_error(out);
    if (r < 0)
        buf_free(out);
    return r;
}

/* A key that was made anew begins empty, though its old value is still in the generation. */
static int first_text(struct live *l, struct kfile *f, bool truncate, const struct err *unready,
                      struct buf *out)
{
    if (kfile_is_helper(f)) {
        *out = f->content;
        f->content = BUF_INIT;
        return 0;
    }
    if (unready->code)
        return edits_refused(l, f, unready);
    return truncate || f->state != KFILE_KEY ? 0 : stored_text(l, f, out);
}

static int begin(struct live *l, struct kfile *f, bool truncate, const struct err *unready)
{
    struct draft *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    int r = first_text(l, f, truncate, unready, &d->text);
    if (r < 0) {
        draft_free(d);
        return r;
    }
    d->whole = d->text.len == 0;
    d->was = KV_NONE;
    if (!kfile_is_helper(f))
        d->before = edits_shown(l, f->id);
    draft_give(d, f);
    return 0;
}

/* Begin anew from what is stored. */
static int restart(const struct live *l, struct draft *d, bool truncate)
{
    struct buf text = BUF_INIT;
    int r = truncate ? 0 : stored_text(l, d->of, &text);
    if (r < 0)
        return r;
    buf_free(&d->text);
    shown_free(&d->before);
    *d = (struct draft){.text = text,
                        .of = d->of,
                        .writers = d->writers,
                        .whole = text.len == 0,
                        .was = d->was,
                        .before = edits_shown(l, d->of->id)};
    return 0;
}

/*
 * Whoever opens a file begins with what it shows: not with the draft that was accepted, or refused
 * by a close, whose last release the kernel has perhaps not told yet.
 */
static bool is_over(const struct draft *d)
{
    return d->refused || d->unfinished ? d->closed : is_accepted(d);
}

int draft_join(struct live *l, struct live_file *file, struct kfile *f, bool truncate,
               const struct err *unready)
{
    int r = 0;
    if (!f->draft)
        r = begin(l, f, truncate, unready);
    else if (!kfile_is_helper(f) && is_over(f->draft))
        r = restart(l, f->draft, truncate);
    if (r < 0)
        return r;
    if (truncate)
        draft_truncate(l, f->draft);
    f->draft->writers++;
    file->draft = f->draft;
    return 0;
}

int draft_reach(const struct live *l, struct draft *d, uint64_t off)
{
    bool key = d->of && !kfile_is_helper(d->of);
    return key && is_accepted(d) && off > d->text.len ? restart(l, d, false) : 0;
}

void draft_truncate(struct live *l, struct draft *d)
{
    if (d->of && kfile_is_helper(d->of))
        l->keys.helper_bytes -= d->text.len;
    d->text.len = 0;
    d->whole = true;
    d->written = false;
    d->dirty = false;
    d->unfinished = false;
    d->refused = 0;
}

/* ---- whose it is ---- */

struct draft *draft_take(struct kfile *f)
{
    struct draft *d = f->draft;
    f->draft = NULL;
    return d;
}

void draft_drop(struct kfile *f)
{
    struct draft *d = draft_take(f);
    if (d)
        d->of = NULL;
}

void draft_give(struct draft *d, struct kfile *f)
{
    draft_drop(f);
    f->draft = d;
    if (d)
        d->of = f;
}

/* ---- from draft to value ---- */

void draft_no_value(struct live *l, struct kfile *f)
{
    if (f->state == KFILE_NEW)
        kfile_set_state(&l->keys, f, edits_stored(l, f) ? KFILE_KEY : KFILE_GONE);
}

/*
 * A program that wrote half of a text and forked has had that half accepted: fork(2) and exec(2)
 * close too. Now that the rest is refused, the value from before the draft comes back.
 */
static void restore(struct live *l, struct draft *d)
{
    struct err e = {0};
    struct kfile *f = d->of;
    d->accepted = false;
    int r = edits_restore(l, f, &d->before, &e);
    if (r < 0)
        live_log(l, LOG_ERR, "%s: cannot be put back: %s", f->key, e.msg);
    if (r > 0)
        (void)writer_accepted(l, NULL);
}

int draft_refuse(struct live *l, struct draft *d, const struct err *e)
{
    if (d->accepted)
        restore(l, d);
    d->refused = edits_refused(l, d->of, e);
    return d->refused;
}

/* A close may come from a fork of another thread, while the text is half written: what may still
 * become a value is refused to that close only, and dropped by the last one. */
int draft_settle(struct live *l, struct draft *d, bool again)
{
    struct kfile *f = d->of;
    struct err e = {0};
    if (!f || kfile_is_helper(f))
        return 0;
    if (again && is_accepted(d) && d->losses != l->writer.losses)
        d->dirty = true;
    if (!d->dirty || d->refused)
        return d->refused;
    if (d->unfinished) /* nothing was written since */
        return -EINVAL;
    int r = edits_accept(l, f, &d->text, &e);
    d->unfinished = r == -EINVAL && draft_may_go_on(l, f);
    if (d->unfinished && d->accepted)
        restore(l, d);
    if (d->unfinished)
        return edits_refused(l, f, &e);
    if (r < 0)
        return draft_refuse(l, d, &e);
    d->dirty = false;
    d->accepted |= r > 0;
    d->typed.set = false; /* the key has the type now */
    d->losses = l->writer.losses;
    return r;
}

/* What a mere truncation makes: the empty string or array. */
static void settle_truncation(struct live *l, struct kfile *f)
{
    struct err e = {0};
    struct typed type = edits_known_type(l, f);
    const struct key_row *row = key_find(f->key, f->key_len);
    if (!type.set)
        type.type = row ? row->type : GGUF_STRING;
    if (type.type != GGUF_STRING && type.type != GGUF_ARRAY)
        return;
    int r = edits_accept(l, f, &f->draft->text, &e);
    if (r < 0)
        l->writer.failed = edits_refused(l, f, &e); /* a release reports to nobody */
    else if (r > 0)
        (void)writer_accepted(l, NULL);
}

/* ---- end ---- */

/*
 * The last writer is gone. A key that got no value is what it was before. At the end of the tree a
 * release is the daemon's own, not the program's: what no flush or fsync has judged is dropped.
 */
static void end_key(struct live *l, struct kfile *f)
{
    struct draft *d = f->draft;
    if (!l->ending && d->dirty && draft_settle(l, d, false) > 0) /* the process was killed */
        (void)writer_accepted(l, NULL);
    else if (!l->ending && only_truncated(d))
        settle_truncation(l, f);
    f->draft = NULL;
    draft_no_value(l, f);
}

static void end_helper(struct live *l, struct kfile *f)
{
    f->content = f->draft->text;
    f->draft->text = BUF_INIT;
    f->draft = NULL;
    keys_reap(&l->keys, f);
}

void draft_leave(struct live *l, struct draft *d)
{
    if (--d->writers > 0)
        return;
    if (d->of && kfile_is_helper(d->of))
        end_helper(l, d->of);
    else if (d->of)
        end_key(l, d->of);
    draft_free(d);
}
