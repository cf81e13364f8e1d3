/* SPDX-License-Identifier: MIT */
/*
 * From a text to a new generation: values are parsed, changes appended to the list of what is not
 * yet on disk, and the whole is planned anew, so that what is accepted is known to be writable and
 * is shown at once. See internal.h; edit/change.h, edit/plan.h.
 */
#include "tree/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "gguf/keys.h"
#include "tree/text.h"
#include "tree/text_infer.h"
#include "tree/text_parse.h"

void tree_log(const struct tree *t, int priority, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    if (!t->opt.log)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    t->opt.log(priority, line);
}

bool edits_value(const struct tree *t, const struct kfile *f, struct gguf_value *ret)
{
    const struct gguf *g = t->now.gen->gguf;
    uint32_t kv = t->keys.kv[f->id];
    if (kv == KV_NONE)
        return false;
    *ret = gguf_value(g, &g->kv[kv]);
    return true;
}

bool edits_known_type(const struct tree *t, const struct kfile *f, uint32_t *type, uint32_t *elem)
{
    struct gguf_value v;
    if (kfile_type(f, type, elem))
        return true;
    if (!edits_value(t, f, &v))
        return false;
    *type = v.type;
    *elem = v.elem;
    return true;
}

/* The value's bytes in the header, after its type word. */
static size_t stored(const struct tree *t, const struct kfile *f, const uint8_t **ret)
{
    const struct gguf *g = t->now.gen->gguf;
    const struct gguf_kv *kv = &g->kv[t->keys.kv[f->id]];
    *ret = g->head + kv->val_off;
    return (size_t)(kv->end - kv->val_off);
}

/* ---- planning ---- */

/* Make `gen` (a reference, taken on success) the newest. */
static int adopt(struct tree *t, struct gen *gen)
{
    int r = keys_follow(&t->keys, t->now.gen->gguf, gen->gguf);
    if (r < 0)
        return r;
    gen_unref(t->now.gen);
    t->now.gen = gen;
    return 0;
}

static int adopt_plan(struct tree *t, struct edit_plan *p, struct err *e)
{
    struct timespec now;
    struct gen *gen;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int r = tree_gen(t, edit_plan_steal(p), t->generations + 1, &now, &gen, e);
    if (r < 0)
        return r;
    r = adopt(t, gen);
    if (r < 0) {
        gen_unref(gen);
        return err_set(e, r, "no memory");
    }
    t->generations++;
    return 0;
}

/* Plan all that is pending, and show it. On failure nothing has changed. */
static int replan(struct tree *t, struct err *e)
{
    const struct gen *base = t->writer.flight ? t->writer.flight : t->writer.disk;
    struct edit_plan p = EDIT_PLAN_INIT;
    int r = edit_plan_make(gen_own(base), &t->writer.next.change, &t->edit, &p, e);
    if (r < 0)
        return r;
    r = adopt_plan(t, &p, e);
    if (r < 0) {
        edit_plan_free(&p);
        return r;
    }
    edit_plan_free(&t->writer.next.plan);
    t->writer.next.plan = p;
    return 0;
}

struct mark edits_mark(const struct tree *t)
{
    const struct pending *p = &t->writer.next;
    return (struct mark){p->change.n, p->change.bytes.len, p->notes.len};
}

static void cut_back(struct tree *t, const struct mark *m)
{
    struct pending *p = &t->writer.next;
    p->change.n = m->ops;
    p->change.bytes.len = m->bytes;
    p->notes.len = m->notes;
}

/* An operation was appended (r is what that gave): plan it, or take it back. */
static int finish(struct tree *t, const struct mark *m, int r, struct err *e)
{
    if (r < 0)
        (void)err_set(e, r, "no memory");
    else
        r = replan(t, e);
    if (r < 0)
        cut_back(t, m);
    else
        t->writer.next.last = *m;
    if (r == 0) {
        t->writer.next.edits++;
        t->writer.next.owner = NULL;
    }
    return r < 0 ? r : 1;
}

static void note(struct tree *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(struct tree *t, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    buf_add(&t->writer.next.notes, line, strlen(line) + 1);
}

/* ---- values ---- */

/* An empty text has no memory, but an address all the same: there is arithmetic on it. */
static const uint8_t *bytes_of(const struct buf *text)
{
    return text->len ? text->data : (const uint8_t *)"";
}

void edits_type(const struct tree *t, const struct kfile *f, const struct buf *text, uint32_t *type,
                uint32_t *elem)
{
    if (!edits_known_type(t, f, type, elem))
        text_new_type(key_find(f->key, f->key_len), bytes_of(text), text->len, type, elem);
}

static void note_set(struct tree *t, const struct kfile *f, uint32_t type, uint32_t elem,
                     size_t was, size_t is)
{
    char name[SHOW_MAX], type_text[GGUF_TYPE_NAME_MAX];
    struct gguf_value v = {.type = (uint8_t)type, .elem = (uint8_t)elem};
    (void)show(name, f->key, f->key_len);
    (void)gguf_type_name(&v, type_text);
    if (was == SIZE_MAX)
        note(t, "%s: new, %s, %zu bytes", name, type_text, is);
    else
        note(t, "%s: %s, %zu -> %zu bytes", name, type_text, was, is);
}

/* Append the operation that gives a key these bytes. */
static int set_value(struct tree *t, struct kfile *f, uint32_t type, uint32_t elem,
                     const struct buf *payload, bool known, struct err *e)
{
    const uint8_t *old;
    struct mark m = edits_mark(t);
    /* A string's text is what people count, not its length word. */
    size_t word = type == GGUF_STRING ? t->now.gen->gguf->fmt.len_width : 0;
    note_set(t, f, type, elem, known ? stored(t, f, &old) - word : SIZE_MAX, payload->len - word);
    int r = f->after ? edit_set_after(&t->writer.next.change, f->key, f->key_len, type,
                                      payload->data, payload->len, f->after, f->after_len)
                     : edit_set(&t->writer.next.change, f->key, f->key_len, type, payload->data,
                                payload->len);
    return finish(t, &m, r, e);
}

static int not_for_editing(struct err *e)
{
    return err_set(e, -EPERM, "is not for editing");
}

int edits_accept(struct tree *t, struct kfile *f, const struct buf *text, struct err *e)
{
    CLEANUP(buf_free) struct buf payload = BUF_INIT;
    struct gguf_value old;
    const uint8_t *bytes;
    uint32_t type, elem;
    bool known = edits_value(t, f, &old);
    edits_type(t, f, text, &type, &elem);
    int r = text_parse(&t->now.gen->gguf->fmt, type, elem, bytes_of(text), text->len,
                       known ? &old : NULL, &payload, e);
    if (r < 0) /* of what cannot be edited nothing else is to be said */
        return edit_is_own_key(f->key, f->key_len) ? not_for_editing(e) : r;
    bool same = known && old.type == type && stored(t, f, &bytes) == payload.len &&
                memcmp(bytes, payload.data, payload.len) == 0;
    if (!same && edit_is_own_key(f->key, f->key_len))
        return not_for_editing(e);
    r = same ? 0 : set_value(t, f, type, elem, &payload, known, e);
    if (r < 0)
        return r;
    f->state = KFILE_KEY;
    f->typed = false;
    if (r == 0) /* no edit: what an editor restores after a refused write does not hide why */
        return 0;
    (void)clock_gettime(CLOCK_REALTIME, &f->mtime);
    kfile_set_error(f, NULL);
    return r;
}

int edits_refused(struct tree *t, struct kfile *f, const struct err *e)
{
    char name[SHOW_MAX];
    tree_log(t, LOG_WARNING, "%s: refused: %s", show(name, f->file, strlen(f->file)), e->msg);
    kfile_set_error(f, e->msg);
    return e->code;
}

int edits_retype(struct tree *t, struct kfile *f, uint32_t type, uint32_t elem, struct err *e)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    if (t->keys.kv[f->id] == KV_NONE)
        return err_set(e, -EINVAL, "has no value yet");
    if (strcmp(f->key, "general.alignment") == 0)
        return err_set(e, -EINVAL, "its type cannot be changed");
    key_text(t->now.gen, t->keys.kv[f->id], &text);
    if (buf_error(&text))
        return err_set(e, buf_error(&text), "no memory");
    if (f->draft) /* opened as KEY:TYPE: this was told later */
        f->draft->typed = false;
    f->typed = true;
    f->type = type;
    f->elem = elem;
    int r = edits_accept(t, f, &text, e);
    f->typed = false;
    return r;
}

/* ---- names ---- */

int edits_remember(struct tree *t, struct kfile *f)
{
    const struct gguf *g = t->now.gen->gguf;
    uint32_t kv = t->keys.kv[f->id];
    struct gguf_value v = gguf_value(g, &g->kv[kv]);
    const struct gguf_kv *before = kv ? &g->kv[kv - 1] : NULL;
    char *after = before ? malloc(before->key_len) : NULL;
    if (before && !after)
        return -ENOMEM;
    if (before)
        memcpy(after, gguf_key(g, before), before->key_len);
    free(f->after);
    f->after = after;
    f->after_len = before ? before->key_len : 0;
    f->typed = true;
    f->type = v.type;
    f->elem = v.elem;
    return 0;
}

/* Append the removal of one key. */
static int remove_key(struct tree *t, struct kfile *f)
{
    char name[SHOW_MAX];
    int r = edits_remember(t, f);
    if (r == 0)
        r = edit_remove(&t->writer.next.change, f->key, f->key_len);
    if (r == 0)
        note(t, "%s: removed", show(name, f->key, f->key_len));
    return r;
}

int edits_remove_due(struct tree *t)
{
    struct err e = {0};
    struct mark m = edits_mark(t);
    int r = 0;
    /* From the last to the first: each is remembered behind one that is still there. */
    for (uint32_t i = t->keys.n; i-- > 0 && r == 0;)
        if (t->keys.file[i] && t->keys.file[i]->state == KFILE_REMOVED)
            r = remove_key(t, t->keys.file[i]);
    if (m.ops == t->writer.next.change.n && r == 0)
        return 0;
    r = finish(t, &m, r, &e);
    if (r > 0)
        return 0;
    for (uint32_t i = 0; i < t->keys.n; i++)
        if (t->keys.file[i] && t->keys.file[i]->state == KFILE_REMOVED) {
            t->keys.file[i]->state = KFILE_KEY;
            t->keys.file[i]->typed = false;
            (void)edits_refused(t, t->keys.file[i], &e);
        }
    return r;
}

int edits_rename(struct tree *t, struct kfile *from, struct kfile *to, struct err *e)
{
    char a[SHOW_MAX], b[SHOW_MAX];
    struct mark m = edits_mark(t);
    int r = edits_remember(t, from);
    if (r < 0)
        return err_set(e, r, "no memory");
    note(t, "%s: renamed to %s", show(a, from->key, from->key_len), show(b, to->key, to->key_len));
    r = edit_rename(&t->writer.next.change, from->key, from->key_len, to->key, to->key_len);
    r = finish(t, &m, r, e);
    if (r > 0)
        to->mtime = from->mtime;
    return r;
}

/* ---- after a failure ---- */

void edits_take_back(struct tree *t)
{
    struct mark last = t->writer.next.last;
    cut_back(t, &last);
    edits_rebase(t);
}

void edits_drop(struct tree *t)
{
    struct pending *p = &t->writer.next;
    struct gen *base = t->writer.flight ? t->writer.flight : t->writer.disk;
    t->writer.losses++;
    edit_change_free(&p->change);
    edit_plan_free(&p->plan);
    buf_free(&p->notes);
    p->change = EDIT_CHANGE_INIT;
    p->plan = EDIT_PLAN_INIT;
    p->edits = 0;
    p->owner = NULL;
    if (adopt(t, gen_ref(base)) < 0) {
        gen_unref(base);
        tree_log(t, LOG_ERR, "no memory to go back to what is on disk");
    }
    keys_land(&t->keys, false, false);
}

void edits_rebase(struct tree *t)
{
    struct err e = {0};
    size_t n = t->writer.next.change.n;
    t->writer.losses++;
    if (n > 0 && replan(t, &e) == 0)
        return;
    if (n > 0) {
        tree_log(t, LOG_ERR, "edits that followed are dropped: %s", e.msg);
        t->writer.failed = e.code; /* for those who wait for them */
    }
    edits_drop(t);
}
