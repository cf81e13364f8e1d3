/* SPDX-License-Identifier: MIT */
/* Drafts of texts, and texts as values (value.h). */
#include "live/value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/meta.h"
#include "live/overlay.h"
#include "live/tensors.h"
#include "text/number.h"
#include "text/text.h"

/* ---- stored values ---- */

static uint32_t key_stored(const struct live *l, const struct name *x)
{
    return x->key && !x->gone ? gguf_find_key(l->state->gguf, x->key, x->key_len) : UINT32_MAX;
}

bool value_is_stored(const struct live *l, const struct name *x)
{
    return key_stored(l, x) != UINT32_MAX;
}

struct shown value_stored(const struct live *l, const struct name *x)
{
    assert(lock_held(&l->lock));
    const uint32_t kv = key_stored(l, x);
    return kv == UINT32_MAX ? SHOWN_NONE : (struct shown){REF(l->state), kv};
}

int value_text(struct live *l, const struct name *x, struct buf *out)
{
    CLEANUP(shown_free) struct shown s = value_stored(l, x);
    if (!s.snap)
        return 0;
    lock_drop(&l->lock);
    shown_text(&s, out);
    lock_take(&l->lock);
    return buf_error(out);
}

/* ---- from text to value ---- */

static struct typed type_for(const struct name *x, const struct gguf_value *old,
                             const struct typed *typed, const struct buf *text)
{
    struct typed t = {.set = true};
    if (typed->set)
        return *typed;
    if (old)
        return (struct typed){.set = true, .type = old->type, .elem = old->elem};
    text_new_type(key_find(x->key, x->key_len), text->data, text->len, &t.type, &t.elem);
    return t;
}

/*
 * Parse a text as its type, else as the key's, else as the type that a new key gets. `old` is the
 * stored value. Returns 0 after setting *type and *payload, 1 if the key has this value already, or
 * -errno with the reason. Call without the lock.
 */
static int value_of_text(const struct buf *text, const struct typed *typed, const struct name *x,
                         const struct gguf_format *fmt, const struct shown *old, uint32_t *type,
                         struct buf *payload, struct err *e)
{
    struct gguf_value v;
    const bool known = shown_value(old, &v);
    const struct typed t = type_for(x, known ? &v : NULL, typed, text);
    int r = text_parse(fmt, t.type, t.elem, text->data, text->len, known ? &v : NULL, payload, e);
    if (r < 0)
        return r;
    *type = t.type;
    return shown_is(old, t.type, payload);
}

int value_accept(struct live *l, struct request *q, const struct name *x, struct err *e)
{
    CLEANUP(shown_free) struct shown old = value_stored(l, x);
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    const struct gguf_format fmt = l->state->gguf->fmt;
    uint32_t type = 0;
    lock_drop(&l->lock); /* only this thread changes values */
    int r = value_of_text(&q->text, &q->typed, x, &fmt, &old, &type, &payload, e);
    lock_take(&l->lock);
    if (r > 0)
        return 0;
    if (r == 0)
        r = edit_set(&l->pending, x->key, x->key_len, type, &payload, e);
    return r < 0 ? r : 1;
}

/* ---- drafts ---- */

bool draft_is_shown(const struct file *f)
{
    return f->state == DRAFT_EMPTIED || f->state == DRAFT_WRITTEN;
}

static void enter_draft(struct live *l, struct file *f, enum draft_state state)
{
    f->state = state;
    f->version = ++l->versions;
}

void draft_restart(struct live *l, struct file *f)
{
    enter_draft(l, f, DRAFT_NONE);
    f->broken = false;
    if (!file_key(f))
        return;
    f->typed = (struct typed){0};
    buf_free(&f->text);
}

/* True if what is written or read at `off` needs the stored text of a key: also if it lies past the
 * end of a text that was accepted, since the program has then seen the size of the stored one. */
static bool lacks_text(const struct file *f, uint64_t off)
{
    return file_key(f) && (f->state == DRAFT_NONE ||
                           (off == DRAFT_ANEW ? f->state == DRAFT_REFUSED
                                              : f->state == DRAFT_CLEAN && off > f->text.len));
}

int draft_load(struct live *l, struct file *f, uint64_t off)
{
    int r = 0;
    f->opens++; /* so that it stays, without looking like a request */
    while (r >= 0 && lacks_text(f, off)) {
        CLEANUP(buf_free) struct buf text = BUF_INIT;
        const uint64_t changes = l->changes;
        r = value_text(l, f->name, &text) < 0 ? -ENOMEM : 1;
        if (r < 0 || changes != l->changes || !lacks_text(f, off))
            continue;
        if (f->state == DRAFT_REFUSED)
            draft_restart(l, f);
        buf_free(&f->text);
        f->text = text;
        text = BUF_INIT;
        enter_draft(l, f, DRAFT_CLEAN);
        break;
    }
    f->opens--;
    return r;
}

void draft_pass_on(struct live *l, struct file *f)
{
    const struct typed typed = f->state == DRAFT_CLEAN ? f->typed : (struct typed){0};
    if (!file_key(f) || f->dirty || (f->state != DRAFT_CLEAN && f->state != DRAFT_REFUSED))
        return;
    draft_restart(l, f);
    f->typed = typed; /* that of KEY:TYPE, which was opened since */
}

int draft_open(struct live *l, struct file *f, const struct err *unready)
{
    struct name *x = file_key(f);
    if (x && (l->stop || unready->code))
        return l->stop ? -EROFS : name_refused(l, x, unready);
    draft_pass_on(l, f);
    return 0;
}

/* Set the length of the text, extending it with zeros. */
static int set_length(struct file *f, uint64_t len)
{
    const size_t was = f->text.len;
    if (len > TEXT_MAX)
        return -EFBIG;
    if (len > was)
        buf_zero(&f->text, (size_t)len - was);
    else
        f->text.len = (size_t)len;
    const int r = buf_error(&f->text);
    f->text.err = 0;
    return r;
}

static void mark_dirty(struct live_file *h)
{
    h->file->dirty += !h->dirty;
    h->file->wrote += !h->wrote;
    h->dirty = h->wrote = true;
}

static int text_resize(struct live *l, struct file *f, uint64_t size)
{
    const size_t was = f->text.len;
    const int r = set_length(f, size);
    if (r < 0 || (size == was && size > 0))
        return r;
    enter_draft(l, f, size > 0 ? DRAFT_WRITTEN : DRAFT_EMPTIED);
    f->broken &= size > 0;
    return 0;
}

void draft_empty(struct live *l, struct live_file *h)
{
    (void)text_resize(l, h->file, 0);
    mark_dirty(h);
}

void draft_accepted(struct file *f, uint64_t version, const struct typed *as)
{
    if (f->state == DRAFT_CLEAN && version != f->version) /* its text may be another one */
        f->state = DRAFT_NONE;
    if (version != f->version || f->state == DRAFT_NONE) /* written on since, or closed */
        return;
    f->state = DRAFT_CLEAN;
    if (f->typed.type == as->type && f->typed.elem == as->elem)
        f->typed.set = false; /* the key itself has the type now */
}

/* The draft was refused. Returns the error. */
static int draft_refused(struct live *l, struct file *f, struct name *x, const struct err *e)
{
    f->state = DRAFT_REFUSED;
    f->why = e->code;
    return x ? name_refused(l, x, e) : e->code;
}

/* ---- edits of texts ---- */

/* Pin the key whose text a request's file has: its own, or the hidden key whose backup it is. NULL: none. */
static struct name *pin_key(struct request *q)
{
    struct name *x = file_key(q->file);
    q->to = x ? x : q->file->backs;
    if (q->to)
        q->to->pins++;
    return q->to;
}

static int accept_text(struct live *l, struct request *q, struct err *e)
{
    struct name *x = pin_key(q);
    if (!x) /* it was removed meanwhile */
        return 0;
    if (x->gone)
        name_keep(l, x);
    return value_accept(l, q, x, e);
}

static int text_accepted(struct live *l, struct request *q, int r, const struct err *e)
{
    struct file *f = q->file;
    struct name *x = q->to;
    if (r < 0 && !q->done)
        return f->state != DRAFT_NONE && f->version == q->number ? draft_refused(l, f, x, e)
               : x && r != -ENOENT                               ? name_refused(l, x, e)
                                                                 : r;
    draft_accepted(f, q->number, &q->typed);
    if (x && q->changed) { /* else the reason for a refusal stays: an editor may restore the text */
        x->mtime = when_date();
        if (f->state != DRAFT_REFUSED) /* else a later text was refused */
            name_set_error(l, x, NULL);
    }
    return r;
}

/* Judge the draft of a key as it is now. */
static int judge_key(struct live *l, struct file *f, enum when when, struct live_wait *w)
{
    struct err e = {0};
    struct request *q = request_new(l, f);
    int r = -ENOMEM;
    if (q) {
        buf_add(&q->text, f->text.data, f->text.len);
        q->typed = f->typed;
        q->number = f->version;
        q->when = when;
        q->apply = accept_text;
        q->end = text_accepted;
        f->pins++; /* a request that cannot be added ends at once, and the file must outlast it */
        r = queue_add(l, q, w);
        f->pins--;
    }
    return err_sys(&e, r, "cannot be judged") < 0 ? draft_refused(l, f, f->name, &e) : r;
}

/* A truncation without a write makes an empty string or array. */
static bool has_empty_value(const struct live *l, const struct file *f)
{
    CLEANUP(shown_free) struct shown s = value_stored(l, f->name);
    struct gguf_value v;
    const bool known = shown_value(&s, &v);
    const struct typed t = type_for(f->name, known ? &v : NULL, &f->typed, &(struct buf){0});
    return t.type == GGUF_STRING || t.type == GGUF_ARRAY;
}

int draft_judge_rest(struct live *l, struct file *f, struct live_wait *w)
{
    if (!file_key(f))
        return 0;
    if (!l->ending &&
        (f->state == DRAFT_WRITTEN || (f->state == DRAFT_EMPTIED && has_empty_value(l, f))))
        return judge_key(l, f, WHEN_MODE, w);
    if (f->state != DRAFT_CLEAN)
        draft_restart(l, f);
    f->typed.set = false;
    return 0;
}

/* ---- write ---- */

/* Refuse a text while it is written, if nothing that follows could make it a value: a shell's echo
 * hears of an error in write(2), but not in close(2). Drops and retakes the lock. */
static int check_write(struct live *l, struct file *f, struct name *x)
{
    CLEANUP(shown_free) struct shown old = value_stored(l, x);
    CLEANUP(buf_free) struct buf text = BUF_INIT, payload = BUF_INIT;
    const struct typed typed = f->typed;
    const uint64_t version = f->version;
    struct snapshot *g = REF(l->state);
    struct err e = {0};
    struct gguf_value v;
    uint32_t type = 0;
    buf_add(&text, f->text.data, f->text.len);
    x->pins++;
    lock_drop(&l->lock);
    int r = buf_error(&text);
    if (r == 0)
        r = value_of_text(&text, &typed, x, &g->gguf->fmt, &old, &type, &payload, &e);
    if (r == 0)
        r = edit_check_value(g->gguf, x->key, x->key_len, type, payload.data, payload.len, &e);
    else if (r == -EILSEQ && shown_value(&old, &v) && v.type == GGUF_STRING && v.len >= text.len &&
             memcmp(v.data, text.data, text.len) == 0)
        r = 0; /* the stored string may be written back, which is accepted as it is */
    const bool final = r == -EINVAL || r == -ERANGE || r == -EILSEQ;
    snapshot_unref(g);
    lock_take(&l->lock);
    r = final && f->version == version && file_key(f) == x ? draft_refused(l, f, x, &e) : 0;
    x->pins--;
    name_reap(l, x);
    return r;
}

/* Any failure refuses the whole draft, because a partly written text is not a value. */
static int write_locked(struct live *l, struct live_file *h, uint64_t off, const void *bytes,
                        size_t n)
{
    struct err e = {0};
    uint64_t end = UINT64_MAX;
    struct file *f = h->file;
    struct name *x = file_key(f);
    if (x && f->broken)
        return f->why;
    if (h->append)
        off = f->text.len;
    (void)add_u64(off, n, &end);
    mark_dirty(h);
    int r = end > f->text.len ? set_length(f, end) : 0;
    if (r == 0) {
        enter_draft(l, f, DRAFT_WRITTEN);
        if (n)
            memcpy(f->text.data + off, bytes, n);
    }
    if (!x && f->name)
        f->name->mtime = when_date();
    if (!x)
        return r;
    f->broken = r < 0;
    if (err_sys(&e, r, "cannot be written") < 0)
        return draft_refused(l, f, x, &e);
    /* it came as lines in one write, or an append keeps the existing text */
    return (h->append || f->text.len == n) && text_is_whole(f->text.data, f->text.len)
               ? check_write(l, f, x)
               : 0;
}

int live_write(struct live *l, struct live_file *h, uint64_t off, const void *bytes, size_t n)
{
    if (!h->writes)
        return -EBADF;
    LOCKED(&l->lock);
    if (!h->wrote && (h->file->state == DRAFT_REFUSED || !h->file->wrote))
        draft_pass_on(l, h->file);
    const int r = draft_load(l, h->file, h->append ? 0 : off);
    return r < 0 ? r : write_locked(l, h, off, bytes, n);
}

int live_truncate(struct live *l, uint32_t number, struct live_file *h, uint64_t size,
                  struct live_wait *w)
{
    struct err unready = {0};
    int why = 0;
    const bool opened = h && h->writes;
    if (!opened)
        overlay_ready(l, true, &unready);
    LOCKED(&l->lock);
    struct file *f = opened ? h->file : file_numbered(l, number, &why);
    if (!f || (!opened && !f->name))
        return f ? -ESTALE : why;
    int r = opened ? 0 : draft_open(l, f, &unready);
    if (r == 0 && size > 0)
        r = draft_load(l, f, size);
    if (r >= 0)
        r = text_resize(l, f, size);
    if (opened) {
        mark_dirty(h);
    } else {
        if (r == 0 && !f->dirty) /* else those who write it bring it */
            r = draft_judge_rest(l, f, w);
        file_settle(l, f);
    }
    return r;
}

/* ---- close ---- */

int live_flush(struct live *l, struct live_file *h, bool sync, struct live_wait *w)
{
    struct file *f = h->file;
    if (!h->writes && !sync)
        return 0;
    LOCKED(&l->lock);
    const bool key = h->writes && file_key(f);
    const bool judges = key && f->state == DRAFT_WRITTEN &&
                        (sync || h->dirty || !f->dirty); /* else the others may not be done */
    f->dirty -= h->dirty;
    h->dirty = false;
    if (key && h->wrote && f->state == DRAFT_REFUSED)
        return f->why;
    if (judges) /* at the end of the daemon the rest may have been refused */
        return l->ending ? -EROFS : judge_key(l, f, sync ? WHEN_NOW : WHEN_MODE, w);
    return sync ? queue_sync(l, false, w) : 0;
}

int live_fsync(struct live *l, struct live_wait *w)
{
    LOCKED(&l->lock);
    return queue_sync(l, true, w);
}

void live_release(struct live *l, struct live_file *h)
{
    struct file *f = h->file;
    lock_take(&l->lock);
    if (h->writes) {
        f->dirty -= h->dirty;
        f->wrote -= h->wrote;
        if (--f->writers == 0 && !f->made)
            (void)draft_judge_rest(l, f, NULL);
    }
    f->opens--;
    file_settle(l, f);
    lock_drop(&l->lock);
    free(h);
}

/* ---- setxattr ---- */

static int accept_type(struct live *l, struct request *q, struct err *e)
{
    struct gguf_value v;
    struct file *f = q->file;
    struct name *x = pin_key(q);
    if (!x && f->name) {
        f->typed = q->typed;
        return 0;
    }
    CLEANUP(shown_free) struct shown s = x ? value_stored(l, x) : SHOWN_NONE;
    if (!s.snap)
        return err_set(e, -ENOENT, "the key is gone");
    if (shown_value(&s, &v) && v.type == GGUF_ARRAY && v.elem == GGUF_ARRAY)
        return err_set(e, -EOPNOTSUPP, "arrays of arrays cannot be edited");
    return value_text(l, x, &q->text) < 0 ? err_set(e, -ENOMEM, "no memory for the edit")
                                          : value_accept(l, q, x, e);
}

/* True if a type is for the text that comes (cp -a) rather than for the stored value. A text in the
 * queue is judged before the type. */
static bool awaits_text(const struct live *l, const struct file *f)
{
    return !f->pins && (f->writers || f->made) &&
           (draft_is_shown(f) || (f->state == DRAFT_REFUSED && f->dirty) ||
            !value_is_stored(l, f->name));
}

int live_retype(struct live *l, uint32_t number, const void *name, size_t n, struct live_wait *w)
{
    struct typed type = {.set = true};
    int why;
    if (!type_name_get(name, n, &type.type, &type.elem))
        return -EINVAL;
    LOCKED(&l->lock);
    struct file *f = file_numbered(l, number, &why);
    if (!f || !f->name)
        return f ? -ENOENT : why;
    /* A helper: rsync -X. One in the queue may be about to become a key. */
    if (file_key(f) ? awaits_text(l, f) : !f->pins) {
        f->typed = type;
        return 0;
    }
    struct request *q = request_new(l, f);
    if (!q)
        return -ENOMEM;
    if (file_key(f))
        f->typed.set = false; /* that of KEY:TYPE is outdated */
    q->typed = type;
    q->number = UINT64_MAX; /* no draft's */
    q->apply = accept_type;
    q->end = text_accepted;
    return queue_add(l, q, w);
}
