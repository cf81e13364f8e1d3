/* SPDX-License-Identifier: MIT */
/* Keeps drafts in metadata/ (key_draft.h). */
#include "live/key_draft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "base/bytes.h"
#include "gguf/value.h"
#include "live/edits.h"
#include "live/writer.h"
#include "text/number.h"
#include "text/text.h"

bool draft_is_shown(const struct draft *d)
{
    return d->state == DRAFT_EMPTIED || (d->state == DRAFT_WRITTEN && !d->why.code);
}

bool draft_is_unjudged(const struct draft *d)
{
    return draft_is_due(d->state) || d->state == DRAFT_SHORT;
}

struct buf *file_bytes(struct file *f)
{
    bool in_memory = f->kind != FILE_KEY || (!file_name(f) && f->draft);
    if (f->draft && (in_memory || draft_is_shown(f->draft)))
        return &f->draft->text;
    return in_memory ? &f->content : NULL;
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

/* True if the file has a key's text, which will become the key's value; the bytes of a helper or an
 * orphan are not judged. */
static bool is_key(const struct file *f)
{
    return f->kind == FILE_KEY && file_name(f);
}

/* Check that the content may have n bytes. */
static int check_room(const struct live *l, const struct file *f, uint64_t n)
{
    if (f->kind == FILE_HELPER)
        return names_have_room(&l->names, f->draft->text.len, n) ? 0 : -ENOSPC;
    return n > TEXT_MAX ? -EFBIG : 0;
}

/* Get the initial content of a draft, and the value to restore on failure. empty: no content is
 * needed. */
static int fill(struct live *l, struct file *f, bool empty, struct buf *text, struct shown *before)
{
    if (f->kind == FILE_HELPER) {
        *text = f->content;
        f->content = BUF_INIT;
    }
    if (!is_key(f))
        return 0;
    *before = stored_value(l, f->of);
    if (!empty)
        shown_text(before, text);
    return buf_error(text);
}

/* ---- a key's text ---- */

/*
 * True for a text that ends in a newline and can only be followed by blanks or more lines of an
 * array, so that an error in it cannot go away. A text in brackets counts if it ends with a bracket
 * (a JSON string contains no newline). Never true for arrays of arrays.
 */
static bool looks_whole(const struct typed *type, const struct buf *text)
{
    const uint8_t *p = text->data;
    size_t n = text->len;
    if (n == 0 || p[n - 1] != '\n' || type->type == GGUF_STRING ||
        (type->type == GGUF_ARRAY && type->elem == GGUF_ARRAY))
        return false;
    scan_trim(&p, &n);
    return n > 0 && (*p != '[' || p[n - 1] == ']');
}

/* Parse a text; that of the stored value is always accepted. */
static int parse(const struct live *l, const struct name *x, const struct buf *text,
                 const struct typed *type, struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    int r = edits_parse(l, x, text, type, &payload, e);
    if (r != 0)
        return r < 0 ? r : 0;
    return edit_check_value(l->newest->view.snap->gguf, x->key, x->key_len, type->type,
                            payload.data, payload.len, e);
}

/* True if the text shown for the stored value begins with these bytes. That text is always
 * accepted, even if it is not UTF-8. */
static bool begins_stored(const struct live *l, const struct name *x, const struct buf *draft)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(shown_free) struct shown s = stored_value(l, x);
    shown_text(&s, &text);
    return buf_error(&text) ||
           (text.len >= draft->len && memcmp(text.data, draft->data, draft->len) == 0);
}

/*
 * Judge a write with cheap checks, but parse a text that looks complete after a single write: this
 * is the only place where a shell's echo learns of a failure, because shells ignore the result of
 * close(2).
 */
static int key_written(struct live *l, struct name *x, const struct draft *d, bool at_once,
                       struct err *e)
{
    const struct buf *text = &d->text;
    struct typed type = stored_known_type(l, x);
    bool known = type.set;
    if (!known && !at_once) /* the type may still change */
        return 0;
    if (!known)
        type = edits_type(l, x, text);
    bool line = text->len && text->data[text->len - 1] == '\n';
    bool whole = at_once && (looks_whole(&type, text) || (line && type.type == GGUF_STRING));
    if (!known && !whole)
        return 0;
    int r = text_prefix_check(type.type, type.elem, text->data, text->len);
    if (r == 0 && !whole)
        return 0;
    int why = parse(l, x, text, &type, e);
    if (r == 0 && why == -EILSEQ)
        return begins_stored(l, x, text) ? 0 : why;
    if (r == 0) /* no other errors are final */
        return why == -EINVAL || why == -ERANGE ? why : 0;
    return why < 0 ? r : err_sys(e, r, "cannot become a value of its type");
}

/* True if the text ends within a line, so that more may follow. */
static bool key_may_go_on(struct live *l, const struct name *x, const struct buf *text)
{
    struct typed type = stored_known_type(l, x);
    bool open = type.set && text->len && !looks_whole(&type, text);
    return open && text_prefix_check(type.type, type.elem, text->data, text->len) == 0;
}

/*
 * Refuse the draft of a key. If a program wrote half a text and forked, that half was accepted,
 * because fork(2) and exec(2) also close files. Now that the rest is refused, the value from before
 * the draft returns.
 */
static int key_refuse(struct live *l, struct name *x, struct draft *d, const struct err *e)
{
    struct err why = {0};
    int r = d && d->accepted ? edits_restore(l, x, &d->before, &why) : 0;
    if (r < 0)
        live_log(l, LOG_ERR, "%s: cannot be put back: %s", x->key, why.msg);
    if (r > 0)
        (void)writer_accepted(l, NULL);
    if (d)
        d->accepted = false;
    return name_refused(l, x, e);
}

/* Accept a truncation alone, which makes an empty string or array. */
static void accept_truncation(struct live *l, struct file *f)
{
    struct err e = {0};
    struct name *x = f->of;
    struct typed type = stored_known_type(l, x);
    const struct key_row *row = key_find(x->key, x->key_len);
    if (!type.set)
        type.type = row ? row->type : GGUF_STRING;
    if (type.type != GGUF_STRING && type.type != GGUF_ARRAY)
        return;
    int r = edits_accept(l, x, &f->draft->text, &e);
    draft_event(f->draft, r < 0 ? DRAFT_REFUSE : DRAFT_PASS);
    if (r >= 0)
        promise_make(&f->promise, x->edit);
    if (r < 0)
        l->writer.failed = name_refused(l, x, &e); /* a release cannot report errors */
    else if (r > 0)
        (void)writer_accepted(l, NULL);
}

/* End the draft of a key. At the end of the mount, the daemon releases the files, not the program,
 * so a text that no flush or fsync has judged is dropped. */
static void key_end(struct live *l, struct file *f)
{
    if (f->draft->state == DRAFT_EMPTIED)
        accept_truncation(l, f);
    else if (draft_settle(l, f) > 0) /* only if the process was killed */
        (void)writer_accepted(l, NULL);
}

/* ---- content ---- */

/* Make the content `len` bytes long, filling with zeros. A helper's bytes count towards the limit
 * for all helpers. */
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
    d->why = (struct err){0};
    draft_event(d, DRAFT_EMPTY);
}

/* ---- begin ---- */

static int begin(struct live *l, struct file *f, bool truncate, bool made,
                 const struct err *unready)
{
    if (is_key(f) && unready->code)
        return key_refuse(l, f->of, NULL, unready);
    struct draft *d = draft_new();
    int r = d ? fill(l, f, truncate || made, &d->text, &d->before) : -ENOMEM;
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

/* Start over from the stored value. */
static int restart(struct live *l, struct file *f, bool truncate)
{
    struct draft *d = f->draft;
    struct buf text = BUF_INIT;
    struct shown before = SHOWN_NONE;
    int r = fill(l, f, truncate, &text, &before);
    if (r < 0) {
        buf_free(&text);
        shown_free(&before);
        return r;
    }
    buf_free(&d->text);
    shown_free(&d->before);
    d->text = text;
    d->before = before;
    d->whole = text.len == 0;
    d->closed = d->anew = d->accepted = false;
    d->typed = (struct typed){0};
    d->known = (struct typed_value){0};
    d->why = (struct err){0};
    d->restarts++;
    draft_event(d, DRAFT_REOPEN);
    return 0;
}

/*
 * True if the draft has ended although the kernel may not have reported its last release yet. A
 * program that opens the file begins with the file's content, not with a draft that was accepted or
 * was refused at a close.
 */
static bool is_over(const struct draft *d)
{
    return d->why.code || d->state == DRAFT_SHORT ? d->closed : d->state == DRAFT_ACCEPTED;
}

int draft_join(struct live *l, struct file *f, bool truncate, bool made, const struct err *unready)
{
    assert(lock_held(&l->lock));
    int r = 0;
    if (!f->draft)
        r = begin(l, f, truncate, made, unready);
    else if (is_key(f) && is_over(f->draft))
        r = restart(l, f, truncate);
    if (r < 0)
        return r;
    if (truncate)
        empty(l, f);
    f->draft->writers++;
    return 0;
}

/* Prepare a write at `off`, or a truncation to `off` bytes. A program that goes past the end of the
 * accepted text has seen the stored text and refers to that. */
static int reach(struct live *l, struct file *f, uint64_t off)
{
    bool beyond = f->draft->state == DRAFT_ACCEPTED && off > f->draft->text.len;
    return beyond && is_key(f) ? restart(l, f, false) : 0;
}

/* ---- write ---- */

static int refuse(struct live *l, struct file *f, const struct err *e)
{
    if (!is_key(f))
        return e->code;
    draft_event(f->draft, DRAFT_REFUSE);
    f->draft->why = *e;
    return key_refuse(l, f->of, f->draft, e);
}

/* Write to a draft. Any failure refuses the whole draft, because a partly written text is not a
 * value. */
int draft_write(struct live *l, struct file *f, bool append, uint64_t off, const void *bytes,
                size_t n)
{
    struct draft *d = f->draft;
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
        r = check_room(l, f, end);
    if (r == 0 && end > d->text.len)
        r = set_length(l, f, end);
    if (r == 0 && n)
        memcpy(d->text.data + off, bytes, n);
    if (r < 0)
        (void)err_sys(&e, r, "cannot be written");
    else if (is_key(f) && (d->whole || append)) /* an append keeps the text before it */
        r = key_written(l, f->of, d, d->text.len == n, &e);
    return r < 0 ? refuse(l, f, &e) : 0;
}

int draft_truncate(struct live *l, struct file *f, uint64_t size)
{
    struct draft *d = f->draft;
    assert(lock_held(&l->lock));
    int r = check_room(l, f, size);
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

/*
 * Judge the draft at a close, which may come from a fork in another thread while the text is half
 * written. A text that may still become a value is refused for that close only, and is dropped at
 * the last close.
 */
static int judge_now(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    struct err e = {0};
    int r = edits_accept(l, f->of, &d->text, &e);
    if (r == -EINVAL && key_may_go_on(l, f->of, &d->text)) {
        draft_event(d, DRAFT_LACK);
        return key_refuse(l, f->of, d, &e);
    }
    if (r < 0)
        return refuse(l, f, &e);
    draft_event(d, DRAFT_PASS);
    d->accepted |= r > 0;
    d->anew = false;
    d->typed.set = false; /* the key has the type now */
    promise_make(&f->promise, f->of->edit);
    return r;
}

int draft_settle(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    assert(lock_held(&l->lock));
    if (!is_key(f))
        return 0;
    if (d->state == DRAFT_SHORT) /* not written since then */
        return -EINVAL;
    return d->state == DRAFT_WRITTEN && !d->why.code ? judge_now(l, f) : d->why.code;
}

/* ---- the end, and changes between keys and helpers ---- */

void draft_leave(struct live *l, struct file *f)
{
    assert(lock_held(&l->lock));
    struct draft *d = f->draft;
    if (--d->writers > 0)
        return;
    if (f->kind == FILE_HELPER) {
        file_free_content(&l->names, f);
        f->content = d->text;
        d->text = BUF_INIT;
    } else if (is_key(f) && !l->ending) {
        key_end(l, f);
    }
    f->draft = NULL;
    draft_free(d);
}

void draft_to_key(const struct live *l, struct draft *d, const struct name *x, bool emptied)
{
    shown_free(&d->before);
    d->before = stored_value(l, x);
    d->accepted = false;
    d->why = (struct err){0};
    draft_event(d, DRAFT_EMPTY);
    if (emptied)
        return;
    d->anew = false;
    draft_event(d, DRAFT_WRITE);
    draft_event(d, DRAFT_PASS);
}

void draft_to_helper(struct draft *d, struct buf *text)
{
    buf_free(&d->text);
    d->text = *text;
    *text = BUF_INIT;
    d->whole = d->text.len == 0;
    d->typed.set = false;
    d->anew = false;
    d->why = (struct err){0};
    draft_event(d, DRAFT_EMPTY);
}
