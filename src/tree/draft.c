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
#include "tree/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "gguf/keys.h"

static bool only_truncated(const struct draft *d)
{
    return d->whole && !d->written && d->refused == 0;
}

/* It holds what the key does not, and may become its value. */
static bool is_pending(const struct draft *d)
{
    return d->refused == 0 && (d->dirty || only_truncated(d));
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
static int stored_text(const struct tree *t, const struct kfile *f, struct buf *out)
{
    uint32_t kv = t->keys.kv[f->id];
    if (kv != KV_NONE)
        key_text(t->now.gen, kv, out);
    int r = buf_error(out);
    if (r < 0)
        buf_free(out);
    return r;
}

/* A key that was made anew begins empty, though its old value is still in the generation. */
static int first_text(struct tree *t, struct kfile *f, bool truncate, struct buf *out)
{
    struct err e = {0};
    if (kfile_is_helper(f)) {
        *out = f->content;
        f->content = BUF_INIT;
        return 0;
    }
    if (writer_ready(t, &e) < 0)
        return edits_refused(t, f, &e);
    return truncate || f->state != KFILE_KEY ? 0 : stored_text(t, f, out);
}

static int begin(struct tree *t, struct kfile *f, bool truncate)
{
    struct draft *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    int r = first_text(t, f, truncate, &d->text);
    if (r < 0) {
        draft_free(d);
        return r;
    }
    d->whole = d->text.len == 0;
    d->was = KV_NONE;
    draft_give(d, f);
    return 0;
}

/* Begin anew from what is stored. */
static int restart(const struct tree *t, struct draft *d, bool truncate)
{
    struct buf text = BUF_INIT;
    int r = truncate ? 0 : stored_text(t, d->of, &text);
    if (r < 0)
        return r;
    buf_free(&d->text);
    *d = (struct draft){.text = text,
                        .of = d->of,
                        .writers = d->writers,
                        .whole = text.len == 0,
                        .was = d->was,
                        .in_flight = d->in_flight};
    return 0;
}

/*
 * Whoever opens a file begins with what it shows: not with the draft that was accepted, or refused
 * by a close, whose last release the kernel has perhaps not told yet.
 */
static bool is_over(const struct draft *d)
{
    return d->refused ? d->closed : is_accepted(d);
}

int draft_join(struct tree *t, struct tree_file *file, struct kfile *f, bool truncate)
{
    int r = 0;
    if (!f->draft)
        r = begin(t, f, truncate);
    else if (!kfile_is_helper(f) && is_over(f->draft))
        r = restart(t, f->draft, truncate);
    if (r < 0)
        return r;
    if (truncate)
        draft_truncate(t, f->draft);
    f->draft->writers++;
    file->draft = f->draft;
    return 0;
}

int draft_reach(const struct tree *t, struct draft *d, uint64_t off)
{
    bool key = d->of && !kfile_is_helper(d->of);
    return key && is_accepted(d) && off > d->text.len ? restart(t, d, false) : 0;
}

void draft_truncate(struct tree *t, struct draft *d)
{
    if (d->of && kfile_is_helper(d->of))
        t->keys.helper_bytes -= d->text.len;
    d->text.len = 0;
    d->whole = true;
    d->written = false;
    d->dirty = false;
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

int draft_settle(struct tree *t, struct draft *d, bool again)
{
    struct kfile *f = d->of;
    struct err e = {0};
    if (!f || kfile_is_helper(f))
        return 0;
    if (again && is_accepted(d) && d->losses != t->writer.losses)
        d->dirty = true;
    if (!d->dirty || d->refused)
        return d->refused;
    int r = edits_accept(t, f, &d->text, &e);
    if (r < 0)
        return d->refused = edits_refused(t, f, &e);
    d->dirty = false;
    d->typed = false; /* the key has the type now */
    d->losses = t->writer.losses;
    return r;
}

/* What a mere truncation makes: the empty string or array. */
static void settle_truncation(struct tree *t, struct kfile *f)
{
    struct err e = {0};
    uint32_t type = GGUF_STRING, elem = 0;
    const struct key_row *row = key_find(f->key, f->key_len);
    if (!edits_known_type(t, f, &type, &elem) && row)
        type = row->type;
    if (type != GGUF_STRING && type != GGUF_ARRAY)
        return;
    int r = edits_accept(t, f, &f->draft->text, &e);
    if (r < 0)
        t->writer.failed = edits_refused(t, f, &e); /* a release tells nobody */
    else if (r > 0)
        writer_later(t, WRITER_SOON);
}

/* ---- end ---- */

/* The last writer is gone. A key that got no value is what it was before. */
static void end_key(struct tree *t, struct kfile *f)
{
    struct draft *d = f->draft;
    if (d->dirty && draft_settle(t, d, false) > 0) /* no flush came: the process was killed */
        writer_later(t, 0);
    else if (only_truncated(d))
        settle_truncation(t, f);
    f->draft = NULL;
    kfile_no_value(&t->keys, f);
}

static void end_helper(struct tree *t, struct kfile *f)
{
    f->content = f->draft->text;
    f->draft->text = BUF_INIT;
    f->draft = NULL;
    keys_reap(&t->keys, f);
}

void draft_leave(struct tree *t, struct draft *d)
{
    if (--d->writers > 0)
        return;
    if (d->of && kfile_is_helper(d->of))
        end_helper(t, d->of);
    else if (d->of)
        end_key(t, d->of);
    draft_free(d);
}

void draft_finish(struct tree *t)
{
    for (uint32_t i = 0; i < t->keys.n; i++) {
        struct kfile *f = t->keys.file[i];
        if (f && f->key && f->draft && f->draft->closed && only_truncated(f->draft))
            settle_truncation(t, f);
    }
}
