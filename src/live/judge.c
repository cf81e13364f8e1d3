/* SPDX-License-Identifier: MIT */
/* What drafts are judged by: a key's text, a helper's bytes, and what is written to an orphan. See
 * draft.h. */
#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "gguf/keys.h"
#include "live/edits.h"
#include "live/writer.h"
#include "text/scan.h"
#include "text/text.h"

/* ---- a key's text ---- */

static int key_room(struct live *l, const struct file *f, uint64_t n)
{
    (void)l;
    (void)f;
    return n > TEXT_MAX ? -EFBIG : 0;
}

static int key_fill(struct live *l, struct file *f, bool empty, struct draft *d)
{
    d->before = stored_value(l, f->name);
    if (!empty)
        shown_text(&d->before, &d->text);
    return buf_error(&d->text);
}

/*
 * Whether a text that ends in a newline is one to which only blanks, or further lines of an array,
 * can be added: then what is wrong with it stays wrong. In brackets it is if it ends with one (a
 * string of JSON holds no newline). Of arrays of arrays nothing is said.
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

/* What is stored is accepted in any case. */
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

/* Bytes that are not UTF-8 may be a part of the text that the file shows: that is always accepted. */
static bool begins_stored(const struct live *l, const struct name *x, const struct buf *draft)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    CLEANUP(shown_free) struct shown s = stored_value(l, x);
    shown_text(&s, &text);
    return buf_error(&text) ||
           (text.len >= draft->len && memcmp(text.data, draft->data, draft->len) == 0);
}

/*
 * As far as it is cheap to find out. A text that one write brought whole is parsed if it looks so: a
 * shell that echoes learns of a failure only here, for it does not look at what close(2) returns.
 */
static int key_written(struct live *l, struct name *x, const struct draft *d, bool at_once,
                       struct err *e)
{
    const struct buf *text = &d->text;
    struct typed type = stored_known_type(l, x);
    bool known = type.set;
    if (!known && !at_once) /* the type may become another */
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
    if (r == 0) /* only these stay, whatever follows */
        return why == -EINVAL || why == -ERANGE ? why : 0;
    return why < 0 ? r : err_set(e, r, "cannot become a value of its type: %s", strerror(-r));
}

/* It ends within a line. */
static bool key_may_go_on(struct live *l, const struct name *x, const struct buf *text)
{
    struct typed type = stored_known_type(l, x);
    bool open = type.set && text->len && !looks_whole(&type, text);
    return open && text_prefix_check(type.type, type.elem, text->data, text->len) == 0;
}

/*
 * A program that wrote half of a text and forked has had that half accepted: fork(2) and exec(2)
 * close too. Now that the rest is refused, the value from before the draft comes back.
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

/* What a mere truncation makes: the empty string or array. */
static void accept_truncation(struct live *l, struct file *f)
{
    struct err e = {0};
    struct name *x = f->name;
    struct typed type = stored_known_type(l, x);
    const struct key_row *row = key_find(x->key, x->key_len);
    if (!type.set)
        type.type = row ? row->type : GGUF_STRING;
    if (type.type != GGUF_STRING && type.type != GGUF_ARRAY)
        return;
    int r = edits_accept(l, x, &f->draft->text, &e);
    draft_event(f->draft, r < 0 ? DRAFT_FAILED : DRAFT_PASSED);
    if (r >= 0)
        promise_make(&f->promise, x->edit);
    if (r < 0)
        l->failed = name_refused(l, x, &e); /* a release reports to nobody */
    else if (r > 0)
        (void)writer_accepted(l, NULL);
}

/* At the end of the mount a release is the daemon's own, not the program's: what no flush or fsync
 * has judged is dropped. */
static void key_end(struct live *l, struct file *f)
{
    struct draft *d = f->draft;
    if (l->ending)
        return;
    if (d->state == DRAFT_EMPTIED)
        accept_truncation(l, f);
    else if (draft_settle(l, f) > 0) /* the process was killed */
        (void)writer_accepted(l, NULL);
}

static const struct judge judge_key = {.room = key_room,
                                       .fill = key_fill,
                                       .written = key_written,
                                       .accept = edits_accept,
                                       .may_go_on = key_may_go_on,
                                       .refuse = key_refuse,
                                       .end = key_end};

/* ---- a helper's bytes ---- */

static int helper_room(struct live *l, const struct file *f, uint64_t n)
{
    return names_have_room(&l->names, f->draft->text.len, n) ? 0 : -ENOSPC;
}

static int helper_fill(struct live *l, struct file *f, bool empty, struct draft *d)
{
    (void)l;
    (void)empty;
    d->text = f->content;
    f->content = BUF_INIT;
    return 0;
}

static void helper_end(struct live *l, struct file *f)
{
    file_free_content(&l->names, f);
    f->content = f->draft->text;
    f->draft->text = BUF_INIT;
}

static const struct judge judge_helper = {
    .room = helper_room, .fill = helper_fill, .end = helper_end};

/* Nothing: of an orphan of a key. */
static const struct judge judge_orphan = {.room = key_room};

const struct judge *const judges[JUDGES] = {&judge_key, &judge_helper, &judge_orphan};
